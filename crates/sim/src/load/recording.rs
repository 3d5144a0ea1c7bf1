//! A recording as a load: a machine that begins as the recorded one was, and how much memory of
//! each kind came and went.
//!
//! Where pages were is the recording's own policy's doing and is not taken over, but for the first
//! sample; how much there was is the programs'.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ramslice_record::{LocatedRow, Recording, tables};
use ramslice_types::{Bytes, MachineState, Price, PriceParameter, SliceState};

use super::demand::{ProgramDemand, RecordedMoment, ReleaseOrder};
use super::{InputError, InputNotes, LoadStep, MissingParts};
use crate::config::{SimConfig, SimConfigError, ZoneConfig};
use crate::machine::{KINDS, SimMachine};

/// The most pieces that are kept apart.
const MOST_PIECES: u64 = 256;

/// The contents of a recording for the simulator.
#[derive(Debug, Clone)]
pub struct RecordedLoad {
    /// A machine like the recorded one.
    pub config: SimConfig,
    /// The recorded one at its first sample.
    pub first: MachineState,
    /// What its programs did, memory going as [`RecordedLoad::usual`] says; nothing happens in the
    /// first step.
    pub steps: Vec<LoadStep>,
    /// When each sample was taken, and what it saw.
    pub moments: Vec<(Duration, RecordedMoment)>,
    /// Slices that were on and held something, at each sample.
    pub nonempty: Vec<u32>,
    /// What was left out.
    pub notes: InputNotes,
    /// The price model's parameters that were recorded.
    pub prices: Vec<(PriceParameter, Price)>,
}

impl RecordedLoad {
    /// What goes first of each kind until it is fitted: programs end in any order.
    pub fn usual() -> [ReleaseOrder; KINDS.len()] {
        [ReleaseOrder::Any; KINDS.len()]
    }

    /// What its programs did, if memory goes in this order.
    pub fn steps(&self, orders: [ReleaseOrder; KINDS.len()]) -> Vec<LoadStep> {
        let Some((_, first)) = self.moments.first() else { return Vec::new() };
        // A layer is a pageblock at least: what is less has no place of its own.
        let least = self.config.pageblock_bytes.pages(self.config.page_bytes).0;
        let all = self.config.memory().pages(self.config.page_bytes).0;
        let piece = self.config.slice_pages().0.max(all / MOST_PIECES);
        let mut demand = ProgramDemand::new(*first, orders, least, piece);
        let mut steps = vec![LoadStep::default()];
        steps.extend(
            self.moments[1..]
                .iter()
                .map(|&(time, now)| LoadStep { time, changes: demand.step(now) }),
        );
        steps
    }

    /// The recorded machine at its first sample; `config` may place memory by other rules.
    ///
    /// # Errors
    /// If the configuration makes no machine, or one with other slices.
    pub fn machine(&self, config: SimConfig) -> Result<SimMachine, SimConfigError> {
        let mut machine = SimMachine::like(config, &self.first)?;
        for &(parameter, price) in &self.prices {
            machine.prices().set(parameter, price);
        }
        Ok(machine)
    }
}

