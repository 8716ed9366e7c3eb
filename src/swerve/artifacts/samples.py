"""Samples of one model: graded completions of problems in one Parquet file that every other command reads.

A row has its whole problem, so that it can be graded again without the task's source.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import JsonValue, ValidationError

from swerve.artifacts.files import SEAL, parse_json, regular_file, sealed
from swerve.artifacts.frames import Framed
from swerve.artifacts.record import Record
from swerve.artifacts.response_columns import SAMPLES_SCHEMA
from swerve.artifacts.responses import Response, by_problem, iter_response_table, responses_table, write_responses
from swerve.artifacts.tables import PROVENANCE, read_table
from swerve.errors import ArtifactError, ConfigError, shown, unreadable
from swerve.text import counted, judged_words
from swerve.types import FinishReason, RewardStatus

SAMPLES_TABLE = "samples"
"""What the metadata of the file calls it."""

_WORDS = {"finish_reason": get_args(FinishReason), "status": get_args(RewardStatus)}
_ROUNDING = 1e-3
"""How far above 0 rounding may lift a log-probability, nats."""
_NEEDED = ("sample", "prompt", "text", "answered", "status", "temperature", "seed")
"""Fields that every sample has, beside its tokens."""


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
    """SHA-256 over the files of weights, configuration and tokenizer, or over the hub's name and commit; of a model
    that a server has, over its name there."""
    dtype: str | None = None
    """What the weights were loaded as; null: a server has them."""
    device: str | None = None
    """Type of device: `cpu` or `cuda`; null: as for `dtype`."""


class SamplesInfo(Record):
    """What a file's samples depend on; two files that agree in it hold the same samples."""

    model: SampledModel
    """The model, with the digest of its files."""
    tokenizer: SamplesTokenizer | None = None
    """Of the model; null: a server has it."""
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
    template: str = "auto"
    """`raw`: problems were not put into the chat template."""
    template_args: Mapping[str, JsonValue] = {}
    """Arguments of the chat template."""
    today: str = ""
    """The date that the chat template was told."""
    engine: Mapping[str, JsonValue] = {}
    """Configuration of the engine that sampled."""
    swerve_version: str
    """That sampled."""

    @property
    def is_served(self) -> bool:
        """Whether a server sampled by texts: it may not tell ids, nor the prompt that it made of the messages."""
        return self.tokenizer is None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SampleFile(Framed):
    """The content of a file of samples."""

    info: SamplesInfo
    samples: tuple[Response, ...]
    """By problem, in the order of the problems; within a problem by number."""

    def by_problem(self) -> dict[str, tuple[Response, ...]]:
        """Return the samples of each problem, by its id."""
        return {name: tuple(group) for name, group in by_problem(self.samples).items()}

    def table(self) -> pa.Table:
        """Return one row a response."""
        return responses_table(list(self.samples), SAMPLES_SCHEMA)

    def __iter__(self) -> Iterator[Response]:
        """Go through the responses."""
        return iter(self.samples)

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self.samples)

    def __repr__(self) -> str:
        """Return three lines: whose samples, how they were taken, how many are right."""
        table = self.table()
        return f"SampleFile {_described(self.info)}\n{right_words(table)}{how_judged(table)}"


@dataclass(frozen=True, slots=True, repr=False)
class StoredSamples(Framed):
    """A file of samples that is not held: its rows are read anew by whoever iterates over them."""

    path: Path

    @property
    def info(self) -> SamplesInfo:
        """What the file says of itself; see `read_samples_info`."""
        return read_samples_info(self.path)

    @property
    def samples(self) -> Iterator[Response]:
        """The rows, those to one problem together; see `iter_samples`."""
        return iter_samples(self.path)

    def table(self) -> pa.Table:
        """Return one row a response."""
        return read_table(self.path, SAMPLES_SCHEMA)

    def __fspath__(self) -> str:
        """Return the file's path."""
        return str(self.path)

    def __iter__(self) -> Iterator[Response]:
        """Go through the responses."""
        return self.samples

    def __len__(self) -> int:
        """Return the number of responses."""
        return int(pq.read_metadata(self.path).num_rows)

    def __repr__(self) -> str:
        """Return three lines: whose samples, how they were taken, how many are right."""
        table = self.table()
        return f"StoredSamples {_described(self.info)}\n{right_words(table)}, in {self.path}{how_judged(table)}"


