from __future__ import annotations

from pathlib import Path

import pytest
import torch

from swerve.probe.engine.store import open_units

TENSORS = {"hidden": torch.tensor([[1.5, -2.0], [0.25, 3.0]]).bfloat16(), "rank": torch.tensor([1, 7]).int()}


@pytest.mark.parametrize("on_disk", [True, False])
def test_units_come_back_as_they_were(tmp_path: Path, on_disk: bool) -> None:
    units = open_units(tmp_path if on_disk else None)
    units.put("states", ["k", 3], TENSORS)
    found = units.get("states", ["k", 3])
    assert found is not None
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
    assert found["hidden"].dtype == torch.bfloat16


def test_tensors_that_were_read_are_aligned(tmp_path: Path) -> None:
    open_units(tmp_path).put("states", 0, TENSORS)
    found = open_units(tmp_path).get("states", 0)
    assert found is not None
    assert found["hidden"].data_ptr() % 64 == 0
    found["hidden"][0] = 7.0  # memory of its own, which can be written


def test_units_of_another_version_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_units(tmp_path).put("states", 0, TENSORS)
    monkeypatch.setattr("swerve.probe.engine.store.STATES_VERSION", 2)
    assert open_units(tmp_path).get("states", 0) is None
    monkeypatch.undo()
    assert open_units(tmp_path).get("states", 0) is not None
    monkeypatch.setattr(torch, "__version__", "0")
    assert open_units(tmp_path).get("states", 0) is None
