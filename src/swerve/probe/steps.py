"""A probe of files step by step: what is done and still valid is not done again."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from swerve.artifacts.model_words import model_words
from swerve.artifacts.parts import Parts, digest_of
from swerve.artifacts.probe_summary import Compared, ProbeSummary, Selected, read_summary
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.errors import ArtifactError, ConfigError, WriteError
from swerve.models.hub import local_folder
from swerve.models.model_folder import resolve_device
from swerve.models.sources import CheckpointSource
from swerve.probe.engine.measured import measure_plan, plan_pairs
from swerve.probe.execute import execute
from swerve.probe.model_checks import check_models
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import StepName
from swerve.probe.rollouts.samples import table_line
from swerve.probe.step_log import logged_step, steps_done
from swerve.progress import Progress
from swerve.rewards.checks import grading_of
from swerve.text import p_words
from swerve.version import __version__
from swerve.world import World, joined_world


def probe_in_steps(
    plan: ProbePlan,
    steps: Collection[StepName] = ("divergence", "analysis"),
    *,
    progress: Progress,
    started: float | None = None,
) -> ProbeSummary | None:
    """Check everything, then do those of `divergence` and `analysis` that are asked for and not done.

    Writes the tables and `summary.json` to `probe/` of the recipe's directory, and a `run.json` with which `swerve
    report` can show them. Interrupted, it continues where it stopped the next time. With `plan.keep_statistics` the
    statistics of every token stay, so that the analysis can be repeated with other settings and no model is run over
    the rollouts again.

    Args:
        plan: what is asked for.
        steps: `prepare` is always done.
        progress: told of every step; that of other processes than the first shows nothing.
        started: `time.monotonic()` when the files began to be read.

    A shard's share of the measurement and the causal tests is left as parts; it writes no table.

    Returns:
        The summary, if there is a valid one in the end; None also for a shard and other processes than the first.

    Raises:
        ConfigError: something else is in the directory, or the analysis is asked for without the divergence, which is
            not done.
        MismatchError: the models have different tokenizers or vocabularies.
        ArtifactError: another process works in the directory.
        MissingShardsError: see `execute`.
    """
    out = RunDirectory(Path(plan.recipe.out))
    _check_unoccupied(out)
    with joined_world(
        resolve_device(plan.recipe.runtime.device), timeout=plan.recipe.runtime.collective_timeout
    ) as world:
        done = steps_done(plan.path)
        if world.is_main:
            if plan.compared.selected is not None:
                progress.note(_choice_line(plan.compared, plan.compared.selected))
            check_models(plan, progress=progress)
            plan.shard.copied.check_fit(shared_parts(plan))
            if started is not None:
                progress.note(f"prepare: done in {time.monotonic() - started:.1f} s")

        # What is done with the same models, rollouts and settings is not done again.
        is_measured = done.get("divergence") == divergence_key(plan) and plan.states_path.is_dir()
        summary = intact_summary(out) if done.get("analysis") == analysis_key(plan) else None
        is_possible = summary is not None or is_measured or plan.shard.is_share or "divergence" in steps
        if "analysis" in steps and not is_possible:
            raise ConfigError("the step analysis needs the step divergence, which is not done; add it to --steps")
        world.barrier()  # all have looked before anything changes
        if world.is_main and {"divergence", "analysis"} & set(steps):
            _record_probe(plan, out)
        world.barrier()  # a directory can only be made where nobody has put anything yet

        # A shard remembers nothing but its parts.
        if not plan.shard.is_share:
            summary = _do_steps(plan, steps, summary, is_measured=is_measured, world=world, progress=progress)
        elif summary is None and {"divergence", "analysis"} & set(steps):
            do_share(plan, tests="analysis" in steps, progress=progress)
    return summary


def _do_steps(
    plan: ProbePlan,
    steps: Collection[StepName],
    summary: ProbeSummary | None,
    *,
    is_measured: bool,
    world: World,
    progress: Progress,
) -> ProbeSummary | None:
    """Do the steps that are not done, with all processes, of which the first one remembers them; return the summary."""
    done = steps_done(plan.path) if world.is_main else None
    if "divergence" in steps and (is_measured or summary is not None or not plan.headline):
        progress.note("divergence: skipped, it is done")
    elif "divergence" in steps:
        with logged_step(done, "divergence", divergence_key(plan), progress):
            measure_plan(plan, store=plan.states_path, world=world, progress=progress)
    if "analysis" in steps and summary is not None:
        progress.note("analysis: skipped, it is done")
    elif "analysis" in steps:
        with logged_step(done, "analysis", analysis_key(plan), progress):
            summary = execute(plan, progress=progress, world=world)
    return summary


def do_share(plan: ProbePlan, *, tests: bool = True, progress: Progress) -> None:
    """Do a shard's share of the measurement, and of the causal tests if all shards have done theirs of it.

    Args:
        plan: with the shard.
        tests: whether causal tests are asked for, too.
        progress: told what is done.

    Raises:
        MissingShardsError: the share of the measurement is done, and the causal tests need that of other shards.
        ArtifactError: another process works in the directory, without shards or at this one.
        ConfigError: shards of other settings have left parts there.
    """
    with plan.shard.at_work(shared_parts(plan), within=Path(plan.recipe.out)):
        if tests:
            execute(plan, progress=progress)
        elif plan.headline:
            measure_plan(plan, store=plan.states_path, world=None, progress=progress)


def shared_parts(plan: ProbePlan) -> Parts:
    """Return what says whose work the folder is that shards of a probe share."""
    return Parts(plan.states_path, analysis_key(plan))


def intact_summary(out: RunDirectory) -> ProbeSummary | None:
    """Return the summary if its tables are those that were written with it."""
    with suppress(ArtifactError):
        return read_summary(out)
    return None


def _check_unoccupied(out: RunDirectory) -> None:
    """Raise ConfigError unless `out` is new, empty, or another probe of files, which this one replaces."""
    if (out.path / "run.json").is_file():
        if out.read_provenance().get("status") != PROBED:
            raise ConfigError(f"{out.path} is a run, whose own probe would be lost; choose a directory with --out")
    elif out.path.exists() and not (out.path.is_dir() and not any(out.path.iterdir())):
        raise ConfigError(
            f"{out.path} already exists and is not a probe of responses; choose another directory with --out"
        )


def _choice_line(compared: Compared, selected: Selected) -> str:
    """Return the table of right and wrong, by which rollouts were chosen, with its test."""
    counts = (selected.both_right, selected.only_reference_right, selected.only_final_right, selected.both_wrong)
    test = compared.mcnemar
    p_value = "" if test is None or test.p_value is None else f" (McNemar {p_words(test.p_value)})"
    return f"{table_line(counts, (compared.reference, compared.final))}{p_value}"


def _record_probe(plan: ProbePlan, out: RunDirectory) -> None:
    """Say in `run.json` what is probed, unless another process is at work there, or another shard has said it."""
    compared = plan.compared
    file = compared.responses if compared.selected is None else compared.selected.reference
    record = {
        "status": PROBED,
        "name": out.path.name,
        "swerve_version": __version__,
        "torch_version": torch.__version__,
        "models": {
            model.label: model_words(local_folder(model.path))
            for model in plan.models
            if isinstance(model, CheckpointSource)
        },
        "seed": plan.recipe.seed,
        "responses": "" if file is None else str(file.path),
    }
    if not (out.path / "run.json").is_file():
        try:
            out.create(config_yaml="", provenance=record)
        except (ConfigError, WriteError):
            if not (plan.shard.is_share and (out.path / "run.json").is_file()):  # as of another shard
                raise
        return
    if plan.shard.is_share:
        return
    with out.lock():
        out.write_provenance(record)


def divergence_key(plan: ProbePlan) -> str:
    """Return a digest of all that the statistics of the tokens depend on."""
    settings = plan.recipe.probe
    return digest_of(
        __version__,
        torch.__version__,
        [[model.label, model.fingerprint] for model in plan.models],
        plan_pairs(plan),
        [settings.top_k, settings.tokens_per_batch, settings.tokens_per_chunk, settings.kernel],
        [settings.noise_models, settings.divergence, plan.final, plan.recipe.seed, len(plan.headline)],
        [[*map(list, (row.prompt_ids, row.completion_ids, row.sampled_positions))] for row in plan.sequences],
    )


def analysis_key(plan: ProbePlan) -> str:
    """Return a digest of all that the summary depends on."""
    problems = [sequence.problem for sequence in plan.sequences] + [prompt.problem for prompt in plan.prompts]
    return digest_of(
        divergence_key(plan),
        [
            record.model_dump(mode="json")
            for record in (plan.recipe.probe, plan.recipe.runtime, plan.recipe.rollout, plan.compared)
        ],
        [plan.recipe.seed, plan.confidence, plan.max_new_tokens, plan.final, dict(plan.steps), plan.population],
        [asdict(sequence) for sequence in plan.sequences],
        [asdict(prompt) for prompt in plan.prompts],
        grading_of(problem for problem in problems if problem.grader or problem.family),
        list(plan.notes),
    )
