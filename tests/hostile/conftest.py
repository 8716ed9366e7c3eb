"""The command line on what somebody else made, in this process: one line, the documented status, bounded time."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from swerve.cli import main
from swerve.sandbox.limits import configure_pool

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits that are reached soon; commands that read a recipe set the recipe's."""
    from swerve.models import folder_checks

    monkeypatch.setattr(folder_checks, "_LOADING", replace(folder_checks._LOADING, memory_bytes=256 << 20))
    configure_pool(cpu_seconds=1.2, memory_mb=128)
    yield
    configure_pool()


@pytest.fixture(scope="session")
def sound_folder(tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder with nothing wrong; treat it as read-only."""
    path = tmp_path_factory.mktemp("sound") / "model"
    model, tokenizer = tiny
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def folder(sound_folder: Path, tmp_path: Path) -> Path:
    """A copy of the sound folder."""
    return Path(shutil.copytree(sound_folder, tmp_path / "model"))


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps({"id": "p", "problem": "1 + 1 =", "response": "2 ; 2", "gold": "2"}) + "\n")
    return path


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "ids.jsonl"
    path.write_text(json.dumps({"prompt_ids": [1, 4], "completion_ids": [5, 2]}) + "\n")
    return path


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must end with one line and a status; return the line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, status: int = 1, seconds: float = 20.0, memory: int = 2 << 30) -> str:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with pytest.raises(SystemExit) as caught:
            main([str(one) for one in arguments])
        spent = time.process_time() - started
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        _, err = capfd.readouterr()
        assert len(err.splitlines()) == 1, err
        assert err.startswith("swerve: error: ")
        assert caught.value.code == status, err
        assert spent < seconds
        assert grown < memory
        return err

    return run
