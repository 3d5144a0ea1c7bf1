//! A recording of an invented machine: small, and the same each time.

#![allow(clippy::cast_possible_wrap)] // dozens of slices, hundreds of events

use std::path::Path;

use ramslice_record::tables::{Census, Event, Sample, Slice, Zone};
use ramslice_record::{RecordingEnd, RecordingInfo, RowBatch, WriteError};
use serde_json::json;

const SLICES: i64 = 64;
const FRAMES: i64 = 8192;
const SECONDS: i64 = 120;
const STARTED_US: i64 = 500_000_000;
/// A census every so often, and with the last sample.
const CENSUS_SECONDS: i64 = 8;
/// Slices in a memory section of 128 MiB.
const IN_SECTION: i64 = 4;
/// Prices by the kernel's defaults, in units of 100 cycles: of a slice, a page that moves, one that
/// is dropped.
const ISOLATE: i64 = 695 + 303 * FRAMES / 1024;
const MOVE: i64 = 100 + 29 + 1;
const DROP: i64 = 39;

/// What a slice holds.
#[derive(Clone, Copy, Default)]
struct SliceUse {
    unmovable: i64,
    movable: i64,
    freeable: i64,
    off: bool,
}

impl SliceUse {
    fn used(self) -> i64 {
        self.unmovable + self.movable + self.freeable
    }

    fn price(self) -> i64 {
        ISOLATE + self.movable * MOVE + self.freeable * DROP
    }
}

#[derive(Default)]
struct RecordingBuilder {
    held: Vec<SliceUse>,
    batch: RowBatch,
    event_seq: i64,
    done: [i64; 11],
    woken_by_demand: i64,
    census: bool,
}

/// Writes it to `dir`. Requests may spend `budget`, in units of 100 cycles; `None` is no limit.
///
/// With `census`, there is one every few seconds, and kernel pages scatter.
pub(crate) fn write(dir: &Path, budget: Option<i64>, census: bool) -> Result<(), WriteError> {
    let mut made = RecordingBuilder {
        held: vec![SliceUse::default(); SLICES as usize],
        census,
        ..RecordingBuilder::default()
    };
    for (at, held) in made.held.iter_mut().enumerate() {
        held.unmovable = if at < 3 { 5000 } else { 0 };
    }
    for second in 0..=SECONDS {
        made.work(second);
        if census {
            made.scatter(second);
        }
        if second % 15 == 12 && budget != Some(0) {
            made.compact(second, budget);
        }
        made.sample(second);
    }
    let ended = RecordingEnd {
        boottime_us: STARTED_US + SECONDS * 1_000_000,
        reason: "command".to_owned(),
        command_status: Some(0),
        samples: SECONDS + 1,
        missed_samples: 0,
        events: made.batch.events.len() as i64,
        lost_events: 0,
    };
    made.batch.write_recording(dir, &about(), &ended)
}

fn about() -> RecordingInfo {
    let geometry = json!({
        "abi_version": 1, "page_bytes": 4096, "pageblock_bytes": 2 << 20,
            "slice_bytes": FRAMES * 4096,
        "chunk_bytes": 4 << 20, "nr_slices": SLICES, "nr_zones": 1, "event_seq": 0,
        "managed_pages": SLICES * FRAMES, "free_pages": 0, "offline_pages": 0,
            "quarantined_pages": 0,
        "power_driver": "simulated",
    });
    let about = json!({
        "schema_version": ramslice_record::SCHEMA_VERSION, "tool_version": "0.1.0",
            "source": "made up",
        "kernel_release": "6.12.0", "kernel_version": "#1", "architecture": "x86_64",
            "kernel_command_line": "",
        "command": ["make", "-j2"], "boot_id": "made-up", "clock_source": "tsc",
        "platform": {
            "virtual": true, "emulated": true, "hypervisor": "TCGTCGTCGTCG", "product": "",
        },
        "nr_cpus": 2, "interval_us": 1_000_000, "events_source": "trace",
        "started_boottime_us": STARTED_US, "started_realtime_us": 1_700_000_000_000_000i64,
        "geometry": geometry,
        "price_parameters_100cycles": {
            "isolate_slice": 695, "isolate_page": 303, "drop_page": 39, "migrate_page": 100,
                "migrate_mapping": 29,
            "alloc_buddy": 1, "alloc_cache": 25,
        },
    });
    serde_json::from_value(about).expect("the description has all fields")
}

