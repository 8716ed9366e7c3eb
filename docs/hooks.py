"""A hook of MkDocs: pages of the reference are written from the code whenever the docs are built, and kept nowhere."""

from __future__ import annotations

from typing import Any

import command_pages
import function_pages
import recipe_pages
import result_pages

_PARTS = {
    "Commands": command_pages,
    "Recipes": recipe_pages,
    "What runs write": result_pages,
    "Python": function_pages,
}
"""Where the pages stand in the navigation, below Reference."""

_FOUND_LATER = "---\nsearch:\n  boost: 0.3\n---\n\n"
"""Of a page: a search lists the pages that explain a word before these."""


def pages() -> dict[str, str]:
    """Return the text of every page by its name below docs/."""
    return {name: text for part in _PARTS.values() for name, text in part.pages().items()}


def on_config(config: Any) -> None:
    """Add the pages to the navigation."""
    [reference] = [entry["Reference"] for entry in config.nav if "Reference" in entry]
    for title, part in _PARTS.items():
        headings = {name: text.partition("\n")[0].lstrip("# ") for name, text in part.pages().items()}
        reference.append({title: [{line.removeprefix(f"{title}: "): name} for name, line in headings.items()]})


def on_files(files: Any, config: Any) -> None:
    """Add the pages to the docs."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=_FOUND_LATER + text))
