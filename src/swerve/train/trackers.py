"""Trackers that a recipe names; `metrics.jsonl` is written whatever they are."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from swerve.artifacts.files import read_json, write_json
from swerve.errors import MissingExtraError, SwerveError, said_by

Tracker: TypeAlias = Callable[[dict[str, float], int], object]
"""(values by name, global step) -> recorded."""
_PROJECT = "swerve"


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
        MissingExtraError: a tracker's package, or one that it needs, is not installed.
        SwerveError: a tracker cannot begin; the message names it.
    """
    modules = {name: _module(name) for name in names}
    with ExitStack() as ends:
        yield [_opened(name, module, run, first_step, config, ends) for name, module in modules.items()]


def _opened(name: str, module: Any, run: Path, first_step: int, config: Mapping[str, Any], ends: ExitStack) -> Tracker:
    try:
        return _OPENERS[name](module, run, first_step, dict(config), ends)
    except SwerveError:
        raise
    except Exception as error:  # the packages raise types of their own
        raise SwerveError(
            f"runtime.trackers: [{name}] cannot begin: {said_by(error)}; mend it, or leave the tracker out"
        ) from error


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
        raise MissingExtraError(error.name or name, name, f"runtime.trackers: [{name}]") from error


def _name_there(run: Path, tracker: str, new: str | None = None) -> str | None:
    """Return what a run is called where it is tracked, so that a resumed run continues there; `new` is written down."""
    path = run / "trackers.json"
    known = read_json(path) if path.is_file() else {}
    if new is not None and tracker not in known:
        known = {**known, tracker: new}
        write_json(path, known)
    return known.get(tracker)


def _tensorboard(module: Any, run: Path, first_step: int, _config: dict[str, Any], ends: ExitStack) -> Tracker:
    writer = module.SummaryWriter(str(run / "tensorboard"), purge_step=first_step)
    ends.callback(writer.close)
    return lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()]


def _wandb(module: Any, run: Path, _first_step: int, config: dict[str, Any], ends: ExitStack) -> Tracker:
    tracked = module.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        name=run.name,
        id=_name_there(run, "wandb", secrets.token_hex(8)),
        resume="allow",
        dir=str(run),
        config=config,
    )
    ends.callback(tracked.finish)
    return lambda values, step: tracked.log(values, step=step)


def _trackio(module: Any, run: Path, _first_step: int, config: dict[str, Any], ends: ExitStack) -> Tracker:
    name = _name_there(run, "trackio", f"{run.name}-{secrets.token_hex(4)}")
    module.init(project=os.environ.get("TRACKIO_PROJECT", _PROJECT), name=name, resume="allow", config=config)
    ends.callback(module.finish)
    return lambda values, step: module.log(values, step=step)


def _mlflow(module: Any, run: Path, _first_step: int, config: dict[str, Any], ends: ExitStack) -> Tracker:
    module.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT))
    known = _name_there(run, "mlflow")
    tracked = ends.enter_context(module.start_run(run_id=known, run_name=None if known else run.name))
    if known is None:
        _name_there(run, "mlflow", tracked.info.run_id)
        module.log_dict(config, "config.json")
    return lambda values, step: module.log_metrics(values, step=step)


_OPENERS: Mapping[str, Callable[[Any, Path, int, dict[str, Any], ExitStack], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
"""What begins to record: (module, run directory, first step, configuration, what to end with) -> the tracker."""
