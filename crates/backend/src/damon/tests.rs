//! DAMON's files in a folder: what is written, and what is refused.

use super::*;

/// Files for this many kdamonds, as the kernel makes them.
fn fake(kdamonds: usize) -> (tempfile::TempDir, DamonFiles) {
    let root = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = root.path().join(ADMIN).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("nr_kdamonds", "0\n");
    for index in 0..kdamonds {
        let context = format!("{index}/contexts/0");
        put(&format!("{index}/state"), "off\n");
        put(&format!("{index}/pid"), "-1\n");
        put(&format!("{index}/contexts/nr_contexts"), "0\n");
        put(&format!("{context}/avail_operations"), "vaddr\nfvaddr\npaddr\n");
        put(&format!("{context}/operations"), "vaddr\n");
        put(&format!("{context}/targets/nr_targets"), "0\n");
        put(&format!("{context}/schemes/nr_schemes"), "0\n");
        for (name, _) in plan().files() {
            put(&format!("{context}/{name}"), "0\n");
        }
        for scheme in 0..2 {
            let scheme = format!("{context}/schemes/{scheme}");
            put(&format!("{scheme}/action"), "stat\n");
            for name in ["sz_tried", "sz_applied", "qt_exceeds"] {
                put(&format!("{scheme}/stats/{name}"), "7\n");
            }
        }
        let tried = format!("{context}/schemes/1/tried_regions");
        put(&format!("{tried}/total_bytes"), "0\n");
        for (region, [start, end, accesses]) in
            [[0, 4096, 3], [4096, 1 << 27, 20]].iter().enumerate()
        {
            for (name, value) in [("start", start), ("end", end), ("nr_accesses", accesses)] {
                put(&format!("{tried}/{region}/{name}"), &format!("{value}\n"));
            }
        }
    }
    let damon = DamonFiles { pause: Duration::ZERO, ..DamonFiles::under(root.path()) };
    (root, damon)
}

fn plan() -> KdamondPlan {
    let scheme = MigrateScheme {
        action: MigrateAction::Cold,
        target_node: 1,
        accesses: [0, 0],
        min_age: 60,
        accessed_pages: false,
        bytes_per_second: Bytes(8 << 20),
        ms_per_second: 5,
        except: vec![ControlGroup { path: "/a.slice".to_owned(), inode: 7 }],
    };
    KdamondPlan {
        regions: vec![0..1 << 27, 1 << 28..1 << 29],
        sampling: AccessSampling {
            sample: Duration::from_millis(100),
            aggregation: Duration::from_secs(2),
            max_regions: 500,
        },
        scheme,
        watched: true,
    }
}

fn text(root: &tempfile::TempDir, name: &str) -> String {
    fs::read_to_string(root.path().join(ADMIN).join(name)).unwrap()
}

#[test]
fn a_kdamond_is_set_up_and_started() {
    let (root, damon) = fake(2);
    damon.start(&[plan(), plan()]).unwrap();
    assert_eq!(text(&root, "nr_kdamonds"), "2");
    for (name, value) in [
        ("state", "on"),
        ("contexts/nr_contexts", "1"),
        ("contexts/0/operations", "paddr"),
        ("contexts/0/monitoring_attrs/intervals/aggr_us", "2000000"),
        ("contexts/0/monitoring_attrs/nr_regions/min", "125"),
        ("contexts/0/monitoring_attrs/nr_regions/max", "500"),
        ("contexts/0/targets/0/regions/1/end", "536870912"),
        ("contexts/0/schemes/0/action", "migrate_cold"),
        ("contexts/0/schemes/0/target_nid", "1"),
        ("contexts/0/schemes/0/access_pattern/age/min", "60"),
        ("contexts/0/schemes/0/access_pattern/nr_accesses/max", "0"),
        ("contexts/0/schemes/0/quotas/bytes", "8388608"),
        ("contexts/0/schemes/0/filters/nr_filters", "2"),
        ("contexts/0/schemes/0/filters/0/memcg_path", "/a.slice"),
        ("contexts/0/schemes/0/filters/0/matching", "Y"),
        ("contexts/0/schemes/0/filters/1/type", "young"),
        ("contexts/0/schemes/nr_schemes", "2"),
        ("contexts/0/schemes/1/action", "stat"),
        ("contexts/0/schemes/1/access_pattern/nr_accesses/max", "4294967295"),
        ("contexts/0/schemes/1/quotas/bytes", "0"),
        ("contexts/0/schemes/1/filters/nr_filters", "0"),
    ] {
        assert_eq!(text(&root, &format!("1/{name}")), value, "{name}");
    }
}

