"""What `swerve claim` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator

from swerve.config.sampling import SampleSettings
from swerve.problems.mixture import TaskConfig
from swerve.problems.task import Task
from swerve.settings import InnerShare, PositiveInt, Words


class ClaimSettings(SampleSettings):
    """The problems and samples of a card, and its parts."""

    num_samples: PositiveInt = 16
    """Samples of each problem by each model, at temperature 1."""
    parts: Words = ()
    """What is measured; by default everything."""
    some: PositiveInt = 200
    """Problems of the parts that sample many models or prompts: contamination, weights."""
    others: Annotated[tuple[TaskConfig, ...], Field(strict=False)] = ()
    """Other tasks, before and after."""
    texts: Words = ()
    """Text files whose loss is measured before and after."""
    ranks: tuple[PositiveInt, ...] = Field(default=(1, 2, 4, 8, 16), min_length=1)
    """Ranks of the parts of the weights' change that are tried."""
    directions: Annotated[int, Field(ge=0)] = 39
    """Random changes of the weights that a part is compared with; with 39 or 19 it is a test, with fewer a
    description."""
    margin: InnerShare = 0.05
    """What a part of the change may lose in accuracy and still suffice."""
    common: bool = False
    """Compare the problems that both files have, also where they are fewer than nine in ten of all."""
    study: str | None = None
    """Folder of a finished study with `controls`, for what other rewards do."""

    if TYPE_CHECKING:  # a recipe's words are values, too

        def __init__(self, *, task: str | Mapping[str, Any] | Task, **keys: Any) -> None: ...

    @field_validator("temperatures")
    @classmethod
    def _check_temperature(cls, temperatures: tuple[float, ...]) -> tuple[float, ...]:
        if temperatures != (1.0,):
            raise ValueError("a card samples at temperature 1, and greedily beside")
        return temperatures

    @property
    def sampling(self) -> SampleSettings:
        """The settings that sampling alone has."""
        return SampleSettings.model_validate(self.model_dump(include={*SampleSettings.model_fields}))
