"""Parts of the tokens: each part's share of the tokens, of the divergence and of the spikes, with intervals.

Regions of a completion are one way to part its tokens; rank-shift classes, style and forking tokens are others. All
figures over parts are made here, so that they mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.probe.tables import DIVERGENCES, Measurements
from swerve.statistics import Estimate, bootstrap_mean, bootstrap_ratio
from swerve.statistics.resampling import cluster_counts, percentile_estimate

__all__ = [
    "REGIONS",
    "Resampling",
    "by_source",
    "problem_clusters",
    "region_figures",
    "spike_masks",
    "token_regions",
]

REGIONS = ("early", "mid", "late")
Clusters = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling:
    """How intervals are made: a percentile bootstrap over problems.

    A figure over values of which one is infinite does not exist: None.

    >>> Resampling(num_resamples=100).mean(np.array([1.0, np.inf]), np.array([0, 1])) is None
    True
    """

    confidence: float = 0.95
    num_resamples: int = 2000
    seed: int = 0

    def mean(self, values: NDArray[Any], clusters: Clusters) -> Estimate | None:
        """Return the mean of values, resampled by clusters; None of nothing."""
        if not np.isfinite(values).all():
            return None
        return bootstrap_mean(
            values,
            clusters=clusters,
            confidence=self.confidence,
            num_resamples=self.num_resamples,
            seed=self.seed,
        )

    def share(self, marks: NDArray[np.bool_], clusters: Clusters) -> Estimate | None:
        """Return the share of marked rows, resampled by clusters; None of nothing.

        Where no row is marked, or every one, the interval is that of the rule of three (`bootstrap_mean`).
        """
        return bootstrap_mean(
            marks,
            clusters=clusters,
            confidence=self.confidence,
            num_resamples=self.num_resamples,
            seed=self.seed,
            bounds=(0.0, 1.0),
        )

    def ratio(self, numerators: NDArray[Any], denominators: NDArray[Any], clusters: Clusters) -> Estimate | None:
        """Return sum(numerators) / sum(denominators), resampled by clusters; None where the denominators sum to 0."""
        if not (np.isfinite(numerators).all() and np.isfinite(denominators).all()):
            return None
        return bootstrap_ratio(
            numerators,
            denominators,
            clusters=clusters,
            confidence=self.confidence,
            num_resamples=self.num_resamples,
            seed=self.seed,
        )

    def ratio_difference(
        self,
        first: tuple[NDArray[Any], NDArray[Any]],
        second: tuple[NDArray[Any], NDArray[Any]],
        clusters: Clusters,
    ) -> Estimate | None:
        """Return the first ratio of sums minus the second, both over the same resampled clusters.

        Each is a pair (numerators, denominators) of one number a row. A resample in which one ratio does not exist is
        left out; None where one does not exist over all rows, or in more than half of the resamples.
        """
        columns = (*first, *second)
        if clusters.size == 0 or not all(np.isfinite(column).all() for column in columns):
            return None
        names, index = np.unique(clusters, return_inverse=True)
        totals = [np.bincount(index, weights=column.astype(np.float64)) for column in columns]
        sums: NDArray[np.float64] = np.stack(totals, axis=1).astype(np.float64)
        blocks = cluster_counts(len(names), self.num_resamples, self.seed)
        resampled = np.concatenate([_ratio_difference(counts @ sums) for counts in blocks])
        value = float(_ratio_difference(sums.sum(axis=0, keepdims=True))[0])
        return percentile_estimate(value, resampled, self.confidence)


def _ratio_difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return column 0 / column 1 - column 2 / column 3 of each row, NaN where a denominator is 0."""
    defined = (sums[:, 1] != 0) & (sums[:, 3] != 0)
    below = np.where(defined[:, None], sums[:, [1, 3]], 1.0)
    return np.where(defined, sums[:, 0] / below[:, 0] - sums[:, 2] / below[:, 1], np.nan)


def problem_clusters(data: Measurements) -> Clusters:
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


def region_figures(
    data: Measurements, spikes: Iterable[Mapping[str, Any]] = (), *, resampling: Resampling | None = None
) -> list[dict[str, Any]]:
    """Return, for each checkpoint and third of the completions, size, divergences and spikes.

    `mean` is the mean divergence of a token there (nats), `share_divergence` the part of the summed divergence, to be
    read against `share_tokens`; `spike_rate` is spikes a token, to be read against `base_rate`, that of all tokens.

    Args:
        data: the measurements.
        spikes: rows of `spikes.parquet`, of one method.
        resampling: of the intervals.
    """
    how = resampling or Resampling()
    regions, clusters, masks = token_regions(data.lengths), problem_clusters(data), spike_masks(data, spikes)
    figures = []
    for index, checkpoint in enumerate(data.checkpoints):
        columns = {name: data.columns[name][index] for name in DIVERGENCES}
        found = {name: masks.get((checkpoint, name), np.zeros(regions.size, dtype=np.bool_)) for name in DIVERGENCES}
        for number, region in enumerate(REGIONS):
            inside = regions == number
            count = int(inside.sum())
            figures.append(
                {
                    "checkpoint": checkpoint,
                    "region": region,
                    "num_tokens": count,
                    "share_tokens": count / regions.size if regions.size else None,
                    "mean": {name: how.mean(values[inside], clusters[inside]) for name, values in columns.items()},
                    "share_divergence": {
                        name: how.ratio(_within(values, inside), values, clusters) for name, values in columns.items()
                    },
                    "num_spikes": {name: int(mask[inside].sum()) for name, mask in found.items()},
                    "spike_rate": {name: _rate(mask[inside]) for name, mask in found.items()},
                    "base_rate": {name: _rate(mask) for name, mask in found.items()},
                }
            )
    return figures


def _within(values: NDArray[Any], inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the values, 0 outside; not by a product, which would make NaN of infinities."""
    return np.where(inside, values, 0.0).astype(np.float64)


def _rate(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if mask.size else None
