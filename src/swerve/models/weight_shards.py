"""Tensors in safetensors files of bounded size: each byte is hashed once, while it is written or read."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load_file
from torch import Tensor

from swerve.artifacts.files import sha256_file
from swerve.errors import CheckpointError
from swerve.world import ALONE, World

SHARD_BYTES = 5 * 10**9
"""Largest file; a larger tensor has a file of its own."""
_LARGE = 10**8
"""Bytes of files before which it is worth a tenth of a second to look for memory that can be given back."""
_HASHED = 1 << 24
"""Bytes handed to the digest at a time."""
_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
_NAMED = {name: dtype for dtype, name in _TYPES.items()}


def write_shards(folder: Path, stem: str, tensors: Mapping[str, Tensor], world: World = ALONE) -> dict[str, str]:
    """Write tensors to `STEM.safetensors`, or to several such files with an index; return the SHA-256 of each of them.

    The processes of a world, which all call this, write the files side by side, each file by one. A tensor that is
    divided over them is put together by all of them. The files are the same for any number of processes. When this
    returns they are on the disk.

    Args:
        folder: where.
        stem: of the files' names.
        tensors: by name; contiguous, or not sharing memory. They are copied to the CPU one at a time.
        world: the processes.
    """
    shards = _shards(stem, tensors)
    if world.is_main:
        _write_index(folder, stem, shards)
    names, digests = list(shards), dict[str, str]()
    for start in range(0, len(names), world.size):
        # Each process writes one of these files, tensor by tensor, as all of them put these together.
        files = [_ordered(shards[name]) for name in names[start : start + world.size]]
        own = _gathered(files, world.rank)
        if world.rank < len(files):
            name = names[start + world.rank]
            digests[name] = _write_file(folder / name, _header(files[world.rank]), own)
        else:
            deque(own, maxlen=0)  # its part in putting the others' together
    return {name: digest for part in world.gather(digests) for name, digest in part.items()}


def _gathered(files: Sequence[Sequence[tuple[str, Tensor]]], rank: int) -> Iterator[Tensor]:
    """Put the tensors of files together, as all processes do in the same order; yield those of one's own file."""
    for place in range(max(map(len, files))):
        own = None
        for number, ordered in enumerate(files):
            if place < len(ordered):
                whole = whole_tensor(ordered[place][1])
                own = whole if number == rank else own
        if own is not None:  # the others' are put together first: all processes write at a time
            yield own


