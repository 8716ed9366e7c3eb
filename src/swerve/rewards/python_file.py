"""Rewards by a Python file of the user's own: a function `reward(problem, text)`."""

from __future__ import annotations

import ast
import math
import symtable
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from swerve.artifacts.files import regular_file
from swerve.errors import ConfigError
from swerve.recipes.custom import run_source
from swerve.rewards.messages import grader_failed
from swerve.sandbox.wire import error_line
from swerve.types import Problem, Reward, RewardStatus

_FUNCTION = "reward"
_KEYS = ("value", "parts", "extracted", "answered")
_ALLOWED = "return a number, True or False, None (no answer found), or a mapping with 'value'"

RewardFunction = Callable[[Problem, str], object]
_loaded: dict[str, tuple[bytes, RewardFunction | Reward]] = {}


def grade_python(problem: Problem, text: str) -> Reward:
    """Return what the function `reward` of the problem's file (`grading["file"]`, an absolute path) says of a text.

    The function returns a number, a bool, None (no answer was found in the text: `unparsed`), or a mapping with `value`
    (any of these) and optionally `parts` (names to numbers), `extracted` (the answer that was read) and `answered`
    (False where a value is paid to a text without an answer). Whatever it raises or returns beside these is a reward of
    status `error`.
    """
    function = _reward_function(problem)
    if isinstance(function, Reward):
        return function
    try:
        returned = function(problem, text)
    except (MemoryError, RecursionError):  # limits, which the process around this reports
        raise
    except Exception as error:
        return _failed(error, problem)
    try:
        return _reward_from(returned)
    except (TypeError, ValueError, OverflowError) as error:
        return grader_failed(f"the reward function returned {error}")


def prepare_for_problem(problem: Problem) -> None:
    """Load the problem's file, so that its imports do not count as time spent on a text."""
    _reward_function(problem)


def _reward_function(problem: Problem) -> RewardFunction | Reward:
    """Return the function, or a reward that says what is wrong; a file is loaded again when it changes."""
    path = problem.grading.get("file")
    if not isinstance(path, str):
        return grader_failed(f"problem {problem.id!r} names no reward file; set grading.file to its path")
    try:
        source = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        return grader_failed(f"reward file {path}: {error_line(error)}")
    if path not in _loaded or _loaded[path][0] != source:
        _loaded[path] = source, _load(path, source, problem)
    return _loaded[path][1]


def _load(path: str, source: bytes, problem: Problem) -> RewardFunction | Reward:
    if not path.endswith(".py"):
        return grader_failed(f"reward file {path}: the name of a Python file ends in .py")
    name = f"swerve_reward_file_{Path(path).stem}"
    try:
        module = run_source(name, source, path)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return _failed(error, problem)
    function = getattr(module, _FUNCTION, None)
    if not callable(function):
        return grader_failed(f"reward file {path} has no function '{_FUNCTION}'")
    return function  # type: ignore[no-any-return]


def _failed(error: Exception, problem: Problem) -> Reward:
    """Return the error with the last line of the user's file that it went through."""
    path = str(problem.grading["file"])
    lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == path]
    place = f"{Path(path).name}:{lines[-1]}: " if lines else f"{Path(path).name}: "
    return grader_failed(place + error_line(error))


def _reward_from(returned: object) -> Reward:
    """Return what the function returned as a reward.

    Raises:
        TypeError, ValueError, OverflowError: it is no reward; the message says what it was.

    >>> _reward_from({"value": True, "parts": {"format": 1}, "extracted": "7"}).parts
    {'format': 1.0}
    """
    if not isinstance(returned, Mapping):
        value = _number(returned)
        return Reward(value=value, status="unparsed" if value is None else "graded")

    # A mapping says each part of the reward; every one is checked before any is used.
    if "value" not in returned or not set(returned) <= set(_KEYS):
        raise ValueError(f"a mapping with {', '.join(map(repr, returned))}; 'value' is needed, {_KEYS[1:]} are allowed")
    value, parts, extracted = _number(returned["value"]), returned.get("parts") or {}, returned.get("extracted")
    answered = returned.get("answered", value is not None)
    if not isinstance(answered, bool) or (answered and value is None):
        raise TypeError(f"answered={answered!r:.80}; it must be True or False, and False where the value is None")
    if not isinstance(extracted, str | None):
        raise TypeError(f"extracted={extracted!r:.80}; it must be a string or None")
    if not isinstance(parts, Mapping):
        raise TypeError(f"parts={parts!r:.80}; it must be a mapping of names to numbers")
    numbers: dict[str, float] = {}
    for name, part in parts.items():
        number = _number(part)
        if number is None:
            raise ValueError(f"None for the part {name!r}; it must be a number")
        numbers[str(name)] = number
    status: RewardStatus = "unparsed" if value is None else "graded"
    return Reward(value=value, status=status, answered=answered, parts=numbers, extracted=extracted)


def _number(value: object) -> float | None:
    """Return a finite number; arrays of one element (numpy, torch) count as their element."""
    scalar: Any = value.item() if hasattr(value, "item") else value
    if scalar is None:
        return None
    if not isinstance(scalar, Real):
        raise TypeError(f"{value!r:.80} ({type(value).__name__}); {_ALLOWED}")
    number = float(scalar)
    if not math.isfinite(number):
        raise ValueError(f"{number}; a reward must be a finite number")
    return number


def check_reward_file(path: Path | str) -> None:
    """Make sure, without running it, that a file has a function `reward`.

    Raises:
        ConfigError: the file is missing, is no Python, or has no `reward` that takes a problem and a text.
    """
    try:
        source = regular_file(Path(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"reward file {path} cannot be read: {error.strerror}") from error
    try:
        tree = ast.parse(source, filename=str(path))
        names = symtable.symtable(ast.unparse(tree), str(path), "exec").get_symbols()
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno or 1}: not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{path}: not valid Python: {error_line(error)}") from error
    if not any(name.get_name() == _FUNCTION and (name.is_assigned() or name.is_imported()) for name in names):
        raise ConfigError(f"{path}: no function '{_FUNCTION}'; write one: def {_FUNCTION}(problem, text): ...")

    # Of a function that is written here the arguments are known.
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == _FUNCTION:
            arguments = function.args
            num_positional = len(arguments.posonlyargs) + len(arguments.args)
            takes_two = num_positional >= 2 or arguments.vararg is not None
            if not takes_two or num_positional - len(arguments.defaults) > 2 or None in arguments.kw_defaults:
                raise ConfigError(f"{path}:{function.lineno}: '{_FUNCTION}' must take two arguments: (problem, text)")
