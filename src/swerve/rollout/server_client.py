"""HTTP requests to servers that sample, bounded in time, size and nesting."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from swerve.artifacts.files import parse_json
from swerve.errors import EngineError, keep_secret, redacted

CONNECT_SECONDS = 10.0
"""To open a connection, and for short answers such as that of `/health`."""
MAX_BYTES = 16 << 20
"""Of an answer without completions."""
_END_SECONDS = 5.0
"""For what is open when a client is closed."""
_BYTES_PER_TOKEN = 1024
"""Of an answer, at most, for each token that it may have: id, log-probability and their names."""
_Result = TypeVar("_Result")
_WHAT_SERVER = "is this the address of a server that samples?"
_SHOWN = 200
"""Characters of an answer that an error quotes."""
VLLM_KEY = "VLLM_API_KEY"
"""Environment variable of the key of servers that take weights."""
_KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
for _name, _value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
    if hasattr(socket, _name):  # not on every system
        _KEEP_ALIVE.append((socket.IPPROTO_TCP, getattr(socket, _name), _value))
"""A machine that is lost without a word is noticed after a minute, however long an answer may take."""


class UnreachableError(Exception):
    """A server does not answer: it has not started, has died or has just been started again."""


class RefusedError(EngineError):
    """A server answered with a status other than 2xx."""

    def __init__(self, message: str, *, status: int, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again."""


class LateError(EngineError):
    """A server has not answered in time."""


class Network:
    """A thread of its own for requests: the one that waits may have a loop too, as in notebooks, and is interrupted."""

    def __init__(self) -> None:
        """Start it."""
        self.loop = asyncio.new_event_loop()

        def run() -> None:
            self.loop.run_forever()  # until `close`
            self.loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Return what will have the result of some work."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End what is open, for other threads too."""

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self.loop.stop()

        self.start(end())
        self._thread.join(_END_SECONDS)  # a transfer of weights may never end


async def side_by_side(
    work: Iterable[Coroutine[Any, Any, _Result]], beside: Iterable[Coroutine[Any, Any, None]] = ()
) -> list[_Result]:
    """Return what all of some work returns; its first exception, or one of what runs beside it, ends the rest."""
    tasks = [asyncio.ensure_future(one) for one in work]
    others = [asyncio.ensure_future(one) for one in beside]
    everything = asyncio.gather(*tasks)
    try:
        waited: set[asyncio.Future[Any]] = {everything, *others}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done():
                other.result()
        return await everything
    finally:
        for task in (*tasks, *others):
            task.cancel()
        await asyncio.gather(everything, *tasks, *others, return_exceptions=True)


def answer_bytes(num_tokens: int) -> int:
    """Return the bytes that an answer with so many tokens may have."""
    return MAX_BYTES + _BYTES_PER_TOKEN * num_tokens


def listed_models(answer: Any) -> dict[str, Mapping[str, Any]]:
    """Return what an answer of `/models` lists, by name; empty where it lists nothing."""
    entries = answer.get("data") if isinstance(answer, Mapping) else None
    listed = entries if isinstance(entries, list) else []
    return {str(entry["id"]): entry for entry in listed if isinstance(entry, Mapping) and "id" in entry}


