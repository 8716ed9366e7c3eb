"""Advantages of a step's completions by the stage's estimator, over all processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.config import (
    DrGrpoAdvantages,
    GaeAdvantages,
    GrpoAdvantages,
    GrpoLooAdvantages,
    KlInReward,
    ReinforcePpAdvantages,
    ReinforcePpBaselineAdvantages,
    RewardAdvantages,
    RlooAdvantages,
    RlStage,
)
from swerve.functional import (
    Moments,
    dr_grpo_advantages,
    gae,
    grpo_advantages,
    grpo_loo_advantages,
    moments,
    reward_to_go,
    rloo_advantages,
    whiten,
)
from swerve.train.tokens import TokenTable
from swerve.world import World

__all__ = ["StepAdvantages", "step_advantages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAdvantages:
    """Advantages `[B, T]` of a step's tokens, and the returns that a value head learns (None without one)."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"] | None = None


def step_advantages(
    stage: RlStage,
    rewards: Sequence[Sequence[float]],
    table: TokenTable,
    world: World,
    *,
    penalty: Float[Tensor, "B T"] | None = None,
    values: Float[Tensor, "B T"] | None = None,
) -> StepAdvantages:
    """Return the advantages of the completions whose rewards are given, a row a group; all processes must call it.

    Args:
        stage: estimator, and where a KL penalty in the reward belongs.
        rewards: of this process's groups.
        table: the shape of their completions, one after the other.
        world: the processes whose tokens are whitened together.
        penalty: `[B, T]`, what a KL in the reward takes from each token.
        values: `[B, T]`, predicted returns, for `gae`.
    """
    before, after = _placed(stage, table, penalty)
    size = stage.samples_per_prompt
    grouped = torch.tensor(rewards, dtype=torch.float32).view(-1, size) - before.sum(dim=1).view(-1, size)
    at_end = _at_last_token(torch.tensor(rewards, dtype=torch.float32).view(-1), table) - before
    to_go = reward_to_go(after, table.mask)
    kind = stage.advantages
    match kind:
        case GrpoAdvantages():
            advantages = _spread(grpo_advantages(grouped, eps=kind.eps, std=kind.std), table) - to_go
        case GrpoLooAdvantages():
            advantages = _spread(grpo_loo_advantages(grouped, eps=kind.eps), table) - to_go
        case DrGrpoAdvantages():
            advantages = _spread(dr_grpo_advantages(grouped), table) - to_go
        case RlooAdvantages():
            advantages = _spread(rloo_advantages(grouped), table) - to_go
        case RewardAdvantages():
            advantages = _spread(grouped, table) - to_go
        case ReinforcePpAdvantages():
            raw = reward_to_go(at_end - after, table.mask, gamma=kind.gamma)
            advantages = whiten(raw, table.mask, _moments(raw, table, world), std=kind.std)
        case ReinforcePpBaselineAdvantages():
            raw = _spread(dr_grpo_advantages(grouped), table) - to_go
            advantages = whiten(raw, table.mask, _moments(raw, table, world), std=kind.std)
        case GaeAdvantages():
            assert values is not None
            raw, returns = gae(at_end, values, table.mask, gamma=kind.gamma, lam=kind.lam)
            if kind.whiten:
                raw = whiten(raw, table.mask, _moments(raw, table, world))
            return StepAdvantages(advantages=raw, returns=returns)
    return StepAdvantages(advantages=advantages)


def _placed(stage: RlStage, table: TokenTable, penalty: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the penalties subtracted before the baseline and after it."""
    nothing = table.zeros()
    if penalty is None or not isinstance(stage.kl, KlInReward):
        return nothing, nothing
    return (penalty, nothing) if stage.kl.order == "before" else (nothing, penalty)


def _spread(per_completion: Tensor, table: TokenTable) -> Tensor:
    return per_completion.reshape(-1, 1) * table.mask


def _at_last_token(rewards: Tensor, table: TokenTable) -> Tensor:
    """Return `[B, T]` with each completion's reward at its last token."""
    last = table.mask & (table.mask.cumsum(dim=1) == table.mask.sum(dim=1, keepdim=True))
    return rewards[:, None] * last


def _moments(values: Tensor, table: TokenTable, world: World) -> Moments:
    own = moments(values, table.mask)
    totals = world.sums({"count": own.count, "total": own.total, "square_total": own.square_total})
    return Moments(**totals)