/// Reads a recording as a load; every part must be whole.
///
/// # Errors
/// If the recording is unreadable, of another version, half-written, or without slices; the message
/// names file and row.
pub fn recorded(dir: &Path) -> Result<RecordedLoad, InputError> {
    let recording = Recording::open(dir)?;
    let mut statistics = VmstatSeries::of(&recording);
    let mut machines = recording.machines();
    let mut found: Option<RecordedLoad> = None;
    let mut start = Duration::ZERO;
    while let Some(machine) = machines.next() {
        let machine = machine?;
        let load = found.get_or_insert_with(|| {
            start = machine.snapshot.time;
            RecordedLoad {
                config: config(&machine),
                first: machine.clone(),
                steps: Vec::new(),
                moments: Vec::new(),
                nonempty: Vec::new(),
                notes: InputNotes::default(),
                prices: machine
                    .price_parameters
                    .iter()
                    .map(|(name, price)| (*name, *price))
                    .collect(),
            }
        });
        if machine.info.slice_bytes != load.config.slice_bytes {
            let what = format!(
                "the slice size changes from {} to {} at sample {}: a simulated machine has one",
                load.config.slice_bytes,
                machine.info.slice_bytes,
                load.moments.len()
            );
            return Err(InputError::Empty { path: dir.to_owned(), what });
        }
        load.nonempty.push(nonempty(&machine));
        let mut moment = RecordedMoment::of(&machine);
        // Recorders without root do not report it: then nothing counts as done.
        if let Ok(work) = machines.work() {
            moment.dropped = work.dropped_pages.0;
            moment.woken = work.woken_slices;
            moment.emptied = work.emptied_slices * machine.info.slice_pages().0;
        }
        moment.stored = machines.stored().map(|stored| stored.pages(machine.info.page_bytes).0);
        moment.uses = machines.cache_use().map(|(once, busy)| (once.0, busy.0));
        if let Some(at) = machines.boottime_us() {
            statistics.at(at, &mut moment)?;
        }
        load.moments.push((machine.snapshot.time.saturating_sub(start), moment));
    }
    let incomplete = machines.skipped();
    let mut load = found.ok_or_else(|| InputError::Empty {
        path: dir.to_owned(),
        what: format!(
            "the recording has no sample with all its slices ({incomplete} are incomplete)"
        ),
    })?;
    load.steps = load.steps(RecordedLoad::usual());
    let missing_parts = MissingParts::of(&recording);
    load.notes = InputNotes { incomplete, missing_parts, ..InputNotes::default() };
    let times = load.steps.windows(2).map(|pair| pair[1].time.saturating_sub(pair[0].time));
    load.notes.count_gaps(times.collect());
    Ok(load)
}

/// `/proc/vmstat` sample by sample, as far as loads need it.
struct VmstatSeries {
    rows: std::iter::Peekable<ramslice_record::TableRows<tables::Vmstat>>,
    values: BTreeMap<&'static str, u64>,
}

/// Lines of `/proc/vmstat` that loads need.
const LINES: [&str; 7] = [
    "workingset_refault_file",
    "pgsteal_file",
    "nr_active_file",
    "nr_inactive_file",
    "pgactivate",
    "pgpgin",
    "pgpgout",
];
/// `pgpgin` and `pgpgout` count KiB.
const KIB_PER_PAGE: u64 = 4;

impl VmstatSeries {
    fn of(recording: &Recording) -> Self {
        Self { rows: recording.rows().peekable(), values: BTreeMap::new() }
    }

    /// Fills in what is known until then.
    fn at(&mut self, boottime_us: i64, moment: &mut RecordedMoment) -> Result<(), InputError> {
        let due = |row: &Result<LocatedRow<tables::Vmstat>, _>| {
            row.as_ref().map_or(true, |row| row.row.boottime_us <= boottime_us)
        };
        while let Some(row) = self.rows.next_if(due) {
            let row = row?.row;
            if let Some(name) = LINES.into_iter().find(|name| *name == row.name) {
                self.values.insert(name, u64::try_from(row.value).unwrap_or(0));
            }
        }
        let value = |name: &str| self.values.get(name).copied();
        moment.refaulted = value("workingset_refault_file").unwrap_or(0);
        moment.reclaimed = value("pgsteal_file").unwrap_or(0);
        moment.activated = value("pgactivate").unwrap_or(0);
        moment.active = value("nr_active_file").zip(value("nr_inactive_file"));
        let pages = |name: &str| value(name).map(|kib| kib / KIB_PER_PAGE);
        moment.moved = pages("pgpgin").zip(pages("pgpgout"));
        Ok(())
    }
}

fn config(machine: &MachineState) -> SimConfig {
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
    SimConfig {
        page_bytes: info.page_bytes,
        pageblock_bytes: info.pageblock_bytes,
        zones: zones.filter(|zone| zone.size.0 > 0).collect(),
        boot_share: boot as f64 / all.max(1) as f64,
        ..SimConfig::new(info.slice_bytes * u64::from(info.nr_slices), info.slice_bytes)
    }
}

fn nonempty(machine: &MachineState) -> u32 {
    let slices = machine.snapshot.slices.iter();
    slices.filter(|slice| slice.state != SliceState::Offline && !slice.is_empty()).count() as u32
}
