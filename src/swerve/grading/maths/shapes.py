"""Questions about the shape of trees, and the same answer in another shape; products of matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeGuard

from swerve.grading.maths import expressions
from swerve.grading.maths.expressions import Call, Group, Matrix, Node, Number, Quantity, Relation, Symbol, is_call
from swerve.grading.maths.vocabulary import LETTER_UNITS

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
        (a, b), (c, d) = matrix.rows
        determinant = Call("det", (matrix,))
        inverse = ((d, Call("neg", (b,))), (Call("neg", (c,)), a))
        return Matrix(tuple(tuple(Call("/", (entry, determinant)) for entry in row) for row in inverse))
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
    nodes = expressions.size_of(first) * len(second.rows[0]) + expressions.size_of(second) * len(first.rows)
    return small and len(first.rows[0]) == len(second.rows) and nodes <= _MOST_NODES


def _product(first: Matrix, second: Matrix) -> Matrix:
    columns = list(zip(*second.rows, strict=True))
    rows = []
    for row in first.rows:
        products = [tuple(Call("*", pair) for pair in zip(row, column, strict=True)) for column in columns]
        rows.append(tuple(Call("+", terms) for terms in products))
    return Matrix(tuple(rows))


DOTS = Symbol("dots")
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
_INFINITY = Symbol("infinity")
_COORDINATES: tuple[Node, ...] = (Symbol("x"), Symbol("y"), Symbol("z"))
_REALS = Group("()", (Call("neg", (_INFINITY,)), _INFINITY))


def mirrored(relation: Relation) -> Relation:
    """Return a chain of relations read from right to left."""
    operators = tuple(MIRRORED.get(operator, operator) for operator in reversed(relation.operators))
    return Relation(operators, relation.sides[::-1])


def difference(relation: Relation) -> Node:
    """Return left minus right of a relation."""
    left, right = relation.sides
    return Call("+", (left, Call("neg", (right,))))


def has_relation(node: Node) -> bool:
    """Return whether a tree is a relation or holds one among its items."""
    return isinstance(node, Relation) or (isinstance(node, Group) and any(map(has_relation, node.items)))


def as_set(node: Node) -> Node | None:
    """Return inequalities in one variable as an interval or a union; a set as itself."""
    if isinstance(node, Relation):
        return _interval(node)
    if isinstance(node, Group) and not node.brackets and has_relation(node):
        if has_several_variables(node.items):
            return None
        sets = [as_set(item) for item in node.items]
        return None if None in sets else Call("union", tuple(piece for piece in sets if piece is not None))
    return node if is_call(node, "union") or (isinstance(node, Group) and len(node.brackets) == 2) else None


def has_several_variables(nodes: Iterable[Node]) -> bool:
    """Return whether the inequalities among trees bound different variables, as `x < 1` and `1 < y < 2` do."""
    sides = [node.sides for node in nodes if isinstance(node, Relation)]
    return len({side[1] if len(side) == 3 or not is_name(side[0]) else side[0] for side in sides}) > 1


def _interval(relation: Relation) -> Node | None:
    sides, operators = relation.sides, relation.operators
    if operators[0] in (">", ">="):
        relation = mirrored(relation)
        sides, operators = relation.sides, relation.operators
    if any(operator not in ("<", "<=") for operator in operators):
        return None
    if len(sides) == 2 and is_name(sides[0]):
        return Group("(" + (")" if operators[0] == "<" else "]"), (Call("neg", (_INFINITY,)), sides[1]))
    if len(sides) == 2 and is_name(sides[1]):
        return Group(("(" if operators[0] == "<" else "[") + ")", (sides[0], _INFINITY))
    if len(sides) == 3 and is_name(sides[1]):
        brackets = ("(" if operators[0] == "<" else "[") + (")" if operators[1] == "<" else "]")
        return Group(brackets, (sides[0], sides[2]))
    return None


def pieces(node: Node) -> tuple[Node, ...]:
    """Return the pieces of a union, or the items of a list without brackets, or the tree itself."""
    if is_call(node, "union") or (isinstance(node, Group) and not node.brackets):
        return expressions.children(node)
    return (node,)


def with_signs_expanded(node: Node) -> Node:
    r"""Return a tree with \pm as the list of its two readings; a list or set takes them in as items of its own."""
    if isinstance(node, Group) and node.brackets in ("", "{}"):
        expanded = [with_signs_expanded(item) for item in node.items]
        items = [
            part
            for item, new in zip(node.items, expanded, strict=True)
            for part in (expressions.children(new) if new is not item and isinstance(new, Group) else (item,))
        ]
        return Group(node.brackets, tuple(items)) if len(items) != len(node.items) else node
    if not _has_sign(node) or isinstance(node, Relation):
        return node
    return Group("", (_with_sign(node, "pm"), _with_sign(node, "mp")))


def is_bracketed(node: Node) -> bool:
    """Return whether a tree is a group in brackets."""
    return isinstance(node, Group) and node.brackets != ""


def joins_differ(gold: Node, answer: Node) -> bool:
    """Return whether only one of two lists of inequalities has `or`, or one has `and` and the other is a union."""
    pair = (gold, answer)
    if any(is_call(node, "union") for node in pair):
        return any(is_call(node, "and") for node in pair)
    lists = all(is_call(node, "or", "and") or (isinstance(node, Group) and not node.brackets) for node in pair)
    return lists and is_call(gold, "or") != is_call(answer, "or")


def has_matrix(node: Node) -> bool:
    """Return whether a tree is a matrix or holds one."""
    return any(isinstance(part, Matrix) for part in expressions.walk(node))


def folded(node: Node) -> Node:
    """Return a sum, product or power of matrices, or a matrix times or over numbers, as one matrix."""
    if is_call(node, "^"):
        base, exponent = folded(node.args[0]), node.args[1]
        return power_of(base, exponent) if isinstance(base, Matrix) else node
    if not isinstance(node, Call) or node.name not in ("+", "*", "/", "neg", "group"):
        return node
    args = list(map(folded, node.args))

    # Neighbouring matrices are multiplied first.
    if node.name == "*":
        args = product_of_neighbours(args)
        if len(args) == 1:
            return args[0]
    matrices = [arg for arg in args if isinstance(arg, Matrix)]

    # Matrices of one shape are added entry by entry.
    if node.name == "+" and len(matrices) == len(args) and len({shape(matrix) for matrix in matrices}) == 1:
        rows = zip(*(matrix.rows for matrix in matrices), strict=True)
        return Matrix(tuple(tuple(Call("+", entries) for entries in zip(*row, strict=True)) for row in rows))
    if node.name == "+" or len(matrices) != 1:
        return node

    # The only matrix takes the numbers beside it into its entries.
    rest = next(index for index, arg in enumerate(args) if isinstance(arg, Matrix))
    if node.name == "/" and rest == 1:
        return node
    before, after, name = args[:rest], args[rest + 1 :], node.name
    return expressions.with_parts(matrices[0], lambda entry: Call(name, (*before, entry, *after)))


def entry_of_single(node: Node) -> Node:
    """Return the entry of a matrix with one entry, such as a row times a column."""
    return node.rows[0][0] if isinstance(node, Matrix) and shape(node) == (1,) else node


def as_matrix(node: Node) -> Matrix | None:
    """Return `[[1, 2], [3, 4]]` as a matrix."""
    if not isinstance(node, Group) or node.brackets != "[]":
        return None
    rows = [item.items for item in node.items if isinstance(item, Group) and item.brackets == "[]"]
    return Matrix(tuple(rows)) if len(rows) == len(node.items) and len({len(row) for row in rows}) == 1 else None


def shape(matrix: Matrix) -> tuple[int, ...]:
    """Return the lengths of a matrix's rows."""
    return tuple(len(row) for row in matrix.rows)


