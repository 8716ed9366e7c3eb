"""Exported folders: the same logits, nothing half written, and one line for what cannot be exported."""

from __future__ import annotations

import copy
import json
import os
import pickle
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from swerve.artifacts import files
from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.run import RunDirectory
from swerve.cli import main
from swerve.errors import ArtifactError, CheckpointError, DiskFullError, MissingExtraError
from swerve.models import export
from swerve.models.export import export_model
from swerve.models.model_card import WeightsOrigin
from swerve.models.model_folder import load_model, weights_fingerprint
from swerve.models.named_models import resolve_model
from swerve.models.saving import save_checkpoint
from tests.command_line import exit_status

CARD = "---\nlicense: apache-2.0\nlanguage: en\n---\n# A base\n"


@pytest.fixture
def folder(tiny, tmp_path):
    """A folder as another trainer leaves it: float32, several shards, a chat template, more files beside."""
    path = tmp_path / "model"
    model, tokenizer = copy.deepcopy(tiny[0]), copy.deepcopy(tiny[1])
    with torch.no_grad():
        model.model.norm.weight += torch.linspace(0.0, 1.0, 32)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    model.save_pretrained(path, max_shard_size="15KB")
    tokenizer.save_pretrained(path)
    (path / "README.md").write_text(CARD)
    (path / "optimizer.pt").write_bytes(b"not looked at")
    generation = {"eos_token_id": [2, 3], "temperature": 0.6, "do_sample": False}  # what transformers does not write
    (path / "generation_config.json").write_text(json.dumps(generation))
    return path


def _export(source, out, *, dtype=None, max_shard_size="5GB"):
    return export_model(WeightsOrigin.of(Path(source)), out, dtype=dtype, max_shard_size=max_shard_size)


def _logits(path, dtype=torch.float32):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    with torch.inference_mode():
        return model(torch.tensor([[1, 4, 8, 5, 9]])).logits


@pytest.mark.parametrize("max_shard_size", ["5GB", "20KB"])
def test_float32_has_the_same_bits(folder, tmp_path, max_shard_size):
    out = tmp_path / "out"
    found = _export(folder, out, max_shard_size=max_shard_size)
    assert found.dtype == "float32"
    assert (out / "model.safetensors.index.json").is_file() == (max_shard_size == "20KB")
    first, second = (load_model(one, device="cpu", dtype="float32") for one in (folder, out))
    assert found.weights_sha256 == weights_fingerprint(second.model) == weights_fingerprint(first.model)
    assert torch.equal(_logits(out), _logits(folder))
    assert AutoTokenizer.from_pretrained(out)("0 + 1")["input_ids"] == [1, 4, 8, 5]
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert set(found.files) == {one.name for one in out.iterdir()}
    assert not {"optimizer.pt", "MANIFEST.json"} & set(found.files)
    assert resolve_model(str(out)).path == out


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_types_are_the_cast(folder, tmp_path, dtype):
    _export(folder, tmp_path / "out", dtype=dtype)
    kind = getattr(torch, dtype)
    before = {name: value for one in folder.glob("*.safetensors") for name, value in load_file(one).items()}
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name].to(kind)) for name in after)
    assert torch.equal(_logits(tmp_path / "out", kind), _logits(folder, kind))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == dtype
    _export(tmp_path / "out", tmp_path / "again")  # by default as stored, and nothing is lost on the way
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "out" / "model.safetensors"
    ).read_bytes()


