"""The rollouts of one step: sampled, refilled where groups teach nothing, graded, written down and counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from statistics import fmean
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from swerve.artifacts.files import remove
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table, write_table
from swerve.config import DistillStage, RlStage, StageConfig
from swerve.prompts import encode_prompts, template_arguments
from swerve.rewards import grade_all
from swerve.rollout import rollout_groups
from swerve.rollout.engine import Engine
from swerve.rollout.groups import response_metrics
from swerve.train.columns import NO_SIGNAL, TokenSignals
from swerve.train.health.ungraded import outcome_figures
from swerve.train.stages.context import Metrics, StageContext, StepRollouts
from swerve.types import Completion, Problem, Prompt, Reward, Rollout, RolloutGroup
from swerve.world import World

SamplingStage = RlStage | DistillStage
PENDING = "rollouts"
"""The trainer's state that holds rollouts which were sampled ahead."""
_SYNC = ("seconds", "mean_difference", "max_difference")


class RolloutSchedule:
    """When a stage samples: each step at its beginning, or with `rollout.ahead` beside the update of the one before.

    One step ahead, the rollouts of step k + 1 are those of the weights before update k: sampled in another thread while
    the policy is updated where the engine is `concurrent`, before the update otherwise. The first step of a stage or
    phase, and the one after a roll back, is sampled at its beginning; nothing is sampled for a step that never comes.
    """

    def __init__(self, stage: SamplingStage, context: StageContext) -> None:
        self._stage, self._context = stage, context
        self._steps = range(stage.steps) if context.phase is None else context.phase.steps

    def step(self, index: int, learn: Callable[[StepRollouts], Metrics]) -> Metrics:
        """Learn from the rollouts of the step with 0-based number `index`, and sample those of the next if it is time.

        Args:
            index: in the stage.
            learn: makes the step's updates; returns what to log.
        """
        stage, context = self._stage, self._context
        has_sampled = index not in context.pending
        found = context.pending.pop(index) if not has_sampled else sample_step(stage, context, index)
        if context.records_solved:  # before the next step's problems are drawn
            context.record_solved(index, _solved(found, context))
        learned: list[Metrics] = []
        if context.config.rollout.ahead and index + 1 in self._steps:
            has_sampled = True
            context.pending[index + 1] = sample_step(
                stage, context, index + 1, meanwhile=lambda: learned.append(learn(found))
            )
        figures = learned[0] if learned else learn(found)
        return {**figures, **self._lag(found, index), **(self._sync() if has_sampled else {})}

    def _lag(self, found: StepRollouts, index: int) -> Metrics:
        """Return by how many steps the weights that sampled are behind those that learn, as a mean over rollouts."""
        versions = [one.version for group in found.groups for one in group.rollouts]
        sums = self._context.world.sums({"versions": float(sum(versions)), "num": float(len(versions))})
        return {"staleness": self._context.first_step + index - sums["versions"] / sums["num"]}

    def _sync(self) -> Metrics:
        """Return how the engine got the weights before this step's update; nothing where it shares them."""
        report = self._context.engine.report
        parts = self._context.world.gather(None if report is None else [getattr(report, name) for name in _SYNC])
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


def sample_step(
    stage: SamplingStage, context: StageContext, index: int, *, meanwhile: Callable[[], None] | None = None
) -> StepRollouts:
    """Sample and grade the groups of the step with 0-based number `index`.

    With `zero_variance: refill`, prompts whose completions all have one reward are replaced by others, round by round,
    until there are `prompts_per_step` groups that differ or `max_refills` rounds are over.

    Args:
        stage: with its numbers of prompts and samples.
        context: the stage's.
        index: in the stage.
        meanwhile: updates the policy of the step before, whose weights then sample; called while the first round is
            sampled if the engine allows that, and otherwise not at all.
    """
    context.world.doing("sampling in")
    rounds = stage.max_refills if isinstance(stage, RlStage) and stage.zero_variance == "refill" else 0
    count = stage.prompts_per_step
    with context.awake_engine(step=index if meanwhile is None else index - 1) as engine:
        first = _Beside(engine, meanwhile) if meanwhile is not None and engine.concurrent else engine
        rollouts = _sample(stage, context, first, index, range(count))
        for number in range(1, rounds + 1):
            missing = count - int(context.world.sums({"n": sum(rollouts.varied())})["n"])
            if missing <= 0:
                break
            start = number * count
            more = _sample(stage, context, engine, index, range(start, start + missing))
            rollouts = StepRollouts(
                groups=[*rollouts.groups, *more.groups],
                numbers=[*rollouts.numbers, *more.numbers],
                rewards=[*rollouts.rewards, *more.rewards],
                num_refills=number,
                drawn=[*rollouts.drawn, *more.drawn],
            )
    # What was drawn is described before its outcome counts for later draws.
    return replace(rollouts, draw_metrics=context.draw_metrics(rollouts.drawn, step=index))


