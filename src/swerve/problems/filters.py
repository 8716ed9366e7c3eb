"""Which problems of a source are used, and a count of those that are not, by condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from swerve.config import FilterConfig
from swerve.errors import ConfigError, nearest
from swerve.problems.fields import has_value, missing_field, text_of
from swerve.problems.sources import read_source
from swerve.types import Problem

__all__ = ["apply_filters", "question_key", "read_question_keys"]

_QUESTION_FIELDS = ("question", "problem", "quiz", "prompt", "input")
"""Names under which published data sets have the question."""

SplitName = TypeVar("SplitName", bound=str)


def question_key(question: str) -> str:
    """Return what two writings of one question share: the text without letter case and differences of white space.

    >>> question_key("What  is 1 + 1? ") == question_key("what is 1 + 1?")
    True
    """
    return " ".join(question.split()).casefold()


def read_question_keys(specs: Iterable[str]) -> frozenset[str]:
    """Return the keys of all questions of some sources, whatever published layout they have.

    A source without a split is read from its `test`.

    Raises:
        ArtifactError: a record has no question under any of the known names.
        ConfigError: a source cannot be found.
    """
    keys = set()
    for spec in specs:
        for record in read_source(spec, default_split="test"):
            names = [name for name in _QUESTION_FIELDS if has_value(record, name)]
            if not names:
                known = ", ".join(_QUESTION_FIELDS)
                raise missing_field(record, "question", fix=f"; task.where.exclude reads one of {known}")
            keys.add(question_key(text_of(record, *names)))
    return frozenset(keys)


def apply_filters(
    splits: Mapping[SplitName, Sequence[Problem]], where: FilterConfig
) -> tuple[dict[SplitName, list[Problem]], list[str]]:
    """Return the problems for which every condition holds, and a line for each condition that left some out.

    A problem is counted at the first condition that it does not meet; one without a difficulty meets no bound of it.

    Raises:
        ConfigError: a kind that is asked for does not occur; the message names those that do.
        ArtifactError: a source of `where.exclude` cannot be read.

    >>> problems = [Problem(id=str(d), family="math", question=f"{d}?", answer="1", difficulty=d) for d in (1, 2, 3)]
    >>> kept, notes = apply_filters({"train": problems}, FilterConfig(max_difficulty=2.0))
    >>> [problem.id for problem in kept["train"]], notes
    (['1', '2'], ['train: 1 left out by max_difficulty=2.0'])
    """
    _check_kinds(where, [problem for problems in splits.values() for problem in problems])
    conditions = _conditions(where)
    kept = {split: list(problems) for split, problems in splits.items()}
    notes = []
    for split in kept:
        for name, holds in conditions:
            before = len(kept[split])
            kept[split] = [problem for problem in kept[split] if holds(problem)]
            if len(kept[split]) < before:
                notes.append(f"{split}: {before - len(kept[split]):,} left out by {name}")
    return kept, notes


def _check_kinds(where: FilterConfig, problems: Iterable[Problem]) -> None:
    known = sorted({problem.kind for problem in problems})
    for kind in where.kinds:
        if kind not in known:
            raise ConfigError(
                f"task.where.kinds has {kind!r}, which no problem is of; there are {', '.join(known) or 'none'}"
                f"{nearest(kind, known)}"
            )


def _conditions(where: FilterConfig) -> list[tuple[str, Callable[[Problem], bool]]]:
    low, high, chars = where.min_difficulty, where.max_difficulty, where.max_question_chars
    found: list[tuple[str, Callable[[Problem], bool]]] = []
    if low is not None:
        found.append((f"min_difficulty={low}", lambda one: one.difficulty is not None and one.difficulty >= low))
    if high is not None:
        found.append((f"max_difficulty={high}", lambda one: one.difficulty is not None and one.difficulty <= high))
    if where.kinds:
        found.append(("kinds", lambda one: one.kind in where.kinds))
    if chars is not None:
        found.append((f"max_question_chars={chars}", lambda one: len(one.question) <= chars))
    if where.exclude:
        excluded = read_question_keys(where.exclude)
        found.append(("exclude", lambda one: question_key(one.question) not in excluded))
    return found
