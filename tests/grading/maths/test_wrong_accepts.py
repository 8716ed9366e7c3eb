"""Answers that differ from the gold answer in a way that is easy to overlook."""

import pytest

from swerve.grading.maths.equivalence import equivalent
from swerve.grading.maths.limits import LimitReached
from swerve.grading.policies import MathGrading


def same(gold: str, answer: str) -> bool:
    return equivalent(gold, answer, MathGrading())


@pytest.mark.parametrize(
    "answer",
    ["(C) (D)", r"\text{(C) or (D)}", r"\text{(C)}, \text{(D)}", "C. or D.", "C: not D", "C) D) E)", "(C) and D"],
)
def test_a_list_of_choices_is_not_the_first_of_them(answer: str) -> None:
    assert not same("C", answer)


@pytest.mark.parametrize("answer", ["(C) 12", "C.", "C. A dog and a cat", r"\textbf{(C)}\ 12", "C: both of them"])
def test_text_after_a_choice_is_left_out(answer: str) -> None:
    assert same("C", answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\text{A,D}", r"\text{AD}"),
        (r"\text{x^2 rule}", r"\text{x2 rule}"),
        (r"\text{5! ways}", r"\text{5 ways}"),
    ],
)
def test_words_are_not_glued_together_and_operations_are_no_punctuation(gold: str, answer: str) -> None:
    assert not same(gold, answer)


@pytest.mark.parametrize("answer", ["115,00", "115,0", r"\{0, 115\}", "115,000^2"])
def test_a_number_with_thousands_that_are_zero_is_no_list(answer: str) -> None:
    assert not same("115,000", answer)


def test_a_pair_of_which_one_looks_like_thousands_is_still_a_pair() -> None:
    assert same("(1,210)", "(1, 210)")
    assert same("115,000", "115000")


@pytest.mark.parametrize("words", ["seven", "maybe six", "alternatively", "is wrong"])
def test_words_after_a_value_that_say_something_else_are_no_unit(words: str) -> None:
    assert not same("5", rf"5 \text{{ {words}}}")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/3", "0.333333333334"),
        ("1/3", "0.3333333333"),
        (r"\frac{2}{3}", "0.666666666668"),
        (r"\pi", "3.14159265360"),
        (r"\sqrt{2}", "1.41421356238"),
    ],
)
def test_a_decimal_that_is_neither_rounded_nor_cut_is_another_number(gold: str, answer: str) -> None:
    assert not same(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2/3", "0.666666666667"),
        ("2/3", "0.666666666666"),
        (r"\sqrt{2}", "1.4142135623730951"),
        ("-2/3", "-0.666666666666"),
    ],
)
def test_a_decimal_may_be_rounded_or_cut(gold: str, answer: str) -> None:
    assert same(gold, answer)


@pytest.mark.parametrize("tiny", ["10^{-50}", r"\frac{1}{10^{80}}", "10^{-32}"])
def test_equations_that_differ_by_very_little_are_different(tiny: str) -> None:
    assert not same("x-y=0", f"x-y={tiny}")
    assert same("x-y=0", "2x=2y")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\max(x,100)", "100"),
        ("|x-100|", "100-x"),
        (r"\lceil x\rceil", r"\lfloor x\rfloor+1"),
        (r"\lfloor x\rfloor+\lfloor -x\rfloor", "-1"),
    ],
)
def test_functions_that_differ_at_large_or_whole_numbers_only(gold: str, answer: str) -> None:
    assert not same(gold, answer)


def test_a_function_without_a_value_at_a_large_number_is_no_limit() -> None:
    assert same("e^{2x}", "e^x e^x")
    assert same("n! (n+1)", "(n+1) n!")
    with pytest.raises(LimitReached):
        same("10^{1001}x", "x 10^{1001} + 1")


@pytest.mark.parametrize("gold", ["I(0)e^{-t}", "P(0)", "y(0)+v_0(0)t"])
def test_a_value_at_zero_is_not_zero(gold: str) -> None:
    assert not same(gold, "0")
    assert not same(gold, gold.replace("(0)", "(1)"))
    assert same(gold, gold.replace("(0)", "( 0 )"))


@pytest.mark.parametrize(("gold", "answer"), [(r"\angle ABC", r"\angle ACB"), ("BAC", "CAB"), ("DCBA", "ABCD")])
def test_the_order_of_points_counts(gold: str, answer: str) -> None:
    assert not same(gold, answer)
    assert same(r"\angle ABC", r"\angle CBA")
    assert same("ABC", r"\overline{ABC}")


@pytest.mark.parametrize(("gold", "answer"), [("km", "nm"), ("kJ", "MJ"), ("mph", "km/h")])
def test_units_that_differ_by_a_factor_are_different(gold: str, answer: str) -> None:
    assert not same(rf"24\text{{ {gold}}}", rf"24\text{{ {answer}}}")


@pytest.mark.parametrize("answer", ["km/h", "kmh", "kilometers per hour", "km/hour"])
def test_spellings_of_a_speed(answer: str) -> None:
    assert same(r"24\text{ kph}", rf"24\text{{ {answer}}}")


@pytest.mark.parametrize("answer", ["x<1, y>2", r"x<1 \text{ or } y>2"])
def test_inequalities_in_two_variables_are_no_union(answer: str) -> None:
    assert not same(r"(-\infty,1)\cup(2,\infty)", answer)
    assert same(r"(-\infty,1)\cup(2,\infty)", answer.replace("y", "x"))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("f(2)<f(1)", "f(2)<f(0)"),
        ("f(2)<f(1)<f(4)", "f(2)<f(4)"),
        ("x<f(2)", "x<|f(2)|"),
        ("f(x)", "|f(x)|"),
        ("f(2)", "|f(2)|"),
        ("2<3", "4<5"),
    ],
)
def test_what_an_undefined_function_is_worth_is_not_known(gold: str, answer: str) -> None:
    assert not same(gold, answer)
    assert not same(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("f(2)<f(1)", "f(1)>f(2)"), ("f(2)<f(1)<f(4)", "f(4)>f(1)>f(2)"), ("f(2)", "f(1+1)"), ("f(x)+1", "1+f(x)")],
)
def test_undefined_functions_in_another_spelling(gold: str, answer: str) -> None:
    assert same(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("24 MW", "24 mW"),
        (r"24\text{ MW}", r"24\text{ mW}"),
        ("58,500", "500, 58"),
        ("5", "5 or 7"),
        ("2,2,3", "2 or 3"),
    ],
)
def test_case_order_and_number_that_count(gold: str, answer: str) -> None:
    assert not same(gold, answer)
    assert not same(answer, gold)


@pytest.mark.parametrize("word", ["and", r"\text{ and }"])
def test_inequalities_joined_by_and_must_all_hold(word: str) -> None:
    assert not same("x>1 or x<0", f"x>1 {word} x<0")
    assert not same(r"(-\infty,0)\cup(1,\infty)", f"x>1 {word} x<0")
    assert same("0<x<1", f"x>0 {word} x<1")
