"""`swerve data list`, `show` and `write`: list tasks, show and write their problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from swerve.cli.completion import completed
from swerve.cli.console import check_output, print_message
from swerve.cli.options import Result, check_choice
from swerve.cli.text import wrapped
from swerve.errors import ConfigError, nearest
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


def task_kinds() -> dict[str, Any]:
    """Return the configuration of each kind of task."""
    from swerve.problems.mixture import MixtureTask
    from swerve.problems.registry import TASKS

    return {**{kind: task.config for kind, task in TASKS.items()}, "mixture": MixtureTask}


def list_tasks() -> Result:
    """List the kinds of task.

    Examples:
      swerve data list
    """
    import inspect

    kinds = sorted(task_kinds().items())
    rows = [(name, (inspect.getdoc(kind) or "").splitlines()[0], _source(kind)) for name, kind in kinds]
    lines = [f"{name}  ({source})\n{wrapped(description, indent='    ')}" for name, description, source in rows]
    return Result([dict(zip(("task", "description", "source"), row, strict=True)) for row in rows], "\n".join(lines))


def _source(kind: Any) -> str:
    """Return the default source of a kind's problems."""
    if "parts" in kind.model_fields:
        return "task.parts=[...]"
    field = kind.model_fields.get("train")
    if field is None or (not field.is_required() and not field.default):
        return "generated"
    return "task.train=FILE" if field.is_required() else str(field.default[0])


def load_task(name: str, overrides: Sequence[str]) -> tuple[TaskConfig, int]:
    """Return the task of a kind's name or of a recipe, and the seed."""
    from swerve.recipes.files import shipped_recipes
    from swerve.recipes.loader import load_config

    kinds = task_kinds()
    if name in kinds:
        # Any recipe will do: only its task and seed are used.
        changes = [one if one.startswith(("task.", "seed=")) else f"task.{one}" for one in overrides]
        config = load_config("demo_addition", [f"task={name}", *changes])
    elif name in shipped_recipes() or Path(name).suffix in (".yaml", ".yml"):
        config = load_config(name, overrides)
    else:
        raise ConfigError(
            f"'{name}' is neither a kind of task nor a recipe{nearest(name, kinds)} (kinds: {', '.join(sorted(kinds))})"
        )
    return config.task, config.seed


def _problems(name: str, overrides: Sequence[str], split: str, num: int | None = None) -> tuple[int, list[Problem]]:
    """Return how many problems a split has, and the first `num` (None: all)."""
    from swerve.problems import load_family
    from swerve.problems.reading import ReadFamily
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
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file (.jsonl).")],
    changes: TaskChanges = None,
    split: Split = "train",
) -> Result:
    """Write the problems of a task to a file.

    They are fetched, generated and filtered as the task says.

    Examples:
      swerve data write k_and_k 'people=[2, 3]' --out puzzles.jsonl
    """
    import json

    from swerve.artifacts.files import write_text
    from swerve.artifacts.problem_records import problem_record

    config, _ = load_task(task, changes or ())
    check_output("--out", out, ending=".jsonl", read=_sources(config))
    _, problems = _problems(task, changes or (), split)
    write_text(out, "".join(f"{json.dumps(problem_record(problem), allow_nan=False)}\n" for problem in problems))
    summary = {"out": str(out), "num_problems": len(problems)}
    return Result(summary, f"{counted(len(problems), 'problem')}: {out}")


def _sources(task: TaskConfig) -> list[Path]:
    """Return what a task reads, as paths; some may be names on the hub."""
    from swerve.problems.data_specs import parse_spec
    from swerve.problems.mixture import MixtureTask

    tasks = [part.task for part in task.parts] if isinstance(task, MixtureTask) else [task]
    specs = [spec for one in tasks for key in _SPLITS for spec in getattr(one, key, ())]
    return [parse_spec(spec).path for spec in specs]
