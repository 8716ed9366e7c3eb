"""The KL term of an RL stage: its reference, its coefficient, its estimate, and where it enters the objective.

A placement is a class below, or one of the user's own that inherits from `KlTerm`: what it needs of the reference, and
what it adds to the rewards or to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.objectives import CustomKl, KlConfig, KlInLoss, KlInReward, NoKl
from swerve.config.stages import RlStage
from swerve.functional.kl_divergence import KlDirection, adaptive_kl_coef, exact_kl, kl_estimate
from swerve.recipes.custom import custom_class
from swerve.train.columns import SignalRecorder, TokenColumns, TokenTable
from swerve.train.context import StageContext
from swerve.train.frozen import FrozenModel, frozen_policy, load_frozen

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
    if isinstance(kl, NoKl):
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
    options = config.options if isinstance(config, CustomKl) else {}
    return kl_placement(config)(config=config, coef=coef, reference=reference, temperature=temperature, **options)


def kl_placement(config: KlConfig) -> type[KlTerm]:
    """Return the class of a placement.

    Raises:
        ConfigError: a class of the user's own cannot be loaded, is no `KlTerm`, or does not take the options.
    """
    if isinstance(config, CustomKl):
        given = [one.name for one in fields(KlTerm)]
        placement: type[KlTerm] = custom_class(config.path, KlTerm, keywords=given, options=config.options)
        return placement
    return PLACEMENTS["exact" if isinstance(config, KlInLoss) and config.is_exact else config.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class KlTerm:
    """No KL term, and the base of the placements: a placement overrides what it does otherwise.

    One is made for each step.
    """

    needs_old_logprobs: ClassVar[bool] = False
    """Whether the policy before the updates is scored even for a single update."""

    config: KlConfig
    coef: float | None
    """In this step; None without a KL term."""
    reference: FrozenModel | None
    """None without a KL term, and with a coefficient of 0."""
    temperature: float
    """Of the stage: policy and reference are compared at it."""

    @property
    def is_in_loss(self) -> bool:
        """Whether the placement has a term in the loss."""
        return type(self).in_loss is not KlTerm.in_loss

    def ref_logprobs(self, batches: Sequence[TokenBatch], table: TokenTable) -> Tensor | None:
        """Return the reference's log-probabilities `[B, T]`, where the estimate is made of them."""
        return None

    def ref_logits(self, batch: TokenBatch) -> RefLogits | None:
        """Return the reference's logits of a micro-batch, where the estimate is made of them."""
        return None

    def with_advantages(self, columns: TokenColumns, table: TokenTable, estimate: Estimate) -> TokenColumns:
        """Return the columns with the advantages, from which a KL in the reward takes its part.

        Args:
            columns: `[B, T]` each, of the step, on the CPU; `reward_kl` of the result is what is logged and recorded.
            table: the step's completions; its `mask` says where a token is.
            estimate: `estimate()` returns the columns with the advantages; `estimate(before=penalty)` and
                `estimate(after=penalty)` subtract a penalty `[B, T]` of each token before or after the baseline.
        """
        return estimate()

    def in_loss(
        self, logits: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns, ref_logits: Tensor | None
    ) -> Tensor | None:
        """Return the KL at each token of a chunk `[n]`, nats, where it is in the loss; `coef` multiplies it.

        Args:
            logits: `[n, V]` of the policy, at the temperature.
            logprobs: `[n]` of the sampled tokens, with their gradient.
            old: `[n]`, the same before the step's updates.
            tokens: the columns, `[n]` each.
            ref_logits: `[n, V]` of the reference at temperature 1, where `ref_logits()` gives them.
        """
        return None

    def recorded(self, columns: TokenColumns, recorder: SignalRecorder) -> Tensor | None:
        """Return the KL at every token `[B, T]`, nats, before the updates moved the policy."""
        return columns.reward_kl


class SampledKl(KlTerm):
    """Estimated from the log-probabilities of the sampled tokens: `columns.ref_logprobs` has the reference's."""

    __slots__ = ()

    def ref_logprobs(self, batches: Sequence[TokenBatch], table: TokenTable) -> Tensor | None:
        """See the base class."""
        if self.reference is None:
            return None
        return self.reference.logprobs(batches, table, temperature=self.temperature)


class _EstimatedKl(SampledKl):
    """Estimated as `kl.estimator` says."""

    __slots__ = ()
    config: KlInReward | KlInLoss

    def _before_updates(self, columns: TokenColumns) -> Tensor | None:
        if columns.old_logprobs is None or columns.ref_logprobs is None:
            return None
        return kl_estimate(columns.old_logprobs, columns.ref_logprobs, **{**self.config.keywords, "importance": False})


class _KlInReward(_EstimatedKl):
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


class _KlInLoss(_EstimatedKl):
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
