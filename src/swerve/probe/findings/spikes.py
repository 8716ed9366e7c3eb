"""Spikes: positions whose divergence stands out. A method says how high the threshold is; one rule then picks.

| method | threshold | the number of spikes compares |
|---|---|---|
| zscore | mean + num_sd x sd of the sequence | nothing: it is free of scale |
| adaptive | mean + num_sd x sd of the window around the position, itself left out | nothing: it is free of scale |
| percentile | of all values of the run, checkpoints together | checkpoints of the run |
| absolute | nats | anything measured in nats |
| calibrated | exceeds what a null pair produces, at a false discovery rate | anything with the same null |

The classic `zscore` gives the same spikes when every divergence of a sequence is multiplied by 1000: a checkpoint that
hardly moved has about as many as one that moved far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_findings import Divergence, SpikeRate
from swerve.config.probe import SpikeConfig, SpikeMethod
from swerve.statistics import Estimate, ratio_interval, share

SPIKE_METHODS: tuple[SpikeMethod, ...] = get_args(SpikeMethod)

Series = Sequence[NDArray[np.floating]]
"""One array of values a sequence, in nats."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """One position above its threshold."""

    position: int
    value: float
    """The divergence there, in nats."""
    threshold: float
    """The threshold applied at this position, in nats."""
    height: int
    """1 for the highest spike of the sequence, 2 for the next, ..."""


def find_spikes(
    series: Series,
    settings: SpikeConfig,
    *,
    method: SpikeMethod | None = None,
    pooled: ArrayLike | None = None,
    null: ArrayLike | None = None,
) -> list[list[Spike]]:
    """Return the spikes of each sequence of one checkpoint, in order of position.

    Positions above their threshold (`thresholds`) are candidates; of candidates closer than `min_distance` positions
    the highest is kept, of equal ones the first.

    Args:
        series: the divergence at each position of each sequence, nats; may be infinite.
        settings: thresholds of all methods.
        method: which of them; by default `settings.method`.
        pooled: for `percentile`: the values of all sequences at all checkpoints of the run.
        null: for `calibrated`: the values of a pair that does not differ.

    Raises:
        ValueError: a value is NaN, or the method lacks `pooled` or `null`.

    >>> series = [np.array([0.0, 0.3, 0.0, 0.0, 0.2]), np.array([0.05, 0.0])]
    >>> found = find_spikes(series, SpikeConfig(method="absolute", threshold=0.1))
    >>> [[(spike.position, spike.value) for spike in spikes] for spikes in found]
    [[(1, 0.3), (4, 0.2)], []]
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in series]
    limits = thresholds(arrays, settings, method=method, pooled=pooled, null=null)
    return _pick(arrays, limits, settings.min_distance)


def spikes_by_method(
    series: Mapping[tuple[str, Divergence], Series],
    settings: SpikeConfig,
    *,
    nulls: Mapping[Divergence, NDArray[Any]] | None = None,
) -> dict[tuple[str, Divergence, str], list[list[Spike]]]:
    """Return the spikes by every method: (checkpoint, divergence, method) -> each sequence's spikes.

    `percentile` pools each divergence over all checkpoints given; `calibrated` is left out for divergences without null
    values.

    Args:
        series: (checkpoint, divergence) -> each sequence's values, nats.
        settings: thresholds of all methods.
        nulls: divergence -> values of a pair that does not differ.
    """
    # All values of a divergence, checkpoints together.
    parts: dict[Divergence, list[NDArray[np.floating]]] = {}
    for (_, divergence), values in series.items():
        parts.setdefault(divergence, [np.zeros(0)]).extend(values)
    pooled = {divergence: np.concatenate(own) for divergence, own in parts.items()}
    by_key: dict[tuple[str, Divergence, str], list[list[Spike]]] = {}
    for (checkpoint, divergence), values in series.items():
        null = (nulls or {}).get(divergence)
        for method in SPIKE_METHODS:
            if method != "calibrated" or null is not None:
                by_key[checkpoint, divergence, method] = find_spikes(
                    values, settings, method=method, pooled=pooled[divergence], null=null
                )
    return by_key


