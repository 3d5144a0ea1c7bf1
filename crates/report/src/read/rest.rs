//! Reads the kept results of the benchmark of cold memory, `results/bench-cold.json`, as far as
//! figures need them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::rest_data::{ColdAccessShare, ColdAccesses, RestCurve, RestStudy, VariedLoad};

/// The load at which results are judged, as the thesis chose it: thousands of transactions a
/// second, and MiB of values (of 20 GiB, at 1:32).
const RATE: u32 = 90;
const SIZE: u32 = 640;
/// Where the values of one area rest for a twentieth of the time, cold values are judged.
const JUDGED_SHARE: f64 = 0.05;
const SEPARATED: &str = "separated";
const ONE_AREA: &str = "one-area";

/// The results of a suite.
#[derive(Deserialize)]
pub(super) struct ResultsFile {
    pub(super) suite: String,
    entries: Vec<Value>,
}

/// An entry with curves of rest: `{places: {load: shares}}`; by size `{load: {places: shares}}`.
#[derive(Deserialize)]
struct RestEntry {
    thresholds_ns: Vec<f64>,
    curves: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
}

/// An entry with shares of accesses.
#[derive(Deserialize)]
struct AccessesEntry {
    ktps: Vec<u32>,
    of_accesses: Vec<f64>,
    clairvoyant: Vec<f64>,
}

impl ResultsFile {
    /// What figures draw, and what it is. Errors name the entry.
    pub(super) fn into_studies(
        self,
        name: &str,
    ) -> Result<(Vec<RestStudy>, Vec<ColdAccesses>, String), String> {
        if self.suite != "cold" {
            return Err(format!(
                "these are results of the suite `{}`, and there are figures of `cold` only",
                self.suite
            ));
        }
        let (mut rest, mut accesses) = (Vec::new(), Vec::new());
        for entry in self.entries {
            let Some(id) = entry.get("name").and_then(Value::as_str).map(str::to_owned) else {
                return Err("an entry has no name".to_owned());
            };
            let damaged = |why: String| format!("entry `{id}`: {why}");
            let parsed = |error: serde_json::Error| damaged(error.to_string());
            // The plain one is called as the file is
            let called = match id.rsplit_once("-80-20") {
                Some(_) => format!("{name}, 80% of accesses to a fifth"),
                None => name.to_owned(),
            };
            match id.as_str() {
                "eam-rest" | "eam-rest-80-20" | "eam-rest-sizes" => {
                    let varied =
                        if id.ends_with("-sizes") { VariedLoad::Size } else { VariedLoad::Rate };
                    let found: RestEntry = serde_json::from_value(entry).map_err(parsed)?;
                    rest.push(found.into_study(called, varied).map_err(damaged)?);
                }
                "eam-cold-accesses" | "eam-cold-accesses-80-20" => {
                    let found: AccessesEntry = serde_json::from_value(entry).map_err(parsed)?;
                    let rates = found.into_rates().map_err(damaged)?;
                    accesses.push(ColdAccesses { name: called, rates });
                }
                _ => {}
            }
        }
        if rest.is_empty() && accesses.is_empty() {
            return Err(
                "it has no entry with curves of rest: `ramlab bench cold` makes these".to_owned()
            );
        }
        let about = format!("rest of cold slices, {} entries", rest.len() + accesses.len());
        Ok((rest, accesses, about))
    }
}

impl RestEntry {
    fn into_study(self, name: String, varied: VariedLoad) -> Result<RestStudy, String> {
        let ascending = self.thresholds_ns.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || self.thresholds_ns.first().is_none_or(|&first| first <= 0.0) {
            return Err("thresholds_ns is not an ascending list of times".to_owned());
        }
        let mut curves = Vec::new();
        for (outer, inner) in self.curves {
            for (word, shares) in inner {
                let (places, load) = match varied {
                    VariedLoad::Rate => (outer.clone(), word),
                    VariedLoad::Size => (word, outer.clone()),
                };
                let load: u32 = load
                    .parse()
                    .map_err(|_| format!("curves: `{load}` is no load, a whole number"))?;
                if shares.len() != self.thresholds_ns.len() {
                    return Err(format!(
                        "curves: {places} at {load} has {} shares, and there are {} thresholds",
                        shares.len(),
                        self.thresholds_ns.len()
                    ));
                }
                if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
                    return Err(format!("curves: {places} at {load}: {share} is no share"));
                }
                curves.push(RestCurve { places, load, shares });
            }
        }
        // Ours first, then what it is compared with
        curves.sort_by_cached_key(|curve| {
            (curve.places != SEPARATED, curve.places.clone(), curve.load)
        });
        let wanted = if varied == VariedLoad::Rate { RATE } else { SIZE };
        let load = curves
            .iter()
            .map(|curve| curve.load)
            .min_by_key(|load| load.abs_diff(wanted))
            .ok_or("it has no curve")?;
        let judged = curves
            .iter()
            .find(|curve| curve.places == ONE_AREA && curve.load == load)
            .map_or(0, |curve| nearest(&curve.shares, JUDGED_SHARE));
        let thresholds_seconds = self.thresholds_ns.iter().map(|ns| ns * 1e-9).collect();
        Ok(RestStudy { name, varied, thresholds_seconds, curves, load, threshold: judged })
    }
}

