"""Evaluate every checkpoint of a run on held-out problems, greedily and by sampling."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.comparison import ModelScores
from swerve.artifacts.evaluation import Evaluation, read_evaluation
from swerve.artifacts.files import remove, sha256_file
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, read_response_table, response_from_row, response_row, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.behaviours.measures import OF_PROSE
from swerve.config.recipe import Config
from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.eval.comparison import ModelResponses
from swerve.eval.responses import mean_entropies, response_batches, sample_responses
from swerve.models.fast_layers import use_fast_layers
from swerve.models.model_folder import LoadedModel, bases_kept, bases_of, load_model, resolve_device
from swerve.models.runtime import apply_runtime
from swerve.models.sources import base_checkpoint
from swerve.problems import ProblemFamily, load_family
from swerve.problems.mixture import Mixture, family_of
from swerve.progress import Progress, tell
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.rewards.checks import check_graders, problems_digest
from swerve.rollout.engine import Engine, make_engine
from swerve.seeds import derive_seed
from swerve.types import Problem
from swerve.world import World, joined_world


def evaluate_run(config: Config, run: RunDirectory, *, progress: Progress) -> list[Evaluation]:
    """Evaluate every scheduled checkpoint that has no evaluation of these weights under these settings yet.

    So is the trained model that the run began with, if it began with one that is still there, at step 0.

    Writes `eval/step_*.json` and `.parquet`; returns all summaries by step. What is there of the same weights under
    other settings is kept, in `eval/earlier-DIGEST`. Started by torchrun, the processes share the problems; the first
    one writes, the others return nothing.

    Raises:
        ArtifactError: the run has no checkpoint, or another process holds it.
        CheckpointError: a checkpoint is damaged.
        ConfigError: a problem's grader does not exist or does not take its policies.
    """
    run.read_provenance()
    checkpoints = [checkpoint for checkpoint in run.checkpoints if checkpoint.scheduled]
    if not checkpoints:
        raise ArtifactError(f"{run.path} has no checkpoint to evaluate; train it first with: swerve train")
    for line in run.missing_checkpoints(config.scheduled_steps, config.retained_steps):
        progress.note(line)
    # The trained model that the run began with comes first.
    try:
        base = base_checkpoint(config)
        checkpoints = [*([] if base is None else [base]), *checkpoints]
    except CheckpointError as error:
        progress.note(f"the model before training is left out: {error}")
    apply_runtime(config.runtime)
    family = load_family(config.task)
    problems = heldout_problems(config, family)
    check_graders(problems)
    per_problem, summaries = 1 + config.eval.samples_per_problem, list[Evaluation]()
    with (
        joined_world(resolve_device(config.runtime.device), timeout=config.runtime.collective_timeout) as world,
        run.lock() if world.is_main else nullcontext(),
        progress.task("evaluate", len(checkpoints) * len(world.shard(problems)) * per_problem) as task,
        bases_kept(bases_of(checkpoint.path for checkpoint in checkpoints)),
    ):
        if world.is_main:
            _keep_earlier(run, checkpoints, _settings(config, problems), progress)
        for checkpoint in checkpoints:
            summary = evaluate_checkpoint(config, run, checkpoint, family, problems, world, task.advance)
            if summary is not None:
                accuracy = summary.greedy.accuracy
                task.advance(0, checkpoint=checkpoint.label, accuracy=round(accuracy.mean, 3) if accuracy else None)
                _note_ungraded(summary, progress)
                summaries.append(summary)
    return summaries


def _note_ungraded(evaluation: Evaluation, progress: Progress) -> None:
    """Say how many completions a limit or a failing grader kept from being judged, if any."""
    statuses = evaluation.statuses
    if statuses["timeout"] or statuses["error"]:
        progress.note(
            f"{evaluation.checkpoint}: of {statuses.total()} completions {statuses['timeout']} reached a limit "
            f"of the grader and {statuses['error']} made it fail; they count as wrong"
        )


def _settings(config: Config, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return what an evaluation depends on beside the weights."""
    return {**config.evaluation_settings, "problems_sha256": problems_digest(problems)}


