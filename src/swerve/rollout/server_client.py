"""HTTP requests to servers that sample: several at a time, bounded, and ended at once when one of them fails."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from swerve.errors import EngineError

T = TypeVar("T")
CONNECT_SECONDS = 10.0
"""To open a connection, and for short answers such as that of `/health`."""
_SHOWN = 200
"""Characters of an answer that an error quotes."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A machine that is lost without a word is noticed after a minute, however long an answer may take."""


class UnreachableError(Exception):
    """A server does not answer: it has not started, has died or has just been started again."""


class RefusedError(EngineError):
    """A server answered with an error status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class LateError(EngineError):
    """A server has not answered in time."""


class Calls:
    """Requests of several threads that can be ended together."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._open: dict[HTTPConnection, str] = {}
        self._lock = threading.Lock()

    def end(self) -> None:
        """Close every connection: requests that wait for an answer fail at once, and so do later ones."""
        self.ended.set()
        self.drop()

    def drop(self, url: str | None = None) -> None:
        """Close the connections to a server (None: to all): requests that wait for an answer of it fail at once."""
        with self._lock:
            for connection, its_url in self._open.items():
                with suppress(OSError, AttributeError):
                    if url in (None, its_url):
                        connection.sock.shutdown(socket.SHUT_RDWR)

    def request(
        self, url: str, method: str, path: str, body: Any = None, *, timeout: float, wait: float = CONNECT_SECONDS
    ) -> tuple[int, bytes]:
        """Return status and content of an answer.

        Args:
            url: of the server, with what stands before its paths.
            method: of HTTP.
            path: with its query.
            body: sent as JSON; None: nothing.
            timeout: seconds without a byte of the answer.
            wait: seconds until the connection is there.

        Raises:
            TimeoutError: no answer in time.
            UnreachableError: no connection, or it broke.
        """
        parts = urlsplit(url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=wait)
        try:
            connection.connect()
            with self._lock:
                self._open[connection] = url
            if self.ended.is_set():
                raise ConnectionError("ended")
        except (OSError, HTTPException) as error:
            connection.close()
            raise UnreachableError(_said(error)) from None
        try:
            _keep_alive(connection.sock)
            connection.sock.settimeout(timeout)
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, parts.path.rstrip("/") + path, content, _headers())
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise UnreachableError(_said(error)) from None
        finally:
            with self._lock:
                self._open.pop(connection, None)
            connection.close()


def _headers() -> dict[str, str]:
    key = os.environ.get("VLLM_API_KEY")
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _said(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).lower() or type(error).__name__


def call(
    calls: Calls, url: str, method: str, path: str, body: Any = None, *, timeout: float, as_text: bool = False
) -> Any:
    """Return the JSON of an answer, None of an empty one, or its text.

    Raises:
        UnreachableError: see `Calls.request`.
        RefusedError: an error status; the message has what the server said.
        LateError: no answer within `timeout` seconds.
        EngineError: one that is not JSON.
    """
    what = f"{url}: {method} {path.partition('?')[0]}"
    try:
        status, content = calls.request(url, method, path, body, timeout=timeout)
    except TimeoutError:
        raise LateError(
            f"{what} was not answered within {timeout:g} s; look at the server's output, or give it more time with "
            "rollout.engine.timeout"
        ) from None
    text = content.decode(errors="replace")
    if status >= 400:
        raise RefusedError(f"{what} was answered with {status} ({_message(text)})", status=status)
    if as_text:
        return text
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise EngineError(
            f"{what} was answered with {text[:_SHOWN]!r}, which is not JSON; rollout.engine.urls are of vLLM servers"
        ) from None


def _message(text: str) -> str:
    """Return what an answer with an error status says."""
    with suppress(ValueError):
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
