"""Palindromes: arrange all the given letters so that they read the same from both ends."""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from math import factorial, prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from swerve.grading.answers import STATED, find_answer
from swerve.grading.grader import GraderEntry, graded
from swerve.problems.family import GeneratedFamily, Split, is_heldout, problem_id
from swerve.problems.prompt import PromptConfig, stated_solution, with_prompt
from swerve.problems.task import PromptedTask, TaskKind
from swerve.settings import PositiveInt
from swerve.types import Problem, Reward


class PalindromeTask(PromptedTask):
    """Form a palindrome from all the given letters; many answers are right."""

    kind: Literal["palindrome"] = "palindrome"
    min_length: Annotated[int, Field(ge=1, le=40)] = 3
    """Fewest letters."""
    max_length: Annotated[int, Field(ge=1, le=40)] = 10
    """Most letters."""
    spaced: bool = False
    """Short questions and answers with a space between letters, for word tokenizers such as the tiny model's."""
    num_train: PositiveInt = 4000
    """Distinct training problems."""
    num_heldout: PositiveInt = 200
    """Distinct held-out problems."""
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _check_lengths(self) -> PalindromeTask:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length ({self.min_length}) must be at most max_length ({self.max_length})")
        return self


_QUESTION = """Your task is, given a list of letters, to form a valid palindrome.

A palindrome is a phrase that reads the same forwards and backwards.

If there are multiple possible answers, only respond with one of them. You must use all the letters provided.

Your output should be a single string, with no spaces or punctuation.

Now, form a valid palindrome using the following letters: {letters}
"""


def count_palindromes(letters: Sequence[str]) -> int:
    """Return how many different palindromes use all the letters: arrangements of the half that stands on the left.

    >>> count_palindromes("aabbc"), count_palindromes("aaaa"), count_palindromes("abc")
    (2, 1, 0)
    """
    counts = Counter(letters).values()
    if sum(count % 2 for count in counts) > 1:
        return 0
    return factorial(sum(count // 2 for count in counts)) // prod(factorial(count // 2) for count in counts)


class Palindrome(GeneratedFamily[PalindromeTask]):
    """Letters that form at least one palindrome, asked in the words of reasoning-gym's `palindrome_generation`.

    Any palindrome of the letters is right; `answer` is one of them. With `spaced` the question is short and a space
    stands between letters, as in the question `t c t g c g =` with the answer `c t g g t c`.

    Held out: by the letters, whatever their order; no two problems have the same letters. Kind and difficulty: the
    number of letters. Metadata: `letters` as asked, `num_answers` (different right answers).
    """

    name = "palindrome"
    too_few = "lower it or raise task.max_length"

    def __init__(self, task: PalindromeTask) -> None:
        super().__init__(task)
        self.words = (*string.ascii_lowercase, "=") if task.spaced else ()

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems: the number of letters is uniform, then the letters of one half are."""
        while True:
            length = rng.randint(self._task.min_length, self._task.max_length)
            half = rng.choices(string.ascii_lowercase, k=length // 2)
            middle = rng.choices(string.ascii_lowercase, k=length % 2)
            palindrome = "".join([*half, *middle, *reversed(half)])
            letters = rng.sample(palindrome, length)
            held_out = is_heldout("".join(sorted(letters)))
            yield self.problem(letters, palindrome) if held_out == (split == "heldout") else None

    def problem(self, letters: Sequence[str], palindrome: str) -> Problem:
        """Return the problem of letters in this order, and one right answer.

        >>> Palindrome(PalindromeTask(spaced=True)).problem(["b", "a", "a"], "aba").question
        'b a a ='
        """
        spaced = self._task.spaced
        answer = " ".join(palindrome) if spaced else palindrome
        problem = Problem(
            id=problem_id(self.name, "".join(sorted(letters))),
            family=self.name,
            question=f"{' '.join(letters)} =" if spaced else _QUESTION.format(letters=", ".join(letters)),
            answer=answer,
            solution=stated_solution(answer, self._task.prompt),
            kind="1 letter" if len(letters) == 1 else f"{len(letters)} letters",
            difficulty=float(len(letters)),
            metadata={"letters": list(letters), "num_answers": count_palindromes(letters)},
        )
        return with_prompt(problem, self._task.prompt)


def grade_palindrome(problem: Problem, text: str) -> Reward:
    """Return 1 if a completion states a palindrome of all the problem's letters, else 0; never raises on any text.

    The letters are those of the gold answer, so any palindrome of them is right. Of the stated answer
    (`swerve.grading.answers.STATED`) the white space around it is left out and the case of ASCII letters is ignored;
    spaces between the letters count as wrong, except for a problem whose gold answer has them. The parts say whether it
    is a palindrome and whether it has the letters.

    >>> problem = Problem(id="p", family="palindrome", question="letters: a, b, b, a", answer="abba")
    >>> grade_palindrome(problem, "baab").value, grade_palindrome(problem, "abab").value
    (1.0, 0.0)
    """
    stated = find_answer(text, STATED)
    if stated is None:
        return Reward(value=None, status="unparsed")

    # Letters are separated as in the gold answer; the case of ASCII letters does not count.
    spaced = " " in problem.answer
    letters = tuple(stated.split()) if spaced else tuple(stated)
    if stated.isascii():
        letters = tuple(letter.lower() for letter in letters)
    wanted = problem.answer.split() if spaced else problem.answer
    is_palindrome = letters == letters[::-1]
    has_letters = len(letters) == len(wanted) and Counter(letters) == Counter(wanted)
    parts = {"palindrome": float(is_palindrome), "letters": float(has_letters)}
    return graded(is_palindrome and has_letters, stated, parts)


TASK = TaskKind(PalindromeTask, Palindrome, GraderEntry(module=__name__, function="grade_palindrome"))
