//! What figures need of a recording: the machine over time, when it was emptying slices, and
//! joules.

use std::path::Path;

use ramslice_energy::{EnergyLedger, EnergySample, LedgerPlan, NetSign, SampleClock};
use ramslice_record::tables::{Event, Meminfo};
use ramslice_record::{ReadError, Recording, RecordingInfo};
use ramslice_types::{
    Bytes, MachineState, PageCensus, PageComposition, PageKind, Pages, Slice, SliceState,
    WorkCounters,
};

use super::error::{PlanForRecording, Result, RunError};
use super::page_cache;
use super::results::divided;
use crate::slice_history::SliceHistory;
use crate::{
    CensusMoment, EmptyingAttempt, GainVerdict, MachineMoment, MemoryMoment, PageCacheData,
    RecordingData, RunBudget, RunEnergy, StatisticsData, ValueRange,
};

/// Events closer than this are of one request.
const GAP_US: i64 = 500_000;

/// A recording, read.
pub(super) struct RecordedRun {
    /// Absent without slices.
    pub(super) recorded: Option<RecordingData>,
    /// Absent without statistics.
    pub(super) statistics: Option<StatisticsData>,
    /// Absent if nothing is known of look-ups.
    pub(super) page_cache: Option<PageCacheData>,
    pub(super) energy: Option<RunEnergy>,
    pub(super) about: String,
    pub(super) boot_id: String,
}

/// Reads `dir`; with `plan`, its joules are counted, too.
pub(super) fn read(
    name: &str,
    dir: &Path,
    plan: Option<&PlanForRecording<'_>>,
) -> Result<RecordedRun> {
    let recording = Recording::open(dir)?;
    let plan = plan.map(|plan| plan(&recording)).transpose().map_err(RunError::Plan)?;
    let mut machines = recording.machines();
    let (mut moments, mut censuses) = (Vec::new(), Vec::new());
    let mut history = SliceHistory::default();
    let mut joules: Option<JouleLedgers> = None;
    let mut begun_us = None;
    let mut first: Option<MachineState> = None;
    while let Some(machine) = machines.next().transpose()? {
        let now_us = machines.boottime_us().unwrap_or_default();
        let begun = *begun_us.get_or_insert(now_us);
        let seconds = (now_us - begun) as f64 / 1e6;
        let (moment, slices) = moment(&machine, seconds);
        moments.push(moment);
        history.push(slices);
        if let Some(census) = machines.census()? {
            censuses.push(counted(&machine, &census, seconds));
        }
        if let Some(plan) = &plan {
            let work = machines.work()?;
            joules.get_or_insert_with(|| JouleLedgers::new(plan, &machine)).add(&machine, work)?;
        }
        first.get_or_insert(machine);
    }
    if machines.skipped() > 0 {
        tracing::warn!(
            "{}: {} samples are not whole and were passed over",
            dir.display(),
            machines.skipped()
        );
    }
    if machines.cut() > 0 {
        tracing::warn!(
            "{}: {} censuses are not whole and were passed over",
            dir.display(),
            machines.cut()
        );
    }
    let statistics = statistics(name, &recording)?;
    let (Some(first), Some(begun_us)) = (first, begun_us) else {
        let Some(statistics) = statistics else {
            return Err(ReadError::Empty { path: dir.to_owned() }.into());
        };
        let description = recording.info();
        let about = format!(
            "{}, {} of /proc/meminfo, Linux {}",
            command(description),
            seconds_of(&statistics),
            description.kernel_release
        );
        let boot_id = description.boot_id.clone();
        let page_cache = page_cache::read(name, &recording, None)?;
        let (recorded, energy, statistics) = (None, None, Some(statistics));
        return Ok(RecordedRun { recorded, statistics, page_cache, energy, about, boot_id });
    };
    let RequestEvents { compactions, budget, attempts } = requests(&recording, begun_us)?;
    let energy = match (&plan, joules) {
        (Some(plan), Some(joules)) => joules.energy(name, plan, &first, budget),
        _ => None,
    };
    let description = recording.info();
    let emulated = description.platform.emulated == Some(true);
    let seconds = moments.last().map_or(0.0, |moment| moment.seconds);
    let info = &first.info;
    let about = format!(
        "{}, {seconds:.0} {}seconds, {} slices of {}, Linux {}",
        command(description),
        if emulated { "emulated " } else { "" },
        info.nr_slices,
        info.slice_bytes,
        description.kernel_release
    );
    let recorded = RecordingData {
        name: name.to_owned(),
        emulated,
        reports_to_host: info.reports_to_host(),
        slice_bytes: info.slice_bytes,
        page_bytes: info.page_bytes,
        moments,
        slice_changes: history.finish(),
        censuses,
        compactions,
        attempts,
        begun_seconds: begun_us as f64 / 1e6,
    };
    let boot_id = description.boot_id.clone();
    let page_cache = page_cache::read(name, &recording, Some(&recorded))?;
    let recorded = Some(recorded);
    Ok(RecordedRun { recorded, statistics, page_cache, energy, about, boot_id })
}

