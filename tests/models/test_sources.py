from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.files import atomic_directory
from swerve.config.models import PretrainedModel
from swerve.errors import CheckpointError
from swerve.models.hub import pretrained_path
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckpointSource, folder_fingerprint
from swerve.models.starting_model import read_architecture
from swerve.models.tiny import build_word_tokenizer
from tests.builders import LoadedSource


@pytest.fixture(scope="module")
def folder(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "model"
    model, tokenizer = tiny
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def source(path: Path | str, **changes: Any) -> CheckpointSource:
    return CheckpointSource(**{"label": "a", "path": path, "device": "cpu", "dtype": "float32", **changes})


def test_a_checkpoint_is_loaded_in_its_type(folder: Path, tiny: Any) -> None:
    loaded = source(folder, dtype="bfloat16").load()
    assert loaded.model.dtype == torch.bfloat16
    weight = tiny[0].get_output_embeddings().weight
    assert torch.equal(loaded.model.get_output_embeddings().weight, weight.bfloat16())


def test_a_fingerprint_is_of_content_type_and_device(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "copy")
    first = source(folder).fingerprint
    assert source(copied, label="b").fingerprint == first
    assert source(folder, dtype="bfloat16").fingerprint != first
    assert source(folder, device="cuda:1").fingerprint == source(folder, device="cuda:0").fingerprint != first
    for name in ("tokenizer.json", "model.safetensors"):
        changed = shutil.copytree(folder, tmp_path / name)
        (changed / name).write_bytes((changed / name).read_bytes() + b" ")
        assert source(changed).fingerprint != first, name


def test_a_fingerprint_is_of_what_a_description_says_not_of_the_version_that_wrote_it(
    folder: Path, tmp_path: Path
) -> None:
    first = folder_fingerprint(folder)
    for key, value, is_same in (
        ("transformers_version", "5.99.0", True),
        ("transformers_version", None, True),
        ("hidden_act", "gelu", False),
        ("further", {"transformers_version": "5.99.0"}, False),
    ):
        changed = shutil.copytree(folder, tmp_path / "changed", dirs_exist_ok=True)
        entries = json.loads((folder / "config.json").read_text())
        assert "transformers_version" in entries
        (changed / "config.json").write_text(json.dumps({**entries, key: value}))
        assert (folder_fingerprint(changed) == first) == is_same, (key, value)
    (changed / "config.json").write_text("[" * 10**5)
    assert folder_fingerprint(changed) != first


def test_a_checkpoint_of_another_run_is_named_as_elsewhere(small_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small_run.path.parent)
    last = small_run.checkpoints[-1]
    for name in (f"{small_run.path.name}:{last.label}", f"{small_run.path}:{last.stage}"):
        assert Path(pretrained_path(PretrainedModel(path=name))).resolve() == last.path.resolve()
        assert read_architecture(name, key="model.path")[0].model_type == "qwen3"
    for folder in ("owner/name", str(last.path), "./a:b"):
        (Path("a:b")).mkdir(exist_ok=True)
        assert pretrained_path(PretrainedModel(path=folder)) == folder
    with pytest.raises(CheckpointError, match=r"has no checkpoint 'nope'; it has sft"):
        pretrained_path(PretrainedModel(path=f"{small_run.path}:nope"))
    with pytest.raises(CheckpointError, match="there is no model none:sft: run directory none does not exist"):
        pretrained_path(PretrainedModel(path="none:sft"))


def test_a_manifest_stands_for_the_files(folder: Path, tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "checkpoint") as temporary:
        shutil.copytree(folder, temporary, dirs_exist_ok=True)
    checkpoint = tmp_path / "checkpoint"
    before = folder_fingerprint(checkpoint)
    (checkpoint / "model.safetensors").write_bytes(b"damaged")
    assert folder_fingerprint(checkpoint) == before
    with pytest.raises(CheckpointError, match="damaged"):
        source(checkpoint).load()


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no weights in safetensors files"):
        folder_fingerprint(tmp_path)


def test_a_tokenizer_of_another_model_is_found_before_weights_are_loaded(folder: Path, tmp_path: Path) -> None:
    wrong = shutil.copytree(folder, tmp_path / "wrong")
    build_word_tokenizer([f"w{number}" for number in range(40)]).save_pretrained(wrong)
    with pytest.raises(CheckpointError, match=r"has the token id 43, but the model has embeddings for 11 tokens only"):
        source(wrong).check()


def test_a_loaded_model_is_known_by_weights_type_configuration_and_tokenizer(tiny: Any) -> None:
    model, tokenizer = tiny

    def fingerprint(model: Any, tokenizer: Any) -> str:
        return LoadedSource(label="a", loaded=LoadedModel(model=model, tokenizer=tokenizer)).fingerprint

    first = fingerprint(model, tokenizer)
    assert fingerprint(copy.deepcopy(model), tokenizer) == first
    changed, capped = copy.deepcopy(model), copy.deepcopy(model)
    with torch.no_grad():
        next(iter(changed.parameters())).view(-1)[0] += 1e-3
    capped.config.final_logit_softcapping = 3.0
    others = [
        fingerprint(changed, tokenizer),
        fingerprint(capped, tokenizer),
        fingerprint(copy.deepcopy(model).bfloat16(), tokenizer),
        fingerprint(model, build_word_tokenizer(["a", "b"])),
    ]
    assert len({first, *others}) == 5


def test_a_loaded_model_is_handed_out_as_it_is(tiny: Any) -> None:
    loaded = LoadedModel(model=tiny[0], tokenizer=tiny[1])
    assert LoadedSource(label="a", loaded=loaded).load() is loaded
