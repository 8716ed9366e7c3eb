"""Recipes: the YAML files that ship with swerve, and the loader of recipes."""

from __future__ import annotations

from swerve.recipes.files import recipe_text, shipped_recipes
from swerve.recipes.loader import config_hash, config_schema, differing_keys, dump_yaml, load_config

__all__ = [
    "config_hash",
    "config_schema",
    "differing_keys",
    "dump_yaml",
    "load_config",
    "recipe_text",
    "shipped_recipes",
]
