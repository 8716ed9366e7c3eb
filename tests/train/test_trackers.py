from __future__ import annotations

import json
import shutil
import sys
from types import ModuleType

import pytest

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, MissingExtraError, SwerveError
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
from swerve.train.trackers import open_trackers

SHORT = ["stages.sft.steps=3", "stages.sft.checkpoints=[]", "stages.rl.steps=1", "stages.rl.checkpoints=[]"]


def _sft_only(small_recipe, *overrides):
    config = load_config(small_recipe, [*SHORT, *overrides])
    return config.model_copy(update={"stages": config.stages[:1]})


def test_tensorboard_gets_what_metrics_jsonl_gets(small_recipe, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = RunDirectory(tmp_path / "run")
    train_run(_sft_only(small_recipe, "runtime.trackers=[tensorboard]"), run, resume=False, progress=SilentProgress())
    events = reader.EventAccumulator(str(run.path / "tensorboard")).Reload()
    found = [(event.step, event.value) for event in events.Scalars("sft/loss")]
    assert found == [(r["step"], pytest.approx(r["loss"], rel=1e-6)) for r in read_metrics(run.metrics_path)]


STUBS = {
    "wandb": """
import json, os
class Run:
    def log(self, values, step): write({"step": step, **values})
    def finish(self): write("closed")
def write(line):
    with open(os.environ["STUB"], "a") as stream: stream.write(json.dumps(line) + "\\n")
def init(project, name, id, resume, dir, config):
    write({"project": project, "name": name, "id": id, "resume": resume, "seed": config["seed"]})
    return Run()
""",
    "trackio": """
import json, os
def write(line):
    with open(os.environ["STUB"], "a") as stream: stream.write(json.dumps(line) + "\\n")
def init(project, name, resume, config):
    write({"project": project, "name": "run", "id": name, "resume": resume, "seed": config["seed"]})
def log(values, step): write({"step": step, **values})
def finish(): write("closed")
""",
    "mlflow": """
import json, os
from types import SimpleNamespace
def write(line):
    with open(os.environ["STUB"], "a") as stream: stream.write(json.dumps(line) + "\\n")
def set_experiment(name): global project; project = name
class start_run:
    def __init__(self, run_id, run_name):
        self.info = SimpleNamespace(run_id=run_id or "id")
        write({"project": project, "name": run_name or "run", "id": self.info.run_id, "resume": "allow", "seed": 0})
    def __enter__(self): return self
    def __exit__(self, *error): write("closed")
def log_dict(config, name): assert config["name"], name
def log_metrics(values, step): write({"step": step, **values})
""",
}
"""As much of each package as is called; what it is told goes to the file STUB."""


@pytest.mark.parametrize("name", STUBS)
def test_a_tracker_gets_what_metrics_jsonl_gets_and_a_resumed_run_continues_there(
    small_recipe, tmp_path, monkeypatch, name
):
    (tmp_path / f"{name}.py").write_text(STUBS[name])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("STUB", str(tmp_path / "told"))
    run = RunDirectory(tmp_path / "run")
    config = _sft_only(small_recipe, f"runtime.trackers=[{name}]", "seed=0", "stages.sft.checkpoints=[2]")
    train_run(config, run, resume=False, progress=SilentProgress())
    shutil.rmtree(run.checkpoints[-1].path)
    train_run(config, run, resume=True, progress=SilentProgress())
    monkeypatch.delitem(sys.modules, name)
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    records = read_metrics(run.metrics_path)
    opened = {"project": "swerve", "name": "run", "id": told[0]["id"], "resume": "allow", "seed": 0}
    assert told[0] == told[5] == opened
    assert told[4] == told[7] == "closed"
    assert [one["step"] for one in told[1:4]] == [1, 2, 3]
    assert told[6]["step"] == 3
    expected = {f"sft/{key}": value for key, value in records[2].items() if isinstance(value, int | float)}
    for place in ("step", "stage_step"):
        del expected[f"sft/{place}"]
    assert told[6] == {"step": 3, **expected}


@pytest.mark.parametrize("name", ["tensorboard", *STUBS])
def test_a_missing_package_names_the_extra(small_recipe, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtraError, match=rf"install it with: pip install 'swerve\[{name}\]'"):
        train_run(
            _sft_only(small_recipe, f"runtime.trackers=[{name}]"),
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
        train_run(_sft_only(small_recipe, override), run, resume=False, progress=SilentProgress())
    assert not run.path.exists()


def test_a_tracker_that_cannot_begin_is_named(tmp_path, monkeypatch):
    broken = ModuleType("wandb")
    broken.init = lambda **_: (_ for _ in ()).throw(RuntimeError("not logged in"))
    monkeypatch.setitem(sys.modules, "wandb", broken)
    said = r"runtime.trackers: \[wandb\] cannot begin: not logged in; mend it, or leave the tracker out"
    with pytest.raises(SwerveError, match=said), open_trackers(("wandb",), tmp_path, first_step=0):
        pass