fn command(description: &RecordingInfo) -> String {
    match description.command.as_slice() {
        [] => "recording".to_owned(),
        words => format!("recording of `{}`", words.join(" ")),
    }
}

fn seconds_of(statistics: &StatisticsData) -> String {
    let seconds = statistics.moments.last().map_or(0.0, |moment| moment.seconds);
    format!("{seconds:.0} {}seconds", if statistics.emulated { "emulated " } else { "" })
}

/// What `/proc/meminfo` said at each sample; nothing if it was not recorded.
fn statistics(name: &str, recording: &Recording) -> Result<Option<StatisticsData>> {
    let mut moments: Vec<MemoryMoment> = Vec::new();
    let mut at: Option<(i64, i64)> = None;
    for row in recording.rows::<Meminfo>() {
        let row = row?.row;
        let (sample, begun_us) = *at.get_or_insert((i64::MIN, row.boottime_us));
        if sample != row.sample {
            at = Some((row.sample, begun_us));
            let seconds = (row.boottime_us - begun_us) as f64 / 1e6;
            moments.push(MemoryMoment { seconds, ..MemoryMoment::default() });
        }
        let Some(moment) = moments.last_mut() else { continue };
        let bytes = Bytes(u64::try_from(row.value).unwrap_or(0));
        match row.name.as_ref() {
            "MemTotal" => moment.total = bytes,
            "MemFree" => moment.free = bytes,
            "Buffers" | "Cached" | "SwapCached" => moment.cached += bytes,
            _ => {}
        }
    }
    let emulated = recording.info().platform.emulated == Some(true);
    Ok((!moments.is_empty()).then(|| StatisticsData { name: name.to_owned(), emulated, moments }))
}

/// The machine at a moment, and each slice: its id, and what keeps it from being off, or what it
/// is.
fn moment(machine: &MachineState, seconds: f64) -> (MachineMoment, Vec<(u32, PageKind)>) {
    let frames = machine.info.slice_pages();
    let mut pages = PageComposition::default();
    let (mut holding_slices, mut nearly_free_slices) = (0, 0);
    let kind = |slice: &Slice| {
        let parts = slice.composition(frames);
        pages += parts;
        let used = parts.used() > Pages::ZERO;
        holding_slices += u64::from(used);
        let nearly =
            used && slice.state == SliceState::Online && parts.free.share_of(slice.present) > 0.9;
        nearly_free_slices += u64::from(nearly);
        // Kinds are in the order of what is hardest to get rid of; a hole hides nothing.
        let found = PageKind::ALL
            .into_iter()
            .find(|&kind| kind != PageKind::Hole && parts.get(kind) > Pages::ZERO);
        (slice.id.0, found.unwrap_or(PageKind::Hole))
    };
    let slices: Vec<(u32, PageKind)> = machine.snapshot.slices.iter().map(kind).collect();
    let offline_slices = slices.iter().filter(|(_, kind)| *kind == PageKind::Offline).count();
    let moment = MachineMoment {
        seconds,
        pages,
        slice_bytes: machine.info.slice_bytes,
        holding_slices,
        nearly_free_slices,
        offline_slices: offline_slices as u64,
    };
    (moment, slices)
}

fn counted(machine: &MachineState, census: &PageCensus, seconds: f64) -> CensusMoment {
    CensusMoment {
        seconds,
        slice_bytes: machine.info.slice_bytes,
        totals: census.totals(machine),
        slices: census.slices.iter().map(|one| (one.slice.0, one.pages)).collect(),
    }
}

/// What events say about emptying slices; times are in seconds since the first sample.
struct RequestEvents {
    /// When it was done.
    compactions: Vec<(f64, f64)>,
    /// What requests were allowed.
    budget: RunBudget,
    attempts: Vec<EmptyingAttempt>,
}

fn attempt(event: &Event, seconds: f64) -> Option<EmptyingAttempt> {
    let pages =
        |count: Option<i64>| Pages(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0));
    Some(EmptyingAttempt {
        seconds: seconds.max(0.0),
        slice: u32::try_from(event.slice_id?).ok()?,
        freed: event.error_errno == Some(0),
        migrated: pages(event.migrated_pages),
        dropped: pages(event.dropped_pages),
    })
}

