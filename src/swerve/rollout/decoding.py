"""Decoding of a batch of rows: key-value cache, next-token logits, sampling, and the rows that are still growing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from swerve.errors import ConfigError
from swerve.models.head import head_tolerance
from swerve.models.trial import layer_configs, said_by
from swerve.rollout.engine import SamplingParams
from swerve.rollout.one_token import OneTokenForward

# Rows are dropped from the batch once this share of them has finished: each compaction copies the cache.
COMPACTION_SHARE = 0.125
_MAX_LOGITS = 1 << 22
# Columns a cache grows by at least. Rows that stand close together are read faster.
_ROOM = 16
# Of the vocabulary, tokens whose probabilities are added up before the one drawn is looked for.
_BLOCK = 64


class PrefixCache:
    """Keys and values of some sequences, of which prompts that begin with them take what they need."""

    def __init__(self, model: PreTrainedModel, sequences: Sequence[Sequence[int]], *, pad_id: int) -> None:
        """Run every sequence once; at least one of them has a token."""
        width = max(map(len, sequences))
        self.num_tokens = len(sequences) * width
        """Padding included."""
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
    """Key-value cache and next-token logits of the rows being decoded.

    The rows end in the same column of the cache: the last token of each is in the last one, and a row of n tokens
    begins n columns before the end.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        *,
        pad_id: int,
        keys: Sequence[int],
        one_token: OneTokenForward | None = None,
        prefixes: PrefixCache | None = None,
        prefix_rows: Sequence[int] = (),
        width: int | None = None,
    ) -> None:
        """Run each distinct key's prompt once, then copy its cache to all rows with that key.

        Args:
            model: in evaluation mode.
            prompts: one per row, at least one token each.
            pad_id: stands before shorter prompts; masked.
            keys: rows with equal keys have equal prompts.
            one_token: advances the rows where it gives the model's own logits; None: the model always does.
            prefixes: holds all of each prompt but its last token, which then is all that is run.
            prefix_rows: for each row the sequence of `prefixes` that begins with its prompt.
            width: columns that the cache has at most; every row must end before it has so many tokens. None: no limit.
        """
        self._model = model
        if one_token is None:
            one_token = OneTokenForward(model)
            one_token.read_weights()
        self._one_token = one_token
        self._width = width
        self._cache: Cache
        self._positions: Int[Tensor, "B 1"]
        self._columns: int
        self._is_padded: bool
        self.logits: Float[Tensor, "B V"]
        """Of each row's next token."""
        places = {key: place for place, key in enumerate(keys)}
        distinct = {key: index for index, key in enumerate(places)}
        chosen = [prompts[place] for place in places.values()]
        if prefixes is None or max(map(len, chosen)) == 1:
            self._prefill(chosen, pad_id)
        else:
            self._continue(chosen, prefixes, [prefix_rows[place] for place in places.values()])
        rows = torch.tensor([distinct[key] for key in keys], device=model.device)
        self._take(rows)
        self.logits = self.logits[rows]

    @property
    def is_full(self) -> bool:
        """Whether the cache has as many columns as it may have: finished rows are to be dropped before the next."""
        return self._columns == self._width

    def advance(self, ids: Int[Tensor, " B"], keep: Int[Tensor, " K"] | None) -> None:
        """Drop the rows not in `keep` (None: keep all), append one token to each that stays."""
        if keep is not None:
            self._take(keep)
        elif self.is_full:
            self._take(torch.arange(len(ids), device=ids.device))
        self._step(ids)

    def joined_by(self, others: Decoding) -> Decoding:
        """Add rows behind these, which must have plain caches, and return them all; `others` is used up."""
        self._width = others._width
        self._columns, columns = max(self._columns, others._columns), self._columns
        layers: Any = zip(self._cache.layers, others._cache.layers, strict=True)
        for layer, other in layers:
            layer.join(other, self._columns, columns, others._columns, self._width)
        self._place(torch.cat([self._positions, others._positions]))
        self.logits = torch.cat([self.logits, others.logits])
        return self

    def cache_bytes(self) -> int:
        """Return the size of the cache."""
        return cache_bytes(self._cache)

    def _take(self, rows: Int[Tensor, " K"]) -> None:
        """Keep these rows, and of a plain cache the columns that they have tokens in."""
        positions = self._positions[rows]
        unused = self._columns - int(positions.max()) if is_plain(self._cache) else 0
        self._columns -= unused
        self._place(positions)
        layers: Any = self._cache.layers
        for layer in layers:
            if isinstance(layer, _GrowingLayer):
                layer.keep(rows, unused, self._width)
            else:
                layer.reorder_cache(rows)  # selects, keeps or repeats rows

    def _place(self, positions: Int[Tensor, "B 1"]) -> None:
        """Note how many tokens each row has in the columns."""
        self._positions = positions
        self._is_padded = int(positions.min()) < self._columns

    def _is_token(self) -> Bool[Tensor, "B T"] | None:
        """Return which columns the rows have tokens in; None: all."""
        if not self._is_padded:
            return None
        columns = torch.arange(self._columns, device=self._positions.device)
        return columns >= self._columns - self._positions

    def _step(self, ids: Int[Tensor, " B"]) -> None:
        positions = self._positions
        self._columns, self._positions = self._columns + 1, positions + 1
        if not (self._one_token.usable and is_plain(self._cache)):
            self.logits = self._own_step(ids, positions)
        elif self._one_token.checked:
            self.logits = self._one_token(ids, positions, self._cache, self._is_token)
        else:  # whether this is the first step or not, its numbers are those of the way that is used from now on
            own = self._own_step(ids, positions)
            self._drop_last_column()
            self.logits = self._one_token(ids, positions, self._cache, self._is_token)
            if not self._one_token.check(self.logits, own):
                self._drop_last_column()
                self.logits = self._own_step(ids, positions)

    def _own_step(self, ids: Int[Tensor, " B"], positions: Int[Tensor, "B 1"]) -> Tensor:
        """Append a token to each row by the model's own forward pass; return the logits."""
        is_token = self._is_token()
        logits: Tensor = self._model(
            input_ids=ids[:, None],
            attention_mask=None if is_token is None else is_token.long(),
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        return logits[:, -1]

    def _drop_last_column(self) -> None:
        layers: Any = self._cache.layers
        for layer in layers:
            layer.keys, layer.values = layer.keys[:, :, :-1], layer.values[:, :, :-1]

    def _prefill(self, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        """Run the prompts themselves, shorter ones padded on the left."""
        self._columns = max(map(len, prompts))
        input_ids = torch.full((len(prompts), self._columns), pad_id, dtype=torch.long)
        for index, prompt in enumerate(prompts):
            input_ids[index, self._columns - len(prompt) :] = torch.tensor(list(prompt))
        device = self._model.device
        self._place(torch.tensor([[len(prompt)] for prompt in prompts], device=device))
        self._cache = _growing_cache(self._model)
        is_token = self._is_token()
        positions = torch.arange(self._columns, device=device) - (self._columns - self._positions)
        output = self._model(
            input_ids=input_ids.to(device),
            attention_mask=None if is_token is None else is_token.long(),
            position_ids=positions.clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits = output.logits[:, -1]

    def _continue(self, prompts: Sequence[Sequence[int]], prefixes: PrefixCache, rows: Sequence[int]) -> None:
        """Take all of each prompt but its last token from `prefixes`, at the right end, and append that token."""
        device = self._model.device
        lengths = torch.tensor([[len(prompt) - 1] for prompt in prompts], device=device)
        self._columns = int(lengths.max())
        self._place(lengths)
        columns = torch.arange(self._columns, device=device) - (self._columns - lengths)
        self._cache = prefixes.cut(self._model, torch.tensor(list(rows), device=device), columns.clamp(min=0))
        self._step(torch.tensor([prompt[-1] for prompt in prompts], device=device))


def is_plain(cache: Cache) -> bool:
    """Whether all layers keep the keys and values of every position, so that the cache can be cut at any."""
    return all(type(layer) is _GrowingLayer for layer in cache.layers)


def can_share(model: PreTrainedModel) -> bool:
    """Whether the model keeps plain key-value caches."""
    return is_plain(_growing_cache(model))


def cache_bytes(cache: Cache) -> int:
    """Return the size of the keys and values of a cache, and of the room kept for more."""
    layers: Any = cache.layers
    return sum(
        tensor.untyped_storage().nbytes()
        for layer in layers
        if layer.is_initialized
        for tensor in (layer.keys, layer.values)
    )


def cache_bytes_per_token(model: PreTrainedModel) -> int | None:
    """Return the size of one token's keys and values in all layers, None where the configuration does not say."""
    num_kept = 0
    for layer in layer_configs(model.config):
        num_heads = getattr(layer, "num_attention_heads", None)
        if num_heads is None:
            return None
        width = getattr(layer, "head_dim", None) or layer.hidden_size // num_heads
        num_kept += (getattr(layer, "num_key_value_heads", None) or num_heads) * width
    return 2 * num_kept * model.dtype.itemsize


def free_memory(device: torch.device) -> int | None:
    """Return the bytes free on a device or, for a CPU, in this machine's memory; None where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


class _GrowingLayer(DynamicLayer):
    """A cache layer that appends in place to a buffer with room, where the original copies every step."""

    _key_buffer: Tensor | None = None
    _value_buffer: Tensor | None = None
    _width: int | None = None
    bias: Tensor | None = None
    """What is added to the scores of the buffers' columns; of the first layer, for all of them."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self.get_seq_length()
        total = length + key_states.shape[-2]
        if self._key_buffer is None or self._value_buffer is None or self._key_buffer.shape[-2] < total:
            capacity = self.capacity(total)
            self._key_buffer = _enlarged(self.keys, key_states, length, capacity)
            self._value_buffer = _enlarged(self.values, value_states, length, capacity)
        self._key_buffer[:, :, length:total] = key_states
        self._value_buffer[:, :, length:total] = value_states
        self.keys = self._key_buffer[:, :, :total]
        self.values = self._value_buffer[:, :, :total]
        return self.keys, self.values

    def append(self, keys: Float[Tensor, "B K D"], values: Float[Tensor, "B K D"]) -> None:
        """Add a column to each row."""
        length = self.get_seq_length()
        if self._key_buffer is None or self._value_buffer is None or self._key_buffer.shape[2] == length:
            self.update(keys[:, :, None], values[:, :, None])
            return
        self._key_buffer[:, :, length], self._value_buffer[:, :, length] = keys, values
        self.keys, self.values = self._key_buffer[:, :, : length + 1], self._value_buffer[:, :, : length + 1]

    @property
    def buffers(self) -> tuple[Tensor, Tensor]:
        """Keys and values with the columns that are not used yet, whose numbers are finite."""
        assert self._key_buffer is not None
        assert self._value_buffer is not None
        return self._key_buffer, self._value_buffer

    def capacity(self, total: int) -> int:
        """Return how many columns the buffers have when `total` of them are used."""
        if self._key_buffer is not None and self._key_buffer.shape[-2] >= total:
            return self._key_buffer.shape[-2]
        room = max(_ROOM, total // 8) if self.get_seq_length() else 0
        return max(total, min(total + room, self._width or total + room))

    def keep(self, rows: Tensor, start: int, width: int | None) -> None:
        """Keep these rows, from this column on; `width`: columns there will ever be."""
        self._width = width
        if self.keys is not None and self.values is not None:  # a layer that shares another's has none
            self.keys, self.values = self.keys[rows, :, start:], self.values[rows, :, start:]
        self._key_buffer = self._value_buffer = self.bias = None

    def join(self, other: _GrowingLayer, total: int, own: int, others: int, width: int | None) -> None:
        """Add the rows of another layer; both end in column `total` and have `own` and `others` columns."""
        self._width = width
        if self.keys is not None and self.values is not None:
            self.keys = _joined(self.keys, other.keys, total - own, total - others)
            self.values = _joined(self.values, other.values, total - own, total - others)
        self._key_buffer = self._value_buffer = self.bias = None


def _joined(upper: Tensor, lower: Tensor | None, upper_start: int, lower_start: int) -> Tensor:
    assert lower is not None
    columns = upper_start + upper.shape[2]
    joined = upper.new_zeros(len(upper) + len(lower), upper.shape[1], columns, upper.shape[3])
    joined[: len(upper), :, upper_start:] = upper
    joined[len(upper) :, :, lower_start:] = lower
    return joined


def _enlarged(old: Tensor | None, new: Tensor, length: int, capacity: int) -> Tensor:
    batch, heads, _, width = new.shape
    buffer = new.new_zeros(batch, heads, capacity, width)
    if old is not None and length:
        buffer[:, :, :length] = old
    return buffer


def _growing_cache(model: PreTrainedModel) -> Cache:
    growing_layer: Any = _GrowingLayer  # a typed handle: the class it extends is not typed
    _check_cache(type(model))
    cache = DynamicCache(config=model.config)
    cache.layers = [growing_layer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def check_samples(config: PreTrainedConfig) -> None:
    """Check that models of an architecture take the cache that is decoded with; no weight is needed.

    Raises:
        ConfigError: they keep what they have read in a form of their own (Mamba, RWKV, xLSTM).
    """
    _check_cache(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])


def check_decoding(model: PreTrainedModel) -> None:
    """Compare logits of rows that are padded, chosen and continued with those of the sequences read as a whole.

    Only for models that keep states beside keys and values, as convolutions and linear attention do.

    Raises:
        ConfigError: they differ by more than rounding, or the model cannot continue.
    """
    _check_cache(type(model))
    if not any(hasattr(layer, "conv_states") for layer in DynamicCache(config=model.config).layers):
        return
    prompts, added = [(0, 1, 2, 1), (2, 1)], (2, 0, 1)
    device, name = model.device, type(model).__name__
    with evaluating(model), torch.inference_mode():
        try:
            rows = Decoding(model, prompts, pad_id=0, keys=[0, 1])
            keep = torch.tensor([1], device=device)
            for token in added:
                rows.advance(torch.tensor([token], device=device), keep)
                keep = keep * 0
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:  # of the architecture's code
            raise _no_sampling(name, said_by(error)) from error
        own = model(input_ids=torch.tensor([[*prompts[1], *added]], device=device)).logits[:, -1]
    tolerance = head_tolerance(own.dtype)
    if not torch.allclose(rows.logits, own, rtol=tolerance, atol=tolerance * float(own.abs().amax())):
        raise _no_sampling(name, "token by token it gives other logits than for the whole sequence")


def _check_cache(model_class: Any) -> None:
    forwards = [base.forward for base in model_class.__mro__ if hasattr(base, "forward")]
    if not any("past_key_values" in inspect.signature(forward).parameters for forward in forwards):
        raise _no_sampling(model_class.__name__, "it keeps what it has read in a form of its own")


def _no_sampling(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the embedded engine cannot sample from {name}: {reason}; sft stages, and the probe of responses from a file, "
        "work; for everything else name an engine that can (rollout.engine), or take another model"
    )


class GrowingRows:
    """The tokens written so far of each row, and which rows are in the batch.

    Finished rows stay in the batch (`active` without `alive`) until enough of them make it worth copying the cache.
    """

    def __init__(self, limits: Int[Tensor, " N"], stops: Int[Tensor, " S"]) -> None:
        """Start with no row in the batch; row n ends after `limits[n]` tokens or with the first of `stops`."""
        # What finished rows go on to write stands behind their end.
        self.token_ids: Int[Tensor, "N T"] = limits.new_zeros(len(limits), int(limits.max()) + 1)
        self.active: Int[Tensor, " A"] = limits.new_empty(0)
        """The row that each place of the batch decodes."""
        self.alive: Bool[Tensor, " A"] = torch.empty_like(self.active, dtype=torch.bool)
        self.positions: Int[Tensor, " A"] = self.active
        """Where each place of the batch writes its next token."""
        self.num_alive = 0
        self.num_waiting = len(limits)
        self._lengths: Int[Tensor, " N"] = torch.zeros_like(limits)
        self._limits, self._stops = limits, stops
        self._ends: Int[Tensor, " A"] = self.active

    def admit(self, count: int) -> None:
        """Put the next rows into the batch, behind those that are there."""
        first = len(self._limits) - self.num_waiting
        new = torch.arange(first, first + count, device=self.active.device)
        self.active = torch.cat([self.active, new])
        self.alive = torch.cat([self.alive, torch.ones_like(new, dtype=torch.bool)])
        self.positions = torch.cat([self.positions, torch.zeros_like(new)])
        self._ends = self._limits[self.active]
        self.num_alive += count
        self.num_waiting -= count

    @property
    def lengths(self) -> Int[Tensor, " N"]:
        """How many tokens each row has."""
        self._lengths[self.active] = self.positions
        return self._lengths

    @property
    def writing(self) -> Int[Tensor, " W"]:
        """The rows that take another token."""
        return self.active[self.alive]

    def write(self, ids: Int[Tensor, " A"]) -> int:
        """Append a token to every living row; return how many rows end with it."""
        self.token_ids[self.active, self.positions] = ids
        self.positions = self.positions + self.alive
        self.alive = self.alive & ~(ids[:, None] == self._stops).any(1) & (self.positions < self._ends)
        before, self.num_alive = self.num_alive, int(self.alive.sum())
        return before - self.num_alive

    def compact(self, *, few: bool = False) -> Int[Tensor, " K"] | None:
        """Drop the finished rows where they are many, or at all (`few`); return the places that stay, None: all."""
        most = len(self.active) - 1 if few else (1 - COMPACTION_SHARE) * len(self.active)
        if self.num_alive > most:
            return None
        self._lengths[self.active] = self.positions
        keep = self.alive.nonzero().squeeze(1)
        self.active, self.alive = self.active[keep], self.alive[keep]
        self.positions, self._ends = self.positions[keep], self._ends[keep]
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


class Drawn(NamedTuple):
    """A token of each row."""

    ids: Int[Tensor, " B"]
    logprobs: Float[Tensor, " B"]
    """Nats."""
    entropies: Float[Tensor, " B"]
    """Of the distributions that the tokens were drawn from, nats; zeros where they were not asked for."""


def sample(
    logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"], temperature: float, *, with_entropy: bool = False
) -> Drawn:
    """Return a token for each row, where the cumulative distribution passes `uniforms`.

    Args:
        logits: of the next token.
        uniforms: within [0, 1).
        temperature: divides the logits; at 0 the most likely token is taken, and the rest is that of temperature 1.
        with_entropy: whether the entropies are asked for.

    >>> drawn = sample(torch.zeros(2, 4), torch.tensor([0.1, 0.8], dtype=torch.float64), 1.0, with_entropy=True)
    >>> drawn.ids.tolist(), *([round(value, 6) for value in values.tolist()] for values in drawn[1:])
    ([0, 3], [-1.386294, -1.386294], [1.386294, 1.386294])
    """
    rows = max(1, _MAX_LOGITS // logits.shape[-1])
    if len(logits) > rows:  # the temporaries below are several times the size of the logits
        split = zip(logits.split(rows), uniforms.split(rows), strict=True)
        parts = [sample(*part, temperature, with_entropy=with_entropy) for part in split]
        return Drawn(*map(torch.cat, zip(*parts, strict=True)))
    scaled = logits.float() if temperature in (0, 1) else logits.float() / temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    weights = logprobs.exp()
    ids = logits.argmax(dim=-1) if temperature == 0 else _draw(weights, uniforms)
    chosen = logprobs.gather(-1, ids[:, None]).squeeze(1)
    if not with_entropy:
        return Drawn(ids, chosen, torch.zeros_like(chosen))
    bounded = logprobs.clamp_(min=torch.finfo(logprobs.dtype).min)  # 0 times a finite number is not NaN
    return Drawn(ids, chosen, -(weights * bounded).sum(-1))


def _draw(weights: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return where the cumulative weights pass a share `uniforms` of their sum.

    Many weights are added up in blocks first; only the block that holds the place is then looked at one by one.
    """
    vocabulary = weights.shape[-1]
    if vocabulary <= 2 * _BLOCK:
        return _passed(weights.double().cumsum(-1), uniforms[:, None])[0].squeeze(1)
    blocks = torch.nn.functional.pad(weights, (0, -vocabulary % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    sums = blocks.sum(-1).double()
    cumulative = sums.cumsum(-1)
    block, target = _passed(cumulative, uniforms[:, None])
    own = sums.gather(-1, block)
    rest = (target - cumulative.gather(-1, block) + own) / own
    chosen = blocks[torch.arange(len(blocks), device=block.device), block.squeeze(1)]
    within, _ = _passed(chosen.double().cumsum(-1), rest)
    return (block * _BLOCK + within).squeeze(1)


def _passed(cumulative: Float[Tensor, "B V"], share: Float[Tensor, "B 1"]) -> tuple[Tensor, Tensor]:
    """Return where cumulative weights pass a share of their sum, which is never at one of weight 0; and that share."""
    target = share.clamp(0.0, 1.0 - 2**-52) * cumulative[:, -1:]  # below the sum
    return torch.searchsorted(cumulative, target, right=True).clamp(max=cumulative.shape[-1] - 1), target


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Put the model into evaluation mode inside the block, and back into the mode it had after it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
