"""Two models write one completion: one proposes every token, the other's token is taken where a selector fires.

Both advance in lockstep on the same prefix, each with its own key-value cache, and propose with the same uniform random
number, so that equal distributions propose equal tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from swerve.config.probe import SwapSelector
from swerve.functional.divergence import divergence_stats
from swerve.positions import angles_of, forget_lengths
from swerve.rollout.decoding import Decoding, GrowingRows, evaluating, row_draws, sample_tokens
from swerve.rollout.engine import SamplingParams, check_request
from swerve.seeds import derive_seed
from swerve.types import FinishReason

Role = Literal["base", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedCompletion:
    """A completion of which some tokens are the other model's."""

    token_ids: tuple[int, ...]
    swapped: tuple[int, ...]
    """Positions whose token is the other model's."""
    num_changed: int
    """Of these, where the two models proposed different tokens."""
    finish_reason: FinishReason
    scores: Mapping[SwapSelector, tuple[float, ...]] = field(default_factory=dict)
    """Scores of the selectors that were to be recorded, one per token."""


def scores_of_logits(
    base_logits: Float[Tensor, "B V"],
    other_logits: Float[Tensor, "B V"],
    ids: Int[Tensor, " B"],
    *,
    checkpoint: Role,
    random: Float[Tensor, " B"],
) -> dict[SwapSelector, Float[Tensor, " B"]]:
    """Return what each selector says of each row; a selector fires where its score is above a threshold.

    Of the two full distributions at temperature 1, P the checkpoint's and Q the reference's, for the token x that the
    base proposes:

        js, kl_forward = KL(P || Q), kl_reverse = KL(Q || P)   in nats
        abs_logprob_change = |log P(x) - log Q(x)|             in nats
        logprob_drop = log base(x) - log other(x)              in nats: how much less likely the other finds x
        entropy                                                of the base, in nats
        rank                                                   of x under the other; 1: most likely
        random                                                 the number given

    The signed change comes from arXiv 2603.22117, the divergences from arXiv 2603.22446.

    Args:
        base_logits: `[B, V]`.
        other_logits: `[B, V]`.
        ids: `[B]`, the base's proposals.
        checkpoint: which of the two is P.
        random: `[B]`, uniform in [0, 1).

    Raises:
        ValueError: a row is not a distribution.

    >>> scores = scores_of_logits(
    ...     torch.tensor([[0.5, 0.5]]).log(),
    ...     torch.tensor([[0.25, 0.75]]).log(),
    ...     torch.tensor([0]),
    ...     checkpoint="other",
    ...     random=torch.tensor([0.125]),
    ... )
    >>> {name: round(float(value), 6) for name, value in scores.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'js': 0.033822, 'kl_forward': 0.130812, 'kl_reverse': 0.143841, 'abs_logprob_change': 0.693147,
     'logprob_drop': 0.693147, 'entropy': 0.693147, 'rank': 2.0, 'random': 0.125}
    """
    stats = divergence_stats(base_logits, other_logits, ids)  # here P is the base
    base_is_checkpoint = checkpoint == "base"
    drop = stats.logprob - stats.logprob_ref
    return {
        "js": stats.js,
        "kl_forward": stats.kl_forward if base_is_checkpoint else stats.kl_reverse,
        "kl_reverse": stats.kl_reverse if base_is_checkpoint else stats.kl_forward,
        "abs_logprob_change": drop.abs(),
        "logprob_drop": drop,
        "entropy": stats.entropy,
        "rank": stats.rank_ref.to(drop.dtype),
        "random": random,
    }


