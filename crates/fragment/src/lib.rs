//! Artificial fragmentation: memory filled with a known mix of free, anonymous and file pages.
//!
//! The program of Listing 4.1 of the Hannover thesis (2024, §4.1.1), with the ranges of
//! probabilities of §4.2.2. Three areas of one size are walked side by side. At each step and for
//! each area, a number from a seeded generator decides whether the next page is touched: of a file,
//! of an area to be freed, of an area to be kept. So the pages of the three lie mixed in physical
//! memory. Then the second area is freed, the file's pages stay behind as clean unmapped cache, and
//! the third stays mapped, by as many processes as wanted.
//!
//! [`FragmentedMemory::make`] does it, [`PageAccount`] says what is really there. It runs on any
//! Linux kernel.

mod error;
mod fill;
pub mod mix;
mod page_account;
mod recipe;
mod sys;

pub use error::FragmentError;
pub use fill::{FillPlan, FillStep, FragmentedMemory};
pub use mix::{PageMix, PageProbability};
pub use page_account::{PageAccount, PagesByKind, WalkBin};
pub use recipe::{FillAmount, FillRecipe};
