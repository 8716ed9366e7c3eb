"""`swerve data import`, `select` and `export`: rollouts of other programs, responses to learn from, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import check_output
from swerve.cli.options import Fields, Result, check_choice, given_settings, with_settings
from swerve.errors import ConfigError
from swerve.notebook import counted
from swerve.progress import one_line
from swerve.version import __version__

if TYPE_CHECKING:
    from swerve.artifacts.responses import Response
    from swerve.formats.imported_responses import JoinCounts

_SPECIALS_LEFT_OUT = ("verl", "trl")
"""Layouts whose prompts are decoded without special tokens, so that a chat template's marks are not in them."""


def export(
    source: Annotated[Path, typer.Argument(metavar="TABLE", help="A Parquet table of swerve.")],
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="File, or folder for hf.")],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="jsonl|csv|hf", help="hf: a Hugging Face data set folder.  [default: by PATH]"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> Result:
    """Export a table to JSONL, CSV or a Hugging Face data set.

    Examples:
      swerve data export runs/mine/probe/tokens.parquet --out tokens.csv
    """
    from swerve.formats.export import export_table, format_of

    chosen = format_of(out, file_format)
    summary = export_table(source, out, format=chosen, overwrite=overwrite)
    lines = [f"{counted(summary.num_rows, 'row')} of {counted(len(summary.columns), 'column')} as {chosen}: {out}"]
    if summary.num_defused:
        lines.append(
            f"cells that got an apostrophe, so that no spreadsheet runs them as formulas: {summary.num_defused}"
        )
    return Result({"out": str(out), **asdict(summary)}, "\n".join(lines))


def import_responses(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rollouts or responses of another program.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output table (.parquet).")],
    problems: Annotated[
        Path | None, typer.Option("--problems", metavar="FILE", help="Problems, to be joined by id or by question.")
    ] = None,
    dialect: Annotated[
        str, typer.Option("--format", metavar="NAME", help="auto, rl_probe, verl, trl, chat or plain.")
    ] = "auto",
    fields: Fields = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="MODEL", help="Model whose tokenizer makes the token ids; without it there are none."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="KIND", help="Task whose grader judges the responses, such as math.")
    ] = None,
) -> Result:
    """Import rollouts of other programs, each joined to its problem.

    It reads files of RL-Probe, verl and TRL, chat logs, and plain JSON, JSONL, CSV or Parquet.

    Examples:
      swerve data import rollouts.jsonl --problems problems.jsonl --out rollouts.parquet
    """
    from swerve.artifacts.responses import IMPORTED, RESPONSES_SCHEMA, write_responses
    from swerve.formats.imported_problems import read_problems
    from swerve.formats.imported_responses import check_prompts, join_problems, numbered, read_responses
    from swerve.formats.typed_fields import parse_fields
    from swerve.rewards import known_graders

    check_output("--out", out, ending=".parquet", read=(file, problems))
    check_choice("--task", task, known_graders())
    # Responses with what is known of their problems.
    named = parse_fields(fields or ())
    responses = read_responses(file, fields=named, dialect=dialect)
    known = read_problems(problems, fields=named) if problems is not None else {}
    joined, counts = join_problems(responses, known)
    check_prompts(file, joined)
    responses = [
        replace(one, problem=replace(one.problem, family=task)) if task and one.problem.family == IMPORTED else one
        for one in joined
    ]

    # Where they are from is part of the table; tokens only where a tokenizer is named.
    provenance: dict[str, Any] = {
        "source": _source(file),
        "problems": None if problems is None else _source(problems),
        "format": responses[0].dialect,
        "fields": named,
        "task": task,
        "swerve_version": __version__,
    }
    if tokenizer is not None:
        responses, provenance["tokenizer"], provenance["num_cut"] = _tokenised(responses, tokenizer)
    write_responses(out, numbered(responses), RESPONSES_SCHEMA, table="responses", provenance=provenance)
    summary = _summary(responses, counts, provenance)
    return Result({"out": str(out), **summary}, "\n".join(_lines(out, summary)))


