"""How this process works: torch's threads and the pool of graders, as a recipe's `runtime` says."""

from __future__ import annotations

import torch

from swerve.config.recipe import RuntimeConfig
from swerve.rewards.sandbox.pool import configure_pool


def apply_runtime(runtime: RuntimeConfig) -> None:
    """Set the number of torch threads, and the size and limits of the grader pool."""
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    configure_pool(
        num_workers=runtime.grader_workers,
        cpu_seconds=runtime.grader_cpu_seconds,
        memory_mb=runtime.grader_memory_mb,
    )
