"""The stages of training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, get_args, get_type_hints

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from swerve.config.curricula import OrderedCurriculum, ShuffledCurriculum
from swerve.config.objectives import (
    ADVANTAGES,
    LOSSES,
    AdvantageConfig,
    CollapseConfig,
    CorrectionConfig,
    EntropyConfig,
    KlConfig,
    LossConfig,
    NoCorrection,
    NoKl,
    check_kl,
)
from swerve.config.presets import Preset, merged_preset, preset_notes, with_preset
from swerve.config.stage_base import BY_PHASE, OF_GROUP, ByPhase, SamplingStage, Stage
from swerve.config.supervised_stages import RejectStage, SftStage
from swerve.settings import Model, Positive, PositiveInt


class DpoStage(Stage):
    """Direct preference optimisation on on-policy pairs: a right and a wrong completion of one prompt.

    The stage begins by sampling prompts with the policy as it is, and takes the first right and the first wrong
    completion of each prompt that has both, until there are `steps` x `batch_size` pairs or `max_prompts` prompts were
    sampled. With fewer pairs than needed they repeat, and swerve says so.
    """

    kind: Literal["dpo"] = "dpo"
    curriculum: OrderedCurriculum = ShuffledCurriculum()
    """Order in which problems are drawn."""
    batch_size: PositiveInt = 32
    """Pairs in an update."""
    beta: Positive = 0.1
    """Strength of the pull towards the policy that the stage begins with."""
    samples_per_prompt: Annotated[int, Field(ge=2), OF_GROUP] = 8
    """Completions sampled of each prompt in search of a pair."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    max_prompts: PositiveInt = 1024
    """Maximum number of prompts sampled in search of `steps x batch_size` pairs."""

    @property
    def num_sampled_before(self) -> int:
        """See the base class."""
        return self.max_prompts * self.samples_per_prompt


Control = Literal["random", "inverted", "format_only", "majority", "shuffled_gold", "same"]
"""A reward in place of the grader's, to be compared with it."""
Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "sequence_sum_norm", "token_sum"]
ZeroVariance = Literal["keep", "drop", "refill"]


def _zero_variance(stage: Mapping[str, Any]) -> ZeroVariance:
    """Return `drop` for a stage in which groups with equal rewards have no gradient, else `keep`."""
    has_bonus = bool(stage["entropy"].coef or stage["entropy"].target)
    has_none = stage["advantages"].is_zero_where_equal and stage["kl"].kind == "none" and not has_bonus
    return "drop" if has_none else "keep"


_REINFORCE, _DR_GRPO = LOSSES["reinforce"](), ADVANTAGES["dr_grpo"]()


