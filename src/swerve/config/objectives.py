"""The parts of an RL objective: advantages, policy loss, KL, entropy, sampler correction, collapse.

Where a part has a `kind`, the kind names a function of `swerve.functional` and the other keys are its keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from swerve.config.signatures import configurations, one_of
from swerve.settings import Choice, Custom, Model, NonNegative, Positive, PositiveInt, Probability, Share


def _check_floor(key: str, floor: float | None, cap: float) -> None:
    if floor is not None and floor > cap:
        raise ValueError(f"{key}.floor ({floor:g}) must be at most {key}.cap ({cap:g})")


class Advantages(Choice):
    """An advantage estimator."""

    compares_group: ClassVar[bool] = True
    """Whether a completion is compared with others of its prompt, so that a prompt needs two."""
    is_zero_where_equal: ClassVar[bool] = True
    """Whether a group whose rewards are all equal has no gradient."""


class GroupAdvantages(Advantages):
    """Compares the completions of a group; all tokens of one share its advantage."""


class TokenAdvantages(Advantages):
    """Made over all tokens of a step."""

    compares_group = False
    is_zero_where_equal = False


class BaselineAdvantages(TokenAdvantages):
    """The same, of rewards less their group's mean."""

    compares_group = True


class RewardAdvantages(GroupAdvantages):
    """Those of a completion whatever the others of its group have."""

    compares_group = False
    is_zero_where_equal = False


class GaeAdvantages(TokenAdvantages):
    """Generalised advantage estimation with a value head that is trained beside the policy."""

    own_keys = frozenset({"whiten", "value_coef", "value_clip", "value_gradient"})
    function = "swerve.functional.advantages:gae"
    takes = ("token_rewards", "values", "mask")

    kind: Literal["gae"] = "gae"
    gamma: Share = 1.0
    """Discount per token."""
    lam: Probability = 0.95
    """0: one-step advantage from the value head; 1: the whole return."""
    whiten: bool = True
    """Whiten over all tokens of the step."""
    value_coef: NonNegative = 0.1
    """Weight of the value loss."""
    value_clip: Positive | None = 0.2
    """Values may move this far from those at sampling time; null: no bound."""
    value_gradient: Literal["shared", "detached"] = "shared"
    """Whether the value loss also changes the policy's trunk."""


class CustomAdvantages(Custom, RewardAdvantages):
    """A function of your own: rewards `[G, N]` of G groups -> advantages `[G, N]`."""

    takes = ("rewards",)


_ESTIMATORS: Mapping[str, tuple[str, type[Advantages]]] = {
    "grpo": ("functional.advantages:grpo_advantages", GroupAdvantages),
    "dr_grpo": ("functional.advantages:dr_grpo_advantages", GroupAdvantages),
    "rloo": ("functional.advantages:rloo_advantages", GroupAdvantages),
    "grpo_loo": ("functional.advantages:grpo_loo_advantages", GroupAdvantages),
    "reinforce_pp": ("functional.advantages:reinforce_pp_advantages", TokenAdvantages),
    "reinforce_pp_baseline": ("functional.advantages:reinforce_pp_baseline_advantages", BaselineAdvantages),
    "reward": ("functional.advantages:reward_advantages", RewardAdvantages),
}
"""The advantage estimators, a line each: the function, and what it does with a group."""
ADVANTAGES: Mapping[str, type[Any]] = {
    **configurations(_ESTIMATORS, suffix="Advantages"),
    "gae": GaeAdvantages,
    "custom": CustomAdvantages,
}


class PolicyLoss(Choice):
    """A policy loss."""

    is_selector: ClassVar[bool] = False
    """Whether the reward only selects the completions to learn from."""
    usual_advantages: ClassVar[str] = "dr_grpo"
    """Estimator of a stage that names none."""
    usual_reduction: ClassVar[str] = "token_mean"
    """Denominator of a stage that names none."""


class RatioLoss(PolicyLoss):
    """Made of log-probabilities; proportional to the advantage."""


class CappedLoss(RatioLoss):
    """Weighs each token by its ratio, from `floor` to `cap`."""

    if TYPE_CHECKING:
        floor: float | None  # arguments of the function
        cap: float

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        _check_floor("loss", self.floor, self.cap)
        return self


class ClippedLoss(RatioLoss):
    """Has no gradient where the ratio is outside of `low` and `high` (`clip_fraction`)."""


class PathLoss(PolicyLoss):
    """Made of whole logits, of completions with a positive reward."""

    is_selector = True
    usual_advantages = "reward"
    usual_reduction = "sequence_mean"
    own_keys = frozenset({"normalize"})
    normalize: Literal["batch", "correct"] = "batch"
    """Divide by all completions of the update, or by the correct ones."""


class CustomLoss(Custom, PolicyLoss):
    """A function of your own: log-probabilities, old ones and advantages -> the loss of each token."""

    takes = ("logprobs", "old_logprobs", "advantages")


_LOSSES: Mapping[str, tuple[str, type[PolicyLoss]]] = {
    "reinforce": ("functional.losses:reinforce_loss", RatioLoss),
    "clip": ("functional.losses:clip_loss", ClippedLoss),
    "dual_clip": ("functional.losses:dual_clip_loss", ClippedLoss),
    "cispo": ("functional.losses:cispo_loss", CappedLoss),
    "gspo": ("functional.losses:gspo_loss", ClippedLoss),
    "max_prob_kl": ("functional.path_losses:max_prob_kl", PathLoss),
    "fixed_target_kl": ("functional.path_losses:fixed_target_kl", PathLoss),
    "max_prob_js": ("functional.path_losses:max_prob_js", PathLoss),
    "rank_promotion_js": ("functional.path_losses:rank_promotion_js", PathLoss),
}
"""The policy losses, a line each: the function, and what it is made of."""
LOSSES: Mapping[str, type[Any]] = {**configurations(_LOSSES, suffix="Loss"), "custom": CustomLoss}

