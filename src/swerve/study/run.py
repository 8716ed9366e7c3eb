"""Do the runs of a study: each a child process at a time, side by side within a budget of cores and memory."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swerve.artifacts.files import regular_file
from swerve.config.recipe import Config
from swerve.errors import ConfigError, InterruptedRunError, SwerveError
from swerve.interruption import Interruption, deferred_signals
from swerve.limits import cause_of_end
from swerve.progress import Progress, ProgressTask
from swerve.study.job import StudyJob
from swerve.study.study_file import StudyStep

_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone")

Command = Callable[[StudyJob, StudyStep], Sequence[str]]
"""Returns the command line of a step."""


def step_command(job: StudyJob, step: StudyStep) -> list[str]:
    """Return the command line that does a step of a run."""
    torchrun = [] if job.processes == 1 else [*_TORCHRUN, f"--nproc-per-node={job.processes}"]
    swerve = [sys.executable, *torchrun, "-m", "swerve", step]
    if step == "train":
        return [*swerve, str(job.config_path), "--out", str(job.run.path), "--resume-or-start"]
    return [*swerve, str(job.run.path)]


def run_jobs(
    jobs: Sequence[StudyJob],
    *,
    progress: Progress,
    num_jobs: int = 1,
    memory: int | None = None,
    predict: Callable[[Config], int] = lambda config: 0,
    command: Command = step_command,
) -> dict[str, str]:
    """Do what is left of runs; return why each that failed did, by name.

    A run that begins with others begins when they are done; where one of them fails, it is not started. A run that
    another process holds is waited for. Children are asked to save and stop where this process is
    interrupted, and are where it is killed.

    Args:
        jobs: the runs.
        progress: where it is shown.
        num_jobs: runs side by side.
        memory: bytes that they may take together; None: not limited.
        predict: returns the bytes that a run takes at its peak.
        command: returns the command line of a step.

    Raises:
        InterruptedRunError: a signal asked for a stop; all children have ended.
    """
    total = sum(_work(job) for job in jobs)
    done = sum(_work_done(job, job.next_step()) for job in jobs)
    with progress.task("study", total, done=done) as task, deferred_signals() as interruption:
        return _Scheduler(jobs, num_jobs, memory, predict, command, progress, task, deque(jobs)).run(interruption)


@dataclass(slots=True)
class _Running:
    job: StudyJob
    step: StudyStep
    process: subprocess.Popen[bytes]
    memory: int
    counted: int
    """The work that the progress knows of."""


@dataclass(slots=True)
class _Scheduler:
    jobs: Sequence[StudyJob]
    num_jobs: int
    memory: int | None
    predict: Callable[[Config], int]
    command: Command
    progress: Progress
    task: ProgressTask
    waiting: deque[StudyJob]
    running: list[_Running] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    unstarted: set[str] = field(default_factory=set)
    """Of those that failed, the runs that others kept from starting."""
    held: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)

    def run(self, interruption: Interruption) -> dict[str, str]:
        while self.waiting or self.running:
            if interruption.signal_number is not None:
                self._stop(interruption.signal_number)
            self._start_what_fits()
            time.sleep(_POLL_SECONDS)
            for running in list(self.running):
                self._look_at(running)
        return self.failures

    def _stop(self, signal_number: int) -> None:
        for running in self.running:
            running.process.send_signal(signal.SIGINT)
        for running in self.running:
            running.process.wait()
        raise InterruptedRunError(
            f"interrupted; {len(self.ended)} of {len(self.jobs)} runs are done, the others saved where they were",
            signal_number=signal_number,
        )

    def _start_what_fits(self) -> None:
        for _ in range(len(self.waiting)):
            if len(self.running) >= self.num_jobs:
                return
            job = self.waiting.popleft()

            # A run waits for those that it begins with, and is not started where one of them failed.
            if lost := [name for name in job.after if name in self.failures]:
                self.unstarted.add(job.name)
                self._end(job, f"not started: {lost[0]}, which it needs a model of, failed")
                continue
            if {one.name for one in self.jobs}.intersection(job.after) - self.ended:
                self.waiting.append(job)
                continue

            # A run that somebody else works on is waited for.
            if job.run.is_held():
                if job.name not in self.held:
                    self.progress.note(f"{job.name}: another process works on it; waiting for it")
                self.held.add(job.name)
                self.waiting.append(job)
                continue
            try:
                memory = self._predicted(job)
                taken = sum(running.memory for running in self.running)
                if self.running and self.memory and memory + taken > self.memory:
                    self.waiting.appendleft(job)
                    return
                self._start(job, memory)
            except SwerveError as error:
                self._end(job, str(error))

    def _predicted(self, job: StudyJob) -> int:
        """Return the memory that a run takes; the runs of a variant take the same."""
        if self.memory is None:
            return 0
        if job.variant not in self.sizes:
            self.sizes[job.variant] = self.predict(job.config)
        size = self.sizes[job.variant]
        if size > self.memory:
            raise ConfigError(f"needs about {size / 1e9:.2g} of the {self.memory / 1e9:.2g} GB that --memory gives")
        return size

    def _start(self, job: StudyJob, memory: int, *, after: StudyStep | None = None) -> None:
        """Begin the next step of a run, or end it; `after`: the step that a child has just ended well."""
        step = job.next_step()
        if step is None or step == after:
            self._end(job, None if step is None else f"{step} ended without what it was to make; see {job.log_path}")
            return

        # A child has its share of the cores, unless the recipe or the user says otherwise.
        environment = dict(os.environ)
        if job.config.runtime.threads is None and "OMP_NUM_THREADS" not in environment:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            environment["OMP_NUM_THREADS"] = str(max(1, cores // self.num_jobs))

        # Its log begins with its command line.
        job.log_path.parent.mkdir(parents=True, exist_ok=True)
        line = list(self.command(job, step))
        with regular_file(job.log_path).open("ab") as log:
            log.write(f"$ {shlex.join(line)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=_stop_with_parent, env=environment,
            )  # fmt: skip
        self.running.append(_Running(job, step, process, memory, _work_done(job, step)))

    def _look_at(self, running: _Running) -> None:
        done = _work_done(running.job, running.step)
        now = [
            f"{each.job.name} {each.step}" + (f" {each.counted}/{_num_steps(each.job)}" if each.step == "train" else "")
            for each in self.running
        ]
        self.task.advance(done - running.counted, runs=f"{len(self.ended)}/{len(self.jobs)}", now=", ".join(now))
        running.counted = done
        status = running.process.poll()
        if status is None:
            return

        # It has ended: a collapse that stops a training is a result, and the next step follows.
        self.running.remove(running)
        collapsed = running.step == "train" and status == 1 and _status(running.job) == "collapsed"
        if status != 0 and not collapsed:
            self._end(running.job, f"{_last_words(running.job.log_path, status)}; see {running.job.log_path}")
            return
        self.task.advance(_work_done(running.job, running.step, ended=True) - running.counted)
        try:
            self._start(running.job, running.memory, after=running.step)
        except SwerveError as error:
            self._end(running.job, str(error))

    def _end(self, job: StudyJob, reason: str | None) -> None:
        self.ended.add(job.name)
        if reason is not None:
            self.failures[job.name] = reason
        said = "done" if reason is None else f"failed: {reason}"
        self.progress.note(f"{job.name}: {said} ({len(self.ended)} of {len(self.jobs)})")
        if reason is not None and job.name not in self.unstarted:
            self._stop_if_all_fail_alike()

    def _stop_if_all_fail_alike(self) -> None:
        """Begin no further run where all that ended, of two variants or more, failed for the same reason.

        After a failure another variant comes next, which shows whether the reason is a common one.
        """
        began = {name: reason for name, reason in self.failures.items() if name not in self.unstarted}
        reasons = {reason.partition("; see ")[0] for reason in began.values()}
        variants = {job.variant for job in self.jobs if job.name in began}
        self.waiting = deque(sorted(self.waiting, key=lambda job: job.variant in variants))
        if len(reasons) == 1 and len(variants) > 1 and len(self.failures) == len(self.ended) and self.waiting:
            reason = "all runs before failed for the same reason"
            self.progress.note(f"{len(self.waiting)} runs are not started: {reason}")
            self.failures |= {job.name: f"not started: {reason}" for job in self.waiting}
            self.waiting.clear()


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _stop_with_parent() -> None:
    """In a child before it runs its program: SIGINT is heard, and comes when this process ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _num_steps(job: StudyJob) -> int:
    return sum(stage.steps for stage in job.config.stages)


def _work(job: StudyJob) -> int:
    """Return the work of a run, in steps of training: evaluation and probe count as much as its training."""
    return _num_steps(job) * len(job.steps)


def _work_done(job: StudyJob, step: StudyStep | None, *, ended: bool = False) -> int:
    """Return the work that is done of a run whose present step is given (None: all are done), or has ended."""
    if step is None:
        return _work(job)
    before = job.steps.index(step) if step in job.steps else 0
    if ended or step != "train":
        return _num_steps(job) * (before + ended)
    path = job.run.metrics_path
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _status(job: StudyJob) -> str | None:
    return job.run.read_provenance().get("status") if (job.run.path / "run.json").is_file() else None


def _last_words(log: Path, status: int) -> str:
    """Return the line with which a child says why it failed."""
    lines = regular_file(log).read_text(encoding="utf-8", errors="replace").splitlines()
    started = max((at for at, line in enumerate(lines) if line.startswith("$ ")), default=0)
    said = [line for line in lines[started:] if line.startswith("swerve: ")]
    if status < 0 or not said:
        return cause_of_end(status).detail
    return said[-1].removeprefix("swerve: ").removeprefix("error: ")
