"""What the stages have that learn given completions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    model_validator,
)

from swerve.config.curricula import OrderedCurriculum, ShuffledCurriculum
from swerve.config.objectives import (
    SftLoss,
)
from swerve.config.stage_base import Stage
from swerve.problems.data_specs import Specs
from swerve.settings import Model, NonNegative, PositiveInt


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
    def examples(self) -> tuple[str, ...]:
        """See the base class."""
        return self.validation

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.validation and self.validation_share:
            raise ValueError("validation and validation_share are two ways to say one thing; give one of them")
        if self.early_stopping is not None and not (self.validation or self.validation_share):
            raise ValueError("early_stopping needs a validation loss; set validation_share, such as 0.1, or validation")
        if self.early_stopping is not None and (self.checkpoints or self.checkpoint_every):
            raise ValueError("early_stopping decides which step is kept; leave checkpoints and checkpoint_every out")
        return self
