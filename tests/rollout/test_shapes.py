"""The shapes of what decoding hands around: checked here, as they are too many to check wherever a run samples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = [Path(__file__).with_name(name) for name in ("test_torch_engine.py", "test_mixed.py")]


@pytest.mark.slow
def test_decoding_keeps_its_shapes() -> None:
    options = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--jaxtyping-packages=swerve.rollout,beartype.beartype",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *TESTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
