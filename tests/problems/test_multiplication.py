from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.multiplication import Multiplication, MultiplicationTask
from swerve.recipes.loader import load_config
from swerve.rewards import grade
from swerve.types import StepMark

FAMILY = Multiplication(MultiplicationTask())
PROBLEM = FAMILY.problem("4831", "7")
SOLUTION = "7 x 1 = 7 + 0 = 0 7 ; 7 x 3 = 21 + 0 = 2 1 ; 7 x 8 = 56 + 2 = 5 8 ; 7 x 4 = 28 + 5 = 3 3 ; answer 3 3 8 1 7"
MISTAKEN = SOLUTION.replace("56 + 2 = 5 8", "54 + 2 = 5 6").replace("3 3 8 1 7", "3 3 6 1 7")
NUMBERS = st.permutations("0123456789").map(lambda digits: "".join(digits[:4]))
FACTORS = st.sampled_from("6789")


def test_the_written_out_example() -> None:
    assert PROBLEM.question == "4 8 3 1 x 7 ="
    assert PROBLEM.answer == "3 3 8 1 7"
    assert PROBLEM.solution == SOLUTION
    assert (PROBLEM.kind, PROBLEM.id) == ("with 7 x 8 or 6 x 9", "multiplication-4831x7")
    assert FAMILY.problem("4931", "7").kind == "without 7 x 8 and 6 x 9"


@given(NUMBERS, FACTORS)
def test_the_solution_is_right_everywhere(number: str, factor: str) -> None:
    problem = FAMILY.problem(number, factor)
    assert int(problem.answer.replace(" ", "")) == int(number) * int(factor)
    assert problem.solution is not None
    assert FAMILY.check(problem, problem.solution) == []
    assert grade(problem, problem.solution).value == 1.0
    assert {*problem.question.split(), *problem.solution.split()} <= {*FAMILY.words}
    assert len(problem.solution.split()) == 50


def test_factors_stand_in_either_order_and_no_other() -> None:
    turned = SOLUTION.replace("7 x 8", "8 x 7").replace("7 x 1", "1 x 7")
    assert FAMILY.check(PROBLEM, turned) == []
    assert FAMILY.check(PROBLEM, SOLUTION.replace("7 x 8", "8 x 8"))[0] == StepMark(start=49, end=50, expected="7")


@pytest.mark.parametrize("product", ["7", "48", "63", "81"])
def test_one_product_of_many_is_right_and_the_answer_follows_from_it(product: str) -> None:
    # Every other product leads to another answer, with a single mark: unlike a carry, nothing else repairs it.
    digits = f"{int(product) + 2:02d}"
    carried = f"{28 + int(digits[0]):02d}"
    text = SOLUTION.replace("56 + 2 = 5 8", f"{product} + 2 = {digits[0]} {digits[1]}")
    text = text.replace("28 + 5 = 3 3", f"28 + {digits[0]} = {carried[0]} {carried[1]}")
    text = text.replace("3 3 8 1 7", f"{carried[0]} {carried[1]} {digits[1]} 1 7")
    (mark,) = FAMILY.check(PROBLEM, text)
    assert (text[mark.start : mark.end], mark.expected) == (product, "56")
    assert grade(PROBLEM, text).value == 0.0


def test_the_planted_mistake_of_the_demo_is_made_at_its_rate_and_once_at_most() -> None:
    config = load_config("demo_multiplication")
    assert isinstance(config.task, MultiplicationTask)
    family = Multiplication(config.task.model_copy(update={"num_train": 2000, "slip_rate": 0.0}))
    rng, chances, made, turned, wholes = random.Random(0), 0, 0, 0, 0
    for problem in family.problems("train", seed=0):
        text = family.trace(problem, rng)
        words, marks = text.split(), family.check(problem, text)
        chances += problem.difficulty == 1.0
        made += len(marks)
        assert len(marks) <= (problem.difficulty == 1.0)
        assert [(text[m.start : m.end], m.expected) for m in marks] in ([], [("54", "56")], [("56", "54")])
        assert (grade(problem, text).value == 1.0) == (not marks)
        clauses = [words[at : at + 3] for at in range(0, 44, 11)]
        turned += sum(first != problem.question.split()[-2] for first, _, second in clauses if first != second)
        wholes += sum(first != second for first, _, second in clauses)
    assert 0.35 < chances / 2000 < 0.45
    assert made / chances == pytest.approx(0.75, abs=0.05)
    assert turned / wholes == pytest.approx(0.5, abs=0.02)
    assert family.check(PROBLEM, MISTAKEN) == [StepMark(start=53, end=55, expected="56")]


def test_slips_are_made_at_their_rate_in_the_products() -> None:
    family = Multiplication(MultiplicationTask(num_train=1000, mistake_rate=0.0, slip_rate=0.05))
    rng = random.Random(0)
    marks = [m for each in family.problems("train", seed=0) for m in family.check(each, family.trace(each, rng))]
    assert len(marks) / (1000 * 4) == pytest.approx(0.05, abs=0.015)


def test_splits_share_no_number_whatever_their_seeds() -> None:
    family = Multiplication(MultiplicationTask(digits=3, num_train=1500, num_heldout=200))
    train, heldout = (
        {problem.id.removeprefix("multiplication-").partition("x")[0] for problem in problems}
        for problems in (family.problems("train", seed=0), family.problems("heldout", seed=1))
    )
    assert len(train) > 400
    assert len(heldout) > 80
    assert not train & heldout


def test_too_few_distinct_problems() -> None:
    family = load_family(MultiplicationTask(digits=2))
    with pytest.raises(ConfigError, match=r"distinct problems for task\.num_heldout=400; .* raise task\.digits"):
        family.problems("heldout", seed=0)


@pytest.mark.parametrize("question", ["", "x", "x 7 =", "1 2 x =", "1 2 + 7 =", "1 y x 7 =", "1 2 x 7", "1 2 x 77 ="])
def test_a_question_of_another_form_is_refused(question: str) -> None:
    other = type(PROBLEM)(id="x", family="multiplication", question=question, answer="")
    with pytest.raises(ValueError, match="not a question of the multiplication family"):
        FAMILY.trace(other, random.Random(0))
