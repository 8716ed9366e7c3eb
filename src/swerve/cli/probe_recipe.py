"""`swerve probe RECIPE`: a probe that a file describes, step by step."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swerve.artifacts.files import sha256_file
from swerve.artifacts.parts import digest_of
from swerve.artifacts.probe_summary import read_summary
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.shards import Shard
from swerve.artifacts.torchrun import is_main_process
from swerve.cli.console import main_progress
from swerve.cli.options import Result
from swerve.cli.summary import probe_text
from swerve.errors import ConfigError, MissingShardsError, nearest
from swerve.models.folder_metadata import check_metadata, check_one_tokenizer
from swerve.models.named_models import resolve_model
from swerve.models.runtime import set_thread_environment
from swerve.probe.recipe import STEPS, ProbeRecipe, StepName
from swerve.probe.rollouts.checks import check_recipe_files
from swerve.probe.step_log import logged_step, steps_done
from swerve.progress import Progress
from swerve.recipes.loader import load_document
from swerve.version import __version__


def run_probe_recipe(source: str, overrides: Sequence[str], *, steps: str | None, shard: Shard) -> Result | None:
    """Do the steps of a probe that are not done, all or those that are named, or a shard's share of them."""
    chosen = parse_steps(steps)
    recipe = load_document(ProbeRecipe, source, overrides)
    set_thread_environment(recipe.runtime)
    paths = {name: str(resolve_model(f"{name}={recipe.models[name]}").path) for name in recipe.used}
    for path in paths.values():
        check_metadata(path)
    check_one_tokenizer(paths.values())
    recipe, progress = recipe.model_copy(update={"models": paths}), main_progress()

    if chosen != ("report",):
        check_recipe_files(recipe)
    if recipe.sample is not None and "sample" in chosen:
        _sample(recipe, progress, shard)
        if not all(path.is_file() for path in recipe.sample_files or ()):
            raise MissingShardsError("the samples are written by --steps sample, without --shard, once all are done")
    if {"prepare", "divergence", "analysis"} & set(chosen):
        from swerve.probe.from_files import plan_files
        from swerve.probe.steps import probe_in_steps

        started = time.monotonic()
        plan = replace(plan_files(recipe, keep_statistics=True), shard=shard)
        probe_in_steps(plan, chosen, progress=progress, started=started)
        if plan.shard.is_share:
            return None
    if not is_main_process():
        return None

    # The page is written from what is there.
    out = RunDirectory(Path(recipe.out))
    if "report" in chosen:
        _write_report(recipe, out, progress)
    summary = read_summary(out)
    if not summary:
        return Result(summary, "No findings yet: the step analysis writes them.")
    is_written = "report" in chosen
    place = f"Report: {_page(out)}" if is_written else f"All findings: swerve report {shlex.quote(recipe.out)}"
    return Result(summary, place if chosen == ("report",) else probe_text(out, place=place))


def parse_steps(text: str | None) -> tuple[StepName, ...]:
    """Return the steps that are named, in their order; all by default.

    Raises:
        ConfigError: a step does not exist; the message names the nearest.

    >>> parse_steps("report,analysis")
    ('analysis', 'report')
    """
    named = [name.strip() for name in text.split(",")] if text is not None else list(STEPS)
    for name in named:
        if name not in STEPS:
            raise ConfigError(f"--steps: there is no step '{name}'{nearest(name, STEPS)} ({', '.join(STEPS)})")
    return tuple(step for step in STEPS if step in named)


def _sample(recipe: ProbeRecipe, progress: Progress, shard: Shard) -> None:
    """Sample the reference and the final checkpoint, equally far; a file that is there is checked and left alone."""
    from swerve.config.sampling import SampleJob, SampleSettings
    from swerve.eval.sampling import sample_jobs

    assert recipe.sample is not None
    assert recipe.sample_files is not None, "checked with the recipe"
    work: Any = {"task": recipe.task, "rollout": recipe.rollout, "runtime": recipe.runtime}
    settings = SampleSettings(**dict(recipe.sample), **work)
    paths = dict(zip((recipe.reference, recipe.final_name), recipe.sample_files, strict=True))
    were_there = {name: path.is_file() for name, path in paths.items()}
    jobs = [SampleJob(name, recipe.models[name], settings, path) for name, path in paths.items()]
    sample_jobs(jobs, progress, shard=shard)
    for name, was_there in were_there.items():
        progress.note(f"sample {name}: {'skipped, it is done' if was_there else 'done'}")


def _page(out: RunDirectory) -> Path:
    return out.report_path / "index.html"


def _write_report(recipe: ProbeRecipe, out: RunDirectory, progress: Progress) -> None:
    """Write the page, unless it is there and of the same summary."""
    from swerve.report.run_page import write_page

    # It depends on the summary and on what the page is asked to show.
    summary = out.probe_path / "summary.json"
    if not summary.is_file():
        raise ConfigError(f"{summary} does not exist: the report needs the step analysis; add it to --steps")
    key = digest_of(__version__, sha256_file(summary), recipe.report.model_dump(mode="json"))
    done = steps_done(out.probe_path)
    if _page(out).is_file() and done.get("report") == key:
        progress.note("report: skipped, it is done")
    else:
        with logged_step(done, "report", key, progress):
            write_page(out, options=recipe.report)
