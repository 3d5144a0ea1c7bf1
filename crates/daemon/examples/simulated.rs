//! The daemon on a simulated machine: for tests, and to see what it does without a kernel.
//!
//! ```text
//! simulated --config FILE --dir DIR [--slices N] [--speed TIMES | --advance SECONDS]
//! ```
//!
//! Time runs faster by the factor given, also for the machine; or it advances with each look at the
//! machine alone, however long that took. Memory in use goes up and down in waves. While `DIR/fail`
//! is there, the machine cannot be seen; that file's text is the error. `DIR/dearer` says how many
//! times its price a request costs.

use std::f64::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use ramslice_sim::{MemoryChange, OwnerClass, OwnerId, SimBackend, SimConfig};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, Price,
    PriceParameter, Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, WorkCounters,
    Zone,
};
use ramsliced::clock::PolicyClock;
use ramsliced::host_files::HostFiles;
use ramsliced::log;
use ramsliced::main_loop::{self, DaemonOptions};
use ramsliced::open_backend::OpenedBackend;
use ramsliced::settings::DaemonSettings;
use tracing::level_filters::LevelFilter;

#[derive(Debug, Parser)]
struct SimulationArgs {
    #[arg(long)]
    config: PathBuf,
    /// Directory of state and status.
    #[arg(long)]
    dir: PathBuf,
    /// Slices of 64 MiB.
    #[arg(long, default_value_t = 256)]
    slices: u64,
    /// How much faster time runs.
    #[arg(long, default_value_t = 1000.0)]
    speed: f64,
    /// Seconds that pass with each look, rather than with real time.
    #[arg(long, conflicts_with = "speed")]
    advance: Option<u32>,
    /// How much of the memory programs use: a share on average.
    #[arg(long, default_value_t = 0.4)]
    used: f64,
}

/// The machine, and the clock that both it and the policies go by.
struct SimulatedHost {
    sim: SimBackend,
    began: Instant,
    start: Duration,
    speed: f64,
    /// What passes with each look, if it is not real time that passes.
    advance: Option<Duration>,
    looks: AtomicU32,
    used: f64,
    fail: PathBuf,
    dearer: PathBuf,
}

impl SimulatedHost {
    fn elapsed(&self) -> Duration {
        match self.advance {
            Some(each) => each * self.looks.load(Ordering::Relaxed),
            None => self.began.elapsed().mul_f64(self.speed),
        }
    }

    /// Brings the machine up to the present.
    fn pass(&self) -> Result<(), BackendError> {
        if let Ok(text) = fs::read_to_string(&self.fail) {
            return Err(BackendError::new(BackendErrorKind::Failed, text.trim().to_owned()));
        }
        let now = self.elapsed();
        self.sim.with(|machine| {
            machine.advance(now.saturating_sub(machine.time()));
            let pages = machine.totals().managed.0 as f64;
            // A wave of an hour, and a smaller one of seven minutes.
            let (slow, fast) = (now.as_secs_f64() / 3600.0, now.as_secs_f64() / 420.0);
            let share = self.used * (1.0 + 0.4 * (slow * TAU).sin() + 0.1 * (fast * TAU).sin());
            for (owner, part) in [(1, 0.6), (2, 0.4)] {
                let pages = (pages * share * part) as u64;
                machine.apply(MemoryChange::Level {
                    owner: OwnerId(owner),
                    class: OwnerClass::Anon,
                    maps: 1,
                    pages,
                });
            }
        });
        Ok(())
    }
}

/// The backend with its waves; see [`SimulatedHost`].
struct WaveMachine(Arc<SimulatedHost>);

impl Backend for WaveMachine {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.pass()?;
        self.0.sim.info()
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        self.0.sim.zones()
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        self.0.sim.snapshot()
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.0.sim.contents(slice, detail)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        self.0.pass()?;
        let mut outcome = self.0.sim.request(request)?;
        let dearer = fs::read_to_string(&self.0.dearer)
            .ok()
            .and_then(|text| text.trim().parse::<f64>().ok());
        let measured = outcome.price_measured.0 as f64 * dearer.unwrap_or(1.0);
        outcome.price_measured = Price(measured as u64);
        Ok(outcome)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        self.0.sim.wait_event(timeout)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.0.sim.slice_bytes()
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.0.sim.set_slice_bytes(size)
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.0.sim.price_parameter(parameter)
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.0.sim.set_price_parameter(parameter, value)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        self.0.sim.work()
    }
}

/// The policies' time.
struct FastClock(Arc<SimulatedHost>);

impl PolicyClock for FastClock {
    fn now(&self) -> Duration {
        self.0.start + self.0.elapsed()
    }
}

fn simulate(args: &SimulationArgs, settings: DaemonSettings) -> anyhow::Result<()> {
    let slice = Bytes(64 << 20);
    let config = SimConfig { scatter: 0.3, ..SimConfig::new(slice * args.slices, slice) };
    let config = if args.slices > 512 { config.coarse() } else { config };
    let simulated = |start| SimulatedHost {
        sim: SimBackend::new(config.clone()).expect("the size of the machine is right"),
        began: Instant::now(),
        start,
        speed: args.speed,
        advance: args.advance.map(|seconds| Duration::from_secs(seconds.into())),
        looks: AtomicU32::new(0),
        used: args.used,
        fail: args.dir.join("fail"),
        dearer: args.dir.join("dearer"),
    };
    let options = DaemonOptions {
        config: args.config.clone(),
        state_dir: args.dir.clone(),
        runtime_dir: args.dir.clone(),
        pressure: None,
        // Each start is a new boot of the machine.
        host: HostFiles {
            boot: std::process::id().to_string(),
            vmstat: None,
            sysfs: None,
            pressure: None,
            processors: None,
            own_time: None,
            suspended: None,
        },
    };
    let machine = std::cell::OnceCell::<Arc<SimulatedHost>>::new();
    let open = |_: &_, _: &_| {
        let machine =
            Arc::clone(machine.get().expect("the clock is made before the machine is opened"));
        machine.pass()?;
        Ok(OpenedBackend {
            backend: Arc::new(WaveMachine(machine)),
            kind: "simulated",
            guardable: None,
        })
    };
    main_loop::run(&options, settings, &open, |last| {
        Box::new(FastClock(Arc::clone(machine.get_or_init(|| Arc::new(simulated(last))))))
    })
}

fn main() -> ExitCode {
    let args = SimulationArgs::parse();
    log::init(LevelFilter::INFO);
    let settings = match DaemonSettings::read(Path::new(&args.config)) {
        Ok(settings) => settings,
        Err(error) => {
            eprint!("{}", error.report());
            return ExitCode::from(2);
        }
    };
    match simulate(&args, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
