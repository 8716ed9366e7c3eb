"""Recipes: the YAML files that ship with swerve, and the loader for these and for anybody's own."""

from __future__ import annotations

from swerve.recipes.load import (
    config_hash,
    config_schema,
    differing_keys,
    dump_yaml,
    load_config,
    recipe_text,
    shipped_recipes,
)

__all__ = [
    "config_hash",
    "config_schema",
    "differing_keys",
    "dump_yaml",
    "load_config",
    "recipe_text",
    "shipped_recipes",
]
