"""Columns with one number per completion token: into micro-batches and back, and what is recorded of the updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from swerve.batch import TokenBatch, TokenSequence
from swerve.functional.logprobs import token_logprobs
from swerve.train.replicated_model import ReplicatedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """The shape `[B, T]` of a step's completions: B of them, T tokens in the longest, padded on the right."""

    mask: Bool[Tensor, "B T"]

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> TokenTable:
        """Return the table of (prompt ids, completion ids) pairs."""
        lengths = torch.tensor([len(completion) for _, completion in sequences], dtype=torch.long)
        return cls(mask=torch.arange(int(lengths.max()) if len(sequences) else 0) < lengths[:, None])

    def zeros(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "B T"]:
        """Return a table of zeros."""
        return torch.zeros(self.mask.shape, dtype=dtype)

    def fill(self, rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Float[Tensor, "B T"]:
        """Return a table of each completion's values."""
        table = self.zeros(dtype)
        values = np.fromiter(chain.from_iterable(rows), np.float64 if dtype.is_floating_point else np.int64)
        table[self.mask] = torch.from_numpy(values).to(dtype)
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenColumns:
    """What the objective knows of each token: `[B, T]` of a step or an update, `[N]` of a micro-batch or a chunk.

    A column that the stage does not need is None. Log-probabilities, entropies and divergences are in nats.
    """

    ids: Int[Tensor, "*shape"]
    weights: Float[Tensor, "*shape"]
    """Weight in the reduction; 1 at every token of a step, until an update divides by its denominators."""
    policy_weights: Float[Tensor, "*shape"]
    """The same of the policy loss; 0 where it leaves the token or the completion out."""
    advantages: Float[Tensor, "*shape"]
    sampler_logprobs: Float[Tensor, "*shape"]
    old_logprobs: Float[Tensor, "*shape"] | None = None
    """Before the step's updates; None in a single update, whose own, without gradient, are the same numbers."""
    ref_logprobs: Float[Tensor, "*shape"] | None = None
    log_ratio: Float[Tensor, "*shape"] | None = None
    """Mean log-ratio of the token's sequence, under the present weights."""
    sampler_log_ratio: Float[Tensor, "*shape"] | None = None
    """Log-ratio of policy to sampler of the token's sequence, where the correction is by sequences."""
    entropies: Float[Tensor, "*shape"] | None = None
    values: Float[Tensor, "*shape"] | None = None
    """Of the value head before the step's updates."""
    returns: Float[Tensor, "*shape"] | None = None
    """What the value head learns."""
    reward_kl: Float[Tensor, "*shape"] | None = None
    """KL estimate, where the KL is in the reward."""

    def map(self, change: Callable[[Tensor], Tensor]) -> TokenColumns:
        """Return the columns after the same change to each."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(column) for name, column in columns.items() if column is not None})

    def of_batch(self, batch: TokenBatch) -> TokenColumns:
        """Return the columns `[N]` of a micro-batch's real tokens, one completion after the other, on its device."""
        rows, width = list(batch.rows), batch.mask.shape[1]
        return self.map(lambda column: column[rows, :width].to(batch.mask.device)[batch.mask])


def score_tokens(
    weights: ReplicatedModel,
    batches: Sequence[TokenBatch],
    compute: Callable[[TokenBatch, Tensor], Tensor],
    table: TokenTable,
    *,
    num_scores: int,
) -> list[Float[Tensor, "B T"]]:
    """Return tables of scores of every token under a model, without gradients and without dropout.

    Args:
        weights: the model, in any mode; it is left in evaluation mode.
        batches: of all the table's completions.
        compute: (batch, hidden states `[N, D]`) -> `[N, num_scores]`.
        table: the shape of the result.
        num_scores: how many tables.
    """
    weights.model.eval()
    tables = [table.zeros() for _ in range(num_scores)]
    with torch.no_grad():
        for batch in batches:
            moved = batch.to(weights.model.device)
            scores = compute(moved, weights.completion_hidden(moved))
            for number, scored in enumerate(tables):
                scored[list(batch.rows), : batch.mask.shape[1]] = _spread(batch.mask, scores[:, number])
    return tables


def score_logprobs(
    weights: ReplicatedModel, batches: Sequence[TokenBatch], table: TokenTable, *, temperature: float
) -> Float[Tensor, "B T"]:
    """Return the log-probability (nats) of every token under a model; see `score_tokens`."""

    def compute(batch: TokenBatch, hidden: Tensor) -> Tensor:
        ids = batch.completion_ids[batch.mask]
        return weights.head.map(
            hidden, lambda logits, rows: token_logprobs(logits, ids[rows], temperature=temperature)[:, None]
        )

    return score_tokens(weights, batches, compute, table, num_scores=1)[0]


class Member(NamedTuple):
    """Which of a step's completions one is."""

    group: int
    """Number of its group, over all processes."""
    place: int
    """Within the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSignals:
    """What the updates of a step did at each token of this process's completions."""

    members: Sequence[Member]
    """Which completions they are."""
    mask: Bool[Tensor, "B T"]
    columns: Mapping[str, Float[Tensor, "B T"] | None]
    """By name in the rollouts table; None where the objective has no such thing."""

    def by_member(self) -> dict[Member, dict[str, list[float] | None]]:
        """Return the columns of the rollouts table, a row for each completion in the updates."""
        lengths = self.mask.sum(dim=1).tolist()
        tables = {name: None if column is None else column.tolist() for name, column in self.columns.items()}
        return {
            member: {name: None if table is None else table[row][:length] for name, table in tables.items()}
            for row, (member, length) in enumerate(zip(self.members, lengths, strict=True))
        }


class SignalRecorder:
    """Collects what the objective computes at each token, over the micro-batches and updates of one step."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._first: dict[str, Tensor] = {}
        self._total: dict[str, Tensor] = {}
        self._num_updates = torch.zeros(len(table.mask), 1)

    def add(self, rows: Sequence[int], mask: Bool[Tensor, "b t"], values: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Take in one micro-batch of one update.

        Args:
            rows: which completions of the step its rows are.
            mask: `[b, t]`, its real tokens, n of them.
            values: by name, at each of the tokens.
        """
        index = torch.tensor(rows, dtype=torch.long)
        width = mask.shape[1]
        is_first = self._num_updates[index] == 0
        for name, column in values.items():
            spread = _spread(mask, column)
            for tables in (self._first, self._total):
                tables.setdefault(name, self._table.zeros())
            self._first[name][index, :width] = torch.where(is_first, spread, self._first[name][index, :width])
            self._total[name][index, :width] += spread
        self._num_updates[index] += 1

    def first(self, name: str) -> Float[Tensor, "B T"]:
        """Return each token's value in its first update, before the policy moved; 0 if there was none."""
        return self._first.get(name, self._table.zeros())

    @property
    def is_read(self) -> Bool[Tensor, "B 1"]:
        """Which completions were in a micro-batch."""
        return self._num_updates > 0

    def mean(self, name: str) -> Float[Tensor, "B T"]:
        """Return each token's mean over its updates."""
        return self._total.get(name, self._table.zeros()) / self._num_updates.clamp(min=1)


def _spread(mask: Tensor, values: Tensor) -> Tensor:
    """Return `[b, t]` with the values at the real tokens, 0 elsewhere."""
    table = torch.zeros(mask.shape)
    table[mask.cpu()] = values.float().cpu()
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """What the updates of one step learn from, on this process: B completions of at most T tokens."""

    sequences: Sequence[TokenSequence]
    members: Sequence[Member]
    """Which of the step's completions they are."""
    table: TokenTable
    rewards: Tensor
    """`[B]`."""
    columns: TokenColumns
    """`[B, T]` each."""
    entropies: Float[Tensor, " B"]
    """Of each completion, summed over its tokens, under the policy before the updates; NaN where the sampler does not
    know it."""
    batches: Callable[[], Sequence[TokenBatch]]
    """Returns micro-batches of all the completions; all processes must call it."""
