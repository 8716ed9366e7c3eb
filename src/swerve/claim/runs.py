"""Does the gain hold over runs of the same training?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.claim import RunRow, RunsPart
from swerve.claim.verdicts import verdict
from swerve.claim.work import NotMeasuredError, Work
from swerve.statistics import paired_difference
from swerve.statistics.clusters import Array
from swerve.statistics.intervals import mean_interval, rows_and_columns_interval
from swerve.text import counted, percent

_SHARE, _CHANGE = (0.0, 1.0), (-1.0, 1.0)


def measure(work: Work) -> RunsPart:
    """Return this part: the accuracy of each run over the problems that all have.

    Raises:
        NotMeasuredError: there is one run.
        ElsewhereError: other shards have samples that it needs.
    """
    if not work.runs:
        raise NotMeasuredError("needs further runs of the same training: give them after the first")
    pairs = [work.paired, *map(work.paired_run, work.runs)]
    shared = [name for name in pairs[0].first if all(name in pair.second for pair in pairs)]
    sides = [pairs[0].first, *(pair.second for pair in pairs)]
    rates = np.array([[np.mean([bool(one.correct) for one in side[name]]) for name in shared] for side in sides])
    part = runs_part([work.trained.label, *(run.label for run in work.runs)], rates[0], rates[1:])
    notes = [note for pair in pairs[1:] for note in pair.notes]
    return part.model_copy(update={"notes": (*part.notes, *notes)})


def runs_part(labels: list[str], base: Array, runs: NDArray[np.float64]) -> RunsPart:
    """Return what the accuracies of several runs show.

    Args:
        labels: of R runs.
        base: `[N]`, the base's share of right samples at each problem.
        runs: `[R, N]`, those of each run.
    """
    changes = runs - base
    over = rows_and_columns_interval(changes, bounds=_CHANGE)
    assert over is not None, "there are several runs, and problems"
    trained, before = (float(rates.mean()) for rates in (runs, base))
    claim, more = ("accuracy_fell_over_runs", "less") if over.high < 0 else ("accuracy_rose_over_runs", "more")
    said = f"{counted(len(labels), 'run')} of {labels[0]} are right {more} often, "
    said += f"{percent(trained)} against {percent(before)}"
    return RunsPart(
        verdicts=(verdict(claim, said, over, shown=over.excludes(0), num=len(labels)),),
        notes=("The intervals over runs are of new runs of this training on new problems of this kind.",),
        base=mean_interval(base, bounds=_SHARE),
        trained=rows_and_columns_interval(runs, bounds=_SHARE),
        difference=over,
        runs=tuple(
            RunRow(
                run=label,
                accuracy=mean_interval(rates, bounds=_SHARE),
                difference=paired_difference(base, rates, bounds=_CHANGE)[0],
            )
            for label, rates in zip(labels, runs, strict=True)
        ),
    )
