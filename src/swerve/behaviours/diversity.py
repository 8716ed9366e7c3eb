"""How much texts differ from one another: n-grams of words, embeddings, answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from swerve.behaviours.text_measures import split_words
from swerve.errors import MissingExtraError

Embedder = Callable[[Sequence[str]], ArrayLike]
"""Texts -> one vector each, `[num_texts, dimension]`."""


def _ngrams(text: str, n: int) -> Iterable[tuple[str, ...]]:
    words = split_words(text)
    return zip(*(words[start:] for start in range(n)), strict=False)


def ngram_similarity(texts: Sequence[str], n: int = 2) -> float | None:
    """Return the mean cosine similarity over all pairs of texts, each as its counts of word n-grams.

    mean over i < j of cos(c_i, c_j) = (|sum_i u_i|^2 - k) / (k (k - 1)),  u_i = c_i / |c_i|

    which is exact and needs no pairs. 1: all texts have the same n-grams; 0: no two share any. A text of fewer than n
    words has no direction and is left out; None where fewer than two are left.

    >>> round(ngram_similarity(["a b", "a b", "b a"]), 6)
    0.333333
    """
    # The sum of the unit vectors.
    total: dict[tuple[str, ...], float] = {}
    num = 0
    for text in texts:
        counts = Counter(_ngrams(text, n))
        if not counts:
            continue
        num += 1
        norm = math.sqrt(sum(count * count for count in counts.values()))
        for ngram, count in counts.items():
            total[ngram] = total.get(ngram, 0.0) + count / norm
    return None if num < 2 else max(0.0, _mean_cosine(math.fsum(value * value for value in total.values()), num))


def _mean_cosine(squared_norm_of_sum: float, num: int) -> float:
    return min(1.0, max(-1.0, (squared_norm_of_sum - num) / (num * (num - 1))))


def distinct_ngram_share(texts: Sequence[str], n: int = 2) -> float | None:
    """Return distinct-n: the number of distinct word n-grams of all texts together over the number of n-grams.

    It falls as texts become more or longer, so compare groups of like size and length. None where there is no n-gram.
    Source: Li et al., A Diversity-Promoting Objective Function (arXiv:1510.03055).

    >>> distinct_ngram_share(["a b c", "a b d"])
    0.75
    """
    counts = Counter(ngram for text in texts for ngram in _ngrams(text, n))
    total = counts.total()
    return len(counts) / total if total else None


def embedding_similarity(texts: Sequence[str], embed: Embedder) -> float | None:
    """Return the mean cosine similarity over all pairs of texts, each as a vector; None for fewer than two.

    A text whose vector is zero or not finite is left out.

    >>> embedding_similarity(["a", "b"], lambda texts: [[1.0, 0.0], [0.0, 2.0]])
    0.0
    """
    if len(texts) < 2:
        return None
    vectors = np.asarray(embed(list(texts)), dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1)
    usable = np.isfinite(norms) & (norms > 0)
    num = int(usable.sum())
    if num < 2:
        return None
    mean = (vectors[usable] / norms[usable, None]).sum(axis=0)
    return _mean_cosine(float(mean @ mean), num)


def load_embedder(model: str) -> Embedder:
    """Return a function that embeds texts by a model of sentence-transformers, each text once.

    Args:
        model: folder or name of the model; its weights must be safetensors, and no code of it is run.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtraError("sentence-transformers", "embeddings", "embedding similarity") from None
    encoder: Any = SentenceTransformer(model, trust_remote_code=False, model_kwargs={"use_safetensors": True})
    # A text comes again with each measure and label.
    vectors: dict[str, ArrayLike] = {}

    def embed(texts: Sequence[str]) -> ArrayLike:
        new = list(dict.fromkeys(text for text in texts if text not in vectors))
        if new:
            vectors.update(zip(new, encoder.encode(new, show_progress_bar=False), strict=True))
        return np.array([vectors[text] for text in texts])

    return embed


def num_distinct(answers: Iterable[str | None]) -> int:
    """Return the number of different answers up to white space; None is no answer.

    >>> num_distinct(["a  b", "a b", None, "b a"])
    2
    """
    return len({" ".join(answer.split()) for answer in answers if answer is not None})
