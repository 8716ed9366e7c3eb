"""Any OpenAI-compatible server: what is asked, what its answers hold, and many requests at a time within a budget."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from swerve.artifacts.messages import read_message
from swerve.config.engines import OpenAIEngineConfig
from swerve.errors import ConfigError, EngineError, redacted
from swerve.rollout.server_client import (
    Network,
    RefusedError,
    UnreachableError,
    answer_bytes,
    ask,
    excerpt,
    listed_models,
)

_LOG = logging.getLogger(__name__)
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""Statuses after which the same request may be answered."""
_MOST_FAILED = 3
"""Requests in a row that fail for good before no other is sent."""
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 60.0
"""Seconds between two tries: doubled each time, and between half and all of that."""
COUNTED = ("prompt_tokens", "completion_tokens")
_REASONS = {
    **dict.fromkeys(("eos_token", "stop_sequence", "end_turn"), "stop"),
    **dict.fromkeys(("max_tokens", "max_length"), "length"),
}
"""How other servers call the two ends; what else one says, such as `content_filter`, is kept."""
OWN_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "vllm": {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "return_token_ids": True},
    "sglang": {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "llamacpp": {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
}
"""By what `/models` says owns a model: fields without which defaults of the program, or of the model's folder, would
change the distribution."""
_Result = TypeVar("_Result")
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Ids = tuple[_Count, ...] | None
_Logprob = Annotated[float, Field(allow_inf_nan=False)]


class _Token(BaseModel):
    logprob: _Logprob


class _Logprobs(BaseModel):
    content: tuple[_Token, ...] | None = None
    token_logprobs: tuple[_Logprob, ...] | None = None


class _Choice(BaseModel):
    finish_reason: str
    message: dict[str, Any] | None = None
    text: str | None = None
    token_ids: _Ids = None
    prompt_token_ids: _Ids = None
    logprobs: _Logprobs | None = None


class _Usage(BaseModel):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Answer(BaseModel):
    choices: tuple[_Choice]
    model: str | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: _Ids = None
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedText:
    """One completion as a server tells it."""

    text: str
    finish_reason: str
    """`stop`, `length`, or as the server says."""
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    """Empty from most servers; vLLM gives both."""
    logprobs: tuple[float, ...] = ()
    """Of `token_ids`, nats; empty: not known."""
    message: Mapping[str, Any] = field(default_factory=dict)
    """The whole message (`artifacts.messages`) where it is more than a text."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Model, fingerprint, tokens used, and types of parts that are not kept, by the server's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """One completion that a server is asked for."""

    place: str
    """What it is for, in errors."""
    path: str
    body: Mapping[str, Any]
    max_new: int
    """Tokens of the completion at most."""
    depends: Any = None
    """For the caller."""

    @property
    def most(self) -> tuple[int, int]:
        """Tokens that prompt and completion can have at most: a token has a byte."""
        return len(json.dumps(self.body)), self.max_new


def read_text(answer: Any) -> ServedText:
    """Return the one completion of an answer of `/chat/completions` or `/completions`.

    Raises:
        ValueError: it is not one completion that has ended; what the answer is.
    """
    # UTF-8 cannot hold the halves of surrogate pairs that JSON may have.
    answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
    try:
        known = _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg'].lower()}, in {excerpt(answer)!r}") from None
    (choice,) = known.choices
    message, dropped = read_message({**(choice.message or {"content": choice.text}), "role": "assistant"})

    # Ids are kept where both are there, and log-probs where there is one for each.
    prompt_ids, ids = choice.prompt_token_ids or known.prompt_token_ids or (), choice.token_ids or ()
    logprobs: tuple[float, ...] = ()
    if choice.logprobs is not None:
        logprobs = tuple(token.logprob for token in choice.logprobs.content or ())
        logprobs = logprobs or choice.logprobs.token_logprobs or ()
    has_ids = bool(prompt_ids and ids)
    usage = known.usage.model_dump() if known.usage else {}
    about = {"model": known.model, "system_fingerprint": known.system_fingerprint}  # which may repeat the key
    said = {
        **{name: value and redacted(value) for name, value in about.items()},
        **usage,
        "not_kept": dict(Counter(dropped)),
    }
    return ServedText(
        text=message["content"],
        message={} if message.keys() == {"role", "content"} else message,
        finish_reason=_REASONS.get(choice.finish_reason, choice.finish_reason),
        prompt_ids=prompt_ids if has_ids else (),
        token_ids=ids if has_ids else (),
        logprobs=logprobs if has_ids and len(logprobs) == len(ids) else (),
        said={name: value for name, value in said.items() if value or value == 0},
    )


class OpenAIClient:
    """Asks one server, `concurrency` requests at a time, and keeps to the budget."""

    def __init__(self, config: OpenAIEngineConfig) -> None:
        """Keep how to ask.

        Raises:
            ConfigError: the environment variable of the key is not set, or holds no key.
        """
        key = "none" if config.key is None else os.environ.get(config.key, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError(f"rollout.engine.key: the environment variable {config.key} is not set, or holds no key")
        self._config = config
        self.used = (0, 0)
        """Tokens of prompts and completions that were paid for."""
        self._not_before = 0.0
        """When the server wants to be asked again, by the monotonic clock."""
        self._is_warned = False
        self._gives_up = asyncio.Event()
        """Set where no other request is sent, and none is sent again."""
        self._budgets = {"max_tokens": (config.max_tokens, (1.0, 1.0)), "max_cost": (config.max_cost, self._prices)}

    @property
    def _prices(self) -> tuple[float, ...]:
        """Of a token of a prompt and of a completion."""
        return tuple(price / 1e6 for price in self._config.prices or (0.0, 0.0))

    def models(self) -> dict[str, Mapping[str, Any]]:
        """Return what the server lists, by name; empty where it lists nothing.

        Raises:
            EngineError: it does not answer, or refuses the key.
        """
        self._gives_up = asyncio.Event()
        with closing(Network()) as network:
            try:
                return listed_models(network.start(self._persist(lambda: self._ask("GET", "/models"))).result())
            except RefusedError as error:
                if error.status in (401, 403):
                    raise
                return {}  # some gateways list nothing

    def each(self, requests: Iterable[TextRequest]) -> Generator[tuple[TextRequest, ServedText]]:
        """Yield each request with its completion, as they come.

        A request that fails for good does not end the others, unless several fail in a row. What is open is waited for,
        as it is paid for. Close the generator if you leave it early.

        Raises:
            EngineError: requests failed, or the budget is used up; after all the others.
        """
        waiting, failures, num_failed = iter(requests), list[str](), 0
        open_: dict[Future[ServedText], TextRequest] = {}
        self._gives_up = asyncio.Event()
        with closing(Network()) as network:
            request = next(waiting, None)
            while request or open_:
                # As many as may be open, and as the budget has room for.
                while request and len(open_) < self._config.concurrency and not self._gives_up.is_set():
                    if self._reason_to_stop([request, *open_.values()]):
                        break
                    open_[network.start(self._text(request))] = request
                    request = next(waiting, None)
                if not open_:
                    break
                for answer in wait(open_, return_when=FIRST_COMPLETED).done:
                    asked, error = open_.pop(answer), answer.exception()
                    if isinstance(error, EngineError):
                        failures.append(f"{asked.place}: {error}")
                        num_failed += 1
                        if num_failed == _MOST_FAILED:
                            network.loop.call_soon_threadsafe(self._gives_up.set)
                        continue
                    num_failed = 0
                    yield asked, answer.result()
                    self.count(answer.result().said)

        # What is missing is said by its first reason.
        reason = f"{failures[0]}; requests that failed: {len(failures)}" if failures else None
        reason = reason or (self._reason_to_stop([request]) if request else None)
        if reason:
            raise EngineError(f"{reason}; what came is kept, and the same command asks for the rest")

    def count(self, said: Mapping[str, Any]) -> None:
        """Count what a completion has used.

        Raises:
            EngineError: there is a budget, and the server does not say it.
        """
        if any(most is not None for most, _ in self._budgets.values()) and not said.keys() >= set(COUNTED):
            raise EngineError(
                f"{self._config.url} does not say how many tokens it used (`usage`), so that rollout.engine.max_tokens "
                "and max_cost cannot be kept; leave them out"
            )
        prompts, completions = (said.get(name, 0) for name in COUNTED)
        self.used = (self.used[0] + prompts, self.used[1] + completions)

    def used_text(self) -> str:
        """Return what was used in words."""
        cost = f", cost {_total(self.used, self._prices):.4g}" if self._config.prices else ""
        return f"{self.used[0]:,} tokens of prompts and {self.used[1]:,} of completions{cost}"

    def _reason_to_stop(self, requests: Sequence[TextRequest]) -> str | None:
        """Return why so many requests may not be open; None where the budget has room for them."""
        for name, (most, prices) in self._budgets.items():
            needed = sum(_total(request.most, prices) for request in requests)
            if most is not None and _total(self.used, prices) + needed > most:
                return (
                    f"rollout.engine.{name}={most:g} has no room for another answer, which may take {needed:.4g}: used "
                    f"are {self.used_text()}"
                )
        return None

    async def _text(self, request: TextRequest) -> ServedText:
        """Return the completion of a request, which is sent until there is one."""

        async def ask_once() -> ServedText:
            answer = await self._ask("POST", request.path, request.body, max_bytes=answer_bytes(request.max_new))
            try:
                return read_text(answer)
            except ValueError as error:
                raise EngineError(f"{self._config.url}: the answer to POST {request.path} has {error}") from None

        return await self._persist(ask_once)

    async def _persist(self, ask_once: Callable[[], Awaitable[_Result]]) -> _Result:
        """Return what asking returns, which is tried again while that makes sense and `patience` lasts.

        Raises:
            EngineError: it failed for good, with what to do; `RefusedError` where the server said so.
        """
        patience, first_failure, delay = self._config.patience, None, _FIRST_DELAY
        while True:
            await self._pause(self._not_before - time.monotonic())
            try:
                result = await ask_once()
            except UnreachableError as error:
                reason = EngineError(f"{self._config.url}: {error}; is the server there?")
            except EngineError as error:
                reason = error
            else:
                self._is_warned = False
                return result

            # When it may be tried again: a wait that a server asks for is for all requests.
            now = time.monotonic()
            first_failure = now if first_failure is None else first_failure
            delay = min(_LONGEST_DELAY, 2 * delay)
            status, asked_for = (reason.status, reason.retry_after) if isinstance(reason, RefusedError) else (None, 0.0)
            pause = (asked_for or delay / 2) + delay / 2 * random.random()
            lasts = status in (None, *_PASSING) and now + pause - first_failure <= patience
            if lasts:
                self._not_before = max(self._not_before, now + asked_for)
                if not self._is_warned:
                    self._is_warned = True
                    _LOG.warning(f"{reason}; asked again for {patience:g} s at most")
            if not lasts or await self._pause(pause):
                fix = f"; it wants to be asked again after {asked_for:.0f} s" if asked_for else _FIXES.get(status, "")
                raise reason if status is None else RefusedError(f"{reason}{fix}", status=status)

    async def _pause(self, seconds: float) -> bool:
        """Wait; return whether the others gave up before."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._gives_up.wait(), max(0.0, seconds))
        return self._gives_up.is_set()

    async def _ask(self, *request: Any, **bounds: Any) -> Any:
        timeout, key = self._config.timeout, self._config.key
        return await ask(self._config.url, *request, timeout=timeout, key_name=key, **bounds)


_OF_KEY = "; rollout.engine.key names the environment variable with the key"
_FIXES: Mapping[int | None, str] = {
    400: "; rollout.engine.body changes what is sent (null leaves a field out), rollout.engine.api=completions is for "
    "models without a chat template",
    401: _OF_KEY,
    403: _OF_KEY,
    404: "; rollout.engine.url ends where /chat/completions follows, in /v1 say, and the model has the server's name",
}


def _total(tokens: Sequence[int], prices: Sequence[float]) -> float:
    return sum(num * price for num, price in zip(tokens, prices, strict=True))
