//! Makes a profile of a file, or says by line what is wrong with it.

use ramslice_types::{
    Bytes, Cycles, Gibibytes, Hertz, PhysicalQuantity, PriceParameter, Ratio, WattsPerGib,
};
use toml::Spanned;

use super::quantity::{
    FREQUENCY, OF_MODULE, PER_GIB, PERCENT, POWER, ProfileText, SIZE, UnitTable,
};
use super::{
    DataRetention, DramPowerState, DramProfile, PowerGranularity, PowerScale, ProfileError,
    ProfileKind, ProfilePower, ReferenceMachine, SavingScope, SourcedValue, TransitionLatency, raw,
};
use crate::interval::Interval;

/// The version of the format.
const SCHEMA_VERSION: u32 = 1;
/// Published figures are rounded: sums may exceed the background by this share.
const ROUNDING: f64 = 1e-6;

pub(super) fn profile(text: &str, name: &str) -> Result<DramProfile, ProfileError> {
    let file = ProfileText { name, text };
    file.must_be(ProfileKind::Power)?;
    let raw: raw::RawProfile = toml::from_str(text).map_err(|error| file.toml_error(&error))?;
    known_version(&file, &raw.schema_version)?;
    word_like(&file, "name", &raw.name)?;
    let scale = scale(&file, &raw)?;
    let powers = PowerReader { file: &file, scale: &scale };
    let background = powers.read("background", &raw.background)?;
    let mut states: Vec<DramPowerState> = Vec::new();
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
    Ok(DramProfile {
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

/// Files of another version may mean something else.
pub(super) fn known_version(
    file: &ProfileText<'_>,
    version: &Spanned<u32>,
) -> Result<(), ProfileError> {
    if *version.get_ref() == SCHEMA_VERSION {
        return Ok(());
    }
    let message =
        format!("schema_version is {}: these tools know {SCHEMA_VERSION}", version.get_ref());
    Err(file.error(&version.span(), message))
}

/// Names are typed at a prompt.
pub(super) fn word_like(
    file: &ProfileText<'_>,
    what: &str,
    name: &Spanned<String>,
) -> Result<(), ProfileError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.get_ref().is_empty() || !name.get_ref().chars().all(allowed) {
        let message = format!("{what} is `{}`: it is made of a-z, 0-9 and -", name.get_ref());
        return Err(file.error(&name.span(), message));
    }
    Ok(())
}

/// What the unit of the background says that all powers are given for.
fn scale(file: &ProfileText<'_>, raw: &raw::RawProfile) -> Result<PowerScale, ProfileError> {
    let unit = raw.background.get_ref().unit.as_ref().map_or("mW/GiB", |unit| unit.get_ref());
    let needs = |what: &str, why: &str| {
        let message =
            format!("background has the unit {unit}, so the file needs {what}: {why}, or unknown");
        file.error(&raw.background.span(), message)
    };
    let superfluous = |number: Option<&raw::RawNumber>, what: &str| match number {
        Some(number) => Err(file.error(
            &number.span(),
            format!("{what} has no use, as background has the unit {unit}: take it out"),
        )),
        None => Ok(()),
    };
    let has = |units: UnitTable<'_>| units.iter().any(|(name, _)| *name == unit);
    let (module, full) = (raw.module_capacity.as_ref(), raw.full_power.as_ref());
    if has(OF_MODULE) {
        superfluous(full, "full_power")?;
        let module =
            module.ok_or_else(|| needs("module_capacity", "the GiB that draw this power"))?;
        let capacity: SourcedValue<Interval<Gibibytes>> =
            file.interval("module_capacity", module, SIZE)?;
        if capacity.value.is_some_and(|value| value.contains_zero()) {
            return Err(file.error(&module.span(), "module_capacity is 0: it must be above"));
        }
        return Ok(PowerScale::PerModule(capacity));
    }
    superfluous(module, "module_capacity")?;
    if has(PERCENT) {
        let full =
            full.ok_or_else(|| needs("full_power", "the power for each GiB that is 100 %"))?;
        return Ok(PowerScale::OfFull(file.interval("full_power", full, PER_GIB)?));
    }
    superfluous(full, "full_power")?;
    Ok(PowerScale::PerGib)
}

/// Reads powers in the profile's unit.
struct PowerReader<'a> {
    file: &'a ProfileText<'a>,
    scale: &'a PowerScale,
}

impl PowerReader<'_> {
    fn read(
        &self,
        what: &str,
        raw: &raw::RawNumber,
    ) -> Result<SourcedValue<ProfilePower>, ProfileError> {
        let units: UnitTable<'static> = match self.scale {
            // The first number says which: here all three are fine, and the others must follow.
            PowerScale::PerGib if what == "background" => {
                &[("mW/GiB", 1e-3), ("W/GiB", 1.0), ("mW", 1e-3), ("W", 1.0), ("%", 0.01)]
            }
            PowerScale::PerGib => PER_GIB,
            PowerScale::PerModule(_) => OF_MODULE,
            PowerScale::OfFull(_) => PERCENT,
        };
        let SourcedValue { value, written, source } =
            self.file.interval::<Ratio>(what, raw, units)?;
        Ok(SourcedValue { value: value.map(|own| self.power(own)), written, source })
    }

    /// Adds what it is for each GiB.
    fn power(&self, own: Interval<Ratio>) -> ProfilePower {
        let per_gib = match self.scale {
            PowerScale::PerGib => Some(Interval::exactly(WattsPerGib(1.0)).times(own)),
            PowerScale::PerModule(capacity) => {
                capacity.value.and_then(|capacity| own.per(capacity))
            }
            PowerScale::OfFull(full) => full.value.map(|full| full.times(own)),
        };
        ProfilePower { own, per_gib }
    }
}

