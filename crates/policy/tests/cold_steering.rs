//! Steering of what moves to cold nodes: limits hold whatever is seen, and each reason to pause
//! pauses.

use std::time::Duration;

use proptest::prelude::*;
use ramslice_policy::{
    ColdLimits, ColdPairView, ColdPause, ColdPlan, ColdRates, ColdSteering, ColdView,
};
use ramslice_types::{Bytes, Ratio};

const MIB: u64 = 1 << 20;
const TICK: Duration = Duration::from_secs(10);

fn limits() -> ColdLimits {
    ColdLimits {
        idle: Duration::from_mins(2),
        in_use: Ratio(0.25),
        rate: Bytes(16 * MIB),
        cpu_share: Ratio(0.01),
    }
}

fn half_full() -> ColdPairView {
    ColdPairView {
        cold_size: Bytes(1024 * MIB),
        room: Bytes(512 * MIB),
        room_back: Bytes(512 * MIB),
        ..ColdPairView::default()
    }
}

fn decide(steering: &mut ColdSteering, pair: ColdPairView, cpu: Option<f64>) -> ColdPlan {
    let view = ColdView {
        elapsed: TICK,
        horizon: TICK,
        cpu_share: cpu.map(Ratio),
        break_even: None,
        pairs: &[pair],
    };
    steering.decide(&limits(), &view)
}

#[test]
fn with_room_and_cpu_time_the_full_rate_goes_both_ways() {
    let plan = decide(&mut ColdSteering::default(), half_full(), None);
    let rate = Some(Bytes(16 * MIB));
    assert_eq!(plan.rates, [ColdRates { to_cold: rate, back: rate }]);
    assert_eq!((plan.pause, plan.stopped), (None, false));
    assert_eq!((plan.idle, plan.idle_age(), plan.samples()), (limits().idle, 60, 20));
    assert_eq!((plan.accesses_idle(), plan.accesses_in_use(Ratio(0.25))), (1, 5));
}

#[test]
fn less_goes_as_the_node_fills_and_none_to_a_full_one() {
    let rate = |room: u64| {
        let pair = ColdPairView { room: Bytes(room * MIB), ..half_full() };
        let plan = decide(&mut ColdSteering::default(), pair, None);
        (plan.rates[0].to_cold.map_or(0, |rate| rate.0 / MIB), plan.pause)
    };
    assert_eq!(rate(1024), (16, None));
    assert_eq!(rate(32 + 128), (8, None));
    assert_eq!(rate(32 + 32), (2, None));
    assert_eq!(rate(32), (0, Some(ColdPause::Full)));
    let pair = ColdPairView { room: Bytes(0), ..half_full() };
    let plan = decide(&mut ColdSteering::default(), pair, None);
    assert!(plan.rates[0].back.is_some(), "what is in use comes back from a full node");
}

#[test]
fn at_the_limit_of_cpu_time_nothing_moves_and_sampling_gets_coarser() {
    let mut steering = ColdSteering::default();
    let fine = decide(&mut steering, half_full(), Some(0.005));
    let over = decide(&mut steering, half_full(), Some(0.01));
    assert_eq!((over.pause, &over.rates[..]), (Some(ColdPause::Cpu), &[ColdRates::default()][..]));
    assert!(over.sample > fine.sample && over.max_regions < fine.max_regions);
    // Until it has been measured again
    assert_eq!(decide(&mut steering, half_full(), None).pause, Some(ColdPause::Cpu));
    let below = decide(&mut steering, half_full(), Some(0.005));
    assert_eq!((below.pause, below.rates[0].to_cold), (None, Some(Bytes(8 * MIB))));
    // Far below the limit, all is taken back
    for _ in 0..4 {
        decide(&mut steering, half_full(), Some(0.0));
    }
    assert_eq!(decide(&mut steering, half_full(), None), fine);
}

#[test]
fn a_monitor_that_is_too_dear_at_its_coarsest_is_off_for_a_while() {
    let mut steering = ColdSteering::default();
    let stopped = (0..9).any(|_| decide(&mut steering, half_full(), Some(1.0)).stopped);
    assert!(stopped);
    let off = (0..1000).take_while(|_| decide(&mut steering, half_full(), None).stopped).count();
    assert!((40..60).contains(&off), "{off} decisions of 10 s");
    assert_eq!(decide(&mut steering, half_full(), None).pause, None);
}

