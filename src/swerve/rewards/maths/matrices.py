"""Products, powers, transposes and inverses of matrices, entry by entry, without computing a value."""

from __future__ import annotations

from collections.abc import Sequence

from swerve.rewards.maths.building import size_of
from swerve.rewards.maths.expressions import Call, Matrix, Node, Number, Symbol

__all__ = ["power_of", "product_of_neighbours"]

_MOST_POWER = 8
_MOST_SIZE = 6
_MOST_NODES = 2000
"""Of a product written out: each factor multiplies the size of the trees."""


def product_of_neighbours(factors: Sequence[Node]) -> list[Node]:
    """Return factors with matrices side by side multiplied, where their shapes allow it and they are small."""
    result: list[Node] = []
    for factor in factors:
        last = result[-1] if result else None
        if isinstance(last, Matrix) and isinstance(factor, Matrix) and _can_multiply(last, factor):
            result[-1] = _product(last, factor)
        else:
            result.append(factor)
    return result


def power_of(matrix: Matrix, exponent: Node) -> Node:
    """Return a small whole power, the transpose (`T`), or the inverse of a matrix with two rows; else the power."""
    unchanged = Call("^", (matrix, exponent))
    if exponent in (Symbol("T"), Symbol("top")):
        return Matrix(tuple(zip(*matrix.rows, strict=True)))
    if not isinstance(exponent, Number) or len(matrix.rows) != len(matrix.rows[0]) or len(matrix.rows) > _MOST_SIZE:
        return unchanged
    if exponent.value == -1 and len(matrix.rows) == 2:
        return _inverse(matrix)
    if exponent.value.denominator != 1 or not 1 <= exponent.value <= _MOST_POWER:
        return unchanged
    result = matrix
    for _ in range(int(exponent.value) - 1):
        if not _can_multiply(result, matrix):
            return unchanged
        result = _product(result, matrix)
    return result


def _can_multiply(first: Matrix, second: Matrix) -> bool:
    small = max(len(first.rows), len(second.rows), len(second.rows[0])) <= _MOST_SIZE
    nodes = size_of(first) * len(second.rows[0]) + size_of(second) * len(first.rows)
    return small and len(first.rows[0]) == len(second.rows) and nodes <= _MOST_NODES


def _product(first: Matrix, second: Matrix) -> Matrix:
    columns = list(zip(*second.rows, strict=True))
    return Matrix(tuple(tuple(_dot(row, column) for column in columns) for row in first.rows))


def _dot(row: Sequence[Node], column: Sequence[Node]) -> Node:
    return Call("+", tuple(Call("*", pair) for pair in zip(row, column, strict=True)))


def _inverse(matrix: Matrix) -> Matrix:
    (a, b), (c, d) = matrix.rows
    determinant = Call("det", (matrix,))
    rows = ((d, Call("neg", (b,))), (Call("neg", (c,)), a))
    return Matrix(tuple(tuple(Call("/", (entry, determinant)) for entry in row) for row in rows))
