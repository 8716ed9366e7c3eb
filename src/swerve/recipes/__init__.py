"""Recipes: the YAML files that ship with swerve, and the loader of recipes.

A recipe is a YAML 1.2 file with everything a run depends on; keys that it leaves out have the defaults below. Types are
strict: an integer is not text. Where only the kind of a value matters, its name is enough: `task: addition`.

- `extends: NAME_OR_PATH` starts from another recipe. Mappings are merged key by key; lists, single values and mappings
  of another `kind` are replaced. Dotted keys reach into lists: `stages.rl.loss: {kind: clip}`.
- `profiles: {NAME: {KEY: VALUE}}` are named sets of overrides; `profile=NAME` on the command line applies one. A recipe
  inherits the profiles of the recipe that it extends.
- Overrides on the command line win over both: `stages.rl.steps=40`, `'stages.rl.checkpoints=[10, 20]'`. A stage is
  named by its `name`, its kind or its index; below, `*` stands for it.

`swerve recipes` lists what ships and `swerve recipes show NAME` prints one. `swerve config show RECIPE` prints the
resolved configuration, `swerve config check RECIPE` checks it and estimates memory, and `swerve config schema` prints
the JSON schema for editors. The same recipe with the same `seed` on the same machine gives the same weights, whether or
not the run was interrupted.
"""

from __future__ import annotations

from swerve.callable_package import make_callable
from swerve.recipes.files import recipe_text, shipped_recipes
from swerve.recipes.loader import config_hash, config_schema, differing_keys, dump_yaml, load_config

__all__ = [
    "config_hash",
    "config_schema",
    "differing_keys",
    "dump_yaml",
    "load_config",
    "recipe_text",
    "recipes",
    "shipped_recipes",
]

make_callable(__name__, "swerve.door.catalogue")
