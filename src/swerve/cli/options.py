"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from swerve.errors import ConfigError, nearest

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="Path of a YAML file, or the name of a shipped recipe.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Run directory, or its name under runs/.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as seed=1 or stages.rl.steps=40."),
]
StageOverrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes under eval., probe., report., rollout. or runtime."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Run directory.  [default: runs/NAME]")]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Resumed, read the checkpoints before the last one too, and name damaged ones."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run from its last checkpoint.")]
ResumeOrStart = Annotated[
    bool,
    typer.Option("--resume-or-start", help="Continue the run if it was begun, start it otherwise: for requeued jobs."),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=FIELD", help="What FILE calls a field, such as response=completion."),
]
EmbeddingModel = Annotated[
    str | None,
    typer.Option("--embedding-model", metavar="MODEL", help="Model of sentence-transformers, for cosine diversity."),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="What the others are compared with.  [default: the first]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
TABLE_FORMATS = ("table", "md", "csv", "latex", "json")
"""Forms of a table of results."""


def check_format(form: str | None) -> None:
    """Raise ConfigError unless a form of the table is known, or none is given."""
    if form is not None and form not in TABLE_FORMATS:
        raise ConfigError(f"--format '{form}' is not one of {', '.join(TABLE_FORMATS)}{nearest(form, TABLE_FORMATS)}")