def generate_mixed(
    base: PreTrainedModel,
    other: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    selector: SwapSelector,
    threshold: float,
    checkpoint: Role,
    seeds: Sequence[int],
    pad_id: int,
    max_rows: int,
    record: Sequence[SwapSelector] = (),
    on_finished: Callable[[int], None] | None = None,
) -> list[tuple[MixedCompletion, ...]]:
    """Return `params.num_samples` completions of each prompt, the base's but for the tokens where the selector fires.

    At each step base and other propose a token each by the same uniform number; the other's is taken where the
    selector's score is above `threshold`. For `random` a threshold of 1 - p swaps a token with probability p. A
    threshold of plus infinity gives what `TorchEngine` samples from the base with these seeds, minus infinity what it
    samples from the other.

    Args:
        base: proposes every token.
        other: of the same tokenizer.
        prompts: token ids, at least one each.
        params: how to sample; scores are at temperature 1 whatever the temperature.
        selector: see `scores_of_logits`.
        threshold: of the selector's score.
        checkpoint: which of the two is P in `kl_forward` and `kl_reverse`.
        seeds: one per prompt.
        pad_id: a token id that stands before shorter prompts.
        max_rows: completions decoded at a time; each model's cache has as many rows.
        record: selectors whose scores are kept.
        on_finished: called with the number of completions finished since the last call.

    Raises:
        ValueError: an empty prompt, a wrong number of seeds, a threshold that is not a number, or `max_rows` below 1.
        EngineError: see `check_request`.
    """
    if max_rows < 1 or math.isnan(threshold):
        raise ValueError(f"max_rows must be at least 1 and threshold a number, got {max_rows} and {threshold}")
    for model in (base, other):
        check_request(model, prompts, params, seeds)
        forget_lengths(model)

    def angles(row: tuple[int, int]) -> list[tuple[int, ...]]:
        return [angles_of(model.config, len(prompts[row[0]])) for model in (base, other)]

    def mixed(rows: Sequence[tuple[int, int]]) -> list[MixedCompletion]:
        keys = [prompt for prompt, _ in rows]
        texts = [prompts[key] for key in keys]
        states = [Decoding(model, texts, pad_id=pad_id, keys=keys) for model in (base, other)]
        return _mixed_rows(states, rows, params, seeds, selector, threshold, checkpoint, record, on_finished)

    # The engine's order, so that its batches and with them its rounding are these. Texts that one of the models reads
    # with other rotary angles have batches of their own.
    rows = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(params.num_samples)]
    rows.sort(key=lambda row: len(prompts[row[0]]))
    finished: dict[tuple[int, int], MixedCompletion] = {}
    with evaluating(base), evaluating(other), torch.inference_mode():
        for _, side in groupby(rows, angles):
            members = list(side)
            for start in range(0, len(members), max_rows):
                chunk = members[start : start + max_rows]
                finished.update(zip(chunk, mixed(chunk), strict=True))
    return [tuple(finished[prompt, sample] for sample in range(params.num_samples)) for prompt in range(len(prompts))]


def _mixed_rows(
    states: Sequence[Decoding],
    rows: Sequence[tuple[int, int]],
    params: SamplingParams,
    seeds: Sequence[int],
    selector: SwapSelector,
    threshold: float,
    checkpoint: Role,
    record: Sequence[SwapSelector],
    on_finished: Callable[[int], None] | None,
) -> list[MixedCompletion]:
    """Return a completion of each row (prompt and sample), from the states of base and other after their prompts."""
    device = states[0].logits.device
    uniforms = row_draws(rows, params, seeds).to(device)
    # The selector `random` has a stream of its own, which has nothing to do with the tokens'.
    swap_draws = row_draws(rows, params, [derive_seed(seed, "swap") for seed in seeds]).to(device)
    stops = torch.tensor(params.stop_ids, dtype=torch.long, device=device)
    growing = GrowingRows(torch.full((len(rows),), params.max_new_tokens, device=device), stops)
    growing.admit(len(rows))
    swapped = torch.zeros(growing.token_ids.shape, dtype=torch.bool, device=device)
    changed = torch.zeros_like(swapped)
    recorded = torch.zeros(len(record), *growing.token_ids.shape, device=device)
    for position in range(params.max_new_tokens):
        # Both propose a token of each row, and the scores say whose is taken.
        active = growing.active
        base, other = (state.row_logits.to(device) for state in states)
        lines, draws = torch.arange(len(active), device=device), uniforms[active, position]
        own, theirs = (sample_tokens(logits, lines, draws, params.temperature).ids for logits in (base, other))
        scores = scores_of_logits(base, other, own, checkpoint=checkpoint, random=swap_draws[active, position])
        fires = scores[selector] > threshold
        taken = torch.where(fires, theirs, own)
        swapped[active, position] = fires
        changed[active, position] = fires & (own != theirs)
        for index, name in enumerate(record):
            recorded[index, active, position] = scores[name].float()

        # Both read the tokens that were taken; rows that have ended leave the batch.
        keep = growing.write(taken)
        num_finished = len(taken) - len(growing.active)
        if on_finished is not None and num_finished:
            on_finished(num_finished)
        if not len(growing.active):
            break
        for state in states:
            ids = taken if keep is None else taken[keep]
            state.advance(ids.to(state.logits.device), None if keep is None else keep.to(state.logits.device))

    columns = zip(
        growing.token_ids.tolist(),
        swapped.tolist(),
        changed.sum(1).tolist(),
        growing.lengths.tolist(),
        growing.stopped(),
        recorded.transpose(0, 1).tolist(),
        strict=True,
    )
    return [
        MixedCompletion(
            token_ids=tuple(ids[:length]),
            swapped=tuple(position for position, fired in enumerate(flags) if fired),
            num_changed=num_changed,
            finish_reason="stop" if stopped else "length",
            scores={name: tuple(values[:length]) for name, values in zip(record, row, strict=True)},
        )
        for ids, flags, num_changed, length, stopped, row in columns
    ]