impl RecordingBuilder {
    fn event(&mut self, second: i64, offset_us: i64, event: Event) {
        let at = second * 1_000_000 + offset_us;
        let number = self.batch.events.len() as i64;
        let (boottime_us, realtime_us) = (STARTED_US + at, wall(at));
        let source = "trace".into();
        self.batch.events.push(Event { event: number, boottime_us, realtime_us, source, ..event });
    }

    /// Memory is taken and given back: in waves, and wherever there is room.
    fn work(&mut self, second: i64) {
        let wave = [
            2, 5, 9, 14, 20, 26, 30, 27, 18, 10, 6, 4, 12, 22, 33, 38, 30, 16, 8, 5, 4, 3, 3, 2, 2,
        ];
        let slot = (second / 5) as usize % wave.len();
        let next = wave[(slot + 1) % wave.len()];
        let wanted = (wave[slot] * (5 - second % 5) + next * (second % 5)) * FRAMES / 5;
        let cache = (second * 900).min(12 * FRAMES);
        let movable: i64 = self.held.iter().map(|held| held.movable).sum();
        let freeable: i64 = self.held.iter().map(|held| held.freeable).sum();
        self.done[9] += (wanted - movable).abs() / 16;
        self.done[10] += (wanted - movable).abs();
        if wanted > movable {
            self.take(second, wanted - movable, |held| &mut held.movable);
        } else {
            // A little of each slice stays: this is how memory fragments.
            let share = wanted as f64 / movable as f64;
            for (at, held) in self.held.iter_mut().enumerate() {
                let jitter = 1.0 + 0.25 * f64::from(u8::from(at.is_multiple_of(3)));
                held.movable = held.movable.min((held.movable as f64 * share * jitter) as i64);
            }
        }
        if cache > freeable {
            self.take(second, (cache - freeable).min(1200), |held| &mut held.freeable);
        }
    }

    /// The kernel takes a little here and there, and gives back less.
    fn scatter(&mut self, second: i64) {
        if second % 3 != 1 || second > 90 {
            return;
        }
        let at = ((second * 11) % SLICES) as usize;
        let held = &mut self.held[at];
        if !held.off && held.used() < FRAMES {
            held.unmovable += ((second * 37) % 700).min(FRAMES - held.used());
        }
        let other = &mut self.held[((second * 5) % SLICES) as usize];
        if other.unmovable < 1000 {
            other.unmovable /= 2;
        }
    }

    fn take(&mut self, second: i64, mut pages: i64, kind: fn(&mut SliceUse) -> &mut i64) {
        // In an order that is not that of addresses.
        for step in 0..SLICES {
            let at = ((step * 7 + 3) % SLICES) as usize;
            if pages > 0 && !self.held[at].off {
                let room = FRAMES - self.held[at].used();
                let taken = pages.min(room).min(if self.held[at].used() > 0 { room } else { 2600 });
                *kind(&mut self.held[at]) += taken;
                pages -= taken;
            }
        }
        for at in 0..self.held.len() {
            if pages > 0 && self.held[at].off {
                self.held[at].off = false;
                self.event_seq += 2;
                self.done[2] += 1;
                self.woken_by_demand += 1;
                let taken = pages.min(FRAMES);
                *kind(&mut self.held[at]) += taken;
                pages -= taken;
                let slice_id = Some(at as i64);
                let (by_demand, nr_pages) = (Some(true), Some(FRAMES));
                self.event(
                    second,
                    400_000,
                    Event {
                        kind: "wake".into(),
                        slice_id,
                        by_demand,
                        nr_pages,
                        ..Event::default()
                    },
                );
            }
        }
    }

