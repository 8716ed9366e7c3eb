"""Trackers that a recipe names; `metrics.jsonl` is written whatever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from swerve.errors import MissingExtraError
from swerve.train.stages.context import Metrics


class Tracker(Protocol):
    """Something that records a step's metrics elsewhere."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """Record what was measured at a global step; None was not measured and is left out."""
        ...


@contextmanager
def open_trackers(names: Sequence[str], run: Path, *, first_step: int) -> Iterator[list[Tracker]]:
    """Yield the trackers of these names, writing into the run directory, and close them at the end.

    Args:
        names: as in `runtime.trackers`.
        run: the run directory.
        first_step: records from this step on replace those of an earlier, interrupted process.

    Raises:
        MissingExtraError: a tracker's package is not installed.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_OPENERS[name](run, first_step)) for name in names]


@contextmanager
def _tensorboard(run: Path, first_step: int) -> Iterator[Tracker]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise MissingExtraError("tensorboard", "tensorboard", "runtime.trackers: [tensorboard]") from error
    writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=first_step)
    try:
        yield _TensorBoard(writer)
    finally:
        writer.close()


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            if value is not None:
                self._writer.add_scalar(f"{stage}/{name}", value, step)


_OPENERS = {"tensorboard": _tensorboard}
