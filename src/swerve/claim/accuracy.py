"""Did accuracy rise, and does the base catch up with more samples?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.claim.part import Count, Part, Points, Row, Share
from swerve.claim.verdicts import ClaimVerdict, verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.estimates import Estimate
from swerve.statistics.clusters import Clusters
from swerve.statistics.intervals import share
from swerve.statistics.mixtures import cover_at
from swerve.statistics.sample_counts import PassAtKDifference, most_have, most_judged, pass_at_k_differences
from swerve.text import percent_as

_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
_LEAST_TRIES = 4
"""Of a problem, from which on the spread of chances over problems is told."""
Labels = tuple[str, str]
"""Of the base and of the trained model."""
_KIND = "The intervals are of new problems of this kind."


class PassAtK(Row):
    """How probable one of k samples is right, up to all samples; verdicts are of k up to half of them."""

    k: Count
    """Tries: how probable it is that one of k answers is right. Sentences are of k up to half of the answers."""
    base: Share
    trained: Share
    difference: Points
    """Paired over problems, with the interval of this k alone."""
    band: Points
    """The same with the interval that holds for all k together."""


class CoverRow(Row):
    """Which fraction of problems is solved with at least some probability."""

    probability: Share
    """A row is the estimated share of new problems of this kind of which a try is right with at least this chance. It
    is of how chances are distributed, not a count of this card's problems."""
    base: Share
    trained: Share


def _mean(rate: Share) -> float:
    return rate.mean if isinstance(rate, Estimate) else rate or 0.0


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

    @property
    def level(self) -> PassAtK | None:
        """The fewest tries with which the base is right as often as the trained model with one, or the most tried.

        None where no gain is shown, or there is one try.
        """
        rows = [row for row in self.pass_at_k if row.base and row.difference]
        if len(rows) < 2 or not isinstance(self.difference, Estimate) or self.difference.low <= 0:
            return None
        return next((row for row in rows if _mean(row.base) >= _mean(self.trained)), rows[-1])

    def facts(self, base: str, trained: str) -> list[str]:
        """Return with how many tries the base is right as often; see `Part.facts`."""
        row = self.level
        if row is None or not isinstance(row.difference, Estimate):
            return []
        tries, one = (percent_as(_mean(rate), row.difference) for rate in (row.base, self.trained))
        with_ = "With" if _mean(row.base) >= _mean(self.trained) else "Even with"
        said = f"{with_} {row.k} tries `{base}` is right at least once in {tries} of problems; `{trained}` with one in "
        return [f"{said}{one}."]

    @classmethod
    def measure(cls, work: Work) -> AccuracyPart:
        """Measure it; see `Part.measure`."""
        num, right = work.counts
        labels = (work.base.label, work.trained.label)
        part = accuracy_part(labels, num, right, clusters=work.clusters, samples=work.samples_said)
        part = part.model_copy(update={"notes": (*part.notes, *work.paired.notes, *work.group_notes)})
        with suppress(NotMeasuredError):  # two files have no greedy responses
            base, trained = (share(sum(bool(response.correct) for response in side), len(side)) for side in work.greedy)
            part = part.model_copy(update={"greedy_base": base, "greedy_trained": trained})
        return part


