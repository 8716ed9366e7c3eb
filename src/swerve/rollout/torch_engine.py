"""The embedded engine: samples with the model being trained, in this process, for any causal model of transformers.

Each distinct prompt is prefilled once, and its samples are decoded as one for as long as they are the same; finished
rows leave the batch, and rows that wait for room in the cache join it.
Where prompts begin with one another, as the prefixes of a rollout do, the longest is prefilled for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import torch
from transformers import PreTrainedModel

from swerve.positions import angles_of, forget_lengths
from swerve.rollout.cache import cache_bytes_per_token, free_memory, growing_cache, is_croppable
from swerve.rollout.decoding import (
    COMPACTION_SHARE,
    Decoding,
    GrowingRows,
    PrefixCache,
    evaluating,
    row_draws,
    sample_tokens,
)
from swerve.rollout.decoding_trial import check_decoding
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
        # Only keys and values of every position can be shared, and rows join only such caches.
        self._is_plain = is_croppable(growing_cache(model))

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
        budgets = check_request(self._model, prompts, params, seeds, budgets)

        # Rows of similar length are decoded together, as many as the cache has room for.
        finished: dict[tuple[int, int], Completion] = {}
        max_tokens = self._max_tokens()
        size = max(self._max_rows, _MAX_SLOTS // params.max_new_tokens)
        self._one_token.read_weights()
        forget_lengths(self._model)
        with evaluating(self._model), torch.inference_mode():
            for prefixes, indices in self._blocks(prompts, max_tokens):
                room = max_tokens - (0 if prefixes is None else prefixes.num_tokens)
                rows = [(prompt, sample) for prompt in indices for sample in range(params.num_samples)]
                rows.sort(key=lambda row: (len(prompts[row[0]]), budgets[row[0]]))
                for start in range(0, len(rows), size):
                    part = rows[start : start + size]
                    completions = self._complete(part, prompts, prefixes, room, params, seeds, budgets, on_finished)
                    finished.update(zip(part, completions, strict=True))
        return [
            tuple(finished[prompt, sample] for sample in range(params.num_samples)) for prompt in range(len(prompts))
        ]

    def _max_tokens(self) -> float:
        """Return how many tokens the cache may hold."""
        per_token = cache_bytes_per_token(self._model)
        if per_token is None:
            return math.inf
        if self._cache_gb is not None:
            return self._cache_gb * 1e9 / per_token
        free = free_memory(self._model.device)
        return _CACHE_SHARE * free / per_token if free else math.inf

    def _blocks(
        self, prompts: Sequence[Sequence[int]], max_tokens: float
    ) -> Iterator[tuple[PrefixCache | None, Sequence[int]]]:
        """Yield prompts that are decoded together, with the cache that they begin with where some share theirs."""
        sides: dict[tuple[int, ...], list[int]] = {}
        for index, prompt in enumerate(prompts):
            sides.setdefault(angles_of(self._model.config, len(prompt)), []).append(index)
        for side, indices in sides.items():
            # A prefix that ends at the turn has the angles of a short text.
            shares = self._is_plain and self._share_prefixes == "auto" and not any(side)
            hosts = prefix_hosts([prompts[index] for index in indices]) if shares else None
            if hosts is None:
                yield None, indices
                continue
            members: dict[int, list[int]] = {}
            for index, host in zip(indices, hosts, strict=True):
                members.setdefault(indices[host], []).append(index)

            # Hosts of similar length share a cache, which takes a part of the room.
            block: dict[int, list[int]] = {}
            for host in sorted(members, key=lambda host: len(prompts[host])):
                num = len(block) + 1
                most = _PREFIX_SHARE * min(self._max_rows, max_tokens / len(prompts[host]))
                if block and num > most:
                    yield self._prefixed(prompts, block)
                    block = {}
                block[host] = members[host]
            yield self._prefixed(prompts, block)

    def _prefixed(
        self, prompts: Sequence[Sequence[int]], block: Mapping[int, Sequence[int]]
    ) -> tuple[PrefixCache | None, Sequence[int]]:
        """Return the cache of some hosts and the prompts that they host."""
        indices = [index for group in block.values() for index in group]
        sequences = [prompts[host][:-1] for host in block]
        if not any(sequences):
            return None, indices
        rows = {index: row for row, group in enumerate(block.values()) for index in group}
        return PrefixCache(self._model, sequences, rows, pad_id=self._pad_id), indices

    def _complete(
        self,
        rows: Sequence[tuple[int, int]],
        prompts: Sequence[Sequence[int]],
        prefixes: PrefixCache | None,
        room: float,
        params: SamplingParams,
        seeds: Sequence[int],
        budgets: Sequence[int],
        on_finished: Callable[[int], None] | None,
    ) -> list[Completion]:
        """Return a completion of each row (prompt and sample): those that wait for room join when others finish."""
        device = self._model.device
        uniforms = row_draws(rows, params, seeds).to(device)
        stops = torch.tensor(params.stop_ids, dtype=torch.long, device=device)
        growing = GrowingRows(torch.tensor([budgets[prompt] for prompt, _ in rows], device=device), stops)
        logprobs = torch.zeros(growing.token_ids.shape, device=device)
        entropies = torch.zeros(len(rows), dtype=torch.float64, device=device)
        widths = [len(prompts[prompt]) + budgets[prompt] for prompt, _ in rows]

        first, (count, width) = 0, self._admitted(widths, 0, 0, 0, room)
        state: Decoding | None = None
        while True:
            # The rows that are admitted join those that are left.
            if count:
                keys = [prompt for prompt, _ in rows[first : first + count]]
                joining = Decoding(
                    self._model,
                    [prompts[key] for key in keys],
                    pad_id=self._pad_id,
                    keys=keys,
                    one_token=self._one_token,
                    prefixes=prefixes,
                    width=width,
                )
                state = joining if state is None else state.joined_by(joining)
                growing.admit(count)
                first += count
            if state is None:
                break

            # Each row in the batch gets a token.
            active, positions = growing.active, growing.positions
            draws = uniforms[active, positions]
            drawn = sample_tokens(
                state.logits, state.lines, draws, params.temperature, with_entropy=params.with_entropy
            )
            logprobs[active, positions] = drawn.logprobs
            if params.with_entropy:
                entropies.index_add_(0, active, drawn.entropies.double())
            keep = growing.write(drawn.ids)
            num_left = len(growing.active)
            if on_finished is not None and keep is not None:
                on_finished(len(active) - num_left)

            # Rows that have ended leave the batch.
            count, width = self._admitted(widths, first, num_left, width, room)
            if num_left:
                state.advance(drawn.ids if keep is None else drawn.ids[keep], keep, compact=count > 0)
            else:
                state = None
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

    def _admitted(self, widths: Sequence[int], first: int, num_live: int, width: int, room: float) -> tuple[int, int]:
        """Return how many of the rows that wait are decoded beside those that live, and how wide the widest then is.

        The cache has room for all of them whatever they write; without any that lives one is admitted at least.

        Args:
            widths: tokens of prompt and longest completion of each row.
            first: of the rows that wait.
            num_live: rows that are decoded.
            width: of the widest of them.
            room: tokens that the cache may have, where all rows are as wide as the widest.
        """
        if num_live and not self._is_plain:
            return 0, width
        widest, count = width if num_live else 0, 0
        for new in widths[first : first + self._max_rows - num_live]:
            if num_live + count and (num_live + count + 1) * max(widest, new) > room:
                break
            widest, count = max(widest, new), count + 1
        if count < COMPACTION_SHARE * num_live and first + count < len(widths):
            return 0, width  # joining copies the cache
        return count, widest


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
        *prefix, last = prompts[index]
        node = 0
        for token in prefix:
            node = children.get((node, token), 0)
            if not node:
                break
        if node:
            hosts[index] = host_of_node[node]
            continue

        # A new host: its path is added, where nodes that were there keep the host they have.
        node = 0
        for token in (*prefix, last):
            node = children.setdefault((node, token), len(host_of_node))
            if node == len(host_of_node):
                host_of_node.append(index)
    saved = sum(len(prompts[index]) - 1 for index, host in enumerate(hosts) if host != index)
    return hosts if saved and saved >= _MIN_SAVED_SHARE * sum(map(len, prompts)) else None
