"""What runs beside commands: servers to sample with, somebody who looks at a run, and a study's children as copies."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

from transformers import AutoModelForCausalLM

import swerve.study.run as study_run
from swerve.cli import main
from swerve.view.server import ViewServer
from tests.campaign.kills import leave_after, started
from tests.rollout.openai_server import openai_server
from tests.rollout.servers import SglangStandIn, stand_in

_PR_SET_PDEATHSIG = 1
_FOR_EVER = 10**6


def started_server(serve: Callable[[], AbstractContextManager[str]], log: Path) -> tuple[int, str]:
    """Start a server in a copy of this process, which ends with this one; return its process and its address."""
    reader, writer = os.pipe()

    def run() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with serve() as url:
            os.write(writer, url.encode())
            os.close(writer)
            time.sleep(_FOR_EVER)

    process = started(run, log=log, time_limit=_FOR_EVER)
    os.close(writer)
    url = os.read(reader, 200).decode()
    os.close(reader)
    return process, url


@contextmanager
def serve_openai() -> Iterator[str]:
    """Answer as an OpenAI-compatible server does."""
    with openai_server() as server:
        yield server.url


@contextmanager
def serve_sglang(model: Path) -> Iterator[str]:
    """Answer as SGLang does, with a model."""
    with stand_in(AutoModelForCausalLM.from_pretrained(model), SglangStandIn) as url:
        yield url


@contextmanager
def looked_at(world: Path, log: Path) -> Iterator[list[str]]:
    """Let somebody look at a directory in a browser during the block; then the list has what went wrong there."""
    process, wrong = started(lambda: _look(world), log=log, time_limit=_FOR_EVER), list[str]()
    try:
        yield wrong
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        wrong += [f"swerve view: {line}" for line in log.with_name(f"{log.name}.out").read_text().splitlines()]


def _look(world: Path) -> None:
    """Open the list, the page of each run and what it shows while it trains, again and again; print what fails."""
    server = ViewServer(world)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(place: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=300)
        connection.request("GET", f"/{server.token}/{place}")
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        if reply.status >= 500:
            print(f"{place}: {reply.status} {content[:300]!r}", flush=True)
        return content

    while True:
        ask("list.json")
        for key in list(server.catalogue.items):
            ask(f"{key}/")
            ask(f"{key}/live.json")


def as_copies() -> None:
    """Let the children of a study be copies of this process, which has imported everything."""
    study_run.subprocess = types.SimpleNamespace(Popen=_Copy, DEVNULL=None, STDOUT=None)  # type: ignore[assignment]


class _Copy:
    """In place of `subprocess.Popen`: a copy of this process that runs a command line of swerve."""

    def __init__(self, line: Sequence[str], *, stdout: IO[bytes], preexec_fn: Callable[[], None],
                 env: Mapping[str, str], **_: Any) -> None:  # fmt: skip
        self._status: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            preexec_fn()
            os.environ.update(env)
            leave_after(lambda: main(line[3:]), [stdout.fileno()] * 2, time_limit=_FOR_EVER)

    def poll(self) -> int | None:
        if self._status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if found else None
        return self._status

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