def thresholds(
    series: Series,
    settings: SpikeConfig,
    *,
    method: SpikeMethod | None = None,
    pooled: ArrayLike | None = None,
    null: ArrayLike | None = None,
) -> list[Array]:
    """Return the threshold at each position of each sequence, in nats; a spike is strictly above it.

    Where a method has nothing to compare with (a window without other values, a null that is too small), the
    threshold is infinite, and not even an infinite value is a spike.

    Args:
        series: the divergence at each position of each sequence, nats; may be infinite.
        settings: thresholds of all methods.
        method: which of them; by default `settings.method`.
        pooled: for `percentile`: the values of all sequences at all checkpoints of the run.
        null: for `calibrated`: the values of a pair that does not differ.

    Raises:
        ValueError: a value is NaN, or the method is not known, or lacks `pooled` or `null`.
    """
    chosen = settings.method if method is None else method
    if chosen not in SPIKE_METHODS:
        raise ValueError(f"unknown method {chosen!r}; use one of {', '.join(SPIKE_METHODS)}")
    arrays = [np.asarray(values, dtype=np.float64) for values in series]
    if any(np.isnan(values).any() for values in arrays):
        raise ValueError("a divergence is NaN; spikes need a number (or infinity) at every position")
    if chosen == "adaptive":
        return _adaptive(arrays, settings)

    # One threshold for all positions of a sequence, or of all sequences.
    limits = [settings.threshold] * len(arrays)
    if chosen == "zscore":
        finite = [values[np.isfinite(values)] for values in arrays]
        limits = [float(values.mean() + settings.num_sd * values.std()) if len(values) else 0.0 for values in finite]
    elif chosen == "percentile":
        if pooled is None:
            raise ValueError("the method 'percentile' needs pooled: the values of all sequences at all checkpoints")
        every = np.asarray(pooled, dtype=np.float64)
        # "lower": an observed value, defined among infinite ones too; at most the stated share is strictly above.
        limit = float(np.percentile(every, settings.percentile, method="lower")) if len(every) else math.inf
        limits = [limit] * len(arrays)
    elif chosen == "calibrated":
        if null is None:
            raise ValueError("the method 'calibrated' needs null: the values of a pair that does not differ")
        flat = np.concatenate([np.zeros(0), *arrays])
        cut = calibrated_threshold(flat, null, false_discovery_rate=settings.false_discovery_rate)
        limits = [math.inf if cut is None else cut] * len(arrays)
    return [np.full(len(values), limit) for values, limit in zip(arrays, limits, strict=True)]


def _adaptive(series: Sequence[Array], settings: SpikeConfig) -> list[Array]:
    """Return mean + num_sd x sd of the finite values within window // 2 positions, the position itself left out."""
    half = settings.window // 2
    gap = np.full(half, np.nan)
    # All sequences side by side, so far apart that no window reaches into the next.
    padded = np.concatenate([gap, *(part for values in series for part in (values, gap))])
    padded[~np.isfinite(padded)] = np.nan
    if len(padded) < 2 * half + 1:
        return [np.zeros(0) for _ in series]
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    others = np.delete(around, half, axis=1)  # a copy: [positions and gaps, 2 x half]
    known = ~np.isnan(others)
    num = known.sum(axis=1)
    mean = np.where(known, others, 0.0).sum(axis=1) / np.maximum(num, 1)
    squares = np.where(known, others - mean[:, None], 0.0) ** 2
    sd = np.sqrt(squares.sum(axis=1) / np.maximum(num, 1))
    limits = np.where(num > 0, mean + settings.num_sd * sd, math.inf)
    starts = np.cumsum([0, *(len(values) + half for values in series)])
    return [limits[start : start + len(values)] for start, values in zip(starts, series, strict=False)]


def calibrated_threshold(values: ArrayLike, null: ArrayLike, *, false_discovery_rate: float) -> float | None:
    """Return the threshold above which values exceed what a null pair produces; None where no value does.

    Each value v has the p-value (1 + number of null values >= v) / (1 + M) of M null values; Benjamini and Hochberg's
    rule over all values rejects the smallest. The threshold is the largest null value below all that are rejected, so
    that `value > threshold` is their rule exactly. A p-value cannot fall below 1 / (1 + M): with m values of which k
    exceed the whole null, at least m / (k x rate) - 1 null values are needed, so a small null finds nothing. Sources:
    Davison and Hinkley, Bootstrap Methods and their Application (1997), section 4.2; Benjamini and Hochberg, Journal of
    the Royal Statistical Society B 57 (1995).

    Args:
        values: divergences, nats; may be infinite.
        null: divergences of a pair that does not differ, nats.
        false_discovery_rate: expected share of the values above the threshold that are null.

    >>> calibrated_threshold([0.0, 0.3, 0.5], np.linspace(0, 0.1, 99), false_discovery_rate=0.05)
    0.1
    >>> calibrated_threshold([0.0, 0.3, 0.5], np.linspace(0, 0.1, 9), false_discovery_rate=0.05) is None
    True
    """
    tested, nothing = np.asarray(values, dtype=np.float64), np.sort(np.asarray(null, dtype=np.float64))
    if tested.size == 0 or nothing.size == 0:
        return None
    descending = np.sort(tested)[::-1]
    # The p-value of each value, from the largest on, and how small it must be.
    at_least = nothing.size - np.searchsorted(nothing, descending, side="left")
    p_values = (1 + at_least) / (1 + nothing.size)
    allowed = false_discovery_rate * np.arange(1, tested.size + 1) / tested.size
    (rejected,) = np.nonzero(p_values <= allowed)
    if len(rejected) == 0:
        return None
    # The threshold lies below all values that are rejected.
    below = np.searchsorted(nothing, descending[rejected[-1]], side="left")
    assert below > 0, "a value below the whole null has the p-value 1"
    return float(nothing[below - 1])


