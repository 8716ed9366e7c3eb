"""The parts of an RL objective: advantages, policy loss, KL, entropy, sampler correction."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from swerve.settings import Model, NonNegative, Positive, PositiveInt, Probability, Share

__all__ = [
    "AdvantageConfig",
    "CispoLoss",
    "ClipLoss",
    "CorrectionConfig",
    "DrGrpoAdvantages",
    "DualClipLoss",
    "EntropyConfig",
    "FixedTargetKlLoss",
    "GaeAdvantages",
    "GrpoAdvantages",
    "GrpoLooAdvantages",
    "GspoLoss",
    "KlConfig",
    "KlInLoss",
    "KlInReward",
    "LossConfig",
    "MaskedCorrection",
    "MaxProbJsLoss",
    "MaxProbKlLoss",
    "NoCorrection",
    "NoKl",
    "RankPromotionJsLoss",
    "ReinforceLoss",
    "ReinforcePpAdvantages",
    "ReinforcePpBaselineAdvantages",
    "RewardAdvantages",
    "RlooAdvantages",
    "SftLoss",
    "TruncatedCorrection",
]

Deviation = Literal["sample", "population"]


def _refuse_high_floor(key: str, floor: float | None, cap: float) -> None:
    if floor is not None and floor > cap:
        raise ValueError(f"{key}.floor ({floor:g}) must be at most {key}.cap ({cap:g})")


class GrpoAdvantages(Model):
    """(r - mean) / (std + eps) within the group."""

    kind: Literal["grpo"] = "grpo"
    eps: NonNegative = 1e-4
    std: Deviation = "sample"
    """Divided by n - 1 (`sample`) or n (`population`)."""


class DrGrpoAdvantages(Model):
    """Reward minus the mean of its group."""

    kind: Literal["dr_grpo"] = "dr_grpo"


class RlooAdvantages(Model):
    """Reward minus the mean of the group's others."""

    kind: Literal["rloo"] = "rloo"


class GrpoLooAdvantages(Model):
    """Mean and deviation of the group's others."""

    kind: Literal["grpo_loo"] = "grpo_loo"
    eps: NonNegative = 1e-6


class ReinforcePpAdvantages(Model):
    """Reward-to-go, whitened over all tokens of the step."""

    kind: Literal["reinforce_pp"] = "reinforce_pp"
    gamma: Share = 1.0
    std: Deviation = "sample"


class ReinforcePpBaselineAdvantages(Model):
    """Reward minus its group's mean, whitened over all tokens of the step."""

    kind: Literal["reinforce_pp_baseline"] = "reinforce_pp_baseline"
    std: Deviation = "sample"


class GaeAdvantages(Model):
    """Generalised advantage estimation with a value head that is trained beside the policy."""

    kind: Literal["gae"] = "gae"
    gamma: Share = 1.0
    lam: Probability = 0.95
    whiten: bool = True
    value_coef: NonNegative = 0.1
    """Weight of the value loss."""
    value_clip: Positive | None = 0.2
    """Values may move this far from those at sampling time; null: no bound."""
    value_gradient: Literal["shared", "detached"] = "shared"
    """Whether the value loss also changes the policy's trunk."""


class RewardAdvantages(Model):
    """The reward itself."""

    kind: Literal["reward"] = "reward"


AdvantageConfig = Annotated[
    GrpoAdvantages
    | DrGrpoAdvantages
    | RlooAdvantages
    | GrpoLooAdvantages
    | ReinforcePpAdvantages
    | ReinforcePpBaselineAdvantages
    | GaeAdvantages
    | RewardAdvantages,
    Field(discriminator="kind"),
]


class ReinforceLoss(Model):
    """-A logp."""

    kind: Literal["reinforce"] = "reinforce"


class ClipLoss(Model):
    """PPO's clipped surrogate, with bounds of their own on both sides."""

    kind: Literal["clip"] = "clip"
    low: Probability = 0.2
    high: NonNegative = 0.2
    log_ratio_clamp: Positive | None = None
    """Log-ratios are clamped to plus or minus this."""


class DualClipLoss(Model):
    """The clipped surrogate, bounded below for negative advantages too."""

    kind: Literal["dual_clip"] = "dual_clip"
    low: Probability = 0.2
    high: NonNegative = 0.2
    c: Annotated[float, Field(gt=1.0)] = 3.0
    log_ratio_clamp: Positive | None = None


class CispoLoss(Model):
    """REINFORCE weighted by the detached, capped ratio."""

    kind: Literal["cispo"] = "cispo"
    cap: Positive = 5.0
    """Largest weight (the bound itself, not 1 plus it)."""
    floor: NonNegative | None = None
    """Smallest weight."""

    @model_validator(mode="after")
    def _check_bounds(self) -> CispoLoss:
        _refuse_high_floor("loss", self.floor, self.cap)
        return self


class GspoLoss(Model):
    """The clipped surrogate with the sequence's ratio, exp(mean log-ratio of its tokens)."""

    kind: Literal["gspo"] = "gspo"
    low: Probability = 3e-4
    high: NonNegative = 4e-4


class MaxProbKlLoss(Model):
    """KL between the coins of the most likely token and of the chosen one, on correct completions."""

    kind: Literal["max_prob_kl"] = "max_prob_kl"
    target_gradient: Literal["live", "detached"] = "live"
    """Whether gradient flows through the most likely token's probability."""
    normalize: Literal["batch", "correct"] = "batch"
    """Divide by all completions of the step, or by the correct ones."""


