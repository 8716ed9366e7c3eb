from __future__ import annotations

import pytest

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.problems.record_values import list_of_texts, missing_field, number_of, number_text, text_of


def record(**values: object) -> FileRecord:
    return FileRecord("f.jsonl, line 3", values)


def test_the_first_field_that_is_there_is_taken() -> None:
    assert text_of(record(question=None, problem="p"), "question", "problem") == "p"
    assert text_of(record(question="q", problem="p"), "question", "problem") == "q"


def test_a_missing_field_is_named_with_those_there_are() -> None:
    expected = r"f.jsonl, line 3 has no field 'question'; it has qestion, answer; did you mean 'qestion'\?"
    with pytest.raises(ArtifactError, match=expected):
        text_of(record(qestion="q", answer="1"), "question")
    assert "has no value for the field 'a'; it has a, b" in str(missing_field(record(a=None, b=1), "a"))


@pytest.mark.parametrize("value", [3, "", "  \n", ["q"], True])
def test_a_text_is_a_text(value: object) -> None:
    with pytest.raises(ArtifactError, match="the field 'question' is .*; expected a text that is not empty"):
        text_of(record(question=value), "question")


def test_a_long_value_is_not_shown_whole() -> None:
    with pytest.raises(ArtifactError) as caught:
        text_of(record(question=["x" * 10_000]), "question")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), (0.5, 0.5), ("2.5", 2.5), (None, None)])
def test_numbers(value: object, number: float | None) -> None:
    assert number_of(record(d=value), "d") == number
    assert number_of(record(), "d") is None


@pytest.mark.parametrize("value", ["hard", "nan", "inf", True, [1], "1" * 400, 10**400])
def test_what_is_not_a_number(value: object) -> None:
    with pytest.raises(ArtifactError, match="expected a number"):
        number_of(record(d=value), "d")


def test_texts_are_distinct_up_to_white_space() -> None:
    values = ["4.4e7\n", "4.4 e7", "", 5, 142.0, "5"]
    assert list_of_texts(record(a=values), "a") == ("4.4e7", "5", "142")
    assert list_of_texts(record(a="x"), "a") == ("x",)
    assert list_of_texts(record(a=None), "a") == list_of_texts(record(), "a") == ()
    with pytest.raises(ArtifactError, match="expected a text, a number or a list of them"):
        list_of_texts(record(a={"x": 1}), "a")


@pytest.mark.parametrize(
    ("value", "text"), [(142.0, "142"), (-4.0, "-4"), (0.1, "0.1"), (7, "7"), (10**30, str(10**30))]
)
def test_numbers_as_text(value: float, text: str) -> None:
    assert number_text(value) == text
