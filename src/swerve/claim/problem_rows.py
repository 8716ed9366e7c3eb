"""The rows of a card's lines on samples: a problem a row, with what both models wrote to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from swerve.artifacts.excerpts import held_said
from swerve.claim.answers import AnsweredProblem
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure, Value, with_interval
from swerve.report.rows import mean_of
from swerve.statistics.pass_at_k import pass_at_k
from swerve.statistics.sample_counts import most_have
from swerve.text import percent_as, points_interval

BASE, TRAINED = "base", "trained"
"""Columns of both models, which pages call by their labels."""
OPENS = "problem "
"""What stands before a problem's name where the page holds what was written to it."""
Columns = dict[str, Sequence[Value]]


def means(size: Any, columns: Sequence[str] = (BASE, TRAINED)) -> list[Figure]:
    """Return the figures of means of columns, as fine as the line's difference."""
    write = partial(percent_as, difference=size)
    return [Figure(name=name, statistic="mean", columns=(name,), write=write) for name in columns]


def over_problems(size: Estimate, *, has_means: bool = True) -> list[Figure]:
    """Return the figures of a paired difference whose rows are problems: both means, and its interval."""
    difference = Figure(name="difference", statistic="paired difference of means", columns=(BASE, TRAINED))
    return [*means(size) * has_means, *with_interval(difference, points_interval, size, 0.95)]


