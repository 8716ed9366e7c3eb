"""The paper profiles have the published settings, and say what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from swerve.probe.recipe import ProbeRecipe
from swerve.recipes import load_config, recipe_text, shipped_recipes
from swerve.recipes.files import RecipeUse
from swerve.recipes.layers import read_layers
from swerve.recipes.loader import load_document
from tests.cases import each

PUBLISHED: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text())


def resolved(name: str) -> Mapping[str, Any]:
    if name in shipped_recipes("probe"):
        return load_document(ProbeRecipe, name, ["profile=paper"]).model_dump(mode="json")
    return load_config(name, ["profile=paper"]).model_dump(mode="json")


def value_at(data: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(data, list):
            named = [item for item in data if part in (item.get("name"), item.get("kind"))]
            data = named[0] if named else data[int(part)]
        else:
            data = data[part]
    return data


@each("name", list(PUBLISHED))
def test_the_paper_profile_has_the_published_settings(name: str) -> None:
    config = resolved(name)
    published = {key: value for key, value in PUBLISHED[name].items() if key not in ("differences", "unknown")}
    published = {key: float(value) if key.endswith((".lr", ".eps")) else value for key, value in published.items()}
    assert {key: value_at(config, key) for key in published} == published


def listed(name: str, use: RecipeUse, heading: str) -> list[str]:
    """The entries of a list under a heading of a recipe's comment."""
    comment = [line[1:].strip() for line in recipe_text(name, use).splitlines() if line.startswith("#")]
    entries: list[str] = []
    for text in comment[comment.index(heading) + 1 :] if heading in comment else []:
        if text.startswith("- "):
            entries.append(text)
        elif not text or text.endswith(":"):
            break
        else:
            entries[-1] += f" {text}"
    return entries


@each("name", list(PUBLISHED))
def test_a_recipe_lists_what_differs_and_what_is_not_known(name: str) -> None:
    use: RecipeUse = "probe" if name in shipped_recipes("probe") else "train"
    for heading, words in (
        ("Different from the published settings:", PUBLISHED[name]["differences"]),
        ("Not published:", PUBLISHED[name]["unknown"]),
    ):
        entries = listed(name, use, heading)
        assert len(entries) == len(words), (heading, entries)
        for word, entry in zip(words, entries, strict=True):
            assert word in entry


def test_every_recipe_with_a_paper_profile_is_in_the_table() -> None:
    uses: tuple[RecipeUse, ...] = ("train", "probe")
    with_paper = {
        name for use in uses for name in shipped_recipes(use) if "paper" in read_layers(name, use).profile_names
    }
    assert with_paper == set(PUBLISHED)
