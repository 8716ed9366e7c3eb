from __future__ import annotations

import time

import pytest

from swerve.grading.policies import MathGrading
from swerve.rewards.maths import extract_answer


def extract(text: str, *forms: str) -> str | None:
    return extract_answer(text, MathGrading.model_validate({"extraction": forms or ("boxed",)}))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_thinking_is_left_out_unless_the_policy_says_otherwise() -> None:
    text = r"<think>\boxed{4}</think> I give up"
    assert extract(text) is None
    assert extract_answer(text, MathGrading(thinking="whole")) == "4"


PIECES = r"\ { } \boxed{ \boxed $ \( <answer> </answer> # 1 answer answer:$ 1, 1/ . is * -"


@pytest.mark.parametrize("piece", [*PIECES.split(), r"\boxed{2} ", "$ ", "answer is $", "1 ", "answer ", r"\boxed "])
def test_long_texts_of_anything_take_linear_time(piece: str) -> None:
    forms = ("boxed", "answer_tag", "hash", "phrase", "formula", "last_number", "last_line", "whole")

    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        started = time.process_time()
        for form in forms:
            extract(text, form)
        return time.process_time() - started

    # The least of several: other work on the machine can only add to a time.
    short = max(min(seconds(20_000) for _ in range(3)), 0.002)
    assert any(seconds(320_000) < 60 * short for _ in range(3)), "sixteen times the text, far more than that the time"
