# Some of the answers below hold signs that look like others.
# ruff: noqa: RUF001
"""What a text says is read along a path: relations over generated forms, and what each rule could wrongly accept."""

from __future__ import annotations

from itertools import product

import pytest

from swerve.grading.grade_math import grade_math, quick_math
from swerve.grading.text import grade_choice
from swerve.grading.thinking import final_text
from swerve.types import Problem
from tests.cases import each

_NAMES = """
m cm km miles feet inches hours minutes seconds days dollars cents euros pounds kg grams ounces liters mL m/s km/h cm^2
m^2 degrees radians percent
"""
UNITS = _NAMES.split()
TYPESET = (
    r"\boxed{10 \text{ %s}}",
    r"\boxed{10~\mathrm{%s}}",
    r"\boxed{10 %s}",
    r"The answer is $10 \text{ %s}$.",
    "The answer is $10$ %s.",
    "The answer is 10 **%s**.",
    "The answer is **10** %s.",
    "The answer is 10 (%s).",
    "<answer>10 %s</answer>",
    "#### 10 %s",
    "So it takes 10 %s.",
)


def math(gold: str, text: str) -> float | None:
    problem = Problem(id="p", family="math", question="", answer=gold)
    reward, quick = grade_math(problem, text), quick_math(problem, text)
    assert quick is None or quick == reward
    return reward.value


def choice(gold: str, text: str) -> float | None:
    return grade_choice(Problem(id="p", family="table", question="", answer=gold, grader="choice"), text).value


@pytest.mark.parametrize("form", TYPESET)
def test_another_unit_is_never_equal_and_the_same_one_always_is(form: str) -> None:
    unread = "(%s)" in form
    pairs = [(gold, unit) for gold, unit in product(UNITS, UNITS) if not (unread and {"/", "^"} & set(unit))]
    wrong = [pair for pair in pairs if (math(rf"10 \text{{ {pair[0]}}}", form % pair[1]) == 1) != (pair[0] == pair[1])]
    assert wrong == []


@pytest.mark.parametrize("mark", [r"\boxed{%s}", "<answer>%s</answer>", "The answer is %s.", "#### %s", "It is %s."])
def test_words_behind_a_unit_hide_no_other_unit(mark: str) -> None:
    words = ("in total", "in all", "altogether", "saved", "per ticket", "each", "left over")
    for word in words:
        assert math(r"10 \text{ dollars}", mark % f"10 dollars {word}") == 1.0
        assert math(r"10 \text{ dollars}", mark % f"10 cents {word}") == 0.0
    for word in ("long", "wide", "as required"):
        assert math(r"10 \text{ inches}", mark % f"10 inches {word}") == 1.0
        assert math(r"10 \text{ inches}", mark % f"10 feet {word}") == 0.0


@each(
    ("text", "answer", "wrong"),
    [
        ("You will save $4 + $2 = $6 for 2 tubs of ice cream.", "6", "2"),
        ("In total, Lynne spent 63 + 12 = 75$", "75", "12"),
        ("The number of melons that were not ready is 84-63 =21", "21", "63"),
        ("And there are 200 *38% = 76 sixth graders.", "76", "76/6"),
        ("12 liters of water and 15 of vinegar give a 12+15 = 27-liter mixture", "27", "15"),
        ("120 students / 2 in a couple = 60 couples.", "60", "120"),
        ("48 quarts = 12 gallons", "12", "48"),
        ("280*2 = 560 miles a month", "560", "280"),
        ("So the tire can last for 10,440,000/145,000=72 months", "72", "145000"),
        ("He consumes 5 * $3 = $15 worth of gas each week", "15", "3"),
    ],
)
def test_a_line_of_a_calculation_states_its_result(text: str, answer: str, wrong: str) -> None:
    assert (math(answer, text), math(wrong, text)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text", ["There is no solution for x = 5", "It is 5 degrees below zero.", "It is 5 cm + 1 cm."]
)
def test_a_line_that_denies_or_changes_a_value_does_not_state_it(text: str) -> None:
    assert math("5", text) is None


