"""The problems behind the runs of a study, read from their last evaluations: what the row of a seed opens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.excerpts import MAX_CHARS, AskedProblem, asked_problems, held_said
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import Study, StudyRun
from swerve.errors import ArtifactError
from swerve.report.evidence import Evidence
from swerve.report.study_rows import KNOWN

Groups = Mapping[str, Sequence[Response]]
"""Responses by problem."""

_IS_GREEDY = {"accuracy": True, "sampled_accuracy": False}
"""Measures that are means over problems of what is right, and whether of the greedy answers."""


def runs_inside(study: Study, folder: Path) -> dict[str, Path]:
    """Return the directories of runs that lie in the folder of their study, by their paths in the record.

    A record from elsewhere names paths: what lies outside of its folder is not read.
    """
    places = {run.path: (folder / run.path).resolve() for run in study.runs}
    return {path: place for path, place in places.items() if place.is_relative_to(folder.resolve())}


def held_problems(study: Study, runs: Mapping[str, Path]) -> dict[str, AskedProblem | Evidence]:
    """Return what rows of seeds open: the problems that all variants have, and what was written to them.

    A run whose evaluation is not there, or is not the one that the study counted, is left out.

    Args:
        study: what was compared.
        runs: the directories of its runs, by their paths in the record.
    """
    measures = [measure for measure in study.measures if measure in _IS_GREEDY]
    places = [(measure, seed) for measure in measures for seed in study.seeds]
    of_runs = {id(run): _responses(run, runs.get(run.path)) for run in study.runs}
    held: dict[str, AskedProblem | Evidence] = {}
    for measure, seed in places:
        own = [(run, of_runs[id(run)]) for run in study.runs if run.seed == seed and measure in run.values]
        sides = {run.variant: _counted(run, measure, responses) for run, responses in own}
        sides = {variant: groups for variant, groups in sides.items() if groups}
        if sides:
            held |= _table(f"{measure} {seed}", measure, sides, max_chars=MAX_CHARS // len(places))
    return held


def _responses(run: StudyRun, place: Path | None) -> list[Response]:
    """Return the responses of a run's evaluation that the study counted; none where it is not there."""
    if place is None or not run.measured:
        return []
    try:
        known = [each for each in read_evaluations(RunDirectory(place)) if each.checkpoint == run.checkpoint]
        paths = [place / "eval" / f"{each.file_name}.parquet" for each in known]
        return [response for path in paths for response in read_response_table(path, EVALUATION_SCHEMA)]
    except ArtifactError:
        return []


def _counted(run: StudyRun, measure: str, responses: Sequence[Response]) -> Groups:
    """Return the responses that a measure of a run is of, by problem; none where they give another value."""
    groups: dict[str, list[Response]] = {}
    for response in responses:
        if (response.temperature == 0) == _IS_GREEDY[measure]:
            groups.setdefault(f"{response.problem.id}\n{response.problem.question}", []).append(response)
    if not groups or not math.isclose(fmean(map(_rate, groups.values())), run.values[measure], abs_tol=1e-9):
        return {}
    return dict(zip(_names(groups), groups.values(), strict=True))


def _rate(group: Sequence[Response]) -> float:
    return fmean(bool(each.correct) for each in group)


def _names(groups: Groups) -> Iterator[str]:
    """Yield what problems are called: their ids, with their question where an id is there twice."""
    ids = [key.partition("\n")[0] for key in groups]
    is_unique = len({*ids}) == len(ids)
    yield from ids if is_unique else (key.replace("\n", " ") for key in groups)


def _table(
    key: str, measure: str, sides: Mapping[str, Groups], *, max_chars: int
) -> dict[str, AskedProblem | Evidence]:
    """Return the problems of one seed, a variant a column, and what was written to them."""
    asked = asked_problems(sides, max_chars=max_chars)
    names = [*dict.fromkeys(name for groups in sides.values() for name in groups)]
    rates = {name: [_rate(groups[name]) if name in groups else None for groups in sides.values()] for name in names}

    def spread(name: str) -> float:
        known = [rate for rate in rates[name] if rate is not None]
        return max(known) - min(known)

    names.sort(key=spread, reverse=True)
    columns = zip(*(rates[name] for name in names), strict=True)
    table = Evidence(
        id=key,
        table="the runs' eval/",
        filter=f"{KNOWN[measure].title} at each problem",
        columns={"problem": names, **dict(zip(sides, columns, strict=True))},
        note=held_said(len(asked), len(names)),
        opens=f"{key} ",
    )
    return {key: table, **{f"{key} {each.problem}": each for each in asked}}
