from __future__ import annotations

import itertools
import json
import math
import sys
import types
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.responses import Response
from swerve.behaviours.diversity import (
    distinct_ngram_share,
    embedding_similarity,
    load_embedder,
    ngram_similarity,
    num_distinct,
)
from swerve.behaviours.label_summary import summarise
from swerve.behaviours.response_rows import behaviour_rows, parse_lexicon
from swerve.errors import MissingExtraError
from swerve.statistics.intervals import mean_interval
from swerve.types import Problem

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=6).map(" ".join), max_size=6)


def _grams(text, n):
    words = text.split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _cosine(one, other):
    return sum(one[gram] * other[gram] for gram in one) / math.sqrt(
        sum(count**2 for count in one.values()) * sum(count**2 for count in other.values())
    )


@given(TEXTS, st.integers(1, 3))
def test_similarity_is_the_mean_over_all_pairs(texts, n):
    grams = [found for found in (_grams(text, n) for text in texts) if found]
    pairs = [_cosine(one, other) for one, other in itertools.combinations(grams, 2)]
    expected = pytest.approx(sum(pairs) / len(pairs), abs=1e-9) if pairs else None
    assert ngram_similarity(texts, n) == expected


def test_similarity_by_hand():
    assert ngram_similarity(["a b c", "a b c"]) == pytest.approx(1.0)
    assert ngram_similarity(["a b c", "d e f"]) == 0.0
    assert ngram_similarity(["a a b", "a b b"], n=1) == pytest.approx(4 / 5)
    assert ngram_similarity(["a b"]) is None


@given(TEXTS, st.integers(1, 3))
def test_distinct_ngrams_against_the_definition(texts, n):
    grams = [gram for text in texts for gram in _grams(text, n).elements()]
    assert distinct_ngram_share(texts, n) == (pytest.approx(len(set(grams)) / len(grams)) if grams else None)


def test_embeddings_over_all_pairs():
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.mean([unit[i] @ unit[j] for i, j in itertools.combinations(range(5), 2)])
    assert embedding_similarity(list("abcde"), lambda texts: vectors) == pytest.approx(expected)
    assert embedding_similarity(["a", "b", "c"], lambda texts: [[1, 0], [0, 0], [math.nan, 1]]) is None
    assert embedding_similarity(["a"], lambda texts: [[1.0]]) is None


def test_the_embedder_runs_no_code_of_the_model(monkeypatch):
    asked = {}

    class SentenceTransformer:
        def __init__(self, model, **options):
            asked.update(options, model=model)

        def encode(self, texts, show_progress_bar):
            return np.array([[len(text), 1.0] for text in texts])

    fake = types.ModuleType("sentence_transformers")
    fake.SentenceTransformer = SentenceTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    embed = load_embedder("models/mini")
    assert embedding_similarity(["aa", "bb"], embed) == pytest.approx(1.0)
    assert asked == {"model": "models/mini", "trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}


def test_without_the_package_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"swerve\[embeddings\]"):
        load_embedder("models/mini")


def test_different_answers():
    assert num_distinct(["abba", "abba", "baab", None]) == 2
    assert num_distinct([None]) == 0


GOOD = "<think>Zoe lies, so Bob is a knight</think><answer>{}</answer>"


def _record(problem, response, **known):
    asked = Problem(id=problem, family="math", question="", answer="")
    return Response(problem=asked, text=response, place=f"{problem}: {response[:20]}", **known)


def _mean(figure):
    return None if figure is None else figure["mean"]


def test_figures_by_label():
    records = [
        _record(
            "p", GOOD.format(1), label="step 1", correct=True, finish_reason="stop", completion_ids=tuple(range(10))
        ),
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
    assert (sign["num_judged"], _mean(sign["share"]), sign["rows"]) == (2, 0.5, [records[1].place])
    assert second["label"] == "step 2"
    assert second["accuracy"] is second["truncated"] is second["thinking"]["dummy"] is None
    assert {name: _mean(figure) for name, figure in second["reflection"]["hesitation"].items()} == {
        "per_response": 2.0,
        "per_1000_words": pytest.approx(2000 / 3),
        "share": 1.0,
    }
    assert second["reflection"]["all"] == second["reflection"]["hesitation"]
    json.dumps([first, second], allow_nan=False)


def test_figures_of_groups():
    records = [
        _record("p", "a b c", extracted="1", correct=True),
        _record("p", "a b c", extracted=" 1", correct=True),
        _record("p", "a b d", extracted="2", correct=True),
        _record("q", "x y", extracted=None, correct=False),
        _record("q", "y x", extracted=None, correct=False),
        _record("alone", "z", extracted="4", correct=True),
    ]
    (label,) = summarise(records, embed=lambda texts: [[float(len(text)), 0.0] for text in texts])
    groups = label["groups"]
    assert groups["num_groups"] == 2
    assert _mean(groups["samples"]) == 2.5
    assert _mean(groups["distinct_answers"]) == pytest.approx((2 + 0) / 2)
    assert _mean(groups["distinct_right"]) == pytest.approx((2 + 0) / 2)
    assert _mean(groups["similarity"]) == pytest.approx(((1 + 0.5 + 0.5) / 3 + 0) / 2)
    assert _mean(groups["distinct_2grams"]) == pytest.approx((3 / 6 + 2 / 2) / 2)
    assert _mean(groups["embedding_similarity"]) == pytest.approx(1.0)


def test_samples_drawn_apart_are_other_groups():
    records = [_record("p", "a b", group=group) for group in (1, 1, 2, 2, 3)]
    assert summarise(records)[0]["groups"]["num_groups"] == 2


def test_what_is_not_known_is_none():
    (label,) = summarise([_record("p", ""), _record("p", "")])
    groups = label["groups"]
    assert groups["distinct_answers"] is groups["distinct_right"] is groups["similarity"] is None
    assert label["reflection"]["all"]["per_1000_words"] is None
    assert label["repetition"]["repeated_4grams"] is None
    assert summarise([]) == []


def test_intervals_are_over_problems():
    (label,) = summarise([_record("p", "4", correct=True), _record("q", "5", correct=False)])
    expected = mean_interval([1.0, 0.0], clusters=["p", "q"], bounds=(0.0, 1.0))
    assert label["accuracy"] == asdict(expected)


def test_an_own_lexicon():
    records = [_record("p", "hic", extracted="1/2"), _record("p", "hic", extracted="0.5")]
    lexicon = parse_lexicon("latin: [hic]", source="own.yaml")
    (label,) = summarise(records, lexicon=lexicon)
    assert _mean(label["groups"]["distinct_answers"]) == 2.0
    assert list(label["reflection"]) == ["all", "latin"]


def test_rows_belong_to_records():
    record = _record("p", "4")
    with pytest.raises(ValueError, match="zip"):
        summarise([record], rows=behaviour_rows([record, record]))
