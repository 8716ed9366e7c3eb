"""The probe of responses from elsewhere, by models from anywhere: no run is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from swerve.artifacts.probe_summary import Compared, ProbeSummary, Responses
from swerve.artifacts.responses import Response
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import resolve_device
from swerve.models.sources import ModelSource
from swerve.probe.execute import execute_in
from swerve.probe.model_checks import check_models
from swerve.probe.plan import ProbePlan
from swerve.probe.response_request import ProbeRequest
from swerve.probe.rollouts.samples import ChosenRollouts, table_line
from swerve.progress import Progress
from swerve.rewards.checks import has_grader
from swerve.statistics.hypothesis_tests import mcnemar
from swerve.types import Prompt
from swerve.version import __version__
from swerve.world import joined_world

_HEADLINES = ("imported_wrong", "imported", "imported_right")
"""Of the populations of a file, the first of these that has responses is what the headline metrics are about."""


def probe_responses(request: ProbeRequest, *, progress: Progress) -> ProbeSummary | None:
    """Compare checkpoints with a reference on responses from elsewhere, every one of them; return the summary.

    Writes the tables and `summary.json` to `out/probe/`, and a `run.json` with which `swerve report` can show them.
    Interrupted, it continues where it stopped the next time.

    Raises:
        ConfigError: there is no checkpoint or no response, or something else is in `out`.
        MismatchError: the models have different tokenizers or vocabularies.
        ArtifactError: another process works in `out`.
    """
    config, out = request.config, request.out
    plan = plan_responses(request)
    check_unoccupied(out)
    if request.chosen is not None:
        progress.note(choice_line(plan.compared, request.chosen))
    with joined_world(resolve_device(config.runtime.device), timeout=config.runtime.collective_timeout) as world:
        if world.is_main:
            check_models(plan, progress=progress)
            record_probe(plan, request)
        world.barrier()  # a directory can only be made where nobody has put anything yet
        return execute_in(out, plan, progress=progress, world=world)


def plan_responses(request: ProbeRequest) -> ProbePlan:
    """Return what a request asks to probe; nothing is written and no model is loaded.

    Raises:
        ConfigError: there is no checkpoint or no response.
    """
    config, sequences = request.config, request.responses.sequences
    if not request.checkpoints or not sequences:
        what = "response" if request.checkpoints else "checkpoint"
        raise ConfigError(f"there is no {what} to probe; give at least one")
    known = {one.population for one in sequences}
    chosen = request.chosen
    headline = (
        request.selected.name
        if request.selected
        else next((name for name in _HEADLINES if name in known), sequences[0].population)
    )
    ordered = _headline_first(sequences, headline)
    plan = ProbePlan(
        settings=config.probe,
        runtime=config.runtime,
        seed=config.seed,
        confidence=config.eval.confidence,
        rollout=config.rollout,
        max_new_tokens=config.max_new_tokens or max(len(one.completion_ids) for one in sequences),
        reference=request.reference,
        checkpoints=request.checkpoints,
        final=request.checkpoints[-1].label,
        steps=request.steps,
        baseline=request.baseline,
        sequences=ordered,
        population=headline,
        path=request.out.probe_path,
        compared=_compared(request),
        prompts=_prompts(sequences if chosen is None else chosen.prompts)
        if config.probe.cross_sampling.max_problems
        else (),
    )
    return replace(plan, notes=_notes(plan, request))


def _prompts(sequences: Sequence[Response]) -> list[Prompt]:
    """Return the prompt of every problem that can be graded, in the order of the file."""
    found = {one.problem.id: one for one in sequences if has_grader(one.problem)}
    return [Prompt(problem=one.problem, token_ids=one.prompt_ids) for one in found.values()]


def _notes(plan: ProbePlan, request: ProbeRequest) -> tuple[str, ...]:
    """Return what must be known of graders and verdicts.

    Raises:
        ConfigError: a causal test is asked for that the responses do not allow.
    """
    settings, provenance, notes = plan.settings, request.responses.provenance, list(request.notes)
    file, num_problems = provenance.get("path"), settings.cross_sampling.max_problems
    if not plan.has_verifier:
        lacking = sum(not has_grader(one.problem) for one in plan.headline)
        why = f"{lacking} of {len(plan.headline)} responses in {file} have no gold answer or no grader"
        if settings.pivots.max_rollouts or num_problems:
            key = "cross_sampling.max_problems" if num_problems else "pivots.max_rollouts"
            raise ConfigError(f"probe.{key}: {why}; name the grader with --task KIND (swerve data list)")
        if settings.causal.max_rollouts:
            notes.append(f"{why}, so there are no swaps: name the grader with --task KIND")
    elif num_problems and len(plan.prompts) < 2:
        raise ConfigError(f"probe.cross_sampling.max_problems needs two problems and more, {file} has one")
    selected = request.selected
    files = [Responses(**provenance)] if selected is None else [selected.reference, selected.final]
    notes += [
        f"{one.num_cut} responses in {one.path} have ids that the tokenizer has no token for (of a padded output head, "
        "or of another tokenizer): they are read up to the first of these"
        for one in files
        if one.num_cut
    ]
    if provenance.get("num_regraded"):
        num, total = provenance["num_regraded"], provenance["num_recorded"]
        notes.append(f"{num} of {total} verdicts recorded in {file} differ from the grader's, which are used")
    return tuple(notes)


def check_unoccupied(out: RunDirectory) -> None:
    """Raise ConfigError unless `out` is new, empty, or another probe of responses, which this one replaces."""
    if (out.path / "run.json").is_file():
        if out.read_provenance().get("status") != PROBED:
            raise ConfigError(f"{out.path} is a run, whose own probe would be lost; choose a directory with --out")
    elif out.path.exists() and not (out.path.is_dir() and not any(out.path.iterdir())):
        raise ConfigError(f"{out.path} exists and is no probe of responses; choose another directory with --out")


def record_probe(plan: ProbePlan, request: ProbeRequest) -> None:
    """Say in `run.json` what is probed, unless another process is at work there."""
    out, record = request.out, _run_record(plan, request.responses.provenance)
    if not (out.path / "run.json").is_file():
        out.create(config_yaml="", provenance=record)
        return
    with out.lock():
        out.write_provenance(record)


def _headline_first(sequences: Sequence[Response], headline: str) -> tuple[Response, ...]:
    """Return the sequences numbered anew, those of the headline population first."""
    ordered = sorted(sequences, key=lambda one: one.population != headline)
    return tuple(replace(one, sequence_id=index) for index, one in enumerate(ordered))


def _compared(request: ProbeRequest) -> Compared:
    compared, chosen, selected = (request.reference, *request.checkpoints), request.chosen, request.selected
    common: dict[str, Any] = {
        "reference": request.reference.label,
        "final": request.checkpoints[-1].label,
        "baseline": None if request.baseline is None else request.baseline.label,
        "checkpoints": tuple(one.label for one in request.checkpoints),
        "weights_sha256": _fingerprints(compared),
        "reselected": None,
    }
    if chosen is None or selected is None:
        return Compared(
            **common,
            num_problems=len({one.problem.id for one in request.responses.sequences}),
            num_reference_wrong=None,
            num_reference_wrong_final_right=None,
            selection="imported",
            mcnemar=None,
            responses=Responses(**request.responses.provenance),
        )
    is_split = chosen.rule == "split"
    return Compared(
        **common,
        num_problems=len(chosen.reference_right),
        num_reference_wrong=selected.only_final_right + selected.both_wrong,
        num_reference_wrong_final_right=selected.only_final_right,
        selection=chosen.rule,
        num_ties=chosen.num_ties if is_split else None,
        tie_seed=request.tie_seed if is_split else None,
        mcnemar=mcnemar(chosen.reference_right, chosen.final_right, confidence=request.config.eval.confidence),
        selected=selected,
    )


def choice_line(compared: Compared, chosen: ChosenRollouts) -> str:
    """Return the table of right and wrong with its test, and what was chosen by it."""
    test, labels = compared.mcnemar, (compared.reference, compared.final)
    p_value = "" if test is None or test.p_value is None else f" (McNemar p {test.p_value:.2g})"
    return f"{table_line(chosen.reference_right, chosen.final_right, labels)}{p_value}"


def _fingerprints(models: Sequence[ModelSource]) -> dict[str, str]:
    """Return the digest of each model that can be read; `check_models` names the others."""
    found = {}
    for one in models:
        with suppress(CheckpointError):
            found[one.label] = one.fingerprint
    return found


def _run_record(plan: ProbePlan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": PROBED,
        "name": plan.path.parent.name,
        "swerve_version": __version__,
        "seed": plan.seed,
        "responses": str(provenance.get("path", "")),
    }
