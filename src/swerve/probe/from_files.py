"""The probe of responses or samples in files, by models from anywhere: a recipe in, a plan out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.probe_summary import Responses, Selected
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import file_of_model, files_of_models, is_samples_file, read_samples_info
from swerve.config.recipe import Config
from swerve.errors import CheckpointError, ConfigError, SwerveError
from swerve.formats.conditions import parse_condition
from swerve.formats.imported_problems import read_problems
from swerve.formats.typed_fields import parse_fields
from swerve.models.model_folder import load_model_config, load_tokenizer
from swerve.models.sources import CheckpointSource, ModelSource, checkpoint_source
from swerve.positions import max_positions
from swerve.probe.model_checks import check_readable
from swerve.probe.plan import ProbePlan, compare_selected, first_entries
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.checks import check_samples
from swerve.probe.rollouts.imported import ImportedResponses, import_responses
from swerve.probe.rollouts.population import read_evaluated
from swerve.probe.rollouts.samples import choose_rollouts
from swerve.probe.rollouts.selection import Selection
from swerve.problems import load_family
from swerve.rewards.checks import has_grader
from swerve.statistics.hypothesis_tests import paired_difference
from swerve.statistics.intervals import accuracy_interval
from swerve.types import Prompt

_HEADLINES = ("imported_wrong", "imported", "imported_right")
"""Of the populations of a file, the first of these that has responses is what the headline metrics are about."""


def model_sources(recipe: ProbeRecipe) -> dict[str, CheckpointSource]:
    """Return the models that a recipe compares, by name and in order of training; none is loaded."""
    if recipe.is_served:
        raise ConfigError("models in servers are probed with swerve probe --use-responses FILE and without RUN: bounds")
    paths = {name: Path(recipe.models[name]) for name in recipe.used}
    return {
        name: checkpoint_source(name, path if path.exists() else recipe.models[name], recipe.runtime)
        for name, path in paths.items()
    }


def plan_files(
    recipe: ProbeRecipe, trained: tuple[Config, RunDirectory] | None = None, *, keep_statistics: bool = False
) -> ProbePlan:
    """Read and tokenise the files that a recipe names, and choose rollouts; no model is loaded, nothing is written.

    Args:
        recipe: with a file of responses, or two files of samples.
        trained: a run with its configuration, whose problems and grader are those of the files.
        keep_statistics: see `ProbePlan`.

    Raises:
        ArtifactError: a file cannot be read, or responses have no prompt.
        ConfigError: there is no checkpoint or response, a field is not known, the device is not there, or a causal
            test is asked for that the responses do not allow.
        MismatchError: two files of samples are of different problems.
    """
    if not recipe.compared:
        raise ConfigError("there is no checkpoint to probe; give at least one")
    sources = model_sources(recipe)
    try:
        tokenizer = load_tokenizer(sources[recipe.reference].path)
    except CheckpointError:
        check_readable(list(sources.values()))  # what is wrong with the others is said as well
        raise
    files = recipe.sample_files or (_of_reference(Path(str(recipe.responses)), recipe, sources),)
    # Of two files of samples also those that are too long decide who is right where; what is read of them must fit.
    most_tokens = _most_tokens(sources.values()) if recipe.sample_files is None else None
    read = [import_file(recipe, tokenizer, trained, file, most_tokens=most_tokens) for file in files]
    if recipe.sample_files is None:
        plan = plan_responses(recipe, sources, read[0])
    else:
        plan = _plan_samples(recipe, sources, *read)
    return replace(plan, keep_statistics=keep_statistics)


def _of_reference(path: Path, recipe: ProbeRecipe, sources: Mapping[str, CheckpointSource]) -> Path:
    """Return a file of responses, in a folder of several models' samples that of the reference."""
    files, label = files_of_models(path), recipe.reference
    if len(files) < 2:
        return path
    own = file_of_model(files, label, recipe.models[label])
    if own is None:
        content = sources[label].content
        own = next((file for file in files.values() if read_samples_info(file).model.fingerprint == content), None)
    if own is None:
        raise ConfigError(
            f"{path} has samples of {', '.join(files)} and none of the reference {label}; give one model's file, such "
            f"as {next(iter(files.values()))}"
        )
    return own


def _most_tokens(sources: Iterable[CheckpointSource]) -> int | None:
    """Return how many tokens every model can read; None: none of them says so. `check_models` names unreadable ones."""
    limits = list[int | None]()
    for source in sources:
        with suppress(SwerveError):
            limits.append(max_positions(load_model_config(source.path)))
    return min((limit for limit in limits if limit is not None), default=None)