def _rates(card: ClaimCard) -> tuple[list[str], list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the problems, and of each model how many samples of each were right, of how many.

    Those on which the models differ most come first.
    """
    rows = sorted(
        card.by_problem,
        key=lambda row: -abs(_share(row.trained_right, row.trained_samples) - _share(row.base_right, row.base_samples)),
    )
    before = [(row.base_right or 0, row.base_samples or 0) for row in rows]
    return [row.problem for row in rows], before, [(row.trained_right or 0, row.trained_samples or 0) for row in rows]


def _share(right: int | None, num: int | None) -> float:
    return (right or 0) / (num or 1)


def _of_samples(card: ClaimCard, id: str, columns: Columns, figures: Sequence[Figure], chosen: str) -> Evidence:
    held = held_said(len(card.written), len(card.by_problem))
    names: Sequence[Any] = columns["problem"]
    groups = {row.problem: row.group for row in card.by_problem if row.group}
    if groups and "group" not in columns:
        columns = {**columns, "group": [groups[name] for name in names]}
    return Evidence(
        id=id,
        table="claim.json, by_problem",
        filter=chosen,
        columns=columns,
        figures=tuple(figures),
        command=_COMMAND,
        note=held,
        opens=OPENS if held else "",
    )


_COMMAND = """import json
import pandas as pd
rows = pd.DataFrame(json.load(open("claim.json"))["by_problem"]).set_index("problem")
rows["base"], rows["trained"] = rows.base_right / rows.base_samples, rows.trained_right / rows.trained_samples"""


def accuracy_rows(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the accuracy at each problem, or pass@k where a line is of several samples."""
    if verdict.claim in ("accuracy_rose", "accuracy_fell"):
        return rate_rows(card, over_problems(verdict.estimate) if isinstance(verdict.estimate, Estimate) else ())
    names, before, after = _rates(card)
    if not names:
        return None

    # The k whose interval the line has; above one sample the problems that have enough of them.
    row = next((row for row in card.accuracy.pass_at_k if row.difference == verdict.estimate), None)
    if row is None or row.k is None:
        return None
    k = row.k
    full = most_have([[num for _, num in side] for side in (before, after)]) if k > 1 else 1
    kept = [at for at in range(len(names)) if min(before[at][1], after[at][1]) >= max(k, full)]
    columns: Columns = {"problem": [names[at] for at in kept]}
    for name, side in ((BASE, before), (TRAINED, after)):
        columns[name] = [pass_at_k(side[at][1], side[at][0], k) for at in kept]
    has_means = "against" in verdict.sentence  # of an earlier card it has none
    figures = over_problems(row.difference, has_means=has_means) if isinstance(row.difference, Estimate) else ()
    return _of_samples(
        card, f"pass-at-{k}", columns, figures, f"the chance that one of {k} answers is right (pass@{k})"
    )


def level_rows(card: ClaimCard) -> Evidence | None:
    """Return the base's chance of a right answer in several tries, and the trained model's in one."""
    row, (names, before, after) = card.accuracy.level, _rates(card)
    if not names or row is None or row.k is None or not isinstance(row.difference, Estimate):
        return None
    full = max(row.k, most_have([[num for _, num in side] for side in (before, after)]))
    write = partial(percent_as, difference=row.difference)
    columns: Columns = {
        "problem": names,
        BASE: [
            pass_at_k(num, right, row.k) if min(num, other) >= full else None
            for (right, num), (_, other) in zip(before, after, strict=True)
        ],
        TRAINED: [right / num for right, num in after],
        "tries": [row.k] * len(names),
    }
    figures = [Figure(name=name, statistic="mean", columns=(name,), write=write) for name in (BASE, TRAINED)]
    figures.append(Figure(name="tries", statistic="most", columns=("tries",)))
    said = f"the chance that one of {row.k} answers of `{card.base}` is right, and that one of `{card.trained}` is"
    return _of_samples(card, f"level-{row.k}", columns, figures, said)


def rate_rows(card: ClaimCard, figures: Sequence[Figure]) -> Evidence | None:
    """Return the share of right samples at each problem, of each model."""
    names, before, after = _rates(card)
    if not names:
        return None
    columns: Columns = {"problem": names}
    for name, side in ((BASE, before), (TRAINED, after)):
        columns[name] = [right / num for right, num in side]
        columns[f"{name}_right"], columns[f"{name}_answers"] = zip(*side, strict=True)
    return _of_samples(card, "accuracy", columns, figures, "the share of answers that are right")


def solved_rows(card: ClaimCard) -> Evidence | None:
    """Return which model solved which problem."""
    names, before, after = _rates(card)
    if not names:
        return None
    first, second = ([int(right > 0) for right, _ in side] for side in (before, after))
    pairs = [*zip(first, second, strict=True)]
    columns: Columns = {"problem": names, BASE: first, TRAINED: second}
    columns |= {"both": [a * b for a, b in pairs], "neither": [(1 - a) * (1 - b) for a, b in pairs]}
    figures = [
        Figure(name="problems", statistic="rows"),
        Figure(name="only_trained", statistic="rises", columns=(BASE, TRAINED)),
        Figure(name="only_base", statistic="falls", columns=(BASE, TRAINED)),
        *(Figure(name=name, statistic="sum", columns=(name,)) for name in ("both", "neither")),
    ]
    return _of_samples(card, "solved", columns, figures, "whether an answer is right")


def gained_rows(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the problems that only the trained model solved, with the base's chance of a right answer."""
    rows = card.gained.gained
    most = 10 * card.num_samples
    within = [int(row.bound * most >= 1) for row in rows]
    figures = [
        Figure(name="new problems", statistic="rows"),
        Figure(name="solved within them", statistic="sum", columns=("within",)),
        Figure(name="most tries", statistic="most", columns=("most tries",)),
    ]
    if len(rows) == 1:
        figures = [Figure(name="tries", statistic="mean", columns=("tries",))] if verdict.shown else []
    return Evidence(
        id="gained-problems",
        table="claim.json, gained.gained",
        filter=f"problems that `{card.trained}` solved and `{card.base}` never did",
        columns={
            "problem": [row.problem for row in rows],
            "chance": [row.bound for row in rows],
            "tries": [mean_of(row.samples_needed) for row in rows],
            "within": within,
            "most tries": [most] * len(rows),
        },
        figures=tuple(figures),
        note=f"`{card.base}` has at least this chance of a right answer: that of those that `{card.trained}` wrote.",
        opens=OPENS if card.written else "",
    )


_GAINS = {"gain_by_finishing": "truncation", "gain_by_format": "format", "gain_by_correctness": "correctness"}
_COUNTED = ("answers", "finished", "parsed", "right")
"""Of answers to a problem, each of those before."""


def answer_rows(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return how the answers to each problem came out."""
    part = _GAINS[verdict.claim]
    if not card.answers_by_problem or not isinstance(verdict.estimate, Estimate):
        return None
    columns = tuple(f"{side}_{name}" for side in (BASE, TRAINED) for name in _COUNTED)
    gain = Figure(name=part, statistic=f"{part} of the gain", columns=columns)
    return _counted(card, part, with_interval(gain, points_interval, verdict.estimate, 0.95), _COUNTED)


def cut_off_rows(card: ClaimCard) -> Evidence:
    """Return how many answers to each problem are finished, and how many were cut off."""
    names = ("answers", "finished", "wrong", "wrong_cut", "right", "right_cut")
    columns = [f"{side}_{name}" for name in names for side in (BASE, TRAINED)]
    return _counted(card, "cut", [Figure(name=name, statistic="sum", columns=(name,)) for name in columns], names)


def _counted(card: ClaimCard, id: str, figures: Sequence[Figure], names: Sequence[str]) -> Evidence:
    """Return how the answers to each problem came out, those first of which most changed."""

    def change(row: AnsweredProblem) -> float:
        shares = [[getattr(side, name) / side.answers for name in _COUNTED[1:]] for side in (row.base, row.trained)]
        return -max(abs(float(after - before)) for before, after in zip(*shares, strict=True))

    rows = sorted(card.answers_by_problem, key=change)
    columns: Columns = {"problem": [row.problem for row in rows]}
    for side in (BASE, TRAINED):
        columns |= {f"{side}_{name}": [getattr(getattr(row, side), name) for row in rows] for name in names}
    made = _of_samples(card, f"answers-{id}", columns, figures, "how the answers came out")
    return replace(made, table="claim.json, answers_by_problem", command=_COUNTS)


_COUNTS = """import json
import pandas as pd
rows = pd.json_normalize(json.load(open("claim.json"))["answers_by_problem"]).set_index("problem")"""


def run_rows(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the accuracy of the base and of each run at each problem."""
    rates, size = card.runs.rates, verdict.estimate
    if not rates or not isinstance(size, Estimate):
        return None
    runs = [TRAINED, *(f"run {row.run}" for row in card.runs.runs[1:])]
    rows = sorted(rates, key=lambda row: -abs(sum(row.runs) / len(row.runs) - row.base))
    columns: Columns = {"problem": [row.problem for row in rows], BASE: [row.base for row in rows]}
    columns |= {run: [row.runs[number] for row in rows] for number, run in enumerate(runs)}
    if any(row.group for row in rows):
        columns["group"] = [row.group for row in rows]
    ends = [BASE, *runs]
    difference = Figure(name="difference", statistic=_OVER_RUNS, columns=tuple(ends))
    write = partial(percent_as, difference=size)
    figures = [
        Figure(name="runs", statistic="columns", columns=tuple(runs)),
        Figure(name="mean over runs", statistic="mean over runs", columns=tuple(runs), write=write),
        *means(size, (BASE,)),
        *with_interval(difference, points_interval, size, 0.95),
    ]
    made = _of_samples(card, "runs", columns, figures, "the share of answers that are right, of each run")
    return replace(made, table="claim.json, runs.rates", command=_RUNS)


_OVER_RUNS = "mean over runs, less that of the first"
_RUNS = """import json
import pandas as pd
rows = pd.DataFrame(json.load(open("claim.json"))["runs"]["rates"]).set_index("problem")
runs = pd.DataFrame(rows.runs.tolist(), rows.index)  # a column of each run"""


def compared_rows(card: ClaimCard, part: str, verdict: ClaimVerdict) -> Evidence:
    """Return the rates of each problem, of which a line has the difference of the first two; it holds them itself."""
    names = tuple(name for name in verdict.rows if name not in ("problem", "group"))
    difference = Figure(name="difference", statistic="paired difference of means", columns=names[:2])
    size = verdict.estimate
    assert isinstance(size, Estimate)
    chosen = f"line['claim'] == {verdict.claim!r} and line['of'] == {verdict.of!r}"
    return Evidence(
        id="-".join(filter(None, (part, verdict.of or verdict.claim))),
        table=f"claim.json, {part}.verdicts",
        filter="the rates of each problem",
        columns=dict(verdict.rows),
        figures=(*means(size, names), *with_interval(difference, points_interval, size, 0.95)),
        command="import json\nimport pandas as pd\n"
        f'lines = json.load(open("claim.json"))["{part}"]["verdicts"]\n'
        f"rows = pd.DataFrame(next(line['rows'] for line in lines if {chosen}))",
        opens=OPENS if part == "prompts" and card.written else "",
    )
