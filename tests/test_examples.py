"""The examples run as they stand: the loop to its accuracy, the notebooks cell by cell."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_the_loop_is_short_and_commented() -> None:
    lines = (EXAMPLES / "rl_loop.py").read_text().splitlines()
    assert len(lines) < 250
    comments = [number for number, line in enumerate(lines) if line.lstrip().startswith(("#", '"""'))]
    assert max(later - earlier for earlier, later in itertools.pairwise(comments)) <= 24


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_small_outputs_and_no_error(path: Path) -> None:
    assert path.stat().st_size < 250_000
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    assert sum(bool(cell["outputs"]) for cell in cells) > len(cells) / 2
    assert not re.search(r"/(home|opt|root|tmp|usr|work|Users)/", json.dumps([cell["outputs"] for cell in cells]))


def test_from_two_folders_to_a_card_it_takes_twelve_lines() -> None:
    cells = json.loads((EXAMPLES / "two_folders.ipynb").read_text())["cells"]
    lines = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code").split("\n")
    assert len([line for line in lines if line.strip()]) <= 12


@pytest.mark.slow
def test_the_loop_learns_and_shows_its_tokens(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "rl_loop.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    before, after = (float(share) for share in re.findall(r"accuracy after \w+ ([\d.]+)%", done.stdout))
    assert before < 70
    assert after > 90
    assert "ProbeResult: checkpoint against reference" in done.stdout
    assert done.stdout.count("nats at the end of") == 5


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    python = sys.executable
    if "import trl" in path.read_text() or "from trl" in path.read_text():
        python = os.environ.get("SWERVE_TRL_PYTHON") or (python if importlib.util.find_spec("trl") else "")
        if not python:
            pytest.skip("needs TRL: install it, or set SWERVE_TRL_PYTHON to the Python of an environment with it")
    copy = tmp_path / path.name
    copy.write_text(path.read_text())
    shutil.copytree(EXAMPLES / "responses", tmp_path / "responses")
    shutil.copy(EXAMPLES / "addition.jsonl", tmp_path)
    source = os.pathsep.join([str(EXAMPLES.parent / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": source, "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("notebooks.py")), str(copy)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
