"""What torchrun says of this process in its environment."""

from __future__ import annotations

import os
import socket


def is_main_process() -> bool:
    """Whether this is the only process or, under torchrun, the first: the one that checks, writes and reports."""
    return os.environ.get("RANK", "0") == "0"


def torchrun_job() -> str | None:
    """Return what names the job of torchrun that this process is of, the same after a restart; None outside of one."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{socket.gethostname()} {os.getppid()}" if name == "none" else name
