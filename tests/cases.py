"""One test for a table of cases: what `pytest.mark.parametrize` writes, without a test of its own for each case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every case, also after one that fails; the error says which cases failed.

    The arguments are those of `pytest.mark.parametrize`, and decorators stack likewise. It is for cases of a
    millisecond: pytest's own cost of a test is several.
    """
    keys = (names,) if isinstance(names, str) else names
    rows = [(case,) if isinstance(names, str) else tuple(case) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**others: Any) -> None:
            errors = []
            for row in rows:
                try:
                    test(**others, **dict(zip(keys, row, strict=True)))
                # What pytest raises where an expected error did not come is no Exception.
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(
                        "with " + ", ".join(f"{key}={value!r}" for key, value in zip(keys, row, strict=True))
                    )
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(rows)} cases of {test.__name__}", errors)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
