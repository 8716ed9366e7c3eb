"""Spikes of all rollouts, checkpoints and divergences: their table, and how often they fall on wrong steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCES, Divergence, SpikeHits
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import SPIKES_SCHEMA
from swerve.config.probe import SpikeConfig, SpikeMethod
from swerve.probe.engine.measured import Measurements, labels
from swerve.probe.findings.spikes import Spike, spikes_by_method
from swerve.probe.intervals import mean_if_any
from swerve.statistics import Estimate, mean_interval, share


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeTable:
    """Spikes of every sequence, checkpoint and divergence by every method, and where each divergence is highest."""

    sequences: tuple[Response, ...]
    method: SpikeMethod
    """The method of the headline metrics."""
    found: Mapping[tuple[str, Divergence, str], Sequence[Sequence[Spike]]]
    """(checkpoint, divergence, method) -> each sequence's spikes."""
    tops: Mapping[tuple[str, Divergence], tuple[int, ...]]
    """(checkpoint, divergence) -> each sequence's position of the largest value, spike or not."""

    def table(self) -> pa.Table:
        """Return `spikes.parquet`, as columns: there may be millions of rows."""
        # Each column goes through all spikes once.
        each = [
            (sequence, spike)
            for by_sequence in self.found.values()
            for sequence, spikes in zip(self.sequences, by_sequence, strict=True)
            for spike in spikes
        ]
        counts = [sum(map(len, by_sequence)) for by_sequence in self.found.values()]
        repeats = np.repeat(np.arange(len(counts)), counts)

        def column(dtype: type, value: Callable[[Response, Spike], Any]) -> NDArray[Any]:
            return np.fromiter((value(*pair) for pair in each), dtype=dtype, count=len(each))

        columns = {
            "sequence_id": column(np.int32, lambda sequence, _: sequence.sequence_id),
            "position": column(np.int32, lambda _, spike: spike.position),
            "checkpoint": labels([checkpoint for checkpoint, _, _ in self.found], repeats),
            "method": labels([method for _, _, method in self.found], repeats),
            "divergence": labels([divergence for _, divergence, _ in self.found], repeats),
            "value": column(np.float32, lambda _, spike: spike.value),
            "threshold": column(np.float32, lambda _, spike: spike.threshold),
            "height": column(np.int32, lambda _, spike: spike.height),
            "is_wrong": column(np.bool_, lambda sequence, spike: spike.position in sequence.wrong),
            "is_first_wrong": column(np.bool_, lambda sequence, spike: spike.position == sequence.first_wrong),
        }
        return pa.table({name: columns[name] for name in SPIKES_SCHEMA.names})

    def select(self, wanted: Callable[[Response], bool]) -> SpikeTable:
        """Return the part of the sequences for which `wanted` holds, in the same order."""
        kept = [wanted(sequence) for sequence in self.sequences]
        return replace(
            self,
            sequences=tuple(compress(self.sequences, kept)),
            found={key: [*compress(by_sequence, kept)] for key, by_sequence in self.found.items()},
            tops={key: tuple(compress(by_sequence, kept)) for key, by_sequence in self.tops.items()},
        )

    def positions(self, checkpoint: str, divergence: Divergence) -> list[list[int]]:
        """Return each sequence's spikes by the headline method."""
        by_sequence = self.found.get((checkpoint, divergence, self.method), [()] * len(self.sequences))
        return [[spike.position for spike in spikes] for spikes in by_sequence]

    def mask(self, checkpoint: str, divergence: Divergence) -> NDArray[np.bool_]:
        """Return, for every token of all sequences, whether it is a spike by the headline method."""
        masks = [np.zeros(0, dtype=np.bool_)]
        for sequence, spikes in zip(self.sequences, self.positions(checkpoint, divergence), strict=True):
            masks.append(np.isin(sequence.sampled_positions, spikes))
        return np.concatenate(masks)


def all_spikes(
    data: Measurements, settings: SpikeConfig, *, nulls: Mapping[Divergence, NDArray[Any]] | None = None
) -> SpikeTable:
    """Find the spikes of every sequence at every checkpoint in every divergence by every method.

    Args:
        data: pairs with one reference.
        settings: thresholds of all methods.
        nulls: divergence -> values of a pair that does not differ, for the method `calibrated`.
    """
    # Spikes are found among the tokens that the model sampled, and named by their positions.
    series = {
        (checkpoint, divergence): data.by_sequence(divergence, checkpoint)
        for checkpoint in data.checkpoints
        for divergence in DIVERGENCES
    }
    positions = [sequence.sampled_positions for sequence in data.sequences]
    found = spikes_by_method(series, settings, nulls=nulls)
    for by_sequence in found.values():
        for number, places in enumerate(positions):
            if not isinstance(places, range):
                own = by_sequence[number]
                by_sequence[number] = [replace(spike, position=places[spike.position]) for spike in own]
    tops = {
        key: tuple(places[int(np.argmax(own))] for places, own in zip(positions, values, strict=True))
        for key, values in series.items()
    }
    return SpikeTable(sequences=data.sequences, method=settings.method, found=found, tops=tops)


def spike_hits(data: Measurements, spikes: SpikeTable, *, confidence: float) -> tuple[SpikeHits, ...]:
    """Return how often the highest divergence of a rollout falls on a wrong step, and on the first one, against chance.

    Only rollouts with a known wrong token count (`num_rollouts`). Chance is the expected share if the position were
    drawn uniformly from the rollout's own positions. Where a label names the first wrong sentence and no token, the
    question is whether the position is anywhere in that sentence (`num_sentence_rollouts`), and chance draws a sentence
    of the rollout uniformly. Intervals are over problems, exact where there is one rollout per problem.
    """
    # What chance gives depends on the rollouts alone.
    marked = [(index, sequence) for index, sequence in enumerate(data.sequences) if sequence.wrong]
    lengths = [len(sequence.sampled_positions) for _, sequence in marked]
    num_wrong = [len(sequence.wrong) for _, sequence in marked]
    coarse = [(index, sequence) for index, sequence in enumerate(data.sequences) if sequence.wrong_sentence is not None]

    def hits(rows: Sequence[tuple[int, Response]], hit: list[bool]) -> Estimate | None:
        problems = [sequence.problem.id for _, sequence in rows]
        if len(set(problems)) == len(problems):
            return share(sum(hit), len(hit), confidence=confidence)
        return mean_interval(hit, clusters=problems, confidence=confidence, bounds=(0.0, 1.0))

    return tuple(
        SpikeHits(
            checkpoint=checkpoint,
            divergence=divergence,
            num_rollouts=len(marked),
            num_spikes=sum(map(len, spikes.positions(checkpoint, divergence))),
            top_on_wrong=hits(marked, [tops[index] in sequence.wrong for index, sequence in marked]),
            top_on_first_wrong=hits(marked, [tops[index] == sequence.first_wrong for index, sequence in marked]),
            chance_wrong=mean_if_any([num / length for num, length in zip(num_wrong, lengths, strict=True)]),
            chance_first_wrong=mean_if_any([1 / length for length in lengths]),
            num_sentence_rollouts=len(coarse),
            top_in_wrong_sentence=hits(
                coarse, [sequence.sentence_at(tops[index]) == sequence.wrong_sentence for index, sequence in coarse]
            ),
            chance_wrong_sentence=mean_if_any([1 / len(sequence.sentence_starts) for _, sequence in coarse]),
        )
        for (checkpoint, divergence), tops in spikes.tops.items()
    )
