"""The probe's measurements, held by column, and the tables made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from swerve.artifacts.tables import SPIKES_SCHEMA, TOKENS_SCHEMA, TOPK_SCHEMA
from swerve.config import SpikeConfig, SpikeMethod
from swerve.functional.divergence import DivergenceStats
from swerve.probe.population import ProbeSequence
from swerve.probe.spikes import Spike, spikes_by_method, top_position
from swerve.probe.teacher_forcing import TopTokens

__all__ = [
    "DIVERGENCES",
    "MEASURES",
    "Measurements",
    "SpikeTable",
    "all_spikes",
    "stack_measurements",
    "token_table",
    "topk_table",
]

DIVERGENCES = ("kl_forward", "kl_reverse", "js")
MEASURES = (
    *DIVERGENCES,
    "entropy",
    "entropy_ref",
    "logprob",
    "logprob_ref",
    "rank",
    "rank_ref",
    "argmax",
    "argmax_ref",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured on N completion tokens (all sequences, one after the other) at K checkpoints."""

    sequences: tuple[ProbeSequence, ...]
    checkpoints: tuple[str, ...]
    """Labels, K of them."""
    references: tuple[str, ...]
    """Label of the other model of each pair, K of them; all the same unless the pairs are consecutive checkpoints."""
    columns: dict[str, NDArray[Any]]
    """Each of `MEASURES`, `[K, N]`."""
    categories: tuple[str, ...]
    """One a token, N of them."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each sequence."""
        return np.array([len(sequence.completion_ids) for sequence in self.sequences], dtype=np.int64)

    @property
    def sequence_index(self) -> NDArray[np.int64]:
        """`[N]`: which sequence each token belongs to."""
        return np.repeat(np.arange(len(self.sequences)), self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """`[N]`: each token's position in its completion."""
        return np.concatenate([np.arange(0), *map(np.arange, self.lengths)])

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """`[N]`."""
        return np.array([token for one in self.sequences for token in one.completion_ids], dtype=np.int64)

    @property
    def problem_ids(self) -> list[str]:
        """The problem of each token, N of them."""
        return [one.problem.id for one in self.sequences for _ in one.completion_ids]

    def by_sequence(self, name: str, checkpoint: str) -> list[NDArray[Any]]:
        """Return a column at one checkpoint, cut into one array a sequence."""
        values = self.columns[name][self.checkpoints.index(checkpoint)]
        return np.split(values, np.cumsum(self.lengths)[:-1]) if self.sequences else []

    def pick(self, wanted: Callable[[str, str], bool]) -> Measurements:
        """Return the pairs (checkpoint, reference) for which `wanted` holds, in the same order."""
        pairs = list(zip(self.checkpoints, self.references, strict=True))
        kept = [index for index, pair in enumerate(pairs) if wanted(*pair)]
        return replace(
            self,
            checkpoints=tuple(self.checkpoints[index] for index in kept),
            references=tuple(self.references[index] for index in kept),
            columns={name: column[kept] for name, column in self.columns.items()},
        )

    def select(self, wanted: Callable[[ProbeSequence], bool]) -> Measurements:
        """Return the part of the sequences for which `wanted` holds, in the same order."""
        kept = np.array([wanted(one) for one in self.sequences], dtype=np.bool_)
        tokens = np.repeat(kept, self.lengths)
        return replace(
            self,
            sequences=tuple(one for one, keep in zip(self.sequences, kept.tolist(), strict=True) if keep),
            columns={name: column[:, tokens] for name, column in self.columns.items()},
            categories=tuple(one for one, keep in zip(self.categories, tokens.tolist(), strict=True) if keep),
        )


def stack_measurements(
    sequences: Sequence[ProbeSequence],
    stats: dict[tuple[str, str], DivergenceStats],
    categories: Sequence[str],
) -> Measurements:
    """Put the statistics of each pair (labels of checkpoint and reference) side by side."""
    columns = {name: np.stack([getattr(one, name).numpy() for one in stats.values()]) for name in MEASURES}
    return Measurements(
        sequences=tuple(sequences),
        checkpoints=tuple(checkpoint for checkpoint, _ in stats),
        references=tuple(reference for _, reference in stats),
        columns=columns,
        categories=tuple(categories),
    )


def _labels(values: Sequence[str], repeats: NDArray[Any]) -> pa.DictionaryArray:
    """Return `values[repeats]` as a column of labels, each distinct label stored once."""
    names = list(dict.fromkeys(values))
    codes = np.array([names.index(value) for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes[repeats]), pa.array(names, pa.string()))


def token_table(data: Measurements) -> pa.Table:
    """Return `tokens.parquet`: one row a token and checkpoint, by sequence, position and checkpoint."""
    num_checkpoints, num_tokens = len(data.checkpoints), len(data.categories)

    names = sorted(set(data.categories))
    codes = {name: code for code, name in enumerate(names)}
    categories = np.array([codes[category] for category in data.categories], dtype=np.int64)

    def repeated(values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, num_checkpoints)

    pairs = np.tile(np.arange(num_checkpoints), num_tokens)
    columns = {
        "sequence_id": repeated(np.array([one.sequence_id for one in data.sequences])[data.sequence_index]),
        "position": repeated(data.positions),
        "token_id": repeated(data.token_ids),
        "checkpoint": _labels(data.checkpoints, pairs),
        "reference": _labels(data.references, pairs),
        **{name: column.T.reshape(-1) for name, column in data.columns.items()},
        "category": _labels(names, repeated(categories)),
    }
    return pa.table({name: columns[name] for name in TOKENS_SCHEMA.names})


def topk_table(sequences: Sequence[ProbeSequence], tops: dict[str, TopTokens], pieces: Sequence[str]) -> pa.Table:
    """Return `topk.parquet`: one row a token and model (by label), by sequence, position and model.

    Args:
        sequences: the rollouts.
        tops: the most likely tokens of each model at all N tokens.
        pieces: the text of every token of the vocabulary.
    """
    lengths = [len(sequence.completion_ids) for sequence in sequences]
    probs = np.stack([top.probs.numpy() for top in tops.values()], axis=1)  # [N, models, k]
    ids = np.stack([top.ids.numpy() for top in tops.values()], axis=1)
    num_rows, k = probs.shape[0] * probs.shape[1], probs.shape[2]
    offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32) * k)
    names = pa.DictionaryArray.from_arrays(
        pa.array(ids.reshape(-1).astype(np.int32)), pa.array(list(pieces), pa.string())
    )

    def repeated(values: Any) -> NDArray[Any]:
        return np.repeat(values, len(tops))

    columns = {
        "sequence_id": repeated(np.repeat([sequence.sequence_id for sequence in sequences], lengths)),
        "position": repeated(np.concatenate([np.arange(length) for length in lengths])),
        "checkpoint": _labels(list(tops), np.tile(np.arange(len(tops)), probs.shape[0])),
        "token_ids": pa.ListArray.from_arrays(offsets, pa.array(ids.reshape(-1).astype(np.int32))),
        "tokens": pa.ListArray.from_arrays(offsets, names.cast(pa.string())),
        "probs": pa.ListArray.from_arrays(offsets, pa.array(probs.reshape(-1).astype(np.float32))),
    }
    return pa.table({name: columns[name] for name in TOPK_SCHEMA.names})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeTable:
    """Spikes of every sequence, checkpoint and divergence by every method, and where each divergence is highest."""

    sequences: tuple[ProbeSequence, ...]
    method: SpikeMethod
    """The method of the headline figures."""
    found: Mapping[tuple[str, str, str], Sequence[Sequence[Spike]]]
    """(checkpoint, divergence, method) -> each sequence's spikes."""
    tops: Mapping[tuple[str, str], tuple[int, ...]]
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

    def positions(self, checkpoint: str, divergence: str) -> list[list[int]]:
        """Return each sequence's spikes by the headline method."""
        by_sequence = self.found.get((checkpoint, divergence, self.method), [()] * len(self.sequences))
        return [[spike.position for spike in spikes] for spikes in by_sequence]


def all_spikes(
    data: Measurements, settings: SpikeConfig, *, nulls: Mapping[str, NDArray[Any]] | None = None
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
