//! `ramslice-lab sim generate`: a file of machine utilisation, made up from published averages.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_sim::load::{FleetAverages, SyntheticUsage};
use ramslice_types::parse_duration;
use serde::Serialize;

use super::common;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::ExitStatus;

const HELP: &str = "\
The file has the column layout of machine_usage.csv of a public cluster trace of 2018, without a \
header: machine_id, time_stamp, cpu_util_percent, mem_util_percent, mem_gps, mkpi, net_in, \
net_out, disk_io_percent. It is synthetic: machines are made up so that averages are those asked \
for. The defaults are averages that were published of that trace; how much machines differ and \
how much they change was not published, and is assumed. Columns that the simulator does not read \
stay empty.

Examples:
  ramslice-lab sim generate synthetic.csv --machines 100
  ramslice-lab sim generate quiet.csv --machines 10 --memory-percent 45 --daily-swing 20
  ramslice-lab sim fleet synthetic.csv";

/// Write a file of machine utilisation, made up from published averages.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(super) struct GenerateArgs {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    fleet: GeneratedFleet,
    /// How many machines
    #[arg(long, value_name = "N", default_value_t = 100)]
    machines: u32,
}

/// What a made-up fleet looks like.
#[derive(Debug, clap::Args)]
pub(super) struct GeneratedFleet {
    /// How long [default: 192h]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Between two rows of a machine
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub(super) step: Duration,
    /// Memory in use on average, in per cent
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = common::up_to::<100>
    )]
    memory_percent: Option<f64>,
    /// By how much machines differ: standard deviation in percentage points
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = common::up_to::<100>
    )]
    between_machines: Option<f64>,
    /// From the quietest to the busiest hour of a day, in percentage points
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = common::up_to::<100>
    )]
    daily_swing: Option<f64>,
    /// Noise within an hour: standard deviation in percentage points
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = common::up_to::<100>
    )]
    noise: Option<f64>,
    /// Decides everything that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

impl GeneratedFleet {
    /// The averages.
    pub(super) fn averages(&self) -> FleetAverages {
        let usual = FleetAverages::default();
        FleetAverages {
            memory_percent: self.memory_percent.unwrap_or(usual.memory_percent),
            between_machines: self.between_machines.unwrap_or(usual.between_machines),
            daily_swing: self.daily_swing.unwrap_or(usual.daily_swing),
            noise: self.noise.unwrap_or(usual.noise),
            ..usual
        }
    }

    /// Options that say what is made up, and whether they were stated.
    pub(super) fn stated(&self) -> [(&'static str, bool); 5] {
        [
            ("--for", self.duration.is_some()),
            ("--memory-percent", self.memory_percent.is_some()),
            ("--between-machines", self.between_machines.is_some()),
            ("--daily-swing", self.daily_swing.is_some()),
            ("--noise", self.noise.is_some()),
        ]
    }

    /// The machines.
    pub(super) fn machines(&self, machines: u32) -> SyntheticUsage {
        SyntheticUsage::new(
            self.averages(),
            machines,
            self.duration.unwrap_or(Duration::from_hours(192)).as_secs(),
            self.step.as_secs(),
            self.seed,
        )
    }
}

#[derive(Serialize)]
struct GenerateDocument<'a> {
    file: &'a PathBuf,
    layout: &'static str,
    origin: &'static str,
    machines: u32,
    rows: u64,
    averages: FleetAverages,
    seed: u64,
}

pub(super) fn run(
    args: &GenerateArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let synthetic = args.fleet.machines(args.machines);
    let rows =
        synthetic.write(&args.file).with_context(|| format!("writing {}", args.file.display()))?;
    if context.json() {
        let body = GenerateDocument {
            file: &args.file,
            layout: "machine_usage",
            origin: "synthetic",
            machines: args.machines,
            rows,
            averages: args.fleet.averages(),
            seed: args.fleet.seed,
        };
        write_json(out, "sim", body)?;
    } else {
        let file = args.file.display();
        writeln!(
            out,
            "{file}: synthetic, {} machines, {rows} rows, layout machine_usage",
            args.machines
        )?;
    }
    Ok(ExitStatus::Ok)
}
