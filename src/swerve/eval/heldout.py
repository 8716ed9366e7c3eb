"""Evaluate every checkpoint of a run on held-out problems, greedily and by sampling; means come with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch

from swerve.artifacts.evaluation import Diversity, Evaluation, HeldoutMetrics, ResponseForm, Scores, read_evaluation
from swerve.artifacts.files import dump_json, read_json, remove, sha256_file
from swerve.artifacts.responses import (
    EVALUATION_SCHEMA,
    Response,
    read_responses,
    response_from_row,
    response_row,
    write_responses,
)
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.batch import TokenSequence, checked_head, completion_hidden, token_batches
from swerve.behaviours.label_summary import distinct_ngram_share, ngram_similarity, num_distinct
from swerve.config import Config
from swerve.errors import ArtifactError, CheckpointError
from swerve.estimates import Estimate
from swerve.functional import entropy, rows_per_chunk
from swerve.models.fast_layers import use_fast_layers
from swerve.models.model_folder import LoadedModel, bases_kept, bases_of, load_model, resolve_device, stop_ids
from swerve.models.runtime import apply_runtime
from swerve.models.sources import base_checkpoint
from swerve.problems import ProblemFamily, load_family
from swerve.problems.mixture import Mixture, family_of
from swerve.progress import Progress
from swerve.prompts import encode_prompts, template_arguments
from swerve.recipes.epochs import with_steps
from swerve.rewards import grade_all
from swerve.rewards.checks import check_graders, problems_digest
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.rollout.groups import rollout_groups, text_metrics
from swerve.seeds import derive_seed
from swerve.statistics.intervals import mean_interval, share
from swerve.statistics.jackknife import UNBOUNDED, Bounds
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve
from swerve.types import Problem, RewardStatus
from swerve.world import World, joined_world

_TOKENS_PER_BATCH = 65536


def evaluate(config: Config, run: RunDirectory, *, progress: Progress) -> list[Evaluation]:
    """Evaluate every scheduled checkpoint that has no evaluation of these weights under these settings yet.

    So is the trained model that the run began with, if it began with one that is still there, at step 0.

    Writes `eval/step_*.json` and `.parquet`; returns all summaries by step. Started by torchrun, the processes share
    the problems; the first one writes, the others return nothing.

    Raises:
        ArtifactError: the run has no checkpoint, or another process holds it.
        CheckpointError: a checkpoint is damaged.
        ConfigError: a problem's grader does not exist or does not take its policies.
    """
    run.read_provenance()
    checkpoints = [checkpoint for checkpoint in run.checkpoints() if checkpoint.scheduled]
    if not checkpoints:
        raise ArtifactError(f"{run.path} has no checkpoint to evaluate; train it first with: swerve train")
    config = with_steps(config)
    for line in run.missing_checkpoints(config.scheduled_steps, config.retained_steps):
        progress.note(line)
    checkpoints = [*_base(config, progress), *checkpoints]
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
        for checkpoint in checkpoints:
            summary = evaluate_checkpoint(config, run, checkpoint, family, problems, world, task.advance)
            if summary is None:
                continue
            task.advance(
                0, checkpoint=checkpoint.label, accuracy=round(summary.accuracy.mean, 3) if summary.accuracy else None
            )
            _note_ungraded(summary, progress)
            summaries.append(summary)
    return summaries


def _base(config: Config, progress: Progress) -> list[CheckpointRef]:
    """Return the model that the run began with; none where it was made new, or is gone."""
    try:
        base = base_checkpoint(config)
    except CheckpointError as error:
        progress.note(f"the model before training is left out: {error}")
        return []
    return [] if base is None else [base]


def _note_ungraded(evaluation: Evaluation, progress: Progress) -> None:
    """Say how many completions a limit or a failing grader kept from being judged, if any."""
    statuses = evaluation.statuses
    if statuses.get("timeout") or statuses.get("error"):
        progress.note(
            f"{evaluation.checkpoint}: of {sum(statuses.values())} completions {statuses['timeout']} reached a limit "
            f"of the grader and {statuses['error']} made it fail; they count as wrong"
        )


def evaluation_settings(config: Config, problems: Sequence[Problem]) -> dict[str, Any]:
    """What an evaluation depends on beside the weights."""
    return {**config.evaluation_settings, "problems_sha256": problems_digest(problems)}


def heldout_problems(config: Config, family: ProblemFamily) -> list[Problem]:
    """Return the problems that checkpoints are evaluated on."""
    return family.problems("heldout", seed=derive_seed(config.seed, "problems"))[: config.eval.num_problems]


def known_evaluation(run: RunDirectory, checkpoint: CheckpointRef, settings: Mapping[str, Any]) -> Evaluation | None:
    """Return the evaluation of these weights under these settings, if its files can be read."""
    path = run.evaluation_path(checkpoint)
    try:
        known = read_evaluation(run, path)
        read_responses(path.with_suffix(".parquet"), EVALUATION_SCHEMA)
        is_as_written = path.read_bytes() == dump_json(read_json(path)).encode()  # no line twice, none cut
    except ArtifactError:
        return None
    same = is_as_written and known.weights_sha256 == checkpoint.weights_sha256 and known.settings == settings
    return known if same else None


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
    known = known_evaluation(run, checkpoint, evaluation_settings(config, problems)) if world.is_main else None
    if world.any(known is not None):
        on_finished(len(world.shard(problems)) * (1 + config.eval.samples_per_problem))
        return known
    world.doing("evaluating", checkpoint.label)
    loaded = load_model(checkpoint.path, device=world.device, dtype=config.runtime.dtype)
    max_rows = config.runtime.max_rows
    with closing(make_engine(config.rollout.engine, loaded.model, loaded.tokenizer, max_rows=max_rows)) as engine:
        evaluated = evaluate_problems(config, loaded, engine, family, problems, world, on_finished)
    return write_evaluation(config, run, checkpoint, family, problems, evaluated) if world.is_main else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedProblem:
    """What a model made of one held-out problem."""

    greedy: Response
    """The greedy completion, with its mean entropy and whether its steps are right."""
    samples: tuple[Response, ...]
    """At the temperature of the evaluation."""
    first_mistake: str = ""
    """Kind of the first mistake of the greedy completion, where the step checker tells kinds apart."""
    part: str | None = None
    """The part of a mixture that the problem is of."""

    @property
    def responses(self) -> tuple[Response, ...]:
        """The greedy completion and the sampled ones."""
        return (self.greedy, *self.samples)

    @property
    def mean_reward(self) -> float:
        """Of the sampled completions, a failure counting 0."""
        return sum(sample.reward or 0.0 for sample in self.samples) / len(self.samples)


def evaluate_problems(
    config: Config,
    loaded: LoadedModel,
    engine: Engine,
    family: ProblemFamily,
    problems: Sequence[Problem],
    world: World,
    on_finished: Callable[[int], None] = lambda num: None,
) -> list[EvaluatedProblem]:
    """Sample and grade problems, greedily and at the temperature of the evaluation; return what was made of each.

    Args:
        config: with the number of samples and the temperature.
        loaded: the model, in evaluation mode.
        engine: samples from it.
        family: of the problems.
        problems: held-out ones.
        world: the processes that share the problems, each with the same arguments.
        on_finished: called with the number of completions finished since the last call.
    """
    use_fast_layers(loaded.model)  # which a model in training has
    own = world.shard(problems)
    responses = _sampled(config, loaded, engine, own, on_finished) if own else []
    if world.size > 1:
        rows = world.dealt_back([[response_row(response) for response in group] for group in responses])
        responses = [[response_from_row(row) for row in group] for group in rows]
    sequences = [(group[0].prompt_ids, group[0].completion_ids) for group in responses]
    entropies = _mean_entropies(loaded, sequences, world)
    return [_evaluated(family, group, mean) for group, mean in zip(responses, entropies, strict=True)]


def _sampled(
    config: Config,
    loaded: LoadedModel,
    engine: Engine,
    problems: Sequence[Problem],
    on_finished: Callable[[int], None],
) -> list[list[Response]]:
    """Return the greedy completion of each problem, followed by the sampled ones."""
    tokenizer = loaded.tokenizer
    prompts = encode_prompts(tokenizer, problems, template_arguments(config))
    seeds = [derive_seed(config.seed, "eval", problem.id) for problem in problems]
    responses: list[list[Response]] = [[] for _ in problems]
    for num_samples, temperature in ((1, 0.0), (config.eval.samples_per_problem, config.eval.temperature)):
        params = SamplingParams(
            num_samples=num_samples,
            max_new_tokens=config.max_new_tokens,
            temperature=temperature,
            stop_ids=stop_ids(loaded.model, tokenizer),
        )
        groups = rollout_groups(
            engine, tokenizer, prompts, params, seeds=seeds, grade=grade_all, on_finished=on_finished
        )
        for number, group in enumerate(groups):
            responses[number] += [
                Response.of(group.prompt, rollout, sample=sample, temperature=temperature)
                for sample, rollout in enumerate(group.rollouts)
            ]
    return responses


def _evaluated(family: ProblemFamily, responses: Sequence[Response], entropy_mean: float) -> EvaluatedProblem:
    greedy, *samples = responses
    problem = greedy.problem
    checker = family_of(family, problem)
    marks = checker.check(problem, greedy.text or "") if checker.checks_steps else None
    trace_right = None if marks is None else bool(greedy.correct) and not marks
    return EvaluatedProblem(
        greedy=replace(greedy, entropy=entropy_mean, trace_right=trace_right),
        samples=tuple(samples),
        first_mistake=min(marks, key=lambda mark: mark.start).kind if marks else "",
        part=family.label_of(problem) if isinstance(family, Mixture) else None,
    )


def write_evaluation(
    config: Config,
    run: RunDirectory,
    checkpoint: CheckpointRef,
    family: ProblemFamily,
    problems: Sequence[Problem],
    evaluated: Sequence[EvaluatedProblem],
) -> Evaluation:
    """Write the evaluation of a checkpoint from what `evaluate_problems` measured of its weights."""
    texts = [(problem, one.greedy.text or "") for problem, one in zip(problems, evaluated, strict=True)]
    confidence = config.eval.confidence
    path = run.evaluation_path(checkpoint)
    table = path.with_suffix(".parquet")
    remove(path)  # a summary beside the table of another evaluation would be worse than none
    write_responses(table, [response for one in evaluated for response in one.responses], EVALUATION_SCHEMA)
    evaluation = Evaluation(
        checkpoint=checkpoint.label,
        stage=checkpoint.stage,
        step=checkpoint.step,
        stage_step=checkpoint.stage_step,
        weights_sha256=checkpoint.weights_sha256,
        settings=evaluation_settings(config, problems),
        config_hash=run.identity()["config_hash"],
        **dict(summarise(evaluated, confidence=confidence)),
        # The texts of a task with a vocabulary of its own are no prose.
        responses=ResponseForm(**text_metrics(texts)) if family.is_prose else None,
        diversity=sample_diversity([one.samples for one in evaluated], confidence=confidence),
        tables={table.name: sha256_file(table)},
    )
    evaluation.write(path)
    return evaluation


def _mean_entropies(loaded: LoadedModel, sequences: Sequence[TokenSequence], world: World) -> list[float]:
    """Return the mean entropy (nats) over each completion's positions; the processes share the batches."""
    means: dict[int, float] = {}
    pad_id = int(loaded.tokenizer.pad_token_id or 0)
    head = checked_head(loaded.model)
    rows = rows_per_chunk(head.vocabulary_size)
    with torch.inference_mode():
        for batch in world.shard(token_batches(sequences, pad_id=pad_id, tokens_per_batch=_TOKENS_PER_BATCH)):
            hidden = completion_hidden(loaded.model, batch.to(loaded.model.device), head)
            per_token = torch.cat([entropy(head(chunk)) for chunk in hidden.split(rows)]).cpu()
            for row, values in zip(batch.rows, per_token.split(batch.mask.sum(1).tolist()), strict=True):
                means[row] = float(values.mean())
    found = dict(pair for part in world.gather(list(means.items())) for pair in part)
    return [found[row] for row in range(len(sequences))]


