"""The embedded engine: samples with the model being trained, in this process, for any causal model of transformers.

Each distinct prompt is prefilled once and its key-value cache copied to its samples; finished rows leave the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from swerve.errors import SwerveError
from swerve.rollout.engine import SamplingParams
from swerve.types import Completion

__all__ = ["TorchEngine"]

# Rows are dropped from the batch once this share of them has finished: each compaction copies the cache.
_COMPACTION_SHARE = 0.125
_MAX_LOGITS = 1 << 22


class TorchEngine:
    """Samples from a `transformers` causal model with a key-value cache.

    Log-probabilities are those of the distribution sampled from: at the sampling temperature, or at temperature 1
    when decoding greedily. They agree with a teacher-forced forward pass to rounding.
    """

    def __init__(self, model: PreTrainedModel, *, pad_id: int, max_rows: int) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self._model = model
        self._pad_id = pad_id
        self._max_rows = max_rows

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`.

        Raises:
            ValueError: an empty prompt, a wrong number of seeds or budgets, more tokens than the model has positions.
        """
        budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
        self._check(prompts, params, seeds, budgets)
        rows = [(prompt, sample) for prompt in range(len(prompts)) for sample in range(params.num_samples)]
        rows.sort(key=lambda row: (len(prompts[row[0]]), budgets[row[0]]))
        finished: dict[tuple[int, int], Completion] = {}
        with _evaluating(self._model), torch.inference_mode():
            for start in range(0, len(rows), self._max_rows):
                chunk = rows[start : start + self._max_rows]
                completions = self._generate_rows(chunk, prompts, params, seeds, budgets, on_finished)
                finished.update(zip(chunk, completions, strict=True))
        return [
            tuple(finished[prompt, sample] for sample in range(params.num_samples)) for prompt in range(len(prompts))
        ]

    def _check(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        seeds: Sequence[int],
        budgets: Sequence[int],
    ) -> None:
        if not len(prompts) == len(seeds) == len(budgets):
            raise ValueError(f"{len(prompts)} prompts need as many seeds and budgets, got {len(seeds)}, {len(budgets)}")
        limit = getattr(self._model.config, "max_position_embeddings", None)
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            if not len(prompt):
                raise ValueError(f"prompt {index} is empty; a model needs at least one token")
            if not 1 <= budget <= params.max_new_tokens:
                raise ValueError(f"budget {budget} of prompt {index} is not within 1..{params.max_new_tokens}")
            if limit is not None and len(prompt) + budget > limit:
                raise ValueError(
                    f"prompt {index} has {len(prompt)} tokens and may grow by {budget}, but the model has {limit} "
                    "positions; lower max_new_tokens"
                )

    def _generate_rows(
        self,
        rows: Sequence[tuple[int, int]],
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        seeds: Sequence[int],
        budgets: Sequence[int],
        on_finished: Callable[[int], None] | None,
    ) -> list[Completion]:
        device = self._model.device
        state = _Decoding(
            self._model, [prompts[row[0]] for row in rows], pad_id=self._pad_id, keys=[row[0] for row in rows]
        )
        uniforms = _uniforms(rows, params, seeds).to(device)
        stops = torch.tensor(params.stop_ids, dtype=torch.long, device=device)
        limits = torch.tensor([budgets[row[0]] for row in rows], device=device)
        width = int(limits.max())
        token_ids = torch.zeros(len(rows), width, dtype=torch.long, device=device)
        logprobs = torch.zeros(len(rows), width, device=device)
        lengths = torch.zeros(len(rows), dtype=torch.long, device=device)
        active = torch.arange(len(rows), device=device)
        alive = torch.ones(len(rows), dtype=torch.bool, device=device)
        for position in range(width):
            ids, scores = _sample(state.logits, uniforms[active, position], params.temperature)
            writing = active[alive]
            token_ids[writing, position] = ids[alive]
            logprobs[writing, position] = scores[alive]
            lengths[writing] = position + 1
            before = int(alive.sum())
            alive = alive & ~torch.isin(ids, stops) & (position + 1 < limits[active])
            num_alive = int(alive.sum())
            if on_finished is not None and num_alive < before:
                on_finished(before - num_alive)
            if num_alive == 0:
                break
            keep = None
            if num_alive <= (1 - _COMPACTION_SHARE) * len(active):
                keep = alive.nonzero().squeeze(1)
                active, ids, alive = active[keep], ids[keep], alive[keep]
            state.advance(ids, keep)
        return _completions(token_ids, logprobs, lengths, stops)


