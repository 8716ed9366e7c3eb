"""The rollouts as the page holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swerve.report.read import ReportInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Rollouts for the page's reader."""

    index: Mapping[str, Any]
    blobs: tuple[str, ...]


def rollout_payload(inputs: ReportInputs) -> Payload | None:
    """Return what the reader needs; None without a probe."""
    return None
