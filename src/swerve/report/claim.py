"""The page of a claim card."""

from __future__ import annotations

from pathlib import Path

from swerve.artifacts.claim import ClaimCard
from swerve.artifacts.files import write_text
from swerve.report.page import Page, render


def write_claim_page(path: Path, card: ClaimCard) -> Path:
    """Write the page of a card to `path`; return it.

    Raises:
        DiskFullError: no room.
    """
    write_text(path, render(claim_page(card)))
    return path


def claim_page(card: ClaimCard) -> Page:
    """Return what the page of a card says."""
    return Page(title=f"What RL changed: {card.base} to {card.trained}", sentence=f"Task {card.task}.")