def _has_sign(node: Node) -> bool:
    parts = () if isinstance(node, Relation) else expressions.children(node)
    return is_call(node, "pm", "mp") or any(map(_has_sign, parts))


def _with_sign(node: Node, plus: str) -> Node:
    match node:
        case Call(name="pm" | "mp", args=(inner,)):
            inner = _with_sign(inner, plus)
            return inner if node.name == plus else Call("neg", (inner,))
        case Relation() | Matrix():
            return node
        case _:
            return expressions.with_parts(node, lambda part: _with_sign(part, plus))


def is_name(node: Node) -> bool:
    """Return whether an answer can be called so: `x`, `f(2)`, `AB/CD`, `|z|`, `(p, q)`, but not `2x` or `a+b`."""
    if isinstance(node, Symbol):
        return node.name not in ("infinity", "emptyset", "dots", "pi", "e", "i")
    if isinstance(node, Group):
        return node.brackets == "()" and all(map(is_name, node.items))
    if not isinstance(node, Call):
        return False
    if node.name.startswith("function ") or is_unevaluated(node):
        return True
    if node.name == "abs" and node.args[0] in _COORDINATES[:2]:
        return False  # `|x| = 5` has two solutions
    allowed = node.name in ("*", "/", "ratio", "abs", "group", "degrees", "sin", "cos", "tan")
    return allowed and all(map(is_name, node.args))


