"""What swerve's numbers should be: plain transformers in float64, one text at a time, without padding or a cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import Tensor

Row = Mapping[str, Any]


def load(folder: Path, attention: str, dtype: torch.dtype = torch.float64) -> Any:
    """Load a model for evaluation; experts are run one by one, as grouped kernels have no float64."""
    keys = {"dtype": dtype, "attn_implementation": attention}
    try:
        model = hf.AutoModelForCausalLM.from_pretrained(folder, experts_implementation="eager", **keys)
    except (TypeError, ValueError):  # an architecture without experts
        model = hf.AutoModelForCausalLM.from_pretrained(folder, **keys)
    return model.eval()


def log_distributions(
    model: Any, prompt: Sequence[int], completion: Sequence[int], num_ids: int, temperature: float = 1.0
) -> Tensor:
    """Return the log-probabilities of the tokenizer's ids at each token of a completion, `[T, V]`."""
    logits = model(torch.tensor([[*prompt, *completion]]), use_cache=False).logits[0, len(prompt) - 1 : -1, :num_ids]
    return (logits.double() / temperature).log_softmax(-1)


def logprobs(model: Any, row: Row, num_ids: int, temperature: float = 1.0, *, of: str = "completion_ids") -> Tensor:
    """Return the log-probability of each token of a completion, `[T]`."""
    every = log_distributions(model, row["prompt_ids"], row[of], num_ids, temperature)
    return every.gather(1, torch.tensor(row[of])[:, None])[:, 0]


def learn_rewards(model: Any, rollouts: Sequence[Row], num_ids: int, temperature: float) -> float:
    """Leave the gradient of a mean over tokens of -advantage x log-probability; return the largest error of sampling.

    The advantage is the reward less its group's mean; groups of equal rewards are left out.
    """
    groups: dict[int, list[float]] = {}
    for row in rollouts:
        groups.setdefault(row["group"], []).append(row["reward"])
    used = [row for row in rollouts if len(set(groups[row["group"]])) > 1]
    num_tokens, worst = sum(len(row["completion_ids"]) for row in used), 0.0
    for row in rollouts:
        found = logprobs(model, row, num_ids, temperature)
        worst = max(worst, float((found.detach() - torch.tensor(row["logprobs"])).abs().max()))
        rewards = groups[row["group"]]
        advantage = row["reward"] - sum(rewards) / len(rewards)
        if row in used:
            (-advantage * found.sum() / num_tokens).backward()
    return worst


def learn_examples(model: Any, examples: Sequence[Row], num_ids: int) -> float:
    """Leave the gradient of the mean cross-entropy of the completions' tokens; return it."""
    num_tokens, total = sum(len(row["completion_ids"]) for row in examples), 0.0
    for row in examples:
        loss = -logprobs(model, row, num_ids).sum() / num_tokens
        loss.backward()
        total += float(loss)
    return total


def learn_pairs(model: Any, pairs: Sequence[Row], num_ids: int, beta: float) -> float:
    """Leave the gradient of DPO's loss where policy and reference are one; return the largest error of a reference."""
    worst = 0.0
    for row in pairs:
        sums = {name: logprobs(model, row, num_ids, of=f"{name}_ids").sum() for name in ("chosen", "rejected")}
        worst = max(worst, *(abs(float(sums[name]) - row[f"ref_{name}_logprob"]) for name in sums))
        (-beta / 2 * (sums["chosen"] - sums["rejected"]) / len(pairs)).backward()
    return worst


def gradient_norm(model: Any) -> float:
    """Return the L2 norm of all gradients that were left."""
    return math.sqrt(sum(float((one.grad**2).sum()) for one in model.parameters() if one.grad is not None))


def update_error(before: Any, after: Any, learning_rate: float) -> float:
    """Return how far weights are from where AdamW's first update puts them, in learning rates: the largest error.

    Weights with a gradient below 1e-5, whose sign is a matter of rounding, are left out.
    """
    scale = min(1.0, 1.0 / (gradient_norm(before) + 1e-6))
    moved, worst, num_compared = dict(after.named_parameters()), 0.0, 0
    for name, weight in before.named_parameters():
        if weight.grad is None:
            continue
        gradient = weight.grad * scale
        is_clear = gradient.abs() > 1e-5
        expected = weight.detach() - learning_rate * gradient / (gradient.abs() + 1e-8)
        errors = (moved[name].detach() - expected)[is_clear].abs()
        num_compared += errors.numel()
        worst = max([worst, *errors.tolist()])
    assert num_compared > 1000, f"only {num_compared} weights have a gradient"
    return worst / learning_rate


def divergences(models: tuple[Any, Any], prompt: Sequence[int], completion: Sequence[int], num_ids: int) -> Row:
    """Return the Jensen-Shannon divergence of two models, and entropy and log-probability of the second, by token."""
    p, q = (log_distributions(model, prompt, completion, num_ids) for model in models)
    mean = torch.logaddexp(p, q) - math.log(2)
    js = ((p.exp() * (p - mean)).sum(-1) + (q.exp() * (q - mean)).sum(-1)) / 2
    ids = torch.tensor(completion)[:, None]
    return {
        "js": js,
        "entropy": -(q.exp() * q).sum(-1),
        "logprob": q.gather(1, ids)[:, 0],
        "logprob_ref": p.gather(1, ids)[:, 0],
    }
