"""What the checks of a step's health ask the loop to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swerve.errors import SwerveError


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthVerdict:
    """What the loop has to do after a step."""

    figures: Mapping[str, Any] = field(default_factory=dict)
    """To be added to the step's line of the metrics."""
    note: str | None = None
    """To be said."""
    error: SwerveError | None = None
    """To be raised once the state is saved, which is done then whether or not it is due."""
