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
