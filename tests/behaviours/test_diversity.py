"""Similarity against all pairs, and the extra that is imported late."""

from __future__ import annotations

import itertools
import math
import sys
import types
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.behaviours import (
    distinct_ngram_share,
    embedding_similarity,
    load_embedder,
    ngram_similarity,
    num_distinct,
)
from swerve.errors import MissingExtraError

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
    assert num_distinct(["1/2", "0.5"], canonical=lambda answer: "half") == 1
    assert num_distinct([None]) == 0