if TYPE_CHECKING:
    AdvantageConfig: TypeAlias = Advantages
    LossConfig: TypeAlias = PolicyLoss
else:
    AdvantageConfig = one_of(ADVANTAGES)
    LossConfig = one_of(LOSSES)

SftLoss = Literal["cross_entropy", "greedy_kl", "greedy_js"]


class NoKl(Choice):
    """No KL term, and no reference model."""

    coef: ClassVar[None] = None
    reference: ClassVar[None] = None
    function = "swerve.train.kl:KlTerm"
    kind: Literal["none"] = "none"


class _Kl(Choice):
    own_keys = frozenset({"coef", "reference", "target", "horizon", "force"})
    coef: NonNegative = 0.01
    """Weight of the term; 0 without a `target` leaves the reference out."""
    reference: str | None = None
    """An earlier stage or checkpoint of the run (`sft`, `rl-30`), one of another run (`RUN:rl-30`), a folder, or a hub
    name, with the same tokenizer; null: the policy that the stage begins with."""
    target: Positive | None = None
    """Adapt the coefficient so that the metric `kl` approaches this, in nats per token."""
    horizon: Positive = 10000.0
    """Completions over which the adapted coefficient moves by a fifth at most."""

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


class _EstimatedKl(_Kl):
    force: bool = False
    """Allow a combination that does not do what its name says."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        estimator, importance = self.keywords["estimator"], self.keywords.get("importance", False)
        clamps = {self.keywords["input_clamp"], self.keywords["output_clamp"]}
        if estimator.startswith("exact_") and (importance or clamps != {None}):
            raise ValueError(f"kl.estimator {estimator} takes neither importance nor clamps")
        if self.force:
            return self
        if self.kind == "reward" and estimator != "k1":
            raise ValueError(f"kl.estimator {estimator} in the reward: {_REWARD_REFUSED}; or set force: true")
        if self.kind == "loss" and estimator == "k1" and not importance:
            raise ValueError(f"kl.estimator k1 in the loss: {_K1_IN_LOSS_REFUSED}; or set force: true")
        if estimator == "k3+" and importance:
            raise ValueError(f"kl.estimator k3+ with importance: {_CORRECTED_TWICE}; or set force: true")
        return self


class CustomKl(Custom, _Kl):
    """A placement of your own: a class that inherits from `swerve.train.kl.KlTerm`."""


_PLACEMENTS: Mapping[str, tuple[str, type[_Kl]]] = {
    "reward": ("train.kl:RewardKl", _EstimatedKl),
    "loss": ("train.kl:LossKl", _EstimatedKl),
}
"""The placements of the KL, a line each: the class, whose fields are keys."""
KL_TERMS: Mapping[str, type[Any]] = {"none": NoKl, **configurations(_PLACEMENTS, suffix="Kl"), "custom": CustomKl}

if TYPE_CHECKING:
    KlConfig: TypeAlias = NoKl | _Kl
else:
    KlConfig = one_of(KL_TERMS)


def check_kl(kl: KlConfig, *, loss: str, is_selector: bool, advantages: str, num_rollouts: int) -> None:
    """Raise ValueError if the KL does not fit the stage's loss, its advantages or its rollouts per step."""
    if is_selector and kl.kind == "reward":
        raise ValueError(
            f"loss {loss} asks only whether the reward is positive, so a KL in the reward has no effect; use kl: loss"
        )
    if advantages == "gae" and kl.keywords.get("order") == "after":
        raise ValueError("advantages gae: the KL is part of the token rewards; use kl.order: before")
    if not isinstance(kl, NoKl) and kl.target and not num_rollouts < 5 * kl.horizon:
        raise ValueError(
            f"kl.horizon ({kl.horizon:g}) is too short for {num_rollouts} completions a step; it must be above "
            f"{num_rollouts / 5:g}"
        )


class EntropyConfig(Model):
    """The policy's entropy in the loss, and which tokens learn."""

    coef: float = 0.0
    """Bonus on the entropy (nats per token); negative dampens it."""
    target: Positive | None = None
    """Raise the coefficient by `target_step` after a step with less entropy than this, lower it otherwise, never
    below `coef`."""
    target_step: Positive = 0.005
    """How much the coefficient changes after a step."""
    top_share: Share = 1.0
    """Only this share of the step's tokens, those of highest entropy, carry the policy loss."""


class NoCorrection(Choice):
    """The sampler's log-probabilities are taken to be the policy's."""

    scope: ClassVar[str] = "policy"
    kind: Literal["none"] = "none"


class _Correction(Choice):
    own_keys = frozenset({"scope", "numerator", "level"})
    cap: Positive = 2.0
    """Largest importance weight of a token."""
    level: Literal["token", "sequence", "geometric"] = "token"
    """A token is weighed by its own ratio, by the product of its completion's ratios, or by their geometric mean."""
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
    """Tokens below this weight carry no loss either."""

    @model_validator(mode="after")
    def _check_bounds(self) -> MaskedCorrection:
        _check_floor("correction", self.floor, self.cap)
        return self


CorrectionConfig = Annotated[NoCorrection | TruncatedCorrection | MaskedCorrection, Field(discriminator="kind")]


class CollapseConfig(Model):
    """When training is said to have collapsed, and what follows."""

    action: Literal["none", "warn", "stop"] = "warn"
    """Do not check; warn; save the state and stop the run."""
    window: PositiveInt = 5
    """Steps whose means are compared; no sign is checked before twice as many."""
