"""What a card costs, before anything is sampled."""

from __future__ import annotations

from swerve.claim.part import Cost
from swerve.claim.record import ClaimCard
from swerve.claim.settings import ClaimSettings
from swerve.text import counted

OWN = "both models"
"""What the card's own samples are called beside its parts."""


def part_costs(settings: ClaimSettings, num_problems: int, *, num_models: int = 2) -> dict[str, Cost]:
    """Return what a card's own samples and each of its parts cost; texts are not counted."""
    kinds = ClaimCard.kinds(settings.parts)
    sampled = settings.num_samples if any(kind.is_of_samples for kind in kinds.values()) else 0
    costs = {name: Cost(*kind.cost(settings, num_problems, num_models - 1)) for name, kind in kinds.items()}
    return {OWN: Cost(samples=2 * num_problems * (1 + sampled)), **costs}


def costs_said(settings: ClaimSettings, num_problems: int, *, num_models: int = 2) -> list[str]:
    """Return what a card costs, a line for its own samples and for each part."""
    costs, greedy = part_costs(settings, num_problems, num_models=num_models), 2 * num_problems
    most = f" of at most {counted(settings.max_new_tokens, 'token')}" if settings.max_new_tokens else ""
    sampled = costs.pop(OWN).samples - greedy
    own = (
        f"{counted(sampled, 'sample')}{most}, and {greedy:,} greedy" if sampled else f"{greedy:,} greedy samples{most}"
    )
    lines = [f"{OWN}: {own}"]
    for name, cost in costs.items():
        amounts = zip(cost, ("sample", "sequence"), strict=True)
        said = " and ".join(counted(number, noun) for number, noun in amounts if number)
        lines.append(f"{name}: {f'{said} more' if said else 'nothing more'}")
    return lines
