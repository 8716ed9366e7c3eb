"""A synthetic run and its report, made once for all tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.config import ReportConfig
from swerve.report import build_report


def _beside(name: str) -> ModuleType:
    """Load a module beside this file (tests are not a package)."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"swerve_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The module `synthetic_run.py`."""
    return _beside("synthetic_run")


@pytest.fixture(scope="session")
def entries(synthetic: Any) -> dict[str, Any]:
    """Every entry of a summary beside those of the synthetic tables; treat it as read-only."""
    found: dict[str, Any] = _beside("synthetic_entries").probe_entries(synthetic.REFERENCE, synthetic.CHECKPOINTS)
    return found


@pytest.fixture(scope="session")
def run(synthetic: Any, entries: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with evaluations and a probe of twelve rollouts, the last one hostile; treat it as read-only."""
    path = tmp_path_factory.mktemp("runs") / "demo-$x$<b>"
    written: RunDirectory = synthetic.write_synthetic_run(path, entries=entries)
    return written


@pytest.fixture(scope="session")
def report(run: RunDirectory) -> Path:
    """The page of `run`."""
    return build_report(run, options=ReportConfig())
