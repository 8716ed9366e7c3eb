"""Units of the engine as parts: the tensors of one forward batch, as bytes on disk and between processes.

A unit is stored under a digest of everything its tensors depend on, so results of other weights, other sequences or
other settings cannot mix in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from swerve.artifacts.parts import Form, Parts
from swerve.version import __version__

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


def open_units(folder: Path | None) -> Parts:
    """Return the units in a folder, or of this process where there is no folder."""
    return Parts(folder, [STATES_VERSION, __version__, torch.__version__], form=TENSORS)