class _RlSettings(SamplingStage):
    """An RL stage as its steps are made: the stage itself, or one of its phases."""

    kind: Literal["rl"] = "rl"
    reward: Literal["real", Control] = "real"
    """What is learned from: `real`, the grader's reward; or, for comparison with it, a control: `random`, 0 or 1 by a
    coin; `inverted`, 1 less the real one; `format_only`, 1 for any answer; `majority`, 1 for the group's most frequent
    answer; `shuffled_gold`, as an answer to another problem; `same`, the real one of other samples. Rollouts, accuracy
    and curricula keep the grader's verdict."""
    preset: Preset | None = None
    """Library whose conventions the keys below follow where they are not given."""
    loss: ByPhase[LossConfig] = _REINFORCE
    """Policy loss."""
    advantages: ByPhase[AdvantageConfig] = Field(
        default_factory=lambda stage: ADVANTAGES[stage["loss"].usual_advantages](),
        json_schema_extra={"default": _DR_GRPO.model_dump()},
    )
    """Advantage estimator; by default the one that fits the loss."""
    reduction: ByPhase[Reduction] = Field(
        default_factory=lambda stage: stage["loss"].usual_reduction,
        json_schema_extra={"default": _REINFORCE.usual_reduction},
    )
    """Denominator of the loss; by default the one that fits it."""
    reduction_length: PositiveInt | None = None
    """Tokens that `sequence_sum_norm` divides by; `max_new_tokens` by default."""
    kl: ByPhase[KlConfig] = NoKl()
    """Divergence from a reference model."""
    entropy: ByPhase[EntropyConfig] = EntropyConfig()
    """Entropy bonus, and tokens that carry the loss."""
    correction: ByPhase[CorrectionConfig] = NoCorrection()
    """Importance weights of policy to sampler."""
    num_epochs: ByPhase[PositiveInt] = 1
    """Passes over each step's rollouts."""
    num_minibatches: ByPhase[PositiveInt] = 1
    """Parts of the step's groups, with one update each; shuffled again in each pass. At most `prompts_per_step`."""
    zero_variance: ByPhase[ZeroVariance] = Field(default_factory=_zero_variance, json_schema_extra={"default": "drop"})
    """Groups whose rewards are all equal: learn from them, leave them out, or sample other prompts in their place and
    leave out the groups that are still equal. By default they are left out unless they have a gradient."""
    max_refills: PositiveInt = 3
    """With `refill`: maximum number of resampling rounds in search of other groups."""
    collapse: CollapseConfig = CollapseConfig()
    """What happens at signs of a collapse."""
    keep_optimizer: ByPhase[bool] = True
    """Whether a phase continues with the optimizer's state and the learning-rate schedule of the phase before; given in
    a phase, for it alone. Without effect in the first phase."""
    keep_reference: ByPhase[bool] = True
    """Whether a phase keeps the KL reference of the phase before, as `keep_optimizer`; false: the policy that the phase
    begins with. Without effect where `kl.reference` names a model."""

    @property
    def notes(self) -> list[str]:
        """See the base class."""
        return preset_notes(self)

    @property
    def is_selector(self) -> bool:
        """Whether the reward only selects the completions to learn from (the losses of exploring paths)."""
        return self.loss.is_selector

    @property
    def num_updates(self) -> int:
        """Updates of the weights in a step."""
        return self.num_epochs * self.num_minibatches

    @model_validator(mode="after")
    def _check_selector(self) -> Self:
        if self.is_selector and self.advantages.kind != "reward":
            raise ValueError(
                f"loss {self.loss.kind} learns from completions with a positive reward: it needs advantages: reward, "
                f"got {self.advantages.kind}"
            )
        if self.is_selector and (self.num_epochs > 1 or self.correction.kind != "none"):
            raise ValueError(f"loss {self.loss.kind} has no ratio to the policy at sampling time: it takes one epoch")
        return self

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        # The KL term: what it would not do, or would do without effect.
        check_kl(
            self.kl,
            loss=self.loss.kind,
            is_selector=self.is_selector,
            advantages=self.advantages.kind,
            num_rollouts=self.prompts_per_step * self.samples_per_prompt,
        )
        if self.num_minibatches > self.prompts_per_step:
            raise ValueError(
                f"num_minibatches ({self.num_minibatches}) must be at most prompts_per_step ({self.prompts_per_step})"
            )
        # A group of one has nothing to be compared with, and its rewards are all equal.
        if self.samples_per_prompt < 2 and self.advantages.compares_group:
            raise ValueError(
                f"advantages {self.advantages.kind} compares completions of a prompt: samples_per_prompt >= 2"
            )
        if self.samples_per_prompt < 2 and self.zero_variance != "keep":
            raise ValueError(
                f"with samples_per_prompt 1 the rewards of every group are equal, and zero_variance "
                f"{self.zero_variance} would leave all of them out; use zero_variance: keep"
            )
        # A pass over the problems has none to spare.
        if self.zero_variance == "refill" and (self.epochs is not None or self.num_examples is not None):
            raise ValueError(
                "zero_variance: refill draws further prompts than a pass over the problems has; give steps in place of "
                "epochs, or use zero_variance: drop"
            )
        return self


class PhaseConfig(Model):
    """Some steps of an RL stage: the stage, with the keys changed that are given here.

    Null is as in the stage. Inside a key with a `kind`, the stage's other values stay where the kind is the same or not
    given: with `loss: clip` in the stage, a phase may say `loss: {high: 0.28}`; `mix` is replaced as a whole.

    Each phase ends with a checkpoint. The learning-rate schedule runs over the whole stage, or starts again where
    `keep_optimizer` is false. Errors and overrides count phases from 0, metrics and the report from 1.
    """

    steps: Annotated[PositiveInt, Field(le=10**9)]
    """Steps of the phase."""
    lr: Positive | None = None
    """Peak learning rate, in place of the stage's `optimizer.lr`."""

    @property
    def own(self) -> dict[str, Any]:
        """The keys of the stage that the phase changes, with their values."""
        return {key: value for key, value in self if value is not None and key not in PhaseConfig.model_fields}

    @model_serializer(mode="wrap")
    def _given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if value is not None}


def _phase_of(settings: type[Model]) -> type[PhaseConfig]:
    """Return the class of a stage's phases: beside `steps` and `lr`, the stage's keys that are `ByPhase`, or null."""
    keys: dict[str, Any] = {}
    for key, hint in get_type_hints(settings, include_extras=True).items():
        plain, *bounds = get_args(hint) if BY_PHASE in get_args(hint) else (hint,)
        if bounds:
            bounds.remove(BY_PHASE)
            value = Annotated[plain, *bounds] if bounds else plain
            keys[key] = (value | None, Field(None, description=settings.model_fields[key].description))
    return create_model(
        "PhaseConfig",
        __base__=PhaseConfig,
        __module__=__name__,
        __doc__=PhaseConfig.__doc__,
        __cls_kwargs__={"use_attribute_docstrings": False},
        **keys,
    )


if TYPE_CHECKING:
    _Phase: TypeAlias = PhaseConfig
else:
    _Phase = _phase_of(_RlSettings)


