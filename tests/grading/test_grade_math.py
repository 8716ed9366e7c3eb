from __future__ import annotations

import gzip
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from swerve.grading.grade_math import grade_math, quick_math
from swerve.rewards import grade_all
from swerve.types import Problem, Reward
from tests.campaign.slow_answers import cpu_seconds, slowness
from tests.cases import each

FORMS = ("boxed", "answer_tag", "hash", "phrase", "formula", "last_number", "last_line", "whole")
_LATEX = r"""
\frac \sqrt \boxed{ \text \text{cm} \pi \infty \cup \in \pm \sin \log \left \right \\ \( \) \[ \] \{ \} \circ
\le \ne \cdot \begin{pmatrix} \end{pmatrix} \overline{3} \binom \, \! \mathbb{R} \vec \lfloor \rfloor ^\circ
"""
_SIGNS = "{ } { } ( ) [ ] 1 2 34 0 . , x y e i f ^ _ + - * / = < ! % | & $ ' ; : and or cm AB a.m. 1,234 10^{2} 9"
_OTHERS = [
    "<answer>",
    "</answer>",
    "</think>",
    "#### ",
    "the answer is ",
    " ",
    "  ",
    "\n",
    "½",
    "²",
    "\ud800",
    "\x00",
    "٣",
    "√",
]
PIECES = [*_LATEX.split(), *_SIGNS.split(), *_OTHERS]
GOLDS = [
    r"\frac{1}{2}",
    "x+1",
    "(1,2)",
    r"\{1,2\}",
    "[0,1)",
    "A",
    r"5\text{ cm}",
    "x=3",
    "1, 2",
    "4:30 p.m.",
    r"\pm 3",
    r"50\%",
]
GOLDS += [
    "west",
    "7:32",
    "12_5",
    r"x \le 3",
    r"(-\infty,1)\cup(2,3)",
    "f(x)=2x",
    r"\begin{pmatrix}1\\2\end{pmatrix}",
    "0",
]


def problem(gold: str, *alternatives: str, **grading: object) -> Problem:
    return Problem(id="p", family="math", question="", answer=gold, alternatives=alternatives, grading=grading)


def grade(gold: str, answer: str) -> Reward:
    """Grade a whole text; where the quick grader has an answer, it must be the same."""
    asked = problem(gold, extraction=["whole"])
    reward, quick = grade_math(asked, answer), quick_math(asked, answer)
    assert quick is None or quick == reward
    return reward


def test_rewards() -> None:
    right = grade_math(problem("42"), r"so \boxed{42}")
    assert right == Reward(value=1.0, status="graded", parts={"answer": 1.0}, extracted="42")
    assert grade_math(problem("42"), r"\boxed{43}").value == 0.0
    assert grade_math(problem("42", extraction=["boxed"]), "42").status == "unparsed"
    assert grade_math(problem("42"), r"\boxed{}").status == "unparsed"
    assert grade_math(problem("42"), r"\boxed{@@@} 42").value == 0.0
    assert grade_math(problem("0.5", "1/2", "one half"), r"\boxed{\text{one half}}").value == 1.0


def test_a_limit_is_a_timeout_that_names_it_and_never_a_zero() -> None:
    reward = grade_math(problem("9"), r"\boxed{9^{9^{9^9}}}")
    assert (reward.status, reward.detail) == ("timeout", "exponents of exponents: 3 > 2")
    assert grade_math(problem("6"), r"\boxed{\sum_{k=1}^{n} k}").detail == r"\sum is not evaluated"
    assert grade_math(problem("6"), r"\boxed{\sum_{k=1}^{4} k}").value == 0.0
    assert "written-out" in str(grade_math(problem("6"), r"\boxed{\sum_{k=1}^{9999} k}").detail)
    assert grade_math(problem("10^{10^{10^{10}}}"), r"\boxed{10^{10^{10^{10}}}}").value == 1.0


@each("form", ["auto", "boxed", "hash", "answer_tag"])
@each("thinking", ["", "<think>5 or 6</think>"])
@each("mark", [r"\boxed{}", r"\boxed{ }", "####", "#### ", "<answer> </answer>", "The answer is:", "$$"])
def test_marks_around_nothing_hold_no_answer(mark: str, thinking: str, form: str) -> None:
    problem = Problem(id="p", family="math", question="?", answer="5", grading={"extraction": [form]})
    for reward in (grade_math(problem, thinking + mark), quick_math(problem, thinking + mark)):
        assert reward == Reward(value=None, status="unparsed", answered=False)


