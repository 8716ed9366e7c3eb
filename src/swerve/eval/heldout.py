"""Evaluate every checkpoint of a run on held-out problems, greedily and by sampling; means come with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any, get_args

import torch

from swerve.artifacts.evaluation import Diversity, Evaluation, HeldoutMetrics, ResponseForm, Scores, read_evaluation
from swerve.artifacts.files import dump_json, read_json, remove, sha256_file
from swerve.artifacts.responses import (
    EVALUATION_SCHEMA,
    Response,
    read_responses,
    response_row,
)
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.artifacts.tables import write_table
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
from swerve.statistics.pass_at_k import sampling_curve
from swerve.types import Problem, RewardStatus, RolloutGroup
from swerve.world import World, joined_world

_TOKENS_PER_BATCH = 65536
Row = Mapping[str, Any]
"""What was measured of a problem."""


def evaluate(config: Config, run: RunDirectory, *, progress: Progress) -> list[Evaluation]:
    """Evaluate every scheduled checkpoint that has no evaluation of these weights under these settings yet.

    So is the trained model that the run began with, if it began with one that is still there, at step 0.

    Writes `eval/step_*.json` and `.parquet`, and the sampled completions to `eval/samples/`; returns all summaries by
    step. Started by torchrun, the processes share the problems; the first one writes, the others return nothing.

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
        rows = evaluation_rows(config, loaded, engine, family, problems, on_finished, world=world)
    return write_evaluation(config, run, checkpoint, family, problems, rows) if world.is_main else None


def evaluation_rows(
    config: Config,
    loaded: LoadedModel,
    engine: Engine,
    family: ProblemFamily,
    problems: Sequence[Problem],
    on_finished: Callable[[int], None] = lambda num: None,
    *,
    world: World | None = None,
) -> list[dict[str, Any]]:
    """Sample and grade problems; return what was measured of each, as JSON values.

    Args:
        config: with the number of samples and the temperature.
        loaded: the model, in evaluation mode.
        engine: samples from it.
        family: of the problems.
        problems: held-out ones.
        on_finished: called with the number of completions finished since the last call.
        world: the processes that share the problems, each with the same arguments; None for this one alone.
    """
    use_fast_layers(loaded.model)  # which a model in training has
    together = World() if world is None else world
    own = together.shard(problems)
    rows = _sampled_rows(family, _Sampler(config, loaded, engine, own, on_finished)) if own else []
    rows = together.dealt_back(rows)
    greedy = [row["responses"][0] for row in rows]
    entropies = _mean_entropies(loaded, [(one["prompt_ids"], one["completion_ids"]) for one in greedy], together)
    for response, entropy_mean in zip(greedy, entropies, strict=True):
        response["entropy"] = entropy_mean
    return [{**row, "entropy": mean} for row, mean in zip(rows, entropies, strict=True)]


def _sampled_rows(family: ProblemFamily, sampler: _Sampler) -> list[dict[str, Any]]:
    settings = sampler.config.eval
    greedy = sampler.sample(num_samples=1, temperature=0.0)
    sampled = sampler.sample(num_samples=settings.samples_per_problem, temperature=settings.temperature)
    return [
        _row(family, group, samples, temperature=settings.temperature)
        for group, samples in zip(greedy, sampled, strict=True)
    ]


def write_evaluation(
    config: Config,
    run: RunDirectory,
    checkpoint: CheckpointRef,
    family: ProblemFamily,
    problems: Sequence[Problem],
    rows: Sequence[Row],
) -> Evaluation:
    """Write the evaluation of a checkpoint from what `evaluation_rows` measured of its weights."""
    # The texts of a task with a vocabulary of its own are no prose.
    texts = [(problem, row["responses"][0]["text"]) for problem, row in zip(problems, rows, strict=True)]
    evaluation = Evaluation(
        checkpoint=checkpoint.label,
        stage=checkpoint.stage,
        step=checkpoint.step,
        stage_step=checkpoint.stage_step,
        weights_sha256=checkpoint.weights_sha256,
        settings=evaluation_settings(config, problems),
        config_hash=run.identity()["config_hash"],
        **dict(summarise(rows, confidence=config.eval.confidence)),
        responses=ResponseForm(**text_metrics(texts)) if family.is_prose else None,
        diversity=sample_diversity([row["responses"][1:] for row in rows], confidence=config.eval.confidence),
    )
    path = run.evaluation_path(checkpoint)
    remove(path)  # a summary beside the table of another evaluation would be worse than none
    table = path.with_suffix(".parquet")
    responses = [response for row in rows for response in row["responses"]]
    write_table(table, responses, EVALUATION_SCHEMA)
    digests = {table.name: sha256_file(table)}
    evaluation = evaluation.model_copy(update={"tables": digests})
    evaluation.write(path)
    return evaluation


@dataclass(frozen=True, slots=True)
class _Sampler:
    config: Config
    loaded: LoadedModel
    engine: Engine
    problems: Sequence[Problem]
    on_finished: Callable[[int], None]

    def sample(self, *, num_samples: int, temperature: float) -> list[RolloutGroup]:
        model, tokenizer, config = self.loaded.model, self.loaded.tokenizer, self.config
        params = SamplingParams(
            num_samples=num_samples,
            max_new_tokens=config.max_new_tokens,
            temperature=temperature,
            stop_ids=stop_ids(model, tokenizer),
        )
        return rollout_groups(
            self.engine,
            tokenizer,
            encode_prompts(tokenizer, self.problems, template_arguments(config)),
            params,
            seeds=[derive_seed(config.seed, "eval", problem.id) for problem in self.problems],
            grade=grade_all,
            on_finished=self.on_finished,
        )


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


