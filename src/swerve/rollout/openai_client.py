"""Any OpenAI-compatible server: what is asked, what its answers hold, and many requests at a time within a budget."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from swerve.config.engines import OpenAIEngineConfig
from swerve.errors import ConfigError, EngineError
from swerve.rollout.server_client import (
    CONNECT_SECONDS,
    MAX_BYTES,
    LateError,
    RefusedError,
    UnreachableError,
    ask,
)

_LOG = logging.getLogger(__name__)
_BYTES_PER_TOKEN = 1024
"""Of an answer, at most, for each token that it may have."""
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""Statuses after which the same request may be answered."""
_OF_REQUEST = (400, 413, 422)
"""Statuses that one request may have, and not the next."""
_MOST_WRONG = 3
"""Tries of a request whose answers are no answers, and requests in a row that are refused, before the work ends."""
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 60.0
"""Seconds between two tries: doubled each time, and between half and all of that."""
_MAX_ID = 2**31
_Answer = TypeVar("_Answer")
_SAID = ("model", "system_fingerprint")
_COUNTED = ("prompt_tokens", "completion_tokens")
_ASIDE = ("reasoning_content", "reasoning", "refusal")
"""What a message may have beside its content."""
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
    said: Mapping[str, Any] = field(default_factory=dict)
    """Model, fingerprint, numbers of tokens of the request, and what stands beside the text, by the server's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """What a server is asked, once."""

    place: str
    """What it is for, in errors."""
    path: str
    body: Mapping[str, Any]
    num: int = 1
    """Completions that are asked for."""
    depends: Any = None
    """For the caller."""

    @property
    def most(self) -> tuple[int, int]:
        """Tokens that prompt and completions can have at most: a token has a byte."""
        said = [str(message["content"]) for message in self.body.get("messages", ())]
        prompt = self.body.get("prompt", "".join(said))
        size = len(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else len(prompt)
        most_new = self.body.get("max_tokens") or self.body.get("max_completion_tokens") or 0
        return size + 64, self.num * int(most_new)  # a chat template has a few of its own


def read_texts(answer: Any, num: int) -> list[ServedText]:
    """Return the completions of an answer of `/chat/completions` or `/completions`, in order.

    Raises:
        ValueError: something is missing; what.
    """
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
        error = answer.get("error") if isinstance(answer, Mapping) else None
        raise ValueError(f"an error ({str(error)[:200]})" if error else "no choices")
    if len(choices) != num:
        raise ValueError(f"{len(choices)} choices in place of {num}")
    numbered = {choice.get("index"): choice for choice in choices} if num > 1 else {0: choices[0]}
    if set(numbered) != set(range(num)):
        raise ValueError("choices without their numbers")

    # What is said of the whole answer is said of each completion.
    said: dict[str, Any] = {name: _clean(answer[name]) for name in _SAID if isinstance(answer.get(name), str)}
    usage = answer.get("usage")
    counts = {name: usage.get(name) for name in _COUNTED} if isinstance(usage, Mapping) else {}
    said |= {name: count for name, count in counts.items() if _is_count(count)}
    texts = []
    for number in range(num):
        choice = numbered[number]
        text = _read_choice(choice, _ids(choice.get("prompt_token_ids") or answer.get("prompt_token_ids")))
        texts.append(replace(text, said={**said, **text.said}))
    return texts


def _read_choice(choice: Mapping[str, Any], prompt_ids: tuple[int, ...]) -> ServedText:
    """Return one completion of an answer. Raises ValueError where something is missing."""
    # A text, or a message whose content is one, parts of one, or nothing beside tool calls and refusals.
    message, text = choice.get("message"), choice.get("text")
    aside = {}
    if isinstance(message, Mapping):
        text = message.get("content")
        text = "" if text is None else text
        aside = {name: _clean(message[name]) for name in _ASIDE if isinstance(message.get(name), str) and message[name]}
    if isinstance(text, list):
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
    if not isinstance(text, str):
        raise ValueError("a choice without a text")
    reason = choice.get("finish_reason")
    if not isinstance(reason, str):
        raise ValueError("a choice without a finish_reason: it was cut off")

    # Ids, and their log-probs where there is one for each.
    ids, given = _ids(choice.get("token_ids")), choice.get("logprobs")
    given = given if isinstance(given, Mapping) else {}
    listed = given.get("token_logprobs")
    if isinstance(given.get("content"), list):
        listed = [token.get("logprob") if isinstance(token, Mapping) else None for token in given["content"]]
    are_logprobs = isinstance(listed, list) and all(
        isinstance(value, int | float) and math.isfinite(value) for value in listed
    )
    logprobs = tuple(map(float, listed)) if are_logprobs and listed and len(listed) == len(ids) else ()
    reason = _clean(_REASONS.get(reason, reason))[:40]
    known = prompt_ids if ids else ()
    return ServedText(
        text=_clean(text), finish_reason=reason, prompt_ids=known, token_ids=ids if known else (),
        logprobs=logprobs if known else (), said=aside,
    )  # fmt: skip


def _clean(text: str) -> str:
    """Return a text that UTF-8 can hold: JSON may have halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_ID


