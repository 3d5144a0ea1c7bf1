//! Whether the kernel's prices still hold, by the daemon's own requests; and if not, what would fit them.
//!
//! The kernel answers a request with sums over its slices: what they were expected to cost, what they took, what was
//! moved and dropped. Slices that went off are those that were on before and are off after; what was free there is
//! known from before. So are all terms of the price but two, how often pages were mapped, and for how many cache had
//! to go elsewhere: these follow from the price itself. A request whose figures do not add up, or that failed in part,
//! tells nothing and is left out.
//!
//! Nothing is installed from here. What fits is offered as a file, which `ramslice-lab calibrate --from` takes.

use std::collections::BTreeMap;
use std::path::Path;

use ramslice_calibrate::{
    CalibrationSample, DriftDetector, DriftMemory, DriftSettings, DriftState, ModelCoefficients,
    OperationCounts, SampleOrigin, SampleSet, SamplesFile, check_refit, everyday, noise,
};
use ramslice_types::{
    Backend, BackendError, BackendInfo, Pages, Price, PriceParameter, RequestOp, RequestOutcome,
    SCHEMA_VERSION, Slice, SliceState,
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::status::PricesStatus;

/// The name of the file in the state directory.
pub const FILE: &str = "prices.json";
/// Operations that are remembered: their file has some 50 KB at most.
const REMEMBERED: usize = 128;
/// Beyond this, or below its inverse, what was measured is no cost of what was done: a clock that jumped, a host that
/// stood still.
const MOST_FACTOR: f64 = 1000.0;
/// What the operations cost by the parameters may miss the kernel's own price by this share; else they are not known.
const MOST_MISSED: f64 = 0.05;

/// What is to be remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricesMemory {
    kernel_release: String,
    #[serde(rename = "price_parameters_100cycles")]
    parameters: BTreeMap<PriceParameter, Price>,
    drift: DriftMemory,
}

/// What the file of samples should be.
#[derive(Debug)]
pub enum Offer {
    /// This.
    Write(Vec<u8>),
    /// Not there: what it may hold is of the past.
    Remove,
}

/// What is known of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Offered {
    /// Nothing: it may be there from an earlier run.
    #[default]
    Unknown,
    No,
    /// After so many operations.
    Yes {
        taken: u64,
        /// The command that installs it.
        install: String,
    },
    /// Not, for this reason.
    Refused {
        taken: u64,
        why: String,
    },
}

/// The parameters in force and what is known of them.
#[derive(Debug)]
struct Watch {
    parameters: BTreeMap<PriceParameter, Price>,
    drift: DriftDetector,
    taken: u64,
    left_out: u64,
    offered: Offered,
    refitted: Option<BTreeMap<PriceParameter, Price>>,
    /// The state that the log was told of.
    told: &'static str,
}

/// Watches the prices in force.
#[derive(Debug)]
pub struct Prices {
    /// What an earlier run remembered, until it is known whether it fits.
    remembered: Option<PricesMemory>,
    watch: Result<Watch, String>,
}

