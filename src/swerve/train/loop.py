"""The training loop: stages in order, checkpoints on schedule, exact resume."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.metrics import append_metrics, read_metrics
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import (
    Config,
    GaeAdvantages,
    RejectStage,
    RlStage,
    SftStage,
    StageConfig,
    SuccessRateCurriculum,
    TinyModel,
    preset_notes,
)
from swerve.errors import (
    CollapseError,
    ConfigError,
    DiskFullError,
    EngineError,
    InterruptedRunError,
    StalledProcessError,
    SwerveError,
    ToldElsewhereError,
    WriteError,
)
from swerve.eval.heldout import evaluate_checkpoint, heldout_problems
from swerve.interruption import Interruption, deferred_signals
from swerve.models.adapter import new_adapter
from swerve.models.model_folder import (
    CheckpointWriting,
    bases_kept,
    declare_stop_ids,
    load_base,
    load_tokenizer,
    resolve_device,
    stop_ids,
)
from swerve.models.runtime import apply_runtime
from swerve.problems import ProblemFamily, load_family
from swerve.progress import Progress
from swerve.prompts import check_solution_lengths, prompt_notes, template_arguments, turn_of
from swerve.recipes.epochs import with_steps
from swerve.recipes.loader import check_recorded_config, config_hash, dump_yaml
from swerve.rewards.checks import problems_digest
from swerve.rollout.engine import Engine, make_engine
from swerve.rollout.sync import PolicyEngine
from swerve.seeds import derive_seed
from swerve.train.checks import check_examples, check_machine, check_models, check_problems
from swerve.train.context import StageContext
from swerve.train.curriculum import Draws, SolveRates, stage_draws
from swerve.train.early_stopping import best_step, is_over
from swerve.train.engine_check import engine_check
from swerve.train.health.collapse import judge_collapse
from swerve.train.health.mismatch import judge_mismatch
from swerve.train.health.ungraded import check_end, judge_grading, note_of_failures
from swerve.train.health.verdict import Verdict
from swerve.train.initial import initial_model, new_tiny_model
from swerve.train.learner import (
    Learner,
    NotFiniteError,
    keep_moments,
    load_trainer_state,
    new_value_head,
    optimizer_class,
    trainer_state,
)
from swerve.train.live import LiveDivergence, LiveEvaluation, Watch, is_evaluated, is_that_of_files
from swerve.train.phases import Phase, phases_of
from swerve.train.replicated_model import ReplicatedModel, trained_names
from swerve.train.resume import SavedState, cut_back_to, resume_point, tidy
from swerve.train.rollouts import PENDING, pending_state, restore_pending
from swerve.train.sharded_model import load_for, model_class
from swerve.train.stages import make_runner
from swerve.train.stages.custom_parts import check_unchanged, custom_digests, load_custom_parts
from swerve.train.trackers import Tracker, open_trackers
from swerve.types import Problem
from swerve.version import __version__
from swerve.world import World, joined_world

_FAULTS = (
    StalledProcessError,
    ToldElsewhereError,
    InterruptedRunError,
    EngineError,
    DiskFullError,
    WriteError,
    NotFiniteError,
    CollapseError,
)
"""What is no refusal of the recipe: the run stays, to be continued or looked at."""
_STATUS: Mapping[type[BaseException], str] = {
    KeyboardInterrupt: "interrupted",
    InterruptedRunError: "interrupted",
    CollapseError: "collapsed",
}


def train(
    config: Config,
    run: RunDirectory,
    *,
    resume: bool,
    progress: Progress,
    verify: bool = False,
    profile: str | None = None,
) -> None:
    """Run the recipe's stages, writing checkpoints, metrics and rollouts to `run`.

    With `resume`, training continues from the newest intact checkpoint and ends with the weights, bit for bit on a CPU,
    that an uninterrupted run would have. Started by torchrun, the processes share each step's work. With `verify`, the
    kept checkpoints before it are read too, and damaged ones named. `profile` is the name of the recipe's profile
    that `config` is of, for the run's provenance.

    Raises:
        ConfigError: the run directory exists and `resume` is false, or has another configuration; the model does not
            fit the task; a problem's grader does not exist or does not take its policies; a part of kind `custom`
            cannot be loaded or has changed; or the training problems have changed.
        ArtifactError: another process holds the run, or what resuming reads was changed; the message names the file.
        CollapseError: training collapsed, and the stage is to stop where it does; the state was saved. On resuming: it
            did at the run's last step.
        InterruptedRunError: a signal asked for a stop (see `deferred_signals`); the state was saved.
        SwerveError: a loss or gradient that is not finite; a stage that cannot begin.
    """
    config = with_steps(config)
    digests = custom_digests(config)
    if resume and (run.path / "run.json").exists():
        check_unchanged(digests, run)
    load_custom_parts(config)
    check_machine(config)
    apply_runtime(config.runtime)
    with (
        _interruptible(run) as interruption,
        _marked_failed(run),
        joined_world(
            resolve_device(config.runtime.device),
            timeout=config.runtime.collective_timeout,
            also_alone=config.runtime.sharding.kind != "none",
        ) as world,
        _holding(config, run, world, interruption, _provenance(config, digests, profile), resume=resume),
        _with_base(config, run, world),
    ):
        family = load_family(config.task)
        world.doing("preparing", run.path.name)
        problems = family.problems("train", seed=derive_seed(config.seed, "problems"))
        _hold_to_problems(run, problems, world)  # before code of the user's own runs, which may have changed
        check_problems(config, family, problems)
        if world.is_main:
            for note in [*preset_notes(config.stages), *getattr(family, "notes", list)()]:
                progress.note(note)
        point = resume_point(config, run, progress, world=world, verify=verify)
        world.barrier()
        if world.is_main:
            cut_back_to(run, point.newest, config)
        world.barrier()
        check_end(config.stages, point.newest, read_metrics(run.metrics_path))
        training = _Training(config, run, world, family, problems, progress, run.identity(), interruption)
        training.run(point.newest, point.state)


@contextmanager
def _interruptible(run: RunDirectory) -> Iterator[Interruption]:
    """Let a signal end what comes before the first step at once, wherever it is."""
    with deferred_signals() as interruption:
        interruption.raises = True
        try:
            yield interruption
        except KeyboardInterrupt:
            if interruption.signal_number is None:
                raise
            remedy = _remedy(run) if (run.path / "run.json").is_file() else "nothing was written yet"
            message = f"interrupted before the first step; {remedy}"
            raise InterruptedRunError(message, signal_number=interruption.signal_number) from None


@contextmanager
def _marked_failed(run: RunDirectory) -> Iterator[None]:
    """Say in `run.json` that training failed where the first process was killed, and this one tells of it."""
    try:
        yield
    except StalledProcessError:
        if (run.path / "run.json").is_file() and not run.is_held():
            run.set_status("failed")
        raise


@contextmanager
def _with_base(config: Config, run: RunDirectory, world: World) -> Iterator[None]:
    """Keep the base of an adapter that is trained in memory, in the type that it computes in: all copies share it."""
    if config.model.lora is None or config.runtime.sharding.kind == "fsdp":
        yield
        return
    if world.is_main:
        initial_model(config, run)  # of a tiny one its folder is made
    world.barrier()
    base = initial_model(config, run)
    with bases_kept([base]):
        load_base(base, device=world.device, dtype=config.runtime.precision)
        yield


@contextmanager
def _holding(
    config: Config,
    run: RunDirectory,
    world: World,
    interruption: Interruption,
    provenance: dict[str, Any],
    *,
    resume: bool,
) -> Iterator[None]:
    """Let the first process make or lock the run directory and keep its status; the others wait for it."""
    if world.is_main:
        # A signal waits until there is somebody who writes down that it came.
        interruption.raises = False
        is_new = not (resume and (run.path / "run.json").exists())
        if is_new:
            run.create(config_yaml=dump_yaml(config), provenance=provenance)
        else:
            check_recorded_config(config, run)
        with run.lock():
            try:
                run.set_status("training")
                interruption.raises = True
                interruption.check()
                world.barrier()
                yield
            except BaseException as error:
                interruption.raises = False  # while it is written down
                is_refused = isinstance(error, SwerveError) and not isinstance(error, _FAULTS)
                if is_new and is_refused and not run.metrics_path.exists():
                    run.withdraw()  # refused before the first step: nothing to keep, and the name stays free
                    raise
                with suppress(SwerveError):  # where the disk is full, what filled it is what is told
                    run.set_status(_STATUS.get(type(error), "failed"))
                raise
            run.set_status("trained")
    else:
        world.barrier()
        yield


def _hold_to_problems(run: RunDirectory, problems: Sequence[Problem], world: World) -> None:
    """Check that the training problems are those that the run began with, or write down their digest."""
    provenance, digest = run.read_provenance(), problems_digest(problems)
    if provenance.setdefault("problems_sha256", digest) != digest:
        raise ConfigError(
            f"cannot resume {run.path}: its training problems, or what grades them, have changed since the run began; "
            "restore the files that the task names, or start another run with --out"
        )
    if world.is_main:
        run.write_provenance(provenance)


def _provenance(config: Config, digests: Mapping[str, str | None], profile: str | None) -> dict[str, Any]:
    return {
        "name": config.name,
        "swerve_version": __version__,
        "torch_version": torch.__version__,
        "transformers_version": transformers.__version__,
        "config_hash": config_hash(config),
        "seed": config.seed,
        "stages": {stage.label: stage.steps for stage in config.stages},
        **({"custom": digests} if digests else {}),
        **({"profile": profile} if profile else {}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saving:
    """A checkpoint that is being written."""

    writing: CheckpointWriting
    position: CheckpointRef
    evaluation: LiveEvaluation | None
    """Of its weights."""


@dataclass(frozen=True, slots=True)
class _Training:
    """One call of `train`: what does not change while it runs."""

    config: Config
    run_directory: RunDirectory
    world: World
    family: ProblemFamily
    problems: Sequence[Problem]
    progress: Progress
    identity: Mapping[str, Any]
    """What the run's checkpoints are marked with."""
    interruption: Interruption
    saving: list[_Saving] = field(default_factory=list)
    """The checkpoint that is being written while training continues; at most one."""

    def run(self, newest: CheckpointRef | None, state: SavedState | None) -> None:
        """Train every stage that the checkpoint `newest` (None: the beginning) has not finished; `state` is in it."""
        config, done = self.config, newest.step if newest else 0
        model, tokenizer = (state.loaded.model, state.loaded.tokenizer) if state is not None else self._initial_model()
        check_examples(config, self.family, model, tokenizer, done=done)
        check_models(config, model, tokenizer, done=done)
        check_solution_lengths(
            config, model.config, tokenizer, self.problems, checks_solutions=not self.family.is_prose
        )
        self._note_prompts(model, tokenizer)
        draws = {
            stage.label: stage_draws(phases_of(stage), self.family, self.problems, seed=config.seed)
            for stage in config.stages
        }
        history: list[Mapping[str, Any]] = [
            record for record in read_metrics(self.run_directory.problems_path) if record["step"] <= done
        ]

        def new_engine() -> Engine:
            return make_engine(config.rollout.engine, model, tokenizer, max_rows=config.runtime.max_rows)

        if newest is not None:
            self._make_up_evaluation(newest)
        first_step, weights = 0, self._weights(model)
        moments = state.trainer if state is not None else {}
        names = config.runtime.trackers if self.world.is_main else ()
        with (
            open_trackers(
                names, self.run_directory.path, first_step=done + 1, config=config.model_dump(mode="json")
            ) as trackers,
            self._giving_up(),
            closing(
                PolicyEngine(new_engine, engine_check(config, weights, tokenizer, self.problems), self.world)
            ) as engine,
        ):
            self.interruption.raises = False  # from here on a step is finished first, and saved
            for stage in config.stages:
                if done < first_step + stage.steps:
                    inside = newest if done > first_step else None
                    learner = self._learner(stage, weights, tokenizer)
                    if inside is not None:
                        load_trainer_state(inside.path, learner, moments)
                    elif stage.optimizer.keep_state:
                        keep_moments(learner, moments)
                    pending = moments.pop(PENDING, None)
                    moments.clear()
                    for phase, drawn in zip(phases_of(stage), draws[stage.label], strict=True):
                        steps = range(max(phase.steps.start, done - first_step), phase.steps.stop)
                        if steps:
                            context = self._context(phase, steps, learner, engine, first_step, drawn, history)
                            restore_pending(phase.stage, context, steps.start, pending)
                            pending = None
                            self._run_phase(phase, steps, context, trackers)
                    moments = trainer_state(learner) if self._is_continued(stage) else {}
                first_step += stage.steps

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Leave nothing half written where something fails."""
        try:
            yield
        finally:
            for one in self.saving:
                one.writing.give_up()
            self.saving.clear()

    def _make_up_evaluation(self, newest: CheckpointRef) -> None:
        """Evaluate the checkpoint that training continues from, where a kill took its evaluation."""
        config, run = self.config, self.run_directory
        (stage,) = [one for one in config.stages if one.label == newest.stage]
        if newest.scheduled and is_evaluated(config, stage, newest.stage_step) and is_that_of_files(config):
            evaluate_checkpoint(config, run, newest, self.family, heldout_problems(config, self.family), self.world)

    def _is_continued(self, stage: StageConfig) -> bool:
        """Whether the stage after this one continues with the optimizer's state."""
        stages = self.config.stages
        return stage is not stages[-1] and stages[stages.index(stage) + 1].optimizer.keep_state

    def _initial_model(self) -> tuple[Any, Any]:
        """Return the model and tokenizer that training begins with: the recipe's or new ones."""
        config = self.config
        if config.model.lora is None and isinstance(config.model, TinyModel):
            built, tokenizer = new_tiny_model(config, self.family)
            return cast(Any, built).to(device=self.world.device), tokenizer
        path = initial_model(config, self.run_directory)
        if config.runtime.sharding.kind == "fsdp":
            model = load_base(path, device="cpu", dtype="auto", mapped_by=self.world)
        else:
            model = load_base(path, device=self.world.device, dtype="float32")
        if config.model.lora is not None:
            model = new_adapter(model, config.model.lora, seed=derive_seed(config.seed, "lora"))
        return model, load_tokenizer(path)

    def _weights(self, model: Any) -> ReplicatedModel:
        runtime = self.config.runtime
        for stage in self.config.stages:
            trained_names(model, stage.freeze, key=f"stages.{stage.label}.freeze")
            optimizer_class(stage.optimizer)
        weights = model_class(runtime)(model, self.world, runtime=runtime, attention=self.config.attention)
        text = model.config.get_text_config()
        aux_coef = getattr(text, "router_aux_loss_coef", 0) if getattr(text, "output_router_logits", False) else 0
        if aux_coef and self.world.is_main:
            self.progress.note(
                f"config.json asks for {aux_coef:g} times the auxiliary loss that balances experts "
                "(output_router_logits), which no stage has in its loss"
            )
        if runtime.rows == "packed" and not weights.packs and self.world.is_main:
            self.progress.note(
                f"{type(model).__name__} does not read packed rows: its rows are padded, which is slower"
            )
        return weights

    def _note_prompts(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Say what the tokenizer does to the prompts, once; write down what its chat template begins of an answer."""
        if self.world.is_main:
            arguments, ends = template_arguments(self.config), stop_ids(model, tokenizer)
            begun = turn_of(tokenizer, arguments).begun
            self.run_directory.write_provenance({**self.run_directory.read_provenance(), "answer_begun": begun})
            for note in prompt_notes(tokenizer, self.problems, arguments, stop_ids=ends):
                self.progress.note(note)

    def _learner(self, stage: StageConfig, weights: ReplicatedModel, tokenizer: Any) -> Learner:
        value_head = None
        settings = [phase.stage for phase in phases_of(stage)]
        if any(isinstance(one, RlStage) and isinstance(one.advantages, GaeAdvantages) for one in settings):
            value_head = new_value_head(weights.model)
        drops = isinstance(stage, SftStage | RejectStage)
        weights.train_all_but(stage.freeze, key=f"stages.{stage.label}.freeze")
        return Learner(weights, tokenizer, stage.optimizer, value_head=value_head, drops=drops)

    def _context(
        self,
        phase: Phase,
        steps: range,
        learner: Learner,
        engine: PolicyEngine,
        first_step: int,
        draws: Draws,
        history: list[Mapping[str, Any]],
    ) -> StageContext:
        def raise_if_interrupted() -> None:
            if self.world.any(self.interruption.signal_number is not None):
                raise self._interrupted(first_step)

        curriculum = phase.stage.curriculum
        return StageContext(
            config=self.config,
            run=self.run_directory,
            world=self.world,
            family=self.family,
            draws=draws,
            learner=learner,
            engine=engine,
            stop_ids=declare_stop_ids(learner.model, learner.tokenizer),
            first_step=first_step,
            resumed=steps.start > phase.reference_start,
            progress=self.progress,
            records=self._records(phase.stage, range(phase.steps.start, steps.start)),
            stage_start=lambda: self._policy_after(first_step + phase.reference_start),
            raise_if_interrupted=raise_if_interrupted,
            solve_rates=SolveRates(curriculum) if isinstance(curriculum, SuccessRateCurriculum) else None,
            history=history,
            phase=None if phase.number is None else phase,
        )

    def _records(self, stage: StageConfig, steps: range) -> list[Mapping[str, Any]]:
        """Return the stage's lines of the metrics of these steps, counted from 0 within the stage."""
        records = read_metrics(self.run_directory.metrics_path) if steps else []
        return [record for record in records if record["stage"] == stage.label and record["stage_step"] - 1 in steps]

    def _policy_after(self, step: int) -> PreTrainedModel:
        """Load the policy after a global step at whose end a stage or phase ended; 0: the one training begins with."""
        if step == 0:
            return cast(PreTrainedModel, self._initial_model()[0])
        path = self.run_directory.checkpoint_path(step)
        return load_for(self.config.runtime, path, self.world).model

    def _run_phase(
        self,
        phase: Phase,
        steps: range,
        context: StageContext,
        trackers: Sequence[Tracker],
    ) -> None:
        """Make the updates of these steps of a phase."""
        stage = phase.stage
        if phase.resets_optimizer and steps.start == phase.steps.start:
            context.learner.optimizer.state.clear()
        runner = make_runner(stage, context)
        evaluation, watches = self._watches(stage, steps, context)
        done = steps.start - phase.steps.start
        with self.progress.task(f"train {phase.title}", len(phase.steps), done=done) as task:
            for index in steps:
                started = time.perf_counter()
                self.world.doing("beginning", f"step {index + 1} of {stage.label}")
                torch.manual_seed(context.seed(stage.label, "step", index, self.world.rank))  # for dropout
                metrics = runner.step(index)
                position = self._position(stage, context.first_step, index + 1)
                seconds = round(time.perf_counter() - started, 4)
                self.world.doing("evaluating after")
                # What is measured or judged now may need the last checkpoint, or take the place of its evaluation.
                self._settle(wait=is_evaluated(self.config, stage, index + 1) or bool(stage.roll_back_steps))
                for watch in watches:
                    metrics = {**metrics, **watch.measure(index + 1)}
                if phase.number is not None:
                    metrics = {"phase": phase.number, **metrics}
                record = {"stage_step": index + 1, **metrics}
                verdict = judge_grading(stage, [*context.records, record])
                if verdict.error is None:
                    verdict = judge_mismatch(stage, self.config.rollout.mismatch, [*context.records, record])
                if verdict.error is None:
                    verdict = judge_collapse(stage, context, record)
                self._log(position, trackers, context, {"seconds": seconds, **metrics, **verdict.figures})
                task.advance(1, **{name: metrics[name] for name in ("loss", "reward") if name in metrics})
                stopping = self.world.any(self.interruption.signal_number is not None)
                position = self._save_if_due(stage, context, position, verdict, evaluation, stopping=stopping)
                if verdict.error is not None:
                    raise verdict.error
                if stopping:
                    raise self._interrupted(position.step)
                if position.final:
                    break

    def _watches(self, stage: StageConfig, steps: range, context: StageContext) -> tuple[LiveEvaluation, list[Watch]]:
        """Return what evaluates the policy, and all that looks at it."""
        evaluation = LiveEvaluation(stage, context)
        if self.config.probe.every is None:
            return evaluation, [evaluation]
        start = self._policy_after(context.first_step) if steps.start else None
        return evaluation, [evaluation, LiveDivergence(context, start)]

    def _save_if_due(
        self,
        stage: StageConfig,
        context: StageContext,
        position: CheckpointRef,
        verdict: Verdict,
        evaluation: LiveEvaluation,
        *,
        stopping: bool,
    ) -> CheckpointRef:
        """Write the checkpoint that a step asks for, with its evaluation; return its place, the end of a stage over."""
        step, best = position.stage_step, best_step(context.records)
        due = position.scheduled or best == step or (stage.save_every and step % stage.save_every == 0)
        is_last = position.final or is_over(stage, context.records)
        if is_last:
            position = self._end_with_best(stage, context, position)
        if stopping or due or is_last or verdict.must_save:
            has_other_weights = (is_last and best not in (None, step)) or "rolled_back_to" in verdict.figures
            wait = not self.config.runtime.save_beside or stopping or is_last or verdict.must_save
            self._save(position, context, None if has_other_weights else evaluation, wait=wait)
        return position

    def _end_with_best(self, stage: StageConfig, context: StageContext, position: CheckpointRef) -> CheckpointRef:
        """Take over the weights of the stage's best step, where it looks for one; return the place of its end."""
        best = best_step(context.records)
        self._settle(wait=True)
        if best is not None and best != position.stage_step:
            path = self.run_directory.checkpoint_path(context.first_step + best)
            kept = load_for(self.config.runtime, path, self.world)
            context.learner.weights.load_weights(kept.model)
            context.engine.forget_version()
            self.world.barrier()  # the first process removes the checkpoint as soon as it has saved
            self.progress.note(f"{stage.label}: ends after {position.label} with the weights of step {best}, the best")
        return self._position(stage, context.first_step, stage.steps)

    def _position(self, stage: StageConfig, first_step: int, stage_step: int) -> CheckpointRef:
        """Return what a checkpoint after this step is, or would be."""
        final = stage_step == stage.steps
        return CheckpointRef(
            path=self.run_directory.checkpoint_path(first_step + stage_step),
            step=first_step + stage_step,
            stage=stage.label,
            stage_step=stage_step,
            scheduled=stage_step in stage.kept_steps,
            final=final,
        )

    def _log(
        self, position: CheckpointRef, trackers: Sequence[Tracker], context: StageContext, metrics: Mapping[str, Any]
    ) -> None:
        record = {"step": position.step, "stage": position.stage, "stage_step": position.stage_step, **metrics}
        context.records.append(record)
        if (note := note_of_failures(context.records)) is not None:
            self.progress.note(f"{position.stage}, {note}")
        if self.world.is_main:
            append_metrics(self.run_directory.metrics_path, record)
            numbers = {
                name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)
            }
            for tracker in trackers:
                tracker.log(position.stage, position.step, numbers)

    def _save(
        self, position: CheckpointRef, context: StageContext, evaluation: LiveEvaluation | None, *, wait: bool
    ) -> None:
        """Write a checkpoint, with the evaluation of its weights if there is one, or begin to."""
        self._settle(wait=True)
        self.world.doing("saving after")
        learner, base, run_files = context.learner, None, {}
        if self.world.is_main:
            run_files = self.run_directory.sync_run_files(position)
        if self.config.model.lora is not None:
            base = initial_model(self.config, self.run_directory)
        writing = CheckpointWriting(
            position,
            model=learner.model,
            weights=learner.weights.whole_weights(),
            tokenizer=learner.tokenizer,
            trainer_state={**trainer_state(learner), **pending_state(context)},
            provenance={**self.identity, "run_files": run_files},
            base=base,
            world=self.world,
            later=not wait,
        )
        self.saving.append(_Saving(writing=writing, position=position, evaluation=evaluation))
        self._settle(wait=wait)

    def _settle(self, *, wait: bool) -> None:
        """Put the checkpoint that is being written into its place if all is written; `wait` for that.

        What comes before it and is no longer needed is dropped then, and its evaluation written.
        """
        if self.saving and (wait or not self.world.any(not self.saving[0].writing.is_written)):
            one = self.saving.pop()
            saved = one.writing.finish()
            if self.world.is_main:
                tidy(self.run_directory, one.position, self.config)
            self.world.barrier()
            if self.world.is_main and one.evaluation is not None:
                one.evaluation.write(saved)

    def _interrupted(self, step: int) -> InterruptedRunError:
        saved = "; its checkpoint is saved" if step else "; nothing was trained yet"
        return InterruptedRunError(
            f"interrupted after step {step}{saved}; {_remedy(self.run_directory)}",
            signal_number=self.interruption.signal_number or 15,
        )


def _remedy(run: RunDirectory) -> str:
    return f"continue with: swerve train {shlex.quote(os.path.relpath(run.path))} --resume"
