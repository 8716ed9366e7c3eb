"""Body of `swerve grade`: the records of a file, judged one by one, and compared with recorded verdicts."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.files import remove, sha256_file, write_text
from swerve.cli.audit import Audited, audit, audit_lines, refuse_unauditable
from swerve.cli.console import console_progress, one_line
from swerve.cli.grading_input import FIELDS, GradingTask, grading_task
from swerve.cli.output import print_json, print_text, refuse_output
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.fields import parse_fields
from swerve.formats.records import Record, read_records
from swerve.progress import Progress
from swerve.statistics import share
from swerve.types import Problem, Reward
from swerve.version import __version__

__all__ = ["GradeOptions", "run_grade"]

_ROWS_AT_A_TIME = 256
_RESULT_NAMES = ("value", "status", "extracted", "parts", "detail")
_NUM_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeOptions:
    """What the command line says beside the file."""

    task: str | None
    out: Path | None = None
    audits: tuple[str, ...] = ()
    disagreements: Path | None = None
    problems: Path | None = None
    fields: tuple[str, ...] = ()
    workers: int | None = None
    cpu_seconds: float | None = None
    memory_mb: int | None = None


def run_grade(arguments: Sequence[str], options: GradeOptions, *, as_json: bool) -> None:
    """Grade every record of a file; write them with their verdicts, and say how they agree with recorded ones.

    Args:
        arguments: the file and `KEY=VALUE` policies, in any order.
        options: what else the command line says.
        as_json: print the summary as JSON.

    Raises:
        ConfigError: an option or a policy is wrong.
        ArtifactError: the file cannot be read, or a record lacks what is needed.
    """
    file, policies = _file_and_policies(arguments)
    _refuse_outputs(file, options)
    task = _task(policies, options)
    records = read_records(file)
    for name in options.audits:  # before hours of grading, not after
        refuse_unauditable(records, name, file)
    pairs = [task.pair(record) for record in records]
    _configure(options)
    progress = console_progress(sys.stderr)
    work = _PartialOutput(options.out, _fingerprint(file, task, options)) if options.out else None
    rewards = _grade(pairs, progress, work)
    rows = [_output_row(record, reward) for record, reward in zip(records, rewards, strict=True)]
    if options.out:
        write_text(options.out, "".join(f"{_line(row)}\n" for row in rows))
    summary = _summary(file, task, pairs, rewards)
    audited = [
        Audited(place=record.place, id=problem.id, gold=problem.answer, values=record.values, reward=reward)
        for record, (problem, _), reward in zip(records, pairs, rewards, strict=True)
    ]
    summary["audits"] = [audit(audited, name) for name in options.audits]
    if work:
        work.discard()
    if options.disagreements:
        found = [{"field": one["field"], **row} for one in summary["audits"] for row in one["disagreements"]]
        write_text(options.disagreements, "".join(f"{_line(row)}\n" for row in found))
    _show(summary, rows, options, as_json=as_json)


def _file_and_policies(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    files = [argument for argument in arguments if "=" not in argument or Path(argument).is_file()]
    if len(files) != 1:
        given = ", ".join(files) if files else "none"
        raise ConfigError(f"swerve grade takes one FILE, got {given}; policies have the form KEY=VALUE")
    return Path(files[0]), [argument for argument in arguments if argument != files[0]]


def _refuse_outputs(file: Path, options: GradeOptions) -> None:
    read = [file, options.problems]
    for name, path in (("--out", options.out), ("--disagreements", options.disagreements)):
        if path is not None:
            refuse_output(name, path, ending=".jsonl", read=read)
    if options.disagreements and not options.audits:
        raise ConfigError("--disagreements goes with --audit FIELD")
    if options.disagreements and options.out and options.disagreements.absolute() == options.out.absolute():
        raise ConfigError(f"--out and --disagreements are both {options.out}; give two names")


def _task(policies: Sequence[str], options: GradeOptions) -> GradingTask:
    known: dict[str, Problem] = {}
    if options.problems:
        from swerve.problems.problem_records import problem_from_record

        for record in read_records(options.problems):
            try:
                problem = problem_from_record(record.values)
            except ValueError as error:
                raise ArtifactError(f"{record.place}: {error}") from None
            known[problem.id] = problem
    if options.task is None:
        raise ConfigError("--task is missing: which grader? (math, gsm8k, k_and_k, ...; see: swerve data list)")
    return grading_task(options.task, policies, fields=parse_fields(options.fields, FIELDS), known=known)


def _configure(options: GradeOptions) -> None:
    from swerve.rewards.sandbox.pool import configure_pool

    for name, value in (
        ("--workers", options.workers),
        ("--cpu-seconds", options.cpu_seconds),
        ("--memory-mb", options.memory_mb),
    ):
        if value is not None and not 0 < value < math.inf:  # also NaN
            raise ConfigError(f"{name} must be a number above 0, got {value}")
    configure_pool(
        num_workers=options.workers,
        cpu_seconds=2.0 if options.cpu_seconds is None else options.cpu_seconds,
        memory_mb=1024 if options.memory_mb is None else options.memory_mb,
    )


def _fingerprint(file: Path, task: GradingTask, options: GradeOptions) -> str:
    """What the verdicts depend on."""
    parts = {
        "file": sha256_file(file),
        "problems": sha256_file(options.problems) if options.problems else None,
        "grader": task.grader,
        "policies": dict(task.policies),
        "names": {name: list(fields) for name, fields in task.names.items()},
        "limits": [options.cpu_seconds, options.memory_mb],
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class _PartialOutput:
    """Verdicts so far, beside the output: an interrupted command goes on where it stopped."""

    def __init__(self, out: Path, fingerprint: str) -> None:
        self._path = out.with_name(f"{out.name}.partial")
        self._fingerprint = fingerprint

    def read(self) -> list[Reward]:
        """Return the verdicts of an interrupted command on the same input, in order; none where there are none."""
        try:
            lines = self._path.read_text(encoding="utf-8").split("\n")[:-1]  # a line cut off by a kill is not one
        except (OSError, UnicodeDecodeError):
            return []
        if not lines or lines[0] != self._fingerprint:
            return []
        return [Reward(**json.loads(line)) for line in lines[1:]]

    def begin(self, known: Sequence[Reward]) -> None:
        write_text(self._path, "".join(f"{line}\n" for line in (self._fingerprint, *map(_reward_line, known))))

    def append(self, rewards: Sequence[Reward]) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{_reward_line(reward)}\n" for reward in rewards))

    def discard(self) -> None:
        remove(self._path)


def _reward_line(reward: Reward) -> str:
    return _line({name: getattr(reward, name) for name in _RESULT_NAMES})


def _line(row: Mapping[str, Any]) -> str:
    # Escaped: a text of a model may hold half of a surrogate pair, which UTF-8 cannot.
    return json.dumps(row, allow_nan=False, default=str)


def _grade(pairs: Sequence[tuple[Problem, str]], progress: Progress, work: _PartialOutput | None) -> list[Reward]:
    from swerve.rewards import grade_all

    rewards = work.read()[: len(pairs)] if work else []
    if work:
        work.begin(rewards)
    with progress.task("grade", len(pairs), done=len(rewards)) as task:
        for start in range(len(rewards), len(pairs), _ROWS_AT_A_TIME):
            graded = grade_all(pairs[start : start + _ROWS_AT_A_TIME])
            rewards += graded
            if work:
                work.append(graded)
            right = sum(reward.is_right for reward in rewards)
            failures = sum(reward.value is None for reward in rewards)
            task.advance(len(graded), right=right, failures=failures)
    return rewards


def _output_row(record: Record, reward: Reward) -> dict[str, Any]:
    """Return the record with the verdict; its own fields of the verdict's names are kept as `recorded_...`."""
    kept = {key: value for key, value in record.values.items() if key not in _RESULT_NAMES}
    for key in _RESULT_NAMES:
        if key in record.values:
            name = f"recorded_{key}"
            while name in record.values:  # verdicts that were graded before
                name = f"recorded_{name}"
            kept[name] = record.values[key]
    return {
        **kept,
        "value": reward.value,
        "status": reward.status,
        "extracted": reward.extracted,
        "parts": dict(reward.parts),
        "detail": reward.detail,
    }


