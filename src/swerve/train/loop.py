"""The training loop: stages in order, checkpoints on schedule, exact resume."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.metrics import append_metrics, read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config.objectives import GaeAdvantages
from swerve.config.recipe import Config
from swerve.config.stages import RlStage, StageConfig
from swerve.config.supervised_stages import RejectStage, SftStage
from swerve.errors import ConfigError
from swerve.eval.heldout import evaluate_checkpoint, heldout_problems
from swerve.models.model_folder import bases_kept, declare_stop_ids, load_base, stop_ids
from swerve.models.runtime import apply_runtime
from swerve.models.saving import check_saving
from swerve.models.starting_model import initial_model, starting_model
from swerve.models.trial import reads_padded
from swerve.problems import ProblemFamily, load_family
from swerve.progress import Progress
from swerve.prompts.notes import prompt_notes
from swerve.prompts.templates import template_arguments, turn_of
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.loader import config_hash
from swerve.rewards.checks import problems_digest
from swerve.rollout.engine import make_engine
from swerve.rollout.sync import PolicyEngine
from swerve.seeds import derive_seed
from swerve.train.checkpointer import SavedState, cut_back_to, resume_point, save_if_due
from swerve.train.checks import (
    check_examples,
    check_machine,
    check_problems,
    check_recipe_models,
    check_solution_lengths,
)
from swerve.train.context import StageContext
from swerve.train.curriculum import Draws, stage_draws
from swerve.train.custom_parts import check_unchanged, custom_digests, load_custom_parts
from swerve.train.disk import check_disk, run_disk
from swerve.train.engine_check import engine_check
from swerve.train.health.collapse import judge_collapse
from swerve.train.health.mismatch import judge_mismatch
from swerve.train.health.ungraded import check_end, judge_grading, note_of_failures
from swerve.train.learner import (
    Learner,
    load_trainer_state,
    new_value_head,
    optimizer_class,
)
from swerve.train.phases import Phase, phases_of
from swerve.train.replicated_model import ReplicatedModel, trained_names
from swerve.train.rollouts import PENDING, restore_pending
from swerve.train.session import Session, open_session
from swerve.train.sharded_model import load_for, model_class
from swerve.train.stages import make_runner
from swerve.train.trackers import Tracker, open_trackers
from swerve.train.watches import LiveDivergence, LiveEvaluation, is_evaluated, is_that_of_files
from swerve.types import Problem
from swerve.version import __version__


def train_run(
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
    # Code and data of the user's own are those that the run began with, and this machine can do what is asked.
    config = with_steps(config, data_sizes(config))
    digests = custom_digests(config)
    if resume and (run.path / "run.json").exists():
        check_unchanged(digests, run)
    load_custom_parts(config)
    check_machine(config)
    apply_runtime(config.runtime)
    provenance = {
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
    with open_session(config, run, progress, provenance, resume=resume) as session, _with_base(session):
        # The problems are compared with the run's before code of the user's own, which may have changed, runs on them.
        world, family = session.world, load_family(config.task)
        world.doing("preparing", run.path.name)
        problems = family.problems("train", seed=derive_seed(config.seed, "problems"))
        _check_same_problems(session, problems)
        check_problems(config, family, problems)
        if world.is_main:
            for note in [*chain.from_iterable(stage.notes for stage in config.stages), *family.notes()]:
                progress.note(note)
        # Training continues after the newest checkpoint that is intact; what was logged later is made again.
        newest, state = resume_point(config, run, progress, world=world, verify=verify)
        world.barrier()
        if world.is_main:
            cut_back_to(run, newest, config)
        world.barrier()
        check_end(config.stages, newest, read_metrics(run.metrics_path))
        _train_stages(session, family, problems, newest, state)


@contextmanager
def _with_base(session: Session) -> Iterator[None]:
    """Keep the base of an adapter that is trained in memory, in the type that it computes in: all copies share it."""
    config, run, world = session.config, session.run, session.world
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


def _check_same_problems(session: Session, problems: Sequence[Problem]) -> None:
    """Check that the training problems are those that the run began with; write down their digest, and who trains."""
    run = session.run
    provenance, digest = run.read_provenance(), problems_digest(problems)
    if provenance.setdefault("problems_sha256", digest) != digest:
        raise ConfigError(
            f"cannot resume {run.path}: its training problems, or what grades them, have changed since the run began; "
            "restore the files that the task names, or start another run with --out"
        )
    # What else the arithmetic depends on: of a run that others continued, every number of processes.
    provenance["num_processes"] = sorted({*provenance.get("num_processes", []), session.world.size})
    if session.world.is_main:
        run.write_provenance(provenance)


def _train_stages(
    session: Session,
    family: ProblemFamily,
    problems: Sequence[Problem],
    newest: CheckpointRef | None,
    state: SavedState | None,
) -> None:
    """Train every stage that the checkpoint `newest` (None: the beginning) has not finished; `state` is in it."""
    # The model as it is now, compared with what the stages to come ask of it.
    config, run, world, done = session.config, session.run, session.world, newest.step if newest else 0
    if state is None:
        model, tokenizer = starting_model(config, run, family, world)
    else:
        model, tokenizer = state.loaded.model, state.loaded.tokenizer
    check_examples(config, family, model, tokenizer, done=done)
    check_recipe_models(config, model, tokenizer, done=done)
    check_solution_lengths(config, model.config, tokenizer, problems, checks_solutions=not family.is_prose)
    _note_prompts(session, problems, model, tokenizer)
    draws = {stage.label: stage_draws(phases_of(stage), family, problems, seed=config.seed) for stage in config.stages}
    if newest is not None:
        _make_up_evaluation(session, newest, family)
    weights = trained_weights(session, model)
    declare_stop_ids(model, tokenizer)
    if world.is_main:
        base = None if config.model.lora is None else initial_model(config, run)
        check_saving(model, tokenizer, weights.whole_weights(), run.path / "saving-trial", base=base)
    if newest is None:
        check_disk(run_disk(config, model), run.path)
    engine_of_policy = PolicyEngine(
        lambda: make_engine(config.rollout.engine, model, tokenizer, max_rows=config.runtime.max_rows),
        engine_check(config, weights, tokenizer, problems),
        world,
    )
    with (
        open_trackers(
            config.runtime.trackers if world.is_main else (),
            run.path,
            first_step=done + 1,
            config=config.model_dump(mode="json"),
        ) as trackers,
        closing(engine_of_policy) as engine,
    ):
        session.interruption.raises = False  # from here on a step is finished first, and saved
        for phase, steps, context in phases_to_train(
            session, family, draws, weights, tokenizer, engine, newest, {} if state is None else state.trainer
        ):
            _train_phase(session, phase, steps, context, trackers)


def phases_to_train(
    session: Session,
    family: ProblemFamily,
    draws: Mapping[str, Sequence[Draws]],
    weights: ReplicatedModel,
    tokenizer: PreTrainedTokenizerBase,
    engine: PolicyEngine,
    newest: CheckpointRef | None,
    moments: dict[str, dict[str, Tensor]],
) -> Iterator[tuple[Phase, range, StageContext]]:
    """Yield each phase with steps to come, these steps and what they work with; they are to be made before the next.

    Args:
        session: of the run.
        family: the task's.
        draws: of each stage's phases, by its label.
        weights: as they are after `newest`.
        tokenizer: the model's.
        engine: samples.
        newest: the checkpoint that training continues from; None: the beginning.
        moments: the trainer's state that is in it; it is emptied.
    """
    done, first_step = newest.step if newest else 0, 0
    history: list[Mapping[str, Any]] = [
        line for line in read_metrics(session.run.problems_path) if line["step"] <= done
    ]
    for stage in session.config.stages:
        if done < first_step + stage.steps:
            # The optimizer continues inside a stage.
            learner = _learner(stage, weights, tokenizer)
            if newest is not None and done > first_step:
                load_trainer_state(newest.path, learner, moments)
            pending = moments.pop(PENDING, None)
            moments.clear()
            for phase, drawn in zip(phases_of(stage), draws[stage.label], strict=True):
                steps = range(max(phase.steps.start, done - first_step), phase.steps.stop)
                if steps:
                    if phase.resets_optimizer and steps.start == phase.steps.start:
                        learner.optimizer.state.clear()
                    context = _context(session, family, phase, steps, learner, engine, first_step, drawn, history)
                    restore_pending(phase.stage, context, steps.start, pending)
                    pending = None
                    yield phase, steps, context
        first_step += stage.steps


def _train_phase(
    session: Session,
    phase: Phase,
    steps: range,
    context: StageContext,
    trackers: Sequence[Tracker],
) -> None:
    """Make the updates of these steps of a phase: the training loop."""
    config, world, stage = session.config, session.world, phase.stage
    runner = make_runner(stage, context)
    evaluation = LiveEvaluation(stage, context)
    divergence = None
    if config.probe.every is not None:
        start = _policy_after(session, context.family, context.first_step) if steps.start else None
        divergence = LiveDivergence(context, start)
    done = steps.start - phase.steps.start
    with session.progress.task(f"train {phase.title}", len(phase.steps), done=done) as task:
        for index in steps:
            # Draw problems, sample, grade, form advantages and update, as far as the stage's kind has them.
            step, started = index + 1, time.perf_counter()
            world.doing("beginning", f"step {step} of {stage.label}")
            torch.manual_seed(context.seed(stage.label, "step", index, world.rank))  # for dropout
            metrics = {} if phase.number is None else {"phase": phase.number}
            metrics.update(runner.step(index))
            seconds = round(time.perf_counter() - started, 4)
            # Measure the policy.
            world.doing("evaluating after")
            metrics.update(evaluation.measure(step))
            metrics.update({} if divergence is None else divergence.measure(step))
            # Judge the step.
            record = {"stage_step": step, **metrics}
            records = [*context.records, record]
            verdict = judge_grading(stage, records)
            if verdict.error is None:
                verdict = judge_mismatch(stage, config.rollout.mismatch, records)
            if verdict.error is None:
                verdict = judge_collapse(stage, config, records)
            if verdict.note is not None:
                session.progress.note(verdict.note)
            # Log it, and save what is to be kept.
            _log(stage, step, context, {"seconds": seconds, **metrics, **verdict.figures}, trackers)
            task.advance(1, **{name: metrics[name] for name in ("loss", "reward") if name in metrics})
            stopping = session.is_asked_to_stop()
            position = save_if_due(stage, context, step, verdict, evaluation, stopping=stopping)
            if verdict.error is not None:
                raise verdict.error
            if stopping:
                raise session.interrupted(position.step)
            if position.final:  # before its last step where it stops early
                break


def _log(
    stage: StageConfig, stage_step: int, context: StageContext, metrics: Mapping[str, Any], trackers: Sequence[Tracker]
) -> None:
    """Add a step's line to the metrics."""
    step = context.first_step + stage_step
    record = {"step": step, "stage": stage.label, "stage_step": stage_step, **metrics}
    context.records.append(record)
    if (note := note_of_failures(context.records)) is not None:
        context.progress.note(f"{stage.label}, {note}")
    if context.world.is_main:
        append_metrics(context.run.metrics_path, record)
        numbers = {}
        for name, value in metrics.items():
            if isinstance(value, int | float):
                numbers[f"{stage.label}/{name}"] = value
        for track in trackers:
            track(numbers, step)


