"""Build what the updates of a step learn from: log-probs under policy and reference, advantages, token choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.batch import TokenBatch, TokenSequence
from swerve.config.objectives import AdvantageConfig, CustomAdvantages, GaeAdvantages
from swerve.config.stages import RlStage
from swerve.functional.advantages import (
    GROUP_ADVANTAGES,
    GroupAdvantages,
    Moments,
    MomentsOf,
    gae,
    moments,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    reward_to_go,
)
from swerve.functional.advantages import whiten as whiten_tokens
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.token_weights import entropy_threshold, top_entropy_mask
from swerve.recipes.custom import custom_function
from swerve.train.columns import TokenColumns, TokenTable, score_tokens
from swerve.train.kl import KlTerm
from swerve.train.learner import Learner
from swerve.train.stages.context import StageContext, StepRollouts
from swerve.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """What the updates of one step learn from, on this process: B completions of at most T tokens."""

    sequences: Sequence[TokenSequence]
    groups: Sequence[int]
    """Number of the group of each completion."""
    table: TokenTable
    rewards: Tensor
    """`[B]`."""
    columns: TokenColumns
    """`[B, T]` each."""
    batches: Sequence[TokenBatch]
    """Micro-batches of all the completions."""


def prepare_step(rollouts: StepRollouts, stage: RlStage, context: StageContext, kl: KlTerm) -> PolicyStep:
    """Return what the updates learn from; all processes must call it, also those without a group."""
    # The step's completions as one table, whatever their groups.
    completions = [
        (number, group.prompt.token_ids, rollout.completion)
        for number, group in zip(rollouts.numbers, rollouts.groups, strict=True)
        for rollout in group.rollouts
    ]
    sequences = [(prompt, completion.token_ids) for _, prompt, completion in completions]
    table = TokenTable.of(sequences)
    batches = context.learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch)
    # What policy, sampler and reference say of each token.
    columns = TokenColumns(
        ids=table.fill([ids for _, ids in sequences], dtype=torch.long),
        weights=table.mask.float(),
        policy_weights=table.mask.float(),
        advantages=table.zeros(),
        sampler_logprobs=table.fill([completion.logprobs for _, _, completion in completions]),
        ref_logprobs=kl.ref_logprobs(batches, table),
        **_policy_scores(stage, kl, context.learner, batches, table),
    )

    def estimate(**penalties: Tensor) -> TokenColumns:
        values = columns.values
        advantages = step_advantages(stage, rollouts.rewards, table, context.world, values=values, **penalties)
        return replace(columns, **advantages._asdict())

    # Rewards become advantages; then some tokens may be left out.
    columns = kl.with_advantages(columns, table, estimate)
    if columns.entropies is not None:
        chosen = _top_entropy(columns.entropies, stage.entropy.top_share, table, context.world)
        columns = replace(columns, policy_weights=chosen)
    return PolicyStep(
        sequences=sequences,
        groups=[number for number, _, _ in completions],
        table=table,
        rewards=torch.tensor([value for values in rollouts.rewards for value in values]),
        columns=columns,
        batches=batches,
    )


def _policy_scores(
    stage: RlStage, kl: KlTerm, learner: Learner, batches: Sequence[TokenBatch], table: TokenTable
) -> dict[str, Tensor]:
    """Score the tokens under the policy before the updates, as far as the objective needs it; return columns by name.

    A single update has no need of the old log-probabilities: its own, without gradient, are the same numbers.
    """
    with_values = isinstance(stage.advantages, GaeAdvantages)
    with_entropies = stage.entropy.top_share < 1.0
    if stage.num_updates == 1 and not (kl.needs_old_logprobs or with_values or with_entropies):
        return {}
    names = ["old_logprobs", *(["entropies"] if with_entropies else []), *(["values"] if with_values else [])]

    def compute(batch: TokenBatch, hidden: Tensor) -> Tensor:
        ids = batch.completion_ids[batch.mask]

        def statistics(logits: Tensor, rows: slice) -> Tensor:
            scaled = logits if stage.temperature == 1.0 else logits / stage.temperature
            logprobs = token_logprobs(scaled, ids[rows])
            return torch.stack([logprobs, entropy(scaled)] if with_entropies else [logprobs], dim=-1)

        scores = learner.head.map(hidden, statistics)
        return torch.cat([scores, learner.predicted_returns(hidden)[:, None]], dim=-1) if with_values else scores

    tables = score_tokens(learner.weights, batches, compute, table, num_scores=len(names))
    return dict(zip(names, tables, strict=True))


def _top_entropy(entropies: Tensor, share: float, table: TokenTable, world: World) -> Tensor:
    """Return 1.0 at the tokens of highest entropy over all processes, 0.0 elsewhere."""
    parts = world.gather(entropies[table.mask].tolist())
    threshold = entropy_threshold(torch.tensor([value for part in parts for value in part]), share=share)
    return top_entropy_mask(entropies, table.mask, share=share, threshold=threshold).float()


class StepAdvantages(NamedTuple):
    """Advantages `[B, T]` of a step's tokens, and the returns that a value head learns (None without one)."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"] | None = None


