"""What a checkpoint is, in words, from its folder. Free of torch."""

from __future__ import annotations

import math
from pathlib import Path

from swerve.artifacts.files import parse_json, regular_file

_MOST_HEADER = 10**8
"""Bytes, as in safetensors itself."""


def model_words(folder: Path) -> str:
    """Return a checkpoint's architecture and number of parameters, such as `Qwen3 model of 100,352 parameters`."""
    num = 0
    try:
        config = parse_json(regular_file(folder / "config.json").read_text(encoding="utf-8"))
        # The header of a file of weights has the shape of each.
        for path in folder.glob("*.safetensors"):
            with regular_file(path).open("rb") as stream:
                size = int.from_bytes(stream.read(8), "little")
                header = parse_json(stream.read(min(size, _MOST_HEADER)))
            num += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
        name = str((config.get("architectures") or [config.get("model_type") or ""])[0])
    except Exception:  # of any folder: JSON of any form
        return ""
    name = name.removesuffix("ForCausalLM").removesuffix("LMHeadModel")
    return f"{name} model of {num:,} parameters" if num else f"{name} model"
