//! Makes a profile of a file, or says by line what is wrong with it.

use ramslice_types::{Bytes, Gibibytes, PriceParameter, Quantity, Ratio, WattsPerGib};
use toml::Spanned;

use super::quantity::{FREQUENCY, File, OF_MODULE, PER_GIB, PERCENT, POWER, SIZE, Units};
use super::{
    Applies, Granularity, Latency, Machine, Power, Profile, ProfileError, Retention, Scale,
    Sourced, State, raw,
};
use crate::interval::Interval;

/// The version of the format.
const SCHEMA_VERSION: u32 = 1;
/// Published figures are rounded: sums may exceed the background by this share.
const ROUNDING: f64 = 1e-6;

pub(super) fn profile(text: &str, name: &str) -> Result<Profile, ProfileError> {
    let file = File { name, text };
    let raw: raw::Profile = toml::from_str(text).map_err(|error| file.toml_error(&error))?;
    if *raw.schema_version.get_ref() != SCHEMA_VERSION {
        let message = format!(
            "schema_version is {}: these tools know {SCHEMA_VERSION}",
            raw.schema_version.get_ref()
        );
        return Err(file.error(&raw.schema_version.span(), message));
    }
    word_like(&file, "name", &raw.name)?;
    let scale = scale(&file, &raw)?;
    let powers = Powers { file: &file, scale: &scale };
    let background = powers.read("background", &raw.background)?;
    let mut states: Vec<State> = Vec::new();
    for table in &raw.state {
        let given = &table.get_ref().name;
        word_like(&file, "the name of a state", given)?;
        if states.iter().any(|state| &state.name == given.get_ref()) {
            let message =
                format!("there are two states `{}`: names of states must differ", given.get_ref());
            return Err(file.error(&given.span(), message));
        }
        states.push(state(&powers, &background, table)?);
    }
    if states.iter().all(|state| &state.name != raw.default_state.get_ref()) {
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        let message = format!(
            "there is no state `{}`: there are {}",
            raw.default_state.get_ref(),
            names.join(", ")
        );
        return Err(file.error(&raw.default_state.span(), message));
    }
    let machine = raw.machine.as_ref().map(|raw| machine(&file, raw)).transpose()?;
    Ok(Profile {
        name: raw.name.into_inner(),
        title: raw.title,
        file: name.to_owned(),
        background,
        default_state: raw.default_state.into_inner(),
        states,
        machine,
        notes: raw.notes,
        scale,
    })
}

/// Names are typed at a prompt.
fn word_like(file: &File<'_>, what: &str, name: &Spanned<String>) -> Result<(), ProfileError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.get_ref().is_empty() || !name.get_ref().chars().all(allowed) {
        let message = format!("{what} is `{}`: it is made of a-z, 0-9 and -", name.get_ref());
        return Err(file.error(&name.span(), message));
    }
    Ok(())
}

/// What the unit of the background says that all powers are given for.
fn scale(file: &File<'_>, raw: &raw::Profile) -> Result<Scale, ProfileError> {
    let unit = raw.background.get_ref().unit.as_ref().map_or("mW/GiB", |unit| unit.get_ref());
    let needs = |what: &str, why: &str| {
        let message =
            format!("background has the unit {unit}, so the file needs {what}: {why}, or unknown");
        file.error(&raw.background.span(), message)
    };
    let superfluous = |number: Option<&raw::Number>, what: &str| match number {
        Some(number) => Err(file.error(
            &number.span(),
            format!("{what} has no use, as background has the unit {unit}: take it out"),
        )),
        None => Ok(()),
    };
    let has = |units: Units| units.iter().any(|(name, _)| *name == unit);
    let (module, full) = (raw.module_capacity.as_ref(), raw.full_power.as_ref());
    if has(OF_MODULE) {
        superfluous(full, "full_power")?;
        let module =
            module.ok_or_else(|| needs("module_capacity", "the GiB that draw this power"))?;
        let capacity: Sourced<Interval<Gibibytes>> =
            file.interval("module_capacity", module, SIZE)?;
        if capacity.value.is_some_and(|value| value.contains_zero()) {
            return Err(file.error(&module.span(), "module_capacity is 0: it must be above"));
        }
        return Ok(Scale::PerModule(capacity));
    }
    superfluous(module, "module_capacity")?;
    if has(PERCENT) {
        let full =
            full.ok_or_else(|| needs("full_power", "the power for each GiB that is 100 %"))?;
        return Ok(Scale::OfFull(file.interval("full_power", full, PER_GIB)?));
    }
    superfluous(full, "full_power")?;
    Ok(Scale::PerGib)
}

