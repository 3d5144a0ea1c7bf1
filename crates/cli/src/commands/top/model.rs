//! What `ramslice top` knows: looks at a machine, rates between them, and what the person chose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use ramslice_types::{BackendInfo, MachineState, NodeId, Slice, SliceId, SliceState, SliceTotals};

use super::activity::{MachineSample, SliceActivity};
use super::daemon_status::{DaemonSentences, DaemonStatus};
use super::energy_sums::EnergySums;
use super::observer_thread::{MachineObservation, Pages};
use super::options::{MachineSource, PERIODS, SortOrder, TopArgs};
use super::page_cache::PageCacheRatios;
use super::state_changes::{SliceStates, StateChange};
use crate::commands::explain::sentences::plain_words;
use crate::render::{OutputStyle, nr_pages};

/// Shares of memory that was off, as many as the widest screen has columns.
const HISTORY: usize = 400;

/// Everything on the screen.
pub(super) struct TopModel {
    status_file: PathBuf,
    pub(super) screen: OutputStyle,
    pub(super) source: MachineSource,
    pub(super) sample: MachineSample,
    pub(super) census: SliceTotals,
    /// Why there are no counters.
    pub(super) counters_error: Option<String>,
    /// Since the look before; the first look has none, nor has one that was no news.
    pub(super) last_activity: Option<SliceActivity>,
    /// The latest of these.
    pub(super) rate: Option<SliceActivity>,
    pub(super) total: SliceActivity,
    /// The changes of the last look.
    pub(super) changes: Vec<StateChange>,
    states: SliceStates,
    /// On the machine's clock, when a slice was seen to change its state.
    change_times: BTreeMap<SliceId, Duration>,
    /// Share of memory that was off, the latest at the end.
    pub(super) history: VecDeque<f64>,
    pub(super) energy_sums: Option<EnergySums>,
    pub(super) page_cache: PageCacheRatios,
    pub(super) daemon: DaemonStatus,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    pub(super) help: bool,
    pub(super) sort: SortOrder,
    pub(super) selected_slice: SliceId,
    /// Whether the selected slice is marked and explained: not where no key selects another.
    pub(super) has_cursor: bool,
    /// What a look at the selected slice's pages said, or that there is one.
    pub(super) explanation: Option<String>,
    /// The slice whose pages are to be looked at.
    pub(super) pages_request: Option<SliceId>,
    /// A look takes long.
    pub(super) is_observing: bool,
    /// Why the last look failed; what is shown is older.
    pub(super) last_error: Option<String>,
}

impl TopModel {
    /// After the first look.
    pub(super) fn new(
        seen: MachineObservation,
        args: &TopArgs,
        source: MachineSource,
        screen: OutputStyle,
        mut joules: Option<EnergySums>,
    ) -> Self {
        let MachineObservation { sample: look, counters_error: no_counters, lookups } = seen;
        let mut page_cache = PageCacheRatios::default();
        page_cache.add(lookups);
        let mut states = SliceStates::default();
        states.update(&look.machine.snapshot);
        if let Some(joules) = &mut joules {
            joules.add(&look);
        }
        // No daemon decides for a saved or recorded machine, which may be another one.
        let asked =
            args.status_file.as_path() != std::path::Path::new(super::daemon_status::STATUS);
        let daemon = if !source.is_running() && !asked {
            DaemonStatus::NotHere
        } else {
            DaemonStatus::read(&args.status_file)
        };
        let mut top = Self {
            status_file: args.status_file.clone(),
            screen,
            source,
            census: census(&look.machine),
            selected_slice: SliceId(0),
            has_cursor: true,
            sample: look,
            counters_error: no_counters,
            last_activity: None,
            rate: None,
            total: SliceActivity::default(),
            changes: Vec::new(),
            states,
            change_times: BTreeMap::new(),
            history: VecDeque::new(),
            energy_sums: joules,
            page_cache,
            daemon,
            interval: args.interval,
            is_paused: false,
            help: false,
            sort: args.sort,
            explanation: None,
            pages_request: None,
            is_observing: false,
            last_error: None,
        };
        top.selected_slice = top.sorted().first().map_or(SliceId(0), |slice| slice.id);
        top.note_history();
        top
    }

    /// Reads what the daemon wrote last.
    pub(super) fn read_daemon_status(&mut self) {
        if self.daemon != DaemonStatus::NotHere {
            self.daemon = DaemonStatus::read(&self.status_file);
        }
    }

