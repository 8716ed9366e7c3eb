"""Everything that the report reads from a run directory, in one frozen record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.evaluation import Evaluation, largest_k, read_evaluations
from swerve.artifacts.metrics import StepMetrics, read_step_metrics
from swerve.artifacts.model_words import model_words
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.replays import Taught, read_taught
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA, response_schema
from swerve.artifacts.responses import Response, by_problem, read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import (
    ATTRIBUTIONS_SCHEMA,
    BIOGRAPHIES_SCHEMA,
    CROSS_SAMPLES_SCHEMA,
    INTERVENTIONS_SCHEMA,
    LATER_COLUMNS,
    PREFIX_VALUES_SCHEMA,
    SIGNALS_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    TOPK_SCHEMA,
    read_table,
)
from swerve.errors import ArtifactError
from swerve.estimates import Estimate
from swerve.statistics.hypothesis_tests import paired_difference
from swerve.statistics.pass_at_k import chance_of_turning, pass_at_k
from swerve.text import whole_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTables:
    """The probe's tables, those that it always writes."""

    sequences: pa.Table
    tokens: pa.Table
    topk: pa.Table
    spikes: pa.Table
    interventions: pa.Table
    cross_samples: pa.Table | None = None
    """Only where tokens of one model were put into the text of the other."""
    folder: Path | None = None
    """Where they are, for those that only some sentences need."""

    def read(self, name: Literal["prefix_values", "biographies", "signals", "attributions"]) -> pa.Table | None:
        """Return a table that only some probes write; None where it is not there.

        Raises:
            ArtifactError: it is damaged.
        """
        path = None if self.folder is None else self.folder / f"{name}.parquet"
        return read_table(path, _OTHERS[name]) if path is not None and path.is_file() else None


