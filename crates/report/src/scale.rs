//! From values to pixels, and the round values that are written along an axis.

/// A linear scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinearScale {
    from: (f64, f64),
    to: (f64, f64),
}

impl LinearScale {
    /// Values `from.0..from.1` lie at pixels `to.0..to.1`.
    pub(crate) fn new(from: (f64, f64), to: (f64, f64)) -> Self {
        // A range of one value lies in the middle of a range around it.
        let from = if from.1 > from.0 { from } else { (from.0 - 0.5, from.0 + 0.5) };
        Self { from, to }
    }

    /// The pixel of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        self.to.0 + (value - self.from.0) / (self.from.1 - self.from.0) * (self.to.1 - self.to.0)
    }

    /// Round values within the range, about `wanted` of them, with as many digits as distinguish
    /// them.
    pub(crate) fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let (low, high) = self.from;
        let step = step((high - low) / wanted.max(1) as f64);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|at| {
                let value = at as f64 * step;
                (value, grouped(&format!("{value:.digits$}")))
            })
            .collect()
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// The end of an axis: the value, rounded up to a step that fits.
pub(crate) fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let step = step(value / 8.0);
    (value / step - 1e-9).ceil() * step
}

/// Digits in groups of three, by thin spaces.
pub(crate) fn grouped(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("\u{2212}", rest));
    let (whole, fraction) = rest.find('.').map_or((rest, ""), |at| rest.split_at(at));
    let mut text = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && whole.len() > 4 {
            text.push('\u{2009}');
        }
        text.push(digit);
    }
    text + fraction
}

/// A value with three digits that count.
pub(crate) fn digits(value: f64) -> String {
    let places = if value == 0.0 { 0.0 } else { 2.0 - value.abs().log10().floor() };
    grouped(&format!("{value:.*}", places.clamp(0.0, 6.0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let texts = |range, wanted| {
            LinearScale::new(range, (0.0, 1.0))
                .ticks(wanted)
                .into_iter()
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts((0.0, 1.0), 4), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts((-3.0, 7.0), 5), ["\u{2212}2", "0", "2", "4", "6"]);
        assert_eq!(texts((0.0, 25_000.0), 3), ["0", "10\u{2009}000", "20\u{2009}000"]);
        assert_eq!(texts((7.0, 7.0), 2).len(), 3);
    }

    #[test]
    fn pixels_run_either_way() {
        let scale = LinearScale::new((0.0, 10.0), (100.0, 0.0));
        assert!((scale.at(2.5) - 75.0).abs() < 1e-9);
    }

    #[test]
    fn values_are_short_and_ends_are_round() {
        assert_eq!(
            [digits(0.012_345), digits(12.345), digits(-12_345.6)],
            ["0.0123", "12.3", "\u{2212}12\u{2009}346"]
        );
        assert!((ceiling(7.3) - 8.0).abs() < 1e-9 && (ceiling(0.0) - 1.0).abs() < 1e-9);
    }
}
