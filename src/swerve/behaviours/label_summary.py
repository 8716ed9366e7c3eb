"""The metrics of each label's responses, and how much the responses to one problem differ.

Intervals are over problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import compress
from statistics import fmean
from typing import Any, NamedTuple, get_args

from swerve.artifacts.comparison import MEASURES
from swerve.artifacts.responses import Response
from swerve.behaviours.diversity import Embedder, distinct_ngram_share, num_distinct
from swerve.behaviours.measures import problem_values
from swerve.behaviours.response_format import RESPONSE_FORMATS, DummyThinking
from swerve.behaviours.response_rows import Lexicon, Row, behaviour_rows, default_lexicon, samples_of
from swerve.behaviours.signs import SIGNS
from swerve.statistics.intervals import mean_interval
from swerve.statistics.jackknife import Bounds
from swerve.statistics.ratios import ratio_interval

Figure = dict[str, Any] | None
"""A mean with the ends of its interval over problems, as `estimates.Estimate` has them; None: not measured."""
_SHARE, _AT_LEAST_0 = (0.0, 1.0), (0.0, math.inf)


class _Owner(NamedTuple):
    """Whose a value is."""

    problem: str
    cluster: str


def _owner(response: Response) -> _Owner:
    return _Owner(response.problem.id, response.problem.cluster)


def _mean(owners: Sequence[_Owner], values: Iterable[float | None], bounds: Bounds = _AT_LEAST_0) -> Figure:
    """Return the mean over problems of each problem's mean of values, without those that are not known."""
    known: dict[_Owner, list[float]] = {}
    for owner, value in zip(owners, values, strict=True):
        if value is not None:
            known.setdefault(owner, []).append(float(value))
    clusters = [owner.cluster for owner in known]
    # Where each problem is alone, they are taken in their order, as sums of them depend on it in their last digit.
    names = clusters if len({*clusters}) < len(clusters) else None
    estimate = mean_interval([fmean(values) for values in known.values()], clusters=names, bounds=bounds)
    return None if estimate is None else asdict(estimate)


def summarise(
    responses: Sequence[Response],
    *,
    rows: Sequence[Row] | None = None,
    lexicon: Lexicon | None = None,
    embed: Embedder | None = None,
) -> list[dict[str, Any]]:
    """Return the metrics of each label, in the order in which labels first occur; strict JSON, null is not measured.

    Args:
        responses: with texts.
        rows: `behaviour_rows` of the same responses, where they are there already.
        lexicon: the phrases to count; by default those that ship.
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
            **_row_metrics([row for _, row in pairs], [_owner(response) for response, _ in pairs], phrases),
            "groups": _group_metrics([response for response, _ in pairs], embed),
        }
        for label, pairs in labels.items()
    ]


def _row_metrics(rows: Sequence[Row], owners: Sequence[_Owner], lexicon: Lexicon) -> dict[str, Any]:
    """Return the metrics of one label's rows; each figure is over the rows that have what it needs."""
    mean = partial(_mean, owners)

    # Figures that several entries have.
    def of(column: str, bounds: Bounds = _AT_LEAST_0) -> Figure:
        return mean([row[column] for row in rows], bounds)

    def dummy(reasons: Sequence[str]) -> Figure:
        marks = [None if row["thinking_words"] is None else row["dummy_thinking"] in reasons for row in rows]
        return mean(marks, _SHARE)

    def reflection(behaviours: Sequence[str]) -> dict[str, Figure]:
        of_texts = [row["num_words"] is not None for row in rows]
        texts, own = [*compress(rows, of_texts)], [*compress(owners, of_texts)]
        counts = [float(sum(row[f"reflection_{name}"] for name in behaviours)) for row in texts]
        thousands = [row["num_words"] / 1000 for row in texts]
        rate = ratio_interval(counts, thousands, clusters=[each.cluster for each in own], bounds=(0.0, math.inf))
        return {
            "per_response": _mean(own, counts),
            "per_1000_words": None if rate is None else asdict(rate),
            "share": _mean(own, [count > 0 for count in counts], _SHARE),
        }

    def sign(name: str) -> dict[str, Any]:
        column = f"sign_{name}"
        return {
            "num_judged": sum(row[column] is not None for row in rows),
            "share": of(column, _SHARE),
            "rows": [row["row"] for row in rows if row[column]],
        }

    ends = [row["finish_reason"] for row in rows]
    return {
        "num_responses": len(rows),
        "num_problems": len({*owners}),
        "accuracy": of("correct", _SHARE),
        "unanswered": of("unanswered", _SHARE),
        "length": {unit: of(f"num_{unit}") for unit in ("tokens", "words", "characters")},
        "truncated": mean([None if end is None else end == "length" for end in ends], _SHARE),
        "unfinished": of("unfinished", _SHARE),
        "format": {name: of(f"format_{name}", _SHARE) for name in RESPONSE_FORMATS},
        "thinking": {
            "num_responses": sum(row["thinking_words"] is not None for row in rows),
            "words": of("thinking_words"),
            "dummy": dummy(get_args(DummyThinking)),
            **{reason: dummy((reason,)) for reason in get_args(DummyThinking)},
        },
        "repetition": {
            "repeated_4grams": of("repeated_4grams", _SHARE),
            "compression_ratio": of("compression_ratio"),
            "loop_at_end": mean(
                [None if row["num_words"] is None else row["loop_period"] is not None for row in rows], _SHARE
            ),
        },
        "reflection": {
            "all": reflection(lexicon.behaviours),
            **{behaviour: reflection((behaviour,)) for behaviour in lexicon.behaviours},
        },
        "foreign_script_share": of("foreign_script_share", _SHARE),
        "signs": {name: sign(name) for name in SIGNS},
    }


def _group_metrics(responses: Sequence[Response], embed: Embedder | None) -> dict[str, Any]:
    """Return how much the responses to one problem differ, over the groups with two or more."""
    groups: dict[str, list[Response]] = {}
    for response in responses:
        groups.setdefault(f"{response.problem.id}\n{samples_of(response)}", []).append(response)

    # What the samples of a group share is asked of two and more.
    several = {name: group for name, group in groups.items() if len(group) > 1}
    # Of a response without answer and verdict it is not known whether it has one.
    answers = [
        None
        if any((each.extracted, each.answered, each.verdict) == (None,) * 3 for each in group)
        else [each.extracted for each in group]
        for group in several.values()
    ]
    are_recorded = any(response.extracted is not None for group in several.values() for response in group)
    texts = [[response.written for response in group] for group in several.values()]
    measured = problem_values(several, leave_out=MEASURES.keys() - _OF_GROUPS, embed=embed)

    mean = partial(_mean, [_owner(group[0]) for group in several.values()])
    return {
        "num_groups": len(several),
        "samples": mean(map(len, texts)),
        "distinct_answers": mean(None if own is None else num_distinct(own) for own in answers)
        if are_recorded
        else None,
        "distinct_2grams": mean(map(distinct_ngram_share, texts), _SHARE),
        **{name: mean(map(measured.get(name, {}).get, several), MEASURES[name].bounds) for name in sorted(_OF_GROUPS)},
    }


_OF_GROUPS = {"similarity", "embedding_similarity", "distinct_right"}
