"""Files of tensors: read by everybody, whole or in shards, and hashed once."""

from __future__ import annotations

import gc
import hashlib
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from swerve.artifacts import files
from swerve.artifacts.checkpoint import CheckpointRef
from swerve.errors import CheckpointError
from swerve.models import weight_shards
from swerve.models.fast_layers import use_fast_layers
from swerve.models.model_folder import load_model, read_trainer_state, weights_fingerprint
from swerve.models.saving import save_checkpoint

TENSORS = {
    "b": torch.arange(6.0).reshape(2, 3).t(),
    "a": torch.tensor(3.5, dtype=torch.bfloat16),
    "c": torch.tensor([7], dtype=torch.int64),
    "d": torch.zeros(0, 4),
    "e": torch.tensor([True, False, True]),
}


class CountedHashes:
    """In place of the module hashlib: counts the bytes that are hashed."""

    def __init__(self, monkeypatch):
        self.num_bytes = 0
        for module in (files, weight_shards):
            monkeypatch.setattr(module, "hashlib", self)

    def sha256(self, content=b""):
        outer, digest = self, hashlib.sha256()

        class Digest:
            hexdigest = staticmethod(digest.hexdigest)

            @staticmethod
            def update(part):
                outer.num_bytes += len(part)
                digest.update(part)

        Digest.update(content)
        return Digest

    def file_digest(self, stream, _name):
        return self.sha256(stream.read())


def test_a_file_is_what_safetensors_reads(tmp_path):
    digests = weight_shards.write_shards(tmp_path, "x", TENSORS)
    assert digests == {"x.safetensors": files.sha256_file(tmp_path / "x.safetensors")}
    theirs = load_file(tmp_path / "x.safetensors")
    ours = weight_shards.read_shards({tmp_path / "x.safetensors": digests["x.safetensors"]})
    assert ours.keys() == theirs.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(ours[name], tensor)
        assert ours[name].dtype == tensor.dtype


def test_the_digest_of_tensors_needs_no_files_and_tells_names_types_shapes_and_values_apart(tmp_path):
    digest = weight_shards.shards_digest(weight_shards.write_shards(tmp_path, "x", TENSORS))
    assert weight_shards.tensors_digest("x", dict(reversed(TENSORS.items()))) == digest
    others = ({"b": TENSORS["b"] + 1}, {"b": TENSORS["b"].double()}, {"b": TENSORS["b"].t()}, {"f": TENSORS["a"]})
    assert digest not in {weight_shards.tensors_digest("x", {**TENSORS, **other}) for other in others}


@pytest.mark.parametrize("change", ["flip", "cut", "delete"])
def test_another_file_than_was_written_is_named(tmp_path, change):
    digests = weight_shards.write_shards(tmp_path, "x", TENSORS)
    file = tmp_path / "x.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes({"flip": raw, "cut": raw[:-1], "delete": b""}[change])
    if change == "delete":
        file.unlink()
    with pytest.raises(CheckpointError, match=r"x\.safetensors is"):
        weight_shards.read_shards({file: digests["x.safetensors"]})


HEADERS = {
    "no JSON": b"{", "a list": b"[]", "an entry is no mapping": b'{"x": 3}', "deep": b"[" * 10**5,
    "not all": b"{}",
    "a gap": b'{"x": {"dtype": "I8", "shape": [3], "data_offsets": [1, 4]}}',
    "below zero": b'{"x": {"dtype": "I8", "shape": [-2, -2], "data_offsets": [0, 4]}}',
    "an unknown type": b'{"x": {"dtype": "I3", "shape": [4], "data_offsets": [0, 4]}}',
    "no whole numbers": b'{"x": {"dtype": "I8", "shape": [4.0], "data_offsets": [0, 4]}}',
}  # fmt: skip


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("length", ["right", "absurd"])
def test_what_is_no_file_of_safetensors_is_said_to_be_damaged(tmp_path, header, length):
    content = (len(header) if length == "right" else 1 << 60).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match="x is damaged: its SHA-256 differs"):
        weight_shards.read_shards({tmp_path / "x": "0" * 64})
    with pytest.raises(CheckpointError, match="x is damaged: it is no file of safetensors"):
        weight_shards.read_shards({tmp_path / "x": hashlib.sha256(content).hexdigest()})


def test_tensors_of_a_file_have_aligned_memory_of_their_own(tmp_path):
    """As CPU kernels round unaligned operands otherwise."""
    tensors = {name: torch.arange(number, dtype=torch.float32) for number, name in enumerate("abcdef", start=1)}
    save_file(tensors, tmp_path / "x", metadata={"by": "another program"})
    found = weight_shards.read_shards({tmp_path / "x": files.sha256_file(tmp_path / "x")})
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    assert {tensor.data_ptr() % 64 for tensor in found.values()} == {0}
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == len(tensors)


def _save(path, tiny, state):
    checkpoint = CheckpointRef(path=path, step=3, stage="sft", stage_step=3, scheduled=True, final=True)
    save_checkpoint(checkpoint, model=tiny[0], tokenizer=tiny[1], trainer_state=state, provenance={})


def test_a_checkpoint_in_shards_is_read_by_transformers_and_by_us(tiny, tmp_path, monkeypatch):
    whole = weights_fingerprint(tiny[0])
    monkeypatch.setattr(weight_shards, "SHARD_BYTES", 5000)
    state = {"optimizer": {f"p{number}/exp_avg": torch.full((1000,), float(number)) for number in range(4)}}
    path = tmp_path / "checkpoint"
    _save(path, tiny, state)
    names = sorted(one.name for one in path.glob("model*"))
    assert len(names) > 3
    assert names[-1] == "model.safetensors.index.json"
    assert max(one.stat().st_size for one in path.glob("trainer_state/*.safetensors")) < 6000
    manifest = files.verify_manifest(path)
    assert manifest["weights_sha256"] == weights_fingerprint(tiny[0]) != whole
    theirs = AutoModelForCausalLM.from_pretrained(path).state_dict()
    ours = load_model(path, device="cpu", dtype="float32").model.state_dict()
    for name, tensor in tiny[0].state_dict().items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(ours[name], tensor)
    found = read_trainer_state(path)
    assert {name: one.tolist() for name, one in found["optimizer"].items()} == {
        name: one.tolist() for name, one in state["optimizer"].items()
    }


def test_each_byte_of_a_checkpoint_is_hashed_once_when_it_is_written_and_when_it_is_read(tiny, tmp_path, monkeypatch):
    state = {"optimizer": {"p/exp_avg": torch.zeros(300_000), "p/exp_avg_sq": torch.zeros(300_000)}}
    path = tmp_path / "checkpoint"
    counted = CountedHashes(monkeypatch)
    _save(path, tiny, state)
    size = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    assert size > 2_400_000
    assert size - 4000 < counted.num_bytes < size + 4000  # the manifest is sealed, not listed
    counted.num_bytes = 0
    load_model(path, device="cpu", dtype="float32")
    read_trainer_state(path)
    assert counted.num_bytes < 1.01 * size  # manifests are sealed, and a tokenizer is known by its files


def test_what_a_former_model_held_is_given_back_before_large_files_are_read(tiny, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    _save(path, tiny, {})
    monkeypatch.setattr(weight_shards, "_LARGE", 0)
    model = load_model(path, device="cpu", dtype="float32").model
    use_fast_layers(model)
    held = [weakref.ref(parameter) for parameter in model.parameters()]
    gc.disable()
    try:
        del model
        assert any(one() is not None for one in held)
        load_model(path, device="cpu", dtype="float32")
        assert all(one() is None for one in held)
    finally:
        gc.enable()
