from __future__ import annotations

import json

import pytest

from swerve.behaviours import BehaviourRecord, behaviour_rows, summarise
from swerve.behaviours.lexicon import parse_lexicon

GOOD = "<think>Zoe lies, so Bob is a knight</think><answer>{}</answer>"


def _record(problem, response, **known):
    return BehaviourRecord(problem_id=problem, response=response, row=f"{problem}: {response[:20]}", **known)


def _mean(figure):
    return None if figure is None else figure["mean"]


def test_figures_by_label():
    records = [
        _record("p", GOOD.format(1), label="step 1", correct=True, finish_reason="stop", num_tokens=10),
        _record("q", "<think></think><answer>2</answer>", label="step 1", correct=False, finish_reason="length"),
        _record("p", "wait, wait: 4", label="step 2"),
    ]
    first, second = summarise(records)
    assert (first["label"], first["num_responses"], first["num_problems"]) == ("step 1", 2, 2)
    assert _mean(first["accuracy"]) == 0.5
    assert _mean(first["truncated"]) == 0.5
    assert _mean(first["length"]["tokens"]) == 10
    assert _mean(first["format"]["think_answer"]) == 1.0
    assert first["thinking"]["num_responses"] == 2
    assert _mean(first["thinking"]["dummy"]) == _mean(first["thinking"]["empty"]) == 0.5
    sign = first["signs"]["answer_without_thinking"]
    assert (sign["num_judged"], sign["share"], sign["rows"]) == (2, {"mean": 0.5}, [records[1].row])
    assert second["label"] == "step 2"
    assert second["accuracy"] is second["truncated"] is second["thinking"]["dummy"] is None
    assert second["reflection"]["hesitation"] == {
        "per_response": {"mean": 2.0},
        "per_1000_words": {"mean": pytest.approx(2000 / 3)},
        "share": {"mean": 1.0},
    }
    assert second["reflection"]["all"] == second["reflection"]["hesitation"]
    json.dumps([first, second], allow_nan=False)


def test_figures_of_groups():
    records = [
        _record("p", "a b c", extracted="1", correct=True),
        _record("p", "a b c", extracted=" 1", correct=True),
        _record("p", "a b d", extracted="2", correct=True),
        _record("q", "x y", extracted=None, correct=False),
        _record("q", "y x", extracted="3", correct=False),
        _record("alone", "z", extracted="4", correct=True),
    ]
    (label,) = summarise(records, embed=lambda texts: [[float(len(text)), 0.0] for text in texts])
    groups = label["groups"]
    assert groups["num_groups"] == 2
    assert _mean(groups["samples"]) == 2.5
    assert _mean(groups["distinct_answers"]) == pytest.approx((2 + 1) / 2)
    assert _mean(groups["distinct_right_answers"]) == pytest.approx((2 + 0) / 2)
    assert _mean(groups["ngram_similarity"]) == pytest.approx(((1 + 0.5 + 0.5) / 3 + 0) / 2)
    assert _mean(groups["distinct_2grams"]) == pytest.approx((3 / 6 + 2 / 2) / 2)
    assert _mean(groups["embedding_similarity"]) == pytest.approx(1.0)


def test_samples_drawn_apart_are_other_groups():
    records = [_record("p", "a b", group=group) for group in ("1", "1", "2", "2", "3")]
    assert summarise(records)[0]["groups"]["num_groups"] == 2


def test_what_is_not_known_is_none():
    (label,) = summarise([_record("p", ""), _record("p", "")])
    groups = label["groups"]
    assert groups["distinct_answers"] is groups["distinct_right_answers"] is groups["ngram_similarity"] is None
    assert label["reflection"]["all"]["per_1000_words"] is None
    assert label["repetition"]["repeated_4grams"] is None
    assert summarise([]) == []


def test_intervals_are_the_callers():
    calls = []

    def mean(values, *, clusters, bounds=None):
        calls.append((list(values), list(clusters), bounds))
        return {"mean": 7.0, "low": 0.0, "high": 9.0} if values else None

    (label,) = summarise([_record("p", "4", correct=True), _record("q", "5", correct=False)], mean=mean)
    assert label["accuracy"] == {"mean": 7.0, "low": 0.0, "high": 9.0}
    assert ([1.0, 0.0], ["p", "q"], (0.0, 1.0)) in calls


def test_an_own_canonical_form_and_lexicon():
    records = [_record("p", "hic", extracted="1/2"), _record("p", "hic", extracted="0.5")]
    lexicon = parse_lexicon("latin: [hic]", source="own.yaml")
    (label,) = summarise(records, lexicon=lexicon, canonical=lambda answer: "half")
    assert _mean(label["groups"]["distinct_answers"]) == 1.0
    assert list(label["reflection"]) == ["all", "latin"]


def test_rows_belong_to_records():
    record = _record("p", "4")
    with pytest.raises(ValueError, match="zip"):
        summarise([record], rows=behaviour_rows([record, record]))
