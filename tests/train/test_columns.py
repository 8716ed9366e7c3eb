"""What is recorded of the training signal at each token: by hand, against the update's own figures, and on disk."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.train.columns import Member, SignalRecorder, TokenSignals, TokenTable
from swerve.world import World

CASES = Path(__file__).with_name("test_policy_update.py")
TIGHT = {"loss": {"kind": "clip", "low": 0.002, "high": 0.003}, "num_epochs": 3}
STILL = {"lr": 1e-30, "max_grad_norm": None}


@pytest.fixture(scope="module")
def cases() -> Any:
    spec = importlib.util.spec_from_file_location("recording_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def models(cases):
    return cases.two_models()


def _flat(signals: TokenSignals, name: str) -> torch.Tensor:
    return signals.columns[name][signals.mask]


def test_values_of_micro_batches_find_their_tokens_and_the_first_kl_counts():
    recorder = SignalRecorder(TokenTable.of([([1], [5, 6, 7]), ([1], [8]), ([1], [9, 9])]))
    wide, narrow = torch.tensor([[True, True, False], [True, True, True]]), torch.tensor([[True]])
    recorder.add([2, 0], wide, {"kl": torch.tensor([0.1, 0.2, 1.0, 2.0, 3.0]), "clipped": torch.ones(5)})
    recorder.add([1], narrow, {"kl": torch.tensor([7.0]), "clipped": torch.tensor([0.0])})
    later = {"kl": torch.full((5,), 99.0), "clipped": torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0])}
    recorder.add([2, 0], wide, later)
    recorder.add([1], narrow, {"kl": torch.tensor([99.0]), "clipped": torch.tensor([1.0])})
    expected = torch.tensor([[1.0, 2.0, 3.0], [7.0, 0.0, 0.0], [0.1, 0.2, 0.0]])
    assert torch.equal(recorder.first("kl"), expected)
    assert recorder.mean("clipped").tolist() == [[0.5, 0.5, 1.0], [0.5, 0.0, 0.0], [0.5, 1.0, 0.0]]


def test_rows_of_the_table_are_cut_to_their_completions():
    signals = TokenSignals(
        members=[Member(4, 0), Member(4, 2), Member(0, 1)],
        mask=torch.tensor([[True, True], [True, False], [True, True]]),
        columns={
            "advantages": torch.tensor([[1.0, 2.0], [3.0, 0.0], [-1.0, -2.0]]),
            "kl": None,
            "clipped": torch.tensor([[0.0, 0.5], [1.0, 0.0], [0.25, 0.0]]),
        },
    )
    assert signals.by_member() == {
        (4, 0): {"advantages": [1.0, 2.0], "kl": None, "clipped": [0.0, 0.5]},
        (4, 2): {"advantages": [3.0], "kl": None, "clipped": [1.0]},
        (0, 1): {"advantages": [-1.0, -2.0], "kl": None, "clipped": [0.25, 0.0]},
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("reinforce_pp", {}),
        ("gae", TIGHT),
        ("kl exact_js", {**TIGHT, "num_minibatches": 2}),
        ("kl k3 importance", {"num_epochs": 2, "num_minibatches": 2}),
        ("kl reward after", TIGHT),
        ("top entropy", {}),
        ("gspo", {"loss": {"kind": "gspo", "low": 1e-4, "high": 1e-4}}),
    ],
)
def test_micro_batches_do_not_change_what_is_recorded(cases, models, name, changes):
    whole, parts = (
        cases.Update(models, cases.stage_of(name, tokens_per_batch=size, **changes), cases.rollouts()).signals
        for size in (65536, 17)
    )
    assert whole.members == parts.members
    for field in ("advantages", "kl", "clipped"):
        one, two = whole.columns[field], parts.columns[field]
        assert (one is None) == (two is None)
        if one is not None:
            assert torch.allclose(one, two, rtol=1e-5, atol=1e-7), field
            assert not one[~whole.mask].any()
            assert one[whole.mask].any(), field


def test_advantages_are_those_of_the_update(cases, models):
    update = cases.Update(models, cases.stage_of("kl reward gae"), cases.rollouts())
    assert torch.equal(update.signals.columns["advantages"], update.step.columns.advantages)
    assert len(set(_flat(update.signals, "advantages").tolist())) > 20


def test_tokens_outside_of_the_policy_loss_have_no_advantage(cases, models):
    update = cases.Update(models, cases.stage_of("top entropy"), cases.rollouts())
    learns = update.step.columns.policy_weights
    recorded, raw = update.signals.columns["advantages"], update.step.columns.advantages
    assert not recorded[learns == 0].any()
    assert torch.equal(recorded[learns == 1], raw[learns == 1])
    assert raw[(learns == 0) & update.step.table.mask].any()


def test_a_selecting_loss_has_a_signal_only_where_the_reward_is_positive(cases, models):
    found = cases.rollouts()
    stage = cases.stage_of("max_prob_kl", failure_reward=-0.5)
    rewards = [[-0.5 if value == 0.0 else value for value in values] for values in found.rewards]
    changed = cases.StepRollouts(groups=found.groups, numbers=found.numbers, rewards=rewards)
    update = cases.Update(models, stage, changed)
    flat = torch.tensor([value for values in rewards for value in values])[:, None]
    assert torch.equal(update.signals.columns["advantages"], (flat > 0) * 1.0 * update.signals.mask)


@pytest.mark.parametrize("loss", ["clip", "dual_clip", "gspo"])
def test_the_share_of_clipped_updates_adds_up_to_the_figure(cases, models, loss):
    kind = {"kind": loss, "low": 0.001, "high": 0.001}
    stage = cases.stage_of("clip", loss=kind, num_epochs=3, num_minibatches=2)
    update = cases.Update(models, stage, cases.rollouts())
    shares = _flat(update.signals, "clipped")
    assert set(shares.mul(3).round(decimals=5).tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert 0 < float(shares.mean()) == pytest.approx(update.figures["clipped_share"], rel=1e-6)
    assert not shares[_flat(update.signals, "advantages") == 0].any()


@pytest.mark.parametrize("loss", ["reinforce", "cispo"])
def test_a_loss_without_clipping_records_none(cases, models, loss):
    update = cases.Update(models, cases.stage_of("dr_grpo", loss={"kind": loss}), cases.rollouts())
    assert update.signals.columns["clipped"] is None


@pytest.mark.parametrize("name", ["kl k2", "kl k3", "kl abs", "kl exact_reverse", "kl exact_forward", "kl reward"])
def test_the_kl_of_a_single_update_adds_up_to_the_figure(cases, models, name):
    found = cases.rollouts()
    update = cases.Update(models, cases.stage_of(name), found)
    values = _flat(update.signals, "kl")
    assert float(values.double().mean()) == pytest.approx(update.figures["kl"], rel=1e-5)
    before = {
        group.prompt.token_ids + one.completion.token_ids[:position]
        for group in found.groups
        for one in group.rollouts
        for position in range(len(one.completion.token_ids))
    }
    assert len(set(values.tolist())) >= len(before)  # of what comes before a token; but for exact ones of the token too


@pytest.mark.parametrize("name", ["kl k3", "kl exact_reverse", "kl k3 importance"])
def test_the_kl_is_that_before_the_weights_move(cases, models, name):
    """Over several epochs it stays what it is where nothing moves."""
    moving = cases.stage_of(name, num_epochs=3, optimizer={"lr": 3e-2, "max_grad_norm": None})
    still = cases.stage_of(name, num_epochs=1, optimizer=STILL)
    first, second = (cases.Update(models, stage, cases.rollouts()) for stage in (moving, still))
    assert torch.allclose(first.signals.columns["kl"], second.signals.columns["kl"], rtol=1e-5, atol=1e-7)
    assert first.figures["kl"] != pytest.approx(second.figures["kl"], rel=1e-3)


def test_without_a_kl_term_there_is_none(cases, models):
    assert cases.Update(models, cases.stage_of("clip"), cases.rollouts()).signals.columns["kl"] is None


def test_a_process_without_a_completion_records_nothing(cases, models):
    empty = cases.StepRollouts(groups=[], numbers=[], rewards=[])

    class Two(World):
        """As if another process had the completions."""

        def sums(self, figures):
            return {name: value + 1.0 for name, value in figures.items()}

    update = cases.Update(models, cases.stage_of("clip"), empty, world=Two())
    assert update.signals.by_member() == {}
