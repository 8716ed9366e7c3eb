"""Exact match of the final answer that a generated family's completions end with."""

from __future__ import annotations

from swerve.types import Problem, Reward

__all__ = ["grade_final_answer"]

_KEYWORD = "answer"


def grade_final_answer(problem: Problem, text: str) -> Reward:
    """Return 1 if the words after the only `answer` of a completion are the gold answer's words, else 0.

    A text without exactly one `answer`, or with nothing after it, has no value and the status `unparsed`. Never raises.

    >>> problem = Problem(id="p", family="addition", question="1 2 + 3 4 =", answer="0 4 6")
    >>> grade_final_answer(problem, "2 + 4 + 0 = 0 6 ... answer 0 4 6").value
    1.0
    >>> grade_final_answer(problem, "answer 0 4 6 answer 0 4 7").status
    'unparsed'
    """
    words = text.split()
    given = words[words.index(_KEYWORD) + 1 :] if words.count(_KEYWORD) == 1 else []
    if not given:
        return Reward(value=None, status="unparsed")
    value = float(given == problem.answer.split())
    return Reward(value=value, status="graded", parts={"answer": value}, extracted=" ".join(given))
