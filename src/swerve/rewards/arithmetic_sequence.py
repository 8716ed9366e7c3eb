"""Are the terms the next ones of a sequence?"""

from __future__ import annotations

from swerve.types import Problem, Reward

__all__ = ["grade_arithmetic_sequence"]


def grade_arithmetic_sequence(problem: Problem, text: str) -> Reward:
    """Return 1 if a completion is exactly the terms of the problem's answer, else 0; never raises on any text.

    Terms are separated by white space or commas and compared as they are written. An empty completion is unparsed. The
    part `terms` is the share of the answer's terms that are right before the first wrong one.

    >>> problem = Problem(id="p", family="arithmetic_sequence", question="8 , 3 : 9 , 4", answer="7 2 6 1")
    >>> grade_arithmetic_sequence(problem, "7,2,6,1").value
    1.0
    >>> grade_arithmetic_sequence(problem, "7 2 5 1").parts
    {'terms': 0.5}
    """
    given = text.replace(",", " ").split()
    if not given:
        return Reward(value=None, status="unparsed")
    wanted = problem.answer.split()
    right = 0
    while right < min(len(given), len(wanted)) and given[right] == wanted[right]:
        right += 1
    return Reward(
        value=float(given == wanted),
        status="graded",
        parts={"terms": right / len(wanted) if wanted else 0.0},
        extracted=" ".join(given),
    )
