from __future__ import annotations

import gzip
import itertools
import json
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.problems.palindrome import Palindrome, PalindromeTask, count_palindromes
from swerve.problems.prompt import PromptConfig
from swerve.rewards import grade
from swerve.types import Problem
from tests.cases import each

TASK = PalindromeTask(num_train=300, num_heldout=100)
FAMILY = Palindrome(TASK)


def test_problems_are_distinct_solvable_and_the_same_for_a_seed() -> None:
    problems = FAMILY.problems("train", seed=1)
    assert problems == load_family(TASK).problems("train", seed=1)
    assert problems != FAMILY.problems("train", seed=2)
    assert len({tuple(sorted(problem.metadata["letters"])) for problem in problems}) == 300
    assert {len(problem.metadata["letters"]) for problem in problems} == set(range(3, 11))
    for problem in problems:
        assert problem.answer == problem.answer[::-1]
        assert Counter(problem.answer) == Counter(problem.metadata["letters"])
        assert problem.question.endswith(f"following letters: {', '.join(problem.metadata['letters'])}\n")
        assert grade(problem, problem.solution or "").value == 1.0
        assert (problem.difficulty, problem.kind) == (len(problem.answer), f"{len(problem.answer)} letters")


def test_splits_share_no_letters_whatever_the_seeds() -> None:
    short = Palindrome(PalindromeTask(min_length=2, max_length=4, num_train=600, num_heldout=140))
    splits = [
        {"".join(sorted(problem.metadata["letters"])) for problem in short.problems(split, seed=seed)}
        for split, seed in (("train", 1), ("heldout", 2))
    ]
    assert not splits[0] & splits[1]


def test_too_few_problems() -> None:
    with pytest.raises(ConfigError, match=r"task\.num_train=100; lower it or raise task\.max_length"):
        Palindrome(PalindromeTask(min_length=1, max_length=1, num_train=100)).problems("train", seed=1)
    with pytest.raises(ValidationError, match=r"min_length \(5\) must be at most max_length \(4\)"):
        PalindromeTask(min_length=5, max_length=4)


@each("letters", ["a", "ab", "aa", "aab", "aabb", "aabbc", "aaaabb", "aabbccd", "aaab"])
def test_number_of_palindromes(letters) -> None:
    arrangements = {"".join(word) for word in itertools.permutations(letters)}
    assert count_palindromes(letters) == sum(word == word[::-1] for word in arrangements)


def test_the_spaced_form_has_a_vocabulary() -> None:
    family = Palindrome(TASK.model_copy(update={"spaced": True}))
    for problem in family.problems("heldout", seed=1):
        text = f"{problem.question} {problem.solution}"
        assert text == " ".join(text.split())
        assert set(text.split()) <= set(family.words)
        assert grade(problem, problem.solution or "").value == 1.0
    assert FAMILY.words == ()


def test_the_solution_has_the_form_that_the_prompt_asks_for() -> None:
    for form, solution in (
        ("boxed", r"\boxed{aba}"),
        ("hash", "#### aba"),
        ("think_answer", " </think> <answer> aba </answer>"),
    ):
        family = Palindrome(PalindromeTask(prompt=PromptConfig(format=form)))
        problem = family.problem(["b", "a", "a"], "aba")
        assert problem.solution == solution
        assert problem.messages
        assert grade(problem, solution).value == 1.0


PROBLEM = Problem(id="p", family="palindrome", question="letters: a, b, b, a, c", answer="abcba")
SPACED = Problem(id="p", family="palindrome", question="a b b a c =", answer="a b c b a")
HALVES = st.text(alphabet="abc", max_size=6)


def test_any_palindrome_of_the_letters_is_right() -> None:
    for answer in ("abcba", "bacab", "BACAB", "<answer>bacab</answer>", r"\boxed{bacab}", "b, a, c?\nbacab\n"):
        reward = grade(PROBLEM, answer)
        assert (reward.value, reward.parts) == (1.0, {"palindrome": 1.0, "letters": 1.0})


@each(
    ("answer", "palindrome", "letters"),
    [
        ("abcab", 0.0, 1.0),
        ("abba", 1.0, 0.0),
        ("abcbaa", 0.0, 0.0),
        ("aabbcbbaa", 1.0, 0.0),
        ("a b c b a", 1.0, 0.0),
        ("'abcba'", 1.0, 0.0),
        ("abcba.", 0.0, 0.0),
        ("bacab bacab", 1.0, 0.0),
        ("abcbа", 0.0, 0.0),  # noqa: RUF001 - the last letter is Cyrillic
    ],
)
def test_wrong_answers_and_what_is_wrong_with_them(answer, palindrome, letters) -> None:
    reward = grade(PROBLEM, answer)
    assert (reward.value, reward.status) == (0.0, "graded")
    assert reward.parts == {"palindrome": palindrome, "letters": letters}


def test_a_text_without_an_answer_is_unparsed() -> None:
    for text in ("", "  \n", "<answer></answer>", r"\boxed{", "abcba</think>"):
        assert grade(PROBLEM, text).status == "unparsed"


def test_spaces_belong_to_the_spaced_form_only() -> None:
    assert grade(SPACED, "b a c a b").value == 1.0
    assert grade(SPACED, "bacab").value == 0.0
    assert grade(SPACED, "ba c ab").value == 0.0


def test_verdicts_on_the_score_cases_of_reasoning_gym(shared_data) -> None:
    with gzip.open(shared_data("reasoning_gym_scores") / "score_cases.jsonl.gz", "rt") as lines:
        cases = [case for case in map(json.loads, lines) if case["task"] == "palindrome_generation"]
    table = Counter()
    for case in cases:
        gold = next(other["answer"] for other in cases if other["letters"] == case["letters"])
        problem = Problem(id="p", family="palindrome", question=case["question"], answer=gold)
        reward = grade(problem, case["answer"] or "")
        table[case["expected_score"], reward.status, reward.value] += 1
    assert table == {
        (1.0, "graded", 1.0): 10,
        (0.05, "graded", 0.0): 10,
        (0.02, "graded", 0.0): 10,
        (0.0, "unparsed", None): 20,
    }


@given(HALVES, st.sampled_from(["", "d"]))
def test_own_palindromes_are_right_and_changed_ones_are_wrong(half, middle) -> None:
    palindrome = half + middle + half[::-1]
    if not palindrome:
        return
    problem = Palindrome(PalindromeTask()).problem(sorted(palindrome), palindrome)
    arranged = "".join(sorted(half))
    assert grade(problem, arranged + middle + arranged[::-1]).value == 1.0
    assert grade(problem, palindrome + "e").value == 0.0
    assert grade(problem, f"e{palindrome}e").value == 0.0
    if half and middle:
        assert grade(problem, half + half[::-1] + middle).value == float(set(half) == {middle})


@given(st.text())
def test_no_text_raises(text) -> None:
    assert grade(PROBLEM, text).status in ("graded", "unparsed")


@pytest.mark.parametrize("piece", ["a", "a ", "\ud800", "\\boxed{", "<answer>"])
def test_a_megabyte_takes_no_time(piece) -> None:
    began = time.process_time()
    assert grade(PROBLEM, piece * (1_000_000 // len(piece))).value != 1.0
    assert time.process_time() - began < 1.0
