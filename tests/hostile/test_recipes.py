"""Recipes with a value of another kind anywhere: one line that names the key, status 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from swerve.errors import ConfigError
from swerve.recipes import load_config, recipe_text

WRONG = [{}, {"kind": [None]}, {"kind": {}}, [[]], [None], "x", -1, 1e300, None, True, {1: 2}, "2020-01-01"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(child, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("name", ["demo_addition", pytest.param("k_and_k", marks=pytest.mark.slow)])
def test_a_wrong_value_anywhere_is_a_configuration_error(tmp_path: Path, name: str) -> None:
    recipe = yaml.safe_load(recipe_text(name))
    recipe.pop("profiles", None)  # which a loader only looks into when one is chosen
    path = tmp_path / "recipe.yaml"
    said, num = [], 0
    for number, place in enumerate(places(recipe)):
        for wrong in (WRONG[number % len(WRONG)], WRONG[(number + 5) % len(WRONG)]):
            path.write_text(yaml.safe_dump(changed(recipe, place, wrong)))
            num += 1
            try:
                load_config(path)
            except ConfigError as error:
                said.append(str(error))
    # A few of the values are right where they land, such as null for a bound.
    assert len(said) > 0.8 * num
    lines = [line.strip() for text in said for line in text.splitlines()]
    assert [line for line in lines if not line.startswith(str(path))] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"extends: demo_addition\nstages.rl.advantages: {kind: {}}", "recipe.yaml:2"),
        (b"extends: demo_addition\nstages.rl.loss: {kind: [null]}", "recipe.yaml:2"),
        (b"stages: \xff", "recipe.yaml:1: not UTF-8 text"),
        (b"a: &a [*a]", "recipe.yaml"),
        (b"[" * 10_000, "recipe.yaml"),
        (b"seed: " + b"9" * 5000, "recipe.yaml"),
    ],
)
def test_a_hostile_recipe_is_one_line(refused: Any, tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "recipe.yaml").write_bytes(text)
    assert said in refused("config", "check", "recipe.yaml", status=2)
