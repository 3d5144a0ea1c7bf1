//! `SampleSet` from the running machine: slices emptied and woken again, everything else left as
//! found.

mod error;
mod host;
mod mixtures;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ramslice_fragment::{
    FillAmount, FillPlan, FragmentError, FragmentedMemory, PageMix, PageProbability,
};
use ramslice_types::{
    Backend, BackendErrorKind, BackendInfo, Bytes, CacheChoice, ContentsDetail, Pages,
    PriceParameter, Request, RequestOp, RequestOutcome, Slice, SliceId, SliceState, SplitMix64,
};

use self::mixtures::{MIXTURES, PageMixture};
use crate::{
    CalibrationRefusal, CalibrationSample, ModelCoefficients, OperationCounts, SampleOrigin,
    SampleSet, ThesisExperiment, check_steady,
};

pub use self::error::{BoxError, MeasureError};
pub use self::host::{MeasuringHost, MeasuringStep, Workload};

type Result<T> = std::result::Result<T, MeasureError>;

/// What is wanted.
#[derive(Debug, Clone)]
pub struct MeasuringPlan {
    /// Memory to fill at a time.
    pub memory: FillAmount,
    /// Slices to empty for each mixture.
    pub per_mixture: u32,
    /// Slices to judge by.
    pub held_out: u32,
    /// Their size; half of what slices have if it is not given.
    pub held_out_slice: Option<Bytes>,
    /// Where files of the page cache are made.
    pub dir: PathBuf,
    /// Decides which slices.
    pub seed: u64,
    /// Whether to measure on a machine that is not steady, too.
    pub allow_unsteady: bool,
    /// What the samples of programs are called.
    pub label: String,
}

/// Empty slices at each size, and to see whether the machine is steady.
const EMPTY: u32 = 16;
/// Between two slices while a command runs, so that it gets on.
const PAUSE: Duration = Duration::from_millis(50);
/// A slice that was found to hold something else than the kernel then priced, by more than this
/// share, had changed.
const MOST_CHANGED: f64 = 0.01;
/// Slices looked at for one that is emptied, at most: some turn out to hold pages that stay.
const TRIES_EACH: u32 = 8;
/// How often waking is tried when a signal interrupts it.
const TRIES: u32 = 100;

/// Takes all samples.
///
/// # Errors
/// What cannot be done, or if `host` interrupts it; slices are awake again and have their size.
pub fn take_samples(
    plan: &MeasuringPlan,
    backend: &dyn Backend,
    host: &dyn MeasuringHost,
) -> Result<SampleSet> {
    let info = backend.info()?;
    if backend
        .snapshot()?
        .slices
        .iter()
        .any(|slice| slice.state != SliceState::Online && slice.present.0 > 0)
    {
        return Err(MeasureError::SlicesOff);
    }
    let parameters: BTreeMap<_, _> = PriceParameter::ALL
        .into_iter()
        .map(|parameter| Ok((parameter, backend.price_parameter(parameter)?)))
        .collect::<Result<_>>()?;
    let size = info.slice_bytes;
    let mut taker = SampleTaker {
        plan,
        backend,
        host,
        coefficients: ModelCoefficients::of_parameters(&parameters),
        restore: RestoreGuard { backend, host, slice_bytes: size, offline_slice: Cell::new(None) },
        random: SplitMix64::new(plan.seed),
        samples: Vec::new(),
        changed_samples: 0,
    };
    let mut mixtures = MIXTURES.iter();
    let noise = taker.noise_of_empty(size, |taker| {
        mixtures.next().map_or(Ok(()), |first| taker.mixture(first))
    })?;
    for mixture in mixtures {
        taker.mixture(mixture)?;
    }
    let held_out = plan.held_out_slice.unwrap_or_else(|| another_size(&info));
    for larger in [Bytes(size.0 * 2), Bytes(size.0 * 4)] {
        if larger != held_out && u64::from(info.nr_slices) * size.0 >= 16 * larger.0 {
            taker.resize(larger)?;
            taker.empty_slice_costs(larger)?;
        }
    }
    taker.resize(held_out)?;
    taker.programs()?;
    taker.resize(size)?;
    Ok(SampleSet {
        kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
        page_bytes: info.page_bytes,
        slice_bytes: size,
        parameters,
        noise,
        changed: taker.changed_samples,
        samples: taker.samples,
    })
}

