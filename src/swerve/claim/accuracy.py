"""Did accuracy rise, and does the base catch up with more samples?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.claim import AccuracyPart, CoverRow, PassAtK, Verdict
from swerve.claim.work import Cost, NotMeasuredError, Work
from swerve.config.claim import ClaimSettings
from swerve.estimates import hundredths, hundredths_interval
from swerve.statistics.intervals import share
from swerve.statistics.sample_counts import cover_at, crossover, pass_at_k_differences

_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
_KIND = "The intervals are of new problems of this kind; problems made from one template are fewer than they seem."


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs beside the card's own samples."""
    return Cost()


def measure(work: Work) -> AccuracyPart:
    """Return this part; of each problem as many samples count as the one with the fewest has."""
    num, right = work.counts
    if right.size == 0:
        raise NotMeasuredError("needs a problem that both models answered")
    part = accuracy_part(work.trained.label, num, right)
    if work.base.model is None or work.trained.model is None:
        return part
    base, trained = (share(sum(bool(response.correct) for response in side), len(side)) for side in work.greedy)
    return part.model_copy(update={"greedy_base": base, "greedy_trained": trained})


def accuracy_part(label: str, num: int, right: NDArray[np.int64]) -> AccuracyPart:
    """Return what counts of right samples show.

    Args:
        label: of the trained model.
        num: samples of each problem.
        right: `[2, N]`, how many are right, of the base and of the trained model.
    """
    base, trained = right
    rows = pass_at_k_differences(base, trained, num)
    crossing = crossover(base, trained, num)
    return AccuracyPart(
        verdicts=accuracy_verdicts(label, rows, crossing, len(base)),
        notes=(_KIND,),
        base=rows[0].base,
        trained=rows[0].trained,
        difference=rows[0].difference,
        pass_at_k=tuple(rows),
        crossing_after=crossing[0],
        crossing_before=crossing[1],
        cover=tuple(
            CoverRow(probability=chance, base=cover_at(base, num, chance), trained=cover_at(trained, num, chance))
            for chance in _PROBABILITIES
        ),
    )


def accuracy_verdicts(
    label: str, rows: list[PassAtK], crossing: tuple[int | None, int | None], num: int
) -> tuple[Verdict, ...]:
    """Return the lines: of accuracy, and of the curves where there is more than one k.

    Args:
        label: of the trained model.
        rows: of `pass_at_k_differences`.
        crossing: of `crossover`.
        num: of problems.
    """
    differences: list[Any] = [row.difference for row in rows]
    (first, *_), last, largest, (better, worse) = differences, differences[-1], rows[-1].k, crossing
    at_first, at_last = (hundredths_interval(difference, " points", signed=True) for difference in (first, last))

    # One line of accuracy, in the direction that is shown.
    levels: list[Any] = [rows[0].trained, rows[0].base]
    claim, which = ("accuracy_fell", "Fewer") if first.high < 0 else ("accuracy_rose", "More")
    accuracy = f"Not shown that accuracy rose: {at_first}."
    if first.excludes(0):
        trained, base = (hundredths(level.mean) for level in levels)
        accuracy = f"{which} of {label}'s samples are right, {trained}% against {base}%: {at_first}."

    # The largest k is fixed before, so that it is told by its own interval.
    every = all(difference.low > 0 for difference in differences)
    curves = f"{label} is better at every k tried, 1 to {largest}."
    if not every:
        curves = f"Not shown that {label} is better at every k: at 1 {at_first}, at {largest} {at_last}."

    cross = f"Not shown that the curves cross: at {largest} {at_last}."
    if better:
        cross = f"{label} is better up to k = {better}; no crossing is shown to {largest}."
    if better and worse:
        cross = (
            f"{label} is better up to k = {better} and worse from {worse}: the curves cross, in between if only once."
        )
    lines = [
        (claim, first.excludes(0), accuracy, first),
        ("better_at_every_k", every, curves, last),
        ("curves_cross", bool(better and worse), cross, last),
    ]
    return tuple(
        Verdict(claim=claim, shown=shown, sentence=said, estimate=at, unit="points", num=num, null="no difference")
        for claim, shown, said, at in lines[: 3 if len(rows) > 1 else 1]
    )