@with_settings(
    "swerve.formats.rejection:Rejection",
    {
        "only_right": "--correct",
        "per_problem": "--per-problem N",
        "seed": "--seed N",
        "min_length": "--min-length TOKENS",
        "max_length": "--max-length TOKENS",
        "where": "--where CONDITION",
    },
)
def select(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Files of samples or responses, or runs, for their rollouts."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output table (.parquet).")],
    fields: Fields = None,
) -> Result:
    """Select responses to learn from.

    Each text is kept once; the table says what was left out and why.

    Examples:
      swerve data select samples.parquet --correct --per-problem 4 --out sft.parquet
    """
    from swerve.artifacts.responses import RESPONSES_SCHEMA, write_responses
    from swerve.formats.imported_responses import numbered
    from swerve.formats.rejection import Rejection, keep_right
    from swerve.formats.typed_fields import parse_fields
    from swerve.recipes.loader import load_settings

    # What is kept of all responses, and why the others are not.
    check_output("--out", out, ending=".parquet", read=map(Path, sources))
    rejection = load_settings(Rejection, list(given_settings(context).values()))
    files, responses = _responses(sources, parse_fields(fields or ()))
    kept, tallied = keep_right(responses, rejection)
    counts = asdict(tallied)
    lines = _rejected(counts)
    if not kept:
        raise ConfigError(f"none of {len(responses)} responses is kept: {'; '.join(lines)}")

    # The table says how it was selected, and whose ids it holds.
    summary = {"counts": counts, "selection": rejection.model_dump(mode="json")}
    provenance = {
        **summary,
        "sources": [_source(path) for path in files],
        "tokenizer": _common_tokenizer(files),
        "swerve_version": __version__,
    }
    write_responses(out, numbered(kept), RESPONSES_SCHEMA, table="responses", provenance=provenance)
    return Result({"out": str(out), **summary}, "\n".join([*lines, f"table: {out}"]))


def _responses(sources: Sequence[str], fields: Mapping[str, str]) -> tuple[list[Path], list[Response]]:
    """Return the files of some sources and their responses; those of a run are joined to its problems."""
    from swerve.artifacts.run import find_run
    from swerve.eval.response_behaviours import run_responses
    from swerve.formats.imported_responses import read_responses
    from swerve.recipes.loader import load_run_config

    files: list[Path] = []
    responses: list[Response] = []
    for source in sources:
        if Path(source).is_file() or Path(source).suffix:
            files.append(Path(source))
            responses += read_responses(files[-1], fields=fields)
            continue

        # A run has the problems of its rollouts in its configuration.
        run = find_run(source)
        responses += run_responses(run, load_run_config(run, ()))
        files += sorted((run.path / "rollouts").glob("step_*.parquet"))
    return files, responses


def _common_tokenizer(files: Sequence[Path]) -> dict[str, Any] | None:
    """Return the tokenizer whose ids the files hold, as they record it; None where one does not.

    Raises:
        ConfigError: they hold ids of two tokenizers.
    """
    from swerve.artifacts.responses import read_provenance

    recorded = [read_provenance(path).get("tokenizer") for path in files]
    known = {one["sha256"]: path for one, path in zip(recorded, files, strict=True) if one}
    if len(known) > 1:
        first, second, *_ = known.values()
        raise ConfigError(f"{first} and {second} hold token ids of two tokenizers; select from each on its own")
    return recorded[0] if all(recorded) else None


def _rejected(counts: Mapping[str, Any]) -> list[str]:
    """Return in words how many responses there were of what."""
    mean = "" if counts["mean_length"] is None else f", {counts['mean_length']:.1f} tokens on average"

    def shown(responses: str, problems: str) -> str:
        return f"{counted(counts[responses], 'response')} to {counted(counts[problems], 'problem')}"

    others = ("num_other", "num_length", "num_duplicates", "num_surplus")
    lines = {
        "num_responses": shown("num_responses", "num_problems"),
        "num_other": f"left out by --where: {counts['num_other']}",
        "num_right": f"chosen from: {shown('num_right', 'num_problems_right')}",
        "num_length": f"too short or too long: {counts['num_length']}",
        "num_duplicates": f"with the text of an earlier one: {counts['num_duplicates']}",
        "num_surplus": f"beyond --per-problem: {counts['num_surplus']}",
        "num_kept": f"kept: {shown('num_kept', 'num_problems_kept')}{mean}",
    }
    return [line for name, line in lines.items() if counts[name] or name not in others]


