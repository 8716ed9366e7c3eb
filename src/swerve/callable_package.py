"""Packages that are called like the function of their name, as `swerve.train` is."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package that can be called.

    Importing a subpackage binds it as an attribute of its parent, so a function of the same name would be replaced or
    not, depending on the order of imports. A package that can be called works in every order.
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function of the package's name."""
        return vars(self)[self.__name__.rpartition(".")[2]](*args, **options)

    def __dir__(self) -> list[str]:
        """List the public names."""
        return sorted(vars(self)["__all__"])


def make_callable(name: str) -> None:
    """Make a package that is being imported callable; its documentation becomes that of the function.

    Args:
        name: of the package, such as `swerve.train`, which defines a function `train`.

    >>> import swerve.report
    >>> swerve.report.__doc__.startswith("report(run:")
    True
    """
    package: Any = sys.modules[name]
    function = vars(package)[name.rpartition(".")[2]]
    package.__class__ = CallablePackage
    package.__signature__ = inspect.signature(function)
    package.__doc__ = f"{function.__name__}{package.__signature__}\n\n{inspect.getdoc(function)}"
