//! Ids and quantities as newtypes: a bare number has no unit.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize,
            Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A slice: its physical address divided by the slice size. Ids have gaps where
    /// the address space has no memory.
    SliceId(u32)
}
id! {
    /// A page frame: a physical address divided by the page size.
    Pfn(u64)
}
id! {
    /// A NUMA node.
    NodeId(i32)
}
id! {
    /// Position of a zone in [`crate::Backend::zones`], over all nodes.
    ZoneIndex(u32)
}
id! {
    /// Number of a zone within its node; the same number means the same kind on every node.
    ZoneNumber(u32)
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize,
            Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);

            /// The difference, or zero when `other` is larger: counters read one after
            /// another may disagree by a few.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// `self / whole`, or 0 of an empty whole.
            pub fn share_of(self, whole: Self) -> f64 {
                if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 }
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, factor: u64) -> Self {
                Self(self.0.saturating_mul(factor))
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

quantity! {
    /// A number of base pages.
    Pages
}
quantity! {
    /// A number of bytes.
    Bytes
}
quantity! {
    /// Expected or measured CPU cost, in units of 100 cycles.
    Price
}

impl Pages {
    /// The size of these pages when one has `page_bytes`.
    pub fn bytes(self, page_bytes: Bytes) -> Bytes {
        page_bytes * self.0
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Bytes {
    /// One MiB.
    pub const MIB: Self = Self(1 << 20);

    /// As people type it, to be read back as the same number: `64MiB`, `1280MiB`.
    pub fn typed(self) -> String {
        const UNITS: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];
        let step = (self.0.trailing_zeros() / 10).min(UNITS.len() as u32 - 1);
        if self.0 == 0 {
            "0".to_owned()
        } else {
            format!("{}{}", self.0 >> (10 * step), UNITS[step as usize])
        }
    }

    /// How many whole pages of `page_bytes` fit.
    pub fn pages(self, page_bytes: Bytes) -> Pages {
        Pages(self.0.checked_div(page_bytes.0).unwrap_or(0))
    }
}

impl fmt::Display for Bytes {
    /// In the largest binary unit that leaves at least 1: `64 MiB`, `1.25 GiB`, `15.6 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut step = (self.0 | 1).ilog2() / 10;
        let mut value = self.0 as f64 / (1u64 << (10 * step)) as f64;
        if value >= 1023.95 {
            step += 1;
            value /= 1024.0;
        }
        let digits = match value {
            v if v.fract() == 0.0 => 0,
            v if v < 9.995 => 2,
            _ => 1,
        };
        f.pad(&format!("{value:.digits$} {}", UNITS[step as usize]))
    }
}

impl Price {
    /// In CPU cycles.
    pub fn cycles(self) -> u64 {
        self.0.saturating_mul(100)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Durations as whole microseconds, for fields named `_us`.
pub mod duration_us {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the whole microseconds.
    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_micros()).unwrap_or(u64::MAX))
    }

    /// Reads whole microseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_in_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (64 << 20, "64 MiB"),
            (5 << 28, "1.25 GiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (16_750_372_454, "15.6 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_size_to_be_typed_is_read_back_as_it_was() {
        for (bytes, text) in [
            (0, "0"),
            (1000, "1000"),
            (5 << 28, "1280MiB"),
            (1 << 30, "1GiB"),
            (1 << 60, "1048576TiB"),
        ] {
            assert_eq!(Bytes(bytes).typed(), text);
            assert_eq!(crate::parse_bytes(text), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn differences_of_counters_stop_at_zero() {
        assert_eq!(Pages(3) - Pages(5), Pages::ZERO);
    }

    #[test]
    fn a_share_of_nothing_is_zero() {
        assert!(Pages(3).share_of(Pages::ZERO).abs() < f64::EPSILON);
    }
}
