"""How tables and their numbers are written in markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["number", "percent", "size", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) if rows else ""


def percent(estimate: Mapping[str, float] | float | None, digits: int = 1) -> str:
    if estimate is None:
        return "-"
    if not isinstance(estimate, Mapping):
        return f"{100 * estimate:.{digits}f}%"
    low, high = (f"{100 * estimate[end]:.{digits}f}" for end in ("low", "high"))
    return f"{100 * _middle(estimate):.{digits}f}% [{low}, {high}]"


def _middle(estimate: Mapping[str, float]) -> float:
    return estimate["mean"] if "mean" in estimate else estimate["share"]


def number(estimate: Mapping[str, float] | float | None, digits: int = 3) -> str:
    if estimate is None:
        return "-"
    if not isinstance(estimate, Mapping):
        return f"{estimate:.{digits}f}"
    return f"{estimate['mean']:.{digits}f} [{estimate['low']:.{digits}f}, {estimate['high']:.{digits}f}]"


def size(estimate: Mapping[str, float] | float | None) -> str:
    """Show a divergence, which may be tiny."""
    if estimate is None:
        return "-"
    if not isinstance(estimate, Mapping):
        return f"{estimate:.2g}"
    return f"{estimate['mean']:.3g} [{estimate['low']:.3g}, {estimate['high']:.3g}]"
