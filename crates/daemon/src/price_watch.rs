//! Checks by the daemon's own requests whether the kernel's prices still hold, and fits new ones if
//! they do not.
//!
//! The kernel answers a request with sums over its slices: what they should have cost, what they
//! took, and what was moved and dropped. The slices that went offline are those that were online
//! before and are offline after; what was free in them is known from before. So are all terms of
//! the
//! price but two: how often pages were mapped, and for how many cache had to make room. These
//! follow
//! from the price itself. A request whose figures do not add up, or that failed in part, teaches
//! nothing and is left out.
//!
//! The daemon installs nothing. It offers fitted prices in a file for `ramslice-lab calibrate
//! --from`.

use std::collections::BTreeMap;
use std::path::Path;

use ramslice_calibrate::{
    CalibrationSample, DriftDetector, DriftMemory, DriftSettings, DriftState, ModelCoefficients,
    OperationCounts, SampleOrigin, SampleSet, SamplesFile, check_refit, everyday, noise,
};
use ramslice_types::{
    BackendInfo, Pages, Price, PriceParameter, RequestOp, RequestOutcome, SCHEMA_VERSION, Slice,
    SliceState,
};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::status::PriceStatus;

/// The name of the file in the state directory.
pub const FILE: &str = "prices.json";
/// How many operations are kept: their file has at most some 50 KB.
const REMEMBERED: usize = 128;
/// A measured cost of more than so many times the price, or less than the inverse, is no cost of
/// the
/// work: a clock jumped, or the host stood still.
const MOST_FACTOR: f64 = 1000.0;
/// The cost of the operations by the parameters may miss the kernel's own price by this share.
/// Otherwise the operations are not understood.
const MOST_MISSED: f64 = 0.05;

/// What is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersistedPrices {
    kernel_release: String,
    #[serde(rename = "price_parameters_100cycles")]
    parameters: BTreeMap<PriceParameter, Price>,
    drift: DriftMemory,
}

/// What should become of the file of samples.
#[derive(Debug)]
pub enum PriceOffer {
    /// Write this text.
    Write(Vec<u8>),
    /// Remove it: it is out of date.
    Remove,
}

/// What is known of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum OfferState {
    /// Nothing: an earlier run may have left it.
    #[default]
    Unknown,
    No,
    /// It was written after so many operations.
    Yes {
        operations: u64,
        /// The command that installs it.
        install: String,
    },
    /// It was not written, for this reason.
    Refused {
        operations: u64,
        why: String,
    },
}

/// The parameters in force and what is known of them.
#[derive(Debug)]
struct WatchedPrices {
    parameters: BTreeMap<PriceParameter, Price>,
    drift: DriftDetector,
    operations: u64,
    left_out: u64,
    offer: OfferState,
    refitted: Option<BTreeMap<PriceParameter, Price>>,
    /// The state that was last logged.
    last_logged: &'static str,
}

/// Watches the prices in force.
#[derive(Debug)]
pub struct PriceWatch {
    /// What an earlier run saved, until it is known whether it fits.
    saved_prices: Option<PersistedPrices>,
    watch: Result<WatchedPrices, String>,
}