def _pick(series: Sequence[Array], limits: Sequence[Array], min_distance: int) -> list[list[Spike]]:
    """Return each sequence's spikes: highest first, those closer than `min_distance` to a higher one dropped."""
    if not series:
        return []
    starts = np.cumsum([0, *(len(values) + min_distance for values in series)])  # no sequence reaches into the next
    flat, above = np.concatenate(series), np.concatenate(limits)
    lengths = [len(values) for values in series]
    owners = np.repeat(np.arange(len(series)), lengths)
    places = np.concatenate([np.arange(length) for length in lengths])
    (candidates,) = np.nonzero(flat > above)
    order = candidates[np.argsort(-flat[candidates], kind="stable")]  # of equal ones the first position
    taken = bytearray(int(starts[-1]) + min_distance)
    picked: list[list[Spike]] = [[] for _ in series]
    columns = (owners[order], places[order], flat[order], above[order])
    for owner, place, value, limit in zip(*(column.tolist() for column in columns), strict=True):
        at = int(starts[owner]) + place
        if not taken[at]:
            first = max(0, at - min_distance + 1)
            taken[first : at + min_distance] = b"\x01" * (at + min_distance - first)
            mine = picked[owner]
            mine.append(Spike(position=place, value=value, threshold=limit, height=len(mine) + 1))
    return [sorted(spikes, key=lambda spike: spike.position) for spikes in picked]


def null_false_discoveries(
    series: Series,
    settings: SpikeConfig,
    *,
    pooled: ArrayLike | None = None,
    clusters: Sequence[str | int] | None = None,
    confidence: float = 0.95,
) -> dict[str, SpikeRate]:
    """Return the number of spikes of each method on a null pair: every one is a false discovery.

    `calibrated` is not tested on the values it is calibrated with: the sequences of even index calibrate for those of
    odd index and the other way round. Where a method finds none, the upper end of the interval is that of one spike in
    each cluster that may have any (from none of the clusters, by `share`).

    Args:
        series: the divergence of the null pair at each position of each sequence, nats.
        settings: thresholds of all methods.
        pooled: the values of all sequences at all checkpoints of the run; without them `percentile` is left out.
        clusters: the problem of each sequence.
        confidence: coverage of the intervals.
    """
    lengths = [len(values) for values in series]
    rates: dict[str, SpikeRate] = {}
    for method in SPIKE_METHODS:
        if method == "percentile" and pooled is None:
            continue
        if method == "calibrated":
            # Each half of the sequences is calibrated with the other.
            spikes: list[list[Spike]] = [[] for _ in series]
            for part in (0, 1):
                null = np.concatenate([np.zeros(0), *series[1 - part :: 2]])
                spikes[part::2] = find_spikes(series[part::2], settings, method=method, null=null)
        else:
            spikes = find_spikes(series, settings, method=method, pooled=pooled)
        rates[method] = spike_rate([len(own) for own in spikes], lengths, clusters, confidence)
    return rates


def spike_rate(
    counts: Sequence[int], lengths: Sequence[int], clusters: Sequence[str | int] | None, confidence: float
) -> SpikeRate:
    """Return the spikes per 1,000 tokens, with an interval over clusters.

    Without any spike the upper end is that of one in each cluster that may have some (from none of them, by `share`).

    Args:
        counts: spikes of each sequence.
        lengths: tokens of each sequence.
        clusters: the problem of each sequence.
        confidence: coverage of the interval.
    """
    rate = ratio_interval(counts, lengths, clusters=clusters, confidence=confidence)
    num_spikes, num_tokens = sum(counts), sum(lengths)
    if rate is not None and num_spikes == 0:
        num_clusters = len(counts if clusters is None else set(clusters))
        none = share(0, num_clusters, confidence=confidence)
        assert none is not None, "there are sequences"
        rate = Estimate(mean=0.0, low=0.0, high=min(1.0, none.high * num_clusters / num_tokens))
    return SpikeRate(num_spikes=num_spikes, num_tokens=num_tokens, per_1000_tokens=rate and rate.scaled(1000))
