"""What a statistic returns: an estimate with its interval, and the results of tests. Free of numpy and torch."""

from __future__ import annotations

from dataclasses import dataclass

from swerve.text import number_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean (or another statistic) with its confidence interval.

    >>> print(Estimate(mean=0.5, low=0.25, high=0.75))
    0.50 (0.25 to 0.75)
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the mean with the ends of the interval."""
        return number_interval(self)

    def excludes(self, value: float) -> bool:
        """Return whether the value lies outside the interval; its ends belong to it."""
        return not self.low <= value <= self.high

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit, for a positive factor."""
        return Estimate(mean=self.mean * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedMean(Estimate):
    """A mean of non-negative values, many small and few large; read the median and the fraction above first."""

    reliable: bool = True
    """False: of lognormal values (sigma up to 2, up to 80% zeros) the interval may cover the mean in fewer than 90 of
    100 cases. True promises nothing where a few problems are far larger still and none of them was drawn."""
    median: Estimate | None = None
    """Median of the problems' means with its order-statistic interval; null with fewer than six problems, or where so
    many are equal that the interval has no width."""
    above: Estimate | None = None
    """Fraction of problems with a mean above the threshold."""
    threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation(Estimate):
    """A correlation with its interval."""

    p_value: float
    """Two-sided, of no correlation."""
    num_clusters: int

    @property
    def estimate(self) -> Estimate:
        """The correlation and its interval alone."""
        return Estimate(mean=self.mean, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemarResult:
    """Two classifiers compared on the same cases."""

    num: int
    num_first_only: int
    """Cases that only the first has right."""
    num_second_only: int
    difference: Estimate | None
    """Accuracy of the second minus that of the first."""
    p_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WilcoxonResult:
    """Paired values compared."""

    num_pairs: int
    median_difference: float
    """Second minus first."""
    statistic: float
    """Sum of the ranks of the positive differences."""
    p_value: float
    effect_size: float
    """Matched-pairs rank-biserial correlation: (positive - negative) / (positive + negative) sum of ranks."""
    sign_flip_p: float
    """P-value of a mean difference of 0, by sign flips. The signed-rank test is not of the mean: where differences are
    skewed the two can contradict. Of more than 12 pairs at least 1 / 2000, which stands for that and less."""
    p_adjusted: float | None = None
    """Of `p_value`, Benjamini and Hochberg's over all tests of the same report; None: a test on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingCurve:
    """What k samples of a problem are worth; means over the problems that have k samples or more."""

    k: int
    num_problems: int
    pass_at_k: Estimate | None
    """Probability that one of k samples is right."""
    pass_hat_k: Estimate | None
    """Probability that all k samples are right."""
    majority_at_k: Estimate | None
    """Accuracy of the majority vote; null where no sample has an answer (answers were not recorded)."""


def false_by_chance(num: int, confidence: float | None) -> str:
    r"""Return what a number of intervals implies for how many of them miss what they are of; empty of none.

    >>> print(*false_by_chance(212, 0.95).split(". "), sep="\n")
    Of the 212 intervals in this report some 5 to 8 do not hold the true value, and nobody can tell which
    In simulations 2.5 to 4.0% of such intervals missed it.
    >>> false_by_chance(32, 0.95).partition(". ")[0]
    'Of the 32 intervals in this report about 1 does not hold the true value, and nobody can tell which'
    >>> false_by_chance(212, 0.9)
    'Of the 212 intervals in this report about 21 do not hold the true value, and nobody can tell which.'
    """
    if not num or confidence is None:
        return ""
    rates = _MISSED if confidence == _SIMULATED_AT else (1 - confidence, 1 - confidence)
    few, many = (round(num * rate) for rate in rates)
    known = f"some {few} to {many} do" if few < many else f"about {few} {'does' if few == 1 else 'do'}"
    said = f"Of the {num:,} intervals in this report {known} not hold the true value, and nobody can tell which."
    if confidence != _SIMULATED_AT:
        return said
    low, high = (100 * rate for rate in _MISSED)
    return f"{said} In simulations {low:.1f} to {high:.1f}% of such intervals missed it."


_SIMULATED_AT, _MISSED = 0.95, (0.025, 0.040)
"""How many intervals of whole summaries missed, by world (`studies/planted`)."""
