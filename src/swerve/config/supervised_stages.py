"""Stages that learn given completions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from swerve.config.curricula import OrderedCurriculum, ShuffledCurriculum, StageFilter
from swerve.config.engines import EngineConfig
from swerve.config.objectives import SftLoss
from swerve.config.stage_base import OF_GROUP, Counted, Stage
from swerve.problems.data_specs import Specs
from swerve.settings import Model, NonNegative, Positive, PositiveInt


class EarlyStoppingConfig(Model):
    """When a supervised stage ends before its last step.

    The stage ends with the weights of its lowest validation loss, and later stages continue from those; the metric
    `best_step` says of which step they are.
    """

    patience: PositiveInt = 3
    """End the stage after so many validations in a row without an improvement."""
    min_delta: NonNegative = 0.0
    """Nats per token by which the validation loss must fall below the lowest so far to count as an improvement."""


class SupervisedStage(Stage):
    """A stage that learns given completions."""

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

    @property
    def data_specs(self) -> dict[str, tuple[str, ...]]:
        """See the base class."""
        return {"validation": self.validation}

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.validation and self.validation_share:
            raise ValueError("validation and validation_share are two ways to say one thing; give one of them")
        if self.early_stopping is not None and not (self.validation or self.validation_share):
            raise ValueError("early_stopping needs a validation loss; set validation_share, such as 0.1, or validation")
        if self.early_stopping is not None and (self.checkpoints or self.checkpoint_every):
            raise ValueError("early_stopping decides which step is kept; leave checkpoints and checkpoint_every out")
        return self


class SftStage(SupervisedStage, Counted):
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

    @property
    def data_specs(self) -> dict[str, tuple[str, ...]]:
        """See the base class."""
        return {"data": self.data, **super().data_specs}

    @model_validator(mode="after")
    def _check_data(self) -> SftStage:
        if self.data and (self.where != StageFilter() or self.mix or self.curriculum != ShuffledCurriculum()):
            raise ValueError("where, mix and curriculum choose problems of the task; with data leave them out")
        return self


class RejectStage(SupervisedStage):
    """Distillation by rejection sampling: a teacher's right completions, then supervised learning of them.

    The stage begins by sampling `num_prompts` problems with the teacher; the right completions it keeps are written to
    `rollouts/STAGE_selected.parquet` in the run. A teacher with another tokenizer is asked through its own chat
    template.
    """

    kind: Literal["reject"] = "reject"
    teacher: str | None = None
    """An earlier stage or checkpoint of this run (`rl-30`), one of another run (`RUN:rl-30`), a folder, or a hub name;
    null: the policy as it is when the stage begins."""
    engine: EngineConfig | None = None
    """Who samples; null: the engine of `rollout`."""
    num_prompts: PositiveInt = 1024
    """Problems that are sampled; at most those there are."""
    samples_per_prompt: Annotated[PositiveInt, OF_GROUP] = 4
    """Completions sampled of each problem."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    per_problem: PositiveInt = 1
    """Right completions kept of each problem, chosen at random among the different ones."""

    @property
    def num_sampled_before(self) -> int:
        """See the base class."""
        return self.num_prompts * self.samples_per_prompt

    @property
    def frozen_models(self) -> dict[str, str]:
        """See the base class."""
        return {} if self.teacher is None else {"teacher": self.teacher}
