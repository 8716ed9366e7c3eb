"""Write the tables of functions with their equations and of figures between the markers of pages.

python docs/key_tables.py           write the pages
python docs/key_tables.py --check   exit with 1 if they are not what the code says
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import swerve.functional
from swerve.report.figures import figure_specs

FILLED = tuple(Path(__file__).parent / f"{name}.md" for name in ("figures", "objectives"))
_PLACE = re.compile(r"<!-- (functions|figures) of ([\w ]+) -->\n(?:\n|\|.*\n)*<!-- end of \1 -->")


def filled_page(path: Path) -> str:
    """Return a page with the tables between its markers written anew; the rest of the page is as it is."""

    def filled(place: re.Match[str]) -> str:
        kind, name = place.groups()
        rows = _function_rows(name) if kind == "functions" else _figure_rows()
        return "\n".join([f"<!-- {kind} of {name} -->\n", *rows, f"\n<!-- end of {kind} -->"])

    return _PLACE.sub(filled, path.read_text(encoding="utf-8"))


def _figure_rows() -> list[str]:
    rows = [f"| `{name}` | {spec.shows} | {spec.needs} |" for name, spec in figure_specs().items()]
    return ["| name | shows | needs |", "|---|---|---|", *rows]


def _function_rows(module: str) -> list[str]:
    """Return a row for each public function of a module of `swerve.functional`: its first line and its equation."""
    rows = ["| function | definition |", "|---|---|"]
    for name in swerve.functional.__all__:
        function = getattr(swerve.functional, name)
        if inspect.isfunction(function) and function.__module__ == f"swerve.functional.{module}":
            first, *paragraphs = (inspect.getdoc(function) or "").split("\n\n")
            # The equation is the first paragraph after the first line, if that is one: none has a sentence in it.
            lines = paragraphs[0].splitlines() if paragraphs else []
            is_equation = not any(re.search(r"^(Raises|>>>)|[a-z`)]\. ?[A-Z]|[.]$", line) for line in lines)
            shown = "".join(f"<br>`{line.strip()}`" for line in lines if is_equation)
            words = re.sub(r"^Return (\w)", lambda word: word[1].upper(), " ".join(first.split()))
            rows.append(f"| `{name}` | {words}{shown} |".replace("||", r"\|\|"))
    return rows


if __name__ == "__main__":
    written = {path: filled_page(path) for path in FILLED}
    if "--check" in sys.argv:
        sys.exit(any(file.read_text(encoding="utf-8") != text for file, text in written.items()))
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")
