"""Did accuracy rise, and does the base catch up with more samples?"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.claim.part import Count, Part, Points, Row, Share
from swerve.claim.verdicts import verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.statistics.clusters import Clusters
from swerve.statistics.intervals import share
from swerve.statistics.mixtures import cover_at
from swerve.statistics.sample_counts import most_have, most_judged, pass_at_k_differences
from swerve.text import percent_as

_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
_KIND = "The intervals are of new problems of this kind."


class PassAtK(Row):
    """How probable one of k samples is right, up to all samples; verdicts are of k up to half of them."""

    k: Count
    base: Share
    trained: Share
    difference: Points
    """Paired over problems, with the interval of this k alone."""
    band: Points
    """The same with the interval that holds for all k together."""


class CoverRow(Row):
    """Which fraction of problems is solved with at least some probability."""

    probability: Share
    """Cover at it: the estimated fraction of new problems that are solved with at least this chance. It is of how
    chances are distributed, and not of how many problems of the card have as many right samples."""
    base: Share
    trained: Share


class AccuracyPart(Part):
    """Did accuracy rise?"""

    needs_models = False
    is_of_samples = True

    of: str = ""
    """What accuracy is of: samples, greedy answers, or answers that may be either."""
    greedy_base: Share = None
    greedy_trained: Share = None
    base: Share = None
    trained: Share = None
    difference: Points = None
    pass_at_k: tuple[PassAtK, ...] = ()
    crossing_after: Count = None
    """The trained model is shown to be better up to this k; None: not at 1."""
    crossing_before: Count = None
    """The base is shown to be better from this k on; None: not shown."""
    cover: tuple[CoverRow, ...] = ()

    @classmethod
    def measure(cls, work: Work) -> AccuracyPart:
        """Measure it; see `Part.measure`."""
        num, right = work.counts
        part = accuracy_part(work.trained.label, num, right, clusters=work.clusters, samples=work.samples_said)
        part = part.model_copy(update={"notes": (*part.notes, *work.paired.notes, *work.group_notes)})
        with suppress(NotMeasuredError):  # two files have no greedy responses
            base, trained = (share(sum(bool(response.correct) for response in side), len(side)) for side in work.greedy)
            part = part.model_copy(update={"greedy_base": base, "greedy_trained": trained})
        return part


def accuracy_part(
    label: str, num: ArrayLike, right: NDArray[np.int64], *, clusters: Clusters | None = None, samples: str = "samples"
) -> AccuracyPart:
    """Return what counts of right samples show.

    Args:
        label: of the trained model.
        num: samples of each problem; or `[2, N]`, of each one by the base and by the trained model.
        right: `[2, N]`, how many are right, of the base and of the trained model.
        clusters: which problems belong together (their groups); by default each is its own cluster.
        samples: what they are called.
    """
    nums = np.broadcast_to(num, right.shape)
    rows, (better, worse) = pass_at_k_differences(right[0], right[1], nums, clusters=clusters)
    first, largest, num_problems = rows[0], most_judged(rows[-1].k), right.shape[1]
    differences: dict[int, Any] = {row.k: row.difference for row in rows if row.k <= largest}
    at_first, at_last = differences[1], differences[largest]

    # One line of accuracy, in the direction that is shown.
    rates: tuple[Any, Any] = first.trained, first.base
    trained, base = (percent_as(rate.mean, at_first) for rate in rates)
    ends = f"{trained} of its {samples} against {base} of the base's"
    claim, more = ("accuracy_fell", "less") if at_first.high < 0 else ("accuracy_rose", "more")
    said = f"{label} is right {more} often: {ends}"
    if not at_first.excludes(0):
        said = f"no change in accuracy is to be seen: {label} is right in {ends}"
    verdicts = [verdict(claim, said, at_first, shown=at_first.excludes(0), num=num_problems)]

    # Each line has the interval of the k that decides it: the one that is furthest from what is claimed.
    if largest > 1:
        least = min(differences, key=lambda k: differences[k].low)
        every = differences[least].low > 0
        where = f"at every k tried, 1 to {largest}: at k = {least}"
        said = f"{label} has the better pass@k {where}, where it is least"
        if not every:
            said = f"{label} is not seen to have the better pass@k {where}"
        verdicts.append(verdict("better_at_every_k", said, differences[least], shown=every, num=num_problems))
        is_first = at_first.low < -at_last.high
        deciding, at = (at_first, 1) if is_first else (at_last, largest)
        crosses = bool(better and worse)
        said = f"the curves of pass@k cross: {label} is better up to k = {better} and worse from {worse}; at k = {at}"
        if not crosses:
            up_to = f"up to k = {better} {label} is better; " if better and better < largest else ""
            needed = f"where {label} would have to be {'better' if is_first else 'worse'}"
            said = f"no crossing of the curves of pass@k is to be seen: {up_to}at k = {at}, {needed}"
        verdicts.append(verdict("curves_cross", said, deciding, shown=crosses, num=num_problems))
    covers = [cover_at(own, given, _PROBABILITIES, clusters=clusters) for own, given in zip(right, nums, strict=True)]
    return AccuracyPart(
        verdicts=tuple(verdicts),
        notes=(_KIND, *_own_numbers(nums)),
        of=samples,
        base=first.base,
        trained=first.trained,
        difference=first.difference,
        pass_at_k=tuple(PassAtK(**row._asdict()) for row in rows),
        crossing_after=better,
        crossing_before=worse,
        cover=tuple(
            CoverRow(probability=chance, base=base, trained=trained)
            for chance, base, trained in zip(_PROBABILITIES, *covers, strict=True)
        ),
    )


def _own_numbers(nums: NDArray[np.int64]) -> list[str]:
    """Return what a reader should know where problems have different numbers of samples."""
    fewest, full = nums.min(axis=0), most_have(nums)
    if nums.min() == nums.max():
        return []
    with_full = int((fewest >= full).sum())
    return [
        f"Problems have {nums.min():,} to {nums.max():,} samples, and each one's own number counts; pass@k above k = 1 "
        f"is of the {with_full:,} of {fewest.size:,} problems with at least {full:,} of both models."
    ]
