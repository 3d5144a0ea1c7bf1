//! Whose seconds: those of a real machine, or of one that is emulated and slow.

use std::time::Duration;

use ramslice_types::{GibSeconds, Gibibytes, Ratio, Seconds, UnitProduct};
use thiserror::Error;

use crate::interval::Interval;

const BYTES_PER_GIB: f64 = (1u64 << 30) as f64;
const MICROSECONDS: f64 = 1e6;

/// How many times slower an emulated machine is: seconds of one program there, divided by seconds
/// of the same program on the reference machine.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeFactor {
    factor: Interval<Ratio>,
    source: String,
}

/// A factor that cannot be.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("a time factor is above 0: it is {low}")]
pub struct TimeFactorError {
    /// The low end that was given.
    pub low: f64,
}

impl TimeFactor {
    /// The factor, and where it is from, in words.
    ///
    /// # Errors
    /// If it may be 0 or less.
    pub fn new(
        factor: Interval<Ratio>,
        source: impl Into<String>,
    ) -> Result<Self, TimeFactorError> {
        if factor.low().0 <= 0.0 {
            return Err(TimeFactorError { low: factor.low().0 });
        }
        Ok(Self { factor, source: source.into() })
    }

    /// The factor.
    pub fn factor(&self) -> Interval<Ratio> {
        self.factor
    }

    /// Where it is from.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The clock that samples were taken by. It alone makes [`Seconds`] of a sample's times.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleClock {
    /// It shows real seconds, and CPU cycles are real ones.
    Real,
    /// Instructions are emulated, so neither its seconds nor its cycles say anything of a real
    /// machine. Seconds are divided by the factor; costs come from counted operations at a
    /// reference machine's prices.
    Emulated(TimeFactor),
}

impl SampleClock {
    /// Real seconds for a time by this clock.
    pub fn seconds(&self, elapsed: Duration) -> Interval<Seconds> {
        self.real(Interval::exactly(Seconds(elapsed.as_secs_f64())))
    }

    /// Real memory-time for bytes times microseconds by this clock.
    pub fn gib_seconds(&self, byte_us: u128) -> Interval<GibSeconds> {
        self.real(Interval::exactly(GibSeconds(byte_us as f64 / BYTES_PER_GIB / MICROSECONDS)))
    }

    fn real<Q: UnitProduct<Ratio, Product = Q>>(&self, shown: Interval<Q>) -> Interval<Q> {
        match self {
            Self::Real => shown,
            // The factor's low end is above 0: the division is defined, or its result out of range.
            Self::Emulated(slower) => shown.per(slower.factor).unwrap_or(shown),
        }
    }

    /// Whether it shows real seconds.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real)
    }
}

/// Bytes as a quantity.
pub(crate) fn gib(bytes: u64) -> Gibibytes {
    Gibibytes(bytes as f64 / BYTES_PER_GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_seconds_shrink_by_the_factor_and_keep_its_doubt() {
        let minute = Duration::from_mins(1);
        assert_eq!(SampleClock::Real.seconds(minute), Interval::exactly(Seconds(60.0)));
        let slower =
            TimeFactor::new(Interval::new(Ratio(12.0), Ratio(20.0)).unwrap(), "a loop, timed")
                .unwrap();
        let real = SampleClock::Emulated(slower).seconds(minute);
        assert_eq!((real.low(), real.high()), (Seconds(3.0), Seconds(5.0)));
    }

    #[test]
    fn a_factor_that_may_be_zero_is_refused() {
        assert!(TimeFactor::new(Interval::new(Ratio(0.0), Ratio(20.0)).unwrap(), "none").is_err());
    }
}
