"""The updates of the policy from one step's rollouts: minibatches, denominators, loss."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from swerve.batch import TokenBatch, TokenSequence
from swerve.config import ClipLoss, DualClipLoss, GaeAdvantages, GspoLoss, KlInLoss, NoCorrection, RlStage
from swerve.functional import kl_estimate, reduction_weights, sequence_log_ratio, token_logprobs, value_loss
from swerve.train.frozen import FrozenModel
from swerve.train.objective import FIGURES, TokenObjective
from swerve.train.recording import SignalRecorder, TokenSignals
from swerve.train.schedule import learning_rate
from swerve.train.stages.context import Metrics, StageContext
from swerve.train.tokens import TokenTable

__all__ = ["UPDATE_FIGURES", "Coefficients", "PolicyStep", "PolicyUpdate", "update_policy"]

_CLIPPING = (ClipLoss, DualClipLoss, GspoLoss)
_PER_TOKEN = (*FIGURES, "value_loss")
UPDATE_FIGURES = ("loss", "grad_norm", "lr", *_PER_TOKEN)
"""What an update measures; null in the metrics of a step without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Weights of the terms beside the policy loss, in this step."""

    kl: float | None
    """None without a KL term."""
    entropy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """What the updates of one step learn from, on this process: B completions of at most T tokens."""

    sequences: Sequence[TokenSequence]
    groups: Sequence[int]
    """Number of the group of each completion."""
    table: TokenTable
    rewards: Tensor
    """`[B]`."""
    tokens: Mapping[str, Tensor]
    """`[B, T]` each: `sampler_logprobs`, `advantages`, and, where they are needed, `old_logprobs`, `ref_logprobs`,
    `values`, `returns`, and `learns` (1.0 at tokens that carry the policy loss)."""
    reward_kl: Tensor | None
    """`[B, T]`, the KL estimate at each token, nats, where it is in the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyUpdate:
    """What came of the updates of one step."""

    figures: Metrics
    """What to log."""
    signals: TokenSignals
    """What pushed at each token."""


def update_policy(
    step: PolicyStep,
    stage: RlStage,
    context: StageContext,
    index: int,
    coefficients: Coefficients,
    reference: FrozenModel | None,
) -> PolicyUpdate:
    """Make the updates of the stage's step `index`; all processes must call it."""
    rate = learning_rate(stage.optimizer, index, stage.steps) * context.learning_rate_factor()
    sums = dict.fromkeys(["loss", "grad_norm", "updates", "tokens", *_PER_TOKEN], 0.0)
    recorder = SignalRecorder(step.table)
    for epoch in range(stage.num_epochs):
        for rows in _minibatches(step, stage, context, index, epoch):
            loss = _MinibatchLoss.of(step, rows, stage, context, coefficients, reference, recorder)
            if loss is None:
                continue
            sequences = [step.sequences[row] for row in rows]
            batches = context.learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch)
            result = context.learner.update(batches, loss, learning_rate=rate, metrics=_PER_TOKEN)
            added = {"loss": result.loss, "grad_norm": result.grad_norm, "updates": 1.0, "tokens": loss.num_tokens}
            for name, value in {**added, **result.sums}.items():
                sums[name] += value
    return PolicyUpdate(
        figures={**_figures(step, stage, context, sums, reference), "lr": rate},
        signals=_signals(step, stage, recorder, reference),
    )


