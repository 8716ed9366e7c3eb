"""Rows of responses -> figures by label, so that a trend over training shows. Intervals are the caller's to give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from swerve.behaviours.diversity import (
    Embedder,
    distinct_ngram_share,
    embedding_similarity,
    ngram_similarity,
    num_distinct,
)
from swerve.behaviours.lexicon import Lexicon, default_lexicon
from swerve.behaviours.measurement import Row, behaviour_rows
from swerve.behaviours.records import BehaviourRecord
from swerve.behaviours.regions import RESPONSE_FORMATS
from swerve.behaviours.signs import SIGNS

__all__ = ["Figure", "Mean", "Ratio", "plain_mean", "plain_ratio", "summarise"]

Figure = Mapping[str, float] | None
"""A mean, with the ends `low` and `high` of its interval where the caller computes them; None: not measured."""
_SHARE = (0.0, 1.0)


class Mean(Protocol):
    """Mean of values that belong to clusters (problems), such as `swerve.statistics.bootstrap_mean`."""

    def __call__(
        self, values: Sequence[float], *, clusters: Sequence[str], bounds: tuple[float, float] | None = None
    ) -> Figure:
        """Return the figure, None of nothing; `bounds`: smallest and largest possible value."""


class Ratio(Protocol):
    """Ratio of sums over clusters (problems), such as `swerve.statistics.bootstrap_ratio`."""

    def __call__(
        self, numerators: Sequence[float], denominators: Sequence[float], *, clusters: Sequence[str]
    ) -> Figure:
        """Return the figure, None where the denominators sum to 0."""


def plain_mean(
    values: Sequence[float], *, clusters: Sequence[str], bounds: tuple[float, float] | None = None
) -> Figure:
    """Return the mean without an interval; None of nothing.

    >>> plain_mean([1.0, 2.0], clusters=["p", "q"])
    {'mean': 1.5}
    """
    return {"mean": math.fsum(values) / len(values)} if values else None


def plain_ratio(numerators: Sequence[float], denominators: Sequence[float], *, clusters: Sequence[str]) -> Figure:
    """Return the ratio of sums without an interval; None where the denominators sum to 0.

    >>> plain_ratio([1.0, 2.0], [4.0, 2.0], clusters=["p", "q"])
    {'mean': 0.5}
    """
    total = math.fsum(denominators)
    return {"mean": math.fsum(numerators) / total} if total else None


def summarise(
    records: Sequence[BehaviourRecord],
    *,
    rows: Sequence[Row] | None = None,
    lexicon: Lexicon | None = None,
    canonical: Callable[[str], str] | None = None,
    embed: Embedder | None = None,
    mean: Mean = plain_mean,
    ratio: Ratio = plain_ratio,
) -> list[dict[str, Any]]:
    """Return the figures of each label, in the order in which labels first occur; strict JSON, null is not measured.

    Args:
        records: the responses.
        rows: `behaviour_rows` of the same records, where they are there already.
        lexicon: the phrases to count; by default those that ship.
        canonical: brings answers that mean the same to the same form, for counting different ones.
        embed: texts -> vectors (`load_embedder`), for the similarity of embeddings.
        mean: how means, and their intervals, are made.
        ratio: how ratios of sums are.

    Raises:
        ValueError: there are not as many rows as records.

    >>> one = BehaviourRecord(problem_id="p", response="so 4", correct=True)
    >>> summarise([one])[0]["accuracy"]
    {'mean': 1.0}
    """
    phrases = lexicon or default_lexicon()
    figures = behaviour_rows(records, lexicon=phrases) if rows is None else rows
    labels: dict[str, list[int]] = {}
    for index, (record, _) in enumerate(zip(records, figures, strict=True)):
        labels.setdefault(record.label, []).append(index)
    return [
        {
            "label": label,
            **_Label([figures[i] for i in indices], mean, ratio).figures(phrases),
            **_group_figures([records[i] for i in indices], canonical, embed, mean),
        }
        for label, indices in labels.items()
    ]


class _Label:
    """The figures of one label's rows."""

    def __init__(self, rows: Sequence[Row], mean: Mean, ratio: Ratio) -> None:
        self._rows = rows
        self._mean = mean
        self._ratio = ratio

    def figures(self, lexicon: Lexicon) -> dict[str, Any]:
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

    def _over(self, pairs: Sequence[tuple[Row, float]], bounds: tuple[float, float] | None = _SHARE) -> Figure:
        clusters = [row["problem_id"] for row, _ in pairs]
        return self._mean([float(value) for _, value in pairs], clusters=clusters, bounds=bounds)

    def _of(self, column: str, bounds: tuple[float, float] | None = None) -> Figure:
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
        return {
            "per_response": self._mean([float(count) for count in counts], clusters=clusters),
            "per_1000_words": self._ratio([float(count) for count in counts], thousands, clusters=clusters),
            "share": self._mean([float(count > 0) for count in counts], clusters=clusters, bounds=_SHARE),
        }

    def _sign(self, name: str) -> dict[str, Any]:
        judged = [row for row in self._rows if row[f"sign_{name}"] is not None]
        return {
            "num_judged": len(judged),
            "share": self._of(f"sign_{name}", _SHARE),
            "rows": [row["row"] for row in judged if row[f"sign_{name}"]],
        }


def _group_figures(
    records: Sequence[BehaviourRecord],
    canonical: Callable[[str], str] | None,
    embed: Embedder | None,
    mean: Mean,
) -> dict[str, Any]:
    """Return the figures of responses to one problem beside each other, over the groups with two or more."""
    groups: dict[tuple[str, str | None], list[BehaviourRecord]] = {}
    for record in records:
        groups.setdefault((record.problem_id, record.group), []).append(record)
    several = {key: group for key, group in groups.items() if len(group) > 1}

    def over(function: Callable[[list[BehaviourRecord]], float | None], bounds: tuple[float, float] | None) -> Figure:
        values = [(problem, function(group)) for (problem, _), group in several.items()]
        known = [(problem, value) for problem, value in values if value is not None]
        return mean([value for _, value in known], clusters=[problem for problem, _ in known], bounds=bounds)

    def answers(only_right: bool) -> Callable[[list[BehaviourRecord]], float | None]:
        def count(group: list[BehaviourRecord]) -> float | None:
            if all(record.extracted is None for record in group):
                return None
            if only_right and all(record.correct is None for record in group):
                return None
            return num_distinct([one.extracted for one in group if one.correct or not only_right], canonical)

        return count

    return {
        "groups": {
            "num_groups": len(several),
            "samples": over(lambda group: float(len(group)), None),
            "distinct_answers": over(answers(only_right=False), None),
            "distinct_right_answers": over(answers(only_right=True), None),
            "ngram_similarity": over(lambda group: ngram_similarity([one.response for one in group]), _SHARE),
            "distinct_2grams": over(lambda group: distinct_ngram_share([one.response for one in group]), _SHARE),
            "embedding_similarity": None
            if embed is None
            else over(lambda group: embedding_similarity([one.response for one in group], embed), (-1.0, 1.0)),
        }
    }