def test_quick_grader_leaves_numerical_work_to_the_other() -> None:
    assert quick_math(problem(r"\sqrt{2}"), r"\boxed{2^{0.5}}") is None
    assert grade_math(problem(r"\sqrt{2}"), r"\boxed{2^{0.5}}").value == 1.0


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=25).map("".join)),
    st.sampled_from(GOLDS),
    st.sampled_from(FORMS),
)
@example(r"\boxed{{x<1}}", r"\{x<1\}", "boxed")
@example(r"\sin" * 300 + "1", "1", "whole")
@example("1" + "/1" * 900, "1", "whole")
@example("[" * 29 + "1" + "]" * 29, "1", "whole")
def test_graders_never_raise_and_agree(text: str, gold: str, form: str) -> None:
    asked = problem(gold, extraction=[form, "whole"])
    reward, quick = grade_math(asked, text), quick_math(asked, text)
    assert reward.status in ("graded", "unparsed", "timeout")
    assert quick is None or quick == reward


# Gold answers from a grammar: each renders in several ways, and can be changed in value.

SMALL = st.integers(-30, 30)
FRACTIONS = st.builds(Fraction, SMALL, st.integers(1, 12))


def rendered_number(value: Fraction) -> list[str]:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    forms = [f"{sign}\\frac{{{top}}}{{{bottom}}}", f"{sign}\\dfrac{{{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}"]
    if bottom == 1:
        forms += [f"{sign}{top}", f"{sign} {top}", f"${sign}{top}$", f"{sign}{top}.0", f"\\text{{{sign}{top}}}"]
    if set(str(bottom)) and 10**6 % bottom == 0:
        forms.append(f"{sign}{top / bottom:.6f}".rstrip("0").rstrip("."))
    if top > bottom > 1:
        whole, rest = divmod(top, bottom)
        forms += [f"{sign}{whole} {rest}/{bottom}", f"{sign}{whole}\\frac{{{rest}}}{{{bottom}}}"]
    return forms


def rendered_surd(outside: int, inside: int) -> list[str]:
    return [
        f"{outside}\\sqrt{{{inside}}}",
        f"{outside} \\sqrt {inside}",
        f"\\sqrt{{{inside}}} \\cdot {outside}",
        f"{outside}*sqrt({inside})",
    ]


def rendered_polynomial(coefficients: list[int]) -> list[str]:
    terms = [f"{coefficient:+d}x^{{{power}}}" for power, coefficient in enumerate(coefficients)]
    plain = [f"{coefficient:+d}*x^{power}" for power, coefficient in enumerate(coefficients)]
    return ["".join(terms), "".join(reversed(terms)), " ".join(plain)]


def bracketed(opening: str, closing: str, values: list[Fraction]) -> list[str]:
    forms = [[rendered_number(value)[index % len(rendered_number(value))] for value in values] for index in range(6)]
    return [f"{opening}{', '.join(form)}{closing}" for form in forms] + [
        f"\\left{opening} {' , '.join(forms[0])} \\right{closing}"
    ]


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Return renderings of an answer, and of another answer of the same kind that differs in value."""
    kind = draw(st.sampled_from(["number", "tuple", "interval", "set", "list", "surd", "polynomial"]))
    if kind == "number":
        first, second = draw(FRACTIONS), draw(FRACTIONS)
        assume(first != second)
        return rendered_number(first), rendered_number(second)
    if kind == "surd":
        first, second = draw(st.integers(2, 9)), draw(st.integers(2, 9))
        assume(first != second)
        inside = draw(st.sampled_from([2, 3, 5, 7]))
        return rendered_surd(first, inside), rendered_surd(second, inside)
    if kind == "polynomial":
        first, second = draw(st.lists(SMALL, min_size=2, max_size=4)), draw(st.lists(SMALL, min_size=2, max_size=4))
        size = max(len(first), len(second))
        assume(first + [0] * (size - len(first)) != second + [0] * (size - len(second)))
        return rendered_polynomial(first), rendered_polynomial(second)
    sizes = {"interval": 2, "tuple": draw(st.integers(2, 4))}
    low, high = sizes.get(kind, 2), sizes.get(kind, 4)
    first = draw(st.lists(FRACTIONS, min_size=low, max_size=high, unique=True))
    second = draw(st.lists(FRACTIONS, min_size=low, max_size=high, unique=True))
    assume(set(first) != set(second) if kind in ("set", "list") else first != second)
    opening, closing = {"tuple": ("(", ")"), "interval": ("[", ")"), "set": (r"\{", r"\}"), "list": ("", "")}[kind]
    if kind == "list":
        return [form.replace("\\left", "").replace("\\right", "") for form in bracketed("", "", first)], bracketed(
            "", "", second
        )[:6]
    return bracketed(opening, closing, first), bracketed(opening, closing, second)


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(answers(), st.data())
def test_own_renderings_are_accepted_and_changed_answers_rejected(
    cases: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    same, changed = cases
    gold = data.draw(st.sampled_from(same))
    assert grade(gold, data.draw(st.sampled_from(same))).value == 1.0
    assert grade(gold, data.draw(st.sampled_from(changed))).value == 0.0


@pytest.mark.slow
def test_random_strings_are_cheap_and_never_raise() -> None:
    rng = random.Random(5)
    asked = [problem(gold, extraction=["boxed", "answer_tag", "whole"]) for gold in GOLDS]
    started, slow = time.process_time(), []
    for _ in range(20_000):
        case = rng.choice(asked), "".join(rng.choices(PIECES, k=rng.randint(1, 16)))
        if cpu_seconds(*case) > 0.01 and cpu_seconds(*case, runs=3) > 0.01 * slowness():
            slow.append(case)
    assert slow == []
    assert time.process_time() - started < 20_000 * 0.002 * slowness()


HOSTILE = """
import json, resource, sys
from swerve.grading.grade_math import grade_math, quick_math
from swerve.types import Problem
for line in sys.stdin:
    gold, text = json.loads(line)
    problem = Problem(id="p", family="math", question="", answer=gold)
    reward, quick = grade_math(problem, text), quick_math(problem, text)
    print(json.dumps([reward.value, reward.status, quick is None or quick == reward]))