Samples = SampleFile | StoredSamples
"""A file of samples, held or not."""


def _described(info: SamplesInfo) -> str:
    temperatures = " and ".join(f"{value:g}" for value in info.temperatures)
    return (
        f"of {info.model.label}: {num_words(info)}, {info.task.get('kind')}\n"
        f"temperature {temperatures}, at most {counted(info.max_new_tokens, 'token')}, seed {info.seed}"
    )


def num_words(info: SamplesInfo) -> str:
    """Return how many samples there are of how many problems, such as `2 answers to each of 3 problems`."""
    each = "each of " if info.num_problems != 1 else ""
    return f"{counted(info.num_samples, 'answer')} to {each}{counted(info.num_problems, 'problem')}"


def how_judged(table: pa.Table) -> str:
    """Return which graders judged a table's responses, and whether most were cut off: `text.judged_words`."""
    pairs = dict.fromkeys(zip(*(table[name].to_pylist() for name in ("family", "problem_details")), strict=True))
    graders = [json.loads(details or "{}").get("grader") or family for family, details in pairs]
    return judged_words(graders, table["finish_reason"].to_pylist().count("length"), table.num_rows)


def right_words(table: pa.Table) -> str:
    """Return how many of a table's responses are right, in words; those without a verdict count apart.

    >>> right_words(pa.table({"correct": [True, False, None]}))
    '1 of 2 right, 1 not graded'
    """
    verdicts = table["correct"].to_pylist()
    unknown = verdicts.count(None)
    said = f"{verdicts.count(True)} of {len(verdicts) - unknown} right"
    return f"{said}, {unknown} not graded" if unknown else said


def write_samples(path: Path, info: SamplesInfo, samples: Sequence[Response] | pa.Table) -> None:
    """Write samples, atomically; equal samples give equal bytes.

    Raises:
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    said = sealed(info.model_dump(mode="json"))
    write_responses(path, samples, SAMPLES_SCHEMA, table=SAMPLES_TABLE, provenance=said)


def is_samples_file(path: Path) -> bool:
    """Whether a file is a Parquet file of samples, by what its metadata calls it or by its columns.

    Raises:
        ArtifactError: it is a damaged Parquet file, perhaps of samples.
    """
    if not path.is_file():  # a named pipe would be waited for
        return False
    try:
        schema = pq.read_schema(path)
        names = schema.names  # of a damaged file perhaps no text
    except (OSError, ValueError, pa.ArrowException) as error:
        # A Parquet file begins and ends with these four letters; a damaged one may have lost one of the two.
        with path.open("rb") as stream:
            first = stream.read(4)
            stream.seek(max(0, path.stat().st_size - 4))
            if b"PAR1" not in (first, stream.read()):
                return False
        raise ArtifactError(unreadable(path, error)) from None
    return _is_marked(schema) or names == SAMPLES_SCHEMA.names


def _is_marked(schema: pa.Schema) -> bool:
    return bool((schema.metadata or {}).get(b"swerve_table") == SAMPLES_TABLE.encode())


def files_of_models(folder: Path) -> dict[str, Path]:
    """Return the files of a folder of samples by their model's label; empty where it has anything else beside them.

    Raises:
        ArtifactError: a file is damaged.
    """
    files = sorted(path for path in folder.iterdir() if path.name[0] not in "._") if os.path.isdir(folder) else []
    if not all(path.suffix == ".parquet" and is_samples_file(path) for path in files):
        return {}
    return {read_samples_info(path).model.label: path for path in files}


def file_of_model(files: Mapping[str, Path], label: str, source: Path | str) -> Path | None:
    """Return the samples of a model by what it is called, or else by where it is; None: there are none.

    Args:
        files: of several models, by label.
        label: of the model.
        source: its folder, or its name on the hub.
    """
    by_source = {read_samples_info(path).model.source: path for path in files.values()}
    return files.get(label) or by_source.get(str(source))


def read_samples(path: str | Path) -> SampleFile:
    """Return the samples in a file, checked row by row.

    Raises:
        ArtifactError: the file is missing, damaged, changed, or no file of samples; the message names file and row.
        ConfigError: no path is given.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"samples are read from a file, and not from {shown(path)}")
    path = Path(path)
    return SampleFile(info=read_samples_info(path), samples=tuple(iter_samples(path)))


