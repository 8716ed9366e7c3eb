"""Does the gain hold over runs of the same training?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.record import Record
from swerve.claim.part import Cost, Part, Points, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import undetermined, verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.statistics import paired_difference
from swerve.statistics.clusters import Array, Clusters, by_cluster
from swerve.statistics.intervals import mean_interval, rows_and_columns_interval
from swerve.text import counted, percent_as
from swerve.types import clusters_of

_SHARE, _CHANGE = (0.0, 1.0), (-1.0, 1.0)


class RunRow(Row):
    """One of several runs of the same training."""

    run: str
    accuracy: Share
    difference: Points
    """From the base's, with the interval over problems alone."""


class RunRates(Record):
    """How often the answers to a problem are right."""

    problem: str
    base: float
    runs: tuple[float, ...]
    """Of each run, as in the table of runs."""
    group: str = ""
    """What it counts as in intervals, of problems in groups."""


class RunsPart(Part):
    """Does it hold over runs?"""

    needs_models = False
    is_of_samples = True

    base: Share = None
    trained: Share = None
    """Mean over runs, with the interval over runs and problems, as that of the difference."""
    difference: Points = None
    runs: tuple[RunRow, ...] = ()
    rates: tuple[RunRates, ...] = ()
    """What all of it was made of."""

    @classmethod
    def measure(cls, work: Work) -> RunsPart:
        """Measure it; see `Part.measure`."""
        if not work.runs:
            raise NotMeasuredError("needs further runs of the same training: give them after the first")
        pairs = [work.paired, *work.paired_runs]
        shared = [name for name in pairs[0].first if all(name in pair.second for pair in pairs)]
        sides = [pairs[0].first, *(pair.second for pair in pairs)]
        rates = np.array([[np.mean([bool(one.correct) for one in side[name]]) for name in shared] for side in sides])
        problems = dict(zip(work.samples[0], work.problem_of_each, strict=True))
        clusters = clusters_of(problems[name] for name in shared)
        labels = [work.trained.label, *(run.label for run in work.runs)]
        part = runs_part(labels, rates[0], rates[1:], before=work.base.label, of=work.samples_said, clusters=clusters)
        notes = [note for pair in pairs[1:] for note in pair.notes]
        known = zip(shared, rates[0].tolist(), rates[1:].T.tolist(), clusters or [""] * len(shared), strict=True)
        by_problem = tuple(RunRates(problem=name, base=own, runs=runs, group=group) for name, own, runs, group in known)
        return part.model_copy(update={"notes": (*part.notes, *notes), "rates": by_problem})

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        return Cost(samples=(num_runs - 1) * num_problems * settings.num_samples)


def runs_part(
    labels: list[str],
    base: Array,
    runs: NDArray[np.float64],
    *,
    before: str = "base",
    of: str = "sampled answers",
    clusters: Clusters | None = None,
) -> RunsPart:
    """Return what the accuracies of several runs show.

    Args:
        labels: of R runs.
        base: `[N]`, the base's share of right samples at each problem.
        runs: `[R, N]`, those of each run.
        before: label of the base.
        of: what the samples are called; see `Work.samples_said`.
        clusters: `[N]`, which problems belong together (their groups); by default each is its own cluster.
    """
    # Of one problem, or problems of one group, there is no interval.
    over = rows_and_columns_interval(by_cluster(runs - base, clusters), bounds=_CHANGE)
    means = [float(rates.mean()) for rates in (runs, base)]
    has_fallen = over is not None and over.high < 0
    claim, more = ("accuracy_fell_over_runs", "less") if has_fallen else ("accuracy_rose_over_runs", "more")
    if over is None:
        because = "an interval over runs takes two problems, or two groups of them"
        line = undetermined(
            claim, f"{counted(len(labels), 'run')} of `{labels[0]}` are right more often than `{before}`", because
        )
    else:
        after, first = (percent_as(mean, over) for mean in means)
        said = f"training from `{before}` makes answers right {more} often: {after} against {first} of {of}"
        if not over.excludes(0):
            said = (
                f"no change in accuracy is to be seen: the runs are right in {after} and `{before}` in {first} of {of}"
            )
        line = verdict(claim, said, over, shown=over.excludes(0), num=len(labels), unit="run")
    return RunsPart(
        verdicts=(line,),
        notes=(
            "The intervals over runs are of new runs of this training on new "
            f"{'groups' if clusters else 'problems'} of this kind.",
        ),
        base=mean_interval(base, clusters=clusters, bounds=_SHARE),
        trained=rows_and_columns_interval(by_cluster(runs, clusters), bounds=_SHARE),
        difference=over,
        runs=tuple(
            RunRow(
                run=label,
                accuracy=mean_interval(rates, clusters=clusters, bounds=_SHARE),
                difference=paired_difference(base, rates, clusters=clusters, bounds=_CHANGE)[0],
            )
            for label, rates in zip(labels, runs, strict=True)
        ),
    )
