"""A model divided over processes by FSDP2 trains as a whole one does, and its files are the same for any number."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.models.export import export_model
from swerve.models.model_card import WeightsOrigin
from swerve.models.model_folder import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
from tests.campaign.ranks import run_on_copies

pytestmark = pytest.mark.dist
RECIPE = """
name: divided
seed: 5
task: {kind: addition, digits: 2, num_train: 400, num_heldout: 24, mistake_rate: 0.5}
model: {kind: pretrained, path: MODEL}
max_new_tokens: 36
stages: [STAGE]
runtime: {device: cpu, threads: 1, max_rows: 64, collective_timeout: 60}
"""
RL = "kind: rl, steps: 10, prompts_per_step: 5, samples_per_prompt: 4, tokens_per_batch: 160, zero_variance: keep"
STAGES = {
    "sft": "{kind: sft, steps: 10, batch_size: 7, tokens_per_batch: 96, optimizer: {lr: 1e-4}, checkpoints: [5]}",
    "dpo": "{kind: dpo, steps: 10, batch_size: 3, max_prompts: 96, tokens_per_batch: 128, optimizer: {lr: 1e-5}}",
    "dr_grpo": f"{{{RL}, advantages: {{kind: dr_grpo}}, optimizer: {{lr: 1e-5}}, checkpoints: [5]}}",
    "clip, k3 in the loss": (
        f"{{{RL}, loss: {{kind: clip}}, num_epochs: 2, kl: {{kind: loss, estimator: k3, coef: 0.1}}, "
        "optimizer: {lr: 1e-5}}"
    ),
    "gae": f"{{{RL}, loss: {{kind: clip}}, advantages: {{kind: gae}}, optimizer: {{lr: 1e-5}}}}",
    "exploring paths": f"{{{RL}, loss: {{kind: max_prob_kl}}, optimizer: {{lr: 3e-6}}}}",
    "distillation": (
        "{kind: distill, teacher: TEACHER, steps: 10, prompts_per_step: 5, samples_per_prompt: 2, "
        "tokens_per_batch: 160, optimizer: {lr: 1e-4}}"
    ),
    "an empty share": (
        "{kind: rl, steps: 10, prompts_per_step: 1, samples_per_prompt: 1, zero_variance: keep, "
        "advantages: {kind: reward}, optimizer: {lr: 1e-5}}"
    ),
}


FSDP, LORA = "runtime.sharding.kind=fsdp", "model.lora={rank: 4, alpha: 8}"
BOTH_LAYOUTS = ("sft", "dr_grpo")
"""Also with a head that is not tied to the embeddings."""


def _train(recipe: Path, out: Path, changes: Sequence[str] = (), *, resume: bool = False) -> RunDirectory:
    run = RunDirectory(out)
    train_run(load_config(recipe, list(changes)), run, resume=resume, progress=SilentProgress())
    return run


def _untied(folder: Path, model: Path) -> Path:
    """Write a model with its head untied from its embeddings."""
    loaded = load_model(model, device="cpu", dtype="float32")
    config = copy.deepcopy(loaded.model.config)
    config.tie_word_embeddings = False
    untied = type(loaded.model)(config)
    untied.load_state_dict({name: one.clone() for name, one in loaded.model.state_dict().items()})
    untied.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def recipes(small_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe for each stage, of a model that solves some problems."""
    folder = tmp_path_factory.mktemp("divided")
    teacher, model = small_run.checkpoint_path(100), small_run.checkpoint_path(220)
    models = dict.fromkeys(STAGES, model) | {
        f"{name}, untied": _untied(folder / "model", model) for name in BOTH_LAYOUTS
    }
    for name, path in models.items():
        text = RECIPE.replace("STAGE", STAGES[name.removesuffix(", untied")])
        (folder / f"{name}.yaml").write_text(text.replace("MODEL", str(path)).replace("TEACHER", str(teacher)))
    return folder


def _tensors(run: Path) -> dict[str, bytes]:
    """Return the content of the last checkpoint's weights and of its trainer's state."""
    checkpoint = RunDirectory(run).checkpoint_path(10)
    return {str(one.relative_to(checkpoint)): one.read_bytes() for one in checkpoint.rglob("*.safetensors")}


def _figures(run: Path) -> list[float]:
    records = read_metrics(RunDirectory(run).metrics_path)
    return [float(record[name]) for record in records for name in ("loss", "grad_norm")]


def _further_cases(number: int) -> list[dict[str, Any]]:
    """Return what several processes train besides every recipe: its name, overrides, and the run that they continue."""
    cases: list[dict[str, Any]] = [
        {"recipe": "sft", "out": "again", "from": "sft"},
        {"recipe": "dr_grpo", "out": "from one", "from": "../alone/dr_grpo"},
        {"recipe": "sft", "out": "narrow", "changes": ["runtime.precision=bfloat16"]},
        {"recipe": "sft", "out": "layers again", "changes": ["runtime.activation_checkpointing=full"]},
        {"recipe": "sft", "out": "replicas", "changes": [f"runtime.sharding.replicas={number}"]},
        {"recipe": "sft", "out": "kept", "changes": ["runtime.sharding.reshard=false"]},
    ]
    return cases + ([{"recipe": "dr_grpo", "out": "adapter", "changes": [LORA]}] if find_spec("peft") else [])


