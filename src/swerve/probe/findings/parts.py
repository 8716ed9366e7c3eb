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
from collections.abc import Iterable, Mapping, Sequence
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

    def ratio_difference(
        self,
        first: tuple[NDArray[Any], NDArray[Any]],
        second: tuple[NDArray[Any], NDArray[Any]],
        clusters: NDArray[np.int64],
    ) -> Estimate | None:
        """Return the first ratio of sums minus the second, of the same problems, with its jackknife interval.

        Each is a pair (numerators, denominators) of one number per row. None where one ratio does not exist.
        """
        columns = (*first, *second)
        if clusters.size == 0 or not all(np.isfinite(column).all() for column in columns):
            return None
        return statistic_interval(_ratio_difference, columns, clusters=clusters, confidence=self.confidence)


def _ratio_difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return column 0 / column 1 - column 2 / column 3 of each row, NaN where a denominator is 0."""
    return divided(sums[:, 0], sums[:, 1]) - divided(sums[:, 2], sums[:, 3])


def problem_clusters(data: Measurements) -> NDArray[np.int64]:
    """Return `[N]`: the problem of each token, as an index."""
    names = {name: index for index, name in enumerate(dict.fromkeys(one.problem.id for one in data.sequences))}
    per_sequence = np.array([names[one.problem.id] for one in data.sequences], dtype=np.int64)
    return np.repeat(per_sequence, data.lengths)


def by_source(data: Measurements) -> dict[str, Measurements]:
    """Return the measurements of each writer's rollouts, by the writer's label, in order of first appearance."""

    def written_by(source: str) -> Measurements:
        return data.select(lambda one: one.source == source)

    return {source: written_by(source) for source in dict.fromkeys(one.source for one in data.sequences)}


def token_regions(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `[N]`: the third of its completion that each token is in, 0 to 2 (`REGIONS`).

    Token t of a completion of n tokens is in region floor(3 t / n), in integers: thirds are exact, and the sizes of the
    regions are what this rule counts.

    >>> token_regions([4, 2, 1]).tolist()
    [0, 0, 1, 2, 0, 1, 0]
    """
    parts = [3 * np.arange(int(length), dtype=np.int64) // max(int(length), 1) for length in lengths]
    return np.concatenate([np.arange(0), *parts])


def spike_masks(data: Measurements, spikes: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Return, for each checkpoint and divergence that has spikes, `[N]`: is the token a spike.

    Args:
        data: the measurements; spikes of sequences that are not among them are passed over.
        spikes: rows of `spikes.parquet`, of one method.

    Raises:
        ValueError: a spike is past the end of its sequence.
    """
    starts = np.cumsum([0, *data.lengths.tolist()])
    begin = {one.sequence_id: int(start) for one, start in zip(data.sequences, starts[:-1], strict=True)}
    length = {one.sequence_id: len(one.completion_ids) for one in data.sequences}
    masks: dict[tuple[str, str], NDArray[np.bool_]] = {}
    for row in spikes:
        name, position = row["sequence_id"], row["position"]
        if name not in begin:
            continue
        if not 0 <= position < length[name]:
            raise ValueError(f"a spike at position {position} of sequence {name}, which has {length[name]} tokens")
        key = (row["checkpoint"], row["divergence"])
        masks.setdefault(key, np.zeros(int(starts[-1]), dtype=np.bool_))[begin[name] + position] = True
    return masks


def region_shares(
    data: Measurements, spikes: Iterable[Mapping[str, Any]] = (), *, intervals: Intervals | None = None
) -> tuple[RegionShare, ...]:
    """Return, for each checkpoint and third of the completions, size, divergences and spikes.

    `mean` is the mean divergence of a token there (nats), `share_divergence` the part of the summed divergence, to be
    read against `share_tokens`; `spike_rate` is spikes a token, to be read against `base_rate`, that of all tokens.

    Args:
        data: the measurements.
        spikes: rows of `spikes.parquet`, of one method.
        intervals: how intervals are made.
    """
    how = intervals or Intervals()
    regions, clusters, masks = token_regions(data.lengths), problem_clusters(data), spike_masks(data, spikes)
    shares = []
    for index, checkpoint in enumerate(data.checkpoints):
        columns = {name: data.columns[name][index] for name in DIVERGENCES}
        found = {name: masks.get((checkpoint, name), np.zeros(regions.size, dtype=np.bool_)) for name in DIVERGENCES}
        for number, region in enumerate(REGIONS):
            inside = regions == number
            count = int(inside.sum())
            shares.append(
                RegionShare(
                    checkpoint=checkpoint,
                    region=region,
                    num_tokens=count,
                    share_tokens=count / regions.size if regions.size else None,
                    mean={name: how.skewed_mean(values[inside], clusters[inside]) for name, values in columns.items()},
                    share_divergence={
                        name: how.ratio(_within(values, inside), values, clusters) for name, values in columns.items()
                    },
                    num_spikes={name: int(mask[inside].sum()) for name, mask in found.items()},
                    spike_rate={name: _rate(mask[inside]) for name, mask in found.items()},
                    base_rate={name: _rate(mask) for name, mask in found.items()},
                )
            )
    return tuple(shares)


SCALED_METHODS: tuple[Literal["percentile", "absolute", "calibrated"], ...] = ("percentile", "absolute", "calibrated")
"""Methods with one threshold in nats for all positions of a checkpoint."""


def spike_densities(
    data: Measurements, spikes: SpikeTable, *, divergence: Divergence, intervals: Intervals | None = None
) -> tuple[SpikeDensity, ...]:
    """Return the spikes per 1,000 tokens of each third of the completions, by checkpoint and scaled method.

    A z-score has no scale (all divergences x 1000 have the same spikes), so its numbers compare no checkpoints; these
    methods' do. The intervals are over problems.
    """
    how = intervals or Intervals()
    clusters = [one.problem.id for one in data.sequences]
    ends = [-(-np.arange(4) * length // 3) for length in data.lengths]
    found = []
    for checkpoint, method in itertools.product(data.checkpoints, SCALED_METHODS):
        by_sequence = spikes.found.get((checkpoint, divergence, method))
        if by_sequence is None:
            continue
        places = [[spike.position for spike in each] for each in by_sequence]
        threshold = next((spike.threshold for each in by_sequence for spike in each), None)
        for number, region in enumerate(REGIONS):
            spans = [end[number : number + 2] for end in ends]
            counts = [int(np.diff(np.searchsorted(each, span))[0]) for each, span in zip(places, spans, strict=True)]
            sizes = [int(stop - start) for start, stop in spans]
            rate = spike_rate(counts, sizes, clusters, how.confidence)
            found.append(
                SpikeDensity(
                    checkpoint=checkpoint,
                    region=region,
                    divergence=divergence,
                    method=method,
                    threshold=threshold,
                    **dict(rate),
                )
            )
    return tuple(found)


def _within(values: NDArray[Any], inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the values, 0 outside; not by a product, which would make NaN of infinities."""
    return np.where(inside, values, 0.0).astype(np.float64)


def _rate(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if mask.size else None


def category_shares(
    data: Measurements, spikes: SpikeTable, *, divergence: Divergence, intervals: Intervals | None = None
) -> tuple[CategoryShare, ...]:
    """Return each category's share of tokens and of divergence, and its spikes against the base rate, by checkpoint.

    `mean` is the mean divergence of a token of the category (nats), `spike_rate` spikes a token of it, `base_rate`
    spikes a token of any. The intervals are over problems.
    """
    how, clusters = intervals or Intervals(), problem_clusters(data)
    names, index = np.unique(np.array(data.categories, dtype=np.str_), return_inverse=True)
    masks = spike_masks(data, spikes.rows(spikes.method))
    found = []
    for number, checkpoint in enumerate(data.checkpoints):
        values = data.columns[divergence][number].astype(np.float64)
        mask = masks.get((checkpoint, divergence), np.zeros(len(index), dtype=np.bool_))
        for code, category in enumerate(names.tolist()):
            inside = index == code
            share_divergence = how.ratio(np.where(inside, values, 0.0), values, clusters)
            found.append(
                CategoryShare(
                    checkpoint=checkpoint,
                    category=category,
                    num_tokens=int(inside.sum()),
                    share_tokens=float(inside.mean()),
                    mean={
                        name: how.skewed_mean(data.columns[name][number][inside], clusters[inside])
                        for name in DIVERGENCES
                    },
                    share_divergence=None if share_divergence is None else share_divergence.mean,
                    share_divergence_interval=share_divergence,
                    num_spikes=int(mask[inside].sum()),
                    spike_rate=float(mask[inside].mean()),
                    spike_rate_interval=how.share(mask[inside], clusters[inside]),
                    base_rate=float(mask.mean()),
                )
            )
    return tuple(found)


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


def rank_shifts(data: Measurements, *, intervals: Intervals | None = None) -> tuple[RankShift, ...]:
    """Return, for each checkpoint and writer of the text, the shares of unshifted, marginal and shifted tokens.

    `rank` holds the shares by the rank of the realised token under the checkpoint, `rank_ref` under the reference, each
    with an interval; `shift` names the one that is URIAL's, the rank under the model that did not write the text (null:
    neither wrote it). `categories` counts the tokens of each category in each class.
    """
    how = intervals or Intervals()
    found = []
    for source, part in by_source(data).items():
        for index, checkpoint in enumerate(part.checkpoints):
            writer = text_writer(source, checkpoint=checkpoint, reference=part.references[index])
            ranks, ranks_ref = (rank_classes(part.columns[name][index]) for name in ("rank", "rank_ref"))
            clusters = problem_clusters(part)
            found.append(
                RankShift(
                    checkpoint=checkpoint,
                    source=source,
                    writer=writer,
                    shift=_URIAL_RANKS[writer],
                    num_tokens=len(part.categories),
                    rank=_class_shares(ranks, clusters, how),
                    rank_ref=_class_shares(ranks_ref, clusters, how),
                    categories=_class_counts(part.categories, ranks, ranks_ref),
                )
            )
    return tuple(found)


def _class_shares(
    classes: NDArray[np.int64], clusters: NDArray[np.int64], how: Intervals
) -> dict[RankClass, RankShare]:
    return {
        name: RankShare(num_tokens=int((classes == number).sum()), share=how.share(classes == number, clusters))
        for number, name in enumerate(RANK_CLASSES)
    }


def _class_counts(
    categories: Sequence[str], ranks: NDArray[np.int64], ranks_ref: NDArray[np.int64]
) -> tuple[RankCategory, ...]:
    counts, counts_ref = (Counter(zip(categories, one.tolist(), strict=True)) for one in (ranks, ranks_ref))
    return tuple(
        RankCategory(
            category=category,
            num_tokens=total,
            rank={label: counts[category, number] for number, label in enumerate(RANK_CLASSES)},
            rank_ref={label: counts_ref[category, number] for number, label in enumerate(RANK_CLASSES)},
        )
        for category, total in sorted(Counter(categories).items())
    )


def style_shares(
    data: Measurements,
    *,
    divergence: Divergence,
    styles: Sequence[bool] | None = None,
    intervals: Intervals | None = None,
) -> tuple[StyleShare, ...]:
    """Return, for each checkpoint, the share of the divergence on style tokens against their share of the tokens.

    `excess` is the first share minus the second: above 0 where training changed style more than its due.

    Args:
        data: the measurements.
        divergence: the column whose sum is shared out.
        styles: is each of the N tokens style; by default from the texts, by the rules of `categories.yaml`.
        intervals: how intervals are made.

    Raises:
        ValueError: not as many styles as tokens.
    """
    how, clusters = intervals or Intervals(), problem_clusters(data)
    marks = (
        [mark for one in data.sequences for mark in token_styles(one.text, one.spans)]
        if styles is None
        else list(styles)
    )
    if len(marks) != len(data.categories):
        raise ValueError(f"{len(data.categories)} tokens need as many styles, got {len(marks)}")
    style = np.array(marks, dtype=np.float64)
    ones = np.ones_like(style)
    found = []
    for index, checkpoint in enumerate(data.checkpoints):
        values = data.columns[divergence][index].astype(np.float64)
        on_style = np.where(style > 0, values, 0.0)
        found.append(
            StyleShare(
                checkpoint=checkpoint,
                divergence=divergence,
                num_tokens=int(style.size),
                num_style_tokens=int(style.sum()),
                share_tokens=how.ratio(style, ones, clusters),
                share_divergence=how.ratio(on_style, values, clusters),
                excess=how.ratio_difference((on_style, values), (style, ones), clusters),
            )
        )
    return tuple(found)
