"""The processes that work together: one by default, as many as torchrun starts otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Rank and number of the processes; every method is a plain local operation when there is one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_main(self) -> bool:
        """Whether this process writes the artifacts."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's share: every `size`-th item."""
        return list(items[self.rank :: self.size])

    def sum_(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over the processes."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return each value's sum over the processes, which must all give the same names."""
        names = sorted(values)
        totals = torch.tensor([values[name] for name in names], dtype=torch.float64, device=self.device)
        self.sum_(totals)
        return dict(zip(names, totals.tolist(), strict=True))

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return self.sums({"flag": float(flag)})["flag"] > 0

    def gather(self, value: Any) -> list[Any]:
        """Return every process's JSON value, by rank. Sent as text: nothing is pickled."""
        if self.size == 1:
            return [value]
        payload = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self.device)
        lengths = torch.zeros(self.size, dtype=torch.long, device=self.device)
        lengths[self.rank] = len(payload)
        dist.all_reduce(lengths)
        padded = torch.zeros(int(lengths.max()), dtype=torch.uint8, device=self.device)
        padded[: len(payload)] = payload
        received = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(received, padded)
        return [
            json.loads(part[:length].cpu().numpy().tobytes())
            for part, length in zip(received, lengths.tolist(), strict=True)
        ]

    def barrier(self) -> None:
        """Wait for every process."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined_world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started (it sets RANK, WORLD_SIZE and LOCAL_RANK), or be alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(device=device)
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_TIMEOUT)
    try:
        yield World(rank=dist.get_rank(), size=size, device=device)
    finally:
        dist.destroy_process_group()