    /// Empties the cheapest slices into those that hold most.
    fn compact(&mut self, second: i64, budget: Option<i64>) {
        let mut left = budget;
        let mut order: Vec<usize> = (0..self.held.len()).filter(|&at| !self.held[at].off).collect();
        order.sort_by_key(|&at| (self.held[at].price(), at));
        let mut offset_us = 450_000;
        for at in order {
            let held = self.held[at];
            let room: i64 = (0..self.held.len())
                .filter(|&to| to != at && !self.held[to].off && self.held[to].used() > 0)
                .map(|to| FRAMES - self.held[to].used())
                .sum();
            if held.unmovable > 0 {
                continue;
            }
            if room < held.movable + 2 * FRAMES || left.is_some_and(|left| held.price() > left) {
                break;
            }
            let (pid, slice_id) = (Some(77), Some(at as i64));
            let price = Event {
                kind: "price".into(),
                slice_id,
                pid,
                price_100cycles: Some(held.price()),
                ..Event::default()
            };
            self.event(second, offset_us, Event { budget_100cycles: left, ..price });
            offset_us += 1000 + held.used() * 4;
            left = left.map(|left| left - held.price());
            self.held[at] = SliceUse { off: true, ..SliceUse::default() };
            let mut moved = held.movable;
            let mut targets: Vec<usize> = (0..self.held.len())
                .filter(|&to| !self.held[to].off && self.held[to].used() > 0)
                .collect();
            targets.sort_by_key(|&to| (-self.held[to].used(), to));
            for to in targets {
                let step = moved.min(FRAMES - self.held[to].used());
                self.held[to].movable += step;
                moved -= step;
            }
            self.event_seq += 2;
            let (migrated_pages, dropped_pages) = (Some(held.movable), Some(held.freeable));
            let error_errno = Some(0);
            let offline = Event {
                kind: "offline".into(),
                slice_id,
                pid,
                migrated_pages,
                dropped_pages,
                error_errno,
                ..Event::default()
            };
            self.event(second, offset_us, offline);
            let cost = held.price() * (95 + at as i64 % 11) / 100;
            for (place, more) in
                [1, 1, 0, held.movable, held.freeable, held.movable, 0, held.price(), cost]
                    .into_iter()
                    .enumerate()
            {
                self.done[place] += more;
            }
        }
    }

    fn sample(&mut self, second: i64) {
        let (boottime_us, realtime_us) =
            (STARTED_US + second * 1_000_000 + 900_000, wall(second * 1_000_000 + 900_000));
        let offline_pages = FRAMES * self.held.iter().filter(|held| held.off).count() as i64;
        let used: i64 = self.held.iter().map(|held| held.used()).sum();
        let free_pages = SLICES * FRAMES - offline_pages - used;
        let count = |wanted: &dyn Fn(&SliceUse) -> bool| {
            self.held.iter().filter(|held| wanted(held)).count() as i32
        };
        self.batch.zones.push(Zone {
            sample: second,
            boottime_us,
            realtime_us,
            zone: 2,
            name: "Normal".into(),
            nr_slices: SLICES as i32,
            nr_empty: count(&|held| !held.off && held.used() == 0),
            nr_offline: count(&|held| held.off),
            managed_pages: SLICES * FRAMES,
            free_pages,
            offline_pages,
            awake_reserve_pages: 2 * FRAMES,
            low_wmark_pages: FRAMES / 4,
            woken_by_demand: self.woken_by_demand,
            ..self.scattered(second)
        });
        for (at, held) in self.held.iter().enumerate() {
            self.batch.slices.push(Slice {
                sample: second,
                boottime_us,
                realtime_us,
                slice_id: at as i64,
                state: if held.off { "offline".into() } else { "online".into() },
                reason: "none".into(),
                unmovable: held.unmovable > 0,
                zone: 2,
                present_pages: FRAMES,
                price_100cycles: held.price(),
                free_pages: if held.off { 0 } else { FRAMES - held.used() },
                lru_anon_pages: held.movable,
                lru_file_pages: held.freeable,
                anon_mapped_pages: held.movable,
                file_pages: held.freeable,
                ..Slice::default()
            });
        }
        let done = self.done.map(Some);
        let counts = self.counts(second);
        if counts {
            for (at, held) in self.held.iter().enumerate() {
                let row = Census {
                    sample: second,
                    boottime_us,
                    realtime_us,
                    slice_id: at as i64,
                    ..counted(*held)
                };
                self.batch.census.push(row);
            }
        }
        self.batch.samples.push(Sample {
            census_slices: counts.then_some(SLICES),
            census_us: counts.then_some(40_000),
            sample: second,
            boottime_us,
            realtime_us,
            monotonic_us: Some(boottime_us),
            sampling_us: 900,
            event_seq: Some(self.event_seq),
            slice_bytes: Some(FRAMES * 4096),
            nr_slices: Some(SLICES),
            managed_pages: Some(SLICES * FRAMES),
            free_pages: Some(free_pages),
            offline_pages: Some(offline_pages),
            quarantined_pages: Some(0),
            tried_slices: done[0],
            emptied_slices: done[1],
            woken_slices: done[2],
            migrated_pages: done[3],
            dropped_pages: done[4],
            target_free_pages: done[5],
            target_cache_pages: done[6],
            price_predicted_100cycles: done[7],
            price_measured_100cycles: done[8],
            page_faults: done[9],
            allocated_pages: done[10],
            ..Sample::default()
        });
    }
}

