"""A stand-in for an OpenAI-compatible server, in a thread: texts that depend on the seed, and scripted misbehaviour."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-secret-of-a-test"


class OpenAIServer:
    """Answers as an OpenAI-compatible server does; what is wrong with it can be set."""

    def __init__(self) -> None:
        self.owner = "somebody"
        self.asked: list[Any] = []
        self.times: list[float] = []
        self.needs_key = False
        self.most_open = self.num_open = 0
        self.wrong: Callable[[int, Any, BaseHTTPRequestHandler], Any] = lambda *_: None
        """Given the number of a request, its body and its handler: an answer of its own, or None for the usual one."""
        self.port = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def text(self, body: Any) -> str:
        asked = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        return f"{str(asked).split()[0]} {body.get('seed', 0) % 7 if body.get('temperature') else 0}"

    def answer(self, body: Any) -> dict[str, Any]:
        """The usual answer."""
        text = self.text(body)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        if self.owner == "vllm":
            choice |= {"token_ids": [5, 6, 2], "logprobs": {"token_logprobs": [-0.5, -0.25, -0.125]}}
            choice |= {"prompt_token_ids": [1, 2, 3]}
        usage = {"prompt_tokens": 10, "completion_tokens": 3}
        return {"model": "one-2026", "system_fingerprint": "fp_1", "choices": [choice], "usage": usage}

    def handle(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        if self.needs_key and handler.headers["Authorization"] != f"Bearer {KEY}":
            reply(handler, 401, {"error": {"message": f"bad key {handler.headers['Authorization']}"}})
        elif body is None:
            reply(handler, 200, {"data": [{"id": "one", "owned_by": self.owner, "root": "models/one"}]})
        elif body["model"] != "one":
            reply(handler, 404, {"error": {"message": f"The model `{body['model']}` does not exist"}})
        else:
            with self._lock:
                self.asked.append(body)
                self.times.append(time.monotonic())
                number = len(self.asked)
                self.num_open += 1
                self.most_open = max(self.most_open, self.num_open)
            try:
                answer = self.wrong(number, body, handler)
                if answer is not True:  # done
                    reply(handler, 200, self.answer(body) if answer is None else answer)
            finally:
                with self._lock:
                    self.num_open -= 1


def reply(handler: BaseHTTPRequestHandler, status: int, answer: Any, **headers: str) -> bool:
    """Answer a request; True."""
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)
    return True


@contextmanager
def openai_server() -> Iterator[OpenAIServer]:
    """Start a stand-in for the time of the block."""
    stand_in = OpenAIServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            with suppress(OSError):
                stand_in.handle(self, None)

        def do_POST(self) -> None:
            with suppress(OSError):
                stand_in.handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    stand_in.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
