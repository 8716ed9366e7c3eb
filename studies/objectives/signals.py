"""What gradient each loss has on the same completions: where it is zero, what it does to entropy, whether it agrees.

Fresh completions of a checkpoint are split into two halves by prompt. On the first, every loss's gradient by the
model's parameters is taken; the second gives the policy gradient (rewards minus their group's mean) to compare with.
Everything is to first order, at the weights of the checkpoint, before the optimizer scales it.

    python -m studies.objectives.signals    of the checkpoints that `advantages.yaml` and `paths.yaml` left in runs/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from studies.records import RESULTS, keep_records
from swerve.batch import completion_logits, token_batches
from swerve.functional import (
    entropy,
    fixed_target_kl,
    max_prob_js,
    max_prob_kl,
    rank_promotion_js,
    reinforce_loss,
    token_logprobs,
)
from swerve.models.model_folder import LoadedModel, load_model, stop_ids
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.prompts.encode import encode_prompts
from swerve.rewards import grade_all
from swerve.rollout import SamplingParams, TorchEngine, rollout_groups
from swerve.seeds import derive_seed
from swerve.types import RolloutGroup

NUM_PROMPTS, GROUP = 128, 8
_TRACKED = {
    "dr_grpo": "objectives-advantages/runs/dr_grpo",
    "max_prob_kl, live": "objectives-paths/runs/max_prob_kl_live_1e-4",
    "max_prob_kl, detached": "objectives-paths/runs/max_prob_kl_detached_1e-4",
}
_CHECKPOINTS = {"sft": Path("runs/objectives-sft-seed-0/checkpoints/step_000500")}
"""Label -> where the gradients are measured: the SFT checkpoint, and the middle and end of some runs."""
for _name, _run in _TRACKED.items():
    for _step in (30, 80):
        _CHECKPOINTS[f"{_name}, step {_step}"] = Path(f"runs/studies/{_run}/seed-0/checkpoints/step_{_step:06}")

TokenLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logits `[N, V]`, ids `[N]`, advantages `[N]`) -> `[N]`."""


def _reinforce(logits: Tensor, ids: Tensor, advantages: Tensor) -> Tensor:
    return reinforce_loss(token_logprobs(logits, ids)[None], advantages[None])[0]


_LOSSES: dict[str, tuple[TokenLoss, bool]] = {
    "dr_grpo": (_reinforce, False),
    "reward (rejection fine-tuning)": (lambda logits, ids, _: -token_logprobs(logits, ids), True),
    "max_prob_kl, live": (lambda logits, ids, _: max_prob_kl(logits, ids, target_gradient="live"), True),
    "max_prob_kl, detached": (lambda logits, ids, _: max_prob_kl(logits, ids, target_gradient="detached"), True),
    "max_prob_js, live": (lambda logits, ids, _: max_prob_js(logits, ids, target_gradient="live"), True),
    "max_prob_js, detached": (lambda logits, ids, _: max_prob_js(logits, ids, target_gradient="detached"), True),
    "rank_promotion_js": (lambda logits, ids, _: rank_promotion_js(logits, ids), True),
    "fixed_target_kl, q 0.5, all": (lambda logits, ids, _: fixed_target_kl(logits, ids), True),
    "fixed_target_kl, q 0.5, above": (lambda logits, ids, _: fixed_target_kl(logits, ids, region="above"), True),
    "fixed_target_kl, q 0.5, below": (lambda logits, ids, _: fixed_target_kl(logits, ids, region="below"), True),
}
"""Each loss, and whether it learns from the correct completions only."""


@dataclass(frozen=True, slots=True)
class _Half:
    """Completions with their rewards and advantages (rewards minus their group's mean)."""

    sequences: Sequence[tuple[Sequence[int], Sequence[int]]]
    rewards: Tensor
    advantages: Tensor


def _half(groups: Sequence[RolloutGroup]) -> _Half:
    rewards = torch.tensor([[rollout.reward.value or 0.0 for rollout in group.rollouts] for group in groups])
    return _Half(
        [(group.prompt.token_ids, rollout.completion.token_ids) for group in groups for rollout in group.rollouts],
        rewards.view(-1),
        (rewards - rewards.mean(dim=1, keepdim=True)).view(-1),
    )


