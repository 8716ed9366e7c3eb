"""Models as users name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.errors import CheckpointError
from swerve.models.named_models import resolve_model


def test_a_slash_in_place_of_the_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RunDirectory(tmp_path / "runs/mine").create(config_yaml="", provenance={})
    for name, meant in (("mine/base", "mine:base"), ("runs/mine/base", "runs/mine:base")):
        with pytest.raises(CheckpointError, match=rf"did you mean '{meant}'\?$"):
            resolve_model(name)
    assert resolve_model("mine/other").path == "mine/other"


def test_a_path_in_the_folder_of_a_run_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDirectory(tmp_path / "runs/mine")
    run.create(config_yaml="", provenance={})
    (run.path / "checkpoints").mkdir()
    there = "a checkpoint of this run is named as runs/mine:SELECTOR (it has none)"
    for name, said in (
        ("runs/mine/models/base", "does not exist; did you mean 'runs/mine:base'?"),
        ("mine/models/base", "does not exist; did you mean 'mine:base'?"),
        ("runs/mine/models/rl", f"does not exist; {there}"),
        ("runs/mine/checkpoints", f"has no config.json or adapter_config.json; {there}"),
    ):
        with pytest.raises(CheckpointError) as raised:
            resolve_model(name)
        assert str(raised.value).endswith(said)
