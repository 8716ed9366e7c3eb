"""What a probe of responses needs, read from files of responses or samples; no model is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.probe_summary import Responses, Selected
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import is_samples_file, read_samples_info
from swerve.config import Config
from swerve.errors import CheckpointError, ConfigError
from swerve.estimates import Estimate
from swerve.formats.imported_problems import read_problems
from swerve.formats.typed_fields import parse_fields
from swerve.models.model_folder import load_tokenizer
from swerve.models.sources import CheckpointSource, ModelSource, checkpoint_source
from swerve.probe.model_checks import check_readable
from swerve.probe.request import ComparedModels, ProbeSettings, SampleFiles
from swerve.probe.rollouts.imported import ImportedResponses, ImportSettings, import_responses
from swerve.probe.rollouts.population import read_evaluated
from swerve.probe.rollouts.samples import ChosenRollouts, choose_rollouts, parse_conditions
from swerve.problems import ProblemFamily, load_family
from swerve.rewards.checks import has_grader
from swerve.seeds import derive_seed
from swerve.statistics.intervals import accuracy_interval, mean_interval


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
    chosen: ChosenRollouts | None = None
    """How the rollouts were chosen from samples of two models."""
    selected: Selected | None = None
    """The same for the summary."""
    notes: tuple[str, ...] = ()
    """Caveats of the files."""

    @property
    def tie_seed(self) -> int:
        """Seed of the draw where as many samples of a problem are right as wrong."""
        return derive_seed(self.config.seed, "probe", "split", "ties")


def request_probe(
    config: Config | ProbeSettings,
    models: ComparedModels,
    *,
    run: RunDirectory | None,
    responses: Path | None = None,
    samples: SampleFiles | None = None,
    problems: Path | None = None,
    fields: Sequence[str] = (),
    template: str | None = None,
    ends: str | None = None,
    out: Path | None = None,
) -> ProbeRequest:
    """Read and tokenise a file of responses, or two files of samples, for models; no model is loaded.

    Args:
        config: the run's, or settings without a run.
        models: to be compared; the reference's tokenizer is used.
        run: by default its problems are those of the responses, and the results go into it.
        responses: the file; see `import_responses`.
        samples: two files instead, of which rollouts are chosen.
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
    try:
        tokenizer = load_tokenizer(models.reference.path)
    except CheckpointError:
        check_readable(list(sources.values()))  # what is wrong with the others is said as well
        raise
    given: Any = {key: value for key, value in (("template", template), ("ends", ends)) if value}
    read = partial(
        _responses,
        config,
        tokenizer,
        run,
        problems_path=problems,
        fields=parse_fields(fields),
        settings=ImportSettings(**given),
    )
    file = samples.reference if responses is None and samples is not None else responses
    assert file is not None, "responses or samples"
    name = f"probe-{file.name.partition('.')[0] or 'responses'}"
    request = ProbeRequest(
        config=config,
        reference=sources[models.reference.label],
        baseline=sources[models.baseline.label] if models.baseline else None,
        checkpoints=tuple(sources[one.label] for one in models.checkpoints),
        steps=models.steps,
        responses=read(file, regrade=samples is not None),
        out=RunDirectory(out or (Path(name) if run is None else run.path / name)),
    )
    return request if samples is None else _with_choice(request, samples, read(samples.final, regrade=True))


