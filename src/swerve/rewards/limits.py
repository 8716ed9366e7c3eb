"""What an isolated grader may use for one answer."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["GraderLimits"]


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
