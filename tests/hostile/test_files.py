"""Files of responses, rollouts and logs that are damaged, or hold far more than they seem to."""

from __future__ import annotations

import gzip
import json
import random
import resource
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError
from swerve.formats.records import iter_records, read_records
from swerve.recipes import dump_yaml, load_config
from swerve.rewards import grade
from swerve.types import Problem
from tests.cases import each

GIB = 2**30


def repeated(value: Any, num: int, kind: pa.DataType) -> pa.Array:
    """Return a column that has one value many times, without having it in memory."""
    return pa.DictionaryArray.from_arrays(pa.nulls(num, pa.int32()).fill_null(0), pa.array([value], kind))


BOMBS: dict[str, Callable[[], pa.Table]] = {
    "many numbers": lambda: pa.table({"response": repeated(7.0, 70_000_000, pa.float64())}),
    "a text many times": lambda: pa.table({"response": repeated("x" * 20_000, 400_000, pa.string())}),
    "many nulls": lambda: pa.table({"response": pa.nulls(70_000_000, pa.int8())}),
    "texts in lists": lambda: pa.table(
        {
            "response": pa.ListArray.from_arrays(
                pa.array([0, 400_000], pa.int32()), repeated("x" * 20_000, 400_000, pa.string())
            )
        }
    ),
}


@pytest.mark.parametrize(
    "bomb", ["many nulls", *(pytest.param(bomb, marks=pytest.mark.slow) for bomb in BOMBS if bomb != "many nulls")]
)
def test_a_small_file_of_many_values_is_refused_before_it_is_read(refused: Any, tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(BOMBS[bomb](), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 400_000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = refused("grade", "--task", "exact", path)
    is_row = bomb == "texts in lists"
    assert ("bomb.parquet has a row of more than" if is_row else "bomb.parquet holds more than 2 GiB, the most") in line
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < GIB


def test_an_exported_table_has_the_same_limit(refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(BOMBS["a text many times"](), path, compression="zstd", store_schema=False)
    assert "holds more than 2 GiB" in refused("data", "export", path, "--out", tmp_path / "out.jsonl")


@pytest.mark.slow
def test_a_footer_that_would_end_the_process_is_damaged(tmp_path: Path) -> None:
    """pyarrow aborts where it is asked for a column whose histogram of levels has another length than it must have."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"column": ["a"]}), path, store_schema=False)
    content = path.read_bytes()
    said = []
    for at in range(len(content) - 160, len(content), 4):
        for bit in (1, 32):
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            try:
                read_records(path)
            except ArtifactError as error:
                said.append(str(error))
    assert len(said) > 25  # of 80: not every bit of a footer is read
    assert [text for text in said if str(path) not in text] == []


GOOD = json.dumps({"id": "p", "gold": "2", "response": "2"}).encode()
LINES: dict[str, tuple[str, bytes, str]] = {
    "not UTF-8": ("a.jsonl", GOOD + b"\n" + GOOD.replace(b"p", b"\xff"), "a.jsonl, line 2 is not UTF-8"),
    "cut": ("a.jsonl", GOOD + b"\n" + GOOD[:-3], "a.jsonl, line 2 is not JSON"),
    "no object": ("a.jsonl", GOOD + b"\n5", "a.jsonl, line 2 is not an object"),
    "deep": ("a.jsonl", b'{"id": ' + b"[" * 100_000, "a.jsonl, line 1 is nested deeper"),
    "many digits": ("a.jsonl", b'{"id": ' + b"9" * 5000 + b"}", "a.jsonl, line 1 is not JSON that can be read"),
    "NUL": ("a.jsonl", b"\0\0", "a.jsonl, line 1 is not JSON"),
    "UTF-16": ("a.jsonl", GOOD.decode().encode("utf-16"), "a.jsonl, line 1 is not UTF-8"),
    "cut gz": ("a.jsonl.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\3K", "a.jsonl.gz cannot be read"),
    "no gz": ("a.jsonl.gz", GOOD, "a.jsonl.gz cannot be read"),
    "no Parquet": ("a.parquet", GOOD, "a.parquet is damaged"),
    "empty Parquet": ("a.parquet", b"", "a.parquet is damaged"),
    "empty": ("a.json", b"", "a.json is not JSON"),
    "no records": ("a.jsonl", b"\n\n", "a.jsonl has no records"),
    "unequal cells": ("a.csv", b"id,gold\n1,2,3\n", "a.csv, line 2 has 3 cells"),
}


@pytest.mark.parametrize(("name", "data", "said"), LINES.values(), ids=LINES)
def test_a_damaged_file_of_records_is_named_with_its_line(
    refused: Any, tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for command in (("grade", "--task", "exact", path), ("data", "import", path, "--out", "table.parquet")):
        assert said in refused(*command)


STEP = b'{"step": 1, "stage": "rl", "stage_step": 1}\n'
LOGS = {
    "not UTF-8": (STEP + STEP.replace(b"rl", b"\xff\xff"), "metrics.jsonl:2 is not a JSON object"),
    "no object": (b"5\n" + STEP, "metrics.jsonl:1 is not a JSON object"),
    "deep": (b"[" * 100_000 + b"\n" + STEP, "metrics.jsonl:1 is not a JSON object"),
    "no step": (STEP + b'{"stage": "rl"}\n', "metrics.jsonl:2: step must be a whole number, got None"),
    "wrong step": (STEP.replace(b"1", b'"x"'), "metrics.jsonl:1: step must be a whole number, got 'x'"),
    "wrong stage": (STEP.replace(b'"rl"', b"[]"), "metrics.jsonl:1: stage must be text, got []"),
    "wrong value": (STEP.replace(b"}", b', "reward": "high"}'), "metrics.jsonl:1: reward"),
}


@pytest.mark.parametrize(("log", "said"), LOGS.values(), ids=LOGS)
def test_a_damaged_log_is_named_with_its_line(refused: Any, tmp_path: Path, log: bytes, said: str) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml=dump_yaml(load_config("demo_addition")), provenance={})
    run.metrics_path.write_bytes(log)
    assert said in refused("report", run.path)


@pytest.mark.parametrize(("name", "grader"), [("choice", "choice"), ("palindrome", "palindrome"), ("exact", "exact")])
def test_a_text_of_50_mb_has_an_outcome_of_its_own_at_once(name: str, grader: str) -> None:
    problem = Problem(id="p", family=name, question="?", answer="A", grader=grader)
    text = r"\boxed{A} " * 5_000_000
    started = time.process_time()
    reward = grade(problem, text)
    assert time.process_time() - started < 0.5
    assert (reward.value, reward.status) == (None, "timeout")
    assert reward.detail == "text of 50000000 characters, limit 200000"
    assert grade(problem, text[:200_000]).status != "timeout"


def inspect_archive(path: Path, parts: list[bytes], num_samples: int = 1) -> None:
    """Write a log of Inspect whose samples are these bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {"model": "m"}}))
        for number in range(num_samples):
            with archive.open(f"samples/{number}_epoch_1.json", "w") as stream:
                stream.writelines(parts)


