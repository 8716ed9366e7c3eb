"""Signals that ask for a stop: noted, so that training can finish its step and save."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit
from types import FrameType

_URGENT = (signal.SIGINT, signal.SIGTERM)
"""A second one of these ends the process at once."""
_NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
"""A closed terminal; what schedulers send ahead of a job's end (Slurm's `--signal=USR1@300`); a limit of CPU time, at
which the signal comes again every second. None of them means haste."""


class Interruption:
    """The signal that asked for a stop, if any did."""

    signal_number: int | None = None


_deferring: list[Interruption] = []
"""Of the blocks in which signals are deferred at present."""


def asked_to_stop() -> int | None:
    """Return the number of the signal that asked a block of `deferred_signals` for a stop: for work that only waits."""
    return next((one.signal_number for one in _deferring if one.signal_number is not None), None)


@contextmanager
def deferred_signals() -> Iterator[Interruption]:
    """Record SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU instead of dying inside the block; restore the handlers.

    A second SIGINT or SIGTERM ends the process at once with status 128 + its number. SIGHUP stays ignored where it was,
    as under nohup. Outside the main thread, where Python allows no handlers, nothing is deferred.
    """
    interruption = Interruption()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number in _URGENT and interruption.signal_number in _URGENT:
            _exit(128 + number)
        if number in _URGENT or interruption.signal_number is None:
            interruption.signal_number = number

    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    deferred = [one for one in _NOTICES if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in (*_URGENT, *deferred)}
    _deferring.append(interruption)
    try:
        yield interruption
    finally:
        _deferring.remove(interruption)
        for number, handler in previous.items():
            signal.signal(number, handler)
