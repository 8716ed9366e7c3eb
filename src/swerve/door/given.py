"""What people hand to a function in Python: models, problems and tables in any form. Free of torch."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from swerve.door.kinds import ROW_FILES
from swerve.door.spoken import PREFIX
from swerve.errors import ConfigError, shown

if TYPE_CHECKING:
    from swerve.config.sampling import SampleSettings

_FORM = (
    "give a list of mappings with question and answer, or of pairs (question, answer), a table with a row for each "
    "problem, or a file"
)


def temporary_folder() -> TemporaryDirectory[str]:
    """Return a folder that lasts as long as what is returned; messages call its files by their names alone."""
    return TemporaryDirectory(prefix=PREFIX)


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON Lines, to a file that is called after them, so that the same rows are the same file again.

    Raises:
        ArtifactError: the folder cannot be made, or the file not be written.
    """
    from pydantic_core import to_json

    from swerve.artifacts.files import atomic_path

    content = b"".join(to_json(row, fallback=_plain, inf_nan_mode="null") + b"\n" for row in rows)
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.jsonl"
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return path


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def problem_rows(problems: Any) -> list[Mapping[str, Any]]:
    """Return problems as rows with question and answer.

    Raises:
        ConfigError: they are something else.
    """
    from swerve.artifacts.given_rows import rows_of
    from swerve.artifacts.problem_records import problem_record
    from swerve.types import Problem

    rows = []
    for number, entry in enumerate(rows_of(problems, what="problems", form=_FORM)):
        if isinstance(entry, Problem):
            entry = problem_record(entry)
        elif isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], str):
            entry = {"question": entry[0], "answer": entry[1]}
        if not isinstance(entry, Mapping):
            raise ConfigError(f"problem {number} is {shown(entry)}; {_FORM}")
        rows.append(entry)
    if not rows:
        raise ConfigError(f"there are no problems; {_FORM}")
    return rows


def is_place(given: Any) -> bool:
    """Whether something is a path, or a text."""
    return isinstance(given, str | os.PathLike)


def task_of(
    problems: Any, task: Any, folder: Path, *, fields: Mapping[str, str] | None = None
) -> tuple[Mapping[str, Any] | None, SampleSettings | None]:
    """Return the task whose problems are meant, as a recipe has it, and settings that were given in its place.

    Args:
        problems: a file, folder or data set; the name of a task; rows; or settings.
        task: a task's name, a mapping with its `kind`, or its configuration; with problems what they are of: of a task
            that makes its own, rows that it grades.
        folder: where rows are written.
        fields: names of the problems' fields, where they are not `question`, `answer` and so on.

    Raises:
        ConfigError: neither or both are given, or a task cannot have problems of a file.
    """
    from swerve.config.sampling import SampleSettings
    from swerve.recipes.files import shipped_recipes
    from swerve.recipes.task_names import task_kinds

    if isinstance(problems, SampleSettings):
        if task is not None or fields:
            raise ConfigError("the settings have their task; leave out task= and fields=")
        return None, problems
    if problems is None and isinstance(task, str) and task.endswith(ROW_FILES) and Path(task).is_file():
        problems, task = task, None
    is_recipe = isinstance(problems, str) and (problems in shipped_recipes() or problems.endswith((".yaml", ".yml")))
    if isinstance(problems, str) and not Path(problems).exists() and (problems in task_kinds() or is_recipe):
        if task is not None:
            raise ConfigError(f"problems={problems!r} and task={task!r:.60} are two tasks; give one")
        problems, task = None, problems
    if problems is None and task is None:
        raise ConfigError(
            "whose problems? Give problems= (a file, a table, or a list of mappings with question and answer), or "
            "task= (swerve.tasks() lists them)"
        )

    # Problems of their own are read as the task, by default as rows with question and answer.
    own: dict[str, Any] = {"fields": dict(fields)} if fields else {}
    if problems is not None:
        place = str(
            os.fspath(problems) if is_place(problems) else str(write_rows(folder, "problems", problem_rows(problems)))
        )
        place = os.path.abspath(place) if os.path.exists(place) else place
        own |= {"train": [place], "heldout": [place]}
    return task_with_problems(task, own), None


