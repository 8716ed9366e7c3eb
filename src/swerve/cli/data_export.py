"""Body of `swerve data export`: a table of swerve as JSONL, CSV or a data set folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import cast

from swerve.cli.output import print_json, print_text
from swerve.errors import ConfigError, nearest
from swerve.formats.export import ExportFormat, export_table, format_of

__all__ = ["run_export"]

_FORMATS = ("jsonl", "csv", "hf")


def run_export(source: Path, *, out: Path, format: str | None, overwrite: bool, as_json: bool) -> None:
    """Export a table, or the tables of a folder; say on stdout what was written.

    Args:
        source: a Parquet table, or a folder of tables with the same columns.
        out: the file or folder that is made.
        format: jsonl, csv or hf; None: by the ending of `out`.
        overwrite: replace what is there.
        as_json: whether the figures are printed as JSON.

    Raises:
        ConfigError: there is no such format, or `out` is there already.
        ArtifactError: the source cannot be read.
    """
    if format is not None and format not in _FORMATS:
        raise ConfigError(f"--format '{format}' is not known{nearest(format, _FORMATS)}; use {', '.join(_FORMATS)}")
    chosen = format_of(out) if format is None else cast(ExportFormat, format)
    summary = export_table(source, out, format=chosen, overwrite=overwrite)
    if as_json:
        print_json({"out": str(out), **asdict(summary)})
        return
    lines = [f"{summary.num_rows} rows of {len(summary.columns)} columns as {chosen}: {out}"]
    if summary.num_defused:
        lines.append(f"cells with an apostrophe before them, so that no spreadsheet runs them: {summary.num_defused}")
    print_text("\n".join(lines))
