from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.artifacts.responses import Response
from swerve.behaviours.measures import problem_values
from swerve.behaviours.response_rows import (
    behaviour_rows,
    count_behaviours,
    default_lexicon,
    parse_lexicon,
    read_lexicon,
)
from swerve.behaviours.text_measures import split_words
from swerve.errors import ConfigError
from swerve.types import Problem
from tests.cases import each


def _response(text, *, question="", prefix=""):
    problem = Problem(id="p", family="math", question=question, answer="", prefix=prefix)
    return Response(problem=problem, text=text)


def test_the_whole_answer_begins_with_what_the_model_was_given():
    (row,) = behaviour_rows([_response("a</think>", prefix="<think>")])
    assert row["thinking_words"] == 1


def _counts(text, lexicon):
    return {name: num for name, num in count_behaviours(split_words(text), lexicon).items() if num}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Wait, wait. Awaiting waiters.", {"hesitation": 2}),
        ("Let me check this: let me CHECK", {"verification": 2}),
        ("Alternatively, we re-evaluate; however, that\u2019s wrong.", {"contrast": 2, "backtracking": 2}),
        ("Working backwards from 24 ...", {"backward_chaining": 1}),
        ("In summary, step by step", {"summary": 1, "subgoal_setting": 1}),
        ("The checkbook of Mr. Yeti", {}),
        ("", {}),
    ],
)
def test_the_shipped_lexicon(text, counts):
    assert _counts(text, default_lexicon()) == counts


def test_the_longest_phrase_counts_and_no_word_twice():
    lexicon = parse_lexicon("a: [check, check again, again]\nb: [again and again]", source="x.yaml")
    assert _counts("check again", lexicon) == {"a": 1}
    assert _counts("check again and again", lexicon) == {"a": 2}
    assert _counts("again and again, check", lexicon) == {"a": 1, "b": 1}


def test_the_words_of_the_literature_are_in_the_shipped_lexicon():
    for word in ("wait", "verify", "yet", "re-evaluate", "recheck", "alternatively", "however", "retry"):
        assert sum(_counts(word, default_lexicon()).values()) == 1, word


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a, b]", "own.yaml: a lexicon is a mapping such as"),
        ("", "own.yaml: a lexicon is a mapping such as"),
        ("doubt: wait", "own.yaml:1: 'doubt' must be a list"),
        ("doubt: []", "own.yaml:1: 'doubt' must be a list"),
        ("doubt:\n  - wait\n  - 3", "own.yaml:3: 3 of 'doubt' is not a word"),
        ("doubt:\n  - '...'", "own.yaml:2: '...' of 'doubt' is not a word"),
        ("doubt: [wait]\nmore:\n  - Wait!", "own.yaml:3: 'Wait!' of 'more' is listed under 'doubt' already"),
    ],
)
def test_wrong_lexicons(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_lexicon(text, source="own.yaml")
    assert message in str(caught.value)


def test_files(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("doubt: [not sure]", encoding="utf-8")
    assert _counts("I am not sure", read_lexicon(path)) == {"doubt": 1}
    with pytest.raises(ConfigError, match=r"missing\.yaml cannot be read"):
        read_lexicon(tmp_path / "missing.yaml")


_PIECES = ["<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "}", "{", "\\[", "```", "wait ", "A. ", "\n"]
HOSTILE = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=12).map("".join)
ANY_TEXT = st.text(st.characters(), max_size=80) | HOSTILE  # lone surrogates too


@settings(max_examples=200)
@given(ANY_TEXT, st.none() | ANY_TEXT)
def test_no_text_raises_and_rows_are_strict_json(text, question):
    record = _response(text, question=question or "")
    (row,) = behaviour_rows([record])
    json.dumps(row, allow_nan=False)
    json.dumps(problem_values({"p": [_response(text, question=question)]}), allow_nan=False)
    assert row["num_characters"] == len(text)
    assert row["num_words"] >= sum(row[name] for name in row if name.startswith("reflection_"))


def test_a_row_by_hand():
    text = "Zoe lies. Wait, verify: yes yes yes yes yes.</think> <answer>Zoe is a knave</answer>"
    known = {"place": "f, line 3", "label": "step 1", "completion_ids": tuple(range(20)), "correct": True}
    record = replace(_response(text, prefix="<think>"), **known)
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
    with_prefix = _response("</think>4", prefix="<think>Hmm, so the")
    (row,) = behaviour_rows([with_prefix])
    assert (row["num_words"], row["reflection_hesitation"], row["thinking_words"]) == (1, 0, 3)


def test_an_own_lexicon_gives_its_own_columns():
    (row,) = behaviour_rows(
        [_response("hic sunt dracones")],
        lexicon=parse_lexicon("latin: [hic sunt]", source="own.yaml"),
    )
    assert {name: value for name, value in row.items() if name.startswith("reflection_")} == {"reflection_latin": 1}


def test_measures_by_hand():
    asked = (("user", "Use <think> </think> and <answer> </answer>."),)
    texts = [
        ("so it is</think><answer>4</answer>", "<think>"),
        ("</think><answer>5</answer>", "<think>"),
        ("wait, 4", ""),
    ]
    group = [
        replace(response, problem=replace(response.problem, messages=asked))
        for response in (_response(text, prefix=prefix) for text, prefix in texts)
    ]
    values = problem_values({"p": group})
    assert values["in_format"]["p"] == pytest.approx(2 / 3)
    assert values["empty_thinking"]["p"] == 1.0  # a few words and none; the third has no thinking
    assert values["reflections"]["p"] == pytest.approx(1000 / 7)
    assert "repeated_4grams" not in problem_values({"p": group[1:]})  # no text has four words
    rest = problem_values({"p": group}, leave_out=("reflections",))
    assert list(rest) == [name for name in values if name != "reflections"]  # files have them in the same order


def test_measures_look_for_thinking_about_something_else():
    question = "How many apples does Ann have?"
    text = "<think>the weather will be fine today</think><answer>4</answer>"
    asked, unknown = (problem_values({"p": [_response(text, question=each)]}) for each in (question, ""))
    assert (asked["empty_thinking"], unknown["empty_thinking"]) == ({"p": 1.0}, {"p": 0.0})


@pytest.mark.slow
@each("piece", ["\\boxed{", "<answer>", "x is a ", "\n ", "```", "wait ", "A. ", "((", "\u7b54"])
def test_a_megabyte_of_hostile_text_takes_seconds(piece):
    text = piece * (300_000 // len(piece))
    start = time.process_time()
    behaviour_rows([_response(text, question=text[:1000])])
    assert time.process_time() - start < 4