_AT_LEAST_0 = (0.0, math.inf)


def summarise(evaluated: Sequence[EvaluatedProblem], *, confidence: float) -> HeldoutMetrics:
    """Return accuracy (Wilson interval) and means (t intervals over problems), overall and by kind of problem.

    `mean_reward` is over the samples at the evaluation temperature, a failure counting 0; `failures` says how many
    completions, greedy and sampled, have no value, `statuses` how many the grader judged, found no answer in, gave up
    on and failed on. `trace_right` is None where no problem's steps are checked. Lengths are in tokens, entropy in
    nats. `by_num_samples` has pass@k, pass^k and the majority vote of the samples; `by_part` is there for mixtures.
    """
    # Scores by kind of problem, and by part of a mixture.
    kinds: dict[str, list[EvaluatedProblem]] = {}
    parts: dict[str, list[EvaluatedProblem]] = {}
    for problem in evaluated:
        kinds.setdefault(problem.greedy.problem.kind, []).append(problem)
        if problem.part is not None:
            parts.setdefault(problem.part, []).append(problem)

    # Counts over all completions.
    responses = [response for problem in evaluated for response in problem.responses]
    statuses = Counter(response.status for response in responses)
    mistakes = Counter(problem.first_mistake for problem in evaluated if problem.first_mistake)
    sampled = [
        SampledProblem(
            answers=tuple(sample.extracted for sample in problem.samples),
            right=tuple(bool(sample.correct) for sample in problem.samples),
        )
        for problem in evaluated
    ]
    return HeldoutMetrics(
        **dict(_scores(evaluated, confidence)),
        truncated=sum(problem.greedy.finish_reason == "length" for problem in evaluated) / len(evaluated),
        failures=statuses.total() - statuses["graded"],
        statuses={name: statuses[name] for name in get_args(RewardStatus)},
        num_unanswered=sum(not response.answered for response in responses),
        first_mistakes=dict(mistakes.most_common()),
        by_num_samples=tuple(sampling_curve(sampled, confidence=confidence)),
        by_kind={kind: _scores(kinds[kind], confidence) for kind in sorted(kinds)},
        by_part={part: _scores(parts[part], confidence) for part in sorted(parts)} or None,
    )


