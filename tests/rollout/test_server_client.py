"""Requests to a server that drips, floods, redirects or refuses: bounded in time and size, and named."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from swerve.errors import EngineError
from swerve.rollout import server_client
from swerve.rollout.server_client import LateError, RefusedError, UnreachableError
from tests.cases import each

Handler = BaseHTTPRequestHandler


def ask(*request: Any, **options: Any) -> Any:
    return asyncio.run(server_client.ask(*request, **options))


@contextmanager
def serving(answer: Callable[[Handler], None], host: str = "127.0.0.1") -> Iterator[str]:
    """A server that does this with each request; its URL."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):  # the client hangs up
                answer(self)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer((host, 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://{host}:{server.server_port}/v1/"
    server.shutdown()
    server.server_close()
    thread.join()


def replies(content: bytes = b"", status: int = 200, **headers: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def drips_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.02)


def drips_content(handler: Handler) -> None:
    replies()(handler)
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.02)


@pytest.mark.parametrize("drips", [drips_headers, drips_content, lambda _: time.sleep(2)])
def test_the_time_of_a_whole_answer_is_bounded(drips: Callable[[Handler], None]) -> None:
    with serving(drips) as url:
        started = time.monotonic()
        with pytest.raises(LateError, match=r"GET /health was not answered within 0\.2 s"):
            ask(url, "GET", "/health?now", timeout=0.2)
        assert time.monotonic() - started < 2


def test_the_size_of_an_answer_is_bounded_however_long_it_goes_on() -> None:
    sent = 0

    def floods(handler: Handler) -> None:
        nonlocal sent
        replies()(handler)
        for _ in range(800):
            handler.wfile.write(b" " * (1 << 20))
            sent += 1

    with serving(floods) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(EngineError, match="was answered with more than 16 MiB"):
            ask(url, "GET", "/x", timeout=60)
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 100  # MiB
        with pytest.raises(EngineError, match="was answered with more than 1 MiB"):
            ask(url, "GET", "/x", timeout=60, max_bytes=1 << 20)
    assert sent < 60


@each(
    ("answer", "error", "said"),
    [
        (replies(b"[" * 100_000), EngineError, "nested too deep"),
        (replies(b'{"a":' * 100_000), EngineError, "nested too deep"),
        (replies(b'{"a": NaN}'), EngineError, "was answered with what is no JSON: NaN is not JSON"),
        (replies(b'{"a": [-Infinity]}'), EngineError, "was answered with what is no JSON: -Infinity is not JSON"),
        (replies(b'{"a": 1e999}'), EngineError, "was answered with what is no JSON: 1e999 is too large a number"),
        (replies(b'{"error": {"x": NaN}}', 500), RefusedError, 'answered with 500 ({"error": {"x": NaN}})'),
        (replies(b"<html>"), EngineError, "was answered with '<html>', which is not JSON"),
        (replies(b"{}", 302, Location="http://e.x/"), RefusedError, "answered with 302 (a redirect to 'http://e.x/')"),
        (replies(b"{}", 304), RefusedError, "answered with 304 (without a word)"),
        (replies(b'{"error": {"message": "no\\nroom"}}', 503), RefusedError, "answered with 503 (no room)"),
        (replies(b"[" * 100_000, 500), RefusedError, "answered with 500 ([[[["),
        (lambda handler: handler.wfile.write(b"SSH-2.0\r\n\r\n"), UnreachableError, "illegal status line"),
        (lambda handler: handler.connection.shutdown(2), UnreachableError, "without sending a response"),
    ],
)
def test_an_answer_that_is_none_is_said(answer: Callable[[Handler], None], error: type[Exception], said: str) -> None:
    with serving(answer) as url, pytest.raises(error) as raised:
        ask(url, "GET", "/x", timeout=10)
    assert said in str(raised.value)


def test_answers_are_json_text_or_nothing() -> None:
    with serving(replies(b'{"a": 1}', 201)) as url:
        assert ask(url, "GET", "/x", timeout=10) == {"a": 1}
        assert ask(url, "GET", "/x", timeout=10, as_text=True) == '{"a": 1}'
    with serving(replies(b" \n")) as url:
        assert ask(url, "GET", "/x", timeout=10) is None


def test_a_key_goes_to_this_machine_or_over_https_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    keys: list[str | None] = []

    def asks_for_key(handler: Handler) -> None:
        keys.append(handler.headers["Authorization"])
        replies(status=200 if keys[-1] else 401)(handler)

    with serving(asks_for_key) as url:
        ask(url, "GET", "/x", timeout=10)
        ask(url.replace("127.0.0.1", "localhost"), "GET", "/x", timeout=10)
    with (
        serving(asks_for_key, "0.0.0.0") as url,  # what listens there is here, but it is no loopback address
        pytest.raises(RefusedError, match="401 .*; VLLM_API_KEY is sent over https, or to this machine, only"),
    ):
        ask(url, "GET", "/x", timeout=10)
    assert keys == ["Bearer secret", "Bearer secret", None]


def test_a_request_that_is_given_up_ends_at_once() -> None:
    async def give_up(url: str) -> None:
        request = asyncio.ensure_future(server_client.ask(url, "GET", "/x", timeout=60))
        await asyncio.to_thread(asked.wait, 5)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request
        assert request.cancelled()

    def waits(_: Handler) -> None:
        asked.set()
        time.sleep(2)

    asked = threading.Event()
    with serving(waits) as url:
        started = time.monotonic()
        asyncio.run(give_up(url))
        assert time.monotonic() - started < 1
