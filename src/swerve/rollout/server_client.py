"""HTTP requests to servers that sample: several at a time, bounded, and ended at once when one of them fails."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2

from swerve.errors import EngineError

T = TypeVar("T")
CONNECT_SECONDS = 10.0
"""To open a connection, and for short answers such as that of `/health`."""
MAX_BYTES = 16 << 20
"""Of an answer without completions."""
_SHOWN = 200
"""Characters of an answer that an error quotes."""
_KEY = "VLLM_API_KEY"
_KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items()
        if hasattr(socket, name)  # not on every system
    ),
]
"""A machine that is lost without a word is noticed after a minute, however long an answer may take."""


class UnreachableError(Exception):
    """A server does not answer: it has not started, has died or has just been started again."""


class RefusedError(EngineError):
    """A server answered with a status other than 2xx."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class LateError(EngineError):
    """A server has not answered in time."""


class Calls:
    """Requests of several threads that can be ended together."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._open: dict[asyncio.Task[Any], tuple[asyncio.AbstractEventLoop, str]] = {}
        self._lock = threading.Lock()

    def end(self) -> None:
        """Close every connection: requests that wait for an answer fail at once, and so do later ones."""
        self.ended.set()
        self.drop()

    def drop(self, url: str | None = None) -> None:
        """Close the connections to a server (None: to all): requests that wait for an answer of it fail at once."""
        with self._lock:
            for task, (loop, its_url) in self._open.items():
                if url in (None, its_url):
                    loop.call_soon_threadsafe(task.cancel)

    def ask(
        self,
        url: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float,
        as_text: bool = False,
        max_bytes: int = MAX_BYTES,
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

        Raises:
            UnreachableError: no connection, or it broke.
            RefusedError: a status other than 2xx; the message has what the server said.
            LateError: no whole answer within `timeout` seconds.
            EngineError: one that is too long, nested too deep, or not JSON.
        """
        what = f"{url}: {method} {path.partition('?')[0]}"
        try:
            status, place, content = asyncio.run(self._answer(url, method, path, body, timeout, max_bytes))
        except TimeoutError:
            raise LateError(
                f"{what} was not answered within {timeout:g} s; look at the server's output, or give it more time with "
                "rollout.engine.timeout"
            ) from None
        except asyncio.CancelledError:
            raise UnreachableError("the connection was ended") from None
        except httpx2.TransportError as error:
            raise UnreachableError(_said(error)) from None
        if len(content) > max_bytes:
            raise EngineError(f"{what} was answered with more than {max_bytes >> 20} MiB; is this a vLLM server?")
        text = content.decode(errors="replace")
        if not 200 <= status < 300:
            said = f"a redirect to {place!r:.200}" if place else _message(text)
            if status in (401, 403) and os.environ.get(_KEY) and not _may_have_key(url):
                said += f"; {_KEY} is sent over https, or to this machine, only"
            raise RefusedError(f"{what} was answered with {status} ({said})", status=status)
        if as_text:
            return text
        try:
            return json.loads(text) if text.strip() else None
        except RecursionError:
            raise EngineError(
                f"{what} was answered with JSON that is nested too deep; is this a vLLM server?"
            ) from None
        except ValueError:
            raise EngineError(
                f"{what} was answered with {text[:_SHOWN]!r}, which is not JSON; rollout.engine.urls are of vLLM "
                "servers"
            ) from None

    async def _answer(
        self, url: str, method: str, path: str, body: Any, timeout: float, max_bytes: int
    ) -> tuple[int, str, bytes]:
        """Return status, place of a redirect, and content of an answer, whose reading ends past `max_bytes`."""
        task = asyncio.current_task()
        assert task is not None
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if (key := os.environ.get(_KEY)) and _may_have_key(url):
            headers["Authorization"] = f"Bearer {key}"
        client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(verify=_tls(), socket_options=_KEEP_ALIVE),
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            trust_env=False,
        )
        sent = None if body is None else json.dumps(body).encode()
        with self._lock:
            self._open[task] = asyncio.get_running_loop(), url
        try:
            if self.ended.is_set():
                raise asyncio.CancelledError
            async with (
                asyncio.timeout(timeout),
                client,
                client.stream(method, url.rstrip("/") + path, content=sent, headers=headers) as answer,
            ):
                content = bytearray()
                async for piece in answer.aiter_raw():
                    content += piece
                    if len(content) > max_bytes:
                        break
                return answer.status_code, answer.headers.get("Location", ""), bytes(content)
        finally:
            with self._lock:
                del self._open[task]


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
    return str(error).lower() or type(error).__name__


def _message(text: str) -> str:
    """Return what an answer with an error status says."""
    with suppress(ValueError, RecursionError):
        found: Any = json.loads(text)
        while isinstance(found, Mapping) and ("error" in found or "message" in found):
            found = found.get("error", found.get("message"))
        text = str(found)
    return " ".join(text.split())[:_SHOWN] or "without a word"


@contextmanager
def in_parallel(calls: Calls, tasks: Sequence[Callable[[], T]], num_threads: int) -> Iterator[Iterator[tuple[int, T]]]:
    """Yield the tasks' numbers and results as they come; on leaving, requests that are still open are ended.

    The first exception of a task is raised. A signal's exception in this thread does not wait for the tasks.
    """
    waiting, done = deque(enumerate(tasks)), queue.SimpleQueue[tuple[int, T | BaseException]]()

    def work() -> None:
        while True:
            try:
                number, task = waiting.popleft()
            except IndexError:
                return
            try:
                if calls.ended.is_set():
                    raise EngineError("the engine was closed")
                done.put((number, task()))
            except BaseException as error:
                done.put((number, error))

    def results() -> Iterator[tuple[int, T]]:
        for _ in tasks:
            number, result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield number, result

    for _ in range(min(num_threads, len(tasks))):
        threading.Thread(target=work, daemon=True).start()
    try:
        yield results()
    finally:
        calls.end()


def own_address(url: str) -> str:
    """Return this machine's address on the way to a server.

    Raises:
        UnreachableError: no connection.
    """
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), CONNECT_SECONDS) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise UnreachableError(_said(error)) from None