class _Beside(Engine):
    """An engine that samples in another thread while something else is done in this one."""

    def __init__(self, engine: Engine, meanwhile: Callable[[], None]) -> None:
        self._engine, self._meanwhile = engine, meanwhile
        self.version = engine.version

    def generate(self, *arguments: Any, **options: Any) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            sampled = pool.submit(self._engine.generate, *arguments, **options)
            self._meanwhile()
            return sampled.result()


def pending_state(context: StageContext) -> dict[str, dict[str, Tensor]]:
    """Return the rollouts that were sampled ahead, as a checkpoint holds them; all processes must call it.

    They are JSON in UTF-8, rows of the rollouts table by group, of weights that are then gone.
    """
    if not context.pending:
        return {}
    (found,) = context.pending.values()
    parts = context.world.gather(
        [{name: row[name] for name in row.keys() - NO_SIGNAL.keys()} for row in _rows(found, None)]
    )
    rows = sorted((row for part in parts for row in part), key=lambda row: int(row["group"]))
    content = json.dumps(rows, sort_keys=True).encode()
    return {PENDING: {"json": torch.frombuffer(bytearray(content), dtype=torch.uint8)}}


def restore_pending(stage: StageConfig, context: StageContext, index: int, saved: Mapping[str, Tensor] | None) -> None:
    """Take up the rollouts of the step with 0-based number `index` that `pending_state` saved; None: it saved none."""
    if saved is None or not isinstance(stage, SamplingStage):
        return
    rows = json.loads(saved["json"].numpy().tobytes())
    by_group = {number: list(group) for number, group in groupby(rows, key=itemgetter("group"))}
    count = stage.prompts_per_step
    rounds = [list(numbers) for _, numbers in groupby(by_group, key=lambda number: number // count)]
    drawn = {
        number: one
        for part in rounds
        for number, one in zip(part, context.draw(range(part[0], part[-1] + 1), step=index), strict=True)
    }
    mine = [number for part in rounds for number in context.world.shard(part)]
    groups = [_group(drawn[number], by_group[number]) for number in mine]
    context.pending[index] = StepRollouts(
        groups=groups,
        numbers=mine,
        rewards=_rewards(groups, stage),
        num_refills=len(rounds) - 1,
        drawn=list(drawn.values()),
        draw_metrics=context.draw_metrics(list(drawn.values()), step=index),
    )


def _group(problem: Problem, rows: Sequence[Mapping[str, Any]]) -> RolloutGroup:
    """Return the group of rows of the rollouts table."""
    rollouts = tuple(
        Rollout(
            completion=Completion(
                token_ids=tuple(row["completion_ids"]),
                logprobs=tuple(row["logprobs"]),
                finish_reason=row["finish_reason"],
            ),
            text=row["text"],
            reward=Reward(
                value=row["reward"],
                status=row["status"],
                parts=json.loads(row["parts"]),
                extracted=row["extracted"],
                detail=row["detail"],
            ),
            version=row["version"],
        )
        for row in rows
    )
    return RolloutGroup(prompt=Prompt(problem=problem, token_ids=tuple(rows[0]["prompt_ids"])), rollouts=rollouts)


def _rewards(groups: Sequence[RolloutGroup], stage: SamplingStage) -> list[list[float]]:
    return [[reward_value(rollout.reward, stage) for rollout in group.rollouts] for group in groups]


def _solved(found: StepRollouts, context: StageContext) -> list[tuple[str, int, int]]:
    """Return problem id, right and all completions of every group of all processes, by the groups' numbers."""
    own = [
        [number, group.prompt.problem.id, sum(one.reward.is_right for one in group.rollouts), len(group.rollouts)]
        for number, group in zip(found.numbers, found.groups, strict=True)
    ]
    everybody = sorted(entry for part in context.world.gather(own) for entry in part)
    return [(name, solved, tried) for _, name, solved, tried in everybody]


def _sample(stage: SamplingStage, context: StageContext, engine: Engine, index: int, numbers: range) -> StepRollouts:
    problems = context.draw(numbers, step=index)
    mine = context.world.shard(numbers)
    groups = rollout_groups(
        engine,
        context.learner.tokenizer,
        encode_prompts(
            context.learner.tokenizer,
            [problems[number - numbers.start] for number in mine],
            template_arguments(context.config),
        ),
        context.sampling(num_samples=stage.samples_per_prompt, temperature=stage.temperature),
        seeds=[context.seed(stage.label, "rollout", index, number) for number in mine],
        grade=grade_all,
    )
    return StepRollouts(groups=groups, numbers=mine, rewards=_rewards(groups, stage), drawn=problems)


def reward_value(reward: Reward, stage: SamplingStage) -> float:
    """Return the reward training uses: the graded value, or the stage's `failure_reward`."""
    return stage.failure_reward if reward.value is None else reward.value


def write_rollouts(found: StepRollouts, context: StageContext, index: int, signals: TokenSignals | None = None) -> None:
    """Write the step's rollouts of all processes to the run directory; all processes must call it.

    Args:
        found: this process's rollouts.
        context: the stage's.
        index: 0-based number of the step in the stage.
        signals: what the step's updates did at their tokens; groups that are not in it were left out.
    """
    step, world = context.first_step + index + 1, context.world
    rows = sorted(_rows(found, signals), key=lambda row: row["group"])
    if world.size == 1:
        write_table(context.run.rollouts_path(step), rows, ROLLOUTS_SCHEMA)
        return

    # Each process writes its own rows, the first one joins them.
    write_table(context.run.rollouts_part_path(step, world.rank), rows, ROLLOUTS_SCHEMA)
    world.barrier()
    if world.is_main:
        _join_parts(context.run, step, world.size)


def _join_parts(run: RunDirectory, step: int, num_parts: int) -> None:
    """Write the rollouts table of a step from the processes' parts, by group; remove the parts."""
    paths = [run.rollouts_part_path(step, rank) for rank in range(num_parts)]
    joined = pa.concat_tables([read_table(path, ROLLOUTS_SCHEMA) for path in paths]).sort_by("group")
    write_table(run.rollouts_path(step), joined.combine_chunks(), ROLLOUTS_SCHEMA)
    for path in paths:
        remove(path)


def _rows(found: StepRollouts, signals: TokenSignals | None) -> list[dict[str, Any]]:
    recorded = {} if signals is None else signals.by_group()
    return [
        {
            "group": number,
            "problem_id": group.prompt.problem.id,
            "prompt_ids": list(group.prompt.token_ids),
            "completion_ids": list(rollout.completion.token_ids),
            "logprobs": list(rollout.completion.logprobs),
            "text": rollout.text,
            "reward": rollout.reward.value,
            "parts": json.dumps(dict(rollout.reward.parts)),
            "status": rollout.reward.status,
            "extracted": rollout.reward.extracted,
            "detail": rollout.reward.detail,
            "finish_reason": rollout.completion.finish_reason,
            "version": rollout.version,
            **(recorded[number][place] if number in recorded else NO_SIGNAL),
        }
        for number, group in zip(found.numbers, found.groups, strict=True)
        for place, rollout in enumerate(group.rollouts)
    ]


def rollout_metrics(found: StepRollouts, stage: SamplingStage, context: StageContext) -> Metrics:
    """Return the step's metrics over all processes: reward, lengths, failures, groups."""
    totals = context.world.sums(_sums(found))
    rollouts = totals["rollouts"]
    return {
        "reward": totals["reward"] / rollouts,
        "completion_length": totals["tokens"] / rollouts,  # tokens
        "truncated_share": totals["truncated"] / rollouts,
        "neg_logprob": totals["neg_logprob"] / totals["tokens"],  # nats per token: an estimate of the entropy
        **outcome_figures([one.reward for group in found.groups for one in group.rollouts], context.world),
        "num_groups": int(totals["groups"]),
        "num_zero_variance_groups": int(totals["zero_variance_groups"]) if stage.samples_per_prompt > 1 else None,
        "num_refills": found.num_refills,
        **found.draw_metrics,
        # The texts of a task with a vocabulary of its own are no prose.
        **(_response_metrics(found, context.world) if context.family.is_prose else {}),
    }


def _response_metrics(found: StepRollouts, world: World) -> dict[str, float | None]:
    """Return what the completions look like; of several processes the mean, weighed by their completions."""
    num, own = sum(len(group.rollouts) for group in found.groups), response_metrics(found.groups)
    sums = world.sums({name: num * (value or 0.0) for name, value in own.items()})
    counts = world.sums({name: 0.0 if value is None else num for name, value in own.items()})
    return {name: sums[name] / counts[name] if counts[name] else None for name in own}


def _sums(found: StepRollouts) -> Mapping[str, float]:
    rollouts: list[Rollout] = [rollout for group in found.groups for rollout in group.rollouts]
    return {
        "groups": len(found.groups),
        "rollouts": len(rollouts),
        "reward": sum(map(sum, found.rewards)),
        "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        "zero_variance_groups": len(found.groups) - sum(found.varied()),
        "neg_logprob": -sum(sum(rollout.completion.logprobs) for rollout in rollouts),
    }