/// Reads powers in the profile's unit.
struct Powers<'a> {
    file: &'a File<'a>,
    scale: &'a Scale,
}

impl Powers<'_> {
    fn read(&self, what: &str, raw: &raw::Number) -> Result<Sourced<Power>, ProfileError> {
        let units: Units = match self.scale {
            // The first number says which: here all three are fine, and the others must follow.
            Scale::PerGib if what == "background" => {
                &[("mW/GiB", 1e-3), ("W/GiB", 1.0), ("mW", 1e-3), ("W", 1.0), ("%", 0.01)]
            }
            Scale::PerGib => PER_GIB,
            Scale::PerModule(_) => OF_MODULE,
            Scale::OfFull(_) => PERCENT,
        };
        let Sourced { value, written, source } = self.file.interval::<Ratio>(what, raw, units)?;
        Ok(Sourced { value: value.map(|own| self.power(own)), written, source })
    }

    /// Adds what it is for each GiB.
    fn power(&self, own: Interval<Ratio>) -> Power {
        let per_gib = match self.scale {
            Scale::PerGib => Some(Interval::exactly(WattsPerGib(1.0)).times(own)),
            Scale::PerModule(capacity) => capacity.value.and_then(|capacity| own.per(capacity)),
            Scale::OfFull(full) => full.value.map(|full| full.times(own)),
        };
        Power { own, per_gib }
    }
}

fn state(
    powers: &Powers<'_>,
    background: &Sourced<Power>,
    table: &Spanned<raw::State>,
) -> Result<State, ProfileError> {
    let (file, raw) = (powers.file, table.get_ref());
    let name = raw.name.get_ref();
    let what = |field: &str| format!("{field} of state `{name}`");
    let floor = powers.read(&what("floor"), &raw.floor)?;
    let (saving, saving_derived) = match &raw.saving {
        Some(number) => {
            let saving = powers.read(&what("saving"), number)?;
            fits(file, number, background, &saving, &floor, name)?;
            (saving, false)
        }
        None => (derived(powers, table, background, &floor)?, true),
    };
    let all_on = match &raw.all_on {
        Some(number) => Some(all_on(powers, number, &saving, name)?),
        None => None,
    };
    let bytes: Sourced<Interval<Gibibytes>> =
        file.interval(&what("granularity"), &raw.granularity, SIZE)?;
    if let Some(size) = bytes.value
        && (size.low() != size.high() || size.low().get() <= 0.0)
    {
        let message =
            format!("{} is {}: it is one size above 0", what("granularity"), bytes.written);
        return Err(file.error(&raw.granularity.span(), message));
    }
    Ok(State {
        name: name.clone(),
        title: raw.title.clone(),
        saving,
        saving_derived,
        floor,
        all_on,
        granularity: Granularity {
            what: raw.granularity_of.get_ref().clone(),
            bytes: Sourced {
                value: bytes
                    .value
                    .map(|size| Bytes((size.low().get() * f64::from(1 << 30)).round() as u64)),
                written: bytes.written,
                source: bytes.source,
            },
        },
        entry_latency: file.latency(&what("entry_latency"), &raw.entry_latency)?,
        exit_latency: file.latency(&what("exit_latency"), &raw.exit_latency)?,
        exit_power: raw
            .exit_power
            .as_ref()
            .map(|n| powers.read(&what("exit_power"), n))
            .transpose()?,
        retention: file.word(
            &what("retention"),
            &raw.retention,
            &[("kept", Retention::Kept), ("lost", Retention::Lost)],
        )?,
        applies: file.word(
            &what("applies"),
            &raw.applies,
            &[("in-use", Applies::InUse), ("all-idle", Applies::AllIdle)],
        )?,
        standards: raw
            .standards
            .as_ref()
            .map(|words| file.words(&what("standards"), words))
            .transpose()?,
    })
}

/// A state cannot save more than what lies between background and floor.
fn fits(
    file: &File<'_>,
    number: &raw::Number,
    background: &Sourced<Power>,
    saving: &Sourced<Power>,
    floor: &Sourced<Power>,
    name: &str,
) -> Result<(), ProfileError> {
    let (Some(all), Some(saved), Some(left)) = (background.value, saving.value, floor.value) else {
        return Ok(());
    };
    let most = all.own.high().get() * (1.0 + ROUNDING);
    if saved.own.high().get() + left.own.low().get() > most {
        let message = format!(
            "state `{name}` saves up to {} and draws at least {} when all is off, together more than the background of {}",
            saving.written, floor.written, background.written
        );
        return Err(file.error(&number.span(), message));
    }
    Ok(())
}