/// Where a list has what is nearest to a value.
fn nearest(shares: &[f64], value: f64) -> usize {
    let distance = |at: usize| (shares[at] - value).abs();
    (0..shares.len()).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

impl AccessesEntry {
    fn into_rates(self) -> Result<Vec<ColdAccessShare>, String> {
        let Self { ktps, of_accesses, clairvoyant } = self;
        if ktps.len() != of_accesses.len() || ktps.len() != clairvoyant.len() {
            return Err(format!(
                "{} rates, {} shares and {} of the clairvoyant's",
                ktps.len(),
                of_accesses.len(),
                clairvoyant.len()
            ));
        }
        let shares = of_accesses.into_iter().zip(clairvoyant);
        Ok(ktps
            .into_iter()
            .zip(shares)
            .map(|(ktps, (share, clairvoyant))| ColdAccessShare { ktps, share, clairvoyant })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(curves: &str) -> String {
        format!(r#"{{"name": "eam-rest", "thresholds_ns": [1000, 50000], "curves": {curves}}}"#)
    }

    fn read(entries: &str) -> Result<(Vec<RestStudy>, Vec<ColdAccesses>, String), String> {
        let text = format!(r#"{{"suite": "cold", "entries": [{entries}]}}"#);
        serde_json::from_str::<ResultsFile>(&text).unwrap().into_studies("kept")
    }

    #[test]
    fn curves_are_read_ours_first_and_judged_where_one_area_rests_a_twentieth() {
        let text = entry(
            r#"{"one-area": {"90": [0.8, 0.06], "300": [0.5, 0.01]},
                "separated": {"90": [0.9, 0.7], "300": [0.8, 0.4]}}"#,
        );
        let (rest, accesses, about) = read(&text).unwrap();
        assert_eq!((rest.len(), accesses.len()), (1, 0));
        assert_eq!(about, "rest of cold slices, 1 entries");
        let order: Vec<_> = rest[0].curves.iter().map(|one| (&*one.places, one.load)).collect();
        let ours = [("separated", 90), ("separated", 300)];
        assert_eq!(order, [ours[0], ours[1], ("one-area", 90), ("one-area", 300)]);
        assert_eq!((rest[0].load, rest[0].threshold), (90, 1));
    }

    #[test]
    fn by_size_the_load_stands_outside() {
        let text = r#"{"name": "eam-rest-sizes", "thresholds_ns": [1000],
                       "curves": {"640": {"separated": [0.7]}, "832": {"separated": [0.6]}}}"#;
        let (rest, ..) = read(text).unwrap();
        assert_eq!(rest[0].varied, VariedLoad::Size);
        assert_eq!((rest[0].curves[1].load, rest[0].load), (832, 640));
    }

    #[test]
    fn accesses_are_read_by_rate() {
        let text = r#"{"name": "eam-cold-accesses-80-20", "ktps": [90], "of_accesses": [0.12],
                       "clairvoyant": [0.13]}"#;
        let (_, accesses, _) = read(text).unwrap();
        assert_eq!(accesses[0].name, "kept, 80% of accesses to a fifth");
        let wanted = ColdAccessShare { ktps: 90, share: 0.12, clairvoyant: 0.13 };
        assert_eq!(accesses[0].rates, [wanted]);
    }

    #[test]
    fn what_is_wrong_is_named_by_entry_and_curve() {
        for (entries, wanted) in [
            (entry(r#"{"separated": {"90": [0.9]}}"#), "separated at 90 has 1 shares, and there"),
            (entry(r#"{"separated": {"90": [0.9, 1.2]}}"#), "separated at 90: 1.2 is no share"),
            (entry(r#"{"separated": {"fast": [0.9, 0.2]}}"#), "`fast` is no load"),
            (entry("{}"), "entry `eam-rest`: it has no curve"),
            (entry("[]"), "entry `eam-rest`: invalid type: sequence"),
            (r#"{"name": "stream-pages"}"#.to_owned(), "no entry with curves of rest"),
            ("{}".to_owned(), "an entry has no name"),
        ] {
            let error = read(&entries).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        let other: ResultsFile =
            serde_json::from_str(r#"{"suite": "size", "entries": []}"#).unwrap();
        assert!(other.into_studies("kept").unwrap_err().contains("the suite `size`"));
    }
}
