//! `ramslice-lab profiles`: memory systems, what their power states save, and where each figure is
//! from.

use std::io::Write;

use anyhow::Result;
use ramslice_energy::{
    DramPowerState, DramProfile, GivebackProfile, ProfileError, ProfileFigure, TEMPLATE,
    WorthProfile, builtin_giveback, builtin_names, percent,
};
use serde::Serialize;

use super::profile_worth;

use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::ExitStatus;
use ramslice_cli::profile_files;
use ramslice_cli::render::{ColumnAlign, TextTable, fill};

const HELP: &str = "\
A profile says what the power states of a memory system save, each figure with its unit and its \
source, and what packing costs on a reference machine. `ramslice energy` works out joules with \
it. The profile `giveback` says what memory is worth that goes to the host of a virtual machine; \
the daemon decides by it. With a FILE, the file is checked: what is wrong is named with its line \
and what is allowed, and the exit status is 1.

Examples:
  ramslice-lab profiles                            those that come with ramslice
  ramslice-lab profiles ddr5-modes                 one, with the source of each figure
  ramslice-lab profiles --template > mine.toml     begin one of your own
  ramslice-lab profiles thesis-parc --toml > mine.toml
  ramslice-lab profiles mine.toml                  check it
  ramslice-lab profiles --worth                    what packing is worth by class of machine";

/// List and check profiles of memory systems.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ProfilesArgs {
    /// One that comes with ramslice, or the path of a file
    #[arg(value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Print the file as it is, comments included
    #[arg(long, requires = "profile", conflicts_with = "json")]
    toml: bool,
    /// Print a commented template
    #[arg(long, conflicts_with_all = ["profile", "json"])]
    template: bool,
    /// Print what packing is worth by class of machine, beside giving memory back
    #[arg(long, conflicts_with_all = ["profile", "template"])]
    worth: bool,
}

#[derive(Serialize)]
struct ListedProfile {
    name: &'static str,
    title: String,
    default_state: String,
    states: Vec<String>,
    gives_joules: bool,
}

#[derive(Serialize)]
struct ProfileList {
    profiles: Vec<ListedProfile>,
}

#[derive(Serialize)]
struct ShownProfile<'a> {
    name: &'a str,
    title: &'a str,
    file: &'a str,
    default_state: &'a str,
    states: Vec<ShownState<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a str>,
    notes: &'a [String],
    figures: Vec<ProfileFigure>,
}

#[derive(Serialize)]
struct ShownGiveback<'a> {
    name: &'a str,
    title: &'a str,
    file: &'a str,
    unit: String,
    notes: &'a [String],
    figures: Vec<ProfileFigure>,
}

#[derive(Serialize)]
struct ShownState<'a> {
    name: &'a str,
    title: &'a str,
    granularity_of: &'a str,
    gives_joules: bool,
}

pub(crate) fn run(
    args: &ProfilesArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if args.template {
        write!(out, "{TEMPLATE}")?;
        return Ok(ExitStatus::Ok);
    }
    if args.worth {
        profile_worth::run(context, out)?;
        return Ok(ExitStatus::Ok);
    }
    match &args.profile {
        None => list(context, out)?,
        Some(name) if args.toml => write!(out, "{}", profile_files::text(name)?.0)?,
        Some(name) => match profile_files::load_any(name)? {
            WorthProfile::Power(profile) => show(&profile, context, out)?,
            WorthProfile::Giveback(profile) => show_giveback(&profile, context, out)?,
        },
    }
    Ok(ExitStatus::Ok)
}

fn gives_joules(profile: &DramProfile) -> bool {
    profile.states.iter().any(|state| state.saving_by_packing().is_some())
}

