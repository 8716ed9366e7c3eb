"""Teacher forcing: the same sequences through several models, each model's distribution over every completion token.

What is kept of a model is its hidden states at the completion positions (after the final norm) and its output head,
never logits: those are formed for one chunk of tokens at a time. So the reference runs once for any number of
checkpoints, and one model besides its head is in memory at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from swerve.batch import check_head, completion_hidden, token_batches
from swerve.errors import MismatchError
from swerve.functional.divergence import DivergenceStats, divergence_stats, topk_probs
from swerve.models.head import Head, model_head
from swerve.models.load import LoadedModel, tokenizer_fingerprint

__all__ = ["ForcedStates", "TopTokens", "compare", "forced_states", "top_tokens"]

TokenSequence = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedStates:
    """A model's hidden states before the head at every completion position of every sequence, one after the other."""

    label: str
    """The checkpoint, as messages and tables name it."""
    head: Head
    hidden: Float[Tensor, "N D"]
    tokenizer_sha256: str


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
        check_head(model, head, token_batches(sequences[:1], pad_id=pad_id)[0].to(model.device))
        for batch in token_batches(sequences, pad_id=pad_id, tokens_per_batch=tokens_per_batch):
            moved = batch.to(model.device)
            hidden = completion_hidden(model, moved, head).cpu()
            lengths = batch.mask.sum(dim=1).tolist()
            rows.update(zip(batch.rows, torch.split(hidden, lengths), strict=True))
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
