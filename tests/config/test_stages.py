"""Combinations of objectives that would do nothing, or fail later, are refused at once."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from swerve.config.presets import PRESETS
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from tests.cases import each


def _stage(**keys: object) -> RlStage:
    return RlStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}, **keys})


@each(
    ("keys", "message"),
    [
        (
            {"loss": {"kind": "max_prob_kl"}, "kl": {"kind": "reward"}},
            "max_prob_kl asks only whether the reward is positive, so a KL in the reward has no effect; use kl: loss",
        ),
        (
            {"advantages": {"kind": "gae"}, "samples_per_prompt": 1, "zero_variance": "drop"},
            "with samples_per_prompt 1 the rewards of every group are equal, and zero_variance drop would leave all",
        ),
        (
            {"preset": "rl2", "advantages": {"kind": "reward"}, "samples_per_prompt": 1},
            "use zero_variance: keep",
        ),
        ({"loss": {"kind": "cispo", "cap": 1.0, "floor": 2.0}}, r"loss.floor \(2\) must be at most loss.cap \(1\)"),
        (
            {"correction": {"kind": "mis", "cap": 1.0, "floor": 2.0}},
            r"correction.floor \(2\) must be at most correction.cap \(1\)",
        ),
        ({"kl": {"kind": "loss", "coef": 0.0, "target": 0.1}}, "0 stays 0"),
        ({"kl": {"kind": "reward", "coef": 0.0, "target": 0.1}}, "0 stays 0"),
        ({"kl": {"kind": "loss", "estimator": "k1"}}, "its expected gradient is zero"),
        ({"kl": {"kind": "loss", "estimator": "k3+", "importance": True}}, "together that of no divergence"),
        ({"kl": {"kind": "loss", "estimator": "exact_js", "output_clamp": 1.0}}, "takes neither importance nor clamps"),
        ({"kl": {"kind": "reward", "estimator": "k2"}}, "its expected gradient in the reward is not that of the KL"),
        ({"loss": {"kind": "max_prob_js"}, "advantages": {"kind": "rloo"}}, "it needs advantages: reward, got rloo"),
        ({"loss": {"kind": "max_prob_js"}, "num_epochs": 2}, "it takes one epoch"),
        ({"loss": {"kind": "max_prob_js"}, "correction": {"kind": "tis"}}, "has no ratio to the policy"),
        ({"advantages": {"kind": "gae"}, "kl": {"kind": "reward", "order": "after"}}, "use kl.order: before"),
        ({"kl": {"kind": "loss", "target": 0.1, "horizon": 1.0}}, "it must be above 25.6"),
        ({"num_minibatches": 17}, r"num_minibatches \(17\) must be at most prompts_per_step \(16\)"),
        ({"samples_per_prompt": 1}, "advantages dr_grpo compares completions of a prompt: samples_per_prompt >= 2"),
    ],
)
def test_what_would_not_do_what_its_name_says_is_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _stage(**keys)


@pytest.mark.parametrize(
    "kl",
    [
        {"kind": "loss", "estimator": "k1"},
        {"kind": "loss", "estimator": "k3+", "importance": True},
        {"kind": "reward", "estimator": "abs"},
    ],
)
def test_force_allows_it_all_the_same(kl: dict[str, object]) -> None:
    assert _stage(kl={**kl, "force": True}).kl.estimator == kl["estimator"]


@each(
    ("keys", "zero_variance", "reduction"),
    [
        ({}, "drop", "token_mean"),
        ({"advantages": {"kind": "grpo_loo"}}, "drop", "token_mean"),
        ({"advantages": {"kind": "reinforce_pp_baseline"}}, "keep", "token_mean"),
        ({"advantages": {"kind": "gae"}, "samples_per_prompt": 1}, "keep", "token_mean"),
        ({"kl": {"kind": "reward"}}, "keep", "token_mean"),
        ({"kl": {"kind": "none"}}, "drop", "token_mean"),
        ({"entropy": {"coef": -0.1}}, "keep", "token_mean"),
        ({"entropy": {"top_share": 0.2}}, "drop", "token_mean"),
        ({"loss": {"kind": "fixed_target_kl"}}, "keep", "sequence_mean"),
        ({"loss": {"kind": "fixed_target_kl"}, "reduction": "token_sum", "zero_variance": "drop"}, "drop", "token_sum"),
        ({"preset": "rl2"}, "drop", "token_mean"),
        ({"preset": "rl2", "zero_variance": "refill"}, "refill", "token_mean"),
        ({"preset": "verl", "reduction": "sequence_sum"}, "keep", "sequence_sum"),
    ],
)
def test_groups_with_equal_rewards_are_left_out_only_where_they_have_no_gradient(keys, zero_variance, reduction):
    stage = _stage(**keys)
    assert (stage.zero_variance, stage.reduction) == (zero_variance, reduction)


def test_a_preset_says_what_it_leaves_out_until_the_stage_sets_it() -> None:
    assert _stage(preset="verl").notes == [
        "stages.rl: beside its preset, verl makes 4 updates per rollout (with one no clip acts): num_minibatches: 4",
        "stages.rl: beside its preset, verl decays weights: optimizer: {weight_decay: 0.01}",
    ]
    assert _stage(preset="verl", num_epochs=2, optimizer={"lr": 1e-6, "weight_decay": 0.01}).notes == []
    assert [len(_stage(preset=name).notes) for name in PRESETS] == [1, 2, 1, 3]
    assert _stage().notes == SftStage.model_validate({"steps": 1, "optimizer": {"lr": 1e-3}}).notes == []


def test_what_is_given_wins_over_a_preset_and_its_details_stay_where_the_kind_is_the_same() -> None:
    same = _stage(preset="verl", loss={"high": 0.28}, kl={"kind": "loss", "coef": 0.1})
    assert (same.loss.kind, same.loss.high, same.loss.low, same.loss.c) == ("dual_clip", 0.28, 0.2, 3.0)
    assert (same.kl.estimator, same.kl.coef, same.kl.output_clamp) == ("k3", 0.1, 10.0)
    other = _stage(preset="verl", loss={"kind": "clip"}, kl={"kind": "reward"})
    assert (other.loss.kind, other.loss.log_ratio_clamp) == ("clip", None)
    assert (other.kl.estimator, other.kl.coef, other.kl.output_clamp) == ("k1", 0.01, None)
    assert RlStage.model_validate(other.model_dump()) == other


def _phased(*phases: dict[str, object], **keys: object) -> RlStage:
    return RlStage.model_validate({"optimizer": {"lr": 1e-3}, "phases": phases, **keys})


def test_a_phase_has_the_settings_of_the_stage_but_for_its_own() -> None:
    stage = _phased(
        {"steps": 3},
        {"steps": 2, "lr": 1e-4, "loss": {"high": 0.3}, "where": {"max_difficulty": 3.0}, "temperature": 1.3},
        loss={"kind": "clip", "low": 0.1},
        where={"min_difficulty": 1.0},
        checkpoints=[1, 4],
    )
    first, second = (stage.in_phase(number) for number in range(2))
    assert (stage.steps, sorted(stage.kept_steps)) == (5, [1, 3, 4, 5])
    assert first == stage.model_copy(update={"phases": (), "checkpoints": (1, 3, 4, 5)})
    assert second.loss.model_dump() == {"kind": "clip", "low": 0.1, "high": 0.3, "log_ratio_clamp": None}
    assert (second.where.min_difficulty, second.where.max_difficulty) == (1.0, 3.0)
    assert (second.optimizer.lr, second.temperature, first.optimizer.lr) == (1e-4, 1.3, 1e-3)


def test_defaults_of_a_phase_follow_its_own_objective_and_survive_being_written() -> None:
    stage = _phased({"steps": 1}, {"steps": 1, "loss": {"kind": "max_prob_kl"}}, {"steps": 1, "kl": {"kind": "none"}},
                    kl={"kind": "loss"})  # fmt: skip
    for known in (stage, RlStage.model_validate_json(stage.model_dump_json())):
        found = [known.in_phase(number) for number in range(3)]
        assert [one.zero_variance for one in found] == ["keep", "keep", "drop"]
        assert [one.advantages.kind for one in found] == ["dr_grpo", "reward", "dr_grpo"]
        assert [one.reduction for one in found] == ["token_mean", "sequence_mean", "token_mean"]


@pytest.mark.parametrize(
    ("phases", "keys", "place", "message"),
    [
        ([{"steps": 1}, {"steps": 1, "samples_per_prompt": 1}], {}, ("phases", 1), "compares completions of a prompt"),
        ([{"steps": 1, "loss": {"kind": "max_prob_js"}}], {"num_epochs": 2}, ("phases", 0), "it takes one epoch"),
        ([{"steps": 1}, {"steps": 0}], {}, ("phases", 1, "steps"), "greater than 0"),
        ([{"steps": 1, "checkpoints": [1]}], {}, ("phases", 0, "checkpoints"), "not permitted"),
        ([{"steps": 1}], {"num_minibatches": 17}, (), r"num_minibatches \(17\) must be at most prompts_per_step"),
        ([{"steps": 2}], {"steps": 3}, (), r"steps \(3\) is not the sum of the phases' steps \(2\); leave it out"),
    ],
)
def test_errors_name_the_phase(phases, keys, place, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValidationError, match=message) as caught:
        _phased(*phases, **keys)
    assert [error["loc"] for error in caught.value.errors()] == [place]