def _ids(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) and all(map(_is_count, value)) else ()


class OpenAIClient:
    """Asks one server, `concurrency` requests at a time, and keeps to the budget."""

    def __init__(self, config: OpenAIEngineConfig) -> None:
        """Keep how to ask.

        Raises:
            ConfigError: the environment variable of the key is not set, or holds no key.
        """
        if config.key is not None:
            key = os.environ.get(config.key, "").strip()
            if not key or not key.isascii() or not key.isprintable():
                raise ConfigError(
                    f"rollout.engine.key={config.key}: this environment variable "
                    f"{'holds no key' if key else 'is not set'}; set it, or name another"
                )
        self._config = config
        self.used = [0, 0]
        """Tokens of prompts and completions that were paid for."""
        self._not_before = 0.0
        """When the server wants to be asked again, by the monotonic clock."""
        self._warned: set[str] = set()
        self._gives_up = asyncio.Event()
        """Set where no other request is sent, and none is sent again."""
        self._num_done = 0

    def models(self) -> dict[str, Mapping[str, Any]]:
        """Return what the server lists, by name; empty where it lists nothing.

        Raises:
            EngineError: it does not answer, or refuses the key.
        """

        async def look() -> Any:
            try:
                return await self._persist(lambda: self._ask("GET", "/models", within=CONNECT_SECONDS))
            except RefusedError as error:
                if error.status in (401, 403):
                    raise
                return None  # some gateways list nothing

        self._gives_up = asyncio.Event()
        with asyncio.Runner() as runner:
            answer = runner.run(look())
        entries = answer.get("data") if isinstance(answer, Mapping) else None
        listed = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
        return {str(entry["id"]): entry for entry in listed if "id" in entry}

    def each(self, requests: Iterable[TextRequest]) -> Generator[tuple[TextRequest, list[ServedText]]]:
        """Yield each request with its completions, as they come.

        A request that fails for good does not end the others, unless it is the server's fault: nothing has come since
        it first failed, or several fail in a row. What is open is waited for, as it is paid for. Close the generator if
        you leave it early.

        Raises:
            EngineError: requests failed, or the budget is used up; after all the others.
        """
        waiting, failures = deque(requests), list[str]()
        num_refused, self._num_done = 0, 0
        self._gives_up = asyncio.Event()
        with asyncio.Runner() as runner:
            loop, tasks = runner.get_loop(), dict[asyncio.Task[Any], TextRequest]()
            while waiting or tasks:
                # As many as may be open, and as the budget has room for.
                while waiting and len(tasks) < self._config.concurrency and not self._gives_up.is_set():
                    if self._reason_to_stop(waiting[0], list(tasks.values())):
                        break
                    request = waiting.popleft()
                    tasks[loop.create_task(self._texts(request))] = request
                if not tasks:
                    break
                finished, _ = runner.run(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
                for task in finished:
                    request = tasks.pop(task)
                    try:
                        texts = task.result()
                    except EngineError as error:
                        failures.append(f"{request.place}: {error}")
                        num_refused += 1
                        if num_refused >= _MOST_WRONG:
                            self._gives_up.set()
                        continue
                    num_refused, self._num_done = 0, self._num_done + 1
                    yield request, texts
                    self.count(texts[0].said)

        # What is missing is said by its first reason.
        kept = "what came is kept, and the same command asks for the rest"
        if failures:
            raise EngineError(f"{failures[0]}; {len(failures)} requests failed; {kept}")
        if waiting:
            raise EngineError(f"{self._reason_to_stop(waiting[0], [])}; {kept}")

    @property
    def has_budget(self) -> bool:
        """Whether there is an end to what may be used."""
        return self._config.max_tokens is not None or self._config.max_cost is not None

    def count(self, said: Mapping[str, Any]) -> None:
        """Count what a completion has used.

        Raises:
            EngineError: there is a budget, and the server does not say it.
        """
        for place, name in enumerate(_COUNTED):
            if name not in said and self.has_budget:
                raise EngineError(
                    f"{self._config.url} does not say how many tokens it used (usage.{name}), so that "
                    "rollout.engine.max_tokens and max_cost cannot be kept; leave them out"
                )
            self.used[place] += said.get(name, 0)

    def cost(self, tokens: Sequence[int]) -> float | None:
        """Return what tokens of prompts and completions cost; None where there are no prices."""
        prices = self._config.prices
        return None if prices is None else sum(map(float.__mul__, prices, map(float, tokens))) / 1e6

    def used_text(self) -> str:
        """Return what was used in words."""
        cost = self.cost(self.used)
        costs = "" if cost is None else f", cost {cost:.4g}"
        return f"{self.used[0]:,} tokens of prompts and {self.used[1]:,} of completions{costs}"

    def _reason_to_stop(self, request: TextRequest, others: Sequence[TextRequest]) -> str | None:
        """Return why a request may not be sent while others are open; None where the budget has room for all."""
        if not self.has_budget:
            return None
        most = [self.used[place] + sum(each.most[place] for each in (request, *others)) for place in (0, 1)]
        cost = self.cost(most)
        if self._config.max_tokens is not None and sum(most) > self._config.max_tokens:
            return (
                f"rollout.engine.max_tokens={self._config.max_tokens} has no room for another answer: "
                f"{self.used_text()} are used, and it may take {sum(request.most):,}"
            )
        if self._config.max_cost is not None and cost is not None and cost > self._config.max_cost:
            return (
                f"rollout.engine.max_cost={self._config.max_cost:g} has no room for another answer: "
                f"{self.used_text()} are used, and it may cost {self.cost(request.most):.4g}"
            )
        return None

    async def _texts(self, request: TextRequest) -> list[ServedText]:
        """Return the completions of a request, which is sent until there are some."""

        async def ask_once() -> list[ServedText]:
            max_bytes = MAX_BYTES + _BYTES_PER_TOKEN * request.most[1]
            answer = await self._ask("POST", request.path, request.body, max_bytes=max_bytes)
            try:
                return read_texts(answer, request.num)
            except ValueError as error:
                raise EngineError(f"{self._config.url}: the answer to POST {request.path} has {error}") from None

        return await self._persist(ask_once)

    async def _persist(self, ask_once: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return what asking returns, which is tried again while that makes sense and `patience` lasts.

        Raises:
            EngineError: it failed for good, with what to do; `RefusedError` where the server said so.
        """
        failed_first, num_done, tries = None, 0, 0
        while True:
            await self._pause(self._not_before - time.monotonic())
            try:
                result = await ask_once()
            except UnreachableError as error:
                reason: EngineError = LateError(f"{self._config.url}: {error}; is the server there?")
            except EngineError as error:
                reason = error
            else:
                self._warned.clear()
                return result

            # When it may be tried again: a wait that a server asks for is for all requests.
            now, tries = time.monotonic(), tries + 1
            if failed_first is None:
                failed_first, num_done = now, self._num_done
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**tries) * random.uniform(0.5, 1)
            wait = reason.retry_after if isinstance(reason, RefusedError) else 0.0
            if wait:
                delay = wait + random.uniform(0, _FIRST_DELAY)
            is_over = now + delay - failed_first > self._config.patience or tries >= _most_tries(reason)
            if not is_over:
                self._not_before = max(self._not_before, now + wait)
                self._warn(reason)
                is_over = await self._pause(delay)
            if is_over:
                if num_done == self._num_done and not _is_of_request(reason):
                    self._gives_up.set()
                raise self._final(reason, wait)

    async def _pause(self, seconds: float) -> bool:
        """Wait; return whether the others gave up before."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gives_up.wait(), seconds)
        return self._gives_up.is_set()

    def _warn(self, reason: EngineError) -> None:
        """Say once what is waited for, until an answer comes."""
        kind = str(getattr(reason, "status", type(reason).__name__))
        if kind not in self._warned:
            self._warned.add(kind)
            _LOG.warning(f"{reason}; asked again for {self._config.patience:g} s at most")

    def _final(self, reason: EngineError, wait: float) -> EngineError:
        """Return a failure with what to do about it."""
        if not isinstance(reason, RefusedError):
            return reason
        fix = _FIXES.get(reason.status, "")
        if reason.status in (401, 403) and self._config.key is not None:
            fix = f"; look at the key in {self._config.key}"
        if wait:
            fix = f"; it wants to be asked again after {wait:.0f} s (rollout.engine.patience waits longer)"
        return RefusedError(f"{reason}{fix}", status=reason.status)

    async def _ask(
        self, method: str, path: str, body: Any = None, *, within: float | None = None, **bounds: Any
    ) -> Any:
        timeout = within or self._config.timeout
        return await ask(
            self._config.url, method, path, body, timeout=timeout, key_name=self._config.key, **bounds
        )  # fmt: skip


_FIXES = {
    400: "; rollout.engine.body changes what is sent (null leaves a field out), rollout.engine.api=completions is for "
    "models without a chat template",
    401: "; name the environment variable with the key as rollout.engine.key",
    403: "; name the environment variable with the key as rollout.engine.key",
    404: "; rollout.engine.url ends where /chat/completions follows, in /v1 say, and the model has the server's name",
}


def _is_of_request(reason: EngineError) -> bool:
    """Whether a failure may be one request's alone."""
    return reason.status in _OF_REQUEST if isinstance(reason, RefusedError) else not isinstance(reason, LateError)


def _most_tries(reason: EngineError) -> float:
    """Return how often a request may fail so."""
    if isinstance(reason, RefusedError):
        return math.inf if reason.status in _PASSING else 1
    return math.inf if isinstance(reason, LateError) else _MOST_WRONG
