"""What every stage of training has, and those have that sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from swerve.config.curricula import Curriculum, ShuffledCurriculum, StageFilter
from swerve.schema import AlsoCalled
from swerve.settings import Model, NonNegative, Positive, PositiveInt, Probability, Words

_T = TypeVar("_T")
BY_PHASE = "may differ by phase"
ByPhase = Annotated[_T, BY_PHASE]
"""The type of a key of a stage that each of its phases may change."""
OF_GROUP = AlsoCalled(("num_samples", "num_generations", "group_size"))
"""Other names of the number of completions of a prompt."""


class OptimizerConfig(Model):
    """AdamW with a learning-rate schedule."""

    lr: Annotated[Positive, AlsoCalled(("learning_rate",))]
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


class Stage(Model):
    """A part of a run, with its length, its checkpoints and the problems that it draws from."""

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
    where: ByPhase[StageFilter] = StageFilter()
    """Which of the task's problems the stage draws from."""
    mix: ByPhase[dict[str, Positive]] = Field(default_factory=dict)
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
    def notes(self) -> list[str]:
        """What a person should know of its settings."""
        return []

    @property
    def examples(self) -> tuple[str, ...]:
        """Data specs that it learns from or validates on."""
        return tuple(spec for specs in self.data_specs.values() for spec in specs)

    @property
    def num_sampled_before(self) -> int:
        """Completions that are sampled before its first step, at most."""
        return 0

    @property
    def frozen_models(self) -> dict[str, str]:
        """Models that the stage names, by key: checkpoints of the run, folders or hub names."""
        return {}

    @property
    def data_specs(self) -> dict[str, tuple[str, ...]]:
        """The same by the stage's key that has them."""
        return {}


def _length_optional(schema: dict[str, Any]) -> None:
    schema["required"].remove("steps")


class Counted(Stage):
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


class SamplingStage(Counted):
    """A stage whose steps begin with completions of the policy."""

    curriculum: Curriculum = ShuffledCurriculum()
    """Order in which problems are drawn."""
    prompts_per_step: ByPhase[PositiveInt] = 16
    """Prompts, and so groups, in a step."""
    samples_per_prompt: Annotated[ByPhase[PositiveInt], OF_GROUP] = 8
    """Completions sampled of each prompt: the size of a group."""
    temperature: ByPhase[Positive] = 1.0
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
