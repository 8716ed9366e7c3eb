"""The probe of a run: evaluations, checkpoints and recorded rollouts in, tables and a summary out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swerve.artifacts.probe_summary import Compared, ProbeSummary
from swerve.artifacts.run import BASE, CheckpointRef, RunDirectory
from swerve.config import Config, PretrainedModel
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import load_tokenizer, resolve_device
from swerve.models.sources import CheckpointSource, base_checkpoint, checkpoint_source
from swerve.probe.execute import execute_in
from swerve.probe.findings.parts import Intervals
from swerve.probe.model_checks import check_models
from swerve.probe.plan import ProbePlan
from swerve.probe.rollouts.population import (
    POPULATION,
    Selection,
    check_same_settings,
    probe_sequences,
    read_evaluated,
    select_rollouts,
)
from swerve.probe.rollouts.recorded import training_rollouts
from swerve.problems import load_family
from swerve.progress import Progress
from swerve.prompts import encode_prompts, template_arguments, with_beginnings
from swerve.recipes.epochs import with_steps
from swerve.rewards.checks import check_graders
from swerve.seeds import derive_seed
from swerve.statistics.hypothesis_tests import mcnemar
from swerve.types import Problem, Prompt
from swerve.world import joined_world


def probe_run(config: Config, run: RunDirectory, *, progress: Progress) -> ProbeSummary | None:
    """Compare a stage's checkpoints with the reference on rollouts of both; return the summary.

    Writes the tables of `probe/` and, last, `probe/summary.json`. Interrupted, it continues where it stopped the next
    time. Under torchrun the rollouts are dealt out to the processes; the first one writes.

    Raises:
        CheckpointError: a checkpoint that `config.probe` names is missing or damaged.
        ArtifactError: the reference or the final checkpoint was not evaluated, or another process holds the run.
        MismatchError: the checkpoints have different tokenizers or vocabularies.
        ConfigError: the recipe has a single stage and `probe.reference` is not set, a problem's grader does not exist,
            or the like.
    """
    config = with_steps(config)
    for line in run.missing_checkpoints(config.scheduled_steps, config.retained_steps):
        progress.note(line)
    with joined_world(resolve_device(config.runtime.device), timeout=config.runtime.collective_timeout) as world:
        plan = plan_run(config, run)
        if world.is_main:
            check_models(plan, progress=progress)
        return execute_in(run, plan, progress=progress, world=world)


def plan_run(config: Config, run: RunDirectory) -> ProbePlan:
    """Return what a run's configuration asks to probe; nothing is written and no model is loaded."""
    return _Planner(config, run).plan()


