from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve.errors import ArtifactError, ConfigError, MissingExtraError
from swerve.problems.data_specs import DataSpec, parse_spec, read_source


def write_rows(path: Path, numbers: Sequence[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"n": number} for number in numbers]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def numbers(spec: str, *, default_split: str | None = None) -> list[int]:
    return [record.values["n"] for record in read_source(spec, default_split=default_split)]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("train@openai/gsm8k:main#v1.0", DataSpec("openai/gsm8k", "train", "main", "v1.0")),
        ("openai/gsm8k", DataSpec("openai/gsm8k")),
        ("openai/gsm8k#refs/pr/1", DataSpec("openai/gsm8k", revision="refs/pr/1")),
        ("test@a/b:c", DataSpec("a/b", "test", "c")),
        ("dir/x@y", DataSpec("dir/x@y")),
        ("train@dir@x/f.jsonl", DataSpec("dir@x/f.jsonl", "train")),
    ],
)
def test_the_parts_of_a_spec(text: str, spec: DataSpec) -> None:
    assert parse_spec(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize("text", ["", "train@", "@a/b", "a/b:", "a/b#", "train@:main"])
def test_an_incomplete_spec_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is incomplete; write"):
        parse_spec(text)


@pytest.mark.parametrize("name", ["v1@today", "a:b", "a#b", "x@y:z#1", "train@it.jsonl"])
def test_a_path_that_exists_wins_over_the_marks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert parse_spec(name) == DataSpec(name)
    assert parse_spec(f"test@{name}:part") == DataSpec(name, "test", "part")


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    write_rows(tmp_path / "mine.jsonl", [1, 2])
    records = list(read_source(str(tmp_path / "mine.jsonl"), default_split="train"))
    assert [record.values for record in records] == [{"n": 1}, {"n": 2}]
    assert records[1].place == f"{tmp_path / 'mine.jsonl'}, line 2"


@pytest.mark.parametrize(
    ("before", "after", "part"), [("train@", "", "split"), ("", ":main", "config"), ("", "#v1", "revision")]
)
def test_a_file_has_no_parts(before: str, after: str, part: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "mine.jsonl", [1])
    with pytest.raises(ConfigError, match=f"names the {part} .*; leave it out"):
        read_source(f"{before}{tmp_path / 'mine.jsonl'}{after}")


@pytest.mark.parametrize(
    "name",
    [
        "train.jsonl",
        "train.jsonl.gz",
        "train.parquet",
        "data/train.jsonl",
        "data/train-00000-of-00001.parquet",
        "train-00000-of-00001-0123456789abcdef.parquet",
        "train/people3_num1000.jsonl",
        "data/train/0.jsonl",
    ],
)
def test_where_a_folder_has_a_split(name: str, tmp_path: Path) -> None:
    write_rows(tmp_path / name, [1, 2])
    write_rows(tmp_path / name.replace("train", "test"), [3])
    assert numbers(f"train@{tmp_path}") == [1, 2]
    assert numbers(str(tmp_path), default_split="test") == [3]


def test_parts_of_a_split_are_joined_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for part in range(12):
        write_rows(tmp_path / f"train-{part}-of-12.jsonl", [part])
    assert numbers(f"train@{tmp_path}") == list(range(12))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    for part in (0, 2):
        write_rows(tmp_path / f"train-{part:05d}-of-00003.parquet", [part])
    with pytest.raises(ArtifactError, match="has 2 of 3 parts of 'train'; part 1 is missing"):
        read_source(f"train@{tmp_path}")


@pytest.mark.parametrize(
    "names", [("train.jsonl", "train.parquet"), ("train.jsonl", "train-0.jsonl"), ("train-0.jsonl", "train-00.jsonl")]
)
def test_copies_of_a_split_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    for name in names:
        write_rows(tmp_path / name, [1])
    with pytest.raises(ConfigError, match="holds one split several times"):
        read_source(f"train@{tmp_path}")


def test_files_of_the_folder_come_before_those_below_data(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", [1])
    write_rows(tmp_path / "data" / "train.jsonl", [2])
    write_rows(tmp_path / "train" / "0.jsonl", [3])
    assert numbers(f"train@{tmp_path}", default_split="data") == [1]


def test_a_split_is_not_the_beginning_of_another_name(tmp_path: Path) -> None:
    write_rows(tmp_path / "test.jsonl", [1])
    write_rows(tmp_path / "test_hard.jsonl", [2])
    assert numbers(f"test@{tmp_path}") == [1]
    assert numbers(f"test_hard@{tmp_path}") == [2]


def test_a_config_is_a_subfolder(tmp_path: Path) -> None:
    write_rows(tmp_path / "main" / "train-00000-of-00001.parquet", [1])
    write_rows(tmp_path / "socratic" / "train-00000-of-00001.parquet", [2])
    assert numbers(f"train@{tmp_path}:socratic") == [2]
    with pytest.raises(ConfigError, match="has no subfolder 'mian' .*did you mean 'main'"):
        read_source(f"train@{tmp_path}:mian")
    with pytest.raises(ConfigError, match=rf"has the split 'train' in main, socratic; write train@{tmp_path}:main"):
        read_source(f"train@{tmp_path}")


def test_an_unknown_split_of_a_folder(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", [1])
    write_rows(tmp_path / "test.jsonl", [2])
    with pytest.raises(ConfigError, match="no split 'trian'; it has test, train; did you mean 'train'"):
        read_source(f"trian@{tmp_path}")
    with pytest.raises(ConfigError, match="has 2 splits .test, train.; write SPLIT@"):
        read_source(str(tmp_path))
    (tmp_path / "test.jsonl").unlink()
    assert numbers(str(tmp_path)) == [1]


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no split 'train'; no file in it ends in .json"):
        read_source(f"train@{tmp_path}")


@pytest.mark.parametrize("spec", ["nothing.jsonl", "no/such/folder", "owner/data.parquet", "gsm8k", "\0", "x" * 5000])
def test_what_is_neither_a_path_nor_a_name_on_the_hub(spec: str) -> None:
    with pytest.raises(ConfigError, match="does not exist; give a file .* or the name owner/name"):
        read_source(spec)


ROWS = {"train": [{"n": 1}, {"n": 2}], "test": [{"n": 3}]}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A hub with the data set `owner/name`; what is asked of it."""
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str | None, *, split: str | None, revision: str | None) -> Any:
        asked.append((name, config, split, revision))
        every = datasets.DatasetDict({key: datasets.Dataset.from_list(rows) for key, rows in ROWS.items()})
        if split is not None and split not in every:
            raise ValueError(f'Unknown split "{split}". Should be one of {list(every)}.\n(more)')
        return every if split is None else every[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_a_split_of_the_hub(hub: list[tuple[Any, ...]]) -> None:
    records = read_source("train@owner/name:main#v1")
    assert hub == [("owner/name", "main", "train", "v1")]
    assert [record.values for record in records] == ROWS["train"]
    assert records[1].place == "train@owner/name:main, row 2"


def test_the_default_split_is_asked_for(hub: list[tuple[Any, ...]]) -> None:
    assert [record.values["n"] for record in read_source("owner/name", default_split="test")] == [3]
    read_source("train@owner/name", default_split="test")
    assert hub == [("owner/name", None, "test", None), ("owner/name", None, "train", None)]


def test_an_unknown_split_of_the_hub(hub: list[tuple[Any, ...]]) -> None:
    with pytest.raises(
        ConfigError, match=r"'owner/name' cannot be read as asked: .*one of \['train', 'test'\]\. \(more\)$"
    ):
        read_source("dev@owner/name")
    with pytest.raises(ConfigError, match=r"has 2 splits \(test, train\); write SPLIT@owner/name"):
        read_source("owner/name")


def test_without_a_network_the_way_to_a_local_copy_is_named() -> None:
    with pytest.raises(ConfigError, match="hf download --repo-type dataset --local-dir FOLDER owner/no-such") as caught:
        read_source("train@owner/no-such")
    assert "\n" not in str(caught.value)


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"reading 'owner/name' from the hub .* pip install 'swerve\[hub\]'"):
        read_source("train@owner/name")


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    every = datasets.DatasetDict({key: datasets.Dataset.from_list(rows) for key, rows in ROWS.items()})
    every.save_to_disk(str(tmp_path / "saved"))
    records = read_source(f"train@{tmp_path / 'saved'}")
    assert [record.values for record in records] == ROWS["train"]
    assert records[0].place == f"train@{tmp_path / 'saved'}, row 1"
    one = str(tmp_path / "saved" / "test")
    assert [record.values["n"] for record in read_source(one, default_split="train")] == [3]
    with pytest.raises(ConfigError, match="names the split 'train', but .* is one saved data set; leave it out"):
        read_source(f"train@{one}")
    with pytest.raises(ConfigError, match="has no split 'tset' .test, train.; .*did you mean 'test'"):
        read_source(f"tset@{tmp_path / 'saved'}")


def test_a_damaged_folder_of_save_to_disk(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(ArtifactError, match="cannot be read as a saved data set"):
        read_source(str(tmp_path))
