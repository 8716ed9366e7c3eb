"""The rows that lines of a card were made of: of samples a problem a row, of the other parts those of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from swerve.claim.part import Part, Row
from swerve.claim.problem_rows import (
    BASE,
    TRAINED,
    Columns,
    accuracy_rows,
    answer_rows,
    compared_rows,
    cut_off_rows,
    gained_rows,
    level_rows,
    means,
    rate_rows,
    run_rows,
    solved_rows,
)
from swerve.claim.record import ClaimCard
from swerve.claim.verdicts import ClaimVerdict
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure
from swerve.report.rows import mean_of
from swerve.text import count, percent, percent_as, points_interval

_PLACE = "in the folder of claim.json"
_TAKEN = {
    "problem",
    "group",
    "both",
    "neither",
    "row",
    "chance",
    "tries",
    "within",
    "run",
    "prompt",
    "over",
    "n",
    "difference",
    "accuracy",
    "graft",
    "direction",
    "value",
}
"""Names of other columns, which a model may be called too."""
Make = Callable[[ClaimCard, ClaimVerdict], Evidence | None]
"""Finds the rows of a line."""


def fact_evidence(card: ClaimCard, name: str, part: Part) -> Iterator[tuple[str, Evidence | None]]:
    """Yield what a part says that is no claim, each with its rows."""
    for number, fact in enumerate(part.facts(card.base, card.trained)):
        rows = _renamed(card, level_rows(card)) if name == "accuracy" else None
        if name == "answers":
            rows = _renamed(card, cut_off_rows(card))
        if name == "gained":  # what more answers would solve is estimated from how many of each problem are right
            rows = _renamed(card, rate_rows(card, ()) if number else solved_rows(card))
        yield fact, rows


def line_evidence(card: ClaimCard, name: str, verdict: ClaimVerdict) -> Evidence | None:
    """Return the rows behind a line of a part; None where it is not determined, or its card has no such rows."""
    if verdict.shown is None:
        return None
    if verdict.rows:
        return _renamed(card, compared_rows(card, name, verdict))
    make = _OF_PARTS.get(name)
    found = None if make is None else _renamed(card, make(card, verdict))
    if found is not None and verdict.estimate is None and verdict.claim != "base_reaches_gained":
        return replace(found, figures=())  # of a card without intervals there is nothing to compare with
    return found


def side_name(card: ClaimCard, field: str) -> str:
    """Return what a page calls a field or a column: those of either model by its label.

    >>> card = ClaimCard(base="old", trained="new", task="", num_problems=1, num_samples=1, inputs="")
    >>> side_name(card, "base"), side_name(card, "trained_other"), side_name(card, "only_base"), side_name(card, "gain")
    ('old', 'new, other', 'only old', 'gain')
    """
    for side, label in ((BASE, card.base), (TRAINED, card.trained)):
        name = f"model {label}" if label in _TAKEN else label
        if field == side:
            return name
        if field.startswith(f"{side}_"):
            return f"{name}, {field.removeprefix(f'{side}_').replace('_', ' ')}"
        if field.endswith(f"_{side}"):
            return f"{field.removesuffix(f'_{side}').replace('_', ' ')} {name}"
    return field


def _renamed(card: ClaimCard, found: Evidence | None) -> Evidence | None:
    """Return rows with the columns of both models under their labels."""
    if found is None:
        return None
    figures = [
        replace(
            figure,
            name=side_name(card, figure.name),
            columns=tuple(side_name(card, name) for name in figure.columns),
        )
        for figure in found.figures
    ]
    columns = {side_name(card, name): column for name, column in found.columns.items()}
    return replace(found, columns=columns, figures=tuple(figures), place=_PLACE)


def _by(size: Estimate, value: float) -> str:
    """Write a difference as fine as the line does."""
    low, high = size.low - size.mean, size.high - size.mean
    return points_interval(Estimate(mean=value, low=value + low, high=value + high)).partition(" (")[0]


def _pair(size: Any, *, columns: tuple[str, str] = (BASE, TRAINED)) -> list[Figure]:
    """Return the figures of a paired difference, and of both means."""
    difference = Figure(
        name="difference", statistic="paired difference of means", columns=columns, write=partial(_by, size)
    )
    return [*means(size, columns), difference]


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
        over = []
        if verdict.num is not None:
            columns["n"] = [verdict.num] * len(rows)
            over = [Figure(name="n", statistic="most", columns=("n",))]
        return Evidence(
            id="-".join(filter(None, (part, table, verdict.of or verdict.claim))),
            table=f"claim.json, {part}.{table}",
            unit="row",
            columns=columns,
            figures=(*figures(verdict), *over),
            command="import json\nimport pandas as pd\n"
            f'rows = pd.DataFrame(json.load(open("claim.json"))["{part}"]["{table}"])',
            note="Each cell is a mean over problems. Brackets are intervals over them.",
        )

    return make


def _mean(column: str, size: Any, *, is_difference: bool = False) -> Figure:
    write = partial(_by, size) if is_difference else partial(percent_as, difference=size)
    return Figure(name=column, statistic="mean", columns=(column,), write=write)


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
        columns={
            "direction": [*range(len(card.weights.directions))],
            "accuracy": card.weights.directions,
            verdict.of: [mean_of(verdict.estimate)] * len(card.weights.directions),
        },
        figures=(
            Figure(name=verdict.of, statistic="mean", columns=(verdict.of,), write=percent),
            Figure(name="random changes", statistic="rows", write=count),
            Figure(name="the best of them", statistic="most", columns=("accuracy",), write=percent),
        ),
        note="Greedy answers of the model before with a random change of each weight, as large as the part's.",
    )


def _is_of_noise(row: Any, verdict: ClaimVerdict) -> bool:
    """Return whether a figure of the probe is the one whose difference from noise a line has."""
    size = verdict.estimate
    return (
        isinstance(size, Estimate)
        and row.noise is not None
        and abs(mean_of(row.value) - mean_of(row.noise) - size.mean) < 1e-6
    )


_OF_PARTS: dict[str, Make] = {
    "accuracy": accuracy_rows,
    "runs": run_rows,
    "gained": gained_rows,
    "answers": answer_rows,
    "behaviour": _table(
        *("behaviour", "figures", _is_of_noise),
        lambda line: _pair(line.estimate, columns=("noise", "value")),
    ),
    "weights": _weights,
    "controls": _table(
        *("controls", "arms", lambda row, line: row.arm == line.of),
        lambda line: [_mean("difference", line.estimate, is_difference=True)],
    ),
}
"""How the rows of a line are found, by the part that it is of."""
