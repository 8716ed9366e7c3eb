"""How this process works: its memory, torch's threads and the pool of graders, as a recipe's `runtime` says."""

from __future__ import annotations

import ctypes
import os
import platform

from swerve.config.runtime import RuntimeConfig
from swerve.sandbox.limits import configure_pool

# Of mallopt(3): the number of a setting, the bytes it is set to, and the name that it has in the environment.
_KEPT = ((-3, 32 << 20, "MALLOC_MMAP_THRESHOLD_"), (-1, 64 << 20, "MALLOC_TRIM_THRESHOLD_"))


def apply_runtime(runtime: RuntimeConfig) -> None:
    """Set the number of torch threads, the size and limits of the grader pool, and how much freed memory is kept."""
    if runtime.threads is not None:
        import torch

        torch.set_num_threads(runtime.threads)
    configure_pool(
        num_workers=runtime.grader_workers,
        cpu_seconds=runtime.grader_cpu_seconds,
        memory_mb=runtime.grader_memory_mb,
    )
    _keep_freed_memory()


def set_thread_environment(runtime: RuntimeConfig) -> None:
    """Choose OpenMP's threads before torch is imported, unless the user did.

    Waiting threads sleep: with a model so small that each kernel takes microseconds, spinning ones cost more than they
    save.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if runtime.threads is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(runtime.threads))


def _keep_freed_memory() -> None:
    """Let the C library keep what is freed, as much as it keeps by itself once large blocks were freed (64 MiB).

    Before, it gives the memory of small models back at every step and asks for it again, which takes longer than some
    of their products. What the environment says of it holds.
    """
    is_set = any(name in os.environ for *_, name in _KEPT) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if platform.libc_ver()[0] == "glibc" and not is_set:
        for setting, value, _ in _KEPT:
            ctypes.CDLL(None).mallopt(setting, value)
