"""Reading responses and problems that other programs wrote: JSON, JSONL and Parquet, with fields found by name.

Nothing is computed here and nothing is made up: what a record does not have is None.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.problems.family import problem_id

__all__ = ["ProblemRecord", "ResponseRecord", "parse_fields", "read_problems", "read_responses"]

Ids = tuple[int, ...]
_FORMATS = ".json, .jsonl, .jsonl.gz or .parquet"
# Later names are looked at where a record does not have the earlier ones.
_RESPONSE_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "problem_id", "unique_id"),
    "response": ("response", "completion", "output"),
    "correct": ("correct", "is_correct"),
    "gold": ("gold", "ground_truth"),
    "prompt": ("prompt",),
    "problem": ("problem", "question"),
    "prompt_ids": ("prompt_ids",),
    "completion_ids": ("completion_ids",),
    "extracted": ("extracted",),
    "set": ("set", "population"),
    "kind": ("kind", "level"),
}
# In a file of problems "answer" is the gold answer; in a file of responses it may be the model's.
_PROBLEM_NAMES = {**_RESPONSE_NAMES, "gold": ("gold", "ground_truth", "answer")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """What a file says of a problem. One of `prompt_ids`, `prompt` and `question` says what the model read."""

    id: str
    prompt_ids: Ids | None = None
    prompt: str | None = None
    """The text exactly as the model read it, chat template included where there was one."""
    question: str | None = None
    """The problem, before any chat template."""
    gold: str | None = None
    kind: str | None = None

    @property
    def has_prompt(self) -> bool:
        """Whether it is known what the model read."""
        return any(value is not None for value in self.asked)

    @property
    def asked(self) -> tuple[Ids | None, str | None, str | None]:
        """What two records of one problem must agree in."""
        return self.prompt_ids, self.prompt, self.question


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One response: its text, or the ids of its tokens."""

    place: str
    """Where it stands, for messages."""
    problem: ProblemRecord
    response: str | None = None
    completion_ids: Ids | None = None
    correct: bool | None = None
    extracted: str | None = None
    set: str | None = None
    """The part of the file it belongs to."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One record of a file with its place in it."""

    place: str
    values: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]

    def get(self, name: str) -> Any:
        return next((self.values[key] for key in self.names[name] if self.values.get(key) is not None), None)

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise ArtifactError(f"{self.place}: {name} must be text, got {_shown(value)}")
        if value == "":
            raise ArtifactError(f"{self.place}: {name} is empty; leave the record out or give the text")
        return value

    def label(self, name: str) -> str | None:
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value or None
        if isinstance(value, bool | list | dict):
            raise ArtifactError(f"{self.place}: {name} must be text or a number, got {_shown(value)}")
        return str(value)

    def truth(self, name: str) -> bool | None:
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        raise ArtifactError(f"{self.place}: {name} must be true, false or null, got {_shown(value)}")

    def ids(self, name: str) -> Ids | None:
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(type(one) is int and one >= 0 for one in value):
            raise ArtifactError(f"{self.place}: {name} must be a list of token ids with at least one, none below 0")
        return tuple(value)


def parse_fields(options: Sequence[str]) -> dict[str, str]:
    """Return the mapping that `NAME=FIELD` options describe: the file calls NAME by FIELD.

    Raises:
        ConfigError: an option has no `=`, or NAME is not a name that is read.

    >>> parse_fields(["response=model_output"])
    {'response': 'model_output'}
    """
    found: dict[str, str] = {}
    for option in options:
        name, equals, field = (part.strip() for part in option.partition("="))
        if not equals or not field:
            raise ConfigError(f"--field {option!r} is not of the form NAME=FIELD, such as response=completion")
        if name not in _RESPONSE_NAMES:
            known = ", ".join(_RESPONSE_NAMES)
            raise ConfigError(
                f"--field {option!r}: unknown name '{name}'{nearest(name, _RESPONSE_NAMES)}; the names are {known}"
            )
        found[name] = field
    return found


def read_responses(path: Path, *, fields: Mapping[str, str] | None = None) -> list[ResponseRecord]:
    """Return the responses of a file, in its order.

    The file is a JSON object `{problem_id: {response, correct, ...}}`, a JSON list, JSONL (also `.gz`) or Parquet.

    Args:
        path: the file; its ending says the format.
        fields: names of the file's fields where they differ from those known (`parse_fields`).

    Raises:
        ArtifactError: the file is missing or damaged, a field is missing or of the wrong type; the message says where.
    """
    entries = _read_entries(path, _named(_RESPONSE_NAMES, fields))
    for name, field in (fields or {}).items():
        present = sorted({key for entry in entries for key in entry.values})
        if field not in present:
            raise ArtifactError(
                f"{path} has no field '{field}' (--field {name}={field}){nearest(field, present)}; "
                f"it has {', '.join(present[:12])}"
            )
    return [_response(entry) for entry in entries]


