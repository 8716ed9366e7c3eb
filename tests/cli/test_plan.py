"""`swerve plan`: commands with their own arguments, planned and not done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Swerve
from tests.plan.test_training import SHAPES, WEIGHTS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SHAPES))
    return tmp_path / "model"


@pytest.mark.slow
def test_every_command_is_planned_with_its_own_arguments(swerve: Swerve, model: Path, tmp_path: Path) -> None:
    asked = ["--task", "addition", "num_heldout=10", "--max-new-tokens", "8", "--json"]
    sampled = json.loads(swerve("plan", "sample", str(model), "--out", str(tmp_path / "x.parquet"), *asked)[1])
    assert sampled["tokens"] == {"samples": 10 * 8}
    evaluated = json.loads(swerve("plan", "eval", "--model", f"a={model}", "--num-samples", "3", *asked)[1])
    assert evaluated["tokens"] == {"evaluation": 10 * (1 + 3) * 8}
    probed = json.loads(swerve("plan", "probe", "rl_probe", f"models.dpo={model}", "--memory", "8", "--json")[1])
    assert probed["memory"]["weights"] == 2 * WEIGHTS  # in bfloat16
    trained = swerve("plan", "train", "gsm8k", f"model.path={model}", "--memory", "8", "--json")
    checked = json.loads(swerve("config", "check", "gsm8k", f"model.path={model}", "--memory", "8", "--json")[1])
    for key in ("memory", "disk", "tokens", "hours"):
        assert json.loads(trained[1])[key] == checked[key]
    assert {path.name for path in tmp_path.iterdir()} == {"model"}
    status, _, err = swerve("plan", "train", "gsm8k", f"model.path={model}", "--memory", "0.001")
    assert (status, err.count("\n"), "stages.rl.tokens_per_batch" in err or "size of the model" in err) == (2, 1, True)


def test_a_sample_is_planned_and_not_made(swerve: Swerve, model: Path, tmp_path: Path) -> None:
    asked = ["--task", "addition", "num_heldout=10", "--max-new-tokens", "8", "--out", "x.parquet"]
    status, out, _ = swerve("plan", "sample", str(model), *asked, "--memory", "8")
    assert (status, out.splitlines()[0].split()) == (0, ["WHAT", "HOW", "MUCH", "OF", "WHAT"])
    assert ["tokens,", "samples", "80", "at", "most"] in [line.split() for line in out.splitlines()]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