def _keep_earlier(
    run: RunDirectory, checkpoints: Sequence[CheckpointRef], settings: Mapping[str, Any], progress: Progress
) -> None:
    """Move evaluations of the same weights under other settings into a folder of theirs, and say so in a line each."""
    moved: dict[Path, Mapping[str, Any]] = {}
    for path, checkpoint in ((run.evaluation_path(checkpoint), checkpoint) for checkpoint in checkpoints):
        try:
            known = read_evaluation(run, path)
        except ArtifactError:
            continue  # it is missing or damaged, and is made anew
        if known.weights_sha256 != checkpoint.weights_sha256 or known.settings == settings:
            continue
        digest = hashlib.sha256(json.dumps(known.settings, sort_keys=True).encode()).hexdigest()[:8]
        folder = path.parent / f"earlier-{digest}"
        folder.mkdir(exist_ok=True)
        for name in (*known.tables, path.name):  # the summary last: a table counts only with it
            (path.parent / name).replace(folder / name)
        moved[folder] = known.settings
    for folder, before in moved.items():
        tell(progress, f"evaluations under other settings ({_changes(before, settings)}) are kept in {folder}")


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return in which settings two evaluations differ, those of `eval` with both values."""
    sections = [entries.get("eval") or {} for entries in (before, after)]
    others = [name for name in before if name != "eval" and before[name] != after.get(name)]
    names = ["other problems" if name == "problems_sha256" else name for name in others]
    pairs = {name: [section.get(name) for section in sections] for name in {**sections[0], **sections[1]}}
    return ", ".join([*(f"{name} {old}, now {new}" for name, (old, new) in pairs.items() if old != new), *names])


def heldout_problems(config: Config, family: ProblemFamily) -> list[Problem]:
    """Return the problems that checkpoints are evaluated on.

    Raises:
        ConfigError: `eval.skip` leaves none.
    """
    heldout = family.problems("heldout", seed=derive_seed(config.seed, "problems"))
    problems = heldout[config.eval.skip :][: config.eval.num_problems]
    if heldout and not problems:
        raise ConfigError(f"eval.skip: {config.eval.skip} leaves none of the task's {len(heldout)} held-out problems")
    return problems


def _known_evaluation(run: RunDirectory, checkpoint: CheckpointRef, settings: Mapping[str, Any]) -> Evaluation | None:
    """Return the evaluation of these weights under these settings, if its files can be read.

    No parts of it are kept (`artifacts/parts.py`): its files are sealed and serve as such for the whole checkpoint, and
    within one the mean entropies are rounded as the batches of all problems are.
    """
    path = run.evaluation_path(checkpoint)
    try:
        known = read_evaluation(run, path)
        read_response_table(path.with_suffix(".parquet"), EVALUATION_SCHEMA)
    except ArtifactError:
        return None
    return known if (known.weights_sha256, known.settings) == (checkpoint.weights_sha256, settings) else None


def evaluate_checkpoint(
    config: Config,
    run: RunDirectory,
    checkpoint: CheckpointRef,
    family: ProblemFamily,
    problems: Sequence[Problem],
    world: World,
    on_finished: Callable[[int], None] = lambda num: None,
) -> Evaluation | None:
    """Evaluate a checkpoint with all processes, unless it is evaluated, and write what `swerve eval` writes of it.

    Returns:
        The evaluation; None in other processes than the first.
    """
    known = _known_evaluation(run, checkpoint, _settings(config, problems)) if world.is_main else None
    if world.any(known is not None):
        on_finished(len(world.shard(problems)) * (1 + config.eval.samples_per_problem))
        return known
    world.doing("evaluating", checkpoint.label)
    loaded = load_model(checkpoint.path, device=world.device, dtype=config.runtime.dtype)
    max_rows = config.runtime.max_rows
    with closing(make_engine(config.rollout.engine, loaded.model, loaded.tokenizer, max_rows=max_rows)) as engine:
        responses = evaluate_problems(config, loaded, engine, problems, world, on_finished)
    return write_evaluation(config, run, checkpoint, family, problems, responses) if world.is_main else None


def evaluate_problems(
    config: Config,
    loaded: LoadedModel,
    engine: Engine,
    problems: Sequence[Problem],
    world: World,
    on_finished: Callable[[int], None] = lambda num: None,
) -> list[list[Response]]:
    """Sample and grade problems; return of each the greedy completion, with its mean entropy, and the sampled ones.

    Args:
        config: with the number of samples and the temperature.
        loaded: the model, in evaluation mode.
        engine: samples from it.
        problems: held-out ones.
        world: the processes that share the problems, each with the same arguments.
        on_finished: called with the number of completions finished since the last call.
    """
    use_fast_layers(loaded.model)  # which a model in training has
    own = world.shard(problems)
    prompts = encode_prompts(loaded.tokenizer, own, template_arguments(config.model))
    seeds = [derive_seed(config.seed, "eval", problem.id) for problem in own]
    responses: list[list[Response]] = [[] for _ in own]
    # Both temperatures have the same seeds, one for all samples of a problem.
    for num_samples, temperature in ((1, 0.0), (config.eval.samples_per_problem, config.eval.temperature)):
        sampled = sample_responses(
            loaded, engine, prompts, seeds=seeds, num_samples=num_samples, temperature=temperature,
            max_new_tokens=config.max_new_tokens, on_finished=on_finished,
        )  # fmt: skip
        for group, more in zip(responses, sampled, strict=True):
            group += more
    if world.size > 1:
        rows = world.dealt_back([[response_row(response) for response in group] for group in responses])
        responses = [[response_from_row(row) for row in group] for group in rows]
    # The processes share the batches.
    batches = response_batches(loaded, [group[0] for group in responses])
    means = world.gather(list(mean_entropies(loaded, world.shard(batches)).items()))
    for row, mean in chain.from_iterable(means):
        responses[row][0] = replace(responses[row][0], entropy=mean)
    return responses


def heldout_scores(
    responses: Sequence[Sequence[Response]], *, confidence: float, label: str = "", family: ProblemFamily | None = None
) -> tuple[ModelScores, ModelScores]:
    """Return the scores of the greedy completions and of the sampled ones, from what `evaluate_problems` returns.

    Args:
        responses: of each problem the greedy completion, then the sampled ones.
        confidence: coverage of the intervals.
        label: of the checkpoint.
        family: of the problems, where scores by part of a mixture are wanted; texts in a vocabulary of its own are no
            prose.
    """
    part_of = family.label_of if isinstance(family, Mixture) else None
    leave_out = () if family is None or family.is_prose else OF_PROSE
    halves = []
    for part in (slice(1), slice(1, None)):
        measured = ModelResponses(part_of=part_of, leave_out=leave_out)
        for number, group in enumerate(responses):
            measured.add(str(number), group[part])
        temperature = responses[0][part][0].temperature
        halves.append(measured.scores(model=label, temperature=temperature, confidence=confidence))
    return halves[0], halves[1]


def write_evaluation(
    config: Config,
    run: RunDirectory,
    checkpoint: CheckpointRef,
    family: ProblemFamily,
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
) -> Evaluation:
    """Write the evaluation of a checkpoint from the responses that `evaluate_problems` drew from its weights."""
    # A checker of steps says whether a greedy completion has any wrong one, and what kind of mistake comes first.
    checked: list[list[Response]] = []
    mistakes: Counter[str] = Counter()
    for greedy, *samples in responses:
        checker = family_of(family, greedy.problem)
        if checker.checks_steps:
            marks = checker.check(greedy.problem, greedy.text or "")
            greedy = replace(greedy, trace_right=False if marks else greedy.verdict)
            if marks and (kind := min(marks, key=lambda mark: mark.start).kind):
                mistakes[kind] += 1
        checked.append([greedy, *samples])

    # The table of responses is written first; a summary beside that of another evaluation would be worse than none.
    path, confidence = run.evaluation_path(checkpoint), config.eval.confidence
    table = path.with_suffix(".parquet")
    remove(path)
    write_responses(table, [response for group in checked for response in group], EVALUATION_SCHEMA)

    scores = heldout_scores(checked, confidence=confidence, label=checkpoint.label, family=family)
    evaluation = Evaluation(
        checkpoint=checkpoint.label,
        stage=checkpoint.stage,
        step=checkpoint.step,
        stage_step=checkpoint.stage_step,
        weights_sha256=checkpoint.weights_sha256,
        settings=_settings(config, problems),
        config_hash=run.identity()["config_hash"],
        tables={table.name: sha256_file(table)},
        greedy=scores[0],
        sampled=scores[1],
        first_mistakes=dict(mistakes.most_common()),
    )
    evaluation.write(path)
    return evaluation
