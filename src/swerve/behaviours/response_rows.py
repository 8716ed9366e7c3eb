"""One row of metrics per response, with counts of a lexicon's phrases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from swerve.artifacts.files import regular_file
from swerve.artifacts.responses import Response
from swerve.behaviours.response_format import (
    RESPONSE_FORMATS,
    dummy_thinking,
    has_format,
    is_unfinished,
    split_regions,
)
from swerve.behaviours.signs import answer_candidates, hacking_signs
from swerve.behaviours.text_measures import (
    compression_ratio,
    foreign_script_share,
    loop_at_end,
    repeated_ngram_share,
    split_words,
)
from swerve.errors import ConfigError
from swerve.grading.text import given_beginning
from swerve.recipes.yaml_lines import YamlDocument, parse_yaml

Phrase = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Phrases by behaviour, indexed by their first word."""

    behaviours: tuple[str, ...]
    phrases: Mapping[str, tuple[tuple[Phrase, str], ...]]
    """By first word: the phrases that begin with it, longest first, each with its behaviour."""


@cache
def default_lexicon() -> Lexicon:
    """Return the lexicon that ships: `lexicon.yaml`.

    >>> default_lexicon().behaviours[:2]
    ('verification', 'backtracking')
    """
    text = files("swerve.behaviours").joinpath("lexicon.yaml").read_text(encoding="utf-8")
    return parse_lexicon(text, source="lexicon.yaml")


def read_lexicon(path: Path) -> Lexicon:
    """Return the lexicon of a YAML file: a mapping from behaviours to lists of words and phrases.

    Raises:
        ConfigError: the file cannot be read or is no such mapping; the message names the line.
    """
    try:
        text = regular_file(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--lexicon {path} cannot be read: {reason}; give a YAML file of phrases") from None
    return parse_lexicon(text, source=str(path))


def parse_lexicon(text: str, *, source: str) -> Lexicon:
    """Return the lexicon that a YAML text describes; `source` is what error messages call it.

    Raises:
        ConfigError: it is not a mapping from behaviours to lists of words, or a phrase occurs twice.

    >>> parse_lexicon("doubt: [not sure, hmm]", source="doubt.yaml").phrases["not"]
    ((('not', 'sure'), 'doubt'),)
    """
    document = parse_yaml(text, source=source)
    if not isinstance(document.data, dict) or not document.data:
        raise ConfigError(f"{source}: a lexicon is a mapping such as 'hesitation: [wait, hold on]'")
    # Each phrase belongs to one behaviour.
    owners: dict[Phrase, str] = {}
    for behaviour, phrases in document.data.items():
        if not isinstance(phrases, list) or not phrases:
            raise ConfigError(
                f"{_place(document, source, behaviour)}: '{behaviour}' must be a list of words and phrases"
            )
        for number, phrase in enumerate(phrases):
            place = _place(document, source, behaviour, number)
            words = tuple(split_words(phrase)) if isinstance(phrase, str) else ()
            if not words:
                raise ConfigError(f"{place}: {phrase!r} of '{behaviour}' is not a word or phrase; write it in quotes")
            if words in owners:
                raise ConfigError(f"{place}: {phrase!r} of '{behaviour}' is listed under '{owners[words]}' already")
            owners[words] = behaviour
    # They are looked for by their first word, the longest first.
    by_first: dict[str, list[tuple[Phrase, str]]] = {}
    for words, behaviour in sorted(owners.items(), key=lambda item: -len(item[0])):
        by_first.setdefault(words[0], []).append((words, behaviour))
    return Lexicon(tuple(document.data), {first: tuple(entries) for first, entries in by_first.items()})


def _place(document: YamlDocument, source: str, *path: str | int) -> str:
    line = document.lines.get(path)
    return source if line is None else f"{source}:{line}"


def count_behaviours(words: Sequence[str], lexicon: Lexicon) -> dict[str, int]:
    """Return how often the phrases of each behaviour occur among the words of a text (`split_words`).

    Of the phrases that begin at a word the longest counts, and the search continues after it: no word counts twice.

    >>> counts = count_behaviours(split_words("Wait, let me check: hold on."), default_lexicon())
    >>> counts["hesitation"], counts["verification"], counts["summary"]
    (2, 1, 0)
    """
    counts = dict.fromkeys(lexicon.behaviours, 0)
    free_from = 0
    for place in [index for index, word in enumerate(words) if word in lexicon.phrases]:
        if place < free_from:
            continue
        for phrase, behaviour in lexicon.phrases[words[place]]:
            if tuple(words[place : place + len(phrase)]) == phrase:
                counts[behaviour] += 1
                free_from = place + len(phrase)
                break
    return counts


Row = dict[str, Any]


def behaviour_rows(responses: Sequence[Response], *, lexicon: Lexicon | None = None) -> list[Row]:
    """Return the metrics of each response as a flat mapping of JSON values; null is not measured.

    Never raises on any text. `format_*`, `dummy_thinking` and `sign_*` are of the whole answer, with the beginning that
    the model was given; all else is of what the model wrote.

    Args:
        responses: with texts; `place` is what a flagged response is listed by, `label` what they are compared by.
        lexicon: the phrases to count; by default those that ship.
    """
    phrases = lexicon or default_lexicon()
    return [_row(response, phrases) for response in responses]


def samples_of(response: Response) -> str | None:
    """Return the name of the samples drawn together for one prompt; None: all those of the problem under the label."""
    return None if response.group is None else f"{response.step}/{response.group}"


def _row(response: Response, lexicon: Lexicon) -> Row:
    written, question = response.written, response.problem.question or None
    text = given_beginning(response.problem, written) + written
    words, thinking, loop = split_words(written), split_regions(text).thinking, loop_at_end(written)
    reflections = count_behaviours(words, lexicon)
    row = {
        "row": response.place,
        "label": response.label or "all",
        "problem_id": response.problem.id,
        "group": samples_of(response),
        "correct": response.verdict,
        "extracted": response.extracted,
        "unanswered": None if response.answered is None else not response.answered,
        "finish_reason": response.finish_reason,
        "num_tokens": len(response.sampled_positions) or None,
        # Of the text that the model wrote, and of the whole answer.
        "num_words": len(words),
        "num_characters": len(written),
        "unfinished": is_unfinished(text),
        **{f"format_{name}": has_format(text, name) for name in RESPONSE_FORMATS},
        "thinking_words": None if thinking is None else len(split_words(thinking)),
        "dummy_thinking": None if thinking is None else dummy_thinking(thinking, question),
        # Repetition, reflection and signs of hacking.
        "repeated_4grams": repeated_ngram_share(words),
        "compression_ratio": compression_ratio(written),
        "loop_period": None if loop is None else loop.period,
        "loop_repeats": None if loop is None else loop.repeats,
        "loop_characters": None if loop is None else loop.num_characters,
        "foreign_script_share": foreign_script_share(written, question),
        "num_candidates": len(answer_candidates(text)),
        **{f"reflection_{name}": count for name, count in reflections.items()},
        **{f"sign_{name}": shown for name, shown in hacking_signs(text, question).items()},
    }
    # Of a text that is not there nothing is known.
    return row if response.text is not None else {**row, **dict.fromkeys([*row][[*row].index("num_words") :])}
