"""Who samples rollouts: the engines and their options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from swerve.settings import Choice, Custom, Model, Positive


class TorchEngineConfig(Choice):
    """The embedded engine: samples with the model itself, in the same process."""

    path: ClassVar[str] = "swerve.rollout.torch_engine:TorchEngine"

    kind: Literal["torch"] = "torch"
    share_prefixes: Literal["auto", "never"] = "auto"
    """Whether prompts that begin with one another are prefilled together where that saves a third of their tokens."""
    cache_gb: Positive | None = None
    """Gigabytes that the key-value cache takes at most; null: half of the memory that is free when sampling starts.
    Completions whose cache might outgrow it wait."""


class CustomEngineConfig(Custom):
    """A class of your own that inherits from `swerve.rollout.Engine`."""


# An engine: its configuration above, with the class that samples, and its name here.
EngineConfig = Annotated[TorchEngineConfig | CustomEngineConfig, Field(discriminator="kind")]


class RolloutConfig(Model):
    """How rollouts are sampled."""

    engine: EngineConfig = TorchEngineConfig()