/// Half of a slice; the double, if that is less than a pageblock.
fn another_size(info: &BackendInfo) -> Bytes {
    let half = info.slice_bytes.0 / 2;
    if half > 0 && half.is_multiple_of(info.pageblock_bytes.0) {
        Bytes(half)
    } else {
        Bytes(info.slice_bytes.0 * 2)
    }
}

/// What there was, put back at the end, however it comes.
struct RestoreGuard<'a> {
    backend: &'a dyn Backend,
    host: &'a dyn MeasuringHost,
    slice_bytes: Bytes,
    offline_slice: Cell<Option<SliceId>>,
}

impl RestoreGuard<'_> {
    /// Wakes the slice that is off, if one is.
    fn wake(&self) -> Result<()> {
        let Some(id) = self.offline_slice.get() else { return Ok(()) };
        for _ in 0..TRIES {
            match self.backend.request(&Request::new(RequestOp::Online(id))) {
                // An allocation may have woken it first.
                Ok(_) if self.is_online(id)? => {
                    self.offline_slice.set(None);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == BackendErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(MeasureError::DoesNotWake { slice: id })
    }

    fn is_online(&self, id: SliceId) -> Result<bool> {
        let slices = self.backend.snapshot()?.slices;
        Ok(slices.iter().any(|slice| slice.id == id && slice.state == SliceState::Online))
    }
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        let put_back = || -> Result<()> {
            self.wake()?;
            if self.backend.slice_bytes()? != self.slice_bytes {
                self.backend.set_slice_bytes(self.slice_bytes)?;
            }
            Ok(())
        };
        if let Err(error) = put_back() {
            self.host.report_unrestored(&error);
        }
    }
}

struct SampleTaker<'a> {
    plan: &'a MeasuringPlan,
    backend: &'a dyn Backend,
    host: &'a dyn MeasuringHost,
    coefficients: ModelCoefficients,
    restore: RestoreGuard<'a>,
    random: SplitMix64,
    samples: Vec<CalibrationSample>,
    changed_samples: u64,
}