class RlStage(_RlSettings):
    """Reinforcement learning with verifiable rewards.

    A step samples `prompts_per_step` groups of `samples_per_prompt` completions and grades them. By default the loss is
    policy gradient with the reward minus its group's mean, averaged over tokens. Some defaults depend on other keys
    (`swerve config show` prints them): a `preset` sets its library's, the losses `max_prob_kl`, `fixed_target_kl`,
    `max_prob_js` and `rank_promotion_js` set `advantages: reward` and `reduction: sequence_mean`, and wherever groups
    with equal rewards have a gradient `zero_variance` is `keep`. Combinations without the effect their name says are
    refused.
    """

    phases: Annotated[tuple[_Phase, ...], Field(strict=False)] = ()
    """Parts of the stage, one after the other, with settings of their own; `steps` is then their sum."""

    @model_validator(mode="before")
    @classmethod
    def _lay_over(cls, given: Any) -> Any:
        """Lay the stage's keys over its preset's, and its phases' over the stage's."""
        if not isinstance(given, dict):
            return given
        stage = with_preset(given)
        phases = stage.get("phases")
        if not phases:
            return stage
        if not isinstance(phases, list | tuple) or not all(isinstance(phase, dict) for phase in phases):
            return {"steps": 1, **stage}  # the phases are refused, not the steps that they would give
        if stage.get("steps") is None:  # an override can say null, and cannot leave a key out
            steps = [phase.get("steps") for phase in phases]
            stage["steps"] = max(1, sum(number for number in steps if isinstance(number, int)))
        return {**stage, "phases": [_laid_over(stage, phase) for phase in phases]}

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = sum(phase.steps for phase in self.phases)
        if self.phases and self.steps != total:
            raise ValueError(
                f"steps ({self.steps}) is not the sum of the phases' steps ({total}); leave it out, or give null"
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _complete_phases(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Check each phase as a stage; write down in it what its keys make it differ in by default."""
        stage, phases = handler(given), []
        for number, phase in enumerate(stage.phases):
            try:
                settings = stage.in_phase(number)
            except ValidationError as error:
                text = error.errors()[0]["msg"].removeprefix("Value error, ")
                place = {"type": PydanticCustomError("phase", "{text}", {"text": text}), "loc": ("phases", number)}
                raise ValidationError.from_exception_data("phases", [{**place, "input": None}]) from None  # type: ignore[typeddict-item]
            values = {key: getattr(settings, key) for key in type(phase).model_fields.keys() - PhaseConfig.model_fields}
            phases.append(phase.model_copy(update={k: v for k, v in values.items() if v != getattr(stage, k)}))
        return stage.model_copy(update={"phases": tuple(phases)}) if phases else stage

    def in_phase(self, number: int) -> RlStage:
        """Return the stage as it is in one of its phases, counted from 0; `steps` stay those of the stage."""
        phase = self.phases[number]
        own = phase.model_dump(mode="json", exclude={"steps", "lr"})
        given = {**self.model_dump(mode="json", include=self.model_fields_set - {"phases"}), **own}
        given["optimizer"]["lr"] = phase.lr or self.optimizer.lr
        given["checkpoints"] = sorted(self.kept_steps)
        return RlStage.model_validate_json(json.dumps(given))

    @property
    def kept_steps(self) -> frozenset[int]:
        """See the base class; a phase's last step is one."""
        ends = accumulate(phase.steps for phase in self.phases)
        return super().kept_steps | {step for step in ends if step <= self.steps}

    @property
    def lasting_steps(self) -> frozenset[int]:
        """See the base class; a phase may begin with a reference of its own."""
        return super().lasting_steps | {sum(one.steps for one in self.phases[:at]) for at in range(1, len(self.phases))}

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        own = {f"phases.{at}.kl.reference": phase.own.get("kl") for at, phase in enumerate(self.phases)}
        every = {"kl.reference": self.kl, **own}
        return {key: kl.reference for key, kl in every.items() if kl is not None and kl.reference is not None}


def _laid_over(stage: Mapping[str, Any], phase: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value if key == "mix" else merged_preset(stage.get(key), value) for key, value in phase.items()}


class DistillStage(SamplingStage):
    """On-policy distillation: the divergence to a teacher at every token of the student's own completions.

    Rewards are recorded but do not enter the loss.
    """

    kind: Literal["distill"] = "distill"
    teacher: str
    """An earlier stage or checkpoint of this run (`rl-30`), one of another run (`RUN:rl-30`), a folder, or a hub name;
    its tokenizer must be the student's."""
    divergence: Literal["reverse", "forward", "js"] = "reverse"
    """KL(student || teacher), KL(teacher || student), or Jensen-Shannon; over the full vocabulary."""

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        return {"teacher": self.teacher}


StageConfig = Annotated[
    SftStage | DpoStage | RlStage | DistillStage | RejectStage,
    Field(discriminator="kind"),
]