def step_advantages(
    stage: RlStage,
    rewards: Sequence[Sequence[float]],
    table: TokenTable,
    world: World,
    *,
    before: Float[Tensor, "B T"] | None = None,
    after: Float[Tensor, "B T"] | None = None,
    values: Float[Tensor, "B T"] | None = None,
) -> StepAdvantages:
    """Return the advantages of the completions whose rewards are given, a row per group; all processes must call it.

    Args:
        stage: with the estimator.
        rewards: of this process's groups.
        table: the shape of their completions, one after the other.
        world: the processes whose tokens are whitened together.
        before: `[B, T]`, subtracted from each token's reward before the baseline.
        after: `[B, T]`, the same after it: a token loses its own and the later ones.
        values: `[B, T]`, predicted returns, for `gae`.
    """
    before = table.zeros() if before is None else before
    after = table.zeros() if after is None else after
    # The rewards in every form that an estimator may take them in.
    flat = torch.tensor(rewards, dtype=torch.float32)
    size = stage.samples_per_prompt
    scores = _Scores(
        grouped=flat.view(-1, size) - before.sum(dim=1).view(-1, size),
        token_rewards=_at_last_token(flat.view(-1), table) - before - after,
        to_go=reward_to_go(after, table.mask),
        mask=table.mask,
        values=values,
        moments=lambda values, mask: _summed_moments(values, mask, world),
    )
    estimator = stage.advantages
    group_estimator = group_advantages(estimator)
    if group_estimator is not None:
        per_completion = group_estimator(scores.grouped, **estimator.keywords)
        return StepAdvantages(per_completion.reshape(-1, 1) * table.mask - scores.to_go)
    return TOKEN_ADVANTAGES[estimator.kind](scores, **estimator.keywords)


def group_advantages(config: AdvantageConfig) -> GroupAdvantages | None:
    """Return the function of an estimator within a group; None for one over all tokens of a step.

    Raises:
        ConfigError: a function of the user's own cannot be loaded, or does not take the options.
    """
    if isinstance(config, CustomAdvantages):
        return custom_function(config.path, ("rewards",), config.options)
    return GROUP_ADVANTAGES.get(config.kind)


class _Scores(NamedTuple):
    """The rewards of a step in the forms that estimators take, with the penalties subtracted."""

    grouped: Tensor
    """`[G, N]`, those after the baseline not subtracted."""
    token_rewards: Tensor
    """`[B, T]`, the completion's reward at its last token."""
    to_go: Tensor
    """`[B, T]`, the sum of the later penalties that belong after the baseline."""
    mask: Tensor
    values: Tensor | None
    moments: MomentsOf
    """Over all processes."""


def _at_last_token(rewards: Tensor, table: TokenTable) -> Tensor:
    """Return `[B, T]` with each completion's reward at its last token."""
    last = table.mask & (table.mask.cumsum(dim=1) == table.mask.sum(dim=1, keepdim=True))
    return rewards[:, None] * last


def _summed_moments(values: Tensor, mask: Tensor, world: World) -> Moments:
    own = moments(values, mask)
    totals = world.sums({"count": own.count, "total": own.total, "square_total": own.square_total})
    return Moments(**totals)


def _reinforce_pp(scores: _Scores, **keywords: Any) -> StepAdvantages:
    return StepAdvantages(
        reinforce_pp_advantages(scores.token_rewards, scores.mask, moments=scores.moments, **keywords)
    )


def _reinforce_pp_baseline(scores: _Scores, **keywords: Any) -> StepAdvantages:
    return StepAdvantages(
        reinforce_pp_baseline_advantages(
            scores.grouped, scores.mask, penalty=scores.to_go, moments=scores.moments, **keywords
        )
    )


def _gae(scores: _Scores, *, whiten: bool, **keywords: Any) -> StepAdvantages:
    assert scores.values is not None
    advantages, returns = gae(scores.token_rewards, scores.values, scores.mask, **keywords)
    if whiten:
        advantages = whiten_tokens(advantages, scores.mask, scores.moments(advantages, scores.mask))
    return StepAdvantages(advantages, returns)


TOKEN_ADVANTAGES: Mapping[str, Callable[..., StepAdvantages]] = {
    "reinforce_pp": _reinforce_pp,
    "reinforce_pp_baseline": _reinforce_pp_baseline,
    "gae": _gae,
}
"""The estimators over all tokens of a step; those within a group are `GROUP_ADVANTAGES`."""