impl SampleTaker<'_> {
    fn check(&self) -> Result<()> {
        if self.host.interrupted() { Err(MeasureError::Interrupted) } else { Ok(()) }
    }

    fn progress(&self, what: &str, done: u32, of: u32) {
        self.host.progress(&MeasuringStep {
            activity: what,
            steps_done: done,
            steps_total: of,
            samples: self.samples.len(),
        });
    }

    fn resize(&self, size: Bytes) -> Result<()> {
        Ok(self.backend.set_slice_bytes(size)?)
    }

    /// Slices that may be emptied, by what is known without a look at their pages: on a stock
    /// kernel those in per-CPU lists count as unmovable, and after much was freed they lie in each.
    fn eligible_slices(&self, wanted: impl Fn(&Slice) -> bool) -> Result<Vec<SliceId>> {
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

    /// How much the cost of the same empty slice varies. Where none is empty, `leave_some` is done
    /// first.
    fn noise_of_empty(
        &mut self,
        size: Bytes,
        leave_some: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<f64> {
        let mut costs = self.empty_slice_costs(size)?;
        if costs.is_empty() {
            leave_some(self)?;
            costs = self.empty_slice_costs(size)?;
        }
        let noise = match check_steady(&costs) {
            Err(CalibrationRefusal::Unsteady { noise, .. }) if self.plan.allow_unsteady => noise,
            checked => checked?,
        };
        Ok(noise)
    }

    /// Empty slices at this size; what each cost.
    fn empty_slice_costs(&mut self, size: Bytes) -> Result<Vec<f64>> {
        let first = self.samples.len();
        let mut ids = self.eligible_slices(Slice::is_empty)?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let at = self.random.index(ids.len());
        ids.rotate_left(at);
        for n in 0..EMPTY {
            // Half of them on one slice, over and over, and half on others.
            let id = if n % 2 == 0 { ids[0] } else { ids[n as usize % ids.len()] };
            self.progress("empty slices", n, EMPTY);
            self.take_sample(
                id,
                SampleOrigin::Artificial(ThesisExperiment::Empty),
                &format!("empty, {size}"),
            )?;
        }
        Ok(self.samples[first..].iter().map(|sample| sample.measured.0 as f64).collect())
    }

    fn mixture(&mut self, mixture: &PageMixture) -> Result<()> {
        self.check()?;
        let probability = |(first, last)| {
            PageProbability::new(first, last).expect("probabilities are from 0 to 1")
        };
        let fill = FillPlan {
            mix: PageMix {
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
        let made = FragmentedMemory::make(&fill, |step| {
            let percent = (step.done * 100 / step.total.max(1)) as u32;
            self.progress(mixture.name, percent, 100);
            !self.host.interrupted()
        });
        let made = match made {
            Err(FragmentError::Interrupted { .. }) => return self.check(),
            made => made?,
        };
        let mut tries = 0;
        let mut taken = 0;
        while taken < self.plan.per_mixture && tries < TRIES_EACH * self.plan.per_mixture {
            self.progress(mixture.name, taken, self.plan.per_mixture);
            let ids = self.eligible_slices(|slice| slice.counters.free < slice.present)?;
            if ids.is_empty() {
                break;
            }
            let id = ids[self.random.index(ids.len())];
            let origin = SampleOrigin::Artificial(mixture.experiment);
            taken += u32::from(self.take_sample(id, origin, mixture.name)?);
            tries += 1;
        }
        drop(made);
        Ok(())
    }

    /// What programs hold, or leave there while the command runs.
    fn programs(&mut self) -> Result<()> {
        let mut workload = self.host.start_workload().map_err(MeasureError::Workload)?;
        let (mut taken, mut tries) = (0, 0);
        loop {
            let goes_on = workload.is_running().map_err(MeasureError::Workload)?;
            if !goes_on && (taken >= self.plan.held_out || tries >= TRIES_EACH * self.plan.held_out)
            {
                return Ok(());
            }
            self.check()?;
            let held_out = self.plan.held_out;
            self.progress("slices of programs", taken.min(held_out), held_out);
            // One in ten may be empty, as on any machine.
            let any = self.random.index(10) == 0;
            let ids = self.eligible_slices(|slice| any || slice.counters.free < slice.present)?;
            if !ids.is_empty() {
                let id = ids[self.random.index(ids.len())];
                taken +=
                    u32::from(self.take_sample(id, SampleOrigin::Program, &self.plan.label)?);
            }
            tries += u32::from(!goes_on);
            if goes_on {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Empties a slice and wakes it again; whether there is a sample of it.
    fn take_sample(&mut self, id: SliceId, origin: SampleOrigin, label: &str) -> Result<bool> {
        self.check()?;
        let mut operations =
            OperationCounts::of(&self.backend.contents(id, ContentsDetail::default())?);
        if operations.staying > Pages(0) {
            return Ok(false);
        }
        let before = self.backend.work()?;
        // What the formula prices: cache is dropped, in destinations where there is no room else.
        let request = Request {
            cache: CacheChoice::Drop,
            ignore_backoff: true,
            ..Request::new(RequestOp::Offline(id))
        };
        // From here on it may be off, whatever else happens.
        self.restore.offline_slice.set(Some(id));
        let outcome = match self.backend.request(&request) {
            Err(error) if error.kind() == BackendErrorKind::Interrupted => {
                RequestOutcome::default()
            }
            outcome => outcome?,
        };
        self.restore.wake()?;
        self.check()?;
        if outcome.slices_done == 0 {
            return Ok(false);
        }
        let Some(cache_targets) = self.cache_targets(&operations, &outcome) else {
            self.changed_samples += 1;
            return Ok(false);
        };
        operations.cache_targets = match cache_targets {
            CacheTargets::Predicted(pages) => pages,
            // With equal prices for both kinds, the prediction does not say: what was done does.
            CacheTargets::Unpredicted => {
                self.backend.work()?.since(&before).map_or(Pages(0), |work| work.target_cache_pages)
            }
        };
        let origin = origin_by_operations(origin, &operations);
        self.samples.push(CalibrationSample::new(origin, label, operations, &outcome));
        Ok(true)
    }

    /// How many destinations the kernel expected to gain by dropping cache: what its prediction has
    /// beyond the rest.
    ///
    /// `None` if that does not add up: the slice held something else when the kernel walked it.
    fn cache_targets(
        &self,
        operations: &OperationCounts,
        outcome: &RequestOutcome,
    ) -> Option<CacheTargets> {
        let rest = outcome.price_predicted.0 as f64 - self.coefficients.price(operations);
        let dearer = self.coefficients.alloc_cache - self.coefficients.alloc_buddy;
        let allowed = (MOST_CHANGED * outcome.price_predicted.0 as f64).max(2.0);
        if operations.moved == Pages(0) {
            return (rest.abs() <= allowed).then_some(CacheTargets::Predicted(Pages(0)));
        }
        if dearer.abs() < 1.0 {
            return (rest.abs() <= allowed).then_some(CacheTargets::Unpredicted);
        }
        let pages = (rest / dearer).round().clamp(0.0, operations.moved.0 as f64);
        ((rest - pages * dearer).abs() <= allowed.max(dearer.abs()))
            .then_some(CacheTargets::Predicted(Pages(pages as u64)))
    }
}

/// Destinations that dropping cache made.
enum CacheTargets {
    Predicted(Pages),
    Unpredicted,
}

/// A slice that holds more than a hint of something else belongs to no experiment with one kind of
/// page.
fn origin_by_operations(origin: SampleOrigin, operations: &OperationCounts) -> SampleOrigin {
    let hint = operations.frames.0 / 50;
    let pure = match origin {
        SampleOrigin::Artificial(ThesisExperiment::Cache) => operations.moved.0 <= hint,
        SampleOrigin::Artificial(ThesisExperiment::Mapped(count)) => {
            let expected = operations.moved.0 * u64::from(count);
            operations.dropped.0 <= hint
                && operations.mappings.abs_diff(expected) <= expected / 20 + hint
        }
        _ => true,
    };
    if pure { origin } else { SampleOrigin::Artificial(ThesisExperiment::Mixed) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ramslice_backend::ReplayBackend;
    use ramslice_types::{
        MachineState, PageClass, PageFlags, PageRun, Pfn, Reason, SliceContents, WorkCounters,
    };

    use super::*;

    /// A host that neither interrupts nor shows anything.
    struct Undisturbed;

    impl MeasuringHost for Undisturbed {
        fn interrupted(&self) -> bool {
            false
        }

        fn progress(&self, _: &MeasuringStep<'_>) {}

        fn report_unrestored(&self, error: &MeasureError) {
            panic!("{error}");
        }

        fn start_workload(&self) -> std::result::Result<Box<dyn Workload>, BoxError> {
            unreachable!("only empty slices are looked at")
        }
    }

    const EMPTY_SLICE: SliceId = SliceId(24);

    /// A machine of which one slice is empty.
    fn machine() -> ReplayBackend {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/guest-pages.json");
        let mut machine: MachineState =
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
        machine.contents.push(SliceContents {
            slice: EMPTY_SLICE,
            state,
            reason,
            runs: vec![free],
            files,
            cgroups,
            sites,
        });
        ReplayBackend::with_work(machine, Some(WorkCounters::default()))
    }

    fn steadiness(
        anyway: bool,
        leave_some: impl FnOnce(&dyn Backend) -> Result<()>,
    ) -> Result<(f64, usize)> {
        let backend = machine();
        // At first it is none that may be emptied.
        backend.request(&Request::new(RequestOp::Offline(EMPTY_SLICE))).unwrap();
        let plan = MeasuringPlan {
            memory: FillAmount::Percent(25),
            per_mixture: 1,
            held_out: 0,
            held_out_slice: None,
            dir: PathBuf::new(),
            seed: 1,
            allow_unsteady: anyway,
            label: String::new(),
        };
        let info = backend.info()?;
        let (size, host) = (info.slice_bytes, &Undisturbed);
        let mut taker = SampleTaker {
            plan: &plan,
            backend: &backend,
            host,
            coefficients: crate::thesis(),
            restore: RestoreGuard {
                backend: &backend,
                host,
                slice_bytes: size,
                offline_slice: Cell::new(None),
            },
            random: SplitMix64::new(1),
            samples: Vec::new(),
            changed_samples: 0,
        };
        let noise = taker.noise_of_empty(info.slice_bytes, |_| leave_some(&backend))?;
        Ok((noise, taker.samples.len()))
    }

    #[test]
    fn a_machine_without_an_empty_slice_is_not_called_unsteady() {
        for anyway in [false, true] {
            let refusal = steadiness(anyway, |_| Ok(())).unwrap_err();
            let MeasureError::Refused(refusal) = refusal else { panic!("{refusal}") };
            assert_eq!(refusal, CalibrationRefusal::NothingEmpty);
        }
    }

    #[test]
    fn slices_that_a_mixture_leaves_empty_show_whether_the_machine_is_steady() {
        let wake = |backend: &dyn Backend| {
            backend.request(&Request::new(RequestOp::Online(EMPTY_SLICE)))?;
            Ok(())
        };
        let (noise, samples) = steadiness(false, wake).unwrap();
        assert!(noise < 0.01 && samples == EMPTY as usize, "{noise}, {samples} samples");
    }
}
