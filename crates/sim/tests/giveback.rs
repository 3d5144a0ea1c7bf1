//! The governor by the built-in profile of memory that is given back, on a simulated guest: it
//! holds less memory than without a daemon, and little of what it drops is read again.

use std::time::Duration;

use ramslice_policy::{AnyPolicy, PolicyConfig, PolicyKind, SliceEconomics};
use ramslice_sim::load::{LoadGenerator, LoadPattern, LoadScale};
use ramslice_sim::{RunDecider, SimConfig, SimMachine, SimRun, run};
use ramslice_types::Bytes;

const MIB: u64 = 1 << 20;
const GUEST: Bytes = Bytes(1024 * MIB);
const SLICE: Bytes = Bytes(32 * MIB);
const PAGE: Bytes = Bytes(4096);
const HOURS: u64 = 2;

fn guest(pattern: LoadPattern, kind: PolicyKind, by_profile: bool, seed: u64) -> SimRun {
    let config = SimConfig { boot_share: 0.01, seed, ..SimConfig::new(GUEST, SLICE) };
    let mut machine = SimMachine::new(config).unwrap();
    let scale = LoadScale {
        pages: machine.totals().managed.0,
        step: Duration::from_secs(30),
        duration: Duration::from_secs(HOURS * 3600),
        seed,
    };
    let profile = ramslice_energy::builtin_giveback().unwrap();
    let economics = SliceEconomics::of_giveback(&profile, SLICE, PAGE).unwrap();
    let economics = by_profile.then_some(&economics);
    let policy = AnyPolicy::new(&PolicyConfig::new(kind), economics, SLICE, PAGE).unwrap();
    let load = LoadGenerator::new(pattern, scale);
    run(&mut machine, load, &mut RunDecider::Policy(policy), |_| ())
}

/// GiB hours that the guest holds: all that is not off.
fn held(run: &SimRun) -> f64 {
    let hours = run.duration.as_secs_f64() / 3600.0;
    GUEST.0 as f64 / (1024 * MIB) as f64 * hours - off(run)
}

/// GiB hours that are off.
fn off(run: &SimRun) -> f64 {
    run.stats.off_byte_us as f64 / (1024 * MIB) as f64 / 3.6e9
}

#[test]
fn the_governor_holds_less_than_never_and_rereads_less_than_it_earns() {
    let profile = ramslice_energy::builtin_giveback().unwrap();
    let per_gib = profile.refaults.value.unwrap().high().0;
    for pattern in LoadPattern::ALL {
        for by_profile in [true, false] {
            let never = guest(pattern, PolicyKind::Never, true, 7);
            let governor = guest(pattern, PolicyKind::Governor, by_profile, 7);
            let reread = governor.stats.packing_refault_pages as f64 * 4096.0 / (1024 * MIB) as f64;
            let line = format!(
                "{} {by_profile}: held {:.2} of {:.2} GiB h, {reread:.2} GiB read again, {} woke",
                pattern.name(),
                held(&governor),
                held(&never),
                governor.stats.demand_wakes
            );
            println!("{line}");
            assert_eq!(never.stats.packing_refault_pages, 0);
            assert!(held(&governor) < 0.9 * held(&never), "{line}");
            // At most 0.22 GiB in two hours on these loads, of which the guest has 1 GiB.
            assert!(reread < 0.3, "{line}");
            // Even at the dear end of what refaults may cost.
            assert!(reread * per_gib < 0.05 * off(&governor), "{line}");
        }
    }
}
