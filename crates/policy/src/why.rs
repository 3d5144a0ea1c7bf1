//! Why a policy acts or not: plain data, so that a step costs no text, and sentences for people.

use std::fmt;
use std::time::Duration;

use ramslice_types::Budget;

/// The reason of a decision. Its text is made only when somebody reads it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Why {
    /// The policy never acts.
    #[default]
    Never,
    /// The period is not over.
    NotDue {
        /// Until then.
        wait: Duration,
    },
    /// The period is over.
    Due {
        /// What may be spent.
        budget: Budget,
        /// For each slice rather than for all.
        per_slice: bool,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Never => f.write_str("does nothing: that is the policy"),
            Self::NotDue { wait } => write!(f, "does nothing: acts again in {} s", wait.as_secs()),
            Self::Due { budget, per_slice } => {
                let each = if per_slice { " for each slice" } else { "" };
                write!(f, "compacts: the period is over; budget {budget} (units of 100 cycles){each}")
            }
        }
    }
}