impl RecordingBuilder {
    fn counts(&self, second: i64) -> bool {
        self.census && (second % CENSUS_SECONDS == 0 || second == SECONDS)
    }

    /// What a census says of the zone.
    fn scattered(&self, second: i64) -> Zone {
        if !self.counts(second) {
            return Zone::default();
        }
        let staying: i64 = self.held.iter().map(|held| held.unmovable).sum();
        let used: i64 = self.held.iter().map(|held| held.used()).sum();
        let in_section = |slices: usize| slices / IN_SECTION as usize;
        let mut stays = vec![false; in_section(SLICES as usize)];
        for (at, held) in self.held.iter().enumerate() {
            stays[in_section(at)] |= held.unmovable > 0;
        }
        Zone {
            sections: Some(SLICES / IN_SECTION),
            removable_sections: Some(stays.iter().filter(|stays| !**stays).count() as i64),
            staying_slices: Some(self.held.iter().filter(|held| held.unmovable > 0).count() as i64),
            least_staying_slices: Some((staying + FRAMES - 1) / FRAMES),
            staying_pages: Some(staying),
            // Requests here mind no reserve.
            offline_bound_pages: Some((SLICES * FRAMES - used) / FRAMES * FRAMES),
            ..Zone::default()
        }
    }
}

/// The kinds of pages of a slice, by what is known of it.
fn counted(held: SliceUse) -> Census {
    let part = |pages: i64, percent: i64| pages * percent / 100;
    let (slab, page_table) = (part(held.unmovable, 60), part(held.unmovable, 15));
    let (shmem, buffer) = (part(held.movable, 10), part(held.freeable, 5));
    Census {
        state: if held.off { "offline".into() } else { "online".into() },
        free_pages: if held.off { 0 } else { FRAMES - held.used() },
        anonymous_pages: held.movable - shmem,
        shmem_pages: shmem,
        cache_pages: held.freeable - buffer,
        buffer_pages: buffer,
        slab_pages: slab,
        page_table_pages: page_table,
        other_unmovable_pages: held.unmovable - slab - page_table,
        off_pages: if held.off { FRAMES } else { 0 },
        lru_pages: held.movable + held.freeable,
        staying_pages: held.unmovable,
        ..Census::default()
    }
}

fn wall(at_us: i64) -> ramslice_record::WallTime {
    ramslice_record::WallTime(1_700_000_000_000_000 + at_us)
}
