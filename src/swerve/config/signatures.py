"""Configuration classes that are read from the signatures of the functions and classes that they are the keys of.

The keys are the keyword-only arguments of a function, or the fields of a class. Types are looked up by name in
`swerve.settings`, whose numbers have bounds; defaults are the signature's, descriptions those of `Args` in its
docstring. The source is parsed, not imported: what it says is needed without torch.
"""

from __future__ import annotations

import ast
import builtins
import functools
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
    module, _, name = path.partition(":")
    statements = {getattr(statement, "name", None): statement for statement in _parsed(module).body}
    stub = statements[name]
    assert isinstance(stub, ast.FunctionDef | ast.ClassDef), path
    document = ast.get_docstring(stub) or ""
    title, meanings = document.partition("\n")[0].removeprefix("Return "), _meanings(document)

    # The keys with their types and defaults; what has none is required.
    takes: list[str] = []
    own: dict[str, tuple[ast.expr | None, ast.expr | None]]
    if isinstance(stub, ast.ClassDef):
        fields = [part for part in stub.body if isinstance(part, ast.AnnAssign)]
        own = {ast.unparse(field.target): (field.annotation, field.value) for field in fields}
    else:
        takes = [argument.arg for argument in stub.args.args]
        keywords = zip(stub.args.kwonlyargs, stub.args.kw_defaults, strict=True)
        own = {argument.arg: (argument.annotation, default) for argument, default in keywords}

    keys: dict[str, Any] = {"kind": (Literal[kind], kind)}
    for key, (hint, default) in own.items():
        value = ... if default is None else ast.literal_eval(default)
        keys[key] = (_type(hint, module), Field(value, description=meanings.get(key)))
    name = "".join(word.capitalize() for word in kind.split("_")) + suffix
    # Descriptions are given: pydantic would look for this class's source in every module that is loaded.
    given: dict[str, Any] = {"use_attribute_docstrings": False}
    made = create_model(
        name,
        __base__=base,
        __module__=base.__module__,
        __doc__=title[:1].upper() + title[1:],
        __cls_kwargs__=given,
        **keys,
    )
    made.function = path
    made.takes = tuple(takes)
    return made


def _type(hint: ast.expr | None, module: str) -> Any:
    """Return the type that an annotation means: a name of `settings` or of Python, choices, or a union of these."""
    match hint:
        case ast.BinOp(left=left, right=right):
            return _type(left, module) | _type(right, module)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return Literal[ast.literal_eval(choices)]
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if hasattr(settings, name):
            return getattr(settings, name)
        case ast.Name(id="bool" | "float" | "int" | "str" as name):
            return getattr(builtins, name)
    # Names of choices that the module itself gives.
    for statement in _parsed(module).body:
        if isinstance(statement, ast.Assign) and hint and ast.unparse(statement.targets[0]) == ast.unparse(hint):
            return _type(statement.value, module)
    raise TypeError(f"{module}: the type {ast.unparse(hint) if hint else 'that is missing'} is not known for a key")


@functools.cache
def _parsed(module: str) -> ast.Module:
    package, *folders, file = module.split(".")
    return ast.parse(resources.files(package).joinpath(*folders, f"{file}.py").read_text(encoding="utf-8"))


def _meanings(document: str) -> dict[str, str]:
    r"""Return what the `Args` of a docstring say of each argument.

    >>> _meanings("Return x.\n\nArgs:\n    low: The lower\n        bound.\n    high: the upper.\n\nRaises: ...")
    {'low': 'The lower bound.', 'high': 'The upper.'}
    """
    section = document.partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in entries}
    return {name: text[:1].upper() + text[1:] for name, text in texts.items()}