def _write_file(path: Path, header: bytes, tensors: Iterable[Tensor]) -> str:
    """Write a file of a header and of tensors as they come, until it is on the disk; return its digest."""
    digest, begin = hashlib.sha256(), memoryview(header)
    with path.open("wb") as stream:
        for piece in chain([begin], chain.from_iterable(map(_pieces, tensors))):
            digest.update(piece)
            stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _write_index(folder: Path, stem: str, shards: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write which of several files has which tensor."""
    if len(shards) > 1:
        size, places = 0, dict[str, str]()
        for name, shard in shards.items():
            places |= dict.fromkeys(shard, name)
            size += sum(map(_num_bytes, shard.values()))
        index = {"metadata": {"total_size": size}, "weight_map": places}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / f"{stem}.safetensors.index.json").write_text(text, encoding="utf-8")


def whole_tensor(tensor: Any) -> Tensor:
    """Return a tensor that may be divided over processes (torch's DTensor) whole; all must ask."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


def shards_digest(digests: Mapping[str, str]) -> str:
    """Return the digest of tensors, from those of the files that `write_shards` made of them."""
    return hashlib.sha256("".join(f"{name} {digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()


def tensors_digest(stem: str, tensors: Mapping[str, Tensor]) -> str:
    """Return what `shards_digest` says of tensors when they are written, without writing them."""
    digests = {}
    for name, shard in _shards(stem, tensors).items():
        ordered = _ordered(shard)
        digest = hashlib.sha256(_header(ordered))
        for _, tensor in ordered:
            for part in _pieces(tensor):
                digest.update(part)
        digests[name] = digest.hexdigest()
    return shards_digest(digests)


def shard_files(folder: Path, stem: str) -> list[Path]:
    """Return the files that `write_shards` made of tensors."""
    whole = folder / f"{stem}.safetensors"
    return [whole] if whole.is_file() else sorted(folder.glob(f"{stem}-*-of-*.safetensors"))


def make_room(files: Iterable[Path]) -> None:
    """Give back what former models held before large files are read: layers are in cycles with their faster methods."""
    if sum(file.stat().st_size for file in files) > _LARGE:
        gc.collect()


def read_shards(files: Mapping[Path, str]) -> dict[str, Tensor]:
    """Return the tensors in files, each of which is read once and compared with its SHA-256 on the way.

    Raises:
        CheckpointError: a file is missing, or another than was written; the message names it.
    """
    return {name: tensor for file, digest in files.items() for name, tensor in _read(file, digest).items()}


def map_shards(files: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors in files, whose content stays there until it is used."""
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def verify_shards(files: Mapping[Path, str], world: World) -> None:
    """Compare files with their SHA-256; each process of a world reads some of them, and all learn what is wrong.

    Raises:
        CheckpointError: a file is missing, or another than was written.
    """
    fault = None
    try:
        for file, expected in world.shard(sorted(files.items())):
            if not file.is_file() or sha256_file(file) != expected:
                fault = f"{file} is missing or damaged: its SHA-256 is not the one in its manifest"
                break
    except OSError as error:
        fault = str(error)
    for message in world.gather(fault):
        if message is not None:
            raise CheckpointError(message)


def _read(file: Path, expected: str) -> dict[str, Tensor]:
    """Read a file tensor by tensor, each into memory of its own, and hash it on the way."""
    if not file.is_file():
        raise CheckpointError(f"{file} is listed in its manifest but missing")
    digest, tensors = hashlib.sha256(), dict[str, Tensor]()
    try:
        with file.open("rb") as stream:
            for name, dtype, shape in _entries(stream, digest, size=file.stat().st_size):
                tensors[name] = torch.empty(shape, dtype=dtype)
                for piece in _pieces(tensors[name]):
                    if stream.readinto(piece) != len(piece):
                        raise ValueError("cut short while it was read")
                    digest.update(piece)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if sha256_file(file) == expected:
            raise CheckpointError(f"{file} is damaged: it is no file of safetensors") from error
        digest = hashlib.sha256()
    if digest.hexdigest() != expected:
        raise CheckpointError(f"{file} is damaged: its SHA-256 differs from the one in its manifest")
    return tensors


def _entries(stream: BinaryIO, digest: Any, *, size: int) -> list[tuple[str, torch.dtype, list[int]]]:
    """Read what a safetensors file begins with; return name, type and shape of its tensors as they follow.

    Raises:
        ValueError: they are not what the file has, of `size` bytes, without gaps. Other errors: it is no header.
    """
    begin = stream.read(8)
    length = int.from_bytes(begin, "little")
    if length > size - 8:
        raise ValueError("the header is longer than the file")
    text = stream.read(length)
    digest.update(begin + text)
    header = json.loads(text)
    header.pop("__metadata__", None)
    place, entries = 0, []
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _NAMED[entry["dtype"]], entry["shape"]
        end = place + math.prod(shape) * dtype.itemsize
        if [place, end] != entry["data_offsets"] or min(shape, default=0) < 0:
            raise ValueError(f"{name} is not where it should be")
        entries.append((name, dtype, shape))
        place = end
    if 8 + length + place != size:
        raise ValueError("the tensors are not all of the file")
    return entries


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


def _ordered(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return the tensors of a file in their order in it: those with the widest types first."""
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def _header(ordered: Sequence[tuple[str, Tensor]]) -> bytes:
    """Return what a safetensors file begins with."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in ordered:
        end = place + _num_bytes(tensor)
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor."""
    array: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    data = memoryview(array)
    for start in range(0, len(data), _HASHED):
        yield data[start : start + _HASHED]
