"""Where the final checkpoint's divergence falls, each figure beside what it would be without training.

A figure says something of training only where it differs from all of its nulls. *Chance* has every position alike. The
reference's *entropy* takes the place of the divergence: whatever disturbs a model does so most where it is not sure.
*Noise models* (`engine.noise`) are as far from the reference as the checkpoint, in random directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_claims import DivergenceClaim, NullFigure, NullName
from swerve.artifacts.probe_findings import Divergence
from swerve.estimates import Estimate
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.entropy import forking_tokens
from swerve.probe.findings.planted import Sentences
from swerve.probe.findings.token_shares import REGIONS, good_moves, style_tokens, token_regions
from swerve.probe.intervals import Mask, TokenIntervals
from swerve.statistics.intervals import draw_difference
from swerve.statistics.ranking import auc_difference
from swerve.statistics.ratios import share_difference

Array = NDArray[np.float64]


Statistic = Callable[[Array, Sequence[Array]], Estimate | None]
"""Of a column, less the mean of those of others where there are any, paired over problems."""


def _area(tokens: TokenIntervals, positive: Mask, rows: Mask) -> Statistic:
    """Return the area under the ROC curve of a column as a score of some tokens."""
    clusters, confidence = tokens.problems[rows], tokens.intervals.confidence

    def area(own: Array, others: Sequence[Array]) -> Estimate | None:
        columns = [other[rows] for other in others]
        if columns and all((column == column[0]).all() for column in columns):  # chance: the area is one half
            alone = area(own, ())
            return alone and Estimate(mean=alone.mean - 0.5, low=alone.low - 0.5, high=alone.high - 0.5)
        return auc_difference(own[rows], columns, positive[rows], clusters=clusters, confidence=confidence)

    return area


def _top(tokens: TokenIntervals, positive: Mask, split: Callable[[NDArray[Any]], Sequence[NDArray[Any]]]) -> Statistic:
    """Return the fraction of rollouts whose highest value is on some tokens; of equal ones it is on each in part."""
    intervals, marks = tokens.intervals, split(positive)
    problems = np.array([own[0] for own, marked in zip(split(tokens.problems), marks, strict=True) if marked.any()])

    def hits(own: Array) -> Array:
        """Return of each rollout with such a token whether its highest value is on one."""
        rollouts = zip(split(own), marks, strict=True)
        return np.array([marked[values == values.max()].mean() for values, marked in rollouts if marked.any()])

    def top(own: Array, others: Sequence[Array]) -> Estimate | None:
        if not others:
            return intervals.share(hits(own), problems)
        apart = hits(own) - np.mean([hits(other) for other in others], axis=0)
        return intervals.mean(apart, problems, bounds=(-1.0, 1.0))

    return top


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
    inside, wrong, claim = last.in_marked_rollouts, last.wrong, partial(_claim, tokens, own, nulls)
    first = last.first_wrong
    claims = []
    for of, positive, rows in (("first_wrong", first, inside & (first | ~wrong)), ("wrong", wrong, inside)):
        if positive.any():
            num_problems = len(np.unique(tokens.problems))
            claims.append(claim(_area(tokens, positive, rows), len(own), figure="auc", of=of))
            claims.append(claim(_top(tokens, positive, last.split), num_problems, figure="top", of=of))

    # Where a label names a sentence and no token, sentences take the place of tokens, with the highest of each column.
    sentences = Sentences.of(last)
    if sentences.data.sequences:
        coarse = replace(tokens, problems=sentences.problems)
        highest = {name: list(map(sentences.highest, columns)) for name, columns in nulls.items()}
        highest["length"] = [sentences.lengths]
        claim = partial(_claim, coarse, sentences.highest(own), highest, of="first_wrong_sentence")
        num, positive = len(sentences.is_wrong), sentences.is_wrong
        claims.append(claim(_area(coarse, positive, np.ones(num, dtype=np.bool_)), num, figure="auc"))
        claims.append(claim(_top(coarse, positive, sentences.split), len(np.unique(sentences.problems)), figure="top"))

    # Parts of the tokens.
    regions, categories = token_regions(last.lengths), np.array(last.categories, dtype=np.str_)
    share = partial(_share, tokens, own, nulls)
    claims.append(share(forking_tokens(pair.columns["entropy_ref"])[0], of="uncertain"))
    claims.append(share(style_tokens(last), of="style"))
    claims += [share(regions == number, of="third", part=region) for number, region in enumerate(REGIONS)]
    claims += [share(categories == name, of="category", part=name) for name in np.unique(categories).tolist()]

    # Tokens that moved the good way, of each noise model by its own moves.
    good, *of_noise = [good_moves(last, model) for model in (pair, *models)]
    claims.append(share(good, of_noise=of_noise, of="good"))
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
    how, clusters = tokens.intervals, tokens.problems

    def ratio(own: Array, others: Sequence[Array]) -> Estimate | None:
        if not others:
            return how.ratio(own[0], own[1], clusters)
        return share_difference(own, others, clusters=clusters, confidence=how.confidence)

    return _claim(tokens, parted(own), pairs, ratio, len(clusters), figure="share", **key)


def _claim(
    tokens: TokenIntervals, own: Array, nulls: Nulls, statistic: Statistic, num: int, /, **key: str
) -> DivergenceClaim | None:
    """Return a figure of a column beside those of its nulls; None where it does not exist.

    Args:
        tokens: with the level of the intervals.
        own: the checkpoint's column.
        nulls: the columns that take its place.
        statistic: the figure.
        num: of what it counts.
        key: what the figure is called.
    """
    estimate = statistic(own, ())
    if estimate is None:
        return None
    entries = []
    # One entry a null; of several columns the mean, their range, and an interval that has their spread in it.
    for name, columns in nulls.items():
        values = [known.mean for column in columns if (known := statistic(column, ())) is not None]
        if len(values) < len(columns):
            continue
        apart, ends = statistic(own, columns), dict[str, float]()
        if len(values) > 1:
            ends = {"low": min(values), "high": max(values)}
            apart = apart and draw_difference(apart, values, num=num, confidence=tokens.intervals.confidence)
        entries.append(NullFigure(null=name, value=sum(values) / len(values), difference=apart, **ends))
    return DivergenceClaim.model_validate({**key, "estimate": estimate, "nulls": tuple(entries)})
