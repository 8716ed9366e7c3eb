"""What a model's folder says of itself before torch is imported: each wrong one is refused in one line."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from swerve.errors import CheckpointError, ConfigError, MismatchError
from swerve.models.folder_metadata import (
    check_metadata,
    check_one_tokenizer,
    check_positions,
    check_tokenizer,
    positions_of,
)
from swerve.models.tiny import build_word_tokenizer
from swerve.positions import max_positions
from tests.campaign.slow_answers import slowness
from tests.chat_models import byte_level, save_model
from tests.json_lines import write_json_lines

_MOST_SECONDS = 1.5


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    save_model(folder, byte_level(), eos=0)
    return folder


def configured(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def indexed(folder: Path) -> None:
    weights = {"a": "model.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))


def without_tokenizer(folder: Path) -> None:
    for file in [*folder.glob("token*"), *folder.glob("*.jinja")]:
        file.unlink()


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1])


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickled": (pickled, "pytorch_model.bin is pickled, and reading a pickle runs whatever code is in it"),
    "empty": (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights: give a folder with"),
    "bare": (lambda folder: (folder / "config.json").unlink(), "has no config.json; copy it there"),
    "damaged": (lambda folder: (folder / "config.json").write_text("{"), "config.json is not readable JSON"),
    "list": (lambda folder: (folder / "config.json").write_text("[]"), "config.json is no JSON object"),
    "in-parts": (indexed, "lacks model-2.safetensors, which model.safetensors.index.json names"),
    "cut": (cut, "model.safetensors is damaged: it is not as long as its header says"),
    "noise": (lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 99), "is damaged: it is not as long"),
    "short": (lambda folder: (folder / "model.safetensors").write_bytes(b"ab"), "is damaged: it is not as long"),
    "quantised": (
        lambda folder: configured(folder, quantization_config={"quant_method": "gptq"}),
        "are quantised (gptq in config.json)",
    ),
    "encoder": (lambda folder: configured(folder, is_encoder_decoder=True), "is an encoder and a decoder"),
    "without": (without_tokenizer, "has no tokenizer; copy its files there"),
    "odd": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged (KeyError)"),
    "large": (
        lambda folder: build_word_tokenizer([f"w{k}" for k in range(999)]).save_pretrained(folder),
        "but the model has embeddings for 260 tokens only; the two do not belong together",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_folder_is_refused_by_its_files(good: Path, tmp_path: Path, name: str) -> None:
    change, message = WRONG[name]
    folder = shutil.copytree(good, tmp_path / name)
    check_metadata(folder)
    change(folder)
    with pytest.raises(CheckpointError) as caught:
        check_metadata(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_folder_here_is_left_to_those_who_read_it(good: Path, tmp_path: Path) -> None:
    check_metadata("owner/name#revision")
    check_one_tokenizer(["owner/name", good])
    check_positions("m", "owner/name", 10**6)
    check_tokenizer("owner/name")
    adapter = shutil.copytree(good, tmp_path / "adapter")
    without_tokenizer(adapter)
    (adapter / "config.json").rename(adapter / "adapter_config.json")
    check_metadata(adapter)


def test_tokenizers_are_the_same_where_every_id_is_the_same_token(good: Path, tmp_path: Path) -> None:
    same = shutil.copytree(good, tmp_path / "same")
    entry = json.loads((same / "tokenizer.json").read_text())
    (same / "tokenizer.json").write_text(json.dumps(dict(reversed(entry.items()))))
    check_one_tokenizer([good, same])
    entry["added_tokens"][-1]["content"] = "<other>"
    (same / "tokenizer.json").write_text(json.dumps(entry))
    decoder = json.loads((same / "tokenizer_config.json").read_text())
    (same / "tokenizer_config.json").write_text(json.dumps({**decoder, "added_tokens_decoder": {}}))
    with pytest.raises(MismatchError, match="only models with the same tokenizer can be compared: 1 ids stand for"):
        check_one_tokenizer([good, same])


def test_positions_are_those_that_the_model_has(good: Path, tmp_path: Path) -> None:
    check_positions("good", good, None)
    check_positions("good", good, 127)
    with pytest.raises(ConfigError, match="may have 128 tokens, with its prompt more than the model's 128 positions"):
        check_positions("good", good, 128)
    stretched = shutil.copytree(good, tmp_path / "stretched")
    configured(stretched, rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4})
    check_positions("stretched", stretched, 400)
    configured(stretched, rope_parameters=None, rope_scaling={"type": "linear", "factor": 4.0})  # as older files say it
    check_positions("stretched", stretched, 400)


def test_positions_of_every_type_of_causal_model_are_those_that_transformers_knows(tmp_path: Path) -> None:
    unknown, num_equal = set(), 0
    for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            config = CONFIG_MAPPING[kind]()
        except StrictDataclassError:  # one has no defaults that it takes itself
            continue
        config.save_pretrained(tmp_path)
        read, known = positions_of(tmp_path), max_positions(config)
        assert read in (None, known), kind
        num_equal += read == known
        if read != known:
            unknown.add(kind)
    assert num_equal > 150
    assert not unknown & {"gpt2", "gptj", "llama", "qwen3", "mpt", "dbrx", "codegen", "openai-gpt", "gpt_bigcode"}


@pytest.mark.slow
def test_commands_refuse_wrong_models_within_a_moment(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_model(other, build_word_tokenizer(["a", "b"]), eos=0)
    broken = {name: shutil.copytree(good, tmp_path / name) for name in ("pickled", "without", "quantised")}
    for name, folder in broken.items():
        WRONG[name][0](folder)
    write_json_lines(tmp_path / "p.jsonl", [{"id": "p", "question": "1 + 1?", "answer": "2"}])
    write_json_lines(tmp_path / "r.jsonl", [{"id": "p", "problem": "1 + 1?", "gold": "2", "response": "\\boxed{2}"}])
    commands = [
        *(["sample", name, "--data", "p.jsonl", "--out", "o"] for name in broken),
        *(["eval", "--model", name, "--data", "p.jsonl", "--out", "o"] for name in broken),
        *(["claim", str(good), name, "--data", "p.jsonl", "--out", "o"] for name in (*broken, "other")),
        *(["export", name, "--out", "o"] for name in broken),
        *(["config", "check", "gsm8k", f"model.path={name}"] for name in broken),
        *(["train", "gsm8k", f"model.path={name}"] for name in broken),
        ["sample", str(good), "--data", "p.jsonl", "--out", "o", "--max-new-tokens", "999"],
        ["data", "import", "r.jsonl", "--tokenizer", "without", "--out", "o.parquet"],
    ]
    models = ["--use-responses", "r.jsonl", "--task", "math", "--reference", str(good), "--out", "o", "--checkpoint"]
    commands += [["probe", *models, name] for name in (*broken, "other")]
    took = {}
    for words in commands:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        ended = subprocess.run(
            [sys.executable, "-m", "swerve", *words],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode in (1, 2), (words, ended.stderr)
        assert ended.stderr.count("\n") == 1, (words, ended.stderr)
        took[" ".join(words)] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert {words: seconds for words, seconds in took.items() if seconds > _MOST_SECONDS * slowness()} == {}
    assert not (tmp_path / "o").exists()
