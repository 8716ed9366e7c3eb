from __future__ import annotations

import random
import time
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.arithmetic import ArithmeticLimitError, ParseError, parse_arithmetic
from tests.cases import each

LEAVES = st.integers(0, 999).map(lambda number: (str(number), Fraction(number), (number,)))


def _join(left, sign, right):
    values = {"+": left[1] + right[1], "-": left[1] - right[1], "*": left[1] * right[1]}
    value = values[sign] if sign != "/" else left[1] / right[1] if right[1] else None
    return (f"({left[0]} {sign} {right[0]})", value, (*left[2], *right[2]))


TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner)
        .map(lambda parts: _join(*parts))
        .filter(lambda tree: tree[1] is not None)
    ),
    max_leaves=12,
)


@each(
    ("text", "value", "numbers"),
    [
        ("1 + 2 * 3", 7, (1, 2, 3)),
        ("(1+2)*3", 9, (1, 2, 3)),
        ("10 - 3 - 2", 5, (10, 3, 2)),
        ("8 / 4 / 2", 1, (8, 4, 2)),
        ("8 / (3 - 8 / 3)", 24, (8, 3, 8, 3)),
        ("6 × 7 ÷ 2 − 1", 20, (6, 7, 2, 1)),  # noqa: RUF001 - signs that people write
        (r"\left(1 + 2\right) \times \dfrac{6}{3} \cdot 5 \div 2", 15, (1, 2, 6, 3, 5, 2)),
        (r"\frac{1 + 2}{4}", Fraction(3, 4), (1, 2, 4)),
        ("007", 7, (7,)),
    ],
)
def test_values_and_numbers(text, value, numbers) -> None:
    found = parse_arithmetic(text)
    assert (found.value, found.numbers) == (value, numbers)


@each(
    "text",
    [
        "",
        " ",
        "1 2",
        "2(3)",
        "(2)(3)",
        "2 ** 3",
        "7 // 2",
        "2^3",
        "1.5",
        "1e3",
        "1,000",
        "x",
        "3!",
        "1 +",
        "(1",
        "1)",
        "()",
        "1 / 0",
        "1 / (2 - 2)",
        r"\frac{1}{0}",
        r"\frac12",
        r"\sqrt{4}",
        "{1}",
        "1 = 1",
        "0x10",
        "1_0",
        "٣",
        "²",
        "\ud800",
        "\0",
        "__import__('os')",
    ],
)
def test_what_is_no_arithmetic_is_refused(text) -> None:
    with pytest.raises(ParseError) as raised:
        parse_arithmetic(text)
    assert not isinstance(raised.value, ArithmeticLimitError)


def test_one_sign_in_front() -> None:
    assert parse_arithmetic("-3 * -(2 + 1)").value == 9
    with pytest.raises(ParseError):
        parse_arithmetic("3 - --2")


@pytest.mark.parametrize(
    "text",
    ["1+" * 5000 + "1", "(" * 60 + "1" + ")" * 60, "9" * 31, "+".join("1" * 201), r"\frac{" * 60 + "1"],
)
def test_limits(text) -> None:
    with pytest.raises(ArithmeticLimitError):
        parse_arithmetic(text)


def test_a_long_text_that_is_no_arithmetic_is_no_limit() -> None:
    with pytest.raises(ParseError) as raised:
        parse_arithmetic("I add the numbers. " * 500)
    assert not isinstance(raised.value, ArithmeticLimitError)


def test_up_to_the_limits() -> None:
    assert parse_arithmetic("(" * 50 + "1" + ")" * 50).value == 1
    assert len(parse_arithmetic("+".join("1" * 200)).numbers) == 200
    assert parse_arithmetic("9" * 30).value == 10**30 - 1


@given(TREES)
def test_agrees_with_exact_arithmetic(tree) -> None:
    found = parse_arithmetic(tree[0])
    assert (found.value, found.numbers) == (tree[1], tree[2])
    latex = tree[0].replace("*", r"\times ").replace("/", r"\div ").replace("(", r"\left(").replace(")", r"\right)")
    assert parse_arithmetic(latex) == found


@given(st.text() | st.text(alphabet="0123456789+-*/()= \\{}×÷−fractimesdiv.^"))  # noqa: RUF001 - as above
def test_any_text_gives_a_value_or_a_parse_error(text) -> None:
    with suppress(ParseError):
        assert parse_arithmetic(text).numbers


@pytest.mark.parametrize("piece", ["(", ")", "1", "+", "1+", "\\", " ", "\\frac{"])
def test_a_megabyte_is_refused_at_once(piece) -> None:
    began = time.process_time()
    with pytest.raises(ParseError):
        parse_arithmetic(piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 0.5


@pytest.mark.slow
def test_a_million_random_strings() -> None:
    rng = random.Random(5)
    pieces = [*"0123+-*/(){}\\ x=", "**", r"\frac{", r"\times"]
    parsed = 0
    for _ in range(1_000_000):
        try:
            parse_arithmetic("".join(rng.choices(pieces, k=rng.randrange(1, 14))))
            parsed += 1
        except ParseError:
            pass
    assert parsed > 10_000
