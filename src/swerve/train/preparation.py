"""Build what the updates of a step learn from: log-probs under policy and reference, advantages, token choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.objectives import AdvantageConfig, CustomAdvantages, GaeAdvantages, GroupAdvantages
from swerve.config.stages import RlStage
from swerve.functional.advantages import Moments, moments, reward_to_go
from swerve.functional.advantages import whiten as whiten_tokens
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.token_weights import entropy_threshold, top_entropy_mask
from swerve.recipes.custom import custom_function, load
from swerve.train.columns import Member, PolicyStep, TokenColumns, TokenTable, score_tokens
from swerve.train.context import StageContext, StepRollouts
from swerve.train.kl import KlTerm
from swerve.train.learner import Learner
from swerve.world import World


def prepare_step(rollouts: StepRollouts, stage: RlStage, context: StageContext, kl: KlTerm) -> PolicyStep:
    """Return what the updates learn from; all processes must call it, also those without a group."""
    # The step's completions as one table, whatever their groups.
    completions = [rollout.completion for group in rollouts.groups for rollout in group.rollouts]
    sequences, members = rollouts.sequences(), rollouts.members()
    rewards = [value for values in rollouts.rewards for value in values]
    table = TokenTable.of(sequences)
    batches = cache(partial(context.learner.batches, sequences, tokens_per_batch=stage.tokens_per_batch))
    # What policy, sampler and reference say of each token.
    columns = TokenColumns(
        ids=table.fill([ids for _, ids in sequences], dtype=torch.long),
        weights=table.mask.float(),
        policy_weights=table.mask.float(),
        advantages=table.zeros(),
        sampler_logprobs=table.fill([completion.logprobs for completion in completions]),
        ref_logprobs=None if type(kl) is KlTerm else kl.ref_logprobs(batches(), table),
        **_policy_scores(stage, kl, context.learner, batches, table),
    )

    def estimate(**penalties: Tensor) -> TokenColumns:
        values = columns.values
        advantages = step_advantages(stage, rewards, members, table, context.world, values=values, **penalties)
        return replace(columns, **advantages._asdict())

    # Rewards become advantages; then some tokens may be left out.
    columns = kl.with_advantages(columns, table, estimate)
    if columns.entropies is not None:
        chosen = _top_entropy(columns.entropies, stage.entropy.top_share, table, context.world)
        columns = replace(columns, policy_weights=chosen)
    return PolicyStep(
        sequences=sequences,
        members=members,
        table=table,
        rewards=torch.tensor(rewards),
        columns=columns,
        entropies=torch.tensor(
            [math.nan if completion.entropy is None else completion.entropy for completion in completions]
        ),
        batches=batches,
    )


def _policy_scores(
    stage: RlStage, kl: KlTerm, learner: Learner, batches: Callable[[], Sequence[TokenBatch]], table: TokenTable
) -> dict[str, Tensor]:
    """Score the tokens under the policy before the updates, as far as the objective needs it; return columns by name.

    A single update has no need of the old log-probabilities: its own, without gradient, are the same numbers.
    """
    # What the objective asks for besides log-probabilities, or that it needs nothing.
    with_values = isinstance(stage.advantages, GaeAdvantages)
    with_entropies = stage.entropy.top_share < 1.0
    if stage.num_updates == 1 and not (kl.needs_old_logprobs or with_values or with_entropies):
        return {}
    names = ["old_logprobs", *(["entropies"] if with_entropies else []), *(["values"] if with_values else [])]

    # One pass gives all columns.
    def compute(batch: TokenBatch, hidden: Tensor) -> Tensor:
        ids = batch.completion_ids[batch.mask]

        def statistics(logits: Tensor, rows: slice) -> Tensor:
            scaled = logits if stage.temperature == 1.0 else logits / stage.temperature
            logprobs = token_logprobs(scaled, ids[rows])
            return torch.stack([logprobs, entropy(scaled)] if with_entropies else [logprobs], dim=-1)

        scores = learner.head.map(hidden, statistics)
        return torch.cat([scores, learner.predicted_returns(hidden)[:, None]], dim=-1) if with_values else scores

    tables = score_tokens(learner.weights, batches(), compute, table, num_scores=len(names))
    return dict(zip(names, tables, strict=True))


def _top_entropy(entropies: Tensor, share: float, table: TokenTable, world: World) -> Tensor:
    """Return 1.0 at the tokens of highest entropy over all processes, 0.0 elsewhere."""

    def sum_counts(counts: Tensor) -> Tensor:
        counts = counts.to(world.device)
        world.sum_(counts)
        return counts.cpu()

    threshold = entropy_threshold(entropies[table.mask], share=share, sum_counts=sum_counts)
    return top_entropy_mask(entropies, table.mask, share=share, threshold=threshold).float()


class StepAdvantages(NamedTuple):
    """Advantages `[B, T]` of a step's tokens, and the returns that a value head learns (None without one)."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"] | None = None


