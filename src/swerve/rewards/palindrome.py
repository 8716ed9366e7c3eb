"""Is the answer a palindrome of exactly the given letters?"""

from __future__ import annotations

from collections import Counter

from swerve.grading.answers import STATED, find_answer
from swerve.types import Problem, Reward

__all__ = ["grade_palindrome"]


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
    spaced = " " in problem.answer
    letters = tuple(stated.split()) if spaced else tuple(stated)
    if stated.isascii():
        letters = tuple(letter.lower() for letter in letters)
    wanted = problem.answer.split() if spaced else problem.answer
    is_palindrome = letters == letters[::-1]
    has_letters = len(letters) == len(wanted) and Counter(letters) == Counter(wanted)
    return Reward(
        value=float(is_palindrome and has_letters),
        status="graded",
        parts={"palindrome": float(is_palindrome), "letters": float(has_letters)},
        extracted=stated,
    )
