from __future__ import annotations

from pathlib import Path

from swerve.probe.engine.store import PartStore, fingerprint


def test_a_unit_is_computed_once_and_read_afterwards(tmp_path: Path) -> None:
    calls = []

    def compute() -> list[float]:
        calls.append(1)
        return [0.1, 1 / 3]

    store = PartStore(path=tmp_path / "parts", key="a")
    assert store.get("swaps", {"rollouts": [1]}, compute) == [0.1, 1 / 3]
    assert PartStore(path=tmp_path / "parts", key="a").get("swaps", {"rollouts": [1]}, compute) == [0.1, 1 / 3]
    assert len(calls) == 1


def test_a_changed_result_is_computed_again(tmp_path: Path) -> None:
    store = PartStore(path=tmp_path, key="a")
    assert store.get("swaps", {}, lambda: [3, 4]) == [3, 4]
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("4", "5", 1))
    assert store.get("swaps", {}, lambda: [3, 4]) == [3, 4]
    assert store.get("swaps", {}, lambda: [0]) == [3, 4]


def test_whatever_a_unit_depends_on_separates_it(tmp_path: Path) -> None:
    path = tmp_path / "parts"
    PartStore(path=path, key="a").get("swaps", {"n": 1}, lambda: "first")
    others = [("b", "swaps", {"n": 1}), ("a", "pivots", {"n": 1}), ("a", "swaps", {"n": 2})]
    for key, name, depends in others:
        assert PartStore(path=path, key=key).get(name, depends, lambda: "other") == "other"
    assert len(list(path.iterdir())) == 4


def test_a_damaged_unit_is_computed_again(tmp_path: Path) -> None:
    store = PartStore(path=tmp_path, key="a")
    store.get("swaps", {}, lambda: 1)
    (file,) = tmp_path.iterdir()
    for content in ('{"result": 1', "[]", "{}"):
        file.write_text(content)
        assert store.get("swaps", {}, lambda: 2) == 2
    assert store.get("swaps", {}, lambda: 3) == 2


def test_without_a_directory_nothing_is_kept() -> None:
    store = PartStore(path=None, key="a")
    assert [store.get("swaps", {}, lambda: 1), store.get("swaps", {}, lambda: 2)] == [1, 2]


def test_fingerprints_see_order_of_lists_but_not_of_keys() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert len({fingerprint([1, 2]), fingerprint([2, 1]), fingerprint(1, 2), fingerprint([1, 2.5]), fingerprint()}) == 5
