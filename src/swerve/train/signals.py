"""Ctrl-C and SIGTERM: the first asks for a stop after the current step, the second stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """The signal that asked for a stop, if any did."""

    signal_number: int | None = None


@contextmanager
def deferred_signals() -> Iterator[Interruption]:
    """Record SIGINT and SIGTERM instead of dying inside the block; restore the handlers after it.

    A second signal ends the process at once with status 128 + its number. Outside the main thread, where Python
    allows no handlers, nothing is deferred.
    """
    interruption = Interruption()

    def handle(number: int, _frame: FrameType | None) -> None:
        if interruption.signal_number is not None:
            os._exit(128 + number)
        interruption.signal_number = number

    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