def _with_choice(request: ProbeRequest, files: SampleFiles, final: ImportedResponses) -> ProbeRequest:
    """Return the request with the rollouts that are chosen from samples of the reference and of the final checkpoint.

    Raises:
        ConfigError: a sample has no grader, or nothing is left.
        MismatchError: the files are of different problems.
    """
    reference = request.responses
    for path, read in ((files.reference, reference), (files.final, final)):
        lacking = sum(not has_grader(one.problem) for one in read.sequences)
        if lacking:
            raise ConfigError(
                f"{lacking} of {len(read.sequences)} samples in {path} have no gold answer or no grader, so right and "
                "wrong are not known; name the grader with --task KIND (swerve data list)"
            )
    labels = (request.reference.label, request.checkpoints[-1].label)
    chosen = choose_rollouts(
        reference,
        final,
        labels=labels,
        selection=files.selection,
        where=parse_conditions(files.where),
        config=request.config.probe,
        tie_seed=request.tie_seed,
    )
    cells = Counter(zip(chosen.reference_right, chosen.final_right, strict=True))
    return replace(
        request,
        responses=ImportedResponses(sequences=chosen.sequences, provenance={"path": str(files.reference)}),
        chosen=chosen,
        selected=Selected(
            name=files.selection,
            where=files.where,
            reference=Responses(**reference.provenance),
            final=Responses(**final.provenance),
            both_right=cells[True, True],
            only_reference_right=cells[True, False],
            only_final_right=cells[False, True],
            both_wrong=cells[False, False],
            num_unshared=chosen.num_unshared,
            **_sample_accuracies(reference, final, chosen, request.config.eval.confidence),
        ),
        notes=(
            *_writer_notes(files.reference, request.reference),
            *_writer_notes(files.final, request.checkpoints[-1]),
        ),
    )


def _sample_accuracies(
    reference: ImportedResponses, final: ImportedResponses, chosen: ChosenRollouts, confidence: float
) -> dict[str, Estimate | None]:
    """Return how often the samples of both models are right, over the problems that rollouts were chosen from."""
    before, after = (_right_by_problem(read, chosen) for read in (reference, final))
    changes = [fmean(late) - fmean(early) for early, late in zip(before, after, strict=True)]
    return {
        "reference_accuracy": accuracy_interval(before, confidence=confidence),
        "final_accuracy": accuracy_interval(after, confidence=confidence),
        "accuracy_difference": mean_interval(changes, confidence=confidence, bounds=(-1.0, 1.0)),
    }


def _right_by_problem(read: ImportedResponses, chosen: ChosenRollouts) -> list[list[bool]]:
    right: dict[str, list[bool]] = {one.problem.id: [] for one in chosen.prompts}
    for one in read.sequences:
        if one.problem.id in right:
            right[one.problem.id].append(bool(one.correct))
    return list(right.values())


def _writer_notes(path: Path, model: ModelSource) -> list[str]:
    """Say that a file of samples is of another model than the one that is compared."""
    if not is_samples_file(path) or not isinstance(model, CheckpointSource):
        return []
    with suppress(CheckpointError):
        writer = read_samples_info(path).model
        if writer.fingerprint != model.content:
            return [f"{path} was sampled from {writer.source}, whose files are not those of {model.label}"]
    return []


def _responses(
    config: Config | ProbeSettings,
    tokenizer: PreTrainedTokenizerBase,
    run: RunDirectory | None,
    path: Path,
    *,
    problems_path: Path | None,
    fields: Mapping[str, str],
    settings: ImportSettings,
    regrade: bool,
) -> ImportedResponses:
    problems: Mapping[str, Response] = {}
    family: ProblemFamily | None = None
    if problems_path is not None:
        problems = read_problems(problems_path, fields=fields)
    elif run is not None:
        problems, family = _run_problems(config, run)
    return import_responses(
        path,
        tokenizer=tokenizer,
        problems=problems,
        fields=fields,
        settings=settings,
        family=family,
        task=config.task if isinstance(config, ProbeSettings) else None,
        regrade=regrade,
    )


def _run_problems(
    config: Config | ProbeSettings, run: RunDirectory
) -> tuple[Mapping[str, Response], ProblemFamily | None]:
    """Return the problems that a run was evaluated on, with their family; none if it was not evaluated."""
    evaluated = [one for one in run.checkpoints() if run.evaluation_path(one).is_file()]
    if not evaluated or not isinstance(config, Config):
        return {}, None
    family = load_family(config.task)
    greedy = read_evaluated(run, evaluated[-1]).greedy
    return {response.problem.id: Response(problem=response.problem) for response in greedy}, family