def _row(family: ProblemFamily, group: RolloutGroup, samples: RolloutGroup, *, temperature: float) -> dict[str, Any]:
    problem, (rollout,) = group.prompt.problem, group.rollouts
    checker = family_of(family, problem)
    marks = checker.check(problem, rollout.text) if checker.checks_steps else None
    trace_right = None if marks is None else rollout.reward.is_right and not marks
    responses = [
        Response.of(group.prompt, rollout, sample=0, temperature=0.0, trace_right=trace_right),
        *(
            Response.of(group.prompt, sampled, sample=number, temperature=temperature)
            for number, sampled in enumerate(samples.rollouts)
        ),
    ]
    values = [sampled.reward.value or 0.0 for sampled in samples.rollouts]
    return {
        "responses": [_columns(response) for response in responses],
        "kind": problem.kind,
        "correct": rollout.reward.is_right,
        "trace_right": trace_right,
        "first_mistake": min(marks, key=lambda mark: mark.start).kind if marks else "",
        "num_tokens": len(rollout.completion.token_ids),
        "sampled_reward": sum(values) / len(values),
        "truncated": rollout.completion.finish_reason == "length",
        "statuses": [response.status for response in responses],
        "num_unanswered": sum(not response.answered for response in responses),
        "sampled_answers": [response.extracted for response in responses[1:]],
        "sampled_correct": [response.correct for response in responses[1:]],
        "part": family.label_of(problem) if isinstance(family, Mixture) else None,
    }


def _columns(response: Response) -> dict[str, Any]:
    row = response_row(response)
    return {name: row[name] for name in EVALUATION_SCHEMA.names}


_AT_LEAST_0 = (0.0, math.inf)


def summarise(rows: Sequence[Row], *, confidence: float) -> HeldoutMetrics:
    """Return accuracy (Wilson interval) and means (t intervals over problems), overall and by kind of problem.

    `mean_reward` is over the samples at the evaluation temperature, a failure counting 0; `failures` says how many
    completions, greedy and sampled, have no value, `statuses` how many the grader judged, found no answer in, gave up
    on and failed on. `trace_right` is None where no problem's steps are checked. Lengths are in tokens, entropy in
    nats. `by_num_samples` has pass@k, pass^k and the majority vote of the samples; `by_part` is there for mixtures.
    """
    statuses = Counter(status for row in rows for status in row["statuses"])

    def by(column: str) -> dict[str, Scores]:
        values = sorted({row[column] for row in rows} - {None})
        return {value: _metrics([row for row in rows if row[column] == value], confidence) for value in values}

    return HeldoutMetrics(
        **dict(_metrics(rows, confidence)),
        truncated=sum(row["truncated"] for row in rows) / len(rows),
        failures=statuses.total() - statuses["graded"],
        statuses={name: statuses[name] for name in get_args(RewardStatus)},
        num_unanswered=sum(row["num_unanswered"] for row in rows),
        first_mistakes=dict(Counter(row["first_mistake"] for row in rows if row["first_mistake"]).most_common()),
        by_num_samples=tuple(
            sampling_curve(
                [{"answers": row["sampled_answers"], "right": row["sampled_correct"]} for row in rows],
                confidence=confidence,
            )
        ),
        by_kind=by("kind"),
        by_part=by("part") or None,
    )


def _metrics(rows: Sequence[Row], confidence: float) -> Scores:
    within = all(0.0 <= row["sampled_reward"] <= 1.0 for row in rows)
    reward_bounds = (0.0, 1.0) if within else UNBOUNDED

    def mean(name: str, bounds: Bounds = _AT_LEAST_0) -> Estimate | None:
        return mean_interval([row[name] for row in rows], confidence=confidence, bounds=bounds)

    def share_of(name: str) -> Estimate | None:
        known = [row[name] for row in rows if row[name] is not None]
        return share(sum(known), len(known), confidence=confidence)

    return Scores(
        num_problems=len(rows),
        accuracy=share_of("correct"),
        trace_right=share_of("trace_right"),
        mean_reward=mean("sampled_reward", bounds=reward_bounds),
        num_tokens=mean("num_tokens"),
        entropy=mean("entropy"),
    )


def sample_diversity(samples: Sequence[Sequence[Row]], *, confidence: float) -> Diversity | None:
    """Return how much the samples of a problem differ, over the problems with two or more; None without one.

    Args:
        samples: of each problem its samples, with `text`, `extracted` (None: no answer) and `correct`.
        confidence: level of the intervals.
    """
    several = [group for group in samples if len(group) > 1]
    if not several:
        return None
    samples_of_several = [one for group in several for one in group]
    # A grader that records no answers leaves them out of right samples too; where nothing is right there are none.
    answered = any(one["extracted"] is not None for one in samples_of_several) or not any(
        one["correct"] for one in samples_of_several
    )

    def mean(values: Iterable[float | None], bounds: Bounds = (0.0, 1.0)) -> Estimate | None:
        known = [value for value in values if value is not None]
        return mean_interval(known, confidence=confidence, bounds=bounds)

    def answers(only_right: bool) -> Estimate | None:
        shown = [[one["extracted"] for one in group if one["correct"] or not only_right] for group in several]
        return mean((float(num_distinct(group)) for group in shown), _AT_LEAST_0) if answered else None

    texts = [[one["text"] for one in group] for group in several]
    return Diversity(
        ngram_similarity=mean(map(ngram_similarity, texts)),
        distinct_2grams=mean(map(distinct_ngram_share, texts)),
        distinct_answers=answers(only_right=False),
        distinct_right_answers=answers(only_right=True),
    )