def _sample(loaded: LoadedModel, seed: int) -> tuple[_Half, _Half]:
    family = load_family(AdditionTask())
    problems = family.problems("train", seed=derive_seed(seed, "problems"))[:NUM_PROMPTS]
    stops = stop_ids(loaded.model, loaded.tokenizer)
    groups = rollout_groups(
        TorchEngine(loaded.model, pad_id=int(loaded.tokenizer.pad_token_id or 0), max_rows=512),
        loaded.tokenizer,
        encode_prompts(loaded.tokenizer, problems),
        SamplingParams(num_samples=GROUP, max_new_tokens=72, temperature=1.0, stop_ids=stops),
        seeds=[derive_seed(seed, "signals", problem.id) for problem in problems],
        grade=grade_all,
    )
    return _half(groups[: NUM_PROMPTS // 2]), _half(groups[NUM_PROMPTS // 2 :])


def _logits(model: PreTrainedModel, half: _Half) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits `[N, V]`, ids `[N]` and row numbers `[N]` of all completion tokens."""
    parts = []
    for batch in token_batches(half.sequences, pad_id=0, tokens_per_batch=65536):
        rows = torch.tensor(batch.rows)[:, None].expand_as(batch.mask)
        parts.append((completion_logits(model, batch)[batch.mask], batch.completion_ids[batch.mask], rows[batch.mask]))
    logits, ids, rows = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, ids, rows


def _flat(loss: Tensor, model: PreTrainedModel) -> Tensor:
    gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _cosine(first: Tensor, second: Tensor) -> float | None:
    norms = float(first.norm() * second.norm())
    return float(f"{float(first @ second) / norms:.4g}") if norms else None


def measure(path: Path, seed: int) -> dict[str, Any]:
    """Return what every loss's gradient does at one checkpoint."""
    loaded = load_model(path, device="cpu", dtype="float32")
    first, second = _sample(loaded, seed)
    model = loaded.model.eval()
    logits, ids, rows = _logits(model, second)
    policy_gradient = -_flat(_reinforce(logits, ids, second.advantages[rows]).mean(), model)
    logits, ids, rows = _logits(model, first)
    spread = entropy(logits)
    entropy_gradient = _flat(spread.mean(), model)
    is_likeliest = logits.detach().argmax(dim=-1) == ids
    losses = {}
    for name, (loss, only_correct) in _LOSSES.items():
        values = loss(logits, ids, first.advantages[rows])
        values = values * (first.rewards[rows] > 0) if only_correct else values
        (by_logit,) = torch.autograd.grad(values.sum(), logits, retain_graph=True)
        sizes = by_logit.norm(dim=-1)
        is_used = (first.rewards > 0)[rows] if only_correct else (first.advantages != 0)[rows]
        step = -_flat(values.mean(), model)
        total = float(sizes.sum())
        losses[name] = {
            "zero_share": round(float((sizes[is_used] == 0).float().mean()), 4),
            "likeliest_share": round(float(sizes[is_likeliest].sum()) / total, 4) if total else None,
            "entropy_cosine": _cosine(step, entropy_gradient),
            "policy_cosine": _cosine(step, policy_gradient),
        }
    return {
        "reward": round(float(first.rewards.mean()), 4),
        "entropy": float(f"{float(spread.detach().mean()):.4g}"),
        "likeliest": round(float(is_likeliest.float().mean()), 4),
        "losses": losses,
    }


def main() -> None:
    """Keep the gradients at every checkpoint that is there."""
    torch.set_num_threads(1)
    for label, path in _CHECKPOINTS.items():
        if path.is_dir():
            record = {"kind": "signal", "name": label, "seed": 0, **measure(path, 0)}
            keep_records(RESULTS / "objectives.jsonl", [record])
            print(f"{label}: kept", flush=True)


if __name__ == "__main__":
    main()
