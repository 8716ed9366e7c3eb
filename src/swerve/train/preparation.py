"""From graded rollouts to what an update learns from: scores under policy and reference, advantages, token choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config import GaeAdvantages, KlInLoss, KlInReward, RlStage
from swerve.functional import entropy, entropy_threshold, kl_estimate, token_logprobs, top_entropy_mask
from swerve.train.advantages import step_advantages
from swerve.train.frozen import FrozenModel
from swerve.train.learner import Learner
from swerve.train.policy_update import Coefficients, PolicyStep
from swerve.train.rollouts import StepRollouts
from swerve.train.stages.context import StageContext
from swerve.train.tokens import TokenTable, score_tokens
from swerve.world import World

__all__ = ["prepare_step"]


def prepare_step(
    found: StepRollouts,
    stage: RlStage,
    context: StageContext,
    coefficients: Coefficients,
    reference: FrozenModel | None,
) -> PolicyStep:
    """Return what the updates learn from; all processes must call it, also those without a group."""
    rollouts = [
        (number, group.prompt.token_ids, rollout)
        for number, group in zip(found.numbers, found.groups, strict=True)
        for rollout in group.rollouts
    ]
    sequences = [(prompt, rollout.completion.token_ids) for _, prompt, rollout in rollouts]
    table = TokenTable.of(sequences)
    batches = context.learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch)
    tokens = {"sampler_logprobs": table.fill([rollout.completion.logprobs for _, _, rollout in rollouts])}
    tokens.update(_policy_scores(stage, context.learner, batches, table))
    if reference is not None and not (isinstance(stage.kl, KlInLoss) and stage.kl.is_exact):
        tokens["ref_logprobs"] = reference.logprobs(batches, table, temperature=stage.temperature)
    divergence = _reward_kl(stage, tokens, table)
    penalty = None if divergence is None else (coefficients.kl or 0.0) * divergence
    learnt = step_advantages(stage, found.rewards, table, context.world, penalty=penalty, values=tokens.get("values"))
    tokens["advantages"] = learnt.advantages
    if learnt.returns is not None:
        tokens["returns"] = learnt.returns
    if stage.entropy.top_share < 1.0:
        tokens["learns"] = _top_entropy(tokens["entropies"], stage.entropy.top_share, table, context.world)
    return PolicyStep(
        sequences=sequences,
        groups=[number for number, _, _ in rollouts],
        table=table,
        rewards=torch.tensor([value for values in found.rewards for value in values]),
        tokens=tokens,
        reward_kl=divergence,
    )


def _policy_scores(
    stage: RlStage, learner: Learner, batches: Sequence[TokenBatch], table: TokenTable
) -> dict[str, Tensor]:
    """Score the tokens under the policy before the updates, as far as the objective needs it.

    A single update has no need of the old log-probabilities: its own, without gradient, are the same numbers.
    """
    with_values = isinstance(stage.advantages, GaeAdvantages)
    with_entropies = stage.entropy.top_share < 1.0
    if stage.num_updates == 1 and not (isinstance(stage.kl, KlInReward) or with_values or with_entropies):
        return {}
    names = ["old_logprobs", *(["entropies"] if with_entropies else []), *(["values"] if with_values else [])]

    def compute(batch: TokenBatch, hidden: Tensor) -> Tensor:
        ids = batch.completion_ids[batch.mask]

        def statistics(logits: Tensor, rows: slice) -> Tensor:
            scaled = logits if stage.temperature == 1.0 else logits / stage.temperature
            logprobs = token_logprobs(scaled, ids[rows])
            return torch.stack([logprobs, entropy(scaled)] if with_entropies else [logprobs], dim=-1)

        scores = learner.head.map(hidden, statistics)
        return torch.cat([scores, learner.value_head(hidden)], dim=-1) if with_values else scores

    tables = score_tokens(learner.model, learner.head, batches, compute, table, num_scores=len(names))
    return dict(zip(names, tables, strict=True))


def _reward_kl(stage: RlStage, tokens: Mapping[str, Tensor], table: TokenTable) -> Tensor | None:
    """Return the KL estimate at every token, nats, where the KL is in the reward."""
    kl = stage.kl
    if not isinstance(kl, KlInReward) or "ref_logprobs" not in tokens:
        return None
    return kl_estimate(
        tokens["old_logprobs"],
        tokens["ref_logprobs"],
        estimator=kl.estimator,
        input_clamp=kl.input_clamp,
        output_clamp=kl.output_clamp,
    ).where(table.mask, 0.0)


def _top_entropy(entropies: Tensor, share: float, table: TokenTable, world: World) -> Tensor:
    """Return 1.0 at the tokens of highest entropy over all processes, 0.0 elsewhere."""
    parts = world.gather(entropies[table.mask].tolist())
    threshold = entropy_threshold(torch.tensor([value for part in parts for value in part]), share=share)
    return top_entropy_mask(entropies, table.mask, share=share, threshold=threshold).float()
