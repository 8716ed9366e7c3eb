from __future__ import annotations

import pytest

from swerve.grading.maths.equivalence import equivalent
from swerve.grading.maths.expressions import Call, Matrix
from swerve.grading.maths.parser import parse
from swerve.grading.maths.shapes import folded
from swerve.grading.policies import MathGrading


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}0&1\\1&0\end{pmatrix}", "[[2,1],[4,3]]"),
        (r"\begin{pmatrix}0&1\\1&0\end{pmatrix}\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[3,4],[1,2]]"),
        (r"\begin{pmatrix}1&1\\0&1\end{pmatrix}^5", "[[1,5],[0,1]]"),
        (r"\begin{pmatrix}1&2&3\\4&5&6\end{pmatrix}^T", "[[1,4],[2,5],[3,6]]"),
        (r"\begin{pmatrix}2&1\\1&1\end{pmatrix}^{-1}", "[[1,-1],[-1,2]]"),
        (r"\begin{pmatrix}a&b\end{pmatrix}\begin{pmatrix}c\\d\end{pmatrix}", "[[ac+bd]]"),
    ],
)
def test_operations(expression: str, value: str) -> None:
    assert equivalent(value, expression, MathGrading())
    assert not equivalent(value.replace("1", "7").replace("a", "x"), expression, MathGrading())


def test_large_products_are_not_written_out() -> None:
    row = "&".join(["x+1"] * 6)
    matrix = rf"\begin{{pmatrix}}{row}{(chr(92) * 2 + row) * 5}\end{{pmatrix}}"
    assert isinstance(folded(parse(f"{matrix}^8")), Call)
    assert isinstance(folded(parse(f"{matrix}^1")), Matrix)