def iter_samples(path: Path) -> Iterator[Response]:
    """Yield the samples in a file, checked row by row; none is held.

    Raises:
        ArtifactError: see `read_samples`.
    """
    info, problems, last = read_samples_info(path), set[str](), None
    label = info.model.label
    for number, sample in enumerate(iter_response_table(path, SAMPLES_SCHEMA), start=1):
        # A row is what an engine and a grader can have made, of this model, once, and of the problem of its id.
        name = sample.problem.id
        try:
            _check_sample(sample, is_served=info.is_served)
            _check(sample.label == label, f"label {sample.label!r} is not the file's {label!r}")
            if last is not None and last.problem.id == name:
                _check(last.problem == sample.problem, f"problem {name!r} differs from that of an earlier row")
                is_later = (last.sample or 0) < (sample.sample or 0)
                _check(is_later, f"problem {name!r} has the sample {sample.sample} twice, or after a later one")
                sample = replace(sample, problem=last.problem)  # held once
            else:
                _check(name not in problems, f"the samples of problem {name!r} do not stand together")
        except ValueError as error:
            raise ArtifactError(f"{path}, row {number}: {error}; sample again") from None
        problems.add(name)
        last = sample
        yield sample


def read_samples_info(path: Path) -> SamplesInfo:
    """Return what a file of samples says of itself; the rows are not read.

    Raises:
        ArtifactError: the file is missing, damaged, or no file of samples.
    """
    if path.is_dir():
        files = ", ".join(str(file) for file in sorted(path.glob("*.parquet")) if is_samples_file(file))
        one = f"; give one of its files: {files}" if files else ", and has no file of samples"
        raise ArtifactError(f"{path} is a folder{one}")
    if not regular_file(path).is_file():
        raise ArtifactError(f"{path} does not exist; write it with swerve sample")
    if not is_samples_file(path):
        raise ArtifactError(f"{path} is not a file of samples; write one with swerve sample")
    schema = pq.read_schema(path)
    if not _is_marked(schema):
        raise ArtifactError(f"{path} is damaged: it has the columns of samples and not their metadata")
    # What it says agrees with the digest in it and has every key.
    try:
        record = parse_json(schema.metadata.get(PROVENANCE.encode(), b""))
        if not isinstance(record, dict) or sealed(record)[SEAL] != record.get(SEAL):
            raise ArtifactError(f"{path} was changed after it was written: its metadata differs from the digest in it")
        return SamplesInfo.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        key, message = ".".join(map(str, first["loc"])), first["msg"].lower()
        raise ArtifactError(f"{path}: {key}: {message}; sample again with this version") from None
    except (ValueError, RecursionError):
        raise ArtifactError(f"{path} is damaged: what it says of itself is not JSON; sample again") from None


def _check_sample(sample: Response, *, is_served: bool) -> None:
    """Raise ValueError if a row cannot be a graded completion of an engine."""
    for name in _NEEDED:
        _check(getattr(sample, name) is not None or (is_served and name == "prompt"), f"{name} is null")
    for name, allowed in _WORDS.items():
        is_said = is_served and name == "finish_reason" and sample.finish_reason is not None
        _check(is_said or getattr(sample, name) in allowed, f"{name} is {getattr(sample, name)!r:.40}")
    has_ids = bool(sample.prompt_ids and sample.completion_ids)
    has_none = is_served and not (sample.prompt_ids or sample.completion_ids)
    _check(has_ids or has_none, "prompt_ids and completion_ids need a token each")
    _check(min((0, *sample.prompt_ids, *sample.completion_ids)) == 0, "a token id is below 0")
    num, num_logs = len(sample.completion_ids), len(sample.logprobs)
    _check(num_logs == num or (is_served and not num_logs), f"{num} token ids but {num_logs} log-probabilities")
    are_logs = all(value is not None and -math.inf < value <= _ROUNDING for value in sample.logprobs)
    _check(are_logs, "a log-probability is above 0 or not finite")
    are_finite = 0 <= (sample.temperature or 0.0) < math.inf and math.isfinite(sample.reward or 0.0)
    _check(are_finite, "temperature or reward is not finite")
    _check(sample.given_reward.is_right == sample.correct, "correct differs from what reward and parts say")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
