"""A forked process that answers through pipes and can be killed, as the one that forked it sees it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

_EXIT_SECONDS = 1.0


class Child:
    """A forked process that serves."""

    def __init__(self, serve: Callable[[int, int, int], None], *, not_inherited: tuple[int, ...]) -> None:
        """Fork it.

        Args:
            serve: what it does, with the descriptors of requests and replies and the process id of this one.
            not_inherited: descriptors of this process that the child closes.
        """
        requests_in, self.requests = os.pipe()
        self.replies, replies_out = os.pipe()
        self.num_served = 0
        parent_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                silence(0, 1, 2)
                for descriptor in (self.requests, self.replies, *not_inherited):
                    os.close(descriptor)
                serve(requests_in, replies_out, parent_pid)
            finally:
                os._exit(1)
        with suppress(OSError):  # the child does the same; whoever is first
            os.setpgid(self.pid, self.pid)
        os.close(requests_in)
        os.close(replies_out)

    def has_exited(self) -> bool:
        """Return whether the process has ended (it is not reaped)."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait_for_exit(self) -> None:
        """Wait a moment for the end of the process, which closed its pipe."""
        patience = time.monotonic() + _EXIT_SECONDS
        while not self.has_exited() and time.monotonic() < patience:
            time.sleep(0.001)

    def end(self) -> tuple[int | None, float]:
        """Kill the process and those it started, if there are any left.

        Returns: its exit status, or minus the number of the signal that ended it; None where it had to be killed here.
        And the CPU seconds that it used.
        """
        has_exited = self.has_exited()
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        os.close(self.requests)
        os.close(self.replies)
        return os.waitstatus_to_exitcode(status) if has_exited else None, usage.ru_utime + usage.ru_stime


def silence(*descriptors: int) -> None:
    """Have descriptors of this process read nothing, and write nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)
