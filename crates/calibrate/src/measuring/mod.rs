//! Samples from the running machine: slices emptied and woken again, everything else left as found.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ramslice_backend::sys::Interrupt;
use ramslice_calibrate::{
    Coefficients, Experiment, Operations, Origin, Refusal, Sample, Samples, check_steady,
};
use ramslice_fragment::{Amount, Error as FillError, Fragmented, Mix, Plan as Fill, Probability};
use ramslice_types::{
    Backend, Bytes, CacheChoice, Detail, ErrorKind, Info, Op, Outcome, Pages, PriceParameter,
    Random, Request, Slice, SliceId, SliceState,
};

use super::child::NotStarted;
use super::progress::Progress;
use crate::stderr;

/// What is wanted.
pub(super) struct Plan {
    pub(super) memory: Amount,
    pub(super) per_mixture: u32,
    pub(super) held_out: u32,
    pub(super) held_out_slice: Option<Bytes>,
    pub(super) dir: PathBuf,
    pub(super) seed: u64,
    pub(super) anyway: bool,
    pub(super) command: Vec<String>,
    pub(super) silent: bool,
}

/// A mixture: its name, what it is for, how likely pages are to be free, anonymous, cache, and how often mapped.
struct Mixture {
    name: &'static str,
    experiment: Experiment,
    free: (f64, f64),
    anon: (f64, f64),
    file: (f64, f64),
    map_count: u32,
}

const NONE: (f64, f64) = (0.0, 0.0);
const UP: (f64, f64) = (0.0, 1.0);
const DOWN: (f64, f64) = (1.0, 0.0);

/// Those of the thesis' §4.2.2, from few pages to many, and those of §4.2.3, of all kinds.
const MIXTURES: [Mixture; 8] = [
    Mixture {
        name: "cache",
        experiment: Experiment::Cache,
        free: DOWN,
        anon: NONE,
        file: UP,
        map_count: 1,
    },
    mapped("mapped once", 1),
    mapped("mapped twice", 2),
    mapped("mapped 4 times", 4),
    mapped("mapped 8 times", 8),
    mixed("mixed", (0.7, 0.1), (0.1, 0.5), (0.2, 0.4), 1),
    mixed("mixed, much cache", (0.2, 0.0), (0.4, 0.1), (0.4, 0.9), 1),
    mixed("mixed, mapped 3 times", (0.1, 0.7), (0.6, 0.1), (0.3, 0.2), 3),
];

const fn mapped(name: &'static str, map_count: u32) -> Mixture {
    let experiment = Experiment::Mapped(map_count);
    Mixture { name, experiment, free: DOWN, anon: UP, file: NONE, map_count }
}

const fn mixed(
    name: &'static str,
    free: (f64, f64),
    anon: (f64, f64),
    file: (f64, f64),
    map_count: u32,
) -> Mixture {
    Mixture { name, experiment: Experiment::Mixed, free, anon, file, map_count }
}

/// Empty slices at each size, and to see whether the machine is steady.
const EMPTY: u32 = 16;
/// Between two slices while a command runs, so that it gets on.
const PAUSE: Duration = Duration::from_millis(50);
/// A slice that was found to hold something else than the kernel then priced, by more than this share, had changed.
const MOST_CHANGED: f64 = 0.01;
/// Slices looked at for one that is emptied, at most: some turn out to hold pages that stay.
const TRIES_EACH: u32 = 8;
/// How often waking is tried when a signal interrupts it.
const TRIES: u32 = 100;

