"""What a summary claims at a stated error of 5%, claim by claim, and whether it is true."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import Record
from swerve.estimates import Correlation, Estimate, McNemarResult, WilcoxonResult

LEVEL = 0.05
_KEYS = (
    "population",
    "category",
    "region",
    "policy",
    "selection",
    "control",
    "direction",
    "level",
    "correlate",
    "selector",
    "method",
    "budget",
    "divergence",
    "figure",
    "of",
    "part",
    "null",
)
"""Fields that say which of several records of a list one is."""
_REPEATED = (
    "causal.selections",
    "causal.difference",
    "entropy.means.normalised",
    "populations[reference_wrong_final_right]",
)
"""What says again what stands elsewhere: not walked."""
_ROUNDING = 1e-5
"""Measurements are made in single precision: an end this near to the truth holds it."""


LOOKED_FOR = {
    "mcnemar": "accuracies differ",
    "causal.policies[reference].selections[spike].effect": "effect of the checkpoint's token at the spike",
    "causal.policies[reference].selections[spike].checkpoint_minus_alternative": "against another token there",
    "causal.policies[reference].differences[random].difference": "effect at spikes beyond that at random positions",
    "recovery.selectors[js].auc": "JS ranks wrong steps above other tokens",
    "direction[js, ref].difference": "probability moved towards right rollouts",
    "cross_sampling.directions[checkpoint_into_reference].gap": "gap between the two models",
    "pivots.num_confirmed": "a confirmed pivot",
}
"""Intervals by which a reader sees that there is something, and what they are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure of a summary that states an error."""

    path: str
    """Such as `divergences.js`; entries of a list by what they are about."""
    interval: Estimate | None = None
    p_value: float | None = None


def walk(summary: ProbeSummary) -> Iterator[Claim]:
    """Yield every interval and every p-value of a summary; of those by checkpoint the final one's."""
    for name in type(summary).model_fields:
        yield from _walk(name, getattr(summary, name), summary.final)


def _walk(path: str, value: Any, final: str) -> Iterator[Claim]:
    if path in _REPEATED:
        return
    if isinstance(value, Record):
        yield from _of_record(path, value, final)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _walk(f"{path}.{name}", one, final)
    elif isinstance(value, tuple):
        for one in value:
            if isinstance(one, Record):
                yield from _walk(f"{path}{_key(one)}", one, final)
    else:
        yield from _leaf(path, value)


def _leaf(path: str, value: Any) -> Iterator[Claim]:
    if isinstance(value, Correlation):
        yield Claim(path=path, interval=value, p_value=value.p_value)
    elif isinstance(value, Estimate):
        yield Claim(path=path, interval=value)
        for name in ("median", "above"):  # what stands beside a mean of few problems
            yield from _leaf(f"{path}.{name}", getattr(value, name, None))
    elif isinstance(value, McNemarResult):
        yield Claim(path=path, interval=value.difference, p_value=value.p_value)
    elif isinstance(value, WilcoxonResult):
        yield Claim(path=path, p_value=value.p_value)
        yield Claim(path=f"{path}.p_adjusted", p_value=value.p_adjusted)
        yield Claim(path=f"{path}.sign_flip", p_value=value.sign_flip_p)


def _of_record(path: str, record: Record, final: str) -> Iterator[Claim]:
    label = getattr(record, "checkpoint", final)
    if isinstance(label, str) and label != final:
        return
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, float) and re.fullmatch(r"p_(value|adjusted)(_\w+)?", name):
            yield Claim(path=f"{path}.{name}", p_value=value)
        else:
            yield from _walk(f"{path}.{name}", value, final)


def _key(record: Record) -> str:
    names = [name for name in _KEYS if name in type(record).model_fields]
    if "source" in type(record).model_fields and "population" not in names:
        names.append("source")
    values = [str(getattr(record, name)) for name in names]
    return f"[{', '.join(values)}]" if values else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """What is true of a world, by path."""

    values: Mapping[str, float]
    """Of what an interval is of."""
    no_difference: frozenset[str]
    """Paths of tests of what is not there."""


def judge(claims: Iterator[Claim], truths: Truths) -> dict[str, bool]:
    """Return, for every claim whose truth is known, whether it is false; p-values are claims at 5%."""
    found: dict[str, bool] = {}
    for one in claims:
        truth = truths.values.get(one.path)
        if one.interval is not None and truth is not None and getattr(one.interval, "reliable", True) is not False:
            found[f"{one.path}: interval"] = misses(one.interval, truth)
        if one.p_value is not None and one.path in truths.no_difference:
            found[f"{one.path}: p"] = one.p_value < LEVEL
    return found


def misses(interval: Estimate, truth: float) -> bool:
    """Return whether an interval leaves the truth out by more than rounding."""
    slack = _ROUNDING * max(abs(truth), abs(interval.high - interval.low)) + 1e-6
    return not interval.low - slack <= truth <= interval.high + slack


def field(path: str) -> str:
    """Return what a claim is about, without which entry of a list it is.

    >>> field("regions[early].mean.js: interval")
    'regions.mean.js: interval'
    """
    return re.sub(r"\[[^\]]*\]", "", path)


def by_lot(share: float, rng: np.random.Generator) -> bool:
    """Return whether one of several units, drawn by lot, is among a share of them."""
    return bool(rng.random() < share)
