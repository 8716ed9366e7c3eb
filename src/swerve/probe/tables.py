"""The probe's measurements, held by column, and the tables made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from swerve.artifacts.tables import TOKENS_SCHEMA, TOPK_SCHEMA
from swerve.config import SpikeConfig
from swerve.functional.divergence import DivergenceStats
from swerve.probe.population import ProbeSequence
from swerve.probe.spikes import top_position, zscore_spikes
from swerve.probe.teacher_forcing import TopTokens

__all__ = [
    "DIVERGENCES",
    "MEASURES",
    "Measurements",
    "SpikeTable",
    "find_spikes",
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


def stack_measurements(
    sequences: Sequence[ProbeSequence], stats: dict[str, DivergenceStats], categories: Sequence[str]
) -> Measurements:
    """Put the statistics of each checkpoint (by label) side by side."""
    columns = {name: np.stack([getattr(one, name).numpy() for one in stats.values()]) for name in MEASURES}
    return Measurements(
        sequences=tuple(sequences), checkpoints=tuple(stats), columns=columns, categories=tuple(categories)
    )


def _labels(indices: NDArray[Any], names: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(list(names), pa.string()))


def token_table(data: Measurements) -> pa.Table:
    """Return `tokens.parquet`: one row a token and checkpoint, by sequence, position and checkpoint."""
    num_checkpoints, num_tokens = len(data.checkpoints), len(data.categories)

    def repeated(values: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(values, num_checkpoints)

    names = sorted(set(data.categories))
    categories = np.array([names.index(category) for category in data.categories], dtype=np.int32)
    columns = {
        "sequence_id": repeated(np.array([one.sequence_id for one in data.sequences])[data.sequence_index]),
        "position": repeated(data.positions),
        "token_id": repeated(data.token_ids),
        "checkpoint": _labels(np.tile(np.arange(num_checkpoints), num_tokens), data.checkpoints),
        **{name: column.T.reshape(-1) for name, column in data.columns.items()},
        "category": _labels(repeated(categories), names),
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
    names = _labels(ids.reshape(-1), pieces)

    def repeated(values: Any) -> NDArray[Any]:
        return np.repeat(values, len(tops))

    columns = {
        "sequence_id": repeated(np.repeat([sequence.sequence_id for sequence in sequences], lengths)),
        "position": repeated(np.concatenate([np.arange(length) for length in lengths])),
        "checkpoint": _labels(np.tile(np.arange(len(tops)), probs.shape[0]), list(tops)),
        "token_ids": pa.ListArray.from_arrays(offsets, pa.array(ids.reshape(-1).astype(np.int32))),
        "tokens": pa.ListArray.from_arrays(offsets, names.cast(pa.string())),
        "probs": pa.ListArray.from_arrays(offsets, pa.array(probs.reshape(-1).astype(np.float32))),
    }
    return pa.table({name: columns[name] for name in TOPK_SCHEMA.names})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeTable:
    """Spikes of every sequence, checkpoint and divergence, and where each is highest."""

    rows: tuple[dict[str, Any], ...]
    """The rows of `spikes.parquet`."""
    tops: dict[tuple[str, str], tuple[int, ...]]
    """(checkpoint, divergence) -> each sequence's position of the largest value, spike or not."""


def find_spikes(data: Measurements, settings: SpikeConfig) -> SpikeTable:
    """Find the spikes of every sequence at every checkpoint by every divergence."""
    rows: list[dict[str, Any]] = []
    tops: dict[tuple[str, str], tuple[int, ...]] = {}
    for checkpoint in data.checkpoints:
        for divergence in DIVERGENCES:
            series = data.by_sequence(divergence, checkpoint)
            tops[checkpoint, divergence] = tuple(map(top_position, series))
            for sequence, values in zip(data.sequences, series, strict=True):
                rows += _spike_rows(sequence, values, checkpoint, divergence, settings)
    return SpikeTable(rows=tuple(rows), tops=tops)


def _spike_rows(
    sequence: ProbeSequence, values: NDArray[Any], checkpoint: str, divergence: str, settings: SpikeConfig
) -> list[dict[str, Any]]:
    spikes = zscore_spikes(values, num_sd=settings.num_sd, min_distance=settings.min_distance)
    return [
        {
            "sequence_id": sequence.sequence_id,
            "position": spike.position,
            "checkpoint": checkpoint,
            "divergence": divergence,
            "value": spike.value,
            "threshold": spike.threshold,
            "height": spike.height,
            "is_wrong": spike.position in sequence.wrong,
            "is_first_wrong": spike.position == sequence.first_wrong,
        }
        for spike in spikes
    ]
