"""The rows that lines of a card were made of: of samples a problem a row, of the other parts those of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from swerve.claim.part import Part, Row
from swerve.claim.reasoning import KEPT
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.rows import mean_of
from swerve.statistics.pass_at_k import pass_at_k
from swerve.statistics.sample_counts import most_have
from swerve.text import count, percent, percent_as, points_interval

_BASE, _TRAINED = "before", "after"
"""Columns of both models."""
_NOTE = "Brackets are intervals over problems."
Columns = dict[str, Sequence[Value]]
Make = Callable[[ClaimCard, ClaimVerdict], Evidence | None]
"""Finds the rows of a line."""


def fact_evidence(card: ClaimCard, name: str, part: Part) -> Iterator[tuple[str, Evidence | None]]:
    """Yield what a part says that is no claim, each with its rows."""
    for number, fact in enumerate(part.facts):
        yield fact, _solved(card) if name == "gained" and not number else None


def line_evidence(card: ClaimCard, name: str, verdict: ClaimVerdict) -> Evidence | None:
    """Return the rows behind a line of a part; None where it is not determined, or its card has no such rows."""
    make = _OF_PARTS.get(name)
    if verdict.shown is None or make is None:
        return None
    found = make(card, verdict)
    if found is not None and verdict.estimate is None and verdict.claim != "base_reaches_gained":
        return replace(found, figures=())  # of a card without intervals there is nothing to compare with
    return found


def _by(size: Estimate, value: float) -> str:
    """Write a difference as fine as the line does."""
    low, high = size.low - size.mean, size.high - size.mean
    return points_interval(Estimate(mean=value, low=value + low, high=value + high)).partition(" (")[0]


def _pair(size: Any, *, has_ends: bool = True, columns: tuple[str, str] = (_BASE, _TRAINED)) -> list[Figure]:
    """Return the figures of a paired difference, and of its ends."""
    difference = Figure(
        name="difference", statistic="paired difference of means", columns=columns, write=partial(_by, size)
    )
    write = partial(percent_as, difference=size)
    ends = [Figure(name=name, statistic="mean", columns=(name,), write=write) for name in columns]
    return [*ends, difference] if has_ends else [difference]


def _rates(card: ClaimCard) -> tuple[list[str], list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the problems, and of each model how many samples of each were right, of how many."""
    rows = card.by_problem
    before = [(row.base_right or 0, row.base_samples or 0) for row in rows]
    return [row.problem for row in rows], before, [(row.trained_right or 0, row.trained_samples or 0) for row in rows]


def _of_samples(id: str, columns: Columns, figures: Sequence[Figure], filter: str) -> Evidence:
    return Evidence(
        id=id,
        table="claim.json, by_problem",
        filter=filter,
        columns=columns,
        figures=tuple(figures),
        command=_COMMAND,
        note=_NOTE,
    )


_COMMAND = """import json
import pandas as pd
rows = pd.DataFrame(json.load(open("claim.json"))["by_problem"]).set_index("problem")
before, after = rows.base_right / rows.base_samples, rows.trained_right / rows.trained_samples"""


