# SPDX-License-Identifier: GPL-2.0-or-later
"""Means, ratios and equivalence, each with its 95% interval; the methods are scipy's.

Ratios are compared on the logarithm, so that a ratio and its inverse are the same finding.
"""

import statistics

import numpy
from scipy import stats

CONFIDENCE = 0.95


def t_quantile(p, df):
    """The value that Student's t with df degrees of freedom stays below with probability p."""
    return float(stats.t.ppf(p, df))


def mean(values):
    """The mean and its 95% interval (Student's t); no interval below two values."""
    centre = statistics.fmean(values)
    if len(values) < 2:
        return centre, None
    if len(set(values)) == 1:
        return centre, [centre, centre]
    interval = stats.ttest_1samp(values, 0).confidence_interval(CONFIDENCE)
    return centre, [float(interval.low), float(interval.high)]


def mean_entry(name, unit, values, **more):
    """An entry that is a mean."""
    value, ci95 = mean(values)
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "values": values,
        "n": len(values),
        "ci95": ci95,
    } | more


def pooled_entry(name, unit, parts, wholes, resamples=2000, **more):
    """An entry that is the sum of parts over that of wholes, pairwise of one boot each.

    Its interval is the middle 95% of that of bootstrap resamples of boots.
    """
    ours, all_of = numpy.asarray(parts), numpy.asarray(wholes)
    ci95 = None
    if len(parts) > 1:
        chance = numpy.random.default_rng(len(parts))
        drawn = chance.integers(len(parts), size=(resamples, len(parts)))
        shares = ours[drawn].sum(axis=1) / all_of[drawn].sum(axis=1)
        ci95 = [float(end) for end in numpy.quantile(shares, [0.025, 0.975])]
    return {
        "name": name,
        "value": float(ours.sum() / all_of.sum()),
        "unit": unit,
        "values": list(parts),
        "wholes": list(wholes),
        "n": len(parts),
        "ci95": ci95,
    } | more


def median(values):
    """The median and its 95% interval by order statistics (the sign test's); none below 6 values.

    The interval assumes nothing about the distribution.
    """
    ordered, number = sorted(values), len(values)
    # The largest cut at each end that leaves at most 2.5% of probability beyond it.
    cut = int(stats.binom.ppf((1 - CONFIDENCE) / 2, number, 0.5))
    if stats.binom.cdf(cut, number, 0.5) <= (1 - CONFIDENCE) / 2:
        cut += 1
    return statistics.median(ordered), [ordered[cut - 1], ordered[number - cut]] if cut else None


def share(values):
    """The share of ones among zeros and ones, and its 95% interval (Wilson 1927)."""
    found = stats.binomtest(sum(values), len(values)).proportion_ci(CONFIDENCE, method="wilson")
    return statistics.fmean(values), [float(found.low), float(found.high)]


def largest(values, resamples=2000):
    """The largest value, and the middle 95% of the largest values of bootstrap resamples.

    The interval ends at the largest value: beyond what was seen, nothing is known.
    """
    if len(values) < 2:
        return max(values), None
    chance = numpy.random.default_rng(len(values))
    drawn = chance.choice(numpy.asarray(values), (resamples, len(values))).max(axis=1)
    # Values that were seen, not values between them.
    ends = numpy.quantile(drawn, [0.025, 0.975], method="nearest")
    return max(values), [float(end) for end in ends]


def ratio(a, b):
    """a over b, with its 95% interval (Welch's test on logarithms)."""
    if len(a) < 2 or len(b) < 2:
        return statistics.fmean(a) / statistics.fmean(b), None
    logs = numpy.log(a), numpy.log(b)
    centre = float(numpy.exp(logs[0].mean() - logs[1].mean()))
    if not logs[0].std() and not logs[1].std():
        return centre, [centre, centre]
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return centre, [float(numpy.exp(interval.low)), float(numpy.exp(interval.high))]


def equivalent(a, b, margin):
    """The p of two one-sided tests (TOST, Schuirmann 1987): that a/b is within 1 +- margin.

    It is the larger p of "a/b is below 1 - margin" and "a/b is above 1 + margin".
    """
    if len(a) < 2 or len(b) < 2:
        return None
    logs = numpy.log(a), numpy.log(b)
    if not logs[0].std() and not logs[1].std():
        return 0.0 if abs(logs[0].mean() - logs[1].mean()) < margin else 1.0
    below = stats.ttest_ind(logs[0] - numpy.log(1 - margin), logs[1], equal_var=False,
                            alternative="greater")
    above = stats.ttest_ind(logs[0] - numpy.log(1 + margin), logs[1], equal_var=False,
                            alternative="less")
    return float(max(below.pvalue, above.pvalue))
