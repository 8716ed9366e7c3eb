"""The metrics of each label's responses, and how much the responses to one problem differ.

Intervals are over problems.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from swerve.artifacts.responses import Response
from swerve.behaviours.response_format import RESPONSE_FORMATS
from swerve.behaviours.response_rows import Lexicon, Row, behaviour_rows, default_lexicon, samples_of
from swerve.behaviours.signs import SIGNS
from swerve.behaviours.text_measures import split_words
from swerve.errors import MissingExtraError
from swerve.statistics.intervals import mean_interval, ratio_interval
from swerve.statistics.jackknife import UNBOUNDED, Bounds

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
    """Return a function that embeds texts by a model of sentence-transformers.

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
    return lambda texts: encoder.encode(list(texts), show_progress_bar=False)


def num_distinct(answers: Iterable[str | None], canonical: Callable[[str], str] | None = None) -> int:
    """Return the number of different answers; None is no answer.

    Args:
        answers: one per response.
        canonical: brings answers that mean the same to the same form; by default white space is made uniform.

    >>> num_distinct(["a  b", "a b", None, "b a"])
    2
    """
    form = canonical or (lambda answer: " ".join(answer.split()))
    return len({form(answer) for answer in answers if answer is not None})


Figure = dict[str, Any] | None
"""A mean with the ends of its interval over problems, as `estimates.Estimate` has them; None: not measured."""
_SHARE = (0.0, 1.0)


def _mean(values: Sequence[float], *, clusters: Sequence[str], bounds: Bounds = UNBOUNDED) -> Figure:
    estimate = mean_interval(values, clusters=clusters, bounds=bounds)
    return None if estimate is None else asdict(estimate)


def summarise(
    responses: Sequence[Response],
    *,
    rows: Sequence[Row] | None = None,
    lexicon: Lexicon | None = None,
    canonical: Callable[[str], str] | None = None,
    embed: Embedder | None = None,
) -> list[dict[str, Any]]:
    """Return the metrics of each label, in the order in which labels first occur; strict JSON, null is not measured.

    Args:
        responses: with texts.
        rows: `behaviour_rows` of the same responses, where they are there already.
        lexicon: the phrases to count; by default those that ship.
        canonical: brings answers that mean the same to the same form, for counting different ones.
        embed: texts -> vectors (`load_embedder`), for the similarity of embeddings.

    Raises:
        ValueError: there are not as many rows as responses.

    >>> from swerve.types import Problem
    >>> problem = Problem(id="p", family="math", question="2 + 2?", answer="4")
    >>> summarise([Response(problem=problem, text="so 4", correct=True)])[0]["accuracy"]["mean"]
    1.0
    """
    phrases = lexicon or default_lexicon()
    # By label, in the order of the responses.
    measured = behaviour_rows(responses, lexicon=phrases) if rows is None else rows
    labels: dict[str, list[tuple[Response, Row]]] = {}
    for response, row in zip(responses, measured, strict=True):
        labels.setdefault(row["label"], []).append((response, row))
    return [
        {
            "label": label,
            **_Label([row for _, row in pairs]).metrics(phrases),
            **_group_metrics([response for response, _ in pairs], canonical, embed),
        }
        for label, pairs in labels.items()
    ]


