"""The pool of graders: judges answers side by side in processes that can be killed.

A text of a model may make a grader run for hours, take all memory or crash the interpreter. So isolated graders run in
worker processes under limits (worker.py), and whatever happens there becomes a reward with a status.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Self

from swerve.errors import SwerveError
from swerve.limits import cause_of_end
from swerve.rewards import messages
from swerve.rewards.graders import entry_for
from swerve.sandbox.limits import GraderLimits, pool_settings
from swerve.sandbox.wire import FrameBuffer, frame
from swerve.types import Problem, Reward

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
        """When the present request is given up (monotonic seconds); None without a request."""

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

    def receive(self) -> messages.Reply | None:
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
        return messages.decode_reply(message)

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
        end = cause_of_end(code).detail
        return end if code < 0 else f"{end}: {reason}"

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
        """Let go of the pipes in a forked copy of the process that started it; the worker lives on."""
        self._process.returncode = 0  # nothing to wait for here
        self._stdin.close()
        self._stdout.close()
        self._log.close()


_MAX_WORKERS = 8
_MAX_ATTEMPTS = 2


class GraderPool:
    """Worker processes that judge answers; they start when they are first needed.

    Safe to use from several threads (batches follow one another) and after a fork (the copy starts its own workers).
    """

    def __init__(self, *, num_workers: int | None = None, limits: GraderLimits | None = None) -> None:
        """Describe the pool; nothing is started.

        Args:
            num_workers: processes side by side; None: one a core, at most 8, fewer where torchrun's processes share
                the cores.
            limits: of every answer.
        """
        if num_workers is not None and num_workers < 1:
            raise ValueError(f"num_workers must be at least 1; got {num_workers}")
        self._limits = limits or GraderLimits()
        self._workers: list[WorkerProcess | None] = [None] * (num_workers or _default_num_workers())
        self._lock = threading.Lock()
        self._closed = False
        _pools.add(self)

    def grade_all(self, pairs: Sequence[tuple[Problem, str]]) -> list[Reward]:
        """Return the reward of each (problem, text), in their order; no text makes it raise.

        A text that reaches a limit has the status `timeout`, one on which the grader fails `error`. An answer whose
        process is killed from outside is judged once more.

        Raises:
            ValueError: there is no grader of the name a problem gives, a problem holds what is not JSON, or the pool
                is closed.
            SwerveError: no worker can start, or a grader cannot be loaded.
        """
        with self._lock:
            if self._closed:
                raise ValueError("the pool of graders is closed")
            try:
                return _Batch(pairs, self._workers, self._limits).run()
            except BaseException:
                self._drop_busy()
                raise

    def close(self) -> None:
        """End the workers; the pool cannot be used again."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                if worker is not None:
                    worker.close()
            self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop_busy(self) -> None:
        """End the workers whose answers nobody waits for any more."""
        for slot, worker in enumerate(self._workers):
            if worker is not None and worker.deadline is not None:
                worker.close()
                self._workers[slot] = None

    def _forget(self) -> None:
        """Let go of another process's workers (after a fork)."""
        self._lock = threading.Lock()
        for worker in self._workers:
            if worker is not None:
                worker.abandon()
        self._workers = [None] * len(self._workers)


