"""Tensors in safetensors files of bounded size: each byte is hashed once, while it is written or read."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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
_HASHED = 1 << 24
"""Bytes handed to the digest at a time."""
_TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def write_shards(folder: Path, stem: str, tensors: Mapping[str, Tensor], world: World = ALONE) -> dict[str, str]:
    """Write tensors to `STEM.safetensors`, or to several such files with an index; return the SHA-256 of each of them.

    Tensors must be contiguous or not share memory; they are copied to the CPU one at a time. The processes of a world
    write the files side by side, each file by one; a tensor that is divided over them is whole in memory only while it
    is written. The files are the same for any number of processes.
    """
    shards = _shards(stem, tensors)
    names, own = list(shards), dict[str, str]()
    for start in range(0, len(names), world.size):
        own |= _write_side_by_side(folder, {name: shards[name] for name in names[start : start + world.size]}, world)
    if world.is_main:
        _write_index(folder, stem, shards)
    return _of_all(own, world)


def write_shards_later(
    folder: Path, stem: str, tensors: Mapping[str, Tensor], world: World, pool: ThreadPoolExecutor
) -> tuple[Future[dict[str, str]], Callable[[], dict[str, str]]]:
    """Begin to do what `write_shards` does; tensors may change as soon as this returns.

    Of each file the process that writes it holds a copy in the CPU's memory.

    Returns:
        What is done once this process has written its files, and what then returns the digests of all: all processes
        must call it.
    """
    # All processes put each tensor together; the one that writes its file copies it.
    shards, own = _shards(stem, tensors), dict[str, list[tuple[str, Tensor]]]()
    for number, (file, shard) in enumerate(shards.items()):
        for name, tensor in _ordered(shard):
            whole = whole_tensor(tensor)  # by all processes
            if number % world.size == world.rank:
                own.setdefault(file, []).append((name, whole.to("cpu", copy=True)))
    if world.is_main:
        _write_index(folder, stem, shards)
    writing = pool.submit(lambda: {file: _write_file(folder / file, ordered) for file, ordered in own.items()})
    return writing, lambda: _of_all(writing.result(), world)


def _write_file(file: Path, ordered: Sequence[tuple[str, Tensor]]) -> str:
    """Write a file, until it is on the disk; return its digest."""
    digest = hashlib.sha256()
    with file.open("wb") as stream:
        _write(_header(ordered), stream, digest)
        for _, tensor in ordered:
            _write(tensor, stream, digest)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _of_all(own: Mapping[str, str], world: World) -> dict[str, str]:
    return {name: digest for part in world.gather(own) for name, digest in part.items()}


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


def _write_side_by_side(folder: Path, shards: Mapping[str, Mapping[str, Tensor]], world: World) -> dict[str, str]:
    """Write one file in each process, as many as there are; return the digest of this process's own by its name."""
    files = [(name, _ordered(shard)) for name, shard in shards.items()]
    digest, own = hashlib.sha256(), files[world.rank] if world.rank < len(files) else None
    with ExitStack() as stack:
        if own is not None:
            stream = stack.enter_context((folder / own[0]).open("wb"))
            # The next tensors are gathered while one is written.
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            _write(_header(own[1]), stream, digest)
        writing: deque[Future[None]] = deque()
        for place in range(max(len(tensors) for _, tensors in files)):
            for rank, (_, tensors) in enumerate(files):
                if place >= len(tensors):
                    continue
                whole = whole_tensor(tensors[place][1])  # by all processes
                if rank == world.rank:
                    if len(writing) > 1:
                        writing.popleft().result()
                    writing.append(pool.submit(_write, whole, stream, digest))
        for part in writing:
            part.result()
        if own is not None and world.size > 1:
            stream.flush()
            os.fsync(stream.fileno())  # the first process, which waits for all files, may be on another machine
    return {} if own is None else {own[0]: digest.hexdigest()}


def _write(content: Tensor | bytes, stream: BinaryIO, digest: Any) -> None:
    for part in [content] if isinstance(content, bytes) else _pieces(content):
        digest.update(part)
        stream.write(part)


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


def read_shards(files: Mapping[Path, str]) -> dict[str, Tensor]:
    """Return the tensors in files, each of which is read once and compared with its SHA-256 on the way.

    Tensors of one file share its memory.

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
        header.pop("__metadata__", None)
        return {name: _tensor(content[start:], entry) for name, entry in header.items()}
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


def _ordered(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return the tensors of a file in their order in it: those with the widest types first."""
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))


def _header(ordered: Sequence[tuple[str, Tensor]]) -> bytes:
    """Return what a safetensors file begins with."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in ordered:
        end = place + _num_bytes(tensor)
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor."""
    data = _bytes_of(tensor.cpu().contiguous())
    for start in range(0, len(data), _HASHED):
        yield data[start : start + _HASHED]
