from __future__ import annotations

import sys

import pytest

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, MissingExtraError
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import train

SHORT = ["stages.sft.steps=3", "stages.sft.checkpoints=[]", "stages.rl.steps=1", "stages.rl.checkpoints=[]"]


def _sft_only(small_recipe, *overrides):
    config = load_config(small_recipe, [*SHORT, *overrides])
    return config.model_copy(update={"stages": config.stages[:1]})


def test_tensorboard_gets_what_metrics_jsonl_gets(small_recipe, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = RunDirectory(tmp_path / "run")
    train(_sft_only(small_recipe, "runtime.trackers=[tensorboard]"), run, resume=False, progress=SilentProgress())
    events = reader.EventAccumulator(str(run.path / "tensorboard")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("sft/loss")]
    assert found == [(r["step"], pytest.approx(r["loss"], rel=1e-6)) for r in read_metrics(run.metrics_path)]


def test_a_missing_package_names_the_extra(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match=r"install it with: pip install 'swerve\[tensorboard\]'"):
        train(
            _sft_only(small_recipe, "runtime.trackers=[tensorboard]"),
            RunDirectory(tmp_path / "run"),
            resume=False,
            progress=SilentProgress(),
        )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("max_new_tokens=20", r"the right solution of problem .* has 31 tokens, more than max_new_tokens=20; raise"),
        (
            "model.max_positions=40",
            r"has 7 tokens and max_new_tokens is 36, together more than the model's 40 positions",
        ),
        ("runtime.device=cuda", "torch finds no CUDA device here; use runtime.device=auto or cpu"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(small_recipe, tmp_path, monkeypatch, override, message):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(ConfigError, match=message):
        train(_sft_only(small_recipe, override), run, resume=False, progress=SilentProgress())
    assert not run.path.exists()
