"""`swerve sample`: graded completions of any models on any task, without a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from swerve.cli.completion import completed
from swerve.cli.options import PartsFrom, Result, ShardOption, given_settings, given_shard, out_option, with_settings
from swerve.cli.plan import asked_plan, planned
from swerve.cli.text import table, wrapped
from swerve.door.keywords import SAMPLING
from swerve.door.kinds import ROW_FILES, kind_of
from swerve.errors import CheckpointError, ConfigError, UnknownKeyError, nearest, not_there

if TYPE_CHECKING:
    from swerve.artifacts.comparison import Comparison
    from swerve.config.sampling import SampleSettings

Settings = TypeVar("Settings", bound="SampleSettings")
_WORK = ("runtime", "rollout")
TaskOption = Annotated[
    str | None,
    typer.Option("--task", metavar="TASK", help="A task (see: swerve data list), or a recipe.", **completed("tasks")),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="SPEC",
        help="Sample all problems of a file, folder or data set; with --task they are asked and graded as that does.",
    ),
]


@with_settings("swerve.config.sampling:SampleSettings", SAMPLING)
def sample(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL... [KEY=VALUE]...",
            help="Models (a folder, RUN:LABEL, owner/name#revision, or a server's name for one); keys of the task, "
            "such as 'levels=[3, 4]', seed=N, runtime.dtype=bfloat16, rollout.engine.kind=openai.",
            **completed("models"),
        ),
    ],
    out: Annotated[
        Path,
        out_option("FILE.parquet for one model; DIR/NAME.parquet for several.", ".parquet", folder=True),
    ],
    task: TaskOption = None,
    data: Data = None,
    temperature: Annotated[
        str, typer.Option("--temperature", metavar="T[,T]...", help="0 is greedy; several share the number of samples.")
    ] = "1",
    share: ShardOption = None,
    parts_from: PartsFrom = None,
) -> Result | None:
    r"""Sample graded completions of any models on the same problems.

    Every other command reads the files. After an interruption the same command continues, to the same bytes. Under
    torchrun the processes share the problems.

    Examples:
      swerve sample Qwen/Qwen2.5-0.5B --task gsm8k --limit 100 --out base.parquet
      swerve sample base=models/base rl=mine:rl-80 --task math --num-samples 8
      swerve sample gpt-5-mini --task gsm8k --limit 100 --out mini.parquet rollout.engine.kind=openai \
        rollout.engine.url=https://api.openai.com/v1 rollout.engine.key=OPENAI_API_KEY
    """
    # Models and keys of the task stand side by side.
    shard = given_shard(context, share, parts_from)
    temperatures = parse_temperatures(temperature)
    words, changes = split_arguments(arguments, task)
    models, data = with_problems_beside(words, data)
    from swerve.config.sampling import SampleSettings

    settings = sample_settings(
        SampleSettings,
        task,
        data,
        changes,
        {"num_samples": len(temperatures), "temperatures": list(temperatures), **given_settings(context)},
    )
    named = resolve_models(models, task, settings, is_planned=(planning := asked_plan(context)) is not None)
    if planning is not None:
        from swerve.plan.sampling import counted_problems, samples_budget

        (problems, number), nums = counted_problems(settings), [settings.num_samples] * len(named)
        return planned(
            samples_budget(
                "sample", named, settings, problems,
                num_problems=number, num_samples=nums, place=out, **planning._asdict(),
            )
        )  # fmt: skip
    from swerve.artifacts.samples import StoredSamples
    from swerve.artifacts.torchrun import is_main_process
    from swerve.cli.console import main_progress
    from swerve.eval.comparison import compare
    from swerve.eval.sampling import sample as sample_models

    paths = sample_models(named, settings, out=out, shard=shard, progress=main_progress())
    if not is_main_process():
        return None
    if not all(path.exists() for path in paths.values()):
        return None
    comparison = compare(StoredSamples(path).samples for path in paths.values())
    files = {label: str(path) for label, path in paths.items()}
    lines = [comparison_text(comparison), *(f"Samples: {path}" for path in files.values())]
    return Result({"files": files, **comparison.model_dump(mode="json")}, "\n".join(lines))


def comparison_text(comparison: Comparison, form: str = "table") -> str:
    """Return a comparison in one of its forms, or as `table` for the terminal, with lines on what its numbers are."""
    from swerve.formats.comparison_table import FORMATS, comparison_notes, comparison_table, measures_table

    if form != "table":
        return FORMATS[form](comparison)
    tables = [table(comparison_table(comparison)), "", table(measures_table(comparison))]
    return "\n".join([*map(wrapped, comparison_notes(comparison)), *tables])


def parse_temperatures(text: str) -> tuple[float, ...]:
    """Return the temperatures in `0.3,0.7`.

    Raises:
        ConfigError: one is not a number of at least 0.

    >>> parse_temperatures("0.3, 1")
    (0.3, 1.0)
    """
    temperatures = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 0 <= value < math.inf:
            raise ConfigError(f"--temperature {text!r}: {part.strip()!r} is not a number of at least 0")
        temperatures.append(value)
    return tuple(temperatures)


def with_problems_beside(words: Sequence[str], data: str | None) -> tuple[list[str], str | None]:
    """Return the models, and the source of problems: a file of rows beside them where no other is named.

    Raises:
        ConfigError: what is called like a file of rows is not there.
    """
    gone = next((word for word in words if word.endswith(ROW_FILES) and not Path(word).exists()), None)
    if gone is not None and "=" not in gone:
        raise ConfigError(f"{gone} {not_there(gone, 'give a file of problems, or the folder of a model')}")
    files = [word for word in words if kind_of(word) == "file"] if data is None else []
    if len(files) != 1:
        return list(words), data
    return [word for word in words if word not in files], files[0]


def split_arguments(arguments: Sequence[str], task: str | None) -> tuple[list[str], list[str]]:
    """Return the models and the KEY=VALUE changes among arguments; KEY is one of the task, `seed` or of the runtime."""
    keys, models, changes = _known_keys(task), list[str](), list[str]()
    for argument in arguments:
        is_change = "=" in argument and _key(argument) in keys and not Path(argument).exists()
        (changes if is_change else models).append(argument)
    return models, changes


def is_file_of_problems(task: str | None) -> bool:
    """Whether what is named as a task is a file of rows."""
    return task is not None and task.endswith(ROW_FILES) and Path(task).is_file()


def _key(argument: str) -> str:
    return argument.partition("=")[0].partition(".")[0].strip()


def _known_keys(task: str | None) -> set[str]:
    from swerve.recipes.task_names import task_kinds

    kind = task_kinds().get("table" if task is None or is_file_of_problems(task) else task)
    return {"seed", "task", "fields", *_WORK, *(kind.model_fields if kind else ())}


def resolve_models(
    texts: Sequence[str], task: str | None, settings: SampleSettings, *, is_planned: bool = False
) -> dict[str, Path | str]:
    """Return folder or hub name of each model by its label; of models on a server, the server's names.

    For a plan a folder that holds only a configuration will do.

    Raises:
        ConfigError: none is given, two have one label, or a label cannot be the name of a file.
        CheckpointError: there is no such model, or its folder cannot be one's; see `check_metadata`.
    """
    from swerve.models.folder_metadata import check_metadata, check_positions, is_description
    from swerve.models.named_models import check_label, resolve_model, served_name

    # A word that is no model may be a misspelt key of the task.
    models: dict[str, Path | str] = {}
    for text in texts:
        try:
            named = served_name(text) if settings.rollout.engine.kind == "openai" else resolve_model(text)
        except CheckpointError as error:
            if "=" not in text:
                raise
            hint = nearest(_key(text), _known_keys(task))
            bare = f"{text!r} is neither KEY=VALUE of the task"
            rest = f" nor NAME=MODEL: {error}"
            raise UnknownKeyError(f"{bare}{hint}{rest}", word=text, bare=bare + rest) from None
        if named.label in models:
            raise ConfigError(f"two models are called '{named.label}'; give them names, as in late=MODEL")
        models[check_label(named.label, text)] = named.path
    if not models:
        raise ConfigError("no model is given; name one: a folder, RUN:LABEL or owner/name#revision")
    if settings.rollout.engine.kind != "openai":
        for label, path in models.items():
            if not (is_planned and is_description(str(path))):
                check_metadata(path)
            check_positions(label, path, settings.max_new_tokens)
    return models


def sample_settings(
    kind: type[Settings], task: str | None, data: str | None, changes: Sequence[str], given: Mapping[str, Any]
) -> Settings:
    """Return what the command line asks for.

    Args:
        kind: of the settings.
        task: the task whose problems are sampled.
        data: a source whose problems are all sampled; with a task as it asks and grades.
        changes: KEY=VALUE of the task, of the runtime and of the engine.
        given: keys of the settings: values, or the options that say them.

    Raises:
        ConfigError: an option or a change is wrong; the message names it.
    """
    from swerve.door.given import task_with_problems
    from swerve.recipes.layers import Override
    from swerve.recipes.loader import load_settings
    from swerve.recipes.task_names import load_task

    # The problems are a task's, or all of a source, whichever option names it.
    if data is None and is_file_of_problems(task):
        task, data = None, task
    if task is None and data is None:
        raise ConfigError("give either --task TASK (see: swerve data list) or --data SPEC, whose problems are sampled")
    split = given.get("split")
    if data is not None and split is not None and split.value != "heldout":
        raise ConfigError(f"--split is of --task; a split of --data is named in it: --data {split.value}@{data}")
    of_task = [change for change in changes if _key(change) not in _WORK]
    if data is not None:
        record = dict(task_with_problems(task, {"train": [data], "heldout": [data]}))
        reads = record.pop("kind")
        making = next(
            (one for one in of_task if task != reads and _key(one) not in ("grading", "prompt", "fields")), None
        )
        if task is not None and making is not None:
            raise ConfigError(f"{making!r} is of the problems that {task} makes; with those of {data} leave it out")
        task = reads
        of_task = [*(f"{key}={json.dumps(value)}" for key, value in record.items()), *of_task]
    config, problem_seed = load_task(task or "table", of_task)

    # Keys of runtime and engine come last.
    overrides = [value for value in given.values() if isinstance(value, Override)]
    work = [change for change in changes if _key(change) in _WORK]
    known = {key: value for key, value in given.items() if not isinstance(value, Override)}
    known |= {"task": config.model_dump(mode="json"), "problem_seed": problem_seed}
    return load_settings(kind, [*overrides, *work], data=known)
