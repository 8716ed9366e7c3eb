from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.arithmetic import ArithmeticLimitError, ParseError, read_expression
from tests.cases import each

sympy = pytest.importorskip("sympy")
X, C = sympy.symbols("x C")

LEAVES = st.sampled_from([("x", X), ("C", C), ("2", sympy.Integer(2)), ("0.5", sympy.Rational(1, 2)), ("pi", sympy.pi)])
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, inner).map(lambda pair: (f"({pair[0][0]} + {pair[1][0]})", pair[0][1] + pair[1][1]))
        | st.tuples(inner, inner).map(lambda pair: (f"({pair[0][0]} - {pair[1][0]})", pair[0][1] - pair[1][1]))
        | st.tuples(inner, inner).map(lambda pair: (f"{pair[0][0]}*{pair[1][0]}", pair[0][1] * pair[1][1]))
        | inner.map(lambda tree: (f"sin({tree[0]})", sympy.sin(tree[1])))
        | inner.map(lambda tree: (f"exp(-({tree[0]}))", sympy.exp(-tree[1])))
        | inner.map(lambda tree: (f"({tree[0]})**3", tree[1] ** 3))
        | inner.map(lambda tree: (f"({tree[0]})/7", tree[1] / 7))
    ),
    max_leaves=6,
)


@each(
    ("text", "value"),
    [
        ("2*x**3/6 + C", X**3 / 3 + C),
        ("-x**2", -(X**2)),
        ("2**-1", sympy.Rational(1, 2)),
        ("2**3**2", sympy.Integer(512)),
        ("x**(3/2)", X ** sympy.Rational(3, 2)),
        ("E**(x) + ln(x) + sqrt(x)", sympy.exp(X) + sympy.log(X) + sympy.sqrt(X)),
        ("1.25*x", sympy.Rational(5, 4) * X),
        ("--x - -1", X + 1),
        ("sin(x)**2", sympy.sin(X) ** 2),
        ("k", sympy.Symbol("k")),
    ],
)
def test_values(text, value) -> None:
    assert read_expression(text) == value


def test_names_of_several_letters_must_be_variables() -> None:
    assert read_expression("alpha*2", ("alpha",)) == 2 * sympy.Symbol("alpha")
    with pytest.raises(ParseError, match="unknown name 'alpha'"):
        read_expression("alpha*2")


@each(
    "text",
    [
        "",
        "x^2",
        "2x",
        "x y",
        "(x",
        "x)",
        "sin x",
        "sin()",
        "sin",
        "f(x)",
        "Integral(x, x)",
        "x.diff",
        "x[0]",
        "lambda: 1",
        "1 or 2",
        "x == x",
        "1/0",
        "x/(2-2)",
        "0**-1",
        "1e5",
        "'x'",
        "__import__('os').system('true')",
        "\ud800",
        "٣",
        "I add the terms. " * 500,
    ],
)
def test_what_is_no_expression_is_refused(text) -> None:
    with pytest.raises(ParseError) as raised:
        read_expression(text)
    assert not isinstance(raised.value, ArithmeticLimitError)


@pytest.mark.parametrize(
    "text", ["9**9**9", "2**101", "x**1000", "(" * 60 + "x", "-" * 60 + "x", "9" * 41, "x+" * 1500, "(9**100)**100"]
)
def test_limits(text) -> None:
    with pytest.raises(ArithmeticLimitError):
        read_expression(text)


@given(TREES)
def test_agrees_with_sympy(tree) -> None:
    assert read_expression(tree[0]) == tree[1]


@given(st.text() | st.text(alphabet="xC019.+-*/() sincoexpE_,'[]"))
def test_any_text_gives_an_expression_or_a_parse_error(text) -> None:
    with suppress(ParseError):
        assert read_expression(text).free_symbols is not None


@pytest.mark.parametrize("piece", ["(", "9", "-", "x*", "**", "sin(", "a"])
def test_a_megabyte_is_refused_at_once(piece) -> None:
    began = time.process_time()
    with pytest.raises(ParseError):
        read_expression(piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 0.5
