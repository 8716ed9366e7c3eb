"""Other programs, each asked in the Python of an environment that has it.

`SWERVE_TRL_PYTHON`, `SWERVE_INSPECT_PYTHON`, `SWERVE_VERIFIERS_PYTHON`, `SWERVE_VERL_PYTHON` and
`SWERVE_DATASETS_PYTHON` name them; docs/conventions.md says how to make such an environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test where no environment with the program is named."""
    name = f"SWERVE_{program.upper()}_PYTHON"
    reason = f"needs an environment with {program}: set {name} to its Python (docs/conventions.md)"
    return pytest.mark.skipif(not os.environ.get(name), reason=reason)


def ask(program: str, code: str, *arguments: object) -> Any:
    """Return what a script prints last in the program's Python, as JSON; it has `sys`, `json` and the arguments."""
    python = os.environ[f"SWERVE_{program.upper()}_PYTHON"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [python, "-c", f"import json, sys\n{code}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