/// What the mode saves anyway is a part of what it saves: otherwise packing would save nothing, or less.
fn all_on(
    powers: &Powers<'_>,
    number: &raw::Number,
    saving: &Sourced<Power>,
    name: &str,
) -> Result<Sourced<Power>, ProfileError> {
    let all_on = powers.read(&format!("all_on of state `{name}`"), number)?;
    if let (Some(always), Some(most)) = (all_on.value, saving.value)
        && always.own.high().get() > most.own.high().get() * (1.0 + ROUNDING)
    {
        let message = format!(
            "state `{name}` saves up to {} with nothing off (all_on), more than the {} that it saves in all (saving): \
             all_on is a part of saving",
            all_on.written, saving.written
        );
        return Err(powers.file.error(&number.span(), message));
    }
    Ok(all_on)
}

/// The saving as background less floor.
fn derived(
    powers: &Powers<'_>,
    table: &Spanned<raw::State>,
    background: &Sourced<Power>,
    floor: &Sourced<Power>,
) -> Result<Sourced<Power>, ProfileError> {
    let (Some(all), Some(left)) = (background.value, floor.value) else {
        let message = format!(
            "state `{}` has no saving, and it cannot be worked out as background less floor, for one of them is unknown",
            table.get_ref().name.get_ref()
        );
        return Err(powers.file.error(&table.span(), message));
    };
    if left.own.low() > all.own.high() {
        let message = format!(
            "the floor {} of state `{}` is above the background {}",
            floor.written,
            table.get_ref().name.get_ref(),
            background.written
        );
        return Err(powers.file.error(&table.get_ref().floor.span(), message));
    }
    Ok(Sourced {
        value: Some(powers.power((all.own - left.own).at_least_zero())),
        written: format!("{} less {}", background.written, floor.written),
        source: format!("worked out: background less floor; floor: {}", floor.source),
    })
}

fn machine(file: &File<'_>, raw: &raw::Machine) -> Result<Machine, ProfileError> {
    let prices = &raw.prices;
    let mut list = Vec::new();
    for (parameter, number, units) in [
        (PriceParameter::IsolateSlice, &prices.isolate_slice, &[("cycles/slice", 1.0)] as Units),
        (PriceParameter::IsolatePage, &prices.isolate_page, &[("cycles/1024 pages", 1.0)]),
        (PriceParameter::DropPage, &prices.drop_page, &[("cycles/page", 1.0)]),
        (PriceParameter::MigratePage, &prices.migrate_page, &[("cycles/page", 1.0)]),
        (PriceParameter::MigrateMapping, &prices.migrate_mapping, &[("cycles/mapping", 1.0)]),
        (PriceParameter::AllocBuddy, &prices.alloc_buddy, &[("cycles/page", 1.0)]),
        (PriceParameter::AllocCache, &prices.alloc_cache, &[("cycles/page", 1.0)]),
    ] {
        list.push((
            parameter,
            file.interval(&format!("price {}", parameter.name()), number, units)?,
        ));
    }
    let frequency = file.interval("frequency", &raw.frequency, FREQUENCY)?;
    if frequency.value.is_some_and(|value: Interval<ramslice_types::Hertz>| value.contains_zero()) {
        return Err(file.error(&raw.frequency.span(), "frequency is 0: it must be above"));
    }
    Ok(Machine {
        name: raw.name.clone(),
        memory: file.interval("memory", &raw.memory, SIZE)?,
        frequency,
        compacting_power: file.interval("compacting_power", &raw.compacting_power, POWER)?,
        platform_power: file.interval("platform_power", &raw.platform_power, POWER)?,
        accounting: file.interval("accounting", &raw.accounting, &[("instructions/page", 1.0)])?,
        waking: file.interval("waking", &raw.waking, &[("instructions/GiB", 1.0)])?,
        cycles_per_instruction: file.interval(
            "cycles_per_instruction",
            &raw.cycles_per_instruction,
            &[("cycles/instruction", 1.0)],
        )?,
        refault_cpu: file.interval("refault_cpu", &raw.refault_cpu, &[("cycles/page", 1.0)])?,
        refault_storage: file.interval(
            "refault_storage",
            &raw.refault_storage,
            &[("J/GiB", 1.0)],
        )?,
        prices: list,
        price_error: file.interval("price error", &prices.error, &[("cycles/GiB", 1.0)])?,
    })
}

impl Latency {
    /// From `low` to `high`, if there is a limit.
    pub fn limited(&self) -> Option<Interval<ramslice_types::Seconds>> {
        Interval::new(self.low, self.high?).ok()
    }
}
