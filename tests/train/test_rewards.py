"""What training learns from under each control, by literal values; nothing else changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swerve.config.stages import DistillStage, RlStage
from swerve.rewards import grade
from swerve.seeds import derive_seed
from swerve.train.rewards import training_rewards
from swerve.types import Completion, Problem, Prompt, Rollout, RolloutGroup

OWN = Problem(id="own", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
OTHER = Problem(id="other", family="addition", question="1 2 + 3 5 =", answer="0 4 7")
TEXTS = ("answer 0 4 7", "answer 0 4 6", "no idea", "answer 0 4 7", "answer 0 4 6", "answer 9 9 9")


def _group(texts: tuple[str, ...] = TEXTS) -> RolloutGroup:
    completion = Completion(token_ids=(1,), logprobs=(-0.5,), finish_reason="stop")
    rollouts = tuple(Rollout(completion=completion, text=text, reward=grade(OWN, text), version=0) for text in texts)
    return RolloutGroup(prompt=Prompt(problem=OWN, token_ids=(1,)), rollouts=rollouts)


def _rewards(control: str, *, seed: int = 0, index: int = 4, number: int = 2, **given: Any) -> list[float]:
    def draw(slots: range, *, step: int) -> list[Problem]:
        assert (slots, step) == (range(number, number + 1), index + 1)
        return [OTHER]

    stage = RlStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}, "reward": control, **given})
    context: Any = SimpleNamespace(seed=lambda *path: derive_seed(seed, *path), draw=draw)
    return training_rewards(_group(), stage, context, index, number)


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ("real", [0, 1, 0, 0, 1, 0]),
        ("same", [0, 1, 0, 0, 1, 0]),
        ("inverted", [1, 0, 1, 1, 0, 1]),
        ("format_only", [1, 1, 0, 1, 1, 1]),
        ("majority", [1, 0, 0, 1, 0, 0]),  # two answers are as frequent: the first
        ("shuffled_gold", [1, 0, 0, 1, 0, 0]),  # 0 4 7 is the other problem's
        ("random", [1, 0, 0, 1, 1, 1]),
    ],
)
def test_each_control_by_literal_values(control, expected):
    assert _rewards(control) == expected


def test_a_failure_has_the_reward_that_the_recipe_gives_it_and_no_vote():
    assert _rewards("real", failure_reward=-0.5) == [0, 1, -0.5, 0, 1, 0]
    assert _rewards("inverted", failure_reward=-0.5) == [1, 0, 1.5, 1, 0, 1]
    assert _rewards("shuffled_gold", failure_reward=-0.5) == [1, 0, -0.5, 1, 0, 0]
    stage = RlStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}, "reward": "majority"})
    nobody: Any = None
    assert training_rewards(_group(("no idea",) * 3), stage, nobody, 0, 0) == [0, 0, 0]


def test_coins_are_fair_and_rest_on_seed_step_and_group_alone():
    assert _rewards("random") == _rewards("random")
    tosses = [
        [coin for number in range(50) for coin in _rewards("random", seed=seed, index=index, number=number)]
        for seed, index in ((0, 4), (1, 4), (0, 5))
    ]
    assert [sum(row) for row in tosses] == [pytest.approx(150, abs=35)] * 3  # four standard deviations of 300 coins
    for first, second in ((0, 1), (0, 2), (1, 2)):
        agree = sum(a == b for a, b in zip(tosses[first], tosses[second], strict=True))
        assert agree == pytest.approx(150, abs=35)


def test_distillation_has_the_graders_reward():
    stage = DistillStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, "teacher": "rl"})
    nobody: Any = None
    assert training_rewards(_group(), stage, nobody, 0, 0) == [0, 1, 0, 0, 1, 0]
