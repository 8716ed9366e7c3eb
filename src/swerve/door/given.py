"""What people hand to a function in Python: models, problems and tables in any form. Free of torch."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from swerve.door.keywords import COMMANDS, NAMES, TERMINAL_ONLY
from swerve.door.kinds import ROW_FILES, check_kinds
from swerve.errors import ConfigError, ProblemsError, SwerveError, nearest, refusals_told, shown

if TYPE_CHECKING:
    from swerve.config.sampling import SampleSettings

P = ParamSpec("P")
T = TypeVar("T")

_PREFIX = "swerve-given-"
_GIVEN = re.compile(rf"[^\s'\"()]*{_PREFIX}[^/\s]*/([a-z]+)(?:[.-]\w+)*")
"""Of what Python handed over, the file that it was put into."""
_COMMANDS = re.compile(r"\bswerve (data list|sample|claim|grade|probe|report|recipes)\b(?! recipe)")
_CALL = re.compile(r"(?<=: )swerve (grade|replay|train) ((?:\S+ )*?\S+)(?=;|$)")
"""A whole command line, which ends a message or a part of it."""
_FIELD = re.compile(r"--field (\w+)=(\w+)")
_OF_OTHERS = re.compile(r"\b(?:hf|pip|vllm) [a-z]+ [^);]*|(?<=in a terminal: )swerve [^);]*")
"""Commands of other programs, and those that are said to be of the terminal: their options stay as they are."""
_OF_SECTION = re.compile(r"^overrides: '(?:\w+\.)?(\w+)' must")
"""A keyword that is a key of a section."""
_DEVICE = re.compile(r"\bruntime\.device=(\w+(?::\d+)?)")
_FIELDS_OF_TASK = re.compile(r"task\.fields\.\w+=\w+(?: task\.fields\.\w+=\w+)*")
_VALUE = r"[A-Z][A-Z=|]*(?!\w)|\d+(?:\.\d+)?(?!\w)|'[^']*'|(?<=task )math\b"
_PLACE = re.compile(r"(?<![\w-])--out (\S*[./]\w\S*)")
_OPTION = re.compile(rf"(?<![\w-])--([a-z]+(?:-[a-z]+)*)(?:[ =]({_VALUE}))?")
_PLACEHOLDER = re.compile(r"[A-Z]+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_NO_KEYWORD = re.compile(r"there is no keyword '(\w+)'")
_EXAMPLES = {
    "sample": "swerve.sample(model, task='math', num_samples=4, temperature=0.7)",
    "evaluate": "swerve.evaluate({'base': base, 'rl': rl}, task='math', limit=20)",
    "claim": "swerve.claim(base, rl, task='math', limit=20)",
    "grade": "swerve.grade('answers.jsonl', task='math')",
    "probe": "swerve.probe(base, rl, samples, causal=True)",
}
"""Of functions with many keywords a call."""
_FORM = (
    "give a list of mappings with question and answer, or of pairs (question, answer), a table with a row for each "
    "problem, or a file"
)


def spoken(function: Callable[P, T]) -> Callable[P, T]:
    """Have a function speak of keywords, where what it calls speaks of options of the terminal."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        option = next((word for word in kwargs if word in TERMINAL_ONLY.get(function.__name__, ())), None)
        if option is not None:
            command = COMMANDS.get(function.__name__, function.__name__)
            raise ConfigError(f"{option} is of the terminal alone: swerve {command} ... --{option.replace('_', '-')}")
        here = {word: NAMES.get(word) for word in kwargs if word not in signature.parameters}
        option = next((word for word, name in here.items() if name in signature.parameters), None)
        if option is not None:
            form = _form(function.__name__, signature)
            raise ConfigError(f"there is no keyword {option!r}; it is {here[option]!r} here: write {form}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ConfigError(_misfit(function.__name__, signature, error, kwargs)) from None
        check_kinds(function.__name__, bound.arguments)
        try:
            with refusals_told():
                return function(*args, **kwargs)
        except ProblemsError as error:
            error.lines = tuple(map(in_python, error.lines))
            error.args = ("\n".join(error.lines),)
            raise
        except SwerveError as error:
            error.args = (in_python(_with_call(str(error), function.__name__, kwargs)),)
            raise

    return call


def _misfit(name: str, signature: inspect.Signature, error: TypeError, keywords: Mapping[str, Any]) -> str:
    """Return what is wrong with the arguments of a function, and how it is called."""
    unknown = next((word for word in keywords if word not in signature.parameters), None)
    said = str(error) if unknown is None else f"there is no keyword {unknown!r}{nearest(unknown, signature.parameters)}"
    return f"swerve.{name}: {said}; write {_form(name, signature)}"


def _form(name: str, signature: inspect.Signature) -> str:
    """Return how a function is called."""
    parameters = signature.parameters.values()
    first = [one.name for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return f"swerve.{name}({', '.join([*first, *(['...'] if len(parameters) > len(first) else [])])})"


def _with_call(message: str, function: str, keywords: Mapping[str, Any]) -> str:
    """Return what is wrong with a keyword with the call, the value that was given, and an example of the call.

    >>> _with_call("there is no keyword 'zebra'", "claim", {"zebra": 3})
    "swerve.claim(zebra=3): there is no keyword 'zebra'; write such as swerve.claim(base, rl, task='math', limit=20)"
    """
    word = _NO_KEYWORD.match(message)
    if word is None:
        return message
    value = f"={keywords[word[1]]!r:.30}" if word[1] in keywords else ""
    example = f"; write such as {_EXAMPLES[function]}" if function in _EXAMPLES else ""
    return f"swerve.{function}({word[1]}{value}): {message}{example}"


def in_python(line: str) -> str:
    """Return a message of the terminal in the words of Python.

    >>> in_python("give either --task TASK (see: swerve data list) or --data SPEC")
    'give either task=TASK (see: swerve.tasks()) or problems=SPEC'
    >>> in_python("--field gold=FIELD names it; --limit 3; --common")
    "fields={'gold': 'FIELD'} names it; limit=3; common="
    >>> in_python("overrides: 'runtime.device' must be one of 'auto', 'cpu'")
    "device must be one of 'auto', 'cpu'"
    """
    foreign = _OF_OTHERS.search(line)
    if foreign is not None:
        parts = line[: foreign.start()], line[foreign.end() :]
        return foreign[0].join(map(in_python, parts))
    line = _CALL.sub(lambda command: _call(command[1], command[2]), line)
    line = _GIVEN.sub(r"\1", line)
    line = _COMMANDS.sub(lambda command: _command(command[1]), line)
    line = line.replace("swerve.sample MODEL --data FILE", "swerve.sample(model, problems)")
    line = re.sub(r"^task\.(train|heldout): ", "problems: ", line)
    line = re.sub(r"^problems: data source ('[^']*') (?=does not exist)", r"problems=\1 ", line)
    line = _OF_SECTION.sub(r"\1 must", line)
    line = _DEVICE.sub(r"device='\1'", line).replace("device='auto' or cpu", "device='auto' or 'cpu'")
    line = _FIELDS_OF_TASK.sub(_fields_said, line)
    line = line.replace("--task math, gsm8k, k_and_k, ...", "task='math', 'gsm8k', 'k_and_k', ...")
    line = _FIELD.sub(r"fields={'\1': '\2'}", line)
    line = _PLACE.sub(r"out='\1'", line)
    return _OPTION.sub(lambda option: f"{_name(option[1])}={option[2] or ''}", line)


def _call(function: str, words: str) -> str:
    """Return a command line as a call; of what was handed over the name stands for it.

    >>> _call("replay", "runs/a --from 20 --set kl.coef=0.1 --without group=3")
    "swerve.replay('runs/a', start=20, settings={'kl.coef': 0.1}, without='group=3')"
    >>> _call("train", "runs/a/config.yaml seed=5 stages.rl.steps=4 --out DIR")
    "swerve.train('runs/a/config.yaml', {'stages.rl.steps': 4}, seed=5, out=DIR)"
    """
    arguments, keywords, settings = list[str](), dict[str, str](), dict[str, str]()
    given, is_kept = shlex.split(words), True
    while given:
        word = given.pop(0)
        key, equals, value = word.partition("=")
        if word.startswith("--"):
            name = _name(key[2:])
            value = value if equals else given.pop(0) if given and not given[0].startswith("--") else ""
            if name in ("settings", "fields"):
                settings[value.partition("=")[0]] = _written(value.partition("=")[2])
                keywords[name] = _mapping(settings)
            elif name == "out" and _GIVEN.search(value):
                is_kept = False
            else:
                keywords[name] = _written(value) if value else "True"
        elif equals and key.isidentifier():
            keywords[key] = _written(value)
        else:
            arguments.append(f"{{{key!r}: {_written(value)}}}" if equals else _written(word))
    named = [f"{name}={value}" for name, value in keywords.items()]
    table = "" if is_kept else ".to_pandas()"
    return f"swerve.{function}({', '.join([*arguments, *named])}){table}"


def _written(word: str) -> str:
    """Return a word of a command line as Python has it: a placeholder, a number, what was given, or a text."""
    if given := _GIVEN.fullmatch(word):
        return given[1]
    return word if _PLACEHOLDER.fullmatch(word) or _NUMBER.fullmatch(word) else repr(word)


def _mapping(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key!r}: {value}" for key, value in values.items()) + "}"


def _fields_said(found: re.Match[str]) -> str:
    """Return keys of a table's fields as the keyword that they are."""
    pairs = (word.removeprefix("task.fields.").partition("=") for word in found[0].split())
    fields = {name: field for name, _, field in pairs}
    return f"fields={fields}"


def _command(words: str) -> str:
    return "swerve.tasks()" if words == "data list" else f"swerve.{words}"


def _name(option: str) -> str:
    name = option.replace("-", "_")
    return NAMES.get(name, name)


def temporary_folder() -> TemporaryDirectory[str]:
    """Return a folder that lasts as long as what is returned; messages call its files by their names alone."""
    return TemporaryDirectory(prefix=_PREFIX)


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
