"""The rollouts of one step: sampled, refilled where groups teach nothing, graded, written down and counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from swerve.artifacts.files import remove
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import ROLLOUTS_SCHEMA, read_table, write_table
from swerve.config import DistillStage, RlStage
from swerve.prompts import encode_prompts, template_arguments
from swerve.rewards import grade_all
from swerve.rollout import rollout_groups
from swerve.rollout.engine import Engine
from swerve.rollout.groups import response_metrics
from swerve.train.columns import NO_SIGNAL, TokenSignals
from swerve.train.health.ungraded import outcome_figures
from swerve.train.stages.context import Metrics, StageContext
from swerve.types import Problem, Reward, Rollout, RolloutGroup
from swerve.world import World

SamplingStage = RlStage | DistillStage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRollouts:
    """This process's groups of one step."""

    groups: Sequence[RolloutGroup]
    numbers: Sequence[int]
    """Each group's number within the step, over all processes."""
    rewards: Sequence[Sequence[float]]
    """The reward training uses of each completion of each group."""
    num_refills: int = 0
    """Rounds of sampling after the first."""
    drawn: Sequence[Problem] = ()
    """The problems of all processes' groups."""
    draw_metrics: Metrics = field(default_factory=dict)
    """What to log of the draw."""

    def varied(self) -> list[bool]:
        """Return whether each group's rewards differ."""
        return [len(set(values)) > 1 for values in self.rewards]


def sample_step(stage: SamplingStage, context: StageContext, index: int) -> StepRollouts:
    """Sample and grade the groups of the step with 0-based number `index`.

    With `zero_variance: refill`, prompts whose completions all have one reward are replaced by others, round by round,
    until there are `prompts_per_step` groups that differ or `max_refills` rounds are over.
    """
    rounds = stage.max_refills if isinstance(stage, RlStage) and stage.zero_variance == "refill" else 0
    count = stage.prompts_per_step
    with context.awake_engine(step=index) as engine:
        rollouts = _sample(stage, context, engine, index, range(count))
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
    rollouts = replace(rollouts, draw_metrics=context.draw_metrics(rollouts.drawn, step=index))
    if context.records_solved:
        context.record_solved(index, _solved(rollouts, context))
    return rollouts


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
    rewards = [[reward_value(rollout.reward, stage) for rollout in group.rollouts] for group in groups]
    return StepRollouts(groups=groups, numbers=mine, rewards=rewards, drawn=problems)


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
