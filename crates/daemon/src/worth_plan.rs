//! What offline slices are worth: joules by a profile of DRAM, GiB hours or money by a profile of
//! memory that is given to the host, or unknown.

use std::time::Duration;

use ramslice_energy::{
    EnergyTally, GivebackProfile, GivebackStatement, GivebackStatementSettings, Interval,
    TimeFactor, WorthProfile, WorthUnit,
};
use ramslice_policy::SliceEconomics;
use ramslice_types::{BackendInfo, Bytes, PhysicalQuantity, Price, Worth};
use serde::Serialize;

use crate::energy_ledger::{
    EnergyPlan, EnergyPlanError, LedgerKind, LoadedProfile, SwitchUnit, load_profile,
};

/// The name of the profile by which nothing is known of what slices are worth.
pub const NO_PROFILE: &str = "none";

/// The figures that decisions and ledgers are worked out with.
#[derive(Debug, Clone)]
pub enum WorthPlan {
    /// Joules.
    Power(Box<EnergyPlan>),
    /// Memory that is given back.
    Giveback(Box<GivebackPlan>),
    /// No profile: the tenant's limits decide.
    Unknown,
}

/// A profile of memory that is given back.
#[derive(Debug, Clone)]
pub struct GivebackPlan {
    profile: GivebackProfile,
    crc32: u32,
}

/// Settings of `[energy]` besides the profile. All but this are about DRAM.
#[derive(Debug, Clone, Default)]
pub struct PowerSettings {
    /// The power state.
    pub state: Option<String>,
    /// The profile that gives the costs.
    pub machine: Option<String>,
    /// What the hardware switches as one.
    pub unit: SwitchUnit,
    /// How slow the machine is.
    pub factor: Option<TimeFactor>,
}

impl WorthPlan {
    /// Makes a plan from names as in the settings.
    ///
    /// # Errors
    /// If there is no such profile or state, or it lacks a figure that decisions need.
    pub fn new(profile: &str, power: PowerSettings) -> Result<Self, EnergyPlanError> {
        if profile == NO_PROFILE {
            return Ok(Self::Unknown);
        }
        let loaded = load_profile(profile).map_err(EnergyPlanError::Profile)?;
        match loaded {
            LoadedProfile { profile: WorthProfile::Power(profile), text } => {
                let PowerSettings { state, machine, unit, factor } = power;
                let (state, machine) = (state.as_deref(), machine.as_deref());
                EnergyPlan::new(*profile, text, state, machine, unit, factor)
                    .map(|plan| Self::Power(Box::new(plan)))
            }
            LoadedProfile { profile: WorthProfile::Giveback(profile), text } => {
                let crc32 = crc32fast::hash(text.as_bytes());
                Ok(Self::Giveback(Box::new(GivebackPlan { profile: *profile, crc32 })))
            }
        }
    }

    /// The plan of joules, if it is one.
    pub fn power(&self) -> Option<&EnergyPlan> {
        match self {
            Self::Power(plan) => Some(plan),
            Self::Giveback(_) | Self::Unknown => None,
        }
    }

    /// The figures that decisions need on this machine; nothing without a profile.
    ///
    /// # Errors
    /// Which figure the profile lacks, as a sentence.
    pub fn economics(&self, info: &BackendInfo) -> Result<Option<SliceEconomics>, String> {
        match self {
            Self::Power(plan) => plan.economics(info).map(Some),
            Self::Giveback(plan) => {
                SliceEconomics::of_giveback(&plan.profile, info.slice_bytes, info.page_bytes)
                    .map(Some)
                    .map_err(|error| format!("{}: {error}", plan.profile.file))
            }
            Self::Unknown => Ok(None),
        }
    }

    /// How long a page must rest until moving it there and back has paid, and by what figures.
    ///
    /// # Errors
    /// Why that is not known, as a sentence.
    pub fn rest_break_even(&self, page: Bytes) -> Result<(Duration, String), String> {
        match self {
            Self::Power(plan) => plan.rest_break_even(page),
            Self::Giveback(plan) => Err(format!(
                "the profile {} is about memory that is given back, not about rest",
                plan.profile.name
            )),
            Self::Unknown => Err("there is no profile".to_owned()),
        }
    }

    /// The profile and its state, to show and to check whether what was learned still fits.
    pub fn name(&self) -> String {
        match self {
            Self::Power(plan) => plan.name(),
            Self::Giveback(plan) => plan.profile.name.clone(),
            Self::Unknown => NO_PROFILE.to_owned(),
        }
    }

