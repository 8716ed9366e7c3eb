"""The updates of the policy from one step's rollouts: minibatches, denominators, the loss of a chunk of tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.objectives import (
    ClippedLoss,
    CustomLoss,
    GaeAdvantages,
    LossConfig,
    NoCorrection,
    PathLoss,
    RatioLoss,
)
from swerve.config.stages import RlStage
from swerve.functional.logprobs import entropy, token_logprobs
from swerve.functional.losses import clip_fraction, sequence_log_ratio, value_loss
from swerve.functional.token_weights import importance_log_ratio, importance_weights, reduction_weights
from swerve.recipes.custom import custom_function, load
from swerve.train.columns import PolicyStep, SignalRecorder, TokenColumns, TokenSignals
from swerve.train.context import Metrics, StageContext
from swerve.train.kl import KlTerm, RefLogits
from swerve.train.learner import Learner, learning_rate
from swerve.world import World

_PER_TOKEN = ("entropy", "logprob_gap", "clipped_share", "kl", "corrected_share", "value_loss")
"""Metrics that are means over tokens."""
_GAPS = ("logprob_gap_max", *(f"logprob_gap_q{quarter}" for quarter in range(1, 5)))
UPDATE_FIGURES = ("loss", "grad_norm", "lr", *_PER_TOKEN, *_GAPS)
"""What an update measures; null in the metrics of a step without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpdate:
    """Metrics and recorded token columns of one step's updates."""

    figures: Metrics
    """Metrics to log."""
    signals: TokenSignals
    """What the updates did at each token."""


def update_policy(
    step: PolicyStep, stage: RlStage, context: StageContext, index: int, kl: KlTerm, entropy_coef: float
) -> PolicyUpdate:
    """Make the updates of the stage's step `index`; all processes must call it."""
    schedule = context.phase.schedule
    rate = learning_rate(stage.optimizer, schedule.index(index), len(schedule))
    sums = dict.fromkeys(["loss", "grad_norm", "updates", "tokens", "read_tokens", *_PER_TOKEN], 0.0)
    recorder = SignalRecorder(step.table)
    for epoch in range(stage.num_epochs):
        for rows in _minibatches(step, stage, context, index, epoch):
            columns, num_tokens = weighted_columns(step, rows, stage, context)
            if not num_tokens:  # no process has a completion
                continue
            # One optimizer step from the completions that have a gradient.
            loss = _MinibatchLoss(
                stage=stage,
                learner=context.learner,
                kl=kl,
                entropy_coef=entropy_coef,
                columns=columns,
                rows=rows,
                recorder=recorder,
            )
            batches, silent, unread = _micro_batches(step, loss)
            result = context.learner.update(batches, loss, silent=silent, learning_rate=rate, metrics=_PER_TOKEN)
            # What it measured, with the entropies that sampling knows of completions that were not read.
            mask = step.table.mask
            unread_sums = {
                "read_tokens": float(mask[rows].sum() - mask[unread].sum()),
                "entropy": float(step.entropies[unread].sum()),
            }
            added = {"loss": result.loss, "grad_norm": result.grad_norm, "updates": 1.0, "tokens": num_tokens}
            for part in (added, result.sums, context.world.sums(unread_sums)):
                for name, value in part.items():
                    sums[name] += value
    return PolicyUpdate(
        figures={
            **_metrics(step, stage, context, sums, kl),
            **gap_figures(recorder.first("logprob_gap"), step.table.mask & recorder.is_read, context.world),
            "lr": rate,
        },
        signals=_signals(step, stage, recorder, kl),
    )


def gap_figures(gaps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], world: World) -> dict[str, float | None]:
    """Return the largest difference of sampler and trainer, and its mean over each quarter of the completions.

    Position t of a completion of n tokens, both counted from 0, is in quarter floor(4 t / n); None where no token is.

    >>> gaps = torch.tensor([[0.125, 0.25, 0.5, 0.75], [0.375, 0.0, 0.0, 0.0]])
    >>> list(gap_figures(gaps, gaps > 0, World()).values())
    [0.75, 0.25, 0.25, 0.5, 0.75]
    """
    quarters = 4 * (mask.cumsum(dim=1) - 1) // mask.sum(dim=1, keepdim=True).clamp(min=1)
    sums: dict[str, float] = {}
    for number in range(4):
        inside = gaps[mask & (quarters == number)]
        sums |= {f"sum{number}": float(inside.sum(dtype=torch.float64)), f"num{number}": float(len(inside))}
    sums = world.sums(sums)
    largest = world.max(float(gaps.max()) if gaps.numel() else 0.0)
    means = [sums[f"sum{number}"] / sums[f"num{number}"] if sums[f"num{number}"] else None for number in range(4)]
    return dict(zip(_GAPS, [largest, *means], strict=True))