/// Takes all samples.
pub(super) fn take(plan: &Plan, backend: &dyn Backend, interrupt: &Interrupt) -> Result<Samples> {
    let info = backend.info()?;
    if backend
        .snapshot()?
        .slices
        .iter()
        .any(|slice| slice.state != SliceState::Online && slice.present.0 > 0)
    {
        bail!(
            "slices are off, and their size cannot change meanwhile: wake them with `ramslice online --all` first"
        );
    }
    let parameters: BTreeMap<_, _> = PriceParameter::ALL
        .into_iter()
        .map(|parameter| Ok((parameter, backend.price_parameter(parameter)?)))
        .collect::<Result<_>>()?;
    let size = info.slice_bytes;
    let mut taker = Taker {
        plan,
        backend,
        interrupt,
        in_force: Coefficients::in_force(&parameters),
        found: Found { backend, size, off: Cell::new(None) },
        random: Random::new(plan.seed),
        samples: Vec::new(),
        changed: 0,
        progress: Progress::new(plan.silent, Duration::ZERO),
    };
    let mut mixtures = MIXTURES.iter();
    let noise = taker
        .steadiness(size, |taker| mixtures.next().map_or(Ok(()), |first| taker.mixture(first)))?;
    for mixture in mixtures {
        taker.mixture(mixture)?;
    }
    let held_out = plan.held_out_slice.unwrap_or_else(|| another_size(&info));
    for larger in [Bytes(size.0 * 2), Bytes(size.0 * 4)] {
        if larger != held_out && u64::from(info.nr_slices) * size.0 >= 16 * larger.0 {
            taker.resize(larger)?;
            taker.empties(larger)?;
        }
    }
    taker.resize(held_out)?;
    taker.programs()?;
    taker.resize(size)?;
    taker.progress.clear();
    Ok(Samples {
        kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
        page_bytes: info.page_bytes,
        slice_bytes: size,
        parameters,
        noise,
        changed: taker.changed,
        samples: taker.samples,
    })
}

/// Half of a slice; the double, if that is less than a pageblock.
fn another_size(info: &Info) -> Bytes {
    let half = info.slice_bytes.0 / 2;
    if half > 0 && half.is_multiple_of(info.pageblock_bytes.0) {
        Bytes(half)
    } else {
        Bytes(info.slice_bytes.0 * 2)
    }
}

/// What there was, put back at the end, however it comes.
struct Found<'a> {
    backend: &'a dyn Backend,
    size: Bytes,
    off: Cell<Option<SliceId>>,
}