def _make_up_evaluation(session: Session, newest: CheckpointRef, family: ProblemFamily) -> None:
    """Evaluate the checkpoint that training continues from, where a kill took its evaluation."""
    config, run, world = session.config, session.run, session.world
    (stage,) = [stage for stage in config.stages if stage.label == newest.stage]
    if newest.scheduled and is_evaluated(config, stage, newest.stage_step) and is_that_of_files(config):
        evaluate_checkpoint(config, run, newest, family, heldout_problems(config, family), world)


def trained_weights(session: Session, model: PreTrainedModel) -> ReplicatedModel:
    """Return the model in training, and say what may surprise about it."""
    config, world = session.config, session.world
    for stage in config.stages:
        trained_names(model, stage.freeze, key=f"stages.{stage.label}.freeze")
        optimizer_class(stage.optimizer)
    weights = model_class(config.runtime)(model, world, runtime=config.runtime, attention=config.attention)
    text = model.config.get_text_config()
    aux_coef = getattr(text, "router_aux_loss_coef", 0) if getattr(text, "output_router_logits", False) else 0
    if aux_coef and world.is_main:
        session.progress.note(
            f"config.json asks for {aux_coef:g} times the auxiliary loss that balances experts "
            "(output_router_logits), which no stage has in its loss"
        )
    if not reads_padded(model) and world.is_main:
        session.progress.note(
            f"{type(model).__name__} does not know padding from tokens: it reads one text at a time, which is slower"
        )
    elif config.runtime.rows == "packed" and not weights.packs and world.is_main:
        session.progress.note(f"{type(model).__name__} does not read packed rows: its rows are padded, which is slower")
    return weights