class _Batch:
    """One call of `grade_all`: hands jobs to workers and collects their rewards."""

    def __init__(
        self, pairs: Sequence[tuple[Problem, str]], workers: list[WorkerProcess | None], limits: GraderLimits
    ) -> None:
        self._pairs, self._workers, self._limits = pairs, workers, limits
        for problem, _ in pairs:
            entry_for(problem)
        self._rewards: dict[int, Reward] = {
            number: messages.too_long(text, limits.max_chars)
            for number, (_, text) in enumerate(pairs)
            if len(text) > limits.max_chars
        }
        self._waiting = deque(number for number in range(len(pairs)) if number not in self._rewards)
        self._running: dict[int, int] = {}  # by the worker's place in the pool, the number of the pair
        self._lost: Counter[int] = Counter()  # how often the process of a pair was lost

    def run(self) -> list[Reward]:
        with selectors.DefaultSelector() as selector:
            while len(self._rewards) < len(self._pairs):
                self._hand_out()
                self._watch(selector)
                self._give_up_late()
        return [self._rewards[number] for number in range(len(self._pairs))]

    def _hand_out(self) -> None:
        """Give every worker without a job the next one."""
        for slot, worker in enumerate(self._workers):
            if slot in self._running or not self._waiting:
                continue
            problem, text = self._pairs[self._waiting[0]]
            self._running[slot] = self._waiting.popleft()
            request = messages.encode_request(problem.grader or problem.family, problem, text)
            if worker is None:
                worker = self._workers[slot] = WorkerProcess(self._limits)
            try:
                worker.send(request)
            except WorkerGoneError as error:
                self._lose(slot, str(error))

    def _watch(self, selector: selectors.BaseSelector) -> None:
        """Wait until a worker can be read or written, or until one is late."""
        busy = {slot: worker for slot in self._running if (worker := self._workers[slot]) is not None}
        for slot, worker in busy.items():
            selector.register(worker.replies, selectors.EVENT_READ, slot)
            if worker.wants_to_write:
                selector.register(worker.requests, selectors.EVENT_WRITE, slot)
        first = min((worker.deadline or 0.0 for worker in busy.values()), default=0.0)
        ready = {(key.data, mask) for key, mask in selector.select(max(0.0, first - time.monotonic()))}
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
        for slot, mask in sorted(ready):
            try:
                self._serve(slot, busy[slot], mask)
            except WorkerGoneError as error:
                self._lose(slot, str(error))

    def _serve(self, slot: int, worker: WorkerProcess, mask: int) -> None:
        if slot not in self._running:  # lost a moment ago
            return
        if mask & selectors.EVENT_WRITE:
            worker.flush()
            return
        reply = worker.receive()
        if isinstance(reply, messages.Fault):
            raise SwerveError(reply.message)
        if isinstance(reply, messages.Lost):
            self._try_again(self._running.pop(slot), reply.detail)
        elif reply is not None:
            self._rewards[self._running.pop(slot)] = reply

    def _give_up_late(self) -> None:
        """End workers that do not even say that a limit was reached: they are stopped, or stuck in an import."""
        now = time.monotonic()
        for slot in list(self._running):
            worker = self._workers[slot]
            if worker is not None and worker.deadline is not None and worker.deadline < now:
                self._lose(slot, "no answer from its process")

    def _lose(self, slot: int, detail: str) -> None:
        """Replace a worker and judge its answer again."""
        worker, self._workers[slot] = self._workers[slot], None
        if worker is not None:
            worker.close()
        self._try_again(self._running.pop(slot), detail)

    def _try_again(self, number: int, detail: str) -> None:
        self._lost[number] += 1
        if self._lost[number] < _MAX_ATTEMPTS:
            self._waiting.appendleft(number)
        else:
            self._rewards[number] = messages.grader_failed(f"the grader's process was lost twice: {detail}")


def _default_num_workers() -> int:
    """Return one a core, at most 8; the processes that torchrun starts on a machine share its cores."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_processes = max(1, int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    return max(1, min(_MAX_WORKERS, num_cores // num_processes))


_pools: weakref.WeakSet[GraderPool] = weakref.WeakSet()
_shared: tuple[tuple[int | None, GraderLimits], GraderPool] | None = None
"""The pool of this process, and the settings that it was made with."""
_shared_lock = threading.Lock()


def shared_pool() -> GraderPool:
    """Return the pool of this process, with the settings of `configure_pool`; it is closed when the process ends."""
    global _shared
    with _shared_lock:
        settings = num_workers, limits = pool_settings()
        if _shared is not None and _shared[0] != settings:
            _shared[1].close()
            _shared = None
        if _shared is None:
            _shared = settings, GraderPool(num_workers=num_workers, limits=limits)
        return _shared[1]


def _close_shared() -> None:
    global _shared
    with _shared_lock:
        shared, _shared = _shared, None
    if shared is not None:
        shared[1].close()


def _after_fork() -> None:
    """Make locks and pools usable in a forked copy: another thread may have held them."""
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_pools):
        pool._forget()


atexit.register(_close_shared)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
