"""Folders of models that are damaged or made to fail: one line that names the folder and the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], Any]


def config(**values: Any) -> Change:
    """Change keys of config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def content(name: str, data: bytes) -> Change:
    """Replace a file."""
    return lambda folder: (folder / name).write_bytes(data)


def weights(**tensors: torch.Tensor) -> Change:
    """Add tensors or replace them; dots are written as `__`."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        found = {name: tensor.clone() for name, tensor in load_file(path).items()}
        save_file({**found, **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}, path)

    return change


def cut(name: str, length: int) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:length])


HEADER = "model.safetensors is damaged: it is not as long as its header says"
FOLDERS: dict[str, tuple[Change, str]] = {
    "no kv heads": (config(num_key_value_heads=0), "num_key_value_heads=0, and 1 is the least"),
    "no heads": (config(num_attention_heads=0), "config.json: ZeroDivisionError"),
    "unknown activation": (config(hidden_act="swoosh"), "config.json: KeyError: 'swoosh'"),
    "unknown architecture": (config(model_type="x"), "model type `x`"),
    "no vocabulary": (config(vocab_size=0), "the model has embeddings for 0 tokens only"),
    "huge vocabulary": (config(vocab_size=10**12), "the shape [11, 32], and config.json describes [1000000000000, 32]"),
    "huge layers": (config(head_dim=10**9), "config.json describes"),
    "huge labels": (
        config(num_labels=10**9),
        "the model of its config.json ended with: memory limit 256 MiB; give another copy",
    ),
    "padding outside": (config(pad_token_id=10**9), "config.json: AssertionError: Padding_idx"),
    "wrong type": (config(eos_token_id=["x"]), "Validation error for field 'eos_token_id'"),
    "not finite": (config(rms_norm_eps=float("nan")), "is not readable JSON: NaN is not JSON"),
    "gives tuples": (config(return_dict=False), "cannot read a token"),
    "quantised": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantised (gptq in config.json)"),
    "8 bits": (weights(model__norm__weight=torch.ones(32, dtype=torch.int8)), "'model.norm.weight' is stored as I8"),
    "float of 8 bits": (
        weights(model__norm__weight=torch.ones(32).to(torch.float8_e4m3fn)),
        "'model.norm.weight' is stored as F8_E4M3",
    ),
    "packed": (weights(model__norm__qweight=torch.ones(4, dtype=torch.int32)), "'model.norm.qweight' is stored as I32"),
    "another shape": (weights(model__norm__weight=torch.ones(33)), "the shape [33], and config.json describes [32]"),
    "infinite": (weights(model__norm__weight=torch.full((32,), torch.inf)), "has values that are not finite"),
    "one too many": (weights(more=torch.ones(1)), "unexpected keys ['more']"),
    "empty weights": (content("model.safetensors", b""), HEADER),
    "huge header": (content("model.safetensors", b"\xff" * 8), HEADER),
    "cut weights": (cut("model.safetensors", 9000), HEADER),
    "no tensors": (content("model.safetensors", b"\2\0\0\0\0\0\0\0{}"), "and its files hold 0: weights are missing"),
    "empty config": (content("config.json", b""), "config.json"),
    "list": (content("config.json", b"[]"), "config.json"),
    "number": (content("config.json", b"5"), "config.json is no JSON object"),
    "deep": (content("config.json", b"[" * 100_000), "recursion depth"),
    "many digits": (
        content("config.json", b'{"model_type": "qwen3", "vocab_size": ' + b"9" * 5000 + b"}"),
        "4300 digits",
    ),
    "another model's": (content("config.json", b'{"model_type": "qwen3"}'), "config.json describes [151936, 4096]"),
    "generation": (content("generation_config.json", b"[]"), "generation_config.json is not a JSON object"),
    "generation cut off": (content("generation_config.json", b'{"eos'), "generation_config.json is not JSON"),
    "a token that is no id": (
        content("generation_config.json", b'{"pad_token_id": [true]}'),
        "must be an id or a list of ids, got [True]",
    ),
    "not UTF-8": (content("tokenizer.json", b"\xff"), "cannot load a tokenizer"),
    "deep tokenizer": (content("tokenizer.json", b"[" * 100_000), "maximum recursion depth exceeded"),
    "tokenizer's kind": (content("tokenizer_config.json", b'{"tokenizer_class": 5}'), "cannot load a tokenizer"),
    "more tokens": (content("tokenizer_config.json", b"{}"), "token id 11, but the model has embeddings for 11 tokens"),
    "deep manifest": (content("MANIFEST.json", b"[" * 100_000), "MANIFEST.json is not readable JSON"),
}


QUICK = (
    *("no kv heads", "unknown activation", "quantised", "8 bits", "packed", "another shape", "cut weights", "deep"),
    *("another model's", "gives tuples", "not finite", "more tokens", "deep manifest"),
)


@pytest.mark.parametrize(
    ("change", "said"),
    [pytest.param(*one, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, one in FOLDERS.items()],
)
def test_a_bad_folder_is_one_line(
    refused: Any, folder: Path, sound_folder: Path, ids: Path, change: Change, said: str
) -> None:
    change(folder)
    models = ("--checkpoint", folder, "--reference", sound_folder, "--device", "cpu")
    line = refused("bench", "estimators", "--rollouts", ids, *models)
    assert str(folder) in line
    assert said in line


def test_a_config_is_tried_once_and_again_when_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swerve.models import folder_checks
    from swerve.models.model_folder import load_model

    calls: list[int] = []

    def counted(function: Any, items: Any, limits: Any) -> list[Any]:
        calls.append(len(items))
        return list(map(function, items))

    monkeypatch.setattr(folder_checks, "call_each", counted)
    monkeypatch.setattr(folder_checks, "_described", {})
    for _ in range(2):
        load_model(folder, device="cpu", dtype="float32")
    assert len(calls) == 1
    config(initializer_range=0.5)(folder)
    load_model(folder, device="cpu", dtype="float32")
    assert len(calls) == 2