@pytest.mark.parametrize(
    "text",
    [
        "I don't think the answer is 5.",
        r"I don't think the answer is \boxed{5}.",
        "It is unlikely that the answer is 5",
        "Nobody would say the answer is 5",
        "The answer is hardly 5",
        "The answer is I doubt it is 5.",
        "**I doubt it is 5**",
        r"\boxed{3 + 1}, but not \boxed{5}",
        r"$\neq x = 5$",
        "#### 5 to the power of 2",
        "The answer is 5 to the third.",
        "The answer is 5**2.",
        "So the result is 5 lakh.",
        r"\boxed{5 \text{ million people}}",
        r"\boxed{5 \text{ and a half feet}}",
        r"The answer is $5 \text{ dozen}$.",
        "It is 5  million.",
        "The answer is 5 feet below sea level.",
    ],
)
def test_what_denies_or_changes_five_is_not_five(text: str) -> None:
    assert math("5", text) != 1.0


@pytest.mark.parametrize(
    "text",
    [
        "There is no other way, so the answer is 5.",
        "It does not divide 7. The answer is 5.",
        r"Since 2 is not a root, the answer is \boxed{5}.",
        r"The number of values that are not prime is \boxed{5}.",
        "**Final answer:** five (5)",
    ],
)
def test_a_denial_of_something_else_denies_no_answer(text: str) -> None:
    assert math("5", text) == 1.0


OTHER_VALUES = r"""
1'005; 3'5; 5‰; 5th root of 2; no solution for x = 5; 5°30'; 5 in 7; 5 per 7; 5 for every 7; |x|=5; 5·2; 5×2; 5÷2; 5⁻¹
5 percent of 7; 5 times as many; 5 % of 7; 5 by 7; 5 with remainder 2; 5 in base 6; 5 and a half; 5 sixths; 5~6; 5—7
5..7; 5-fold; 5 score; 5 below zero; 5 or 6; not 5; over 5; 5 dozen; 5k; 5:30; 5 1/2; 5 (or 6); 2005-05-05; 1-2-2
5/5/2005
"""
MARKS = (r"\boxed{%s}", "<answer>%s</answer>", "The answer is %s.", "So.\n#### %s", "So in the end it is %s.")


@pytest.mark.parametrize("mark", MARKS)
def test_a_number_in_another_value_is_not_the_answer(mark: str) -> None:
    contents = OTHER_VALUES.strip().replace("\n", ";").split(";")
    assert [content for content in contents if math("5", mark % content.strip()) == 1] == []


@each(
    ("gold", "text", "value"),
    [
        # A remark behind a value; a product is none.
        ("42", r"\boxed{42 (by symmetry)}", 1.0),
        ("42", r"\boxed{42 (40 + 2)}", 1.0),
        ("2", r"\boxed{2 (x + 1)}", 0.0),
        ("2", r"\boxed{2 (3 + 4)}", 0.0),
        ("5", r"\boxed{5 (mod 7)}", 0.0),
        # An era leaves the number of a year, and is not another era.
        ("1992", r"\boxed{1992 \text{ AD}}", 1.0),
        ("44 BC", r"\boxed{44 \text{ AD}}", 0.0),
        # Signs of money are units.
        (r"\$5.40", r"\boxed{5.4 \text{ cents}}", 0.0),
        (r"\$5.40", r"\boxed{5.4 \text{ dollars}}", 1.0),
        ("€5", r"\boxed{\$5}", 0.0),
        ("5", r"\boxed{\$5}", 1.0),
        # A percentage is a number or a part, never something with a unit.
        (r"50\%", r"\boxed{50}", 1.0),
        (r"50\%", r"\boxed{50 \text{ feet}}", 0.0),
        # Letters of a unit, as a product.
        (r"10 \text{ m/s}", r"\boxed{10 m/s}", 1.0),
        (r"10 \text{ m/s}", r"\boxed{10 \, m \, s^{-1}}", 1.0),
        (r"10 \text{ m/s}", r"\boxed{10 \, m s}", 0.0),
        (r"10 \text{ m}", r"\boxed{10 s}", 0.0),
        # Groups of digits.
        ("1000", r"\boxed{1'000}", 1.0),
        ("0", r"\boxed{1'000}", 0.0),
        ("1,66,105", r"\boxed{166105}", 1.0),
        ("166,105", r"\boxed{1,66,105, 2}", 0.0),
        # The base that the gold answer states may be left out.
        ("2516_8", r"\boxed{2516}", 1.0),
        ("2516", r"\boxed{2516_8}", 0.0),
        ("2516_8", r"\boxed{2516_7}", 0.0),
        # Dates and numbers joined to one word.
        ("2024-05-01", r"\boxed{2024-05-01}", 1.0),
        ("2024-05-01", r"\boxed{2024-01-05}", 0.0),
        ("2018", r"\boxed{2024-05-01}", 0.0),
        ("1-2-3", r"\boxed{1-3-2}", 0.0),
        ("20", r"\boxed{\text{June 20}}", 0.0),
        # An absolute value of an unknown is no name.
        ("5", r"\boxed{|z| = 5}", 1.0),
        ("5", r"\boxed{|x| = 5}", 0.0),
        # Inverse functions and bases as programs write them.
        ("tan^(-1)(x)", r"\boxed{\arctan x}", 1.0),
        ("log10(x)", r"\boxed{\log_{10} x}", 1.0),
        ("log2(x)", r"\boxed{\log_{10} x}", 0.0),
        # What a text denies, asks or supposes is not stated.
        ("2", r"\boxed{3}, not \boxed{2}", 0.0),
        ("3", r"\boxed{3}, not \boxed{2}", 1.0),
        ("7", "The answer is 7? No, it cannot be.", None),
        ("7", "I am not sure whether the answer is 7", None),
    ],
)
def test_each_rule_and_the_answer_that_it_could_accept(gold: str, text: str, value: float | None) -> None:
    assert math(gold, text) == value


