"""Groups of problems: where a file names them, what keeps them, and intervals over them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swerve.artifacts.problem_records import is_problem_record, problem_from_record, problem_record
from swerve.artifacts.responses import Response, response_from_row, response_row
from swerve.behaviours import summarise
from swerve.errors import SwerveError
from swerve.eval.comparison import compare
from swerve.eval.pairing import paired
from swerve.eval.response_behaviours import behaviour_summary
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import iter_responses, read_responses
from swerve.problems.registry import TASKS
from swerve.rewards.checks import problems_digest
from swerve.statistics import mean_interval
from swerve.statistics.paired import paired_interval
from swerve.types import Problem

PROBLEM = Problem(id="p", family="math", question="1 + 1?", answer="2", group="sums")


def test_a_record_has_a_group_where_the_problem_has_one() -> None:
    alone = replace(PROBLEM, group=None)
    assert problem_record(PROBLEM)["group"] == "sums"
    assert "group" not in problem_record(alone)
    for problem in (PROBLEM, alone):
        assert is_problem_record(problem_record(problem))
        assert problem_from_record(problem_record(problem)) == problem
    # Groups change neither what is asked nor how it is graded.
    assert problems_digest([PROBLEM]) == problems_digest([alone])


def test_a_row_of_a_table_keeps_it_beside_the_number_of_its_prompt() -> None:
    response = Response(problem=PROBLEM, text="2", group=7)
    row = response_row(response)
    assert (row["group"], json.loads(row["problem_details"])["group"]) == (7, "sums")
    assert response_from_row(row) == response


@pytest.mark.parametrize(("kind", "metadata"), [("knights_knaves", "structure"), ("word_problems", None)])
def test_own_tasks_set_it(kind: str, metadata: str | None) -> None:
    task = TASKS[kind]
    problems = task.family(task.config()).problems("heldout", seed=1)  # type: ignore[call-arg]
    assert all(problem.group for problem in problems)
    if metadata:
        assert [problem.group for problem in problems] == [problem.metadata[metadata] for problem in problems]
    else:
        # Wordings of the sentences: stories of the same ones belong together.
        assert len({problem.group for problem in problems}) < len(problems)


def test_a_table_of_problems_names_its_field(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "2", "template": 3}\n')
    task = TASKS["table"].config(train=[str(path)], heldout=[str(path)], fields={"group": "template"})  # type: ignore[call-arg]
    (problem,) = TASKS["table"].family(task).problems("heldout", seed=0)
    assert (problem.group, problem.metadata) == ("3", {})
    path.write_text('{"id": "p", "question": "1 + 1?", "answer": "2", "group": "sums"}\n')
    assert read_problems(path)["p"].problem.group == "sums"


RECORD = {"id": "p", "problem": "1 + 1?", "response": "2", "template": "sums", "group": 4}


def test_a_file_of_responses_has_it_only_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps(RECORD) + "\n")
    (unnamed,), (named,) = read_responses(path), read_responses(path, fields={"group": "template"})
    assert (unnamed.problem.group, named.problem.group) == (None, "sums")
    assert unnamed.extra["template"] == "sums"
    assert "template" not in named.extra


def test_a_table_of_responses_has_it_in_a_column_or_in_what_else_its_source_said(tmp_path: Path) -> None:
    own = replace(PROBLEM, group=None)
    row = response_row(Response(problem=own, text="2", label="a", sample=0, extra={"t": "sums"}))
    path = tmp_path / "table.jsonl"
    path.write_text(json.dumps({**row, "group": 4, "template": 5}) + "\n")
    for field, group in (("template", "5"), ("extra.t", "sums")):
        (response,) = read_responses(path, fields={"group": field})
        assert response.problem.group == group
    problems = {"p": Response(problem=replace(PROBLEM, question="1 + 1?"))}
    (joined,) = iter_responses(path, problems=problems)
    assert joined.problem.group == "sums"
    (own,) = iter_responses(path, problems=problems, fields={"group": "template"})
    assert own.problem.group == "5"


def test_two_groups_of_one_problem_are_refused() -> None:
    first, second = (Response(problem=replace(PROBLEM, group=group), text="2") for group in ("sums", "others"))
    with pytest.raises(SwerveError, match="problem 'p' has two groups, 'sums' and 'others'"):
        paired(["a", "b"], [first], [second])
    paired(["a", "b"], [first], [Response(problem=replace(PROBLEM, group=None), text="2")])


@pytest.mark.parametrize(
    ("values", "group"), [((None, "sums"), "sums"), ((" sums", "sums "), "sums"), ((3, 3.0), "3"), (("-0.0", 0), "0")]
)
def test_whichever_response_names_the_group_it_is_the_problems(tmp_path: Path, values: tuple, group: str) -> None:
    path = tmp_path / "responses.jsonl"
    rows = [RECORD | {"response": text, "template": value} for text, value in zip("23", values, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    responses = read_responses(path, fields={"group": "template"})
    for own in (responses, responses[::-1]):
        pair = paired(["a", "b"], own, own)
        assert {each.problem.group for side in pair[:2] for each in side["p"]} == {group}


def test_two_groups_in_one_file_are_named_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps(RECORD | {"response": text, "template": text}) + "\n" for text in "23"))
    responses = read_responses(path, fields={"group": "template"})
    with pytest.raises(SwerveError, match="line 2: problem 'p' has two groups, '2' and '3'; name a field"):
        paired(["a", "b"], responses, responses)


# Intervals.

RIGHT = {"base": [1, 1, 0, 0, 0, 0], "rl": [1, 1, 1, 1, 0, 0]}
CLUSTERS = ["a", "a", "b", "b", "c", "c"]


def graded(label: str) -> list[Response]:
    return [
        Response(
            problem=Problem(id=f"p{n}", family="f", question=f"{n}?", answer="", group=CLUSTERS[n]),
            label=label,
            temperature=1.0,
            sample=0,
            text="so",
            correct=bool(right),
            place=f"line {n}",
        )
        for n, right in enumerate(RIGHT[label])
    ]


def test_scores_and_differences_are_over_groups() -> None:
    base, trained = compare([graded("base"), graded("rl")]).rows
    assert base.accuracy == mean_interval(RIGHT["base"], clusters=CLUSTERS, bounds=(0.0, 1.0))
    # Three groups, all right or all wrong: the exact interval of one in three.
    assert base.accuracy is not None
    assert (base.accuracy.low, base.accuracy.high) == pytest.approx((0.00840, 0.90570), abs=1e-5)
    found = trained.differences["accuracy"].estimate
    assert found == paired_interval(np.subtract(RIGHT["rl"], RIGHT["base"]), clusters=CLUSTERS)


def test_behaviours_are_over_groups() -> None:
    responses = [*graded("base"), *graded("rl")]
    accuracy: Any = summarise(responses)[0]["accuracy"]
    assert (accuracy["low"], accuracy["high"]) == pytest.approx((0.00840, 0.90570), abs=1e-5)
    from swerve.behaviours import behaviour_rows

    summary = behaviour_summary(responses, behaviour_rows(responses), source="x", by="label")
    found = summary["labels"][1]["differences"]["accuracy"]["estimate"]
    expected: Any = paired_interval(np.subtract(RIGHT["rl"], RIGHT["base"]), clusters=CLUSTERS)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
