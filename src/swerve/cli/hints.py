"""What was meant by an option that is a key of a recipe or a task, and by a key that is an option.

The keys are those of the settings' classes that the command reads, the options those that it has.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from swerve.cli.options import ROW_ENDINGS, PlainCommand
from swerve.cli.plan import PLANS
from swerve.door.keywords import SAME, USUAL
from swerve.door.kinds import kind_of
from swerve.errors import ArtifactError, ConfigError, NoResponseError, SwerveError, UnknownKeyError
from swerve.settings import STAGE_SECTIONS

_RECIPE = "swerve.config.recipe:Config"
_DEMO = "demo_multiplication"
_BEGINS = ("step", "start", "begin", "checkpoint")
"""What others call the option of a replay that says where it begins."""
_RESPONSES = ("samples", "rollouts", "completions", "data")
"""What others call the responses that are probed."""
_OPTIONS = {"problems": "data", "tasks": "task"}
"""What others, and Python, call options of the terminal."""
_SHORT = {"-o": "--out", "-n": "--num-samples"}
_KEYS = ("--set", "--override")
"""Options of others before KEY=VALUE, which stands alone here."""
_FIELDS = ("gold", "response", "question", "problem", "prompt", "group", "id")
"""Names of fields of a file of responses, which others have as options. An answer is not among them: it may be the gold
one, or what is judged."""
_OF_PROBLEMS = {"question": "question", "problem": "question", "answer": "answer", "gold": "answer"}
"""The same of a file of problems."""
_COUNTS = ("k", "n", "num_samples", "samples_per_problem", "pass_at_k")
_ELSEWHERE = {
    "compare": "claim BEFORE AFTER",
    "show": "report RUN",
    "plot": "report RUN --figures",
    "figures": "report RUN --figures",
    "log": "runs",
    "list": "runs",
    "ls": "runs",
    "import": "data import",
    "schema": "config schema",
}
"""Words that are no command, and which command does it."""
_DRY = ("dry_run", "dry", "estimate", "cost", "costs")


def meant_by_option(command: PlainCommand, words: Sequence[str], option: str) -> str:
    """Return, for a message, what an option that a command lacks is: a key with its value, or another option.

    Args:
        command: that was given.
        words: of the command line.
        option: one of them, up to its `=`.
    """
    key = option.lstrip("-").replace("-", "_")
    given = next((word for word in words if word == option or word.startswith(f"{option}=")), option)
    value = given.partition("=")[2] or next(iter(words[words.index(given) + 1 :]) if given in words else iter(()), "")
    value = "VALUE" if not value or value.startswith("-") else value
    model = next((word for word in words if kind_of(word) == "model"), None) if command.name == "train" else None
    if model is not None:
        return f"; a model is trained by a recipe: swerve train {_DEMO} {shlex.quote(f'model.path={model}')}"
    if command.name == "replay" and key in _BEGINS:
        return f"; did you mean --from {shlex.quote(value)}?"
    if key in _DRY and command.name in PLANS:
        rest = shlex.join(word for word in words if word not in (option, given))
        return f"; swerve plan says what a command takes, without doing it: swerve plan {rest}"
    if command.name == "grade" and key in _COUNTS:
        return "; rows with one question, or one id, are its samples, however many: leave it out"
    if key == "answer" and "--field" in _options(command):
        value = shlex.quote(value)
        return f"; did you mean --field gold={value} (the right answer) or --field answer={value} (what is judged)?"
    usual = "responses" if command.name == "probe" and key in _RESPONSES else USUAL.get(key, key)
    meant = _meant(command, words, key) or _meant(command, words, usual)
    known = [own if own.startswith("--") else f"{own}={value}" for own in meant]
    return f"; did you mean {' or '.join(map(shlex.quote, known))}?" if known else ""


def taken_as(command: PlainCommand, words: Sequence[str], option: str) -> list[str] | None:
    """Return the command line with an option that the command lacks in the form that it has; None: it has none.

    `-o` is `--out`, another name of an option is that option (see `SAME`), the name of a field is `--field NAME=FIELD`,
    and the name of one key is KEY=VALUE. A slip of a name, or a key that stands in several places, is not taken.

    Args:
        command: that was given.
        words: after it on the command line.
        option: one of them, up to its `=`.
    """
    place = next((at for at, word in enumerate(words) if word == option or word.startswith(f"{option}=")), None)
    if place is None or "--" in words[:place]:
        return None
    joined, equals, value = words[place].partition("=")
    before, after = list(words[:place]), list(words[place + 1 :])
    key = joined.lstrip("-").replace("-", "_")
    given = [value] if equals else [] if not after or after[0].startswith("-") else after[:1]
    left = after if equals else after[1:]

    # By another name an option of the command.
    own = _other_name(command, option, key)
    if own is not None:
        return [*before, f"{own}={value}" if equals else own, *after]
    if not option.startswith("--") or not given:
        return None
    # Else a word that stands alone, a field, or the only key of that name, with a value.
    word = _word_of(command, words, option, key, given[0])
    return None if word is None else [*before, *word, *left]


def _other_name(command: PlainCommand, option: str, key: str) -> str | None:
    """Return the option of a command that others call otherwise; None: the command has no such option."""
    name = _OPTIONS.get(key) or (USUAL[key] if key in SAME else None)
    own = _SHORT.get(option) or (f"--{name.replace('_', '-')}" if name and option.startswith("--") else None)
    return own if own in _options(command) else None


def _word_of(command: PlainCommand, words: Sequence[str], option: str, key: str, value: str) -> list[str] | None:
    """Return the words that an option of others with its value is to a command; None: it has none."""
    if option in _KEYS:
        return [value] if "=" in value and _takes_keys(command) else None
    if command.name == "sample" and option == "--model":
        return [value]
    if command.name == "sample" and key in _OF_PROBLEMS:
        return [f"fields.{_OF_PROBLEMS[key]}={value}"]
    if key in _FIELDS and "--field" in _options(command):
        names = {"prompt": "question", "problem": "question"} if command.name == "grade" else {"question": "problem"}
        return ["--field", f"{names.get(key, key)}={value}"]
    return [f"{key}={value}"] if _meant(command, words, key) == [key] else None


def with_option_meant(command: PlainCommand, words: Sequence[str], error: UnknownKeyError) -> str:
    """Return the message about a KEY=VALUE that has no such key, with the option that it is, if it is one.

    Args:
        command: that was given.
        words: of the command line.
        error: that it raised.
    """
    key, _, value = error.word.partition("=")
    if not key.isidentifier():
        return str(error)
    options = {f"--{key.replace('_', '-')}"} & _options(command).keys()
    options |= {own for own in _meant(command, words, key) if own.startswith("--")}
    for option in sorted(options)[:1]:
        takes = "" if _options(command)[option].is_flag else f" {shlex.quote(value)}"
        return f"{error.bare}; did you mean {option}{takes}?"
    return str(error)


def with_plan_meant(words: Sequence[str], message: str) -> str:
    """Return the message about words after `swerve plan` that name no command, with how a plan is asked for.

    >>> with_plan_meant(["plan", "demo_addition"], "No such command")
    'No such command; name the command that is planned, as in: swerve plan train demo_addition'
    """
    from swerve.recipes.files import shipped_recipes

    given = next((word for word in words[words.index("plan") + 1 :] if not word.startswith("-")), "")
    use = next((use for use in ("probe", "study") if given in shipped_recipes(use)), "train")
    is_recipe = use != "train" or given in shipped_recipes("train") or given.endswith((".yaml", ".yml"))
    bare, is_near, _ = message.partition(". Did you mean")
    if is_near and not is_recipe:  # a slip of a command
        return message
    example = f"swerve plan {use} {shlex.quote(given) if is_recipe else _DEMO}"
    return f"{bare}; name the command that is planned, as in: {example}"


def models_in_place_of_run(command: PlainCommand, words: Sequence[str]) -> str:
    """Return what to say where a command that takes a run is given `RUN:SELECTOR`, with the form that it takes.

    Args:
        command: that was given.
        words: of the command line.
    """
    if command.name not in ("eval", "probe") or command.name not in words:
        return ""
    begin = words.index(command.name) + 1
    options = {word.partition("=")[0] for word in words[begin:]}
    if command.name == "eval" and options & {"--task", "--data", "--model", "--rows"}:
        return ""  # models are what it takes
    probes, after = command.name == "probe", _arguments(command, words)
    models = [word for word in after if _is_of_run(word) or (probes and kind_of(word) == "model")]
    if not models:
        return ""
    said = shlex.join(["swerve", *(word for word in words[:begin] if not word.startswith("--"))])
    if command.name == "eval":
        return f"{models[0]} is a model and no run: {said} {shlex.join(words[begin:])} {_task_of(models[0])}"

    # The responses are whatever file or folder is named beside the models; of problems alone they are sampled first.
    out = next((words[place + 1 : place + 2] for place, word in enumerate(words) if word == "--out"), [])
    named = (word.partition("=")[2] or word for word in words[begin:])
    given = next((name for name in named if [name] != out and name not in models and Path(name).exists()), None)
    first, *rest = models
    forms = " ".join(f"--checkpoint {shlex.quote(model)}" for model in rest or ["MODEL"])
    end = f" --out {shlex.quote(out[0])}" if out else ""
    responses, first_line = given, ""
    if responses is None or _is_of_problems(responses):
        responses = "samples" if rest else "samples.parquet"
        task = next((words[place + 1 : place + 2] for place, word in enumerate(words) if word == "--task"), [])
        problems = ["--data", given] if given is not None else []
        problems += ["--task", *(task or ["TASK"])] if task or not problems else []
        sampled = shlex.join(["swerve", "sample", *models, *problems, "--out", responses])
        first_line = f"such as {sampled} writes, "
    return (
        f"{first} is a model and no run; models are probed on responses, {first_line}causal tests included: {said} "
        f"--use-responses {shlex.quote(responses)} --reference {shlex.quote(first)} {forms}{end}"
    )


def _arguments(command: PlainCommand, words: Sequence[str]) -> list[str]:
    """Return the words after the name of a command that are neither options nor the values of those that it has."""
    begin, options = words.index(command.name or "") + 1, _options(command)
    takes = {place for place, word in enumerate(words) if word in options and not options[word].is_flag}
    return [
        word
        for place, word in enumerate(words)
        if place >= begin and not word.startswith("--") and place - 1 not in takes
    ]


def _is_of_problems(place: str) -> bool:
    """Whether a file holds problems without responses."""
    from swerve.formats.imported_responses import iter_responses

    try:
        with suppress(ConfigError):
            next(iter_responses(Path(place), verdicts_suffice=True), None)
    except NoResponseError:
        return True
    except ArtifactError:  # what is wrong with it is said where it is read
        pass
    return False


def out_meant(command: PlainCommand, words: Sequence[str]) -> str:
    """Return, for a message, the command line with `--out` before what was given as a further argument.

    And with `RUN:SELECTOR` where an export is given the two as words.

    Args:
        command: that was given.
        words: of the command line.
    """
    if "--out" not in _options(command) or command.name not in words:
        return ""
    arguments, end = _arguments(command, words), words.index(command.name) + 1
    has_out = any(word.partition("=")[0] == "--out" for word in words)
    is_export = command.name == "export" and words[end - 2 : end - 1] != ["data"]
    source, out = arguments[:-1], arguments[-1:]
    if has_out or not source or not (is_export or out[0].endswith(ROW_ENDINGS)) or Path(out[0]).is_file():
        source, out = arguments, []
    if is_export and len(source) == 2 and _is_of_run(":".join(source)):
        source = [":".join(source)]
    elif is_export and out and _is_of_run(":".join(arguments)):
        source, out = [":".join(arguments)], ["DIR"]
    if source == arguments or (is_export and len(source) > 1):
        return ""
    rest = [word for word in words[end:] if word not in arguments]
    more = ["--out", *out] if out else []
    return f"; did you mean {shlex.join(['swerve', *words[:end], *source, *more, *rest])}?"


def command_meant(words: Sequence[str]) -> str:
    """Return, for a message about words that are no command, which command does it, with what is named.

    >>> command_meant(["recipes", "demo_addition"]), command_meant(["compare", "a.csv", "b.csv"])
    ('; did you mean swerve recipes show demo_addition?', '; did you mean swerve claim a.csv b.csv?')
    """
    from swerve.recipes.files import shipped_recipes

    name, *rest = (word for word in words if not word.startswith("-"))
    if name == "compare" and len(rest) > 1 and all(map(is_run, rest)):
        return f"; did you mean {shlex.join(['swerve', 'report', *rest])}?"
    more = list(itertools.takewhile(lambda word: not word.startswith("-"), words[1:]))
    if name == "compare" and len(more) > 1:
        return f"; did you mean {shlex.join(['swerve', 'claim', *words[1:]])}?"
    if name in _ELSEWHERE:
        return f"; did you mean swerve {_ELSEWHERE[name]}?"
    is_recipe = bool(rest) and (rest[0] in shipped_recipes() or rest[0].endswith((".yaml", ".yml")))
    shown = {"recipes": is_recipe, "config": is_recipe, "data": _has_problems(rest)}
    return f"; did you mean {shlex.join(['swerve', name, 'show', *rest])}?" if shown.get(name) else ""


def _has_problems(words: Sequence[str]) -> bool:
    from swerve.recipes.task_names import task_kinds

    return bool(words) and words[0] in task_kinds()


def is_run(word: str) -> bool:
    """Whether a word names a run that is there."""
    from swerve.artifacts.run import find_run

    with suppress(SwerveError):
        return bool(find_run(word))
    return False


def _is_of_run(word: str) -> bool:
    """Whether a word is `RUN:SELECTOR` of a run that is there."""
    run, colon, _ = word.rpartition(":")
    return bool(colon and run) and "=" not in word and not Path(word).exists() and is_run(run)


def _task_of(model: str) -> str:
    """Return the option that names the problems of a run: its task, where that has its own."""
    from swerve.artifacts.run import find_run
    from swerve.recipes.loader import load_run_config

    kind = "table"
    with suppress(SwerveError):
        kind = load_run_config(find_run(model.rpartition(":")[0])).task.kind
    return "--data FILE" if kind == "table" else f"--task {kind}"


def _options(command: PlainCommand) -> Mapping[str, Any]:
    params: list[Any] = [*command.params, *command.more]
    return {name: param for param in params if param.param_type_name == "option" for name in param.opts}


def _meant(command: PlainCommand, words: Sequence[str], key: str) -> list[str]:
    """Return the keys, dotted, and the options of a command that a name is."""
    from swerve.schema import nearly_called, places_of

    if not _takes_keys(command):
        return []
    has_run = _has_run(command, words)
    is_run_alone = has_run and command.name == "eval"
    module, _, name = (_RECIPE if is_run_alone or not command.place else command.place).partition(":")
    model: Any = getattr(import_module(module), name)
    data = _data(command, words, model)
    options = {} if is_run_alone else {own: text.split()[0] for own, text in command.options.items()}
    places = places_of(key, model, data) or places_of(nearly_called(key, model, data) or "", model, data)
    if "." in key and places_of(key.partition(".")[0], model, data):
        places = [key]
    taken = [place for place in places if place in options or not _is_section(model, place)]
    taken = [place for place in taken if not has_run or place in options or place.split(".")[0] in STAGE_SECTIONS]
    return [options.get(place) or place.removeprefix("task.") for place in taken[:_MOST]]


def _takes_keys(command: PlainCommand) -> bool:
    return any("KEY=VALUE" in str(param.metavar) for param in command.params)


def _has_run(command: PlainCommand, words: Sequence[str]) -> bool:
    """Whether a command that may be given a run has no models and no recipe in place of it."""
    from swerve.recipes.files import shipped_recipes

    if command.name not in ("eval", "probe") or any(word.partition("=")[0] in ("--model", "--rows") for word in words):
        return False
    if command.name == "eval" and any(kind_of(word) == "model" for word in words):
        return False
    return not any(word in shipped_recipes("probe") or word.endswith((".yaml", ".yml")) for word in words)


def _is_section(model: Any, place: str) -> bool:
    """Whether a dotted key has keys of its own in place of a value."""
    for key in place.split("."):
        fields = getattr(model, "model_fields", {})
        if key not in fields:
            return False
        kinds = [kind for kind in get_args(fields[key].annotation) if kind is not type(None)]
        model = fields[key].annotation if not kinds else kinds[0] if len(kinds) == 1 else None
    return hasattr(model, "model_fields")


_MOST = 3


def _data(command: PlainCommand, words: Sequence[str], model: Any) -> Any:
    """Return what the command line says that keys depend on: the recipe that is named, or the kind of task."""
    from swerve.problems.registry import TASKS
    from swerve.recipes.files import RECIPE_USES, shipped_recipes
    from swerve.recipes.layers import read_layers

    for word in (*words, _DEMO) if command.name == "demo" else words:
        for use in RECIPE_USES:
            if word in shipped_recipes(use) or word.endswith((".yaml", ".yml")):
                with suppress(ConfigError):
                    return read_layers(word, use, model).data

    return {"task": {"kind": next((word for word in words if word in TASKS), None)}}