def _figures(
    step: PolicyStep,
    stage: RlStage,
    context: StageContext,
    sums: Mapping[str, float],
    reference: FrozenModel | None,
) -> dict[str, float | int | None]:
    """Return means over updates and over tokens; None for what this objective does not have."""
    figures: dict[str, float | int | None] = {name: sums[name] / sums["tokens"] for name in _PER_TOKEN}
    if step.reward_kl is not None:
        total = context.world.sums({"kl": float(step.reward_kl.sum())})["kl"]
        figures["kl"] = total * stage.num_epochs / sums["tokens"]
    elif reference is None:
        figures["kl"] = None
    if not isinstance(stage.advantages, GaeAdvantages):
        figures["value_loss"] = None
    if not isinstance(stage.loss, _CLIPPING):
        figures["clipped_share"] = None
    if isinstance(stage.correction, NoCorrection):
        figures["corrected_share"] = None
    means = {name: sums[name] / sums["updates"] for name in ("loss", "grad_norm")}
    return {**means, "num_tokens": int(sums["tokens"]) // stage.num_epochs, **figures}


def _signals(step: PolicyStep, stage: RlStage, recorder: SignalRecorder, reference: FrozenModel | None) -> TokenSignals:
    """Return the signal at each token of this process's completions."""
    advantages = step.tokens["advantages"]
    if "learns" in step.tokens:
        advantages = advantages * step.tokens["learns"]
    if stage.is_selector:
        advantages = advantages.clamp(min=0.0)  # they learn from completions with a positive reward only
    kl = step.reward_kl
    if isinstance(stage.kl, KlInLoss) and reference is not None:
        kl = _loss_kl(step, stage.kl, recorder)
    return TokenSignals(
        groups=step.groups,
        mask=step.table.mask,
        advantages=advantages,
        kl=kl,
        clipped=recorder.clipped_share if isinstance(stage.loss, _CLIPPING) else None,
    )


def _loss_kl(step: PolicyStep, kl: KlInLoss, recorder: SignalRecorder) -> Tensor:
    """Return the KL term at each token: before the updates where its log-probabilities are there, else in its first."""
    match kl.estimator:
        case "exact_reverse" | "exact_forward" | "exact_js":
            return recorder.first_kl
        case estimator if "old_logprobs" in step.tokens:
            return kl_estimate(
                step.tokens["old_logprobs"],
                step.tokens["ref_logprobs"],
                estimator=estimator,
                input_clamp=kl.input_clamp,
                output_clamp=kl.output_clamp,
            )
        case _:
            return recorder.first_kl


def _minibatches(step: PolicyStep, stage: RlStage, context: StageContext, index: int, epoch: int) -> list[list[int]]:
    """Return the rows of each minibatch: groups stay together and are dealt out alike on all processes."""
    everything = list(range(len(step.sequences)))
    count = stage.num_minibatches
    if count == 1:
        return [everything]
    order = sorted(number for part in context.world.gather(sorted(set(step.groups))) for number in part)
    random.Random(context.seed(stage.label, "minibatches", index, epoch)).shuffle(order)
    parts = [set(order[start::count]) for start in range(count)]
    return [[row for row in everything if step.groups[row] in numbers] for numbers in parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MinibatchLoss:
    """The loss of one update; called with one of its micro-batches at a time (see `LossFunction`)."""

    stage: RlStage
    context: StageContext
    coefficients: Coefficients
    reference: FrozenModel | None
    tokens: Mapping[str, Tensor]
    """`[b, T]` each, of the update's rows."""
    num_tokens: float
    """Completion tokens of the update, over all processes."""
    rows: Sequence[int]
    """Which completions of the step are in the update."""
    recorder: SignalRecorder

    @classmethod
    def of(
        cls,
        step: PolicyStep,
        rows: Sequence[int],
        stage: RlStage,
        context: StageContext,
        coefficients: Coefficients,
        reference: FrozenModel | None,
        recorder: SignalRecorder,
    ) -> _MinibatchLoss | None:
        """Return the loss of the update from `rows`, or None if no process has any."""
        mask, rewards = step.table.mask[rows], step.rewards[rows]
        counts = context.world.sums(
            {"tokens": float(mask.sum()), "sequences": float(len(rows)), "correct": float((rewards > 0).sum())}
        )
        if not counts["tokens"]:
            return None
        weights = reduction_weights(
            mask,
            reduction=stage.reduction,
            num_tokens=counts["tokens"],
            num_sequences=counts["sequences"],
            length=stage.reduction_length or context.config.max_new_tokens,
        )
        policy_weights = weights * _selected(stage, rewards, counts)
        tokens = {name: values[rows] for name, values in step.tokens.items()}
        if "learns" in tokens:
            policy_weights = policy_weights * tokens["learns"]
        return cls(
            stage=stage,
            context=context,
            coefficients=coefficients,
            reference=reference,
            tokens={**tokens, "weights": weights, "policy_weights": policy_weights},
            num_tokens=counts["tokens"],
            rows=rows,
            recorder=recorder,
        )

    def __call__(self, batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
        """Return this micro-batch's share of the loss, and sums of figures over its tokens."""
        tokens = {name: TokenTable.take(values, batch) for name, values in self.tokens.items()}
        tokens["ids"] = batch.completion_ids[batch.mask]
        if isinstance(self.stage.loss, GspoLoss) and "old_logprobs" in tokens:
            tokens["log_ratio"] = self._sequence_log_ratios(batch, hidden, tokens)
        objective = TokenObjective(
            stage=self.stage,
            tokens=tokens,
            kl_coef=self.coefficients.kl or 0.0,
            entropy_coef=self.coefficients.entropy,
        )
        head = self.context.learner.head
        exact = self.reference if isinstance(self.stage.kl, KlInLoss) and self.stage.kl.is_exact else None
        if exact is None:
            loss = head.loss(hidden, objective)
        else:
            ref_hidden = exact.hidden(batch)

            def with_reference(logits: Tensor, rows: slice) -> Tensor:
                with torch.no_grad():
                    ref_logits = exact.head(ref_hidden[rows])
                return objective(logits, rows, ref_logits)

            loss = head.loss(hidden, with_reference)
        self.recorder.add([self.rows[row] for row in batch.rows], batch.mask, objective.per_token())
        value, value_sum = self._value_loss(hidden, tokens)
        return loss + value, {**objective.figures(), "value_loss": value_sum}

    def _sequence_log_ratios(self, batch: TokenBatch, hidden: Tensor, tokens: Mapping[str, Tensor]) -> Tensor:
        """Return each token's sequence log-ratio under the present weights, `[N]`."""

        def logprobs(logits: Tensor, rows: slice) -> Tensor:
            return token_logprobs(logits, tokens["ids"][rows], temperature=self.stage.temperature)[:, None]

        with torch.no_grad():
            flat = self.context.learner.head.map(hidden, logprobs)[:, 0]
            current = flat.new_zeros(batch.mask.shape)
            old = torch.zeros_like(current)
            current[batch.mask] = flat
            old[batch.mask] = tokens["old_logprobs"].to(flat.dtype)
            ratios = sequence_log_ratio(current, old, batch.mask)
            return ratios[:, None].expand_as(current)[batch.mask]

    def _value_loss(self, hidden: Tensor, tokens: Mapping[str, Tensor]) -> tuple[Tensor, float]:
        """Return the weighted loss of the value head, and its plain sum over the tokens."""
        settings = self.stage.advantages
        if not isinstance(settings, GaeAdvantages):
            return hidden.new_zeros(()), 0.0
        inputs = hidden if settings.value_gradient == "shared" else hidden.detach()
        values = self.context.learner.value_head(inputs)[:, 0]
        old_values = None if settings.value_clip is None else tokens["values"][None]
        losses = value_loss(values[None], tokens["returns"][None], old_values=old_values, clip=settings.value_clip)[0]
        return settings.value_coef * (tokens["weights"] * losses).sum(), float(losses.detach().sum())


def _selected(stage: RlStage, rewards: Tensor, counts: Mapping[str, float]) -> Tensor:
    """Return the factor `[b, 1]` on each completion's policy loss; only the losses of exploring paths select."""
    normalize = getattr(stage.loss, "normalize", None)
    if normalize is None:
        return torch.ones(len(rewards), 1)
    correct = (rewards > 0).float()[:, None]
    # With no correct completion anywhere there is nothing to divide by, and nothing to learn from.
    return correct * (counts["sequences"] / max(1.0, counts["correct"]) if normalize == "correct" else 1.0)
