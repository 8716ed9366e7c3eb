"""Advantages of a step by estimator and place of the KL, in numbers: four completions of 2, 3, 4 and 1 tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from swerve.config.stages import RlStage
from swerve.train.columns import Member, TokenTable
from swerve.train.preparation import StepAdvantages, step_advantages
from swerve.world import World
from tests.cases import each

TABLE = TokenTable.of([((1,), (1,) * length) for length in (2, 3, 4, 1)])
REWARDS = [1.0, 0.0, 0.0, 0.0]
PENALTY = 0.125 * TABLE.mask  # each completion loses an eighth of its length
LENGTHS = [2, 3, 4, 1]


def _step(
    *, penalty: Tensor | None = None, values: Tensor | None = None, rewards: Any = REWARDS, **keys: Any
) -> StepAdvantages:
    stage = RlStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, "samples_per_prompt": 4, **keys})
    penalties = {} if penalty is None else {stage.kl.order: penalty}
    members = [Member(0, place) for place in range(4)]
    return step_advantages(stage, rewards, members, TABLE, World(), values=values, **penalties)


def _rows(step: StepAdvantages) -> list[list[float]]:
    return [row[:length].tolist() for row, length in zip(step.advantages, LENGTHS, strict=True)]


@each(
    ("keys", "winner", "loser"),
    [
        ({"advantages": {"kind": "grpo", "eps": 1e-6}}, 1.4999970, -0.4999990),
        ({"preset": "trl"}, 1.4997001, -0.4999000),
        ({"preset": "verl"}, 1.4999970, -0.4999990),
        ({"preset": "rl2"}, 0.75, -0.25),
        ({"preset": "openrlhf"}, 1.5, -0.5),
        ({"advantages": {"kind": "grpo", "eps": 1.1920929e-7}}, 1.4999996, -0.4999999),
        ({"advantages": {"kind": "grpo", "eps": 1e-8, "std": "population"}}, 1.7320509, -0.5773503),
        ({"advantages": {"kind": "grpo_loo"}}, 1.0, -0.5773493),
        ({"advantages": {"kind": "rloo"}}, 1.0, -0.3333333),
        ({"advantages": {"kind": "dr_grpo"}}, 0.75, -0.25),
        ({"advantages": {"kind": "reward"}}, 1.0, 0.0),
        ({"advantages": {"kind": "reinforce_pp"}}, 1.8973665, -0.4743416),
        ({"advantages": {"kind": "reinforce_pp_baseline"}}, 1.8973665, -0.4743416),
        ({"advantages": {"kind": "reinforce_pp", "std": "population"}}, 2.0, -0.5),
        ({"advantages": {"kind": "reinforce_pp_baseline", "std": "population"}}, 2.0, -0.5),
    ],
)
def test_every_token_has_the_golden_value_of_its_completion(keys: dict[str, Any], winner: float, loser: float) -> None:
    step = _step(**keys)
    for row, expected in zip(_rows(step), [winner, loser, loser, loser], strict=True):
        assert row == pytest.approx([expected] * len(row), abs=1e-6)
    assert float(step.advantages[~TABLE.mask].abs().max()) == 0


def test_kl_before_the_baseline_is_part_of_the_score() -> None:
    """Scores .75, -.375, -.5, -.125 with mean -.0625."""
    kl = {"kind": "reward", "order": "before"}
    for row, expected in zip(_rows(_step(penalty=PENALTY, kl=kl)), [0.8125, -0.3125, -0.4375, -0.0625], strict=True):
        assert row == pytest.approx([expected] * len(row), abs=1e-7)


def _whitened(values: list[list[float]], *, correction: int = 1) -> list[list[float]]:
    flat = torch.tensor([value for row in values for value in row], dtype=torch.float64)
    mean, deviation = float(flat.mean()), float(flat.std(correction=correction))
    return [[(value - mean) / deviation for value in row] for row in values]


AFTER = [
    [0.75 - 0.25, 0.75 - 0.125],
    [-0.25 - 0.375, -0.25 - 0.25, -0.25 - 0.125],
    [-0.25 - 0.5, -0.25 - 0.375, -0.25 - 0.25, -0.25 - 0.125],
    [-0.25 - 0.125],
]


@pytest.mark.parametrize(
    ("advantages", "expected"),
    [
        ("dr_grpo", AFTER),
        ("rloo", [[value + (0.25 if n == 0 else -1 / 12) for value in row] for n, row in enumerate(AFTER)]),
        ("reward", [[value + 0.25 for value in row] for row in AFTER]),
        ("reinforce_pp_baseline", _whitened(AFTER)),
        ("reinforce_pp", _whitened(AFTER)),
    ],
)
def test_kl_after_the_baseline_is_each_tokens_sum_to_go(advantages: str, expected: list[list[float]]) -> None:
    kl = {"kind": "reward", "order": "after"}
    for found, row in zip(_rows(_step(penalty=PENALTY, kl=kl, advantages={"kind": advantages})), expected, strict=True):
        assert found == pytest.approx(row, abs=1e-6)


@pytest.mark.parametrize("order", ["before", "after"])
def test_reinforce_pp_discounts_rewards_and_penalties_alike(order: str) -> None:
    advantages = {"kind": "reinforce_pp", "gamma": 0.5, "std": "population"}
    step = _step(penalty=PENALTY, kl={"kind": "reward", "order": order}, advantages=advantages)
    # From the end: r - 1/8, then -1/8 + half of what follows.
    to_go = [[0.3125, 0.875], [-0.21875, -0.1875, -0.125], [-0.234375, -0.21875, -0.1875, -0.125], [-0.125]]
    for found, row in zip(_rows(step), _whitened(to_go, correction=0), strict=True):
        assert found == pytest.approx(row, abs=1e-6)


def test_gae_has_the_penalty_in_its_token_rewards() -> None:
    values = 0.5 * TABLE.mask
    advantages = {"kind": "gae", "gamma": 0.5, "lam": 0.5, "whiten": False}
    step = _step(penalty=PENALTY, values=values, kl={"kind": "reward"}, advantages=advantages)
    # delta = r - 1/8 - 1/2 at the last token and -1/8 + 1/4 - 1/2 before; each counts a quarter one token earlier.
    expected = [
        [-0.375 + 0.25 * 0.375, 0.375],
        [-0.375 - 0.25 * (0.375 + 0.25 * 0.625), -0.375 - 0.25 * 0.625, -0.625],
    ]
    assert _rows(step)[0] == pytest.approx(expected[0], abs=1e-7)
    assert _rows(step)[1] == pytest.approx(expected[1], abs=1e-7)
    assert step.returns is not None
    assert step.returns[0, :2].tolist() == pytest.approx([value + 0.5 for value in expected[0]], abs=1e-7)


def test_gae_is_whitened_but_its_returns_are_not() -> None:
    plain, whitened = (
        _step(values=0.5 * TABLE.mask, advantages={"kind": "gae", "whiten": flag}) for flag in (False, True)
    )
    for found, row in zip(_rows(whitened), _whitened(_rows(plain)), strict=True):
        assert found == pytest.approx(row, abs=1e-6)
    assert torch.equal(plain.returns, whitened.returns)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo", "grpo_loo", "reward"])
def test_a_process_without_a_group_has_no_advantages_and_no_warning(kind: str) -> None:
    stage = RlStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, "advantages": {"kind": kind}})
    step = step_advantages(stage, [], [], TokenTable.of([]), World())
    assert step.advantages.shape == (0, 0)
