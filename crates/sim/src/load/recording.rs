//! A recording as a load: how much memory of each kind was in use at each sample.
//!
//! Where pages were is the recording's own policy's doing and is not taken over; how much there was is the programs'.

use std::path::Path;
use std::time::Duration;

use ramslice_record::Recording;
use ramslice_types::{Bytes, Machine, PriceParameter, SliceState};

use super::{InputError, Notes, Step};
use crate::config::{Config, ZoneConfig};
use crate::machine::{Change, Class, OwnerId};

/// Distances between samples that are usual, times this, are a gap.
const GAP: u32 = 3;

/// What a recording holds for the simulator.
#[derive(Debug, Clone)]
pub struct RecordedLoad {
    /// A machine like the recorded one.
    pub config: Config,
    /// What its programs did.
    pub steps: Vec<Step>,
    /// Slices that were on and held something, at each step.
    pub nonempty: Vec<u32>,
    /// What was left out.
    pub notes: Notes,
    /// The price model's parameters that were recorded.
    pub prices: Vec<(PriceParameter, ramslice_types::Price)>,
}

/// Reads a recording as a load; every part must be whole.
///
/// # Errors
/// If the recording is unreadable, of another version, half-written, or without slices; the message names file and
/// row.
pub fn recorded(dir: &Path) -> Result<RecordedLoad, InputError> {
    let recording = Recording::open(dir)?;
    let mut machines = recording.machines();
    let mut found: Option<RecordedLoad> = None;
    let mut start = Duration::ZERO;
    for machine in machines.by_ref() {
        let machine = machine?;
        let load = found.get_or_insert_with(|| {
            start = machine.snapshot.time;
            RecordedLoad {
                config: config(&machine),
                steps: Vec::new(),
                nonempty: Vec::new(),
                notes: Notes::default(),
                prices: machine.price_parameters.iter().map(|(name, price)| (*name, *price)).collect(),
            }
        });
        if machine.info.slice_bytes != load.config.slice_bytes {
            let what = format!(
                "the slice size changes from {} to {} at sample {}: a simulated machine has one",
                load.config.slice_bytes,
                machine.info.slice_bytes,
                load.steps.len()
            );
            return Err(InputError::Empty { path: dir.to_owned(), what });
        }
        load.nonempty.push(nonempty(&machine));
        let time = machine.snapshot.time.saturating_sub(start);
        load.steps.push(Step { time, changes: changes(&machine) });
    }
    let incomplete = machines.skipped();
    let mut load = found.ok_or_else(|| InputError::Empty {
        path: dir.to_owned(),
        what: format!("the recording has no sample with all its slices ({incomplete} are incomplete)"),
    })?;
    load.notes = Notes { gaps: gaps(&load.steps), incomplete, ..Notes::default() };
    Ok(load)
}

fn gaps(steps: &[Step]) -> u64 {
    let mut distances: Vec<Duration> =
        steps.windows(2).map(|pair| pair[1].time.saturating_sub(pair[0].time)).collect();
    distances.sort_unstable();
    let Some(&usual) = distances.get(distances.len() / 2) else { return 0 };
    distances.iter().filter(|distance| **distance > usual * GAP).count() as u64
}

fn config(machine: &Machine) -> Config {
    let info = &machine.info;
    let zones = machine.zones.iter().map(|zone| ZoneConfig {
        node: zone.node,
        zone: zone.zone,
        name: zone.name.clone(),
        size: Bytes(info.slice_bytes.0 * u64::from(zone.nr_slices)),
    });
    let boot: u64 = machine
        .snapshot
        .slices
        .iter()
        .filter(|slice| slice.unreclaimable)
        .map(|slice| slice.composition(info.slice_pages()).unmovable.0)
        .sum();
    let all = info.slice_pages().0 * u64::from(info.nr_slices);
    Config {
        page_bytes: info.page_bytes,
        pageblock_bytes: info.pageblock_bytes,
        zones: zones.filter(|zone| zone.size.0 > 0).collect(),
        boot_share: boot as f64 / all.max(1) as f64,
        ..Config::new(info.slice_bytes * u64::from(info.nr_slices), info.slice_bytes)
    }
}

fn nonempty(machine: &Machine) -> u32 {
    let slices = machine.snapshot.slices.iter();
    slices.filter(|slice| slice.state != SliceState::Offline && !slice.is_empty()).count() as u32
}

/// All memory of each kind, as one owner each.
fn changes(machine: &Machine) -> Vec<Change> {
    let frames = machine.info.slice_pages();
    let mut pages = [0u64; 5];
    for slice in &machine.snapshot.slices {
        if slice.state == SliceState::Offline {
            continue;
        }
        let (counters, parts) = (&slice.counters, slice.composition(frames));
        pages[0] += counters.lru_anon.0.saturating_sub(counters.shmem.0);
        pages[1] += counters.shmem.0;
        pages[2] += parts.freeable.0 + counters.dirty.0 + counters.writeback.0;
        pages[3] += counters.file_mapped.0;
        pages[4] += if slice.unreclaimable { 0 } else { parts.unmovable.0 };
    }
    let classes = [Class::Anon, Class::Shmem, Class::File, Class::FileMapped, Class::Unmovable];
    let level = |(at, (class, pages)): (usize, (Class, u64))| Change::Level {
        owner: OwnerId(at as u32),
        class,
        maps: 1,
        pages,
    };
    classes.into_iter().zip(pages).enumerate().map(level).collect()
}