def accuracy_part(
    labels: Labels,
    num: ArrayLike,
    right: NDArray[np.int64],
    *,
    clusters: Clusters | None = None,
    samples: str = "sampled answers",
) -> AccuracyPart:
    """Return what counts of right samples show.

    Args:
        labels: of the base and of the trained model.
        num: samples of each problem; or `[2, N]`, of each one by the base and by the trained model.
        right: `[2, N]`, how many are right, of the base and of the trained model.
        clusters: which problems belong together (their groups); by default each is its own cluster.
        samples: what they are called; see `Work.samples_said`.
    """
    nums = np.broadcast_to(num, right.shape)
    rows, crossing = pass_at_k_differences(right[0], right[1], nums, clusters=clusters)
    first, num_problems = rows[0], right.shape[1]
    verdicts = [_line(labels, first, num_problems, samples)]
    if most_judged(rows[-1].k) > 1:
        verdicts += [_ahead(labels, rows, num_problems), _overtakes(labels, rows, crossing, num_problems)]
    # How the chances of problems are spread shows in several tries of each alone.
    covers: list[list[Estimate]] = [[], []]
    if most_have(nums) >= _LEAST_TRIES:
        covers = [
            cover_at(own, given, _PROBABILITIES, clusters=clusters) for own, given in zip(right, nums, strict=True)
        ]
    return AccuracyPart(
        verdicts=tuple(verdicts),
        notes=(_KIND, *_own_numbers(nums)),
        of=samples,
        base=first.base,
        trained=first.trained,
        difference=first.difference,
        pass_at_k=tuple(PassAtK(**row._asdict()) for row in rows),
        crossing_after=crossing[0],
        crossing_before=crossing[1],
        cover=tuple(
            CoverRow(probability=chance, base=base, trained=trained)
            for chance, base, trained in zip(_PROBABILITIES, *covers, strict=False)
        ),
    )


def _line(labels: Labels, first: PassAtKDifference, num_problems: int, samples: str) -> ClaimVerdict:
    """Return the one line of accuracy, in the direction that is shown."""
    rates: tuple[Any, Any] = first.trained, first.base
    trained, base = (percent_as(rate.mean, first.difference) for rate in rates)
    before, after = (f"`{label}`" for label in labels)
    claim, more = ("accuracy_fell", "less") if first.difference.high < 0 else ("accuracy_rose", "more")
    shown = first.difference.excludes(0)
    said = f"{after} is right {more} often than {before}: {trained} against {base} of {samples}"
    if not shown:
        said = f"no change in accuracy is to be seen: {after} is right in {trained} and {before} in {base} of {samples}"
    return verdict(claim, said, first.difference, shown=shown, num=num_problems)


def _judged(rows: Sequence[PassAtKDifference]) -> dict[int, PassAtKDifference]:
    """Return the rows of which something is said, by k."""
    return {row.k: row for row in rows if row.k <= most_judged(rows[-1].k)}


def _at(row: PassAtKDifference) -> str:
    """Return both models' pass@k, no finer than their difference."""
    ends = (percent_as(rate.mean, row.difference) for rate in (row.trained, row.base) if rate)
    return f"at k = {row.k}, {' against '.join(ends)}"


def _ahead(labels: Labels, rows: Sequence[PassAtKDifference], num_problems: int) -> ClaimVerdict:
    """Return whether the trained model is ahead at every k, with the interval of the k that is furthest from it."""
    judged = _judged(rows)
    least = min(judged.values(), key=lambda row: row.difference.low)
    shown, where = least.difference.low > 0, f"with every number of tries, k = 1 to {max(judged)} (pass@k)"
    said = f"`{labels[1]}` is ahead {where}; the least {_at(least)}"
    if not shown:
        said = f"`{labels[1]}` is not seen to be ahead {where}: {_at(least)}"
    return verdict("better_at_every_k", said, least.difference, shown=shown, num=num_problems)


def _overtakes(
    labels: Labels, rows: Sequence[PassAtKDifference], crossing: tuple[int | None, int | None], num_problems: int
) -> ClaimVerdict:
    """Return whether the curves cross, with the interval of the first or the largest k, which is furthest from it."""
    judged, (better, worse) = _judged(rows), crossing
    largest, (before, after) = max(judged), (f"`{label}`" for label in labels)
    is_first = judged[1].difference.low < -judged[largest].difference.high
    deciding, crosses = judged[1 if is_first else largest], bool(better and worse)
    said = f"{before} overtakes {after} with more tries, from k = {worse} on; {after} is ahead up to {better}; "
    said += _at(deciding)
    if not crosses:
        up_to = f"{after} is ahead up to k = {better}; " if better and better < largest else ""
        needed = f"where {after} would have to be {'ahead' if is_first else 'behind'}"
        said = f"{before} is not seen to overtake {after} with more tries: {up_to}{_at(deciding)}, {needed}"
    return verdict("curves_cross", said, deciding.difference, shown=crosses, num=num_problems)


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
