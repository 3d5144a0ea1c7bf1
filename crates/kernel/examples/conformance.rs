//! The suite of [`ramslice_conformance`] over the running kernel: `conformance kernel` or `conformance stock`.
//!
//! It empties slices of this machine and wakes them again. Root only.

use std::path::Path;
use std::process::ExitCode;

use ramslice_conformance::{Settings, check, rules};
use ramslice_kernel::{Way, open};
use ramslice_types::Pages;

fn main() -> ExitCode {
    let way = match std::env::args().nth(1).as_deref() {
        Some("kernel") => Way::Kernel,
        Some("stock") => Way::Stock,
        _ => {
            eprintln!("usage: conformance kernel|stock");
            return ExitCode::from(2);
        }
    };
    let backend = match open(Path::new("/"), Some(way)) {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::from(2);
        }
    };
    // A live machine: 16 MiB may change hands between two sums.
    let settings = Settings { tolerance: Pages(4096), contents: true, events: true };
    let broken = check(&*backend, settings);
    for (rule, why) in &broken {
        println!("broken: {rule}: {why}");
    }
    println!("{} of {} rules hold", rules() - broken.len(), rules());
    ExitCode::from(u8::from(!broken.is_empty()))
}
