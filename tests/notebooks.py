"""Runs notebooks without Jupyter and keeps what their cells show: `python tests/notebooks.py FILE...`."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

_SHOWN_CHARS = 40_000


def run_notebook(path: Path) -> dict[str, Any]:
    """Run the cells of a notebook in one namespace and in this process's directory; return it with their outputs."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = _run_cell("".join(cell["source"]), namespace, number)
    return notebook


def _run_cell(source: str, namespace: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell; return what it printed and the value of its last line, as a notebook shows them."""
    statements = ast.parse(source).body
    last = statements.pop() if statements and isinstance(statements[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), f"cell {number}", "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}
        )
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    """Return a value by the types of content in which a notebook shows it; axes as their figure."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        text = value._repr_html_()
        assert len(text) < _SHOWN_CHARS, f"{len(text)} characters of HTML are too many for an output that is kept"
        data["text/html"] = text.splitlines(keepends=True)
    if hasattr(value, "get_figure"):
        picture = io.BytesIO()
        value.get_figure().savefig(picture, format="png", dpi=70, bbox_inches="tight")  # as Jupyter does
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
    return data


if __name__ == "__main__":
    for name in sys.argv[1:]:
        done = run_notebook(Path(name))
        Path(name).write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
