"""Decoding of a batch of rows: key-value cache, next-token logits, sampling, and the rows that are still growing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from swerve.errors import SwerveError
from swerve.rollout.engine import SamplingParams

# Rows are dropped from the batch once this share of them has finished: each compaction copies the cache.
_COMPACTION_SHARE = 0.125
_MAX_LOGITS = 1 << 22


class PrefixCache:
    """Keys and values of some sequences, of which prompts that begin with them take what they need."""

    def __init__(self, model: PreTrainedModel, sequences: Sequence[Sequence[int]], *, pad_id: int) -> None:
        """Run every sequence once; at least one of them has a token."""
        width = max(map(len, sequences))
        # Padded on the right: what stands behind a position cannot reach it, so no mask is needed.
        input_ids = torch.full((len(sequences), width), pad_id, dtype=torch.long)
        for index, tokens in enumerate(sequences):
            input_ids[index, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
        self._cache = _growing_cache(model)
        model(
            input_ids=input_ids.to(model.device),
            position_ids=torch.arange(width, device=model.device).expand(len(sequences), width),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )

    def cut(self, model: PreTrainedModel, rows: Int[Tensor, " B"], columns: Int[Tensor, "B T"]) -> Cache:
        """Return a cache of which row b holds the positions `columns[b]` of sequence `rows[b]`.

        Keys are already rotated by their own positions, so they may stand anywhere.
        """
        cache = _growing_cache(model)
        layers: Any = zip(cache.layers, self._cache.layers, strict=True)
        for layer, source in layers:
            keys, values = source.keys, source.values
            if keys is not None and values is not None and keys.numel():  # a layer that shares another's has none
                layer.update(
                    keys[rows[:, None], :, columns].transpose(1, 2), values[rows[:, None], :, columns].transpose(1, 2)
                )
        return cache


class Decoding:
    """Key-value cache and next-token logits of the rows being decoded."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        *,
        pad_id: int,
        keys: Sequence[int],
        prefixes: PrefixCache | None = None,
        prefix_rows: Sequence[int] = (),
    ) -> None:
        """Run each distinct key's prompt once, then copy its cache to all rows with that key.

        Args:
            model: in evaluation mode.
            prompts: one per row, at least one token each.
            pad_id: stands before shorter prompts; masked.
            keys: rows with equal keys have equal prompts.
            prefixes: holds all of each prompt but its last token, which then is all that is run.
            prefix_rows: for each row the sequence of `prefixes` that begins with its prompt.
        """
        self._model = model
        self._padded = False
        self._cache: Cache
        self._mask: Int[Tensor, "B T"]
        self._positions: Int[Tensor, "B 1"]
        self.logits: Float[Tensor, "B V"]
        """Of each row's next token."""
        places = {key: place for place, key in enumerate(keys)}
        distinct = {key: index for index, key in enumerate(places)}
        chosen = [prompts[place] for place in places.values()]
        if prefixes is None or max(map(len, chosen)) == 1:
            self._prefill(chosen, pad_id)
        else:
            self._continue(chosen, prefixes, [prefix_rows[place] for place in places.values()])
        self._take(torch.tensor([distinct[key] for key in keys], device=model.device))

    def advance(self, ids: Int[Tensor, " B"], keep: Int[Tensor, " K"] | None) -> None:
        """Drop the rows not in `keep` (None: keep all), append one token to each that stays."""
        if keep is not None:
            self._take(keep, with_logits=False)
        self._step(ids)

    def _take(self, rows: Int[Tensor, " K"], *, with_logits: bool = True) -> None:
        self._cache.batch_select_indices(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        if with_logits:
            self.logits = self.logits[rows]

    def _step(self, ids: Int[Tensor, " B"]) -> None:
        if self._padded:  # else nothing reads the mask
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

    def _prefill(self, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        """Run the prompts themselves, shorter ones padded on the left."""
        width = max(map(len, prompts))
        input_ids = torch.full((len(prompts), width), pad_id, dtype=torch.long)
        mask = torch.zeros_like(input_ids)
        for index, prompt in enumerate(prompts):
            input_ids[index, width - len(prompt) :] = torch.tensor(list(prompt))
            mask[index, width - len(prompt) :] = 1
        input_ids, self._mask = input_ids.to(self._model.device), mask.to(self._model.device)
        self._cache = _growing_cache(self._model)
        self._padded = bool((mask == 0).any())
        output = self._model(
            input_ids=input_ids,
            attention_mask=self._mask if self._padded else None,
            position_ids=(self._mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._positions = self._mask.sum(1, keepdim=True)
        self.logits = output.logits[:, -1]

    def _continue(self, prompts: Sequence[Sequence[int]], prefixes: PrefixCache, rows: Sequence[int]) -> None:
        """Take all of each prompt but its last token from `prefixes`, at the right end, and append that token."""
        device = self._model.device
        lengths = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        width = int(lengths.max())
        columns = torch.arange(width, device=device) - (width - lengths)[:, None]
        self._cache = prefixes.cut(self._model, torch.tensor(list(rows), device=device), columns.clamp(min=0))
        self._mask = (columns >= 0).long()
        self._padded = bool((columns < 0).any())
        self._positions = lengths[:, None]
        self._step(torch.tensor([prompt[-1] for prompt in prompts], device=device))


def can_share(model: PreTrainedModel) -> bool:
    """Whether the model keeps plain key-value caches, which can be cut at any position."""
    return all(type(layer) is _GrowingLayer for layer in _growing_cache(model).layers)


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


class GrowingRows:
    """The tokens written so far of each row of a batch, and which rows are still in it.

    Finished rows stay in the batch (`active` without `alive`) until enough of them make it worth copying the cache.
    """

    def __init__(self, limits: Int[Tensor, " B"], stops: Int[Tensor, " S"]) -> None:
        """Start with every row, empty; row b ends after `limits[b]` tokens or with the first of `stops`."""
        self.token_ids: Int[Tensor, "B T"] = limits.new_zeros(len(limits), int(limits.max()))
        self.lengths: Int[Tensor, " B"] = torch.zeros_like(limits)
        self.active: Int[Tensor, " A"] = torch.arange(len(limits), device=limits.device)
        """The row that each place of the batch decodes."""
        self.alive: Bool[Tensor, " A"] = torch.ones_like(limits, dtype=torch.bool)
        self.num_alive = len(limits)
        self._limits, self._stops = limits, stops

    @property
    def writing(self) -> Int[Tensor, " W"]:
        """The rows that take another token."""
        return self.active[self.alive]

    def write(self, position: int, ids: Int[Tensor, " A"]) -> int:
        """Append a token to every living row; return how many rows end with it."""
        writing = self.writing
        self.token_ids[writing, position] = ids[self.alive]
        self.lengths[writing] = position + 1
        self.alive = self.alive & ~torch.isin(ids, self._stops) & (position + 1 < self._limits[self.active])
        before, self.num_alive = self.num_alive, int(self.alive.sum())
        return before - self.num_alive

    def compact(self) -> Int[Tensor, " K"] | None:
        """Drop the finished rows from the batch where they are many; return the places that stay, None: all."""
        if self.num_alive > (1 - _COMPACTION_SHARE) * len(self.active):
            return None
        keep = self.alive.nonzero().squeeze(1)
        self.active, self.alive = self.active[keep], self.alive[keep]
        return keep

    def stopped(self) -> list[bool]:
        """Whether each row's last token is one that ends a completion."""
        last = self.token_ids.gather(1, (self.lengths - 1)[:, None]).squeeze(1)
        found: list[bool] = torch.isin(last, self._stops).tolist()
        return found


def row_uniforms(
    rows: Sequence[tuple[int, int]], params: SamplingParams, seeds: Sequence[int]
) -> Float[Tensor, "B max_new_tokens"]:
    """Return the uniform numbers that choose each row's tokens: drawn per prompt, so free of the batch's make-up.

    Args:
        rows: prompt and sample of each row.
        params: how to sample; the numbers are 0 when decoding greedily.
        seeds: one per prompt.
    """
    if params.temperature == 0:
        return torch.zeros(len(rows), params.max_new_tokens, dtype=torch.float64)
    return row_draws(rows, params, seeds)


def row_draws(
    rows: Sequence[tuple[int, int]], params: SamplingParams, seeds: Sequence[int]
) -> Float[Tensor, "B max_new_tokens"]:
    """Return uniform numbers for each row's tokens, from its prompt's seed, at any temperature."""
    shape = (params.num_samples, params.max_new_tokens)
    drawn = {
        prompt: torch.rand(shape, generator=torch.Generator().manual_seed(seeds[prompt]), dtype=torch.float64)
        for prompt in {prompt for prompt, _ in rows}
    }
    return torch.stack([drawn[prompt][sample] for prompt, sample in rows])


def sample(
    logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"], temperature: float
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Return a token for each row, where the cumulative distribution passes `uniforms`, and its log-probability.

    >>> ids, logprobs = sample(torch.zeros(2, 4), torch.tensor([0.1, 0.8], dtype=torch.float64), 1.0)
    >>> ids.tolist(), [round(value, 6) for value in logprobs.tolist()]
    ([0, 3], [-1.386294, -1.386294])
    """
    rows = max(1, _MAX_LOGITS // logits.shape[-1])
    if len(logits) > rows:  # the temporaries below are several times the size of the logits
        parts = [sample(*part, temperature) for part in zip(logits.split(rows), uniforms.split(rows), strict=True)]
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


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Put the model into evaluation mode inside the block, and back into the mode it had after it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