def policy_loss(config: LossConfig) -> Callable[..., Tensor]:
    """Return the function of a policy loss: of the tensors that `config.takes` names, with `config.keywords`.

    Raises:
        ConfigError: a function of the user's own cannot be loaded, or does not take the options.
    """
    if isinstance(config, CustomLoss):
        return custom_function(config.path, config.takes, config.options)
    function: Callable[..., Tensor] = load(config.function)
    return function


def _metrics(
    step: PolicyStep, stage: RlStage, context: StageContext, sums: Mapping[str, float], kl: KlTerm
) -> dict[str, float | int | None]:
    """Return means over updates and over tokens; None for what this objective does not have."""
    metrics: dict[str, float | int | None] = {name: sums[name] / sums["read_tokens"] for name in _PER_TOKEN}
    metrics["entropy"] = sums["entropy"] / sums["tokens"]
    if step.columns.reward_kl is not None:
        total = context.world.sums({"kl": float(step.columns.reward_kl.sum())})["kl"]
        metrics["kl"] = total * stage.num_epochs / sums["tokens"]
    elif kl.reference is None or not kl.is_in_loss:
        metrics["kl"] = None
    if not isinstance(stage.advantages, GaeAdvantages):
        metrics["value_loss"] = None
    if not isinstance(stage.loss, ClippedLoss):
        metrics["clipped_share"] = None
    if isinstance(stage.correction, NoCorrection):
        metrics["corrected_share"] = None
    means = {name: sums[name] / sums["updates"] for name in ("loss", "grad_norm")}
    return {**means, "num_tokens": int(sums["tokens"]) // stage.num_epochs, **metrics}


def _signals(step: PolicyStep, stage: RlStage, recorder: SignalRecorder, kl: KlTerm) -> TokenSignals:
    """Return the signal at each token of this process's completions."""
    advantages = step.columns.advantages * step.columns.policy_weights
    if stage.is_selector:
        advantages = advantages.clamp(min=0.0)  # they learn from completions with a positive reward only
    return TokenSignals(
        members=step.members,
        mask=step.table.mask,
        columns={
            "advantages": advantages,  # as they weighed the policy loss; 0 at tokens that it leaves out
            "kl": kl.recorded(step.columns, recorder),  # nats
            # The share of the updates in which clipping removed the token's gradient.
            "clipped": recorder.mean("clipped") if isinstance(stage.loss, ClippedLoss) else None,
        },
    )


def minibatches(numbers: set[int], stage: RlStage, context: StageContext, index: int, epoch: int) -> list[set[int]]:
    """Return the numbers of the groups in each minibatch of an epoch, from those of all processes' groups."""
    order, count = sorted(numbers), stage.num_minibatches
    random.Random(context.seed(stage.label, "minibatches", index, epoch)).shuffle(order)
    return [set(order[start::count]) for start in range(count)]


def _minibatches(step: PolicyStep, stage: RlStage, context: StageContext, index: int, epoch: int) -> list[list[int]]:
    """Return the rows of each minibatch: groups stay together and are dealt out alike on all processes."""
    everything = list(range(len(step.sequences)))
    if stage.num_minibatches == 1:
        return [everything]
    groups = [member.group for member in step.members]
    numbers = set(chain.from_iterable(context.world.gather(sorted(set(groups)))))
    parts = minibatches(numbers, stage, context, index, epoch)
    return [[row for row in everything if groups[row] in part] for part in parts]


def _micro_batches(
    step: PolicyStep, loss: _MinibatchLoss
) -> tuple[Sequence[TokenBatch], Sequence[TokenBatch], list[int]]:
    """Return the micro-batches of an update, those that are read for the metrics alone, and the rows that are not read.

    Completions without a gradient are read where the sampler does not know their entropy, or where the KL is in the
    loss. Where no process has a completion with a gradient, all are read as if they had one: the optimizer's moments
    then decay as with any gradient of 0.
    """
    # Which completions have a gradient, and of which of the others sampling knows the entropy.
    learner, learns = loss.learner, loss.learns
    counts = learner.world.sums({"learn": float(learns.sum()), "silent": float((~learns).sum())})
    if not all(counts.values()):
        if loss.stage.num_minibatches == 1:
            return step.batches(), [], []
        learns = torch.ones_like(learns)
    is_known = torch.zeros_like(learns) if loss.kl.is_in_loss else ~step.entropies[loss.rows].isnan()

    # Micro-batches of each kind, whose rows are numbered as the update's.
    def batches(chosen: Bool[Tensor, " b"]) -> list[TokenBatch]:
        numbers = [number for number, is_chosen in enumerate(chosen.tolist()) if is_chosen]
        sequences = [step.sequences[loss.rows[number]] for number in numbers]
        made = learner.batches(sequences, tokens_per_batch=loss.stage.tokens_per_batch)
        return [replace(batch, rows=tuple(numbers[row] for row in batch.rows)) for batch in made]

    unread = [row for row, is_unread in zip(loss.rows, (~learns & is_known).tolist(), strict=True) if is_unread]
    return batches(learns), batches(~learns & ~is_known), unread


def weighted_columns(
    step: PolicyStep, rows: Sequence[int], stage: RlStage, context: StageContext
) -> tuple[TokenColumns, float]:
    """Return the columns of the update from `rows`, weighted by its denominators, and its tokens over all processes."""
    mask, rewards = step.table.mask[rows], step.rewards[rows]
    counts = context.world.sums(
        {"tokens": float(mask.sum()), "sequences": float(len(rows)), "correct": float((rewards > 0).sum())}
    )
    columns = step.columns.map(lambda column: column[rows])
    if not counts["tokens"]:
        return columns, 0.0
    weights = reduction_weights(
        mask,
        reduction=stage.reduction,
        num_tokens=counts["tokens"],
        num_sequences=counts["sequences"],
        length=stage.reduction_length or context.config.max_new_tokens,
    )
    policy_weights = weights * _selected(stage, rewards, counts) * columns.policy_weights
    return replace(columns, weights=weights, policy_weights=policy_weights), counts["tokens"]


def _selected(stage: RlStage, rewards: Tensor, counts: Mapping[str, float]) -> Tensor:
    """Return the factor `[b, 1]` on each completion's policy loss; only the losses of exploring paths select."""
    if not stage.is_selector:
        return torch.ones(len(rewards), 1)
    correct = (rewards > 0).float()[:, None]
    # With no correct completion anywhere there is nothing to divide by, and nothing to learn from.
    by_correct = isinstance(stage.loss, PathLoss) and stage.loss.normalize == "correct"
    return correct * (counts["sequences"] / max(1.0, counts["correct"]) if by_correct else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MinibatchLoss:
    """The loss of one update; called with one of its micro-batches at a time (see `LossFunction`)."""

    stage: RlStage
    learner: Learner
    kl: KlTerm
    entropy_coef: float
    columns: TokenColumns
    """`[b, T]` each, of the update's rows."""
    rows: Sequence[int]
    """Which completions of the step are in the update."""
    recorder: SignalRecorder

    @property
    def learns(self) -> Bool[Tensor, " b"]:
        """Which completions' losses can have a gradient; those whose group has one reward, for example, cannot."""
        stage = self.stage
        if isinstance(stage.advantages, GaeAdvantages) or self.entropy_coef or (self.kl.is_in_loss and self.kl.coef):
            return torch.ones(len(self.rows), dtype=torch.bool)
        factors = self.columns.policy_weights
        if isinstance(stage.loss, RatioLoss):  # these are proportional to the advantage
            factors = factors * self.columns.advantages
        return (factors != 0).any(dim=1)

    def __call__(self, batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
        """Return this micro-batch's share of the loss, and sums of metrics over its tokens."""
        tokens = self._with_sequence_ratios(batch, hidden, self.columns.of_batch(batch))
        objective = TokenObjective(
            stage=self.stage,
            tokens=tokens,
            kl=self.kl,
            entropy_coef=self.entropy_coef,
            ref_logits=self.kl.ref_logits(batch),
        )
        policy = self.learner.head.loss(hidden, objective)
        self.recorder.add([self.rows[row] for row in batch.rows], batch.mask, objective.per_token())
        value, value_sum = self._value_loss(hidden, tokens)
        return policy + value, {**objective.metrics(), "value_loss": value_sum}

    def _with_sequence_ratios(self, batch: TokenBatch, hidden: Tensor, tokens: TokenColumns) -> TokenColumns:
        """Add the log-ratios of whole sequences that the loss or the correction is made of."""
        settings = self.stage.correction
        correction = None if isinstance(settings, NoCorrection) or settings.level == "token" else settings
        in_loss = "log_ratio" in self.stage.loss.takes and tokens.old_logprobs is not None
        if not in_loss and correction is None:
            return tokens

        # Log-probabilities as tables of the batch's rows; the present ones are computed once, and only if needed.
        def table(values: Tensor) -> Tensor:
            spread = values.new_zeros(batch.mask.shape)
            spread[batch.mask] = values
            return spread

        @cache
        def current() -> Tensor:
            return table(self._logprobs(hidden, tokens.ids))

        # Each token gets what belongs to its sequence.
        with torch.no_grad():
            old = None if tokens.old_logprobs is None else table(tokens.old_logprobs)
            if in_loss and old is not None:
                ratios = sequence_log_ratio(current(), old.to(current().dtype), batch.mask)
                tokens = replace(tokens, log_ratio=ratios[:, None].expand_as(old)[batch.mask])
            if correction is not None:
                numerator = current() if old is None or correction.numerator == "current" else old
                sampler = table(tokens.sampler_logprobs)
                ratios = importance_log_ratio(numerator, sampler, batch.mask, level=correction.level)
                tokens = replace(tokens, sampler_log_ratio=ratios[batch.mask])
        return tokens

    def _logprobs(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Return each token's log-probability under the present weights, `[N]`."""

        def logprobs(logits: Tensor, rows: slice) -> Tensor:
            return token_logprobs(logits, ids[rows], temperature=self.stage.temperature)[:, None]

        return self.learner.head.map(hidden, logprobs)[:, 0]

    def _value_loss(self, hidden: Tensor, tokens: TokenColumns) -> tuple[Tensor, float]:
        """Return the weighted loss of the value head, and its plain sum over the tokens."""
        settings = self.stage.advantages
        if not isinstance(settings, GaeAdvantages):
            return hidden.new_zeros(()), 0.0
        assert tokens.values is not None
        assert tokens.returns is not None
        inputs = hidden if settings.value_gradient == "shared" else hidden.detach()
        values = self.learner.predicted_returns(inputs)
        old_values = None if settings.value_clip is None else tokens.values[None]
        losses = value_loss(values[None], tokens.returns[None], old_values=old_values, clip=settings.value_clip)[0]
        return settings.value_coef * (tokens.weights * losses).sum(), float(losses.detach().sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenObjective:
    """The summed loss of some tokens, and sums of metrics about them.

    Per token, with `w` the reduction's weight, `v` the weight of the policy loss (0 where the token or its completion
    is left out) and `c` the importance weight of policy to sampler:

        loss = v c policy_loss + w (c) kl_coef KL - w entropy_coef H

    where `(c)` is there with `correction.scope: policy_and_kl`.
    """

    stage: RlStage
    tokens: TokenColumns
    """`[N]` each."""
    kl: KlTerm
    entropy_coef: float = 0.0
    ref_logits: RefLogits | None = None
    sums: dict[str, Tensor] = field(default_factory=dict)
    recorded: dict[str, list[Tensor]] = field(default_factory=dict)

    def __call__(self, logits: Tensor, rows: slice) -> Tensor:
        """Return the loss of the tokens `rows` from their logits `[n, V]`; see `ChunkLoss`."""
        tokens = self.tokens.map(lambda column: column[rows])
        temperature = self.stage.temperature
        scaled = logits if temperature == 1.0 else logits / temperature
        logprobs = token_logprobs(scaled, tokens.ids)
        old = logprobs.detach() if tokens.old_logprobs is None else tokens.old_logprobs

        correction, corrected = self._correction(logprobs, old, tokens)
        policy, clipped = self._policy_loss(scaled, logprobs, old, tokens)
        weights = tokens.policy_weights * correction
        # Where a token is left out its loss may be infinite, and 0 times that would be NaN.
        loss = (weights * policy.where(weights != 0, 0.0)).sum()
        self._count("clipped_share", clipped, record_as="clipped")
        self._count("logprob_gap", (old - tokens.sampler_logprobs).abs(), record_as="logprob_gap")
        self._count("corrected_share", corrected)

        ref_logits = None if self.ref_logits is None else self.ref_logits(rows)
        divergence = self.kl.in_loss(scaled, logprobs, old, tokens, ref_logits)
        if divergence is not None:
            self._count("kl", divergence, record_as="kl")
            is_for_kl = self.stage.correction.scope == "policy_and_kl"
            kl_weights = tokens.weights * correction if is_for_kl else tokens.weights
            loss = loss + (self.kl.coef or 0.0) * (kl_weights * divergence).sum()

        with torch.set_grad_enabled(self.entropy_coef != 0 and torch.is_grad_enabled()):
            entropies = entropy(scaled)
        self._count("entropy", entropies)
        if self.entropy_coef:
            loss = loss - self.entropy_coef * (tokens.weights * entropies).sum()
        return loss

    def metrics(self) -> dict[str, float]:
        """Return the sums so far; 0 for what was never counted."""
        return {name: float(self.sums.get(name, 0.0)) for name in _PER_TOKEN if name != "value_loss"}

    def per_token(self) -> dict[str, Tensor]:
        """Return what is recorded of each token so far, `[N]`: `clipped` (1.0 or 0.0), and `kl` (nats) if counted."""
        return {name: torch.cat(parts).float() for name, parts in self.recorded.items()}

    def _count(self, name: str, values: Tensor, *, record_as: str | None = None) -> None:
        values = values.detach()
        if record_as is not None:
            self.recorded.setdefault(record_as, []).append(values)
        total = values.sum(dtype=torch.float64)
        self.sums[name] = self.sums[name] + total if name in self.sums else total

    def _policy_loss(
        self, scaled: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns
    ) -> tuple[Tensor, Tensor]:
        """Return each token's policy loss, and where clipping removed its gradient."""
        config, function = self.stage.loss, policy_loss(self.stage.loss)
        if config.is_selector:
            return function(scaled, tokens.ids, **config.keywords), torch.zeros_like(logprobs)
        inputs = logprobs[None], old[None], tokens.advantages[None]
        log_ratio = torch.zeros_like(old) if tokens.log_ratio is None else tokens.log_ratio
        # A chunk's tokens are parts of sequences, so that a loss of whole ones is given their ratio, not their mask.
        names = ("logprobs", "old_logprobs", "advantages", "mask", "log_ratio")
        given = dict(zip(names, (*inputs, None, log_ratio[None]), strict=True))
        (loss,) = function(*(given[name] for name in config.takes), **config.keywords)
        if not isinstance(config, ClippedLoss):
            return loss, torch.zeros_like(logprobs)
        sequence_ratio = given["log_ratio"] if "log_ratio" in config.takes else None
        return loss, clip_fraction(*inputs, log_ratio=sequence_ratio, **config.keywords)[0]

    def _correction(self, logprobs: Tensor, old: Tensor, tokens: TokenColumns) -> tuple[Tensor, Tensor]:
        """Return the importance weights of policy to sampler, and where the bound changed them."""
        settings = self.stage.correction
        if isinstance(settings, NoCorrection):
            return torch.ones_like(old), torch.zeros_like(old)
        log_ratio = tokens.sampler_log_ratio
        if log_ratio is None:
            log_ratio = (old if settings.numerator == "old" else logprobs.detach()) - tokens.sampler_logprobs
        none = torch.zeros_like(log_ratio)[None]
        (weights,) = importance_weights(log_ratio[None], none, kind=settings.kind, **settings.keywords)
        return weights, (weights - log_ratio.exp()).abs() > 1e-6 * weights
