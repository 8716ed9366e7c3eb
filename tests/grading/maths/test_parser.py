from __future__ import annotations

import time
from contextlib import suppress
from fractions import Fraction

import pytest

from swerve.grading.maths.expressions import Based, Call, Group, Matrix, NotParsed, Number, Quantity, Relation, Symbol
from swerve.grading.maths.limits import LimitReached
from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import exact
from tests.cases import each


@each(
    ("text", "value"),
    [
        ("4 4/9", "40/9"),
        (r"4\frac49", "40/9"),
        ("-4 4/9", "-40/9"),
        ("11 - 4/9", "95/9"),
        (r"\frac14", "1/4"),
        (r"\frac1{72}", "1/72"),
        (r"\frac 1 2", "1/2"),
        ("7/6/2", "7/12"),
        ("1/2*4", "2"),
        (r"0.\overline{3}", "1/3"),
        (r"1.2\overline{34}", "611/495"),
        ("1,234,567.5", "2469135/2"),
        ("10{,}000", "10000"),
        (r"32,\! 349", "32349"),
        (r"12\,345\,678", "12345678"),
        ("1 000", "1000"),
        ("1.5e3", "1500"),
        (r"1.5 \cdot 10^{3}", "1500"),
        ("033", "33"),
        (".5", "1/2"),
        ("--5", "5"),
        ("2^{-3}", "1/8"),
        ("2^10", "1024"),
        ("2^6 3^5", "15552"),
        ("5!", "120"),
        (r"\binom{5}{2}", "10"),
        (r"\sqrt{16}", "4"),
        (r"\sqrt[3]{27}", "3"),
        (r"|3 - 5|", "2"),
        (r"\lfloor 2.5 \rfloor", "2"),
        ("8^{2/3}", "4"),
        (r"\text{five}", "5"),
        ("28 percent", "7/25"),
        ("-2^2", "-4"),
        ("(-1)^{10^{100}}", "1"),
    ],
)
def test_numbers(text: str, value: str) -> None:
    assert exact(parse(text)) == Fraction(value)


@each(
    "text",
    [
        "@@@",
        "",
        "4 4/0",
        "11.0 4/9",
        "(11) 4/9",
        "11 7/6",
        "11/10 4/9",
        "2 3",
        "x2",
        "3.5.1",
        "1 2 3",
        "2 +",
        "(1, 2",
        r"\frac{1}{",
        "AZYUK2A",
        "west",
        r"5\text{ or maybe 6}",
        r"5\text{ not 6}",
        "4\ud8002",
    ],
)
def test_what_is_not_all_understood_is_no_formula(text: str) -> None:
    with pytest.raises(NotParsed):
        parse(text)


def test_structures() -> None:
    one, two = Number(Fraction(1)), Number(Fraction(2))
    assert parse("(1, 2)") == Group("()", (one, two))
    assert parse("[1, 2)") == Group("[)", (one, two))
    assert parse("1, 2") == parse("1 and 2") == parse("1, and 2") == Group("", (one, two))
    assert parse(r"\{1, 2\}") == parse("{1, 2}") == Group("{}", (one, two))
    assert parse(r"\{\}") == Symbol("emptyset")
    assert parse("x < 1") == Relation(("<",), (Symbol("x"), one))
    assert parse(r"\begin{pmatrix} 1 & 2 \\ 2 & 1 \end{pmatrix}") == Matrix(((one, two), (two, one)))
    assert parse("12_{5}") == parse("12_5") == parse("012_{(5)}") == Based("12", 5)
    assert parse("1:2") == Call("ratio", (one, two))
    assert parse("v_0") == parse("v_{0}") == Symbol("v_0")
    assert parse("p=1,q=2;p=2,q=1") == Group("", (parse("p=1,q=2"), parse("p=2,q=1")))


def test_units() -> None:
    assert parse("10 cm") == parse(r"10\text{ cm}") == Quantity(Number(Fraction(10)), "centimeter")
    assert parse(r"15\mbox{ cm}^2") == parse("15 square cm") == Quantity(Number(Fraction(15)), "centimeter^2")
    assert parse(r"2\sqrt{3}\text{ cm}") == Quantity(parse(r"2\sqrt{3}"), "centimeter")
    assert parse("10 m") == Call("*", (Number(Fraction(10)), Symbol("m")))
    assert parse("9 min") == Quantity(Number(Fraction(9)), "minute")


def test_commas_in_brackets_separate() -> None:
    with pytest.raises(NotParsed):
        parse("(1,210)")
    assert len(parse("(1,210)", thousands=False).items) == 2
    assert parse("1,210") == Number(Fraction(1210))
    assert parse("1,2345") == Group("", (Number(Fraction(1)), Number(Fraction(2345))))


def test_depth_is_bounded() -> None:
    with pytest.raises(LimitReached):
        parse(r"\sqrt" * 60 + "2")
    assert exact(parse("1" + "/1" * 500)) == 1
    assert exact(parse("-" * 501 + "1")) == -1


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(r"1\frac{", "}{2}"), (r"\{x:", r"\}"), (r"\{", r"\}"), (r"\{x \in ", r"\}"), (r"{a \over ", "}"), ("f(", ")")],
)
def test_nothing_is_read_twice_at_every_depth(opening: str, closing: str) -> None:
    started = time.process_time()
    for number in range(5):
        with suppress(NotParsed, LimitReached):
            parse(opening * 24 + str(number) + "x" + closing * 24)
    assert time.process_time() - started < 2, "reading twice at each of 24 levels takes millions of steps"


def test_a_fraction_that_is_not_proper_is_a_factor() -> None:
    assert exact(parse(r"5\frac73")) == exact(parse(r"5\frac{7}{3}")) == Fraction(35, 3)


def test_sums_are_written_out() -> None:
    assert exact(parse(r"\sum_{k=1}^{4} k^2 + 1")) == 31
    assert exact(parse(r"\prod_{k=2}^{4} (k - 1)")) == 6
    with pytest.raises(LimitReached, match="written-out"):
        parse(r"\sum_{a=1}^{99} \sum_{b=1}^{99} ab")


def test_set_builders_have_no_name_for_their_variable() -> None:
    assert parse(r"\{x \mid x > 1\}") == parse(r"\{y : y > 1\}") == parse(r"\{t \in \mathbb{R} | t > 1\}")
    assert parse(r"\{x \mid x > y\}") != parse(r"\{y \mid y > x\}")


@pytest.mark.parametrize("opening", ["{(1:", r"\{(1|", r"\{(x \in \mathbb{R} \mid "])
def test_braces_that_may_be_a_set_with_a_condition_are_read_once(opening: str) -> None:
    started = time.process_time()
    with pytest.raises(NotParsed):
        parse(opening * 12)
    assert time.process_time() - started < 0.2