    /// Takes the next look into account. A failure is kept to be shown, and what was seen before
    /// stays.
    pub(super) fn apply_observation(&mut self, seen: Result<MachineObservation>) {
        self.read_daemon_status();
        let MachineObservation { sample: look, counters_error: no_counters, lookups } = match seen {
            Ok(seen) => seen,
            Err(error) => {
                self.last_error = Some(format!("{error:#}"));
                return;
            }
        };
        self.last_error = None;
        if look.machine.snapshot.time == self.machine().snapshot.time && !self.source.is_saved() {
            // A backend to which looking is dear has shown the same look again: there is no news
            // yet.
            self.changes.clear();
            self.last_activity = None;
            return;
        }
        self.page_cache.add(lookups);
        self.changes = self.states.update(&look.machine.snapshot);
        for change in &self.changes {
            self.change_times.insert(change.slice, look.machine.snapshot.time);
            // A look that is under way explains the slice as it is then.
            if change.slice == self.selected_slice && self.pages_request.is_none() {
                self.explanation = None;
            }
        }
        let flow = SliceActivity::between(&self.sample, &look, &self.changes);
        self.total = self.total.plus(&flow);
        self.last_activity = (!flow.elapsed.is_zero()).then_some(flow);
        self.rate = self.last_activity.or(self.rate);
        if let Some(joules) = &mut self.energy_sums {
            joules.add(&look);
        }
        self.census = census(&look.machine);
        self.sample = look;
        self.counters_error = no_counters;
        if !self.machine().snapshot.slices.iter().any(|slice| slice.id == self.selected_slice) {
            let first = self.machine().snapshot.slices.first().map_or(SliceId(0), |slice| slice.id);
            self.select(first);
        }
        self.note_history();
    }

