//! The verdict: one word and one sentence that follow from the net.

use ramslice_types::{Joules, PhysicalQuantity, Ratio};
use serde::Serialize;

use crate::costs::CostTerm;
use crate::interval::Interval;

/// Gain, loss, or neither for sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetSign {
    /// Everything was counted, and the whole interval is above 0.
    Gain,
    /// The whole interval is below 0. What was not counted are costs: they only add to that.
    Loss,
    /// The interval spans 0, or something that may outweigh it was not counted.
    Undecided,
}

/// The outcome in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnergyVerdict {
    /// In a word.
    pub sign: NetSign,
    /// In a sentence.
    pub sentence: String,
}

/// What decides.
pub(crate) struct VerdictGrounds<'a> {
    pub(crate) net: Interval<Joules>,
    pub(crate) share: Option<Interval<Ratio>>,
    /// Terms without a figure, and what each may reach until a net above 0 is eaten up.
    pub(crate) uncounted: &'a [(CostTerm, Option<String>)],
    /// The seconds were emulated.
    pub(crate) emulated: bool,
}

pub(crate) fn verdict(grounds: &VerdictGrounds<'_>) -> EnergyVerdict {
    let net = grounds.net;
    let joules = range(net);
    let share = grounds
        .share
        .map(|share| format!(", {} of the machine's energy", percent(share)))
        .unwrap_or_default();
    let model =
        if grounds.emulated { ", for the reference machine, by a model" } else { ", by a model" };
    let names = || {
        let names: Vec<&str> = grounds.uncounted.iter().map(|(term, _)| term.name()).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
            None => String::new(),
        }
    };
    if net.high().0 < 0.0 {
        let more = if grounds.uncounted.is_empty() {
            String::new()
        } else {
            format!(", before {} (not counted)", names())
        };
        let sentence = format!("Packing lost energy: net {joules}{share}{more}{model}.");
        return EnergyVerdict { sign: NetSign::Loss, sentence };
    }
    if net.low() == net.high() && net.contains_zero() {
        let sentence = format!("Undecided: the net is 0 J{model}.");
        return EnergyVerdict { sign: NetSign::Undecided, sentence };
    }
    if net.contains_zero() {
        let sentence =
            format!("Undecided: the net lies between {joules}{share}, which includes 0{model}.");
        return EnergyVerdict {
            sign: NetSign::Undecided,
            sentence: sentence.replacen(" to ", " and ", 1),
        };
    }
    if grounds.uncounted.is_empty() {
        let sentence = format!("Packing saved energy: net {joules}{share}{model}.");
        return EnergyVerdict { sign: NetSign::Gain, sentence };
    }
    let conditions: Vec<&str> =
        grounds.uncounted.iter().filter_map(|(_, condition)| condition.as_deref()).collect();
    let condition = if conditions.is_empty() {
        String::new()
    } else {
        format!("; a gain only if {}", conditions.join(" and "))
    };
    let sentence = format!("Undecided: {joules} net{model}, but without {}{condition}.", names());
    EnergyVerdict { sign: NetSign::Undecided, sentence }
}

/// `1.20 to 3.40 J`, with the prefix of the larger end.
pub fn range<Q: PhysicalQuantity>(value: Interval<Q>) -> String {
    let (low, high) = (value.low().get(), value.high().get());
    let (factor, prefix) = prefix(low.abs().max(high.abs()));
    let (low_text, high_text) = (digits(low * factor), digits(high * factor));
    if low_text == high_text {
        return format!("{low_text} {prefix}{}", Q::UNIT);
    }
    format!("{low_text} to {high_text} {prefix}{}", Q::UNIT)
}

/// `0.012 to 0.034 %`.
pub fn percent(share: Interval<Ratio>) -> String {
    let (low, high) = (digits(share.low().0 * 100.0), digits(share.high().0 * 100.0));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}

/// The factor to the unit with the prefix that leaves at least 1.
fn prefix(value: f64) -> (f64, &'static str) {
    match value {
        v if v == 0.0 || (1.0..1e3).contains(&v) => (1.0, ""),
        v if v >= 1e9 => (1e-9, "G"),
        v if v >= 1e6 => (1e-6, "M"),
        v if v >= 1e3 => (1e-3, "k"),
        v if v >= 1e-3 => (1e3, "m"),
        v if v >= 1e-6 => (1e6, "u"),
        _ => (1e9, "n"),
    }
}

/// Three digits that count.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.0005 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(low: f64, high: f64) -> Interval<Joules> {
        Interval::new(Joules(low), Joules(high)).unwrap()
    }

    fn judge(net: Interval<Joules>, uncounted: &[(CostTerm, Option<String>)]) -> EnergyVerdict {
        verdict(&VerdictGrounds { net, share: None, uncounted, emulated: false })
    }

    #[test]
    fn figures_have_three_digits_and_one_prefix() {
        assert_eq!(range(net(0.0012, 3.4)), "0.001 to 3.40 J");
        assert_eq!(range(net(-0.04, 0.0123)), "-40.0 to 12.3 mJ");
        assert_eq!(range(net(0.0, 0.0)), "0 J");
        assert_eq!(range(net(1700.0, 1700.0)), "1.70 kJ");
    }

    #[test]
    fn an_interval_that_spans_zero_is_undecided() {
        for (low, high, sign) in [
            (-1.0, 1.0, NetSign::Undecided),
            (0.0, 1.0, NetSign::Undecided),
            (-1.0, 0.0, NetSign::Undecided),
            (0.1, 1.0, NetSign::Gain),
            (-1.0, -0.1, NetSign::Loss),
        ] {
            let verdict = judge(net(low, high), &[]);
            assert_eq!(verdict.sign, sign, "{low} {high}");
            assert_eq!(verdict.sentence.starts_with("Undecided"), sign == NetSign::Undecided);
        }
        assert!(judge(net(0.0, 0.0), &[]).sentence.contains("the net is 0 J"));
        assert!(judge(net(-1.0, 2.0), &[]).sentence.contains("between -1.00 and 2.00 J, which"));
    }

    #[test]
    fn uncounted_costs_cannot_make_a_gain_but_a_loss_stays_one() {
        let missing = [(CostTerm::RunTime, Some("the work took at most 0.1 % longer".to_owned()))];
        let verdict = judge(net(0.1, 1.0), &missing);
        assert_eq!(verdict.sign, NetSign::Undecided);
        assert!(verdict.sentence.contains("only if the work took"), "{}", verdict.sentence);
        assert_eq!(judge(net(-1.0, -0.1), &missing).sign, NetSign::Loss);
    }
}