"""


def grade_apart(cases: list[tuple[str, str]]) -> list[tuple[float | None, str, bool]]:
    """Grade in a process with 60 s of CPU time and 2 GB."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))

    lines = "\n".join(json.dumps(case) for case in cases)
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], input=lines, capture_output=True, text=True, preexec_fn=confine, check=True
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_hostile_answers_are_bounded() -> None:
    answers = ["9^9^9^9", "2^{100000000}", "(10^9)!", r"\binom{1000000}{500000}", r"\sin(10^{100000})", "1e999999999"]
    answers += [
        "{" * 5000 + "1" + "}" * 5000,
        "1," * 10_000,
        "7" * 1_000_000,
        "(x+1)^{9999}^{9}",
        r"e^{e^{e^{e^{10}}}}",
        "x" * 10**6,
    ]
    answers += [r"\{" + ",".join(rf"(x+{k})^{{2}}" for k in range(60)) + r"\}", r"\sqrt{" * 29 + "x" + "}" * 29]
    answers += [
        "__import__('os').system('true')",
        r"\operatorname{__import__}(os)",
        "().__class__.__base__.__subclasses__()",
    ]
    results = grade_apart([("x", rf"\boxed{{{answer}}}") for answer in answers])
    assert len(results) == len(answers)
    assert all(value in (None, 0.0) and agree for value, _, agree in results)


def load(path: Path) -> list[dict[str, object]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_agrees_with_recorded_scores(shared_data: Callable[[str], Path]) -> None:
    probe = load(shared_data("rl_probe") / "responses.jsonl.gz")
    assert all(
        (grade_math(problem(str(row["gold"])), str(row["response"])).value == 1.0) == row["correct"] for row in probe
    )
    maths = load(shared_data("rollouts") / "math_qwen2.5_math_cot_100x.jsonl.gz")
    differ = [
        row
        for row in maths
        if (grade_math(problem(str(row["gold"])), str(row["response"])).value == 1.0) != row["score"]
    ]
    assert [row["gold"] for row in differ] == ["10{,}000"], "recorded as wrong for the answer 10000"


@pytest.mark.slow
def test_hostile_corpus(shared_data: Callable[[str], Path]) -> None:
    cases = [
        case for case in load(shared_data("hostile_answers") / "cases.jsonl.gz") if case["target"] == "math_verify"
    ]
    texts = [case["answer"] or "".join(piece * count for piece, count in case["answer_parts"]) for case in cases]
    boxed = [(case, text) for case, text in zip(cases, texts, strict=True) if "boxed" in text]
    results = grade_apart([(str(case["gold"]), text) for case, text in boxed])
    for (case, _), (value, status, agree) in zip(boxed, results, strict=True):
        assert agree, case["id"]
        if case["want"] == "accept":
            assert value == 1.0, case["id"]
        elif case["want"] == "reject_or_limit":
            assert value != 1.0, case["id"]
        elif case["want"] == "accept_or_limit":
            assert value == 1.0 or status == "timeout", case["id"]


_BEGINNINGS = [{"begun": "<think>\n"}, {"begun": "", "prefix": "<think>"}, {"prefix": "<think> So"}]


@pytest.mark.parametrize("beginning", _BEGINNINGS)
def test_thinking_that_the_prompt_began_and_the_text_never_ends_has_no_answer(beginning: dict[str, str]) -> None:
    asked = Problem(id="p", family="math", question="2 + 2?", answer="4", **beginning)
    rewards = grade_all([(asked, text) for text in (r"so \boxed{4}", r"so 5 </think> \boxed{4}", r"<think> \boxed{4}")])
    assert [(reward.status, reward.value) for reward in rewards] == [
        ("unparsed", None),
        ("graded", 1.0),
        ("unparsed", None),
    ]
    # What the template closes again, or does not begin, leaves the text as it is.
    others = [replace(asked, begun=begun, prefix="") for begun in ("<think>\n\n</think>\n\n", "", None)]
    whole = replace(asked, grading={"thinking": "whole"})
    assert [one.value for one in grade_all([(one, r"so \boxed{4}") for one in [*others, whole]])] == [1.0] * 4
