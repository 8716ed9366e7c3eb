"""`swerve grade`: grade the answers of a file and compare the verdicts with recorded ones."""

from __future__ import annotations

import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import check_not_read, main_progress, print_message
from swerve.cli.options import (
    ROW_ENDINGS,
    Fields,
    PartsFrom,
    Result,
    ShardOption,
    given_settings,
    given_shard,
    out_option,
    wants_json,
    with_settings,
)
from swerve.cli.text import safe
from swerve.errors import ConfigError, InterruptedRunError
from swerve.text import percent_interval

if TYPE_CHECKING:
    from swerve.artifacts.parts import Parts
    from swerve.artifacts.shards import Shard

_NUM_SHOWN = 20

Answers = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE [KEY=VALUE]...",
        help="Answers: a file that swerve data import reads, or samples. Policies of the grader: extraction=hash.",
    ),
]


@with_settings(
    "swerve.config.runtime:RuntimeConfig",
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
        Path | None, out_option("Where the verdicts go (.jsonl or .parquet).  [default: stdout]", *ROW_ENDINGS)
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
    share: ShardOption = None,
    parts_from: PartsFrom = None,
) -> Result:
    """Grade the answers of a file; compare with recorded verdicts.

    After an interruption the same command continues, if it has --out.

    Examples:
      swerve grade answers.jsonl --task math --out verdicts.jsonl
      swerve grade answers.jsonl --problems problems.jsonl --audit correct
    """
    from swerve.config.runtime import RuntimeConfig
    from swerve.eval.answer_files import FIELDS, answer_file
    from swerve.eval.grading import (
        MOST_KEPT,
        GradingSummary,
        check_answers,
        grade_answers,
        graded_row,
        kept_verdicts,
    )
    from swerve.eval.recorded_verdicts import VerdictComparison
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.runtime import apply_runtime
    from swerve.recipes.loader import load_settings

    # Everything that can be wrong is checked before the first answer is graded.
    shard = given_shard(context, share, parts_from)
    if shard.is_divided and not out:
        raise ConfigError("--shard and --parts-from need --out FILE: verdicts are kept beside it until all are there")
    file, policies = _file_and_policies(arguments)
    if out:
        check_not_read(out, [file, problems])
    answers = answer_file(file, policies, task, problems, parse_fields(fields or (), FIELDS))
    runtime = load_settings(RuntimeConfig, list(given_settings(context).values()))
    comparisons = [VerdictComparison(field, most=MOST_KEPT) for field in dict.fromkeys(audits or ())]
    num, left_out = check_answers(answers, comparisons)
    apply_runtime(runtime)

    # An interrupted command continues from the verdicts beside its output.
    limits = [runtime.grader_cpu_seconds, runtime.grader_memory_mb]
    kept = kept_verdicts(out, answers, problems, limits, shard.copied) if out else None
    progress = main_progress()
    graded = grade_answers(answers, num, progress, kept, shard)
    if kept and out and shard.is_share:
        if out.exists() and kept.begun() is None:
            progress.note(f"{out} is there already: nothing to do; delete it to grade in shards anew")
        else:
            with shard.at_work(kept):
                deque(graded, maxlen=0)
        return Result(None, "")
    _begin(kept, shard)

    # Verdicts are written as they come, and counted.
    counts = GradingSummary(answers, left_out, comparisons)

    def rows() -> Iterator[dict[str, Any]]:
        for answer, reward in graded:
            counts.add(answer, reward)
            yield graded_row(answer.record, reward)

    _write(out, rows(), is_shown=not wants_json(context))
    summary = counts.summary()
    if kept:
        kept.finish()

    # What is said goes where no verdict does.
    lines = "\n".join(map(safe, _summary_lines(summary)))
    if out:
        return Result(summary, f"{lines}\nVerdicts: {out}")
    if not wants_json(context):
        print_message(lines)
    return Result(summary, "")


def _begin(kept: Parts | None, shard: Shard) -> None:
    """Begin the whole work beside its output, if there is one, unless what was begun there is other work."""
    if kept is not None:
        kept.check_same()
        shard.copied.check_fit(kept)
        kept.begin()


