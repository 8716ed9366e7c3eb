"""Records -> one row of figures a response, and the few figures that are cheap enough for every training step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from swerve.behaviours.lexicon import Lexicon, count_behaviours, default_lexicon
from swerve.behaviours.records import BehaviourRecord
from swerve.behaviours.regions import (
    RESPONSE_FORMATS,
    ResponseFormat,
    has_format,
    is_unfinished,
    split_regions,
)
from swerve.behaviours.repetition import compression_ratio, loop_at_end, repeated_ngram_share
from swerve.behaviours.scripts import foreign_script_share
from swerve.behaviours.signs import answer_candidates, hacking_signs
from swerve.behaviours.thinking import dummy_thinking
from swerve.behaviours.words import split_words

__all__ = ["Row", "behaviour_figures", "behaviour_rows"]

Row = dict[str, Any]


def behaviour_rows(records: Sequence[BehaviourRecord], *, lexicon: Lexicon | None = None) -> list[Row]:
    """Return the figures of each response as a flat mapping of JSON values; null is not measured.

    Never raises on any text. `format_*`, `dummy_thinking` and `sign_*` are of the whole answer, prefix included; all
    else is of what the model wrote.

    Args:
        records: the responses.
        lexicon: the phrases to count; by default those that ship.
    """
    phrases = lexicon or default_lexicon()
    return [_row(record, phrases) for record in records]


def _row(record: BehaviourRecord, lexicon: Lexicon) -> Row:
    text, written = record.text, record.response
    words, regions = split_words(written), split_regions(record.text)
    thinking, loop = regions.thinking, loop_at_end(written)
    reason = None if thinking is None else dummy_thinking(thinking, record.question)
    return {
        "row": record.row,
        "label": record.label,
        "problem_id": record.problem_id,
        "group": record.group,
        "correct": record.correct,
        "extracted": record.extracted,
        "finish_reason": record.finish_reason,
        "num_tokens": record.num_tokens,
        "num_words": len(words),
        "num_characters": len(written),
        "unfinished": is_unfinished(text),
        **{f"format_{name}": has_format(text, name) for name in RESPONSE_FORMATS},
        "thinking_words": None if thinking is None else len(split_words(thinking)),
        "dummy_thinking": reason,
        "repeated_4grams": repeated_ngram_share(words),
        "compression_ratio": compression_ratio(written),
        "loop_period": None if loop is None else loop.period,
        "loop_repeats": None if loop is None else loop.repeats,
        "loop_characters": None if loop is None else loop.num_characters,
        "foreign_script_share": foreign_script_share(written, record.question),
        "num_candidates": len(answer_candidates(text)),
        **{f"reflection_{name}": count for name, count in count_behaviours(words, lexicon).items()},
        **{f"sign_{name}": shown for name, shown in hacking_signs(text, record.question).items()},
    }


def behaviour_figures(
    texts: Sequence[str],
    questions: Sequence[str | None] | None = None,
    *,
    response_format: ResponseFormat = "think_answer",
    prefixes: Sequence[str] | None = None,
) -> dict[str, float | None]:
    """Return four figures of a batch of responses, cheap enough for every training step; None is not measured.

    - `format_rate`: share of responses in `response_format` (`has_format`).
    - `dummy_thinking_share`: of the responses that have a thinking region, the share with none worth the name.
    - `repeated_4gram_share`: mean of `repeated_ngram_share` over responses of four words or more.
    - `reflections_per_1000_words`: occurrences of the shipped lexicon's phrases in all texts over their words.

    Args:
        texts: what the model wrote.
        questions: the problem of each text; without, thinking about something else is not looked for.
        response_format: think_answer, answer_tag or boxed.
        prefixes: the beginning of each answer that was given to the model, such as `<think>`.

    Raises:
        ValueError: there are not as many questions or prefixes as texts.

    >>> figures = behaviour_figures(["<think> ... </think><answer>4</answer>", "It is 4. Wait, let me check."])
    >>> figures["format_rate"], figures["dummy_thinking_share"], figures["reflections_per_1000_words"]
    (0.5, 1.0, 250.0)
    """
    asked = list(questions) if questions is not None else [None] * len(texts)
    begun = list(prefixes) if prefixes is not None else [""] * len(texts)
    if not len(texts) == len(asked) == len(begun):
        raise ValueError(f"{len(texts)} texts, {len(asked)} questions and {len(begun)} prefixes do not match")
    lexicon = default_lexicon()
    formats, dummies, repeated = list[bool](), list[bool](), list[float]()
    num_words = num_reflections = 0
    for text, question, prefix in zip(texts, asked, begun, strict=True):
        words, whole = split_words(text), prefix + text
        formats.append(has_format(whole, response_format))
        thinking = split_regions(whole).thinking
        if thinking is not None:
            dummies.append(dummy_thinking(thinking, question) is not None)
        share = repeated_ngram_share(words)
        if share is not None:
            repeated.append(share)
        num_words += len(words)
        num_reflections += sum(count_behaviours(words, lexicon).values())
    return {
        "format_rate": _mean(formats),
        "dummy_thinking_share": _mean(dummies),
        "repeated_4gram_share": _mean(repeated),
        "reflections_per_1000_words": 1000 * num_reflections / num_words if num_words else None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
