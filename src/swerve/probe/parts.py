"""What a causal test has found so far, unit by unit, so that an interrupted probe goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.files import read_json, write_json
from swerve.errors import ArtifactError

__all__ = ["PartStore", "fingerprint"]


def fingerprint(*values: Any) -> str:
    """Return the SHA-256 of JSON values: equal exactly where all of them are.

    >>> fingerprint("a", 1)[:12]
    '2657442bb4a4'
    """
    text = json.dumps(values, sort_keys=True, allow_nan=False, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStore:
    """Results of units of work, each a JSON file named by what it depends on."""

    path: Path | None
    """Directory of the files; None: nothing is kept."""
    key: str
    """Fingerprint of everything that all units depend on."""

    def get(self, name: str, depends: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the unit's result (a JSON value): read where it was computed before, computed and kept otherwise.

        Args:
            name: of the kind of work, such as `swaps`.
            depends: what the unit depends on beside the store's key.
            compute: makes the result.
        """
        if self.path is None:
            return compute()
        file = self.path / f"{name}-{fingerprint(self.key, name, depends)[:32]}.json"
        try:
            return read_json(file)["result"]
        except (ArtifactError, KeyError, TypeError):
            write_json(file, {"name": name, "result": compute()})
            return read_json(file)["result"]
