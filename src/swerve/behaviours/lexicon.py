"""Words of reflection: counts of the words and phrases of a lexicon, by behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from swerve.behaviours.words import split_words
from swerve.errors import ConfigError
from swerve.recipes.yaml_lines import YamlDocument, parse_yaml

__all__ = ["Lexicon", "count_behaviours", "default_lexicon", "parse_lexicon", "read_lexicon"]

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
        text = path.read_text(encoding="utf-8")
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
                raise ConfigError(f"{place}: {phrase!r} of '{behaviour}' stands under '{owners[words]}' already")
            owners[words] = behaviour
    by_first: dict[str, list[tuple[Phrase, str]]] = {}
    for words, behaviour in sorted(owners.items(), key=lambda item: -len(item[0])):
        by_first.setdefault(words[0], []).append((words, behaviour))
    return Lexicon(tuple(document.data), {first: tuple(entries) for first, entries in by_first.items()})


def _place(document: YamlDocument, source: str, *path: str | int) -> str:
    line = document.lines.get(path)
    return source if line is None else f"{source}:{line}"


def count_behaviours(words: Sequence[str], lexicon: Lexicon) -> dict[str, int]:
    """Return how often the phrases of each behaviour occur among the words of a text (`split_words`).

    Where several phrases begin at a word the longest counts, and the search goes on after it, so no word counts twice.

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