fn list(context: &CommandContext, out: &mut dyn Write) -> Result<()> {
    let all: Result<Vec<(&'static str, DramProfile)>, ProfileError> = builtin_names()
        .filter_map(|name| Some((name, ramslice_energy::builtin(name)?)))
        .map(|(name, profile)| Ok((name, profile?)))
        .collect();
    let all = all?;
    if context.json() {
        let listed = |(name, profile): &(&'static str, DramProfile)| ListedProfile {
            name,
            title: profile.title.clone(),
            default_state: profile.default_state.clone(),
            states: profile.states.iter().map(|state| state.name.clone()).collect(),
            gives_joules: gives_joules(profile),
        };
        let giveback = builtin_giveback()?;
        let giveback = ListedProfile {
            name: ramslice_energy::GIVEBACK_NAME,
            title: giveback.title,
            default_state: String::new(),
            states: Vec::new(),
            gives_joules: false,
        };
        let profiles = all.iter().map(listed).chain([giveback]).collect();
        return write_json(out, "profiles", ProfileList { profiles });
    }
    let mut table = TextTable::new(&[
        ("profile", ColumnAlign::Left),
        ("states", ColumnAlign::Right),
        ("joules", ColumnAlign::Left),
        ("what it is", ColumnAlign::Left),
    ]);
    for (name, profile) in &all {
        let joules = match (gives_joules(profile), &profile.machine) {
            (false, _) => "no: relative",
            (true, None) => "savings only",
            (true, Some(_)) => "yes",
        };
        table.row(vec![
            (*name).to_owned(),
            profile.states.len().to_string(),
            joules.to_owned(),
            profile.title.clone(),
        ]);
    }
    let giveback = builtin_giveback()?;
    table.row(vec![
        giveback.name,
        "-".to_owned(),
        format!("no: {}", giveback.unit),
        giveback.title,
    ]);
    Ok(table.write(out, &context.screen)?)
}

fn show_giveback(
    profile: &GivebackProfile,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    let rows = profile.rows();
    if context.json() {
        let shown = ShownGiveback {
            name: &profile.name,
            title: &profile.title,
            file: &profile.file,
            unit: profile.unit.to_string(),
            notes: &profile.notes,
            figures: rows,
        };
        return write_json(out, "profiles", shown);
    }
    let screen = &context.screen;
    let prose = |text: &str, indent| fill(text, usize::from(screen.width), indent);
    writeln!(out, "{}", screen.bold(&prose(&format!("{}: {}", profile.name, profile.title), 2)))?;
    writeln!(out, "{}: right, {} figures, each with its source", profile.file, rows.len())?;
    writeln!(out)?;
    let mut sources = FigureSources::default();
    for row in &rows {
        let number = sources.number(&row.source);
        writeln!(out, "  {:<24}{:<32}{number}", row.field, row.written)?;
    }
    sources.end(&profile.notes, context, out)
}

/// Numbers the sources in the order they come.
#[derive(Default)]
struct FigureSources(Vec<String>);

impl FigureSources {
    fn number(&mut self, source: &str) -> String {
        let at = self.0.iter().position(|known| known == source).unwrap_or_else(|| {
            self.0.push(source.to_owned());
            self.0.len() - 1
        });
        format!("[{}]", at + 1)
    }

    /// Notes, and the sources by their numbers.
    fn end(&self, notes: &[String], context: &CommandContext, out: &mut dyn Write) -> Result<()> {
        let prose = |text: &str, indent| fill(text, usize::from(context.screen.width), indent);
        if !notes.is_empty() {
            writeln!(out)?;
        }
        for note in notes {
            writeln!(out, "{}", prose(&format!("* {note}"), 2))?;
        }
        writeln!(out)?;
        for (at, source) in self.0.iter().enumerate() {
            writeln!(out, "{}", prose(&format!("[{}] {source}", at + 1), 5))?;
        }
        Ok(())
    }
}

fn show(profile: &DramProfile, context: &CommandContext, out: &mut dyn Write) -> Result<()> {
    let rows = profile.rows();
    if context.json() {
        fn state(state: &DramPowerState) -> ShownState<'_> {
            ShownState {
                name: &state.name,
                title: &state.title,
                granularity_of: &state.granularity.what,
                gives_joules: state.saving_by_packing().is_some(),
            }
        }
        let shown = ShownProfile {
            name: &profile.name,
            title: &profile.title,
            file: &profile.file,
            default_state: &profile.default_state,
            states: profile.states.iter().map(state).collect(),
            machine: profile.machine.as_ref().map(|machine| machine.name.as_str()),
            notes: &profile.notes,
            figures: rows,
        };
        return write_json(out, "profiles", shown);
    }
    let screen = &context.screen;
    let width = usize::from(screen.width);
    let prose = |text: &str, indent| fill(text, width, indent);
    writeln!(out, "{}", screen.bold(&prose(&format!("{}: {}", profile.name, profile.title), 2)))?;
    writeln!(out, "{}: right, {} figures, each with its source", profile.file, rows.len())?;
    let mut sources = FigureSources::default();
    let mut write_rows = |out: &mut dyn Write, state: Option<&str>, machine: bool| -> Result<()> {
        let general = ["background", "module_capacity", "full_power"];
        for row in rows.iter().filter(|row| row.state.as_deref() == state) {
            if state.is_none() && machine == general.contains(&row.field.as_str()) {
                continue;
            }
            let number = sources.number(&row.source);
            writeln!(out, "  {:<24}{:<32}{number}", row.field, row.written)?;
        }
        Ok(())
    };
    writeln!(out)?;
    write_rows(out, None, false)?;
    for state in &profile.states {
        let default = if state.name == profile.default_state { " (default)" } else { "" };
        writeln!(out)?;
        writeln!(out, "{}", prose(&format!("state {}{default}: {}", state.name, state.title), 2))?;
        write_rows(out, Some(&state.name), false)?;
        writeln!(out, "  {:<24}{}", "switched as one", state.granularity.what)?;
        if let Some(share) =
            profile.background.value.and_then(|background| state.share(&background))
        {
            writeln!(out, "  {:<24}{} of the background", "saves", percent(share))?;
        }
    }
    if let Some(machine) = &profile.machine {
        writeln!(out)?;
        writeln!(out, "{}", prose(&format!("machine: {}", machine.name), 2))?;
        write_rows(out, None, true)?;
    }
    sources.end(&profile.notes, context, out)
}
