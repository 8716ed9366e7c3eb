from __future__ import annotations

import itertools
from collections import Counter

import pytest
from pydantic import ValidationError

from swerve.config import PalindromeTask, PromptConfig
from swerve.errors import ConfigError
from swerve.problems import Palindrome, load_family
from swerve.problems.palindrome import count_palindromes
from swerve.rewards import grade

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


@pytest.mark.parametrize("letters", ["a", "ab", "aa", "aab", "aabb", "aabbc", "aaaabb", "aabbccd", "aaab"])
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
