//! What a kdamond is to do, and the files that say so.

use std::ops::Range;
use std::time::Duration;

use ramslice_types::Bytes;

/// Which pages a scheme moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrateAction {
    /// Those that were not accessed, the longest idle first.
    Cold,
    /// Those that were accessed, the most often accessed first.
    Hot,
    /// None: pages that match are counted.
    CountOnly,
}

impl MigrateAction {
    /// The kernel's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "migrate_cold",
            Self::Hot => "migrate_hot",
            Self::CountOnly => "stat",
        }
    }
}

/// How often and how finely accesses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessSampling {
    /// Between two samples of a region, one page each.
    pub sample: Duration,
    /// Samples are summed up over this time. Ages are multiples of it.
    pub aggregation: Duration,
    /// The most regions that a kdamond tells apart. It has at least a quarter, so that none becomes
    /// so large that it always has some page in use.
    pub max_regions: u32,
}

impl AccessSampling {
    /// The fewest regions, whatever the most are; the kernel wants three.
    const LEAST_REGIONS: u32 = 10;

    /// Samples in an aggregation.
    pub fn samples(&self) -> u32 {
        let samples = self.aggregation.as_micros() / self.sample.as_micros().max(1);
        u32::try_from(samples).unwrap_or(u32::MAX).max(1)
    }
}

/// The scheme of a kdamond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateScheme {
    /// Which pages, and whether they move.
    pub action: MigrateAction,
    /// The node that they move to.
    pub target_node: u32,
    /// Regions with so many accesses in an aggregation; both ends belong to it.
    pub accesses: [u32; 2],
    /// Regions that have been so for at least so many aggregations.
    pub min_age: u32,
    /// Whether pages that were accessed since the last look move, or those that were not.
    pub accessed_pages: bool,
    /// The most that is tried in a second, moved or not. 0 means no limit to the kernel, so it is
    /// at least a page.
    pub bytes_per_second: Bytes,
    /// The most time that goes into it in a second.
    pub ms_per_second: u32,
    /// Control groups, by their paths below the mount point, whose pages stay.
    pub except: Vec<String>,
}

/// A kdamond that watches physical addresses, with one scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KdamondPlan {
    /// Physical addresses, ascending and disjoint.
    pub regions: Vec<Range<u64>>,
    /// How accesses are sampled.
    pub sampling: AccessSampling,
    /// What happens.
    pub scheme: MigrateScheme,
}

/// What a scheme has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchemeStats {
    /// Regions that matched, with what is free in them and what filters left out.
    pub tried: Bytes,
    /// What moved.
    pub applied: Bytes,
    /// How often the quota ended a second's work.
    pub quota_exceeded: u64,
}

impl KdamondPlan {
    /// Files below the context, with their text, in the order in which they are written: a count
    /// makes the folders that come after it.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut add = |name: String, value: String| files.push((name, value));
        let (sampling, scheme) = (&self.sampling, &self.scheme);
        for (name, time) in [
            ("sample_us", sampling.sample),
            ("aggr_us", sampling.aggregation),
            // Nothing of physical addresses is updated.
            ("update_us", Duration::from_mins(1).max(sampling.aggregation)),
        ] {
            add(format!("monitoring_attrs/intervals/{name}"), time.as_micros().to_string());
        }
        let most = sampling.max_regions.max(AccessSampling::LEAST_REGIONS);
        let least = (most / 4).max(AccessSampling::LEAST_REGIONS);
        for (name, count) in [("min", least), ("max", most)] {
            add(format!("monitoring_attrs/nr_regions/{name}"), count.to_string());
        }
        let regions = "targets/0/regions";
        add(format!("{regions}/nr_regions"), self.regions.len().to_string());
        for (index, region) in self.regions.iter().enumerate() {
            add(format!("{regions}/{index}/start"), region.start.to_string());
            add(format!("{regions}/{index}/end"), region.end.to_string());
        }
        let mut add = |name: &str, value: String| files.push((format!("schemes/0/{name}"), value));
        add("target_nid", scheme.target_node.to_string());
        let [least, most] = scheme.accesses;
        for (name, range) in [
            ("sz", [0, u64::MAX]),
            ("nr_accesses", [least.into(), most.into()]),
            ("age", [scheme.min_age.into(), u32::MAX.into()]),
        ] {
            add(&format!("access_pattern/{name}/min"), range[0].to_string());
            add(&format!("access_pattern/{name}/max"), range[1].to_string());
        }
        add("quotas/bytes", scheme.bytes_per_second.0.max(4096).to_string());
        add("quotas/ms", scheme.ms_per_second.max(1).to_string());
        add("quotas/reset_interval_ms", "1000".to_owned());
        // With all weights 0, regions come in the order of addresses.
        for (name, weight) in [("sz", 0), ("nr_accesses", 500), ("age", 500)] {
            add(&format!("quotas/weights/{name}_permil"), weight.to_string());
        }
        add("filters/nr_filters", (1 + scheme.except.len()).to_string());
        add("filters/0/type", "young".to_owned());
        // Pages that match are left out.
        add("filters/0/matching", if scheme.accessed_pages { "N" } else { "Y" }.to_owned());
        for (index, group) in (1..).zip(&scheme.except) {
            add(&format!("filters/{index}/type"), "memcg".to_owned());
            add(&format!("filters/{index}/memcg_path"), group.clone());
            add(&format!("filters/{index}/matching"), "Y".to_owned());
        }
        files
    }
}
