"""A line of the card that two rates on the same problems decide."""

from __future__ import annotations

from collections.abc import Sequence

from swerve.artifacts.claim import Verdict
from swerve.estimates import hundredths_interval
from swerve.statistics import paired_difference


def larger(claim: str, of: str, rates: Sequence[float], others: Sequence[float], said: str, *, null: str) -> Verdict:
    """Return the verdict that one rate is larger than another: the interval of the paired difference is above 0.

    Args:
        claim: a key of `CLAIMS`.
        of: what it is about.
        rates: of each problem, from 0 to 1.
        others: the other rate of the same problems.
        said: the claim in words, without its end.
        null: what the rate is compared with.
    """
    difference, _ = paired_difference(others, rates, bounds=(-1.0, 1.0))
    assert difference is not None, "there are problems"
    shown = difference.low > 0
    return Verdict(
        claim=claim,
        of=of,
        shown=shown,
        sentence=f"{'' if shown else 'Not shown: '}{said}: {hundredths_interval(difference, ' points', signed=True)}.",
        estimate=difference,
        unit="points",
        num=len(rates),
        null=null,
    )
