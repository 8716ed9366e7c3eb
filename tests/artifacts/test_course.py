"""The phases of an RL stage."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.artifacts.course import WINDOW, stage_courses


def lines(rewards: list[float], entropies: list[float | None], *, stage: str = "rl") -> list[dict[str, Any]]:
    return [
        {"stage": stage, "stage_step": step, "reward": reward, "neg_logprob": entropy}
        for step, (reward, entropy) in enumerate(zip(rewards, entropies, strict=True), start=1)
    ]


def test_a_run_that_rises_and_collapses_has_all_phases() -> None:
    rewards = [0.1] * 10 + [0.5] * 10 + [0.9] * 10 + [0.0] * 10
    entropies = [1.0] * 10 + [0.4] * 10 + [0.2] * 20
    records = lines(rewards, entropies)
    records[32]["collapse"] = records[35]["collapse"] = "reward"
    (found,) = stage_courses(records)
    # Half of the fall from 1.0 to 0.2 is 0.6: four of the last five steps at 0.4 and one at 1.0 have a mean of 0.52.
    assert found.exploration_end == 14
    assert (found.peak, found.peak_reward) == (25, pytest.approx(0.9))
    assert (found.collapse, found.collapse_sign, found.end) == (33, "reward", 40)
    assert found.described() == (
        "Course of rl: exploration to step 14, consolidation to step 25, peak 0.9 there, "
        "collapse from step 33 (reward), end at step 40."
    )


def test_what_does_not_happen_is_not_named() -> None:
    (found,) = stage_courses(lines([0.5] * 6, [0.3, 0.3, 0.3, 0.3, 0.3, 0.9]))
    assert (found.exploration_end, found.peak, found.collapse) == (None, WINDOW, None)
    assert found.described().startswith("Course of rl: no fall of entropy before step 5, peak 0.5 there, no collapse")
    (unmeasured,) = stage_courses(lines([0.1] * 5 + [1.0], [1.0, None, 1.0, 1.0, 0.1, 0.1]))
    assert (unmeasured.exploration_end, unmeasured.peak) == (None, 6)


def test_stages_are_apart_and_those_without_rewards_or_steps_are_left_out() -> None:
    supervised = [{"stage": "sft", "stage_step": step, "loss": 1.0, "reward": None} for step in range(1, 20)]
    short, first, second = (lines([0.1, 0.2] * num, [1.0] * 2 * num, stage=f"s{num}") for num in (2, 3, 4))
    found = stage_courses([*supervised, *short, *first, *second])
    assert [(one.stage, one.end) for one in found] == [("s3", 6), ("s4", 8)]
