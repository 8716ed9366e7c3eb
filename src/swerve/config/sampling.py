"""What `swerve sample` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from swerve.config.engines import OpenAIEngineConfig, RolloutConfig
from swerve.config.runtime import RuntimeConfig
from swerve.problems.mixture import TaskConfig
from swerve.problems.task import Task
from swerve.schema import AlsoCalled
from swerve.settings import Asked, Model, PositiveInt

Temperature = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
"""Divides the logits; 0 takes the most likely token."""


class WorkSettings(Model):
    """Where and by what is sampled."""

    rollout: RolloutConfig = RolloutConfig()
    """By what is sampled: `engine`, as in a recipe."""
    runtime: RuntimeConfig = RuntimeConfig(max_rows=64)
    """Where: `device`, `dtype`, `max_rows` and so on, as in a recipe."""


class Sampling(Model):
    """Which of a task's problems are sampled, and how."""

    split: Literal["train", "heldout"] = "heldout"
    """Which of the task's problems are sampled."""
    problem_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Chooses and orders the task's problems, as a recipe's `seed` does."""
    limit: PositiveInt | None = None
    """Only N of the problems, the first in the order that the seed gives them; by default all."""
    num_samples: Annotated[PositiveInt, AlsoCalled(("n", "samples_per_prompt", "samples_per_problem"))] = 1
    """Completions per problem, over all temperatures."""
    temperatures: tuple[Temperature, ...] = Field(default=(1.0,), min_length=1)
    """Taken in turn: sample i of a problem has the temperature number i modulo their number."""
    max_new_tokens: PositiveInt | None = None
    """Longest completion, in tokens; by default what fits every model, at most 512."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed from which the seed of each sample is derived; the task has a separate one."""
    system: str | None = None
    """System message in place of the task's own; empty for none."""
    template: Literal["auto", "raw"] = "auto"
    """`auto` puts problems into the tokenizer's chat template, if it has one; `raw` takes their text alone, as base
    models are asked."""
    template_args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking`."""
    today: date = date(2024, 7, 26)
    """The date that a chat template is given as today's."""

    @model_validator(mode="after")
    def _check_temperatures(self) -> Self:
        count = len(self.temperatures)
        if len(set(self.temperatures)) < count:
            raise ValueError(f"temperatures {list(self.temperatures)} name one twice")
        if self.num_samples % count:
            raise ValueError(f"num_samples ({self.num_samples}) must be a multiple of the {count} temperatures")
        if 0.0 in self.temperatures and self.num_samples > count:
            raise ValueError(
                f"at temperature 0 all samples of a problem are the same: num_samples ({self.num_samples}) must be "
                f"{count}, one for each temperature"
            )
        return self

    @property
    def samples_per_temperature(self) -> int:
        """Completions of each problem at each temperature."""
        return self.num_samples // len(self.temperatures)


class SampleSettings(Sampling, WorkSettings, Asked):
    """Settings of sampling: which problems, how, and on which device."""

    task: TaskConfig
    """The task whose problems are sampled: its name, or a mapping with its `kind` and its keys."""

    if TYPE_CHECKING:  # a recipe's words are values, too

        def __init__(self, *, task: str | Mapping[str, Any] | Task, **keys: Any) -> None: ...

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if isinstance(self.rollout.engine, OpenAIEngineConfig) and self.rollout.engine.served_model is not None:
            raise ValueError("rollout.engine.served_model is not read here: give the server's name as MODEL")
        return self


@dataclass(frozen=True, slots=True)
class SampleJob:
    """One file of samples."""

    label: str
    model: Path | str
    """Folder, or `owner/name` with an optional `#revision`; of an engine of the kind `openai` the server's name."""
    settings: SampleSettings
    path: Path
