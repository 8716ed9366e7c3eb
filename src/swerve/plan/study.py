"""What a study takes: the sum over its runs, which wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from swerve.config.models import PretrainedModel
from swerve.config.recipe import Config
from swerve.plan.budget import Budget, PlannedRun
from swerve.plan.training import training_budget
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.study.job import StudyJob
from swerve.study.plan import Plan
from swerve.train.disk import BYTES_PER_TOKEN, ONE_MORE, evaluation_tokens, free_disk


def study_budget(
    plan: Plan, jobs: Sequence[StudyJob], *, memory_gb: float | None = None, measures: bool = False
) -> Budget:
    """Return what the runs of a study take that are not done.

    Memory is that of the run with the highest peak, in each of its processes; a run's hours are divided by its
    processes, and sums are of runs one after the other: of these one writes a checkpoint at a time.

    Args:
        plan: the study.
        jobs: its runs, each behind those that it waits for.
        memory_gb: of another machine's device; None: this machine's.
        measures: whether rates are measured here.

    Raises:
        ConfigError, CheckpointError: see `training_budget`.
    """
    left, budgets = [job for job in jobs if job.next_step() == "train"], dict[str, Budget]()
    disk, tokens, work, runs = Counter[str](), Counter[str](), Counter[str](), list[PlannedRun]()
    highest = Budget(command="study")
    for job in left:
        # Runs that differ by their seeds take the same.
        config, key = _counted(job.config, jobs), job.name.partition("/seed-")[0]
        if key not in budgets:
            budgets[key] = training_budget(config, memory_gb=memory_gb, processes=job.processes, measures=measures)
        budget = budgets[key]
        evaluation = _later_evaluation(config) if "eval" in job.steps else 0
        for kind, size in budget.disk.items():
            disk["weights of checkpoints" if kind.startswith("weights") else kind] += size * (kind != ONE_MORE)
        disk[ONE_MORE] = max(disk[ONE_MORE], budget.disk.get(ONE_MORE, 0))
        disk["evaluations"] += evaluation * BYTES_PER_TOKEN
        tokens.update(budget.tokens)
        tokens["evaluation"] += evaluation
        work.update(budget.work)
        work["sampling"] += evaluation
        one = replace(budget, work={**budget.work, "sampling": budget.work.get("sampling", 0) + evaluation})
        runs.append(PlannedRun(name=job.name, after=job.after, processes=job.processes, hours=one.total_hours))
        if _peak(budget) >= _peak(highest):
            highest = budget
    notes = [note for budget in budgets.values() for note in budget.notes]
    if plan.num_jobs > len(plan.tuning) + len(plan.jobs):
        notes.append("not counted: the runs that wait for settings that are not chosen yet")
    if any("probe" in job.steps for job in left):
        notes.append("not counted: the probes of the runs; swerve plan probe RUN says what one takes")
    return replace(
        highest,
        command="study",
        disk=disk,
        place=plan.path,
        free=free_disk(plan.path) if memory_gb is None else None,
        tokens={purpose: number for purpose, number in tokens.items() if number},
        work={kind: number for kind, number in work.items() if number},
        runs=tuple(runs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _counted(config: Config, jobs: Sequence[StudyJob]) -> Config:
    """Return a run's recipe with its steps; in the place of a model that another run makes, that run's own."""
    if isinstance(config.model, PretrainedModel):
        path = config.model.path
        makers = [job for job in jobs if path.startswith((f"{job.run.path}:", f"{job.run.path}/"))]
        if makers:
            return _counted(config.model_copy(update={"model": makers[0].config.model}), jobs)
    return with_steps(config, data_sizes(config, asks_hub=False))


def _peak(budget: Budget) -> int:
    return 0 if budget.memory is None else budget.memory.peak


def _later_evaluation(config: Config) -> int:
    """Return the tokens of the evaluations of all checkpoints, and of the model that the run begins with."""
    number = len(config.retained_steps(sum(stage.steps for stage in config.stages)))
    return (number + isinstance(config.model, PretrainedModel)) * evaluation_tokens(config)
