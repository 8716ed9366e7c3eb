"""Training run on from a step with one thing changed: what differs is caused by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from swerve.artifacts.files import read_sealed, sha256_file, write_sealed
from swerve.artifacts.parts import Parts, digest_of
from swerve.artifacts.replays import ReplayRow, Replays
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.recipe import Config
from swerve.models.model_folder import load_tokenizer
from swerve.problems import load_family
from swerve.progress import Progress, SilentProgress
from swerve.train.certificate import stored_weights
from swerve.train.changes import UNCHANGED, Stretch, Variation, read_rollouts
from swerve.train.replay import ReplayedStep, replay_session, replayed_steps, training_problems
from swerve.train.session import Session
from swerve.train.targets import Targets

_POINTS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
"""Steps after the first change at which the targets are measured, beside the last."""
_NUM_SEEDS = 3
_MANY = 5
"""Replays of one kind whose ranks say something."""


def run_on(
    config: Config,
    run: RunDirectory,
    variations: Sequence[Variation],
    stretch: Stretch,
    *,
    path: Path,
    progress: Progress,
) -> Replays:
    """Make some steps once unchanged, and once for each variation; return how their targets differ.

    What is done is kept beside `path` until all is, and the same call continues where it was interrupted.

    Args:
        config: the run's.
        run: it.
        variations: what is changed in each replay; all sample alike.
        stretch: the steps.
        path: the file that is written.
        progress: told how far it is.

    Raises:
        ConfigError, ArtifactError: see `replay_session` and `replayed_steps`.
    """
    first, stop, again = stretch.first, stretch.stop, variations[0].again
    # A probe that was made since has other targets.
    probed = run.probe_path / "sequences.parquet"
    inputs: dict[str, Any] = {"run": run.identity(), "first": first, "stop": stop, "again": again}
    inputs["probe"] = sha256_file(probed) if probed.is_file() else None
    whole = {**inputs, "variations": [digest_of(repr(variation)) for variation in variations]}
    parts = Parts(path.with_suffix(".partial"), inputs)
    if path.is_file() and (known := read_sealed(path)).get("inputs") == whole:
        parts.finish()  # where a kill came between the whole and their end
        progress.note(f"{path} is complete: nothing to do")
        return Replays.model_validate(known)
    # Beside the changes, what rounding and other seeds make; micro-batches of a quarter of a step add in another order.
    rows = read_rollouts(run, stretch.before + first + 1)
    num_tokens = sum(len(row["prompt_ids"]) + len(row["completion_ids"]) for row in rows)
    checks = [Variation(name="other batches", tokens_per_batch=1 + num_tokens // 4)]
    checks += [Variation(name=f"seed {number}", seed=number) for number in range(1, _NUM_SEEDS + 1) if again]
    made: dict[str, list[ReplayRow]] = {}
    with replay_session(config, run, progress) as session:
        quiet = replace(session, progress=SilentProgress())
        with progress.task("replay", 1 + len(checks) + len(variations)) as task:
            work = _Work(quiet, run, stretch)
            task.advance(1)
            for variation in (*checks, *variations):
                key = digest_of(repr(variation))
                own = parts.get("replay", key)
                if own is None:
                    own = [row.model_dump() for row in work.rows(variation)]
                    parts.put("replay", key, own)
                made[variation.name] = [ReplayRow.model_validate(row) for row in own]
                task.advance(1)
    result = _joined(run, stretch, again, checks, [variation.name for variation in variations], made)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, {**result.model_dump(mode="json"), "inputs": whole})
    parts.finish()
    return result


class _Work:
    """The unchanged replay, and replays beside it."""

    def __init__(self, session: Session, run: RunDirectory, stretch: Stretch) -> None:
        self._session, self._run, self._stretch = session, run, stretch
        self._problems = training_problems(session)
        self._points = {stretch.first + number for number in _POINTS} | {stretch.stop}
        tokenizer: Any = load_tokenizer(run.checkpoints[-1].path)
        self._targets = Targets.of_run(run, session.config, load_family(session.config.task), tokenizer)
        # Of each step that is measured the targets and the weights.
        self._unchanged = {
            step.metrics["stage_step"]: (
                self._targets.values(step.context.learner),
                {name: value.clone() for name, value in stored_weights(step.context.learner, session.config).items()},
            )
            for step in self._measured(UNCHANGED)
        }

    def rows(self, variation: Variation) -> list[ReplayRow]:
        """Make a replay; return its targets after each step that is measured."""
        rows = []
        for step in self._measured(replace(variation, first=self._stretch.first)):
            number, learner = step.metrics["stage_step"], step.context.learner
            targets, weights = self._unchanged[number]
            own = stored_weights(learner, self._session.config)
            squares = sum(float((own[name].double() - weights[name].double()).square().sum()) for name in own)
            others = self._others(step)
            for name, value in self._targets.values(learner).items():
                rows.append(
                    ReplayRow(
                        replay=variation.name,
                        step=number,
                        target=name,
                        value=value,
                        unchanged=targets[name],
                        difference=value - targets[name],
                        weight_distance=squares**0.5,
                        other_rollouts=others[0],
                        other_verdicts=others[1],
                    )
                )
        return rows

    def _measured(self, variation: Variation) -> Iterator[ReplayedStep]:
        """Yield the steps of a replay at which something is measured."""
        for step in replayed_steps(
            self._session,
            self._problems,
            start=self._stretch.start,
            stop=self._stretch.before + self._stretch.stop,
            variation=variation,
        ):
            if step.metrics["stage_step"] in self._points:
                yield step
            step.written.unlink(missing_ok=True)

    def _others(self, step: ReplayedStep) -> tuple[float | None, float | None]:
        """Return the shares of completions and verdicts that are others than those recorded in the step."""
        if not step.written.is_file():
            return None, None
        recorded = {_place(row): row for row in read_rollouts(self._run, step.step)}
        rows = read_table(step.written, ROLLOUTS_SCHEMA).to_pylist()
        shares = [
            sum(row[name] != recorded.get(_place(row), {}).get(name, _NOTHING) for row in rows) / len(rows)
            for name in ("completion_ids", "correct")
        ]
        return shares[0], shares[1]


_NOTHING = object()


def _place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["group"], row["sample"]


def _joined(
    run: RunDirectory,
    stretch: Stretch,
    again: bool,
    checks: Sequence[Variation],
    own: Sequence[str],
    rows: Mapping[str, Sequence[ReplayRow]],
) -> Replays:
    """Return all replays with what their differences are to be compared with."""
    targets = sorted({row.target for each in rows.values() for row in each})

    def of(name: str, target: str) -> list[ReplayRow]:
        return [row for row in rows[name] if row.target == target]

    def largest(checks: Sequence[Variation]) -> dict[str, float]:
        return {
            target: max(abs(row.difference) for check in checks for row in of(check.name, target)) for target in targets
        }

    floor, spread = largest(checks[:1]), largest(checks[1:]) if again else {}
    bars = {target: max(10 * floor[target], spread.get(target, 0.0)) for target in targets}
    horizons = {
        name: {
            target: max((row.step for row in of(name, target) if abs(row.difference) > bars[target]), default=None)
            for target in targets
        }
        for name in own
    }
    return Replays(
        run=str(run.path),
        stage=stretch.stage.label,
        start=stretch.first,
        stop=stretch.stop,
        rollouts="again" if again else "recorded",
        replays=list(own),
        rows=[row for each in rows.values() for row in each],
        floor=floor,
        spread=spread,
        horizons=horizons,
        ranks={target: _ranks([of(name, target) for name in own]) for target in targets} if len(own) >= _MANY else {},
    )


def _ranks(replays: Sequence[Sequence[ReplayRow]]) -> dict[int, float | None]:
    """Return of each step the rank correlation of the replays' differences with those of the first."""
    table = {rows[0].step: [row.difference for row in rows] for rows in zip(*replays, strict=True)}
    begun = next(iter(table.values()))
    return {
        step: float(scipy.stats.spearmanr(begun, values).statistic) if np.ptp(values) and np.ptp(begun) else None
        for step, values in table.items()
    }
