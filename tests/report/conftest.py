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


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The module `synthetic_run.py` beside this file (tests are not a package)."""
    path = Path(__file__).with_name("synthetic_run.py")
    spec = importlib.util.spec_from_file_location("swerve_synthetic_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def run(synthetic: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with evaluations and a probe of twelve rollouts, the last one hostile; treat it as read-only."""
    written: RunDirectory = synthetic.write_synthetic_run(tmp_path_factory.mktemp("runs") / "demo-$x$<b>")
    return written


@pytest.fixture(scope="session")
def report(run: RunDirectory) -> Path:
    """The page of `run`."""
    return build_report(run, options=ReportConfig())
