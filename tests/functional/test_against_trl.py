"""TRL's own losses, advantages and log-probabilities, run live: value and gradient equal those of swerve.functional.

Needs an environment with TRL, and its Python in the variable SWERVE_TRL_PYTHON; docs/conventions.md says how.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from swerve.config.presets import PRESETS
from swerve.functional.advantages import dr_grpo_advantages, grpo_advantages
from swerve.functional.kl_divergence import kl_estimate
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.losses import cispo_loss, clip_loss, dpo_loss, dual_clip_loss, gspo_loss
from swerve.functional.token_weights import (
    importance_weights,
    sequence_mean,
    sequence_sum,
    sequence_sum_norm,
    token_mean,
    top_entropy_mask,
)
from tests.other_programs import needs

PYTHON = os.environ.get("SWERVE_TRL_PYTHON")
pytestmark = needs("trl")

GROUPS, NUM_GENERATIONS, LENGTH = 2, 4, 5
LENGTHS = [2, 3, 4, 1, 5, 5, 2, 3]
NUM_TOKENS, NUM_SEQUENCES = sum(LENGTHS), len(LENGTHS)


@dataclass(frozen=True, kw_only=True)
class Update:
    """The numbers of one update, all `[B, T]` but the rewards `[G, N]`; log-ratios reach +-1.5, past every clip."""

    logprobs: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    sampler_logprobs: Tensor
    entropies: Tensor
    rewards: Tensor
    mask: Tensor

    @property
    def advantages(self) -> Tensor:
        return self.spread(grpo_advantages(self.rewards, eps=1e-4))

    def spread(self, advantages: Tensor) -> Tensor:
        return advantages.flatten()[:, None].expand(-1, LENGTH)


def _update() -> Update:
    generator = torch.Generator().manual_seed(11)

    def numbers(scale: float) -> Tensor:
        return scale * torch.rand(NUM_SEQUENCES, LENGTH, generator=generator, dtype=torch.float64)

    logprobs = -0.1 - numbers(3.0)
    return Update(
        logprobs=logprobs,
        old_logprobs=logprobs + numbers(3.0) - 1.5,
        ref_logprobs=logprobs + numbers(2.0) - 1.0,
        sampler_logprobs=logprobs + numbers(2.0) - 1.0,
        entropies=numbers(4.0),
        rewards=torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.25, 0.0, 2.0]], dtype=torch.float64),
        mask=torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None],
    )


UPDATE = _update()
Loss = Callable[[Tensor, Update], Tensor]


def _clip(logprobs: Tensor, update: Update) -> Tensor:
    return clip_loss(logprobs, update.old_logprobs, update.advantages)


def _gspo(logprobs: Tensor, update: Update) -> Tensor:
    return gspo_loss(logprobs, update.old_logprobs, update.advantages, update.mask, low=0.1, high=0.1)


def _k3(logprobs: Tensor, update: Update, importance: bool) -> Tensor:
    old_logprobs = update.old_logprobs if importance else None
    return kl_estimate(logprobs, update.ref_logprobs, estimator="k3", importance=importance, old_logprobs=old_logprobs)


def _per_token(values: Tensor, update: Update) -> Tensor:
    return token_mean(values, update.mask, num_tokens=NUM_TOKENS)


def _per_sequence(values: Tensor, update: Update) -> Tensor:
    return sequence_mean(values, update.mask, num_sequences=NUM_SEQUENCES)


def _tokens(loss: Callable[..., Tensor], **options: Any) -> Loss:
    return lambda logprobs, u: _per_token(loss(logprobs, u.old_logprobs, u.advantages, **options), u)


def _weighted(kl_coef: float = 0.0, **options: Any) -> Loss:
    """Weigh the policy term, and only that, with the correction for the sampler."""

    def loss(logprobs: Tensor, update: Update) -> Tensor:
        weights = importance_weights(update.old_logprobs, update.sampler_logprobs, update.mask, **options)
        return _per_token(weights * _clip(logprobs, update) + kl_coef * _k3(logprobs, update, False), update)

    return loss


def _top_entropy(logprobs: Tensor, update: Update) -> Tensor:
    kept = top_entropy_mask(update.entropies, update.mask, share=0.2)  # the KL stays on every token
    return _per_token(kept * _clip(logprobs, update) + 0.1 * _k3(logprobs, update, False), update)


def _scaled_by(divide: Callable[[Tensor], Tensor]) -> Loss:
    def loss(logprobs: Tensor, update: Update) -> Tensor:
        advantages = update.spread(divide(update.rewards))
        return _per_token(clip_loss(logprobs, update.old_logprobs, advantages), update)

    return loss


def _mean_of_parts(logprobs: Tensor, update: Update) -> Tensor:
    """Average the token means of two micro-batches, which is not the token mean of both."""
    values = _clip(logprobs, update)
    halves = [slice(0, NUM_SEQUENCES // 2), slice(NUM_SEQUENCES // 2, NUM_SEQUENCES)]
    parts = [token_mean(values[h], update.mask[h], num_tokens=int(update.mask[h].sum())) for h in halves]
    return torch.stack(parts).mean()


def _vllm(mode: str, clip_max: float, **options: Any) -> dict[str, Any]:
    return {"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": clip_max, **options}


# name: TRL's configuration, then the same loss from swerve's functions
CASES: dict[str, tuple[dict[str, Any], Loss]] = {
    "grpo": ({"loss_type": "grpo"}, lambda x, u: _per_sequence(_clip(x, u), u)),
    "bnpo": ({"loss_type": "bnpo"}, lambda x, u: _per_token(_clip(x, u), u)),
    "dapo": ({"loss_type": "dapo"}, lambda x, u: _per_token(_clip(x, u), u)),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "max_completion_length": 8},
        lambda x, u: sequence_sum_norm(_clip(x, u), u.mask, num_sequences=NUM_SEQUENCES, length=8),
    ),
    "clip-higher": ({"epsilon_high": 0.28}, _tokens(clip_loss, high=0.28)),
    "two-sided clip": ({"delta": 2.0}, _tokens(dual_clip_loss, c=2.0)),
    "cispo": ({"loss_type": "cispo", "epsilon_high": 1.5}, _tokens(cispo_loss, cap=1.5)),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1},
        lambda x, u: _per_sequence(_gspo(x, u), u),
    ),
    "luspo": (
        {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.1},
        lambda x, u: sequence_sum(_gspo(x, u), u.mask, num_sequences=NUM_SEQUENCES),
    ),
    "k3": (
        {"beta": 0.1, "use_bias_correction_kl": False},
        lambda x, u: _per_token(_clip(x, u) + 0.1 * _k3(x, u, False), u),
    ),
    "k3 with importance": ({"beta": 0.1}, lambda x, u: _per_token(_clip(x, u) + 0.1 * _k3(x, u, True), u)),
    "tis": (_vllm("token_truncate", 1.5), _weighted(kind="tis", cap=1.5)),
    "tis and kl": (
        _vllm("token_truncate", 1.5, beta=0.1, use_bias_correction_kl=False),
        _weighted(0.1, kind="tis", cap=1.5),
    ),
    "mis": (
        _vllm("token_mask", 1.5, vllm_importance_sampling_clip_min=0.5),
        _weighted(kind="mis", cap=1.5, floor=0.5),
    ),
    "mis of the sequence": ({**_vllm("sequence_mask", 3.0)}, _weighted(kind="mis", level="sequence", cap=3.0)),
    "top entropy": ({"top_entropy_quantile": 0.2, "beta": 0.1, "use_bias_correction_kl": False}, _top_entropy),
    "rewards not scaled": ({"scale_rewards": "none"}, _scaled_by(dr_grpo_advantages)),
    "rewards scaled by the batch": (
        {"scale_rewards": "batch"},
        _scaled_by(lambda rewards: dr_grpo_advantages(rewards) / (rewards.std() + 1e-4)),
    ),
    "dapo in two micro-batches": ({"loss_type": "dapo"}, lambda x, u: _per_token(_clip(x, u), u)),
    "grpo in two micro-batches": ({"loss_type": "grpo"}, lambda x, u: _per_sequence(_clip(x, u), u)),
    "bnpo in two micro-batches": ({"loss_type": "bnpo"}, _mean_of_parts),
}

PAIRS = {
    "beta": 0.1,
    "chosen": [-3.0, -20.0, -1.0],
    "rejected": [-4.0, -10.0, -1.0],
    "ref_chosen": [-3.5, -2.0, -1.0],
    "ref_rejected": [-3.0, -30.0, -1.0],
}
LOGITS = {"logits": [[1.0, 2.0, 3.0], [0.0, 0.0, 25.0], [0.0, 0.0, 25.0]], "ids": [0, 2, 1], "temperature": 0.7}


def _grpo_case(name: str, config: dict[str, Any]) -> dict[str, Any]:
    fields = ["logprobs", "old_logprobs", "ref_logprobs", "entropies"]
    if any(key.startswith("vllm") for key in config):
        fields.append("sampler_logprobs")
    return {
        "config": config,
        "num_generations": NUM_GENERATIONS,
        "num_micro_batches": 2 if name.endswith("micro-batches") else 1,
        "lengths": LENGTHS,
        "rewards": UPDATE.rewards.flatten().tolist(),
        **{field: getattr(UPDATE, field).tolist() for field in fields},
    }


@pytest.fixture(scope="module")
def trl(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what TRL makes of every case; one process for all, since importing TRL takes most of the time."""
    assert PYTHON is not None
    path = tmp_path_factory.mktemp("trl") / "cases.json"
    grpo = [_grpo_case(name, config) for name, (config, _) in CASES.items()]
    path.write_text(json.dumps({"grpo": grpo, "dpo": [PAIRS], "logits": [LOGITS]}))
    script = Path(__file__).with_name("trl_reference.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [PYTHON, str(script), str(path)], capture_output=True, text=True, timeout=280, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout)
    return {**results, "grpo": dict(zip(CASES, results["grpo"], strict=True))}


def _differs_by(found: Tensor, expected: list[Any]) -> float:
    return float((found - torch.tensor(expected, dtype=torch.float64)).abs().max())


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(trl, name):
    logprobs = UPDATE.logprobs.clone().requires_grad_()
    loss = CASES[name][1](logprobs, UPDATE)
    loss.backward()
    assert logprobs.grad is not None
    assert loss.item() == pytest.approx(trl["grpo"][name]["loss"], abs=1e-9)
    assert _differs_by(logprobs.grad, trl["grpo"][name]["gradient"]) < 1e-9


def test_advantages_are_those_of_trl(trl):
    expected = {
        "dapo": grpo_advantages(UPDATE.rewards, eps=1e-4),
        "rewards not scaled": dr_grpo_advantages(UPDATE.rewards),
    }
    for name, advantages in expected.items():
        assert _differs_by(advantages.flatten(), trl["grpo"][name]["advantages"]) < 1e-12
    assert trl["grpo"]["dapo"]["advantages"][:2] == pytest.approx([1.4997001, -0.4999000], abs=1e-7)  # golden


def test_weights_of_the_sampler_correction_are_those_of_trl(trl):
    unbounded = (UPDATE.old_logprobs - UPDATE.sampler_logprobs).exp()[UPDATE.mask]
    for name, options in {"tis": {"kind": "tis", "cap": 1.5}, "mis": {"kind": "mis", "cap": 1.5, "floor": 0.5}}.items():
        weights = importance_weights(UPDATE.old_logprobs, UPDATE.sampler_logprobs, **options)[UPDATE.mask]
        expected = torch.tensor(trl["grpo"][name]["weights"], dtype=torch.float64)[UPDATE.mask]
        assert 3 < int((weights != unbounded).sum()) < NUM_TOKENS - 3
        assert _differs_by(weights, expected.tolist()) < 1e-12


def test_a_mean_of_micro_batches_is_not_the_mean_of_the_update(trl):
    whole, parts = trl["grpo"]["bnpo"]["loss"], trl["grpo"]["bnpo in two micro-batches"]["loss"]
    assert abs(whole - parts) > 1e-3
    assert trl["grpo"]["dapo"]["loss"] == pytest.approx(trl["grpo"]["dapo in two micro-batches"]["loss"], abs=1e-12)


def test_dpo_loss_is_that_of_trl(trl):
    chosen, rejected, ref_chosen, ref_rejected = (
        torch.tensor(PAIRS[name], dtype=torch.float64) for name in ("chosen", "rejected", "ref_chosen", "ref_rejected")
    )
    chosen.requires_grad_()
    rejected.requires_grad_()
    loss = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=0.1).mean()
    loss.backward()
    assert loss.item() == pytest.approx(trl["dpo"][0]["loss"], abs=1e-12)
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert _differs_by(torch.stack([chosen.grad, rejected.grad]), trl["dpo"][0]["gradient"]) < 1e-12


