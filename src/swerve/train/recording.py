"""The training signal at every token of a step: what the updates pushed with, and where clipping stopped them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from swerve.train.tokens import TokenTable

__all__ = ["NO_SIGNAL", "SignalRecorder", "TokenSignals"]

SignalRow = Mapping[str, list[float] | None]
NO_SIGNAL: SignalRow = {"advantages": None, "kl": None, "clipped": None}
"""The signal's columns of a completion that no update learnt from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSignals:
    """What the updates of a step did at each token of this process's completions, `[B, T]` each."""

    groups: Sequence[int]
    """Number of the group of each completion."""
    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    """As they weighed the policy loss; 0 at tokens that it leaves out."""
    kl: Float[Tensor, "B T"] | None
    """The KL term's value, nats; None where the objective has none."""
    clipped: Float[Tensor, "B T"] | None
    """Share of the updates in which clipping removed the token's gradient; None where the loss does not clip."""

    def by_group(self) -> dict[int, list[SignalRow]]:
        """Return the columns of the rollouts table, a row a completion, for each group in the updates."""
        lengths = self.mask.sum(dim=1).tolist()
        tables = {
            name: None if table is None else table.tolist()
            for name, table in (("advantages", self.advantages), ("kl", self.kl), ("clipped", self.clipped))
        }
        found: dict[int, list[SignalRow]] = {}
        for row, (group, length) in enumerate(zip(self.groups, lengths, strict=True)):
            found.setdefault(group, []).append(
                {name: None if table is None else table[row][:length] for name, table in tables.items()}
            )
        return found


class SignalRecorder:
    """Collects what the objective computes at each token, over the micro-batches and updates of one step."""

    def __init__(self, table: TokenTable) -> None:
        self._kl = table.zeros()
        self._num_clipped = table.zeros()
        self._num_updates = torch.zeros(len(table.mask), 1)

    def add(self, rows: Sequence[int], mask: Bool[Tensor, "b t"], values: Mapping[str, Float[Tensor, " n"]]) -> None:
        """Take in one micro-batch of one update.

        Args:
            rows: which completions of the step its rows are.
            mask: `[b, t]`, its real tokens, n of them.
            values: `kl` (absent without such a term) and `clipped` at each of the tokens.
        """
        index = torch.tensor(rows, dtype=torch.long)
        width = mask.shape[1]
        if "kl" in values:
            # The policy moves with every update: the value that counts is that of the token's first.
            is_first = self._num_updates[index] == 0
            self._kl[index, :width] = torch.where(is_first, _placed(mask, values["kl"]), self._kl[index, :width])
        self._num_clipped[index, :width] += _placed(mask, values["clipped"])
        self._num_updates[index] += 1

    @property
    def first_kl(self) -> Float[Tensor, "B T"]:
        """The KL term's value in each token's first update, nats."""
        return self._kl

    @property
    def clipped_share(self) -> Float[Tensor, "B T"]:
        """Share of each token's updates in which clipping removed its gradient."""
        return self._num_clipped / self._num_updates.clamp(min=1)


def _placed(mask: Tensor, values: Tensor) -> Tensor:
    """Return `[b, t]` with the values at the real tokens, 0 elsewhere."""
    table = torch.zeros(mask.shape)
    table[mask.cpu()] = values.float().cpu()
    return table
