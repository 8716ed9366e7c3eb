from __future__ import annotations

import pytest

from swerve.grading.maths.lexer import normalise
from swerve.grading.maths.limits import LimitReached
from swerve.grading.maths.numeric import same_numerically
from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import NoValue, exact
from tests.cases import each


@each(
    ("first", "second", "same"),
    [
        ("(x+1)^2", "x^2+2x+1", True),
        ("|x|", "x", False),
        (r"\sqrt{x^2}", "|x|", True),
        (r"\sqrt{x^2}", "x", False),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
        (r"\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt{6}}", "0", True),
        (r"\cos(x)", r"\sin(90^{\circ}-x)", True),
        (r"\sin^2 x + \cos^2 x", "1", True),
        (r"\sin 30^{\circ}", "1/2", True),
        (r"\sin^{-1} x", r"\arcsin x", True),
        (r"\ln 2", r"\log 2", True),
        (r"\log 100", "2", True),
        (r"\log_2 8", "3", True),
        ("f(1+1)", "f(2)", True),
        ("f(x)", "f(y)", False),
        ("f'(x)", "f(x)", False),
        (r"\overline{z}", "z", False),
        (r"e^{i\pi}", "-1", True),
        ("e^{-200}", "e^{-201}", False),
        ("e^{-300}", "0", False),
        (r"x^2 + 10^{-70}", "x^2", False),
        ("(x+1)^{2000}", "(x+1)^{2000}+x", False),
        (r"1-1/e", "1", False),
        (r"\begin{vmatrix} 2 & 1 \\ 1 & 2 \end{vmatrix}", "3", True),
        (r"\frac{\sin x}{x}", r"\sin x", False),
        ("x/x", "1", True),
    ],
)
def test_same_value(first: str, second: str, same: bool) -> None:
    assert same_numerically(parse(normalise(first)), parse(normalise(second))) is same


def test_values_too_large_are_a_limit() -> None:
    with pytest.raises(LimitReached):
        same_numerically(parse(r"e^{e^{9999}}"), parse("5"))
    with pytest.raises(LimitReached):
        exact(parse("(9^{9999})^{9999}"))


def test_division_by_zero_has_no_value() -> None:
    assert same_numerically(parse(r"\frac{1}{0}"), parse(r"\frac{1}{0}")) is False
    with pytest.raises(NoValue):
        exact(parse("1/0"))
