"""A policy over four tokens whose prefixes have exactly known values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, product

import numpy as np
import pytest

from swerve.artifacts.responses import Response
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.causal.continuations import ContinuationSampler, Prefix
from swerve.rollout import SamplingParams
from swerve.seeds import derive_seed
from swerve.types import Completion, Problem, Reward

TOKENIZER = build_word_tokenizer(["a", "b", "c"])
BOS, EOS = int(TOKENIZER.bos_token_id), int(TOKENIZER.eos_token_id)
A, B, C = TOKENIZER.convert_tokens_to_ids(["a", "b", "c"])
Probs = Callable[[tuple[int, ...]], Mapping[int, float]]
Right = Callable[[tuple[str, ...]], bool]


@cache
def random_probs(written: tuple[int, ...], *, seed: int) -> Mapping[int, float]:
    """Probabilities of eos, a, b and c after a prefix: any numbers, always the same."""
    drawn = np.random.default_rng(derive_seed(seed, "toy", *written)).dirichlet([0.6, 1.0, 1.0, 1.0])
    return dict(zip((EOS, A, B, C), drawn.tolist(), strict=True))


def fair_probs(written: tuple[int, ...]) -> Mapping[int, float]:
    """A or b with equal probability."""
    return {A: 0.5, B: 0.5}


def has_two_a_or_ends_in_b(words: tuple[str, ...]) -> bool:
    return words.count("a") >= 2 or words[-1] == "b"


@cache
def completion(token_ids: tuple[int, ...]) -> Completion:
    return Completion(token_ids=token_ids, logprobs=(0.0,) * len(token_ids), finish_reason="length")


@dataclass
class Toy:
    """An engine that samples from known probabilities, and the exact values by enumeration."""

    probs: Probs
    right: Right = has_two_a_or_ends_in_b
    max_new_tokens: int = 4
    calls: list[list[tuple[tuple[int, ...], int, int]]] = field(default_factory=list)
    """One a call of the engine: (written, seed, budget) of each prompt."""
    _known: dict[tuple[int, ...], tuple[list[int], list[float]]] = field(default_factory=dict)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        assert budgets is not None
        self.calls.append([(tuple(p[1:]), s, b) for p, s, b in zip(prompts, seeds, budgets, strict=True)])
        results = []
        for prompt, seed, budget in zip(prompts, seeds, budgets, strict=True):
            uniforms = np.random.default_rng(seed).random((params.num_samples, params.max_new_tokens))
            results.append(tuple(self._completion(tuple(prompt[1:]), budget, row.tolist()) for row in uniforms))
            if on_finished is not None:
                on_finished(params.num_samples)
        return results

    def _completion(self, written: tuple[int, ...], budget: int, uniforms: Sequence[float]) -> Completion:
        prefix = written
        for uniform in uniforms[:budget]:
            tokens, cumulative = self._known.get(prefix) or self._cumulated(prefix)
            token = tokens[min(bisect_right(cumulative, uniform), len(tokens) - 1)]
            prefix = (*prefix, token)
            if token == EOS:
                break
        return completion(prefix[len(written) :])

    def _cumulated(self, written: tuple[int, ...]) -> tuple[list[int], list[float]]:
        probs = self.probs(written)
        self._known[written] = list(probs), list(accumulate(probs.values()))
        return self._known[written]

    def grade_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Reward]:
        return [self.grade(problem, text) for problem, text in pairs]

    def grade(self, problem: Problem, text: str) -> Reward:
        words = tuple(text.split())
        if not words:
            return Reward(value=None, status="unparsed")
        return Reward(value=float(self.right(words)), status="graded")

    def value(self, written: tuple[int, ...]) -> float:
        """The exact V, by enumeration."""
        if len(written) == self.max_new_tokens or (written and written[-1] == EOS):
            words = tuple(TOKENIZER.convert_ids_to_tokens([token for token in written if token != EOS]))
            return float(bool(words) and self.right(words))
        return sum(prob * self.value((*written, token)) for token, prob in self.probs(written).items())

    def prefixes(self) -> Iterator[tuple[int, ...]]:
        """All that can be continued."""
        for length in range(self.max_new_tokens):
            yield from product((A, B, C), repeat=length)

    def sampler(self, *, seed: int = 0) -> ContinuationSampler:
        return ContinuationSampler(
            engine=self,
            tokenizer=TOKENIZER,
            stop_ids=(EOS,),
            max_new_tokens=self.max_new_tokens,
            temperature=1.0,
            seed=seed,
            grade=self.grade_all,
        )


def toy_prefix(written: tuple[int, ...], *, problem: str = "p") -> Prefix:
    return Prefix(problem=toy_problem(problem), prompt_ids=(BOS,), completion_ids=written)


def toy_problem(name: str) -> Problem:
    return Problem(id=name, family="toy", question="?", answer="a")


def toy_rollout(index: int, words: str, *, wrong: Mapping[int, str] | None = None) -> Response:
    """A rollout written as 'a b eos'."""
    ids = tuple({"a": A, "b": B, "c": C, "eos": EOS}[word] for word in words.split())
    return Response(
        sequence_id=index,
        problem=toy_problem(f"p{index}"),
        prompt_ids=(BOS,),
        completion_ids=ids,
        text=words,
        wrong=wrong or {},
    )


@dataclass(frozen=True)
class ToyKit:
    """What tests take from here: `conftest.py` cannot be imported."""

    tokenizer = TOKENIZER
    bos, eos, a, b, c = BOS, EOS, A, B, C
    prefix = staticmethod(toy_prefix)
    problem = staticmethod(toy_problem)
    rollout = staticmethod(toy_rollout)

    def random(self, seed: int, *, length: int = 4) -> Toy:
        return Toy(probs=partial(random_probs, seed=seed), max_new_tokens=length)

    def fair(self, right: Right, *, length: int) -> Toy:
        """A and b by fair coins, `length` of them."""
        return Toy(probs=fair_probs, right=right, max_new_tokens=length)

    def given(self, probs: Probs, right: Right, *, length: int) -> Toy:
        return Toy(probs=probs, right=right, max_new_tokens=length)


@pytest.fixture(scope="session")
def toys() -> ToyKit:
    return ToyKit()
