"""Has a model seen the questions? Whether it continues their beginnings as they go on (arXiv 2507.10532)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from swerve.artifacts.claim import ContaminationPart, ContaminationRow
from swerve.claim.paired import larger
from swerve.claim.work import Cost, NotMeasuredError, Work
from swerve.config.claim import ClaimSettings
from swerve.statistics import mean_interval
from swerve.types import Problem

SHARES = (0.4, 0.6, 0.8)
"""Of a question's words that are given."""
_NUMBER = re.compile(r"\b\d+\b")
_CONTROL = "the same questions with other numbers"
_NOTE = "Numbers that only make sense as they are, such as 24 hours, can be told without having been seen."
_FIGURES = ("exact", "exact_control", "right", "right_control")


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs: three beginnings of each question and of its control, continued by both models."""
    return Cost(samples=12 * min(settings.some, num_problems))


def measure(work: Work) -> ContaminationPart:
    """Return this part."""
    problems = [problem for problem in work.problems if _NUMBER.search(problem.question)][: work.settings.some]
    if not problems:
        raise NotMeasuredError("needs the two models, and questions with numbers: in the control they are others")
    versions: list[dict[str, str]] = [{}, other_numbers(problems)]
    begun, rests = zip(*(beginning(*each) for each in product(SHARES, versions, problems)), strict=True)
    sampled = work.sample([work.wanted("begun", side, problems=begun, template="raw") for side in work.sides])

    # Figures are [shares, questions and control, problems].
    rows, verdicts = [], []
    shape = (len(SHARES), 2, -1)
    for side, responses in zip(work.sides, sampled, strict=True):
        written = [(each.text or "").split() for each in responses]
        exact = np.reshape([words[: len(rest)] == rest for words, rest in zip(written, rests, strict=True)], shape)
        right = np.reshape([each.correct for each in responses], shape)
        for share, values in zip(SHARES, np.hstack((exact, right)), strict=True):
            rates = [mean_interval(each, bounds=(0.0, 1.0)) for each in values]
            rows.append(ContaminationRow(model=side.label, given=share, **dict(zip(_FIGURES, rates, strict=True))))
        own, others = exact.mean(0)
        said = f"{side.label} continues the questions word for word more often than {_CONTROL}"
        verdicts.append(larger("completes_questions", side.label, own, others, said, null=_CONTROL))
    return ContaminationPart(control=_CONTROL, completions=tuple(rows), verdicts=tuple(verdicts), notes=(_NOTE,))


def other_numbers(problems: list[Problem]) -> dict[str, str]:
    """Return for each number in the questions another that is in them: the next one, of as many digits but for a few.

    >>> other_numbers([Problem(id="p", family="table", question="Of 7 pens and 12 caps 5 are red.", answer="19")])
    {'5': '7', '7': '12', '12': '5'}
    """
    numbers = {number for problem in problems for number in _NUMBER.findall(problem.question)}
    ordered = sorted(sorted(numbers), key=len)
    return dict(zip(ordered, ordered[1:] + ordered[:1], strict=True))


def beginning(share: float, numbers: Mapping[str, str], problem: Problem) -> tuple[Problem, list[str]]:
    """Return the beginning of a problem's question as a problem, with other numbers, and the words of the rest.

    >>> problem = Problem(id="p", family="table", question="Ann has 3 pens now", answer="3")
    >>> begun, rest = beginning(0.4, {"3": "4"}, problem)
    >>> begun.question, rest
    ('Ann has', ['4', 'pens', 'now'])
    """
    question = _NUMBER.sub(lambda match: numbers.get(match[0], match[0]), problem.question)
    words = question.split()
    num = max(1, int(share * len(words)))
    given = question.removesuffix(question.split(maxsplit=num)[-1]).rstrip()
    named = f"{problem.id} {share} {len(numbers)}"
    return replace(problem, id=named, question=given, messages=(), prefix=""), words[num:]
