from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_causes import PredictionSelector
from swerve.probe.causal.continuations import Outcome
from swerve.probe.causal.interventions import Intervention
from swerve.probe.causal.swap_effects import summarise_prediction
from swerve.probe.intervals import Intervals
from swerve.statistics import benjamini_hochberg


def drawn(even: int, odd: int, num: int = 20) -> Outcome:
    return Outcome(num_continuations=num, num_successes=even + odd, num_failures=0, even_successes=even)


@pytest.fixture
def effect(toys):
    """Make effects of `even` and `odd` tenths in the two halves of 20 continuations."""

    def made(
        index: int, even: int, odd: int, *, same: bool = False, policy="reference", position: int = 0
    ) -> Intervention:
        rollout = toys.rollout(index, "a a a a a a")
        return Intervention(
            policy=policy,
            selection="spike",
            sequence=rollout,
            position=position,
            spike=rollout,
            tokens={"reference": 7, "checkpoint": 7 if same else 8},
            outcomes={"reference": drawn(5, 5), "checkpoint": drawn(5 + even, 5 + odd)},
        )

    return made


def predicted(effects, scores):
    return summarise_prediction(effects, scores, intervals=Intervals())


def test_scores_are_ranked_against_the_product_of_the_halves(effect) -> None:
    effects = [effect(0, 3, 3), effect(1, -2, -2), effect(2, 5, 0), effect(3, 4, -1)]
    assert [one.squared_effect for one in effects] == pytest.approx([0.09, 0.04, 0.0, -0.04])
    assert [one.effect for one in effects] == pytest.approx([0.3, -0.2, 0.25, 0.15])  # |effect| ranks them otherwise
    (ranked,) = predicted(effects, {"js": [9, 8, 2, 1], "rank": [1, 2, 8, 9], "half": [9, 1, 8, 2]})
    assert ranked.num_positions == 4
    assert ranked.mean_square_effect.mean == pytest.approx(0.09 / 4)
    assert [one.selector for one in ranked.selectors] == ["js", "rank", "half"]
    assert [one.spearman.mean for one in ranked.selectors] == pytest.approx([1.0, -1.0, 0.4])
    adjusted = benjamini_hochberg([one.spearman.p_value for one in ranked.selectors])
    assert [one.p_adjusted for one in ranked.selectors] == adjusted


def test_a_position_counts_once_a_policy_and_not_with_the_same_token(effect) -> None:
    effects = [
        effect(0, 4, 4),
        effect(0, 4, 4),
        effect(0, 0, 0, same=True, position=5),
        effect(1, 1, 1),
        effect(2, 2, 2),
        effect(1, 5, 5, policy="checkpoint"),
    ]
    scores = {"js": [3.0, 0.0, 9.0, 1.0, 2.0, 5.0]}
    by_policy = {one.policy: one for one in predicted(effects, scores)}
    assert {key: one.num_positions for key, one in by_policy.items()} == {"reference": 3, "checkpoint": 1}
    assert by_policy["reference"].selectors[0].spearman.mean == pytest.approx(1.0)  # 9 is of the same token
    assert by_policy["checkpoint"].selectors == (PredictionSelector(selector="js", spearman=None, p_adjusted=None),)


def test_infinite_scores_rank_highest(effect) -> None:
    effects = [effect(0, 3, 3), effect(1, 0, 0), effect(2, 1, 1), effect(3, 0, 0)]
    (found,) = predicted(effects, {"kl_forward": [np.inf, 0.1, 5.0, 0.1]})
    assert found.selectors[0].spearman.mean == pytest.approx(1.0)
    dump_json(found)


def test_nothing_measured_and_wrong_lengths(effect) -> None:
    assert predicted([], {"js": []}) == ()
    with pytest.raises(ValueError, match="'js' needs a score for each of 1"):
        predicted([effect(0, 1, 1)], {"js": []})
    (same,) = predicted([effect(0, 0, 0, same=True)], {"js": [0.1]})
    assert (same.num_positions, same.mean_square_effect, same.selectors[0].spearman) == (0, None, None)


