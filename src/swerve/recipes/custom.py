"""Load what a recipe names as `FILE.py:NAME` or `package.module:NAME`: functions and classes, of the user's own too."""

from __future__ import annotations

import functools
import hashlib
import importlib.abc
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from swerve.artifacts.files import regular_file
from swerve.errors import ConfigError, SwerveError, nearest

_PREFIX = "swerve_custom_"
"""Of the names of modules made from files."""


def custom_function(path: str, takes: Sequence[str], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function of tensors that makes sure of its result's shape.

    Args:
        path: `FILE.py:NAME` or `package.module:NAME`.
        takes: names of the tensors that it is called with. Its result has the shape of the first one.
        options: its keywords.

    Raises:
        ConfigError: there is no such function, its file cannot be imported, or it does not take tensors and options.
    """
    function = load(path)
    _check_call(path, function, takes, options)

    # A result that broadcasts would be learned from silently, so its shape is compared at every call.
    @functools.wraps(function)
    def call(*tensors: Any, **keywords: Any) -> Any:
        result = function(*tensors, **keywords)
        shape, expected = getattr(result, "shape", None), tensors[0].shape
        if shape != expected:
            returned = type(result).__name__ if shape is None else f"shape {list(shape)}"
            raise SwerveError(f"{path} returned {returned}; it must return a tensor as {takes[0]}, {list(expected)}")
        return result

    return call


def custom_class(
    path: str, base: type, takes: Sequence[str] = (), *, keywords: Sequence[str], options: Mapping[str, Any]
) -> Any:
    """Return a class that inherits from `base`.

    Args:
        path: `FILE.py:NAME` or `package.module:NAME`.
        base: what it must inherit from.
        takes: names of what it is made with, by position.
        keywords: names of what it is made with, by keyword.
        options: further keywords.

    Raises:
        ConfigError: there is no such class, its file cannot be imported, or it is not made with these.
    """
    # It must be a class of the right kind, with everything defined.
    cls = load(path)
    name = f"{base.__module__}.{base.__qualname__}"
    if not inspect.isclass(cls) or base not in cls.__mro__:
        raise ConfigError(f"{path} must be a class that inherits from {name}")
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        raise ConfigError(f"{path} must define {', '.join(missing)}, as {name} says")
    # Its options are keywords beside those that swerve gives.
    if taken := [option for option in options if option in keywords]:
        raise ConfigError(f"{path}: option '{taken[0]}' is what swerve itself gives; call it something else")
    _check_call(path, cls, takes, {**dict.fromkeys(keywords), **options})
    return cls


def source_digest(path: str) -> str | None:
    """Return the SHA-256 of the source that a path is loaded from, of which nothing is run; None if it has no source.

    Raises:
        ConfigError: a file cannot be read.
    """
    place = path.rpartition(":")[0]
    if place.endswith(".py"):
        return hashlib.sha256(_source(place)).hexdigest()
    spec: ModuleSpec | None = None
    folders: Sequence[str] | None = None
    for name in itertools.accumulate(place.split("."), "{}.{}".format):  # `importlib` would import the packages
        spec = next(filter(None, (finder.find_spec(name, folders) for finder in sys.meta_path)), None)
        folders = spec.submodule_search_locations if spec is not None else None
        if folders is None:
            break
    file = Path(spec.origin or "") if spec is not None and spec.name == place else Path()
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def load(path: str) -> Any:
    """Return the function or class of a path.

    Raises:
        ConfigError: it does not exist, or its file cannot be imported.
    """
    place, _, name = path.rpartition(":")
    module = _module(place)
    if not callable(getattr(module, name, None)):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
        public = [key for key in own if not key.startswith("_")]
        hint = nearest(name, own) or (f"; it has {', '.join(public[:8])}" if public else "")
        raise ConfigError(f"{place} has no function or class '{name}'{hint}")
    return getattr(module, name)


@functools.cache
def _module(place: str) -> ModuleType:
    """Import a file or module, once in a process."""
    if place.endswith(".py"):
        return _file(place)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(f"{place} cannot be imported: {error}") from error
        advice = "install its package, or give a file as FILE.py:NAME"
        raise ConfigError(f"there is no module '{error.name}'; {advice}") from None
    except Exception as error:
        raise ConfigError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _source(path: str) -> bytes:
    try:
        return regular_file(Path(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a Python file as FILE.py:NAME") from None


def _file(path: str) -> ModuleType:
    source = _source(path)
    name = f"{_PREFIX}{Path(path).stem}_{hashlib.sha256(source).hexdigest()[:8]}"
    try:
        return run_source(name, source, path)
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}:{error.lineno}: not valid Python: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{custom_place(error) or path}: {type(error).__name__}: {error}") from error


def run_source(name: str, source: bytes, path: str) -> ModuleType:
    """Return the module of a source that was read: the importer of files may take bytecode from before an edit.

    Raises:
        Exception: whatever running it raises.
    """
    loader = _Source(source, path)
    spec = ModuleSpec(name, loader, origin=path)
    spec.has_location = True  # gives it `__file__`
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look themselves up there
    loader.exec_module(module)
    return module


class _Source(importlib.abc.InspectLoader):
    def __init__(self, source: bytes, path: str) -> None:
        self._source, self._path = source, path

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._source)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._source, self._path)


def custom_place(error: BaseException) -> str | None:
    """Return the last line of a user's file that an error went through, as `FILE:LINE`; None if it was in none."""
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(_PREFIX)
    ]
    return places[-1] if places else None


def _check_call(path: str, function: Any, takes: Sequence[str], keywords: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C
        return
    try:
        signature.bind(*takes, **keywords)
    except TypeError as error:
        name = path.rpartition(":")[2]
        given = ", ".join([*takes, *(f"{key}=" for key in keywords)])
        raise ConfigError(
            f"{path} takes ({', '.join(signature.parameters)}) and is called as {name}({given}): {error}; "
            "the keys of 'options' are its keywords"
        ) from None
