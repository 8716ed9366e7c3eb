"""What the pages for contributors say of layers, rooms, files and names is what there is."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from torch.optim.optimizer import register_optimizer_step_pre_hook

from swerve.recipes import load_config
from tests.builders import trained_run

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "swerve"
ARCHITECTURE, FIRST_CHANGE = (
    (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("architecture", "first-change")
)
LONGER = {"artifacts/files.py"}
"""Files of more than 450 lines; none is to be added."""
WORKERS = {
    "CausalTests", "Interruption", "JoinCounts", "LeftOut", "Work", "_Engine", "_Reader", "_Running", "_Scheduler",
}  # fmt: skip
"""Dataclasses that work or count over time."""
OF_NO_PACKAGE = {"campaign", "hostile", "relations", "zoo"}
"""Folders of tests that are of all packages together."""


CONTRACTS = {
    each["name"]: each
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
}


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table with this heading."""
    lines = page.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_layers_are_those_that_are_enforced() -> None:
    wanted = [layer.replace("swerve.", "") for layer in CONTRACTS["imports go down only"]["layers"]]
    assert re.findall(r"```text\n(cli\n.*?)```", ARCHITECTURE, re.DOTALL)[0].splitlines() == wanted


def test_every_room_is_of_one_part_and_the_heart_is_the_one_that_is_enforced() -> None:
    parts = {
        row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in rows(ARCHITECTURE, "| part | rooms | imported by |")
    }
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    named = [room for own in parts.values() for room in own - {"probe"}]
    assert sorted([*named, "probe"]) == sorted(rooms - {"__init__", "__main__"})
    (heart,) = (each for name, each in CONTRACTS.items() if name.startswith("the heart knows"))
    assert {name.split(".")[1] for name in heart["source_modules"]} == parts["heart"]
    assert "enforces four contracts" in ARCHITECTURE
    assert len(CONTRACTS) == 4


def test_names_are_defined_in_the_files_that_pages_say() -> None:
    pages = ARCHITECTURE + FIRST_CHANGE
    said = re.findall(r"`(\w+)`(?: of| in|,? \() ?`([\w/]+\.py)`", pages)
    assert len(said) > 15
    texts = {file: "".join(path.read_text("utf-8") for path in _places(file)) for _, file in said}
    assert [(name, file) for name, file in said if not re.search(rf"\b{name}\b", texts[file])] == []


def test_files_that_pages_name_are_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", ARCHITECTURE + FIRST_CHANGE))
    assert len(named) > 30
    assert [file for file in named if not any(path.is_file() for path in _places(file))] == []
    for _, files, copied in rows(FIRST_CHANGE, "| to add | files below `src/swerve/` | copy |"):
        place = PACKAGE / files.split("`")[1]
        (name,) = re.findall(r"`([\w.]+)`", copied)
        if place.is_file():
            assert name in place.read_text("utf-8")
        else:
            assert (place / name).is_file() or any(
                f"class {name}(" in file.read_text("utf-8") for file in place.glob("*")
            )


def _places(file: str) -> list[Path]:
    """Return the files that a page may mean: by the path, or by its end within the package."""
    return [ROOT / file] if file.startswith("tests/") else [*PACKAGE.rglob(file)]


def test_no_file_has_become_long() -> None:
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path.relative_to(PACKAGE)) for path, size in sizes.items() if size > 450} == LONGER
    assert [path for path in sizes if path.stem in ("utils", "helpers", "misc", "common")] == []


def test_records_are_frozen() -> None:
    written = [
        (node.name, ast.unparse(decorator))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
    ]
    dataclasses = [(name, text) for name, text in written if text.startswith("dataclass")]
    assert len(dataclasses) > 200
    assert {name for name, text in dataclasses if "frozen=True" not in text} == WORKERS


def test_folders_of_tests_are_those_of_the_package() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    others = [folder for folder in folders if not (PACKAGE / folder).is_dir() and folder.parts[0] not in OF_NO_PACKAGE]
    assert others == [Path("claim/planted")]


@pytest.mark.slow
def test_an_rl_step_has_the_frames_that_the_page_says(small_recipe: Path, tmp_path: Path) -> None:
    """From the loop to the optimizer: a function of each row of the table, and none between."""
    found: list[list[tuple[str, str]]] = []

    def noted(*_: Any) -> None:
        frame, frames = sys._getframe(), []
        while frame := frame.f_back:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                frames.append((frame.f_code.co_qualname, str(path.relative_to(PACKAGE / "train"))))
            if frame.f_code.co_name == "_train_phase":
                break
        found.append(frames[::-1])

    config = load_config(small_recipe, ["stages.rl.steps=1", "stages.rl.zero_variance=keep"])
    config = config.model_copy(update={"stages": config.stages[-1:]})
    hook = register_optimizer_step_pre_hook(noted)
    try:
        trained_run(config, tmp_path / "run")
    finally:
        hook.remove()
    told = [re.findall(r"`([\w.]+)` of `([\w/.]+)`", cell)[0] for _, cell in rows(ARCHITECTURE, "| | in `train/` |")]
    assert len(told) == 4
    assert found[-1] == told