def step_advantages(
    stage: RlStage,
    rewards: Sequence[float],
    members: Sequence[Member],
    table: TokenTable,
    world: World,
    *,
    before: Float[Tensor, "B T"] | None = None,
    after: Float[Tensor, "B T"] | None = None,
    values: Float[Tensor, "B T"] | None = None,
) -> StepAdvantages:
    """Return the advantages of this process's completions; all processes must call it.

    A completion is compared with the others of its group wherever they are.

    Args:
        stage: with the estimator.
        rewards: of each completion.
        members: which of the step's completions they are.
        table: their shape.
        world: the processes whose tokens are whitened together.
        before: `[B, T]`, subtracted from each token's reward before the baseline.
        after: `[B, T]`, the same after it: a token loses its own and the later ones.
        values: `[B, T]`, predicted returns, for `gae`.
    """
    before = table.zeros() if before is None else before
    after = table.zeros() if after is None else after
    flat = torch.tensor(rewards, dtype=torch.float32)
    grouped, rows = _whole_groups(flat - before.sum(dim=1), members, stage.samples_per_prompt, world)
    to_go = reward_to_go(after, table.mask)

    estimator, function = stage.advantages, advantage_estimator(stage.advantages)
    if isinstance(estimator, GroupAdvantages):
        per_completion = function(grouped, **estimator.keywords).flatten()[rows]
        return StepAdvantages(per_completion[:, None] * table.mask - to_go)

    # The rewards in every form that an estimator over tokens may take them in, by the name of its argument.
    def summed_moments(values: Tensor, mask: Tensor) -> Moments:
        own = moments(values, mask)
        return Moments(**world.sums({"count": own.count, "total": own.total, "square_total": own.square_total}))

    is_last = table.mask & (table.mask.cumsum(dim=1) == table.mask.sum(dim=1, keepdim=True))  # token of a completion
    forms = {
        "rewards": grouped,
        "rows": rows,
        "token_rewards": flat[:, None] * is_last - before - after,
        "penalty": to_go,
        "mask": table.mask,
        "values": values,
        "moments": summed_moments,
    }
    result = function(*(forms[name] for name in estimator.takes), **estimator.keywords)
    if not isinstance(estimator, GaeAdvantages):
        return StepAdvantages(result)
    advantages, returns = result
    if estimator.whiten:
        advantages = whiten_tokens(advantages, table.mask, summed_moments(advantages, table.mask))
    return StepAdvantages(advantages, returns)


def advantage_estimator(config: AdvantageConfig) -> Callable[..., Any]:
    """Return the function of an estimator: of what `config.takes` names, with `config.keywords`.

    Raises:
        ConfigError: a function of the user's own cannot be loaded, or does not take the options.
    """
    if isinstance(config, CustomAdvantages):
        return custom_function(config.path, config.takes, config.options)
    function: Callable[..., Any] = load(config.function)
    return function


def _whole_groups(values: Tensor, members: Sequence[Member], size: int, world: World) -> tuple[Tensor, Tensor]:
    """Return the values `[G, N]` of all processes' groups, and which of them the own ones are."""
    own = [[*member, value] for member, value in zip(members, values.tolist(), strict=True)]
    everybody = sorted((Member(group, place), value) for part in world.gather(own) for group, place, value in part)
    numbers = {member: number for number, (member, _) in enumerate(everybody)}
    grouped = torch.tensor([value for _, value in everybody], dtype=values.dtype).view(-1, size)
    return grouped, torch.tensor([numbers[member] for member in members], dtype=torch.long)
