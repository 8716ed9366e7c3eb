from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.grading.stated_answer import find_stated_answer


@pytest.mark.parametrize(
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
def test_where_the_answer_stands(text, stated) -> None:
    assert find_stated_answer(text) == stated


def test_the_whole_text() -> None:
    assert find_stated_answer(" ####\n# #\n", whole=True) == "####\n# #"
    assert find_stated_answer("a </think> 1\n2", whole=True) == "1\n2"
    assert find_stated_answer("a\n<answer>1\n2</answer>", whole=True) == "1\n2"


@given(st.text())
def test_any_text_gives_something_without_white_space_around_it_or_nothing(text) -> None:
    for whole in (False, True):
        stated = find_stated_answer(text, whole=whole)
        assert stated is None or (stated and stated == stated.strip() and stated in text)


@pytest.mark.parametrize("piece", ["<answer>", "</answer>", "\\boxed{", "{", "####", "</think>", "\n", " ", "a"])
def test_a_megabyte_takes_no_time(piece) -> None:
    began = time.process_time()
    find_stated_answer(piece * (1_000_000 // len(piece)))
    find_stated_answer("\\boxed{" + piece * (1_000_000 // len(piece)))
    assert time.process_time() - began < 1.0
