"""Has a model seen the questions? Whether it continues their beginnings as they go on (arXiv 2507.10532)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from swerve.artifacts.responses import Response
from swerve.claim.part import Cost, Part, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import larger
from swerve.claim.work import NotMeasuredError, Work
from swerve.eval.sampling import chosen_problems
from swerve.statistics import mean_interval
from swerve.types import Problem

SHARES = (0.4, 0.6, 0.8)
"""Of a question's words that are given."""
_NUMBER = re.compile(r"\b\d+\b")


class ContaminationRow(Row):
    """What a model makes of the beginnings of questions."""

    model: str
    given: Share
    """How much of the question it is given."""
    exact: Share
    """Fraction of questions whose rest it writes exactly."""
    exact_control: Share
    rouge_l: Share
    """F-measure of the longest common subsequence of words with the rest."""
    rouge_l_control: Share
    right: Share
    """Fraction whose continuation has the right answer."""
    right_control: Share
    """With other numbers it is still the question's own answer that is right."""


class ContaminationPart(Part):
    """Is it contamination?"""

    control: str = ""
    """What the questions are compared with."""
    completions: tuple[ContaminationRow, ...] = ()

    @classmethod
    def measure(cls, work: Work) -> ContaminationPart:
        """Measure it; see `Part.measure`."""
        pairs, control = with_controls(work)
        if not pairs:
            raise NotMeasuredError(
                "needs a task that generates its problems, or questions of several words with numbers"
            )
        begun, rests = zip(
            *(beginning(pair[kind], share) for share in SHARES for kind in (0, 1) for pair in pairs), strict=True
        )
        sampled = work.sample([work.wanted("begun", side, problems=begun, template="raw") for side in work.sides])

        rows, verdicts = [], []
        named: Any = {"columns": ("control", "question"), "problems": [problem.id for problem, _ in pairs]}
        for side, responses in zip(work.sides, sampled, strict=True):
            figures = np.array([matches(*each) for each in zip(responses, rests, strict=True)])
            shares = figures.reshape(len(SHARES), 2, len(pairs), 3)
            for share, by_kind in zip(SHARES, shares, strict=True):
                rates = [
                    mean_interval(by_kind[kind, :, figure], bounds=(0.0, 1.0)) for figure in range(3) for kind in (0, 1)
                ]
                row = zip(ContaminationRow.model_fields, (side.label, share, *rates), strict=True)
                rows.append(ContaminationRow.model_validate(dict(row)))
            own, others = shares[..., 0].mean(axis=0)
            said = f"`{side.label}` continues the questions word for word more often than {control}"
            unseen = f"`{side.label}` is not seen to continue the questions word for word more often than {control}"
            line = larger("completes_questions", side.label, own, others, said, unseen, null=control, **named)
            verdicts.append(line)
        return ContaminationPart(control=control, completions=tuple(rows), verdicts=tuple(verdicts))

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        # The beginnings of each question and of its control, continued by both models.
        return Cost(samples=2 * 2 * len(SHARES) * min(settings.some, num_problems))


def matches(response: Response, rest: Sequence[str]) -> tuple[bool, float, bool]:
    """Return whether a continuation begins with the rest of the question, ROUGE-L of as many words, and its verdict.

    ROUGE-L is 2 LCS / (words written + words of the rest), LCS the longest common subsequence.
    """
    words = (response.text or "").split()[: len(rest)]
    longest = np.zeros(len(rest) + 1)
    for word in words:
        with_word = longest[:-1] + [word == other for other in rest]
        longest[1:] = np.maximum.accumulate(np.maximum(longest[1:], with_word))
    return words == rest, 2 * longest[-1] / (len(words) + len(rest)), bool(response.correct)


def with_controls(work: Work) -> tuple[list[tuple[Problem, Problem]], str]:
    """Return problems of two words and more, each with one that no model has seen, and what these are.

    Problems that are read get the next number that the questions have in place of each, but for numbers in all of them.
    One that only makes sense as it is (24 hours) can then be told without having been seen.
    """
    settings, known = work.settings, {problem.question for problem in work.problems}
    if settings.task.train_sources:
        control = "the same questions with other numbers"
        others = with_other_numbers(work.problems)
    else:
        control = "freshly generated questions"
        changes = {"problem_seed": 2**31, "limit": None}  # a card's own seed is smaller
        others = chosen_problems(settings.model_copy(update=changes), work.progress)
    pairs = [
        (own, other)
        for own, other in zip(work.problems, others, strict=False)
        if other.question not in known and min(len(own.question.split()), len(other.question.split())) > 1
    ]
    return pairs[: settings.some], control


def with_other_numbers(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with each number replaced by the next one of the questions, of as many digits but for a few.

    >>> asked = [Problem(id=text, family="table", question=text, answer="") for text in ("7 of 12 in 1", "9 of 5 in 1")]
    >>> [problem.question for problem in with_other_numbers(asked)]
    ['9 of 5 in 1', '12 of 7 in 1']
    """
    numbers = [{*_NUMBER.findall(problem.question)} for problem in problems]
    ordered = sorted(sorted(set.union(*numbers) - set.intersection(*numbers)), key=len)
    others = dict(zip(ordered, ordered[1:] + ordered[:1], strict=True))
    return [
        replace(each, question=_NUMBER.sub(lambda match: others.get(match[0], match[0]), each.question))
        for each in problems
    ]


def beginning(problem: Problem, share: float) -> tuple[Problem, list[str]]:
    """Return the beginning of a problem's question as a problem, and the words of the rest.

    >>> begun, rest = beginning(Problem(id="p", family="table", question="Ann has 3 pens now", answer="3"), 0.4)
    >>> begun.question, rest
    ('Ann has', ['3', 'pens', 'now'])
    """
    question = problem.question
    words = question.split()
    num = max(1, int(share * len(words)))
    given = question.removesuffix(question.split(maxsplit=num)[-1]).rstrip()
    return replace(problem, id=f"{share} {question}", question=given, messages=(), prefix=""), words[num:]
