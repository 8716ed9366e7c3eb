from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.addition import Addition, AdditionTask
from swerve.rewards import grade
from swerve.types import StepMark
from tests.cases import each

FAMILY = Addition(AdditionTask())
PROBLEM = FAMILY.problem("1234", "0066")
SOLUTION = (
    "4 + 6 + 0 = 1 0 write 0 carry 1 ; 3 + 6 + 1 = 1 0 write 0 carry 1 ; "
    "2 + 0 + 1 = 0 3 write 3 carry 0 ; 1 + 0 + 0 = 0 1 write 1 carry 0 ; answer 0 1 3 0 0"
)
NUMBERS = st.integers(0, 9999).map(lambda number: f"{number:04d}")
ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from(FAMILY.words)).map(" ".join))


def marked(text: str) -> list[tuple[int, str, str]]:
    """(index of the word, the word, what is expected there) of each mark."""
    marks = FAMILY.check(PROBLEM, text)
    return [(len(text[: m.start].split()), text[m.start : m.end], m.expected) for m in marks]


def replaced(index: int, word: str) -> str:
    words = SOLUTION.split()
    return " ".join([*words[:index], word, *words[index + 1 :]])


def test_the_written_out_example() -> None:
    assert PROBLEM.question == "1 2 3 4 + 0 0 6 6 ="
    assert PROBLEM.answer == "0 1 3 0 0"
    assert PROBLEM.solution == SOLUTION
    assert (PROBLEM.kind, PROBLEM.id, PROBLEM.family) == ("2 carries", "addition-1234+0066", "addition")


@given(NUMBERS, NUMBERS)
def test_the_solution_is_right_everywhere(first: str, second: str) -> None:
    problem = FAMILY.problem(first, second)
    assert int(problem.answer.replace(" ", "")) == int(first) + int(second)
    assert problem.solution is not None
    assert FAMILY.check(problem, problem.solution) == []
    assert grade(problem, problem.solution).value == 1.0
    assert {*problem.question.split(), *problem.solution.split()} <= {*FAMILY.words}


@given(NUMBERS, NUMBERS, st.integers(0, 4), st.integers(1, 9))
def test_a_changed_answer_digit_is_rejected(first: str, second: str, place: int, shift: int) -> None:
    problem = FAMILY.problem(first, second)
    digits = problem.answer.split()
    digits[place] = str((int(digits[place]) + shift) % 10)
    assert grade(problem, f"answer {' '.join(digits)}").value == 0.0


def test_a_forgotten_carry_is_one_mark_and_the_rest_follows_from_it() -> None:
    text = (
        "4 + 6 + 0 = 1 0 write 0 carry 0 ; 3 + 6 + 0 = 0 9 write 9 carry 0 ; "
        "2 + 0 + 0 = 0 2 write 2 carry 0 ; 1 + 0 + 0 = 0 1 write 1 carry 0 ; answer 0 1 2 9 0"
    )
    assert FAMILY.check(PROBLEM, text) == [StepMark(start=30, end=31, expected="1")]
    assert text[30] == "0"
    assert grade(PROBLEM, text).value == 0.0


@each(
    ("index", "word", "marks"),
    [
        # A wrong operand digit: the sum that does not fit it, and what was written of that sum is consistent.
        (0, "5", [(0, "5", "4"), (7, "0", "1")]),
        (4, "1", [(4, "1", "0"), (7, "0", "1")]),
        (6, "0", [(6, "0", "1"), (11, "1", "0")]),
        (9, "7", [(9, "7", "0"), (57, "0", "7")]),
        (11, "0", [(11, "0", "1"), (17, "1", "0")]),
        (52, "0", [(52, "0", "answer")]),
        (5, "write", [(5, "write", "=")]),
        (57, "9", [(57, "9", "0")]),
        (57, "carry", [(57, "carry", "0")]),
    ],
)
def test_marks_are_relative_to_the_words_before(index: int, word: str, marks: list[tuple[int, str, str]]) -> None:
    assert marked(replaced(index, word)) == marks


def test_a_wrong_structure_ends_the_marks() -> None:
    assert marked(SOLUTION.replace("write 0 carry 1 ;", "carry 1 ;", 1)) == [(8, "carry", "write")]
    assert marked(f"{SOLUTION} 7 write") == [(57 + 1, "7", "")]
    assert marked("hello world") == [(0, "hello", "4")]
    assert marked("") == []


