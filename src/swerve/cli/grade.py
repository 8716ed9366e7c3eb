"""`swerve grade`: grade the answers of a file and compare the verdicts with recorded ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import check_output
from swerve.cli.options import Fields, Result, given_settings, with_settings
from swerve.cli.text import interval, safe
from swerve.errors import ConfigError
from swerve.progress import console_progress

if TYPE_CHECKING:
    from swerve.eval.answer_files import GradingTask

_NUM_SHOWN = 20

Answers = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE [KEY=VALUE]...",
        help="Answers: JSON, JSONL or CSV (also .gz), Parquet, samples. Policies of the grader: extraction=hash.",
    ),
]


@with_settings(
    "swerve.config:RuntimeConfig",
    {
        "grader_workers": "--workers N",
        "grader_cpu_seconds": "--cpu-seconds S",
        "grader_memory_mb": "--memory-mb N",
    },
)
def grade(
    context: typer.Context,
    arguments: Answers,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="KIND", help="The grader: math, gsm8k, k_and_k, ...; samples have their own."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the verdicts go, as JSONL.  [default: stdout]")
    ] = None,
    audits: Annotated[
        list[str] | None,
        typer.Option("--audit", metavar="FIELD", help="Compare with the verdicts recorded in a field; repeatable."),
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="FILE", help="Problems by id, for records without a gold answer."),
    ] = None,
    fields: Fields = None,
) -> Result:
    """Grade the answers of a file; compare with recorded verdicts.

    After an interruption the same command continues, if it has --out.

    Examples:
      swerve grade answers.jsonl --task math --out verdicts.jsonl
      swerve grade answers.jsonl --problems problems.jsonl --audit correct
    """
    from swerve.artifacts.files import write_text
    from swerve.artifacts.samples import is_samples_file, read_samples
    from swerve.config import RuntimeConfig
    from swerve.eval import answer_files as answers
    from swerve.eval.recorded_verdicts import GradedRecord, check_recorded, compare_verdicts
    from swerve.formats.records import read_records
    from swerve.models.runtime import apply_runtime
    from swerve.recipes.loader import load_settings

    # Everything that can be wrong is checked before the first answer is graded.
    files = [argument for argument in arguments if "=" not in argument or Path(argument).is_file()]
    if len(files) != 1:
        raise ConfigError(
            f"swerve grade takes one FILE, got {', '.join(files) or 'none'}; policies have the form KEY=VALUE"
        )
    file, policies = Path(files[0]), [argument for argument in arguments if argument != files[0]]
    if out:
        check_output("--out", out, ending=".jsonl", read=[file, problems])
    samples = read_samples(file) if is_samples_file(file) else None
    grading = (
        _grading(policies, task, problems, fields or ())
        if samples is None
        else answers.samples_task(samples, task, policies)
    )
    records = read_records(file)
    for field in audits or ():  # before hours of grading, not after
        check_recorded(records, field, file)
    if samples is None:
        records, pairs, left_out = answers.answered_pairs(records, grading, file)
    else:
        pairs, left_out = answers.sample_pairs(samples, grading, is_named=task is not None), None
    runtime = load_settings(RuntimeConfig, list(given_settings(context).values()))
    limits = [runtime.grader_cpu_seconds, runtime.grader_memory_mb]
    apply_runtime(runtime)

    # An interrupted command continues from the verdicts beside its output.
    kept = answers.kept_verdicts(out, file, problems, grading, limits) if out else None
    rewards = answers.grade_pairs(pairs, console_progress(sys.stderr), kept)
    rows = [answers.graded_row(record, reward) for record, reward in zip(records, rewards, strict=True)]
    if out:
        write_text(out, _json_lines(rows))

    # Compare with the verdicts that the file records.
    summary = answers.grading_summary(file, grading, pairs, rewards)
    summary["left_out"] = left_out
    graded = list(map(GradedRecord, records, [problem for problem, _ in pairs], rewards))
    summary["audits"] = [compare_verdicts(graded, field) for field in audits or ()]
    if kept:
        kept.finish()
    lines = "\n".join(map(safe, _summary_lines(summary)))

    def text() -> str:
        if out:
            return f"{lines}\nVerdicts: {out}"
        sys.stderr.write(f"{lines}\n")
        return _json_lines(rows)

    return Result(summary, text)


def _grading(policies: Sequence[str], task: str | None, problems: Path | None, fields: Sequence[str]) -> GradingTask:
    from swerve.eval.answer_files import FIELDS, chosen_grader, grading_task, read_known_problems
    from swerve.formats.typed_fields import parse_fields

    known = read_known_problems(problems) if problems else {}
    grader = chosen_grader(task, policies, known.values())
    return grading_task(grader, policies, fields=parse_fields(fields, FIELDS), known=known)


def _json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    from swerve.eval.answer_files import json_line

    return "".join(f"{json_line(row)}\n" for row in rows)


def _summary_lines(summary: Mapping[str, Any]) -> list[str]:
    right = summary["right"]
    share = "" if right is None else f" ({interval(right)})"
    lines = [f"{summary['num_records']} records, {summary['num_right']} right{share}"]
    if set(summary["graders"]) != {summary["grader"]}:
        counts = ", ".join(f"{name} {count}" for name, count in summary["graders"].items())
        lines.append(f"graded by the graders of their problems: {counts}")
    if summary["left_out"]:
        lines.append(summary["left_out"])
    if summary["num_unanswered"]:
        lines.append(f"no answer: {summary['num_unanswered']} of {summary['num_records']}")
    lines.append("statuses: " + ", ".join(f"{name} {count}" for name, count in summary["statuses"].items()))
    if len(summary["values"]) > 2:
        lines.append("values: " + ", ".join(f"{value}: {count}" for value, count in summary["values"].items()))
    lines += [f"  {count} x {detail}" for detail, count in summary["failures"].items()]
    lines += [hint for hint in [summary["extraction_hint"]] if hint]
    for audit in summary["audits"]:
        lines += audit_lines(audit, limit=_NUM_SHOWN)
    return lines


def audit_lines(audit: Mapping[str, Any], *, limit: int) -> list[str]:
    """Return an audit as lines for people: counts, then at most `limit` disagreements."""
    agreement = audit["agreement"]
    if agreement is None:
        return [f"Against '{audit['field']}': no record has a verdict in it."]
    lines = [f"Against '{audit['field']}' ({audit['num_compared']} records): agreement {interval(agreement)}"]
    if audit["compared"] == "verdicts":
        lines.append(
            f"  recorded right {audit['recorded_right']}, graded right {audit['graded_right']}: "
            f"both {audit['both_right']}, only recorded {audit['only_recorded_right']}, "
            f"only graded {audit['only_graded_right']}, neither {audit['both_wrong']}"
        )
    if audit["num_without_record"]:
        lines.append(f"  {audit['num_without_record']} records have no verdict in it")
    disagreements = audit["disagreements"]
    lines += [_line(row) for row in disagreements[:limit]]
    if len(disagreements) > limit:
        lines.append(f"  and {len(disagreements) - limit} more; --json has all")
    return lines


def _line(row: Mapping[str, Any]) -> str:
    verdict = row["status"] if row["value"] is None else f"{row['value']:g}"
    detail = f" ({row['detail']})" if row["detail"] else ""
    return (
        f"  {row['id']}: recorded {row['recorded']}, graded {verdict}{detail}; "
        f"gold {_short(row['gold'])}, read {_short(row['extracted'])}"
    )


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 70 else f"{text[:67]}..."
