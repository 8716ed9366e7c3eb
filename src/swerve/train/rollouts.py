"""The rollouts of one step: dealt to the processes, kept in a checkpoint, written down and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from swerve.artifacts.parts import TABLE
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response, response_from_row, response_row
from swerve.artifacts.tables import write_table
from swerve.config.stage_base import SamplingStage
from swerve.config.stages import DistillStage, RlStage, StageConfig
from swerve.rollout.groups import response_metrics
from swerve.train.balance import deal
from swerve.train.columns import Member, TokenSignals
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.health.ungraded import outcome_figures
from swerve.train.rewards import training_rewards
from swerve.types import Problem, Prompt, Rollout, RolloutGroup
from swerve.world import World

PENDING = "rollouts"
"""The trainer's state that holds rollouts which were sampled ahead."""
_ORDER = ("group", "sample")
"""Of the rows of the rollouts table."""
_MOVED = pa.schema([*ROLLOUTS_SCHEMA, pa.field("entropy", pa.float64()), pa.field("training_reward", pa.float64())])
"""Of rollouts on their way to another process, or in a checkpoint."""


def deal_rollouts(
    sampled: StepRollouts,
    context: StageContext,
    *,
    parts: Callable[[set[int]], list[set[int]]] = lambda numbers: [numbers],
) -> StepRollouts:
    """Return the completions that this process learns from, so that all have equal work; all processes must call it.

    Args:
        sampled: the whole groups that this process sampled; completions move from there to other processes.
        context: the stage's.
        parts: divides the numbers of the groups into those whose work is dealt out by itself.
    """
    world = context.world
    if world.size == 1:
        return sampled
    # What stays here and what comes from other processes, group by group.
    own = sorted(_moved(sampled, _targets(sampled, context, parts), world), key=itemgetter(0))
    groups, numbers, rewards, places = [], [], [], []
    for number, part in groupby(own, key=lambda moved: moved[0].group):
        members, prompts, rollouts, values = zip(*part, strict=True)
        groups.append(RolloutGroup(prompt=prompts[0], rollouts=rollouts))
        numbers.append(number)
        rewards.append(values)
        places.append([member.place for member in members])
    return replace(sampled, groups=groups, numbers=numbers, rewards=rewards, places=places)


def _moved(
    sampled: StepRollouts, targets: Mapping[Member, int], world: World
) -> Iterator[tuple[Member, Prompt, Rollout, float]]:
    """Send completions to the processes that learn from them; yield those of this one, with their rewards."""
    sent: list[list[dict[str, Any]]] = [[] for _ in range(world.size)]
    for member, prompt, rollout, reward in _completions(sampled):
        if targets[member] == world.rank:
            yield member, prompt, rollout, reward
        else:
            sent[targets[member]].append(_row(member, prompt, rollout, reward))
    problems = {problem.id: problem for problem in sampled.drawn}
    for row in _exchanged(sent, world):
        prompt = Prompt(problem=problems[row["problem_id"]], token_ids=tuple(row["prompt_ids"]))
        yield Member(row["group"], row["sample"]), prompt, _rollout(row, prompt.problem), row["training_reward"]


def _completions(sampled: StepRollouts) -> Iterator[tuple[Member, Prompt, Rollout, float]]:
    """Yield each completion with its place, its prompt and the reward that training uses, one group after the other."""
    rollouts = ((group.prompt, rollout) for group in sampled.groups for rollout in group.rollouts)
    for member, (prompt, rollout), reward in zip(sampled.members(), rollouts, chain(*sampled.rewards), strict=True):
        yield member, prompt, rollout, reward


def _targets(
    sampled: StepRollouts, context: StageContext, parts: Callable[[set[int]], list[set[int]]]
) -> dict[Member, int]:
    """Return the process that learns from each completion of all processes."""
    lengths = [[len(prompt), len(completion)] for prompt, completion in sampled.sequences()]
    own = [[*member, *two] for member, two in zip(sampled.members(), lengths, strict=True)]
    # In the order of the processes that have them, so that few have to move.
    everybody = [row for part in context.world.gather(own) for row in part]
    estimate, targets = context.learner.work_estimate(), {}
    for numbers in parts({group for group, *_ in everybody}):
        rows = [row for row in everybody if row[0] in numbers]
        works = [estimate.row(group, prompt, completion) for group, _, prompt, completion in rows]
        for (group, place, *_), rank in zip(rows, deal(works, context.world.size), strict=True):
            targets[Member(group, place)] = rank
    return targets


