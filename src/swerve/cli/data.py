"""`swerve data list`, `show` and `write`: list tasks, show and write their problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from swerve.cli.completion import completed
from swerve.cli.console import check_not_read, print_message
from swerve.cli.options import ROW_ENDINGS, Result, check_choice, out_option
from swerve.cli.text import wrapped
from swerve.progress import one_line
from swerve.text import counted

if TYPE_CHECKING:
    from swerve.problems.mixture import TaskConfig
    from swerve.types import Problem

Task = Annotated[
    str,
    typer.Argument(metavar="TASK", help="A task (see: swerve data list), or a recipe.", **completed("tasks")),
]
TaskChanges = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the task, such as train=data/gsm8k, and seed=N."),
]
Split = Annotated[str, typer.Option("--split", metavar="train|heldout", help="Which problems.")]

_SPLITS = ("train", "heldout")


def list_tasks() -> Result:
    """List the kinds of task.

    Examples:
      swerve data list
    """
    from swerve.recipes.task_names import described_tasks

    rows = described_tasks()
    lines = [f"{row['task']}  ({row['source']})\n{wrapped(row['description'], indent='    ')}" for row in rows]
    return Result(rows, "\n".join(lines))


def _problems(name: str, overrides: Sequence[str], split: str, num: int | None = None) -> tuple[int, list[Problem]]:
    """Return how many problems a split has, and the first `num` (None: all)."""
    from swerve.problems import load_family
    from swerve.problems.reading import ReadFamily
    from swerve.recipes.task_names import load_task
    from swerve.seeds import derive_seed

    check_choice("--split", split, _SPLITS)
    task, seed = load_task(name, overrides)
    family = load_family(task)
    named: Literal["train", "heldout"] = "train" if split == "train" else "heldout"
    seed = derive_seed(seed, "problems")
    if isinstance(family, ReadFamily):
        total, problems = family.first_problems(named, num, seed=seed)
    else:
        problems = family.problems(named, seed=seed)
        total, problems = len(problems), problems[:num]
    for note in family.notes():
        print_message(one_line(note))
    return total, problems


def show_problems(
    task: Task,
    changes: TaskChanges = None,
    split: Split = "train",
    num: Annotated[int, typer.Option("--num", "-n", metavar="N", min=1, help="Problems to show.")] = 3,
) -> Result:
    """Show what a model is given, and the gold answers.

    Examples:
      swerve data show addition -n 5
      swerve data show gsm8k --split heldout
    """
    total, problems = _problems(task, changes or (), split, num)
    blocks = [f"{counted(total, 'problem')} in {split}; the first {len(problems)}:", *map(_shown, problems)]
    return Result([asdict(problem) for problem in problems], "\n\n".join(blocks))


def _shown(problem: Problem) -> str:
    messages = problem.messages or (("user", problem.question),)
    lines = [f"{problem.id} ({problem.kind})"]
    lines += [f"  {role}: {_printable(content)}" for role, content in messages]
    if problem.prefix:
        lines.append(f"  assistant begins: {problem.prefix}")
    lines.append(f"  gold: {_printable(' | '.join((problem.answer, *problem.alternatives)))}")
    if problem.solution is not None:
        lines.append(f"  solution: {_printable(problem.solution)}")
    return "\n".join(lines)


def _printable(text: str) -> str:
    """Keep line breaks, indented; replace other control characters."""
    return "\n    ".join(one_line(line) for line in text.splitlines())


def write_problems(
    task: Task,
    out: Annotated[Path, out_option("Output file (.jsonl or .parquet).", *ROW_ENDINGS)],
    changes: TaskChanges = None,
    split: Split = "train",
) -> Result:
    """Write the problems of a task to a file.

    They are fetched, generated and filtered as the task says.

    Examples:
      swerve data write k_and_k 'people=[2, 3]' --out puzzles.jsonl
    """
    from swerve.artifacts.problem_records import problem_record
    from swerve.formats.row_files import write_rows
    from swerve.recipes.task_names import load_task

    config, _ = load_task(task, changes or ())
    check_not_read(out, _sources(config))
    _, problems = _problems(task, changes or (), split)
    write_rows(out, map(problem_record, problems))
    summary = {"out": str(out), "num_problems": len(problems)}
    return Result(summary, f"{counted(len(problems), 'problem')}: {out}")


def _sources(task: TaskConfig) -> list[Path]:
    """Return what a task reads, as paths; some may be names on the hub."""
    from swerve.problems.data_specs import parse_spec
    from swerve.problems.mixture import MixtureTask

    tasks = [part.task for part in task.parts] if isinstance(task, MixtureTask) else [task]
    specs = [spec for one in tasks for key in _SPLITS for spec in getattr(one, key, ())]
    return [parse_spec(spec).path for spec in specs]
