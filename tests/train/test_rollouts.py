"""Which problems a step samples, round by round, and what it counts; a scripted sampler in place of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from swerve.config import RlStage
from swerve.recipes import load_config
from swerve.train import rollouts
from swerve.train.curriculum import stage_draws
from swerve.train.rollouts import rollout_figures, sample_step
from swerve.train.stages.context import StageContext
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


def _rollout(value: float | None) -> Rollout:
    completion = Completion(token_ids=(1, 2), logprobs=(-0.5, -1.0), finish_reason="stop")
    reward = Reward(value=value, status="graded" if value is not None else "error", parts={})
    return Rollout(completion=completion, text="", reward=reward, version=0)


def _context(stage: RlStage) -> StageContext:
    unused: Any = None
    learner: Any = SimpleNamespace(tokenizer=None)
    family: Any = SimpleNamespace(words=("a",))
    return StageContext(
        config=load_config("demo_addition"),
        run=unused,
        world=World(),
        family=family,
        draws=stage_draws(stage, family, PROBLEMS, seed=0),
        learner=learner,
        engine=unused,
        stop_ids=(),
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
        monkeypatch.setattr(rollouts, "rollout_groups", sampler)
        monkeypatch.setattr(
            rollouts, "encode_prompts", lambda _t, problems: [Prompt(problem=one, token_ids=(1,)) for one in problems]
        )
        context = _context(stage)
        return sample_step(stage, context, index), (stage, context)

    return run


SAME, VARIED = (1.0, 1.0), (0.0, 1.0)


def test_only_what_is_missing_is_sampled_again_until_there_is_enough(sample):
    rounds = [[SAME, VARIED, SAME, SAME], [SAME, VARIED, SAME], [VARIED, VARIED]]
    sampler = _Sampler(lambda number: rounds[number])
    found, given = sample(sampler, zero_variance="refill", max_refills=5)
    assert [len(asked) for asked in sampler.asked] == [4, 3, 2]
    assert (sum(found.varied()), found.num_refills) == (4, 2)
    assert len(set(found.numbers)) == len(set(sampler.seeds)) == 9
    figures = rollout_figures(found, *given)
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
    figures = rollout_figures(found, *given)
    assert (figures["num_failures"], figures["reward"]) == (4, 1.0 / 8)
    assert figures["neg_logprob"] == 0.75