#[test]
fn pages_that_come_back_too_early_must_be_idle_for_longer() {
    let break_even = Duration::from_mins(10);
    let idle = |steering: &mut ColdSteering, went: u64, returned: u64| {
        let pair = ColdPairView {
            went: Bytes(went * MIB),
            returned: Bytes(returned * MIB),
            ..half_full()
        };
        let view = ColdView {
            elapsed: Duration::from_mins(1),
            horizon: TICK,
            cpu_share: None,
            break_even: Some(break_even),
            pairs: &[pair],
        };
        steering.decide(&limits(), &view).idle
    };
    let mut steering = ColdSteering::default();
    assert_eq!(idle(&mut steering, 0, 0), break_even, "an idle page is expected to stay so");
    // All comes back within a minute
    let longest = (0..60).map(|_| idle(&mut steering, 100, 100)).max().unwrap();
    assert!(longest >= break_even * 2, "{longest:?}");
    // All stays
    let last = (0..20_000).map(|_| idle(&mut steering, 100, 0)).last().unwrap();
    assert_eq!(last, break_even);
}

prop_compose! {
    fn pair()(size in 0..1u64 << 40, room in 0..1u64 << 40, back in 0..1u64 << 40,
              went in 0..1u64 << 34, returned in 0..1u64 << 34) -> ColdPairView {
        ColdPairView {
            cold_size: Bytes(size), room: Bytes(room.min(size)), room_back: Bytes(back),
            went: Bytes(went), returned: Bytes(returned),
        }
    }
}

prop_compose! {
    fn look()(pairs in prop::collection::vec(pair(), 1..4), cpu in prop::option::of(0.0..2.0f64),
              elapsed in 0..600_000u64, horizon in 1..60_000u64,
              break_even in prop::option::of(0..1_000_000u64))
        -> (Vec<ColdPairView>, Option<f64>, Duration, Duration, Option<Duration>) {
        (pairs, cpu, Duration::from_millis(elapsed), Duration::from_millis(horizon),
         break_even.map(Duration::from_secs))
    }
}

prop_compose! {
    fn any_limits()(idle in 100..10_000_000u64, in_use in 0.001..=1.0f64, rate in 1..1u64 << 36,
                    cpu in 0.001..=1.0f64) -> ColdLimits {
        ColdLimits {
            idle: Duration::from_millis(idle), in_use: Ratio(in_use), rate: Bytes(rate),
            cpu_share: Ratio(cpu),
        }
    }
}

proptest! {
    #[test]
    fn limits_hold_whatever_is_seen(limits in any_limits(),
                                    looks in prop::collection::vec(look(), 1..40)) {
        let mut steering = ColdSteering::default();
        let mut off = false;
        for (pairs, cpu, elapsed, horizon, break_even) in looks {
            let view = ColdView {
                elapsed, horizon, cpu_share: cpu.map(Ratio), break_even, pairs: &pairs,
            };
            let plan = steering.decide(&limits, &view);
            prop_assert!(plan.idle >= limits.idle);
            prop_assert!(plan.idle >= break_even.unwrap_or_default());
            prop_assert!(plan.sample > Duration::ZERO && plan.sample <= plan.aggregation);
            prop_assert!(plan.aggregation <= Duration::from_secs(4));
            prop_assert!(plan.max_regions >= 10 && plan.samples() >= 5);
            prop_assert!((1..=plan.samples()).contains(&plan.accesses_in_use(limits.in_use)));
            prop_assert!(plan.accesses_idle() <= 1);
            prop_assert!(plan.aggregation * plan.idle_age() >= plan.idle);
            // While the monitor is off, there is nothing to measure.
            if plan.stopped || (!off && cpu.is_some_and(|cpu| cpu >= limits.cpu_share.0)) {
                prop_assert_eq!(plan.pause, Some(ColdPause::Cpu));
            }
            off = plan.stopped;
            for (rates, pair) in plan.rates.iter().zip(&pairs) {
                if plan.pause == Some(ColdPause::Cpu) {
                    prop_assert_eq!(*rates, ColdRates::default());
                }
                for (rate, room) in [(rates.to_cold, pair.room), (rates.back, pair.room_back)] {
                    let Some(rate) = rate else { continue };
                    prop_assert!(rate.0 > 0 && rate <= limits.rate);
                    let moved = rate.0 as f64 * horizon.as_secs_f64();
                    prop_assert!(moved <= room.0 as f64 + 1.0, "{} in {}", moved, room);
                }
            }
        }
    }

    #[test]
    fn more_room_never_means_less(pair in pair(), more in 0..1u64 << 38) {
        let wide = ColdPairView { room: pair.room + Bytes(more), ..pair };
        let rate = |pair| decide(&mut ColdSteering::default(), pair, None).rates[0].to_cold;
        prop_assert!(rate(pair) <= rate(wide));
    }
}
