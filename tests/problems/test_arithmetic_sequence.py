from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ConfigError
from swerve.problems.arithmetic_sequence import ArithmeticSequence, ArithmeticSequenceTask, next_terms
from swerve.problems.prompt import PromptConfig
from swerve.rewards import grade
from swerve.types import Problem, StepMark
from tests.cases import each

FAMILY = ArithmeticSequence(ArithmeticSequenceTask())
PROBLEM = FAMILY.problem(8, 3, 4)


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("8,3:9,4", [7, 2, 6, 1]),
        ("3,3:9,6", [3, 3, 3, 3, 3, 3]),
        ("1,2:6,5", [3, 4, 5, 0, 1]),
        ("9,0:9,3", [0, 0, 0]),
        ("5,8:9,0", []),
        ("8 , 3 : 9 , 4", [7, 2, 6, 1]),
    ],
)
def test_terms(question, terms) -> None:
    assert next_terms(question) == terms


@pytest.mark.parametrize("question", ["", "8,3:9", "8,3:0,4", "a,3:9,4", "8,3:9,4,5", "٨,3:9,4"])
def test_other_questions_are_refused(question) -> None:
    with pytest.raises(ValueError, match="expected such as '8,3:9,4'"):
        next_terms(question)


def test_questions_of_the_data_set_have_terms_of_constant_difference(shared_data) -> None:
    pandas = pytest.importorskip("pandas")
    folder = shared_data("tiny_models") / "verl_arithmetic_sequence"
    for split, size in (("train", 800), ("test", 200)):
        prompts = [messages[0]["content"] for messages in pandas.read_parquet(folder / f"{split}.parquet")["prompt"]]
        assert len(prompts) == size
        for prompt in prompts:
            first, second = map(int, prompt.split(":")[0].split(","))
            sequence = [first, second, *next_terms(prompt)]
            assert len(sequence) == 2 + int(prompt.rsplit(",", 1)[1])
            steps = {(b - a) % 9 for a, b in pairwise(sequence)}
            assert len(steps) == 1
            assert all(term < 9 for term in sequence[2:])


def test_problems_are_distinct_and_have_words() -> None:
    problems = FAMILY.problems("train", seed=1)
    assert problems == FAMILY.problems("train", seed=1)
    assert len({problem.question for problem in problems}) == 400
    assert {problem.difficulty for problem in problems} == set(range(1, 9))
    for problem in problems:
        text = f"{problem.question} {problem.solution}"
        assert set(text.split()) <= set(FAMILY.words)
        assert grade(problem, problem.solution or "").value == 1.0
        assert FAMILY.check(problem, problem.solution or "") == []


def test_splits_share_no_first_terms() -> None:
    pairs = [
        {(problem.metadata["first"], problem.metadata["second"]) for problem in FAMILY.problems(split, seed=seed)}
        for split, seed in (("train", 1), ("heldout", 2))
    ]
    assert not pairs[0] & pairs[1]
    assert len(pairs[1]) > 10


def test_nearly_every_pair_of_terms_occurs_within_training_sequences() -> None:
    """So that what a held-out problem needs can be learned from training problems."""
    seen = set()
    for problem in FAMILY.problems("train", seed=1):
        terms = [problem.metadata["first"], problem.metadata["second"], *map(int, problem.answer.split())]
        seen |= {(a, b) for a, b, _ in zip(terms, terms[1:], terms[2:], strict=False)}
    assert len(seen) > 70


def test_too_few_problems() -> None:
    family = ArithmeticSequence(ArithmeticSequenceTask(max_number=3, num_terms=1))
    with pytest.raises(ConfigError, match=r"distinct problems for task\.num_train=400; lower it or raise task"):
        family.problems("train", seed=1)


def test_other_prompt_formats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.prompt\.format boxed cannot be used"):
        ArithmeticSequence(ArithmeticSequenceTask(prompt=PromptConfig(format="boxed")))


