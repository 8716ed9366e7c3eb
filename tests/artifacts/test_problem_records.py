from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.problem_records import is_problem_record, problem_from_record, problem_record
from swerve.types import Problem
from tests.cases import each

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PROBLEMS = st.builds(
    Problem,
    id=TEXT,
    family=TEXT,
    question=TEXT,
    answer=TEXT,
    alternatives=st.lists(TEXT, max_size=3).map(tuple),
    solution=st.none() | TEXT,
    kind=TEXT,
    difficulty=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    messages=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    prefix=TEXT,
    begun=st.none() | TEXT,
    grader=TEXT,
    grading=st.dictionaries(TEXT, JSON, max_size=3),
    metadata=st.dictionaries(TEXT, JSON, max_size=3),
)


@given(PROBLEMS)
def test_a_problem_survives_a_line_of_json(problem: Problem) -> None:
    line = json.dumps(problem_record(problem), allow_nan=False)
    values = json.loads(line)
    assert is_problem_record(values)
    assert problem_from_record(values) == problem


def test_the_layout_of_a_record() -> None:
    problem = Problem(id="p", family="math", question="1 + 1?", answer="2", messages=(("system", "s"), ("user", "u")))
    assert problem_record(problem) == {
        "id": "p",
        "family": "math",
        "question": "1 + 1?",
        "answer": "2",
        "alternatives": [],
        "solution": None,
        "kind": "all",
        "difficulty": None,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "prefix": "",
        "begun": None,
        "grader": "",
        "grading": {},
        "metadata": {},
    }


def test_what_is_optional_may_be_missing_or_null() -> None:
    short = {"id": "p", "family": "math", "question": "q", "answer": "1"}
    assert problem_from_record(short) == Problem(id="p", family="math", question="q", answer="1")
    assert problem_from_record({**short, "kind": None, "metadata": None, "alternatives": None}).kind == "all"
    assert not is_problem_record(short)


@each(
    ("changes", "message"),
    [
        ({"answer": 2}, "the field 'answer' is '2'; expected a text"),
        ({"answer": None}, "there is no 'answer'; a problem needs id, family, question, answer"),
        ({"alternatives": "x"}, "expected a list of texts"),
        ({"alternatives": [1]}, "expected a list of texts"),
        ({"difficulty": "hard"}, "expected a number"),
        ({"difficulty": True}, "expected a number"),
        ({"messages": [["user", "x"]]}, "expected a list of {role: text, content: text}"),
        ({"messages": [{"role": "user", "content": 1}]}, "expected a list of {role: text, content: text}"),
        ({"grading": []}, "expected an object with named fields"),
        ({"kindd": "x"}, r"a problem has no field 'kindd'; did you mean 'kind'\?"),
    ],
)
def test_a_record_that_is_no_problem(changes: dict[str, Any], message: str) -> None:
    values = {"id": "p", "family": "math", "question": "q", "answer": "1", **changes}
    with pytest.raises(ValueError, match=message):
        problem_from_record(values)
