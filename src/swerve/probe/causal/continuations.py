"""The value of a prefix: how often a policy that continues it succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.responses import Response
from swerve.rewards import grade_all
from swerve.rollout import Engine, SamplingParams
from swerve.rollout.groups import BatchGrader, completion_text
from swerve.seeds import derive_seed
from swerve.types import Problem
from swerve.world import World

_Key = tuple[str, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A problem's prompt and the completion as far as it is written."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]

    @classmethod
    def of(cls, sequence: Response, length: int) -> Prefix:
        """Return the first `length` tokens of a rollout."""
        return cls(
            problem=sequence.problem, prompt_ids=sequence.prompt_ids, completion_ids=sequence.completion_ids[:length]
        )

    @property
    def key(self) -> _Key:
        """What makes two prefixes the same."""
        return self.problem.id, self.prompt_ids, self.completion_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the continuations of one prefix."""

    num_continuations: int
    num_successes: int
    num_failures: int
    """Continuations the grader could not judge; they count as wrong."""
    even_successes: int | None = None
    """Right ones among the continuations 0, 2, 4, ...; None: not known, as of those drawn at several looks."""
    first: Outcome | None = None
    """Where more were drawn depending on what was seen: the continuations before that."""

    @property
    def value(self) -> float:
        """Share of right continuations.

        >>> Outcome(num_continuations=4, num_successes=3, num_failures=0).value
        0.75
        """
        return self.num_successes / self.num_continuations

    @property
    def unbiased_value(self) -> float:
        """Share of right continuations among a number of them that was fixed beforehand.

        Drawing until the data are clear favours clear data: `value` is then biased away from where it stops, this is
        not.
        """
        return (self.first or self).value

    @property
    def half_values(self) -> tuple[float, float] | None:
        """Share of right continuations among the even ones and among the odd ones of those that `unbiased_value` is of.

        The two are independent, and continuation i of two arms of a position has the same random numbers, so the halves
        of their difference are independent too. None with fewer than two continuations, or where the half is not known.

        >>> Outcome(num_continuations=5, num_successes=3, num_failures=0, even_successes=3).half_values
        (1.0, 0.0)
        """
        drawn = self.first or self
        num_odd = drawn.num_continuations // 2
        if drawn.even_successes is None or not num_odd:
            return None
        odd = drawn.num_successes - drawn.even_successes
        return drawn.even_successes / (drawn.num_continuations - num_odd), odd / num_odd

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> Outcome:
        """Return an outcome from its fields, as `dataclasses.asdict` gives them."""
        first = record["first"]
        return cls(**{**record, "first": first and cls.of_json(first)})

    def extended(self, other: Outcome) -> Outcome:
        """Return the continuations of both, the second drawn depending on the first."""
        return Outcome(
            num_continuations=self.num_continuations + other.num_continuations,
            num_successes=self.num_successes + other.num_successes,
            num_failures=self.num_failures + other.num_failures,
            first=self.first or self,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationSampler:
    """Continues prefixes with one policy and grades the whole completions.

    V(x_<t) is estimated by the share of `num` continuations that the grader finds right. A prefix that ends in a stop
    token, or is `max_new_tokens` long, is graded as it stands: its value is 0 or 1, whatever `num`.

    The random numbers of a prefix come from the seed, the problem, the prefix's length and the look. So prefixes of one
    problem that differ in their last token only (the arms of a position) share them, values at other positions do not,
    and the result for a prefix depends on nothing else in the call.
    """

    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    max_new_tokens: int
    """Of the whole completion, the prefix included."""
    temperature: float
    seed: int
    grade: BatchGrader = grade_all
    """A success is what it finds right."""
    world: World = field(default_factory=World)
    """The processes that share the prefixes; all make the same calls."""
    on_planned: Callable[[int], None] = lambda num: None
    """Called with a number of continuations that there will be, by who finds out."""
    on_finished: Callable[[int], None] = lambda num: None
    """Called with the number of continuations finished since the last call."""
    calls: list[list[Outcome]] = field(default_factory=list)
    """What each call of `sample` has returned so far."""

    def ends(self, prefix: Prefix) -> bool:
        """Return whether there is nothing to continue."""
        written = prefix.completion_ids
        return len(written) >= self.max_new_tokens or (bool(written) and written[-1] in self.stop_ids)

    def num_continued(self, prefixes: Sequence[Prefix]) -> int:
        """Return how many distinct prefixes would be continued."""
        return len({prefix.key for prefix in prefixes if not self.ends(prefix)})

    def sample(self, prefixes: Sequence[Prefix], num: int, *, look: int = 0) -> list[Outcome]:
        """Continue each prefix `num` times; one outcome each, in order.

        All prefixes go to the engine in one call, equal ones once: they have equal outcomes. Several processes share
        them by problem.

        Args:
            prefixes: any number.
            num: continuations of each.
            look: another look draws fresh random numbers.

        Raises:
            ValueError: `num` is less than 1.
        """
        if num < 1:
            raise ValueError(f"num must be at least 1, got {num}: a value needs continuations")
        distinct = {prefix.key: prefix for prefix in prefixes}
        # Those of a problem begin alike, and an engine reads what is common to them once.
        problems = list(dict.fromkeys(prefix.problem.id for prefix in distinct.values()))
        mine = set(self.world.shard(problems))
        own = {key: prefix for key, prefix in distinct.items() if prefix.problem.id in mine}
        outcomes = self._outcomes(own, num, look)
        if self.world.size > 1:
            # What all processes outcomes, by the number of the prefix.
            keys = list(distinct)
            own_outcomes = [[index, asdict(outcomes[key])] for index, key in enumerate(keys) if key in outcomes]
            for part in self.world.gather(own_outcomes):
                outcomes |= {keys[index]: Outcome.of_json(outcome) for index, outcome in part}
            everything, share = self.num_continued(prefixes), self.num_continued(list(own.values()))
            self.on_finished((everything - share) * num)
        self.calls.append([outcomes[prefix.key] for prefix in prefixes])
        return self.calls[-1]

    def _outcomes(self, distinct: Mapping[_Key, Prefix], num: int, look: int) -> dict[_Key, Outcome]:
        open_ended = [prefix for prefix in distinct.values() if not self.ends(prefix)]
        written = self._continue(open_ended, num, look)
        completions = {key: written.get(key, [prefix.completion_ids] * num) for key, prefix in distinct.items()}
        graded = self._graded([(distinct[key].problem, written) for key, written in completions.items()])
        return dict(zip(distinct, graded, strict=True))

    def _continue(self, prefixes: Sequence[Prefix], num: int, look: int) -> dict[_Key, list[tuple[int, ...]]]:
        """Return whole completions by prefix."""
        if not prefixes:
            return {}
        params = SamplingParams(
            num_samples=num,
            max_new_tokens=self.max_new_tokens,  # not the largest budget: an engine's draws may depend on it
            temperature=self.temperature,
            stop_ids=self.stop_ids,
        )
        generated = self.engine.generate(
            [(*prefix.prompt_ids, *prefix.completion_ids) for prefix in prefixes],
            params,
            seeds=[
                derive_seed(self.seed, "probe", "continue", prefix.problem.id, len(prefix.completion_ids), look)
                for prefix in prefixes
            ],
            budgets=[self.max_new_tokens - len(prefix.completion_ids) for prefix in prefixes],
            on_finished=self.on_finished,
        )
        return {
            prefix.key: [(*prefix.completion_ids, *completion.token_ids) for completion in completions]
            for prefix, completions in zip(prefixes, generated, strict=True)
        }

    def _graded(self, groups: Sequence[tuple[Problem, Sequence[tuple[int, ...]]]]) -> list[Outcome]:
        """Grade the completions of each problem, all in one call; equal ones of a group, which are frequent, once."""
        # The distinct completions of all problems go to the grader together.
        unique = [list(dict.fromkeys(completions)) for _, completions in groups]
        texts = [
            (problem, completion_text(self.tokenizer, token_ids))
            for (problem, _), distinct in zip(groups, unique, strict=True)
            for token_ids in distinct
        ]
        rewards = iter(self.grade(texts))
        # Each group takes its rewards back; equal completions share theirs.
        outcomes = []
        for (_, completions), distinct in zip(groups, unique, strict=True):
            judged = dict(zip(distinct, islice(rewards, len(distinct)), strict=True))
            right = [judged[token_ids].is_right for token_ids in completions]
            outcomes.append(
                Outcome(
                    num_continuations=len(right),
                    num_successes=sum(right),
                    num_failures=sum(judged[token_ids].value is None for token_ids in completions),
                    even_successes=sum(right[::2]),
                )
            )
        return outcomes


class RecordedSampler:
    """Stands for a sampler whose calls are known: the same search makes the same calls."""

    def __init__(self, calls: Iterable[list[Outcome]]) -> None:
        """Take the outcomes of each call, in order."""
        self._calls = iter(calls)

    def on_planned(self, num: int) -> None:
        """Tell nobody."""

    def num_continued(self, prefixes: Sequence[Prefix]) -> int:
        """Return 0: nothing is sampled."""
        return 0

    def sample(self, prefixes: Sequence[Prefix], num: int, *, look: int = 0) -> list[Outcome]:
        """Return what this call of `ContinuationSampler.sample` has returned."""
        return next(self._calls)
