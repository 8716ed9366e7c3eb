"""A run as Python reads it: its configuration, and its tables as data frames. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from swerve.artifacts import tables
from swerve.artifacts.comparison import Scores
from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.run import RUNS, RunDirectory, find_run
from swerve.config.recipe import Config
from swerve.errors import SwerveError
from swerve.estimates import Estimate
from swerve.models.named_models import NamedModel, resolve_model
from swerve.notebook import html_rows
from swerve.progress import format_duration, one_line
from swerve.recipes.loader import load_config
from swerve.text import counted, percent, percent_interval, text_before

if TYPE_CHECKING:
    from pandas import DataFrame


_FUNCTIONS = ("compare", "evaluate", "probe", "replay", "report")
_INSTEAD = {
    "sample": "swerve.sample(run.model('rl'), problems) takes a model of it",
    "claim": "swerve.claim(run.model('base'), run.model('rl'), ...) takes models of it",
    "export": "run.model('rl') is a folder that transformers reads; in a terminal: swerve export RUN:rl --out FOLDER",
    "tokenizer": "AutoTokenizer.from_pretrained(run.model('rl')) loads it",
    "models": "run.checkpoints are its models, run.model('rl') is one",
    "plot": "swerve.report(run) draws it; in a terminal: swerve report RUN --figures",
    "figures": "swerve.report(run) draws it; in a terminal: swerve report RUN --figures",
    "resume": "swerve.train(run, resume=True) continues it",
}
"""What others may expect of a run, and where it is."""


class Run(RunDirectory):
    """An existing run, given by its path or by its name under `runs/`.

    What a stage has not written yet is an empty frame, an empty list or None. Frames need pandas.

    Example:
        run = swerve.Run("runs/demo-addition")
        run.metrics.plot(x="step", y="reward")
    """

    __slots__ = ()

    def __init__(self, run: str | Path | RunDirectory) -> None:
        """Find a run.

        Raises:
            ArtifactError: no such run; the message names the nearest.
        """
        super().__init__(run.path if isinstance(run, RunDirectory) else find_run(run).path)

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            """Say what takes a run, where that was meant."""
            instead = _INSTEAD.get(name) or (f"swerve.{name}(run) takes a run" if name in _FUNCTIONS else None)
            raise AttributeError(f"a run has no {name!r}{f'; {instead}' if instead else ''}")

    def model(self, label: str) -> NamedModel:
        """Return a model of the run, for `swerve.sample`, `evaluate`, `probe`, `claim` and `from_pretrained`.

        Args:
            label: of a checkpoint (`rl-30`), or a stage, whose last checkpoint is meant; `base`: what training began
                with, which of a tiny model is made again in the run's `initial/`.

        Raises:
            CheckpointError: there is no such checkpoint; the message names those that there are.
        """
        return resolve_model(label, run=self)

    @property
    def config(self) -> Config:
        """The configuration, every default included; `swerve.train(run.config, seed=1, out=...)` trains it again."""
        return load_config(self)

    @property
    def metrics(self) -> DataFrame:
        """One row for each training step: `step`, `stage`, `loss`, `reward` and all else that was logged."""
        return tables.import_pandas().DataFrame(read_metrics(self.metrics_path))

    @property
    def evaluations(self) -> DataFrame:
        """One row for each evaluated checkpoint; each measure with the ends of its interval, `_low` and `_high`.

        `accuracy`, `num_tokens` and so on are of the greedy completions, `sampled_accuracy` and so on of the sampled
        ones.
        """
        return tables.import_pandas().DataFrame([_evaluation_row(evaluation) for evaluation in read_evaluations(self)])

    @property
    def tokens(self) -> DataFrame:
        """One row for each completion token and pair of models that the probe compared, as its page lists tokens.

        Beside the columns of `tokens.parquet`: the text as `token` and the end of the text before it as `context`;
        `population`, why its response was read (the checkpoint's own responses are there beside those that the page is
        about); `rank_change`, places that it moved up; `repair`, what forcing the final checkpoint's token there adds
        to the fraction of right continuations, NaN where it was not forced.
        """
        frame = self._token_frame("tokens", tables.TOKENS_SCHEMA)
        path = self.probe_path / "interventions.parquet"
        if path.is_file():
            frame["rank_change"] = frame["rank_ref"] - frame["rank"]
            repairs = _repairs(tables.read_table(path, tables.INTERVENTIONS_SCHEMA))
            places = zip(frame["sequence_id"].tolist(), frame["position"].tolist(), strict=True)
            frame["repair"] = [repairs.get(place, math.nan) for place in places]
        return frame

    @property
    def spikes(self) -> DataFrame:
        """One row for each spike that the probe found, by each of its methods, with the token's text as `token`."""
        return self._token_frame("spikes", tables.SPIKES_SCHEMA)

    @property
    def summary(self) -> ProbeSummary | None:
        """What the probe found; None without a probe."""
        return read_summary(self)

    def _token_frame(self, name: str, schema: pa.Schema) -> DataFrame:
        """Return a table of the probe with each token's text and its problem."""
        path = self.probe_path / f"{name}.parquet"
        if not path.is_file():
            return tables.data_frame(schema.empty_table())
        table, pieces = tables.read_table(path, schema), dict[tuple[int, int], tuple[str, str]]()
        of_each = dict[int, tuple[str, str]]()
        for sequence in read_response_table(self.probe_path / "sequences.parquet", SEQUENCES_SCHEMA):
            of_each[sequence.sequence_id] = sequence.problem.id, sequence.population
            for position, (start, end) in enumerate(sequence.spans):
                text = sequence.text or ""
                pieces[sequence.sequence_id, position] = text[start:end], text_before(text, start, end)
        ids = table["sequence_id"].to_pylist()
        texts = [pieces[place] for place in zip(ids, table["position"].to_pylist(), strict=True)]
        frame = tables.data_frame(table)
        frame.insert(2, "token", [token for token, _ in texts])
        frame.insert(3, "context", [before for _, before in texts])
        frame.insert(1, "problem_id", [of_each[number][0] for number in ids])
        frame.insert(2, "population", [of_each[number][1] for number in ids])
        return frame

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield what a run is, and what is known of it."""
        record = self.read_provenance()
        stages = record.get("stages") or {}
        yield "status", str(self.status)
        if stages:
            yield "stages", ", ".join(f"{label} ({counted(steps, 'step')})" for label, steps in stages.items())
            yield "seed", str(record.get("seed"))
        for evaluation in read_evaluations(self)[-1:]:
            accuracy = evaluation.greedy.accuracy
            yield (
                "accuracy",
                f"{evaluation.checkpoint} {percent_interval(accuracy)}, n = {evaluation.greedy.num_problems}",
            )
        summary = read_summary(self)
        if summary is not None:
            yield "probe", f"{summary.final} against {summary.reference}, {counted(summary.num_rollouts, 'rollout')}"

    def __repr__(self) -> str:
        """Return one line: where it is, its status, its last accuracy and its probe."""
        try:
            facts = "; ".join(value if name == "status" else f"{name} {value}" for name, value in self._facts())
        except SwerveError as error:
            facts = f"unreadable: {error}"
        return f"Run({str(self.path)!r}: {facts})"

    def _repr_html_(self) -> str:
        """Return the same as a table, with the coloured tokens of its probe."""
        from swerve.probe.result import read_result

        try:
            result = read_result(self)
            rows = html_rows([("run", str(self.path)), *self._facts()])
        except SwerveError as error:
            return html_rows([("run", str(self.path)), ("unreadable", str(error))])
        return rows if result is None else rows + result._repr_html_()


def _repairs(table: pa.Table) -> dict[tuple[int, int], float]:
    """Return what forcing the final checkpoint's token adds to the fraction of right continuations, by place.

    Continuations are the reference's; where it never continued, the checkpoint's.
    """
    rows = table.to_pylist()
    own = [row for row in rows if row["policy"] == "reference"] or rows
    rates = {
        arm: {
            (row["sequence_id"], row["position"]): row["num_successes"] / row["num_continuations"]
            for row in own
            if row["arm"] == arm
        }
        for arm in ("reference", "checkpoint")
    }
    before = rates["reference"]
    return {place: rate - before[place] for place, rate in rates["checkpoint"].items() if place in before}


def _evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as one row; of what was not measured there is no column."""
    row: dict[str, Any] = {
        "checkpoint": evaluation.checkpoint,
        "stage": evaluation.stage,
        "step": evaluation.step,
        "num_problems": evaluation.greedy.num_problems,
    }
    for prefix, scores in (("", evaluation.greedy), ("sampled_", evaluation.sampled)):
        for name in Scores.model_fields:
            estimate = getattr(scores, name)
            if isinstance(estimate, Estimate):
                row[prefix + name] = estimate.mean
                row[f"{prefix}{name}_low"], row[f"{prefix}{name}_high"] = estimate.low, estimate.high
    return row


