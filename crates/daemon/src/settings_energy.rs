//! Settings of `[energy]`: what emptied memory is worth.

use ramslice_energy::{Interval, TimeFactor};
use ramslice_types::{Bytes, Ratio, parse_bytes};
use serde::Deserialize;
use toml::Spanned;

use crate::energy_ledger::{EnergyPlanError, SwitchUnit};
use crate::settings::{SettingsChecks, span};
use crate::worth_plan::{PowerSettings, WorthPlan};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEnergy {
    profile: Option<Spanned<String>>,
    state: Option<Spanned<String>>,
    machine: Option<Spanned<String>>,
    granularity: Option<Spanned<String>>,
    time_factor: Option<Spanned<String>>,
    pub(crate) resize_slices: Option<Spanned<bool>>,
}

impl RawEnergy {
    /// What emptied memory is worth; what is wrong is noted.
    pub(crate) fn check(&self, checks: &mut SettingsChecks<'_>) -> Option<WorthPlan> {
        let text =
            |value: &Option<Spanned<String>>| value.as_ref().map(|value| value.get_ref().clone());
        let unit = match text(&self.granularity).as_deref() {
            None => SwitchUnit::Profile,
            Some("slice") => SwitchUnit::Slice,
            Some(size) => match parse_bytes(size) {
                Ok(Bytes(0)) => {
                    checks.add_fault(
                        span(self.granularity.as_ref()),
                        "energy.granularity is 0: nothing could be switched",
                    );
                    SwitchUnit::Profile
                }
                Ok(bytes) => SwitchUnit::Bytes(bytes),
                Err(error) => {
                    checks.add_fault(
                        span(self.granularity.as_ref()),
                        format!("energy.granularity: {error}; or \"slice\""),
                    );
                    SwitchUnit::Profile
                }
            },
        };
        let factor = text(&self.time_factor).and_then(|text| match factor(&text) {
            Ok(factor) => Some(factor),
            Err(message) => {
                checks.add_fault(span(self.time_factor.as_ref()), message);
                None
            }
        });
        let profile = text(&self.profile).unwrap_or_else(|| "thesis-parc".to_owned());
        let (state, machine) = (text(&self.state), text(&self.machine));
        match WorthPlan::new(&profile, PowerSettings { state, machine, unit, factor }) {
            Ok(plan) => {
                if plan.power().is_none() {
                    refuse_power_settings(self, &profile, checks);
                }
                Some(plan)
            }
            Err(error) => {
                let at = match &error {
                    EnergyPlanError::State(_) => {
                        span(self.state.as_ref()).or_else(|| span(self.profile.as_ref()))
                    }
                    EnergyPlanError::Machine(_) => {
                        span(self.machine.as_ref()).or_else(|| span(self.profile.as_ref()))
                    }
                    EnergyPlanError::Profile(_) => span(self.profile.as_ref()),
                };
                checks.add_fault(at, error.to_string());
                None
            }
        }
    }
}

/// Settings about DRAM mean nothing beside another profile.
fn refuse_power_settings(raw: &RawEnergy, profile: &str, checks: &mut SettingsChecks<'_>) {
    let of_text = |value: &Option<Spanned<String>>| value.as_ref().map(Spanned::span);
    for (name, at) in [
        ("state", of_text(&raw.state)),
        ("machine", of_text(&raw.machine)),
        ("granularity", of_text(&raw.granularity)),
        ("time_factor", of_text(&raw.time_factor)),
        ("resize_slices", raw.resize_slices.as_ref().map(Spanned::span)),
    ] {
        if let Some(at) = at {
            let message = format!(
                "energy.{name} is about DRAM and has no use with the profile `{profile}`: take it \
                 out"
            );
            checks.add_fault(Some(at), message);
        }
    }
}

/// `15` or `12..18`.
fn factor(text: &str) -> Result<TimeFactor, String> {
    let wrong =
        |what: &str| format!("energy.time_factor is `{text}`: {what}; write \"15\" or \"12..18\"");
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .map(Ratio)
            .map_err(|_| wrong("it is neither a number nor a range"))
    };
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let interval =
        Interval::new(number(low)?, number(high)?).map_err(|error| wrong(&error.to_string()))?;
    TimeFactor::new(interval, "energy.time_factor").map_err(|error| wrong(&error.to_string()))
}
