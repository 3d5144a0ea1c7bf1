//! Intervals: a figure whose true value lies somewhere between two ends, both included.

use std::ops::{Add, Sub};

use ramslice_types::{PhysicalQuantity, Ratio, UnitProduct};
use serde::Serialize;
use thiserror::Error;

/// Ends that are no interval.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum IntervalError {
    /// The low end is above the high one.
    #[error("the low end {low} is above the high end {high}")]
    Inverted {
        /// The low end.
        low: f64,
        /// The high end.
        high: f64,
    },
    /// An end is infinite or not a number.
    #[error("the ends {low} and {high} must be finite numbers")]
    NotFinite {
        /// The low end.
        low: f64,
        /// The high end.
        high: f64,
    },
}

/// What is known of a quantity: it is at least `low` and at most `high`.
///
/// Both ends are finite and in order. Arithmetic gives the smallest interval that holds every
/// result of one value from each side; each end is rounded as `f64` rounds, nothing is widened. As
/// JSON: `{"low": 1.0, "high": 2.0}`, with the unit in the name of the field that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Interval<Q> {
    low: Q,
    high: Q,
}

impl<Q: PhysicalQuantity> Interval<Q> {
    /// From `low` to `high`.
    ///
    /// # Errors
    /// If they are the wrong way round, or not finite.
    pub fn new(low: Q, high: Q) -> Result<Self, IntervalError> {
        let (l, h) = (low.get(), high.get());
        if !l.is_finite() || !h.is_finite() {
            return Err(IntervalError::NotFinite { low: l, high: h });
        }
        if l > h {
            return Err(IntervalError::Inverted { low: l, high: h });
        }
        Ok(Self { low, high })
    }

    /// A value that is known exactly. Panics if it is not finite.
    #[must_use]
    pub fn exactly(value: Q) -> Self {
        assert!(value.get().is_finite(), "{value:?} is no value of an interval");
        Self { low: value, high: value }
    }

    /// The smallest interval that holds both values.
    #[must_use]
    pub fn between(one: Q, other: Q) -> Self {
        let (a, b) = (Self::exactly(one), Self::exactly(other));
        if one <= other { Self { high: b.high, ..a } } else { Self { high: a.high, ..b } }
    }

    /// Nothing at all, exactly.
    #[must_use]
    pub fn zero() -> Self {
        Self::exactly(Q::of(0.0))
    }

    /// The low end.
    pub fn low(&self) -> Q {
        self.low
    }

    /// The high end.
    pub fn high(&self) -> Q {
        self.high
    }

    /// Whether the value may be this one.
    pub fn contains(&self, value: Q) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether the value may be 0, so that its sign is undecided.
    pub fn contains_zero(&self) -> bool {
        self.contains(Q::of(0.0))
    }

    /// Whether some value lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// The product, with its own unit.
    #[must_use]
    pub fn times<Other: PhysicalQuantity>(self, other: Interval<Other>) -> Interval<Q::Product>
    where
        Q: UnitProduct<Other>,
    {
        let ends = [self.low.get(), self.high.get()];
        let products = ends.map(|end| [end * other.low.get(), end * other.high.get()]);
        let all = products.as_flattened();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Interval { low: Q::Product::of(low), high: Q::Product::of(high) }
    }

    /// The product with a plain number.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self
    where
        Q: UnitProduct<Ratio, Product = Q>,
    {
        self.times(Interval::exactly(Ratio(factor)))
    }

    /// The quotient, in the unit `R`; nothing if the divisor may be 0.
    #[must_use]
    pub fn per<Other: PhysicalQuantity, R: PhysicalQuantity>(
        self,
        other: Interval<Other>,
    ) -> Option<Interval<R>> {
        if other.contains_zero() {
            return None;
        }
        let ends = [self.low.get(), self.high.get()];
        let all = ends.map(|end| [end / other.low.get(), end / other.high.get()]);
        let all = all.as_flattened();
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Interval::new(R::of(low), R::of(high)).ok()
    }

    /// The same with what is below 0 cut off, for what cannot be negative.
    #[must_use]
    pub fn at_least_zero(self) -> Self {
        let cut = |end: Q| Q::of(end.get().max(0.0));
        Self { low: cut(self.low), high: cut(self.high) }
    }

    /// From 0 to the high end: some or all of it may not be there. For what is not negative.
    #[must_use]
    pub fn or_nothing(self) -> Self {
        Self { low: Q::of(self.low.get().min(0.0)), high: Q::of(self.high.get().max(0.0)) }
    }
}

impl<Q: PhysicalQuantity + Add<Output = Q>> Add for Interval<Q> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, high: self.high + other.high }
    }
}

