from __future__ import annotations

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.answers import FINDERS, STATED, STATED_WHOLE, find_answer, gold_answer
from swerve.grading.policies import ExtractionForm
from swerve.grading.reading import steps
from swerve.grading.thinking import final_text
from tests.cases import each


def read(text: str) -> tuple[str, ...]:
    found = find_answer(text, ("auto",))
    return () if found is None else tuple(step.text for step in steps(found))


def extract(text: str, *forms: str) -> str | None:
    return find_answer(text, forms or ("boxed",))


@each(
    ("text", "answer"),
    [
        (r"so \boxed{4}", "4"),
        (r"\fbox{4}", "4"),
        (r"\boxed{1} is wrong. \boxed{\frac{1}{\sqrt{2}}}.", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 4 is it", "4"),
        (r"we get $\boxed 7$ here", "7"),
        (r"\\boxed{-3}", "-3"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}"),
        (r"\boxed{5} and then it breaks: \boxed{7", "5"),
        (r"\boxed{7", None),
        (r"\boxed{}", None),
        (r"\boxed{5} or \boxed{}", "5 or"),
        (r"the answer is 5", None),
        ("", None),
    ],
)
def test_boxes(text: str, answer: str | None) -> None:
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{5} or \boxed{7}", "5 or 7"),
        (r"$\boxed{k = 45} \quad \text{and} \quad \boxed{n = 2}$", "k = 45, n = 2"),
        (r"\[\boxed{(1, 2)}, \boxed{(2, 1)}\]", "(1, 2), (2, 1)"),
        (r"\boxed{5} \boxed{5}", "5"),
        (r"\boxed{5} is wrong, so \boxed{7}", "7"),
        (r"\boxed{5}. Then \boxed{7}", "7"),
    ],
)
def test_boxes_that_are_joined_are_one_answer(text: str, answer: str) -> None:
    assert extract(text) == answer


@each(
    ("form", "text", "answer"),
    [
        ("answer_tag", "<answer>41</answer> no: <answer> 42 </answer>", "42"),
        ("answer_tag", "<ANSWER>42</ANSWER>", "42"),
        ("answer_tag", "<answer>42", None),
        ("answer_tag", "<answer></answer>", None),
        ("hash", "so 6 + 7 = 13\n#### 13\n", "13"),
        ("hash", "13", None),
        ("phrase", "The answer is 42.", "42"),
        ("phrase", "The answer is 3.5. It fits.", "3.5"),
        ("phrase", "The final answer is: **42**", "42"),
        ("phrase", "Final Answer: The final answer is $28 \\%$. I hope it is correct.", "28 \\%"),
        ("phrase", "The answer is $1$ or $2$.", "1, 2"),
        ("phrase", "The answer is $5$, which is $2+3$.", "5"),
        ("phrase", "Answer: the volume is 120", "120"),
        ("phrase", "The final answer is $3$. Wait. The final answer is $4$.", "4"),
        ("phrase", "It is 42.", None),
        ("formula", "Therefore $x > 5$ is the solution.", "x > 5"),
        ("formula", "$x > 5$", "x > 5"),
        ("formula", "the angle $x$ has 30 degrees", None),
        ("formula", "odd $n$", None),
        ("last_number", "first 3 and then 1,234.50 dollars", "1,234.50"),
        ("last_number", "it is 30-40", "40"),
        ("last_number", "it is -40", "-40"),
        ("last_number", "version 3.5.1", None),
        ("last_number", "x2", None),
        ("last_number", "a share of 3/4", "3/4"),
        ("last_line", "so\nx = 3\n\n", "x = 3"),
        ("whole", "  x = 3 ", "x = 3"),
        ("whole", " \n", None),
    ],
)
def test_forms(form: str, text: str, answer: str | None) -> None:
    assert extract(text, form) == answer


def test_first_form_in_the_text_is_taken() -> None:
    text = "The answer is 5.\n#### 6"
    assert extract(text, "boxed", "hash", "phrase") == "6"
    assert extract(text, "phrase", "hash") == "5"


def test_thinking_is_left_out_unless_it_is_asked_for() -> None:
    text = r"<think>\boxed{4}</think> I give up"
    assert extract(text) is None
    assert find_answer(text, ("boxed",), after_thinking=False) == "4"


