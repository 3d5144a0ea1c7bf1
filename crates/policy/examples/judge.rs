//! Prints what share of the clairvoyant's net each policy earns, by kind of load.
//!
//! `cargo run --release -p ramslice-policy --example judge -- FIRST_SEED SEEDS`

#[path = "../tests/loads/mod.rs"]
mod loads;

use std::time::{Duration, Instant};

use loads::TestLoad;
use ramslice_energy::builtin;
use ramslice_policy::bench::{PAGE_BYTES, SLICE_BYTES, run};
use ramslice_policy::clairvoyant::optimum;
use ramslice_policy::model::SliceCosts;
use ramslice_policy::settings::BudgetLimit;
use ramslice_policy::{AnyPolicy, Policy, PolicyConfig, PolicyKind, SliceEconomics};
use ramslice_types::Bytes;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (first, seeds) = (args.next().unwrap_or(0), args.next().unwrap_or(20));
    let profile = builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state("parc").unwrap();
    let gib = Bytes(1 << 30);
    let economics =
        SliceEconomics::new(state, profile.machine.as_ref().unwrap(), gib, PAGE_BYTES).unwrap();
    let mut all = Vec::new();
    for load in TestLoad::ALL {
        for (slices, step, steps) in [(32, 30.0, 2880), (96, 300.0, 2304), (1024, 30.0, 2880)] {
            let mut line =
                format!("{:8} {slices:5} slices {step:3} s {steps} steps:", format!("{load:?}"));
            for kind in PolicyKind::ALL {
                let (mut shares, mut spent, mut count, mut wakes) =
                    (Vec::new(), Duration::ZERO, 0, 0);
                for seed in first..first + seeds {
                    let series = load.series(seed, slices, step, steps);
                    let best = optimum(&series, SliceCosts::new(&economics, step)).net();
                    let mut config = PolicyConfig::new(kind);
                    config.threshold.max_slices = slices / 4;
                    // Such a slice costs 17 million units: the best budget of the case studies
                    // would empty none.
                    config.periodic.budget = BudgetLimit(Some(32_000_000));
                    let mut policy =
                        AnyPolicy::new(&config, &economics, SLICE_BYTES, PAGE_BYTES).unwrap();
                    let begin = Instant::now();
                    let result = run(
                        &mut policy as &mut dyn Policy,
                        &series,
                        &economics,
                        Duration::from_secs_f64(step),
                        |_, _, _| {},
                    );
                    spent += begin.elapsed();
                    count += steps;
                    wakes += result.account.demand_wakes;
                    shares.push(result.account.net() / best);
                }
                shares.sort_by(f64::total_cmp);
                line += &format!(
                    "  {kind} {:.3} [{:.3}] {:.1} us {} wakes",
                    shares[shares.len() / 2],
                    shares[0],
                    spent.as_secs_f64() * 1e6 / count as f64,
                    wakes / seeds
                );
                if kind == PolicyKind::Governor {
                    all.extend(shares);
                }
            }
            println!("{line}");
        }
    }
    all.sort_by(f64::total_cmp);
    println!(
        "governor: median {:.3}, tenth {:.3}, least {:.3} of {}",
        all[all.len() / 2],
        all[all.len() / 10],
        all[0],
        all.len()
    );
}
