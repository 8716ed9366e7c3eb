"""The embedded engine: samples with the model being trained, in this process, for any causal model of transformers.

Each distinct prompt is prefilled once and its key-value cache copied to its samples; finished rows leave the batch.
Where prompts begin with one another, as the prefixes of a rollout do, the longest is prefilled for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import PreTrainedModel

from swerve.rollout.decoding import Decoding, GrowingRows, PrefixCache, can_share, evaluating, row_uniforms, sample
from swerve.rollout.engine import Engine, SamplingParams, check_request
from swerve.types import Completion

# Rows of shared prefixes that are kept beside the rows being decoded, as a share of these.
_PREFIX_SHARE = 0.25
# Below this share of prompt tokens saved, every prompt keeps a forward pass of its own.
_MIN_SAVED_SHARE = 1 / 3


class TorchEngine(Engine):
    """Samples from a `transformers` causal model with a key-value cache.

    Log-probabilities are those of the distribution sampled from: at the sampling temperature, or at temperature 1
    when decoding greedily. They agree with a teacher-forced forward pass to rounding.
    """

    def __init__(
        self, model: PreTrainedModel, *, pad_id: int, max_rows: int, share_prefixes: Literal["auto", "never"] = "auto"
    ) -> None:
        """Keep the model and the limits.

        Args:
            model: a causal model of transformers.
            pad_id: a token id that stands before shorter prompts.
            max_rows: completions decoded at a time; the cache has as many rows, and a quarter more of shared prefixes.
            share_prefixes: `auto`: prompts that begin with one another are prefilled in one row, where that saves a
                third of the prompt tokens or more and the model's cache can be cut; `never`: each on its own. The
                log-probabilities of the two agree to rounding.

        Raises:
            ValueError: `max_rows` is below 1.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self._model = model
        self._pad_id = pad_id
        self._max_rows = max_rows
        self._share_prefixes = share_prefixes

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
        check_request(self._model, prompts, params, seeds, budgets)
        finished: dict[tuple[int, int], Completion] = {}
        with evaluating(self._model), torch.inference_mode():
            for prefixes, indices in self._blocks(prompts):
                rows = [(prompt, sample) for prompt in indices for sample in range(params.num_samples)]
                rows.sort(key=lambda row: (len(prompts[row[0]]), budgets[row[0]]))
                for start in range(0, len(rows), self._max_rows):
                    chunk = rows[start : start + self._max_rows]
                    state = self._start(chunk, prompts, prefixes)
                    completions = _generate_rows(state, chunk, params, seeds, budgets, on_finished)
                    finished.update(zip(chunk, completions, strict=True))
        return [
            tuple(finished[prompt, sample] for sample in range(params.num_samples)) for prompt in range(len(prompts))
        ]

    def _blocks(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[_Prefixes | None, Sequence[int]]]:
        """Yield prompts that are decoded together, with the caches that they begin with where some share theirs."""
        sharing = self._share_prefixes == "auto" and can_share(self._model)
        hosts = prefix_hosts(prompts) if sharing else None
        if hosts is None:
            yield None, range(len(prompts))
            return
        members: dict[int, list[int]] = {}
        for index, host in enumerate(hosts):
            members.setdefault(host, []).append(index)
        ordered = sorted(members, key=lambda host: len(prompts[host]))
        size = max(1, int(self._max_rows * _PREFIX_SHARE))
        for start in range(0, len(ordered), size):
            block = ordered[start : start + size]
            yield self._prefixes([prompts[host] for host in block], [members[host] for host in block])

    def _prefixes(
        self, hosts: Sequence[Sequence[int]], members: Sequence[Sequence[int]]
    ) -> tuple[_Prefixes | None, Sequence[int]]:
        indices = [index for group in members for index in group]
        if max(map(len, hosts)) == 1:
            return None, indices
        cache = PrefixCache(self._model, [host[:-1] for host in hosts], pad_id=self._pad_id)
        return _Prefixes(cache, {index: row for row, group in enumerate(members) for index in group}), indices

    def _start(
        self, rows: Sequence[tuple[int, int]], prompts: Sequence[Sequence[int]], prefixes: _Prefixes | None
    ) -> Decoding:
        return Decoding(
            self._model,
            [prompts[row[0]] for row in rows],
            pad_id=self._pad_id,
            keys=[row[0] for row in rows],
            prefixes=None if prefixes is None else prefixes.cache,
            prefix_rows=() if prefixes is None else [prefixes.rows[row[0]] for row in rows],
        )


@dataclass(frozen=True, slots=True)
class _Prefixes:
    cache: PrefixCache
    rows: Mapping[int, int]
    """The row of the cache that holds each prompt."""


def _generate_rows(
    state: Decoding,
    rows: Sequence[tuple[int, int]],
    params: SamplingParams,
    seeds: Sequence[int],
    budgets: Sequence[int],
    on_finished: Callable[[int], None] | None,
) -> list[Completion]:
    device = state.logits.device
    uniforms = row_uniforms(rows, params, seeds).to(device)
    stops = torch.tensor(params.stop_ids, dtype=torch.long, device=device)
    growing = GrowingRows(torch.tensor([budgets[row[0]] for row in rows], device=device), stops)
    logprobs = torch.zeros(growing.token_ids.shape, device=device)
    for position in range(growing.token_ids.shape[1]):
        ids, scores = sample(state.logits, uniforms[growing.active, position], params.temperature)
        logprobs[growing.writing, position] = scores[growing.alive]
        num_finished = growing.write(position, ids)
        if on_finished is not None and num_finished:
            on_finished(num_finished)
        if not growing.num_alive:
            break
        keep = growing.compact()
        state.advance(ids if keep is None else ids[keep], keep)
    return [
        Completion(
            token_ids=tuple(ids[:length]),
            logprobs=tuple(scores[:length]),
            finish_reason="stop" if stopped else "length",
        )
        for ids, scores, length, stopped in zip(
            growing.token_ids.tolist(), logprobs.tolist(), growing.lengths.tolist(), growing.stopped(), strict=True
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