#[test]
fn what_others_have_set_up_is_left_alone() {
    let (root, damon) = fake(1);
    fs::write(root.path().join(ADMIN).join("nr_kdamonds"), "1\n").unwrap();
    let error = damon.start(&[plan()]).unwrap_err();
    assert!(matches!(error, DamonError::InUse { count: 1 }), "{error}");
    assert_eq!(
        (text(&root, "0/state"), text(&root, "nr_kdamonds")),
        ("off\n".into(), "1\n".into())
    );
}

#[test]
fn kernels_that_cannot_do_it_are_refused_in_words() {
    let empty = tempfile::tempdir().unwrap();
    let error = DamonFiles::under(empty.path()).start(&[plan()]).unwrap_err();
    assert!(error.to_string().contains("CONFIG_DAMON_SYSFS"), "{error}");
    let (root, damon) = fake(1);
    fs::remove_file(root.path().join(ADMIN).join("0/contexts/0/schemes/0/target_nid")).unwrap();
    let error = damon.start(&[plan()]).unwrap_err();
    assert!(matches!(error, DamonError::TooOld), "{error}");
    assert_eq!(text(&root, "nr_kdamonds"), "0", "nothing stays behind");
    let able = root.path().join(ADMIN).join("0/contexts/0/avail_operations");
    fs::write(able, "vaddr\nfvaddr\n").unwrap();
    let error = damon.start(&[plan()]).unwrap_err();
    assert!(matches!(error, DamonError::NoPhysical), "{error}");
}

#[test]
fn a_kdamond_that_a_commit_ended_is_reported() {
    let (root, damon) = fake(1);
    damon.start(&[plan()]).unwrap();
    let error = damon.commit(0, &plan()).unwrap_err();
    assert!(matches!(error, DamonError::Stopped { index: 0 }), "{error}");
    fs::write(root.path().join(ADMIN).join("0/pid"), "77\n").unwrap();
    damon.commit(0, &plan()).unwrap();
    assert_eq!(
        (text(&root, "0/state"), damon.kdamonds().unwrap()),
        ("commit".into(), vec![Some(77)])
    );
    let done = SchemeStats { tried: Bytes(7), applied: Bytes(7), quota_exceeded: 7 };
    assert_eq!(damon.stats(0).unwrap(), done);
    damon.remove().unwrap();
    assert_eq!((text(&root, "0/state"), text(&root, "nr_kdamonds")), ("off".into(), "0".into()));
}

#[test]
fn accesses_are_read_of_the_regions_of_the_last_scheme() {
    let (root, damon) = fake(1);
    damon.start(&[plan()]).unwrap();
    let mut regions = damon.sampled_regions(0).unwrap();
    regions.sort_by_key(|region| region.range.start);
    assert_eq!(
        regions,
        [
            SampledRegion { range: 0..4096, accesses: 3 },
            SampledRegion { range: 4096..1 << 27, accesses: 20 },
        ]
    );
    assert_eq!(text(&root, "0/state"), "clear_schemes_tried_regions");
}

#[test]
fn a_quota_of_what_moves_is_never_without_limit() {
    let mut plan = plan();
    plan.scheme.bytes_per_second = Bytes(0);
    plan.scheme.ms_per_second = 0;
    let files = plan.files();
    for name in ["bytes", "ms"] {
        let found = files.iter().find(|(file, _)| *file == format!("schemes/0/quotas/{name}"));
        assert_ne!(found.unwrap().1, "0", "{name}");
    }
}

#[test]
fn cpu_time_is_that_of_user_and_system() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("proc/77");
    fs::create_dir_all(&folder).unwrap();
    let stat = "77 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 10 25 0 0 20 0 1 0 5000 0 0 \
                18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 \
                0\n";
    fs::write(folder.join("stat"), stat).unwrap();
    let damon = DamonFiles::under(root.path());
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    assert_eq!(damon.cpu_time(77), Some(Duration::from_secs_f64(35.0 / ticks)));
    assert_eq!(damon.cpu_time(78), None);
}