def test_a_wrong_term_is_marked_and_the_next_follows_from_it() -> None:
    assert FAMILY.check(PROBLEM, "7 3 8 4") == [StepMark(start=2, end=3, expected="2")]
    assert FAMILY.check(PROBLEM, "7 2") == []
    assert FAMILY.check(PROBLEM, "7 x 6 1") == [StepMark(start=2, end=3, expected="2")]
    assert FAMILY.check(PROBLEM, "7 2 6 1 5") == [StepMark(start=8, end=9, expected="")]


def test_the_supervised_completion_is_the_solution() -> None:
    assert FAMILY.trace(PROBLEM, random.Random(1)) == "7 2 6 1"
    assert FAMILY.checks_steps


WRITTEN = ArithmeticSequence(ArithmeticSequenceTask(restate=True, mistake_rate=1.0))
NOISY = ArithmeticSequence(ArithmeticSequenceTask(num_terms=8, slip_rate=0.5))


def test_an_answer_may_begin_with_the_given_terms() -> None:
    problem = WRITTEN.problem(8, 3, 4)
    assert (problem.question, problem.answer, problem.solution) == ("8 , 3 : 9 , 4", "8 3 7 2 6 1", "8 3 7 2 6 1")
    assert grade(problem, "8 3 7 2 6 1").value == 1.0
    assert grade(problem, "7 2 6 1").value == 0.0
    assert WRITTEN.check(problem, "8 3 7 2 6 1") == []
    # A given term that is stated wrongly is marked once, and what follows is judged by it.
    assert WRITTEN.check(problem, "8 4 0 5 1 6") == [StepMark(start=2, end=3, expected="3")]


def test_the_planted_mistake_is_one_too_many_where_a_term_wraps_around() -> None:
    # 2, 4, 6, 8 do not wrap; after 8 comes 10 - 9 = 1, written as 2; after 8 and 2 comes -4 + 9 = 5, written as 6.
    problem = WRITTEN.problem(2, 4, 4)
    assert problem.solution == "2 4 6 8 1 3"
    trace = WRITTEN.trace(problem, random.Random(1))
    assert trace == "2 4 6 8 2 6"
    assert [mark.expected for mark in WRITTEN.check(problem, trace)] == ["1", "5"]
    assert WRITTEN.trace(WRITTEN.problem(2, 3, 3), random.Random(1)) == "2 3 4 5 6"
    # One more than the highest term is 0.
    assert WRITTEN.trace(WRITTEN.problem(1, 0, 1), random.Random(1)).split()[2:] == ["0"]


def test_slips_replace_terms_and_the_next_ones_follow_from_them() -> None:
    problem = NOISY.problem(8, 3, 8)
    traces = [NOISY.trace(problem, random.Random(seed)) for seed in range(200)]
    num_slips = [len(NOISY.check(problem, trace)) for trace in traces]
    assert 3.5 < sum(num_slips) / len(traces) < 4.5
    assert {len(trace.split()) for trace in traces} == {8}
    assert min(num_slips) <= 1 < 7 <= max(num_slips)


GRADED = Problem(id="p", family="arithmetic_sequence", question="8 , 3 : 9 , 4", answer="7 2 6 1")


@each(
    ("text", "value", "terms"),
    [
        ("7 2 6 1", 1.0, 1.0),
        ("7,2,6,1", 1.0, 1.0),
        (" 7 , 2 , 6 , 1\n", 1.0, 1.0),
        ("7 2 6", 0.0, 0.75),
        ("7 2 6 1 5", 0.0, 1.0),
        ("7 3 6 1", 0.0, 0.25),
        ("2 6 1", 0.0, 0.0),
        ("7261", 0.0, 0.0),
        ("07 2 6 1", 0.0, 0.0),
        ("the next are 7 2 6 1", 0.0, 0.0),
    ],
)
def test_values_and_share_of_right_terms(text, value, terms) -> None:
    reward = grade(GRADED, text)
    assert (reward.value, reward.parts["terms"]) == (value, terms)


def test_nothing_is_unparsed() -> None:
    assert grade(GRADED, " , ,").status == "unparsed"


@given(st.text(alphabet="0123456789 ,", max_size=12) | st.text())
def test_nothing_else_is_right(text) -> None:
    reward = grade(GRADED, text)
    assert (reward.value == 1.0) == (text.replace(",", " ").split() == ["7", "2", "6", "1"])