    fn note_history(&mut self) {
        let info = &self.sample.machine.info;
        self.history.push_back(info.offline_pages.share_of(info.managed_pages));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    pub(super) fn machine(&self) -> &MachineState {
        &self.sample.machine
    }

    /// The slices in the order that was chosen.
    pub(super) fn sorted(&self) -> Vec<&Slice> {
        let mut slices: Vec<&Slice> = self.machine().snapshot.slices.iter().collect();
        let frames = self.machine().info.slice_pages();
        match self.sort {
            SortOrder::Address => slices.sort_by_key(|slice| slice.id),
            SortOrder::Price => slices.sort_by_key(|slice| {
                let online = slice.state == SliceState::Online;
                (!online, slice.finite_price().is_none(), slice.price, slice.id)
            }),
            SortOrder::Used => slices.sort_by_key(|slice| {
                let parts = slice.composition(frames);
                (std::cmp::Reverse(parts.used()), slice.id)
            }),
            SortOrder::State => slices.sort_by_key(|slice| (rank(slice), slice.id)),
        }
        slices
    }

    /// The slice to mark; without a cursor, none that there is.
    pub(super) fn cursor(&self) -> SliceId {
        if self.has_cursor { self.selected_slice } else { SliceId(u32::MAX) }
    }

    /// The selected slice.
    pub(super) fn slice(&self) -> Option<&Slice> {
        self.machine().snapshot.slices.iter().find(|slice| slice.id == self.selected_slice)
    }

    /// Selects the slice `by` places on in the list, or by address.
    pub(super) fn step(&mut self, by: isize, by_address: bool) {
        let ids: Vec<SliceId> = if by_address {
            self.machine().snapshot.slices.iter().map(|slice| slice.id).collect()
        } else {
            self.sorted().iter().map(|slice| slice.id).collect()
        };
        let Some(last) = ids.len().checked_sub(1) else { return };
        let at = ids.iter().position(|&id| id == self.selected_slice).unwrap_or(0);
        self.select(ids[at.saturating_add_signed(by).min(last)]);
    }

    fn select(&mut self, slice: SliceId) {
        self.selected_slice = slice;
        self.close_pages();
    }

    /// Halves or doubles the period, within bounds.
    pub(super) fn change_interval(&mut self, longer: bool) {
        let [shortest, longest] = PERIODS;
        let wanted = if longer { self.interval * 2 } else { self.interval / 2 };
        self.interval = wanted.clamp(shortest, longest);
    }

    /// Asks for the pages of the selected slice.
    pub(super) fn request_pages(&mut self) {
        let Some(slice) = self.slice() else { return };
        self.pages_request = Some(slice.id);
        self.explanation = Some("Its pages are being looked at.".to_owned());
    }

    /// Explains a slice by its pages, if it is still selected.
    pub(super) fn show_pages(&mut self, slice: SliceId, pages: Pages) {
        if self.explanation.is_none() || slice != self.selected_slice {
            return;
        }
        let Some(slice) = self.slice() else { return };
        self.explanation = Some(match pages {
            Ok((contents, holdings)) => plain_words(self.machine(), slice, &contents, &holdings),
            Err(error) => error.to_string(),
        });
    }

    /// Back from the pages of a slice.
    pub(super) fn close_pages(&mut self) {
        (self.explanation, self.pages_request) = (None, None);
    }

    /// What is to be said of the selected slice, without a look at its pages.
    pub(super) fn words(&self) -> String {
        let Some(slice) = self.slice() else { return "There are no slices.".to_owned() };
        if let Some(explanation) = &self.explanation {
            return explanation.clone();
        }
        let words = words(slice, &self.machine().info);
        match self.change_times.get(&slice.id) {
            Some(when) => {
                let ago = self.machine().snapshot.time.saturating_sub(*when).as_secs();
                format!("{words} It has been {} for {ago} s.", slice.state)
            }
            None => words,
        }
    }

    /// What the daemon says of this machine.
    pub(super) fn governor(&self) -> DaemonSentences {
        let nodes: BTreeSet<NodeId> = self.machine().zones.iter().map(|zone| zone.node).collect();
        self.daemon.words(nodes.len() > 1)
    }

    /// What a person should know about this machine before anything else.
    pub(super) fn notes(&self) -> Vec<String> {
        self.age_note().into_iter().chain(self.without_ramslice()).collect()
    }

    /// That what is shown is not of now.
    pub(super) fn age_note(&self) -> Option<String> {
        let problem = self.last_error.as_ref()?;
        Some(format!("The last look failed: {problem}. What is shown is older."))
    }

    /// Who wakes slices, on a kernel that does not.
    pub(super) fn without_ramslice(&self) -> Option<String> {
        let stock = self.machine().info.is_stock() && self.source.is_running();
        // One line of 80 columns.
        stock.then(|| {
            "This kernel is without ramslice: only ramsliced (on) or `ramslice guard` wakes."
                .to_owned()
        })
    }
}

fn census(machine: &MachineState) -> SliceTotals {
    SliceTotals::of(&machine.snapshot.slices, machine.info.slice_pages())
}

/// The order by state.
fn rank(slice: &Slice) -> u8 {
    match slice.state {
        SliceState::Quarantined => 0,
        SliceState::Emptying | SliceState::Waking => 1,
        SliceState::Offline => 2,
        SliceState::Online if slice.is_empty() => 3,
        SliceState::Online if slice.finite_price().is_some() => 4,
        SliceState::Online => 5,
    }
}

/// A sentence or two on a slice, from what a snapshot shows.
fn words(slice: &Slice, info: &BackendInfo) -> String {
    let parts = slice.composition(info.slice_pages());
    let because = |slice: &Slice| match slice.reason {
        ramslice_types::Reason::None => String::new(),
        reason => format!(" ({reason}: {})", reason.sentence()),
    };
    match slice.state {
        SliceState::Offline if slice.held => {
            "It is held off until it is switched on by hand.".to_owned()
        }
        SliceState::Offline => "It is off.".to_owned(),
        SliceState::Waking => "It is being switched on.".to_owned(),
        SliceState::Emptying => "It is being emptied.".to_owned(),
        SliceState::Quarantined => {
            "It is lost until reboot: the power driver could not wake it.".to_owned()
        }
        SliceState::Online if slice.unreclaimable => {
            format!("It can never be emptied{}.", because(slice))
        }
        SliceState::Online if slice.backoff => format!(
            "It failed lately{} and is left alone for another {} s.",
            because(slice),
            slice.retry_ms.div_ceil(1000)
        ),
        SliceState::Online if slice.unmovable => format!(
            "{} that cannot be moved {} it on{}. Enter shows what they are.",
            nr_pages(parts.unmovable.0),
            if parts.unmovable.0 == 1 { "keeps" } else { "keep" },
            because(slice)
        ),
        SliceState::Online if slice.is_empty() => {
            "It is empty: it can be switched off at once.".to_owned()
        }
        // Memory hotplug moves all.
        SliceState::Online if info.is_stock() => format!(
            "It can be emptied: {} would be moved; price {} (units of 100 cycles).",
            nr_pages((parts.movable + parts.freeable).0),
            slice.price
        ),
        SliceState::Online => format!(
            "It can be emptied: {} would be moved, {} of cache dropped; price {} (units of 100 \
             cycles).",
            nr_pages(parts.movable.0),
            nr_pages(parts.freeable.0),
            slice.price
        ),
    }
}
