"""No answer freezes the process that asks: a meter of CPU time on every grader that judges there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swerve.grading.grade_math import grade_math, quick_math
from swerve.rewards import grade_all, graded_here
from swerve.rewards.graders import GRADERS
from swerve.types import Problem
from tests.campaign.slow_answers import ALLOWED_SECONDS, PIECES, cpu_seconds, main, problems, slowest, slowness

LONGEST = 200_000
FRAMES = ("%s", r"\boxed{%s}", "<answer>%s</answer>", "answer %s", "####%s", "%s\n\\boxed{")


def is_slow(problem: Problem, text: str) -> bool:
    if cpu_seconds(problem, text) <= ALLOWED_SECONDS:
        return False
    return cpu_seconds(problem, text, runs=3) > ALLOWED_SECONDS * slowness()


def test_the_meter_knows_every_grader_that_judges_in_the_callers_process() -> None:
    entries = {entry for entry in GRADERS.values() if entry.quick or not entry.isolated}
    assert entries == {GRADERS[name] for name in problems()}


@pytest.mark.parametrize("length", [2_000, 49_900, pytest.param(LONGEST, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(problems()))
def test_one_repeated_piece_is_judged_in_time_or_left_to_a_worker(name: str, length: int) -> None:
    asked = problems()[name][-1]
    if name == "math":
        asked = replace(asked, answer=r"\{1,2\}", grading={"extraction": ["auto"]})
    judge = GRADERS[name].load()
    judge(asked, "1")  # imports
    slow = []
    for number, piece in enumerate(PIECES):
        text = FRAMES[number % len(FRAMES)].replace("%s", (piece * LONGEST)[: length - 20])
        if is_slow(asked, text):
            slow.append((piece, cpu_seconds(asked, text)))
    assert slow == []


@pytest.mark.parametrize("name", sorted(problems()))
def test_long_golds_are_judged_in_time_or_left_to_a_worker(name: str) -> None:
    asked = problems()[name][-1]
    people = ", ".join(f"p{number} is a knight" for number in range(1500))
    for gold in (people, "x" + ")" * 24_000, "$a$, " * 5_000, "A B " * 6_000, "{" * LONGEST):
        hostile = replace(asked, answer=gold)
        assert not is_slow(hostile, gold[:24_000]), gold[:20]
        assert not is_slow(hostile, f"<answer>{gold[:24_000]}</answer>"), gold[:20]
        assert not is_slow(replace(asked, alternatives=(gold[:2000],) * 12), r"\boxed{1,2,3}"), gold[:20]


_ROOT = "(10^{9998})^{1/2}"
_MATRIX = r"\begin{pmatrix}1&1\\1&1\end{pmatrix}"
_SUMS = "+".join([r"\sum_{k=1}^{660}k"] * 190)
_NUMBERS = [str(number) for number in range(1000, 1190)]
FOUND = {
    "roots of huge numbers, bisected: 38 s": ("1", "+".join([_ROOT] * 15)),
    "closings that nothing opens, cut off one by one: 14 s": ("x" + ")" * 24_000, "x"),
    "the same in an answer": ("1", "x" + ")" * 3900),
    "equations whose values may be names, read in every way": ("1", "a=1\n" + "bbbbbbb=1" * 8 + "=\n\0"),
    "sums that are written out, each within its limit": ("1", _SUMS),
    "two large sets, element by element": (rf"\{{{','.join(_NUMBERS)}\}}", rf"\{{{','.join(reversed(_NUMBERS))}\}}"),
    "two large lists of pairs": tuple(
        ", ".join(f"({k},{k})" for k in order) for order in (range(60), range(59, -1, -1))
    ),
    "text that is not closed": ("1", r"\text{" + "a" * 3900),
    "powers of matrices": (_MATRIX, "+".join([f"{_MATRIX}^5"] * 40)),
    "a long factor before each entry": (_MATRIX, f"({'+'.join('1' * 1500)})" + _MATRIX.replace("1&", "1&" * 190)),
    "braces that may be a set with a condition": ("1", "{(1:" * 14),
}


@pytest.mark.parametrize(("gold", "answer"), FOUND.values(), ids=FOUND.keys())
@pytest.mark.parametrize("form", ["whole", "auto", "boxed"])
def test_what_was_slow_once(gold: str, answer: str, form: str) -> None:
    asked = Problem(id="p", family="math", question="", answer=gold, grading={"extraction": [form, "whole"]})
    assert not is_slow(asked, answer)
    assert not is_slow(asked, rf"\boxed{{{answer}}}")


def test_a_worker_keeps_within_its_limits_too() -> None:
    asked = Problem(id="p", family="math", question="", answer="1")
    terms = rf"\boxed{{{', '.join([_ROOT] * 15)}}}"
    assert quick_math(asked, terms) is None
    assert grade_math(asked, terms).value == 0.0
    assert grade_math(replace(asked, answer="15 \\cdot 10^{4999}"), terms.replace(", ", "+")).value == 1.0
    assert "bits" in str(grade_math(asked, r"\boxed{10^{9998} \cdot 10^{9998}}").detail)
    sums = grade_math(asked, rf"\boxed{{{_SUMS}}}")
    assert (sums.value, sums.status) == (None, "timeout")


@pytest.mark.parametrize("answer", ["2^{64}", "2^{65}", "2^{255}", "10^{77}", "9" * 77, "9" * 78, "(1+1)^{200}", "40!"])
def test_the_quick_grader_leaves_large_numbers_to_the_other(answer: str) -> None:
    asked = Problem(id="p", family="math", question="", answer="1 + 1")
    reward = quick_math(asked, rf"\boxed{{{answer}}}")
    is_small = answer in ("2^{64}", "9" * 77, "40!")
    assert (reward is not None) == is_small
    assert grade_math(asked, rf"\boxed{{{answer}}}").value == 0.0


def test_long_texts_are_judged_by_a_worker_whatever_the_grader() -> None:
    asked = Problem(id="p", family="palindrome", question="", answer="abba")
    text = f"{'word ' * 12_000}<answer>baab</answer>"
    assert graded_here(asked, text) is None
    assert [reward.value for reward in grade_all([(asked, text), (asked, "<answer>baab</answer>")])] == [1.0, 1.0]
    too_long = [grade_all([(problems()[name][0], "1" * (LONGEST + 1))])[0] for name in sorted(problems())]
    assert {reward.status for reward in too_long} == {"timeout"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(problems()))
def test_a_search_finds_no_slow_answer(name: str) -> None:
    found, tried = slowest(name, 12.0 if name == "math" else 3.0, seed=1)
    assert tried > 50
    assert found.seconds <= ALLOWED_SECONDS * slowness(), found


@pytest.mark.slow
def test_the_search_finds_what_is_slow(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def quadratic(_: Problem, text: str) -> None:
        sum(range(min(text.count("{") ** 2, 8_000_000)))

    monkeypatch.setattr("tests.campaign.slow_answers.graded_here", quadratic)
    assert main(["--grader", "choice", "--seconds", "1"]) == 1
    assert "slower than 50 ms: choice" in capsys.readouterr().out