class _Label:
    """The metrics of one label's rows."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def metrics(self, lexicon: Lexicon) -> dict[str, Any]:
        # Each figure is over the rows that have what it needs.
        return {
            "num_responses": len(self._rows),
            "num_problems": len({row["problem_id"] for row in self._rows}),
            "accuracy": self._of("correct", _SHARE),
            "length": {unit: self._of(f"num_{unit}") for unit in ("tokens", "words", "characters")},
            "truncated": self._over(
                [(row, row["finish_reason"] == "length") for row in self._rows if row["finish_reason"] is not None]
            ),
            "unfinished": self._of("unfinished", _SHARE),
            "format": {name: self._of(f"format_{name}", _SHARE) for name in RESPONSE_FORMATS},
            "thinking": self._thinking(),
            "repetition": {
                "repeated_4grams": self._of("repeated_4grams", _SHARE),
                "compression_ratio": self._of("compression_ratio"),
                "loop_at_end": self._over([(row, row["loop_period"] is not None) for row in self._rows]),
            },
            "reflection": {
                name: self._reflection([f"reflection_{each}" for each in behaviours])
                for name, behaviours in (("all", lexicon.behaviours), *((each, (each,)) for each in lexicon.behaviours))
            },
            "foreign_script_share": self._of("foreign_script_share", _SHARE),
            "signs": {name: self._sign(name) for name in SIGNS},
        }

    def _over(self, pairs: Sequence[tuple[Row, float]], bounds: Bounds = _SHARE) -> Figure:
        clusters = [row["problem_id"] for row, _ in pairs]
        return _mean([float(value) for _, value in pairs], clusters=clusters, bounds=bounds)

    def _of(self, column: str, bounds: Bounds = UNBOUNDED) -> Figure:
        return self._over([(row, row[column]) for row in self._rows if row[column] is not None], bounds)

    def _thinking(self) -> dict[str, Any]:
        thought = [row for row in self._rows if row["thinking_words"] is not None]
        return {
            "num_responses": len(thought),
            "words": self._of("thinking_words"),
            "dummy": self._over([(row, row["dummy_thinking"] is not None) for row in thought]),
            **{
                reason: self._over([(row, row["dummy_thinking"] == reason) for row in thought])
                for reason in ("empty", "filler", "short", "off_question")
            },
        }

    def _reflection(self, columns: Sequence[str]) -> dict[str, Figure]:
        counts = [sum(row[column] for column in columns) for row in self._rows]
        clusters = [row["problem_id"] for row in self._rows]
        thousands = [row["num_words"] / 1000 for row in self._rows]
        rate = ratio_interval(list(map(float, counts)), thousands, clusters=clusters, bounds=(0.0, math.inf))
        return {
            "per_response": _mean([float(count) for count in counts], clusters=clusters),
            "per_1000_words": None if rate is None else asdict(rate),
            "share": _mean([float(count > 0) for count in counts], clusters=clusters, bounds=_SHARE),
        }

    def _sign(self, name: str) -> dict[str, Any]:
        judged = [row for row in self._rows if row[f"sign_{name}"] is not None]
        return {
            "num_judged": len(judged),
            "share": self._of(f"sign_{name}", _SHARE),
            "rows": [row["row"] for row in judged if row[f"sign_{name}"]],
        }


def _group_metrics(
    responses: Sequence[Response], canonical: Callable[[str], str] | None, embed: Embedder | None
) -> dict[str, Any]:
    """Return how much the responses to one problem differ, over the groups with two or more."""
    groups: dict[tuple[str, str | None], list[Response]] = {}
    for response in responses:
        groups.setdefault((response.problem.id, samples_of(response)), []).append(response)
    # What the samples of a group share is asked of two and more.
    several = {key: group for key, group in groups.items() if len(group) > 1}
    answers_are_recorded = any(response.extracted is not None for group in several.values() for response in group)

    def over(function: Callable[[list[Response]], float | None], bounds: Bounds = UNBOUNDED) -> Figure:
        values = [(problem, function(group)) for (problem, _), group in several.items()]
        known = [(problem, value) for problem, value in values if value is not None]
        return _mean([value for _, value in known], clusters=[problem for problem, _ in known], bounds=bounds)

    def distinct_answers(group: list[Response], *, only_right: bool) -> float | None:
        verdicts = [response.verdict for response in group]
        if not answers_are_recorded or (only_right and set(verdicts) == {None}):
            return None
        pairs = zip(group, verdicts, strict=True)
        return num_distinct([one.extracted for one, is_right in pairs if is_right or not only_right], canonical)

    def of_texts(function: Callable[[list[str]], float | None]) -> Callable[[list[Response]], float | None]:
        return lambda group: function([response.text or "" for response in group])

    similarity = None if embed is None else of_texts(lambda texts: embedding_similarity(texts, embed))
    return {
        "groups": {
            "num_groups": len(several),
            "samples": over(lambda group: float(len(group))),
            "distinct_answers": over(partial(distinct_answers, only_right=False)),
            "distinct_right_answers": over(partial(distinct_answers, only_right=True)),
            "ngram_similarity": over(of_texts(ngram_similarity), _SHARE),
            "distinct_2grams": over(of_texts(distinct_ngram_share), _SHARE),
            "embedding_similarity": None if similarity is None else over(similarity, (-1.0, 1.0)),
        }
    }
