"""Trackers that a recipe names; `metrics.jsonl` is written whatever they are."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from swerve.artifacts.files import read_json, write_json
from swerve.errors import MissingExtraError
from swerve.train.context import Metrics

_IDS = "trackers.json"
"""File of a run with what it is called where it is tracked, so that a resumed run continues there."""
_PROJECT = "swerve"


class Tracker(Protocol):
    """Something that records a step's metrics elsewhere."""

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """Record what was measured at a global step; None was not measured and is left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrackedRun:
    path: Path
    first_step: int
    config: Mapping[str, Any]

    def known_id(self, tracker: str) -> str | None:
        """Return what the run is called there, if it was tracked before."""
        known = read_json(self.path / _IDS) if (self.path / _IDS).is_file() else {}
        return known.get(tracker) if isinstance(known, dict) else None

    def keep_id(self, tracker: str, name: str) -> str:
        """Write down what the run is called there."""
        known = read_json(self.path / _IDS) if (self.path / _IDS).is_file() else {}
        write_json(self.path / _IDS, {**known, tracker: name})
        return name


@contextmanager
def open_trackers(
    names: Sequence[str], run: Path, *, first_step: int, config: Mapping[str, Any] = {}
) -> Iterator[list[Tracker]]:
    """Yield the trackers of these names and close them at the end.

    Each is its package's own: its environment variables say where it writes, whether it is offline and who logs in.

    Args:
        names: as in `runtime.trackers`.
        run: the run directory.
        first_step: records from this step on replace those of an earlier, interrupted process, or repeat them.
        config: the run's, shown beside the metrics.

    Raises:
        MissingExtraError: a tracker's package is not installed.
    """
    tracked = _TrackedRun(path=run, first_step=first_step, config=config)
    modules = {name: _module(name) for name in names}
    with ExitStack() as stack:
        yield [_Scalars(stack.enter_context(_OPENERS[name](module, tracked))) for name, module in modules.items()]


def check_trackers(names: Sequence[str]) -> None:
    """Check that the packages of trackers are installed.

    Raises:
        MissingExtraError: one is not.
    """
    for name in names:
        _module(name)


def _module(name: str) -> Any:
    try:
        return importlib.import_module("torch.utils.tensorboard" if name == "tensorboard" else name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(name, name, f"runtime.trackers: [{name}]") from error


_Log = Callable[[dict[str, float], int], object]
"""(values by name, global step) -> recorded."""


@dataclass(frozen=True, slots=True)
class _Scalars:
    """Records every number as `STAGE/NAME`."""

    record: _Log

    def log(self, stage: str, step: int, metrics: Metrics) -> None:
        """See `Tracker.log`."""
        self.record({f"{stage}/{name}": value for name, value in metrics.items() if value is not None}, step)


@contextmanager
def _tensorboard(module: Any, run: _TrackedRun) -> Iterator[_Log]:
    writer = module.SummaryWriter(str(run.path / "tensorboard"), purge_step=run.first_step)
    try:
        yield lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()]
    finally:
        writer.close()


@contextmanager
def _wandb(module: Any, run: _TrackedRun) -> Iterator[_Log]:
    name = run.known_id("wandb") or run.keep_id("wandb", secrets.token_hex(8))
    tracked = module.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        name=run.path.name,
        id=name,
        resume="allow",
        dir=str(run.path),
        config=dict(run.config),
    )
    try:
        yield lambda values, step: tracked.log(values, step=step)
    finally:
        tracked.finish()


@contextmanager
def _trackio(module: Any, run: _TrackedRun) -> Iterator[_Log]:
    name = run.known_id("trackio") or run.keep_id("trackio", f"{run.path.name}-{secrets.token_hex(4)}")
    project = os.environ.get("TRACKIO_PROJECT", _PROJECT)
    module.init(project=project, name=name, resume="allow", config=dict(run.config))
    try:
        yield lambda values, step: module.log(values, step=step)
    finally:
        module.finish()


@contextmanager
def _mlflow(module: Any, run: _TrackedRun) -> Iterator[_Log]:
    module.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT))
    known = run.known_id("mlflow")
    with module.start_run(run_id=known, run_name=None if known else run.path.name) as tracked:
        if known is None:
            run.keep_id("mlflow", tracked.info.run_id)
            module.log_dict(dict(run.config), "config.json")
        yield lambda values, step: module.log_metrics(values, step=step)


_OPENERS: Mapping[str, Callable[[Any, _TrackedRun], AbstractContextManager[_Log]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