@given(st.integers(0, 58))
def test_a_cut_off_text_has_no_marks(length: int) -> None:
    assert marked(" ".join(SOLUTION.split()[:length])) == []


@given(st.integers(0, 57), st.sampled_from(FAMILY.words))
def test_any_other_word_is_the_first_mark(index: int, word: str) -> None:
    right = SOLUTION.split()[index]
    expected = [] if word == right else [(index, word, right)]
    assert marked(replaced(index, word))[:1] == expected


@given(ANY_TEXT)
def test_any_text_can_be_checked(text: str) -> None:
    marks = FAMILY.check(PROBLEM, text)
    assert all(0 <= m.start < m.end <= len(text) for m in marks)
    assert all(text[m.start : m.end].split() == [text[m.start : m.end]] != [m.expected] for m in marks)
    assert [m.start for m in marks] == sorted({m.start for m in marks})


def test_the_planted_mistake_is_made_at_its_rate_and_marked_once() -> None:
    family = Addition(AdditionTask(num_train=2000, slip_rate=0.0))
    rng = random.Random(0)
    chances = forgotten = 0
    for problem in family.problems("train", seed=0):
        text = family.trace(problem, rng)
        columns = [clause.split() for clause in text.split(" ; ")[:-1]]
        chances += sum(column[6:8] in (["1", "0"], ["1", "1"]) for column in columns)
        wrong = sum(column[6:8] in (["1", "0"], ["1", "1"]) and column[11] == "0" for column in columns)
        forgotten += wrong
        marks = family.check(problem, text)
        assert [(text[m.start : m.end], m.expected) for m in marks] == [("0", "1")] * wrong
        assert (grade(problem, text).value == 1.0) == (wrong == 0)
    assert chances > 800
    assert forgotten / chances == pytest.approx(0.75, abs=0.04)


def test_slips_are_made_at_their_rate_in_the_sums() -> None:
    family = Addition(AdditionTask(num_train=1000, mistake_rate=0.0, slip_rate=0.05))
    rng = random.Random(0)
    marks = [
        m for problem in family.problems("train", seed=0) for m in family.check(problem, family.trace(problem, rng))
    ]
    assert len(marks) / (1000 * 4 * 2) == pytest.approx(0.05, abs=0.01)


def test_without_rates_a_trace_is_the_solution() -> None:
    family = Addition(AdditionTask(mistake_rate=0.0, slip_rate=0.0))
    assert family.trace(PROBLEM, random.Random(0)) == SOLUTION


def test_splits_share_no_unordered_pair_whatever_their_seeds() -> None:
    family = Addition(AdditionTask(digits=2, num_train=3000, num_heldout=300))
    train, heldout = (
        {tuple(sorted(problem.id.removeprefix("addition-").split("+"))) for problem in problems}
        for problems in (family.problems("train", seed=0), family.problems("heldout", seed=1))
    )
    assert len(train) > 1500
    assert len(heldout) > 150
    assert not train & heldout


@settings(max_examples=5)
@given(st.integers(0, 1000))
def test_a_seed_determines_the_problems(seed: int) -> None:
    family = Addition(AdditionTask(num_train=50, num_heldout=20))
    assert family.problems("train", seed=seed) == family.problems("train", seed=seed)
    assert family.problems("train", seed=seed) != family.problems("train", seed=seed + 1)
    assert len({problem.id for problem in family.problems("heldout", seed=seed)}) == 20


def test_too_few_distinct_problems() -> None:
    family = load_family(AdditionTask(digits=2, num_heldout=2000))
    with pytest.raises(
        ConfigError, match=r"distinct problems for task\.num_heldout=2000; lower it or raise task\.digits"
    ):
        family.problems("heldout", seed=0)


@pytest.mark.parametrize("question", ["", "1 2 + 3 =", "1 2 - 3 4 =", "1 x + 3 4 =", "1 2 + 3 4"])
def test_a_question_of_another_form_is_refused(question: str) -> None:
    problem = FAMILY.problem("12", "34")
    other = type(problem)(id="x", family="addition", question=question, answer="")
    with pytest.raises(ValueError, match="not a question of the addition family"):
        FAMILY.trace(other, random.Random(0))