def read_problems(path: Path, *, fields: Mapping[str, str] | None = None) -> dict[str, ProblemRecord]:
    """Return the problems of a file by id; formats as for `read_responses`.

    Raises:
        ArtifactError: the file is missing or damaged, a record has no id or no prompt, or two records of one id differ.
    """
    known = _read_entries(path, _named(_PROBLEM_NAMES, fields))
    problems: dict[str, ProblemRecord] = {}
    for entry in known:
        problem = _problem(entry)
        if entry.label("id") is None:
            raise ArtifactError(f"{entry.place} has no id; problems are found by it (name its field with --field id=)")
        if not problem.has_prompt:
            raise ArtifactError(f"{entry.place} has no problem, question, prompt or prompt_ids")
        if problems.setdefault(problem.id, problem).asked != problem.asked:
            raise ArtifactError(f"{entry.place}: the id {problem.id!r} occurs twice with different prompts")
    return problems


def _named(names: Mapping[str, tuple[str, ...]], fields: Mapping[str, str] | None) -> dict[str, tuple[str, ...]]:
    given = fields or {}
    return {name: (given[name],) if name in given else known for name, known in names.items()}


def _response(entry: _Entry) -> ResponseRecord:
    response, ids = entry.text("response"), entry.ids("completion_ids")
    problem = _problem(entry)
    if response is None and ids is None:
        raise ArtifactError(
            f"{entry.place} has no response (nor completion_ids); if its field has another name say --field "
            "response=FIELD"
        )
    if ids is not None and problem.prompt_ids is None:
        raise ArtifactError(f"{entry.place} has completion_ids but no prompt_ids; give both or the texts")
    if ids is None and problem.prompt_ids is not None:
        raise ArtifactError(f"{entry.place} has prompt_ids but no completion_ids; give both or the texts")
    return ResponseRecord(
        place=entry.place,
        problem=problem,
        response=response,
        completion_ids=ids,
        correct=entry.truth("correct"),
        extracted=entry.label("extracted"),
        set=entry.label("set"),
    )


def _problem(entry: _Entry) -> ProblemRecord:
    prompt_ids, prompt, question = entry.ids("prompt_ids"), entry.text("prompt"), entry.text("problem")
    name = entry.label("id")
    if name is None:
        asked = prompt or question or (" ".join(map(str, prompt_ids)) if prompt_ids else None)
        if asked is None:
            raise ArtifactError(f"{entry.place} has neither an id nor a prompt; a response needs its problem's prompt")
        name = problem_id("imported", asked)
    return ProblemRecord(
        id=name,
        prompt_ids=prompt_ids,
        prompt=prompt,
        question=question,
        gold=entry.label("gold"),
        kind=entry.label("kind"),
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _read_entries(path: Path, names: Mapping[str, tuple[str, ...]]) -> list[_Entry]:
    base = path.name.removesuffix(".gz")
    if path.suffix == ".parquet":
        placed = [(f"{path}, row {number}", row) for number, row in enumerate(_read_parquet(path), start=1)]
    elif base.endswith(".jsonl"):
        placed = _read_lines(path)
    elif base.endswith(".json"):
        placed = _read_json(path)
    else:
        raise ArtifactError(f"{path}: the ending is not known; give a file that ends in {_FORMATS}")
    for place, values in placed:
        if not isinstance(values, dict):
            raise ArtifactError(f"{place} is not an object with named fields")
    if not placed:
        raise ArtifactError(f"{path} has no records")
    return [_Entry(place, values, names) for place, values in placed]


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist; give a file that ends in {_FORMATS}") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeated)
    except json.JSONDecodeError as error:
        raise ArtifactError(f"{place} is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{place} is not JSON that can be read: {error}") from None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object, whose names differ: of two records with one name the first would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} occurs twice in one object; give a list of records instead")
    return found


def _read_lines(path: Path) -> list[tuple[str, Any]]:
    lines = _read_text(path).split("\n")  # a JSON string may hold the other line separators
    places = [(f"{path}, line {number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    return [(place, _parse(line, place)) for place, line in places]


def _read_json(path: Path) -> list[tuple[str, Any]]:
    value = _parse(_read_text(path), str(path))
    if isinstance(value, list):
        return [(f"{path}, record {number}", record) for number, record in enumerate(value, start=1)]
    if not isinstance(value, dict) or not all(isinstance(record, dict) for record in value.values()):
        raise ArtifactError(f"{path} is neither a list of records nor an object {{problem_id: {{response, ...}}}}")
    return [(f"{path}, entry {key!r}", {**record, "id": key}) for key, record in value.items()]


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; give a file that ends in {_FORMATS}")
    try:
        rows: list[dict[str, Any]] = pq.read_table(path, page_checksum_verification=True).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    return rows
