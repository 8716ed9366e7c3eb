"""A worker as the pool sees it: a process with two pipes that are never waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict

from swerve.errors import SwerveError
from swerve.rewards.limits import GraderLimits
from swerve.rewards.wire import FrameBuffer, Reply, decode_reply, frame

__all__ = ["COMMAND", "WorkerGoneError", "WorkerProcess"]

COMMAND = (sys.executable, "-P", "-m", "swerve.rewards.worker")
"""-P: a file in the current folder does not stand in for a module."""

_CHUNK = 1 << 16
_START_SECONDS = 120.0
_EXIT_SECONDS = 2.0
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of sympy's terms, and with it its way through a proof
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class WorkerGoneError(Exception):
    """The worker has ended or was stopped from outside."""


class WorkerProcess:
    """A process that judges one answer at a time; nothing here blocks."""

    def __init__(self, limits: GraderLimits) -> None:
        """Start it, in a session of its own: a Ctrl-C on the terminal is not for it."""
        self._patience = _START_SECONDS + limits.wall_seconds
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [*COMMAND, json.dumps(asdict(limits)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.requests, self.replies = self._stdin.fileno(), self._stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)
        self._incoming, self._outgoing = FrameBuffer(), memoryview(b"")
        self._has_answered = False
        self.deadline: float | None = None
        """When the present request is given up (monotonic seconds); None: there is none."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def wants_to_write(self) -> bool:
        """Whether a part of the request is still to be written."""
        return bool(self._outgoing)

    def send(self, request: bytes) -> None:
        """Give it a request; `flush` writes it.

        Raises:
            WorkerGoneError: the process has ended.
        """
        self._outgoing = memoryview(frame(request))
        self.deadline = time.monotonic() + self._patience
        self.flush()

    def flush(self) -> None:
        """Write as much of the request as the pipe takes.

        Raises:
            WorkerGoneError: the process has ended.
        """
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self.requests, self._outgoing[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError as error:
            raise WorkerGoneError(self._last_words()) from error

    def receive(self) -> Reply | None:
        """Return the answer, or None while it is not complete.

        Raises:
            WorkerGoneError: the process has ended.
        """
        try:
            piece = os.read(self.replies, _CHUNK)
        except BlockingIOError:
            return None
        if not piece:
            raise WorkerGoneError(self._last_words())
        self._incoming.feed(piece)
        message = self._incoming.take()
        if message is None:
            return None
        self._has_answered, self.deadline = True, None
        return decode_reply(message)

    def _last_words(self) -> str:
        """Say how the process ended.

        Raises:
            SwerveError: it ended by itself before it answered anything: no worker can start.
        """
        self.kill()
        code = self._process.returncode
        lines = [line for line in self._read_log() if line.strip()]
        reason = lines[-1].strip() if lines else "it said nothing"
        if code > 0 and not self._has_answered:
            raise SwerveError(f"a grader process cannot start (exit status {code}): {reason}")
        return f"killed by signal {-code}" if code < 0 else f"ended with status {code}: {reason}"

    def _read_log(self) -> list[str]:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _CHUNK))
        return self._log.read().decode(errors="replace").splitlines()

    def kill(self) -> None:
        """End the process, which ends its children; wait for it."""
        with suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the process and let go of its pipes."""
        self.kill()
        self._stdout.close()
        self._log.close()

    def abandon(self) -> None:
        """Let go of the pipes in a forked copy of the process that started it; the worker goes on."""
        self._process.returncode = 0  # nothing to wait for here
        self._stdin.close()
        self._stdout.close()
        self._log.close()
