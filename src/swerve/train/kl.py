"""The KL term of an RL stage: its reference, its coefficient, its estimate, and where it enters the objective.

A placement is a class below, or one of the user's own that inherits from `KlTerm`: what it needs of the reference, and
what it adds to the rewards or to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

import torch
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.objectives import CustomKl, KlConfig, NoKl
from swerve.config.stages import RlStage
from swerve.functional.kl_divergence import KlDirection, KlEstimator, adaptive_kl_coef, exact_kl, kl_estimate
from swerve.recipes.custom import custom_class, load
from swerve.settings import Positive
from swerve.train.columns import SignalRecorder, TokenColumns, TokenTable, score_logprobs
from swerve.train.context import StageContext
from swerve.train.frozen import frozen_policy, load_frozen
from swerve.train.replicated_model import ReplicatedModel

RefLogits: TypeAlias = Callable[[slice], Tensor]
"""rows of a micro-batch's tokens -> the reference's logits `[n, V]`."""
Estimate: TypeAlias = Callable[..., TokenColumns]
"""(penalties of each token `before` or `after` the baseline) -> the step's columns with their advantages."""

_DIRECTIONS: Mapping[str, KlDirection] = {"exact_reverse": "reverse", "exact_forward": "forward", "exact_js": "js"}


def kl_reference(stage: RlStage, context: StageContext) -> ReplicatedModel | None:
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
    config: KlConfig, *, coef: float | None = None, reference: ReplicatedModel | None = None, temperature: float = 1.0
) -> KlTerm:
    """Return the KL term of one step, by its placement."""
    own: dict[str, Any] = config.keywords
    return kl_placement(config)(config=config, coef=coef, reference=reference, temperature=temperature, **own)


def kl_placement(config: KlConfig) -> type[KlTerm]:
    """Return the class of a placement.

    Raises:
        ConfigError: a class of the user's own cannot be loaded, is no `KlTerm`, or does not take the options.
    """
    if isinstance(config, CustomKl):
        given = [field.name for field in fields(KlTerm)]
        placement: type[KlTerm] = custom_class(config.path, KlTerm, keywords=given, options=config.options)
    else:
        placement = load(config.function)
    return placement


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
    reference: ReplicatedModel | None
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
        return score_logprobs(self.reference, batches, table, temperature=self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardKl(SampledKl):
    """KL subtracted from the reward.

    Args:
        estimator: estimate from the sampled token.
        order: subtract a completion's summed estimate before the baseline, or each token's sum from there on after the
            baseline.
        input_clamp: log-ratios are clamped to plus or minus this, in nats.
        output_clamp: estimates are clamped to plus or minus this, in nats.
    """

    estimator: Literal["k1", "k2", "k3", "abs"] = "k1"
    order: Literal["before", "after"] = "before"
    input_clamp: Positive | None = None
    output_clamp: Positive | None = None

    needs_old_logprobs = True

    def with_advantages(self, columns: TokenColumns, table: TokenTable, estimate: Estimate) -> TokenColumns:
        """See the base class."""
        if columns.old_logprobs is None or columns.ref_logprobs is None:
            return estimate()
        kl = kl_estimate(
            columns.old_logprobs,
            columns.ref_logprobs,
            estimator=self.estimator,
            input_clamp=self.input_clamp,
            output_clamp=self.output_clamp,
        )
        kl = kl.where(table.mask, 0.0)
        return replace(estimate(**{self.order: (self.coef or 0.0) * kl}), reward_kl=kl)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossKl(SampledKl):
    """KL added to the loss of each token.

    Args:
        estimator: estimate from the sampled token, or the divergence over the full vocabulary.
        importance: multiply the estimate by the policy's ratio to the policy at sampling time: k3 then has the gradient
            of k2.
        input_clamp: log-ratios are clamped to plus or minus this, in nats.
        output_clamp: estimates are clamped to plus or minus this, in nats.
    """

    estimator: Literal["k1", "k2", "k3", "k3+", "abs", "exact_reverse", "exact_forward", "exact_js"] = "k3"
    importance: bool = False
    input_clamp: Positive | None = None
    output_clamp: Positive | None = None

    @property
    def direction(self) -> KlDirection | None:
        """Of the divergence over the whole vocabulary; None where the sampled token is enough."""
        return _DIRECTIONS.get(self.estimator)

    def ref_logprobs(self, batches: Sequence[TokenBatch], table: TokenTable) -> Tensor | None:
        """See the base class."""
        return SampledKl.ref_logprobs(self, batches, table) if self.direction is None else None

    def ref_logits(self, batch: TokenBatch) -> RefLogits | None:
        """See the base class."""
        reference = self.reference
        if reference is None or self.direction is None:
            return None
        with torch.no_grad():
            hidden = reference.completion_hidden(batch)

        def logits(rows: slice) -> Tensor:
            with torch.no_grad():
                return reference.head(hidden[rows])

        return logits

    def in_loss(
        self, logits: Tensor, logprobs: Tensor, old: Tensor, tokens: TokenColumns, ref_logits: Tensor | None
    ) -> Tensor | None:
        """See the base class."""
        if not self.coef:
            return None
        if self.direction is not None:
            if ref_logits is None:
                return None
            scaled = ref_logits if self.temperature == 1.0 else ref_logits / self.temperature
            return exact_kl(logits, scaled, direction=self.direction)
        if tokens.ref_logprobs is None:
            return None
        return self._estimate(logprobs[None], tokens.ref_logprobs[None], old[None] if self.importance else None)[0]

    def recorded(self, columns: TokenColumns, recorder: SignalRecorder) -> Tensor | None:
        """See the base class."""
        if self.reference is None:
            return None
        if self.direction is not None or columns.old_logprobs is None or columns.ref_logprobs is None:
            return recorder.first("kl")
        return self._estimate(columns.old_logprobs, columns.ref_logprobs, None)

    def _estimate(self, logprobs: Tensor, ref_logprobs: Tensor, old_logprobs: Tensor | None) -> Tensor:
        """Return the estimate, multiplied by the ratio to the old policy where that is given."""
        return kl_estimate(
            logprobs,
            ref_logprobs,
            estimator=cast(KlEstimator, self.estimator),
            input_clamp=self.input_clamp,
            output_clamp=self.output_clamp,
            importance=old_logprobs is not None,
            old_logprobs=old_logprobs,
        )
