"""Whether two trees are the same answer, under the policies. `docs/graders.md` lists the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from swerve.grading.maths import expressions, shapes
from swerve.grading.maths.expressions import Based, Call, Group, Matrix, Node, Number, Relation, is_call
from swerve.grading.maths.limits import LIMITS, QUICK_LIMITS, LimitReached
from swerve.grading.maths.numeric import same_numerically, value_pairs, variables
from swerve.grading.maths.rationals import (
    ROUNDED_ANSWER,
    ROUNDED_GOLD,
    NeedsNumbers,
    NoValue,
    exact,
    is_endless,
    is_rounded,
    last_place,
)
from swerve.grading.maths.real_sets import is_described, same_real_sets
from swerve.grading.maths.vocabulary import is_known_unit, units_differ
from swerve.grading.policies import MathGrading


def same_answer(
    gold: Node, answer: Node, policy: MathGrading, *, numerically: bool = True, ordered: bool = False
) -> bool:
    """Return whether an answer is the gold answer.

    Args:
        gold: the gold answer.
        answer: the answer to judge.
        policy: what to overlook.
        numerically: whether values may be computed numerically; without, exact ones stay within `QUICK_LIMITS`.
        ordered: whether lists keep their order, whatever the policy says.

    Raises:
        NeedsNumbers: it takes numerical values, and they are not allowed.
        LimitReached: a value is too large to compute, or there are too many parts to compare.

    >>> from swerve.grading.maths.parser import parse
    >>> same_answer(parse("x = 1/2"), parse("0.5"), MathGrading())
    True
    """
    return _Comparison(policy, numerically, ordered or policy.order == "same").same(gold, answer)


class _Comparison:
    """The rules of one comparison. A rule says yes, no, or None where it does not apply."""

    def __init__(self, policy: MathGrading, numerically: bool, ordered: bool) -> None:
        self._policy, self._numerically, self._ordered = policy, numerically, ordered
        self._limits = LIMITS if numerically else QUICK_LIMITS
        self._num_compared = 0
        self._rules: tuple[Callable[[Node, Node], bool | None], ...] = (
            self._memberships,
            self._chosen_side,
            self._relations,
            self._relation_as_set,
            self._unions,
            self._modulos,
            self._matrices,
            self._collections,
            self._based,
            self._ratios,
        )

    def same(self, gold: Node, answer: Node) -> bool:
        """Apply the first rule that has a say; plain values are left."""
        self._num_compared += 1
        if self._num_compared > self._limits.comparisons:
            raise LimitReached(f"comparisons of parts > {self._limits.comparisons}")
        if is_call(gold, "either") or is_call(answer, "either"):
            plain = (shapes.unbracketed(gold), shapes.unbracketed(answer))
            return self.same(*plain) or self._same_alternatives(gold, answer)
        verdict = self._real_sets(gold, answer)
        if verdict is not None:
            return verdict
        gold, answer = shapes.unbracketed(gold), shapes.unbracketed(answer)
        for rule in self._rules:
            verdict = rule(gold, answer)
            if verdict is not None:
                return verdict
        return self._same_value(gold, answer)

    def _real_sets(self, gold: Node, answer: Node) -> bool | None:
        """Accept the same set of numbers in another description: `|x| < 1` is `(-1, 1)`."""
        if not is_described(gold) and not is_described(answer):
            return None
        same = same_real_sets(gold, answer, limits=self._limits, numerically=self._numerically)
        return same or (False if shapes.joins_differ(gold, answer) else None)

    def _modulos(self, gold: Node, answer: Node) -> bool | None:
        """Compare `3 (mod 7)` by both parts."""
        both = (gold, answer)
        modulos = [is_call(node, "modulo") for node in both]
        if not any(modulos):
            return None
        return all(modulos) and self._same_in_order(gold, answer)

    # Relations

    def _memberships(self, gold: Node, answer: Node) -> bool | None:
        """Compare `x in S` by its set."""
        in_gold, in_answer = shapes.member_and_set(gold), shapes.member_and_set(answer)
        if in_gold is None and in_answer is None:
            return None
        if in_gold is not None and in_answer is not None and in_gold[0] != in_answer[0]:
            return False
        return self.same(in_gold[1] if in_gold else gold, in_answer[1] if in_answer else answer)

    def _chosen_side(self, gold: Node, answer: Node) -> bool | None:
        """Compare `x = 5` with `5`, `2 = x` and `x = 5`: the value counts, and the name where both sides give one."""
        if not isinstance(gold, Relation) and not isinstance(answer, Relation):
            return None
        alone = not (isinstance(gold, Relation) and isinstance(answer, Relation))
        gold_name, gold_value = self._named_value(gold, alone=alone)
        answer_name, answer_value = self._named_value(answer, alone=alone)
        if isinstance(gold_value, Relation) or isinstance(answer_value, Relation):
            return None
        if gold_name is None or answer_name is None:
            return self.same(gold_value, answer_value)
        answer_name, answer_value = shapes.with_argument_of(gold_name, answer_name, answer_value)
        if shapes.is_same_name(gold_name, answer_name):
            return self.same(gold_value, answer_value)
        return None if variables(gold_value) and variables(answer_value) else False

    def _named_value(self, node: Node, *, alone: bool) -> tuple[Node | None, Node]:
        """Split `name = value`, `value = name`, `exact approx decimal`; a true chain of values is its value.

        Where the other side is no relation (`alone`), a chain may lead from formulas to a value.
        """
        if not isinstance(node, Relation):
            return None, node
        sides, operators = node.sides, node.operators

        # `exact approx decimal`: the decimal says the same as what stands before it.
        if operators[-1] == "approx":
            left = sides[0] if len(sides) == 2 else Relation(operators[:-1], sides[:-1])
            if len(sides) == 2 and shapes.is_name(sides[0]):
                return sides[0], sides[1]
            return self._named_value(left, alone=alone) if self._is_roughly(sides[-2], sides[-1]) else (None, node)
        if set(operators) != {"="}:
            return None, node

        # The name stands first from here on.
        if len(sides) == 2 and shapes.is_name(sides[1]) and not shapes.is_name(sides[0]):
            sides = (sides[1], sides[0])
        name, values = (sides[0], sides[1:]) if shapes.is_name(sides[0]) and sides[0] != sides[1] else (None, sides)

        # Steps that still have variables lead to the value and need not be equal to it.
        if alone and len(sides) > 2 and not variables(values[-1]):
            values = tuple(value for value in values if not variables(value))
        elif name is None and not alone and any(variables(value) for value in values):
            return None, node

        # All values of a chain must be the same; their units are looked at in the last one only.
        plain = [expressions.without_units(value) for value in values]
        if not all(self.same(plain[-1], value) for value in plain[:-1]):
            return None, node
        return name, values[-1] if shapes.without_unit(values[-1])[1] else values[0]

    def _relations(self, gold: Node, answer: Node) -> bool | None:
        if not isinstance(gold, Relation) or not isinstance(answer, Relation):
            return None
        if len(gold.operators) == len(answer.operators) == 1:
            return self._same_single_relation(gold, answer)
        return self._same_chain(gold, answer) or self._same_chain(gold, shapes.mirrored(answer))

    def _same_chain(self, gold: Relation, answer: Relation) -> bool:
        return gold.operators == answer.operators and self._same_in_order(gold, answer)

    def _same_single_relation(self, gold: Relation, answer: Relation) -> bool:
        """Compare `left - right` of both: their ratio must be constant, its sign that of the operators' directions."""
        names = variables(gold)
        if gold.operators[0] not in shapes.MIRRORED or answer.operators[0] not in shapes.MIRRORED:
            return self._same_chain(gold, answer)
        if not names or names != variables(answer):
            return self._same_chain(gold, answer) or self._same_chain(gold, shapes.mirrored(answer))
        self._require_numbers()
        try:
            differences = shapes.difference(gold), shapes.difference(answer)
            ratio = _constant_ratio(*differences, names, self._policy.log != "ten")
        except NoValue:
            return self._same_chain(gold, answer) or self._same_chain(gold, shapes.mirrored(answer))
        if ratio is None:
            return False
        operator = gold.operators[0]
        expected = operator if ratio > 0 else shapes.MIRRORED[operator]
        return answer.operators[0] == expected

    def _relation_as_set(self, gold: Node, answer: Node) -> bool | None:
        """Compare `x >= 2` with `[2, infinity)`, and `x < 1 or x > 2` with a union."""
        if shapes.has_relation(gold) == shapes.has_relation(answer):
            return None
        first, second = shapes.as_set(gold), shapes.as_set(answer)
        if first is None or second is None:
            return False if isinstance(gold, Relation) or isinstance(answer, Relation) else None
        return (first, second) != (gold, answer) and self.same(first, second)

    # Sets, lists, matrices

    def _unions(self, gold: Node, answer: Node) -> bool | None:
        expected, given = shapes.pieces(gold), shapes.pieces(answer)
        if len(expected) == len(given) == 1:
            return None
        if not is_call(gold, "union") and not is_call(answer, "union"):
            return None
        return not shapes.has_several_variables((*expected, *given)) and self._same_unordered(expected, given)

    def _matrices(self, gold: Node, answer: Node) -> bool | None:
        if any(isinstance(node, Call) and shapes.has_matrix(node) for node in (gold, answer)):
            self._require_numbers()
        first, second = shapes.folded(gold), shapes.folded(answer)
        if shapes.entry_of_single(first) != first or shapes.entry_of_single(second) != second:
            return self.same(shapes.entry_of_single(first), shapes.entry_of_single(second))
        if isinstance(first, Matrix) or isinstance(second, Matrix):
            gold, answer = shapes.as_matrix(first) or first, shapes.as_matrix(second) or second
        if isinstance(gold, Matrix) and isinstance(answer, Matrix):
            return shapes.shape(gold) == shapes.shape(answer) and self._same_in_order(gold, answer)
        for matrix, other in ((gold, answer), (answer, gold)):
            if isinstance(matrix, Matrix):
                is_vector = len(matrix.rows) == 1 or len(matrix.rows[0]) == 1
                is_tuple = isinstance(other, Group) and other.brackets in ("()", "[]", "")
                return is_vector and is_tuple and self._same_in_order(gold, answer)
        return None

    def _collections(self, gold: Node, answer: Node) -> bool | None:
        gold, answer = shapes.with_signs_expanded(gold), shapes.with_signs_expanded(answer)
        if not isinstance(gold, Group) and not isinstance(answer, Group):
            return None
        if not isinstance(gold, Group) or not isinstance(answer, Group):
            return self._same_single(gold, answer)
        if shapes.DOTS in (*gold.items, *answer.items) and {gold.brackets, answer.brackets} <= {"", "{}"}:
            return self._same_in_order(gold, answer)
        if {"{}"} & {gold.brackets, answer.brackets}:
            return self._same_sets(gold, answer)
        if not gold.brackets and not answer.brackets and all(map(shapes.is_bracketed, (*gold.items, *answer.items))):
            return self._same_sets(gold, answer)
        if len(gold.items) != len(answer.items):
            return False
        if "" not in (gold.brackets, answer.brackets):
            plain = len(gold.items) > 2 and {gold.brackets, answer.brackets} <= {"()", "[]"}
            return (plain or gold.brackets == answer.brackets) and self._same_in_order(gold, answer)
        gold, answer = shapes.by_coordinate(gold), shapes.by_coordinate(answer)
        if len(gold.brackets) == 2 or self._ordered or shapes.names_differ(gold, answer):
            return self._same_in_order(gold, answer)
        return self._same_unordered(gold.items, answer.items)

    def _same_single(self, gold: Node, answer: Node) -> bool:
        """Compare a group with a single answer: a set of one element is as good as the element."""
        group, other = (gold, answer) if isinstance(gold, Group) else (answer, gold)
        if not isinstance(group, Group) or group.brackets != "{}" or len(group.items) != 1:
            return False
        return self.same(group.items[0], other) if group is gold else self.same(other, group.items[0])

    def _same_sets(self, gold: Group, answer: Group) -> bool:
        """Compare with a set: the other side is a set or a list; what is there twice counts once."""
        if not {gold.brackets, answer.brackets} <= {"{}", ""}:
            return False
        are_sets = [any(isinstance(item, Group) for item in group.items) for group in (gold, answer)]
        return are_sets[0] == are_sets[1] and self._same_elements(gold.items, answer.items)

    def _same_in_order(self, gold: Node, answer: Node) -> bool:
        """Return whether two trees have the same parts, one after the other."""
        parts, given = expressions.children(gold), expressions.children(answer)
        same = self._same_named(parts, given)
        return len(parts) == len(given) and all(map(same, parts, given))

    def _same_named(self, gold: Sequence[Node], answer: Sequence[Node]) -> Callable[[Node, Node], bool]:
        """Return how items of two lists are compared: with a unit that both lists name goes the same value."""
        units = [{shapes.without_unit(item)[1] for item in items} for items in (gold, answer)]
        shared = (units[0] & units[1]) - {None}

        def same(item: Node, other: Node) -> bool:
            unit, other_unit = shapes.without_unit(item)[1], shapes.without_unit(other)[1]
            return (unit == other_unit or not shared & {unit, other_unit}) and self.same(item, other)

        return same if shared else self.same

    def _same_unordered(self, gold: Sequence[Node], answer: Sequence[Node]) -> bool:
        """Match every gold item with an answer of its own, whatever the order."""
        left = list(answer)
        if len(gold) != len(left):
            return False
        same = self._same_named(gold, answer)
        for item in gold:
            position = next((index for index, other in enumerate(left) if same(item, other)), None)
            if position is None:
                return False
            del left[position]
        return True

    def _same_alternatives(self, gold: Node, answer: Node) -> bool:
        """Compare a list with `or`, in which equal values count once, with fewer values."""
        expected, given = shapes.pieces(shapes.unbracketed(gold)), shapes.pieces(shapes.unbracketed(answer))
        longer = gold if len(expected) > len(given) else answer
        if len(expected) == len(given) or not is_call(longer, "either"):
            return False
        return self._same_elements(expected, given)

    def _same_elements(self, gold: Sequence[Node], answer: Sequence[Node]) -> bool:
        """Return whether each item of one side is there on the other, however often."""
        return all(any(self.same(item, other) for other in answer) for item in gold) and all(
            any(self.same(item, other) for item in gold) for other in answer
        )

    def _based(self, gold: Node, answer: Node) -> bool | None:
        """Compare digits and base; the base that the gold answer states may be left out."""
        if isinstance(gold, Based) or isinstance(answer, Based):
            if isinstance(gold, Based) and isinstance(answer, Number):
                return gold.digits == str(answer.value)
            return gold == answer
        return None

    def _ratios(self, gold: Node, answer: Node) -> bool | None:
        """Compare `7:32`: part by part, so that a time is no other time; with a number, the quotient of two parts."""
        first, second = (node.args if is_call(node, "ratio") else None for node in (gold, answer))
        if first is None and second is None:
            return None
        if first is not None and second is not None:
            return len(first) == len(second) and all(map(self.same, first, second))
        parts = first or second or ()
        if len(parts) != 2 or all(isinstance(part, Number) and part.value == 0 for part in parts):
            return False
        quotient = Call("/", parts)
        return self.same(quotient, answer) if first is not None else self.same(gold, quotient)

    # Values

    def _same_value(self, gold: Node, answer: Node) -> bool:
        gold, gold_unit = shapes.without_unit(gold)
        answer, answer_unit = shapes.without_unit(answer)
        differ = gold_unit and answer_unit and units_differ(gold_unit, answer_unit)
        if gold_unit != answer_unit and (differ or self._policy.units == "same"):
            return False
        gold_is_percent, answer_is_percent = is_call(gold, "percent"), is_call(answer, "percent")
        if gold_is_percent == answer_is_percent:
            return self._same_number(gold, answer) or self._same_with_letter(gold, gold_unit, answer, answer_unit)
        if self._same_number(gold, answer) and not (gold_unit or answer_unit):
            return True
        if self._policy.percent == "strict" or any(unit and is_known_unit(unit) for unit in (gold_unit, answer_unit)):
            return False
        return self._same_number(shapes.without_percent(gold), shapes.without_percent(answer))

    def _same_with_letter(self, gold: Node, gold_unit: str | None, answer: Node, answer_unit: str | None) -> bool:
        r"""Compare `10 m/s`, which is a product, with the value of `10\text{ m/s}`."""
        if (gold_unit is None) == (answer_unit is None):
            return False
        value, unit, other = (gold, gold_unit, answer) if gold_unit else (answer, answer_unit, gold)
        product = shapes.in_letters(unit or "", variables(other))
        return product is not None and self._same_number(Call("*", (value, product)), other)

    def _same_number(self, gold: Node, answer: Node) -> bool:
        first, second = self._exact_or_none(gold), self._exact_or_none(answer)
        if first is not None and second is not None:
            if first == second or abs(second - first) <= Fraction(self._policy.rel_tolerance) * abs(first):
                return True
            return self._rounds_to(gold, answer, first, second)
        self._require_numbers()
        try:
            return same_numerically(gold, answer, self._policy.log) or self._near(gold, answer)
        except NoValue:
            return self._same_parts(gold, answer)

    def _rounds_to(self, gold: Node, answer: Node, first: Fraction, second: Fraction) -> bool:
        """Return whether one side is a decimal with enough digits that the other, an endless one, rounds to."""
        if self._policy.rounding == "exact":
            return False
        places = last_place(gold, ROUNDED_GOLD), last_place(answer, ROUNDED_ANSWER)
        decimal, endless = (first, second) if places[0] is not None else (second, first)
        place = places[0] or places[1]
        if place is None or not is_endless(endless):
            return False
        return bool(is_rounded(decimal, endless, place))

    def _is_roughly(self, value: Node, approximation: Node) -> bool:
        """Return whether `value approx approximation` is no more than a tenth off; else the two are two answers."""
        if expressions.symbols(value) or expressions.symbols(approximation):
            return False
        try:
            first, second = exact(value, self._limits), exact(approximation, self._limits)
        except NoValue:
            self._require_numbers()
            try:
                first, second, _ = next(value_pairs(value, approximation, ()))
            except NoValue:
                return False
        return first is not None and second is not None and bool(abs(second - first) * 10 <= abs(first))

    def _near(self, gold: Node, answer: Node) -> bool:
        """Compare a decimal with the number that it is the rounding of, or two numbers under the policy's tolerance."""
        if expressions.symbols(gold) or expressions.symbols(answer):
            return False
        first, second, _ = next(value_pairs(gold, answer, (), self._policy.log != "ten"))
        if first is None or second is None:
            return False
        if abs(second - first) <= self._policy.rel_tolerance * abs(first):
            return True
        if self._policy.rounding == "exact":
            return False
        places = last_place(gold, ROUNDED_GOLD), last_place(answer, ROUNDED_ANSWER)
        place = places[0] or places[1]
        if place is None or all(places):
            return False
        decimal, endless = (first, second) if places[0] else (second, first)
        if endless.context.im(endless) != 0 or decimal.context.im(decimal) != 0:
            return False
        context = first.context
        size = context.mpf(place.numerator) / place.denominator
        return bool(is_rounded(context.re(decimal), context.re(endless), size))

    def _same_parts(self, gold: Node, answer: Node) -> bool:
        """Compare what has no value (infinity, sets in products): the same operator with the same parts."""
        if gold == answer:
            return True
        if not isinstance(gold, Call) or not isinstance(answer, Call) or gold.name != answer.name:
            return False
        return self._same_in_order(gold, answer)

    def _exact_or_none(self, node: Node) -> Fraction | None:
        try:
            return exact(node, self._limits)
        except NoValue:
            return None

    def _require_numbers(self) -> None:
        if not self._numerically:
            raise NeedsNumbers


def _constant_ratio(gold: Node, answer: Node, names: Sequence[str], natural_log: bool) -> float | None:
    """Return answer / gold where it is the same real number, not zero, at every point with values."""
    pairs = list(value_pairs(gold, answer, names, natural_log))
    digits = min((digits for _, _, digits in pairs), default=0)
    ratios = [second / first for first, second, _ in pairs if first is not None and second is not None and first]
    if len(ratios) < 2 or not names:
        return None
    first = ratios[0]
    context = first.context
    tolerance = abs(first) * context.mpf(10) ** -(digits // 2)
    if not first or context.im(first) != 0 or any(abs(ratio - first) > tolerance for ratio in ratios):
        return None
    return 1.0 if context.re(first) > 0 else -1.0
