"""Limits of one call or answer, and the settings of this process's pool of graders."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderLimits:
    """Limits of one (problem, text); whichever is reached, the reward has the status `timeout` and says which."""

    cpu_seconds: float = 2.0
    """CPU time, so that a verdict does not depend on what else the machine does."""
    wall_seconds: float = 30.0
    """Time on the clock: a backstop for graders that sleep."""
    memory_bytes: int = 1 << 30
    """Address space of the grader's process, the libraries it loads included."""
    max_chars: int = 200_000
    """Length of the text; longer ones are not looked at."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be above 0; got {getattr(self, field.name)}")


_settings: tuple[int | None, GraderLimits] = (None, GraderLimits())


def configure_pool(*, num_workers: int | None = None, cpu_seconds: float = 2.0, memory_mb: int = 1024) -> None:
    """Configure the shared pool; it starts, or restarts with these settings, when it is next needed.

    Args:
        num_workers: processes side by side; None: one a core, at most 8.
        cpu_seconds: CPU time for one answer. The limit on the clock is 15 times as long, at least 30 seconds.
        memory_mb: address space of a grader's process (MiB).
    """
    global _settings
    limits = GraderLimits(
        cpu_seconds=cpu_seconds, wall_seconds=max(30.0, 15 * cpu_seconds), memory_bytes=memory_mb << 20
    )
    _settings = num_workers, limits


def pool_settings() -> tuple[int | None, GraderLimits]:
    """Return the number of workers of the shared pool (None: by the cores) and the limits of one answer."""
    return _settings


def shared_limits() -> GraderLimits:
    """Return the limits of one answer in the pool of this process."""
    return _settings[1]
