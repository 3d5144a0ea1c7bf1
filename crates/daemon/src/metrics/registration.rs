//! Every metric with its name, help text and unit.

use std::sync::Mutex;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::{
    CacheMetrics, ColdMetrics, DaemonMetrics, FloatGauge, ReportedMemory, TakerMetrics, seconds,
    tenths,
};

impl DaemonMetrics {
    /// Registers all metrics, at 0.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ramslice");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The daemon's version", version);
        let other = |unit: &str| Unit::Other(unit.to_owned());
        macro_rules! metric {
            ($name:literal, $help:literal) => {
                metric!($name, $help, Default::default())
            };
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, Clone::clone(&metric));
                metric
            }};
            ($name:literal, $help:literal, $metric:expr, $unit:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, $unit, Clone::clone(&metric));
                metric
            }};
        }
        let metrics = Self {
            running: metric!(
                "up",
                "1 if the last step could read the machine or needs none, and the settings fit it"
            ),
            mode: metric!("mode", "1 for the mode that the daemon is in: observe, on or off"),
            policy: metric!("policy", "1 for the policy that decides"),
            zones: Mutex::default(),
            slices: metric!("slices", "Slices by state; in mode observe as they would be"),
            empty: metric!("empty_slices", "Slices that are online and wholly free"),
            slice_bytes: metric!("slice_size", "Size of a slice", Gauge::default(), Unit::Bytes),
            memory: metric!(
                "memory",
                "Memory by kind: managed, free (and awake), offline, reserve (never switched off)",
                Family::default(),
                Unit::Bytes
            ),
            reported: ReportedMemory::new(
                metric!(
                    "reported",
                    "Memory that the host of this virtual machine was told it may use, in mode \
                     observe what it would be told; 0 without the power driver ramslice_report",
                    Gauge::default(),
                    Unit::Bytes
                ),
                metric!(
                    "reported_byte_seconds",
                    "The same times how long: divided by 2^30 and 3600, in GiB hours"
                ),
            ),
            offline_ratio: metric!(
                "fragmentation_offline",
                "c: offline / (free + offline), the part of free memory that is off",
                Family::default(),
                other("ratio")
            ),
            offline_bound: metric!(
                "fragmentation_bound",
                "The most that c could be with whole slices, the awake reserve and unmovable \
                 memory",
                Family::default(),
                other("ratio")
            ),
            energy: metric!(
                "energy",
                "Joules by account (saved, invested, net), at least (low) and at most (high); in \
                 mode \
                 observe what would have been",
                Family::default(),
                Unit::Joules
            ),
            energy_seconds: metric!(
                "energy_accounted",
                "The time that the joules cover",
                Family::default(),
                Unit::Seconds
            ),
            loss_cap: metric!(
                "loss_cap",
                "The most that the governor can have lost, with the daemon's own cost, by mode; \
                 absent \
                 for other policies",
                Family::default(),
                Unit::Joules
            ),
            woken_slices: metric!(
                "woken_slices",
                "Slices that woke, by cause; in mode observe those that would have woken"
            ),
            offlined_slices: metric!(
                "switched_off_slices",
                "Slices that were switched off, or would have been, by mode"
            ),
            offlined_by_others: metric!(
                "switched_off_by_others_slices",
                "Slices that another program switched off"
            ),
            migrated_pages: metric!(
                "migrated_pages",
                "Pages that requests moved to other slices, or would have, by mode"
            ),
            dropped_pages: metric!(
                "dropped_pages",
                "Pages of clean cache that requests dropped, or would have, by mode"
            ),
            share: metric!(
                "emptied_migrated",
                "The share of pages that had to move out of the slices that a request emptied",
                Family::new_with_constructor(tenths as fn() -> Histogram),
                other("ratio")
            ),
            requests: metric!(
                "requests",
                "Requests by operation and result: done, partly, nothing or error"
            ),
            failed_slices: metric!(
                "failed_slices",
                "Slices that could not be emptied or woken, by reason; none if it is unknown"
            ),
            request_seconds: metric!(
                "request_duration",
                "How long requests took in mode on, and requests to wake slices",
                Family::new_with_constructor(seconds as fn() -> Histogram),
                Unit::Seconds
            ),
            look_seconds: metric!(
                "look_duration",
                "How long it took to read the machine",
                seconds(),
                Unit::Seconds
            ),
            step_seconds: metric!(
                "step_duration",
                "How long steps took, requests included",
                seconds(),
                Unit::Seconds
            ),
            errors: metric!("backend_errors", "Failures of the backend, by kind"),
            price_state: metric!(
                "price_drift_state",
                "1 for the state of the kernel's prices: unwatched, too-few, steady, waiting or \
                 refit"
            ),
            price_factor: metric!(
                "price_drift",
                "Measured cost of requests over the cost that the kernel predicted; if prices do \
                 not hold, \
                 since then",
                Family::default(),
                other("ratio")
            ),
            priced_requests: metric!(
                "priced_requests",
                "Requests of mode on by what they taught about prices: taken, or left-out because \
                 their \
                 figures do not add up"
            ),
            forecast: metric!(
                "forecast",
                "The most slices that the governor expects to be needed within the horizon",
                Family::default(),
                other("slices")
            ),
            forecast_horizon: metric!(
                "forecast_horizon",
                "How far the forecast looks ahead",
                Family::default(),
                Unit::Seconds
            ),
            forecast_error: metric!(
                "forecast_error",
                "Mean of the absolute differences between forecast and what was needed",
                Family::default(),
                other("slices")
            ),
            forecast_bias: metric!(
                "forecast_bias",
                "Mean of forecast minus what was needed: above 0, too much is kept on",
                Family::default(),
                other("slices")
            ),
            forecast_checked: metric!("forecasts_checked", "Forecasts behind error and bias"),
            stalls: metric!(
                "pressure_stalls",
                "How often tasks waited for memory longer than the settings allow"
            ),
            cold: ColdMetrics {
                state: metric!(
                    "cold_state",
                    "1 for the state of what moves by itself to cold nodes and back: off, running, \
                     paused-full, paused-cpu, refused or not-available"
                ),
                moved: metric!(
                    "cold_moved_bytes",
                    "What moved by itself, by node and direction: to-cold or back"
                ),
                rate: metric!(
                    "cold_rate_limit_bytes",
                    "The most that is tried in a second, by node and direction; absent while \
                     nothing is watched"
                ),
                idle: metric!(
                    "cold_idle",
                    "Memory moves that was not accessed for this long",
                    Family::default(),
                    Unit::Seconds
                ),
                kdamond_cpu: metric!(
                    "cold_kdamond_cpu",
                    "The share of one CPU that kdamonds took when it was last measured",
                    Family::default(),
                    other("ratio")
                ),
                unaccessed: metric!(
                    "cold_unaccessed",
                    "For how much of the time nothing accessed slices that may rest, by DAMON's \
                     samples: at most this; absent while nothing is watched",
                    Family::default(),
                    other("ratio")
                ),
            },
            cache: CacheMetrics {
                lookups: metric!(
                    "cache_lookup_pages",
                    "Pages of page cache that buffered reads and faults looked up, by kind: read \
                     or fault; absent where the kernel does not count them"
                ),
                absent: metric!(
                    "cache_absent_pages",
                    "Of these, pages that were not in the cache at that moment, by kind"
                ),
                lookup_hit: metric!(
                    "cache_lookup_hit",
                    "The share of pages looked up that were in the cache, over the last interval \
                     with 1000 of them; absent if it is unknown",
                    Family::default(),
                    other("ratio")
                ),
                disk_free: metric!(
                    "cache_disk_free",
                    "The share of pages looked up that no disk had to bring, also ahead of reading",
                    Family::default(),
                    other("ratio")
                ),
                watermarks: metric!(
                    "cache_watermark",
                    "Watermarks of free memory and page cache that follow the hit ratio: \
                     cache-free-low and cache-free-high",
                    Family::default(),
                    Unit::Bytes
                ),
                counted_hit: metric!(
                    "cache_counted_hit",
                    "The share of look-ups that hit, without misses that memory up to the bound \
                     would not avoid: the watermarks follow it",
                    Family::default(),
                    other("ratio")
                ),
                moves: metric!(
                    "cache_watermark_moves",
                    "How often these watermarks were raised or lowered, with the reason: \
                     below-target or kept-target"
                ),
            },
            idle_cache_bytes: metric!(
                "idle_cache_reclaimed",
                "Page cache not read for a time, reclaimed on a kernel without ramslice",
                Counter::default(),
                Unit::Bytes
            ),
            takers: TakerMetrics {
                bytes: metric!(
                    "taker",
                    "Emptied memory by taker: sleep, host, huge, buffers, or nothing (off without \
                     a driver); in mode observe as it would be",
                    Family::default(),
                    Unit::Bytes
                ),
                value: metric!(
                    "taker_value",
                    "What a GiB is worth to each taker, as set, relative to the others"
                ),
                made_bytes: metric!(
                    "huge_made",
                    "Huge pages in the pool that the daemon made, in use or not",
                    Gauge::default(),
                    Unit::Bytes
                ),
                made_pages: metric!("huge_made_pages", "Huge pages that the daemon made"),
                given_back_pages: metric!(
                    "huge_given_back_pages",
                    "Huge pages that it gave back, by cause: dearer-use, not-wanted, pressure or \
                     buffer"
                ),
            },
            is_paused: metric!(
                "paused",
                "1 while nothing goes offline because tasks waited for memory, or slices woke \
                 because it \
                 was short"
            ),
            power_driver: metric!(
                "power_driver",
                "1 for what powers offline slices down: a driver, none, or memory-hotplug of a \
                 stock kernel"
            ),
            pressure_watched: metric!(
                "pressure_watched",
                "1 if the kernel reports tasks that wait for memory, 0 if it should and does not"
            ),
            guard_active: metric!(
                "guarded",
                "On a stock kernel in mode on: 1 if a guard watches whether memory runs short, \
                 otherwise 0"
            ),
            reloads: metric!("reloads", "Reloads of the settings, by result: done or refused"),
            saves: metric!(
                "state_saves",
                "How often the state was saved, by result: done or failed"
            ),
            steps: metric!("steps", "Steps: the machine was read and a decision made"),
            period: metric!(
                "period",
                "The time between two steps, as set",
                FloatGauge::default(),
                Unit::Seconds
            ),
            last_step: metric!(
                "last_step_timestamp",
                "When the last step ended, since 1970",
                FloatGauge::default(),
                Unit::Seconds
            ),
            cpu_seconds: metric!(
                "process_cpu",
                "CPU time of the daemon itself",
                Counter::default(),
                Unit::Seconds
            ),
            resident_bytes: metric!(
                "process_resident",
                "Memory of the daemon itself",
                Gauge::default(),
                Unit::Bytes
            ),
            registry,
        };
        metrics.start_at_zero();
        metrics
    }
}
