"""The KL term of an RL stage: its reference, its coefficient, its estimate, and where it enters the objective.

A placement is a class below: what it needs of the reference, and what it adds to the rewards or to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.objectives import KlConfig, KlInLoss, KlInReward
from swerve.config.stages import RlStage
from swerve.functional.kl_divergence import KlDirection, adaptive_kl_coef, exact_kl, kl_estimate
from swerve.train.columns import SignalRecorder, TokenColumns, TokenTable
from swerve.train.frozen import FrozenModel, frozen_policy, load_frozen
from swerve.train.stages.context import StageContext

RefLogits: TypeAlias = Callable[[slice], Tensor]
"""rows of a micro-batch's tokens -> the reference's logits `[n, V]`."""
Estimate: TypeAlias = Callable[..., TokenColumns]
"""(penalties of each token `before` or `after` the baseline) -> the step's columns with their advantages."""

_DIRECTIONS: Mapping[str, KlDirection] = {"exact_reverse": "reverse", "exact_forward": "forward", "exact_js": "js"}


def kl_reference(stage: RlStage, context: StageContext) -> FrozenModel | None:
    """Return the model that the stage is kept near: the one it names, or the policy it begins with."""
    if not stage.kl.coef:
        return None
    return load_frozen(stage.kl.reference, context) if stage.kl.reference else frozen_policy(context)


def kl_coefficient(stage: RlStage, last: Mapping[str, Any]) -> float | None:
    """Return the coefficient of the step after the one with the metrics `last`; None without a KL term."""
    kl = stage.kl
    if kl.kind == "none":
        return None
    coef: float = last.get("kl_coef", kl.coef)
    if not kl.target or last.get("kl") is None:
        return coef
    count = stage.prompts_per_step * stage.samples_per_prompt
    return adaptive_kl_coef(coef, kl=last["kl"], target=kl.target, horizon=kl.horizon, num_samples=count)


def kl_term(
    config: KlConfig, *, coef: float | None = None, reference: FrozenModel | None = None, temperature: float = 1.0
) -> KlTerm:
    """Return the KL term of one step, by its placement."""
    placement = "exact" if config.kind == "loss" and config.is_exact else config.kind
    return PLACEMENTS[placement](config=config, coef=coef, reference=reference, temperature=temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class KlTerm:
    """No KL term, and the base of the placements."""

    needs_old_logprobs: ClassVar[bool] = False
    """Whether the policy before the updates is scored even for a single update."""

    config: KlConfig
    coef: float | None
    """In this step; None without a KL term."""
    reference: FrozenModel | None
    temperature: float

    def ref_logprobs(self, batches: Sequence[TokenBatch], table: TokenTable) -> Tensor | None:
        """Return the reference's log-probabilities `[B, T]`, where the estimate is made of them."""
        return None

    def ref_logits(self, batch: TokenBatch) -> RefLogits | None:
        """Return the reference's logits of a micro-batch, where the estimate is made of them."""
        return None

    def with_advantages(self, columns: TokenColumns, table: TokenTable, estimate: Estimate) -> TokenColumns:
        """Return the columns with the advantages, from which a KL in the reward takes its part."""
        return estimate()

    def in_loss(
        self, logits: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns, ref_logits: Tensor | None
    ) -> Tensor | None:
        """Return the KL at each token of a chunk `[n]`, nats, where it is in the loss."""
        return None

    def recorded(self, columns: TokenColumns, recorder: SignalRecorder) -> Tensor | None:
        """Return the KL at every token `[B, T]`, nats, before the updates moved the policy."""
        return columns.reward_kl


class _SampledKl(KlTerm):
    """Estimated from the log-probabilities of the sampled tokens."""

    __slots__ = ()
    config: KlInReward | KlInLoss

    def ref_logprobs(self, batches: Sequence[TokenBatch], table: TokenTable) -> Tensor | None:
        if self.reference is None:
            return None
        return self.reference.logprobs(batches, table, temperature=self.temperature)

    def _before_updates(self, columns: TokenColumns) -> Tensor | None:
        if columns.old_logprobs is None or columns.ref_logprobs is None:
            return None
        return kl_estimate(columns.old_logprobs, columns.ref_logprobs, **{**self.config.keywords, "importance": False})


class _KlInReward(_SampledKl):
    """Subtracted from the rewards, in the order that the recipe says."""

    __slots__ = ()
    config: KlInReward
    needs_old_logprobs = True

    def with_advantages(self, columns: TokenColumns, table: TokenTable, estimate: Estimate) -> TokenColumns:
        kl = self._before_updates(columns)
        if kl is None:
            return estimate()
        kl = kl.where(table.mask, 0.0)
        return replace(estimate(**{self.config.order: (self.coef or 0.0) * kl}), reward_kl=kl)


class _KlInLoss(_SampledKl):
    """Added to the loss of each token."""

    __slots__ = ()
    config: KlInLoss

    def in_loss(
        self, logits: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns, ref_logits: Tensor | None
    ) -> Tensor | None:
        if not self.coef or tokens.ref_logprobs is None:
            return None
        old_logprobs = old[None] if self.config.importance else None
        return kl_estimate(
            logprobs[None], tokens.ref_logprobs[None], old_logprobs=old_logprobs, **self.config.keywords
        )[0]

    def recorded(self, columns: TokenColumns, recorder: SignalRecorder) -> Tensor | None:
        if self.reference is None:
            return None
        before = self._before_updates(columns)
        return recorder.first("kl") if before is None else before


class _ExactKlInLoss(KlTerm):
    """Added to the loss of each token, summed over the whole vocabulary."""

    __slots__ = ()
    config: KlInLoss

    def ref_logits(self, batch: TokenBatch) -> RefLogits | None:
        reference = self.reference
        if reference is None:
            return None
        hidden = reference.hidden(batch)

        def logits(rows: slice) -> Tensor:
            with torch.no_grad():
                return reference.head(hidden[rows])

        return logits

    def in_loss(
        self, logits: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns, ref_logits: Tensor | None
    ) -> Tensor | None:
        if not self.coef or ref_logits is None:
            return None
        scaled = ref_logits if self.temperature == 1.0 else ref_logits / self.temperature
        return exact_kl(logits, scaled, direction=_DIRECTIONS[self.config.estimator])

    def recorded(self, columns: TokenColumns, recorder: SignalRecorder) -> Tensor | None:
        return None if self.reference is None else recorder.first("kl")


PLACEMENTS: Mapping[str, type[KlTerm]] = {
    "none": KlTerm,
    "reward": _KlInReward,
    "loss": _KlInLoss,
    "exact": _ExactKlInLoss,
}
