"""Would any reward have done it: the arms of a study with control rewards."""

from __future__ import annotations

from swerve.artifacts.claim import ControlsPart
from swerve.claim.work import Cost, NotMeasuredError, Work
from swerve.config.claim import ClaimSettings


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs beside the card's own samples."""
    return Cost()


def measure(work: Work) -> ControlsPart:
    """Return this part."""
    raise NotMeasuredError("is not written yet")
