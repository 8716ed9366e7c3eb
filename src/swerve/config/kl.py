"""The KL term of an RL objective: its placements, their keys, and the combinations that would do nothing."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from swerve.config.base import Choice, NonNegative, Positive


class NoKl(Choice):
    """No KL term, and no reference model."""

    coef: ClassVar[None] = None
    reference: ClassVar[None] = None
    kind: Literal["none"] = "none"


class _Kl(Choice):
    own_keys = frozenset({"coef", "reference", "target", "horizon", "force", "order"})
    coef: NonNegative = 0.01
    """Weight of the term; 0 leaves the reference out."""
    reference: str | None = None
    """Folder or hub name of the reference model; the policy that the stage begins with by default."""
    target: Positive | None = None
    """Adapt the coefficient to this KL, in nats a token."""
    horizon: Positive = 10000.0
    """Completions over which the adapted coefficient moves by its whole error."""
    force: bool = False
    """Allow a combination that does not do what its name says."""

    @model_validator(mode="after")
    def _check_target(self) -> _Kl:
        if self.target is not None and self.coef == 0:
            raise ValueError("kl.target adapts kl.coef by factors, and 0 stays 0: give a coef above 0")
        return self


_REWARD_REFUSED = (
    "its expected gradient in the reward is not that of the KL, because the estimator's own dependence on the policy "
    "is left out; use k1 (unbiased), or put the term into the loss"
)
_K1_IN_LOSS_REFUSED = (
    "its expected gradient is zero, so it only adds noise; use k2 or exact_reverse (the gradient of the reverse KL), "
    "k3 (of the forward KL), importance: true, or put k1 into the reward"
)
_CORRECTED_TWICE = (
    "both give k3 the gradient of the reverse KL, and together that of no divergence; use k3 with importance, or k3+"
)


class KlInReward(_Kl):
    """KL subtracted from the reward."""

    kind: Literal["reward"] = "reward"
    estimator: Literal["k1", "k2", "k3", "abs"] = "k1"
    order: Literal["before", "after"] = "before"
    """Subtract the completion's sum before the baseline, or the sum to go of each token after it."""
    input_clamp: Positive | None = None
    """Log-ratios are clamped to plus or minus this."""
    output_clamp: Positive | None = None
    """Estimates are clamped to plus or minus this."""

    @model_validator(mode="after")
    def _check_names(self) -> KlInReward:
        if self.estimator != "k1" and not self.force:
            raise ValueError(f"kl.estimator {self.estimator} in the reward: {_REWARD_REFUSED}; or set force: true")
        return self


class KlInLoss(_Kl):
    """KL added to the loss of each token."""

    kind: Literal["loss"] = "loss"
    estimator: Literal["k1", "k2", "k3", "k3+", "abs", "exact_reverse", "exact_forward", "exact_js"] = "k3"
    importance: bool = False
    """Multiply the estimate by the policy's ratio to the policy at sampling time: k3 then has the gradient of k2."""
    input_clamp: Positive | None = None
    output_clamp: Positive | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the whole vocabulary is summed over."""
        return self.estimator.startswith("exact_")

    @model_validator(mode="after")
    def _check_names(self) -> KlInLoss:
        if self.estimator == "k1" and not self.importance and not self.force:
            raise ValueError(f"kl.estimator k1 in the loss: {_K1_IN_LOSS_REFUSED}; or set force: true")
        if self.estimator == "k3+" and self.importance and not self.force:
            raise ValueError(f"kl.estimator k3+ with importance: {_CORRECTED_TWICE}; or set force: true")
        if self.is_exact and (self.importance or self.input_clamp is not None or self.output_clamp is not None):
            raise ValueError(f"kl.estimator {self.estimator} takes neither importance nor clamps")
        return self


KlConfig = Annotated[NoKl | KlInReward | KlInLoss, Field(discriminator="kind")]


def check_kl(kl: KlConfig, *, loss: str, is_selector: bool, advantages: str, num_rollouts: int) -> None:
    """Raise ValueError if the KL does not fit the stage's loss, its advantages or its rollouts per step."""
    if is_selector and kl.kind == "reward":
        raise ValueError(
            f"loss {loss} asks only whether the reward is positive, so a KL in the reward has no effect; use kl: loss"
        )
    if advantages == "gae" and kl.kind == "reward" and kl.order == "after":
        raise ValueError("advantages gae: the KL is part of the token rewards; use kl.order: before")
    if kl.kind != "none" and kl.target and not num_rollouts < 5 * kl.horizon:
        raise ValueError(
            f"kl.horizon ({kl.horizon:g}) is too short for {num_rollouts} completions a step; it must be above "
            f"{num_rollouts / 5:g}"
        )
