"""What the documentation says of keys, columns, commands, names and files is what there is."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
import typer

import swerve
from swerve.artifacts import response_columns, tables
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.study import Study
from swerve.cli.app import app
from swerve.config.presets import PRESETS
from swerve.config.recipe import Config
from swerve.notebook import GREY, HUE, INK
from swerve.probe.recipe import ProbeRecipe
from swerve.problems.addition import AdditionTask
from swerve.recipes import config_schema, load_config, recipe_text, shipped_recipes
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.loader import load_document
from swerve.report.draw.figures import COLOURS
from swerve.study.plan import plan_study
from swerve.token_categories import category_names
from tests.cases import each

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?: {4}|\$ )(?:\.venv/bin/|(?:[A-Z_]+=\S+ )*torchrun .* -m )?(swerve .*)$", re.MULTILINE)


def _blocks(page: Path, language: str) -> list[str]:
    return [body for name, body in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def _generated() -> dict[str, str]:
    """Return the pages that are written from the code when the docs are built, by their names below docs/."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        return importlib.import_module("hooks").pages()


_GENERATED = _generated()


def _sections(page: Path) -> dict[str, str]:
    """Return the text under each heading of a page, up to the next heading of any level."""
    return dict(_text_sections(_text(page)))


def _text(page: Path) -> str:
    name = str(page.relative_to(DOCS)) if page.is_relative_to(DOCS) else ""
    return _GENERATED.get(name) or page.read_text(encoding="utf-8")


