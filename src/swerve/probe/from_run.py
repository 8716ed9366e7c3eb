"""The probe of a run: evaluations, checkpoints and recorded rollouts in, tables and a summary out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from swerve.artifacts.checkpoint import BASE, CheckpointRef
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.shards import WHOLE, Shard
from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import load_tokenizer, resolve_device
from swerve.models.sources import base_checkpoint
from swerve.probe.execute import execute
from swerve.probe.from_files import model_sources
from swerve.probe.model_checks import check_models
from swerve.probe.plan import ProbePlan, compare_selected
from swerve.probe.recipe import ProbeRecipe, ProbeSettings, SamplesFrom
from swerve.probe.rollouts.population import probe_sequences, read_evaluated, select_rollouts
from swerve.probe.rollouts.recorded import training_rollouts
from swerve.probe.rollouts.selection import POPULATION
from swerve.probe.step_log import logged_step, steps_done
from swerve.probe.steps import analysis_key, do_share, intact_summary, shared_parts
from swerve.problems import load_family
from swerve.progress import Progress
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments, with_beginnings
from swerve.rewards.checks import check_graders
from swerve.seeds import derive_seed
from swerve.world import joined_world


def probe_run(config: Config, run: RunDirectory, *, shard: Shard = WHOLE, progress: Progress) -> ProbeSummary | None:
    """Compare a stage's checkpoints with the reference on rollouts of both; return the summary.

    Writes the tables of `probe/` and, last, `probe/summary.json`. Interrupted, it continues where it stopped the next
    time. Under torchrun the rollouts are dealt out to the processes; the first one writes.

    Args:
        config: the run's, with changes.
        run: to probe.
        shard: whose share of the work is done, and left as parts; see `do_share`. By default everything.
        progress: told what is done.

    Raises:
        CheckpointError: a checkpoint that `config.probe` names is missing or damaged.
        ArtifactError: the reference or the final checkpoint was not evaluated, or another process holds the run.
        MismatchError: the checkpoints have different tokenizers or vocabularies.
        ConfigError: the recipe has a single stage and `probe.reference` is not set, a problem's grader does not exist,
            or the like.
    """
    for line in run.missing_checkpoints(config.scheduled_steps, config.retained_steps):
        progress.note(line)
    with joined_world(resolve_device(config.runtime.device), timeout=config.runtime.collective_timeout) as world:
        plan = replace(plan_run(config, run), shard=shard)
        if world.is_main:
            check_models(plan, progress=progress)
            plan.shard.copied.check_fit(shared_parts(plan))

        # What is done with the same checkpoints, rollouts and settings is not done again.
        done, key = steps_done(plan.path), analysis_key(plan)
        summary = intact_summary(run) if done.get("analysis") == key else None
        world.barrier()  # all have looked before anything changes
        if summary is not None:
            progress.note(f"{plan.path} is complete: nothing to do")
        elif plan.shard.is_share:
            do_share(plan, progress=progress)
        else:
            with logged_step(done if world.is_main else None, "analysis", key, progress):
                summary = execute(plan, progress=progress, world=world)
        return summary


def plan_run(config: Config, run: RunDirectory) -> ProbePlan:
    """Return what a run's configuration asks to probe; nothing is written and no model is loaded."""
    recipe, weights, notes = run_recipe(config, run)
    reference, final = (run_checkpoint(config, run, name) for name in (recipe.reference, recipe.final_name))
    tokenizer = load_tokenizer(reference.path)
    family = load_family(config.task)
    heldout = with_beginnings(
        tokenizer,
        family.problems("heldout", seed=derive_seed(config.seed, "problems")),
        template_arguments(config.model),
    )
    check_graders(heldout)

    # The headline population and those beside it are completions of the two models' evaluations.
    before, after = read_evaluated(run, reference, final)
    if reference.path == final.path:
        raise ConfigError(f"probe.reference and probe.final are both {final.label}; name two checkpoints")
    selection = select_rollouts(
        before, after, config.probe, labels=(reference.label, final.label), tie_seed=recipe.tie_seed
    )
    sequences = probe_sequences(
        selection.rollouts, family=family, tokenizer=tokenizer, problems={problem.id: problem for problem in heldout}
    )
    signals: Sequence[Any] = ()
    if "training" in config.probe.populations:
        recorded = training_rollouts(
            config,
            run,
            stage=probed_stage(config),
            family=family,
            tokenizer=tokenizer,
            max_rollouts=config.probe.max_other_rollouts,
            first_id=len(sequences),
        )
        sequences, signals, notes = [*sequences, *recorded.sequences], recorded.signals, [*notes, *recorded.notes]

    # Cross-sampling draws from all held-out problems that were evaluated, not from those that were selected.
    asked = heldout[config.eval.skip :][: config.eval.num_problems] if config.probe.cross_sampling.max_problems else ()
    return ProbePlan(
        recipe=recipe,
        sources=model_sources(recipe),
        compared=compare_selected(recipe, selection, weights_sha256=weights),
        sequences=tuple(sequences),
        population=POPULATION,
        prompts=encode_prompts(tokenizer, asked, template_arguments(config.model)),
        signals=signals,
        notes=tuple(notes),
    )


