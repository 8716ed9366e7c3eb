"""Configuration classes that are read from the signatures of the functions and classes that they are the keys of.

The keys are the keyword-only arguments of a function, or the fields of a class. Types are looked up by name in
`swerve.settings`, whose numbers have bounds; defaults are the signature's, descriptions those of `Args` in its
docstring. The source is parsed, not imported: what it says is needed without torch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import re
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, create_model

from swerve import settings
from swerve.settings import Choice

_Kind = TypeVar("_Kind", bound=Choice)


def configurations(table: Mapping[str, tuple[str, type[_Kind]]], *, suffix: str) -> dict[str, type[_Kind]]:
    """Return the configuration classes of functions and classes of swerve, by kind.

    Args:
        table: by kind, the function as `package.module:NAME` and the class to inherit from, with keys that are not its
            own.
        suffix: of the classes' names.

    >>> classes = configurations({"clip": ("functional.losses:clip_loss", Choice)}, suffix="Loss")
    >>> classes["clip"](high=0.28).keywords
    {'low': 0.2, 'high': 0.28, 'log_ratio_clamp': None}
    """
    return {
        kind: _configuration(f"swerve.{path}", base, kind=kind, suffix=suffix) for kind, (path, base) in table.items()
    }


def one_of(kinds: Mapping[str, type[Choice]]) -> Any:
    """Return the type of a key whose `kind` says which of these it is."""
    return Annotated[functools.reduce(operator.or_, kinds.values()), Field(discriminator="kind")]


def _configuration(path: str, base: type[_Kind], *, kind: str, suffix: str) -> type[_Kind]:
    stub = _without_body(path)
    document = inspect.getdoc(stub) or ""
    title, meanings = document.partition("\n")[0].removeprefix("Return "), _meanings(document)

    # The keys with their types and defaults; what has none is required.
    if inspect.isclass(stub):
        takes: list[str] = []
        own = {key: (hint, vars(stub).get(key, ...)) for key, hint in stub.__annotations__.items()}
    else:
        arguments = inspect.signature(stub).parameters.values()
        takes = [one.name for one in arguments if one.kind is not one.KEYWORD_ONLY]
        keywords = [one for one in arguments if one.kind is one.KEYWORD_ONLY]
        own = {one.name: (one.annotation, ... if one.default is one.empty else one.default) for one in keywords}

    keys: dict[str, Any] = {"kind": (Literal[kind], kind)}
    for key, (hint, default) in own.items():
        keys[key] = (hint, Field(default, description=meanings.get(key)))
    name = "".join(word.capitalize() for word in kind.split("_")) + suffix
    made = create_model(name, __base__=base, __module__=base.__module__, __doc__=title[:1].upper() + title[1:], **keys)
    made.function = path
    made.takes = tuple(takes)
    return made


def _without_body(path: str) -> Any:
    """Return a function or class with the signature and docstring of another one, whose tensors have no types."""
    module, _, name = path.partition(":")
    names = {**vars(settings), "Literal": Literal}
    for statement in _parsed(module).body:
        is_words = isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith("Literal[")
        is_meant = isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name == name
        if is_words or is_meant:
            exec(compile(ast.Module([statement], []), module, "exec", dont_inherit=True), names)
    return names[name]


@functools.cache
def _parsed(module: str) -> ast.Module:
    """Return the source of a module: of functions the signatures, of classes the fields, of both the docstrings."""
    package, *folders, file = module.split(".")
    source = resources.files(package).joinpath(*folders, f"{file}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            statement.body = statement.body[:1]
            statement.returns = None
            for argument in statement.args.args:
                argument.annotation = None
        if isinstance(statement, ast.ClassDef):
            statement.body = [part for part in statement.body if isinstance(part, ast.AnnAssign | ast.Expr)]
            statement.bases = []
            statement.decorator_list = []
    return tree


def _meanings(document: str) -> dict[str, str]:
    r"""Return what the `Args` of a docstring say of each argument.

    >>> _meanings("Return x.\n\nArgs:\n    low: The lower\n        bound.\n    high: the upper.\n\nRaises: ...")
    {'low': 'The lower bound.', 'high': 'The upper.'}
    """
    section = document.partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in entries}
    return {name: text[:1].upper() + text[1:] for name, text in texts.items()}
