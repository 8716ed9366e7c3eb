"""The command line: parses, calls the stages, prints. Nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Signals that end a command with a line; the last is sent at a limit of CPU time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` by default) and exit with its status."""
    if arguments is None:
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                signal.signal(number, _end)
    from swerve.cli.app import main as run  # takes a while, in which a signal may come

    run(arguments)


def _end(number: int, _frame: object) -> None:
    """Say that a signal came before anything was begun, and end."""
    with suppress(OSError):  # the terminal is gone
        if os.environ.get("RANK", "0") == "0":
            os.write(2, b"swerve: interrupted before it began; run the same command again\n")
    os._exit(128 + number)
