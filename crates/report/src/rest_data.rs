//! Data of the benchmark of cold memory: how long slices would rest, and how often programs reach
//! what lies in them.

/// What slices with cold values would rest, by where hot and cold values lie.
#[derive(Debug, Clone)]
pub struct RestStudy {
    /// How figures call it.
    pub name: String,
    /// What was varied between runs.
    pub varied: VariedLoad,
    /// Times without an access after which a slice begins to rest, in seconds, ascending.
    pub thresholds_seconds: Vec<f64>,
    /// A curve for each place of values and each load; all of one place together.
    pub curves: Vec<RestCurve>,
    /// The load that is drawn against all thresholds.
    pub load: u32,
    /// The threshold that is drawn against all loads: its place among them.
    pub threshold: usize,
}

/// What differs between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariedLoad {
    /// Thousands of transactions a second.
    Rate,
    /// Size of the values, in MiB.
    Size,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RestCurve {
    /// Where hot and cold values lie: `separated`, `one-area`, `overflowing`.
    pub places: String,
    /// Its load, as [`VariedLoad`] says.
    pub load: u32,
    /// The share of the time that the slices rest, for each threshold.
    pub shares: Vec<f64>,
}

/// Shares of accesses to values that reach the cold area.
#[derive(Debug, Clone)]
pub struct ColdAccesses {
    /// How figures call it.
    pub name: String,
    /// By the load, in thousands of transactions a second.
    pub rates: Vec<ColdAccessShare>,
}

/// At one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColdAccessShare {
    /// Thousands of transactions a second.
    pub ktps: u32,
    /// Of all accesses to values.
    pub share: f64,
    /// The same if the values were split by who knows how popular each is.
    pub clairvoyant: f64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two places, two rates and three thresholds.
    pub(crate) fn rest(name: &str) -> RestStudy {
        let curve = |places: &str, load, shares: [f64; 3]| RestCurve {
            places: places.to_owned(),
            load,
            shares: shares.to_vec(),
        };
        RestStudy {
            name: name.to_owned(),
            varied: VariedLoad::Rate,
            thresholds_seconds: vec![1e-6, 5e-5, 1e-2],
            curves: vec![
                curve("separated", 30, [0.99, 0.9, 0.1]),
                curve("separated", 90, [0.97, 0.7, 0.05]),
                curve("one-area", 30, [0.9, 0.2, 0.0]),
                curve("one-area", 90, [0.8, 0.05, 0.0]),
            ],
            load: 90,
            threshold: 1,
        }
    }
}