def test_halves_are_of_the_first_look_and_need_two_continuations(effect) -> None:
    """Stopping where the data are clear makes the halves agree; the first look's number is fixed."""
    one = effect(0, 1, 1)
    more = one.continued({arm: drawn(9, 9) for arm in one.tokens})
    assert more.squared_effect == one.squared_effect == pytest.approx(0.01)
    single = Outcome(num_continuations=1, num_successes=1, num_failures=0, even_successes=1)
    unknown = Outcome(num_continuations=20, num_successes=10, num_failures=0)
    for outcome in (single, unknown):
        without = replace(one, position=1, outcomes={"reference": outcome, "checkpoint": outcome})
        assert without.squared_effect is None
        assert [found.num_positions for found in predicted([without, one], {"js": [1.0, 2.0]})] == [1]


def binary_entropy(p: np.ndarray) -> np.ndarray:
    return -p * np.log(p) - (1 - p) * np.log(1 - p)


def simulated(toys, rng: np.random.Generator, num: int, *, size: float, per_problem: int = 2):
    """Positions with success p before the swap and an effect of a share of `size`; 16 continuations an arm.

    Returns the effects and two scores: one of how undecided the model is, one that knows the effect.
    """
    p = rng.beta(0.6, 0.6, size=num).clip(0.002, 0.998)
    true = size * rng.random(num) * (rng.random(num) < 0.5)
    after = np.where(p > 0.5, p - true, p + true)
    rollouts = [
        replace(toys.rollout(index, "a"), problem=toys.problem(f"p{index // per_problem}")) for index in range(num)
    ]
    half = [rng.binomial(8, rate) for rate in (p, p, after, after)]
    effects = [
        Intervention(
            selection="spike",
            sequence=rollout,
            position=0,
            spike=rollout,
            tokens={"reference": 7, "checkpoint": 8},
            outcomes={"reference": drawn(int(a), int(b), 16), "checkpoint": drawn(int(c), int(d), 16)},
        )
        for rollout, a, b, c, d in zip(rollouts, *half, strict=True)
    ]
    return effects, {"entropy": binary_entropy(p), "knows": true + 0.05 * rng.random(num)}


@pytest.mark.slow
def test_uncertainty_predicts_nothing_where_there_is_no_effect(toys) -> None:
    num, draws = 100, 500
    rng = np.random.default_rng(num)
    rejected, correlations = [], []
    for _ in range(draws):
        effects, scores = simulated(toys, rng, num, size=0.0)
        (found,) = summarise_prediction(effects, {"entropy": scores["entropy"]}, intervals=Intervals())
        rejected.append(found.selectors[0].spearman.p_value <= 0.05)
        correlations.append(found.selectors[0].spearman.mean)
    assert np.mean(rejected) <= 0.065 + 3 * np.sqrt(0.05 * 0.95 / draws)
    assert abs(np.mean(correlations)) <= 4 / np.sqrt(num * draws)


def test_real_effects_are_found_and_those_of_noise_are_not_what_is_found(toys) -> None:
    rng = np.random.default_rng(0)
    power, sizes = [], []
    for _ in range(20):
        effects, scores = simulated(toys, rng, 150, size=0.5)
        (found,) = predicted(effects, scores)
        by_name = {one.selector: one.spearman for one in found.selectors}
        power.append(by_name["knows"].p_value <= 0.05)
        sizes.append(by_name["knows"].mean)
    assert np.mean(power) == 1.0
    assert 0.35 <= np.mean(sizes) <= 0.7
    # with |effect| in place of the product the noise is predicted, surely
    effects, scores = simulated(toys, rng, 300, size=0.0)
    noise = np.abs([one.effect for one in effects])
    assert np.corrcoef(scores["entropy"], noise)[0, 1] > 0.4
    assert (
        predicted(effects, scores)[0].mean_square_effect.low < 0 < predicted(effects, scores)[0].mean_square_effect.high
    )
