//! How often the page cache had what was looked up: both ratios, or why they are not known.

use ramslice_types::{CacheLookups, CacheRatios, LookupWindow};
use serde::Serialize;

/// Both ratios of the last interval with enough look-ups.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct PageCacheRatios {
    #[serde(skip)]
    window: LookupWindow,
    #[serde(flatten)]
    ratios: Option<CacheRatios>,
    /// Why there are none, or none since.
    why: Option<String>,
}

impl PageCacheRatios {
    /// Takes the counters as they are now, or why there are none.
    pub(super) fn add(&mut self, lookups: Result<CacheLookups, String>) {
        let lookups = match lookups {
            Ok(lookups) => lookups,
            Err(why) => {
                *self = Self { why: Some(why), ..Self::default() };
                return;
            }
        };
        match self.window.add(lookups) {
            Ok(ratios) => (self.ratios, self.why) = (Some(ratios), None),
            Err(unknown) => self.why = Some(unknown.to_string()),
        }
    }

    /// A sentence without its end.
    pub(super) fn words(&self) -> String {
        match (&self.ratios, &self.why) {
            (Some(ratios), None) => format!("page cache: {ratios}"),
            (Some(ratios), Some(_)) => format!("page cache: {ratios}; since then too few"),
            (None, why) => {
                let why = why.as_deref().unwrap_or("nothing was read so far");
                format!("page cache: hit ratio unknown: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::Pages;

    #[test]
    fn ratios_stay_until_there_are_others_and_the_reason_is_said() {
        let counted = |read| CacheLookups { read: Pages(read), ..CacheLookups::default() };
        let mut cache = PageCacheRatios::default();
        cache.add(Err("this system counts nothing".to_owned()));
        assert_eq!(cache.words(), "page cache: hit ratio unknown: this system counts nothing");
        cache.add(Ok(counted(0)));
        assert!(cache.words().contains("once so far"), "{}", cache.words());
        cache.add(Ok(counted(2000)));
        let ratios = "page cache: look-up hit ratio 1.000, disk-free ratio 1.000 of 2000 pages \
                      looked up";
        assert_eq!(cache.words(), ratios);
        cache.add(Ok(counted(2001)));
        assert_eq!(cache.words(), format!("{ratios}; since then too few"));
        let json = serde_json::to_value(&cache).unwrap();
        assert_eq!(json["lookup_hit_ratio"], 1.0);
    }
}
