"""Figures of every completion token of a step, and their way into micro-batches and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from swerve.batch import TokenBatch, TokenSequence, completion_hidden
from swerve.models.head import Head

__all__ = ["TokenTable", "score_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """The shape `[B, T]` of a step's completions: B of them, T tokens in the longest, padded on the right."""

    mask: Bool[Tensor, "B T"]

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> TokenTable:
        """Return the table of (prompt ids, completion ids) pairs."""
        lengths = torch.tensor([len(completion) for _, completion in sequences], dtype=torch.long)
        return cls(mask=torch.arange(int(lengths.max()) if len(sequences) else 0) < lengths[:, None])

    def zeros(self) -> Float[Tensor, "B T"]:
        """Return a table of zeros."""
        return torch.zeros(self.mask.shape)

    def fill(self, rows: Sequence[Sequence[float]]) -> Float[Tensor, "B T"]:
        """Return a table of each completion's values."""
        table = self.zeros()
        for index, values in enumerate(rows):
            table[index, : len(values)] = torch.tensor(values)
        return table

    @staticmethod
    def take(table: Tensor, batch: TokenBatch) -> Float[Tensor, " N"]:
        """Return the values of a micro-batch's real tokens, one completion after the other, on its device."""
        width = batch.mask.shape[1]
        return table[list(batch.rows), :width].to(batch.mask.device)[batch.mask]


def score_tokens(
    model: PreTrainedModel,
    head: Head,
    batches: Sequence[TokenBatch],
    compute: Callable[[TokenBatch, Tensor], Tensor],
    table: TokenTable,
    *,
    num_scores: int,
) -> list[Float[Tensor, "B T"]]:
    """Return tables of scores of every token under a model, without gradients and without dropout.

    Args:
        model: in any mode; it is left in evaluation mode.
        head: the model's.
        batches: of all the table's completions.
        compute: (batch, hidden states `[N, D]`) -> `[N, num_scores]`.
        table: the shape of the result.
        num_scores: how many tables.
    """
    model.eval()
    tables = [table.zeros() for _ in range(num_scores)]
    with torch.no_grad():
        for batch in batches:
            moved = batch.to(model.device)
            scores = compute(moved, completion_hidden(model, moved, head)).float().cpu()
            for number, scored in enumerate(tables):
                part = torch.zeros(batch.mask.shape)
                part[batch.mask] = scores[:, number]
                scored[list(batch.rows), : part.shape[1]] = part
    return tables