class FixedTargetKlLoss(Model):
    """KL between a coin of fixed probability and that of the chosen token, on correct completions."""

    kind: Literal["fixed_target_kl"] = "fixed_target_kl"
    q: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    region: Literal["all", "above", "below"] = "all"
    """Where it applies: everywhere, or only where the chosen token's probability is above or below q."""
    normalize: Literal["batch", "correct"] = "batch"


class MaxProbJsLoss(Model):
    """Jensen-Shannon divergence of the same two coins as `max_prob_kl`."""

    kind: Literal["max_prob_js"] = "max_prob_js"
    target_gradient: Literal["live", "detached"] = "live"
    normalize: Literal["batch", "correct"] = "batch"


class RankPromotionJsLoss(Model):
    """Jensen-Shannon divergence to the distribution with the chosen token promoted to rank 1."""

    kind: Literal["rank_promotion_js"] = "rank_promotion_js"
    normalize: Literal["batch", "correct"] = "batch"


LossConfig = Annotated[
    ReinforceLoss
    | ClipLoss
    | DualClipLoss
    | CispoLoss
    | GspoLoss
    | MaxProbKlLoss
    | FixedTargetKlLoss
    | MaxProbJsLoss
    | RankPromotionJsLoss,
    Field(discriminator="kind"),
]

SftLoss = Literal["cross_entropy", "greedy_kl", "greedy_js"]


class NoKl(Model):
    """No KL term, and no reference model."""

    kind: Literal["none"] = "none"


class _Kl(Model):
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
    def _refuse_misnomers(self) -> KlInReward:
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
    def _refuse_misnomers(self) -> KlInLoss:
        if self.estimator == "k1" and not self.importance and not self.force:
            raise ValueError(f"kl.estimator k1 in the loss: {_K1_IN_LOSS_REFUSED}; or set force: true")
        if self.estimator == "k3+" and self.importance and not self.force:
            raise ValueError(f"kl.estimator k3+ with importance: {_CORRECTED_TWICE}; or set force: true")
        if self.is_exact and (self.importance or self.input_clamp is not None or self.output_clamp is not None):
            raise ValueError(f"kl.estimator {self.estimator} takes neither importance nor clamps")
        return self


KlConfig = Annotated[NoKl | KlInReward | KlInLoss, Field(discriminator="kind")]


class EntropyConfig(Model):
    """The policy's entropy in the loss, and which tokens learn."""

    coef: float = 0.0
    """Bonus on the entropy (nats a token); negative dampens it."""
    target: Positive | None = None
    """Raise the coefficient by `target_step` after a step with less entropy than this, lower it otherwise, never
    below `coef`."""
    target_step: Positive = 0.005
    top_share: Share = 1.0
    """Only this share of the step's tokens, those of highest entropy, carry the policy loss."""


class NoCorrection(Model):
    """The sampler's log-probabilities are taken to be the policy's."""

    kind: Literal["none"] = "none"


class _Correction(Model):
    cap: Positive = 2.0
    """Largest importance weight of a token."""
    scope: Literal["policy", "policy_and_kl"] = "policy"
    """Weigh the policy loss only, or the KL term in the loss too."""
    numerator: Literal["old", "current"] = "old"
    """The weight is this policy's probability over the sampler's: the one before the step's updates, or the current."""


class TruncatedCorrection(_Correction):
    """Importance weights of policy to sampler, truncated at `cap`."""

    kind: Literal["tis"] = "tis"


class MaskedCorrection(_Correction):
    """Importance weights of policy to sampler; tokens above `cap` are left out of the update."""

    kind: Literal["mis"] = "mis"
    floor: NonNegative | None = None
    """Tokens below this weight are left out too."""

    @model_validator(mode="after")
    def _check_bounds(self) -> MaskedCorrection:
        _refuse_high_floor("correction", self.floor, self.cap)
        return self


CorrectionConfig = Annotated[NoCorrection | TruncatedCorrection | MaskedCorrection, Field(discriminator="kind")]


class CollapseConfig(Model):
    """When training is said to have collapsed, and what follows."""

    action: Literal["none", "warn", "stop", "roll_back"] = "warn"
    window: PositiveInt = 5
    """Steps whose means are compared."""
    reward_drop: Share = 0.5
    """Share of the best window's mean reward that is lost, and of a rise above the beginning's."""
    num_sd: NonNegative = 4.0
    """Standard errors that the reward must fall by: what chance alone can do with so few groups is no collapse."""
    reward_gain: NonNegative = 0.05
    """Rise of the mean reward since the beginning that pays for a change of entropy or length."""
    entropy_drop: Share = 0.1
    """Entropy has collapsed at this share of the beginning's."""
    entropy_rise: Annotated[float, Field(gt=1.0)] = 5.0
    """Entropy has exploded at this multiple of the beginning's."""
    entropy_floor: NonNegative = 0.02
    """Nats a token; a beginning below it counts as this when a rise is measured."""
    length_drop: Share = 0.25
    """Completions have collapsed at this share of the beginning's mean length."""
    length_rise: Annotated[float, Field(gt=1.0)] = 3.0
    """Completions have exploded at this multiple of the beginning's mean length."""
    truncated_rise: Share = 0.3
    """Completions cut off at the length limit, as a share of all, beyond the beginning's."""
    grad_norm_rise: Annotated[float, Field(gt=1.0)] = 30.0
    """The gradient's norm has exploded at this multiple of its median before."""
    max_roll_backs: PositiveInt = 2
    """Roll backs of one stage; the next collapse stops the run."""
    roll_back_lr: Share = 0.5
    """The learning rate is multiplied by this after each roll back."""
