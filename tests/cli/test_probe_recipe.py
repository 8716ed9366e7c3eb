"""`swerve probe FILE.yaml`: what the file may say, and that done steps are skipped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.cli.probe_recipe import parse_steps
from swerve.config.models import TinyModel
from swerve.errors import ConfigError
from swerve.models.sources import CheckpointSource
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.recipe import STEPS, ProbeRecipe
from swerve.probe.step_log import logged_step, steps_done
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.recipes.loader import load_document
from tests.cli.conftest import Swerve
from tests.conftest import TwoProcesses

TASK = AdditionTask(digits=2, num_train=5, num_heldout=12)
NAMES = ("sft", "dpo", "step-1", "step-2")
FILE = """
models:
  sft: models/sft
  dpo: models/dpo
  step-1: models/step-1
  step-2: models/step-2
reference: dpo
baseline: sft
task: {kind: addition, digits: 2, num_train: 5, num_heldout: 12}
sample: {limit: 6, num_samples: 4, max_new_tokens: 12, temperatures: [1.0, 2.0]}
select: reference_wrong_final_wrong
out: probe-six
probe: {min_rollouts: 2, top_k: 2, causal: {max_rollouts: 2, num_continuations: 2}}
runtime: {device: cpu, max_rows: 32}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of four untrained models in the current folder."""
    monkeypatch.chdir(tmp_path)
    tokenizer = build_word_tokenizer(load_family(TASK).words)
    for number, name in enumerate(NAMES):
        model = build_tiny_model(TinyModel(hidden_size=16, intermediate_size=24), tokenizer, seed=0)
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        model.save_pretrained(tmp_path / "models" / name)
        tokenizer.save_pretrained(tmp_path / "models" / name)
    (tmp_path / "six.yaml").write_text(FILE)
    return tmp_path / "six.yaml"


def outcome(err: str) -> dict[str, str]:
    """The first words of what is said of each step."""
    lines = [line.partition(": ") for line in err.splitlines()]
    return {name: said.split(" ")[0].rstrip(",") for name, _, said in lines if name.split(" ")[0] in STEPS}


SKIPPED = {"sample dpo", "sample step-2", "divergence", "analysis", "report"}


@pytest.mark.slow
def test_what_is_done_is_not_done_again(
    swerve: Swerve, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = swerve("probe", "six.yaml")
    assert status == 0, err
    assert outcome(err) == dict.fromkeys([*SKIPPED, "prepare"], "done")
    assert "Report: probe-six/report/index.html" in out
    probed = RunDirectory(tmp_path / "probe-six")
    summary = read_json(probed.probe_path / "summary.json")
    assert (summary["population"], summary["selection"]) == ("reference_wrong_final_wrong", "split")
    assert {(one["checkpoint"], one["reference"]) for one in summary["pairs"]} == {("step-2", "step-1"), ("dpo", "sft")}
    assert summary["causal"] is not None
    page = (probed.report_path / "index.html").read_bytes()

    loads: list[str] = []
    monkeypatch.setattr(CheckpointSource, "load", lambda self: loads.append(self.label))
    status, _, err = swerve("probe", "six.yaml")
    assert (status, outcome(err)) == (0, {**dict.fromkeys(SKIPPED, "skipped"), "prepare": "done"})
    assert loads == []
    assert (probed.report_path / "index.html").read_bytes() == page
    # The report alone needs no model; with other options it is written anew.
    status, out, err = swerve("probe", "six.yaml", "--steps", "report", "report.title=Mine")
    assert (status, outcome(err)) == (0, {"report": "done"})
    assert out == "Report: probe-six/report/index.html\n"
    assert loads == []
    # A damaged table is made again.
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (probed.probe_path / "spikes.parquet").write_bytes(b"damaged")
    status, _, err = swerve("probe", "six.yaml", "--steps", "analysis,report", "report.title=Mine")
    assert (status, outcome(err)) == (0, {"prepare": "done", "analysis": "done", "report": "skipped"})


def test_the_analysis_is_repeated_without_a_forward_pass(
    swerve: Swerve, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_causal = ("probe.causal.max_rollouts=0", "--steps")
    assert swerve("probe", "six.yaml", *no_causal, "sample,divergence")[0] == 0
    states = [path for path in (tmp_path / "probe-six/probe/states").rglob("*") if path.is_file()]
    assert states  # statistics of pairs; the hidden states are gone
    assert not any(b'"hidden"' in path.read_bytes()[:1000] for path in states)
    assert not (tmp_path / "probe-six/probe/summary.json").exists()
    with monkeypatch.context() as changed:

        def load(self: CheckpointSource) -> None:
            raise AssertionError("no model is loaded")

        changed.setattr(CheckpointSource, "load", load)
        status, _, err = swerve("probe", "six.yaml", *no_causal, "analysis")
        assert (status, outcome(err)) == (0, {"prepare": "done", "analysis": "done"})
        method = "probe.spikes.method=absolute"
        status, _, err = swerve("probe", "six.yaml", method, *no_causal, "divergence,analysis")
        assert (status, outcome(err)) == (0, {"prepare": "done", "divergence": "skipped", "analysis": "done"})
    assert read_json(tmp_path / "probe-six/probe/summary.json")["spike_method"] == "absolute"
    # Another model at the same place is another probe.
    other = tmp_path / "models/step-1/model.safetensors"
    other.write_bytes((tmp_path / "models/sft/model.safetensors").read_bytes())
    status, _, err = swerve("probe", "six.yaml", "--steps", "analysis")
    assert (status, "the step analysis needs the step divergence" in err) == (2, True)


def test_prepare_checks_and_writes_nothing(swerve: Swerve, recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"id": "p", "problem": "0 1 + 0 2 =", "response": "0", "gold": "0"}))
    text = FILE.replace("sample: {limit: 6, num_samples: 4, max_new_tokens: 12, temperatures: [1.0, 2.0]}", "")
    recipe.write_text(text + "responses: r.jsonl\n")
    status, _, err = swerve("probe", "six.yaml", "--steps", "prepare")
    assert (status, outcome(err)) == (0, {"prepare": "done"})
    assert not (tmp_path / "probe-six").exists()
    build_word_tokenizer(load_family(TASK).words[::-1]).save_pretrained(tmp_path / "models/step-2")
    status, _, err = swerve("probe", "six.yaml")
    assert (status, "step-2 have different tokenizers" in err) == (1, True)
    assert not (tmp_path / "probe-six").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("reference: dpo", "reference: dbo", "six.yaml:7: 'reference': there is no model 'dbo'; did you mean 'dpo'?"),
        ("baseline: sft", "baselin: sft", "six.yaml:8: unknown key 'baselin'; did you mean 'baseline'?"),
        ("baseline: sft", "checkpoints: [step-3]", "six.yaml:8: 'checkpoints': there is no model 'step-3'; did you"),
        (
            "select: reference_",
            "select: refrence_",
            "six.yaml:11: 'select' must be one of 'reference_wrong_fin",
        ),
        ("limit: 6, num_samples: 4", "num_samples: 3", "six.yaml:10: 'sample': num_samples (3) must be a multiple of"),
        ("digits: 2,", "digit: 2,", "six.yaml:9: unknown key 'task.digit'; did you mean 'digits'?"),
        ("out: probe-six", "responses: r.jsonl", "six.yaml: missing required key 'out'"),
        ("out: probe-six", "out: x\nresponses: r.jsonl", "six.yaml: give either responses, or samples"),
        ("models/step-2", "models/step-9", "checkpoint models/step-9 does not exist"),
    ],
)
def test_wrong_files(swerve: Swerve, recipe: Path, old: str, new: str, message: str) -> None:
    assert old in FILE
    recipe.write_text(FILE.replace(old, new))
    status, out, err = swerve("probe", "six.yaml")
    assert (status, out) == (1 if "does not exist" in message else 2, "")
    assert err.splitlines()[-1].startswith(f"swerve: error: {message}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["six.yaml", "--steps", "analysys"], "there is no step 'analysys'; did you mean 'analysis'?"),
        (["six.yaml", "--reference", "x"], "--reference: six.yaml says it; change it there, or with KEY=VALUE"),
        (["six.yaml", "--use-responses", "x"], "--use-responses: six.yaml says it"),
        (["six.yaml", "--steps", "report"], "the report needs the step analysis; add it to --steps"),
        (["mine", "--steps", "report"], "--steps needs a recipe"),
        (["none.yaml"], "'none.yaml' does not exist"),
    ],
)
def test_wrong_use(swerve: Swerve, recipe: Path, given: list[str], message: str) -> None:
    status, out, err = swerve("probe", *given)
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_steps_and_models_in_their_order(recipe: Path) -> None:
    assert parse_steps(None) == STEPS
    assert parse_steps("report, sample") == ("sample", "report")
    found = load_document(ProbeRecipe, recipe)
    assert (found.compared, found.final_name) == (("step-1", "step-2"), "step-2")
    assert found.sample_files == (Path("probe-six-samples/dpo.parquet"), Path("probe-six-samples/step-2.parquet"))
    with pytest.raises(ConfigError, match="no step"):
        parse_steps("")


def test_a_step_is_done_for_one_digest_only(tmp_path: Path) -> None:
    done = steps_done(tmp_path)
    with logged_step(done, "analysis", "a", SilentProgress()):
        assert done.get("analysis") is None
    assert done.get("analysis") == "a"
    assert done.get("divergence") is None
    with logged_step(done, "analysis", "b", SilentProgress()):
        assert done.get("analysis") is None
    assert steps_done(tmp_path).get("analysis") == "b"
    with pytest.raises(KeyError), logged_step(done, "analysis", "c", SilentProgress()):  # what failed is not done
        raise KeyError
    assert done.get("analysis") is None
    with logged_step(done, "analysis", "b", SilentProgress()):
        pass
    (part,) = (tmp_path / "steps").iterdir()
    part.write_text("{")
    assert done.get("analysis") is None


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_do_the_steps_as_one_does(
    swerve: Swerve, on_two_processes: TwoProcesses, recipe: Path, tmp_path: Path
) -> None:
    assert swerve("probe", "six.yaml")[0] == 0
    finished = on_two_processes("-m", "swerve", "probe", "six.yaml", "out=together")
    assert outcome(finished.stderr) == dict.fromkeys([*SKIPPED, "prepare"], "done")
    for one, two in (("probe-six", "together"), ("probe-six-samples", "together-samples")):
        files = {path.relative_to(tmp_path / one) for path in (tmp_path / one).rglob("*") if path.is_file()}
        assert files == {path.relative_to(tmp_path / two) for path in (tmp_path / two).rglob("*") if path.is_file()}
        # `run.json` and what is drawn from it have the directory's name.
        for path in sorted(one for one in files if one.suffix in (".parquet", ".safetensors")):
            assert (tmp_path / two / path).read_bytes() == (tmp_path / one / path).read_bytes(), path
