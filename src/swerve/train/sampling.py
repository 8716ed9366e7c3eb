"""The rollouts of a stage's steps: problems are drawn, completions of them sampled and graded.

Each step is sampled at its beginning, or with `rollout.ahead` beside the update of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from swerve.config.stages import DistillStage, RlStage
from swerve.rollout.engine import Engine, SamplingParams
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.rewards import training_rewards
from swerve.types import Completion, Problem, Prompt

_SYNC = ("seconds", "mean_difference", "max_difference")


class StepSampler:
    """Samples and grades the groups of a stage's steps.

    With `zero_variance: refill`, prompts whose completions all have one reward are replaced by others, round by round,
    until there are `prompts_per_step` groups that differ or `max_refills` rounds are over.
    """

    def __init__(self, stage: RlStage | DistillStage, context: StageContext) -> None:
        self._stage, self._context = stage, context
        self._has_sampled = False
        """Whether the present step sampled: its own rollouts, or the next one's."""

    def rollouts(self, index: int) -> StepRollouts:
        """Return the graded rollouts of the step with 0-based number `index`, sampled now unless they were ahead."""
        context = self._context
        rollouts = context.pending.pop(index, None)
        self._has_sampled = rollouts is None
        if rollouts is None:
            rollouts = self.sample(index)
        if context.records_solved:  # before the next step's problems are drawn
            context.record_solved(index, _solved(rollouts, context))
        return rollouts

    def sample(self, index: int) -> StepRollouts:
        """Sample and grade the rollouts of the step with 0-based number `index`."""
        self._context.world.doing("sampling in")
        params = self._params(with_entropy=self._leaves_unread)
        with self._context.awake_engine(step=index) as engine:
            first = self._sampled(index, engine, self._drawn(index), params)
            return self._refilled(first, index, engine, params)

    @contextmanager
    def ahead(self, index: int) -> Iterator[None]:
        """Sample the step with 0-based number `index` ahead, where the recipe asks for it, while the block updates.

        Its rollouts are those of the weights before the block's update. An engine that is `concurrent` samples the
        first round in another thread while the block is run, any other before it. The first step of a stage or phase is
        not sampled ahead; nothing is sampled for a step that never comes.
        """
        context = self._context
        if not (context.config.rollout.ahead and index in context.phase.steps):
            yield
            return
        # The engine has the weights before the update, and stays awake only while it samples.
        self._has_sampled = True
        context.world.doing("sampling in")
        params = self._params(with_entropy=False)
        with context.awake_engine(step=index - 1) as engine:
            first: Engine = engine
            asked = self._drawn(index)
            # The first round beside the update; the rest, which depends on its rewards, after both.
            if engine.concurrent:
                with ThreadPoolExecutor(max_workers=1) as thread:
                    token_ids = [prompt.token_ids for prompt in asked.prompts]
                    begun = thread.submit(engine.generate, token_ids, params, seeds=asked.seeds)
                    yield
                first = _Begun(begun, engine.version)
            sampled = self._sampled(index, first, asked, params)
            context.pending[index] = self._refilled(sampled, index, engine, params)
        if first is engine:  # it sleeps while the policy is updated
            yield

    def figures(self, rollouts: StepRollouts, index: int) -> Metrics:
        """Return what to log of how a step was sampled.

        `staleness` is by how many steps the weights that sampled are behind those that learned, as a mean over
        rollouts; the others say how the engine got the weights, where it does not share them.
        """
        context = self._context
        versions = [rollout.version for group in rollouts.groups for rollout in group.rollouts]
        sums = context.world.sums({"versions": float(sum(versions)), "num": float(len(versions))})
        staleness = context.first_step + index - sums["versions"] / sums["num"]
        return {"staleness": staleness, **(_sync_figures(context) if self._has_sampled else {})}

    @property
    def _leaves_unread(self) -> bool:
        """Whether a step's only update, which begins with the weights that sampled, may leave completions unread."""
        stage = self._stage
        return (
            isinstance(stage, RlStage)
            and stage.num_updates == 1
            and (stage.zero_variance == "keep" or stage.is_selector)
        )

    def _params(self, *, with_entropy: bool) -> SamplingParams:
        stage = self._stage
        return self._context.sampling(
            num_samples=stage.samples_per_prompt, temperature=stage.temperature, with_entropy=with_entropy
        )

    def _drawn(self, index: int, numbers: range | None = None) -> _Asked:
        """Draw the problems of some groups of a step, by default of its first round."""
        stage, context = self._stage, self._context
        numbers = range(stage.size_of(index)) if numbers is None else numbers
        problems = context.draw(numbers, step=index)
        own = context.world.shard(numbers)
        stream = "rollout again" if isinstance(stage, RlStage) and stage.reward == "same" else "rollout"
        return _Asked(
            drawn=problems,
            numbers=own,
            prompts=context.encode([problems[number - numbers.start] for number in own]),
            seeds=[context.seed(stage.label, stream, index, number) for number in own],
        )

    def _sampled(self, index: int, engine: Engine, asked: _Asked, params: SamplingParams) -> StepRollouts:
        """Sample and grade the completions of one round."""
        stage, context = self._stage, self._context
        groups = context.sample_groups(engine, asked.prompts, params, seeds=asked.seeds)
        rewards = [
            training_rewards(group, stage, context, index, number)
            for number, group in zip(asked.numbers, groups, strict=True)
        ]
        return StepRollouts(groups=groups, numbers=asked.numbers, rewards=rewards, drawn=asked.drawn)

    def _refilled(self, rollouts: StepRollouts, index: int, engine: Engine, params: SamplingParams) -> StepRollouts:
        """Return the rollouts of a step with those of further rounds, as many as are needed and allowed."""
        stage, context = self._stage, self._context
        rounds = stage.max_refills if isinstance(stage, RlStage) and stage.zero_variance == "refill" else 0
        for number in range(1, rounds + 1):
            missing = stage.size_of(index) - int(context.world.sums({"n": sum(rollouts.varied())})["n"])
            if missing <= 0:
                break
            start = number * stage.prompts_per_step
            more = self._sampled(index, engine, self._drawn(index, range(start, start + missing)), params)
            rollouts = StepRollouts(
                groups=[*rollouts.groups, *more.groups],
                numbers=[*rollouts.numbers, *more.numbers],
                rewards=[*rollouts.rewards, *more.rewards],
                num_refills=number,
                drawn=[*rollouts.drawn, *more.drawn],
            )
        # What was drawn is described before its outcome counts for later draws.
        return replace(rollouts, draw_metrics=context.draw_metrics(rollouts.drawn, step=index))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What this process asks of the engine in one round."""

    drawn: Sequence[Problem]
    """Of all processes' groups."""
    numbers: Sequence[int]
    """Each own group's number within the step, over all processes."""
    prompts: Sequence[Prompt]
    seeds: Sequence[int]