@pytest.fixture(scope="module")
def trained(recipes: Path) -> Callable[..., Path]:
    """Train recipes on some processes and alone; return the folder of the runs of the former."""

    def run(number: int, names: Sequence[str], further: Sequence[dict[str, Any]] = ()) -> Path:
        for name in names:
            if not (recipes / "alone" / name).exists():
                _train(recipes / f"{name}.yaml", recipes / "alone" / name)
        cases = [*({"recipe": name, "out": name} for name in names), *further]
        runs = recipes / f"{len(cases)} on {number}"
        (recipes / "cases.json").write_text(json.dumps(cases))
        run_on_copies(number, partial(_main, recipes / "cases.json", runs), folder=recipes)
        return runs

    return run


def _assert_as_alone(recipes: Path, runs: Path, name: str) -> None:
    expected = _figures(recipes / "alone" / name)
    assert len(expected) == 20
    assert len({round(one, 9) for one in expected}) > 5, name  # the updates are real
    assert _figures(runs / name) == pytest.approx(expected, rel=1e-5, abs=1e-7), name


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3])
def test_parts_of_the_weights_train_as_all_do_and_are_resumed_and_exported(
    recipes: Path, trained: Callable[..., Path], number: int
) -> None:
    # With three the shares are uneven, which is the same for every loss: not all of them again.
    every = sorted(path.stem for path in recipes.glob("*.yaml"))
    names = every if number == 2 else ["sft", "sft, untied", "dr_grpo", "dpo", "an empty share"]
    runs = trained(number, names, _further_cases(number))
    for name in names:
        _assert_as_alone(recipes, runs, name)
    assert not (runs / "unpickled").exists(), (runs / "unpickled").read_text()
    # Resumed on as many processes, and by several from a checkpoint of one.
    assert _tensors(runs / "again") == _tensors(runs / "sft")
    assert _figures(runs / "from one") == pytest.approx(_figures(recipes / "alone" / "dr_grpo"), rel=1e-5, abs=1e-7)
    # Resumed by one from a checkpoint of several.
    _continued(runs / "dr_grpo", recipes / f"by one after {number}")
    resumed = _train(recipes / "dr_grpo.yaml", recipes / f"by one after {number}", [FSDP], resume=True).path
    assert _figures(resumed) == pytest.approx(_figures(runs / "dr_grpo"), rel=1e-5, abs=1e-7)
    for name in ("layers again", "kept", "replicas"):
        assert _figures(runs / name) == pytest.approx(_figures(runs / "sft"), rel=1e-5), name
    narrow = _train(recipes / "sft.yaml", recipes / f"narrow beside {number}", ["runtime.precision=bfloat16"]).path
    assert _figures(runs / "narrow") == pytest.approx(_figures(narrow), rel=0.05)  # rounded in other sums
    if (runs / "adapter").exists():
        adapted = _train(recipes / "dr_grpo.yaml", recipes / f"adapter beside {number}", [LORA]).path
        assert _figures(runs / "adapter") == pytest.approx(_figures(adapted), rel=1e-5, abs=1e-7)
    for name in ("sft", "sft, untied"):
        _assert_exports(RunDirectory(runs / name).checkpoint_path(10), recipes / f"{name} of {number}")


def _assert_exports(checkpoint: Path, out: Path) -> None:
    """Check that what is exported loads without a missing or unexpected tensor and says the same."""
    export_model(WeightsOrigin.of(checkpoint), out, dtype=None)
    untyped: Any = AutoModelForCausalLM
    exported, report = untyped.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    prompt = torch.tensor([[3, 4, 5]])
    own = load_model(checkpoint, device="cpu", dtype="float32").model
    first, second = (model.generate(prompt, do_sample=False, max_new_tokens=20) for model in (own, exported))
    assert first.tolist() == second.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_one_process_with_a_divided_model_makes_the_same_bytes(recipes: Path, precision: str) -> None:
    changes = [f"runtime.precision={precision}", "runtime.activation_checkpointing=full"]
    out = recipes / "bytes" / precision
    whole, divided = (
        _tensors(_train(recipes / "clip, k3 in the loss.yaml", out / kind, [*changes, *sharding]).path)
        for kind, sharding in (("whole", []), ("divided", [FSDP]))
    )
    assert len(whole) > 1
    assert whole == divided


def test_what_cannot_be_divided_is_refused(recipes: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="divides float32 moments only, and stage 'sft' has optimizer.moments int8"):
        load_config(recipes / "sft.yaml", [FSDP, "stages.sft.optimizer.moments=int8"])
    with pytest.raises(ConfigError, match="runtime.sharding.offload=true spares the memory of a CUDA device"):
        _train(recipes / "sft.yaml", tmp_path / "run", [FSDP, "runtime.sharding.offload=true"])
    with pytest.raises(ConfigError, match="runtime.sharding.replicas=2 does not divide the 1 processes"):
        _train(recipes / "sft.yaml", tmp_path / "run", [FSDP, "runtime.sharding.replicas=2"])


def _continued(run: Path, copy: Path) -> None:
    """Copy a run without its last checkpoint."""
    shutil.copytree(run, copy)
    shutil.rmtree(RunDirectory(copy).checkpoint_path(10))


def _main(cases: Path, out: Path) -> None:
    def record(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class":
            with (out / "unpickled").open("a") as stream:
                stream.write(f"{arguments}\n")

    out.mkdir(exist_ok=True)
    sys.addaudithook(record)
    for case in json.loads(cases.read_text()):
        if "from" in case and os.environ["RANK"] == "0":
            _continued(out / case["from"], out / "copy")
            (out / "copy").rename(out / case["out"])
        while "from" in case and not (out / case["out"]).exists():
            time.sleep(0.05)
        recipe = cases.parent / f"{case['recipe']}.yaml"
        _train(recipe, out / case["out"], [FSDP, *case.get("changes", [])], resume="from" in case)
