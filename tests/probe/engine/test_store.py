from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.probe.engine.store import (
    DiskStore,
    MemoryStore,
    clear_store,
    digest_of,
    open_store,
    pack_units,
    unpack_units,
)

TENSORS = {"hidden": torch.tensor([[1.5, -2.0], [0.25, 3.0]]).bfloat16(), "rank": torch.tensor([1, 7]).int()}


def path_of(folder: Path, key: str = "k", unit: int = 3) -> Path:
    return folder / f"key-{key}" / f"unit-{unit:06d}.safetensors"


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_units_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    store = open_store(tmp_path if kind == "disk" else None)
    assert isinstance(store, DiskStore if kind == "disk" else MemoryStore)
    assert store.load("k", 3) is None
    store.save("k", 3, TENSORS)
    found = store.load("k", 3)
    assert found is not None
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
    assert found["hidden"].dtype == torch.bfloat16
    assert store.load("k", 4) is None
    assert store.load("other", 3) is None
    store.drop("k", 3)
    store.drop("k", 3)
    assert store.load("k", 3) is None


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_records_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    store = open_store(tmp_path if kind == "disk" else None)
    assert store.load_record("k") is None
    store.save_record("k", {"pieces": ["é", ""], "size": 2})
    assert store.load_record("k") == {"pieces": ["é", ""], "size": 2}
    assert store.load_record("other") is None


def test_a_file_survives_the_store_that_wrote_it(tmp_path: Path) -> None:
    DiskStore(tmp_path).save("k", 3, TENSORS)
    found = DiskStore(tmp_path).load("k", 3)
    assert found is not None
    assert torch.equal(found["rank"], TENSORS["rank"])


def test_tensors_that_were_read_are_aligned_and_free_of_the_file(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.save("k", 3, TENSORS)
    found = store.load("k", 3)
    assert found is not None
    path_of(tmp_path).write_bytes(b"")
    assert found["hidden"].data_ptr() % 64 == 0
    assert torch.equal(found["hidden"], TENSORS["hidden"])


def test_every_truncation_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.save("k", 3, TENSORS)
    path = path_of(tmp_path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    assert len(whole) - header == 2 * 2 * 2 + 2 * 4
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert store.load("k", 3) is None, length
        assert not path.exists()
    for index in range(header, len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        assert store.load("k", 3) is None, index
    path.write_bytes(whole)
    assert store.load("k", 3) is not None


def test_a_checksum_covers_names_and_shapes(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.save("k", 3, TENSORS)
    whole = path_of(tmp_path).read_bytes()
    path_of(tmp_path).write_bytes(whole.replace(b'"rank"', b'"sank"'))
    assert store.load("k", 3) is None
    path_of(tmp_path).write_bytes(whole.replace(b"[2,2]", b"[4,1]"))
    assert store.load("k", 3) is None


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.save_record("k", {"size": 2})
    path = tmp_path / "key-k" / "record.json"
    path.write_text(path.read_text()[:-4])
    assert store.load_record("k") is None
    path.write_text("[1]")
    assert store.load_record("k") is None


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        Path(str(args[1])).write_bytes(b"half")
        raise KeyboardInterrupt

    store = DiskStore(tmp_path)
    monkeypatch.setattr("swerve.probe.engine.store.save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.save("k", 3, TENSORS)
    assert store.load("k", 3) is None
    assert not list((tmp_path / "key-k").glob(f"{TEMPORARY_PREFIX}*"))


def test_clearing_leaves_what_others_put_there(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    clear_store(folder)
    store = DiskStore(folder)
    store.save("k", 3, TENSORS)
    store.save_record("j", {})
    clear_store(folder)
    assert not folder.exists()
    store.save("k", 3, TENSORS)
    (folder / "mine.txt").write_text("kept")
    clear_store(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_several_processes_may_clear_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "states"
    DiskStore(folder).save("k", 3, TENSORS)
    original = Path.rmdir

    def beaten(path: Path) -> None:
        original(path)
        original(path)

    monkeypatch.setattr(Path, "rmdir", beaten)
    clear_store(folder)
    assert not folder.exists()


def test_a_digest_depends_on_every_part_and_on_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({digest_of("a", 1), digest_of("a", 2), digest_of("b", 1), digest_of("a", "1"), digest_of("a")}) == 5
    before = digest_of("a")
    monkeypatch.setattr("swerve.probe.engine.store.STATES_VERSION", 2)
    assert digest_of("a") != before
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "0")
    assert digest_of("a") != before


def test_packed_units_pass_through_json() -> None:
    values = {0: TENSORS, 12: {"js": torch.tensor([0.1, float("inf")])}}
    found = unpack_units(json.loads(json.dumps(pack_units(values))))
    assert found.keys() == values.keys()
    for unit, tensors in values.items():
        assert all(torch.equal(found[unit][name], tensors[name]) for name in tensors)
