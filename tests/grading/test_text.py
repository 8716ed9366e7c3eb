from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.text import Misread, grade_choice, grade_exact, grade_final_answer
from swerve.types import Problem
from tests.cases import each


def problem(gold: str, *alternatives: str) -> Problem:
    return Problem(id="p", family="table", question="", answer=gold, alternatives=alternatives)


@pytest.mark.parametrize(
    ("text", "num"),
    [
        ("so it is Paris.", 1),
        ("City of\nLight", 1),
        ("**Paris**", 1),
        ("Paris, of course", 0),
        ("Nonparis Paris2", 0),
        ("", 0),
    ],
)
def test_misread(text: str, num: int) -> None:
    misread = Misread()
    for answer in (text, text, "Lyon"):
        misread.add(problem("Paris", "City of Light"), answer)
    assert (misread.note is not None) == bool(num)
    empty = Misread()
    empty.add(problem(""), "")
    empty.add(problem(" . "), ".")
    assert empty.note is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Paris", 1.0),
        (" Paris\n", 1.0),
        ("<think>London</think>Paris", 1.0),
        ("It is <answer> Paris </answer>.", 1.0),
        ("City of\nLight", 1.0),
        ("paris", 0.0),
        ("Paris, of course", 0.0),
        ("<answer>Lyon</answer> Paris", 0.0),
    ],
)
def test_exact(text: str, value: float) -> None:
    assert grade_exact(problem("Paris", "City of Light"), text).value == value


def test_exact_without_an_answer() -> None:
    assert grade_exact(problem("Paris"), "<think>Paris</think> ").status == "unparsed"


@each(
    ("gold", "text", "choice", "value"),
    [
        ("C", r"\boxed{C}", "C", 1.0),
        ("C", r"\boxed{\text{(C)}}", "C", 1.0),
        ("(C) 12", r"\boxed{\textbf{C}}", "C", 1.0),
        ("C", "The answer is (C) 12.", "C", 1.0),
        ("D", "The answer is for sure D, it can't be A or B", "D", 1.0),
        ("C", "It is hard.\nC) 12", "C", 1.0),
        ("C", "c", "C", 1.0),
        ("C", "<answer>B</answer>", "B", 0.0),
        ("C", r"\boxed{B} \boxed{C}", "B, C", 0.0),
        ("B, C", r"\boxed{B} \boxed{C}", "B, C", 1.0),
    ],
)
def test_choice(gold: str, text: str, choice: str, value: float) -> None:
    reward = grade_choice(problem(gold), text)
    assert (reward.extracted, reward.value) == (choice, value)


@pytest.mark.parametrize("text", ["", "I do not know", r"\boxed{12}", "A dog barks"])
def test_choice_without_a_choice(text: str) -> None:
    assert grade_choice(problem("A"), text).status == "unparsed"


@given(st.text())
def test_never_raise(text: str) -> None:
    assert grade_choice(problem("A"), text).status in ("graded", "unparsed")
    assert grade_exact(problem("A"), text).status in ("graded", "unparsed")


@each(
    "text",
    [
        r"\boxed{C or D}",
        "The answer is either C or D.",
        "The answer is C/D",
        r"\boxed{\text{C or maybe D}}",
        "C) D) E)",
        "The answer is not C",
        "The answer isn't C",
        "The answer is neither B nor C",
        "C and D",
    ],
)
def test_naming_several_choices_or_denying_one_is_no_choice(text: str) -> None:
    assert grade_choice(Problem(id="p", family="table", question="q", answer="C", grader="choice"), text).value != 1.0


@pytest.mark.parametrize(
    "text", ["The answer is (C) a dog and a cat", "C. Paris", "The answer is C, because A is wrong"]
)
def test_text_after_the_choice_does_not_count(text: str) -> None:
    assert grade_choice(Problem(id="p", family="table", question="q", answer="C", grader="choice"), text).value == 1.0


ADDITION = Problem(id="addition-12+34", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
WORDS = st.lists(st.sampled_from(["answer", "0", "4", "6", ";", "carry", "é"])).map(" ".join)


@pytest.mark.parametrize(
    ("text", "value", "extracted"),
    [
        ("2 + 4 + 0 = 0 6 write 6 carry 0 ; answer 0 4 6", 1.0, "0 4 6"),
        ("answer  0\t4\n6 ", 1.0, "0 4 6"),
        ("answer 0 4 7", 0.0, "0 4 7"),
        ("answer 0 4", 0.0, "0 4"),
        ("answer 0 4 6 6", 0.0, "0 4 6 6"),
        ("answer 046", 0.0, "046"),
    ],
)
def test_exact_match_of_words(text: str, value: float, extracted: str) -> None:
    reward = grade_final_answer(ADDITION, text)
    assert (reward.value, reward.status, reward.extracted) == (value, "graded", extracted)
    assert reward.parts == {"answer": value}


@pytest.mark.parametrize("text", ["", " ", "0 4 6", "0 4 6 answer", "answer", "answer answer 0 4 6", "answer: 0 4 6"])
def test_without_a_single_answer_there_is_no_value(text: str) -> None:
    reward = grade_final_answer(ADDITION, text)
    assert (reward.value, reward.status, reward.extracted, reward.parts) == (None, "unparsed", None, {})


@given(st.one_of(st.text(), WORDS))
def test_any_text_is_graded_or_unparsed(text: str) -> None:
    reward = grade_final_answer(ADDITION, text)
    words = text.split()
    if words[-4:] == ["answer", "0", "4", "6"] and words.count("answer") == 1:
        assert reward.value == 1.0
    else:
        assert reward.value in (0.0, None)
    assert (reward.status == "unparsed") == (words.count("answer") != 1 or words[-1] == "answer")