def plan_responses(recipe: ProbeRecipe, sources: Mapping[str, ModelSource], imported: ImportedResponses) -> ProbePlan:
    """Return the plan of responses, of which every one is read.

    Raises:
        ConfigError: there is no response, or a causal test is asked for that they do not allow.
    """
    sequences, file = imported.sequences, Responses(**imported.provenance)
    if not sequences:
        raise ConfigError("there is no response to probe; give at least one")

    # The headline population stands first.
    known = {sequence.population for sequence in sequences}
    population = next((name for name in _HEADLINES if name in known), str(sequences[0].population))
    ordered = sorted(sequences, key=lambda sequence: sequence.population != population)
    plan = ProbePlan(
        recipe=recipe,
        sources=sources,
        compared=first_entries(
            recipe,
            weights_sha256=_fingerprints(recipe, sources),
            num_problems=len({sequence.problem.id for sequence in sequences}),
            num_reference_wrong=None,
            num_reference_wrong_final_right=None,
            selection="imported",
            mcnemar=None,
            reselected=None,
            responses=file,
        ),
        sequences=tuple(replace(sequence, sequence_id=index) for index, sequence in enumerate(ordered)),
        population=population,
        prompts=_prompts(recipe, {sequence.problem.id: sequence for sequence in sequences}),
    )
    return replace(plan, notes=_notes(plan, [file]))


def _plan_samples(
    recipe: ProbeRecipe, sources: Mapping[str, CheckpointSource], reference: ImportedResponses, final: ImportedResponses
) -> ProbePlan:
    """Return the plan of rollouts that are chosen by samples of the reference and of the final checkpoint.

    Raises:
        ConfigError: a sample has no grader, nothing is left, or a causal test is asked for that is not possible.
        MismatchError: the files are of different problems.
    """
    for samples in (reference, final):
        check_samples(samples.provenance["path"], samples.sequences)
    names = (recipe.reference, recipe.final_name)
    selection = choose_rollouts(
        reference.sequences,
        final.sequences,
        labels=names,
        headline=recipe.select,
        where=[parse_condition(text) for text in recipe.where],
        config=recipe.probe,
        tie_seed=recipe.tie_seed,
    )

    # Cross-sampling answers the problems that were decided on, chosen or not.
    first_samples = {sequence.problem.id: sequence for sequence in reversed(reference.sequences)}
    plan = ProbePlan(
        recipe=recipe,
        sources=sources,
        compared=compare_selected(
            recipe,
            selection,
            weights_sha256=_fingerprints(recipe, sources),
            selected=_selected(recipe, selection, reference, final),
        ),
        sequences=tuple(replace(rollout, sequence_id=number) for number, rollout in enumerate(selection.rollouts)),
        population=recipe.select,
        prompts=_prompts(recipe, {name: first_samples[name] for name in selection.problem_ids}),
    )
    files = [Responses(**samples.provenance) for samples in (reference, final)]
    writers = [_writer_note(file, sources[name]) for file, name in zip(files, names, strict=True)]
    ungraded = [_ungraded_note(samples) for samples in (reference, final)]
    return replace(plan, notes=(*filter(None, (*writers, *ungraded)), *_notes(plan, files)))


def _ungraded_note(samples: ImportedResponses) -> str | None:
    """Say how many samples reached a limit of the grader, or made it fail."""
    num = sum(sequence.correct is None for sequence in samples.sequences)
    said = f"{num} of {len(samples.sequences)} samples in {samples.provenance['path']} could not be graded"
    return f"{said}: they decide nothing and count in no accuracy" if num else None


def _selected(
    recipe: ProbeRecipe, selection: Selection, reference: ImportedResponses, final: ImportedResponses
) -> Selected:
    """Return what was chosen from samples, and how often the samples of both models are right on these problems."""
    both_right, only_reference_right, only_final_right, both_wrong = selection.table
    confidence = recipe.eval.confidence
    before, after = (_right_by_problem(samples, selection.problem_ids) for samples in (reference, final))
    fractions = [[fmean(samples) for samples in right] for right in (before, after)]
    difference, p_value = paired_difference(*fractions, confidence=confidence, bounds=(-1.0, 1.0))
    return Selected(
        name=recipe.select,
        where=recipe.where,
        reference=Responses(**reference.provenance),
        final=Responses(**final.provenance),
        both_right=both_right,
        only_reference_right=only_reference_right,
        only_final_right=only_final_right,
        both_wrong=both_wrong,
        num_unshared=selection.num_unshared,
        reference_accuracy=accuracy_interval(before, confidence=confidence),
        final_accuracy=accuracy_interval(after, confidence=confidence),
        accuracy_difference=difference,
        p_value=p_value,
    )


def _right_by_problem(samples: ImportedResponses, problem_ids: Sequence[str]) -> list[list[bool]]:
    right: dict[str, list[bool]] = {name: [] for name in problem_ids}
    for sequence in samples.sequences:
        if sequence.problem.id in right and sequence.correct is not None:
            right[sequence.problem.id].append(sequence.correct)
    return list(right.values())


def _prompts(recipe: ProbeRecipe, sequences: Mapping[str, Response]) -> list[Prompt]:
    """Return the prompt of every problem that can be graded, for cross-sampling."""
    if not recipe.probe.cross_sampling.max_problems:
        return []
    gradable = [sequence for sequence in sequences.values() if has_grader(sequence.problem)]
    return [Prompt(problem=sequence.problem, token_ids=sequence.prompt_ids) for sequence in gradable]


