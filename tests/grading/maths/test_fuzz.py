"""A million short random strings through all that reads text, and fewer through the whole graders."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from swerve.grading.answers import find_answer
from swerve.grading.grade_math import grade_math, quick_math
from swerve.grading.maths.expressions import NotParsed
from swerve.grading.maths.lexer import normalise
from swerve.grading.maths.limits import LimitReached, check_limits
from swerve.grading.maths.parser import parse
from swerve.types import Problem

FORMS = ("boxed", "answer_tag", "hash", "phrase", "formula", "last_number", "last_line", "whole")
_LATEX = r"""
\frac \sqrt \boxed{ \text{ \text{cm} \text{m} \pi \infty \cup \in \pm \sin \log_ \left( \\ \( \) \[ \] \{ \}
^\circ \le \ne \cdot \mathbb{R} \overline{3} \binom \, \sum_{k=1}^3 \int_0^1 \lim \over \bmod \pmod \mid
\ldots \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} \setminus \mathrm \gcd
"""
_PLAIN = "{ } ( ) [ ] 1 2 34 0 . ... , x y e i f ^ ^T ^{-1} _ + - * / = < ! % | & $ ' ; : and or cm d 9 C th"
_TAGS = ["<answer>", "</answer>", "</think>", "#### ", "answer is "]
_CHARACTERS = [*" \n½²√\ud800\x00٣\\"]
PIECES = [*_LATEX.split(), *_PLAIN.split(), *_TAGS, *_CHARACTERS]
LONGEST = 30


def strings(seed: int, count: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(count):
        yield "".join(rng.choices(PIECES, k=rng.randint(1, 9)))[:LONGEST]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("quarter", range(4))
def test_reading_raises_nothing_but_its_own_exceptions(quarter: int) -> None:
    read = 0
    for index, text in enumerate(strings(quarter, 250_000)):
        normalised = normalise(find_answer(text, (FORMS[index % len(FORMS)], "whole")) or "")
        try:
            check_limits(normalised)
            parse(normalised, thousands=bool(index % 2))
            read += 1
        except (LimitReached, NotParsed):
            pass
    assert 10_000 < read < 240_000, "the strings are neither all formulas nor none"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_graders_agree_on_random_strings() -> None:
    golds = [r"\frac{1}{2}", "x+1", "(1,2)", r"\{1,2\}", "[0,1)", "A", r"5\text{ cm}", "x=3", "x<1", r"\pm 3", "12_5"]
    decided = 0
    for index, text in enumerate(strings(4, 20_000)):
        grading = {"extraction": [FORMS[index % len(FORMS)], "whole"]}
        problem = Problem(id="p", family="math", question="", answer=golds[index % len(golds)], grading=grading)
        reward, quick = grade_math(problem, text), quick_math(problem, text)
        assert quick is None or quick == reward, text
        decided += quick is not None
    assert decided > 10_000