def run_recipe(config: Config, run: RunDirectory) -> tuple[ProbeRecipe, dict[str, str], list[str]]:
    """Return a run's probe as a recipe, the digests of the weights by name, and what has to be left out.

    Raises:
        CheckpointError: a checkpoint that `config.probe` names is missing, or is not evaluated.
        ConfigError: the recipe has a single stage and `probe.reference` is not set.
    """
    # Reference and final checkpoint must have been evaluated: their evaluations are the samples.
    reference = run_reference(config, run)
    final = run_checkpoint(config, run, config.probe.final or config.stages[-1].label)
    for checkpoint, key in ((reference, "probe.reference"), (final, "probe.final")):
        if not checkpoint.scheduled:
            raise CheckpointError(
                f"{key}: {checkpoint.label} only serves resuming and is not evaluated; name a scheduled one"
            )

    # The final checkpoint is compared, too, wherever it is from; the reference is not.
    checkpoints = run_checkpoints(config, run)
    if all(checkpoint.path != final.path for checkpoint in checkpoints):
        checkpoints = sorted([*checkpoints, final], key=lambda checkpoint: checkpoint.step)
    checkpoints = [checkpoint for checkpoint in checkpoints if checkpoint.path != reference.path]
    baseline, notes = _baseline(config, run, reference)

    # The models by their labels, and all that a training's recipe says of a probe.
    compared = [reference, *checkpoints]
    samples = (run.evaluation_path(checkpoint).with_suffix(".parquet") for checkpoint in (reference, final))
    recipe = ProbeRecipe(
        **{name: getattr(config, name) for name in ProbeSettings.model_fields},
        models={checkpoint.label: str(checkpoint.path) for checkpoint in (*compared, *baseline)},
        reference=reference.label,
        baseline=baseline[0].label if baseline else None,
        checkpoints=tuple(checkpoint.label for checkpoint in checkpoints),
        final=final.label,
        steps={checkpoint.label: checkpoint.step for checkpoint in (reference, *run.checkpoints)},
        samples=SamplesFrom(**dict(zip(("reference", "final"), map(str, samples), strict=True))),
        out=str(run.path),
    )
    return recipe, {checkpoint.label: checkpoint.weights_sha256 for checkpoint in compared}, notes


def probed_stage(config: Config) -> str:
    """Return the stage whose checkpoints are compared with the reference."""
    return config.probe.checkpoints or config.stages[-1].label


def run_checkpoint(config: Config, run: RunDirectory, selector: str) -> CheckpointRef:
    """Return a checkpoint of a run, or the model that it began with.

    Raises:
        CheckpointError: the run has no such checkpoint.
    """
    is_base = selector == BASE and selector not in [stage.label for stage in config.stages]
    base = base_checkpoint(config) if is_base else None
    return base or run.select_checkpoint(selector)


def run_reference(config: Config, run: RunDirectory) -> CheckpointRef:
    """Return what a run's checkpoints are compared with: as named, else the last of the stage before the last.

    Raises:
        CheckpointError: the run has no such checkpoint.
        ConfigError: there is one stage only, and none is named.
    """
    before = config.stages[-2].label if len(config.stages) > 1 else BASE
    if config.probe.reference is None and before == BASE and not isinstance(config.model, PretrainedModel):
        raise ConfigError("the recipe has one stage only: name the checkpoint to compare with in probe.reference")
    return run_checkpoint(config, run, config.probe.reference or before)


def run_checkpoints(config: Config, run: RunDirectory) -> list[CheckpointRef]:
    """Return the scheduled checkpoints of the stage that is probed, by step.

    Raises:
        CheckpointError: the run has no such checkpoint.
    """
    known, stage = run.checkpoints, probed_stage(config)
    chosen = [checkpoint for checkpoint in known if checkpoint.stage == stage and checkpoint.scheduled]
    if not chosen:
        stages = ", ".join(dict.fromkeys(checkpoint.stage for checkpoint in known)) or "none"
        raise CheckpointError(f"{run.path} has no checkpoint of a stage '{stage}' (probe.checkpoints); it has {stages}")
    return chosen


def _baseline(config: Config, run: RunDirectory, reference: CheckpointRef) -> tuple[list[CheckpointRef], list[str]]:
    """Return the baseline that is named, else what the reference's stage began with, if any; and why it is missing."""
    labels = [stage.label for stage in config.stages]
    if "baseline" not in config.probe.pairs:
        return [], []
    if config.probe.baseline is not None:
        return [run_checkpoint(config, run, config.probe.baseline)], []
    if reference.stage not in labels:
        return [], []
    place = labels.index(reference.stage)
    if place > 0:
        ends = [
            checkpoint for checkpoint in run.checkpoints if checkpoint.stage == labels[place - 1] and checkpoint.final
        ]
        return ends[-1:], []
    try:
        base = base_checkpoint(config)
    except CheckpointError as error:  # nobody asked for it
        return [], [f"the model before training is left out: {error}"]
    return [base] if base else [], []
