"""What `swerve config check` and training refuse before a step is made."""

from __future__ import annotations

import re

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, MissingExtraError, SwerveError
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.checks import check_recipe
from swerve.train.loop import train_run
from swerve.train.stages.sft import SftRunner

REFUSED = [
    ("max_new_tokens=510", ConfigError, "together more than the model's 512 positions; lower max_new_tokens"),
    ("max_new_tokens=12", ConfigError, r"the right solution .* has \d+ tokens, more than max_new_tokens=12"),
    ("stages.rl.where={kinds: [nosuch]}", ConfigError, "stage 'rl': none of 400 training problems is within 'where'"),
    ("stages.rl.mix={nosuch: 1}", ConfigError, "stage 'rl': 'mix' names 'nosuch'"),
    ("stages.sft.data=nosuch.jsonl", ConfigError, "data source 'nosuch.jsonl' does not exist"),
    ("runtime.sharding={kind: fsdp, offload: true}", ConfigError, "offload=true spares the memory of a CUDA device"),
    ("runtime.liger=true", SwerveError, "runtime.liger(=true: its kernels need a CUDA| needs the package)"),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED)
def test_config_check_and_training_refuse_the_same(small_recipe, tmp_path, change, error, message):
    config = load_config(small_recipe, [change, "runtime.device=cpu"])
    with pytest.raises(error, match=message) as checked:
        check_recipe(config)
    with pytest.raises(error, match=re.escape(str(checked.value))):
        train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())
    assert not (tmp_path / "run").exists()


def test_packages_are_those_of_the_machine_that_trains(small_recipe, monkeypatch):
    monkeypatch.setattr("swerve.train.replicated_model.is_liger_kernel_available", lambda: False)
    config = load_config(small_recipe, ["runtime.liger=true"])
    with pytest.raises(MissingExtraError, match="runtime.liger needs the package 'liger-kernel'"):
        check_recipe(config)
    check_recipe(config, is_here=False)


def test_data_sets_of_the_hub_are_left_to_training_and_files_beside_them_are_not(monkeypatch):
    monkeypatch.setattr("swerve.problems.data_specs.read_hub_dataset", lambda *_, **__: pytest.fail("asked the hub"))
    check_recipe(load_config("gsm8k"))
    with pytest.raises(ConfigError, match=r"data source 'nosuch.jsonl' does not exist; give a file that ends in"):
        check_recipe(load_config("gsm8k", ["task.train=nosuch.jsonl"]))


@pytest.mark.parametrize("begins", ["", "./"])
def test_a_folder_whose_name_is_mistyped_is_not_looked_for_on_the_hub(begins, small_recipe, tmp_path, monkeypatch):
    (tmp_path / "models/first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    config = load_config(small_recipe, [f"model={{kind: pretrained, path: {begins}models/frist}}"])
    with pytest.raises(ConfigError, match="there is no such folder, .*; did you mean 'models/first'?"):
        check_recipe(config)
    with pytest.raises(SwerveError, match="there is no such folder, .*; did you mean 'models/first'?"):
        train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())


def test_files_of_examples_are_read(small_recipe, tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"prompt": "1 + 1", "response": "2"}\n{"prompt": "1 +\n')
    config = load_config(small_recipe, [f"stages.sft.data={tmp_path}/broken.jsonl"])
    with pytest.raises(SwerveError, match="broken.jsonl, line 2 is not JSON") as checked:
        check_recipe(config)
    with pytest.raises(SwerveError, match=re.escape(str(checked.value))):
        train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())


def test_files_of_later_stages_are_read_with_the_models_tokens_before_the_first_step(
    small_recipe, tmp_path, monkeypatch
):
    monkeypatch.setattr(SftRunner, "step", lambda *_: pytest.fail("made a step"))
    text, chat, ids = (tmp_path / name for name in ("text.txt", "chat.jsonl", "ids.jsonl"))
    text.write_text("1 + 2 = unheard")
    chat.write_text('{"prompt": "1 + 2", "response": "3 3 3 3 3 3"}\n')
    ids.write_text('{"prompt": "1 2", "prompt_ids": [3, 4], "completion_ids": [5, 2], "response": null}\n')
    first, later = (
        "{kind: sft, steps: 1, optimizer: {lr: 1e-4}}",
        "kind: sft, name: later, steps: 1, optimizer: {lr: 1e-4}",
    )
    for stages, message in (
        (f"{first}, {{{later}, data: {text}}}", "no token for a word of .*text.txt"),
        (f"{first}, {{{later}, validation: {chat}, max_length: 4}}", "none of 1 examples of .* has at most 4 tokens"),
        (f"{first}, {{{later}, data: {ids}, max_length: 3}}", "none of 1 examples of .* has at most 3 tokens"),
    ):
        config = load_config(small_recipe, [f"stages=[{stages}]"])
        with pytest.raises(ConfigError, match=message) as checked:
            check_recipe(config)
        with pytest.raises(ConfigError, match=re.escape(str(checked.value))):
            train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())
        assert not (tmp_path / "run").exists()
    # Token 2 is the end of a sequence: none is added, so four tokens are enough.
    check_recipe(load_config(small_recipe, [f"stages=[{first}, {{{later}, data: {ids}, max_length: 4}}]"]))