def runs(folder: str | Path = RUNS) -> list[Run]:
    """Return the runs in a folder, the oldest first.

    >>> runs("a/folder/without/runs")
    []
    """
    places = sorted(Path(folder).glob("*/run.json"), key=lambda place: (place.stat().st_ctime, place))
    return [Run(RunDirectory(place.parent)) for place in places]


def describe_run(path: Path) -> dict[str, Any]:
    """Return a run's name, date, seconds, status, stages, last step and best metrics; what cannot be read is None.

    The reason is in `error` then. A run that says `training` and that no process holds was `killed`. The date is when
    it began, UTC. `accuracy` is the highest of all evaluations of the run, with its checkpoint's label; `reward` the
    highest mean reward of a step.
    """
    run = RunDirectory(path)
    entry: dict[str, Any] = dict.fromkeys(
        ("date", "seconds", "status", "stages", "last_step", "num_steps", "accuracy", "reward")
    )
    entry["name"] = path.name
    try:
        record = run.read_provenance()
        entry["status"], entry["date"], entry["seconds"] = run.status, record.get("date"), record.get("seconds")
        stages = record.get("stages") or {}
        entry["stages"], entry["num_steps"] = list(stages), sum(stages.values()) or None

        # The best of all steps, and how far the run has come; seconds are recorded where a training ends.
        records = read_metrics(run.metrics_path)
        entry["last_step"] = records[-1]["step"] if records else None
        entry["seconds"] = entry["seconds"] or round(sum(step.get("seconds") or 0.0 for step in records), 1) or None
        return {**entry, "accuracy": _best_accuracy(path, records), "reward": _best(records, "reward")}
    except SwerveError as error:
        return {**entry, "error": str(error)}


