"""Whether a model reads packed rows as it reads padded ones."""

from __future__ import annotations

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from swerve.batch import TokenBatch, model_states, token_batches
from swerve.errors import MismatchError
from swerve.models.head import Head, head_tolerance, model_head
from swerve.models.packed_attention import sdpa_again, use_packed_attention
from swerve.models.trial import Trial, close, passes, reads_padded
from swerve.positions import turns


def reads_packed_rows(model: PreTrainedModel, head: Head) -> bool:
    """Let a model read packed rows beside padded ones, and return whether it gives the same states in both.

    Two prompts and four completions are tried, and texts longer than each window of attention by a copy of the model.
    Models whose attention has what the packed one has not, or that mix tokens elsewhere than in attention, do not; they
    are left as they were.
    """
    attention = model.config._attn_implementation
    is_flash = attention.startswith("flash")
    if not (reads_padded(model) and passes(model.config, _packs, attention=attention if is_flash else None)):
        return False
    if not use_packed_attention(model):
        return False
    sequences = [((0, 1, 2), (1, 0)), ((0, 1, 2), (1, 2, 0, 1)), ((1, 2), (0,)), ((1, 2), (2, 2, 0))]
    (padded,) = token_batches(sequences, pad_id=0, in_order=True)
    (packed,) = token_batches(sequences, pad_id=0, packed=True)
    # Both sets of rotary angles are tried, where a model has two, by positions that begin at the turn.
    starts = [0, *(turn for turn, is_gradual in turns(model.config) if not is_gradual)]
    training = model.training
    model.eval()  # dropout would make the two passes differ
    agrees = all(_reads_packed_like_padded(model, head, padded, packed, start) for start in starts)
    model.train(training)
    if not agrees:
        sdpa_again(model)
    return agrees


def _packs(trial: Trial) -> bool:
    """Whether packed texts, two of which begin alike, have the states that they have in padded rows.

    So must padded rows, which are then attended to by the same implementation.
    """
    model, head = trial.model, model_head(trial.model)
    halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in trial.texts if len(text) > 1]
    sequences = [*halves, (halves[0][0], halves[-1][1])]
    (padded,) = token_batches(sequences, pad_id=0, in_order=True)
    (packed,) = token_batches(sequences, pad_id=0, packed=True)
    expected = model_states(model, padded.to(model.device), head)
    if not use_packed_attention(model):
        return False
    try:
        return all(close(model_states(model, batch.to(model.device), head), expected) for batch in (packed, padded))
    finally:
        sdpa_again(model)


def _reads_packed_like_padded(
    model: PreTrainedModel, head: Head, padded: TokenBatch, packed: TokenBatch, start: int
) -> bool:
    """Whether a model has the same states for packed and padded rows, whose positions begin at `start`."""
    padded, packed = (
        replace(batch, position_ids=batch.position_ids + start).to(model.device) for batch in (padded, packed)
    )
    with torch.no_grad():
        expected = model_states(model, padded, head).double()
        try:
            states = model_states(model, packed, head).double()
        except (MismatchError, TypeError, ValueError, RuntimeError, IndexError):
            return False  # of the architecture's own code, which may not know what it is asked for
    tolerance = head_tolerance(model.dtype)
    return torch.allclose(states, expected, rtol=tolerance, atol=tolerance * float(expected.abs().amax()))
