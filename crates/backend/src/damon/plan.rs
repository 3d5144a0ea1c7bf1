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

/// A scheme of a kdamond that moves pages.
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
    /// Control groups whose pages stay. What is below a group is none of its own.
    pub except: Vec<ControlGroup>,
}

/// A control group. The kernel looks its path up when it is told, and then knows it by a number:
/// one that is made again under the same path has to be told again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControlGroup {
    /// Below the mount point, beginning with `/`.
    pub path: String,
    /// Of its folder.
    pub inode: u64,
}

/// A kdamond that watches physical addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KdamondPlan {
    /// Physical addresses, ascending and disjoint.
    pub regions: Vec<Range<u64>>,
    /// How accesses are sampled.
    pub sampling: AccessSampling,
    /// What happens. A second such scheme would find no region that has been idle for long: the
    /// age of what the first one has looked at is 0.
    pub scheme: MigrateScheme,
    /// Whether accesses of all regions can be read: then there is a second scheme, which matches
    /// all of them and does nothing.
    pub watched: bool,
}

/// The place of the scheme that matches all regions.
pub(super) const WATCHING_SCHEME: usize = 1;

/// A region as it was sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledRegion {
    /// Physical addresses.
    pub range: Range<u64>,
    /// In how many samples of the last aggregation it was accessed.
    pub accesses: u32,
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
        let sampling = &self.sampling;
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
        let in_scheme = |index: usize, files: Vec<(String, String)>| {
            files.into_iter().map(move |(name, value)| (format!("schemes/{index}/{name}"), value))
        };
        files.extend(in_scheme(0, self.scheme.files()));
        if self.watched {
            files.extend(in_scheme(WATCHING_SCHEME, all_regions()));
        }
        files
    }

    /// The kernel's words for what each scheme does.
    pub(super) fn actions(&self) -> Vec<&'static str> {
        let watching = self.watched.then_some(MigrateAction::CountOnly.name());
        [self.scheme.action.name()].into_iter().chain(watching).collect()
    }
}

fn access_pattern(accesses: [u32; 2], min_age: u32) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let [least, most] = accesses;
    for (name, range) in [
        ("sz", [0, u64::MAX]),
        ("nr_accesses", [least.into(), most.into()]),
        ("age", [min_age.into(), u32::MAX.into()]),
    ] {
        files.push((format!("access_pattern/{name}/min"), range[0].to_string()));
        files.push((format!("access_pattern/{name}/max"), range[1].to_string()));
    }
    files
}

/// A scheme that matches whatever is there, without limit: what it does costs nothing.
fn all_regions() -> Vec<(String, String)> {
    let mut files = access_pattern([0, u32::MAX], 0);
    for name in ["quotas/bytes", "quotas/ms", "filters/nr_filters"] {
        files.push((name.to_owned(), "0".to_owned()));
    }
    files
}

impl MigrateScheme {
    fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![("target_nid".to_owned(), self.target_node.to_string())];
        files.extend(access_pattern(self.accesses, self.min_age));
        let mut add = |name: &str, value: String| files.push((name.to_owned(), value));
        add("quotas/bytes", self.bytes_per_second.0.max(4096).to_string());
        add("quotas/ms", self.ms_per_second.max(1).to_string());
        add("quotas/reset_interval_ms", "1000".to_owned());
        // With all weights 0, regions come in the order of addresses.
        for (name, weight) in [("sz", 0), ("nr_accesses", 500), ("age", 500)] {
            add(&format!("quotas/weights/{name}_permil"), weight.to_string());
        }
        add("filters/nr_filters", (self.except.len() + 1).to_string());
        // The first that leaves a page out decides: whose it is comes first, because looking
        // whether a page is young makes it old.
        for (index, group) in self.except.iter().enumerate() {
            add(&format!("filters/{index}/type"), "memcg".to_owned());
            add(&format!("filters/{index}/memcg_path"), group.path.clone());
            add(&format!("filters/{index}/matching"), "Y".to_owned());
        }
        let young = format!("filters/{}", self.except.len());
        add(&format!("{young}/type"), "young".to_owned());
        // Pages that match are left out; by N, those that do not.
        let matching = if self.accessed_pages { "N" } else { "Y" };
        add(&format!("{young}/matching"), matching.to_owned());
        files
    }
}
