from __future__ import annotations

import pytest

from swerve.grading.maths.lexer import normalise, plain_words
from tests.cases import each


@each(
    ("text", "expected"),
    [
        ("−42", "-42"),  # noqa: RUF001
        ("½", r"\frac{1}{2}"),
        ("４２", "42"),  # noqa: RUF001
        ("x²", "x^{2}"),
        ("x⁻¹²", "x^{-12}"),
        ("v₀", "v_{0}"),
        ("2×3", r"2\cdot 3"),  # noqa: RUF001
        ("√2", r"\sqrt 2"),
        ("2π", r"2\pi"),
        ("74°", r"74^\circ"),
        (r"\left( 3, 4 \right)", "( 3, 4 )"),
        (r"$$ 5 $$", "5"),
        (r"\( 5 \)", "5"),
        (r"\\frac{1}{2}", r"\frac{1}{2}"),
        ("5.", "5"),
        (r"5\;", "5"),
        (r"\$5", r"5 \text{ dollars}"),
        ("**5**", "5"),
        ("4\u200b2", "42"),
        (r"\boxed{5}", "{5}"),
        (r"1\,234", r"1\,234"),
        (r"\begin{pmatrix}1\\x\end{pmatrix}", r"\begin{pmatrix}1\\x\end{pmatrix}"),
    ],
)
def test_one_spelling(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize("sign", ["\ud800", "\x00", "\u202e", "@", "х"])  # noqa: RUF001
def test_unknown_signs_stay(sign: str) -> None:
    assert sign in normalise(f"4{sign}2")


def test_plain_words() -> None:
    assert plain_words(r"\text{The  Midpoints!}") == "midpoints"