def _exchanged(rows: Sequence[Sequence[Mapping[str, Any]]], world: World) -> list[dict[str, Any]]:
    """Send each process its rows; return those that all processes, which must call it, have for this one."""
    sent = [TABLE.write(pa.Table.from_pylist(list(part), schema=_MOVED)) if part else b"" for part in rows]
    return [row for part in world.exchange(sent) if part for row in TABLE.read(part).to_pylist()]


def pending_state(context: StageContext) -> dict[str, dict[str, Tensor]]:
    """Return the rollouts that were sampled ahead, as a checkpoint holds them; all processes must call it.

    They are no parts: the weights that sampled them are gone, so that they must come and go with those of the
    checkpoint. As the bytes of a table of rollouts they are a tensor of its state. The first process, which writes the
    file, gets those of all; the others have its name, for all go through a checkpoint's files together.
    """
    if not context.pending:
        return {}
    (sampled,) = context.pending.values()
    rows = _exchanged([_rows(sampled, None), *[[]] * (context.world.size - 1)], context.world)
    table = pa.Table.from_pylist(sorted(rows, key=itemgetter(*_ORDER)), schema=_MOVED)
    return {PENDING: {"table": torch.frombuffer(bytearray(TABLE.write(table)), dtype=torch.uint8)}}


def restore_pending(stage: StageConfig, context: StageContext, index: int, saved: Mapping[str, Tensor] | None) -> None:
    """Take up the rollouts of the step with 0-based number `index` that `pending_state` saved; None: it saved none."""
    if saved is None or not isinstance(stage, RlStage | DistillStage):
        return
    rows = TABLE.read(saved["table"].numpy().tobytes()).to_pylist()
    context.pending[index] = step_of_rows(rows, stage, context, index)