def task_with_problems(task: Any, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a task as a recipe has it, with problems of its own, if any: without a name, as rows of a table."""
    from swerve.recipes.task_names import load_task, task_kinds
    from swerve.rewards.graders import GRADERS

    if task is not None and not isinstance(task, str):
        record = _checked(dict(task) if isinstance(task, Mapping) else task.model_dump(mode="json"))
        if own and not _reads_problems(record["kind"]):
            changed = record if isinstance(task, Mapping) else task.model_dump(mode="json", exclude_defaults=True)
            record = _graded_as({**changed, "kind": record["kind"]})
        return {**record, **own}
    name = "table" if task is None else task
    if own:
        if name in GRADERS and name not in task_kinds():
            raise ConfigError(f"{name!r} is a grader and no task: task={{'kind': 'table', 'grader': {name!r}}}")
        kind = name if name in task_kinds() else load_task(name, [])[0].kind
        if not _reads_problems(kind):
            return {**_graded_as({"kind": kind}), **own}
    config, _ = load_task(name, [f"{key}={json.dumps(value)}" for key, value in own.items()])
    return config.model_dump(mode="json")


def _reads_problems(kind: str) -> bool:
    """Whether a kind of task reads its problems from files; others make them."""
    from swerve.recipes.task_names import task_kinds

    return "train" in task_kinds()[kind].model_fields


def _graded_as(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of rows that are asked and graded as a task does which makes its own problems.

    Raises:
        ConfigError: it has no grader, or keys of how problems are made.
    """
    from swerve.recipes.task_names import task_kinds
    from swerve.rewards.graders import GRADERS

    name, shared = task["kind"], ("kind", "grading", "prompt")
    prompt = task_kinds()[name].model_fields.get("prompt")
    if name not in GRADERS:
        raise ConfigError(
            f"the task {name!r} makes its own problems and grades no others; leave out problems=, or task="
        )
    making = next((key for key in task if key not in shared), None)
    if making is not None:
        raise ConfigError(
            f"{making!r} says how problems of {name!r} are made, and problems= gives others; task={name!r} has these "
            "graded as it grades"
        )
    asks = {} if prompt is None else {"prompt": prompt.default.model_dump(mode="json")}
    return {**asks, **task, "kind": "table", "grader": name}


def _checked(record: Mapping[str, Any]) -> Mapping[str, Any]:
    from swerve.recipes.task_names import task_kinds

    if record.get("kind") not in task_kinds():
        raise ConfigError(f"task={dict(record)!r:.60} needs a 'kind', one of {', '.join(sorted(task_kinds()))}")
    return record


def models_of(models: Any, folder: Path, *, is_served: bool = False) -> dict[str, Path | str]:
    """Return folder or hub name of each model by its label; of models on a server, the server's names.

    Args:
        models: one, a list of them, or label -> model; each a folder, `RUN:LABEL`, `LABEL=MODEL`, a name on the hub,
            one of `run.checkpoints`, or a model of transformers in memory, alone or as `(model, tokenizer)`, which is
            saved to `folder`.
        folder: where models in memory are written.
        is_served: whether they are names on a server.

    Raises:
        ConfigError: none is given, two have one label, or a label cannot be the name of a file.
        CheckpointError: there is no such model.
    """
    from swerve.models.folder_metadata import check_metadata
    from swerve.models.named_models import check_label, key_label, resolve_model, served_name

    given: list[tuple[str | None, Any]]
    if isinstance(models, Mapping):
        given = [(key_label(label), model) for label, model in models.items()]
    else:
        given = [(None, model) for model in several(models)]
    found: dict[str, Path | str] = {}
    for label, model in given:
        if label is not None:
            check_label(label, str(model) if is_place(model) else type(model).__name__)
        text = place_of(model, folder, label=label or "model")
        named = served_name(text) if is_served else resolve_model(text)
        if not is_served:
            check_metadata(named.path)
        label = label or label_of(model) or named.label
        if label in found:
            raise ConfigError(f"two models are called {label!r}; give them names, as in {{'early': ..., 'late': ...}}")
        found[check_label(label, text)] = named.path
    if not found:
        raise ConfigError("no model is given; name one: a folder, RUN:LABEL or owner/name on the hub")
    return found


def several(given: Any) -> list[Any]:
    """Return what a list holds; of one thing that, such as of a model with its tokenizer."""
    from swerve.models.named_models import is_pair

    return list(given) if isinstance(given, list | tuple) and not is_pair(given) else [given]


def label_of(model: Any) -> str | None:
    """Return what a model of a run is called."""
    from swerve.artifacts.checkpoint import CheckpointRef
    from swerve.models.named_models import NamedModel

    return model.label if isinstance(model, CheckpointRef | NamedModel) else None


def place_of(model: Any, folder: Path, *, label: str) -> str:
    """Return where a model is; one of transformers in memory, alone or as `(model, tokenizer)`, is saved with it.

    Raises:
        ConfigError: it is no model, or one in memory whose tokenizer is not known.
    """
    if is_place(model):
        return str(os.fspath(model))
    from swerve.models.named_models import is_pair, no_model

    inner, tokenizer = model if is_pair(model) else (model, None)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(inner, torch.nn.Module):
        raise no_model(inner)
    from swerve.door.saved_models import save_in_memory

    return str(save_in_memory(inner, folder / label, tokenizer=tokenizer))


@contextmanager
def working_folder() -> Iterator[Path]:
    """Yield a folder for what is handed over, for the time of a call."""
    with temporary_folder() as folder:
        yield Path(folder)
