"""The commands `swerve data ...`: what they accept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["data_app"]

data_app = typer.Typer(help="Tasks and their problems, and rollouts of other programs.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Task = Annotated[str, typer.Argument(metavar="TASK", help="Kind of task (swerve data list), or a recipe.")]
TaskChanges = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the task, such as train=data/gsm8k, and seed=N."),
]
Split = Annotated[str, typer.Option("--split", metavar="train|heldout", help="Which problems.")]
Field = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=FIELD", help="What FILE calls a field, such as response=completion."),
]


@data_app.command(name="list")
def data_list(as_json: Json = False) -> None:
    """List the kinds of task."""
    from swerve.cli.data import list_tasks

    list_tasks(as_json=as_json)


@data_app.command(name="show")
def data_show(
    task: Task,
    changes: TaskChanges = None,
    split: Split = "train",
    num: Annotated[int, typer.Option("--num", "-n", metavar="N", help="Problems to show.")] = 3,
    as_json: Json = False,
) -> None:
    """Show problems of a task: what the model is given, and the gold answer."""
    from swerve.cli.data import show_problems

    show_problems(task, changes or (), split=split, num=num, as_json=as_json)


@data_app.command(name="write")
def data_write(
    task: Task,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where they go, as JSONL.")],
    changes: TaskChanges = None,
    split: Split = "train",
    as_json: Json = False,
) -> None:
    """Write the problems of a task to a file, fetched, generated and filtered as the task says."""
    from swerve.cli.data import write_problems

    write_problems(task, changes or (), split=split, out=out, as_json=as_json)


@data_app.command(name="prove")
def data_prove(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="Files or folders in the K-and-K schema.")],
    as_json: Json = False,
) -> None:
    """Prove knights-and-knaves puzzles again: one solution, the one that is stored, from statements and text."""
    from swerve.cli.data import prove_puzzles

    prove_puzzles(sources, as_json=as_json)


@data_app.command(name="import")
def data_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rollouts or responses of another program.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the table goes (.parquet).")],
    problems: Annotated[
        Path | None, typer.Option("--problems", metavar="FILE", help="Problems, joined by id or by their text.")
    ] = None,
    dialect: Annotated[
        str, typer.Option("--format", metavar="NAME", help="auto, rl_probe, verl, trl, chat or plain.")
    ] = "auto",
    field: Field = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", metavar="MODEL", help="Tokenise once, with this model's tokenizer.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="KIND", help="Family of the problems, for the graders.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Import rollouts of RL-Probe, verl, TRL, chat logs or plain files, each joined to its problem."""
    from swerve.cli.data_import import run_import

    run_import(
        file,
        out=out,
        problems=problems,
        dialect=dialect,
        fields=tuple(field or ()),
        tokenizer=tokenizer,
        task=task,
        as_json=as_json,
    )


@data_app.command(name="export")
def data_export(
    source: Annotated[Path, typer.Argument(metavar="TABLE", help="A Parquet table of swerve.")],
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="File, or folder for hf.")],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="jsonl|csv|hf", help="hf: a Hugging Face data set folder.  [default: by PATH]"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: Json = False,
) -> None:
    """Export a table of rollouts, tokens or anything else to JSONL, CSV or a Hugging Face data set folder."""
    from swerve.cli.data_export import run_export

    run_export(source, out=out, format=file_format, overwrite=overwrite, as_json=as_json)


@data_app.command(name="behaviours")
def data_behaviours(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A run, a table of rollouts, or a file of responses.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the figures of every response, as JSONL.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="FIELD", help="Compare groups of responses, such as label or step.")
    ] = None,
    lexicon: Annotated[
        Path | None, typer.Option("--lexicon", metavar="FILE", help="Your own words of reflection.")
    ] = None,
    embedding_model: Annotated[
        str | None,
        typer.Option(
            "--embedding-model", metavar="MODEL", help="Model of sentence-transformers, for cosine diversity."
        ),
    ] = None,
    field: Field = None,
    as_json: Json = False,
) -> None:
    """Measure behaviour: format, thinking, repetition, reflection, length, diversity, pass@k, signs of hacking."""
    from swerve.cli.behaviours import run_behaviours

    run_behaviours(
        source,
        out=out,
        by=by,
        lexicon=lexicon,
        embedding_model=embedding_model,
        fields=tuple(field or ()),
        as_json=as_json,
    )
