"""Decoding of a batch of rows: key-value cache, next-token logits, sampling, and the rows that are still growing.

Rows are what is sampled. Rows of one prompt whose tokens are the same so far are one line of the cache, so that the
model reads no token twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from swerve.models.head import num_ids_of
from swerve.rollout.cache import (
    GrowingLayer,
    cache_argument,
    cache_bytes,
    growing_cache,
    is_croppable,
)
from swerve.rollout.engine import SamplingParams
from swerve.rollout.one_token import OneTokenForward

# Lines that are no row's any more are dropped once they are this share of the cache: that copies the others.
COMPACTION_SHARE = 0.125
_MAX_LOGITS = 1 << 22
# Of the vocabulary, tokens whose probabilities are added up before the one drawn is looked for.
_BLOCK = 64


class PrefixCache:
    """Keys and values of some sequences, of which prompts that begin with them take what they need."""

    def __init__(
        self, model: PreTrainedModel, sequences: Sequence[Sequence[int]], rows: Mapping[int, int], *, pad_id: int
    ) -> None:
        """Run every sequence once; at least one of them has a token.

        Args:
            model: in evaluation mode.
            sequences: token ids.
            rows: of each prompt, by its number, the sequence that begins with it.
            pad_id: stands behind shorter sequences.
        """
        self.rows = rows
        width = max(map(len, sequences))
        self.num_tokens = len(sequences) * width
        """Padding included."""
        # Padded on the right: what stands behind a position cannot reach it, so no mask is needed.
        input_ids = torch.full((len(sequences), width), pad_id, dtype=torch.long)
        for index, tokens in enumerate(sequences):
            input_ids[index, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
        self._cache = growing_cache(model)
        model(
            input_ids=input_ids.to(model.device),
            position_ids=torch.arange(width, device=model.device).expand(len(sequences), width),
            use_cache=True,
            logits_to_keep=1,
            **{cache_argument(type(model)): self._cache},
        )

    def cut(
        self, model: PreTrainedModel, rows: Int[Tensor, " L"], columns: Int[Tensor, "L T"], width: int | None
    ) -> Cache:
        """Return a cache whose line l holds the positions `columns[l]` of sequence `rows[l]`; `width` is its limit.

        Keys are already rotated by their own positions, so they may stand anywhere.
        """
        cache = growing_cache(model, width)
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

    The lines end in the same column of the cache: the last token of each is in the last one, and a line of n tokens
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
        width: int | None = None,
    ) -> None:
        """Run each distinct key's prompt once.

        The rows with a key are one line until their tokens differ; where the model keeps more than keys and values,
        each is a line of its own from the start.

        Args:
            model: in evaluation mode.
            prompts: one per row, at least one token each.
            pad_id: stands before shorter prompts; masked.
            keys: rows with equal keys have equal prompts.
            one_token: advances the rows where it gives the model's own logits; None: the model always does.
            prefixes: holds all of each key's prompt but its last token, which then is all that is run.
            width: columns that the cache has at most; every row must end before it has so many tokens. None: no limit.
        """
        self._model, self._cache_name = model, cache_argument(type(model))
        if one_token is None:
            one_token = OneTokenForward(model)
            one_token.read_weights()
        self._one_token = one_token
        self._width = width
        self._cache: Cache
        self._positions: Int[Tensor, "L 1"]
        self._columns: int
        self._is_padded: bool
        self.logits: Float[Tensor, "L V"]
        """Of each line's next token."""
        # One prompt of each key is run.
        places = {key: place for place, key in enumerate(keys)}
        distinct = {key: index for index, key in enumerate(places)}
        chosen = [prompts[place] for place in places.values()]
        if prefixes is None or max(map(len, chosen)) == 1:
            self._prefill(chosen, pad_id)
        else:
            self._continue(chosen, prefixes, [prefixes.rows[key] for key in places])

        # Lines are rows that have been the same so far, or rows.
        self.lines: Int[Tensor, " B"] = torch.tensor([distinct[key] for key in keys], device=model.device)
        """Which line each row is."""
        self._shares = len(distinct) < len(keys)
        if self._shares and not is_croppable(self._cache):
            self._take(self.lines)
            self.logits, self._shares = self.row_logits, False
            self.lines = torch.arange(len(keys), device=model.device)

    @property
    def row_logits(self) -> Float[Tensor, "B V"]:
        """Of each row's next token."""
        return self.logits[self.lines]

    def advance(self, ids: Int[Tensor, " K"], keep: Int[Tensor, " K"] | None, *, compact: bool = False) -> None:
        """Drop the rows not in `keep` (None: keep all), append one token to each that stays.

        Args:
            ids: the tokens.
            keep: the rows that stay.
            compact: whether lines that are no row's any more are dropped even where they are few.
        """
        parents = self.lines if keep is None else self.lines[keep]
        num_rows, num_lines = ids.shape[0], self._positions.shape[0]  # `len` of a tensor takes longer
        lines, rows, copied = parents, None, parents[:0]
        if self._shares:  # rows of a line stay one where they take the same token
            size = self.logits.shape[-1]
            pairs, rows = torch.unique(parents * size + ids, return_inverse=True)
            parents, ids = pairs // size, pairs % size
            self._shares = pairs.shape[0] < num_rows
            is_copy = parents == pad(parents[:-1], (1, 0), value=-1)
            copied = parents[is_copy]
            lines = torch.where(is_copy, num_lines - 1 + is_copy.cumsum(0), parents)
        num_unused = num_lines + copied.shape[0] - parents.shape[0]
        if self._columns == self._width or num_unused >= (1 if compact else COMPACTION_SHARE * num_lines):
            self._take(parents)
            lines = torch.arange(len(parents), device=parents.device)
        elif copied.shape[0]:
            self._positions = torch.cat([self._positions, self._positions[copied]])
            layers: Any = self._cache.layers
            for layer in layers:
                layer.copy(copied, num_rows)
        self.lines = lines if rows is None else lines[rows]
        column = ids.new_zeros(self._positions.shape[0])
        column[lines] = ids
        self._step(column)

    def joined_by(self, others: Decoding) -> Decoding:
        """Add rows behind these, which must have plain caches, and return them all; `others` is used up."""
        self._width = others._width
        self._columns, columns = max(self._columns, others._columns), self._columns
        layers: Any = zip(self._cache.layers, others._cache.layers, strict=True)
        for layer, other in layers:
            layer.join(other, self._columns, columns, others._columns)
        self.lines = torch.cat([self.lines, others.lines + len(self._positions)])
        self._shares = self._shares or others._shares
        self._place(torch.cat([self._positions, others._positions]))
        self.logits = torch.cat([self.logits, others.logits])
        return self

    def cache_bytes(self) -> int:
        """Return the size of the cache."""
        return cache_bytes(self._cache)

    def _take(self, lines: Int[Tensor, " K"]) -> None:
        """Keep these lines, and of a plain cache the columns that they have tokens in."""
        positions = self._positions[lines]
        unused = self._columns - int(positions.max()) if is_croppable(self._cache) else 0
        self._columns -= unused
        self._place(positions)
        layers: Any = self._cache.layers
        for layer in layers:
            if isinstance(layer, GrowingLayer):
                layer.keep(lines, unused)
            else:
                layer.reorder_cache(lines)  # selects, keeps or repeats them

    def _place(self, positions: Int[Tensor, "L 1"]) -> None:
        """Note how many tokens each line has in the columns."""
        self._positions = positions
        self._is_padded = int(positions.min()) < self._columns

    def _is_token(self) -> Bool[Tensor, "L T"] | None:
        """Return which columns the lines have tokens in; None: all."""
        if not self._is_padded:
            return None
        columns = torch.arange(self._columns, device=self._positions.device)
        return columns >= self._columns - self._positions

    def _step(self, ids: Int[Tensor, " L"]) -> None:
        positions = self._positions
        self._columns, self._positions = self._columns + 1, positions + 1
        if not (self._one_token.usable and is_croppable(self._cache)):
            self.logits = self._own_pass(ids[:, None], positions)
        elif self._one_token.checked:
            self.logits = self._one_token(ids, positions, self._cache, self._is_token)
        else:  # whether this is the first step or not, its numbers are those of the way that is used from now on
            own = self._own_pass(ids[:, None], positions)
            self._drop_last_column()
            self.logits = self._one_token(ids, positions, self._cache, self._is_token)
            if not self._one_token.check(self.logits, own):
                self._drop_last_column()
                self.logits = self._own_pass(ids[:, None], positions)

    def _own_pass(self, input_ids: Int[Tensor, "L W"], positions: Int[Tensor, "L W"]) -> Float[Tensor, "L V"]:
        """Append tokens to each line by the model's own forward pass; return the logits after the last one."""
        is_token = self._is_token()
        logits: Tensor = self._model(
            input_ids=input_ids,
            attention_mask=None if is_token is None else is_token.long(),
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: self._cache},
        ).logits
        return logits[:, -1, : num_ids_of(self._model)]

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
        self._cache = growing_cache(self._model, self._width)
        positions = torch.arange(self._columns, device=device) - (self._columns - self._positions)
        self.logits = self._own_pass(input_ids.to(device), positions.clamp(min=0))

    def _continue(self, prompts: Sequence[Sequence[int]], prefixes: PrefixCache, rows: Sequence[int]) -> None:
        """Take all of each prompt but its last token from `prefixes`, at the right end, and append that token."""
        device = self._model.device
        lengths = torch.tensor([[len(prompt) - 1] for prompt in prompts], device=device)
        self._columns = int(lengths.max())
        self._place(lengths)
        columns = torch.arange(self._columns, device=device) - (self._columns - lengths)
        sequences = torch.tensor(list(rows), device=device)
        self._cache = prefixes.cut(self._model, sequences, columns.clamp(min=0), self._width)
        self._step(torch.tensor([prompt[-1] for prompt in prompts], device=device))