def _fingerprints(recipe: ProbeRecipe, sources: Mapping[str, ModelSource]) -> dict[str, str]:
    """Return the digest of each model that can be read; `check_models` names the others."""
    digests = {}
    for name in (recipe.reference, *recipe.compared):
        with suppress(CheckpointError):
            digests[name] = sources[name].fingerprint
    return digests


def _writer_note(file: Responses, model: CheckpointSource) -> str | None:
    """Say that a file of samples is of another model than the one that is compared."""
    path = Path(str(file.path))
    if not is_samples_file(path):
        return None
    with suppress(CheckpointError):
        writer = read_samples_info(path).model
        if writer.dtype is None:
            return (
                f"{path} was sampled from {writer.source}: whether that has the weights of {model.label} is not known"
            )
        if writer.fingerprint != model.content:
            return f"{path} was sampled from {writer.source}, whose files are not those of {model.label}"
    return None


def _notes(plan: ProbePlan, files: Sequence[Responses]) -> tuple[str, ...]:
    """Return what must be known of graders and verdicts; the first file is that of the headline population.

    Raises:
        ConfigError: a causal test is asked for that the responses do not allow.
    """
    settings, path, notes = plan.recipe.probe, files[0].path, list[str]()
    num_problems = settings.cross_sampling.max_problems
    if not plan.has_verifier:
        lacking = sum(not has_grader(sequence.problem) for sequence in plan.headline)
        num_bare = sum(not sequence.problem.answer for sequence in plan.headline)
        what = "no gold answer" if num_bare else "a gold answer and no grader"
        why = f"{num_bare or lacking} of {len(plan.headline)} responses in {path} have {what}"
        fix, known = "name the grader with --task KIND", " (swerve data list)"
        if plan.recipe.task is not None:
            fix, known = "give the gold answers with --problems FILE, or --field gold=FIELD", ""
        if settings.pivots.max_rollouts or num_problems:
            key = "cross_sampling.max_problems" if num_problems else "pivots.max_rollouts"
            raise ConfigError(f"probe.{key}: {why}; {fix}{known}")
        if settings.causal.max_rollouts:
            notes.append(f"{why}, so there are no swaps: {fix}")
    elif num_problems and len(plan.prompts) < 2:
        raise ConfigError(f"probe.cross_sampling.max_problems needs two problems and more, {path} has one")

    # Records without a response, ids without a token, and verdicts that the grader does not share.
    notes += [note for file in files for note in _reading_notes(file)]
    if plan.compared.responses is not None and plan.compared.responses.num_regraded:
        num, total = plan.compared.responses.num_regraded, plan.compared.responses.num_recorded
        notes.append(f"{num} of {total} verdicts recorded in {path} differ from the grader's, which are used")
    return tuple(notes)


def _reading_notes(file: Responses) -> Iterator[str]:
    """Yield what of a file was not read, or not as it stands there."""
    if file.num_left_out:
        yield f"{file.num_left_out} records in {file.path} have no response and are left out"
    if file.num_cut:
        yield (
            f"{file.num_cut} responses in {file.path} have ids that the tokenizer has no token for (of a padded "
            "output head, or of another tokenizer): they are read up to the first of these"
        )
    for reason, num in (file.unread_turns or {}).items():
        yield f"{num} responses in {file.path} are left out: {reason}"
    if file.num_special_texts:
        num, total = file.num_special_texts, file.num_responses
        yield f"{num} of {total} responses in {file.path} hold the text of special tokens; it is encoded as text"
    if file.num_differing:
        yield (
            f"the token ids of {file.num_differing} responses in {file.path} say another text than stands beside "
            "them: they may be of another tokenizer than these models'"
        )


def import_file(
    recipe: ProbeRecipe,
    tokenizer: PreTrainedTokenizerBase,
    trained: tuple[Config, RunDirectory] | None,
    path: Path,
    *,
    most_tokens: int | None = None,
) -> ImportedResponses:
    """Read a file with the problems that the recipe names, or else those that the run was evaluated on."""
    fields = parse_fields([f"{name}={field}" for name, field in recipe.fields.items()])

    # Problems of a file of their own, of the run, or none where responses bring theirs.
    problems: Mapping[str, Response] = {}
    family = None
    if recipe.problems is not None:
        problems = read_problems(Path(recipe.problems), fields=fields)
    elif trained is not None:
        config, run = trained
        evaluated = [checkpoint for checkpoint in run.checkpoints if run.evaluation_path(checkpoint).is_file()]
        if evaluated:
            family = load_family(config.task)
            (responses,) = read_evaluated(run, evaluated[-1])
            problems = {response.problem.id: Response(problem=response.problem) for response in responses}
    return import_responses(
        path,
        tokenizer=tokenizer,
        problems=problems,
        fields=fields,
        template=recipe.template,
        ends=recipe.ends,
        family=family,
        task=recipe.task if trained is None else None,
        regrade=recipe.sample_files is not None,
        most_tokens=most_tokens,
    )