class _Planner:
    def __init__(self, config: Config, run: RunDirectory) -> None:
        self._config, self._run = config, run
        probe = config.probe
        labels = [stage.label for stage in config.stages]
        before = labels[-2] if len(labels) > 1 else BASE
        if probe.reference is None and before == BASE and not isinstance(config.model, PretrainedModel):
            raise ConfigError("the recipe has one stage only: name the checkpoint to compare with in probe.reference")
        self._stage = probe.checkpoints or labels[-1]
        self._reference = self._evaluated(probe.reference or before, "probe.reference")
        self._final = self._evaluated(probe.final or labels[-1], "probe.final")
        compared = _compared_checkpoints(run, self._stage, self._final)
        self._checkpoints = tuple(one for one in compared if one.path != self._reference.path)
        self._notes: tuple[str, ...] = ()
        self._baseline = self._find_baseline() if "baseline" in probe.pairs else None
        self._family = load_family(config.task)

    def _find_baseline(self) -> CheckpointRef | None:
        """Return the baseline that is named, else what the reference's stage began with; nothing for the base."""
        if self._config.probe.baseline is not None:
            return self._checkpoint(self._config.probe.baseline)
        labels = [stage.label for stage in self._config.stages]
        if self._reference.stage not in labels:
            return None
        place = labels.index(self._reference.stage)
        if place == 0:
            try:
                return base_checkpoint(self._config)
            except CheckpointError as error:  # nobody asked for it
                self._notes = (f"the model before training is left out: {error}",)
                return None
        earlier = [one for one in self._run.checkpoints() if one.stage == labels[place - 1] and one.final]
        return earlier[-1] if earlier else None

    def _checkpoint(self, selector: str) -> CheckpointRef:
        """Return a checkpoint of the run, or the model that it began with."""
        is_base = selector == BASE and selector not in [stage.label for stage in self._config.stages]
        base = base_checkpoint(self._config) if is_base else None
        return base or self._run.select_checkpoint(selector)

    def _evaluated(self, selector: str, key: str) -> CheckpointRef:
        checkpoint = self._checkpoint(selector)
        if not checkpoint.scheduled:
            raise CheckpointError(
                f"{key}: {checkpoint.label} only serves resuming and is not evaluated; name a scheduled one"
            )
        return checkpoint

    def plan(self) -> ProbePlan:
        config, run = self._config, self._run
        tokenizer = load_tokenizer(self._reference.path)
        heldout = with_beginnings(
            tokenizer,
            self._family.problems("heldout", seed=derive_seed(config.seed, "problems")),
            template_arguments(config),
        )
        check_graders(heldout)
        check_same_settings(run, self._reference, self._final)
        reference, final = read_evaluated(run, self._reference), read_evaluated(run, self._final)
        if self._reference.path == self._final.path:
            raise ConfigError(f"probe.reference and probe.final are both {final.label}; name two checkpoints")
        selection = select_rollouts(reference, final, config.probe, tie_seed=self._tie_seed)
        sequences = probe_sequences(
            selection.rollouts, family=self._family, tokenizer=tokenizer, problems={one.id: one for one in heldout}
        )
        signals: Sequence[Any] = ()
        notes = self._notes
        if "training" in config.probe.populations:
            recorded = training_rollouts(
                config,
                run,
                stage=self._stage,
                family=self._family,
                tokenizer=tokenizer,
                max_rollouts=config.probe.max_other_rollouts,
                first_id=len(sequences),
            )
            sequences, signals, notes = [*sequences, *recorded.sequences], recorded.signals, (*notes, *recorded.notes)
        return ProbePlan(
            settings=config.probe,
            runtime=config.runtime,
            rollout=config.rollout,
            seed=config.seed,
            confidence=config.eval.confidence,
            max_new_tokens=config.max_new_tokens,
            reference=self._source(self._reference),
            checkpoints=tuple(map(self._source, self._checkpoints)),
            final=self._final.label,
            steps={one.label: one.step for one in (self._reference, *self._run.checkpoints())},
            baseline=None if self._baseline is None else self._source(self._baseline),
            sequences=tuple(sequences),
            population=POPULATION,
            path=run.probe_path,
            compared=self._compared(selection),
            prompts=self._prompts(tokenizer, heldout),
            signals=signals,
            notes=notes,
        )

    @property
    def _tie_seed(self) -> int:
        return derive_seed(self._config.seed, "probe", "split", "ties")

    def _compared(self, selection: Selection) -> Compared:
        config = self._config
        compared = (self._reference, *self._checkpoints)
        intervals = Intervals(confidence=config.eval.confidence)
        return Compared(
            reference=self._reference.label,
            final=self._final.label,
            baseline=None if self._baseline is None else self._baseline.label,
            checkpoints=tuple(checkpoint.label for checkpoint in self._checkpoints),
            weights_sha256={one.label: one.weights_sha256 for one in compared},
            num_problems=selection.num_problems,
            num_reference_wrong=selection.num_reference_wrong,
            num_reference_wrong_final_right=selection.num_reference_wrong_final_right,
            selection=config.probe.selection,
            num_ties=selection.num_ties if config.probe.selection == "split" else None,
            tie_seed=self._tie_seed if config.probe.selection == "split" else None,
            mcnemar=mcnemar(selection.reference_right, selection.final_right, confidence=config.eval.confidence),
            reselected=intervals.share(selection.reselected),
        )

    def _source(self, checkpoint: CheckpointRef) -> CheckpointSource:
        return checkpoint_source(checkpoint.label, checkpoint.path, self._config.runtime)

    def _prompts(self, tokenizer: Any, heldout: Sequence[Problem]) -> list[Prompt]:
        """Return the held-out problems that cross-sampling draws from: all of them, not those that were selected."""
        config = self._config
        if not config.probe.cross_sampling.max_problems:
            return []
        return encode_prompts(tokenizer, heldout[: config.eval.num_problems], template_arguments(config))


def _compared_checkpoints(run: RunDirectory, stage: str, final: CheckpointRef) -> tuple[CheckpointRef, ...]:
    """Return the stage's scheduled checkpoints and the final one, by step."""
    known = run.checkpoints()
    chosen = [one for one in known if one.stage == stage and one.scheduled]
    if not chosen:
        stages = ", ".join(dict.fromkeys(one.stage for one in known))
        raise CheckpointError(f"{run.path} has no checkpoint of a stage '{stage}' (probe.checkpoints); it has {stages}")
    if all(one.path != final.path for one in chosen):
        chosen.append(final)
    return tuple(sorted(chosen, key=lambda one: one.step))
