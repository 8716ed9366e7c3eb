"""The pages that studies make are what their results say, and no script imports what does not exist."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "studies").rglob("*.py")])
PAGE = (ROOT / "docs" / "graded-data.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _root_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def _missing(script: Path) -> list[str]:
    """Return the lines of a script that import from this repository what is not there."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    compile(tree, str(script), "exec")
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    return [
        f"{script.relative_to(ROOT)}:{node.lineno}: {node.module} has no {alias.name}"
        for node in imported
        if node.module.split(".")[0] in ("swerve", "studies", "benchmarks")
        for alias in node.names
        if not _exists(node.module, alias.name)
    ]


def _exists(module: str, name: str) -> bool:
    if module.startswith("swerve"):
        return _is_importable(module) and (
            hasattr(importlib.import_module(module), name) or _is_importable(f"{module}.{name}")
        )
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return (path / f"{name}.py").exists()
    names = ast.walk(ast.parse(path.with_suffix(".py").read_text(encoding="utf-8")))
    return any(name in (getattr(node, "name", None), getattr(node, "id", None)) for node in names)


def _is_importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def test_whatever_a_script_imports_from_this_repository_is_there():
    assert [line for script in SCRIPTS for line in _missing(script)] == []


def test_an_import_of_what_moved_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "markdown.py").write_text("def table(): ...\nnumber = 1\n")
    script = tmp_path / "studies" / "moved.py"
    script.write_text(
        "from studies.markdown import number, percent, table\n"
        "from swerve.nowhere import name\n"
        "from swerve import version\n"
        "from swerve.types import Problem, Gone\n"
    )
    assert _missing(script) == [
        "studies/moved.py:1: studies.markdown has no percent",
        "studies/moved.py:2: swerve.nowhere has no name",
        "studies/moved.py:4: swerve.types has no Gone",
    ]


@pytest.mark.parametrize("name", ["objectives", "grading", "probe_findings", "nulls", "stories"])
def test_a_page_is_made_from_the_results(name):
    markdown = importlib.import_module("studies.markdown")
    study = importlib.import_module(f"studies.{name}.__main__").STUDY
    records = importlib.import_module("studies.study").read_records(ROOT / "studies" / "results" / study.results)
    page = (ROOT / "docs" / study.page).read_text(encoding="utf-8")
    tables = study.tables(records)
    assert tables
    assert markdown.filled(page, tables) == page


@pytest.fixture
def grading():
    return importlib.import_module("studies.grading.tables")


@pytest.fixture
def records():
    return importlib.import_module("studies.study").read_records(ROOT / "studies" / "results" / "grading.jsonl")


def test_every_disagreement_was_looked_at(grading, records):
    assert grading.NOT_LOOKED_AT not in "".join(grading.tables(records).values())
    assert grading.stale_reasons(records) == []


def test_a_new_disagreement_is_shown_as_not_looked_at(grading, records):
    [maths] = [record for record in records if record["kind"] == "math"]
    new = {**maths["disagreements"][0], "id": "test/algebra/1.json, sample 0", "gold": "a|b", "value": 0.0}
    changed = [{**maths, "disagreements": [new]} if record is maths else record for record in records]
    [row] = [
        line
        for text in grading.tables(changed).values()
        for line in text.splitlines()
        if line.startswith("| `test/algebra/1.json")
    ]
    assert row == r"| `test/algebra/1.json, sample 0` | `a\|b` | `10000` | wrong | 0 | **not looked at yet** |"
    assert grading.stale_reasons(changed) == ["math: test/prealgebra/1130.json, sample 7"]


def test_numbers_tables_and_code_in_markdown():
    markdown = importlib.import_module("studies.markdown")
    estimate = {"mean": 0.0625, "low": 0.01234, "high": 0.1}
    assert [markdown.percent(None), markdown.percent(0.0625, 0), markdown.percent(estimate)] == [
        "-",
        "6%",
        "6.2% [1.2, 10.0]",
    ]
    assert [markdown.number(0.0625, 2), markdown.number(estimate)] == ["0.06", "0.062 [0.012, 0.100]"]
    assert [markdown.size(0.0012345), markdown.size(estimate)] == ["0.0012", "0.0625 [0.0123, 0.1]"]
    assert markdown.code("a\n| `b`") == r"`a \| 'b'`"
    assert markdown.code("123456789", longest=8) == "`1234 ...`"
    assert markdown.table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert markdown.table(["a"], []) == ""


def test_a_page_without_a_place_for_a_table_is_refused():
    markdown = importlib.import_module("studies.markdown")
    assert markdown.filled("<!-- t -->\nold\n<!-- /t -->\n", {"t": "new"}) == "<!-- t -->\n\nnew\n\n<!-- /t -->\n"
    with pytest.raises(ValueError, match="the page has no place for 'agreement': put <!-- agreement --> and"):
        markdown.filled("# Graded data", {"agreement": "| a |"})


def test_results_are_appended_to_a_file_that_begins_with_the_versions(tmp_path):
    study = importlib.import_module("studies.study")
    path = tmp_path / "results" / "one.jsonl"
    assert study.read_records(path) == []
    study.append_record(path, {"kind": "run", "values": [0.123456789, 3], "name": "a"})
    study.append_record(path, {"kind": "run", "values": ()})
    versions, first, second = study.read_records(path)
    assert set(versions) == {"kind", "date", "machine", "swerve", "torch", "transformers"}
    assert first == {"kind": "run", "values": [0.12346, 3], "name": "a"}
    assert second == {"kind": "run", "values": []}
