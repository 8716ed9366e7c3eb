"""The stages of training."""

from __future__ import annotations

import json
from abc import abstractmethod
from itertools import accumulate
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from swerve.config.curricula import Curriculum, OrderedCurriculum, ShuffledCurriculum, StageFilter
from swerve.config.engines import EngineConfig
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
    SftLoss,
    check_kl,
)
from swerve.config.presets import Preset, merged, with_preset
from swerve.problems.data_specs import Specs
from swerve.settings import Model, NonNegative, Positive, PositiveInt, Probability, Words


class OptimizerConfig(Model):
    """AdamW with a learning-rate schedule."""

    lr: Positive
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up: constant, linear to 0, or half a cosine to 0."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay of AdamW, on matrices only."""
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    """Decay of AdamW's mean of the gradient."""
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    """Decay of AdamW's mean of its square."""
    eps: Positive = 1e-8
    """Added to AdamW's denominator."""
    max_grad_norm: Positive | None = 1.0
    """Gradients are scaled down to this global norm; null: never."""
    moments: Literal["float32", "int8"] = "float32"
    """How AdamW's moments are kept: `int8` takes 2 bytes for a weight instead of 8, in tensors of 4,096 weights or
    more; needs `pip install 'swerve[int8]'`."""


class _Stage(Model):
    kind: str
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]*$")] = ""
    """Name of the stage and its checkpoints, in letters, digits and underscores; default: its kind."""
    steps: Annotated[PositiveInt, Field(le=10**9)]
    """Steps of the stage. A step is one update, except in `rl`: there it makes `num_epochs` x `num_minibatches` updates
    from what it samples."""
    optimizer: OptimizerConfig
    """AdamW and its schedule."""
    checkpoints: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Steps of this stage after which a checkpoint is kept. The last step always has one."""
    checkpoint_every: PositiveInt | None = None
    """Also keep a checkpoint every so many steps."""
    save_every: PositiveInt | None = None
    """Save every so many steps for resuming only; each save replaces the one before."""
    tokens_per_batch: PositiveInt = 4096
    """Tokens of one forward pass, padding included; a larger update is split, with the same result up to rounding.
    Lower it to save memory, raise it for speed on a GPU."""
    where: StageFilter = StageFilter()
    """Which of the task's problems the stage draws from."""
    mix: dict[str, Positive] = Field(default_factory=dict)
    """For a mixture: weight of each part by name; unnamed parts are not drawn. Empty: the task's weights."""
    freeze: Words = ()
    """Parameters that the stage does not train, as name patterns: `*embed_tokens*`, `model.layers.[0-9].*`. They need
    no gradient and no optimizer state. A pattern that matches nothing is an error."""

    @property
    def label(self) -> str:
        """What the stage is called in checkpoints and metrics."""
        return self.name or self.kind

    @property
    def kept_steps(self) -> frozenset[int]:
        """Steps of the stage after which a checkpoint is kept."""
        every = range(self.checkpoint_every, self.steps, self.checkpoint_every) if self.checkpoint_every else ()
        return frozenset(step for step in (*self.checkpoints, *every, self.steps) if step <= self.steps)

    @property
    def lasting_steps(self) -> frozenset[int]:
        """Those of them that `retention` leaves alone."""
        return frozenset({self.steps})

    @property
    def frozen_models(self) -> dict[str, str]:
        """Models that the stage names, by key: checkpoints of the run, folders or hub names."""
        return {}


def _length_optional(schema: dict[str, Any]) -> None:
    schema["required"].remove("steps")


