"""Where the final checkpoint's divergence falls, each figure beside what it would be without training.

A figure says something of training only where it differs from all of its nulls. *Chance* has every position alike. The
reference's *entropy* takes the place of the divergence: whatever disturbs a model does so most where it is not sure.
*Noise models* (`engine.noise`) are as far from the reference as the checkpoint, in random directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_claims import DivergenceClaim, NullFigure, NullName
from swerve.artifacts.probe_findings import Divergence
from swerve.estimates import Estimate
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.entropy import forking_tokens
from swerve.probe.findings.parts import REGIONS, good_moves, style_tokens, token_regions
from swerve.probe.intervals import Mask, TokenIntervals
from swerve.statistics.intervals import draw_difference, share_difference
from swerve.statistics.ranking import auc_difference, auc_interval

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of one column, and of one column less others."""

    value: Callable[[Array], Estimate | None]
    """Of a column."""
    minus: Callable[[Array, Sequence[Array]], Estimate | None]
    """Of a column, less the mean of those of others, paired over problems."""
    num: int
    """Of what it counts."""
    confidence: float


def _area(tokens: TokenIntervals, positive: Mask, rows: Mask) -> _Figure:
    """Return the area under the ROC curve of a column as a score of some tokens."""
    clusters, confidence = tokens.problems[rows], tokens.intervals.confidence

    def value(own: Array) -> Estimate | None:
        return auc_interval(own[rows], positive[rows], clusters=clusters, confidence=confidence)

    def minus(own: Array, others: Sequence[Array]) -> Estimate | None:
        columns = [other[rows] for other in others]
        if all((column == column[0]).all() for column in columns):  # chance: the area is one half
            alone = value(own)
            return alone and Estimate(mean=alone.mean - 0.5, low=alone.low - 0.5, high=alone.high - 0.5)
        return auc_difference(own[rows], columns, positive[rows], clusters=clusters, confidence=confidence)

    return _Figure(value, minus, len(tokens.problems), confidence)


def _top(tokens: TokenIntervals, positive: Mask, split: Callable[[NDArray[Any]], Sequence[NDArray[Any]]]) -> _Figure:
    """Return the fraction of rollouts whose highest value is on some tokens; of equal ones it is on each in part."""
    intervals, marks = tokens.intervals, split(positive)
    of_rollouts = [own[0] for own, marked in zip(split(tokens.problems), marks, strict=True) if marked.any()]
    problems = np.array(of_rollouts)

    def hits(own: Array) -> Array:
        """Return of each rollout with such a token whether its highest value is on one."""
        rollouts = zip(split(own), marks, strict=True)
        return np.array([marked[values == values.max()].mean() for values, marked in rollouts if marked.any()])

    def value(own: Array) -> Estimate | None:
        return intervals.share(hits(own), problems)

    def minus(own: Array, others: Sequence[Array]) -> Estimate | None:
        apart = hits(own) - np.mean([hits(other) for other in others], axis=0)
        return intervals.mean(apart, problems, bounds=(-1.0, 1.0))

    return _Figure(value, minus, len(np.unique(tokens.problems)), intervals.confidence)


def _ratio(tokens: TokenIntervals) -> _Figure:
    """Return the ratio of the sums of two columns, `[2, N]`: what is inside, and everything."""
    how, clusters = tokens.intervals, tokens.problems
    minus = partial(share_difference, clusters=clusters, confidence=how.confidence)
    return _Figure(lambda own: how.ratio(own[0], own[1], clusters), minus, len(clusters), how.confidence)


Nulls = Mapping[NullName, Sequence[Array]]


