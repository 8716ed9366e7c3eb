"""The command line, run in an empty directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import exit_status

Swerve = Callable[..., tuple[int, str, str]]


@pytest.fixture
def swerve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Swerve:
    """Run the command line in an empty directory: exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "x")  # restored after the test, whatever the command does
        monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = exit_status(*arguments)
        return status, *capsys.readouterr()

    return run
