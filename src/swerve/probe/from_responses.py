"""The probe of responses from elsewhere, by models from anywhere: no run is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.probe_summary import Compared, ProbeSummary, Responses
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.config import Config
from swerve.errors import ConfigError
from swerve.formats.imported_problems import ProblemRecord, read_problems
from swerve.formats.typed_fields import parse_fields
from swerve.models.model_folder import load_tokenizer, resolve_device
from swerve.models.sources import ModelSource, checkpoint_source
from swerve.probe.execute import execute_in
from swerve.probe.plan import ProbePlan
from swerve.probe.request import ComparedModels, NamedModel, ProbeSettings
from swerve.probe.rollouts.imported import ImportedResponses, ImportSettings, evaluated_problems, import_responses
from swerve.probe.rollouts.population import ProbeSequence, read_evaluation
from swerve.problems import ProblemFamily, load_family
from swerve.progress import Progress
from swerve.version import __version__
from swerve.world import joined_world

_HEADLINES = ("imported_wrong", "imported", "imported_right")
"""Of the populations of a file, the first of these that has responses is what the headline metrics are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Everything that a probe of imported responses needs."""

    config: Config | ProbeSettings
    """Its selection and populations are those of the responses."""
    reference: ModelSource
    """What the checkpoints are compared with."""
    baseline: ModelSource | None
    """What the reference is compared with."""
    checkpoints: tuple[ModelSource, ...]
    """In order of training; the last is the one the headline metrics are about."""
    steps: Mapping[str, int]
    """Global step of every model, by label; where they are not all of one run, their order."""
    responses: ImportedResponses
    """At least one; those of one problem have its id."""
    out: RunDirectory
    """Where results go, in its `probe/`; it need not exist."""


def request_probe(
    config: Config | ProbeSettings,
    models: ComparedModels,
    *,
    run: RunDirectory | None,
    responses: Path,
    problems: Path | None = None,
    fields: Sequence[str] = (),
    template: str | None = None,
    ends: str | None = None,
    out: Path | None = None,
) -> ProbeRequest:
    """Read and tokenise a file of responses for models; no model is loaded.

    Args:
        config: the run's, or settings without a run.
        models: to be compared; the reference's tokenizer is used.
        run: by default its problems are those of the responses, and the results go into it.
        responses: the file; see `import_responses`.
        problems: a file of the responses' problems.
        fields: `NAME=FIELD` of the files.
        template: see `ImportSettings`; None for its default, as for `ends`.
        ends: see `ImportSettings`.
        out: directory of the results.

    Raises:
        ArtifactError: a file cannot be read, or responses have no prompt.
        ConfigError: a field, `template` or `ends` is not allowed, or the device is not there.
    """
    sources = {one.label: checkpoint_source(one.label, one.path, config.runtime) for one in models.by_step}
    name = f"probe-{responses.name.partition('.')[0] or 'responses'}"
    return ProbeRequest(
        config=config,
        reference=sources[models.reference.label],
        baseline=sources[models.baseline.label] if models.baseline else None,
        checkpoints=tuple(sources[one.label] for one in models.checkpoints),
        steps=models.steps,
        responses=_responses(config, models.reference, run, responses, problems, parse_fields(fields), template, ends),
        out=RunDirectory(out or (Path(name) if run is None else run.path / name)),
    )


def _responses(
    config: Config | ProbeSettings,
    reference: NamedModel,
    run: RunDirectory | None,
    path: Path,
    problems_path: Path | None,
    fields: Mapping[str, str],
    template: str | None,
    ends: str | None,
) -> ImportedResponses:
    given: Any = {name: value for name, value in (("template", template), ("ends", ends)) if value}
    settings = ImportSettings(**given)
    problems: Mapping[str, ProblemRecord] = {}
    family: ProblemFamily | None = None
    if problems_path is not None:
        problems = read_problems(problems_path, fields=fields)
    elif run is not None:
        problems, family = _run_problems(config, run)
    return import_responses(
        path, tokenizer=_tokenizer(reference), problems=problems, fields=fields, settings=settings, family=family
    )


def _tokenizer(model: NamedModel) -> PreTrainedTokenizerBase:
    if isinstance(model.path, Path):
        return load_tokenizer(model.path)
    name, _, revision = model.path.partition("#")
    return load_tokenizer(name, **({"revision": revision} if revision else {}))


def _run_problems(
    config: Config | ProbeSettings, run: RunDirectory
) -> tuple[Mapping[str, ProblemRecord], ProblemFamily | None]:
    """Return the problems that a run was evaluated on, with their family; none if it was not evaluated."""
    evaluated = [one for one in run.checkpoints() if run.evaluation_path(one).is_file()]
    if not evaluated or not isinstance(config, Config):
        return {}, None
    return evaluated_problems(read_evaluation(run, evaluated[-1])), load_family(config.task)


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
    _check_unoccupied(out)
    with joined_world(resolve_device(config.runtime.device), timeout=config.runtime.collective_timeout) as world:
        if world.is_main:
            _record(out, _run_record(plan, request.responses.provenance))
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
    headline = next((name for name in _HEADLINES if name in known), sequences[0].population)
    return ProbePlan(
        settings=config.probe,
        runtime=config.runtime,
        seed=config.seed,
        confidence=config.eval.confidence,
        max_new_tokens=config.max_new_tokens,
        reference=request.reference,
        checkpoints=request.checkpoints,
        final=request.checkpoints[-1].label,
        steps=request.steps,
        baseline=request.baseline,
        sequences=_headline_first(sequences, headline),
        population=headline,
        path=request.out.probe_path,
        compared=_compared(request),
    )


def _check_unoccupied(out: RunDirectory) -> None:
    """Raise ConfigError unless `out` is new, empty, or another probe of responses, which this one replaces."""
    if (out.path / "run.json").is_file():
        if out.read_provenance().get("status") != PROBED:
            raise ConfigError(f"{out.path} is a run, whose own probe would be lost; choose a directory with --out")
    elif out.path.exists() and not (out.path.is_dir() and not any(out.path.iterdir())):
        raise ConfigError(f"{out.path} exists and is no probe of responses; choose another directory with --out")


def _record(out: RunDirectory, record: Mapping[str, Any]) -> None:
    """Say in `run.json` what is probed, unless another process is at work there."""
    if not (out.path / "run.json").is_file():
        out.create(config_yaml="", provenance=record)
        return
    with out.lock():
        out.write_provenance(record)


def _headline_first(sequences: Sequence[ProbeSequence], headline: str) -> tuple[ProbeSequence, ...]:
    """Return the sequences numbered anew, those of the headline population first."""
    ordered = sorted(sequences, key=lambda one: one.population != headline)
    return tuple(replace(one, sequence_id=index) for index, one in enumerate(ordered))


def _compared(request: ProbeRequest) -> Compared:
    compared = (request.reference, *request.checkpoints)
    return Compared(
        reference=request.reference.label,
        final=request.checkpoints[-1].label,
        baseline=None if request.baseline is None else request.baseline.label,
        checkpoints=tuple(one.label for one in request.checkpoints),
        weights_sha256={one.label: one.fingerprint for one in compared},
        num_problems=len({one.problem.id for one in request.responses.sequences}),
        num_reference_wrong=None,
        num_reference_wrong_final_right=None,
        selection="imported",
        mcnemar=None,
        reselected=None,
        responses=Responses(**request.responses.provenance),
    )


def _run_record(plan: ProbePlan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": plan.path.parent.name,
        "status": PROBED,
        "swerve_version": __version__,
        "seed": plan.seed,
        "responses": str(provenance.get("path", "")),
    }