def is_unevaluated(node: Node) -> bool:
    """Return whether a tree holds an operation that is not carried out, such as an integral."""
    return any(isinstance(part, Call) and part.name.startswith("function \\") for part in expressions.walk(node))


def is_same_name(gold: Node, answer: Node) -> bool:
    """Return whether two answers are called the same; `y` may stand for `f(x)`."""
    functions = [isinstance(unbracketed(node), Call) and bool(expressions.symbols(node)) for node in (gold, answer)]
    return gold == answer or (Symbol("y") in (gold, answer) and any(functions))


def with_argument_of(gold_name: Node, name: Node, value: Node) -> tuple[Node, Node]:
    """Return the name and value of a function, its argument called as in the gold answer: `f(t) = t` for `f(x)`."""
    if isinstance(name, Call) and is_call(gold_name, name.name) and name.name.startswith("function "):
        wanted, argument = (unbracketed(call.args[0]) for call in (gold_name, name))
        if (
            isinstance(wanted, Symbol)
            and isinstance(argument, Symbol)
            and wanted.name not in expressions.symbols(value)
        ):
            return gold_name, expressions.substituted(value, argument.name, wanted)
    return name, value


def member_and_set(node: Node) -> tuple[Node, ...] | None:
    """Return the two sides of `x in S`."""
    return node.sides if isinstance(node, Relation) and node.operators == ("in",) else None


def unbracketed(node: Node) -> Node:
    """Return a tree without the brackets around it; the real numbers as an interval."""
    while is_call(node, "group"):
        node = node.args[0]
    if is_call(node, "or", "and", "either"):
        return Group("", node.args)
    return _REALS if node == Symbol("mathbb R") else node


def by_coordinate(group: Group) -> Group:
    """Return `y = 1, x = 2` in the order of the coordinates x, y and z; other groups as they are."""
    places = [_COORDINATES.index(item.sides[0]) for item in group.items if _is_coordinate(item)]
    if group.brackets or len(places) != len(group.items):
        return group
    return Group("", tuple(item for _, item in sorted(zip(places, group.items, strict=True), key=lambda pair: pair[0])))


def _is_coordinate(node: Node) -> TypeGuard[Relation]:
    return isinstance(node, Relation) and node.sides[0] in _COORDINATES


def names_differ(gold: Group, answer: Group) -> bool:
    """Return whether only one of two lists names its items, by different names: then the order says which is which."""
    named = [[item.sides[0] for item in group.items if isinstance(item, Relation)] for group in (gold, answer)]
    return any(len(set(names)) > 1 and not others for names, others in (named, named[::-1]))


def without_unit(node: Node) -> tuple[Node, str | None]:
    """Return a value and its unit, if it has one; degrees are a unit."""
    if isinstance(node, Quantity):
        return unbracketed(node.value), node.unit
    if is_call(node, "degrees"):
        return unbracketed(node.args[0]), "degree"
    return node, None


def without_percent(node: Node) -> Node:
    """Return a percentage without its sign."""
    return node.args[0] if is_call(node, "percent") else node


def in_letters(unit: str, letters: Sequence[str]) -> Node | None:
    """Return a unit as the product of its letters, where they are these: `meter/second` is `m/s`.

    >>> in_letters("meter/second", ["m", "s"])
    Call(name='/', args=(Symbol(name='m'), Symbol(name='s')))
    """
    names = {LETTER_UNITS[letter]: letter for letter in letters if letter in LETTER_UNITS}
    parts: list[Node] = []
    for factor in unit.split("/"):
        name, _, power = factor.partition("^")
        if name not in names or (power and not power.isdigit()):
            return None
        symbol = Symbol(names[name])
        parts.append(Call("^", (symbol, Number(Fraction(int(power))))) if power else symbol)
    return parts[0] if len(parts) == 1 else Call("/", (parts[0], parts[1])) if len(parts) == 2 else None
