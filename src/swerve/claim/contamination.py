"""Has a model seen the questions?"""

from __future__ import annotations

from swerve.artifacts.claim import ContaminationPart
from swerve.claim.work import Cost, NotMeasuredError, Work
from swerve.config.claim import ClaimSettings


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs beside the card's own samples."""
    return Cost()


def measure(work: Work) -> ContaminationPart:
    """Return this part."""
    raise NotMeasuredError("is not written yet")
