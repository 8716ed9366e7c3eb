"""Which problems a step samples, round by round, and what it counts; a scripted sampler in place of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from swerve.artifacts.responses import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.stages import RlStage
from swerve.recipes import load_config
from swerve.rollout.engine import Engine
from swerve.rollout.sync import PolicyEngine
from swerve.train import context as train_context
from swerve.train.columns import Member, TokenSignals
from swerve.train.context import StageContext
from swerve.train.curriculum import stage_draws
from swerve.train.phases import phases_of
from swerve.train.rollouts import StepRollouts, rollout_metrics, write_rollouts
from swerve.train.sampling import StepSampler
from swerve.types import Completion, Problem, Prompt, Reward, Rollout, RolloutGroup
from swerve.world import World

PROBLEMS = [Problem(id=str(number), family="addition", question="", answer="", solution="") for number in range(100)]


class _Sampler:
    """Gives every group the rewards that `rewards(round)` says, and remembers what it was asked for."""

    def __init__(self, rewards: Callable[[int], Sequence[Sequence[float | None]]]) -> None:
        self._rewards = rewards
        self.asked: list[list[str]] = []
        self.seeds: list[int] = []

    def __call__(self, _engine: Any, _tokenizer: Any, prompts: Sequence[Prompt], _params: Any, **more: Any) -> Any:
        rows = self._rewards(len(self.asked))
        self.asked.append([prompt.problem.id for prompt in prompts])
        self.seeds += more["seeds"]
        return [
            RolloutGroup(prompt=prompt, rollouts=tuple(_rollout(value) for value in row))
            for prompt, row in zip(prompts, rows, strict=True)
        ]


class _NoEngine(Engine):
    def generate(self, prompts: Sequence[Sequence[int]], params: Any, **_more: Any) -> Any:
        raise AssertionError("the scripted sampler takes its place")


def _rollout(value: float | None) -> Rollout:
    completion = Completion(token_ids=(1, 2), logprobs=(-0.5, -1.0), finish_reason="stop")
    reward = Reward(value=value, status="graded" if value is not None else "error", parts={})
    return Rollout(completion=completion, text="", reward=reward, version=0)


def _context(stage: RlStage) -> StageContext:
    unused: Any = None
    learner: Any = SimpleNamespace(
        tokenizer=None,
        drop_gradients=lambda: None,
        weights=SimpleNamespace(stream_weights=lambda: iter(()), gathered=nullcontext),
    )
    family: Any = SimpleNamespace(is_prose=False)
    return StageContext(
        config=load_config("demo_addition"),
        run=unused,
        world=World(),
        family=family,
        draws=stage_draws(phases_of(stage), family, PROBLEMS, seed=0)[0],
        learner=learner,
        engine=PolicyEngine(_NoEngine),
        stop_ids=(),
        phase=phases_of(stage)[0],
        first_step=0,
        resumed=False,
        progress=unused,
        records=[],
        stage_start=unused,
        raise_if_interrupted=unused,
    )


@pytest.fixture
def sample(monkeypatch):
    def run(sampler: _Sampler, *, index: int = 0, **keys: Any) -> Any:
        stage = RlStage.model_validate(
            {"steps": 9, "optimizer": {"lr": 1e-3}, "prompts_per_step": 4, "samples_per_prompt": 2, **keys}
        )
        monkeypatch.setattr(train_context, "rollout_groups", sampler)
        monkeypatch.setattr(
            train_context,
            "encode_prompts",
            lambda _t, problems, _a: [Prompt(problem=one, token_ids=(1,)) for one in problems],
        )
        context = _context(stage)
        return StepSampler(stage, context).rollouts(index), (stage, context)

    return run


SAME, VARIED = (1.0, 1.0), (0.0, 1.0)


def test_only_what_is_missing_is_sampled_again_until_there_is_enough(sample):
    rounds = [[SAME, VARIED, SAME, SAME], [SAME, VARIED, SAME], [VARIED, VARIED]]
    sampler = _Sampler(lambda number: rounds[number])
    found, given = sample(sampler, zero_variance="refill", max_refills=5)
    assert [len(asked) for asked in sampler.asked] == [4, 3, 2]
    assert (sum(found.varied()), found.num_refills) == (4, 2)
    assert len(set(found.numbers)) == len(set(sampler.seeds)) == 9
    figures = rollout_metrics(found, *given)
    assert (figures["num_groups"], figures["num_zero_variance_groups"], figures["num_refills"]) == (9, 5, 2)


def test_refilling_stops_at_its_bound_with_what_there_is(sample):
    found, _ = sample(_Sampler(lambda _number: [SAME] * 4), zero_variance="refill", max_refills=2)
    assert (sum(found.varied()), len(found.groups), found.num_refills) == (0, 12, 2)


@pytest.mark.parametrize("zero_variance", ["keep", "drop"])
def test_without_refilling_there_is_one_round(sample, zero_variance):
    sampler = _Sampler(lambda _number: [SAME] * 4)
    found, _ = sample(sampler, zero_variance=zero_variance)
    assert (len(sampler.asked), found.num_refills) == (1, 0)


def test_no_problem_comes_twice_before_all_have_come(sample):
    """Refills of one step are not the first problems of the next: 6 steps of 16 fit into 100 problems."""
    sampler = _Sampler(lambda _number: [SAME] * 4)
    for index in range(6):
        sample(sampler, index=index, zero_variance="refill", max_refills=3)
    asked = [one for group in sampler.asked for one in group]
    assert len(asked) == len(set(asked)) == 96
    assert len(set(sampler.seeds)) == 96


def test_a_failure_counts_as_the_reward_the_recipe_gives_it(sample):
    rows = [(None, 1.0), (None, None), (0.0, None), (1.0, 1.0)]
    found, given = sample(_Sampler(lambda _number: rows), failure_reward=-0.5)
    assert [list(values) for values in found.rewards] == [[-0.5, 1.0], [-0.5, -0.5], [0.0, -0.5], [1.0, 1.0]]
    assert found.varied() == [True, False, True, False]
    figures = rollout_metrics(found, *given)
    assert (figures["num_failures"], figures["reward"]) == (4, 1.0 / 8)
    assert figures["neg_logprob"] == 0.75


def test_the_table_of_several_processes_is_the_one_of_a_single_process(tmp_path, monkeypatch):
    """Byte for byte, and it is the only file."""
    groups = [_group(number) for number in range(5)]

    def written(name: str, size: int) -> Path:
        run, given = RunDirectory(tmp_path / name), list[bytes]()

        def exchange(_world: World, parts: list[bytes]) -> list[bytes]:
            given.insert(0, parts[0])
            return given

        monkeypatch.setattr(World, "exchange", exchange)
        for rank in reversed(range(size)):  # the first process comes last: all have given it their parts
            world = World(rank=rank, size=size)
            mine = world.shard(range(len(groups)))
            share = StepRollouts(groups=[groups[one] for one in mine], numbers=mine, rewards=[[1.0, 0.0]] * len(mine))
            signals = TokenSignals(
                members=[Member(one, place) for one in mine for place in range(2)],
                mask=torch.ones(2 * len(mine), 2, dtype=torch.bool),
                columns={
                    "advantages": torch.tensor([[one, 0.5] for one in mine for _ in range(2)]).view(-1, 2),
                    "kl": None,
                    "clipped": None,
                },
            )
            context: Any = SimpleNamespace(world=world, run=run, first_step=7)
            write_rollouts([share], context, 3, signals)
        assert [path.name for path in (run.path / "rollouts").iterdir()] == ["step_000011.parquet"]
        return run.rollouts_path(11)

    alone = written("alone", 1)
    rows = read_table(alone, ROLLOUTS_SCHEMA).to_pylist()
    assert [row["group"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [row["text"] for row in rows[2:4]] == ["1 first", "1 second"]
    assert rows[2]["advantages"] == [1.0, 0.5]
    for size in (2, 3, 7):  # 7: some have no group
        assert written(f"of {size}", size).read_bytes() == alone.read_bytes()


def _group(number: int) -> RolloutGroup:
    prompt = Prompt(problem=PROBLEMS[number], token_ids=(1, 2 + number))
    rollouts = (replace(_rollout(1.0), text=f"{number} first"), replace(_rollout(None), text=f"{number} second"))
    return RolloutGroup(prompt=prompt, rollouts=rollouts)
