from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

from swerve.errors import ArtifactError, ConfigError, MissingExtraError
from swerve.problems.data_specs import read_source

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
