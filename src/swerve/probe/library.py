"""The probe as a library call: two models in memory, token sequences, and statistics of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.batch import TokenSequence
from swerve.config import DivergenceName, SpikeConfig, SpikeMethod
from swerve.errors import MismatchError, SwerveError
from swerve.functional.divergence import DivergenceStats
from swerve.probe.in_memory import completion_ids, model_states
from swerve.probe.teacher_forcing import ForcedStates, TopTokens, pair_statistics

__all__ = ["STATISTICS", "ProbeResult", "probe"]

STATISTICS = tuple(field.name for field in fields(DivergenceStats))
"""Names of the statistics of a token, in the order of the table."""
_IN_RANKS_OR_IDS = ("rank", "rank_ref", "argmax", "argmax_ref")
_DEFAULTS = SpikeConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What was measured at each of N completion tokens, one sequence after the other; every array is `[N]`.

    P is `model`, Q is `reference`. Divergences, entropies and log-probabilities are in nats.
    """

    sequence_ids: NDArray[np.int32]
    """Which sequence each token belongs to, from 0 in the order given."""
    positions: NDArray[np.int32]
    """From 0 at the first completion token."""
    token_ids: NDArray[np.int32]
    tokens: tuple[str, ...] | None
    """The text of each token; None without a tokenizer."""
    kl_forward: NDArray[np.float32]
    """KL(P || Q)."""
    kl_reverse: NDArray[np.float32]
    """KL(Q || P)."""
    js: NDArray[np.float32]
    """At most ln 2."""
    entropy: NDArray[np.float32]
    entropy_ref: NDArray[np.float32]
    logprob: NDArray[np.float32]
    """log P of the token that is there."""
    logprob_ref: NDArray[np.float32]
    rank: NDArray[np.int32]
    """1: P finds no token more likely."""
    rank_ref: NDArray[np.int32]
    argmax: NDArray[np.int32]
    argmax_ref: NDArray[np.int32]
    top: TopTokens | None
    """The `top_k` most likely tokens of P; None for `top_k=0`."""
    top_ref: TopTokens | None

    def table(self) -> pa.Table:
        """Return one row a token; the unit of each column is in its field's metadata."""
        columns = {
            "sequence_id": self.sequence_ids,
            "position": self.positions,
            "token_id": self.token_ids,
            **{name: getattr(self, name) for name in STATISTICS},
        }
        schema = pa.schema(
            [
                pa.field(name, pa.from_numpy_dtype(column.dtype), metadata=_unit(name))
                for name, column in columns.items()
            ]
        )
        table = pa.table(columns, schema=schema)
        return table if self.tokens is None else table.add_column(3, "token", pa.array(self.tokens, pa.string()))

    def to_pandas(self) -> Any:
        """Return `table` as a data frame; its `attrs["units"]` has the units.

        Raises:
            SwerveError: pandas is not installed.
        """
        table = self.table()
        try:
            frame = table.to_pandas()
        except ModuleNotFoundError:
            raise SwerveError("to_pandas needs pandas; install it with: pip install pandas") from None
        frame.attrs["units"] = {name: "nats" for name in STATISTICS if _unit(name)}
        return frame

    def by_sequence(self, name: str) -> list[NDArray[Any]]:
        """Return a column cut into one array a sequence.

        Raises:
            ValueError: there is no such statistic.
        """
        if name not in STATISTICS:
            raise ValueError(f"unknown statistic {name!r}; use one of {', '.join(STATISTICS)}")
        return np.split(getattr(self, name), np.flatnonzero(np.diff(self.sequence_ids)) + 1)

    def spikes(
        self,
        method: SpikeMethod = "zscore",
        *,
        divergence: DivergenceName = "js",
        settings: SpikeConfig = _DEFAULTS,
        null: NDArray[Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the positions whose divergence stands out, by sequence and position.

        Each is `{"sequence_id", "position", "token_id", "value", "threshold", "height"}`, value and threshold in nats,
        height 1 for the highest of its sequence.

        Args:
            method: zscore, percentile (of all tokens here), adaptive, absolute or calibrated; see `SpikeConfig`.
            divergence: js, kl_forward or kl_reverse.
            settings: the methods' parameters.
            null: for `calibrated`, values of the divergence between two runs of one model: what noise makes.

        Raises:
            ValueError: method or divergence is not known, or `calibrated` has no null values.
        """
        from swerve.probe.spikes import find_spikes  # needs scipy, which nothing else here does

        series = self.by_sequence(divergence)
        found = find_spikes(series, settings, method=method, pooled=getattr(self, divergence), null=null)
        starts = np.cumsum([0, *map(len, series)])
        return [
            {
                "sequence_id": index,
                "position": spike.position,
                "token_id": int(self.token_ids[starts[index] + spike.position]),
                "value": spike.value,
                "threshold": spike.threshold,
                "height": spike.height,
            }
            for index, spikes in enumerate(found)
            for spike in spikes
        ]


def _unit(name: str) -> dict[str, str] | None:
    return {"unit": "nats"} if name in STATISTICS and name not in _IN_RANKS_OR_IDS else None


def probe(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    sequences: Sequence[TokenSequence],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    top_k: int = 0,
    tokens_per_batch: int = 16384,
    tokens_per_chunk: int = 256,
) -> ProbeResult:
    """Compare two causal models of transformers at every completion token, under teacher forcing.

    Both read the same tokens; at position t their distributions over completion token t, given everything before it,
    are compared over the full vocabulary at temperature 1, in float32 with float64 sums. Neither model is changed:
    weights, gradients and training mode are what they were.

    Args:
        model: P.
        reference: Q, with the same vocabulary.
        sequences: (prompt ids, completion ids) pairs, none of them empty; the end-of-sequence token is a position.
        tokenizer: gives the text of each token.
        top_k: how many of each model's most likely tokens to keep at each position.
        tokens_per_batch: padded tokens of one forward pass.
        tokens_per_chunk: rows of `[rows, vocabulary]` held at a time.

    Raises:
        ValueError: there are no sequences, one has an empty half or an id outside the vocabulary, or a number is wrong.
        MismatchError: the vocabularies differ, or a model's logits cannot be formed from its hidden states.
    """
    for name, value, least in (
        ("top_k", top_k, 0),
        ("tokens_per_batch", tokens_per_batch, 1),
        ("tokens_per_chunk", tokens_per_chunk, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    states, ref_states = (
        model_states(one, sequences, label=label, tokens_per_batch=tokens_per_batch)
        for one, label in ((model, "the model"), (reference, "the reference"))
    )
    ids = completion_ids(sequences)
    found = pair_statistics(
        states.hidden,
        ref_states.hidden,
        states.head,
        ref_states.head,
        ids,
        vocabulary_size=_shared_vocabulary(states, ref_states, tokenizer),
        tokens_per_chunk=tokens_per_chunk,
        top_k=top_k,
    )
    lengths = [len(completion) for _, completion in sequences]
    return ProbeResult(
        sequence_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        token_ids=ids.numpy().astype(np.int32),
        tokens=None if tokenizer is None else tuple(str(tokenizer.decode([token])) for token in ids.tolist()),
        top=found.top,
        top_ref=found.top_ref,
        **{name: getattr(found.stats, name).numpy() for name in STATISTICS},
    )


def _shared_vocabulary(
    states: ForcedStates, ref_states: ForcedStates, tokenizer: PreTrainedTokenizerBase | None
) -> int:
    """Return the number of tokens that both heads have, if the difference can only be padding."""
    sizes = states.head.vocabulary_size, ref_states.head.vocabulary_size
    devices = [str(one.head.projection.weight.device) for one in (states, ref_states)]
    if devices[0] != devices[1]:
        raise MismatchError(f"the model is on {devices[0]} and the reference on {devices[1]}; move them to one device")
    known = None if tokenizer is None else 1 + max(tokenizer.get_vocab().values(), default=-1)
    if sizes[0] != sizes[1] and (known is None or known > min(sizes)):
        raise MismatchError(
            f"the model has a vocabulary of {sizes[0]} tokens and the reference one of {sizes[1]}; only models with "
            "the same tokenizer can be compared (where only the padding differs, give the tokenizer)"
        )
    return min(sizes)
