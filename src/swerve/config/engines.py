"""Who samples rollouts: the engines and their options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from swerve.settings import Choice, Custom, Model, NonNegative, Positive, PositiveInt, Words


class TorchEngineConfig(Choice):
    """The embedded engine: samples with the model itself, in the same process."""

    path: ClassVar[str] = "swerve.rollout.torch_engine:TorchEngine"

    kind: Literal["torch"] = "torch"
    share_prefixes: Literal["auto", "never"] = "auto"
    """Prefill prompts with a common beginning together where that saves a third of their tokens."""
    cache_gb: Positive | None = None
    """Most gigabytes (10^9 bytes) of the key-value cache; completions that might not fit wait. Null: half of the memory
    that is free when sampling starts."""


class ServerEngineConfig(Choice):
    """Servers of vLLM or SGLang, each a process of its own: `swerve serve` starts one of vLLM."""

    path: ClassVar[str] = "swerve.rollout.server_engine:ServerEngine"

    kind: Literal["server"] = "server"
    urls: Annotated[Words, Field(min_length=1)] = ("http://127.0.0.1:8000",)
    """Addresses of the servers; each prompt goes to the one with the fewest open requests. All must answer at the
    start, one is enough later."""
    dialect: Literal["vllm", "sglang"] = "vllm"
    """What the servers are: vLLM, or SGLang with its native API (never run with a real one)."""
    served_model: str | None = None
    """The servers' name for the model; null: the first that they list."""
    folder: str | None = None
    """Folder that trainer and servers see under the same path; new weights go to `swerve-weights/` in it. Null: a
    temporary folder of this machine."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type in which weights are sent; auto: the server's."""
    weights: Literal["folder", "transfer"] = "folder"
    """How servers get new weights: as files in `folder`, or from GPU to GPU (`transfer`, by NCCL; the trainer then
    needs vLLM too)."""
    patience: NonNegative = 300.0
    """Seconds to wait for a server at the start, and later while none answers, before the run ends."""
    timeout: Positive = 1800.0
    """Seconds one answer may take: all samples of a prompt, or loading new weights."""

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

    @model_validator(mode="after")
    def _check_dialect(self) -> Self:
        if self.dialect == "sglang" and (self.weights == "transfer" or self.served_model is not None):
            raise ValueError("dialect=sglang takes weights=folder and no served_model: a server has one model")
        return self


class CustomEngineConfig(Custom):
    """A class of your own that inherits from `swerve.rollout.Engine`."""


# An engine: its configuration above, with the class that samples, and its name here.
EngineConfig = Annotated[TorchEngineConfig | ServerEngineConfig | CustomEngineConfig, Field(discriminator="kind")]


class CheckConfig(Model):
    """How an engine with weights of its own is checked after each update of its weights."""

    max_difference: Literal["auto"] | Positive = "auto"
    """Largest difference, in nats, between a token's log-probability by engine and by trainer; the mean may be a tenth
    of it. auto: 1e-3, or 1 if either computes in bfloat16 or float16."""

    def bound(self, *types: str | None) -> float:
        """Return the largest difference, in nats, of a trainer and an engine that compute in these types.

        >>> CheckConfig().bound("float32"), CheckConfig().bound("float32", "bfloat16")
        (0.001, 1.0)
        """
        if self.max_difference == "auto":
            return 1.0 if {"bfloat16", "float16"}.intersection(types) else 1e-3
        return self.max_difference


class MismatchConfig(Model):
    """When training stops because sampler and trainer disagree about log-probabilities."""

    stop: Positive = 0.2
    """Stop above this mean absolute difference, in nats per token (the metric `logprob_gap`)."""
    window: PositiveInt = 10
    """Steps over which the mean is taken."""


class RolloutConfig(Model):
    """How rollouts are sampled."""

    engine: EngineConfig = TorchEngineConfig()
    """What samples completions."""
    ahead: Literal[0, 1] = 0
    """1: sample each step's rollouts one update ahead, while the policy is updated."""
    check: CheckConfig | None = CheckConfig()
    """Compare an engine's log-probabilities with the trainer's after each update of its weights; null: never."""
    mismatch: MismatchConfig | None = MismatchConfig()
    """Stop training when sampler and trainer disagree; null: never."""
