"""Who samples rollouts: the engines and their options."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator, model_validator

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
        return tuple(map(_checked_url, urls))

    @model_validator(mode="after")
    def _check_dialect(self) -> Self:
        if self.dialect == "sglang" and (self.weights == "transfer" or self.served_model is not None):
            raise ValueError("dialect=sglang takes weights=folder and no served_model: a server has one model")
        return self


def _checked_url(url: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises:
        ValueError: it is not one, or has a password in it.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.query or parts.fragment or parts.username:
        shown = "what may be a secret" if "@" in url or "?" in url else repr(url)[:100]
        raise ValueError(f"must have the form http://HOST:PORT, got {shown}")
    return url.rstrip("/")


OWN_FIELDS = ("model", "messages", "prompt", "n", "stream", "temperature", "seed")
"""Fields of a request that `body` may leave out (null) and not set: rows say what they were."""


class OpenAIEngineConfig(Choice):
    """Any OpenAI-compatible server, for sampling, evaluation and the probe's causal tests; it cannot train."""

    path: ClassVar[str] = "swerve.rollout.openai_engine:OpenAIEngine"

    kind: Literal["openai"] = "openai"
    url: str = "http://127.0.0.1:8000/v1"
    """Address that clients call the base URL; without a path `/v1` is added."""
    served_model: str | None = None
    """The server's name for the model; null: the first that it lists. `swerve sample` and `eval --model` take the name
    as MODEL."""
    key: str | None = None
    """Name of the environment variable that holds the key; null: none is sent. It is sent over https, or to this
    machine, only."""
    api: Literal["chat", "completions"] = "chat"
    """Where problems are sent as text: their messages to `/chat/completions`, or their text to `/completions`."""
    concurrency: PositiveInt = 16
    """Requests open at a time."""
    body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of each request, such as `reasoning_effort`; null leaves one of swerve's out."""
    max_tokens: PositiveInt | None = None
    """Tokens of prompts and completions together, for each file, beyond which nothing more is asked."""
    prices: tuple[NonNegative, NonNegative] | None = None
    """Price of a million tokens of prompts and of completions."""
    max_cost: Positive | None = None
    """Cost of a file, in the unit of `prices`, beyond which nothing more is asked."""
    patience: NonNegative = 300.0
    """Seconds for which a request that fails is sent again before the command ends."""
    timeout: Positive = 600.0
    """Seconds one answer may take."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        checked = _checked_url(url)
        return checked if urlsplit(checked).path else f"{checked}/v1"

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str | None) -> str | None:
        # Somebody may give the key itself, which is not to be shown.
        if key is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key):
            raise ValueError("is the name of an environment variable, in capitals, such as OPENAI_API_KEY")
        return key

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        wrong = [name for name in OWN_FIELDS if self.body.get(name) is not None]
        if wrong:
            raise ValueError(f"body may leave {wrong[0]} out (null) and not set it: it has a key or an option")
        if self.max_cost is not None and self.prices is None:
            raise ValueError("max_cost needs prices, [of prompts, of completions], each of a million tokens")
        return self


class CustomEngineConfig(Custom):
    """A class of your own that inherits from `swerve.rollout.Engine`."""


# An engine: its configuration above, with the class that samples, and its name here.
EngineConfig = Annotated[
    TorchEngineConfig | ServerEngineConfig | OpenAIEngineConfig | CustomEngineConfig, Field(discriminator="kind")
]


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
    """Stop above this mean absolute difference, in nats per token (the metric `logprob_gap`); at once above three times
    this."""
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