_OTHERS = {
    "prefix_values": PREFIX_VALUES_SCHEMA,
    "biographies": BIOGRAPHIES_SCHEMA,
    "signals": SIGNALS_SCHEMA,
    "attributions": ATTRIBUTIONS_SCHEMA,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A value of the answers to each problem, at the reference and at the final checkpoint."""

    problems: tuple[str, ...] = ()
    before: tuple[float, ...] = ()
    """Empty where the final checkpoint alone is evaluated."""
    after: tuple[float, ...] = ()

    def change(self, *, confidence: float, bound: float) -> Estimate | None:
        """Return the mean difference over problems, at most `bound`; None of fewer than two."""
        if len(self.before) < 2:
            return None
        return paired_difference(self.before, self.after, confidence=confidence, bounds=(-bound, bound))[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInputs:
    """A run as the report sees it; None and empty mean that a stage has not run. Equal is only the same object."""

    run_name: str
    provenance: Mapping[str, Any]
    config_text: str | None
    metrics: tuple[StepMetrics, ...]
    evaluations: tuple[Evaluation, ...]
    """Of every checkpoint, by global step."""
    summary: ProbeSummary | None
    tables: ProbeTables | None
    final_completions: Mapping[str, Response]
    """What the final checkpoint writes greedily, by problem id."""
    model: str = ""
    """Architecture and number of parameters of the final checkpoint, as a sentence has them; empty: not known."""
    task: str = ""
    """What the problems are, as the recipe calls it."""
    planted: str = ""
    """The mistake that its supervised traces make, and how often; empty: none, or not known."""
    example: str = ""
    """The question of a problem."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of each problem of the evaluations, by its id."""
    greedy_change: Estimate | None = None
    """Greedy accuracy of the final checkpoint minus that of the reference, over the same problems."""
    pass_change: Estimate | None = None
    """The same of pass@k, at the largest k."""
    length_change: Estimate | None = None
    """The same of the tokens of a greedy answer."""
    entropy_change: Estimate | None = None
    """The same of the mean entropy of a token of a greedy answer, nats."""
    paired: Mapping[str, Paired] = field(default_factory=dict)
    """The values that these are of: `right`, `pass`, `tokens` and `entropy`; and `trace`, whether no step was wrong,
    `samples`, the share of right samples, and `turned`, the chance that one sample is wrong and another right."""
    taught: Mapping[str, Taught] = field(default_factory=dict)
    """Which tokens of training moved a target, by the name of the file in `replay/` that says so."""
    problems: tuple[str, ...] = ()
    """Ids of the problems that figures about problems are of; empty: those where a swapped token does most."""

    def evaluation(self, label: str) -> Evaluation | None:
        """Return the evaluation of the checkpoint called `label`, if there is one."""
        return next((evaluation for evaluation in self.evaluations if evaluation.checkpoint == label), None)

    @property
    def confidence(self) -> float | None:
        """Level of the intervals of evaluations and probe; None where they differ or do not say."""
        summaries = () if self.summary is None else (self.summary,)
        levels = {each.confidence for each in (*self.evaluations, *summaries)}
        return levels.pop() if len(levels) == 1 else None

    @property
    def is_imported(self) -> bool:
        """Whether the probe is of responses from a file, without a selection or an evaluation."""
        return self.summary is not None and self.summary.is_imported

    @property
    def reference(self) -> Evaluation | None:
        """The reference's evaluation; without a probe the first one."""
        if self.summary is not None:
            return self.evaluation(self.summary.reference)
        return self.evaluations[0] if self.evaluations else None

    @property
    def final(self) -> Evaluation | None:
        """The final checkpoint's evaluation; without a probe the last one."""
        if self.summary is not None:
            return self.evaluation(self.summary.final)
        return self.evaluations[-1] if self.evaluations else None

    @property
    def of_last_stage(self) -> tuple[Evaluation, ...]:
        """The evaluations of the reference, and of the final checkpoint's stage."""
        first, last = self.reference, self.final
        if first is None or last is None:
            return self.evaluations
        return tuple(each for each in self.evaluations if each is first or each.stage == last.stage)


def read_inputs(run: RunDirectory, *, with_tables: bool = True) -> ReportInputs:
    """Read what a run has: evaluations, probe tables, metrics and provenance; sentences and tiles need no tables.

    Raises:
        ArtifactError: there is no evaluation, no probe and no metrics, or a file is damaged.
    """
    provenance = run.read_provenance()
    evaluations = read_evaluations(run)
    summary = read_summary(run)
    _check_same_weights(run, evaluations, summary)
    for checkpoint in run.checkpoints[-1:]:
        run.check_run_files(checkpoint)

    # A page needs one of the three at least.
    metrics = tuple(read_step_metrics(run.metrics_path))
    if not evaluations and summary is None and not metrics:
        raise ArtifactError(
            f"{run.path} has nothing to report: no metrics, no evaluation and no probe; "
            f"run swerve train, swerve eval {run.quoted} and swerve probe {run.quoted} first"
        )
    config_text = run.config_path.read_text(encoding="utf-8") if run.config_path.is_file() else None
    final = [each for each in evaluations if with_tables and summary is not None and each.checkpoint == summary.final]
    inputs = ReportInputs(
        run_name=run.path.resolve().name,
        provenance=provenance,
        config_text=config_text,
        model=model_words(run.checkpoint_path(evaluations[-1].step)) if evaluations else "",
        task=task_words(config_text or ""),
        planted=planted_words(config_text or ""),
        metrics=metrics,
        evaluations=evaluations,
        summary=summary,
        taught=read_taught(run) if with_tables else {},
        tables=_read_tables(run, summary.reference) if summary is not None and with_tables else None,
        final_completions={
            response.problem.id: response
            for evaluation in final
            for response in _responses(run, evaluation, "text", "extracted", "correct")
            if response.temperature == 0
        },
    )
    return _with_changes(run, inputs)


def _with_changes(run: RunDirectory, inputs: ReportInputs) -> ReportInputs:
    """Return the same with the paired differences of the final checkpoint from the reference."""
    first, last, k = inputs.reference, inputs.final, largest_k(inputs.evaluations)
    confidence = None if last is None else last.confidence
    if first is None or last is None or confidence is None:
        return inputs
    columns = ("question", "kind", "correct", "completion_ids", "entropy", "trace_right")
    groups = [_responses(run, evaluation, *columns) for evaluation in ((last,) if first is last else (first, last))]

    def pairs(value: Callable[[Sequence[Response]], float | None], *, is_greedy: bool = True) -> Paired:
        """Return a value of a problem's answers, of the problems where it is known at both."""
        known = [
            {
                problem: found
                for problem, own in by_problem(each for each in group if (each.temperature == 0) == is_greedy).items()
                if (found := value(own)) is not None
            }
            for group in groups
        ]
        both = [problem for problem in known[0] if problem in known[-1]]
        *before, after = (tuple(float(own[problem]) for problem in both) for own in known)
        return Paired(problems=tuple(both), before=before[0] if before else (), after=after)

    # Of k samples the chance of a right one; of the greedy answer itself accuracy, length and entropy.
    def pass_at(own: Sequence[Response]) -> float | None:
        verdicts = [answer.verdict for answer in own]
        return pass_at_k(len(own), verdicts.count(True), k) if len(own) >= k and None not in verdicts else None

    paired = {
        "right": pairs(lambda own: own[0].verdict),
        "pass": pairs(pass_at, is_greedy=False) if k else Paired(),
        "tokens": pairs(lambda own: len(own[0].completion_ids or ()) or None),
        "entropy": pairs(lambda own: own[0].entropy),
        "trace": pairs(lambda own: own[0].trace_right),
        "samples": pairs(_share_right, is_greedy=False),
        "turned": pairs(_turned, is_greedy=False),
    }
    bounds = {"right": 1.0, "pass": 1.0, "tokens": math.inf, "entropy": math.inf}
    changes = {name: paired[name].change(confidence=confidence, bound=bound) for name, bound in bounds.items()}
    return replace(
        inputs,
        example=" ".join((groups[0][0].problem.question or "").split()) if groups[0] else "",
        kinds={answer.problem.id: answer.problem.kind for answer in groups[-1]},
        greedy_change=changes["right"],
        pass_change=changes["pass"],
        length_change=changes["tokens"],
        entropy_change=changes["entropy"],
        paired=paired,
    )


def _share_right(own: Sequence[Response]) -> float | None:
    return sum(bool(answer.correct) for answer in own) / len(own) if own else None


def _turned(own: Sequence[Response]) -> float | None:
    return chance_of_turning(len(own), sum(bool(answer.correct) for answer in own))


def task_words(config_text: str) -> str:
    """Return the kind of a recipe's task in words; empty where no recipe says it."""
    import yaml

    task = (yaml.safe_load(config_text) or {}).get("task") if config_text else None
    return str(task.get("kind", "")).replace("_", " ") if isinstance(task, dict) else ""


def planted_words(config_text: str) -> str:
    """Return the mistake of the traces that a recipe's SFT learns, and how often they make it; empty without one."""
    import yaml

    from swerve.problems import TASKS

    recipe = (yaml.safe_load(config_text) or {}) if config_text else {}
    if not isinstance(recipe, dict) or not isinstance(task := recipe.get("task"), dict):
        return ""
    rate, stages = task.get("mistake_rate"), recipe.get("stages")
    learns_traces = isinstance(stages, list) and any(
        isinstance(stage, dict) and stage.get("kind") == "sft" and not stage.get("data") for stage in stages
    )
    if not learns_traces or not isinstance(rate, int | float) or not 0 < rate <= 1:
        return ""
    kind = TASKS.get(str(task.get("kind")))
    if kind is None or not kind.config.planted:
        return ""
    return f"{kind.config.planted}, in {whole_percent(float(rate))} of the cases"


def missing_inputs(run: RunDirectory) -> list[str]:
    """Return a line for each evaluation, and the probe's summary, that is missing though there are files beside it."""
    evaluated = any((run.path / "eval").glob("step_*"))
    paths = [run.evaluation_path(checkpoint) for checkpoint in run.checkpoints if checkpoint.scheduled and evaluated]
    lines = [f"{path} is missing; make it with: swerve eval {run.quoted}" for path in paths if not path.is_file()]
    summary = run.probe_path / "summary.json"
    if not summary.is_file() and any(run.probe_path.glob("*.parquet")):
        lines.append(f"{summary} is missing; make it with: swerve probe {run.quoted}")
    return lines


def _check_same_weights(run: RunDirectory, evaluations: Sequence[Evaluation], summary: ProbeSummary | None) -> None:
    """Raise ArtifactError if the parts belong to different weights or settings."""
    if any(evaluation.settings != evaluations[0].settings for evaluation in evaluations):
        raise ArtifactError(
            f"the evaluations of {run.path} were made with different settings; run swerve eval {run.quoted}"
        )
    probed = {} if summary is None or summary.is_imported else summary.weights_sha256
    known = [(checkpoint.label, checkpoint.weights_sha256) for checkpoint in run.checkpoints]
    for label, weights in [*known, *((evaluation.checkpoint, evaluation.weights_sha256) for evaluation in evaluations)]:
        if label in probed and probed[label] != weights:
            raise ArtifactError(
                f"the probe of {run.path} is of other weights of {label}; run swerve probe {run.quoted} again"
            )


def _read_tables(run: RunDirectory, reference: str) -> ProbeTables:
    """Return the tables that were written with the summary.

    Raises:
        ArtifactError: one is missing or damaged, or is not of the rollouts and models of the others.
    """
    schemas = {
        "sequences": SEQUENCES_SCHEMA,
        "tokens": TOKENS_SCHEMA,
        "topk": TOPK_SCHEMA,
        "spikes": SPIKES_SCHEMA,
        "interventions": INTERVENTIONS_SCHEMA,
    }
    paths = {name: run.probe_path / f"{name}.parquet" for name in schemas}
    try:
        read = {name: read_table(paths[name], schema) for name, schema in schemas.items()}
        tables = ProbeTables(**read, folder=run.probe_path)
        crossed = run.probe_path / "cross_samples.parquet"
        if crossed.is_file():
            tables = replace(tables, cross_samples=read_table(crossed, CROSS_SAMPLES_SCHEMA))
        for name, fault in _faults(tables, reference):
            raise ArtifactError(f"{paths[name]} is damaged: {fault}")
    except ArtifactError as error:
        raise ArtifactError(f"{error}; run swerve probe {run.quoted} again") from None
    return tables


def _faults(tables: ProbeTables, reference: str) -> Iterator[tuple[str, str]]:
    """Yield what does not fit together, the name of its table first."""
    # Rollouts are numbered by their rows, and each of their tokens has a place in the text.
    sequences = tables.sequences
    needed = ("problem_id", "population", "label", "text", "completion_ids", "token_starts", "token_ends")
    lengths, *others = (pc.list_value_length(sequences[name]) for name in needed[-3:])
    is_numbered = sequences["sequence_id"].to_pylist() == [*range(len(sequences))]
    is_whole = not any(sequences[name].null_count for name in (*needed, "wrong_positions", "wrong_expected"))
    is_marked = not pc.any(pc.not_equal(pc.list_value_length(sequences["sampled"]), lengths)).as_py()
    if not (is_numbered and is_whole and is_marked) or any(other != lengths for other in others):
        yield "sequences", "its rows are not rollouts numbered from 0, each with text and the places of its tokens"

    # The rows of the other tables are of their tokens.
    num_tokens = lengths.to_numpy()
    for name in ("tokens", "topk", "spikes", "interventions"):
        table: pa.Table = getattr(tables, name)
        if any(table[column].null_count for column in set(table.column_names) - LATER_COLUMNS):
            yield name, "a row lacks a value"
        number, position = table["sequence_id"].to_numpy(), table["position"].to_numpy()
        is_known = (number >= 0) & (number < len(num_tokens)) & (position >= 0)
        if not is_known.all() or (position >= num_tokens[number]).any():
            yield name, "a row is of a token that sequences.parquet lacks"

    # Lists of likeliest tokens are of the models that are compared, and of one length.
    compared = tables.tokens["checkpoint"].filter(pc.equal(tables.tokens["reference"], reference)).unique()
    if len(tables.tokens) and not compared:
        yield "tokens", f"it compares nothing with {reference}"
    if not {*tables.topk["checkpoint"].unique().to_pylist()} <= {reference, *compared.to_pylist()}:
        yield "topk", "it has another model than tokens.parquet"
    lists = [tables.topk[name] for name in ("token_ids", "tokens", "probs")]
    if len({length for each in lists for length in pc.list_value_length(each).unique().to_pylist()}) > 1:
        yield "topk", "its lists differ in length"
    if pc.any(pc.less(pc.list_flatten(lists[0]), 0)).as_py():
        yield "topk", "a token has an id below 0"
    if pc.any(pc.less(tables.interventions["num_continuations"], 1)).as_py():
        yield "interventions", "a forced token has no continuation"


def _responses(run: RunDirectory, evaluation: Evaluation, *columns: str) -> list[Response]:
    """Return what some columns of an evaluation's table say; nothing where it is not there."""
    path = run.path / "eval" / f"{evaluation.file_name}.parquet"
    known = response_schema("problem_id", "temperature", *columns)
    return read_response_table(path, known) if path.is_file() else []
