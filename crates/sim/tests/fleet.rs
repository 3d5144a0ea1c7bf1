//! Fleets and tournaments: results do not depend on threads, tables add up to the report, errors
//! name the row.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ramslice_policy::{PolicyConfig, PolicyKind, SliceEconomics};
use ramslice_sim::fleet::{FleetError, FleetOptions, FleetReport, simulate};
use ramslice_sim::load::{FleetAverages, LoadPattern, SyntheticUsage, UsageFile, UsageOptions};
use ramslice_sim::tournament::{
    PolicyCandidate, TournamentInput, TournamentOptions, TournamentReport, hold, svg, sweep,
};
use ramslice_sim::{EnergyRates, SimConfig};
use ramslice_types::Bytes;

const GIB: u64 = 1 << 30;

fn energy(slice: Bytes) -> (SliceEconomics, EnergyRates) {
    let profile = ramslice_energy::builtin("thesis-parc").unwrap().unwrap();
    let state = profile.state(&profile.default_state).unwrap().clone();
    let economics =
        SliceEconomics::new(&state, profile.machine.as_ref().unwrap(), slice, Bytes(4096)).unwrap();
    (economics, EnergyRates::new(&profile, &state, Bytes(4096)).unwrap())
}

fn options(jobs: usize, output: Option<&Path>) -> FleetOptions {
    let slice = Bytes(GIB);
    let (economics, rates) = energy(slice);
    FleetOptions {
        memory: Bytes(32 * GIB),
        slice,
        usage: UsageOptions::default(),
        policy: PolicyConfig::new(PolicyKind::Governor),
        economics,
        rates,
        jobs,
        seed: 5,
        output: output.map(Path::to_owned),
    }
}

fn machines(number: u32) -> SyntheticUsage {
    let averages =
        FleetAverages { memory_percent: 50.0, daily_swing: 30.0, ..FleetAverages::default() };
    SyntheticUsage::new(averages, number, 86_400, 300, 5)
}

fn fleet(jobs: usize, output: Option<&Path>) -> FleetReport {
    simulate(machines(130).map(Ok), &options(jobs, output), &|_| true).unwrap()
}

#[test]
fn a_fleet_is_the_same_however_many_threads_there_are() {
    let one = fleet(1, None);
    assert_eq!((one.machines, one.machine_steps), (130, 130 * 288));
    assert_eq!(one, fleet(3, None));
    assert!(one.mean_offline_share > 0.2, "{one:?}");
}

#[test]
fn tables_are_partitioned_and_add_up_to_the_report() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("fleet");
    let report = fleet(2, Some(&dir));
    let (mut net, mut wakes, mut rows) = (0.0, 0, 0);
    for number in 0..3 {
        let path = dir.join(format!("machines/policy=governor/part-{number:06}.parquet"));
        let file = File::open(&path).unwrap();
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            rows += batch.num_rows();
            let column = |name| batch.column_by_name(name).unwrap();
            net +=
                column("net_low_joules").as_primitive::<Float64Type>().values().iter().sum::<f64>();
            wakes +=
                column("demand_wakes").as_primitive::<UInt64Type>().values().iter().sum::<u64>();
        }
        assert!(dir.join(format!("levels/policy=governor/part-{number:06}.parquet")).exists());
    }
    assert_eq!((rows as u64, wakes), (report.machines, report.demand_wakes));
    assert!((net - report.books.net.low().0).abs() < 1e-6 * net.abs().max(1.0));
    let again = simulate(machines(1).map(Ok), &options(1, Some(&dir)), &|_| true);
    let error = again.unwrap_err().to_string();
    assert!(error.contains("machines/policy=governor exists"), "{error}");
}

