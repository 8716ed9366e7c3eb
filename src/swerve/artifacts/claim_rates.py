"""How often each claim of a card is right, and false, on planted models: measured, packaged, printed beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from swerve.artifacts.record import Record


class ClaimRates(Record):
    """How a claim did over draws of a known truth."""

    size: str
    """The planted effect that is detectable, in words."""
    right: float
    """Fraction of draws in which it is shown where that is planted."""
    right_more: float
    """The same of an effect 1.3 times as large."""
    false: float
    """Fraction of draws in which it is shown where nothing is there."""
    draws: int
    """Of each, at least."""


@cache
def claim_rates() -> Mapping[str, ClaimRates]:
    """Return the rates of every claim that a card can make, by its key, the `claim` of a verdict."""
    text = files("swerve").joinpath("claim", "rates.json").read_text(encoding="utf-8")
    return {claim: ClaimRates.model_validate(rates) for claim, rates in json.loads(text).items()}
