from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_causes import PredictionSelector
from swerve.probe.causal.continuations import Outcome
from swerve.probe.causal.swap_effects import MeasuredEffect, summarise_prediction
from swerve.probe.findings.parts import Resampling
from swerve.statistics import benjamini_hochberg


def effect(index: int, size: int, *, same: bool = False, policy="reference", position: int = 0) -> MeasuredEffect:
    """An effect of `size` tenths."""
    reference, checkpoint = (Outcome(num_continuations=10, num_successes=num, num_failures=0) for num in (5, 5 + size))
    return MeasuredEffect(
        policy=policy,
        selection="spike",
        sequence_id=index,
        position=position,
        spike_sequence_id=index,
        problem_id=f"p{index}",
        arms={"reference": (7, reference), "checkpoint": (7 if same else 8, checkpoint)},
    )


def predicted(effects, scores, *, delta: float = 0.2):
    return summarise_prediction(effects, scores, delta=delta, resampling=Resampling(num_resamples=300))


def test_sizes_are_ranked_whatever_their_sign() -> None:
    effects = [effect(0, 3), effect(1, -2), effect(2, 1), effect(3, 0)]
    assert [round(one.effect, 6) for one in effects] == [0.3, -0.2, 0.1, 0.0]
    everywhere, different = predicted(effects, {"js": [9, 8, 2, 1], "rank": [1, 2, 8, 9], "half": [9, 1, 8, 2]})
    assert (everywhere.positions, different.positions) == ("all", "different_tokens")
    assert (everywhere.num_positions, everywhere.num_effects) == (4, 2)  # an effect of exactly delta counts
    assert [one.selector for one in everywhere.selectors] == ["js", "rank", "half"]
    assert [one.auc.mean for one in everywhere.selectors] == [1.0, 0.0, 0.5]
    assert [one.spearman.mean for one in everywhere.selectors] == pytest.approx([1.0, -1.0, 0.4])
    adjusted, _ = benjamini_hochberg([one.spearman.p_value for one in everywhere.selectors])
    assert [one.p_adjusted for one in everywhere.selectors] == adjusted


def test_a_position_counts_once_a_policy_and_the_same_token_apart() -> None:
    effects = [
        effect(0, 4),
        effect(0, 4),
        effect(0, 0, same=True, position=5),
        effect(1, 0),
        effect(1, 5, policy="checkpoint"),
    ]
    scores = {"js": [3.0, 0.0, 1.0, 2.0, 5.0]}
    found = {(one.policy, one.positions): one for one in predicted(effects, scores)}
    assert {key: one.num_positions for key, one in found.items()} == {
        ("reference", "all"): 3,
        ("reference", "different_tokens"): 2,
        ("checkpoint", "all"): 1,
        ("checkpoint", "different_tokens"): 1,
    }
    assert found["reference", "all"].selectors[0].auc.mean == 1.0
    assert found["checkpoint", "all"].selectors[0] == PredictionSelector(
        selector="js", auc=None, spearman=None, p_adjusted=None
    )


def test_noise_alone_predicts_on_all_positions_but_not_where_tokens_differ() -> None:
    """Divergence tells where tokens differ; no token has an effect, yet the sampled ones differ from 0."""
    rng = np.random.default_rng(0)
    effects, scores = [], []
    for index in range(200):
        same = index % 2 == 0
        effects.append(effect(index, 0 if same else int(rng.integers(-3, 4)), same=same))
        scores.append(rng.random() + (0 if same else 1))
    everywhere, different = (one.selectors[0] for one in predicted(effects, {"js": scores}))
    assert everywhere.auc.low > 0.7
    assert different.auc.low < 0.5 < different.auc.high
    assert different.spearman.low < 0 < different.spearman.high


def test_infinite_scores_rank_highest() -> None:
    effects = [effect(0, 3), effect(1, 0), effect(2, 1), effect(3, 0)]
    (found, _) = predicted(effects, {"kl_forward": [np.inf, 0.1, 5.0, 0.2]})
    assert found.selectors[0].auc.mean == 1.0
    dump_json(found)


def test_nothing_measured_and_wrong_lengths() -> None:
    assert predicted([], {"js": []}) == ()
    with pytest.raises(ValueError, match="'js' needs a score for each of 1"):
        predicted([effect(0, 1)], {"js": []})
    _, different = predicted([effect(0, 0, same=True)], {"js": [0.1]})
    assert (different.num_positions, different.selectors[0].auc) == (0, None)


def test_the_effect_of_a_position_is_that_of_all_its_continuations() -> None:
    one = effect(0, 0)
    unclear, clear = (Outcome(num_continuations=10, num_successes=num, num_failures=0) for num in (5, 9))
    more = replace(one, arms={"reference": (7, unclear.extended(unclear)), "checkpoint": (8, unclear.extended(clear))})
    (found, _) = predicted([more, effect(1, 0)], {"js": [2.0, 1.0]})
    assert (more.effect, more.precise_effect) == (0.0, pytest.approx(0.2))
    assert found.num_effects == 1
