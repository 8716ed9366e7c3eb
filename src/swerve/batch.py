"""Padded batches of token sequences, and the logits that predict each completion token.

This is the only place that shifts by one token: everywhere else position t names the token it predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from swerve.errors import MismatchError
from swerve.models.head import Head, head_inputs, head_tolerance, model_head

TokenSequence = tuple[Sequence[int], Sequence[int]]
"""Prompt ids and completion ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """Prompts padded on the left to one width, completions padded on the right to another; L = P + T."""

    input_ids: Int[Tensor, "B L"]
    attention_mask: Int[Tensor, "B L"]
    position_ids: Int[Tensor, "B L"]
    completion_ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    """True at the positions of real completion tokens, the end-of-sequence token included."""
    prompt_width: int
    """P, in tokens."""
    rows: tuple[int, ...]
    """Which of the sequences given each row is."""

    def to(self, device: torch.device | str) -> TokenBatch:
        """Return the batch on another device."""
        names = ("input_ids", "attention_mask", "position_ids", "completion_ids", "mask")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def token_batches(
    sequences: Sequence[TokenSequence], *, pad_id: int, tokens_per_batch: int | None = None, in_order: bool = False
) -> list[TokenBatch]:
    """Pad (prompt ids, completion ids) pairs into batches of at most `tokens_per_batch` padded tokens.

    Sequences of similar length share a batch; `rows` says which is which. A sequence longer than the budget gets a
    batch of its own. Without a budget there is one batch, without sequences none. With `in_order` rows stay in the
    order given.

    Raises:
        ValueError: a sequence has an empty prompt or completion.
    """
    if not sequences:
        return []
    for index, (prompt, completion) in enumerate(sequences):
        if not len(prompt) or not len(completion):
            raise ValueError(f"sequence {index} has an empty {'completion' if len(prompt) else 'prompt'}")
    order = list(range(len(sequences)))
    if not in_order:
        order.sort(key=lambda index: len(sequences[index][0]) + len(sequences[index][1]))
    batches: list[list[int]] = [[]]
    width = [0, 0]
    for index in order:
        prompt, completion = sequences[index]
        grown = [max(width[0], len(prompt)), max(width[1], len(completion))]
        if batches[-1] and tokens_per_batch is not None and (len(batches[-1]) + 1) * sum(grown) > tokens_per_batch:
            batches.append([])
            grown = [len(prompt), len(completion)]
        batches[-1].append(index)
        width = grown
    return [_pad(sequences, rows, pad_id) for rows in batches]


def _pad(sequences: Sequence[TokenSequence], rows: list[int], pad_id: int) -> TokenBatch:
    prompt_width = max(len(sequences[row][0]) for row in rows)
    completion_width = max(len(sequences[row][1]) for row in rows)
    input_ids = torch.full((len(rows), prompt_width + completion_width), pad_id, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for index, row in enumerate(rows):
        prompt, completion = sequences[row]
        start, end = prompt_width - len(prompt), prompt_width + len(completion)
        input_ids[index, start:end] = torch.tensor([*prompt, *completion])
        attention_mask[index, start:end] = 1
    return TokenBatch(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=(attention_mask.cumsum(1) - 1).clamp(min=0),
        completion_ids=input_ids[:, prompt_width:],
        mask=attention_mask[:, prompt_width:].bool(),
        prompt_width=prompt_width,
        rows=tuple(rows),
    )


def completion_logits(model: PreTrainedModel, batch: TokenBatch) -> Float[Tensor, "B T V"]:
    """Return the logits whose softmax is the model's distribution over each completion token.

    The logits at input index i predict the token at i + 1, so completion token t (input index P + t) is predicted at
    P + t - 1. Only those positions reach the head.
    """
    _, length = batch.input_ids.shape
    keep = torch.arange(batch.prompt_width - 1, length - 1, device=batch.input_ids.device)
    logits: Tensor = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        logits_to_keep=keep,
        use_cache=False,
    ).logits
    return logits


def completion_hidden(model: PreTrainedModel, batch: TokenBatch, head: Head) -> Float[Tensor, "N D"]:
    """Return what the head is given at each real completion token, one sequence after the other, padding left out.

    Row n of `head(completion_hidden(...))` is row n of `completion_logits(...)[batch.mask]`; no logits are formed.

    Raises:
        MismatchError: the model does not call its head once with the positions asked for.
    """
    with head_inputs(head.projection, skip_head=True) as captured:
        completion_logits(model, batch)
    if len(captured) != 1 or captured[0].shape[:2] != batch.completion_ids.shape:
        raise MismatchError(
            f"the output head of {type(model).__name__} is not called once with the positions asked for"
        )
    return captured[0][batch.mask]


def check_head(model: PreTrainedModel, head: Head, batch: TokenBatch) -> None:
    """Compare the logits that `head` forms from hidden states with the model's own.

    Raises:
        MismatchError: they differ by more than rounding.
    """
    own = completion_logits(model, batch)[batch.mask]
    formed = head(completion_hidden(model, batch, head)).to(own.dtype)
    tolerance = head_tolerance(own.dtype)
    size = float(own[torch.isfinite(own)].abs().amax())
    if own.shape != formed.shape or not torch.allclose(formed, own, rtol=tolerance, atol=tolerance * size):
        raise MismatchError(
            f"{type(model).__name__} turns hidden states into logits in a way that is not known here; results that "
            "rest on these logits would be wrong, so it is refused"
        )


def checked_head(model: PreTrainedModel) -> Head:
    """Return a model's output head, checked on a few tokens to give the model's own logits.

    Raises:
        MismatchError: it does not, or the model has no output head.
    """
    head = model_head(model)
    (batch,) = token_batches([((0, 1), (1, 0))], pad_id=0)
    training = model.training
    model.eval()  # dropout would make the two passes differ
    with torch.no_grad():
        check_head(model, head, batch.to(model.device))
    model.train(training)
    return head