class GrowingRows:
    """The tokens written so far of each row, and which rows are in the batch."""

    def __init__(self, limits: Int[Tensor, " N"], stops: Int[Tensor, " S"]) -> None:
        """Start with no row in the batch; row n ends after `limits[n]` tokens or with the first of `stops`."""
        self.token_ids: Int[Tensor, "N T"] = limits.new_zeros(len(limits), int(limits.max()))
        self.active: Int[Tensor, " A"] = limits.new_empty(0)
        """The row that each place of the batch decodes."""
        self.positions: Int[Tensor, " A"] = self.active
        """Where each place of the batch writes its next token."""
        self._num_admitted = 0
        self._lengths: Int[Tensor, " N"] = torch.zeros_like(limits)
        self._limits, self._stops = limits, stops
        self._ends: Int[Tensor, " A"] = self.active

    def admit(self, count: int) -> None:
        """Put the next rows into the batch, behind those that are there."""
        new = self._num_admitted + torch.arange(count, device=self.active.device)
        self.active = torch.cat([self.active, new])
        self.positions = torch.cat([self.positions, torch.zeros_like(new)])
        self._ends = self._limits[self.active]
        self._num_admitted += count

    @property
    def lengths(self) -> Int[Tensor, " N"]:
        """How many tokens each row has."""
        self._lengths[self.active] = self.positions
        return self._lengths

    def write(self, ids: Int[Tensor, " A"]) -> Int[Tensor, " K"] | None:
        """Append a token to every row of the batch, drop those that end with it; return the places kept, None: all."""
        self.token_ids[self.active, self.positions] = ids
        self.positions = self.positions + 1
        goes_on = ~(ids[:, None] == self._stops).any(1) & (self.positions < self._ends)
        keep = goes_on.nonzero().squeeze(1)
        if len(keep) == len(ids):
            return None
        self._lengths[self.active] = self.positions
        self.active, self.positions, self._ends = self.active[keep], self.positions[keep], self._ends[keep]
        return keep

    def stopped(self) -> list[bool]:
        """Whether each row's last token is one that ends a completion."""
        last = self.token_ids.gather(1, (self.lengths - 1)[:, None]).squeeze(1)
        is_stop: list[bool] = torch.isin(last, self._stops).tolist()
        return is_stop