PIECES = r"\ { } \boxed{ \boxed $ \( <answer> </answer> # 1 answer answer:$ 1, 1/ . is * -"


@pytest.mark.slow
@each("piece", [*PIECES.split(), r"\boxed{2} ", "$ ", "answer is $", "1 ", "answer ", r"\boxed "])
def test_long_texts_of_anything_take_linear_time(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        started = time.process_time()
        for form in FINDERS:
            extract(text, form)
        return time.process_time() - started

    # The least of several: other work on the machine can only add to a time.
    short = max(min(seconds(8_000) for _ in range(3)), 0.002)
    assert any(seconds(128_000) < 60 * short for _ in range(3)), "sixteen times the text, far more than that the time"


@each(
    ("text", "stated"),
    [
        ("abba", "abba"),
        ("I try.\n  abba \n\n", "abba"),
        ("<answer> abba </answer> done", "abba"),
        ("<answer>a</answer> <answer>b</answer>", "b"),
        ("<answer><answer>a</answer>", "a"),
        (r"So \boxed{a{b}c}.", "a{b}c"),
        (r"\boxed{a} or \boxed{b}", "b"),
        (r"<answer>a</answer> \boxed{b}", "a"),
        ("work\n#### abba\n", "abba"),
        ("<answer>no</answer></think> yes", "yes"),
        ("<think> a </think> b </think> c", "c"),
        ("", None),
        (" \n ", None),
        ("<answer> </answer>", None),
        ("<answer> abba", None),
        ("</answer><answer> abba", None),
        (r"\boxed{}", None),
        (r"\boxed{a", None),
        ("abba ####", None),
        ("abba </think>", None),
    ],
)
def test_where_the_answer_of_a_puzzle_stands(text: str, stated: str | None) -> None:
    assert find_answer(text, STATED) == stated


def test_the_whole_text() -> None:
    assert find_answer(" ####\n# #\n", STATED_WHOLE) == "####\n# #"
    assert find_answer("a </think> 1\n2", STATED_WHOLE) == "1\n2"
    assert find_answer("a\n<answer>1\n2</answer>", STATED_WHOLE) == "1\n2"


@given(st.text())
def test_any_text_gives_something_without_white_space_around_it_or_nothing(text: str) -> None:
    for whole in (False, True):
        stated = find_answer(text, STATED_WHOLE if whole else STATED)
        assert stated is None or (stated and stated == stated.strip() and stated in text)


@pytest.mark.slow
@each("piece", ["<answer>", "</answer>", "\\boxed{", "{", "####", "</think>", "\n", " ", "a"])
def test_a_megabyte_takes_no_time(piece: str) -> None:
    began = time.process_time()
    find_answer(piece * (1_000_000 // len(piece)), STATED)
    find_answer("\\boxed{" + piece * (1_000_000 // len(piece)), STATED)
    assert time.process_time() - began < 1.0


def test_every_form_of_the_configuration_has_a_finder() -> None:
    assert set(get_args(ExtractionForm)) <= set(FINDERS)


@each(
    ("text", "answer"),
    [
        (r"The answer is 4. \boxed{5}", "5"),
        ("<answer>5</answer> so the answer is 4", "5"),
        ("#### 5\nThe answer is 4.", "5"),
        ("#### Step 2: add 3\nSo the answer is 5.", "5"),
        ("#### The end", "The end"),
        (r"\boxed{} The answer is $5$, not $4$", "5"),
        ("The answer is found by adding all of these numbers. We get $5$.", "5"),
        ("x = 3, y = 4", "x = 3, y = 4"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        ("We get $a = 5$.", "a = 5"),
        ("First 3, then 5 apples.", "5"),
        (r"so the half is \frac{1}{2}", None),
        (r"x = \boxed{3} and $y = \boxed{4}$", "x = 3, y = 4"),
        ("I do not know", None),
        (r"<think> The answer is 5 and \boxed{5}", None),
        (r"<think>4</think> <think> \boxed{5}", None),
        ("", None),
    ],
)
def test_auto_takes_the_first_form_that_holds_something(text: str, answer: str | None) -> None:
    assert find_answer(text, ("auto",)) == answer


@each(
    ("gold", "answer"),
    [
        (r"Since $a = 2$, we have $\boxed{3}$ or $\boxed{4}$.", "3 or 4"),
        ("He has 5 - 2 = 3.\n#### 3", "3"),
        ("The answer is $5$.", "5"),
        ("The roots are $x = 1$, $x = 2$ and $x = 3$.", "x = 1, x = 2, x = 3"),
        ("$2$ and $3$", "$2$ and $3$"),
        ("No solution is possible", "No solution is possible"),
        ("The pairs are $(x, y)$ with $x < y$.", "The pairs are $(x, y)$ with $x < y$."),
        ("It is $5$ unless $x = 3$.", "It is $5$ unless $x = 3$."),
        ("f(x)=a x+b, where b is an integer", "f(x)=a x+b, where b is an integer"),
        ("x = 3", "x = 3"),
    ],
)
def test_a_gold_may_be_a_solution_or_a_sentence(gold: str, answer: str) -> None:
    assert gold_answer(gold) == answer


@each(
    ("text", "said"),
    [
        ("<answer> The tallest tree is 34 feet. </answer>", ("The tallest tree is 34 feet.", "34 feet")),
        ("<answer> Sarah has **27** pens. </answer>", ("Sarah has **27** pens.", "27")),
        (r"<answer> Sarah has \boxed{27} pens. </answer>", ("27",)),
        (r"\boxed{\text{Answer: } \frac{1}{2}}", (r"\text{Answer: } \frac{1}{2}", r"\frac{1}{2}")),
        ("#### He needs 400 + 1000 = 1400 bananas", ("He needs 400 + 1000 = 1400 bananas", "1400")),
        ("**Final Answer:** **73**", ("73",)),
        (r"\boxed{x = 3}", ("x = 3",)),
        (r"\boxed{x + y = 7}", ("x + y = 7",)),
        (r"\boxed{(1, 2)}", ("(1, 2)",)),
        (r"\boxed{\text{June 20}}", (r"\text{June 20}",)),
    ],
)
def test_what_a_mark_holds_is_read_further(text: str, said: tuple[str, ...]) -> None:
    assert read(text) == said


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 41. Wait, actually it is 42.", "42"),
        ("The answer is 42? No, 41.", "41"),
        ("The answer is 41. No, that is wrong: 42.", "42"),
        ("Answer: 41\nCorrection: 42", "42"),
        ("The answer is 41. Wait, that is wrong.", None),
        ("The answer is 41. Wait, is it? Yes.", "41"),
        ("The answer is no.", "no"),
    ],
)
def test_of_a_value_that_is_taken_back_the_later_one_counts(text: str, answer: str | None) -> None:
    assert find_answer(text, ("auto",)) == answer


ENDS = (
    "</s> <|im_end|> <|endoftext|> <|eot_id|> <|end_of_text|> <|end|> <end_of_turn> <eos> [EOS] <|return|> <|eom_id|>"
)
ENDS += " <|END_OF_TURN_TOKEN|> <\uff5cend▁of▁sentence\uff5c> <|end_of_sentence|> <|EOT|> <|end_of_turn|>"


@each("end", ENDS.split())
def test_a_text_ends_at_the_mark_of_its_end(end: str) -> None:
    assert find_answer(f"#### 18{end}\n#### 19", ("hash",)) == "18"
    assert find_answer(rf"\boxed{{18{end}}}", ("boxed",)) == "18"
    assert final_text(f"{end}{end}18{end}") == "18"


@each(
    ("opening", "closing"),
    [
        ("<think>", "</think>"),
        ("<Thinking>", "</Thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("[THINK]", "[/THINK]"),
        ("◁think▷", "◁/think▷"),
        ("<seed:think>", "</seed:think>"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ],
)
def test_what_stands_in_thinking_marks_is_no_answer(opening: str, closing: str) -> None:
    thinking = rf"{opening} maybe \boxed{{5}} but"
    assert find_answer(thinking, ("boxed",)) is None
    assert find_answer(rf"{thinking} {closing} I do not know.", ("boxed",)) is None
    assert find_answer(rf"{thinking} {closing} It is \boxed{{7}}.", ("boxed",)) == "7"
    assert find_answer(thinking, ("boxed",), after_thinking=False) == "5"


@pytest.mark.parametrize(
    "text", [r"\boxed{}", "<answer> </answer>", "####", "The answer is:", "$$", r"\boxed{", "**Answer:**"]
)
def test_a_mark_without_anything_in_it_is_no_answer(text: str) -> None:
    assert read(text) == ()
