"""Samples of one model: graded completions of problems in one Parquet file that every other command reads.

A row has its whole problem, so that it can be graded again without the task's source. The columns that tables of
rollouts and of imported responses have too are named as they are there.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import JsonValue, ValidationError

from swerve.artifacts.files import SEAL, sealed
from swerve.artifacts.problem_records import problem_from_record, problem_record
from swerve.artifacts.record import Record
from swerve.artifacts.tables import PROVENANCE, read_table, write_table
from swerve.errors import ArtifactError, MismatchError
from swerve.types import Completion, Problem, Reward

SAMPLES_TABLE = "samples"
"""What the metadata of the file calls it."""

_MAGIC = b"PAR1"
_IDS = pa.list_(pa.int32())
SAMPLE_FILE_SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample", pa.int32()),  # from 0 within the problem
        ("label", pa.string()),  # of the model
        ("family", pa.string()),
        ("kind", pa.string()),
        ("question", pa.string()),
        ("gold", pa.string()),
        ("messages", pa.string()),  # JSON list of {role, content}; null: the question alone
        ("problem_details", pa.string()),  # JSON object: the problem's other fields
        ("prompt", pa.string()),  # the text as the model read it: the chat template filled in
        ("prompt_ids", _IDS),
        ("completion_ids", _IDS),
        ("logprobs", pa.list_(pa.float32())),  # at the temperature sampled at; greedy: at 1; nats
        ("text", pa.string()),
        ("reward", pa.float64()),  # null: a failure, see status
        ("correct", pa.bool_()),
        ("parts", pa.string()),  # JSON object
        ("status", pa.string()),
        ("answered", pa.bool_()),
        ("extracted", pa.string()),
        ("detail", pa.string()),
        ("finish_reason", pa.string()),
        ("temperature", pa.float64()),
        ("seed", pa.int64()),
    ]
)
_FINISH_REASONS = ("stop", "length")
_STATUSES = ("graded", "unparsed", "timeout", "error")
_ROUNDING = 1e-3
"""How far above 0 rounding may lift a log-probability, nats."""
_COLUMN_FIELDS = {"id": "problem_id", "family": "family", "kind": "kind", "question": "question", "answer": "gold"}
"""Field of a problem -> the column of its own; `messages` has one too, and the rest is in `problem_details`."""


class SamplesTokenizer(Record):
    """The tokenizer whose ids a file holds."""

    name: str
    """Folder, or name on the hub."""
    sha256: str
    """Of the vocabulary: every token with its id."""


class SampledModel(Record):
    """The model that was sampled from."""

    label: str
    """Its name in the rows and in tables."""
    source: str
    """Folder, or name on the hub with its revision."""
    fingerprint: str
    """SHA-256 over the files of weights, configuration and tokenizer, or over the hub's name and commit."""
    dtype: str
    """What the weights were loaded as."""
    device: str
    """Type of device: `cpu` or `cuda`."""


class SamplesInfo(Record):
    """What a file's samples depend on; two files that agree in it hold the same samples."""

    model: SampledModel
    """The model, with the digest of its files."""
    tokenizer: SamplesTokenizer
    """Of the model."""
    task: Mapping[str, JsonValue]
    """The task's configuration, as a recipe has it."""
    split: str
    """`train` or `heldout`."""
    problem_seed: int = 0
    """Chose and ordered the task's problems."""
    num_problems: int
    """Problems sampled."""
    problems_sha256: str
    """Of the problems, and of graders, policies and reward files."""
    num_samples: int
    """Samples per problem, over all temperatures."""
    temperatures: tuple[float, ...]
    """Sample i of a problem has the temperature number i modulo their number."""
    max_new_tokens: int
    """Longest completion, tokens."""
    seed: int
    """What every row's own seed is derived from."""
    system: str | None = None
    """System message in place of the task's own; null: the task's own."""
    template_args: Mapping[str, JsonValue] = {}
    """Arguments of the chat template."""
    today: str = ""
    """The date that the chat template was told."""
    engine: Mapping[str, JsonValue] = {}
    """Configuration of the engine that sampled."""
    swerve_version: str
    """That sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One graded completion."""

    problem: Problem
    index: int
    """Its number among the samples of its problem, from 0."""
    label: str
    """Of the model that wrote it."""
    prompt: str
    """The text that the model read, chat template included."""
    prompt_ids: tuple[int, ...]
    completion: Completion
    text: str
    """The completion without special tokens."""
    reward: Reward
    temperature: float
    """0: greedy."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFile:
    """The content of a file of samples."""

    info: SamplesInfo
    samples: tuple[Sample, ...]
    """By problem, in the order of the problems; within a problem by number."""

    def by_problem(self) -> dict[str, tuple[Sample, ...]]:
        """Return the samples of each problem, by its id."""
        found: dict[str, list[Sample]] = {}
        for one in self.samples:
            found.setdefault(one.problem.id, []).append(one)
        return {name: tuple(group) for name, group in found.items()}


def write_samples(path: Path, info: SamplesInfo, samples: Sequence[Sample]) -> None:
    """Write samples as `SAMPLE_FILE_SCHEMA`, atomically; equal samples give equal bytes.

    Raises:
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    write_table(path, list(map(_row, samples)), SAMPLE_FILE_SCHEMA, metadata=_metadata(info))