def _accuracy(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the accuracy at each problem, or pass@k where a line is of several samples."""
    names, before, after = _rates(card)
    if not names:
        return None
    if verdict.claim in ("accuracy_rose", "accuracy_fell"):
        columns: Columns = {"problem": names}
        for name, side in ((_BASE, before), (_TRAINED, after)):
            columns[name] = [right / num for right, num in side]
            columns[f"right {name}"], columns[f"samples {name}"] = zip(*side, strict=True)
        return _of_samples("accuracy", columns, _pair(verdict.estimate), "the fraction of samples that are right")

    # The k whose interval the line has; above one sample the problems that have enough of them.
    rows = [row for row in card.accuracy.pass_at_k if row.difference == verdict.estimate]
    if not rows or rows[0].k is None:
        return None
    k = rows[0].k
    full = most_have([[num for _, num in side] for side in (before, after)]) if k > 1 else 1
    kept = [at for at in range(len(names)) if min(before[at][1], after[at][1]) >= max(k, full)]
    columns = {"problem": [names[at] for at in kept]}
    for name, side in ((_BASE, before), (_TRAINED, after)):
        columns[name] = [pass_at_k(side[at][1], side[at][0], k) for at in kept]
    figures = _pair(verdict.estimate, has_ends=False)
    return _of_samples(f"pass-at-{k}", columns, figures, f"the chance that one of {k} samples is right (pass@{k})")


def _solved(card: ClaimCard) -> Evidence | None:
    """Return which model solved which problem."""
    names, before, after = _rates(card)
    if not names:
        return None
    first, second = ([int(right > 0) for right, _ in side] for side in (before, after))
    pairs = [*zip(first, second, strict=True)]
    columns: Columns = {"problem": names, _BASE: first, _TRAINED: second}
    columns |= {"both": [a * b for a, b in pairs], "neither": [(1 - a) * (1 - b) for a, b in pairs]}
    figures = [
        Figure(name="problems", statistic="rows"),
        Figure(name="the trained model alone", statistic="rises", columns=(_BASE, _TRAINED)),
        Figure(name="the base alone", statistic="falls", columns=(_BASE, _TRAINED)),
        *(Figure(name=name, statistic="sum", columns=(name,)) for name in ("both", "neither")),
    ]
    return _of_samples("solved", columns, figures, "whether a sample is right")


def _gained(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the problems that only the trained model solved, with the base's chance of a right answer."""
    rows = card.gained.gained
    most = 10 * card.num_samples
    within = [int(row.bound * most >= 1) for row in rows]
    figures = [
        Figure(name="new problems", statistic="rows"),
        Figure(name=f"within {most:,} tries", statistic="sum", columns=("within",)),
    ]
    if len(rows) == 1:
        figures = [Figure(name="tries", statistic="mean", columns=("tries",))] if verdict.shown else []
    return Evidence(
        id="gained-problems",
        table="claim.json, gained.gained",
        filter="problems that the trained model solved and the base never did",
        columns={
            "problem": [row.problem for row in rows],
            "chance": [row.bound for row in rows],
            "tries": [mean_of(row.samples_needed) for row in rows],
            "within": within,
        },
        figures=tuple(figures),
        note="The base has at least this chance of a right answer: that of those that the trained model wrote.",
    )


def _table(
    part: str, table: str, chosen: Callable[[Any, ClaimVerdict], bool], figures: Callable[[ClaimVerdict], list[Figure]]
) -> Make:
    """Return how the rows of a part's table are the evidence of its lines.

    Args:
        part: its name on the card.
        table: its name in the part.
        chosen: whether a row is behind a line.
        figures: that a line has of these rows.
    """

    def make(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
        rows: list[Row] = [row for row in getattr(getattr(card, part), table) if chosen(row, verdict)]
        if not rows:
            return None
        columns: Columns = {name: [mean_of(getattr(row, name)) for row in rows] for name in type(rows[0]).model_fields}
        return Evidence(
            id="-".join(filter(None, (part, table, verdict.of or verdict.claim))),
            table=f"claim.json, {part}.{table}",
            unit="row",
            columns=columns,
            figures=tuple(figures(verdict)),
            command="import json\nimport pandas as pd\n"
            f'rows = pd.DataFrame(json.load(open("claim.json"))["{part}"]["{table}"])',
            note="Each cell is a mean over problems. Brackets are intervals over them.",
        )

    return make


def _mean(column: str, size: Any, *, is_difference: bool = False) -> Figure:
    write = partial(_by, size) if is_difference else partial(percent_as, difference=size)
    return Figure(name=column, statistic="mean", columns=(column,), write=write)


def _runs(verdict: ClaimVerdict) -> list[Figure]:
    size = verdict.estimate
    return [
        Figure(name="runs", statistic="rows"),
        _mean("accuracy", size),
        _mean("difference", size, is_difference=True),
    ]


def _reasoning(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return the chance of an answer after parts of its own reasoning, and of another problem's."""
    own = "trained" if verdict.of == card.trained else "base"
    columns = (f"{own}_other", own)
    make = _table(
        "reasoning", "curve", lambda row, _: row.kept > KEPT[0], lambda line: _pair(line.estimate, columns=columns)
    )
    return make(card, verdict)


def _weights(card: ClaimCard, verdict: ClaimVerdict) -> Evidence | None:
    """Return what is right with a part of the change, or with each random one of its size."""
    if verdict.claim == "part_suffices":
        make = _table(
            *("weights", "grafts", lambda row, line: row.graft == line.of),
            lambda line: (
                [_mean("accuracy", line.estimate), _mean("difference", line.estimate, is_difference=True)]
                if line.shown
                else []
            ),
        )
        return make(card, verdict)
    return Evidence(
        id=f"weights-directions-{verdict.of}",
        table="claim.json, weights.directions",
        unit="direction",
        columns={"direction": [*range(len(card.weights.directions))], "accuracy": card.weights.directions},
        figures=(
            Figure(name="random changes", statistic="rows", write=count),
            Figure(name="the best of them", statistic="most", columns=("accuracy",), write=percent),
        ),
        note="Greedy answers of the base with a random change of each weight, as large as the part's.",
    )


_GAINS = {"gain_by_finishing": "truncation", "gain_by_format": "format", "gain_by_correctness": "correctness"}


def _is_of_noise(row: Any, verdict: ClaimVerdict) -> bool:
    """Return whether a figure of the probe is the one whose difference from noise a line has."""
    size = verdict.estimate
    return (
        isinstance(size, Estimate)
        and row.noise is not None
        and abs(mean_of(row.value) - mean_of(row.noise) - size.mean) < 1e-6
    )


_OF_PARTS: dict[str, Make] = {
    "accuracy": _accuracy,
    "runs": _table("runs", "runs", lambda row, _: True, _runs),
    "prompts": _table(
        *("prompts", "prompts", lambda row, line: row.difference == line.estimate),
        lambda line: [_mean("base", line.estimate), _mean("difference", line.estimate, is_difference=True)],
    ),
    "gained": _gained,
    "answers": _table(
        *("answers", "gains", lambda row, line: row.part == _GAINS[line.claim]),
        lambda line: [_mean("gain", line.estimate, is_difference=True)],
    ),
    "contamination": _table(
        *("contamination", "completions", lambda row, line: row.model == line.of),
        lambda line: _pair(line.estimate, columns=("exact_control", "exact")),
    ),
    "forgetting": _table(
        *("forgetting", "tasks", lambda row, line: row.task == line.of),
        lambda line: _pair(line.estimate, columns=("trained", "base")),
    ),
    "behaviour": _table(
        *("behaviour", "figures", _is_of_noise),
        lambda line: _pair(line.estimate, columns=("noise", "value")),
    ),
    "weights": _weights,
    "reasoning": _reasoning,
    "controls": _table(
        *("controls", "arms", lambda row, line: row.arm == line.of),
        lambda line: [_mean("difference", line.estimate, is_difference=True)],
    ),
}
"""How the rows of a line are found, by the part that it is of."""