def test_logprobs_and_entropies_are_those_of_trl(trl):
    logits = torch.tensor(LOGITS["logits"], dtype=torch.float64, requires_grad=True)
    logprobs = token_logprobs(logits, torch.tensor(LOGITS["ids"]), temperature=LOGITS["temperature"])
    entropies = entropy(logits / LOGITS["temperature"])
    (logprobs + entropies).sum().backward()
    expected = trl["logits"][0]
    assert _differs_by(logprobs.detach(), expected["logprobs"]) < 1e-12
    assert _differs_by(entropies.detach(), expected["entropies"]) < 1e-12
    assert logits.grad is not None
    assert _differs_by(logits.grad, expected["gradient"]) < 1e-12


def test_the_preset_is_what_trl_does_by_default(trl):
    defaults, preset = trl["defaults"], PRESETS["trl"]
    assert defaults["loss_type"] == "dapo"
    assert preset["reduction"] == "token_mean"
    assert (defaults["epsilon"], defaults["epsilon_high"], defaults["delta"]) == (preset["loss"]["low"], None, None)
    assert preset["loss"]["high"] == preset["loss"]["low"]
    assert (defaults["scale_rewards"], preset["advantages"]["kind"]) == ("group", "grpo")
    assert (defaults["beta"], preset["kl"]["kind"]) == (0.0, "none")
    assert (defaults["use_vllm"], preset["correction"]["kind"]) == (False, "none")
    assert (defaults["importance_sampling_level"], defaults["top_entropy_quantile"]) == ("token", 1.0)
    assert defaults["use_bias_correction_kl"] is True