impl Found<'_> {
    /// Wakes the slice that is off, if one is.
    fn wake(&self) -> Result<()> {
        let Some(id) = self.off.get() else { return Ok(()) };
        for _ in 0..TRIES {
            match self.backend.request(&Request::new(Op::Online(id))) {
                // Somebody who wanted memory may have been faster.
                Ok(_) if self.is_online(id)? => {
                    self.off.set(None);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        bail!("slice {id} does not wake: `ramslice online {id}` tries again")
    }

    fn is_online(&self, id: SliceId) -> Result<bool> {
        let slices = self.backend.snapshot()?.slices;
        Ok(slices.iter().any(|slice| slice.id == id && slice.state == SliceState::Online))
    }
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        let put_back = || -> Result<()> {
            self.wake()?;
            if self.backend.slice_bytes()? != self.size {
                self.backend.set_slice_bytes(self.size)?;
            }
            Ok(())
        };
        if let Err(error) = put_back() {
            stderr::line(format_args!("ramslice: not everything is as it was: {error:#}"));
        }
    }
}

/// A command that ends with this value.
struct Running(Option<Child>);

impl Running {
    fn start(command: &[String]) -> Result<Self> {
        let [program, args @ ..] = command else { return Ok(Self(None)) };
        // stdout is ours.
        let child = Command::new(program).args(args).stdout(Stdio::null()).spawn();
        Ok(Self(Some(child.map_err(|source| NotStarted::of(program, source))?)))
    }

    fn goes_on(&mut self) -> Result<bool> {
        match &mut self.0 {
            None => Ok(false),
            Some(child) => match child.try_wait().context("waiting for the command")? {
                None => Ok(true),
                Some(status) => {
                    self.0 = None;
                    if !status.success() {
                        stderr::line(format_args!("ramslice: the command ended with {status}"));
                    }
                    Ok(false)
                }
            },
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Only if something went wrong, or Ctrl-C: a child that has ended meanwhile cannot be killed, and that is fine.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Taker<'a> {
    plan: &'a Plan,
    backend: &'a dyn Backend,
    interrupt: &'a Interrupt,
    in_force: Coefficients,
    found: Found<'a>,
    random: Random,
    samples: Vec<Sample>,
    changed: u64,
    progress: Progress,
}

impl Taker<'_> {
    fn check(&self) -> Result<()> {
        if self.interrupt.requested() {
            self.progress.clear();
            bail!("interrupted: slices are awake and have their size again, nothing was installed");
        }
        Ok(())
    }

    fn resize(&self, size: Bytes) -> Result<()> {
        Ok(self.backend.set_slice_bytes(size)?)
    }

    /// Slices that may be emptied. Pages in per-CPU lists count as unmovable, and after much was freed they lie in every
    /// slice: who looks at the pages knows better.
    fn eligible(&self, wanted: impl Fn(&Slice) -> bool) -> Result<Vec<SliceId>> {
        let frames = self.backend.info()?.slice_pages();
        let slices = self.backend.snapshot()?.slices;
        let fine = |slice: &Slice| {
            slice.state == SliceState::Online
                && slice.present == frames
                && !slice.unreclaimable
                && !slice.backoff
                && wanted(slice)
        };
        Ok(slices.iter().filter(|slice| fine(slice)).map(|slice| slice.id).collect())
    }

    /// How much the cost of the same empty slice varies. Where none is empty, `leave_some` is done first.
    fn steadiness(
        &mut self,
        size: Bytes,
        leave_some: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<f64> {
        let mut costs = self.empties(size)?;
        if costs.is_empty() {
            leave_some(self)?;
            costs = self.empties(size)?;
        }
        let noise = match check_steady(&costs) {
            Err(Refusal::Unsteady { noise, .. }) if self.plan.anyway => noise,
            checked => checked?,
        };
        Ok(noise)
    }

    /// Empty slices at this size; what each cost.
    fn empties(&mut self, size: Bytes) -> Result<Vec<f64>> {
        let first = self.samples.len();
        let mut ids = self.eligible(Slice::is_empty)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let at = self.random.index(ids.len());
        ids.rotate_left(at);
        for n in 0..EMPTY {
            // Half of them on one slice, over and over, and half on others.
            let id = if n % 2 == 0 { ids[0] } else { ids[n as usize % ids.len()] };
            self.progress.show(sampling("empty slices", n, EMPTY, self.samples.len()));
            self.one(id, Origin::Artificial(Experiment::Empty), &format!("empty, {size}"))?;
        }
        Ok(self.samples[first..].iter().map(|sample| sample.measured.0 as f64).collect())
    }

    fn mixture(&mut self, mixture: &Mixture) -> Result<()> {
        self.check()?;
        let probability =
            |(first, last)| Probability::new(first, last).expect("probabilities are from 0 to 1");
        let fill = Fill {
            mix: Mix {
                free: probability(mixture.free),
                anon: probability(mixture.anon),
                file: probability(mixture.file),
            },
            amount: self.plan.memory,
            seed: self.plan.seed,
            map_count: mixture.map_count,
            huge: false,
            dir: self.plan.dir.clone(),
        };
        let (interrupt, progress, taken) = (self.interrupt, &self.progress, self.samples.len());
        let made = Fragmented::make(&fill, |step| {
            progress.show(sampling(
                mixture.name,
                (step.done * 100 / step.total.max(1)) as u32,
                100,
                taken,
            ));
            !interrupt.requested()
        });
        let made = match made {
            Err(FillError::Interrupted { .. }) => return self.check(),
            made => made?,
        };
        let mut tries = 0;
        let mut taken = 0;
        while taken < self.plan.per_mixture && tries < TRIES_EACH * self.plan.per_mixture {
            self.progress.show(sampling(
                mixture.name,
                taken,
                self.plan.per_mixture,
                self.samples.len(),
            ));
            let ids = self.eligible(|slice| slice.counters.free < slice.present)?;
            if ids.is_empty() {
                break;
            }
            let id = ids[self.random.index(ids.len())];
            let origin = Origin::Artificial(mixture.experiment);
            taken += u32::from(self.one(id, origin, mixture.name)?);
            tries += 1;
        }
        drop(made);
        Ok(())
    }

    /// What programs hold, or leave there while the command runs.
    fn programs(&mut self) -> Result<()> {
        let label =
            self.plan.command.first().map_or("as found", |program| name_of(program)).to_owned();
        let mut running = Running::start(&self.plan.command)?;
        let (mut taken, mut tries) = (0, 0);
        loop {
            let goes_on = running.goes_on()?;
            if !goes_on && (taken >= self.plan.held_out || tries >= TRIES_EACH * self.plan.held_out)
            {
                return Ok(());
            }
            self.check()?;
            self.progress.show(sampling(
                "slices of programs",
                taken.min(self.plan.held_out),
                self.plan.held_out,
                self.samples.len(),
            ));
            // One in ten may be empty, as on any machine.
            let any = self.random.index(10) == 0;
            let ids = self.eligible(|slice| any || slice.counters.free < slice.present)?;
            if !ids.is_empty() {
                let id = ids[self.random.index(ids.len())];
                taken += u32::from(self.one(id, Origin::Program, &label)?);
            }
            tries += u32::from(!goes_on);
            if goes_on {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Empties a slice and wakes it again; whether there is a sample of it.
    fn one(&mut self, id: SliceId, origin: Origin, label: &str) -> Result<bool> {
        self.check()?;
        let mut operations = Operations::of(&self.backend.contents(id, Detail::default())?);
        if operations.staying > Pages(0) {
            return Ok(false);
        }
        let before = self.backend.work()?;
        // What the formula prices: cache is dropped, in destinations where there is no room else.
        let request = Request {
            cache: CacheChoice::Drop,
            ignore_backoff: true,
            ..Request::new(Op::Offline(id))
        };
        // From here on it may be off, whatever else happens.
        self.found.off.set(Some(id));
        let outcome = match self.backend.request(&request) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Outcome::default(),
            outcome => outcome?,
        };
        self.found.wake()?;
        self.check()?;
        if outcome.slices_done == 0 {
            return Ok(false);
        }
        let Some(cache_targets) = self.cache_targets(&operations, &outcome) else {
            self.changed += 1;
            return Ok(false);
        };
        operations.cache_targets = match cache_targets {
            Known::Predicted(pages) => pages,
            // With equal prices for both kinds, the prediction does not tell: what was done does.
            Known::NotTold => {
                self.backend.work()?.since(&before).map_or(Pages(0), |work| work.target_cache_pages)
            }
        };
        let origin = told(origin, &operations);
        self.samples.push(Sample::new(origin, label, operations, &outcome));
        Ok(true)
    }

    /// How many destinations the kernel expected to gain by dropping cache: what its prediction has beyond the rest.
    ///
    /// `None` if that does not add up: the slice held something else when the kernel walked it.
    fn cache_targets(&self, operations: &Operations, outcome: &Outcome) -> Option<Known> {
        let rest = outcome.price_predicted.0 as f64 - self.in_force.price(operations);
        let dearer = self.in_force.alloc_cache - self.in_force.alloc_buddy;
        let allowed = (MOST_CHANGED * outcome.price_predicted.0 as f64).max(2.0);
        if operations.moved == Pages(0) {
            return (rest.abs() <= allowed).then_some(Known::Predicted(Pages(0)));
        }
        if dearer.abs() < 1.0 {
            return (rest.abs() <= allowed).then_some(Known::NotTold);
        }
        let pages = (rest / dearer).round().clamp(0.0, operations.moved.0 as f64);
        ((rest - pages * dearer).abs() <= allowed.max(dearer.abs()))
            .then_some(Known::Predicted(Pages(pages as u64)))
    }
}

enum Known {
    Predicted(Pages),
    NotTold,
}

/// A slice that holds more than a hint of something else belongs to no experiment with one kind of page.
fn told(origin: Origin, operations: &Operations) -> Origin {
    let hint = operations.frames.0 / 50;
    let pure = match origin {
        Origin::Artificial(Experiment::Cache) => operations.moved.0 <= hint,
        Origin::Artificial(Experiment::Mapped(count)) => {
            let expected = operations.moved.0 * u64::from(count);
            operations.dropped.0 <= hint
                && operations.mappings.abs_diff(expected) <= expected / 20 + hint
        }
        _ => true,
    };
    if pure { origin } else { Origin::Artificial(Experiment::Mixed) }
}

/// The line about what is being done: its share, and the samples so far.
fn sampling(what: &str, done: u32, of: u32, samples: usize) -> impl FnOnce(Duration) -> String {
    move |elapsed| {
        format!(
            "{samples} samples, {:.0} s: {what}, {} %",
            elapsed.as_secs_f64(),
            100 * done / of.max(1)
        )
    }
}

/// A program by its file's name: what is kept of it says nothing about where it was.
fn name_of(program: &str) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use ramslice_backend::ReplayBackend;
    use ramslice_types::{Contents, Machine, PageClass, PageFlags, PageRun, Pfn, Reason, Work};

    use super::super::interrupt::interruptible;
    use super::*;

    const EMPTY_SLICE: SliceId = SliceId(24);

    /// A machine of which one slice is empty.
    fn machine() -> ReplayBackend {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/guest-pages.json");
        let mut machine: Machine =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let frames = machine.info.slice_pages();
        let free = PageRun {
            pfn: Pfn(u64::from(EMPTY_SLICE.0) * frames.0),
            pages: frames,
            class: PageClass::Free,
            reason: Reason::None,
            flags: PageFlags::default(),
            order: 10,
            mappings: 0,
            extra_references: 0,
            file: None,
            cgroup_inode: None,
        };
        let (state, reason) = (SliceState::Online, Reason::None);
        let (files, cgroups, sites) = (Vec::new(), Vec::new(), None);
        machine.contents.push(Contents {
            slice: EMPTY_SLICE,
            state,
            reason,
            runs: vec![free],
            files,
            cgroups,
            sites,
        });
        ReplayBackend::with_work(machine, Some(Work::default()))
    }

    fn steadiness(
        anyway: bool,
        leave_some: impl FnOnce(&dyn Backend) -> Result<()>,
    ) -> Result<(f64, usize)> {
        let backend = machine();
        // At first it is none that may be emptied.
        backend.request(&Request::new(Op::Offline(EMPTY_SLICE))).unwrap();
        let plan = Plan {
            memory: Amount::Percent(25),
            per_mixture: 1,
            held_out: 0,
            held_out_slice: None,
            dir: PathBuf::new(),
            seed: 1,
            anyway,
            command: Vec::new(),
            silent: true,
        };
        let info = backend.info()?;
        interruptible(|interrupt| {
            let mut taker = Taker {
                plan: &plan,
                backend: &backend,
                interrupt,
                in_force: ramslice_calibrate::thesis(),
                found: Found { backend: &backend, size: info.slice_bytes, off: Cell::new(None) },
                random: Random::new(1),
                samples: Vec::new(),
                changed: 0,
                progress: Progress::new(true, Duration::ZERO),
            };
            let noise = taker.steadiness(info.slice_bytes, |_| leave_some(&backend))?;
            Ok((noise, taker.samples.len()))
        })
    }

    #[test]
    fn a_machine_without_an_empty_slice_is_not_called_unsteady() {
        for anyway in [false, true] {
            let refusal = steadiness(anyway, |_| Ok(())).unwrap_err();
            assert_eq!(refusal.downcast_ref(), Some(&Refusal::NothingEmpty), "{refusal:#}");
        }
    }

    #[test]
    fn slices_that_a_mixture_leaves_empty_show_whether_the_machine_is_steady() {
        let wake = |backend: &dyn Backend| {
            backend.request(&Request::new(Op::Online(EMPTY_SLICE)))?;
            Ok(())
        };
        let (noise, samples) = steadiness(false, wake).unwrap();
        assert!(noise < 0.01 && samples == EMPTY as usize, "{noise}, {samples} samples");
    }
}