def _scores(evaluated: Sequence[EvaluatedProblem], confidence: float) -> Scores:
    greedy = [problem.greedy for problem in evaluated]
    checked = [response.trace_right for response in greedy if response.trace_right is not None]
    rewards = [problem.mean_reward for problem in evaluated]
    within = all(0.0 <= reward <= 1.0 for reward in rewards)

    def mean(values: Sequence[float], bounds: Bounds = _AT_LEAST_0) -> Estimate | None:
        return mean_interval(values, confidence=confidence, bounds=bounds)

    return Scores(
        num_problems=len(greedy),
        accuracy=share(sum(bool(response.correct) for response in greedy), len(greedy), confidence=confidence),
        trace_right=share(sum(checked), len(checked), confidence=confidence),
        mean_reward=mean(rewards, (0.0, 1.0) if within else UNBOUNDED),
        num_tokens=mean([len(response.completion_ids) for response in greedy]),
        entropy=mean([response.entropy for response in greedy if response.entropy is not None]),
    )


def sample_diversity(samples: Sequence[Sequence[Response]], *, confidence: float) -> Diversity | None:
    """Return how much the samples of a problem differ, over the problems with two or more; None without one."""
    several = [group for group in samples if len(group) > 1]
    if not several:
        return None
    # A grader that records no answers leaves them out of right samples too; where nothing is right there are none.
    responses = [sample for group in several for sample in group]
    has_answers = any(sample.extracted is not None for sample in responses)
    are_read = has_answers or not any(sample.correct for sample in responses)
    answers = [[sample.extracted for sample in group] for group in several]
    right = [[sample.extracted for sample in group if sample.correct] for group in several]
    texts = [[sample.text or "" for sample in group] for group in several]

    def mean(values: Iterable[float | None], bounds: Bounds = (0.0, 1.0)) -> Estimate | None:
        known = [value for value in values if value is not None]
        return mean_interval(known, confidence=confidence, bounds=bounds)

    return Diversity(
        ngram_similarity=mean(map(ngram_similarity, texts)),
        distinct_2grams=mean(map(distinct_ngram_share, texts)),
        distinct_answers=mean(map(num_distinct, answers), _AT_LEAST_0) if are_read else None,
        distinct_right_answers=mean(map(num_distinct, right), _AT_LEAST_0) if are_read else None,
    )
