"""Does the gain hold over runs of the same training?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.claim.part import Cost, Part, Points, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import undetermined, verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.statistics import paired_difference
from swerve.statistics.clusters import Array, Clusters, cluster_sums
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


class RunsPart(Part):
    """Does it hold over runs?"""

    needs_models = False
    is_of_samples = True

    base: Share = None
    trained: Share = None
    """Mean over runs, with the interval over runs and problems, as that of the difference."""
    difference: Points = None
    runs: tuple[RunRow, ...] = ()

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
        part = runs_part(labels, rates[0], rates[1:], clusters=clusters)
        notes = [note for pair in pairs[1:] for note in pair.notes]
        return part.model_copy(update={"notes": (*part.notes, *notes)})

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        return Cost(samples=(num_runs - 1) * num_problems * settings.num_samples)


def runs_part(
    labels: list[str], base: Array, runs: NDArray[np.float64], *, clusters: Clusters | None = None
) -> RunsPart:
    """Return what the accuracies of several runs show.

    Args:
        labels: of R runs.
        base: `[N]`, the base's share of right samples at each problem.
        runs: `[R, N]`, those of each run.
        clusters: `[N]`, which problems belong together (their groups); by default each is its own cluster.
    """
    # Of one problem, or problems of one group, there is no interval.
    over = rows_and_columns_interval(by_cluster(runs - base, clusters), bounds=_CHANGE)
    trained, before = (float(rates.mean()) for rates in (runs, base))
    has_fallen = over is not None and over.high < 0
    claim, more = ("accuracy_fell_over_runs", "less") if has_fallen else ("accuracy_rose_over_runs", "more")
    if over is None:
        because = "an interval over runs takes two problems, or two groups of them"
        line = undetermined(claim, f"{counted(len(labels), 'run')} of {labels[0]} are right more often", because)
    else:
        ends = f"{percent_as(trained, over)} of the samples against {percent_as(before, over)} of the base's"
        said = f"the model is right {more} often: {ends}"
        if not over.excludes(0):
            said = f"no change in accuracy is to be seen: right are {ends}"
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


def by_cluster(table: NDArray[np.float64], clusters: Clusters | None) -> NDArray[np.float64]:
    """Return `[R, C]`: what each cluster of N columns adds to the means of R rows, which stay as they are.

        m_r + (sum over c of x_rn - m_r n_c) C / N

    with n_c columns in cluster c: its mean where all have as many, and otherwise it weighs as its columns do.

    >>> by_cluster(np.array([[1.0, 0.0, 0.5]]), ["a", "a", "b"]).tolist(), by_cluster(np.array([[1.0]]), None).tolist()
    ([[0.5, 0.5]], [[1.0]])
    """
    if clusters is None:
        return table
    *sums, sizes = cluster_sums([*table, np.ones(table.shape[1])], clusters).T
    means = table.mean(axis=1, keepdims=True)
    values: NDArray[np.float64] = means + (np.array(sums) - means * sizes) * len(sizes) / table.shape[1]
    return values