fn settings() -> DriftSettings {
    DriftSettings { most: REMEMBERED, ..DriftSettings::default() }
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

impl Prices {
    /// With what an earlier run remembered.
    pub fn new(remembered: Option<PricesMemory>) -> Self {
        Self { remembered, watch: Err("the machine was not seen yet".to_owned()) }
    }

    /// Whether anything is watched.
    pub fn watches(&self) -> bool {
        self.watch.is_ok()
    }

    /// Looks which parameters are in force. With others than before, or on another kernel, all begins anew.
    pub fn see(&mut self, backend: &dyn Backend, way: &str) {
        match in_force(backend, way) {
            Err(why) => {
                self.remembered = self.memory();
                self.watch = Err(why);
            }
            Ok(parameters) => match &mut self.watch {
                Ok(watch) if watch.parameters == parameters => {}
                Ok(watch) => {
                    info!(
                        "other parameters of the price model are in force: watching these from now on"
                    );
                    *watch = Watch::new(parameters);
                }
                Err(_) => self.watch = Ok(Watch::recall(parameters, self.remembered.take())),
            },
        }
    }

    /// Whether an answer to such a request can be learned from, before anything else is looked at.
    pub fn tells(op: RequestOp, outcome: &RequestOutcome) -> bool {
        matches!(op, RequestOp::Offline(_) | RequestOp::Compact | RequestOp::OfflineFree)
            && outcome.slices_done > 0
            && outcome.slices_failed == 0
            && outcome.ran_to_its_end()
    }

    /// Takes a request that was carried out, with the slices before and after. Says whether it could be understood.
    pub fn take(
        &mut self,
        op: RequestOp,
        outcome: &RequestOutcome,
        before: &[Slice],
        after: &[Slice],
    ) -> bool {
        let Ok(watch) = &mut self.watch else { return false };
        let coefficients = ModelCoefficients::in_force(&watch.parameters);
        let went_off = went_off(before, after);
        let credible = outcome.price_measured.0 as f64 / outcome.price_predicted.0 as f64;
        let operations = (1.0 / MOST_FACTOR..MOST_FACTOR)
            .contains(&credible)
            .then(|| operations(outcome, &went_off, &coefficients))
            .flatten();
        let Some(operations) = operations else {
            watch.left_out += 1;
            return false;
        };
        watch.taken += 1;
        watch.drift.observe(CalibrationSample::new(
            SampleOrigin::Everyday,
            op.name(),
            operations,
            outcome,
        ));
        watch.tell_log();
        true
    }

    /// A request told nothing.
    pub fn leave_out(&mut self) {
        if let Ok(watch) = &mut self.watch {
            watch.left_out += 1;
        }
    }

    /// What is to be done with the file, if anything.
    pub fn offer(&mut self, info: &BackendInfo) -> Option<Offer> {
        self.watch.as_mut().ok()?.offer(info)
    }

    /// The file was written there.
    pub fn written(&mut self, path: &Path) {
        let Ok(watch) = &mut self.watch else { return };
        let install = format!("ramslice-lab calibrate --from {} --install", path.display());
        if !matches!(&watch.offered, Offered::Yes { install: known, .. } if *known == install) {
            warn!(
                factor = watch.drift.factor(),
                "the kernel's prices no longer hold; `{install}` puts what fits them in force"
            );
        }
        watch.offered = Offered::Yes { taken: watch.taken, install };
    }

    /// The file could not be written.
    pub fn not_written(&mut self, why: String) {
        if let Ok(watch) = &mut self.watch {
            watch.offered = Offered::Refused { taken: watch.taken, why };
        }
    }

    /// What is to be remembered.
    pub fn memory(&self) -> Option<PricesMemory> {
        match &self.watch {
            Ok(watch) => Some(PricesMemory {
                kernel_release: release(),
                parameters: watch.parameters.clone(),
                drift: watch.drift.memory(),
            }),
            Err(_) => self.remembered.clone(),
        }
    }

    /// What there is to tell.
    pub fn status(&self) -> PricesStatus {
        match &self.watch {
            Ok(watch) => watch.status(),
            Err(why) => PricesStatus {
                state: "unwatched",
                text: format!("nobody watches whether prices hold: {why}"),
                operations: 0,
                left_out: 0,
                measured_over_predicted: None,
                parameters: None,
                refitted: None,
                install: None,
            },
        }
    }
}

impl Watch {
    fn new(parameters: BTreeMap<PriceParameter, Price>) -> Self {
        let drift = DriftDetector::new(ModelCoefficients::in_force(&parameters), settings());
        let (offered, refitted) = (Offered::default(), None);
        Self { parameters, drift, taken: 0, left_out: 0, offered, refitted, told: "too-few" }
    }

    fn recall(
        parameters: BTreeMap<PriceParameter, Price>,
        remembered: Option<PricesMemory>,
    ) -> Self {
        let mut watch = Self::new(parameters);
        match remembered {
            Some(memory)
                if memory.parameters == watch.parameters && memory.kernel_release == release() =>
            {
                let coefficients = ModelCoefficients::in_force(&watch.parameters);
                watch.drift = DriftDetector::recall(coefficients, settings(), memory.drift);
                watch.told = watch.state();
            }
            Some(_) => {
                info!(
                    "what was known of prices was for other parameters or another kernel: learning anew"
                );
            }
            None => {}
        }
        watch
    }

    fn state(&self) -> &'static str {
        match self.drift.state() {
            DriftState::Steady if self.drift.operations() < settings().least => "too-few",
            DriftState::Steady => "steady",
            DriftState::Waiting { .. } => "waiting",
            DriftState::Refit { .. } => "refit",
        }
    }

    /// That prices do not hold is told when there is something to do about it.
    fn tell_log(&mut self) {
        let state = self.state();
        if state == "steady" && self.told == "refit" {
            info!(factor = self.drift.factor(), "the kernel's prices hold again");
        }
        if matches!(state, "steady" | "refit") {
            self.told = state;
        }
    }

    fn offer(&mut self, info: &BackendInfo) -> Option<Offer> {
        if !matches!(self.drift.state(), DriftState::Refit { .. }) {
            self.refitted = None;
            let before = std::mem::replace(&mut self.offered, Offered::No);
            return (before != Offered::No).then_some(Offer::Remove);
        }
        let (Offered::Yes { taken, .. } | Offered::Refused { taken, .. }) = &self.offered else {
            return self.fit(info);
        };
        // Each operation more changes a little: as many as a refit needs change something.
        if self.taken < taken + settings().least as u64 { None } else { self.fit(info) }
    }

    fn fit(&mut self, info: &BackendInfo) -> Option<Offer> {
        match self.fitted(info) {
            Ok((refitted, file)) => {
                self.refitted = Some(refitted);
                Some(Offer::Write(file))
            }
            Err(why) => {
                self.refitted = None;
                let before = std::mem::replace(
                    &mut self.offered,
                    Offered::Refused { taken: self.taken, why },
                );
                (!matches!(before, Offered::No | Offered::Refused { .. })).then_some(Offer::Remove)
            }
        }
    }

    /// Parameters that fit, and the file that they are fitted from once more; or why there are none.
    fn fitted(
        &self,
        info: &BackendInfo,
    ) -> Result<(BTreeMap<PriceParameter, Price>, Vec<u8>), String> {
        let fitted = self.drift.refit().map_err(|error| error.to_string())?;
        let mut parameters =
            fitted.whole.parameters().ok_or("the kernel does not take what fits")?;
        // An offset in an order, not a cost: nothing to be measured.
        parameters.remove(&PriceParameter::Unreclaimable);
        let samples: Vec<CalibrationSample> = self.drift.deviating().cloned().collect();
        let coefficients = ModelCoefficients::in_force(&self.parameters);
        let ratios: Vec<f64> = samples
            .iter()
            .map(|sample| sample.measured.0 as f64 / coefficients.price(&sample.operations))
            .collect();
        let samples = SampleSet {
            kernel_release: release(),
            page_bytes: info.page_bytes,
            slice_bytes: info.slice_bytes,
            parameters: self.parameters.clone(),
            noise: noise(&ratios),
            changed: self.left_out,
            samples,
        };
        // As the command judges that is to install it.
        let report = everyday(&samples).map_err(|error| error.to_string())?;
        check_refit(&report).map_err(|refusal| refusal.to_string())?;
        let file = SamplesFile { schema_version: SCHEMA_VERSION, samples };
        Ok((parameters, serde_json::to_vec(&file).map_err(|error| error.to_string())?))
    }

    fn status(&self) -> PricesStatus {
        let (state, factor, least) = (self.state(), self.drift.factor(), settings().least);
        let (all, lately) = (self.drift.operations(), self.drift.deviating().len());
        let mut text = match state {
            "too-few" => {
                format!("{all} operations so far: it takes {least} to say whether prices hold")
            }
            "steady" => {
                format!("prices hold: the last {all} operations cost {factor:.2} times their price")
            }
            "waiting" => format!(
                "prices do not hold: the last {lately} operations cost {factor:.2} times their price; it takes {least} to \
                 say what would fit"
            ),
            _ => {
                format!(
                    "prices do not hold: the last {lately} operations cost {factor:.2} times their price"
                )
            }
        };
        let mut install = None;
        match &self.offered {
            Offered::Yes { install: command, .. } => {
                text += &format!("; `{command}` puts what fits in force");
                install = Some(command.clone());
            }
            Offered::Refused { why, .. } => text += &format!("; nothing is offered: {why}"),
            Offered::Unknown | Offered::No => {}
        }
        PricesStatus {
            state,
            text,
            operations: all,
            left_out: self.left_out,
            measured_over_predicted: (all > 0).then_some(factor),
            parameters: Some(self.parameters.clone()),
            refitted: self.refitted.clone(),
            install,
        }
    }
}

