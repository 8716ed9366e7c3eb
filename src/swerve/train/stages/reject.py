"""Distillation by rejection sampling: a teacher's right completions are kept, then imitated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.files import fsync
from swerve.artifacts.parts import Parts
from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import Response, read_provenance, response_row, write_responses
from swerve.config.supervised_stages import RejectStage
from swerve.errors import SwerveError
from swerve.formats.imported_responses import read_responses
from swerve.formats.rejection import Rejection, keep_right
from swerve.models.model_folder import LoadedModel, stop_ids, tokenizer_fingerprint, weights_fingerprint
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.train.context import StageContext
from swerve.train.frozen import load_named
from swerve.train.stages.sft import SftRunner, example_reader
from swerve.types import Problem

_PROMPTS_AT_A_TIME = 64


class RejectRunner(SftRunner):
    """Samples with the teacher once, keeps right completions; then learns from them."""

    def __init__(self, stage: RejectStage, context: StageContext) -> None:
        path = context.run.selected_path(stage.label)
        if not context.resumed:
            _collect(stage, context)
            context.world.barrier()
        tokenizer = read_provenance(path)["tokenizer"]
        examples = example_reader(stage, context).examples(
            read_responses(path), source=f"stage '{stage.label}'", sha256=tokenizer["sha256"]
        )
        super().__init__(stage, context, examples)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Teacher:
    """Who is sampled from."""

    label: str
    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    params: SamplingParams
    provenance: dict[str, Any]
    """What its completions depend on."""


@contextmanager
def _awake_teacher(stage: RejectStage, context: StageContext) -> Iterator[_Teacher]:
    """Yield the teacher, ready to sample."""
    # The model, what it samples with, and what its completions depend on.
    policy = LoadedModel(model=context.learner.model, tokenizer=context.learner.tokenizer)
    teacher = policy if stage.teacher is None else load_named(stage.teacher, context)
    teacher.model.eval()
    params = SamplingParams(
        num_samples=stage.samples_per_prompt,
        max_new_tokens=context.config.max_new_tokens,
        temperature=stage.temperature,
        stop_ids=stop_ids(teacher.model, teacher.tokenizer),
    )
    name = stage.teacher or "policy"
    provenance = {
        "teacher": name,
        "weights": weights_fingerprint(teacher.model),
        "tokenizer": {"name": name, "sha256": tokenizer_fingerprint(teacher.tokenizer)},
    }

    # The policy has the run's engine; another teacher, or another engine, one of its own.
    if stage.teacher is None and stage.engine is None:
        awake = context.awake_engine(step=0)
    else:
        config, max_rows = stage.engine or context.config.rollout.engine, context.config.runtime.max_rows
        awake = closing(make_engine(config, teacher.model, teacher.tokenizer, max_rows=max_rows))
    with awake as engine:
        yield _Teacher(label=name, engine=engine, tokenizer=teacher.tokenizer, params=params, provenance=provenance)


def _collect(stage: RejectStage, context: StageContext) -> None:
    """Sample every problem, in parts that a stage which is begun again need not sample again; write what is kept.

    Raises:
        SwerveError: no completion was right.
    """
    problems = list({problem.id: problem for problem in context.draw(range(stage.num_prompts), step=0)}.values())
    starts = range(0, len(problems), _PROMPTS_AT_A_TIME)
    path = context.run.selected_path(stage.label)
    with (
        _awake_teacher(stage, context) as teacher,
        context.progress.task(f"sample for {stage.label}", len(problems)) as task,
    ):
        kept = Parts(path.with_suffix(".partial"), teacher.provenance)
        for start in starts:
            slots = range(start, min(start + _PROMPTS_AT_A_TIME, len(problems)))
            if context.world.any(kept.get("selected", start) is None):
                context.raise_if_interrupted()
                selected = _selected(stage, context, teacher, slots, problems)
                if context.world.is_main:
                    kept.put("selected", start, selected)
            task.advance(len(slots))

    # What all parts have, in all processes, before the first one removes them.
    context.world.barrier()
    parts: list[dict[str, Any]] = [kept.get("selected", start) or {} for start in starts]
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part["counts"])
    context.world.barrier()
    context.progress.note(
        f"{stage.label}: {counts['num_right']} of {counts['num_responses']} completions are right, of "
        f"{counts['num_problems_right']} of {counts['num_problems']} problems; {counts['num_duplicates']} are "
        f"repeated; {counts['num_kept']} are learned"
    )
    if not counts["num_kept"]:
        raise SwerveError(
            f"stage '{stage.label}': none of {counts['num_responses']} completions of {counts['num_problems']} "
            f"problems was right; use another teacher, or raise stages.{stage.label}.samples_per_prompt or .num_prompts"
        )
    if context.world.is_main:
        table = pa.Table.from_pylist([row for part in parts for row in part["rows"]], schema=RESPONSES_SCHEMA)
        provenance = {**teacher.provenance, "counts": dict(counts)}
        write_responses(path, table, RESPONSES_SCHEMA, table="responses", provenance=provenance)
        kept.finish()
        fsync(path.parent)  # or a power cut brings them back behind the stage's first checkpoint


def _selected(
    stage: RejectStage, context: StageContext, teacher: _Teacher, slots: range, problems: Sequence[Problem]
) -> dict[str, Any]:
    """Sample and grade the problems of some slots; return the rows that are kept and the counts, as JSON."""
    # This process's share, of which some right completions of each problem are kept.
    mine = context.world.shard(slots)
    prompts = context.encode([problems[slot] for slot in mine], teacher.tokenizer)
    seeds = [context.seed(stage.label, "rollout", slot) for slot in mine]
    groups = context.sample_groups(teacher.engine, prompts, teacher.params, seeds=seeds, tokenizer=teacher.tokenizer)
    rejection = Rejection(only_right=True, per_problem=stage.per_problem, seed=context.seed(stage.label, "keep"))
    sampled = [
        Response.of(group.prompt, rollout, label=teacher.label, sample=number)
        for group in groups
        for number, rollout in enumerate(group.rollouts)
    ]
    kept, counts = keep_right(sampled, rejection)
    # Those of all processes, in the order of the slots.
    totals = context.world.sums({key: value for key, value in asdict(counts).items() if key.startswith("num_")})
    rows = [row for part in context.world.gather(list(map(response_row, kept))) for row in part]
    order = {problems[slot].id: slot for slot in slots}
    rows.sort(key=lambda row: (order[row["problem_id"]], row["sample"]))
    return {
        "rows": [{name: row[name] for name in RESPONSES_SCHEMA.names} for row in rows],
        "counts": {name: int(total) for name, total in totals.items()},
    }
