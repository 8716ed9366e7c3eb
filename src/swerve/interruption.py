"""Signals that ask for a stop: noted, so that training can finish its step and save."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_URGENT = (signal.SIGINT, signal.SIGTERM)
"""A second one of these ends the process at once."""
_NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
"""A closed terminal; what schedulers send ahead of a job's end (Slurm's `--signal=USR1@300`); a limit of CPU time, at
which the signal comes again every second. None of them means haste."""

_FORWARDING_SECONDS = 2.0
"""Within which torchrun passes a signal on that its processes had from the terminal, too."""


@dataclass(slots=True)
class Interruption:
    """The signal that asked for a stop, if any did."""

    raises: bool = False
    """Whether a signal raises KeyboardInterrupt at once, in work that may end anywhere; else it is only noted."""
    signal_number: int | None = None
    asked_at: float = 0.0
    """When it came, by the monotonic clock; seconds."""

    def ask(self, number: int) -> None:
        """Note a signal; a second urgent one ends the process.

        Raises:
            KeyboardInterrupt: the work may end anywhere.
        """
        if number in _URGENT and self.signal_number in _URGENT:
            if time.monotonic() - self.asked_at < _FORWARDING_SECONDS and "TORCHELASTIC_RUN_ID" in os.environ:
                return
            os._exit(128 + number)
        if number in _URGENT or self.signal_number is None:
            self.signal_number, self.asked_at = number, time.monotonic()
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come and is to raise it, once."""
        if self.raises and self.signal_number is not None:
            self.raises = False
            raise KeyboardInterrupt


_deferring: list[Interruption] = []
"""Of the blocks in which signals are deferred at present."""


def asked_to_stop() -> int | None:
    """Return the number of the signal that asked a block of `deferred_signals` for a stop: for work that only waits."""
    return next(
        (interruption.signal_number for interruption in _deferring if interruption.signal_number is not None), None
    )


@contextmanager
def deferred_signals() -> Iterator[Interruption]:
    """Record SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU instead of dying inside the block; restore the handlers.

    A second SIGINT or SIGTERM ends the process at once with status 128 + its number, but for the one that torchrun
    sends at Ctrl-C beside the terminal's. SIGHUP stays ignored where it was,
    as under nohup. Outside the main thread, where Python allows no handlers, nothing is deferred.
    """
    interruption, process = Interruption(), os.getpid()

    def handle(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == process:
            interruption.ask(number)
        elif number in _URGENT:  # in a forked copy, which has nothing to save
            os._exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    deferred = [number for number in _NOTICES if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in (*_URGENT, *deferred)}
    _deferring.append(interruption)
    try:
        yield interruption
    finally:
        _deferring.remove(interruption)
        for number, handler in previous.items():
            signal.signal(number, handler)
