"""What a line of the card rests on: how often its rule errs, or how large a difference would have been shown."""

from __future__ import annotations

from math import ceil

from swerve.claim.rates import claim_rates
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate


def chance(verdict: ClaimVerdict) -> str:
    """Return how often the rule of a line says it of two equal models, in whole hundredths rounded up."""
    rates = claim_rates()[verdict.claim]
    if rates.designs and verdict.false_rate is None:
        return f"the error rate of this rule is not known: {_UNSIMULATED}"
    rate = rates.false if verdict.false_rate is None else verdict.false_rate
    where = "such cards" if rates.designs else "cards of the size under Details"
    most = max(1, ceil(100 * rate - 1e-9))
    return f"error rate of this rule: of two equal models it says so on at most {most} of 100 {where}"


def could_show(verdict: ClaimVerdict) -> str:
    """Return what would have been shown, in whole points where it is 2 or more; empty where it is not known."""
    size, estimate = verdict.detectable, verdict.estimate
    if size is not None and isinstance(estimate, Estimate) and estimate.high - estimate.low > 2 * size:
        return f"{_HOW_LARGE}: its interval is wider than on the simulated cards of this size"
    if size is None:
        known = claim_rates()[verdict.claim].designs
        return f"{_HOW_LARGE}: {_UNSIMULATED}" if known else ""
    if verdict.claim == "base_reaches_gained":
        return f"it would be shown on 80 of 100 such cards where the old model needs {size:,.0f} tries for a right one"
    sign = "\N{MINUS SIGN}" if verdict.claim in _LOSSES else "+"
    at = f" at {_AT[verdict.claim]}" if verdict.claim in _AT else ""
    least = f"{sign}{100 * size:.{int(size < 0.0195)}f} points{at}"
    return f"a true difference of {least} would be shown on 80 of 100 such cards, a smaller one less often"


_HOW_LARGE = "how large a true difference must be to be shown here is not known"
_UNSIMULATED = "no cards like this one were simulated"


_LOSSES = ("accuracy_fell", "accuracy_fell_over_runs", "curves_cross", "forgot")
_AT = {"better_at_every_k": "the largest k", "curves_cross": "the largest k"}
