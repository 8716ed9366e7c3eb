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

from swerve.batch import TokenBatch, TokenSequence, check_head, completion_hidden, token_batches
from swerve.errors import MismatchError
from swerve.functional.divergence import DivergenceStats
from swerve.functional.head_divergence import HeadBackend, HeadDivergence, TopProbs, head_divergence, logits_divergence
from swerve.models.head import Head, model_head
from swerve.models.model_folder import LoadedModel, tokenizer_fingerprint

# The head is checked on so few tokens that the logits are small for any vocabulary and any length.
_CHECKED_PROMPT = 32

_CHECKED_COMPLETION = 8

STATISTICS = tuple(field.name for field in dataclasses.fields(DivergenceStats))
"""Names of the statistics of a token, in the order of the table."""


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
    # Batches are of sequences of like length; the rows are put back in the order given.
    model, head = loaded.model, checked_model_head(loaded, sequences[0])
    pad_id = int(loaded.tokenizer.pad_token_id or 0)
    rows: dict[int, Tensor] = {}
    with torch.inference_mode():
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


def checked_model_head(loaded: LoadedModel, sequence: TokenSequence) -> Head:
    """Return a model's output head after comparing it with the model's own logits on the start of a completion.

    Raises:
        MismatchError: the model's logits cannot be formed from its hidden states.
    """
    prompt, completion = sequence
    head, pad_id = model_head(loaded.model), int(loaded.tokenizer.pad_token_id or 0)
    (batch,) = token_batches([(prompt[-_CHECKED_PROMPT:], completion[:_CHECKED_COMPLETION])], pad_id=pad_id)
    with torch.inference_mode():
        check_head(loaded.model, head, batch.to(loaded.model.device))
    return head


def unit_hidden(loaded: LoadedModel, head: Head, sequences: Sequence[TokenSequence]) -> Float[Tensor, "N D"]:
    """Run a model over sequences in one batch; return the hidden states of all completion positions, on the CPU."""
    (batch,) = token_batches(sequences, pad_id=int(loaded.tokenizer.pad_token_id or 0), in_order=True)
    with torch.inference_mode():
        hidden = completion_hidden(loaded.model, batch.to(loaded.model.device), head)
    return hidden.cpu()


def rebatched_hidden(loaded: LoadedModel, head: Head, sequences: Sequence[TokenSequence]) -> Float[Tensor, "N D"]:
    """Return what `unit_hidden` does, up to rounding: two batches, the last sequence first, one more padded position.

    How far the two differ is the noise that batching alone makes.
    """
    pad_id = int(loaded.tokenizer.pad_token_id or 0)
    backwards = list(range(len(sequences)))[::-1]
    middle = (len(backwards) + 1) // 2
    parts: dict[int, Tensor] = {}
    for chosen in (backwards[:middle], backwards[middle:]):
        if not chosen:
            continue
        (batch,) = token_batches([sequences[index] for index in chosen], pad_id=pad_id, in_order=True)
        with torch.inference_mode():
            hidden = completion_hidden(loaded.model, _wider(batch, pad_id).to(loaded.model.device), head)
        lengths = [len(sequences[index][1]) for index in chosen]
        parts.update(zip(chosen, torch.split(hidden.cpu(), lengths), strict=True))
    return torch.cat([parts[index] for index in range(len(sequences))])


def _wider(batch: TokenBatch, pad_id: int) -> TokenBatch:
    assert batch.attention_mask is not None

    def padded(tensor: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(tensor, (1, 0), value=value)

    return dataclasses.replace(
        batch,
        input_ids=padded(batch.input_ids, pad_id),
        attention_mask=padded(batch.attention_mask, 0),
        position_ids=padded(batch.position_ids, 0),
        prompt_width=batch.prompt_width + 1,
    )


def pair_statistics(
    hidden: Float[Tensor, "N D"],
    ref_hidden: Float[Tensor, "N E"],
    head: Head,
    ref_head: Head,
    ids: Int[Tensor, " N"],
    *,
    vocabulary_size: int,
    tokens_per_chunk: int,
    top_k: int = 0,
    backend: HeadBackend = "eager",
) -> HeadDivergence:
    """Compare two models' distributions over the first `vocabulary_size` tokens, one chunk of logits at a time.

    The result is on the CPU.

    Args:
        hidden: `[N, D]`, the checkpoint's (P), before its head.
        ref_hidden: `[N, E]`, the reference's (Q).
        head: the checkpoint's output head.
        ref_head: the reference's.
        ids: `[N]`, the realised tokens.
        vocabulary_size: tokens of the vocabulary that both share.
        tokens_per_chunk: rows of `[rows, vocabulary]` formed at a time.
        top_k: how many of each model's most likely tokens to return as well; 0 for none.
        backend: how sums over the vocabulary are computed (see `head_divergence`); heads that are no plain linear layer
            are always computed the eager way.
    """
    # Sums over the vocabulary are streamed where the heads are plain linear layers.
    linear, ref_linear = head.linear(), ref_head.linear()
    if linear is not None and ref_linear is not None:
        compared = head_divergence(
            hidden,
            ref_hidden,
            linear,
            ref_linear,
            ids,
            vocabulary_size=vocabulary_size,
            top_k=top_k,
            rows_per_chunk=tokens_per_chunk,
            backend=backend,
        )
    else:
        parts = []
        with torch.inference_mode():
            chunks = (torch.split(tensor, tokens_per_chunk) for tensor in (hidden, ref_hidden, ids))
            for own, other, chunk_ids in zip(*chunks, strict=True):
                logits, ref_logits = head(own)[:, :vocabulary_size], ref_head(other)[:, :vocabulary_size]
                parts.append(logits_divergence(logits, ref_logits, chunk_ids.to(logits.device), top_k))
        compared = HeadDivergence.of_parts(parts)
    return HeadDivergence(
        stats=DivergenceStats.of_parts([compared.stats], lambda tensors: tensors[0].cpu()),
        top=_on_cpu(compared.top),
        top_ref=_on_cpu(compared.top_ref),
    )


def _on_cpu(top: TopProbs | None) -> TopProbs | None:
    return None if top is None else TopProbs(probs=top.probs.cpu(), ids=top.ids.int().cpu())


def compare_positions(
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
    # What the two cannot differ in: vocabulary, tokenizer and sequences.
    ours, theirs = checkpoint.head.vocabulary_size, reference.head.vocabulary_size
    only = "only models with the same tokenizer can be compared"
    if ours != theirs:
        raise MismatchError(
            f"{checkpoint.label} has a vocabulary of {ours} tokens and {reference.label} one of {theirs}; {only}"
        )
    if checkpoint.tokenizer_sha256 != reference.tokenizer_sha256:
        raise MismatchError(f"the tokenizers of {checkpoint.label} and {reference.label} differ; {only}")
    if len(checkpoint.hidden) != len(reference.hidden):
        raise MismatchError(f"{checkpoint.label} and {reference.label} were run over different sequences")
    return pair_statistics(
        checkpoint.hidden,
        reference.hidden,
        checkpoint.head,
        reference.head,
        ids,
        vocabulary_size=ours,
        tokens_per_chunk=tokens_per_chunk,
    ).stats
