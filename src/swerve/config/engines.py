"""Who samples rollouts: the engines and their options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from swerve.settings import Choice, Custom, Model, NonNegative, Positive, PositiveInt, Words


class TorchEngineConfig(Choice):
    """The embedded engine: samples with the model itself, in the same process."""

    path: ClassVar[str] = "swerve.rollout.torch_engine:TorchEngine"

    kind: Literal["torch"] = "torch"
    share_prefixes: Literal["auto", "never"] = "auto"
    """Whether prompts that begin with one another are prefilled together where that saves a third of their tokens."""
    cache_gb: Positive | None = None
    """Gigabytes (10^9 bytes) that the key-value cache takes at most: completions whose cache might outgrow it wait, one
    is always sampled; null: half of the memory that is free when sampling starts."""


class ServerEngineConfig(Choice):
    """vLLM servers, each a process of its own: `swerve serve` starts one."""

    path: ClassVar[str] = "swerve.rollout.server_engine:ServerEngine"

    kind: Literal["server"] = "server"
    urls: Annotated[Words, Field(min_length=1)] = ("http://127.0.0.1:8000",)
    """Of the servers; prompts are spread over them. All of them must be there at the start, one of them later."""
    served_model: str | None = None
    """What the servers call the model; null: the first name that they list."""
    folder: str | None = None
    """New weights are written to `swerve-weights/` in it, for the servers to read by the same path; null: to a folder
    of yours in the temporary folder of this machine."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type that weights are given in; `auto`: the server's."""
    weights: Literal["folder", "transfer"] = "folder"
    """How servers get new ones: `folder`: as files; `transfer`: from the trainer's GPU to theirs (NCCL), for which the
    trainer needs vLLM, too."""
    patience: NonNegative = 300.0
    """Seconds to wait for a server at the start, and later when none answers; then the run ends."""
    timeout: Positive = 1800.0
    """Seconds that one answer may take: all samples of a prompt, or the loading of new weights."""

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            try:
                parts = urlsplit(url)
                is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                is_url = False
            if not is_url or parts.query or parts.fragment or parts.username:
                raise ValueError(f"must have the form http://HOST:PORT, got {url!r:.100}")
        return tuple(url.rstrip("/") for url in urls)


class CustomEngineConfig(Custom):
    """A class of your own that inherits from `swerve.rollout.Engine`."""


# An engine: its configuration above, with the class that samples, and its name here.
EngineConfig = Annotated[TorchEngineConfig | ServerEngineConfig | CustomEngineConfig, Field(discriminator="kind")]


class CheckConfig(Model):
    """What an engine with weights of its own is checked with whenever it is woken."""

    max_difference: Literal["auto"] | Positive = "auto"
    """Largest difference (nats) of a token's log-probability from the trainer's; their mean may be a tenth of it. auto:
    1e-3, and 1 where trainer or engine compute in bfloat16 or float16."""

    def bound(self, *types: str | None) -> float:
        """Return the largest difference, in nats, of a trainer and an engine that compute in these types.

        >>> CheckConfig().bound("float32"), CheckConfig().bound("float32", "bfloat16")
        (0.001, 1.0)
        """
        if self.max_difference == "auto":
            return 1.0 if {"bfloat16", "float16"}.intersection(types) else 1e-3
        return self.max_difference


class MismatchConfig(Model):
    """When the log-probabilities of sampler and trainer differ too much to go on."""

    stop: Positive = 0.2
    """Mean absolute difference (nats per token) above which the run stops."""
    window: PositiveInt = 10
    """Steps whose mean is taken."""


class RolloutConfig(Model):
    """How rollouts are sampled."""

    engine: EngineConfig = TorchEngineConfig()
    """What samples completions."""
    ahead: Literal[0, 1] = 0
    """1: the rollouts of a step are sampled with the weights before the update of the step before it."""
    check: CheckConfig | None = CheckConfig()
    """How an engine with weights of its own is compared with the trainer whenever it is woken; null: it is not."""
    mismatch: MismatchConfig | None = MismatchConfig()
    """When the log-probabilities of sampler and trainer differ too much; null: training never stops for it."""
