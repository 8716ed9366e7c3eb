"""Teacher forcing: the same sequences through several models, each model's distribution over every completion token.

What is kept of a model is its hidden states at the completion positions (after the final norm) and its output head,
never logits: those are formed for one chunk of tokens at a time. So the reference runs once for any number of
checkpoints, and one model besides its head is in memory at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from swerve.batch import TokenBatch, completion_logits, token_batches
from swerve.errors import MismatchError
from swerve.functional.divergence import DivergenceStats, divergence_stats, topk_probs
from swerve.models.load import LoadedModel, tokenizer_fingerprint

__all__ = ["ForcedStates", "Head", "TopTokens", "compare", "forced_states", "model_head", "top_tokens"]

TokenSequence = tuple[Sequence[int], Sequence[int]]
_TILE = 8192
# Largest difference from the model's own logits, relative to their size, that rounding explains.
_HEAD_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOW_PRECISION_TOLERANCE = 3e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A model's output head with what its forward pass does to the logits afterwards."""

    projection: nn.Module
    multiplier: float = 1.0
    softcap: float | None = None

    @property
    def vocabulary_size(self) -> int:
        """Number of logits."""
        weight = self.projection.weight
        assert isinstance(weight, Tensor)
        return int(weight.shape[0])

    def __call__(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the logits of hidden states, in at least float32 whatever the type of the weights."""
        weight = self.projection.weight
        assert isinstance(weight, Tensor)
        logits = _project(self.projection, hidden.to(weight.device)) * self.multiplier
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def _project(projection: nn.Module, hidden: Tensor) -> Tensor:
    weight = projection.weight
    assert isinstance(weight, Tensor)
    if not isinstance(projection, nn.Linear) or weight.dtype in _HEAD_TOLERANCE:
        logits: Tensor = projection(hidden)
        return logits
    # Logits rounded to 16 bits would drown small divergences: multiply in float32, one tile of the weights at a time.
    wide = hidden.float()
    logits = torch.cat([wide @ tile.float().T for tile in torch.split(weight, _TILE)], dim=-1)
    return logits if projection.bias is None else logits + projection.bias.float()


def model_head(model: PreTrainedModel) -> Head:
    """Return the output head of any causal model of transformers.

    Logits are multiplied by `logit_scale` (Cohere), divided by `logits_scaling` (Granite), multiplied by
    `lm_head_multiplier` (Falcon-H1) and capped by `final_logit_softcapping` (Gemma), where the configuration has these.

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

    multiplier = (setting("logit_scale") or 1.0) * (setting("lm_head_multiplier") or 1.0)
    multiplier /= setting("logits_scaling") or 1.0
    return Head(projection=projection, multiplier=multiplier, softcap=setting("final_logit_softcapping"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedStates:
    """A model's hidden states before the head at every completion position of every sequence, one after the other."""

    label: str
    """The checkpoint, as messages and tables name it."""
    head: Head
    hidden: Float[Tensor, "N D"]
    tokenizer_sha256: str


@contextmanager
def _head_inputs(projection: nn.Module, *, skip_head: bool) -> Iterator[list[Tensor]]:
    """Collect what is given to the head; with `skip_head` the head sees no position, so that no logits are formed."""
    captured: list[Tensor] = []

    def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        captured.append(args[0].detach())
        return (args[0][:, :0], *args[1:]) if skip_head else None

    handle = projection.register_forward_pre_hook(hook)
    try:
        yield captured
    finally:
        handle.remove()


def _hidden(model: PreTrainedModel, head: Head, batch: TokenBatch) -> Tensor:
    with _head_inputs(head.projection, skip_head=True) as captured:
        completion_logits(model, batch)
    if len(captured) != 1 or captured[0].shape[:2] != batch.completion_ids.shape:
        raise MismatchError(
            f"the output head of {type(model).__name__} is not called once with the positions asked for"
        )
    return captured[0]


def _check_head(model: PreTrainedModel, head: Head, batch: TokenBatch) -> None:
    """Compare the logits that the probe forms from hidden states with the model's own."""
    own = completion_logits(model, batch)[batch.mask]
    formed = head(_hidden(model, head, batch)[batch.mask]).to(own.dtype)
    tolerance = _HEAD_TOLERANCE.get(own.dtype, _LOW_PRECISION_TOLERANCE)
    size = float(own[torch.isfinite(own)].abs().amax())
    if own.shape != formed.shape or not torch.allclose(formed, own, rtol=tolerance, atol=tolerance * size):
        raise MismatchError(
            f"{type(model).__name__} turns hidden states into logits in a way the probe does not know; "
            "its divergences would be wrong, so it is refused"
        )


def forced_states(
    loaded: LoadedModel,
    sequences: Sequence[TokenSequence],
    *,
    label: str,
    tokens_per_batch: int,
    on_batch: Callable[[int], None] | None = None,
) -> ForcedStates:
    """Run a model over sequences (prompt ids, completion ids) and keep its hidden states at the completion positions.

    Row n of the result belongs to the n-th completion token, counted over all sequences in the order given: it predicts
    that token.

    Args:
        loaded: the model, in evaluation mode.
        sequences: at least one.
        label: names the model in messages and tables.
        tokens_per_batch: padded tokens of one forward pass.
        on_batch: called with the number of sequences done since the last call.

    Raises:
        MismatchError: the model's logits cannot be formed from its hidden states.
    """
    model, head = loaded.model, model_head(loaded.model)
    pad_id = int(loaded.tokenizer.pad_token_id or 0)
    rows: dict[int, Tensor] = {}
    with torch.inference_mode():
        _check_head(model, head, token_batches(sequences[:1], pad_id=pad_id)[0].to(model.device))
        for batch in token_batches(sequences, pad_id=pad_id, tokens_per_batch=tokens_per_batch):
            moved = batch.to(model.device)
            hidden = _hidden(model, head, moved)
            for index, row in enumerate(batch.rows):
                rows[row] = hidden[index, moved.mask[index]].cpu()
            if on_batch is not None:
                on_batch(len(batch.rows))
    return ForcedStates(
        label=label,
        head=head,
        hidden=torch.cat([rows[index] for index in range(len(sequences))]),
        tokenizer_sha256=tokenizer_fingerprint(loaded.tokenizer),
    )


def _check_same_vocabulary(checkpoint: ForcedStates, reference: ForcedStates) -> None:
    ours, theirs = checkpoint.head.vocabulary_size, reference.head.vocabulary_size
    if ours != theirs:
        raise MismatchError(
            f"{checkpoint.label} has a vocabulary of {ours} tokens and {reference.label} one of {theirs}; "
            "only models with the same tokenizer can be compared"
        )
    if checkpoint.tokenizer_sha256 != reference.tokenizer_sha256:
        raise MismatchError(
            f"the tokenizers of {checkpoint.label} and {reference.label} differ; "
            "only models with the same tokenizer can be compared"
        )
    if len(checkpoint.hidden) != len(reference.hidden):
        raise MismatchError(f"{checkpoint.label} and {reference.label} were run over different sequences")


def compare(
    checkpoint: ForcedStates, reference: ForcedStates, ids: Int[Tensor, " N"], *, tokens_per_chunk: int
) -> DivergenceStats:
    """Compare a checkpoint (P) with the reference (Q) at each position, one chunk of logits at a time.

    Args:
        checkpoint: P.
        reference: Q, over the same sequences.
        ids: `[N]`, the realised tokens.
        tokens_per_chunk: rows of `[rows, vocabulary]` formed at a time.

    Raises:
        MismatchError: vocabulary, tokenizer or sequences of the two differ; the message names them.
    """
    _check_same_vocabulary(checkpoint, reference)
    parts = []
    with torch.inference_mode():
        chunks = (torch.split(tensor, tokens_per_chunk) for tensor in (checkpoint.hidden, reference.hidden, ids))
        for hidden_p, hidden_q, chunk_ids in zip(*chunks, strict=True):
            logits_p, logits_q = checkpoint.head(hidden_p), reference.head(hidden_q)
            parts.append(divergence_stats(logits_p, logits_q, chunk_ids.to(logits_p.device)))
    names = [field.name for field in dataclasses.fields(DivergenceStats)]
    return DivergenceStats(**{name: torch.cat([getattr(part, name).cpu() for part in parts]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopTokens:
    """The most likely tokens at each position, the most likely first."""

    probs: Float[Tensor, "N K"]
    ids: Int[Tensor, "N K"]


def top_tokens(states: ForcedStates, *, k: int, tokens_per_chunk: int) -> TopTokens:
    """Return each position's `k` most likely tokens (the whole vocabulary, if it is smaller)."""
    with torch.inference_mode():
        parts = [topk_probs(states.head(chunk), k) for chunk in torch.split(states.hidden, tokens_per_chunk)]
    return TopTokens(
        probs=torch.cat([probs.cpu() for probs, _ in parts]), ids=torch.cat([ids.cpu() for _, ids in parts])
    )
