"""What the problems are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swerve.config.base import Model, PositiveInt, Probability

__all__ = ["AdditionTask", "KnightsKnavesTask", "TaskConfig"]


class AdditionTask(Model):
    """Column addition written out digit by digit."""

    kind: Literal["addition"] = "addition"
    digits: Annotated[int, Field(ge=2, le=12)] = 4
    num_train: PositiveInt = 16000
    """Distinct training problems; operand pairs never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of columns that sum to 10 or 11 whose carry the supervised traces forget."""
    slip_rate: Probability = 0.005
    """Share of the digits of column sums that are replaced by a random one."""


class KnightsKnavesTask(Model):
    """Knights always tell the truth, knaves always lie: who is what?"""

    kind: Literal["knights_knaves"] = "knights_knaves"
    people: Annotated[int, Field(ge=2, le=3)] = 2
    num_train: PositiveInt = 16000
    """Training problems; statement structures never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of the misread cases of "if" and "or" that the supervised traces get wrong."""
    slip_rate: Probability = 0.005
    """Share of judged truth values that are flipped."""


TaskConfig = Annotated[AdditionTask | KnightsKnavesTask, Field(discriminator="kind")]