def entry_texts(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return what `describe_run` knows as people read it, by the heading of its column.

    >>> entry_texts({**dict.fromkeys(("date", "last_step", "accuracy", "reward", "stages")), "name": "mine",
    ...              "status": "training", "seconds": 75})["trained for"]
    '1 min 15 s'
    """
    accuracy, reward = entry["accuracy"], entry["reward"]
    return {
        "run": one_line(entry["name"]),
        "began": f"{entry['date']} UTC" if entry["date"] else "-",
        "trained for": format_duration(entry["seconds"]) if entry["seconds"] else "-",
        "status": entry["status"] or "unreadable",
        "stages": "unreadable" if entry["stages"] is None else ", ".join(entry["stages"]) or "-",
        "steps": "-" if entry["last_step"] is None else f"{entry['last_step']}/{entry['num_steps'] or '?'}",
        "best accuracy": "-" if accuracy is None else f"{percent(accuracy['value'])} ({accuracy['at']})",
        "best reward": "-" if reward is None else f"{reward['value']:.3f} ({reward['at']})",
    }


def _best(records: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the largest value of a metric with the label of its step; None: it was never measured."""
    known = [record for record in records if isinstance(record.get(name), int | float)]
    best = max(known, key=lambda record: record[name], default=None)
    return None if best is None else {"value": best[name], "at": f"{best['stage']}-{best['stage_step']}"}


def _best_accuracy(path: Path, records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the highest accuracy of the evaluations, during training and of checkpoints; None without one."""
    of_checkpoints = [
        {
            "stage": evaluation.stage,
            "stage_step": evaluation.stage_step,
            "eval_accuracy": evaluation.greedy.accuracy.mean,
        }
        for evaluation in read_evaluations(RunDirectory(path))
        if evaluation.greedy.accuracy is not None
    ]
    return _best([*of_checkpoints, *records], "eval_accuracy")