def test_the_card_of_a_folder_says_what_is_known(folder, tmp_path):
    found = _export(folder, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\nlicense: apache-2.0\n---\n")
    assert "from the folder `model`, in float32." in text
    assert found.weights_sha256 in text
    assert "Evaluation" not in text
    assert str(tmp_path) not in text


def test_a_checkpoint_of_a_run_with_its_card(small_run, tmp_path, capsys):
    assert exit_status("export", f"{small_run.path}:rl-4", "--out", str(tmp_path / "out"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    checkpoint = small_run.select_checkpoint("rl-4")
    assert found["weights_sha256"] == checkpoint.weights_sha256
    assert torch.equal(_logits(tmp_path / "out"), _logits(checkpoint.path))
    text = (tmp_path / "out" / "README.md").read_text()
    evaluation = json.loads(small_run.evaluation_path(checkpoint).read_text())
    assert "| step | 226, which is step 4 of the stage `rl` |" in text
    assert "| base model | none: initialised at random |" in text
    assert "| licence | not known |" in text
    assert f"| all | 24 | {100 * evaluation['greedy']['accuracy']['mean']:.0f}% (" in text
    assert "rounded to" not in text


def test_an_evaluation_of_other_weights_or_none_is_not_shown(small_run, tmp_path):
    run = RunDirectory(Path(shutil.copytree(small_run.path, tmp_path / "run")))
    source = run.select_checkpoint("rl-4")
    _export(source.path, tmp_path / "half", dtype="bfloat16")
    assert (
        "with weights in float32: those of this folder are rounded to bfloat16"
        in (tmp_path / "half" / "README.md").read_text()
    )
    run.evaluation_path(source).unlink()
    _export(source.path, tmp_path / "none")
    assert "This checkpoint was not evaluated." in (tmp_path / "none" / "README.md").read_text()


def _tensors(path, change):
    tensors = {name: value for one in path.glob("*.safetensors") for name, value in load_file(one).items()}
    for one in path.glob("*.safetensors*"):
        one.unlink()
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def _config(path, **values):
    (path / "config.json").write_text(json.dumps({**json.loads((path / "config.json").read_text()), **values}))


def _only(path, name):
    for one in path.glob("*.safetensors*"):
        one.unlink()
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(pickle.dumps({}))


def test_a_head_that_config_json_ties_and_the_files_do_not_stays_and_is_called_untied(folder, tmp_path):
    """As transformers reads it; a program that believes config.json would tie it again."""
    _tensors(folder, lambda all: all.update({"lm_head.weight": all["model.embed_tokens.weight"] * 2 + 0.1}))
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    _export(folder, tmp_path / "out")
    loaded = load_model(folder, device="cpu", dtype="float32")
    where = CheckpointRef(path=tmp_path / "saved", step=1, stage="sft", stage_step=1, scheduled=True, final=True)
    save_checkpoint(where, model=loaded.model, tokenizer=loaded.tokenizer, trainer_state={}, provenance={})
    _export(where.path, tmp_path / "again")
    for one in ("out", "saved", "again"):
        assert json.loads((tmp_path / one / "config.json").read_text())["tie_word_embeddings"] is False
        assert torch.equal(_logits(tmp_path / one), _logits(folder))


BROKEN = {
    "missing": (lambda one: _tensors(one, lambda all: all.pop("model.norm.weight")), "missing keys"),
    "unexpected": (
        lambda one: _tensors(one, lambda all: all.update(more=torch.ones(1))),
        "unexpected keys",
    ),
    "not finite": (
        lambda one: _tensors(one, lambda all: all["model.norm.weight"].fill_(torch.nan)),
        "'model.norm.weight' has values that are not finite",
    ),
    "untied and missing": (lambda one: _config(one, tie_word_embeddings=False), r"missing keys \['lm_head.weight'\]"),
    "quantised": (lambda one: _config(one, quantization_config={"quant_method": "awq"}), r"quantised \(awq in config"),
    "no shard": (lambda one: next(one.glob("model-00002*")).unlink(), "lacks model-00002-of-.*copy every shard"),
    "no index": (
        lambda one: (one / "model.safetensors.index.json").unlink(),
        "neither model.safetensors nor model.safetensors.index.json",
    ),
    "odd index": (
        lambda one: (one / "model.safetensors.index.json").write_text('{"weight_map": []}'),
        "has no 'weight_map' from tensors to files",
    ),
    "no config": (lambda one: (one / "config.json").unlink(), "has no config.json; copy it there"),
    "pickled": (lambda one: _only(one, "pytorch_model.bin"), "pytorch_model.bin is pickled, and reading a pickle runs"),
    "verl": (
        lambda one: _only(one, "actor/model_world_size_2_rank_0.pt"),
        "rank_0.pt is pickled",
    ),
    "no tokenizer": (lambda one: (one / "tokenizer.json").unlink(), "cannot load a tokenizer from"),
    "empty": (lambda one: [shutil.rmtree(one), one.mkdir()], "holds no weights: give a folder"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(folder, tmp_path, name):
    change, message = BROKEN[name]
    change(folder)
    (folder / "optimizer.pt").unlink(missing_ok=True)
    with pytest.raises(CheckpointError, match=message) as caught:
        _export(folder, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_values_beyond_float16_are_refused(folder, tmp_path):
    _tensors(folder, lambda all: all["model.norm.weight"].fill_(1e6))
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' has values beyond float16; use --dtype bfloat16"):
        _export(folder, tmp_path / "out", dtype="float16")
    assert _export(folder, tmp_path / "out", dtype="bfloat16").dtype == "bfloat16"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--dtype", "float61"], "--dtype 'float61' is not one of float32, bfloat16, float16; did you mean 'float16'?"),
        (["--out", "model"], "--out model exists; give the name of a new folder"),
        (["--out", "there"], "--out there exists"),
    ],
)
def test_wrong_options_are_one_line(folder, tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(["export", "model", "--out", "new", *more])
    err = capsys.readouterr().err
    assert (caught.value.code, len(err.splitlines())) == (2, 1)
    assert message in err
    assert not (tmp_path / "new").exists()


def test_a_run_without_a_label_says_which_there_are(small_run, tmp_path, capsys):
    assert exit_status("export", str(small_run.path), "--out", str(tmp_path / "out")) == 1
    assert "is a run; name one of its checkpoints as" in capsys.readouterr().err


def test_room_is_looked_for_before_anything_is_read(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _place: shutil._ntuple_diskusage(1, 1, 1000))
    monkeypatch.setattr(export, "load_base", lambda *_a, **_k: pytest.fail("was read"))
    with pytest.raises(ArtifactError, match=r"out needs about 0\.0 GB, and .* has 0\.0 GB free"):
        _export(folder, tmp_path / "out")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_and_ctrl_c_leave_nothing(folder, tmp_path, monkeypatch, error):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr(export, "write_tokenizer", fail)
    with pytest.raises(DiskFullError if isinstance(error, OSError) else KeyboardInterrupt):
        _export(folder, tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_a_kill_leaves_no_folder_and_the_next_try_clears_up(folder, tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from swerve.models import export; "
        "from swerve.models.model_card import Origin\n"
        "export.write_tokenizer = lambda *_: time.sleep(60)\n"
        "export.export_model(Origin.of(Path(sys.argv[1])), Path(sys.argv[2]), dtype=None, max_shard_size='5GB')"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(folder), str(tmp_path / "out")])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".swerve-tmp-*-out/model.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    _export(folder, tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model", "out"]


@pytest.fixture
def adapter(folder, tmp_path):
    path = tmp_path / "adapter"
    path.mkdir()
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (path / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": str(folder)}))
    tensors = {}
    for layer in range(2):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.full((2, 32), 0.1)
        tensors[f"{name}.lora_B.weight"] = torch.full((32, 2), 0.2 * layer)
    save_file(tensors, path / "adapter_model.safetensors")
    return path


def test_an_adapter_needs_peft(adapter, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match="needs the package 'peft'; install it with: pip install"):
        _export(adapter, tmp_path / "out")
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"no adapter_model.safetensors; adapter_model.bin is pickled"):
        _export(adapter, tmp_path / "out")


def test_an_adapter_is_merged_into_its_model(adapter, folder, tmp_path):
    pytest.importorskip("peft")
    found = _export(adapter, tmp_path / "out")
    name = "model.layers.1.self_attn.q_proj.weight"
    before = {key: value for one in folder.glob("*.safetensors") for key, value in load_file(one).items()}
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == before.keys()
    torch.testing.assert_close(after[name], before[name] + 4 / 2 * 2 * 0.1 * 0.2)
    assert [key for key in after if not torch.equal(after[key], before[key])] == [name]
    text = (tmp_path / "out" / "README.md").read_text()
    assert found.dtype == "float32"
    assert "from the adapter `adapter`" in text
    assert "license: apache-2.0" in text


def test_an_adapter_that_lacks_tensors_is_refused(adapter, tmp_path):
    pytest.importorskip("peft")
    tensors = load_file(adapter / "adapter_model.safetensors")
    tensors.popitem()
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="does not fit its model: missing keys"):
        _export(adapter, tmp_path / "out")


def test_the_converter_of_the_docs_makes_a_folder_that_is_exported(folder, tmp_path, monkeypatch):
    whole = {name: value for one in folder.glob("*.safetensors") for name, value in load_file(one).items()}
    before = _logits(folder)
    for one in folder.glob("*.safetensors*"):
        one.unlink()
    torch.save({f"module.{name}": value for name, value in whole.items()}, folder / "pytorch_model.bin")
    (folder / "optimizer.pt").unlink()
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (script,) = [body for body in page.split("```python\n")[1:] if body.startswith("# python convert.py")]
    (tmp_path / "convert.py").write_text(script.partition("```")[0])
    monkeypatch.setattr(sys, "argv", ["convert.py", str(folder)])
    runpy.run_path(str(tmp_path / "convert.py"), run_name="__main__")
    _export(folder, tmp_path / "out")
    assert torch.equal(_logits(tmp_path / "out"), before)