async def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    timeout: float,
    as_text: bool = False,
    max_bytes: int = MAX_BYTES,
    key_name: str | None = VLLM_KEY,
) -> Any:
    """Return the JSON of an answer, None of an empty one, or its text. Redirects are not followed.

    Args:
        url: of the server, with what stands before its paths.
        method: of HTTP.
        path: with its query.
        body: sent as JSON; None: nothing.
        timeout: seconds until the whole answer is there.
        as_text: whether its text is returned.
        max_bytes: that the answer may have.
        key_name: environment variable with the server's key, which no error repeats; None: no key is sent.

    Raises:
        UnreachableError: no connection, or it broke.
        RefusedError: a status other than 2xx; the message has what the server said.
        LateError: no whole answer within `timeout` seconds.
        EngineError: one that is too long, nested too deep, or not JSON.
    """
    what = f"{url}: {method} {path.partition('?')[0]}"
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    key = os.environ.get(key_name, "").strip() if key_name else ""
    keep_secret(key)
    if key and _may_have_key(url):
        headers["Authorization"] = f"Bearer {key}"
    sent = None if body is None else json.dumps(body).encode()
    client = httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(verify=_tls(), socket_options=_KEEP_ALIVE),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        trust_env=False,
    )

    # The content is read as it comes, and no further than it may be long.
    content = bytearray()
    try:
        async with (
            asyncio.timeout(timeout),
            client,
            client.stream(method, url.rstrip("/") + path, content=sent, headers=headers) as answer,
        ):
            async for piece in answer.aiter_raw():
                content += piece
                if len(content) > max_bytes:
                    raise EngineError(f"{what} was answered with more than {max_bytes >> 20} MiB; {_WHAT_SERVER}")
    except TimeoutError:
        raise LateError(
            f"{what} was not answered within {timeout:g} s; look at the server's output, or give it more time with "
            "rollout.engine.timeout"
        ) from None
    except httpx2.TransportError as error:
        raise UnreachableError(_said(error)) from None

    text = content.decode(errors="replace")
    if not answer.is_success:
        place = answer.headers.get("Location", "")
        said = f"a redirect to {excerpt(place)!r}" if place else _message(text)
        if answer.status_code in (401, 403) and key and "Authorization" not in headers:
            said += f"; {key_name} is sent over https, or to this machine, only"
        message = f"{what} was answered with {answer.status_code} ({said})"
        wait = _seconds(answer.headers.get("Retry-After", ""))
        raise RefusedError(message, status=answer.status_code, retry_after=wait)
    return text if as_text else _parsed(text, what)


def _parsed(text: str, what: str) -> Any:
    """Return the JSON that an answer has, None of an empty one."""
    try:
        return parse_json(text) if text.strip() else None
    except RecursionError:
        raise EngineError(f"{what} was answered with JSON that is nested too deep; {_WHAT_SERVER}") from None
    except json.JSONDecodeError:
        raise EngineError(f"{what} was answered with {excerpt(text)!r}, which is not JSON; {_WHAT_SERVER}") from None
    except ValueError as error:
        raise EngineError(f"{what} was answered with what is no JSON: {excerpt(error)}; {_WHAT_SERVER}") from None


def _seconds(text: str) -> float:
    """Return the seconds that a `Retry-After` names, as a number or as a date; 0 where it names none.

    >>> _seconds("1.5"), _seconds("Wed, 21 Oct 2015 07:28:00 GMT"), _seconds("soon"), _seconds("nan")
    (1.5, 0.0, 0.0, 0.0)
    """
    with suppress(ValueError):
        return max(0.0, float(text))
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return 0.0


_tls = cache(httpx2.create_ssl_context)


def _may_have_key(url: str) -> bool:
    """Whether nobody between here and a server can read what is sent to it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    with suppress(ValueError):
        return parts.scheme == "https" or ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _said(error: BaseException) -> str:
    """Return what broke a connection, from the first cause that the system gave."""
    cause: BaseException | None = error
    while cause is not None:
        inner = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
        if isinstance(inner, ConnectionRefusedError):
            return "nothing listens there"
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror.lower()
        cause = inner.__cause__ or inner.__context__
    return redacted(str(error), quoted=True).lower() or type(error).__name__


def excerpt(said: object) -> str:
    """Return the beginning of what a server said, for a message: it may repeat the key."""
    return redacted(str(said), quoted=True)[:_SHOWN]


def _message(text: str) -> str:
    """Return what an answer with an error status says."""
    with suppress(ValueError, RecursionError):
        said: Any = parse_json(text)
        while isinstance(said, Mapping) and ("error" in said or "message" in said):
            said = said.get("error", said.get("message"))
        text = str(said)
    return excerpt(" ".join(redacted(text, quoted=True).split())) or "without a word"


async def own_address(url: str) -> str:
    """Return this machine's address on the way to a server.

    Raises:
        UnreachableError: no connection.
    """
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as error:  # also of too much time
        raise UnreachableError(_said(error)) from None
    connection.close()
    return str(connection.get_extra_info("sockname")[0])
