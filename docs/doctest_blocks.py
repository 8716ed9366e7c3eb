"""Shows the examples of docstrings as code, wherever in a docstring they stand (an extension of griffe)."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["DoctestBlocks"]

_DOCTEST = re.compile(r"^>>> .*\n(?:.+\n)*", re.MULTILINE)
_EXAMPLE = re.compile(r"^Example:\n(?! *>>>)((?: {4}.*\n)+)", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Puts a fence around doctests, which Markdown would read as nested quotations, and around lines of an example."""

    def on_object(self, *, obj: griffe.Object, **_kwargs: Any) -> None:
        """Change an object's docstring before it is parsed."""
        if obj.docstring is not None:
            text = _DOCTEST.sub(r"```pycon\n\g<0>```\n", obj.docstring.value + "\n")
            obj.docstring.value = _EXAMPLE.sub(r"Example:\n    ```python\n\1    ```\n", text).rstrip("\n")