CORRECTIONS = (
    "The answer is {0}. Actually, it is {1}.",
    "The answer is {0}. Wait, no: the answer is {1}.",
    "Answer: {0}. Actually, {1}.",
    "The answer is {0}. I made a mistake, it should be {1}.",
)
CORRECTED = (("12", "15"), ("0", r"$\infty$"), ("7", "-7"), ("No", "Yes"), ("London", "Paris"), ("even", "odd"))


@pytest.mark.parametrize("form", CORRECTIONS)
def test_what_is_said_last_counts_of_numbers_words_and_choices(form: str) -> None:
    for before, after in CORRECTED:
        assert (math(before, form.format(before, after)), math(after, form.format(before, after))) == (0.0, 1.0), before
    assert (choice("A", form.format("A", "B")), choice("B", form.format("A", "B"))) == (0.0, 1.0)


@pytest.mark.parametrize("pause", ["Wait, is it? Yes.", "Actually, that is right."])
def test_a_pause_that_confirms_takes_nothing_back(pause: str) -> None:
    assert math("41", f"The answer is 41. {pause}") == 1.0


PHRASES = """
B|(B)|b|**B**|_B_|'B'|The answer is **(B)**.|**Answer:** B|Answer – B|Answer - B|Answer → B|The correct option is B.
Option B is correct.|Option (B) is right.|B is the correct answer.|I choose B.|I'd go with B.|So it is B.|It is B.
It must be B.
Hence option (B).|Thus, B.|The answer should be B.|Final answer: (B)|#### B|{"answer": "B"}|<answer>Option B</answer>
Bananas are berries. Thus, B.|It rules out C, leaving B.|Not A, so B.|The answer is B, although A looks tempting.
"""


@pytest.mark.parametrize("text", PHRASES.strip().replace("\n", "|").split("|"))
def test_a_choice_is_read_in_every_phrase(text: str) -> None:
    assert (choice("B", text), choice("C", text)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "I don't know",
        "A dog barks",
        "The answer is not A.",
        "Is it A?",
        "The answer is A? Maybe.",
        "It is hard to say whether A is right.",
        "Option A is incorrect.",
        "A or B",
    ],
)
def test_a_word_a_question_or_a_denial_chooses_nothing(text: str) -> None:
    assert choice("A", text) != 1.0
    assert choice("I", text) != 1.0


NAMES = ("think", "thinking", "thought", "reasoning", "scratchpad")
FORMS = ("<{}>", "<{} >", "<mm:{}>", '<{} type="x">', "<|begin_of_{}|>")


@pytest.mark.parametrize("form", [*FORMS, "<|channel>{}", "<|channel|>{}"])
def test_thinking_marks_are_a_grammar(form: str) -> None:
    for name in ("thought",) if "channel" in form else NAMES:
        opened = form.format(name)
        assert final_text(rf"{opened} maybe \boxed{{5}}") is None
        assert final_text(rf"{opened} maybe </{name}> 7") == " 7"
        assert final_text(rf"{opened.upper()} maybe \boxed{{5}}") is None


def test_a_tag_with_another_name_is_text() -> None:
    assert final_text(r"<thinker> \boxed{5}") == r"<thinker> \boxed{5}"
    assert final_text(r"<solution> \boxed{5}") == r"<solution> \boxed{5}"
    assert final_text(r"<think/> \boxed{5}") == r"<think/> \boxed{5}"
