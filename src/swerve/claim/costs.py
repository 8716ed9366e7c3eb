"""What a card costs, before anything is sampled."""

from __future__ import annotations

from swerve.claim.record import ClaimCard
from swerve.claim.settings import ClaimSettings
from swerve.text import counted


def costs_said(settings: ClaimSettings, num_problems: int, *, num_models: int = 2) -> list[str]:
    """Return what a card costs, a line for its own samples and for each part; texts are not counted."""
    kinds = ClaimCard.kinds(settings.parts)
    most = f" of at most {counted(settings.max_new_tokens, 'token')}" if settings.max_new_tokens else ""
    lines = [f"both models: {2 * num_problems:,} greedy samples{most}"]
    if any(kind.is_of_samples for kind in kinds.values()):
        num_samples = 2 * num_problems * settings.num_samples
        lines[0] = f"both models: {counted(num_samples, 'sample')}{most}, and {2 * num_problems:,} greedy"
    for name, kind in kinds.items():
        amounts = zip(kind.cost(settings, num_problems, num_models - 1), ("sample", "sequence"), strict=True)
        said = " and ".join(counted(number, noun) for number, noun in amounts if number)
        lines.append(f"{name}: {f'{said} more' if said else 'nothing more'}")
    return lines
