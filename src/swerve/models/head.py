"""A model's output head, apart from the model: hidden states are kept, and logits formed for a chunk of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from swerve.errors import MismatchError
from swerve.functional.head_logits import LinearHead
from swerve.functional.token_head import ChunkLoss, ChunkMap, chunked_head_loss, chunked_head_map

_SOFT_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_TILE = 8192
_WIDE = (torch.float64, torch.float32)
_NUM_IDS = "swerve_num_ids"
"""Attribute of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A model's output head with what its forward pass does to the logits afterwards."""

    projection: nn.Module
    multiplier: float = 1.0
    softcap: float | None = None
    num_ids: int | None = None
    """Only so many first rows of the projection are tokens; see `limit_ids_of`. None: all."""

    @property
    def vocabulary_size(self) -> int:
        """Number of logits."""
        weight = self.projection.weight
        assert isinstance(weight, Tensor)
        return int(weight.shape[0]) if self.num_ids is None else self.num_ids

    def loss(self, hidden: Float[Tensor, "N D"], loss: ChunkLoss) -> Float[Tensor, ""]:
        """Return the sum of a loss over the rows, one chunk of logits at a time; see `chunked_head_loss`."""
        return chunked_head_loss(hidden, self._linear(), loss)

    def map(self, hidden: Float[Tensor, "N D"], function: ChunkMap) -> Float[Tensor, "N K"]:
        """Return statistics of each row, one chunk of logits at a time; see `chunked_head_map`."""
        return chunked_head_map(hidden, self._linear(), function)

    def linear(self) -> LinearHead | None:
        """Return the head as tensors; None where it is more than a plain linear layer (quantised, adapted)."""
        if type(self.projection) is not nn.Linear:
            return None
        head = self._linear()
        return replace(head, weight=head.weight.detach(), bias=None if head.bias is None else head.bias.detach())

    def _linear(self) -> LinearHead:
        if not isinstance(self.projection, nn.Linear):
            raise MismatchError(
                f"the output head is a {type(self.projection).__name__}; training needs a plain linear layer"
            )
        weight: Tensor = self.projection.weight
        bias: Tensor | None = self.projection.bias
        if self.num_ids is not None:
            weight, bias = weight[: self.num_ids], None if bias is None else bias[: self.num_ids]
        return LinearHead(weight=weight, bias=bias, multiplier=self.multiplier, softcap=self.softcap)

    def __call__(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the logits of hidden states, in at least float32 whatever the type of the weights."""
        weight = self.projection.weight
        assert isinstance(weight, Tensor)
        logits = _project(self.projection, hidden.to(weight.device))[..., : self.num_ids] * self.multiplier
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def _project(projection: nn.Module, hidden: Tensor) -> Tensor:
    weight = projection.weight
    assert isinstance(weight, Tensor)
    if not isinstance(projection, nn.Linear) or weight.dtype in _WIDE:
        logits: Tensor = projection(hidden)
        return logits
    # Logits rounded to 16 bits would drown small divergences: multiply in float32, one tile of the weights at a time.
    wide = hidden.float()
    logits = torch.cat([wide @ tile.float().T for tile in torch.split(weight, _TILE)], dim=-1)
    return logits if projection.bias is None else logits + projection.bias.float()


def limit_ids_of(model: PreTrainedModel, num_ids: int) -> None:
    """Note how many ids the model's tokenizer has: further rows of the model's head are padding, not tokens.

    From then on every distribution of the model, sampled from, learned or compared, is over these ids alone.
    """
    untyped: Any = model
    head = untyped.get_output_embeddings()
    if head is not None and num_ids < head.weight.shape[0]:
        setattr(model, _NUM_IDS, num_ids)


def num_ids_of(model: PreTrainedModel) -> int | None:
    """Return how many first entries of the model's logits are tokens; None: all, as far as is known."""
    num_ids: int | None = getattr(model, _NUM_IDS, None)
    return num_ids


def padding_ids(model: PreTrainedModel) -> range:
    """Return the ids that the model has logits of, but its tokenizer no token."""
    untyped: Any = model
    num_rows, num_ids = untyped.get_output_embeddings().weight.shape[0], num_ids_of(model)
    return range(num_rows if num_ids is None else num_ids, num_rows)


def model_head(model: PreTrainedModel) -> Head:
    """Return the output head of any causal model of transformers.

    Logits are multiplied by `logit_scale` (Cohere), divided by `logits_scaling` (Granite), multiplied by
    `lm_head_multiplier` (Falcon-H1) and capped by `final_logit_softcapping` (Gemma), `logits_soft_cap` (RecurrentGemma)
    or `output_logit_soft_cap` (xLSTM), where the configuration has these.

    Raises:
        MismatchError: the model has no output head.
    """
    untyped: Any = model
    projection: nn.Module | None = untyped.get_output_embeddings()
    if projection is None:
        raise MismatchError(f"{type(model).__name__} has no output head; the probe needs a causal language model")
    config = model.config.get_text_config()

    def setting(name: str) -> float | None:
        value = getattr(config, name, None)
        return float(value) if value else None

    # What its forward pass does to the logits.
    multiplier = (setting("logit_scale") or 1.0) * (setting("lm_head_multiplier") or 1.0)
    multiplier /= setting("logits_scaling") or 1.0
    return Head(
        projection=projection,
        multiplier=multiplier,
        softcap=next(filter(None, map(setting, _SOFT_CAPS)), None),
        num_ids=num_ids_of(model),
    )


def head_tolerance(dtype: torch.dtype) -> float:
    """Return the largest difference from a model's own logits, relative to their size, that rounding explains."""
    return {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 3e-2)


@contextmanager
def head_inputs(projection: nn.Module, *, skip_head: bool) -> Iterator[list[Tensor]]:
    """Collect what is given to the head; with `skip_head` the head sees no position, so that no logits are formed."""
    captured: list[Tensor] = []

    def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        captured.append(args[0])
        return (args[0][:, :0], *args[1:]) if skip_head else None

    handle = projection.register_forward_pre_hook(hook)
    try:
        yield captured
    finally:
        handle.remove()