class _Counted(_Stage):
    """A stage whose length may be given in passes over its data."""

    model_config = ConfigDict(json_schema_extra=_length_optional)

    epochs: Annotated[Positive, Field(le=1e6)] | None = None
    """Instead of `steps`: passes over the stage's problems, or over the responses of `data`. Not for plain text, phases
    or `zero_variance: refill`; an override also needs `steps=null`."""
    num_examples: PositiveInt | None = None
    """Examples or prompts of all steps together, counted from `epochs`; the last step takes what is left. Null: every
    step is full."""

    @model_serializer(mode="wrap")
    def _without_a_guess(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return dump(self) if self.epochs is None else {**dump(self), "steps": None}

    @property
    @abstractmethod
    def step_size(self) -> int:
        """Examples, or prompts, of a full step."""

    def size_of(self, index: int) -> int:
        """Return how many examples, or prompts, the step with 0-based number `index` has."""
        is_last = self.num_examples is not None and index == self.steps - 1
        return (self.num_examples or 0) - index * self.step_size if is_last else self.step_size

    @model_validator(mode="after")
    def _check_num_examples(self) -> Self:
        if self.num_examples is not None and -(-self.num_examples // self.step_size) != self.steps:
            raise ValueError(
                f"num_examples ({self.num_examples}) do not take {self.steps} steps of {self.step_size}; leave it out, "
                "or give epochs in place of both"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _check_length(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("epochs") is None:
            return given
        if given.get("steps") is not None or given.get("phases"):
            raise ValueError("epochs stands in place of steps and of phases; give one of them")
        return {**given, "steps": 1, "num_examples": None}  # until the data is counted


class EarlyStoppingConfig(Model):
    """When a supervised stage ends before its last step.

    The stage ends with the weights of its lowest validation loss, and later stages continue from those; the metric
    `best_step` says of which step they are.
    """

    patience: PositiveInt = 3
    """End the stage after so many validations in a row without an improvement."""
    min_delta: NonNegative = 0.0
    """Nats per token by which the validation loss must fall below the lowest so far to count as an improvement."""


class _Supervised(_Stage):
    curriculum: OrderedCurriculum = ShuffledCurriculum()
    """Order in which problems are drawn."""
    batch_size: PositiveInt = 32
    """Examples in an update."""
    loss: SftLoss = "cross_entropy"
    """Cross-entropy, or the binary KL or Jensen-Shannon divergence between the most likely token and the trace's."""
    target_gradient: Literal["live", "detached"] = "live"
    """Of the greedy losses: whether gradient flows through the most likely token's probability."""
    max_length: PositiveInt | None = None
    """Longest sequence, prompt and completion together, in tokens: longer examples are left out, text is cut. Null: as
    many as the model has positions, for text at most 1,024."""
    validation: Specs = ()
    """Examples on which the validation loss `val_loss` is measured: data specs, as for `data` of an sft stage."""
    validation_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Instead of `validation`: share of the problems, with all their examples, held out for the validation loss."""
    validate_every: PositiveInt = 50
    """Steps between validations; the last step has one too."""
    early_stopping: EarlyStoppingConfig | None = None
    """End the stage once the validation loss no longer falls, with the weights that had the lowest."""

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.validation and self.validation_share:
            raise ValueError("validation and validation_share are two ways to say one thing; give one of them")
        if self.early_stopping is not None and not (self.validation or self.validation_share):
            raise ValueError("early_stopping needs a validation loss; set validation_share, such as 0.1, or validation")
        if self.early_stopping is not None and (self.checkpoints or self.checkpoint_every):
            raise ValueError("early_stopping decides which step is kept; leave checkpoints and checkpoint_every out")
        return self


class SftStage(_Supervised, _Counted):
    """Supervised learning: of the task's supervised traces, or of responses or plain text from files.

    Responses in any layout that `swerve data import` reads are learned after their prompts, right or wrong; records
    with the field `text` alone and `.txt` files are learned whole. Recorded token ids are kept where the tokenizer is
    the model's, other texts go through its chat template, and a missing end token is added. Responses and documents
    that contain a held-out question of the task are left out and counted (`keep_heldout` keeps them).
    """

    kind: Literal["sft"] = "sft"
    data: Specs = ()
    """Data specs of responses (`swerve data select`, chats, rollouts) or of plain text (`.txt`, or the field `text`);
    none: the task's supervised traces."""
    packing: bool = True
    """For plain text: join documents, an end token after each, and cut them into sequences of `max_length`; false: each
    document has its own sequences."""

    @property
    def step_size(self) -> int:
        """See the base class."""
        return self.batch_size

    @model_validator(mode="after")
    def _check_data(self) -> SftStage:
        if self.data and (self.where != StageFilter() or self.mix or self.curriculum != ShuffledCurriculum()):
            raise ValueError("where, mix and curriculum choose problems of the task; with data leave them out")
        return self


class _Sampling(_Counted):
    curriculum: Curriculum = ShuffledCurriculum()
    """Order in which problems are drawn."""
    prompts_per_step: PositiveInt = 16
    """Prompts, and so groups, in a step."""
    samples_per_prompt: PositiveInt = 8
    """Completions sampled of each prompt: the size of a group."""
    temperature: Positive = 1.0
    """Sampling temperature; the loss uses the distributions at the same temperature."""
    failure_reward: float = 0.0
    """Reward of a completion without a verdict (no answer, a limit, a grader's error); metrics count them."""
    max_error_share: Probability = 0.5
    """Save and stop if the grader failed or reached a limit on more than this share of the last 64 or more completions;
    1: never."""
    keep_rollouts: bool = True
    """Write every step's rollouts to the run directory."""

    @property
    def step_size(self) -> int:
        """See the base class."""
        return self.prompts_per_step


class DpoStage(_Stage):
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
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    """Completions sampled of each prompt in search of a pair."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    max_prompts: PositiveInt = 1024
    """Maximum number of prompts sampled in search of `steps x batch_size` pairs."""


def _kind(value: Any) -> str | None:
    """Return the kind that a configuration names; what is no text is refused elsewhere, with its place."""
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


def _fitting_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults that differ from the fields' because of what else the stage has.

    The losses of exploring paths learn from completions with a positive reward, and take each one's mean over tokens.
    Groups whose rewards are all equal are only left out where they would have no gradient.
    """
    defaults: dict[str, Any] = {}
    advantages = _kind(given.get("advantages"))
    if getattr(LOSSES.get(_kind(given.get("loss")) or ""), "is_selector", False):
        defaults = {"advantages": {"kind": "reward"}, "reduction": "sequence_mean"}
        advantages = advantages or "reward"
    varied_only = advantages is None or getattr(ADVANTAGES.get(advantages), "is_zero_where_equal", False)
    entropy = given.get("entropy") or {}
    bonus = any(entropy.get(name) for name in ("coef", "target")) if isinstance(entropy, dict) else True
    if not varied_only or _kind(given.get("kl")) not in (None, "none") or bonus:
        defaults["zero_variance"] = "keep"
    return defaults


Control = Literal["random", "inverted", "format_only", "majority", "shuffled_gold", "same"]
"""A reward in place of the grader's, to be compared with it."""
Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "sequence_sum_norm", "token_sum"]
ZeroVariance = Literal["keep", "drop", "refill"]


class PhaseConfig(Model):
    """Some steps of an RL stage, with the stage's settings except those given here.

    Inside a key with a `kind`, the stage's other values stay where the kind is the same or not given: with `loss: clip`
    in the stage, a phase may say `loss: {high: 0.28}`. Each phase ends with a checkpoint. The learning-rate schedule
    runs over the whole stage, or starts again where `keep_optimizer` is false. Errors and overrides count phases from
    0, metrics and the report from 1.
    """

    steps: Annotated[PositiveInt, Field(le=10**9)]
    """Steps of the phase."""
    where: StageFilter | None = None
    """Which problems are drawn; null, here and below: as in the stage."""
    mix: dict[str, Positive] | None = None
    """Replaces the stage's as a whole."""
    prompts_per_step: PositiveInt | None = None
    """Prompts in a step."""
    samples_per_prompt: PositiveInt | None = None
    """Completions sampled of each prompt."""
    temperature: Positive | None = None
    """Sampling temperature."""
    lr: Positive | None = None
    """Peak learning rate, in place of the stage's `optimizer.lr`."""
    advantages: AdvantageConfig | None = None
    """Advantage estimator."""
    loss: LossConfig | None = None
    """Policy loss."""
    reduction: Reduction | None = None
    """Denominator of the loss."""
    kl: KlConfig | None = None
    """Divergence from a reference model."""
    entropy: EntropyConfig | None = None
    """Entropy bonus."""
    correction: CorrectionConfig | None = None
    """Importance weights of policy to sampler."""
    num_epochs: PositiveInt | None = None
    """Passes over each step's rollouts."""
    num_minibatches: PositiveInt | None = None
    """Parts of the step's groups, with one update each."""
    zero_variance: ZeroVariance | None = None
    """Groups whose rewards are all equal."""
    keep_optimizer: bool | None = None
    """For this phase alone; without effect in the first phase."""
    keep_reference: bool | None = None
    """For this phase alone; without effect in the first phase."""

    @model_serializer(mode="wrap")
    def _given(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if value is not None}


def _with_phases(stage: dict[str, Any]) -> dict[str, Any]:
    """Return an RL stage's keys with its `steps`, and with what its phases' keys make them differ in by default."""
    phases = stage.get("phases")
    if not phases:
        return stage
    if not isinstance(phases, list | tuple) or not all(isinstance(phase, dict) for phase in phases):
        return {"steps": 1, **stage}  # the phases are refused, not the steps that they would give
    steps = [phase.get("steps") for phase in phases]
    total = sum(number for number in steps if isinstance(number, int))
    if stage.get("steps") is None:  # an override can say null, and cannot leave a key out
        stage = {**stage, "steps": max(1, total)}
    return {**stage, "phases": [_filled_phase(stage, phase) for phase in phases]}


def _filled_phase(stage: dict[str, Any], phase: dict[str, Any]) -> dict[str, Any]:
    own = {key: value if key == "mix" else merged(stage.get(key), value) for key, value in phase.items()}
    given = {key: value for key, value in own.items() if value is not None}
    fitting, usual = _fitting_defaults({**stage, **given}), _fitting_defaults(stage)
    for key in {*fitting, *usual} - {*stage, *given}:
        if fitting.get(key) != usual.get(key):
            default = RlStage.model_fields[key].default
            own[key] = fitting.get(key, default.model_dump() if isinstance(default, Model) else default)
    return own


class RlStage(_Sampling):
    """Reinforcement learning with verifiable rewards.

    A step samples `prompts_per_step` groups of `samples_per_prompt` completions and grades them. By default the loss is
    policy gradient with the reward minus its group's mean, averaged over tokens. Some defaults depend on other keys
    (`swerve config show` prints them): a `preset` sets its library's, the losses `max_prob_kl`, `fixed_target_kl`,
    `max_prob_js` and `rank_promotion_js` set `advantages: reward` and `reduction: sequence_mean`, and wherever groups
    with equal rewards have a gradient `zero_variance` is `keep`. Combinations without the effect their name says are
    refused.
    """

    kind: Literal["rl"] = "rl"
    phases: Annotated[tuple[PhaseConfig, ...], Field(strict=False)] = ()
    """Parts of the stage, one after the other, with settings of their own; `steps` is then their sum."""
    keep_optimizer: bool = True
    """Whether a phase continues with the optimizer's state and the learning-rate schedule of the phase before."""
    keep_reference: bool = True
    """Whether a phase keeps the KL reference of the phase before; false: the policy that the phase begins with. Without
    effect where `kl.reference` names a model."""
    reward: Literal["real", Control] = "real"
    """What is learned from: `real`, the grader's reward; or, for comparison with it, a control: `random`, 0 or 1 by a
    coin; `inverted`, 1 less the real one; `format_only`, 1 for any answer; `majority`, 1 for the group's most frequent
    answer; `shuffled_gold`, as an answer to another problem; `same`, the real one of other samples. Rollouts, accuracy
    and curricula keep the grader's verdict."""
    preset: Preset | None = None
    """Library whose conventions the keys below follow where they are not given."""
    advantages: AdvantageConfig = ADVANTAGES["dr_grpo"]()
    """Advantage estimator."""
    loss: LossConfig = LOSSES["reinforce"]()
    """Policy loss."""
    reduction: Reduction = "token_mean"
    """Denominator of the loss."""
    reduction_length: PositiveInt | None = None
    """Tokens that `sequence_sum_norm` divides by; `max_new_tokens` by default."""
    kl: KlConfig = NoKl()
    """Divergence from a reference model."""
    entropy: EntropyConfig = EntropyConfig()
    """Entropy bonus, and tokens that carry the loss."""
    correction: CorrectionConfig = NoCorrection()
    """Importance weights of policy to sampler."""
    num_epochs: PositiveInt = 1
    """Passes over each step's rollouts."""
    num_minibatches: PositiveInt = 1
    """Parts of the step's groups, with one update each; shuffled again in each pass. At most `prompts_per_step`."""
    zero_variance: ZeroVariance = "drop"
    """Groups whose rewards are all equal: learn from them, leave them out, or sample other prompts in their place and
    leave out the groups that are still equal."""
    max_refills: PositiveInt = 3
    """With `refill`: maximum number of resampling rounds in search of other groups."""
    collapse: CollapseConfig = CollapseConfig()
    """What happens at signs of a collapse."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        filled = with_preset(given)
        return {**_fitting_defaults(filled), **_with_phases(filled)}

    @model_validator(mode="after")
    def _check_phases(self) -> RlStage:
        total = sum(phase.steps for phase in self.phases)
        if self.phases and self.steps != total:
            raise ValueError(
                f"steps ({self.steps}) is not the sum of the phases' steps ({total}); leave it out, or give null"
            )
        for number in range(len(self.phases)):
            try:
                self.in_phase(number)
            except ValidationError as error:
                text = error.errors()[0]["msg"].removeprefix("Value error, ")
                place = {"type": PydanticCustomError("phase", "{text}", {"text": text}), "loc": ("phases", number)}
                raise ValidationError.from_exception_data("phases", [{**place, "input": None}]) from None  # type: ignore[typeddict-item]
        return self

    def in_phase(self, number: int) -> RlStage:
        """Return the stage as it is in one of its phases, counted from 0; `steps` stay those of the stage."""
        own = self.phases[number].model_dump(mode="json", exclude={"steps", "lr"})
        given = {**self.model_dump(mode="json", exclude={"phases"}), **own}
        given["optimizer"]["lr"] = self.phases[number].lr or self.optimizer.lr
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

    @model_validator(mode="after")
    def _check_selector(self) -> RlStage:
        if self.is_selector and self.advantages.kind != "reward":
            raise ValueError(
                f"loss {self.loss.kind} learns from completions with a positive reward: it needs advantages: reward, "
                f"got {self.advantages.kind}"
            )
        if self.is_selector and (self.num_epochs > 1 or self.correction.kind != "none"):
            raise ValueError(f"loss {self.loss.kind} has no ratio to the policy at sampling time: it takes one epoch")
        return self

    @model_validator(mode="after")
    def _check_combination(self) -> RlStage:
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

    @property
    def is_selector(self) -> bool:
        """Whether the reward only selects the completions to learn from (the losses of exploring paths)."""
        return self.loss.is_selector

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        every = {"kl.reference": self.kl, **{f"phases.{at}.kl.reference": one.kl for at, one in enumerate(self.phases)}}
        return {key: kl.reference for key, kl in every.items() if kl is not None and kl.reference is not None}

    @property
    def num_updates(self) -> int:
        """Updates of the weights in a step."""
        return self.num_epochs * self.num_minibatches


class DistillStage(_Sampling):
    """On-policy distillation: the divergence to a teacher at every token of the student's own completions.

    Rewards are recorded but do not enter the loss.
    """

    kind: Literal["distill"] = "distill"
    teacher: str
    """An earlier stage or checkpoint of this run (`rl-30`), a folder in the Hugging Face layout, or a name on the hub;
    its tokenizer must be the student's."""
    divergence: Literal["reverse", "forward", "js"] = "reverse"
    """KL(student || teacher), KL(teacher || student), or Jensen-Shannon; over the full vocabulary."""

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        return {"teacher": self.teacher}


class RejectStage(_Supervised):
    """Distillation by rejection sampling: a teacher's right completions, then supervised learning of them.

    The stage begins by sampling `num_prompts` problems with the teacher; the right completions it keeps are written to
    `rollouts/STAGE_selected.parquet` in the run. A teacher with another tokenizer is asked through its own chat
    template.
    """

    kind: Literal["reject"] = "reject"
    teacher: str | None = None
    """An earlier stage or checkpoint of this run (`rl-30`), a folder in the Hugging Face layout, or a name on the hub;
    null: the policy as it is when the stage begins."""
    engine: EngineConfig | None = None
    """Who samples; null: the engine of `rollout`."""
    num_prompts: PositiveInt = 1024
    """Problems that are sampled; at most those there are."""
    samples_per_prompt: PositiveInt = 4
    """Completions sampled of each problem."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    per_problem: PositiveInt = 1
    """Right completions kept of each problem, chosen at random among the different ones."""

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        return {} if self.teacher is None else {"teacher": self.teacher}


StageConfig = Annotated[
    SftStage | DpoStage | RlStage | DistillStage | RejectStage,
    Field(discriminator="kind"),
]
