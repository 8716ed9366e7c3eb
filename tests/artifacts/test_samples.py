"""Files of samples: what is written is what is read, and what was changed is named."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import Response
from swerve.artifacts.samples import (
    SampledModel,
    SamplesInfo,
    SamplesTokenizer,
    is_samples_file,
    read_samples,
    read_samples_info,
    write_samples,
)
from swerve.artifacts.tables import write_table
from swerve.errors import ArtifactError
from swerve.formats.imported_responses import read_responses
from swerve.types import Completion, Problem, Prompt, Reward, Rollout

INFO = SamplesInfo(
    model=SampledModel(label="dpo", source="owner/dpo#step_100", fingerprint="ab", dtype="float32", device="cpu"),
    tokenizer=SamplesTokenizer(name="owner/dpo", sha256="cd"),
    task={"kind": "math"},
    split="heldout",
    num_problems=2,
    problems_sha256="ef",
    num_samples=2,
    temperatures=(0.0, 0.7),
    max_new_tokens=8,
    seed=3,
    template_args={"enable_thinking": False},
    swerve_version="0",
)
EASY = Problem(
    id="math-1",
    family="math",
    question="1 + 1?",
    answer="2",
    alternatives=("two",),
    solution="1 + 1 = 2",
    kind="level 1",
    difficulty=0.0,
    messages=(("system", "Be brief."), ("user", "1 + 1?")),
    prefix="<think>",
    grader="math",
    grading={"extraction": ["boxed"]},
    metadata={"subject": "Algebra"},
)
HARD = Problem(id="math-2", family="math", question="2 + 2?", answer="4", kind="level 4")
RIGHT = Reward(value=1.0, status="graded", parts={"correct": 1.0}, extracted="2")
LOST = Reward(value=None, status="unparsed", detail="no box")


def _sample(problem: Problem, index: int, reward: Reward) -> Response:
    completion = Completion(token_ids=(7, 2), logprobs=(-0.5, -0.25), finish_reason="stop")
    sample = Response.of(
        Prompt(problem=problem, token_ids=(1, 5, 6)),
        Rollout(completion=completion, text="so 2", reward=reward, version=0),
        sample=index,
        label="dpo",
        prompt=f"<user>{problem.question}",
        temperature=INFO.temperatures[index],
        seed=2**62 + index,
    )
    return replace(sample, version=None)  # no weights of a run sampled it


SAMPLES = [_sample(EASY, 0, RIGHT), _sample(EASY, 1, LOST), _sample(HARD, 0, LOST), _sample(HARD, 1, RIGHT)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dpo.parquet"
    write_samples(path, INFO, SAMPLES)
    return path


def test_what_is_written_is_read_again(file):
    found = read_samples(file)
    assert found.info == INFO
    assert found.samples == tuple(SAMPLES)
    assert {name: len(group) for name, group in found.by_problem().items()} == {"math-1": 2, "math-2": 2}
    assert is_samples_file(file)


def test_equal_samples_give_equal_bytes(file, tmp_path):
    again = tmp_path / "other" / "name.parquet"
    write_samples(again, INFO, SAMPLES)
    assert again.read_bytes() == file.read_bytes()


def test_the_readers_of_responses_take_ids_verdicts_and_problems(file):
    first, second, *_ = read_responses(file)
    assert first.dialect == "swerve"
    assert (first.prompt_ids, first.completion_ids) == ((1, 5, 6), (7, 2))
    assert (first.text, first.correct, first.reward, first.label, first.sample) == ("so 2", True, 1.0, "dpo", 0)
    assert second.correct is False
    problem = first.problem
    expected = {name: getattr(EASY, name) for name in ("question", "answer", "grading", "metadata", "difficulty")}
    assert {name: getattr(problem, name) for name in expected} == expected


def _rewritten(file, column, number, value):
    table = pq.read_table(file)
    values = table.column(column).to_pylist()
    values[number] = value
    place = table.schema.get_field_index(column)
    changed = table.set_column(place, table.schema.field(column), pa.array(values, table.schema.field(column).type))
    pq.write_table(changed, file)
    return file


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("completion_ids", [7], "1 token ids but 2 log-probabilities"),
        ("completion_ids", None, "prompt_ids and completion_ids need a token each"),
        ("prompt_ids", [], "prompt_ids and completion_ids need a token each"),
        ("logprobs", [0.5, -1.0], "log-probability is above 0"),
        ("logprobs", [float("nan"), -1.0], "log-probability is above 0 or not finite"),
        ("status", "graded", "a reward has a value exactly when it is graded"),
        ("status", "fine", "status is 'fine'"),
        ("correct", True, "correct differs from what reward and parts say"),
        ("sample", 0, "problem 'math-1' has the sample 0 twice"),
        ("label", "rl", "label 'rl' is not the file's 'dpo'"),
        ("gold", "5", "problem 'math-1' differs from that of an earlier row"),
        ("temperature", -1.0, "temperature or reward is not finite"),
    ],
)
def test_a_row_that_cannot_be_is_named(file, column, value, said):
    with pytest.raises(ArtifactError, match=rf"dpo.parquet, row 2: .*{said}"):
        read_samples(_rewritten(file, column, 1, value))


def test_changed_metadata_and_other_files_are_refused(file, tmp_path):
    table = pq.read_table(file)
    said = json.loads(table.schema.metadata[b"swerve_provenance"])
    metadata = {**table.schema.metadata, b"swerve_provenance": json.dumps({**said, "seed": 4}).encode()}
    changed = tmp_path / "changed.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), changed)
    with pytest.raises(ArtifactError, match="was changed after it was written"):
        read_samples(changed)
    other = tmp_path / "other.parquet"
    write_table(other, [dict.fromkeys(SEQUENCES_SCHEMA.names)], SEQUENCES_SCHEMA)
    assert not is_samples_file(other)
    with pytest.raises(ArtifactError, match="is not a file of samples; write one with swerve sample"):
        read_samples_info(other)
    with pytest.raises(ArtifactError, match="does not exist"):
        read_samples_info(tmp_path / "none.parquet")


def test_a_damaged_file_is_never_called_foreign(file, tmp_path):
    """Cut off, zeroed, or with one bit changed anywhere, the two ends included."""
    whole = file.read_bytes()
    size = len(whole)
    damaged = [whole[:length] for length in (4, 100, size // 2, size - 1)]
    damaged += [whole[:start] + bytes(min(300, size - start)) + whole[start + 300 :] for start in range(0, size, 300)]
    damaged += [whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :] for place in range(0, size, 31)]
    path = tmp_path / "damaged.parquet"
    called = []
    for content in damaged:
        path.write_bytes(content)
        try:
            called.append(is_samples_file(path))
        except ArtifactError as error:
            called.append(f"{path} is damaged: " in str(error))
    assert all(called)


def columns_of(file):
    group = pq.ParquetFile(file).metadata.row_group(0)
    return [group.column(number) for number in range(group.num_columns)]


def test_a_damaged_name_of_a_column_is_noticed_or_does_not_matter(file):
    """The name stands in the file's schema, where it has to be text, and in notes of its pages, which are not read."""
    whole, data, noticed = read_samples(file), file.read_bytes(), 0
    for place in re.finditer(b"temperature", data):
        file.write_bytes(data[: place.start()] + b"\xff" + data[place.start() + 1 :])
        try:
            found = read_samples(file)
        except ArtifactError as error:
            noticed += "is damaged" in str(error)
        else:
            assert found == whole
    assert noticed


def test_a_damaged_page_is_noticed(file):
    data = bytearray(file.read_bytes())
    texts = next(column for column in columns_of(file) if column.path_in_schema == "text")
    data[texts.dictionary_page_offset + texts.total_compressed_size // 2] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(ArtifactError, match="is damaged"):
        read_samples(file)
