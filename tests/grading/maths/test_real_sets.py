from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import NeedsNumbers
from swerve.grading.maths.real_sets import is_described, same_real_sets
from tests.cases import each


def same(first: str, second: str, *, numerically: bool = True) -> bool:
    return same_real_sets(parse(first), parse(second), numerically=numerically)


@each(
    ("first", "second", "expected"),
    [
        (r"|2x-1| \le 3", "[-1, 2]", True),
        (r"|2x-1| \le 3", "[-1, 2)", False),
        (r"1 \le |x| < 2", r"(-2,-1] \cup [1,2)", True),
        (r"x \ne 1", r"\mathbb{R} \setminus \{1\}", True),
        (r"x \ne 1", r"\mathbb{R}", False),
        (r"x < \frac{1}{3}", r"(-\infty, 0.\overline{3})", True),
        (r"x < \frac{1}{3}", r"(-\infty, 0.3333333333)", False),
        (r"x^2 < 1", "(-1, 1)", False),
        ("x < y", r"(-\infty, y)", False),
        ("x > 1", "y > 1", False),
        (r"\{x \in \mathbb{Z} \mid x > 1\}", r"(1, \infty)", False),
        (r"(0, 10^{-50})", r"\emptyset", False),
        (r"(1,2) \cap (3,4)", r"\emptyset", True),
        ("x < 1, x > 0", "(0, 1)", True),
        ("x < 0, x > 1", r"(-\infty, 0) \cup (1, \infty)", True),
        ("x < 1 or x > 0", r"\mathbb{R}", True),
    ],
)
def test_sets(first: str, second: str, expected: bool) -> None:
    assert same(first, second) is expected
    assert same(second, first) is expected


def test_irrational_bounds_need_numbers() -> None:
    assert same(r"x < \sqrt{3+2\sqrt{2}}", r"(-\infty, 1+\sqrt{2})")
    assert not same(r"x < \sqrt{3+2\sqrt{2}}", r"(-\infty, 2.414213562373095)")
    with pytest.raises(NeedsNumbers):
        same(r"x < \sqrt{2}", r"(-\infty, 1.5)", numerically=False)


def test_plain_values_describe_no_set() -> None:
    assert not any(is_described(parse(text)) for text in ("x = 1", "(1, 2)", "1, 2", "x"))


BOUNDS = st.builds(Fraction, st.integers(-20, 20), st.integers(1, 6))


@given(BOUNDS, BOUNDS, st.sampled_from("(["), st.sampled_from(")]"), BOUNDS)
def test_an_interval_is_its_inequalities_and_the_parts_it_is_cut_into(
    low: Fraction, size: Fraction, opening: str, closing: str, cut: Fraction
) -> None:
    high = low + abs(size) + 1
    interval = f"{opening}{low}, {high}{closing}"
    chain = f"{low} {'<' if opening == '(' else '<='} x {'<' if closing == ')' else '<='} {high}"
    assert same(interval, chain)
    inside = low < cut < high
    assert same(interval, rf"{opening}{low}, {cut}] \cup ({cut}, {high}{closing}") is inside or not inside
    assert not same(interval, rf"{opening}{low}, {cut}) \cup ({cut}, {high}{closing}") or not inside
    assert not same(interval, f"{opening}{low}, {high + Fraction(1, 10**6)}{closing}")