fn state(
    powers: &PowerReader<'_>,
    background: &SourcedValue<ProfilePower>,
    table: &Spanned<raw::RawPowerState>,
) -> Result<DramPowerState, ProfileError> {
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
    let bytes: SourcedValue<Interval<Gibibytes>> =
        file.interval(&what("granularity"), &raw.granularity, SIZE)?;
    if let Some(size) = bytes.value
        && (size.low() != size.high() || size.low().get() <= 0.0)
    {
        let message =
            format!("{} is {}: it is one size above 0", what("granularity"), bytes.written);
        return Err(file.error(&raw.granularity.span(), message));
    }
    Ok(DramPowerState {
        name: name.clone(),
        title: raw.title.clone(),
        saving,
        saving_derived,
        floor,
        all_on,
        granularity: PowerGranularity {
            what: raw.granularity_of.get_ref().clone(),
            bytes: SourcedValue {
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
            &[("kept", DataRetention::Kept), ("lost", DataRetention::Lost)],
        )?,
        applies: file.word(
            &what("applies"),
            &raw.applies,
            &[("in-use", SavingScope::InUse), ("all-idle", SavingScope::AllIdle)],
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
    file: &ProfileText<'_>,
    number: &raw::RawNumber,
    background: &SourcedValue<ProfilePower>,
    saving: &SourcedValue<ProfilePower>,
    floor: &SourcedValue<ProfilePower>,
    name: &str,
) -> Result<(), ProfileError> {
    let (Some(all), Some(saved), Some(left)) = (background.value, saving.value, floor.value) else {
        return Ok(());
    };
    let most = all.own.high().get() * (1.0 + ROUNDING);
    if saved.own.high().get() + left.own.low().get() > most {
        let message = format!(
            "state `{name}` saves up to {} and draws at least {} when all is off, together more \
             than the background of {}",
            saving.written, floor.written, background.written
        );
        return Err(file.error(&number.span(), message));
    }
    Ok(())
}

/// What the mode saves anyway is a part of what it saves: otherwise packing would save nothing, or
/// less.
fn all_on(
    powers: &PowerReader<'_>,
    number: &raw::RawNumber,
    saving: &SourcedValue<ProfilePower>,
    name: &str,
) -> Result<SourcedValue<ProfilePower>, ProfileError> {
    let all_on = powers.read(&format!("all_on of state `{name}`"), number)?;
    if let (Some(always), Some(most)) = (all_on.value, saving.value)
        && always.own.high().get() > most.own.high().get() * (1.0 + ROUNDING)
    {
        let message = format!(
            "state `{name}` saves up to {} with nothing off (all_on), more than the {} that it \
             saves in all (saving): all_on is a part of saving",
            all_on.written, saving.written
        );
        return Err(powers.file.error(&number.span(), message));
    }
    Ok(all_on)
}

/// The saving as background less floor.
fn derived(
    powers: &PowerReader<'_>,
    table: &Spanned<raw::RawPowerState>,
    background: &SourcedValue<ProfilePower>,
    floor: &SourcedValue<ProfilePower>,
) -> Result<SourcedValue<ProfilePower>, ProfileError> {
    let (Some(all), Some(left)) = (background.value, floor.value) else {
        let message = format!(
            "state `{}` has no saving, and it cannot be worked out as background less floor, \
             because one of them is unknown",
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
    Ok(SourcedValue {
        value: Some(powers.power((all.own - left.own).at_least_zero())),
        written: format!("{} less {}", background.written, floor.written),
        source: format!("worked out: background less floor; floor: {}", floor.source),
    })
}

fn machine(
    file: &ProfileText<'_>,
    raw: &raw::RawMachine,
) -> Result<ReferenceMachine, ProfileError> {
    let frequency = frequency(file, &raw.frequency)?;
    Ok(ReferenceMachine {
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
        prices: prices(file, &raw.prices)?,
        price_error: file.interval("price error", &raw.prices.error, &[("cycles/GiB", 1.0)])?,
    })
}

/// The frequency at which cycles are counted.
pub(super) fn frequency(
    file: &ProfileText<'_>,
    raw: &raw::RawNumber,
) -> Result<SourcedValue<Interval<Hertz>>, ProfileError> {
    let frequency: SourcedValue<Interval<Hertz>> = file.interval("frequency", raw, FREQUENCY)?;
    if frequency.value.is_some_and(|value| value.contains_zero()) {
        return Err(file.error(&raw.span(), "frequency is 0: it must be above"));
    }
    Ok(frequency)
}

/// Prices by the kernel's parameters.
type PriceList = Vec<(PriceParameter, SourcedValue<Interval<Cycles>>)>;

/// The price model, in cycles.
pub(super) fn prices(
    file: &ProfileText<'_>,
    prices: &raw::RawPrices,
) -> Result<PriceList, ProfileError> {
    let mut list = Vec::new();
    for (parameter, number, units) in [
        (
            PriceParameter::IsolateSlice,
            &prices.isolate_slice,
            &[("cycles/slice", 1.0)] as UnitTable<'static>,
        ),
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
    Ok(list)
}

impl TransitionLatency {
    /// From `low` to `high`, if there is a limit.
    pub fn limited(&self) -> Option<Interval<ramslice_types::Seconds>> {
        Interval::new(self.low, self.high?).ok()
    }
}
