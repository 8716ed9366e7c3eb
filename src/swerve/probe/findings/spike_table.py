"""Spikes of all rollouts, checkpoints and divergences: their table, and how often they fall on wrong steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCES, Divergence, SpikeHits
from swerve.artifacts.tables import SPIKES_SCHEMA
from swerve.config import SpikeConfig, SpikeMethod
from swerve.probe.engine.measured import Measurements, _labels
from swerve.probe.findings.spikes import Spike, spikes_by_method, top_position
from swerve.probe.rollouts.population import ProbeSequence
from swerve.statistics import Estimate, mean_interval, share


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeTable:
    """Spikes of every sequence, checkpoint and divergence by every method, and where each divergence is highest."""

    sequences: tuple[ProbeSequence, ...]
    method: SpikeMethod
    """The method of the headline metrics."""
    found: Mapping[tuple[str, Divergence, str], Sequence[Sequence[Spike]]]
    """(checkpoint, divergence, method) -> each sequence's spikes."""
    tops: Mapping[tuple[str, Divergence], tuple[int, ...]]
    """(checkpoint, divergence) -> each sequence's position of the largest value, spike or not."""

    def rows(self, method: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of `spikes.parquet`: of one method, or of all."""
        return [
            _spike_row(sequence, spike, checkpoint, divergence, each)
            for (checkpoint, divergence, each), by_sequence in self.found.items()
            if method in (None, each)
            for sequence, spikes in zip(self.sequences, by_sequence, strict=True)
            for spike in spikes
        ]

    def table(self) -> pa.Table:
        """Return `spikes.parquet` as a table, the same rows in less memory: there may be millions."""
        keys, counts = list(self.found), [sum(map(len, by_sequence)) for by_sequence in self.found.values()]
        repeats = np.repeat(np.arange(len(keys)), counts)

        def column(dtype: type, value: Callable[[ProbeSequence, Spike], Any]) -> NDArray[Any]:
            return np.fromiter((value(*one) for one in self._each()), dtype=dtype, count=sum(counts))

        columns = {
            "sequence_id": column(np.int32, lambda sequence, _: sequence.sequence_id),
            "position": column(np.int32, lambda _, spike: spike.position),
            "checkpoint": _labels([checkpoint for checkpoint, _, _ in keys], repeats),
            "method": _labels([method for _, _, method in keys], repeats),
            "divergence": _labels([divergence for _, divergence, _ in keys], repeats),
            "value": column(np.float32, lambda _, spike: spike.value),
            "threshold": column(np.float32, lambda _, spike: spike.threshold),
            "height": column(np.int32, lambda _, spike: spike.height),
            "is_wrong": column(np.bool_, lambda sequence, spike: spike.position in sequence.wrong),
            "is_first_wrong": column(np.bool_, lambda sequence, spike: spike.position == sequence.first_wrong),
        }
        return pa.table({name: columns[name] for name in SPIKES_SCHEMA.names})

    def _each(self) -> Iterator[tuple[ProbeSequence, Spike]]:
        for by_sequence in self.found.values():
            for sequence, spikes in zip(self.sequences, by_sequence, strict=True):
                for spike in spikes:
                    yield sequence, spike

    def positions(self, checkpoint: str, divergence: Divergence) -> list[list[int]]:
        """Return each sequence's spikes by the headline method."""
        by_sequence = self.found.get((checkpoint, divergence, self.method), [()] * len(self.sequences))
        return [[spike.position for spike in spikes] for spikes in by_sequence]


def all_spikes(
    data: Measurements, settings: SpikeConfig, *, nulls: Mapping[Divergence, NDArray[Any]] | None = None
) -> SpikeTable:
    """Find the spikes of every sequence at every checkpoint in every divergence by every method.

    Args:
        data: pairs with one reference.
        settings: thresholds of all methods.
        nulls: divergence -> values of a pair that does not differ, for the method `calibrated`.
    """
    series = {
        (checkpoint, divergence): data.by_sequence(divergence, checkpoint)
        for checkpoint in data.checkpoints
        for divergence in DIVERGENCES
    }
    return SpikeTable(
        sequences=data.sequences,
        method=settings.method,
        found=spikes_by_method(series, settings, nulls=nulls),
        tops={key: tuple(map(top_position, values)) for key, values in series.items()},
    )


def _spike_row(sequence: ProbeSequence, spike: Spike, checkpoint: str, divergence: str, method: str) -> dict[str, Any]:
    return {
        "sequence_id": sequence.sequence_id,
        "position": spike.position,
        "checkpoint": checkpoint,
        "method": method,
        "divergence": divergence,
        "value": spike.value,
        "threshold": spike.threshold,
        "height": spike.height,
        "is_wrong": spike.position in sequence.wrong,
        "is_first_wrong": spike.position == sequence.first_wrong,
    }


def spike_hits(data: Measurements, spikes: SpikeTable, *, confidence: float) -> tuple[SpikeHits, ...]:
    """Return how often the highest divergence of a rollout falls on a wrong step, and on the first one, against chance.

    Only rollouts with a known wrong step count (`num_rollouts`). Chance is the expected share if the position were
    drawn uniformly from the rollout's own positions. Intervals are over problems, Wilson's where there is one
    rollout per problem.
    """
    known = [index for index, sequence in enumerate(data.sequences) if sequence.wrong]
    marked = [data.sequences[index] for index in known]
    problems = [one.problem.id for one in marked]
    chance_wrong = _mean([len(one.wrong) / len(one.completion_ids) for one in marked])
    chance_first = _mean([1 / len(one.completion_ids) for one in marked])

    def hits(tops: tuple[int, ...], *, first: bool) -> Estimate | None:
        hit = [_is_hit(data.sequences[index], tops[index], first=first) for index in known]
        if len(set(problems)) == len(problems):
            return share(sum(hit), len(hit), confidence=confidence)
        return mean_interval(hit, clusters=problems, confidence=confidence, bounds=(0.0, 1.0))

    return tuple(
        SpikeHits(
            checkpoint=checkpoint,
            divergence=divergence,
            num_rollouts=len(known),
            num_spikes=sum(map(len, spikes.positions(checkpoint, divergence))),
            top_on_wrong=hits(tops, first=False),
            top_on_first_wrong=hits(tops, first=True),
            chance_wrong=chance_wrong,
            chance_first_wrong=chance_first,
        )
        for (checkpoint, divergence), tops in spikes.tops.items()
    )


def _is_hit(sequence: ProbeSequence, position: int, *, first: bool) -> bool:
    return position == sequence.first_wrong if first else position in sequence.wrong


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
