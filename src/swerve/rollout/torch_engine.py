"""The embedded engine: samples with the model being trained, in this process, for any causal model of transformers.

Each distinct prompt is prefilled once, and its samples are decoded as one for as long as they are the same; finished
rows leave the batch, and rows that wait for room in the cache join it.
Where prompts begin with one another, as the prefixes of a rollout do, the longest is prefilled for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from transformers import PreTrainedModel

from swerve.positions import angles_of, forget_lengths
from swerve.rollout.cache import cache_bytes_per_token, can_share, free_memory
from swerve.rollout.decoding import (
    COMPACTION_SHARE,
    Decoding,
    GrowingRows,
    PrefixCache,
    check_decoding,
    evaluating,
    row_uniforms,
    sample,
)
from swerve.rollout.engine import Engine, SamplingParams, check_request
from swerve.rollout.one_token import OneTokenForward
from swerve.types import Completion

# Rows of shared prefixes that are kept beside the rows being decoded, as a share of these.
_PREFIX_SHARE = 0.25
# Below this share of prompt tokens saved, every prompt keeps a forward pass of its own.
_MIN_SAVED_SHARE = 1 / 3
# Of the memory that is free when sampling starts, what the cache may take if the configuration does not say.
_CACHE_SHARE = 0.5
# Tokens kept of one call's rows beside the cache, finished ones included: about 20 bytes each.
_MAX_SLOTS = 1 << 26


class TorchEngine(Engine):
    """Samples from a `transformers` causal model with a key-value cache.

    Log-probabilities are those of the distribution sampled from: at the sampling temperature, or at temperature 1
    when decoding greedily. They agree with a teacher-forced forward pass to rounding.
    """

    shares_weights = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        max_rows: int,
        share_prefixes: Literal["auto", "never"] = "auto",
        cache_gb: float | None = None,
    ) -> None:
        """Keep the model and the limits.

        Args:
            model: a causal model of transformers.
            pad_id: a token id that stands before shorter prompts.
            max_rows: completions decoded at a time at most; others take the places of those that finish.
            share_prefixes: `auto`: prompts that begin with one another are prefilled in one row, where that saves a
                third of the prompt tokens or more and the model's cache can be cut; `never`: each on its own. The
                log-probabilities of the two agree to rounding.
            cache_gb: gigabytes (10^9 bytes) that the key-value cache takes at most: fewer rows are decoded at a time
                where they might otherwise grow beyond it, one at least. None: half of the memory that is free.

        Raises:
            ValueError: `max_rows` is below 1, or `cache_gb` is not above 0.
            ConfigError: see `check_decoding`.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        if cache_gb is not None and not cache_gb > 0:
            raise ValueError(f"cache_gb must be above 0, got {cache_gb}")
        self._model = model
        self._pad_id = pad_id
        self._max_rows = max_rows
        self._share_prefixes = share_prefixes
        self._cache_gb = cache_gb
        self._one_token = OneTokenForward(model)
        check_decoding(model)

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
            ValueError, EngineError: see `check_request`.
        """
        budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
        check_request(self._model, prompts, params, seeds, budgets)
        finished: dict[tuple[int, int], Completion] = {}
        can_join, max_tokens = can_share(self._model), self._max_tokens()
        size = max(self._max_rows, _MAX_SLOTS // params.max_new_tokens)
        self._one_token.read_weights()
        forget_lengths(self._model)
        with evaluating(self._model), torch.inference_mode():
            for prefixes, indices in self._blocks(prompts, max_tokens, can_share=can_join):
                rows = [(prompt, sample) for prompt in indices for sample in range(params.num_samples)]
                rows.sort(key=lambda row: (len(prompts[row[0]]), budgets[row[0]]))
                for start in range(0, len(rows), size):
                    part = rows[start : start + size]
                    admission = _Admission(
                        [len(prompts[prompt]) + budgets[prompt] for prompt, _ in part],
                        max_rows=self._max_rows,
                        max_tokens=max_tokens - (0 if prefixes is None else prefixes.cache.num_tokens),
                        can_join=can_join,
                    )
                    begin = partial(self._begin, prompts, prefixes)
                    completions = _generate_rows(begin, admission, part, params, seeds, budgets, on_finished)
                    finished.update(zip(part, completions, strict=True))
        return [
            tuple(finished[prompt, sample] for sample in range(params.num_samples)) for prompt in range(len(prompts))
        ]

    def _max_tokens(self) -> float:
        """Return how many tokens the cache may hold."""
        free = free_memory(self._model.device) if self._cache_gb is None else None
        limit = self._cache_gb * 1e9 if self._cache_gb is not None else _CACHE_SHARE * (free or math.inf)
        per_token = cache_bytes_per_token(self._model)
        return math.inf if per_token is None else limit / per_token

    def _blocks(
        self, prompts: Sequence[Sequence[int]], max_tokens: float, *, can_share: bool
    ) -> Iterator[tuple[_Prefixes | None, Sequence[int]]]:
        """Yield prompts that are decoded together, with the caches that they begin with where some share theirs."""
        sides: dict[tuple[int, ...], list[int]] = {}
        for index, prompt in enumerate(prompts):
            sides.setdefault(angles_of(self._model.config, len(prompt)), []).append(index)
        for side, indices in sides.items():
            # A prefix that ends at the turn has the angles of a short text.
            shares = can_share and self._share_prefixes == "auto" and not any(side)
            hosts = prefix_hosts([prompts[index] for index in indices]) if shares else None
            if hosts is None:
                yield None, indices
            else:
                yield from self._shared_blocks(prompts, indices, [indices[host] for host in hosts], max_tokens)

    def _shared_blocks(
        self, prompts: Sequence[Sequence[int]], indices: Sequence[int], hosts: Sequence[int], max_tokens: float
    ) -> Iterator[tuple[_Prefixes | None, Sequence[int]]]:
        """Yield the prompts of `indices`, each with the cache of its host."""
        members: dict[int, list[int]] = {}
        for index, host in zip(indices, hosts, strict=True):
            members.setdefault(host, []).append(index)
        ordered = sorted(members, key=lambda host: len(prompts[host]))
        block: list[int] = []
        for host in ordered:
            num = len(block) + 1
            if block and (
                num > self._max_rows * _PREFIX_SHARE or num * len(prompts[host]) > max_tokens * _PREFIX_SHARE
            ):
                yield self._prefixes([prompts[each] for each in block], [members[each] for each in block])
                block = []
            block.append(host)
        yield self._prefixes([prompts[each] for each in block], [members[each] for each in block])

    def _prefixes(
        self, hosts: Sequence[Sequence[int]], members: Sequence[Sequence[int]]
    ) -> tuple[_Prefixes | None, Sequence[int]]:
        indices = [index for group in members for index in group]
        if max(map(len, hosts)) == 1:
            return None, indices
        cache = PrefixCache(self._model, [host[:-1] for host in hosts], pad_id=self._pad_id)
        return _Prefixes(cache, {index: row for row, group in enumerate(members) for index in group}), indices

    def _begin(
        self,
        prompts: Sequence[Sequence[int]],
        prefixes: _Prefixes | None,
        rows: Sequence[tuple[int, int]],
        width: int,
    ) -> Decoding:
        return Decoding(
            self._model,
            [prompts[row[0]] for row in rows],
            pad_id=self._pad_id,
            keys=[row[0] for row in rows],
            one_token=self._one_token,
            prefixes=None if prefixes is None else prefixes.cache,
            prefix_rows=() if prefixes is None else [prefixes.rows[row[0]] for row in rows],
            width=width,
        )


@dataclass(frozen=True, slots=True)
class _Prefixes:
    cache: PrefixCache
    rows: Mapping[int, int]
    """The row of the cache that holds each prompt."""


class _Admission:
    """Which rows may be decoded together: as many as are allowed and as the cache has room for, whatever they write."""

    def __init__(self, widths: Sequence[int], *, max_rows: int, max_tokens: float, can_join: bool) -> None:
        """Keep the limits; row n has `widths[n]` tokens at most; rows are admitted in order.

        Args:
            widths: tokens of prompt and longest completion.
            max_rows: in the batch.
            max_tokens: in the cache, where all rows are as wide as the widest.
            can_join: whether rows can join others; if not, they wait until all have finished.
        """
        self._widths, self._max_rows, self._max_tokens, self._can_join = widths, max_rows, max_tokens, can_join
        self._next = 0
        self.width = 0
        """Of the widest row."""

    def take(self, num_live: int) -> int:
        """Admit the next rows to so many that are left; return how many. Without any left that is one at least."""
        if num_live and not self._can_join:
            return 0
        width, count = self.width if num_live else 0, 0
        while self._next + count < len(self._widths) and num_live + count < self._max_rows:
            widest = max(width, self._widths[self._next + count])
            if num_live + count and (num_live + count + 1) * widest > self._max_tokens:
                break
            width, count = widest, count + 1
        is_last = self._next + count == len(self._widths)
        if not count or (count < COMPACTION_SHARE * num_live and not is_last):
            return 0  # joining copies the cache
        self.width = width
        self._next += count
        return count


def _generate_rows(
    begin: Callable[[Sequence[tuple[int, int]], int], Decoding],
    admission: _Admission,
    rows: Sequence[tuple[int, int]],
    params: SamplingParams,
    seeds: Sequence[int],
    budgets: Sequence[int],
    on_finished: Callable[[int], None] | None,
) -> list[Completion]:
    count, first = admission.take(0), 0
    state = begin(rows[:count], admission.width)
    device = state.logits.device
    uniforms = row_uniforms(rows, params, seeds).to(device)
    stops = torch.tensor(params.stop_ids, dtype=torch.long, device=device)
    growing = GrowingRows(torch.tensor([budgets[row[0]] for row in rows], device=device), stops)
    logprobs = torch.zeros(growing.token_ids.shape, device=device)
    entropies = torch.zeros(len(rows), dtype=torch.float64, device=device)
    growing.admit(count)
    while True:
        active, positions = growing.active, growing.positions
        draws = uniforms[active, positions]
        drawn = sample(state.logits, state.lines, draws, params.temperature, with_entropy=params.with_entropy)
        logprobs[active, positions] = drawn.logprobs
        if params.with_entropy:
            entropies.index_add_(0, active, drawn.entropies.double())
        keep = growing.write(drawn.ids)
        num_left = len(growing.active)
        if on_finished is not None and keep is not None:
            on_finished(len(active) - num_left)

        first += count
        count = admission.take(num_left)
        if num_left:
            state.advance(drawn.ids if keep is None else drawn.ids[keep], keep, compact=count > 0)
        if count:
            others = begin(rows[first : first + count], admission.width)
            state = state.joined_by(others) if num_left else others
            growing.admit(count)
        elif not num_left:
            break
    return [
        Completion(
            token_ids=tuple(ids[:length]),
            logprobs=tuple(scores[:length]),
            finish_reason="stop" if stopped else "length",
            entropy=entropy if params.with_entropy else None,
        )
        for ids, scores, length, stopped, entropy in zip(
            growing.token_ids.tolist(),
            logprobs.tolist(),
            growing.lengths.tolist(),
            growing.stopped(),
            entropies.tolist(),
            strict=True,
        )
    ]


def prefix_hosts(prompts: Sequence[Sequence[int]]) -> list[int] | None:
    """Return for each prompt the index of a prompt that begins with all its tokens but the last.

    A prompt that no other one contains is its own host, and hosts are their own hosts. One forward pass over a host
    gives the keys and values of all prompts it hosts; each then needs one more step, with its last token. Hosting
    prompt a saves len(a) - 1 tokens; None where less than a third of all prompt tokens would be saved.

    Takes time in proportion to the number of tokens.

    >>> prefix_hosts([[1, 2, 3, 4], [1, 2, 9], [1, 2, 3, 7, 4], [5, 6, 7]])
    [2, 2, 2, 3]
    >>> prefix_hosts([[1, 2, 3], [4, 5, 6]]) is None
    True
    """
    hosts = list(range(len(prompts)))
    children: dict[tuple[int, int], int] = {}  # (node, token) -> node; node 0 is the empty prefix
    host_of_node = [-1]
    for index in sorted(hosts, key=lambda index: -len(prompts[index])):
        prompt = prompts[index]
        node = _walk(children, prompt[:-1])
        if node:
            hosts[index] = host_of_node[node]
        else:
            _insert(children, host_of_node, prompt, index)
    saved = sum(len(prompts[index]) - 1 for index, host in enumerate(hosts) if host != index)
    return hosts if saved and saved >= _MIN_SAVED_SHARE * sum(map(len, prompts)) else None


def _walk(children: dict[tuple[int, int], int], tokens: Sequence[int]) -> int:
    """Return the node at the end of `tokens`; 0 without such a node or without tokens."""
    node = 0
    for token in tokens:
        node = children.get((node, token), 0)
        if not node:
            return 0
    return node


def _insert(children: dict[tuple[int, int], int], host_of_node: list[int], tokens: Sequence[int], host: int) -> None:
    """Add the path of `tokens`; nodes that were there keep the host they have."""
    node = 0
    for token in tokens:
        following = children.get((node, token))
        if following is None:
            following = len(host_of_node)
            host_of_node.append(host)
            children[node, token] = following
        node = following