def _summary(
    file: Path, task: GradingTask, pairs: Sequence[tuple[Problem, str]], rewards: Sequence[Reward]
) -> dict[str, Any]:
    graded = [reward.value for reward in rewards if reward.value is not None]
    right = sum(reward.is_right for reward in rewards)
    return {
        "file": str(file),
        "grader": task.grader,
        "policies": dict(task.policies),
        "graders": dict(Counter(problem.grader or problem.family for problem, _ in pairs)),
        "num_records": len(rewards),
        "num_right": right,
        "right": share(right, len(rewards)),
        "mean_value": sum(graded) / len(graded) if graded else None,
        "values": {f"{value:g}": count for value, count in sorted(Counter(graded).items())},
        "statuses": dict(sorted(Counter(reward.status for reward in rewards).items())),
        "failures": dict(Counter(reward.detail for reward in rewards if reward.detail).most_common(10)),
    }


def _show(
    summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], options: GradeOptions, *, as_json: bool
) -> None:
    if as_json:
        print_json(summary)
        return
    lines = [_one_line_kept(line) for line in _summary_lines(summary)]
    if options.out:
        print_text("\n".join([*lines, f"Verdicts: {options.out}"]))
        return
    for row in rows:
        print_text(_line(row))
    sys.stderr.write("\n".join(lines) + "\n")


def _one_line_kept(line: str) -> str:
    """Return a line with its indentation, control characters replaced."""
    indent = line[: len(line) - len(line.lstrip())]
    return indent + one_line(line)


def _summary_lines(summary: Mapping[str, Any]) -> list[str]:
    right = summary["right"]
    interval = "" if right is None else f" ({right['mean']:.1%} [{right['low']:.1%}, {right['high']:.1%}])"
    lines = [f"{summary['num_records']} records, {summary['num_right']} right{interval}"]
    if set(summary["graders"]) != {summary["grader"]}:
        counts = ", ".join(f"{name} {count}" for name, count in summary["graders"].items())
        lines.append(f"judged by the graders of their problems: {counts}")
    lines.append("statuses: " + ", ".join(f"{name} {count}" for name, count in summary["statuses"].items()))
    if len(summary["values"]) > 2:
        lines.append("values: " + ", ".join(f"{value}: {count}" for value, count in summary["values"].items()))
    lines += [f"  {count} x {detail}" for detail, count in summary["failures"].items()]
    for found in summary["audits"]:
        lines += audit_lines(found, limit=_NUM_SHOWN)
    return lines
