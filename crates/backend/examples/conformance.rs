//! The suite of [`ramslice_conformance`] over the running kernel: `conformance kernel` or
//! `conformance stock`.
//!
//! It empties slices of this machine and wakes them again. Root only.

use std::path::Path;
use std::process::ExitCode;

use ramslice_backend::{BackendKind, open_backend};
use ramslice_conformance::{CheckSettings, check, rules};
use ramslice_types::Pages;

fn main() -> ExitCode {
    let kind = match std::env::args().nth(1).as_deref() {
        Some("kernel") => BackendKind::Patched,
        Some("stock") => BackendKind::Stock,
        _ => {
            eprintln!("usage: conformance kernel|stock");
            return ExitCode::from(2);
        }
    };
    let backend = match open_backend(Path::new("/"), Some(kind)) {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::from(2);
        }
    };
    // A live machine: memory changes hands between two sums, and what lies free in per-CPU lists,
    // some tens of megabytes after much was freed, counts as in use until packing drains them.
    let settings = CheckSettings { tolerance: Pages(16384), contents: true, events: true };
    let broken = check(&*backend, settings);
    for (rule, why) in &broken {
        println!("broken: {rule}: {why}");
    }
    println!("{} of {} rules hold", rules() - broken.len(), rules());
    ExitCode::from(u8::from(!broken.is_empty()))
}
