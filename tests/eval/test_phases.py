"""The phases of an RL stage, by entropy and by length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from swerve.eval.phases import WINDOW, path_phases, stage_courses


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
        "Phases of rl by entropy (exploration: half of its fall to the peak of the reward): "
        "exploration to step 14, consolidation to step 25, peak 0.9 there, "
        "collapse from step 33 (reward), end at step 40."
    )


def test_what_does_not_happen_is_not_named() -> None:
    (found,) = stage_courses(lines([0.5] * 6, [0.3, 0.3, 0.3, 0.3, 0.3, 0.9]))
    assert (found.exploration_end, found.peak, found.collapse) == (None, WINDOW, None)
    assert "): no fall of entropy before step 5, peak 0.5 there, no collapse" in found.described()
    (unmeasured,) = stage_courses(lines([0.1] * 5 + [1.0], [1.0, None, 1.0, 1.0, 0.1, 0.1]))
    assert (unmeasured.exploration_end, unmeasured.peak) == (None, 6)


def test_stages_are_apart_and_those_without_rewards_or_steps_are_left_out() -> None:
    supervised = [{"stage": "sft", "stage_step": step, "loss": 1.0, "reward": None} for step in range(1, 20)]
    short, first, second = (lines([0.1, 0.2] * num, [1.0] * 2 * num, stage=f"s{num}") for num in (2, 3, 4))
    found = stage_courses([*supervised, *short, *first, *second])
    assert [(one.stage, one.end) for one in found] == [("s3", 6), ("s4", 8)]


def curve(*knots: tuple[int, float], noise: float, seed: int) -> list[float]:
    """A curve through knots (step from 0, value), with independent noise."""
    steps = np.arange(knots[-1][0] + 1)
    at, values = zip(*knots, strict=True)
    drawn = np.random.default_rng(seed).normal(0, noise, len(steps))
    return list(np.interp(steps, at, values) + drawn)


def published(seed: int) -> list[dict[str, Any]]:
    """The study's own curve: length 300 -> 540 -> 260, entropy .3 -> .7, accuracy .4 -> .7 -> .6, every 5 steps."""
    lengths = curve((0, 300), (120, 540), (299, 260), noise=25, seed=seed)
    entropies = curve((0, 0.3), (299, 0.7), noise=0.04, seed=seed + 1)
    accuracies = curve((0, 0.4), (150, 0.7), (299, 0.6), noise=0.015, seed=seed + 2)
    return [
        {
            **{
                "stage": "rl",
                "stage_step": step + 1,
                "reward": 0.5,
                "completion_length": length,
                "neg_logprob": entropy,
            },
            **({"eval_accuracy": accuracy} if step % 5 == 4 else {}),
        }
        for step, (length, entropy, accuracy) in enumerate(zip(lengths, entropies, accuracies, strict=True))
    ]


@pytest.mark.parametrize("seed", [0, 10, 20])
def test_the_curves_of_exploring_paths_have_all_of_its_phases(seed: int) -> None:
    (phases,) = path_phases(published(seed))
    assert phases.exploration_end == pytest.approx(121, abs=25)
    assert phases.consolidates
    assert phases.entropy is not None
    assert phases.entropy.name == "rises"
    assert (phases.accuracy_name, phases.collapse) == ("test accuracy", pytest.approx(151, abs=40))
    length = phases.length
    assert (length.first, length.extreme, length.last) == pytest.approx((345, 515, 295), abs=20)
    assert phases.described().startswith(
        "Phases of rl by length (exploration: it rises; consolidation: it falls again while entropy rises; collapse: "
        f"test accuracy falls from its peak for good): exploration to step {phases.exploration_end}, consolidation to "
        f"step 300 (length {length.first:.3g}, {length.extreme:.3g}, {length.last:.3g}), entropy rises all the while ("
    )
    assert f"collapse from step {phases.collapse} (test accuracy 0.4" in phases.described()
    # By entropy it has none: that never falls.
    assert "no fall of entropy" in stage_courses(published(seed))[0].described()


def test_what_a_run_lacks_is_not_named_and_few_points_tell_nothing() -> None:
    rising = curve((0, 100), (59, 200), noise=5, seed=3)
    lines = [
        {"stage": "rl", "stage_step": step, "reward": 0.5, "completion_length": length}
        for step, length in enumerate(rising, start=1)
    ]
    (phases,) = path_phases(lines)
    assert phases.exploration_end is not None
    assert not phases.consolidates
    assert phases.described().endswith(" (length 104, 192, 192), no collapse (reward 0.5, 0.5, 0.5).")
    assert path_phases(lines[:7]) == ()


@pytest.mark.planted
@pytest.mark.parametrize("num_steps", [10, 60, 300])
def test_flat_noise_has_no_phases(num_steps: int) -> None:
    draws, named = 400, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        lines = [
            {
                **{"stage": "rl", "stage_step": step, "reward": 0.5, "completion_length": 300 + 30 * rng.normal()},
                **{"neg_logprob": 0.4 + 0.05 * rng.normal(), "eval_accuracy": 0.6 + 0.02 * rng.normal()},
            }
            for step in range(1, num_steps + 1)
        ]
        (phases,) = path_phases(lines)
        named += phases.exploration_end is not None or phases.collapse is not None
    assert named / draws <= 0.03