class _Begun(Engine):
    """An engine that was asked already, and answers in another thread."""

    def __init__(self, answer: Future[list[tuple[Completion, ...]]], version: int) -> None:
        self._answer, self.version = answer, version

    def generate(self, *arguments: Any, **options: Any) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`."""
        return self._answer.result()


def _solved(sampled: StepRollouts, context: StageContext) -> list[tuple[str, int, int]]:
    """Return problem id, right and all completions of every group of all processes, by the groups' numbers."""
    own = [
        [
            number,
            group.prompt.problem.id,
            sum(rollout.reward.is_right for rollout in group.rollouts),
            len(group.rollouts),
        ]
        for number, group in zip(sampled.numbers, sampled.groups, strict=True)
    ]
    everybody = sorted(entry for part in context.world.gather(own) for entry in part)
    return [(name, solved, tried) for _, name, solved, tried in everybody]


def _sync_figures(context: StageContext) -> Metrics:
    """Return how the engine got the weights before this step's update; nothing where it shares them."""
    report = context.engine.report
    parts = context.world.gather(None if report is None else [getattr(report, name) for name in _SYNC])
    known = [part for part in parts if part is not None]
    if not known:
        return {}
    seconds, means, largest = zip(*known, strict=True)
    compared = None not in means
    return {
        "sync_seconds": round(max(seconds), 4),
        "sync_logprob_difference": fmean(means) if compared else None,
        "sync_logprob_difference_max": max(largest) if compared else None,
    }
