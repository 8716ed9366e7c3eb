"""Rows of responses: known values, any text at all, and the figures of a training step."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.behaviours import BehaviourRecord, behaviour_figures, behaviour_rows
from swerve.behaviours.lexicon import parse_lexicon

_PIECES = ["<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "}", "{", "\\[", "```", "wait ", "A. ", "\n"]
HOSTILE = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=12).map("".join)
ANY_TEXT = st.text(st.characters(), max_size=80) | HOSTILE  # lone surrogates too


@settings(max_examples=200)
@given(ANY_TEXT, st.none() | ANY_TEXT)
def test_no_text_raises_and_rows_are_strict_json(text, question):
    record = BehaviourRecord(problem_id="p", response=text, question=question)
    (row,) = behaviour_rows([record])
    json.dumps(row, allow_nan=False)
    json.dumps(behaviour_figures([text], [question]), allow_nan=False)
    assert row["num_characters"] == len(text)
    assert row["num_words"] >= sum(row[name] for name in row if name.startswith("reflection_"))


def test_a_row_by_hand():
    text = "Zoe lies. Wait, verify: yes yes yes yes yes.</think> <answer>Zoe is a knave</answer>"
    record = BehaviourRecord(
        problem_id="p", response=text, prefix="<think>", row="f, line 3", label="step 1", num_tokens=20, correct=True
    )
    (row,) = behaviour_rows([record])
    expected = {
        "row": "f, line 3",
        "label": "step 1",
        "num_words": 13,
        "num_tokens": 20,
        "format_think_answer": True,
        "format_boxed": False,
        "thinking_words": 9,
        "dummy_thinking": None,
        "repeated_4grams": pytest.approx(1 / 10),
        "loop_period": None,
        "foreign_script_share": 0.0,
        "num_candidates": 1,
        "reflection_hesitation": 1,
        "reflection_verification": 1,
        "reflection_summary": 0,
        "sign_answer_without_thinking": False,
        "sign_lists_all_options": None,
        "unfinished": False,
    }
    assert {name: row[name] for name in expected} == expected


def test_the_prefix_is_not_what_the_model_wrote():
    with_prefix = BehaviourRecord(problem_id="p", response="</think>4", prefix="<think>Hmm, so the")
    (row,) = behaviour_rows([with_prefix])
    assert (row["num_words"], row["reflection_hesitation"], row["thinking_words"]) == (1, 0, 3)


def test_an_own_lexicon_gives_its_own_columns():
    (row,) = behaviour_rows(
        [BehaviourRecord(problem_id="p", response="hic sunt dracones")],
        lexicon=parse_lexicon("latin: [hic sunt]", source="own.yaml"),
    )
    assert {name: value for name, value in row.items() if name.startswith("reflection_")} == {"reflection_latin": 1}


def test_figures_of_a_step():
    texts = ["a b c d a b c d</think><answer>4</answer>", "...</think><answer>wait</answer>", "so \\boxed{4}"]
    figures = behaviour_figures(texts, prefixes=["<think>", "<think>", ""])
    assert figures == {
        "format_rate": pytest.approx(2 / 3),
        "dummy_thinking_share": 0.5,
        "repeated_4gram_share": pytest.approx(1 / 6),
        "reflections_per_1000_words": pytest.approx(1000 / 13),
    }
    assert behaviour_figures(texts, response_format="boxed")["format_rate"] == pytest.approx(1 / 3)


def test_figures_of_nothing_are_none():
    assert set(behaviour_figures([]).values()) == {None}
    assert behaviour_figures(["4"])["dummy_thinking_share"] is None


def test_questions_belong_to_texts():
    with pytest.raises(ValueError, match="2 texts, 1 questions and 2 prefixes"):
        behaviour_figures(["a", "b"], ["q"])


def test_figures_look_for_thinking_about_something_else():
    question = "How many apples does Ann have?"
    text = "<think>the weather will be fine today</think><answer>4</answer>"
    assert behaviour_figures([text], [question])["dummy_thinking_share"] == 1.0
    assert behaviour_figures([text])["dummy_thinking_share"] == 0.0


def test_figures_are_cheap():
    text = "<think>" + "Let me check that 12 + 30 = 42, since 10 + 30 = 40. " * 40 + "</think><answer>42</answer>"
    behaviour_figures([text])
    start = time.process_time()
    behaviour_figures([text] * 50)
    assert (time.process_time() - start) / 50 < 0.004  # under a millisecond on an idle core


@pytest.mark.parametrize("piece", ["\\boxed{", "<answer>", "x is a ", "\n ", "```", "wait ", "A. ", "((", "\u7b54"])
def test_a_megabyte_of_hostile_text_takes_seconds(piece):
    text = piece * (300_000 // len(piece))
    start = time.process_time()
    behaviour_rows([BehaviourRecord(problem_id="p", response=text, question=text[:1000])])
    assert time.process_time() - start < 4
