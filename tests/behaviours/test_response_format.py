from __future__ import annotations

import gzip
import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.behaviours.response_format import boxed_contents, dummy_thinking, has_format, is_unfinished, split_regions
from tests.cases import each

TAGS = ("<think>", "</think>", "<answer>", "</answer>")


@given(st.lists(st.sampled_from([*TAGS, "x", " "]), max_size=7))
def test_the_think_answer_format_is_each_tag_once_in_order(pieces):
    tags = [piece for piece in pieces if piece in TAGS]
    # The first may have been the end of the prompt.
    assert has_format("".join(pieces), "think_answer") == (tags == list(TAGS))


def test_every_order_of_the_tags_but_one_is_refused():
    right = [order for order in itertools.permutations(TAGS) if has_format(" a ".join(order), "think_answer")]
    assert right == [TAGS]


@pytest.mark.parametrize("again", TAGS)
def test_a_tag_that_occurs_twice_breaks_the_format(again):
    for tags in ([again, *TAGS], [*TAGS, again]):
        assert not has_format("".join(tags), "think_answer")


def test_the_recorded_format_verdicts_are_reproduced(shared_data):
    with gzip.open(shared_data("rollouts") / "prop_logic_formula.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert [row["idx"] for row in rows if has_format(row["response"], "think_answer") != row["format_ok"]] == []


@pytest.mark.parametrize(
    ("text", "answer_tag", "boxed"),
    [
        (r"<answer>4</answer>", True, False),
        (r"<answer>4", False, False),
        (r"</answer><answer>", False, False),
        (r"so \boxed{4}", False, True),
        (r"so \boxed{}", False, False),
        (r"so \boxed{4", False, False),
        (r"so \boxed 4", False, False),
    ],
)
def test_the_other_formats(text, answer_tag, boxed):
    assert has_format(text, "answer_tag") is answer_tag
    assert has_format(text, "boxed") is boxed


@pytest.mark.parametrize(
    ("text", "thinking", "rest", "answers"),
    [
        ("plain", None, "plain", ()),
        ("<think>a</think>b", "a", "b", ()),
        ("a</think> b <answer>c</answer>", "a", " b <answer>c</answer>", ("c",)),
        ("<think>a", "a", "", ()),
        ("<think>a<answer>b</answer>", "a", "<answer>b</answer>", ("b",)),
        ("<think>a</think><answer>1</answer><answer>2</answer><answer>3", "a", None, ("1", "2")),
        ("<think>see <answer>0</answer></think><answer>1</answer>", "see <answer>0</answer>", None, ("1",)),
        ("x</think>y<think>z</think>", "x", "y<think>z</think>", ()),
    ],
)
def test_regions(text, thinking, rest, answers):
    found = split_regions(text)
    assert (found.thinking, found.answers) == (thinking, answers)
    assert rest is None or found.rest == rest


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"\boxed{1}\fboxed{2} \boxed {3}", ["1", "2", "3"]),
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"]),
        (r"\boxed{a \boxed{b} c} \boxed{d}", [r"a \boxed{b} c", "d"]),
        (r"\boxed{open \boxed{closed}", ["closed"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"} \boxed{1} }", ["1"]),
        (r"\\\boxed{1}", ["1"]),
        ("\\boxed{", []),
    ],
)
def test_boxes(text, contents):
    assert boxed_contents(text) == contents


@each(
    ("text", "unfinished"),
    [
        ("", False),
        ("The answer is 4", False),
        ("answer 0 1 3", False),
        ("<think>first", True),
        ("<think>first<answer>4</answer>", False),
        ("<think>first</think><answer>4", True),
        ("<think>first</think><answer>4</answer>", False),
        ("```python\nprint(1)", True),
        ("```python\nprint(1)\n```", False),
        ("x,", True),
        ("\\[ x = 3", True),
        ("\\[ x = 3 \\]", False),
        ("\\[ \\boxed{3}\n", False),
        ("$$ a \\\\[2pt] b $$", False),
        ("so x = \n", True),
    ],
)
def test_what_looks_cut_off(text, unfinished):
    assert is_unfinished(text) is unfinished


@each("piece", ["\\boxed{", "<answer>", "<think>", "{", "}", "\\", "</answer>", "\\boxed{}", "\\["])
def test_a_megabyte_of_hostile_text_takes_linear_time(piece):
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    boxed_contents(text)
    split_regions(text)
    is_unfinished(text)
    assert time.process_time() - start < 3


QUESTION = "Zoey and Owen live on an island. Who is a knave?"


@each(
    ("thinking", "question", "reason"),
    [
        ("", None, "empty"),
        (" \n ...!  ", None, "empty"),
        ("reasoning process here", None, "filler"),
        ("Let me think about this step-by-step.", None, "filler"),
        ("hello hello hello hello hello", None, "filler"),
        ("Owen lies", None, "short"),
        ("Owen lies, so Zoey is a knight", None, None),
        ("Owen lies, so Zoey is a knight", QUESTION, None),
        ("bananas are yellow fruit and taste sweet", QUESTION, "off_question"),
        ("bananas are yellow fruit and taste sweet", None, None),
        ("the one who is where they are not", QUESTION, "off_question"),
        ("bananas are yellow fruit and taste sweet", "Why?", None),
        ("first 12 minus five gives seven", "What is 12 - 5 * 3?", None),
    ],
)
def test_reasons(thinking, question, reason):
    assert dummy_thinking(thinking, question) == reason
