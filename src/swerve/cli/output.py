"""Results on stdout, as text or JSON; everything else goes to stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["print_json", "print_text"]


def print_text(text: str) -> None:
    """Write lines to stdout, ended by exactly one line break."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    print_text(json.dumps(value, indent=2, allow_nan=False))