fn settings() -> DriftSettings {
    DriftSettings { max_operations: REMEMBERED, ..DriftSettings::default() }
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

impl PriceWatch {
    /// Takes what an earlier run saved.
    pub fn new(saved_prices: Option<PersistedPrices>) -> Self {
        Self { saved_prices, watch: Err("the machine was not read so far".to_owned()) }
    }

    /// Whether anything is watched.
    pub fn is_watching(&self) -> bool {
        self.watch.is_ok()
    }

    /// Takes which parameters are in force, as far as they could be read. If they or the kernel
    /// changed, watching starts over.
    pub fn watch_parameters(&mut self, parameters: &BTreeMap<PriceParameter, Price>, kind: &str) {
        match all_parameters(parameters, kind) {
            Err(why) => {
                self.saved_prices = self.persisted();
                self.watch = Err(why);
            }
            Ok(parameters) => match &mut self.watch {
                Ok(watch) if watch.parameters == parameters => {}
                Ok(watch) => {
                    info!("other price parameters are in force: these are watched from now on");
                    *watch = WatchedPrices::new(parameters);
                }
                Err(_) => {
                    self.watch =
                        Ok(WatchedPrices::from_saved(parameters, self.saved_prices.take()));
                }
            },
        }
    }

    /// Whether the answer to such a request can teach anything, as far as it shows by itself.
    pub fn can_learn_from(op: RequestOp, outcome: &RequestOutcome) -> bool {
        matches!(op, RequestOp::Offline(_) | RequestOp::Compact | RequestOp::OfflineFree)
            && outcome.slices_done > 0
            && outcome.slices_failed == 0
            && outcome.ran_to_its_end()
    }

    /// Takes a completed request, with the slices before and after. Returns whether it was
    /// understood.
    pub fn take(
        &mut self,
        op: RequestOp,
        outcome: &RequestOutcome,
        before: &[Slice],
        after: &[Slice],
    ) -> bool {
        let Ok(watch) = &mut self.watch else { return false };
        let coefficients = ModelCoefficients::of_parameters(&watch.parameters);
        let went_off = offlined(before, after);
        let credible = outcome.price_measured.0 as f64 / outcome.price_predicted.0 as f64;
        let operations = (1.0 / MOST_FACTOR..MOST_FACTOR)
            .contains(&credible)
            .then(|| operations(outcome, &went_off, &coefficients))
            .flatten();
        let Some(operations) = operations else {
            watch.left_out += 1;
            return false;
        };
        watch.operations += 1;
        watch.drift.observe(CalibrationSample::new(
            SampleOrigin::Everyday,
            op.name(),
            operations,
            outcome,
        ));
        watch.log_change();
        true
    }

    /// A request taught nothing.
    pub fn count_left_out(&mut self) {
        if let Ok(watch) = &mut self.watch {
            watch.left_out += 1;
        }
    }

    /// What to do with the file, if anything.
    pub fn offer(&mut self, info: &BackendInfo) -> Option<PriceOffer> {
        self.watch.as_mut().ok()?.offer(info)
    }

    /// The file was written there.
    pub fn written(&mut self, path: &Path) {
        let Ok(watch) = &mut self.watch else { return };
        let install = format!("ramslice-lab calibrate --from {} --install", path.display());
        if !matches!(&watch.offer, OfferState::Yes { install: known, .. } if *known == install) {
            warn!(
                factor = watch.drift.factor(),
                "the kernel's prices no longer hold; `{install}` puts what fits them in force"
            );
        }
        watch.offer = OfferState::Yes { operations: watch.operations, install };
    }

    /// The file could not be written.
    pub fn not_written(&mut self, why: String) {
        if let Ok(watch) = &mut self.watch {
            watch.offer = OfferState::Refused { operations: watch.operations, why };
        }
    }

    /// What is saved.
    pub fn persisted(&self) -> Option<PersistedPrices> {
        match &self.watch {
            Ok(watch) => Some(PersistedPrices {
                kernel_release: release(),
                parameters: watch.parameters.clone(),
                drift: watch.drift.memory(),
            }),
            Err(_) => self.saved_prices.clone(),
        }
    }

    /// The status.
    pub fn status(&self) -> PriceStatus {
        match &self.watch {
            Ok(watch) => watch.status(),
            Err(why) => PriceStatus {
                state: "unwatched",
                text: format!("no check whether prices hold: {why}"),
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

impl WatchedPrices {
    fn new(parameters: BTreeMap<PriceParameter, Price>) -> Self {
        let drift = DriftDetector::new(ModelCoefficients::of_parameters(&parameters), settings());
        let (offer, refitted) = (OfferState::default(), None);
        Self {
            parameters,
            drift,
            operations: 0,
            left_out: 0,
            offer,
            refitted,
            last_logged: "too-few",
        }
    }

    fn from_saved(
        parameters: BTreeMap<PriceParameter, Price>,
        saved_prices: Option<PersistedPrices>,
    ) -> Self {
        let mut watch = Self::new(parameters);
        match saved_prices {
            Some(memory)
                if memory.parameters == watch.parameters && memory.kernel_release == release() =>
            {
                let coefficients = ModelCoefficients::of_parameters(&watch.parameters);
                watch.drift = DriftDetector::from_memory(coefficients, settings(), memory.drift);
                watch.last_logged = watch.state();
            }
            Some(_) => {
                info!(
                    "what was known of prices was for other parameters or another kernel: \
                     learning again"
                );
            }
            None => {}
        }
        watch
    }

    fn state(&self) -> &'static str {
        match self.drift.state() {
            DriftState::Steady if self.drift.operations() < settings().min_operations => "too-few",
            DriftState::Steady => "steady",
            DriftState::Waiting { .. } => "waiting",
            DriftState::Refit { .. } => "refit",
        }
    }

    /// Logs that prices hold again. That they do not is logged once the operator can act on it.
    fn log_change(&mut self) {
        let state = self.state();
        if state == "steady" && self.last_logged == "refit" {
            info!(factor = self.drift.factor(), "the kernel's prices hold again");
        }
        if matches!(state, "steady" | "refit") {
            self.last_logged = state;
        }
    }

    fn offer(&mut self, info: &BackendInfo) -> Option<PriceOffer> {
        if !matches!(self.drift.state(), DriftState::Refit { .. }) {
            self.refitted = None;
            let before = std::mem::replace(&mut self.offer, OfferState::No);
            return (before != OfferState::No).then_some(PriceOffer::Remove);
        }
        let (OfferState::Yes { operations, .. } | OfferState::Refused { operations, .. }) =
            &self.offer
        else {
            return self.fit(info);
        };
        // One more operation changes little. As many as a refit needs are worth a new file.
        if self.operations < operations + settings().min_operations as u64 {
            None
        } else {
            self.fit(info)
        }
    }

    fn fit(&mut self, info: &BackendInfo) -> Option<PriceOffer> {
        match self.fitted(info) {
            Ok((refitted, file)) => {
                self.refitted = Some(refitted);
                Some(PriceOffer::Write(file))
            }
            Err(why) => {
                self.refitted = None;
                let before = std::mem::replace(
                    &mut self.offer,
                    OfferState::Refused { operations: self.operations, why },
                );
                (!matches!(before, OfferState::No | OfferState::Refused { .. }))
                    .then_some(PriceOffer::Remove)
            }
        }
    }

    /// Parameters that fit, and the file of samples behind them; or why there are none.
    fn fitted(
        &self,
        info: &BackendInfo,
    ) -> Result<(BTreeMap<PriceParameter, Price>, Vec<u8>), String> {
        let fitted = self.drift.refit().map_err(|error| error.to_string())?;
        let mut parameters =
            fitted.rounded.parameters().ok_or("the kernel does not accept the fitted prices")?;
        // It orders slices and is no cost, so it cannot be measured.
        parameters.remove(&PriceParameter::Unreclaimable);
        let samples: Vec<CalibrationSample> = self.drift.deviating().cloned().collect();
        let coefficients = ModelCoefficients::of_parameters(&self.parameters);
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
        // By the same rules as the command that installs it.
        let report = everyday(&samples).map_err(|error| error.to_string())?;
        check_refit(&report).map_err(|refusal| refusal.to_string())?;
        let file = SamplesFile { schema_version: SCHEMA_VERSION, samples };
        Ok((parameters, serde_json::to_vec(&file).map_err(|error| error.to_string())?))
    }

    fn status(&self) -> PriceStatus {
        let (state, factor, least) = (self.state(), self.drift.factor(), settings().min_operations);
        let (all, lately) = (self.drift.operations(), self.drift.deviating().len());
        let mut text = match state {
            "too-few" => {
                format!("{all} operations so far: it takes {least} to say whether prices hold")
            }
            "steady" => {
                format!("prices hold: the last {all} operations cost {factor:.2} times their price")
            }
            "waiting" => format!(
                "prices do not hold: the last {lately} operations cost {factor:.2} times their \
                 price; it takes {least} to \
                 say what would fit"
            ),
            _ => {
                format!(
                    "prices do not hold: the last {lately} operations cost {factor:.2} times \
                     their price"
                )
            }
        };
        let mut install = None;
        match &self.offer {
            OfferState::Yes { install: command, .. } => {
                text += &format!("; `{command}` puts what fits in force");
                install = Some(command.clone());
            }
            OfferState::Refused { why, .. } => text += &format!("; nothing is offered: {why}"),
            OfferState::Unknown | OfferState::No => {}
        }
        PriceStatus {
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
fn all_parameters(
    found: &BTreeMap<PriceParameter, Price>,
    kind: &str,
) -> Result<BTreeMap<PriceParameter, Price>, String> {
    if kind == "stock" {
        return Err("a stock kernel has no price parameters that could be changed".to_owned());
    }
    match PriceParameter::ALL.into_iter().find(|parameter| !found.contains_key(parameter)) {
        Some(lacking) => Err(format!("price parameter {} could not be read", lacking.name())),
        None => Ok(found.clone()),
    }
}

/// Slices that were online before and are offline after, as they were before.
fn offlined<'a>(before: &'a [Slice], after: &[Slice]) -> Vec<&'a Slice> {
    let off: BTreeMap<_, _> = after.iter().map(|slice| (slice.id, slice.state)).collect();
    let changed = |slice: &&Slice| {
        slice.state == SliceState::Online && off.get(&slice.id) == Some(&SliceState::Offline)
    };
    before.iter().filter(changed).collect()
}

/// The operations that emptied these slices; none if the figures do not add up.
fn operations(
    outcome: &RequestOutcome,
    slices: &[&Slice],
    in_force: &ModelCoefficients,
) -> Option<OperationCounts> {
    // Another program switched slices, or memory was wanted back at once.
    if slices.len() != outcome.slices_done as usize {
        return None;
    }
    let sum =
        |pages: fn(&Slice) -> Pages| -> Pages { slices.iter().map(|slice| pages(slice)).sum() };
    let frames = sum(|slice| slice.present);
    let free = sum(|slice| slice.counters.free.min(slice.present));
    let mapped = sum(|slice| slice.counters.anon_mapped + slice.counters.file_mapped);
    let moved = outcome.migrated;
    // Pages that were neither free nor moved were dropped. Other dropped pages made room elsewhere.
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