def row_draws(
    rows: Sequence[tuple[int, int]], params: SamplingParams, seeds: Sequence[int]
) -> Float[Tensor, "B max_new_tokens"]:
    """Return the uniform numbers that choose each row's tokens: drawn per prompt, so free of the batch's make-up.

    Args:
        rows: prompt and sample of each row.
        params: how to sample.
        seeds: one per prompt.
    """
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


def sample_tokens(
    logits: Float[Tensor, "L V"],
    lines: Int[Tensor, " B"],
    uniforms: Float[Tensor, " B"],
    temperature: float,
    *,
    with_entropy: bool = False,
) -> Drawn:
    """Return a token for each row, where the cumulative distribution passes `uniforms`.

    Args:
        logits: of the next token.
        lines: whose logits each row's are.
        uniforms: within [0, 1).
        temperature: divides the logits; at 0 the most likely token is taken, and the rest is that of temperature 1.
        with_entropy: whether the entropies are asked for.

    >>> uniforms = torch.tensor([0.1, 0.8], dtype=torch.float64)
    >>> drawn = sample_tokens(torch.zeros(1, 4), torch.tensor([0, 0]), uniforms, 1.0, with_entropy=True)
    >>> drawn.ids.tolist(), *([round(value, 6) for value in values.tolist()] for values in drawn[1:])
    ([0, 3], [-1.386294, -1.386294], [1.386294, 1.386294])
    """
    rows = max(1, _MAX_LOGITS // logits.shape[-1])
    if len(lines) > rows:  # the temporaries below are several times the size of the logits
        split = zip(lines.split(rows), uniforms.split(rows), strict=True)
        own = torch.arange(rows, device=lines.device)
        parts = [
            sample_tokens(logits[some], own[: len(some)], draws, temperature, with_entropy=with_entropy)
            for some, draws in split
        ]
        return Drawn(*map(torch.cat, zip(*parts, strict=True)))
    scaled = logits.float() if temperature in (0, 1) else logits.float() / temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    weights = logprobs.exp()
    ids = logits.argmax(dim=-1)[lines] if temperature == 0 else _draw(weights, lines, uniforms)
    chosen = logprobs[lines, ids]
    if not with_entropy:
        return Drawn(ids, chosen, torch.zeros_like(chosen))
    bounded = logprobs.clamp_(min=torch.finfo(logprobs.dtype).min)  # 0 times a finite number is not NaN
    return Drawn(ids, chosen, -(weights * bounded).sum(-1)[lines])


def _draw(weights: Float[Tensor, "L V"], lines: Int[Tensor, " B"], uniforms: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return where the cumulative weights of each row's line pass a share `uniforms` of their sum.

    Many weights are added up in blocks first; only the block that holds the place is then looked at one by one.
    """
    vocabulary = weights.shape[-1]
    if vocabulary <= 2 * _BLOCK:
        return _passed(weights.double().cumsum(-1)[lines], uniforms[:, None])[0].squeeze(1)
    blocks = pad(weights, (0, -vocabulary % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    sums = blocks.sum(-1).double()
    cumulative = sums.cumsum(-1)[lines]
    block, target = _passed(cumulative, uniforms[:, None])
    own = sums[lines[:, None], block]
    rest = (target - cumulative.gather(-1, block) + own) / own
    within, _ = _passed(blocks[lines, block.squeeze(1)].double().cumsum(-1), rest)
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
