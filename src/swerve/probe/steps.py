"""A probe of responses step by step: what is done and still valid is not done again."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace

import torch

from swerve.artifacts.parts import digest_of
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.errors import ArtifactError, ConfigError
from swerve.models.model_folder import resolve_device
from swerve.probe.engine.measured import measure_plan, plan_pairs
from swerve.probe.execute import execute_in
from swerve.probe.from_responses import check_unoccupied, choice_line, plan_responses, record_probe
from swerve.probe.model_checks import check_models
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import StepName
from swerve.probe.response_request import ProbeRequest
from swerve.probe.step_log import StepLog, step_log
from swerve.progress import Progress
from swerve.rewards.checks import grading_of
from swerve.version import __version__
from swerve.world import World, joined_world


def probe_in_steps(
    request: ProbeRequest, steps: Collection[StepName], *, progress: Progress, started: float
) -> ProbeSummary | None:
    """Check everything, then do those of `divergence` and `analysis` that are asked for and not done.

    The statistics of every token stay in the directory, so that the analysis can be repeated with other settings and no
    model is run over the rollouts again.

    Args:
        request: what is asked for.
        steps: `prepare` is always done.
        progress: told of every step.
        started: `time.monotonic()` when the files began to be read.

    Returns:
        The summary, if there is a valid one in the end; None also for other processes than the first.

    Raises:
        ConfigError: the analysis is asked for without the divergence, which is not done.
        SwerveError: as `probe_responses`.
    """
    plan = replace(plan_responses(request), keep_statistics=True)
    check_unoccupied(request.out)
    log = step_log(plan.path, progress)
    device, timeout = resolve_device(request.config.runtime.device), request.config.runtime.collective_timeout
    with joined_world(device, timeout=timeout) as world:
        if world.is_main:
            if request.chosen is not None:
                progress.note(choice_line(plan.compared, request.chosen))
            check_models(plan, progress=progress)
            progress.note(f"prepare: done in {time.monotonic() - started:.1f} s")
        divergence, analysis = divergence_key(plan), analysis_key(plan)
        has_divergence = log.is_done("divergence", divergence) and plan.states_path.is_dir()
        summary = _valid_summary(request, log, analysis)
        if "analysis" in steps and summary is None and not has_divergence and "divergence" not in steps:
            raise ConfigError("the step analysis needs the step divergence, which is not done; add it to --steps")
        world.barrier()  # all have looked before anything changes
        if world.is_main and {"divergence", "analysis"} & set(steps):
            record_probe(plan, request)
        world.barrier()
        if "divergence" in steps:
            _measured(plan, log, divergence, world, is_done=has_divergence or summary is not None)
        if "analysis" in steps and summary is None:
            return _analysed(request, plan, log, analysis, world)
        if "analysis" in steps and world.is_main:
            log.skip("analysis")
    return summary


def _measured(plan: ProbePlan, log: StepLog, key: str, world: World, *, is_done: bool) -> None:
    if is_done or not plan.headline:
        if world.is_main:
            log.skip("divergence")
        return

    def work() -> None:
        measure_plan(plan, store=plan.states_path, world=world, progress=log.progress)

    if world.is_main:
        log.do("divergence", key, work)
    else:
        work()


def _analysed(request: ProbeRequest, plan: ProbePlan, log: StepLog, key: str, world: World) -> ProbeSummary | None:
    def work() -> ProbeSummary | None:
        return execute_in(request.out, plan, progress=log.progress, world=world)

    return log.do("analysis", key, work) if world.is_main else work()


def _valid_summary(request: ProbeRequest, log: StepLog, key: str) -> ProbeSummary | None:
    """Return the summary if it is that of the same plan, and its tables are those that were written with it."""
    if not log.is_done("analysis", key):
        return None
    try:
        return read_summary(request.out)
    except ArtifactError:
        return None


def divergence_key(plan: ProbePlan) -> str:
    """Return a digest of all that the statistics of the tokens depend on."""
    settings = plan.settings
    return digest_of(
        __version__,
        torch.__version__,
        [[one.label, one.fingerprint] for one in plan.models],
        plan_pairs(plan),
        [settings.top_k, settings.tokens_per_batch, settings.tokens_per_chunk, settings.kernel],
        [[list(one.prompt_ids), list(one.completion_ids)] for one in plan.sequences],
    )


def analysis_key(plan: ProbePlan) -> str:
    """Return a digest of all that the summary depends on."""
    problems = [one.problem for one in plan.sequences] + [one.problem for one in plan.prompts]
    return digest_of(
        divergence_key(plan),
        [one.model_dump(mode="json") for one in (plan.settings, plan.runtime, plan.rollout, plan.compared)],
        [plan.seed, plan.confidence, plan.max_new_tokens, plan.final, dict(plan.steps), plan.population],
        [asdict(one) for one in plan.sequences],
        [asdict(one) for one in plan.prompts],
        grading_of(one for one in problems if one.grader or one.family),
        list(plan.notes),
    )