class _Decoding:
    """Key-value cache and next-token logits of the rows being decoded."""

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, pad_id: int, keys: Sequence[int]
    ) -> None:
        """Prefill each distinct key's prompt once, then copy its cache to all rows with that key."""
        self._model = model
        distinct = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        first = dict(zip(keys, prompts, strict=True))
        width = max(map(len, prompts))
        input_ids = torch.full((len(distinct), width), pad_id, dtype=torch.long)
        mask = torch.zeros_like(input_ids)
        for key, index in distinct.items():
            input_ids[index, width - len(first[key]) :] = torch.tensor(list(first[key]))
            mask[index, width - len(first[key]) :] = 1
        input_ids, mask = input_ids.to(model.device), mask.to(model.device)
        self._cache = _growing_cache(model)
        self._padded = bool((mask == 0).any())
        output = model(
            input_ids=input_ids,
            attention_mask=mask if self._padded else None,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        source = torch.tensor([distinct[key] for key in keys], device=model.device)
        self._cache.batch_select_indices(source)
        self._mask = mask[source]
        self._positions = self._mask.sum(1, keepdim=True)
        self.logits: Float[Tensor, "B V"] = output.logits[source, -1]

    def advance(self, ids: Int[Tensor, " B"], keep: Int[Tensor, " B"] | None) -> None:
        """Drop the rows not in `keep` (None: keep all), append one token to each that stays."""
        if keep is not None:
            self._cache.batch_select_indices(keep)
            self._mask, self._positions = self._mask[keep], self._positions[keep]
        if self._padded:
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(ids), 1)], dim=1)
        output = self._model(
            input_ids=ids[:, None],
            attention_mask=self._mask if self._padded else None,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._positions = self._positions + 1
        self.logits = output.logits[:, -1]


class _GrowingLayer(DynamicLayer):
    """A cache layer that appends in place to a buffer of doubling capacity, where the original copies every step."""

    _key_buffer: Tensor | None = None
    _value_buffer: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self.get_seq_length()
        total = length + key_states.shape[-2]
        if self._key_buffer is None or self._value_buffer is None or self._key_buffer.shape[-2] < total:
            self._key_buffer = _enlarged(self.keys, key_states, length, 2 * total)
            self._value_buffer = _enlarged(self.values, value_states, length, 2 * total)
        self._key_buffer[:, :, length:total] = key_states
        self._value_buffer[:, :, length:total] = value_states
        self.keys = self._key_buffer[:, :, :total]
        self.values = self._value_buffer[:, :, :total]
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._key_buffer = self._value_buffer = None


def _enlarged(old: Tensor | None, new: Tensor, length: int, capacity: int) -> Tensor:
    batch, heads, _, width = new.shape
    buffer = new.new_empty(batch, heads, capacity, width)
    if old is not None and length:
        buffer[:, :, :length] = old
    return buffer


def _growing_cache(model: PreTrainedModel) -> Cache:
    growing_layer: Any = _GrowingLayer  # a typed handle: the class it extends is not typed
    cache = DynamicCache(config=model.config)
    if any(not hasattr(layer, "batch_select_indices") for layer in cache.layers):
        raise SwerveError(
            f"{type(model).__name__} keeps a state that is not a key-value cache; the embedded engine samples from "
            "models with attention only"
        )
    cache.layers = [growing_layer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _uniforms(
    rows: Sequence[tuple[int, int]], params: SamplingParams, seeds: Sequence[int]
) -> Float[Tensor, "B max_new_tokens"]:
    """Return the uniform numbers that choose each row's tokens: drawn per prompt, so free of the batch's make-up."""
    drawn: dict[int, Tensor] = {}
    if params.temperature == 0:
        return torch.zeros(len(rows), params.max_new_tokens, dtype=torch.float64)
    for prompt, _ in rows:
        if prompt not in drawn:
            generator = torch.Generator().manual_seed(seeds[prompt])
            shape = (params.num_samples, params.max_new_tokens)
            drawn[prompt] = torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.stack([drawn[prompt][sample] for prompt, sample in rows])


def _sample(
    logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"], temperature: float
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Return a token for each row, where the cumulative distribution passes `uniforms`, and its log-probability."""
    rows = max(1, _MAX_LOGITS // logits.shape[-1])
    if len(logits) > rows:  # the temporaries below are several times the size of the logits
        parts = [_sample(*part, temperature) for part in zip(logits.split(rows), uniforms.split(rows), strict=True)]
        return torch.cat([ids for ids, _ in parts]), torch.cat([scores for _, scores in parts])
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        ids = logits.argmax(dim=-1)
    else:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        targets = uniforms[:, None] * cumulative[:, -1:]
        # side right: the first entry above the target, which is never a token of probability 0
        ids = torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp(max=logits.shape[-1] - 1)
    return ids, logprobs.gather(-1, ids[:, None]).squeeze(1)


def _completions(
    token_ids: Int[Tensor, "B T"], logprobs: Float[Tensor, "B T"], lengths: Int[Tensor, " B"], stops: Int[Tensor, " S"]
) -> list[Completion]:
    last = token_ids.gather(1, (lengths - 1)[:, None]).squeeze(1)
    stopped = torch.isin(last, stops).tolist()
    return [
        Completion(
            token_ids=tuple(ids[:length]),
            logprobs=tuple(scores[:length]),
            finish_reason="stop" if stop else "length",
        )
        for ids, scores, length, stop in zip(
            token_ids.tolist(), logprobs.tolist(), lengths.tolist(), stopped, strict=True
        )
    ]


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
