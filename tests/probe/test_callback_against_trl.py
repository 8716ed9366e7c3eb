"""The callback in real trainings: the Hugging Face Trainer and TRL's SFT, DPO and GRPO trainers, on a tiny Qwen3.

Needs an environment with TRL, and its Python in the variable SWERVE_TRL_PYTHON; docs/conventions.md says how.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.other_programs import needs

PYTHON = os.environ.get("SWERVE_TRL_PYTHON")
pytestmark = [needs("trl"), pytest.mark.slow]
SOURCE = Path(__file__).parents[2] / "src"
TRAININGS = ("trainer", "sft", "dpo", "grpo", "bf16")


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    assert PYTHON is not None
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(SOURCE),
    }
    has = subprocess.run(
        [PYTHON, "-c", "import swerve.probe.callback"], capture_output=True, text=True, env=environment, check=False
    )
    if has.returncode and "ModuleNotFoundError" in has.stderr:
        pytest.skip(f"the environment lacks what swerve imports: {has.stderr.strip().splitlines()[-1]}")
    script = Path(__file__).with_name("trl_trainings.py")
    done = subprocess.run(
        [PYTHON, str(script), str(tmp_path_factory.mktemp("trl"))],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.mark.parametrize("kind", TRAININGS)
def test_the_recorded_divergence_is_that_of_the_saved_models(trainings: dict[str, Any], kind: str) -> None:
    found = trainings[kind]
    assert [line["step"] for line in found["lines"]] == [3, 4]
    last = found["lines"][-1]
    assert last["num_tokens"] == 10
    for name, values in found["library"].items():
        assert last[name]["mean"] == pytest.approx(sum(values) / 10, abs=1e-5), name
        assert last[name]["max"] == pytest.approx(max(values), abs=1e-5), name
    assert last["js"]["mean"] > 1e-3
    top = max(range(10), key=found["library"]["js"].__getitem__)
    places = [(row, t) for row, length in enumerate((2, 3, 5)) for t in range(length)]
    assert (last["top_positions"][0]["sequence"], last["top_positions"][0]["position"]) == places[top]


@pytest.mark.parametrize("kind", TRAININGS)
def test_training_is_the_same_with_and_without_the_callback(trainings: dict[str, Any], kind: str) -> None:
    found = trainings[kind]
    assert found["same_weights"]
    losses = [[one["loss"] for one in found[name] if "loss" in one] for name in ("history", "plain_history")]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4  # the trainer's own lines are all there


@pytest.mark.parametrize("kind", TRAININGS)
def test_figures_are_in_the_trainer_s_logs(trainings: dict[str, Any], kind: str) -> None:
    found = trainings[kind]
    logged = [one for one in found["history"] if "probe/js" in one]
    assert [one["step"] for one in logged] == [3, 4]
    assert [one["probe/js"] for one in logged] == [line["js"]["mean"] for line in found["lines"]]
    assert all("loss" not in one for one in logged)


def test_a_resumed_training_has_the_lines_of_one_without_interruption(trainings: dict[str, Any]) -> None:
    found = trainings["resume"]
    assert [line["step"] for line in found["parts"]] == [1, 2, 3, 4, 5, 6]
    assert found["parts"] == found["whole"]
