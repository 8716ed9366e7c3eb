"""Messages of the terminal in the words of Python: keywords in place of options, calls in place of commands."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from swerve.door.keywords import COMMANDS, NAMES, TERMINAL_ONLY
from swerve.door.kinds import check_kinds
from swerve.errors import ConfigError, ProblemsError, SwerveError, nearest, refusals_told

P = ParamSpec("P")
T = TypeVar("T")

PREFIX = "swerve-given-"
"""Of the names of folders with what Python handed over."""
_GIVEN = re.compile(rf"[^\s'\"()]*{PREFIX}[^/\s]*/([a-z]+)(?:[.-]\w+)*")
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
    "replay": "swerve.replay(run, start=20, settings={'optimizer.lr': 1e-5})",
}
"""Of functions with many keywords a call."""


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
            with suppress(TypeError):  # what is of another kind is said first: its function has other keywords
                check_kinds(function.__name__, signature.bind_partial(*args).arguments)
            raise ConfigError(_misfit(function.__name__, signature, error, kwargs)) from None
        try:
            with refusals_told():
                check_kinds(function.__name__, bound.arguments)
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
    example = f", such as {_EXAMPLES[name]}" if name in _EXAMPLES else ""
    return f"swerve.{name}: {said}; write {_form(name, signature)}{example}"


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
