"""Parts of a long task: what was kept comes back as it was, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from swerve.artifacts.files import TEMPORARY_PREFIX, atomic_directory, atomic_path
from swerve.artifacts.parts import TABLE, Parts, _begun, digest_of, leave_nothing
from swerve.errors import ConfigError


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_part_comes_back_until_it_is_dropped(tmp_path: Path, on_disk: bool) -> None:
    parts = Parts(tmp_path / "parts" if on_disk else None, {"seed": 0})
    value = {"pieces": ["é", "", "\ud800"], "size": 2, "share": 1 / 3}
    assert parts.get("facts", "k") is None
    parts.put("facts", "k", value)
    assert parts.get("facts", "k") == value
    assert [parts.get("facts", "other"), parts.get("facts"), parts.get("states", "k")] == [None] * 3
    parts.drop("facts", "k")
    parts.drop("facts", "k")
    assert parts.get("facts", "k") is None


def test_a_part_survives_the_process_that_wrote_it(tmp_path: Path) -> None:
    Parts(tmp_path, {"seed": 0, "steps": (1, 2)}).put("rows", 3, [0.1])
    assert Parts(tmp_path, {"steps": [1, 2], "seed": 0}).get("rows", 3) == [0.1]
    assert Parts(None, {"seed": 0}).get("rows", 3) is None


def test_whatever_a_part_depends_on_separates_it(tmp_path: Path) -> None:
    Parts(tmp_path, "a").put("swaps", {"n": 1}, "first")
    others: list[tuple[str, str, dict[str, int]]] = [("b", "swaps", {"n": 1}), ("a", "pivots", {"n": 1})]
    for inputs, name, depends in [*others, ("a", "swaps", {"n": 2})]:
        parts = Parts(tmp_path, inputs)
        assert parts.get(name, depends) is None
        parts.put(name, depends, "other")
    assert Parts(tmp_path, "a").get("swaps", {"n": 1}) == "first"
    assert len(list(tmp_path.iterdir())) == 4


def test_a_table_keeps_types_and_metadata(tmp_path: Path) -> None:
    schema = pa.schema([("ids", pa.list_(pa.int32())), ("share", pa.float32())], metadata={"counts": "3"})
    table = pa.Table.from_pylist([{"ids": [1, 2], "share": 0.1}, {"ids": None, "share": None}], schema=schema)
    parts = Parts(tmp_path, 0, form=TABLE)
    parts.put("rows", None, table)
    found = parts.get("rows")
    assert found is not None
    assert found.equals(table, check_metadata=True)


def test_every_truncation_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    parts = Parts(tmp_path, 0)
    parts.put("rows", None, [1.5, "é"])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert parts.get("rows") is None, length
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        assert parts.get("rows") is None, index
    parts.put("rows", None, "again")
    assert parts.get("rows") == "again"


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    parts = Parts(tmp_path, 0)
    monkeypatch.setattr("swerve.artifacts.files.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parts.put("rows", None, [1])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_says_what_it_was_begun_with(tmp_path: Path) -> None:
    folder = tmp_path / "out.partial"
    parts = Parts(folder, {"seed": 0})
    assert parts.begun() is None
    folder.mkdir()
    (folder / f"{TEMPORARY_PREFIX}1-parts.json").write_text("{")  # what a kill left of the first file
    assert parts.begun() is None
    parts.begin()
    assert Parts(folder, {"seed": 1}).begun() == {"seed": 0}
    Parts(folder, {"seed": 1}).begin()
    assert parts.begun() == {"seed": 1}
    (folder / "parts.json").write_text("{")
    assert parts.begun() is None


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_is_somebody_elses_is_refused(tmp_path: Path, is_folder: bool) -> None:
    place = tmp_path / "out.partial"
    if is_folder:
        place.mkdir()
        (place / "mine.txt").write_text("kept")
    else:
        place.write_text("kept")
    with pytest.raises(ConfigError, match=r"out\.partial exists and is no interrupted work of swerve; move it away"):
        Parts(place, 0).begin()


def test_finishing_leaves_what_others_put_there(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    parts = Parts(folder, 0)
    parts.finish()
    for inputs in (0, 1):
        Parts(folder, inputs).begin()
        Parts(folder, inputs).put("rows", None, [])
    parts.finish()
    assert not folder.exists()
    parts.put("rows", None, [])
    (folder / "mine.txt").write_text("kept")
    parts.finish()
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_several_processes_may_finish_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, rmdir = Parts(tmp_path / "states", 0), Path.rmdir
    parts.put("rows", None, [])

    def beaten(path: Path) -> None:
        rmdir(path)
        rmdir(path)

    monkeypatch.setattr(Path, "rmdir", beaten)
    parts.finish()
    assert not (tmp_path / "states").exists()


def test_digests_see_order_of_lists_but_not_of_keys() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    values: list[tuple[Any, ...]] = [([1, 2],), ([2, 1],), (1, 2), ([1, 2.5],), ("1", 2), ()]
    assert len({digest_of(*one) for one in values}) == len(values)


def test_what_was_begun_and_refused_leaves_nothing_and_what_holds_something_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for place in (tmp_path / "new" / "deep" / "a.partial", tmp_path / "there" / "a.partial"):
        refused = Parts(place, "x")
        refused.begin()
        (place / ".lock").touch()
        leave_nothing()
        assert sorted(tmp_path.iterdir()) == [tmp_path / "there"]
        assert list((tmp_path / "there").iterdir()) == []

    # A part, another process's file, and a folder that an interruption left.
    for name in ("part", "marker", "before"):
        kept = Parts(tmp_path / name, "x")
        if name == "before":
            Parts(tmp_path / name, "x").begin()
            _begun.clear()
        kept.begin()
        if name == "part":
            kept.put("a", 1, 1)
        if name == "marker":
            (tmp_path / name / "shard-1-of-2.json").touch()
        leave_nothing()
        assert (tmp_path / name / "parts.json").is_file()


def test_a_file_that_is_not_written_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), atomic_path(tmp_path / "a" / "b" / "c.txt"):
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with atomic_path(tmp_path / "a" / "c.txt") as temporary:
        temporary.touch()
    with pytest.raises(ValueError, match="no"), atomic_directory(tmp_path / "a" / "d"):
        raise ValueError("no")
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "c.txt"]