def _metadata(info: SamplesInfo) -> dict[str, str]:
    record = sealed(info.model_dump(mode="json"))
    text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return {"swerve_table": SAMPLES_TABLE, PROVENANCE: text}


def join_samples(path: Path, info: SamplesInfo, parts: Sequence[Path], *, order: Sequence[str]) -> None:
    """Write the file of all samples from files of some of the problems each.

    Args:
        path: the file.
        info: of the whole and of each part.
        parts: files of samples that `sampled_problems` took.
        order: ids of all problems.

    Raises:
        ArtifactError: a part is damaged, or a problem lacks samples or has too many.
        DiskFullError: no room.
    """
    table = pa.concat_tables([read_table(part, SAMPLE_FILE_SCHEMA) for part in parts]).combine_chunks()
    places = {name: place for place, name in enumerate(order)}
    ids, numbers = table.column("problem_id").to_pylist(), table.column("sample").to_pylist()
    keys = [(places[name], number) for name, number in zip(ids, numbers, strict=True)]
    wanted = [(place, number) for place in range(len(order)) for number in range(info.num_samples)]
    ranks = sorted(range(len(keys)), key=keys.__getitem__)
    if [keys[rank] for rank in ranks] != wanted:
        raise ArtifactError(f"the parts of {path} do not hold {info.num_samples} samples of each problem; sample again")
    write_table(path, table.take(ranks).combine_chunks(), SAMPLE_FILE_SCHEMA, metadata=_metadata(info))


def sampled_problems(part: Path, info: SamplesInfo) -> set[str]:
    """Return the ids of the problems in a part, all of whose samples are there.

    Raises:
        ArtifactError: the part is damaged.
        MismatchError: it is of other settings.
    """
    if read_samples_info(part) != info:
        raise MismatchError(f"{part} is of other settings")
    counts = Counter(read_table(part, SAMPLE_FILE_SCHEMA).column("problem_id").to_pylist())
    return {name for name, count in counts.items() if count == info.num_samples}


def is_samples_file(path: Path) -> bool:
    """Whether a file is a Parquet file of samples, by what its metadata calls it or by its columns.

    Raises:
        ArtifactError: it is a damaged Parquet file, perhaps of samples.
    """
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        if not (path.is_file() and _is_parquet(path)):
            return False
        raise ArtifactError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    return _is_marked(schema) or schema.names == SAMPLE_FILE_SCHEMA.names


def _is_parquet(path: Path) -> bool:
    """Whether a file begins or ends as Parquet files do."""
    with path.open("rb") as stream:
        first = stream.read(len(_MAGIC))
        stream.seek(max(0, path.stat().st_size - len(_MAGIC)))
        return _MAGIC in (first, stream.read())


def _is_marked(schema: pa.Schema) -> bool:
    return bool((schema.metadata or {}).get(b"swerve_table") == SAMPLES_TABLE.encode())


def read_samples(path: Path) -> SampleFile:
    """Return the samples in a file, checked row by row.

    Raises:
        ArtifactError: the file is missing, damaged, changed, or no file of samples; the message names file and row.
    """
    table = read_table(path, SAMPLE_FILE_SCHEMA)
    info = read_samples_info(path)
    problems: dict[str, tuple[tuple[Any, ...], Problem]] = {}
    samples: list[Sample] = []
    seen: set[tuple[str, int]] = set()
    for number, row in enumerate(table.to_pylist(), start=1):
        try:
            samples.append(_sample(row, problems))
            key = samples[-1].problem.id, samples[-1].index
            _check(key not in seen, f"problem {key[0]!r} has the sample {key[1]} twice")
            _check(row["label"] == info.model.label, f"label {row['label']!r} is not the file's {info.model.label!r}")
            seen.add(key)
        except (ValueError, TypeError, RecursionError) as error:
            raise ArtifactError(f"{path}, row {number}: {error}; sample again") from None
    return SampleFile(info=info, samples=tuple(samples))


