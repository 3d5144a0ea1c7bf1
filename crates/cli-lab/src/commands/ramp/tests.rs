//! A ramp that holds, over the simulated machine with a note of what is held.

use std::sync::Mutex;

use clap::Parser;
use ramslice_sim::{SimBackend, SimConfig};
use ramslice_types::{
    BackendError, BackendInfo, Bytes, ContentsDetail, Price, PriceParameter, Request,
    SliceContents, SliceSnapshot, Zone,
};

use super::*;
use ramslice_cli::args::{ColorChoice, GlobalOptions};

/// The options, as they are typed.
#[derive(Parser)]
struct RampLine {
    #[command(flatten)]
    args: RampArgs,
}

/// The simulator knows no memory that is gone, so what is held is kept beside it, by the kernel's
/// rules: a request that switches off may hold, and waking a slice by name takes no such word.
struct HoldingBackend {
    sim: SimBackend,
    held: Mutex<BTreeSet<SliceId>>,
    /// The most that was held at a time.
    most: Mutex<usize>,
}

impl HoldingBackend {
    fn new() -> Self {
        let sim = SimBackend::new(SimConfig::new(Bytes(16 << 26), Bytes(1 << 26))).unwrap();
        Self { sim, held: Mutex::default(), most: Mutex::default() }
    }

    fn ramp(&self, words: &[&str]) -> ExitStatus {
        let args = RampLine::parse_from([&["ramp", "--every", "1ms"], words].concat()).args;
        let global = GlobalOptions {
            json: false,
            color: ColorChoice::Never,
            verbose: 0,
            from: None,
            backend: None,
        };
        run_ramp(self, &args, &CommandContext::new(global, None), &mut Vec::new()).unwrap()
    }
}

impl Backend for HoldingBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.sim.info()
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        self.sim.zones()
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        self.sim.snapshot()
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.sim.contents(slice, detail)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        let outcome = self.sim.request(&Request { hold: false, ..request.clone() })?;
        let mut held = self.held.lock().unwrap();
        match request.op {
            RequestOp::Offline(id) if request.hold && outcome.is_ok() => _ = held.insert(id),
            RequestOp::Online(id) => {
                assert!(!request.hold, "the kernel refuses that");
                if outcome.is_ok() {
                    held.remove(&id);
                }
            }
            _ => {}
        }
        let mut most = self.most.lock().unwrap();
        *most = held.len().max(*most);
        Ok(outcome)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        self.sim.wait_event(timeout)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.sim.slice_bytes()
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.sim.set_slice_bytes(size)
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.sim.price_parameter(parameter)
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.sim.set_price_parameter(parameter, value)
    }
}

#[test]
fn with_hold_each_step_down_holds_and_each_step_up_gives_back() {
    let machine = HoldingBackend::new();
    let on = nr_on(&machine.snapshot().unwrap().slices);
    let floor = (on - 6).to_string();
    assert_eq!(machine.ramp(&["--step", "2", "--floor", &floor, "--hold"]), ExitStatus::Ok);
    assert_eq!(*machine.most.lock().unwrap(), 6);
    assert_eq!(*machine.held.lock().unwrap(), BTreeSet::new());
    assert_eq!(nr_on(&machine.snapshot().unwrap().slices), on);
}

#[test]
fn without_hold_nothing_is_held() {
    let machine = HoldingBackend::new();
    let on = nr_on(&machine.snapshot().unwrap().slices);
    assert_eq!(machine.ramp(&["--floor", &(on - 2).to_string()]), ExitStatus::Ok);
    assert_eq!(*machine.most.lock().unwrap(), 0);
}
