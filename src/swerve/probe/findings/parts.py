"""Parts of the tokens: thirds of a completion, categories, rank-shift classes, style; shares with intervals.

What these metrics rest on is here too: how intervals are made (`Intervals`), and which tokens are spikes.

Rank shift (URIAL, arXiv 2312.01552) reads a text that the tuned model wrote and asks for the rank of each token under
the base model: unshifted (1), marginal (2 or 3), shifted (beyond 3). Here a text is written by the checkpoint, by the
reference or by neither, so both ranks are given, and which of them is URIAL's. URIAL decodes greedily, so that the
writer's own rank is 1 throughout; on sampled text some of a shift is the draw's, which the writer's own ranks show.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_findings import (
    DIVERGENCES,
    CategoryShare,
    Divergence,
    RankCategory,
    RankClass,
    RankShare,
    RankShift,
    Region,
    RegionShare,
    SpikeDensity,
    StyleShare,
)
from swerve.estimates import Estimate, SkewedMean
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.spikes import spike_rate
from swerve.probe.rollouts.token_categories import token_styles
from swerve.statistics.clusters import Clusters
from swerve.statistics.intervals import (
    divided,
    mean_interval,
    ratio_interval,
    skewed_mean_interval,
    statistic_interval,
)
from swerve.statistics.jackknife import UNBOUNDED, Bounds

REGIONS: tuple[Region, ...] = get_args(Region)

Array = NDArray[np.float64]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals over problems, at one level (`swerve.statistics.intervals`).

    A figure over values of which one is infinite does not exist: None.

    >>> Intervals().mean(np.array([1.0, np.inf]), np.array([0, 1])) is None
    True
    """

    confidence: float = 0.95

    def mean(
        self, values: ArrayLike, clusters: Clusters | None = None, *, bounds: Bounds = UNBOUNDED, rare: bool = False
    ) -> Estimate | None:
        """Return the mean of values with its t interval; None of nothing. Of the rest see `mean_interval`."""
        if not np.isfinite(values).all():
            return None
        return mean_interval(values, clusters=clusters, bounds=bounds, rare=rare, confidence=self.confidence)

    def skewed_mean(self, values: ArrayLike, clusters: Clusters | None = None) -> SkewedMean | None:
        """Return the mean of values that are not negative, many small and few large (`skewed_mean_interval`)."""
        if not np.isfinite(values).all():
            return None
        return skewed_mean_interval(values, clusters=clusters, confidence=self.confidence)

    def share(self, marks: ArrayLike, clusters: Clusters | None = None) -> Estimate | None:
        """Return the share of marked rows; None of nothing.

        Of rows of their own it is a mean between 0 and 1; of the tokens of problems a ratio, for a problem all of whose
        tokens are marked, which `mean_interval` would add, is no plausible one.
        """
        if clusters is None or len(np.unique(clusters)) == len(clusters):
            return self.mean(marks, bounds=(0.0, 1.0))
        return self.ratio(np.asarray(marks, dtype=np.float64), np.ones(len(clusters)), clusters)

    def ratio(self, numerators: NDArray[Any], denominators: NDArray[Any], clusters: Clusters) -> Estimate | None:
        """Return the share sum(numerators) / sum(denominators); None where the denominators sum to 0."""
        if not (np.isfinite(numerators).all() and np.isfinite(denominators).all()):
            return None
        return ratio_interval(numerators, denominators, clusters=clusters, confidence=self.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIntervals:
    """Metrics over some of N tokens (a mask), with intervals over their problems."""

    problems: NDArray[np.int64]
    """`[N]`: the problem of each token, as an index."""
    intervals: Intervals

    @classmethod
    def of(cls, data: Measurements, intervals: Intervals) -> TokenIntervals:
        """Number the problems in order of first appearance."""
        names = {name: index for index, name in enumerate(dict.fromkeys(one.problem.id for one in data.sequences))}
        per_sequence = np.array([names[one.problem.id] for one in data.sequences], dtype=np.int64)
        return cls(problems=np.repeat(per_sequence, data.lengths), intervals=intervals)

    @property
    def everywhere(self) -> Mask:
        """The mask of all tokens."""
        return np.ones(self.problems.size, dtype=np.bool_)

    def mean(self, values: NDArray[Any], inside: Mask, *, bounds: Bounds = UNBOUNDED) -> Estimate | None:
        """Return the mean of the values inside; None of nothing, and where one is infinite."""
        return self.intervals.mean(values[inside], self.problems[inside], bounds=bounds)

    def skewed_mean(self, values: NDArray[Any], inside: Mask) -> SkewedMean | None:
        """Return the mean inside of values that are not negative, many small and few large."""
        return self.intervals.skewed_mean(values[inside], self.problems[inside])

    def share(self, marks: NDArray[np.bool_], inside: Mask | None = None) -> Estimate | None:
        """Return the share of marked tokens among those inside, or among all."""
        chosen = self.everywhere if inside is None else inside
        return self.intervals.share(marks[chosen], self.problems[chosen])

    def share_of(self, values: NDArray[Any], inside: Mask) -> Estimate | None:
        """Return the part of the summed values that lies inside; None where they sum to 0 or one is infinite."""
        # Not a product, which would make NaN of infinities.
        return self.intervals.ratio(np.where(inside, values, 0), values, self.problems)

    def statistic(
        self, function: Callable[[Array], Array], columns: Sequence[NDArray[Any]], bounds: Bounds = UNBOUNDED
    ) -> Estimate | None:
        """Return a function of sums of columns with its jackknife interval; None where it has no value.

        Args:
            function: `[R, K]` sums of K columns -> `[R]` values, NaN where the statistic is not defined.
            columns: one number a token.
            bounds: of the statistic.
        """
        if self.problems.size == 0 or not all(np.isfinite(column).all() for column in columns):
            return None
        confidence = self.intervals.confidence
        return statistic_interval(function, columns, clusters=self.problems, confidence=confidence, bounds=bounds)

    def ratio_difference(self, *columns: NDArray[Any]) -> Estimate | None:
        """Return the ratio of the sums of two columns minus that of two others; None where one does not exist."""
        return self.statistic(lambda sums: divided(sums[:, 0], sums[:, 1]) - divided(sums[:, 2], sums[:, 3]), columns)

    def mean_difference(self, values: NDArray[Any], first: Mask, second: Mask) -> Estimate | None:
        """Return the mean over the first tokens minus the mean over the second; None where either are missing."""
        columns = [column for mask in (first, second) for column in (np.where(mask, values, 0.0), 1.0 * mask)]
        return self.ratio_difference(*columns)


def by_source(data: Measurements) -> dict[str, Measurements]:
    """Return the measurements of each writer's rollouts, by the writer's label, in order of first appearance."""

    def written_by(source: str) -> Measurements:
        return data.select(lambda one: one.label == source)

    return {source: written_by(source) for source in dict.fromkeys(one.label or "" for one in data.sequences)}


def token_regions(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `[N]`: the third of its completion that each token is in, 0 to 2 (`REGIONS`).

    Token t of a completion of n tokens is in region floor(3 t / n), in integers: thirds are exact, and the sizes of the
    regions are what this rule counts.

    >>> token_regions([4, 2, 1]).tolist()
    [0, 0, 1, 2, 0, 1, 0]
    """
    parts = [3 * np.arange(int(length), dtype=np.int64) // max(int(length), 1) for length in lengths]
    return np.concatenate([np.arange(0), *parts])


def region_shares(data: Measurements, spikes: SpikeTable, *, intervals: Intervals) -> tuple[RegionShare, ...]:
    """Return, for each checkpoint and third of the completions, size, divergences and spikes.

    `mean` is the mean divergence of a token there (nats), `share_divergence` the part of the summed divergence, to be
    read against `share_tokens`; `spike_rate` is spikes a token, to be read against `base_rate`, that of all tokens.

    Args:
        data: the measurements.
        spikes: those of the same rollouts.
        intervals: how intervals are made.
    """
    regions, tokens = token_regions(data.lengths), TokenIntervals.of(data, intervals)
    shares = []
    for pair in data.pairs():
        # All tokens of a pair, then those of each third.
        columns = {name: pair.columns[name] for name in DIVERGENCES}
        masks = {name: spikes.mask(pair.checkpoint, name) for name in DIVERGENCES}
        for number, region in enumerate(REGIONS):
            inside = regions == number
            shares.append(
                RegionShare(
                    checkpoint=pair.checkpoint,
                    region=region,
                    num_tokens=int(inside.sum()),
                    share_tokens=_rate(inside),
                    mean={name: tokens.skewed_mean(values, inside) for name, values in columns.items()},
                    share_divergence={name: tokens.share_of(values, inside) for name, values in columns.items()},
                    num_spikes={name: int(mask[inside].sum()) for name, mask in masks.items()},
                    spike_rate={name: _rate(mask[inside]) for name, mask in masks.items()},
                    base_rate={name: _rate(mask) for name, mask in masks.items()},
                )
            )
    return tuple(shares)


def _rate(mask: Mask) -> float | None:
    return float(mask.mean()) if mask.size else None


SCALED_METHODS: tuple[Literal["percentile", "absolute", "calibrated"], ...] = ("percentile", "absolute", "calibrated")
"""Methods with one threshold in nats for all positions of a checkpoint."""


def spike_densities(
    data: Measurements, spikes: SpikeTable, *, divergence: Divergence, intervals: Intervals
) -> tuple[SpikeDensity, ...]:
    """Return the spikes per 1,000 tokens of each third of the completions, by checkpoint and scaled method.

    A z-score has no scale (all divergences x 1000 have the same spikes), so its numbers compare no checkpoints; these
    methods' do. The intervals are over problems.
    """
    problems = [sequence.problem.id for sequence in data.sequences]
    # Where each third of each rollout begins, and the last one ends.
    ends = [-(-np.arange(4) * length // 3) for length in data.lengths]
    densities = []
    for checkpoint, method in itertools.product(data.checkpoints, SCALED_METHODS):
        by_sequence = spikes.found.get((checkpoint, divergence, method))
        if by_sequence is None:
            continue
        threshold = next((spike.threshold for each in by_sequence for spike in each), None)
        # Of each third of each rollout: spikes and tokens.
        counts = [
            np.diff(np.searchsorted([spike.position for spike in each], end))
            for each, end in zip(by_sequence, ends, strict=True)
        ]
        sizes = [np.diff(end) for end in ends]
        for number, region in enumerate(REGIONS):
            rate = spike_rate(
                [int(count[number]) for count in counts],
                [int(size[number]) for size in sizes],
                problems,
                intervals.confidence,
            )
            densities.append(
                SpikeDensity(
                    checkpoint=checkpoint,
                    region=region,
                    divergence=divergence,
                    method=method,
                    threshold=threshold,
                    **dict(rate),
                )
            )
    return tuple(densities)


def category_shares(
    data: Measurements, spikes: SpikeTable, *, divergence: Divergence, intervals: Intervals
) -> tuple[CategoryShare, ...]:
    """Return each category's share of tokens and of divergence, and its spikes against the base rate, by checkpoint.

    `mean` is the mean divergence of a token of the category (nats), `spike_rate` spikes a token of it, `base_rate`
    spikes a token of any. The intervals are over problems.
    """
    tokens = TokenIntervals.of(data, intervals)
    names, index = np.unique(np.array(data.categories, dtype=np.str_), return_inverse=True)
    shares = []
    for pair in data.pairs():
        # All tokens of a pair, then those of each category.
        mask = spikes.mask(pair.checkpoint, divergence)
        for code, category in enumerate(names.tolist()):
            inside = index == code
            share_divergence = tokens.share_of(pair.columns[divergence], inside)
            shares.append(
                CategoryShare(
                    checkpoint=pair.checkpoint,
                    category=category,
                    num_tokens=int(inside.sum()),
                    share_tokens=float(inside.mean()),
                    mean={name: tokens.skewed_mean(pair.columns[name], inside) for name in DIVERGENCES},
                    share_divergence=share_divergence.mean if share_divergence else None,
                    share_divergence_interval=share_divergence,
                    num_spikes=int(mask[inside].sum()),
                    spike_rate=float(mask[inside].mean()),
                    spike_rate_interval=tokens.share(mask, inside),
                    base_rate=float(mask.mean()),
                )
            )
    return tuple(shares)


RANK_CLASSES: tuple[RankClass, ...] = get_args(RankClass)
Writer = Literal["checkpoint", "reference", "other"]

_MAX_MARGINAL = 3
_URIAL_RANKS: Mapping[Writer, Literal["rank", "rank_ref"] | None] = {
    "checkpoint": "rank_ref",
    "reference": "rank",
    "other": None,
}
"""The ranks under the model that did not write the text."""


def rank_classes(ranks: ArrayLike) -> NDArray[np.int64]:
    """Return the class of each rank, an index into `RANK_CLASSES`: 1 | 2 to 3 | above 3.

    Raises:
        ValueError: a rank is below 1.

    >>> rank_classes([1, 2, 3, 4]).tolist()
    [0, 1, 1, 2]
    """
    array = np.asarray(ranks)
    if (array < 1).any():
        raise ValueError(f"ranks count from 1 (the most likely token), got {array.min()}")
    return (array > 1).astype(np.int64) + (array > _MAX_MARGINAL)


def text_writer(source: str, *, checkpoint: str, reference: str) -> Writer:
    """Return which model of a pair wrote a text of this source (the label of a checkpoint, or `reference`).

    >>> text_writer("dpo-8", checkpoint="rl-80", reference="dpo-8")
    'reference'
    """
    if source == checkpoint:
        return "checkpoint"
    return "reference" if source in (reference, "reference") else "other"


def rank_shifts(data: Measurements, *, intervals: Intervals) -> tuple[RankShift, ...]:
    """Return, for each checkpoint and writer of the text, the shares of unshifted, marginal and shifted tokens.

    `rank` holds the shares by the rank of the realised token under the checkpoint, `rank_ref` under the reference, each
    with an interval; `shift` names the one that is URIAL's, the rank under the model that did not write the text (null:
    neither wrote it). `categories` counts the tokens of each category in each class.
    """
    shifts = []
    for source, part in by_source(data).items():
        tokens = TokenIntervals.of(part, intervals)
        for pair in part.pairs():
            # Under each model the class of every token, and the shares of the classes.
            writer = text_writer(source, checkpoint=pair.checkpoint, reference=pair.reference)
            classes = {name: rank_classes(pair.columns[name]) for name in ("rank", "rank_ref")}
            shares = {
                name: {
                    label: RankShare(num_tokens=int((own == number).sum()), share=tokens.share(own == number))
                    for number, label in enumerate(RANK_CLASSES)
                }
                for name, own in classes.items()
            }
            shifts.append(
                RankShift(
                    checkpoint=pair.checkpoint,
                    source=source,
                    writer=writer,
                    shift=_URIAL_RANKS[writer],
                    num_tokens=len(part.categories),
                    **shares,
                    categories=_rank_categories(part.categories, classes),
                )
            )
    return tuple(shifts)


def _rank_categories(categories: Sequence[str], classes: Mapping[str, NDArray[np.int64]]) -> tuple[RankCategory, ...]:
    """Return how many tokens of each category are in each class by either rank."""
    counts = {name: Counter(zip(categories, own.tolist(), strict=True)) for name, own in classes.items()}
    entries = []
    for category, total in sorted(Counter(categories).items()):
        by_class = {
            name: {label: own[category, number] for number, label in enumerate(RANK_CLASSES)}
            for name, own in counts.items()
        }
        entries.append(RankCategory(category=category, num_tokens=total, **by_class))
    return tuple(entries)


def style_shares(data: Measurements, *, divergence: Divergence, intervals: Intervals) -> tuple[StyleShare, ...]:
    """Return, for each checkpoint, the share of the divergence on style tokens against their share of the tokens.

    `excess` is the first share minus the second: above 0 where training changed style more than its due. Which tokens
    are style is decided from the texts, by the rules of `categories.yaml`.

    Args:
        data: the measurements.
        divergence: the column whose sum is shared out.
        intervals: how intervals are made.
    """
    marks = [mark for sequence in data.sequences for mark in token_styles(sequence.text or "", sequence.spans)]
    tokens, style = TokenIntervals.of(data, intervals), np.array(marks, dtype=np.bool_)
    shares = []
    for pair in data.pairs():
        # The excess is of two shares of the same problems, so that their interval is one.
        values = pair.nats(divergence)
        on_style = np.where(style, values, 0.0)
        shares.append(
            StyleShare(
                checkpoint=pair.checkpoint,
                divergence=divergence,
                num_tokens=style.size,
                num_style_tokens=int(style.sum()),
                share_tokens=tokens.share_of(np.ones(style.size), style),
                share_divergence=tokens.share_of(values, style),
                excess=tokens.ratio_difference(on_style, values, 1.0 * style, np.ones(style.size)),
            )
        )
    return tuple(shares)
