from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.rejection import Rejection, keep_right
from swerve.types import Problem
from tests.cases import each


def response(problem: str, text: str, correct: bool | None = True, length: int = 3, **changes: Any) -> Response:
    asked = Problem(
        id=problem, family="math", question=f"{problem}?", answer="", kind=f"kind {problem}", difficulty=2.0
    )
    asked = replace(asked, metadata={"subject": "sums"})
    ids = tuple(range(length))
    values = {
        "place": "f.jsonl, line 1",
        "problem": asked,
        "text": text,
        "prompt_ids": (1,),
        "completion_ids": ids,
        "correct": correct,
    }
    return Response(**{**values, **changes})


RESPONSES = [
    response("a", "1"),
    response("a", "2", correct=False),
    response("a", " 1\n"),
    response("a", "3", length=9),
    response("b", "1", correct=False),
    response("c", "1"),
    response("c", "2"),
    response("c", "3"),
]


def texts(kept: list[Response]) -> list[tuple[str, str]]:
    return [(one.problem.id, (one.text or "").strip()) for one in kept]


def test_right_responses_are_kept_once_and_the_others_counted() -> None:
    kept, counts = keep_right(RESPONSES, Rejection(only_right=True, max_length=8))
    assert texts(kept) == [("a", "1"), ("c", "1"), ("c", "2"), ("c", "3")]
    assert kept[0] is RESPONSES[0]
    assert (counts.num_responses, counts.num_problems) == (8, 3)
    assert (counts.num_right, counts.num_problems_right) == (6, 2)
    assert (counts.num_length, counts.num_duplicates, counts.num_surplus) == (1, 1, 0)
    assert (counts.num_kept, counts.num_problems_kept, counts.mean_length) == (4, 2, 3.0)
    assert texts(keep_right(RESPONSES, Rejection(min_length=9))[0]) == [("a", "3")]


def test_which_of_a_problem_are_kept_depends_on_the_seed_and_the_problem_alone() -> None:
    chosen = {
        seed: texts(keep_right(RESPONSES, Rejection(only_right=True, per_problem=1, seed=seed))[0])
        for seed in range(40)
    }
    assert all([name for name, _ in found] == ["a", "c"] for found in chosen.values())
    assert {dict(found)["c"] for found in chosen.values()} == {"1", "2", "3"}
    for seed in range(5):
        alone, counts = keep_right(RESPONSES[5:], Rejection(only_right=True, per_problem=1, seed=seed))
        assert texts(alone) == chosen[seed][1:]
        assert counts.num_surplus == 2


@each(
    ("condition", "expected"),
    [
        ("kind=kind a", 4),
        ("kind=kind a,kind b", 5),
        ("kind!=kind a", 4),
        ("difficulty>=2", 8),
        ("difficulty<=1.5", 0),
        ("difficulty=2", 8),
        ("subject=sums", 8),
        ("temperature=0.7", 1),
        ("correct=false", 2),
    ],
)
def test_conditions_on_fields_of_responses_and_problems(condition: str, expected: int) -> None:
    responses = [replace(RESPONSES[0], extra={"temperature": 0.7}), *RESPONSES[1:]]
    _, counts = keep_right(responses, Rejection(where=(condition,)))
    assert counts.num_responses - counts.num_other == expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("kind", "is not a condition; write FIELD=VALUE"),
        ("knd=a", "no response has the field 'knd'"),
        ("difficulty>=hard", "'hard' is not a number"),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(condition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        keep_right(RESPONSES, Rejection(only_right=True, where=(condition,)))


def test_a_response_is_right_by_what_is_recorded() -> None:
    unknown = response("a", "1", correct=None)
    parts = {"correct": 0.0, "format": 1.0}
    kept, _ = keep_right([replace(unknown, reward=1.0)], Rejection(only_right=True))
    assert len(kept) == 1
    for wrong in ({"reward": 0.5}, {"reward": 1.0, "parts": parts}, {"status": "timeout"}):
        assert keep_right([replace(unknown, **wrong)], Rejection(only_right=True))[0] == []
    with pytest.raises(ArtifactError, match=r"f\.jsonl, line 1: neither 'correct' nor a reward is recorded"):
        keep_right([unknown], Rejection(only_right=True))


def test_a_length_is_asked_of_token_ids() -> None:
    with pytest.raises(ArtifactError, match="has no token ids, so its length is unknown"):
        keep_right([response("a", "1", length=0)], Rejection(only_right=True, max_length=4))


def test_which_are_kept_does_not_depend_on_the_order_of_the_file() -> None:
    given = [response("a", f"text {number}") for number in range(9)] + RESPONSES
    for seed in range(5):
        rejection = Rejection(per_problem=2, seed=seed)
        kept, back = (sorted(texts(keep_right(rows, rejection)[0])) for rows in (given, given[::-1]))
        assert kept == back
