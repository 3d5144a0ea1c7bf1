//! Physical quantities as newtypes over `f64`: joules, watts, seconds and what is made of them.

use std::fmt;
use std::ops::{Add, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A real number with a unit.
pub trait PhysicalQuantity: Copy + PartialOrd + fmt::Debug {
    /// The symbol of its unit, as in `mW/GiB`; empty for a plain ratio.
    const UNIT: &'static str;

    /// A quantity of this many units.
    fn of(value: f64) -> Self;

    /// The number of units.
    fn get(self) -> f64;
}

/// Quantities whose product has a unit of its own: watts times seconds are joules.
pub trait UnitProduct<Other: PhysicalQuantity>: PhysicalQuantity {
    /// The unit of the product.
    type Product: PhysicalQuantity;
}

macro_rules! physical {
    ($(#[$doc:meta])* $name:ident($unit:literal)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl PhysicalQuantity for $name {
            const UNIT: &'static str = $unit;

            fn of(value: f64) -> Self {
                Self(value)
            }

            fn get(self) -> f64 {
                self.0
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
    };
}

macro_rules! product {
    ($one:ident * $other:ident = $product:ident) => {
        impl UnitProduct<$other> for $one {
            type Product = $product;
        }

        impl Mul<$other> for $one {
            type Output = $product;
            fn mul(self, other: $other) -> $product {
                $product(self.0 * other.0)
            }
        }
    };
}

physical! {
    /// A number without a unit: a share, a factor, a count.
    Ratio("")
}
physical! {
    /// Energy.
    Joules("J")
}
physical! {
    /// Power.
    Watts("W")
}
physical! {
    /// Real time. A clock that may run slow does not give seconds by itself.
    Seconds("s")
}
physical! {
    /// Memory, in units of 2^30 bytes.
    Gibibytes("GiB")
}
physical! {
    /// Power of memory for its size.
    WattsPerGib("W/GiB")
}
physical! {
    /// Memory for a time.
    GibSeconds("GiB s")
}
physical! {
    /// Work of a CPU.
    Cycles("cycles")
}
physical! {
    /// Frequency of a CPU.
    Hertz("Hz")
}
physical! {
    /// Energy of a CPU for its work.
    JoulesPerCycle("J/cycle")
}
physical! {
    /// What something is worth or costs, in the one unit of a profile: joules, GiB hours, or money.
    /// Which unit that is, the profile says beside the number.
    Worth("")
}
physical! {
    /// Worth for each second that passes.
    WorthPerSecond("/s")
}
physical! {
    /// Worth for each GiB that is moved, read or faulted in.
    WorthPerGib("/GiB")
}
physical! {
    /// Worth for each GiB and second.
    WorthPerGibSecond("/GiB s")
}

product!(Watts * Seconds = Joules);
product!(WattsPerGib * GibSeconds = Joules);
product!(WattsPerGib * Gibibytes = Watts);
product!(Gibibytes * Seconds = GibSeconds);
product!(JoulesPerCycle * Cycles = Joules);
product!(WorthPerSecond * Seconds = Worth);
product!(WorthPerGib * Gibibytes = Worth);
product!(WorthPerGibSecond * GibSeconds = Worth);
product!(Worth * Ratio = Worth);
product!(Ratio * Ratio = Ratio);
product!(Joules * Ratio = Joules);
product!(Watts * Ratio = Watts);
product!(Seconds * Ratio = Seconds);
product!(Cycles * Ratio = Cycles);
product!(WattsPerGib * Ratio = WattsPerGib);
product!(GibSeconds * Ratio = GibSeconds);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_their_own_unit() {
        let saved: Joules = WattsPerGib(0.009_19) * (Gibibytes(2.0) * Seconds(50.0));
        assert!((saved.0 - 0.919).abs() < 1e-12);
        assert_eq!(<WattsPerGib as UnitProduct<GibSeconds>>::Product::UNIT, "J");
    }
}
