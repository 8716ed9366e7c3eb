"""`swerve data select`: responses to learn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import check_not_read
from swerve.cli.options import Fields, Result, given_settings, out_option, with_settings
from swerve.errors import ConfigError
from swerve.text import counted
from swerve.version import __version__

if TYPE_CHECKING:
    from swerve.artifacts.responses import Response
    from swerve.formats.imported_responses import LeftOut


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
    out: Annotated[Path, out_option("Output table (.parquet).", ".parquet")],
    fields: Fields = None,
) -> Result:
    """Select responses to learn from.

    Each text is kept once; the table says what was left out and why.

    Examples:
      swerve data select samples.parquet --correct --per-problem 4 --out sft.parquet
    """
    from swerve.artifacts.messages import message_notes
    from swerve.artifacts.response_columns import RESPONSES_SCHEMA
    from swerve.artifacts.responses import write_responses
    from swerve.formats.imported_responses import LeftOut
    from swerve.formats.problem_joins import numbered
    from swerve.formats.rejection import Rejection, keep_right
    from swerve.formats.table_files import named_digest
    from swerve.formats.typed_fields import parse_fields
    from swerve.recipes.loader import load_settings

    # What is kept of all responses, and why the others are not.
    check_not_read(out, map(Path, sources))
    rejection = load_settings(Rejection, list(given_settings(context).values()))
    files: list[Path] = []
    left_out = LeftOut()
    kept, tallied = keep_right(_responses(sources, parse_fields(fields or ()), files, left_out), rejection)
    counts = asdict(tallied)
    lines = [*filter(None, [left_out.note]), *_rejected(counts)]
    lines += message_notes((each.turns, each.no_answer) for each in kept)
    if not kept:
        raise ConfigError(f"none of {tallied.num_responses} responses is kept: {'; '.join(lines)}")

    # The table says how it was selected, and whose ids it holds.
    summary = {
        "counts": counts,
        "num_without_response": left_out.num_failed,
        "selection": rejection.model_dump(mode="json"),
    }
    provenance = {
        **summary,
        "sources": [named_digest(path) for path in files],
        "tokenizer": _common_tokenizer(files),
        "swerve_version": __version__,
    }
    write_responses(out, numbered(kept), RESPONSES_SCHEMA, table="responses", provenance=provenance)
    return Result({"out": str(out), **summary}, "\n".join([*lines, f"table: {out}"]))


def _responses(
    sources: Sequence[str], fields: Mapping[str, str], files: list[Path], left_out: LeftOut
) -> Iterator[Response]:
    """Yield the responses of some sources, those of a run joined to its problems, and add their files to `files`."""
    from swerve.artifacts.run import find_run
    from swerve.eval.response_behaviours import run_responses
    from swerve.formats.imported_responses import iter_responses
    from swerve.formats.table_files import is_table
    from swerve.recipes.loader import load_run_config

    for source in sources:
        if is_table(Path(source)) or Path(source).is_file() or Path(source).suffix:
            files.append(Path(source))
            yield from iter_responses(files[-1], left_out=left_out, fields=fields)
            continue

        # A run has the problems of its rollouts in its configuration.
        run = find_run(source)
        yield from run_responses(run, load_run_config(run, ()))
        files += sorted((run.path / "rollouts").glob("step_*.parquet"))


def _common_tokenizer(files: Sequence[Path]) -> dict[str, Any] | None:
    """Return the tokenizer whose ids the files hold, as they record it; None where one does not.

    Raises:
        ConfigError: they hold ids of two tokenizers.
    """
    from swerve.artifacts.responses import read_provenance
    from swerve.formats.table_files import files_of

    files = [one for path in files for one in files_of(path)]
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