    /// What sums are about that this plan yields on this machine.
    pub fn kind(&self, info: &BackendInfo) -> LedgerKind {
        let crc32 = match self {
            Self::Power(plan) => return plan.kind(info),
            Self::Giveback(plan) => plan.crc32,
            Self::Unknown => 0,
        };
        LedgerKind {
            profile: self.name(),
            crc32: format!("{crc32:08x}"),
            // A slice is reported as a whole, whatever lies around it.
            granule_bytes: Some(info.slice_bytes),
            page_bytes: info.page_bytes,
            stock: info.is_stock(),
            switched: info.reports_to_host(),
        }
    }

    /// The most that this CPU time may have cost on this machine, in the plan's unit.
    pub fn running_cost(&self, time: Price, info: &BackendInfo) -> f64 {
        match self {
            Self::Power(plan) => plan.running_joules(time, info),
            Self::Giveback(plan) => match (plan.profile.cpu.value, info.clock()) {
                (Some(cpu), Some(clock)) => cpu.high().0 * time.cycles() as f64 / clock.0,
                _ => 0.0,
            },
            Self::Unknown => 0.0,
        }
    }

    /// What the operator should know, a sentence for each.
    pub fn notes(&self, info: &BackendInfo) -> Vec<String> {
        if let Self::Power(plan) = self {
            return plan.notes(info);
        }
        if info.reports_to_host() {
            return Vec::new();
        }
        let (driver, first) = if info.is_stock() {
            ("none on a stock kernel", "boot the patched kernel, and ")
        } else {
            (info.power_driver.as_str(), "")
        };
        vec![format!(
            "no driver reports slices to the host (power driver: {driver}), so nothing is given \
             back; figures of what would be given back assume it: {first}modprobe ramslice_report"
        )]
    }

    /// What a ledger's sums come to; nothing for joules, and nothing if no driver reports what
    /// really goes off.
    pub fn given_back(
        &self,
        tally: &EnergyTally,
        info: &BackendInfo,
        is_simulated: bool,
        most_at_risk: Option<Worth>,
    ) -> Option<GivenBack> {
        let profile = match self {
            Self::Power(_) => return None,
            Self::Giveback(plan) => Some(&plan.profile),
            Self::Unknown => None,
        };
        if !is_simulated && !info.reports_to_host() {
            return None;
        }
        let settings = GivebackStatementSettings {
            profile,
            cycle_clock: info.clock(),
            page_bytes: info.page_bytes,
            is_simulated,
        };
        let statement = GivebackStatement::new(tally, &settings);
        Some(GivenBack::new(statement, profile.map(|profile| profile.unit), most_at_risk))
    }
}

/// An interval, as in files. The unit is in the field beside it, or in its name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorthRange {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl<Q: PhysicalQuantity> From<Interval<Q>> for WorthRange {
    fn from(interval: Interval<Q>) -> Self {
        Self { low: interval.low().get(), high: interval.high().get() }
    }
}

/// What was given back so far, or in mode observe would have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GivenBack {
    /// The time that this covers.
    pub seconds: f64,
    /// Memory that was off, times hours, as the sentence has it.
    pub gib_hours: f64,
    /// CPU time that emptying took, if the clock of its cycles is known.
    pub cpu_seconds: Option<WorthRange>,
    /// Cache that was dropped. At most this much is read again.
    pub dropped_bytes: u64,
    /// The unit of what follows, as in `GiB h` or `EUR`; absent without a profile.
    pub unit: Option<String>,
    /// What the memory was worth.
    pub value: Option<WorthRange>,
    /// What giving it back cost.
    pub cost: Option<WorthRange>,
    /// Value less cost.
    pub net: Option<WorthRange>,
    /// The most that the governor can have lost, whatever happened.
    pub most_at_risk: Option<f64>,
    /// All of it in a sentence.
    pub sentence: String,
}

impl GivenBack {
    fn new(
        statement: GivebackStatement,
        unit: Option<WorthUnit>,
        most_at_risk: Option<Worth>,
    ) -> Self {
        let balance = statement.balance.as_ref();
        Self {
            seconds: statement.seconds.0,
            gib_hours: statement.gib_hours(),
            cpu_seconds: statement.cpu_seconds.map(Into::into),
            dropped_bytes: statement.dropped_bytes.0,
            unit: unit.map(|unit| unit.to_string()),
            value: balance.map(|balance| balance.value.into()),
            cost: balance.map(|balance| balance.cost.into()),
            net: balance.map(|balance| balance.net.into()),
            most_at_risk: most_at_risk.map(|worth| worth.0),
            sentence: statement.sentence,
        }
    }
}
