"""`swerve data export`: tables in the forms of other programs."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from swerve.cli.options import Result, out_option
from swerve.text import counted


def export(
    source: Annotated[Path, typer.Argument(metavar="TABLE", help="A Parquet table of swerve, or responses.")],
    out: Annotated[
        Path, out_option("File, or folder for hf and verifiers.", ".jsonl", ".csv", ".json", ".parquet", folder=True)
    ],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="jsonl, csv, hf (a Hugging Face data set folder); of responses also verifiers (a folder), inspect "
            "(.json), messages or verl (.parquet).  [default: by --out]",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> Result:
    """Export a table to JSONL, CSV or a Hugging Face data set, or responses to files that other programs read.

    Examples:
      swerve data export runs/mine/probe/tokens.parquet --out tokens.csv
      swerve data export rollouts.parquet --format inspect --out logs/2026-11-26T12-00-00_rollouts.json
    """
    from swerve.formats.export import OF_RESPONSES, export_table, format_of
    from swerve.formats.export_responses import export_responses

    chosen = format_of(out, file_format)
    write = export_responses if chosen in OF_RESPONSES else export_table
    summary = write(source, out, format=chosen, overwrite=overwrite)
    lines = [f"{counted(summary.num_rows, 'row')} of {counted(len(summary.columns), 'column')} as {chosen}: {out}"]
    for what, count in summary.notes.items():
        said = f"no place there for {what}" if what in summary.columns else what
        lines.append(f"{said}: {counted(count, 'response')}")
    if chosen == "inspect" and not re.match(r"\d{4}-\d\d-\d\dT", out.name):
        lines.append("note: inspect view lists logs whose names begin with a time: 2026-11-26T12-00-00_NAME.json")
    if summary.num_defused:
        lines.append(
            f"cells that got an apostrophe, so that no spreadsheet runs them as formulas: {summary.num_defused}"
        )
    return Result({"out": str(out), **asdict(summary)}, "\n".join(lines))