def _source(path: Path) -> dict[str, str]:
    from swerve.artifacts.files import sha256_file

    return {"name": path.name, "sha256": sha256_file(path)}


def _tokenised(responses: Sequence[Response], name: str) -> tuple[list[Response], dict[str, str], int]:
    """Return the responses with their token ids, the tokenizer, and how many were cut: see `cut_at_padding`.

    Those that came as ids keep them, empty ones get none.
    """
    from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint
    from swerve.probe.rollouts.imported import ResponseEncoder, cut_at_padding

    tokenizer = load_tokenizer(name)
    kept, num_cut = cut_at_padding(responses, tokenizer)
    written = [response for response in kept if not _is_empty(response)]
    encoded = iter(ResponseEncoder(tokenizer).encode_all(written))
    tokenised = [response if _is_empty(response) else next(encoded).put_into(response) for response in kept]
    label = Path(name).name if Path(name).exists() else name
    return tokenised, {"name": label, "sha256": tokenizer_fingerprint(tokenizer)}, num_cut


def _is_empty(response: Response) -> bool:
    return not response.text and not response.completion_ids


def _summary(responses: Sequence[Response], counts: JoinCounts, provenance: Mapping[str, Any]) -> dict[str, Any]:
    verdicts = Counter(response.correct for response in responses)
    written = [response for response in responses if not _is_empty(response)]
    boundaries = Counter(response.boundary or "none" for response in written)
    return {
        "format": provenance["format"],
        "num_responses": len(responses),
        "num_problems": len({response.problem.id for response in responses}),
        "num_empty": len(responses) - len(written),
        "num_without_gold": sum(not response.problem.answer for response in responses),
        "recorded_correct": {"true": verdicts[True], "false": verdicts[False], "null": verdicts[None]},
        "num_with_reward": sum(response.reward is not None for response in responses),
        "labels": _counts(response.label for response in responses),
        "steps": _counts(response.step for response in responses),
        "join": asdict(counts),
        "boundaries": dict(sorted(boundaries.items())) if "tokenizer" in provenance else None,
        "prompts_without_special_tokens": provenance["format"] in _SPECIALS_LEFT_OUT
        and any(response.prompt is not None for response in responses),
        "provenance": dict(provenance),
    }


def _counts(values: Any) -> dict[str, int]:
    counted = Counter(value for value in values if value is not None)
    return {str(value): counted[value] for value in sorted(counted)}


def _lines(out: Path, summary: Mapping[str, Any]) -> list[str]:
    # What was read, and how responses met their problems.
    join, recorded = summary["join"], summary["recorded_correct"]
    lines = [
        f"{counted(summary['num_responses'], 'response')} to {counted(summary['num_problems'], 'problem')}, read as "
        f"{summary['format']}",
        f"recorded: {recorded['true']} right, {recorded['false']} wrong, {recorded['null']} unknown; "
        f"{summary['num_with_reward']} with a reward",
    ]
    if summary["provenance"]["problems"]:
        lines.append(
            f"joined: {join['by_id']} by id, {join['by_question']} by their question; gold answers replaced: "
            f"{join['gold_replaced']}"
        )
    # What is said only where there is some.
    counts = (
        ("gold answers that were cut off and not used", join["gold_damaged"]),
        ("without a gold answer", summary["num_without_gold"]),
        ("empty", summary["num_empty"]),
        ("labels", _listed(summary["labels"])),
        ("steps", _listed(summary["steps"])),
        ("cut before an id that the tokenizer has no token for", summary["provenance"].get("num_cut")),
        ("boundaries between prompt and response", _listed(summary["boundaries"] or {})),
    )
    lines += [f"{what}: {count}" for what, count in counts if count]
    if summary["prompts_without_special_tokens"]:
        lines.append(
            f"note: {summary['format']} writes prompts without special tokens, so they are not exactly what the "
            "model was given"
        )
    return [*map(one_line, lines), f"table: {out}"]


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:12]]
    return ", ".join(shown if len(counts) <= 12 else [*shown, f"and {len(counts) - 12} more"])
