"""What models wrote to a problem, as a page shows it beside its rows: an answer of each kind, within a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swerve.artifacts.record import Record
from swerve.artifacts.responses import Response

MAX_CHARS = 500_000
"""Characters of all answers and questions that one page holds."""
_START, _END = 1500, 1000
"""Characters that are kept of a longer text: its beginning, and its end, where the answer stands."""


class Excerpt(Record):
    """An answer that a model wrote."""

    model: str
    outcome: str
    """`right`, `wrong`, `no answer found` or `not graded`, whether it was cut off, and whether its text is unknown."""
    text: str
    """The middle of a long one is left out, and says so."""


class AskedProblem(Record):
    """A problem with answers of each model: a right one and one that is not, of each kind the first by its text."""

    problem: str
    question: str
    gold: str
    """Empty: not known."""
    counts: tuple[str, ...]
    """Of each model how many of its answers are right, in words."""
    answers: tuple[Excerpt, ...]


def outcome_of(response: Response) -> str:
    """Return what became of an answer, in words.

    >>> from swerve.types import Problem
    >>> problem = Problem(id="p", family="math", question="1 + 1?", answer="2")
    >>> outcome_of(Response(problem=problem, text="2", correct=True, finish_reason="length"))
    'right, cut off'
    """
    is_known = response.verdict is not None and response.status not in ("timeout", "error")
    outcome = ("right" if response.verdict else "wrong") if is_known else "not graded"
    outcome = "no answer found" if response.answered is False and not response.verdict else outcome
    return outcome + (", cut off" if response.finish_reason == "length" else "")


def asked_problems(
    sides: Mapping[str, Mapping[str, Sequence[Response]]], *, max_chars: int = MAX_CHARS
) -> tuple[AskedProblem, ...]:
    """Return problems with what models wrote to them, the ones on which models differ most first, up to a bound.

    Args:
        sides: of each model its responses by problem; those without a text or an answer are not shown.
        max_chars: of all of them together; what is beyond is left out.
    """
    names = sorted(
        dict.fromkeys(name for side in sides.values() for name in side), key=lambda name: (_question(name, sides), name)
    )
    rates = {name: [_rate(side.get(name, ())) for side in sides.values()] for name in names}
    chosen, num_chars = [], 0
    for name in sorted(names, key=lambda name: min(rates[name]) - max(rates[name])):
        asked = _asked(name, sides)
        if asked is None:
            continue
        num_chars += len(asked.question) + sum(len(each.text) for each in asked.answers)
        if num_chars > max_chars:
            break
        chosen.append(asked)
    return tuple(chosen)


def _question(name: str, sides: Mapping[str, Mapping[str, Sequence[Response]]]) -> str:
    return next((group[0].problem.question or "" for side in sides.values() if (group := side.get(name))), "")


def _rate(group: Sequence[Response]) -> float:
    return sum(bool(each.verdict) for each in group) / len(group) if group else 0.0


def _asked(name: str, sides: Mapping[str, Mapping[str, Sequence[Response]]]) -> AskedProblem | None:
    """Return a problem with an answer of each kind by each model; None where no text is known."""
    answers, counts, problem = [], [], None
    for model, side in sides.items():
        group = side.get(name, ())
        if not group:
            continue
        problem = problem or group[0].problem
        num = sum(bool(each.verdict) for each in group)
        counts.append(f"{model}: {num:,} of {len(group):,} right")
        for is_right in (True, False):
            kind = [each for each in group if bool(each.verdict) is is_right and _known(each)]
            if kind:
                first = min(kind, key=_known)  # whatever the order of the rows
                outcome = outcome_of(first) + ("" if first.written else ", the answer alone")
                answers.append(Excerpt(model=model, outcome=outcome, text=_short(_known(first))))
    if problem is None or not answers:
        return None
    gold = "" if problem.answer is None else str(problem.answer)
    question = _short(problem.question or "")
    return AskedProblem(problem=name, question=question, gold=gold, counts=tuple(counts), answers=tuple(answers))


def _known(response: Response) -> str:
    """Return what a model wrote; of a response without its text the answer that was read."""
    return response.written or response.extracted or ""


def _short(text: str) -> str:
    r"""Return a text without the middle of a long one.

    >>> _short("a" * 4000)[1498:1540]
    'aa\n[1,500 characters left out]\naaaaaaaaaaa'
    """
    left = len(text) - _START - _END
    return text if left <= 0 else f"{text[:_START]}\n[{left:,} characters left out]\n{text[-_END:]}"


def held_said(num_held: int, num: int) -> str:
    """Return what a row of a problem opens, and of how many problems; empty where the page holds no answer.

    >>> held_said(2, 2)
    "A problem's name opens what was written: of each model one right answer and one that is not."
    """
    if not num_held:
        return ""
    said = "A problem's name opens what was written: of each model one right answer and one that is not"
    if num_held >= num:
        return f"{said}."
    return (
        f"{said}. This page holds those of {num_held:,} of {num:,} problems, on which the models differ most "
        f"({MAX_CHARS:,} characters at most)."
    )