def divergence_claims(
    last: Measurements, noise: Measurements | None, *, divergence: Divergence
) -> tuple[DivergenceClaim, ...]:
    """Return every figure about where a divergence falls, beside chance, the reference's entropy and noise models.

    A figure that does not exist is left out, as is a share of a divergence that is infinite somewhere.

    Args:
        last: the final checkpoint against the reference, on the headline population.
        noise: noise models against the reference, on the same rollouts; None where there are none.
        divergence: the column.
    """
    (pair,), models = last.pairs(), list(noise.pairs()) if noise else []
    own, tokens = pair.nats(divergence), last.over
    nulls: dict[NullName, list[Array]] = {"chance": [np.ones(len(own))], "entropy": [pair.nats("entropy_ref")]}
    if models:
        nulls["noise"] = [model.nats(divergence) for model in models]

    # Known wrong tokens, and the first of each rollout.
    inside, wrong = last.in_marked_rollouts, last.wrong
    first = wrong & ~np.concatenate([np.cumsum(marks) > marks for marks in last.split(wrong)])
    claims = []
    for of, positive, rows in (("first_wrong", first, inside & (first | ~wrong)), ("wrong", wrong, inside)):
        if positive.any():
            claims.append(_claim(_area(tokens, positive, rows), own, nulls, figure="auc", of=of))
            claims.append(_claim(_top(tokens, positive, last.split), own, nulls, figure="top", of=of))

    # Parts of the tokens.
    regions, categories = token_regions(last.lengths), np.array(last.categories, dtype=np.str_)
    claims.append(_share(tokens, own, nulls, forking_tokens(pair.columns["entropy_ref"])[0], of="uncertain"))
    claims.append(_share(tokens, own, nulls, style_tokens(last), of="style"))
    for number, region in enumerate(REGIONS):
        claims.append(_share(tokens, own, nulls, regions == number, of="third", part=region))
    for category in np.unique(categories).tolist():
        claims.append(_share(tokens, own, nulls, categories == category, of="category", part=category))

    # Tokens that moved the good way, of each noise model by its own moves.
    good, *of_noise = [good_moves(last, model) for model in (pair, *models)]
    if all(sequence.correct is not None for sequence in last.sequences):
        claims.append(_share(tokens, own, nulls, good, of_noise=of_noise, of="good"))
    return tuple(claim for claim in claims if claim is not None)


def _share(
    tokens: TokenIntervals,
    own: Array,
    nulls: Nulls,
    inside: Mask | None,
    *,
    of_noise: Sequence[Mask | None] = (),
    **key: str,
) -> DivergenceClaim | None:
    """Return the share of the divergence on some tokens, which may be others for each noise model."""
    masks = [mask for mask in (inside, *of_noise) if mask is not None]
    if len(masks) <= len(of_noise) or not masks[0].any() or masks[0].all():
        return None

    def parted(column: Array, mask: Mask = masks[0]) -> Array:
        return np.stack([np.where(mask, column, 0.0), column])

    pairs: dict[NullName, list[Array]] = {name: list(map(parted, columns)) for name, columns in nulls.items()}
    if of_noise:
        pairs["noise"] = list(map(parted, nulls["noise"], masks[1:]))
    return _claim(_ratio(tokens), parted(own), pairs, figure="share", **key)


def _claim(figure: _Figure, own: Array, nulls: Nulls, /, **key: str) -> DivergenceClaim | None:
    """Return a figure of a column beside those of its nulls; None where it does not exist.

    Args:
        figure: which.
        own: the checkpoint's column.
        nulls: the columns that take its place.
        key: what the figure is called.
    """
    estimate = figure.value(own)
    if estimate is None:
        return None
    entries = []
    # One entry a null; of several columns the mean, their range, and an interval that has their spread in it.
    for name, columns in nulls.items():
        values = [known.mean for column in columns if (known := figure.value(column)) is not None]
        if len(values) < len(columns):
            continue
        apart, ends = figure.minus(own, columns), dict[str, float]()
        if len(values) > 1:
            ends = {"low": min(values), "high": max(values)}
            apart = apart and draw_difference(apart, values, num=figure.num, confidence=figure.confidence)
        entries.append(NullFigure(null=name, value=sum(values) / len(values), difference=apart, **ends))
    return DivergenceClaim.model_validate({**key, "estimate": estimate, "nulls": tuple(entries)})
