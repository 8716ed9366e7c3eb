"""How many tokens a device samples, learns and reads in a second: measured before, by device, or here and now."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from swerve.config.runtime import RuntimeConfig
from swerve.models.model_folder import resolve_device

_MEASURED = Path(__file__).with_name("rates.json")
"""By device what was measured of one model: its weights, and tokens per second by kind of work, precision and
recomputed layers. From `benchmarks/results`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a plan is for."""

    name: str | None
    """None: another machine's, which is known by its memory alone."""
    memory: int
    """Bytes in all."""

    @classmethod
    def of(cls, runtime: RuntimeConfig, memory_gb: float | None) -> Device:
        """Return this machine's device, or another with so many gigabytes."""
        if memory_gb is not None:
            return cls(name=None, memory=int(memory_gb * 1e9))
        device = resolve_device(runtime.device)
        if device.startswith("cuda"):
            return cls(name=torch.cuda.get_device_name(device), memory=int(torch.cuda.mem_get_info(device)[1]))
        return cls(name="cpu", memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tokens per second of a model."""

    of: Mapping[str, float] = field(default_factory=dict)
    """By kind of work; see `Budget.work`."""
    source: str
    """Where the numbers come from."""


UNKNOWN = Rates(source="no rate of this device is known: swerve plan --measure measures them")


def known_rates(device: str | None, runtime: RuntimeConfig, num_weights: int) -> Rates:
    """Return the rates of a device that is in the table, for a model of another size by its number of weights.

    Args:
        device: its name; None: another machine is meant, and the table's first device taken for it.
        runtime: of the work: precision and recomputed layers count.
        num_weights: of the model, those that a token is read with.
    """
    table: dict[str, Any] = json.loads(_MEASURED.read_text(encoding="utf-8"))
    name = device or next(iter(table))
    if name not in table:
        return UNKNOWN
    entry, key = table[name], f"{runtime.precision}, {runtime.activation_checkpointing}"
    scale = entry["weights"] / num_weights
    found = {kind: rates[key] * scale for kind, rates in entry["tokens_per_second"].items() if key in rates}
    meant = "" if device else ", as the device is not named"
    return Rates(of=found, source=f"rates of {name}{meant}, by the number of weights ({entry['file']})")