def read_samples_info(path: Path) -> SamplesInfo:
    """Return what a file of samples says of itself; the rows are not read.

    Raises:
        ArtifactError: the file is missing, damaged, or no file of samples.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; write it with swerve sample")
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    if not _is_marked(schema):
        if schema.names == SAMPLE_FILE_SCHEMA.names:
            raise ArtifactError(f"{path} is damaged: it has the columns of samples and not their metadata")
        raise ArtifactError(f"{path} is not a file of samples; write one with swerve sample")
    try:
        record = json.loads(schema.metadata.get(PROVENANCE.encode(), b""))
        if not isinstance(record, dict) or sealed(record)[SEAL] != record.get(SEAL):
            raise ArtifactError(f"{path} was changed after it was written: its metadata differs from the digest in it")
        return SamplesInfo.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ArtifactError(f"{path}: {key}: {first['msg'].lower()}; sample again with this version") from None
    except (ValueError, RecursionError):
        raise ArtifactError(f"{path} is damaged: what it says of itself is not JSON; sample again") from None


def _row(sample: Sample) -> dict[str, Any]:
    problem, reward = problem_record(sample.problem), sample.reward
    messages = problem.pop("messages")
    own = {column: problem.pop(field) for field, column in _COLUMN_FIELDS.items()}
    return {
        **own,
        "sample": sample.index,
        "label": sample.label,
        "messages": _json(messages) if messages else None,
        "problem_details": _json({name: value for name, value in problem.items() if value is not None}),
        "prompt": sample.prompt,
        "prompt_ids": list(sample.prompt_ids),
        "completion_ids": list(sample.completion.token_ids),
        "logprobs": list(sample.completion.logprobs),
        "text": sample.text,
        "reward": reward.value,
        "correct": reward.is_right,
        "parts": _json(dict(reward.parts)),
        "status": reward.status,
        "answered": reward.answered,
        "extracted": reward.extracted,
        "detail": reward.detail,
        "finish_reason": sample.completion.finish_reason,
        "temperature": sample.temperature,
        "seed": sample.seed,
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _sample(row: Mapping[str, Any], problems: dict[str, tuple[tuple[Any, ...], Problem]]) -> Sample:
    """Return a row's sample; `problems` keeps each problem with its cells, so that it is made once."""
    optional = ("messages", "reward", "extracted", "detail")
    empty = next((name for name in SAMPLE_FILE_SCHEMA.names if row[name] is None and name not in optional), None)
    _check(empty is None, f"{empty} is null")
    _check(row["finish_reason"] in _FINISH_REASONS, f"finish_reason is {row['finish_reason']!r:.40}")
    _check(row["status"] in _STATUSES, f"status is {row['status']!r:.40}")
    _check(bool(row["prompt_ids"]) and bool(row["completion_ids"]), "prompt_ids and completion_ids need a token each")
    _check(min(*row["prompt_ids"], *row["completion_ids"]) >= 0, "a token id is below 0")
    _check(
        all(-math.inf < value <= _ROUNDING for value in row["logprobs"]), "a log-probability is above 0 or not finite"
    )
    numbers = [row["temperature"], row["reward"] or 0.0]
    _check(all(map(math.isfinite, numbers)) and row["temperature"] >= 0, "temperature or reward is not finite")
    reward = Reward(
        value=row["reward"],
        status=row["status"],
        answered=row["answered"],
        parts=json.loads(row["parts"]),
        extracted=row["extracted"],
        detail=row["detail"],
    )
    _check(reward.is_right == row["correct"], "correct differs from what reward and parts say")
    return Sample(
        problem=_problem(row, problems),
        index=row["sample"],
        label=row["label"],
        prompt=row["prompt"],
        prompt_ids=tuple(row["prompt_ids"]),
        completion=Completion(
            token_ids=tuple(row["completion_ids"]),
            logprobs=tuple(row["logprobs"]),
            finish_reason=row["finish_reason"],
        ),
        text=row["text"],
        reward=reward,
        temperature=row["temperature"],
        seed=row["seed"],
    )


def _problem(row: Mapping[str, Any], problems: dict[str, tuple[tuple[Any, ...], Problem]]) -> Problem:
    cells = tuple(row[name] for name in (*_COLUMN_FIELDS.values(), "messages", "problem_details"))
    known = problems.get(row["problem_id"])
    if known is None:
        own = {field: row[column] for field, column in _COLUMN_FIELDS.items()}
        messages = json.loads(row["messages"] or "[]")
        problem = problem_from_record({**json.loads(row["problem_details"]), **own, "messages": messages})
        known = problems[row["problem_id"]] = cells, problem
    _check(known[0] == cells, f"problem {row['problem_id']!r} differs from that of an earlier row")
    return known[1]


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
