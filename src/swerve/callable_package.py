"""Packages that are called like the function of their name, as `swerve.train` is."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package that can be called.

    Importing a subpackage binds it as an attribute of its parent, so a function of the same name would be replaced or
    not, depending on the order of imports. A package that can be called works in every order.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function of the package's name."""
        return self._function(*args, **options)

    @property
    def _function(self) -> Any:
        """The function, which is imported when it is first needed."""
        name = self.__name__.rpartition(".")[2]
        known = vars(self)
        if name not in known:
            known[name] = getattr(import_module(known["_door"]), name)
        return known[name]

    def __getattr__(self, name: str) -> Any:
        """Return the function under its own name, and what the package itself loads on first use."""
        if name == self.__name__.rpartition(".")[2]:
            return self._function
        return vars(self)["_load"](name)

    @property
    def __signature__(self) -> inspect.Signature:
        """The function's."""
        return inspect.signature(self._function)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """The function's, with its signature."""
        return f"{self._function.__name__}{self.__signature__}\n\n{inspect.getdoc(self._function)}"

    def __dir__(self) -> list[str]:
        """List the public names."""
        return sorted(vars(self)["__all__"])


def make_callable(name: str, door: str) -> None:
    """Make a package that is being imported callable; its documentation becomes that of the function.

    Args:
        name: of the package, such as `swerve.report`.
        door: the module with the function of the same name. It loads on first use, and may be one that imports the
            package.

    >>> import swerve.report
    >>> swerve.report.__doc__.startswith("report(run:")
    True
    """
    package: Any = sys.modules[name]
    known = vars(package)
    known["_door"], known["_load"] = door, known.pop("__getattr__", None) or _nothing(name)
    package.__class__ = CallablePackage


def _nothing(package: str) -> Any:
    def load(name: str) -> Any:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
