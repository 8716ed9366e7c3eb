"""Body of `swerve data import`: responses of another program, each joined to its problem, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from swerve.artifacts.files import sha256_file
from swerve.cli.console import one_line
from swerve.cli.output import print_json, print_text, refuse_output
from swerve.errors import ConfigError, nearest
from swerve.formats.fields import parse_fields
from swerve.formats.problems import IMPORTED, JoinCounts, join_problems, read_problems, refuse_without_prompt
from swerve.formats.response_table import write_responses
from swerve.formats.responses import ResponseRecord, read_responses
from swerve.version import __version__

__all__ = ["run_import"]

_SPECIALS_LEFT_OUT = ("verl", "trl")
"""Layouts whose prompts are decoded without special tokens, so that a chat template's marks are not in them."""


def run_import(
    file: Path,
    *,
    out: Path,
    problems: Path | None,
    dialect: str,
    fields: Sequence[str],
    tokenizer: str | None,
    task: str | None,
    as_json: bool,
) -> None:
    """Read a file of responses, join each to its problem and write them as a table; say on stdout what was found.

    Args:
        file: what another program wrote.
        out: the table, a Parquet file; an existing one is replaced.
        problems: a file of problems, joined by id or by the text of the question.
        dialect: layout of `file`, or auto.
        fields: `NAME=FIELD` for each name that the file calls otherwise.
        tokenizer: folder or hub name of a model; the responses are tokenised once, as the probe does.
        task: family of the problems that do not say theirs.
        as_json: whether the figures are printed as JSON.

    Raises:
        ConfigError: an option is wrong.
        ArtifactError: a file cannot be read, or responses have no prompt.
    """
    refuse_output("--out", out, ending=".parquet", read=(file, problems))
    _refuse_unknown_task(task)
    named = parse_fields(fields)
    responses = read_responses(file, fields=named, dialect=dialect)
    known = read_problems(problems, fields=named) if problems is not None else {}
    records, counts = join_problems(responses, known)
    refuse_without_prompt(file, records)
    records = [_with_family(one, task) for one in records]
    provenance: dict[str, Any] = {
        "source": _source(file),
        "problems": None if problems is None else _source(problems),
        "format": records[0].dialect,
        "fields": named,
        "task": task,
        "swerve_version": __version__,
    }
    if tokenizer is not None:
        records, provenance["tokenizer"] = _tokenised(records, tokenizer)
    write_responses(out, records, provenance)
    summary = _summary(records, counts, provenance)
    if as_json:
        print_json({"out": str(out), **summary})
    else:
        print_text("\n".join(_lines(out, summary)))


def _source(path: Path) -> dict[str, str]:
    return {"name": path.name, "sha256": sha256_file(path)}


def _refuse_unknown_task(task: str | None) -> None:
    from swerve.rewards import known_graders

    known = known_graders()
    if task is not None and task not in known:
        raise ConfigError(f"--task '{task}' has no grader{nearest(task, known)}; use one of {', '.join(known)}")


def _with_family(record: ResponseRecord, task: str | None) -> ResponseRecord:
    family = record.problem.family
    if task is None or family not in (None, IMPORTED):
        return record
    return replace(record, problem=replace(record.problem, family=task))


def _tokenised(records: Sequence[ResponseRecord], name: str) -> tuple[list[ResponseRecord], dict[str, str]]:
    """Return the responses with their token ids; those that came as ids keep them, empty ones get none."""
    from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint
    from swerve.probe.rollouts.imported import ImportSettings, ResponseEncoder

    folder, _, revision = (name, "", "") if Path(name).exists() else name.partition("#")
    tokenizer = load_tokenizer(folder, **({"revision": revision} if revision else {}))
    encoder = ResponseEncoder(tokenizer, ImportSettings())
    found = []
    for record in records:
        if record.completion_ids is None and not record.response:
            found.append(record)
            continue
        encoded = encoder.encode(record)
        found.append(
            replace(
                record,
                problem=replace(record.problem, prompt_ids=encoded.prompt_ids),
                response=encoded.text,
                completion_ids=encoded.completion_ids,
                spans=encoded.spans,
                boundary=encoded.boundary,
            )
        )
    label = Path(folder).name if Path(folder).exists() else name
    return found, {"name": label, "sha256": tokenizer_fingerprint(tokenizer)}


def _summary(records: Sequence[ResponseRecord], counts: JoinCounts, provenance: Mapping[str, Any]) -> dict[str, Any]:
    verdicts = Counter(record.correct for record in records)
    boundaries = Counter(record.boundary or "none" for record in records if record.response or record.completion_ids)
    return {
        "format": provenance["format"],
        "num_responses": len(records),
        "num_problems": len({record.problem.id for record in records}),
        "num_empty": sum(not record.response and not record.completion_ids for record in records),
        "num_without_gold": sum(record.problem.gold is None for record in records),
        "recorded_correct": {"true": verdicts[True], "false": verdicts[False], "null": verdicts[None]},
        "num_with_reward": sum(record.reward is not None for record in records),
        "labels": _counts(record.label for record in records),
        "steps": _counts(record.step for record in records),
        "join": asdict(counts),
        "boundaries": dict(sorted(boundaries.items())) if "tokenizer" in provenance else None,
        "prompts_without_special_tokens": provenance["format"] in _SPECIALS_LEFT_OUT
        and any(record.problem.prompt is not None for record in records),
        "provenance": dict(provenance),
    }


def _counts(values: Any) -> dict[str, int]:
    counted = Counter(value for value in values if value is not None)
    return {str(value): counted[value] for value in sorted(counted)}


def _lines(out: Path, summary: Mapping[str, Any]) -> list[str]:
    join, recorded = summary["join"], summary["recorded_correct"]
    lines = [
        f"{summary['num_responses']} responses to {summary['num_problems']} problems, read as {summary['format']}",
        f"recorded: {recorded['true']} right, {recorded['false']} wrong, {recorded['null']} not said; "
        f"{summary['num_with_reward']} with a reward",
    ]
    if summary["provenance"]["problems"]:
        lines.append(
            f"joined: {join['by_id']} by id, {join['by_question']} by their question; gold answers replaced: "
            f"{join['gold_replaced']}"
        )
    if join["gold_damaged"]:
        lines.append(f"gold answers that were cut off and not taken: {join['gold_damaged']}")
    for what, name in (("without a gold answer", "num_without_gold"), ("empty", "num_empty")):
        if summary[name]:
            lines.append(f"{what}: {summary[name]}")
    for name in ("labels", "steps"):
        if summary[name]:
            lines.append(f"{name}: {_listed(summary[name])}")
    if summary["boundaries"]:
        lines.append(f"boundaries between prompt and response: {_listed(summary['boundaries'])}")
    if summary["prompts_without_special_tokens"]:
        lines.append(
            f"note: {summary['format']} writes prompts without special tokens, so they are not exactly what the model "
            "read"
        )
    return [*map(one_line, lines), f"table: {out}"]


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:12]]
    return ", ".join([*shown, *([f"and {len(counts) - 12} more"] if len(counts) > 12 else [])])