SAMPLE = (
    b'{"id": "a", "epoch": 1, "input": "1 + 1 =", "target": "2", "scores": {"match": {"value": "C"}}, '
    b'"output": {"model": "m"}, "messages": [{"role": "assistant", "content": "2 ; 2'
)


@pytest.mark.parametrize(
    "name",
    [
        "text.eval",
        "lists.eval",
        "text.jsonl.gz",
        "lists.jsonl.gz",
        "text.json.gz",
        pytest.param("cell.parquet", marks=pytest.mark.slow),
    ],
)
def test_a_small_compressed_file_takes_little_memory(refused: Any, tmp_path: Path, name: str) -> None:
    path, megabyte = tmp_path / name, b"x" * 2**20
    expected = "longer than 64 MiB"
    if name == "text.eval":
        inspect_archive(path, [SAMPLE, *[megabyte] * 120, b'"}]}'])
        expected = "text.eval: samples/0_epoch_1.json is 120 MiB packed in 1"
    elif name == "lists.eval":
        inspect_archive(path, [SAMPLE, b'"}], "z": [', *[b"[]," * 2**18] * 60, b"[]]}"])
        expected = "takes more than 1 GiB of memory as values"
    elif name == "cell.parquet":
        pq.write_table(pa.table({"response": ["x" * 300_000_000]}), path, compression="zstd")
        expected = "has a row of more than 256 MiB"
    else:
        with gzip.open(path, "wb", compresslevel=1) as stream:
            stream.write(b'[{"response": "' if "json.gz" in name else b'{"response": "')
            stream.writelines([megabyte if "text" in name else b"[]," * 2**18] * 70)
        if name == "text.json.gz":
            expected = "holds more than 0.0625 GiB"
        elif name == "lists.jsonl.gz":
            expected = "line 1 takes more than 1 GiB of memory as values"
    assert path.stat().st_size < 2**20
    line = refused("data", "import", path, "--out", tmp_path / "o.parquet", memory=400 << 20)
    assert expected in line


def test_a_large_archive_is_read_sample_by_sample(tmp_path: Path) -> None:
    chance = random.Random(0)
    path = tmp_path / "large.eval"
    texts = [chance.randbytes(150_000).hex() for _ in range(100)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {"model": "m"}}))
        for number, text in enumerate(texts):
            archive.writestr(f"samples/{number}_epoch_1.json", SAMPLE + text.encode() + b'"}]}')
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ends = [record.values["messages"][0]["content"][-8:] for record in iter_records(path)]
    assert ends == [text[-8:] for text in texts]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < 20 << 20


@each("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_is_packed_as_inspect_packs_it(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("header.json", "{}")
    with pytest.raises(ArtifactError, match="packed otherwise than by deflate or Zstandard"):
        read_records(path)
