"""Problems as JSON records and back, one record per line of what `swerve data write` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from swerve.errors import ArtifactError, nearest
from swerve.types import Problem

_FIELDS = frozenset(field.name for field in fields(Problem))
_CHARS_SHOWN = 60
_REQUIRED = ("id", "family", "question", "answer")


def problem_record(problem: Problem) -> dict[str, Any]:
    """Return a problem as a record of JSON values, every field under its name; a group only where it has one.

    >>> problem_record(Problem(id="p-1", family="math", question="1 + 1?", answer="2"))["answer"]
    '2'
    """
    record = asdict(problem)
    if problem.group is None:
        del record["group"]
    record["alternatives"] = list(problem.alternatives)
    record["messages"] = [{"role": role, "content": content} for role, content in problem.messages]
    return record


def is_problem_record(values: Mapping[str, Any]) -> bool:
    """Whether a record is one of `problem_record`: all fields of a problem, with or without a group, and no others."""
    return values.keys() | {"group"} == _FIELDS


def problem_from_record(values: Mapping[str, Any]) -> Problem:
    """Return the problem that a record of `problem_record` holds; what is optional may be missing or null.

    Raises:
        ValueError: a field is missing, unknown or of another type.

    >>> problem = Problem(id="p-1", family="math", question="1 + 1?", answer="2", messages=(("user", "1 + 1 = ?"),))
    >>> problem_from_record(problem_record(problem)) == problem
    True
    """
    # Only fields of a problem, and all that it needs.
    unknown = next((name for name in values if name not in _FIELDS), None)
    if unknown is not None:
        raise ValueError(f"a problem has no field {unknown!r}{nearest(unknown, _FIELDS)}")
    missing = next((name for name in _REQUIRED if values.get(name) is None), None)
    if missing is not None:
        raise ValueError(f"there is no {missing!r}; a problem needs {', '.join(_REQUIRED)}")
    # Each value is of its type; what is null has its default.
    found: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        holds, expected, convert = _TYPES.get(name, _TEXT)
        if not holds(value):
            raise ValueError(f"the field {name!r} is {str(value)[:_CHARS_SHOWN]!r}; expected {expected}")
        found[name] = convert(value)
    return Problem(**found)


def read_problem(values: Mapping[str, Any], place: str) -> Problem:
    """Return the problem that a record of `problem_record` in a file holds; `place` says where it is.

    Raises:
        ArtifactError: a field is missing, unknown or of another type.
    """
    try:
        return problem_from_record(values)
    except ValueError as error:
        raise ArtifactError(f"{place}: {error}") from None


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, Mapping) and one.keys() == {"role", "content"} and all(isinstance(x, str) for x in one.values())
        for one in value
    )


_Type = tuple[Callable[[Any], bool], str, Callable[[Any], Any]]

_TEXT: _Type = (lambda value: isinstance(value, str), "a text", str)
_OBJECT: _Type = (lambda value: isinstance(value, Mapping), "an object with named fields", dict)
_TYPES: Mapping[str, _Type] = {
    "alternatives": (
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        "a list of texts",
        tuple,
    ),
    "difficulty": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number", float),
    "messages": (
        _is_messages,
        "a list of {role: text, content: text}",
        lambda value: tuple((one["role"], one["content"]) for one in value),
    ),
    "grading": _OBJECT,
    "metadata": _OBJECT,
}
"""Field -> whether a value is of its type, what the type is called, and how the value is stored."""
