"""Tensors in safetensors files of bounded size: each byte is hashed once, while it is written or read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swerve.errors import CheckpointError

SHARD_BYTES = 5 * 10**9
"""Largest file; a larger tensor has a file of its own."""
_HASHED = 1 << 24
"""Bytes handed to the digest at a time."""
_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def write_shards(folder: Path, stem: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write tensors to `STEM.safetensors`, or to several such files with an index; return the SHA-256 of each of them.

    Tensors must be contiguous or not share memory; they are copied to the CPU one at a time.
    """
    shards = _shards(stem, tensors)
    digests = {}
    for name, shard in shards.items():
        digest = hashlib.sha256()
        with (folder / name).open("wb") as stream:
            for part in _serialised(shard):
                digest.update(part)
                stream.write(part)
        digests[name] = digest.hexdigest()
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(map(_num_bytes, tensors.values()))},
            "weight_map": {key: name for name, shard in shards.items() for key in shard},
        }
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / f"{stem}.safetensors.index.json").write_text(text, encoding="utf-8")
    return digests


def shards_digest(digests: Mapping[str, str]) -> str:
    """Return the digest of tensors, from those of the files that `write_shards` made of them."""
    return hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()


def tensors_digest(stem: str, tensors: Mapping[str, Tensor]) -> str:
    """Return what `shards_digest` says of tensors when they are written, without writing them."""
    digests = {}
    for name, shard in _shards(stem, tensors).items():
        digest = hashlib.sha256()
        for part in _serialised(shard):
            digest.update(part)
        digests[name] = digest.hexdigest()
    return shards_digest(digests)


def shard_files(folder: Path, stem: str) -> list[Path]:
    """Return the files that `write_shards` made of tensors."""
    whole = folder / f"{stem}.safetensors"
    return [whole] if whole.is_file() else sorted(folder.glob(f"{stem}-*-of-*.safetensors"))


def read_shards(files: Mapping[Path, str]) -> dict[str, Tensor]:
    """Return the tensors in files, each of which is read once and compared with its SHA-256 on the way.

    Tensors of one file share its memory.

    Raises:
        CheckpointError: a file is missing, or another than was written; the message names it.
    """
    return {name: tensor for file, digest in files.items() for name, tensor in _read(file, digest).items()}


def _read(file: Path, expected: str) -> dict[str, Tensor]:
    if not file.is_file():
        raise CheckpointError(f"{file} is listed in its manifest but missing")
    content = torch.empty(file.stat().st_size, dtype=torch.uint8)
    view, digest, done = _bytes_of(content), hashlib.sha256(), 0
    with file.open("rb", buffering=0) as stream:
        while num := stream.readinto(view[done : done + _HASHED]):
            digest.update(view[done : done + num])
            done += num
    if digest.hexdigest() != expected:
        raise CheckpointError(f"{file} is damaged: its SHA-256 differs from the one in its manifest")
    try:
        start = 8 + int.from_bytes(view[:8], "little")
        header = json.loads(bytes(view[8:start]))
        return {name: _tensor(content[start:], entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise CheckpointError(f"{file} is damaged: it is no file of safetensors") from error


def _tensor(data: Tensor, entry: Mapping[str, Any]) -> Tensor:
    (begin, end), dtype = entry["data_offsets"], _TYPES[entry["dtype"]]
    part = data[begin:end]
    aligned = part.clone() if part.storage_offset() % dtype.itemsize else part
    shape: list[int] = entry["shape"]
    return aligned.view(dtype).reshape(shape)


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the memory of a tensor on the CPU."""
    array: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _shards(stem: str, tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each file by its name, in order of name."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in sorted(tensors.items()):
        if shards[-1] and size + _num_bytes(tensor) > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += _num_bytes(tensor)
    if len(shards) == 1:
        return {f"{stem}.safetensors": shards[0]}
    return {
        f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors": shard for number, shard in enumerate(shards, start=1)
    }


def _serialised(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file in pieces: the header, and the tensors with the widest types first."""
    ordered: Sequence[tuple[str, Tensor]] = sorted(tensors.items(), key=lambda one: (-one[1].element_size(), one[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in ordered:
        end = place + _num_bytes(tensor)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        data = _bytes_of(tensor.cpu().contiguous())
        for start in range(0, len(data), _HASHED):
            yield data[start : start + _HASHED]