#[test]
fn a_directory_takes_several_policies_and_only_runs_that_came_to_their_end() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("fleet");
    let run = |kind, number, most: u64| {
        let policy = PolicyConfig::new(kind);
        let options = FleetOptions { policy, ..options(1, Some(&dir)) };
        simulate(machines(number).map(Ok), &options, &|done| done < most)
    };
    let names = || -> Vec<String> {
        let found = fs::read_dir(&dir).unwrap();
        let mut names: Vec<_> =
            found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    // The first part has 64 machines: there are tables, but no whole ones.
    run(PolicyKind::Never, 70, 66).unwrap_err();
    assert_eq!(names(), [".incomplete"]);
    run(PolicyKind::Never, 3, u64::MAX).unwrap();
    run(PolicyKind::Periodic, 3, u64::MAX).unwrap();
    assert_eq!(names(), ["levels", "machines"]);
    for policy in ["never", "periodic"] {
        let path = dir.join(format!("machines/policy={policy}"));
        assert_eq!(fs::read_dir(path).unwrap().count(), 1, "{policy}");
    }
}

#[test]
fn a_broken_row_ends_a_fleet_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("usage.csv");
    SyntheticUsage::new(FleetAverages::default(), 3, 3600, 300, 1).write(&path).unwrap();
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("m_9,0,30,400,,,,,\n");
    fs::write(&path, text).unwrap();
    let error = simulate(UsageFile::open(&path).unwrap(), &options(2, None), &|_| true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("usage.csv:37:") && error.contains("400"), "{error}");
}

#[test]
fn a_fleet_can_be_interrupted() {
    let found = simulate(machines(130).map(Ok), &options(1, None), &|done| done < 10);
    assert!(matches!(found, Err(FleetError::Interrupted { machines: 10 })), "{found:?}");
}

fn tournament(jobs: usize) -> TournamentReport {
    let config = SimConfig::new(Bytes(16 * GIB), Bytes(512 << 20)).coarse();
    let (economics, rates) = energy(config.slice_bytes);
    let periodic = sweep(PolicyKind::Periodic, config.slice_bytes);
    let few = PolicyCandidate { settings: periodic.settings[..3].to_vec(), ..periodic };
    let options = TournamentOptions {
        config,
        step: Duration::from_secs(30),
        duration: Duration::from_hours(4),
        inputs: vec![
            TournamentInput::Generated { pattern: LoadPattern::Bursty, seed: 1 },
            TournamentInput::Generated { pattern: LoadPattern::Adversarial, seed: 2 },
        ],
        contestants: vec![
            PolicyCandidate::defaults(PolicyKind::Never),
            few,
            PolicyCandidate::defaults(PolicyKind::Governor),
        ],
        economics,
        rates,
        jobs,
    };
    hold(&options, &|_| true).unwrap()
}

#[test]
fn a_tournament_has_a_score_for_each_and_does_not_depend_on_threads() {
    let report = tournament(1);
    assert_eq!(report, tournament(2));
    let names: Vec<&str> = report.scores.iter().map(|score| score.policy.as_str()).collect();
    assert_eq!(names[..4], ["clairvoyant", "never", "periodic", "governor"]);
    assert_eq!(names.len(), 8);
    for score in &report.scores {
        match score.policy.as_str() {
            "never" => assert!(score.books.net_middle().abs() < 1e-12, "{score:?}"),
            "clairvoyant" => assert_eq!(score.share_of_clairvoyant, Some(1.0)),
            "periodic" => assert_eq!(score.settings_tried, 3),
            _ => assert!(score.loss_cap_joules.is_some()),
        }
        assert_eq!(score.unmet_pages, 0, "{score:?}");
        assert!(score.share_of_bound.is_some_and(|share| share <= 1.0), "{score:?}");
    }
    // The clairvoyant earns more than a policy that compacts on a timer.
    assert!(report.scores[0].books.net_middle() > report.scores[2].books.net_middle());
    assert_eq!(report.standings.len(), 4);
}

#[test]
fn the_governor_loses_at_most_what_its_cap_allows() {
    for score in tournament(2).scores {
        if let Some(cap) = score.loss_cap_joules {
            assert!(score.books.net_middle() >= -cap.0, "{score:?}");
        }
    }
}

#[test]
fn the_picture_has_a_row_for_each_input_and_a_name_for_each_policy() {
    let text = svg(&tournament(2));
    for word in ["<svg", "bursty, seed 1", "adversarial, seed 2", "governor", "periodic"] {
        assert!(text.contains(word), "{word}");
    }
}