def _note_prompts(
    session: Session, problems: Sequence[Problem], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Say what the tokenizer does to the prompts, once; write down what its chat template begins of an answer."""
    if session.world.is_main:
        arguments, run = template_arguments(session.config.model), session.run
        run.write_provenance({**run.read_provenance(), "answer_begun": turn_of(tokenizer, arguments).begun})
        for note in prompt_notes(tokenizer, problems, arguments, stop_ids=stop_ids(model, tokenizer)):
            session.progress.note(note)


def _learner(stage: StageConfig, weights: ReplicatedModel, tokenizer: PreTrainedTokenizerBase) -> Learner:
    """Return the model with the optimizer of a stage, and a value head if one of its phases has one."""
    settings = [phase.stage for phase in phases_of(stage)]
    has_values = any(
        isinstance(setting, RlStage) and isinstance(setting.advantages, GaeAdvantages) for setting in settings
    )
    weights.train_all_but(stage.freeze, key=f"stages.{stage.label}.freeze")
    return Learner(
        weights,
        tokenizer,
        stage.optimizer,
        value_head=new_value_head(weights.model) if has_values else None,
        drops=isinstance(stage, SftStage | RejectStage),
    )


def _context(
    session: Session,
    family: ProblemFamily,
    phase: Phase,
    steps: range,
    learner: Learner,
    engine: PolicyEngine,
    first_step: int,
    draws: Draws,
    history: list[Mapping[str, Any]],
) -> StageContext:
    """Return what the steps of a phase work with."""

    def raise_if_interrupted() -> None:
        if session.is_asked_to_stop():
            raise session.interrupted(first_step)

    # Adaptive coefficients and the verdict on a collapse follow the phase's lines of the metrics so far.
    made = range(phase.steps.start, steps.start)
    records = read_metrics(session.run.metrics_path) if made else []
    return StageContext(
        config=session.config,
        run=session.run,
        world=session.world,
        family=family,
        draws=draws,
        learner=learner,
        engine=engine,
        stop_ids=declare_stop_ids(learner.model, learner.tokenizer),
        first_step=first_step,
        resumed=steps.start > phase.reference_start,
        progress=session.progress,
        records=[line for line in records if line["stage"] == phase.stage.label and line["stage_step"] - 1 in made],
        stage_start=lambda: _policy_after(session, family, first_step + phase.reference_start),
        raise_if_interrupted=raise_if_interrupted,
        history=history,
        phase=phase,
    )


def _policy_after(session: Session, family: ProblemFamily, step: int) -> PreTrainedModel:
    """Load the policy after a global step at whose end a stage or phase ended; 0: the one training begins with."""
    if step == 0:
        return starting_model(session.config, session.run, family, session.world)[0]
    return load_for(session.config.runtime, session.run.checkpoint_path(step), session.world).model
