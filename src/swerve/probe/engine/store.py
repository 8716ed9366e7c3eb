"""Units of the engine as parts: the tensors of one forward batch, as bytes on disk and between processes.

A unit is stored under a digest of everything its tensors depend on, so results of other weights, other sequences or
other settings cannot mix in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from swerve.artifacts.parts import CopiedParts, Form, Parts
from swerve.version import __version__
from swerve.world import World

STATES_VERSION = 1


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _read_tensors(content: bytes) -> dict[str, Tensor]:
    """Return tensors in memory of their own.

    Those in the middle of a file's bytes are not aligned as torch's own are, and processors round operands of another
    alignment otherwise: a resumed probe would differ in the last bit.
    """
    return {name: tensor.clone() for name, tensor in load(content).items()}


TENSORS = Form(write=_tensor_bytes, read=_read_tensors)


def kept_result(
    parts: Parts,
    name: str,
    depends: Any,
    compute: Callable[[], Any],
    *,
    world: World,
    on_found: Callable[[], None] = lambda: None,
) -> Any:
    """Return a result as JSON: what the first process has kept of it, else computed by all and kept.

    Args:
        parts: the results so far.
        name: of the kind of work, such as `swaps`.
        depends: what the result depends on beside the inputs of the parts.
        compute: makes the result, which is not None.
        world: the processes, which all call this.
        on_found: called where the result was there.
    """
    known = world.gather(parts.get(name, depends) if world.is_main else None)[0]
    if known is not None:
        on_found()
        return known
    result = compute()
    if world.is_main:
        parts.put(name, depends, result)
    return json.loads(json.dumps(result))


def open_units(folder: Path | None, copied: CopiedParts | None = None) -> Parts:
    """Return the units in a folder, or of this process where there is no folder."""
    return Parts(folder, [STATES_VERSION, __version__, torch.__version__], form=TENSORS, copied=copied)
