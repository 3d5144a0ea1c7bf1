# SPDX-License-Identifier: GPL-2.0-or-later
"""Means, ratios and equivalence, each with what it is uncertain by.

Ratios are compared on the logarithm, so that a ratio and its inverse are the same finding.
"""

import math
import random
import statistics


def _beta_fraction(a, b, x):
    """Continued fraction of the incomplete beta function (Lentz)."""
    tiny = 1e-300
    c, d = 1.0, 1 / max(abs(1 - (a + b) * x / (a + 1)), tiny)
    result = d
    for m in range(1, 300):
        for top in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                    -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + top * d
            c = 1 + top / c
            d = 1 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            result *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    return result


def t_cdf(t, df):
    """Probability that Student's t with df degrees of freedom is at most t."""
    x = df / (df + t * t)
    a, b = df / 2, 0.5
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) \
        if 0 < x < 1 else 0.0
    if x < (a + 1) / (a + b + 2):
        tail = front * _beta_fraction(a, b, x) / a
    else:
        tail = 1 - front * _beta_fraction(b, a, 1 - x) / b
    return 1 - tail / 2 if t > 0 else tail / 2


def t_quantile(p, df):
    """The t that t_cdf() gives p for."""
    low, high = -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def mean(values):
    """The mean and its 95% interval."""
    centre = statistics.fmean(values)
    if len(values) < 2:
        return centre, None
    half = t_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return centre, [centre - half, centre + half]


def median(values):
    """The median and its 95% interval by order statistics, which asks nothing of the distribution; none below 6 values."""
    ordered = sorted(values)
    number = len(ordered)
    # So many values at each end may be cut off: the chance that the median lies beyond is at most 2.5% on either side.
    cut, beyond = 0, 0.5 ** number
    while beyond <= 0.025:
        cut += 1
        beyond += math.comb(number, cut) * 0.5 ** number
    return statistics.median(ordered), [ordered[cut - 1], ordered[number - cut]] if cut else None


def share(values):
    """The share of ones among zeros and ones, and its 95% interval (Wilson 1927)."""
    number, z = len(values), statistics.NormalDist().inv_cdf(0.975)
    found = statistics.fmean(values)
    middle = (found + z * z / (2 * number)) / (1 + z * z / number)
    half = z / (1 + z * z / number) * math.sqrt(found * (1 - found) / number + z * z / (4 * number * number))
    return found, [max(middle - half, 0.0), min(middle + half, 1.0)]


def largest(values, resamples=2000):
    """The largest value, and the middle 95% of what it is in resamples. It ends there: beyond what was seen, nothing is known."""
    chance = random.Random(len(values))
    found = sorted(max(chance.choices(values, k=len(values))) for _ in range(resamples))
    return max(values), [found[int(0.025 * resamples)], found[int(0.975 * resamples)]] if len(values) > 1 else None


def _welch(a, b):
    """Difference of the means of logarithms, its standard error and degrees of freedom."""
    la, lb = [math.log(v) for v in a], [math.log(v) for v in b]
    va, vb = statistics.variance(la) / len(la), statistics.variance(lb) / len(lb)
    error = math.sqrt(va + vb)
    df = (va + vb) ** 2 / (va ** 2 / (len(la) - 1) + vb ** 2 / (len(lb) - 1)) if error else len(la) + len(lb) - 2
    return statistics.fmean(la) - statistics.fmean(lb), error, df


def ratio(a, b):
    """a over b, with its 95% interval (Welch's test on logarithms)."""
    if len(a) < 2 or len(b) < 2:
        return statistics.fmean(a) / statistics.fmean(b), None
    difference, error, df = _welch(a, b)
    half = t_quantile(0.975, df) * error
    return math.exp(difference), [math.exp(difference - half), math.exp(difference + half)]


def equivalent(a, b, margin):
    """Two one-sided tests: the larger p of "a/b is below 1 - margin" and "a/b is above 1 + margin"."""
    if len(a) < 2 or len(b) < 2:
        return None
    difference, error, df = _welch(a, b)
    if not error:
        return 0.0 if abs(difference) < margin else 1.0
    below = 1 - t_cdf((difference - math.log(1 - margin)) / error, df)
    above = t_cdf((difference - math.log(1 + margin)) / error, df)
    return max(below, above)