/// All parameters, as the kernel has them.
fn in_force(backend: &dyn Backend, way: &str) -> Result<BTreeMap<PriceParameter, Price>, String> {
    if way == "stock" {
        return Err("a stock kernel has none that could be changed".to_owned());
    }
    let read = |parameter| Ok((parameter, backend.price_parameter(parameter)?));
    let found: Result<_, BackendError> = PriceParameter::ALL.into_iter().map(read).collect();
    found.map_err(|error| error.to_string())
}

/// Slices that were on before and are off after, as they were before.
fn went_off<'a>(before: &'a [Slice], after: &[Slice]) -> Vec<&'a Slice> {
    let off: BTreeMap<_, _> = after.iter().map(|slice| (slice.id, slice.state)).collect();
    let changed = |slice: &&Slice| {
        slice.state == SliceState::Online && off.get(&slice.id) == Some(&SliceState::Offline)
    };
    before.iter().filter(changed).collect()
}

/// What it took to empty these slices; nothing if the figures do not add up.
fn operations(
    outcome: &RequestOutcome,
    slices: &[&Slice],
    in_force: &ModelCoefficients,
) -> Option<OperationCounts> {
    // Somebody else was at work, or memory was wanted back at once.
    if slices.len() != outcome.slices_done as usize {
        return None;
    }
    let sum =
        |pages: fn(&Slice) -> Pages| -> Pages { slices.iter().map(|slice| pages(slice)).sum() };
    let frames = sum(|slice| slice.present);
    let free = sum(|slice| slice.counters.free.min(slice.present));
    let mapped = sum(|slice| slice.counters.anon_mapped + slice.counters.file_mapped);
    let moved = outcome.migrated;
    // What is neither free nor moved is dropped; the rest of what was dropped made room elsewhere.
    let dropped = (frames - free - moved).min(outcome.dropped);
    let made_room = (outcome.dropped - dropped).min(moved);
    let mut found = OperationCounts {
        slices: slices.len() as u64,
        frames,
        free,
        dropped,
        moved,
        mappings: mapped.min(moved).0,
        ..OperationCounts::default()
    };
    let predicted = outcome.price_predicted.0 as f64;
    let dearer = in_force.alloc_cache - in_force.alloc_buddy;
    if dearer > 0.0 {
        let pages = (predicted - in_force.price(&found)) / dearer;
        found.cache_targets = Pages(pages.round().clamp(0.0, made_room.0 as f64) as u64);
    }
    if in_force.migrate_mapping > 0.0 && moved > Pages::ZERO {
        let more = (predicted - in_force.price(&found)) / in_force.migrate_mapping;
        found.mappings = (found.mappings as f64 + more.round()).max(0.0) as u64;
    }
    let missed = (in_force.price(&found) - predicted).abs();
    (missed <= MOST_MISSED * predicted).then_some(found)
}

#[cfg(test)]
#[path = "price_watch_tests.rs"]
mod tests;
