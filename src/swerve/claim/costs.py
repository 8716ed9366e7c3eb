"""What a card costs, before anything is sampled."""

from __future__ import annotations

from swerve.config.claim import ClaimSettings
from swerve.text import counted

_OF_SAMPLES = ("accuracy", "gained", "answers", "forgetting")
"""Parts that rest on the samples at temperature 1."""


def costs_said(settings: ClaimSettings, num_problems: int, *, num_models: int = 2) -> list[str]:
    """Return what a card costs, a line for its own samples and for each part; texts are not counted."""
    num, some = num_problems, min(settings.some, num_problems)
    costs = {
        # Further runs, at temperature 1.
        "runs": ((num_models - 2) * num * settings.num_samples, 0),
        # Both models read every sample of the trained one, if all are right.
        "gained": (0, 2 * num * settings.num_samples),
        # Three beginnings of each question and of its control, continued by both models.
        "contamination": (12 * some, 0),
        "forgetting": (2 * settings.some * len(settings.others), 4 * some),
        # Swaps in 40 responses: 3 places, 3 tokens, 8 continuations; 60 problems with 6 shares of tokens taken and
        # with none, by both; both models and 9 with noise read.
        "behaviour": (2880 + 8 * min(num, 60), 11 * num),
        # The base with each part of the change and each random one.
        "weights": ((len(settings.ranks) + 5 + settings.directions) * some, 0),
        # Own and other reasoning, cut at five places, by both models.
        "reasoning": (0, 20 * num),
    }
    most = f" of at most {counted(settings.max_new_tokens, 'token')}" if settings.max_new_tokens else ""
    lines = [f"both models: {2 * num:,} greedy samples{most}"]
    if not {*settings.parts}.isdisjoint(_OF_SAMPLES):
        lines[0] = f"both models: {counted(2 * num * settings.num_samples, 'sample')}{most}, and {2 * num:,} greedy"
    for name in settings.parts:
        amounts = zip(costs.get(name, (0, 0)), ("sample", "sequence"), strict=True)
        said = " and ".join(counted(number, noun) for number, noun in amounts if number)
        lines.append(f"{name}: {f'{said} more' if said else 'nothing more'}")
    return lines