def _text_sections(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^#{1,4} (.+)$", _FENCE.sub("", text), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _rows(section: str) -> list[list[str]]:
    """Return the cells of the table rows whose first cell is one word of code."""
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def _slug(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _links(page: Path) -> list[str]:
    text = _FENCE.sub("", _text(page))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


@each("page", [*PAGES, *(DOCS / name for name in _GENERATED)])
def test_internal_links_resolve(page):
    broken = []
    for link in _links(page):
        name, _, anchor = link.partition("#")
        target = page if not name else (page.parent / name).resolve()
        is_page = target.is_file() or str(target.relative_to(ROOT)).removeprefix("docs/") in _GENERATED
        if not is_page or (anchor and anchor not in map(_slug, _sections(target))):
            broken.append(link)
    assert broken == []


def test_the_readme_is_short_and_begins_with_two_commands():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
    make, uv, *_ = _blocks(ROOT / "README.md", "console")
    assert make == "$ make demo\n$ make test\n"
    assert re.findall(r"^\$ (.*)$", uv, re.MULTILINE)[1:] == ["uv run swerve demo", "uv run pytest"]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(re.search(rf"^{command}", ci, re.MULTILINE) for command in ("make demo", "make test"))


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {page.name for page in DOCS.glob("*.md")} == listed


def test_docs_notebooks_and_figures_have_the_colours_of_the_page():
    page = set(re.findall(r"#[0-9a-f]{6}", (ROOT / "src/swerve/report/assets/page.css").read_text(encoding="utf-8")))
    docs = (DOCS / "extra.css").read_text(encoding="utf-8") + (DOCS / "images/mark.svg").read_text(encoding="utf-8")
    assert {*re.findall(r"#[0-9a-f]{6}", docs), HUE, GREY, INK, *COLOURS} <= page


_RECIPES = [
    block for page in PAGES for block in _blocks(page, "yaml") if re.search(r"^(stages|extends):", block, re.MULTILINE)
]


def test_recipes_load(tmp_path):
    assert _RECIPES
    for block in _RECIPES:
        path = tmp_path / "recipe.yaml"
        path.write_text(block, encoding="utf-8")
        assert load_config(path).stages


_COMMANDS = [
    (name, line.split(" #")[0].strip())
    for page, name in zip(PAGES, NAMES, strict=True)
    for line in _COMMAND.findall(page.read_text(encoding="utf-8").replace("\\\n", ""))
]


_SWERVE = typer.main.get_command(app)


def _find(words):
    """Return the command that a line names and the words left for it."""
    command = _SWERVE
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


@each(("page", "line"), _COMMANDS)
def test_commands_parse(page, line):
    words = shlex.split(line.partition(" > ")[0].partition(" -- ")[0])[1:]
    command, rest = _find(words)
    # What is left for a group are options of its own, or words that it does not know.
    if rest and hasattr(command, "commands"):
        assert set(rest) <= {word for parameter in command.params for word in parameter.opts}, rest
        return
    parameters = command.make_context(words[0], list(rest)).params
    overrides = list(parameters.get("overrides") or [])
    if parameters.get("name") is not None:
        assert recipe_text(parameters["name"])
    elif overrides:
        source = next((parameters[name] for name in ("recipe", "run", "source") if parameters.get(name)), None)
        _load_with(words[0], source, overrides)


def _load_with(command, recipe, overrides):
    """Load what the line would; a recipe of the reader's own stands for the shipped one that it was copied from."""
    if command == "demo":
        from swerve.cli.pipeline import demo_recipe

        recipe, overrides = demo_recipe(overrides)
    if command == "probe" and recipe in shipped_recipes("probe"):
        load_document(ProbeRecipe, recipe, overrides)
    elif command == "study":
        study = recipe if recipe in shipped_recipes("study") else "demo_study"
        with pytest.MonkeyPatch.context() as patch:
            # The published number of problems, not what is on the hub.
            patch.setattr("swerve.study.plan.data_sizes", partial(data_sizes, asks_hub=False))
            assert plan_study(study, overrides, out=None, runs=ROOT / "no-such-runs").all_jobs
    else:
        load_config(recipe if recipe in shipped_recipes() else "demo_addition", overrides)


def test_every_column_of_every_table_is_in_the_reference():
    page = _GENERATED["reference/probe-tables.md"] + _GENERATED["reference/tables.md"]
    named = [*vars(tables).items(), *vars(response_columns).items()]
    schemas = [schema for name, schema in named if "SCHEMA" in name]
    assert len(schemas) > 14
    for column in {column for schema in schemas for column in schema.names}:
        assert re.search(rf"^\| `{column}` \| [^|]+ \| [^|]{{4,}} \|$", page, re.MULTILINE), column


def test_every_key_of_a_record_is_in_the_reference():
    for page, record in (("summary", ProbeSummary), ("evaluation", Evaluation), ("study", Study)):
        rows = _rows(_GENERATED[f"reference/{page}.md"])
        assert {cells[0].strip("`") for cells in rows} >= set(record.model_fields)
    assert "| `js` | [SkewedMean]" in _GENERATED["reference/summary-findings.md"]
    assert "| `entropy` | E or null | Of the checkpoint. |" in _GENERATED["reference/summary-findings.md"]


def _key_tables():
    spec = importlib.util.spec_from_file_location("key_tables", DOCS / "key_tables.py")
    key_tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(key_tables)
    return key_tables


def test_tables_between_markers_are_written_from_the_code():
    key_tables = _key_tables()
    stale = [page.name for page in key_tables.FILLED if page.read_text("utf-8") != key_tables.filled_page(page)]
    assert stale == []


def test_every_key_of_a_recipe_is_in_the_reference_with_its_meaning():
    text = "".join(importlib.import_module("recipe_pages").pages().values())
    keys = {key for cls in config_schema()["$defs"].values() for key in cls.get("properties", ())}
    assert {key for key in keys | set(Config.model_fields) if f"\n| `{key}` |" not in text} == {"kind"}
    assert re.findall(r".* \|  \|\n", text) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_documented(preset):
    section = _sections(DOCS / "conventions.md")["Presets"]
    assert f"| `{preset}` |" in section
    assert [cells[0].strip("`") for cells in _rows(section)] == list(PRESETS[preset])


def _commands(command, name):
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from _commands(child, f"{name} {word}")


def test_every_command_and_option_is_in_the_reference():
    sections = {
        heading: text for page in _GENERATED if "commands" in page for heading, text in _text_sections(_GENERATED[page])
    }
    commands = dict(_commands(_SWERVE, "swerve"))
    assert set(sections) >= commands.keys() - {"swerve"}
    for name, command in commands.items():
        words = {word for parameter in command.params for word in parameter.opts if word.startswith("--")}
        missing = {word for word in words if word not in sections.get(name, word)}
        assert name == "swerve" or not missing, (name, missing)


def test_exit_statuses_are_documented():
    page = _sections(DOCS / "cli.md")["Exit status"]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == ["0", "1", "2", "130", "143"]


def test_public_names_are_in_the_reference():
    text = "".join(_GENERATED.values())
    functions = [name for name in swerve.__all__ if callable(getattr(swerve, name))]
    modules = (swerve.functional, swerve.statistics, swerve.rewards, swerve.plot)
    for name in (*functions, *(name for module in modules for name in module.__all__)):
        assert re.search(rf"^::: swerve\.[\w.]+\.{name}$", text, re.MULTILINE), name


def test_functions_are_in_the_objectives_page():
    text = (DOCS / "objectives.md").read_text(encoding="utf-8")
    assert [name for name in swerve.functional.__all__ if not re.search(rf"`{re.escape(name)}\b", text)] == []


def test_categories_are_listed_by_precedence():
    rows = _rows(_sections(DOCS / "probe.md")["Categories"])
    assert tuple(cells[0].strip("`") for cells in rows) == category_names()


def test_every_metric_is_in_the_reference(small_run):
    from swerve.artifacts.metrics import read_metrics

    rows = {cells[0].strip("`"): cells[1] for cells in _rows(_GENERATED["reference/metrics.md"])}
    assert {name for record in read_metrics(small_run.metrics_path) for name in record} <= rows.keys()
    assert [name for name, words in rows.items() if not words] == []


def test_the_traces_shown_are_what_the_families_write():
    from swerve.problems.addition import Addition
    from swerve.problems.multiplication import Multiplication, MultiplicationTask

    shown = " ".join((DOCS / "tasks.md").read_text(encoding="utf-8").split())
    addition = Addition(AdditionTask()).problem("1234", "0066")
    multiplication = Multiplication(MultiplicationTask()).problem("4831", "7")
    for problem in (addition, multiplication):
        assert f"question {problem.question} trace {problem.solution} answer {problem.answer}" in shown


def test_every_name_of_the_reference_can_be_found() -> None:
    names = re.findall(r"^::: (\S+)$", "".join(_GENERATED.values()), re.MULTILINE)
    assert len(names) > 150
    for name in names:
        pkgutil.resolve_name(name)