fn requests(recording: &Recording, begun_us: i64) -> Result<RequestEvents> {
    let second = |at: i64| (at - begun_us) as f64 / 1e6;
    let mut attempts = Vec::new();
    let mut spans: Vec<(i64, i64)> = Vec::new();
    let mut most: Option<i64> = None;
    let mut unlimited = false;
    for event in recording.rows::<Event>() {
        let event = event?.row;
        match event.kind.as_ref() {
            "price" => {
                unlimited |= event.budget_100cycles.is_none();
                // What is left grows smaller: the most is what there was at first.
                most = most.max(event.budget_100cycles);
            }
            "offline" => attempts.extend(attempt(&event, second(event.boottime_us))),
            "state" if event.to_state.as_deref() == Some(SliceState::Emptying.name()) => {}
            _ => continue,
        }
        let at = event.boottime_us;
        match spans.last_mut() {
            Some((_, until)) if at - *until <= GAP_US => *until = at.max(*until),
            _ => spans.push((at, at)),
        }
    }
    let budget = match most {
        _ if unlimited => RunBudget::Unlimited,
        Some(budget) => RunBudget::Cycles(budget as f64 * 100.0),
        None if spans.is_empty() => RunBudget::None,
        None => RunBudget::Policy("not traced".to_owned()),
    };
    // Events of two CPUs may be out of order.
    attempts.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let compactions = spans.into_iter().map(|(from, to)| (second(from), second(to))).collect();
    Ok(RequestEvents { compactions, budget, attempts })
}

/// Two ledgers: of the machine as it was, and as it would have been packed.
struct JouleLedgers {
    as_recorded: EnergyLedger,
    if_packed: EnergyLedger,
}

impl JouleLedgers {
    fn new(plan: &LedgerPlan, machine: &MachineState) -> Self {
        let granule = plan.granule(machine.info.slice_bytes).bytes();
        Self { as_recorded: EnergyLedger::new(granule), if_packed: EnergyLedger::new(granule) }
    }

    fn add(&mut self, machine: &MachineState, work: WorkCounters) -> Result<()> {
        self.as_recorded.add(EnergySample::new(&machine.snapshot, &machine.info, work))?;
        Ok(self.if_packed.add(packed(machine))?)
    }

    fn energy(
        &self,
        name: &str,
        plan: &LedgerPlan,
        first: &MachineState,
        budget: RunBudget,
    ) -> Option<RunEnergy> {
        let range = |joules: ramslice_energy::Interval<ramslice_types::Joules>| ValueRange {
            low: joules.low().0,
            high: joules.high().0,
        };
        if self.as_recorded.tally().steps == 0 {
            return None;
        }
        let statement = plan.statement(self.as_recorded.tally(), first, None)?;
        let limit = plan.statement(self.if_packed.tally(), first, None)?;
        let uncounted = statement.lines.iter().filter(|line| line.joules.is_none());
        let clock = match &plan.clock {
            SampleClock::Real => "real seconds".to_owned(),
            SampleClock::Emulated(slower) => {
                format!("emulated seconds{}", divided(slower.factor(), slower.source()))
            }
        };
        let mut basis =
            format!("By the profile {}, state {}; {clock}.", plan.profile.name, plan.state.name);
        if let Some(note) = plan.note_on_small_slices(first.info.slice_bytes) {
            tracing::warn!("{name}: {note}");
            basis.push_str(&format!(" {note}"));
        }
        Some(RunEnergy {
            sweep: None,
            name: name.to_owned(),
            budget,
            saved: range(statement.saved_joules),
            attainable: Some(range(limit.saved_joules)),
            invested: range(statement.invested_joules),
            net: range(statement.net_joules),
            verdict: match statement.verdict.sign {
                NetSign::Gain => GainVerdict::Gain,
                NetSign::Loss => GainVerdict::Loss,
                NetSign::Undecided => GainVerdict::Undecided,
            },
            uncounted: uncounted.map(|line| line.term.name().to_owned()).collect(),
            basis,
        })
    }
}

/// The machine with what cannot be dropped in as few slices as possible, at the lowest addresses,
/// and the others off.
fn packed(machine: &MachineState) -> EnergySample {
    let frames = machine.info.slice_pages();
    let mut stays = Pages::ZERO;
    for slice in &machine.snapshot.slices {
        let parts = slice.composition(frames);
        stays += parts.unmovable + parts.movable;
    }
    let mut snapshot = machine.snapshot.clone();
    // Nothing changes unseen in a machine that never was.
    snapshot.event_seq = 0;
    for slice in snapshot.slices.iter_mut().filter(|slice| !slice.is_away()) {
        slice.state = if stays > Pages::ZERO { SliceState::Online } else { SliceState::Offline };
        stays = stays - slice.present;
    }
    EnergySample::new(&snapshot, &machine.info, WorkCounters::default())
}
