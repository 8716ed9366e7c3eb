"""Evaluations of any models and of a run's checkpoints in one form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import read_samples
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import SampleSettings
from swerve.eval import sample_files
from swerve.eval.evaluate_models import compare_checkpoints, evaluate_models
from swerve.models.model_folder import load_model
from swerve.models.starting_model import initial_model
from swerve.problems.addition import AdditionTask

SETTINGS = SampleSettings(
    task=AdditionTask(digits=2, num_heldout=5), num_samples=2, max_new_tokens=6, runtime=RuntimeConfig(max_rows=8)
)


@pytest.fixture(scope="module")
def models(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | str]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_addition_model(folder / name, seed=seed) for seed, name in enumerate(("base", "rl"))}


def test_models_are_sampled_greedily_and_at_temperatures_and_compared(models: Any, tmp_path: Path) -> None:
    found = evaluate_models(models, SETTINGS, temperatures={"base": [0.0]}, out=tmp_path)
    assert found is not None
    assert [(row.model, row.decoding, row.num_samples) for row in found.rows] == [
        ("base", "greedy", 1),
        ("rl", "greedy", 1),
        ("rl", "T=1", 2),
    ]
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    samples = [f"samples/{name}.parquet" for name in ("base-greedy", "rl-greedy", "rl-t1")]
    assert files == [*(f"comparison.{one}" for one in ("csv", "json", "md", "tex")), *samples]
    right = [one.correct for one in read_samples(tmp_path / "samples" / "rl-t1.parquet").samples]
    assert found.rows[2].accuracy.mean == sum(right) / len(right)
    assert read_json(tmp_path / "comparison.json")["rows"][0]["model"] == "base"


def test_an_interrupted_evaluation_continues(models: Any, tmp_path: Path, monkeypatch: Any) -> None:
    evaluate_models(models, SETTINGS, out=tmp_path / "whole")
    written: list[Path] = []
    write = sample_files.write_samples

    def interrupted(place: Path, *rest: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(place)
        write(place, *rest)

    monkeypatch.setattr(sample_files, "write_samples", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate_models(models, SETTINGS, out=tmp_path / "cut")
    monkeypatch.setattr(sample_files, "write_samples", write)
    evaluate_models(models, SETTINGS, out=tmp_path / "cut")
    whole, cut = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "whole", tmp_path / "cut")
    )
    assert whole == cut


def test_a_model_is_loaded_once_for_all_its_temperatures(models: Any, tmp_path: Path, monkeypatch: Any) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(
        "swerve.models.sources.load_model", lambda path, **rest: (loaded.append(path), load_model(path, **rest))[1]
    )
    evaluate_models(models, SETTINGS, out=tmp_path)
    assert loaded == list(models.values())


def test_the_checkpoints_of_a_run_have_the_same_table(small_run: RunDirectory) -> None:
    found = compare_checkpoints(small_run)
    evaluations = read_evaluations(small_run)
    labels = [one.checkpoint for one in evaluations]
    assert [(row.model, row.decoding) for row in found.rows] == [
        (label, decoding) for label in labels for decoding in ("greedy", "T=1")
    ]
    for evaluation, greedy, sampled in zip(evaluations, found.rows[::2], found.rows[1::2], strict=True):
        assert greedy.accuracy == evaluation.greedy.accuracy
        assert sampled.accuracy == evaluation.sampled.mean_reward
        assert greedy.model_copy(update={"differences": {}}) == evaluation.greedy
        assert sampled.model_copy(update={"differences": {}}) == evaluation.sampled


def test_the_model_before_training_is_made_again(small_run: RunDirectory, small_config: Any, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    first = initial_model(small_config, run)
    assert first == run.path / "initial"
    before = load_model(first, device="cpu", dtype="float32").model.state_dict()
    assert initial_model(small_config, run) == first
    trained = load_model(small_run.checkpoints[0].path, device="cpu", dtype="float32").model.state_dict()
    assert before.keys() == trained.keys()
    assert not any(before[name].equal(trained[name]) for name in before if name.endswith("proj.weight"))
