"""`swerve runs`, `recipes` and `config`: list runs, show recipes and configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.completion import completed
from swerve.cli.console import print_json, print_message, print_text
from swerve.cli.options import Json, Overrides, Recipe, Result, check_choice
from swerve.cli.plan import Memory, Processes, budget_text
from swerve.cli.text import table, wrapped
from swerve.errors import MissingExtraError, SwerveError
from swerve.progress import one_line

if TYPE_CHECKING:
    from swerve.probe.recipe import ProbeRecipe

recipes_app = typer.Typer(
    help="List the recipes that ship with swerve, or show one.", invoke_without_command=True, rich_markup_mode=None
)


@recipes_app.callback()
def list_recipes(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Only recipes of this task, such as gsm8k.", **completed("tasks")),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the recipes that ship with swerve, or show one."""
    if context.invoked_subcommand is not None:
        return
    from swerve.recipes.described import described_recipes

    entries = described_recipes(task)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        profiles = f"; profiles {', '.join(entry['profiles'])}" if entry["profiles"] else ""
        print_text(wrapped(f"{entry['name']}  (swerve {entry['command']}{profiles})"))
        print_text(wrapped(entry["description"], indent="    "))


def show_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped recipe.", **completed("recipes"))],
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="train|probe|study", help="Which command's recipe, if several have one of that name."
        ),
    ] = None,
) -> None:
    """Print a recipe as it is written, comments included.

    Examples:
      swerve recipes show gsm8k > mine.yaml
    """
    from swerve.recipes.files import RECIPE_USES, recipe_text, shipped_recipes

    check_choice("--command", command, RECIPE_USES)
    uses = [use for use in RECIPE_USES if command in (None, use)]
    print_text(recipe_text(name, next((use for use in uses if name in shipped_recipes(use)), uses[0])))


def show_config(recipe: Recipe, overrides: Overrides = None) -> Result:
    """Print the resolved configuration, defaults included.

    Examples:
      swerve config show demo_addition seed=1
    """
    from swerve.recipes.loader import dump_yaml, load_config

    config = _shipped_probe(recipe, overrides or ()) or load_config(recipe, overrides or ())
    return Result(config, dump_yaml(config))


def _shipped_probe(recipe: str, overrides: Sequence[str]) -> ProbeRecipe | None:
    """Return the shipped recipe of a probe that is named; None where a name means something else."""
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.files import shipped_recipes
    from swerve.recipes.loader import load_document

    return load_document(ProbeRecipe, recipe, overrides) if recipe in shipped_recipes("probe") else None


def check_config(
    recipe: Recipe,
    overrides: Overrides = None,
    memory: Memory = None,
    processes: Processes = 1,
) -> Result:
    """Check a recipe, and say what its training takes, as `swerve plan train` does.

    It also says what presets leave out.

    Examples:
      swerve config check gsm8k model.path=Qwen/Qwen2.5-0.5B --memory 24
      swerve config check mine.yaml profile=one_gpu
    """
    from swerve.artifacts.run import check_name
    from swerve.models.folder_metadata import check_metadata, is_description
    from swerve.recipes.data_sizes import data_sizes
    from swerve.recipes.epochs import stage_sizes, with_steps
    from swerve.recipes.loader import config_hash, has_custom, load_config

    if probe := _shipped_probe(recipe, overrides or ()):
        from swerve.plan.probing import probe_budget

        budget = probe_budget(probe, memory_gb=memory, processes=processes)
        budget.check()
        summary = {"valid": True, "out": probe.out, **budget.record()}
        return Result(summary, f"{recipe}: valid, a recipe of swerve probe\n{budget_text(budget)}")

    # Everything that training checks before its first step; code of the user's own is loaded.
    config = load_config(recipe, overrides or ())
    if config.model.kind == "pretrained" and not is_description(config.model.path):
        check_metadata(config.model.path)
    config = with_steps(config, data_sizes(config, asks_hub=False))
    if has_custom(config):
        from swerve.train.custom_parts import load_custom_parts

        load_custom_parts(config)
    check_name(config.name)
    from swerve.train.checks import check_recipe

    try:
        check_recipe(config, is_here=memory is None)
    except MissingExtraError as error:
        raise SwerveError(f"{error}; for another machine give the memory of its device, as in --memory 80") from None

    # What a person should know of it: its digest, what presets leave out, its length and the memory it takes.
    digest = config_hash(config)
    notes = [note for stage in config.stages for note in stage.notes]
    sizes = stage_sizes(config)
    from swerve.plan.training import training_budget

    budget = training_budget(config, memory_gb=memory, processes=processes)
    budget.check()
    plan = budget.record()
    known = {"valid": True, "name": config.name, "config_hash": digest, "stages": sizes}
    lines = [f"{recipe}: valid, configuration {digest}", *notes, *map(_size_line, sizes), budget_text(budget)]
    return Result({**plan, **known, "notes": [*notes, *budget.notes]}, "\n".join(lines))


def _size_line(size: Mapping[str, Any]) -> str:
    """Say how long a stage is."""
    if size["steps"] is None:
        return f"stage {size['stage']}: its steps are counted when training begins"
    sampled = f", at most {size['completions']:,} completions, {size['tokens']:,} tokens" if size["tokens"] else ""
    return f"stage {size['stage']}: {size['steps']:,} steps{sampled}"


def show_schema(
    probe: Annotated[bool, typer.Option("--probe", help="The schema of recipes of swerve probe.")] = False,
) -> None:
    """Print the JSON schema of recipes.

    Examples:
      swerve config schema > recipe.schema.json
    """
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.loader import config_schema

    print_json(config_schema(ProbeRecipe) if probe else config_schema())


_COLUMNS = ("RUN", "BEGAN", "TRAINED FOR", "STATUS", "STAGES", "STEPS", "BEST ACCURACY", "BEST REWARD")


def list_runs(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to look.")] = Path("runs"),
) -> Result:
    """List runs, the newest last.

    Each with its date, status, stages, steps, best held-out accuracy and best mean reward.

    Examples:
      swerve runs
      swerve runs --dir runs/studies/mine/runs/none
    """
    from swerve.run import describe_run, entry_texts

    entries = [describe_run(path.parent) for path in sorted(directory.glob("*/run.json"))]
    entries.sort(key=lambda entry: entry["date"] or "")
    for entry in entries:
        if "error" in entry:
            print_message(f"swerve: warning: {one_line(entry['error'])}", is_warning=True)
    texts = [_COLUMNS, *(tuple(entry_texts(entry)[name.lower()] for name in _COLUMNS) for entry in entries)]
    return Result(entries, table(texts) if entries else f"No runs in {directory}/.")