def step_of_rows(
    rows: Sequence[Mapping[str, Any]], stage: RlStage | DistillStage, context: StageContext, index: int
) -> StepRollouts:
    """Return this process's groups of the step with 0-based number `index` from the rows of all processes.

    The problems are drawn again, round by round, and each process takes the groups that it had sampled. What training
    makes of the verdicts is made again where the rows do not say it.

    Args:
        rows: of the rollouts table, by group and sample; of a checkpoint also with `training_reward`.
        stage: the step's.
        context: the stage's.
        index: of the step.
    """
    by_group = {number: list(group) for number, group in groupby(rows, key=itemgetter("group"))}
    rounds = [list(numbers) for _, numbers in groupby(by_group, key=lambda number: number // stage.prompts_per_step)]
    drawn: dict[int, Problem] = {}
    mine: list[int] = []
    for numbers in rounds:
        problems = context.draw(range(numbers[0], numbers[-1] + 1), step=index)
        drawn.update(zip(numbers, problems, strict=True))
        mine += context.world.shard(numbers)
    groups = [_group(drawn[number], by_group[number]) for number in mine]
    rewards: list[Sequence[float]] = []
    for number, group in zip(mine, groups, strict=True):
        known: list[Any] = [row.get("training_reward") for row in by_group[number]]
        rewards.append(training_rewards(group, stage, context, index, number) if None in known else known)
    return StepRollouts(
        groups=groups,
        numbers=mine,
        rewards=rewards,
        num_refills=len(rounds) - 1,
        drawn=list(drawn.values()),
        draw_metrics=context.draw_metrics(list(drawn.values()), step=index),
    )


def _group(problem: Problem, rows: Sequence[Mapping[str, Any]]) -> RolloutGroup:
    """Return the group of rows of the rollouts table."""
    prompt = Prompt(problem=problem, token_ids=tuple(rows[0]["prompt_ids"]))
    return RolloutGroup(prompt=prompt, rollouts=tuple(_rollout(row, problem) for row in rows))


def _rollout(row: Mapping[str, Any], problem: Problem) -> Rollout:
    rollout = response_from_row(row, problem=problem).rollout
    return replace(rollout, completion=replace(rollout.completion, entropy=row.get("entropy")))


def write_rollouts(
    sampled: Sequence[StepRollouts], context: StageContext, index: int, signals: TokenSignals | None = None
) -> None:
    """Write the step's rollouts of all processes to the run directory; all processes must call it.

    Args:
        sampled: this process's rollouts, in several parts perhaps.
        context: the stage's.
        index: 0-based number of the step in the stage.
        signals: what the step's updates did at their tokens; completions that are not in it were left out.
    """
    step = context.first_step + index + 1
    rows = [{**row, "step": step} for part in sampled for row in _rows(part, signals)]
    write_together(context.run.rollouts_path(step), rows, ROLLOUTS_SCHEMA, context.world, order=_ORDER)


def write_together(
    path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, world: World, *, order: Sequence[str]
) -> None:
    """Write one table of the rows of all processes, which must all call it: the first one gets and writes them.

    Args:
        path: the file; there once the first process has returned.
        rows: this process's.
        schema: of the table.
        world: the processes.
        order: numbers by which the rows are sorted; those that the schema does not have are left out of the table.
    """
    wide = pa.schema([*schema, *(pa.field(name, pa.int32()) for name in order if name not in schema.names)])
    parts = [pa.Table.from_pylist(list(rows), schema=wide)]
    if world.size > 1:
        sent = world.exchange([TABLE.write(parts[0]), *[b""] * (world.size - 1)])
        parts = [TABLE.read(part) for part in sent if part]
    if world.is_main:
        joined = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
        write_table(path, joined.combine_chunks(), schema)


def _rows(sampled: StepRollouts, signals: TokenSignals | None) -> list[dict[str, Any]]:
    recorded = {} if signals is None else signals.by_member()
    return [{**_row(*completion), **recorded.get(completion[0], {})} for completion in _completions(sampled)]


def _row(member: Member, prompt: Prompt, rollout: Rollout, reward: float) -> dict[str, Any]:
    """Return a row of the rollouts table, with what it does not have: entropy, and the reward that training uses."""
    row = response_row(Response.of(prompt, rollout, group=member.group, sample=member.place))
    row |= {"entropy": rollout.completion.entropy, "training_reward": reward}
    return {name: row[name] for name in _MOVED.names}


def rollout_metrics(sampled: StepRollouts, stage: SamplingStage, context: StageContext) -> Metrics:
    """Return the step's metrics over all processes: reward, lengths, failures, groups."""
    totals = context.world.sums(_sums(sampled))
    rollouts = totals["rollouts"]
    return {
        "reward": totals["reward"] / rollouts,
        "accuracy": totals["right"] / rollouts,
        "completion_length": totals["tokens"] / rollouts,  # tokens
        "truncated_share": totals["truncated"] / rollouts,
        "neg_logprob": totals["neg_logprob"] / totals["tokens"],  # nats per token: an estimate of the entropy
        **outcome_figures([rollout.reward for group in sampled.groups for rollout in group.rollouts], context.world),
        "num_groups": int(totals["groups"]),
        "num_zero_variance_groups": int(totals["zero_variance_groups"]) if stage.samples_per_prompt > 1 else None,
        "num_refills": sampled.num_refills,
        **sampled.draw_metrics,
        # The texts of a task with a vocabulary of its own are no prose.
        **(_response_metrics(sampled, context.world) if context.family.is_prose else {}),
    }


def _response_metrics(sampled: StepRollouts, world: World) -> dict[str, float | None]:
    """Return what the completions look like; of several processes the mean, weighed by their completions."""
    num, own = sum(len(group.rollouts) for group in sampled.groups), response_metrics(sampled.groups)
    sums = world.sums({name: num * (value or 0.0) for name, value in own.items()})
    counts = world.sums({name: 0.0 if value is None else num for name, value in own.items()})
    return {name: sums[name] / counts[name] if counts[name] else None for name in own}


def _sums(sampled: StepRollouts) -> Mapping[str, float]:
    rollouts: list[Rollout] = [rollout for group in sampled.groups for rollout in group.rollouts]
    return {
        "groups": len(sampled.groups),
        "rollouts": len(rollouts),
        "reward": sum(map(sum, sampled.rewards)),
        "right": sum(rollout.reward.is_right for rollout in rollouts),
        "tokens": sum(len(rollout.completion.token_ids) for rollout in rollouts),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        "zero_variance_groups": len(sampled.groups) - sum(sampled.varied()),
        "neg_logprob": -sum(sum(rollout.completion.logprobs) for rollout in rollouts),
    }
