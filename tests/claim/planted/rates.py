"""The bars that every claim of the card meets on planted truths, and the rates that the card prints of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import swerve
from swerve.claim.rates import ClaimRates

RATES = Path(swerve.__file__).parent / "claim" / "rates.json"
RECORDS = "SWERVE_RECORD_RATES"
"""Set to 1, tests write what they measured in place of comparing it."""


def check_rates(claim: str, *, size: str, right: float, right_more: float, false: float, draws: int) -> None:
    """Check a claim's rates against the bars and against those that the card prints; or record them.

    Args:
        claim: a key of `claim_rates`.
        size: the planted effect, such as "a gain of 8 points on 200 problems".
        right: fraction of draws in which the claim is shown where this is planted.
        right_more: the same where 1.3 times as much is.
        false: fraction of draws in which it is shown where nothing is there; of several such truths the largest.
        draws: of each, at least.
    """
    rates = ClaimRates(size=size, right=right, right_more=right_more, false=false, draws=draws)
    said = f"{claim}: {rates!r}"
    assert right >= 0.80, said
    assert right_more >= 0.95, said
    assert false <= 0.09, said
    if os.environ.get(RECORDS) == "1":
        _record(claim, rates)
        return
    recorded = json.loads(RATES.read_text()).get(claim)
    assert recorded, f"{claim} has no recorded rates: run its test with {RECORDS}=1"
    known = ClaimRates.model_validate(recorded)
    assert known.size == size, f"{claim}: the planted size is another: run its test with {RECORDS}=1"
    for name in ("right", "right_more", "false"):
        before, now = getattr(known, name), getattr(rates, name)
        assert abs(before - now) <= 4 * _noise(before, known.draws, now, draws), (
            f"{name} is recorded as {before}; {said}"
        )


def _record(claim: str, rates: ClaimRates) -> None:
    """Write rates into the file, which tests beside this one may write as well."""
    with RATES.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = json.load(file)
        own = rates.model_dump(exclude={"designs"})
        measured = {name: round(value, 3) if isinstance(value, float) else value for name, value in own.items()}
        designs = known.get(claim, {}).get("designs", [])  # which have a command of their own
        known[claim] = {**measured, "designs": designs} if designs else measured
        write_rates(known)


def write_rates(known: dict[str, dict[str, Any]]) -> None:
    """Write all rates into the file, each design on a line of its own."""
    text = json.dumps(known, indent=2, sort_keys=True)
    lines = re.sub(r"\{\s+(\"[^{}]*?)\s+\}", lambda match: "{" + re.sub(r"\s*\n\s*", " ", match[1]) + "}", text)
    RATES.write_text(lines + "\n")


def _noise(first: float, num_first: int, second: float, num_second: int) -> float:
    """Return the standard error of the difference of two fractions, one success and one failure added."""
    chance = (first * num_first + second * num_second + 1) / (num_first + num_second + 2)
    return float((chance * (1 - chance) * (1 / num_first + 1 / num_second)) ** 0.5)
