"""Where did behaviour change: what the probe finds, beyond its nulls."""

from __future__ import annotations

from swerve.artifacts.claim import BehaviourPart
from swerve.claim.work import Cost, NotMeasuredError, Work
from swerve.config.claim import ClaimSettings


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs beside the card's own samples."""
    return Cost()


def measure(work: Work) -> BehaviourPart:
    """Return this part."""
    raise NotMeasuredError("is not written yet")
