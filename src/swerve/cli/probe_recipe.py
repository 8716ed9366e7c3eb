"""`swerve probe RECIPE`: a probe that a file describes, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from swerve.cli.console import print_result
from swerve.cli.runs import is_main_process, main_progress, resolve_model, set_thread_environment
from swerve.errors import ConfigError, nearest
from swerve.progress import Progress

if TYPE_CHECKING:
    from swerve.artifacts.run import RunDirectory
    from swerve.config import Config
    from swerve.probe.recipe import ProbeRecipe, StepName
    from swerve.probe.request import ComparedModels


def run_probe_recipe(source: str, overrides: Sequence[str], *, steps: str | None, as_json: bool) -> None:
    """Do the steps of a probe that are not done: all, or those that are named."""
    from swerve.probe.recipe import ProbeRecipe
    from swerve.recipes.loader import load_document

    chosen = parse_steps(steps)
    recipe = load_document(ProbeRecipe, source, overrides)
    set_thread_environment(cast("Config", recipe))  # which looks at `runtime` alone
    models, progress = _models(recipe), main_progress()
    from swerve.artifacts.probe_summary import read_summary
    from swerve.artifacts.run import RunDirectory
    from swerve.cli.summary import probe_lines

    out = RunDirectory(Path(recipe.out))
    if recipe.sample is not None and "sample" in chosen:
        _sample(recipe, models, progress)
    if {"prepare", "divergence", "analysis"} & set(chosen):
        _probe(recipe, models, chosen, progress)
    if not is_main_process():
        return
    _write_report(recipe, out, chosen, progress)
    summary = read_summary(out)
    written = {"figures": out.report_path / "figures", "report": out.report_path / "index.html"}
    lines = probe_lines(summary) if summary and not set(chosen) <= written.keys() else []
    lines += [f"{one.capitalize()}: {written[one]}" for one in chosen if one in written]
    print_result(summary, "\n".join(lines or ["No findings yet: the step analysis writes them."]), as_json=as_json)


def parse_steps(text: str | None) -> tuple[StepName, ...]:
    """Return the steps that are named, in their order; all by default.

    Raises:
        ConfigError: a step does not exist; the message names the nearest.

    >>> parse_steps("report,analysis")
    ('analysis', 'report')
    """
    from swerve.probe.recipe import STEPS

    named = [one.strip() for one in text.split(",")] if text is not None else list(STEPS)
    for one in named:
        if one not in STEPS:
            raise ConfigError(f"--steps: there is no step '{one}'{nearest(one, STEPS)} ({', '.join(STEPS)})")
    return tuple(one for one in STEPS if one in named)


def _models(recipe: ProbeRecipe) -> ComparedModels:
    from swerve.probe.request import ComparedModels

    found = {name: resolve_model(f"{name}={recipe.models[name]}") for name in _used(recipe)}
    return ComparedModels(
        reference=found[recipe.reference],
        baseline=None if recipe.baseline is None else found[recipe.baseline],
        checkpoints=tuple(found[name] for name in recipe.compared),
    )


def _used(recipe: ProbeRecipe) -> list[str]:
    return [*([recipe.baseline] if recipe.baseline else []), recipe.reference, *recipe.compared]


def _sample(recipe: ProbeRecipe, models: ComparedModels, progress: Progress) -> None:
    """Sample the reference and the final checkpoint, equally far; a file that is there is checked and left alone."""
    from swerve.config.sampling import SampleSettings
    from swerve.eval.sampling import SampleJob, run_jobs

    files = recipe.sample_files
    assert recipe.sample is not None
    assert recipe.task is not None
    assert files is not None, "checked with the recipe"
    work: Any = {"task": recipe.task, "rollout": recipe.rollout, "runtime": recipe.runtime}
    settings = SampleSettings(**dict(recipe.sample), **work)
    sampled = ((models.reference, files.reference), (models.checkpoints[-1], files.final))
    were_there = [path.is_file() for _, path in sampled]
    run_jobs([SampleJob(model.label, model.path, settings, path) for model, path in sampled], progress)
    for (model, _), was_there in zip(sampled, were_there, strict=True):
        progress.note(f"sample {model.label}: {'skipped, it is done' if was_there else 'done'}")


def _probe(recipe: ProbeRecipe, models: ComparedModels, steps: Sequence[StepName], progress: Progress) -> None:
    from swerve.probe.response_request import request_probe
    from swerve.probe.steps import probe_in_steps

    started = time.monotonic()
    request = request_probe(
        recipe,
        models,
        run=None,
        responses=None if recipe.responses is None else Path(recipe.responses),
        samples=recipe.sample_files,
        problems=None if recipe.problems is None else Path(recipe.problems),
        fields=[f"{name}={field}" for name, field in recipe.fields.items()],
        template=recipe.template,
        ends=recipe.ends,
        out=Path(recipe.out),
    )
    probe_in_steps(request, steps, progress=progress, started=started)


def _write_report(recipe: ProbeRecipe, out: RunDirectory, steps: Sequence[StepName], progress: Progress) -> None:
    """Write figures and page, unless they are there and of the same summary."""
    from swerve.report.figures import write_run_figures
    from swerve.report.page import write_page

    if not {"figures", "report"} & set(steps):
        return
    from swerve.probe.step_log import report_key, step_log

    log, key = step_log(out.probe_path, progress), report_key(out.probe_path, recipe.report)
    writers: dict[StepName, tuple[Path, Callable[[], object]]] = {
        "figures": (out.report_path / "figures", lambda: write_run_figures(out)),
        "report": (out.report_path / "index.html", lambda: write_page(out, options=recipe.report)),
    }
    for step, (there, write) in writers.items():
        if step in steps and there.exists() and log.is_done(step, key):
            log.skip(step)
        elif step in steps:
            log.do(step, key, write)