impl<Q: PhysicalQuantity + Sub<Output = Q>> Sub for Interval<Q> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { low: self.low - other.high, high: self.high - other.low }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ramslice_types::{Hertz, Joules, JoulesPerCycle, Seconds, Watts};

    use super::*;

    #[test]
    fn ends_are_checked() {
        assert!(Interval::new(Joules(1.0), Joules(2.0)).is_ok());
        assert_eq!(
            Interval::new(Joules(2.0), Joules(1.0)),
            Err(IntervalError::Inverted { low: 2.0, high: 1.0 })
        );
        for (low, high) in
            [(f64::NAN, 1.0), (1.0, f64::NAN), (0.0, f64::INFINITY), (f64::NEG_INFINITY, 0.0)]
        {
            assert!(matches!(
                Interval::new(Joules(low), Joules(high)),
                Err(IntervalError::NotFinite { .. })
            ));
        }
    }

    #[test]
    fn a_quotient_by_what_may_be_zero_is_nothing() {
        let power = Interval::exactly(Watts(10.0));
        let none: Option<Interval<JoulesPerCycle>> =
            power.per(Interval::new(Hertz(0.0), Hertz(1.0)).unwrap());
        assert_eq!(none, None);
        let some: Interval<JoulesPerCycle> = power.per(Interval::exactly(Hertz(3.8e9))).unwrap();
        assert!((some.low().0 - 2.631_578_947e-9).abs() < 1e-17);
    }

    /// Whole numbers small enough that sums and products of `f64` are exact.
    /// One in eight is 0: so often, an interval ends there.
    fn whole() -> impl Strategy<Value = f64> {
        prop_oneof![7 => (-1_000_000i32..=1_000_000).prop_map(f64::from), 1 => Just(0.0)]
    }

    fn interval() -> impl Strategy<Value = Interval<Ratio>> {
        (whole(), whole()).prop_map(|(a, b)| Interval::between(Ratio(a), Ratio(b)))
    }

    /// An interval and a value in it.
    fn inside() -> impl Strategy<Value = (Interval<Ratio>, Ratio)> {
        (whole(), 0u32..1_000_000, 0u32..1_000_000).prop_map(|(low, step, width)| {
            let (step, width) = (f64::from(step.min(width)), f64::from(width));
            (Interval::between(Ratio(low), Ratio(low + width)), Ratio(low + step))
        })
    }

    proptest! {
        #[test]
        fn results_hold_every_result_of_values((a, x) in inside(), (b, y) in inside()) {
            prop_assert!((a + b).contains(x + y));
            prop_assert!((a - b).contains(x - y));
            prop_assert!(a.times(b).contains(x * y));
            if let Some(quotient) = a.per::<_, Ratio>(b) {
                prop_assert!(quotient.contains(Ratio(x.0 / y.0)));
            }
        }

        #[test]
        fn ends_of_results_are_reached(a in interval(), b in interval()) {
            prop_assert_eq!((a + b).low(), a.low() + b.low());
            prop_assert_eq!((a + b).high(), a.high() + b.high());
            prop_assert_eq!((a - b).low(), a.low() - b.high());
            prop_assert_eq!((a - b).high(), a.high() - b.low());
            let corners = [a.low() * b.low(), a.low() * b.high(), a.high() * b.low(),
                a.high() * b.high()];
            prop_assert!(corners.contains(&a.times(b).low())
                && corners.contains(&a.times(b).high()));
        }

        #[test]
        fn sums_keep_the_laws_of_numbers(a in interval(), b in interval(), c in interval()) {
            prop_assert_eq!(a + b, b + a);
            prop_assert_eq!((a + b) + c, a + (b + c));
            prop_assert_eq!(a - b - c, a - (b + c));
            prop_assert_eq!(a.times(b), b.times(a));
            prop_assert_eq!(a + Interval::zero(), a);
            // Subtracting the same unknown twice does not cancel: both ends move apart.
            prop_assert!((a - a).contains_zero());
        }

        #[test]
        fn a_sign_is_undecided_exactly_when_both_signs_or_zero_are_inside(a in interval()) {
            prop_assert_eq!(a.contains_zero(), a.low().0 <= 0.0 && a.high().0 >= 0.0);
            prop_assert_eq!(a.contains_zero(), a.scaled(-1.0).contains_zero());
        }

        #[test]
        fn any_two_finite_values_make_one_interval_and_only_in_order(x in any::<f64>(),
            y in any::<f64>()) {
            let made = Interval::new(Seconds(x), Seconds(y));
            prop_assert_eq!(made.is_ok(), x.is_finite() && y.is_finite() && x <= y);
        }
    }
}