def _file_and_policies(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    files = [argument for argument in arguments if "=" not in argument or Path(argument).is_file()]
    if len(files) != 1:
        raise ConfigError(
            f"swerve grade takes one FILE, got {', '.join(files) or 'none'}; policies have the form KEY=VALUE"
        )
    return Path(files[0]), [argument for argument in arguments if argument != files[0]]


def _write(out: Path | None, rows: Iterable[Mapping[str, Any]], *, is_shown: bool) -> None:
    """Write rows as they come: to the output file, else to stdout where they are shown, from the first process.

    Raises:
        InterruptedRunError: a signal ended it; the verdicts are not kept.
    """
    from swerve.artifacts.torchrun import is_main_process
    from swerve.formats.row_files import row_line, write_rows

    if out is not None:
        write_rows(out, rows)
        return
    write: Callable[[str], Any] = sys.stdout.write if is_shown and is_main_process() else len
    try:
        for row in rows:
            write(row_line(row))
    except KeyboardInterrupt:
        said = "interrupted; verdicts are kept with --out FILE alone, so it begins anew"
        raise InterruptedRunError(said, signal_number=signal.SIGINT) from None
    sys.stdout.flush()


def _summary_lines(summary: Mapping[str, Any]) -> list[str]:
    from swerve.artifacts.messages import calls_said

    right = summary["right"]
    share = "" if right is None else f" ({percent_interval(right)})"
    lines = [f"{summary['num_records']} records, {summary['num_right']} right{share}"]
    if failed := summary["num_not_graded"]:
        lines.append(f"neither right nor wrong: {failed} of {summary['num_records']}, which could not be graded")
    if failed == summary["num_records"]:
        lines[0] = f"Not determined, because none of {failed} records could be graded: how many are right"
    if set(summary["graders"]) != {summary["grader"]}:
        counts = ", ".join(f"{name} {count}" for name, count in summary["graders"].items())
        lines.append(f"graded by the graders of their problems: {counts}")
    if summary["left_out"]:
        lines.append(summary["left_out"])
    if summary["num_unanswered"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in summary["unanswered"].items())
        lines.append(
            f"no answer: {summary['num_unanswered']} of {summary['num_records']}{f' ({reasons})' if reasons else ''}"
        )
    if summary["num_calls"]:
        lines.append(calls_said(summary["num_calls"], summary["num_records"]))
    lines.append("statuses: " + ", ".join(f"{name} {count}" for name, count in summary["statuses"].items()))
    if len(summary["values"]) > 2:
        shown = [f"{value}: {count}" for value, count in list(summary["values"].items())[:_NUM_SHOWN]]
        more = len(summary["values"]) - len(shown)
        lines.append(f"values: {', '.join(shown)}{f' and {more} more' if more else ''}")
    lines += [f"  {count} x {detail}" for detail, count in summary["failures"].items()]
    lines += [hint for hint in (summary["extraction_hint"], summary["misread"]) if hint]
    for audit in summary["audits"]:
        lines += audit_lines(audit, limit=_NUM_SHOWN)
    return lines


def audit_lines(audit: Mapping[str, Any], *, limit: int) -> list[str]:
    """Return an audit as lines for people: counts, then at most `limit` disagreements."""
    agreement = audit["agreement"]
    failed = [f"  {audit['num_not_graded']} records could not be graded"] if audit["num_not_graded"] else []
    if agreement is None:
        why = "no record that was graded has a verdict in it" if failed else "no record has a verdict in it"
        return [f"Against '{audit['field']}': not determined, because {why}.", *failed]
    lines = [f"Against '{audit['field']}' ({audit['num_compared']} records): agreement {percent_interval(agreement)}"]
    if audit["compared"] == "verdicts":
        lines.append(
            f"  recorded right {audit['recorded_right']}, graded right {audit['graded_right']}: "
            f"both {audit['both_right']}, only recorded {audit['only_recorded_right']}, "
            f"only graded {audit['only_graded_right']}, neither {audit['both_wrong']}"
        )
    if audit["num_without_record"]:
        lines.append(f"  {audit['num_without_record']} records have no verdict in it")
    lines += failed
    disagreements = audit["disagreements"]
    lines += [_line(row) for row in disagreements[:limit]]
    if (more := audit["num_disagreements"] - limit) > 0:
        has = "all" if len(disagreements) == audit["num_disagreements"] else f"the first {len(disagreements):,}"
        lines.append(f"  and {more} more; --json has {has}")
    return lines


def _line(row: Mapping[str, Any]) -> str:
    verdict = row["status"] if row["value"] is None else f"{row['value']:g}"
    detail = f" ({row['detail']})" if row["detail"] else ""
    return (
        f"  {row['id'] or row['place']}: recorded {row['recorded']}, graded {verdict}{detail}; "
        f"gold {_short(row['gold'])}, read {_short(row['extracted'])}"
    )


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 70 else f"{text[:67]}..."
