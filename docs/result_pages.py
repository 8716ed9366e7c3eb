"""Reference pages of what swerve writes: keys of its JSON files and columns of its tables, from their records."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import pyarrow as pa

from swerve.artifacts import response_columns, tables
from swerve.artifacts.comparison import Comparison
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.metrics import OTHER_METRICS, StepMetrics
from swerve.artifacts.probe_findings import EntropySummary, RankShift
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import Record
from swerve.artifacts.study import Study
from swerve.claim.record import ClaimCard
from swerve.estimates import Estimate

_HEAD = (
    'E is an interval, `{"mean", "low", "high"}`, at the level that `confidence` of the file says. What was not asked '
    "for or cannot be measured is null or empty. Divergences, entropies and log-probabilities are in nats."
)
_FILES: tuple[tuple[str, str, type, str], ...] = (
    # The page, its title, the record and where the words of it are defined.
    ("summary", "probe/summary.json", ProbeSummary, "[Probe](../probe.md) defines the terms."),
    ("evaluation", "eval/step_NNNNNN.json", Evaluation, ""),
    ("comparison", "comparison.json", Comparison, "Of `swerve eval --model`."),
    ("claim", "claim.json", ClaimCard, "[What is claimed](../claims.md) defines the terms."),
    ("study", "study.json", Study, "[Studies](../studies.md) defines the terms."),
)
_PARTS = {
    EntropySummary: ("summary-entropy", "Entropy and ranks in probe/summary.json"),
    RankShift: ("summary-entropy", "Entropy and ranks in probe/summary.json"),
    "swerve.artifacts.probe_findings": ("summary-findings", "Findings in probe/summary.json"),
    "swerve.artifacts.probe_dynamics": ("summary-dynamics", "Dynamics in probe/summary.json"),
    "swerve.artifacts.probe_causes": ("summary-causes", "Causal tests in probe/summary.json"),
}
"""Records, with what they are made of, and modules of records that have a page of their own."""
_USUAL = {
    "above_chance": "Difference from chance.",
    "accuracy": "Fraction right.",
    "auc_over_random": "Less that of random choices.",
    "baseline": "Label of a model from before the reference.",
    "budget": "Share of tokens that may be replaced.",
    "category": "Category of the tokens.",
    "chance": "What chance gives.",
    "chance_first_wrong": "The same of a random position.",
    "changes": "What the variant changes.",
    "checkpoint": "Label of the checkpoint.",
    "checkpoints": "Their labels, in order of training.",
    "cliffs_delta": "Effect size, Cliff's delta.",
    "confidence": "Level of the intervals.",
    "config_hash": "Of the resolved configuration.",
    "control": "Compared with which selection.",
    "correlate": "What the divergence is compared with.",
    "difference": "Difference, with its interval.",
    "direction": "Which model's tokens go into whose rollout.",
    "divergence": "Which divergence.",
    "entropy": "Of the checkpoint.",
    "entropy_ref": "Of the reference.",
    "estimate": "With its interval.",
    "expected": "What the study says would happen.",
    "f1": "Harmonic mean of precision and recall.",
    "final_accuracy": "Of the last checkpoint.",
    "gap": "Difference between the two.",
    "high": "Upper end of the interval.",
    "k": "Number of samples.",
    "kind": "Kind or level of the problems.",
    "label": "Of the model.",
    "level": "Of what the figure is.",
    "low": "Lower end of the interval.",
    "max": "Largest value.",
    "mean": "Mean value.",
    "mean_accuracy_over_random": "Less that of random choices.",
    "measure": "Which measure.",
    "method": "Which method.",
    "metric": "Which metric.",
    "model": "Label of the model.",
    "name": "Of the entry.",
    "num": "Number of them.",
    "num_clusters": "Problems behind the figure.",
    "num_confirmed": "Confirmed by fresh samples.",
    "num_continuations": "Continuations sampled.",
    "num_correct": "Right ones.",
    "num_forking": "Tokens of high entropy.",
    "num_measured": "Problems measured.",
    "num_pairs": "Pairs compared.",
    "num_positions": "Positions counted.",
    "num_problems": "Problems.",
    "num_rollouts": "Rollouts.",
    "num_samples": "Samples drawn.",
    "num_seeds": "Seeds compared.",
    "num_spikes": "Spikes counted.",
    "num_spots": "Positions tested.",
    "num_tokens": "Tokens counted.",
    "num_wrong": "Wrong ones.",
    "p_adjusted": "p-value after correction for the number of tests.",
    "p_value": "p-value of the test.",
    "path": "Of the file.",
    "per_1000_tokens": "Rate per 1,000 tokens.",
    "policy": "Who continued.",
    "population": "Which rollouts.",
    "recipe": "Recipe of the study.",
    "reference": "Label of the reference.",
    "region": "Third of the completion.",
    "schema_version": "Of the file's layout.",
    "seed": "Seed of the run.",
    "seeds": "Seeds of the runs.",
    "selection": "Which rollouts or positions were chosen.",
    "selector": "The score that chooses tokens.",
    "sha256": "Of the file.",
    "share": "Fraction, with its interval.",
    "share_divergence": "Fraction of the divergence.",
    "share_tokens": "Fraction of the tokens.",
    "source": "Where it comes from.",
    "spike_method": "Of the spikes that causal tests use.",
    "stage": "Label of the stage.",
    "stage_step": "Step of the stage.",
    "step": "Global step.",
    "steps": "Global steps.",
    "success": "Fraction of continuations that are right.",
    "swerve_version": "That wrote the file.",
    "threshold": "The one applied.",
    "unit": "What is counted as one.",
    "variant": "Variant of the study.",
    "weights_sha256": "Of the weights.",
    "writer": "Whose rollout it is.",
}
"""What keys of these names are where their docstrings say nothing."""
_TABLES: tuple[tuple[str, str, tables.Columns], ...] = (
    ("rollouts/STAGE_pairs.parquet", "One row per pair of a DPO stage.", tables.PAIR_COLUMNS),
    (
        "probe/tokens.parquet",
        "One row per token and pair of models, of every population: each checkpoint against the reference, and the "
        "other pairs. P is the checkpoint's distribution, Q the reference's.",
        tables.TOKEN_COLUMNS,
    ),
    (
        "bounds.parquet",
        "One row per token and checkpoint of a probe of models in servers: bounds, and what servers tell exactly.",
        tables.BOUND_COLUMNS,
    ),
    ("probe/topk.parquet", "One row per model and token of the headline population.", tables.TOPK_COLUMNS),
    (
        "probe/spikes.parquet",
        "One row per spike of the headline population, each checkpoint against the reference.",
        tables.SPIKE_COLUMNS,
    ),
    ("probe/interventions.parquet", "One row per forced token of the swaps.", tables.INTERVENTION_COLUMNS),
    (
        "probe/prefix_values.parquet",
        "One row per value of a prefix, from the search for pivots.",
        tables.PREFIX_VALUE_COLUMNS,
    ),
    (
        "probe/cross_samples.parquet",
        "One row per completion that two models wrote together.",
        tables.CROSS_SAMPLE_COLUMNS,
    ),
    (
        "probe/biographies.parquet",
        "One row per token of the headline population. Steps are global steps, or the order of the models where steps "
        "are not known.",
        tables.BIOGRAPHY_COLUMNS,
    ),
    ("probe/signals.parquet", "One row per token of the population `training`.", tables.SIGNAL_COLUMNS),
    ("probe/attributions.parquet", "One row per spike and model.", tables.ATTRIBUTION_COLUMNS),
)
_RESPONSES: tuple[tuple[str, str, pa.Schema], ...] = (
    (
        "rollouts/step_NNNNNN.parquet",
        "What an RL or distillation step sampled, groups that were left out included; only with `keep_rollouts`.",
        response_columns.ROLLOUTS_SCHEMA,
    ),
    (
        "eval/step_NNNNNN.parquet",
        "Of each held-out problem the greedy completion (`temperature` 0), then the sampled ones.",
        response_columns.EVALUATION_SCHEMA,
    ),
    ("probe/sequences.parquet", "The rollouts that a probe read.", response_columns.SEQUENCES_SCHEMA),
    (
        "Samples",
        "What `swerve sample` writes, and `swerve eval --model` under `samples/`.",
        response_columns.SAMPLES_SCHEMA,
    ),
    (
        "Imported responses",
        "What `swerve data import`, `swerve data select` and a rejection sampling stage write.",
        response_columns.RESPONSES_SCHEMA,
    ),
)


def pages() -> dict[str, str]:
    """Return the text of each page by its name below docs/."""
    made = {"reference/tables.md": _tables_page(), "reference/metrics.md": _metrics_page()}
    made["reference/probe-tables.md"] = "\n".join(
        ["# Tables of the probe\n", _COLUMN_WORDS, *(_columns(*table) for table in _TABLES[1:])]
    )
    for page, text in _key_pages():
        made[f"reference/{page}.md"] = text
    return made


# Keys of JSON files


def _key_pages() -> Iterator[tuple[str, str]]:
    home: dict[type, str] = {}
    for part, (page, _) in _PARTS.items():
        if isinstance(part, type):
            home.update(dict.fromkeys((part, *_reached(part)), page))
    for page, _, top, _ in _FILES:
        home[top] = page
        for record in _reached(top):
            home.setdefault(record, _PARTS.get(record.__module__, (page, ""))[0])
    for page, title, top, words in _FILES:
        yield page, f"# {title}\n\n{words} {_HEAD}\n\n{_keys(top, home)}\n{_records(home, page, top)}"
    for page, title in dict(_PARTS.values()).items():
        yield page, f"# {title}\n\nThe records that `summary.json` is made of. {_HEAD}\n\n{_records(home, page)}"


def _records(home: Mapping[type, str], page: str, top: type | None = None) -> str:
    """Return a section for each record of a page."""
    sections = [
        f"## {record.__name__}\n\n{_first_line(record)}\n\n{_keys(record, home)}"
        for record, place in home.items()
        if place == page and record is not top
    ]
    return "\n".join(sections)


def _first_line(record: type) -> str:
    return (inspect.getdoc(record) or "").split("\n", 1)[0]


def _keys(record: type, home: Mapping[type, str]) -> str:
    docs = dict(_docstrings(record))
    hints = {
        name: hint
        for name, hint in typing.get_type_hints(record).items()
        if not name.startswith(("model_", "_")) and typing.get_origin(hint) is not typing.ClassVar
    }
    rows = [
        f"| `{name}` | {_shown(hint, home, home[record])} | {docs.get(name) or _words_of(name, hint)} |"
        for name, hint in hints.items()
    ]
    return "\n".join(["| key | type | what it is |", "|---|---|---|", *rows, ""])


def _words_of(name: str, hint: Any) -> str:
    """Return what a key without words of its own is: what its one record is, or what keys of its name are."""
    records = [part for part in (hint, *_arguments(hint)) if _is_record(part)]
    return _first_line(records[0]) if len(records) == 1 else _USUAL.get(name, "")


def _docstrings(record: type) -> Iterator[tuple[str, str]]:
    """Yield each field of a record, inherited ones first, with the text under it."""
    for cls in reversed(record.__mro__):
        if cls is Record or not (is_dataclass(cls) or issubclass(cls, Record)):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        for field, text in itertools.pairwise(typing.cast(ast.ClassDef, body).body):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                yield field.target.id, _linked(" ".join(str(text.value.value).split()).replace("|", "&#124;"))


def _linked(words: str) -> str:
    """Return words whose links lead from docs/reference/ to where they led from docs/."""
    return re.sub(r"\]\((?=[\w-]+\.md)", "](../", words)


def _arguments(hint: Any) -> tuple[Any, ...]:
    return tuple(part for part in typing.get_args(hint) if part is not Ellipsis)


def _shown(hint: Any, home: Mapping[type, str], page: str) -> str:
    """Return a type as a reader of JSON would say it."""
    origin, arguments = typing.get_origin(hint), _arguments(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_shown(part, home, page) for part in arguments)
    if origin is typing.Literal:
        return ", ".join(f"`{part}`" for part in arguments)
    if origin is tuple:
        return f"list of {_shown(arguments[0], home, page)}"
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"object: {_shown(arguments[0], home, page)} to {_shown(arguments[1], home, page)}"
    if hint is Estimate:
        return "E"
    if _is_record(hint):
        file = "" if home[hint] == page else f"{home[hint]}.md"
        return f"[{hint.__name__}]({file}#{hint.__name__.lower()})"
    names = {type(None): "null", str: "string", float: "number", int: "integer", bool: "boolean", Any: "JSON"}
    return names[hint]


def _is_record(hint: Any) -> bool:
    return inspect.isclass(hint) and hint is not Estimate and (is_dataclass(hint) or issubclass(hint, Record))


def _reached(record: type) -> Iterator[type]:
    """Yield the records that the fields of a record are made of, each before those inside it."""
    for hint in typing.get_type_hints(record).values():
        todo = [hint]
        while todo:
            part = todo.pop()
            if _is_record(part):
                yield part
                yield from _reached(part)
            todo += _arguments(part)


# Columns of tables

_COLUMN_WORDS = "`label` is a dictionary-encoded string. What is not known is null.\n"


def _metrics_page() -> str:
    words = {name: field.description or "" for name, field in StepMetrics.model_fields.items()}
    rows = [f"| `{name}` | {text} |" for name, text in (words | dict(OTHER_METRICS)).items()]
    head = (
        "# metrics.jsonl\n\nOne object per step. A metric whose term the stage does not have is null, and so are those "
        "of the update in a step without one.\n"
    )
    return "\n".join([head, "| metric | what it is |", "|---|---|", *rows, ""])


def _tables_page() -> str:
    parts = [
        "# Tables of responses\n",
        "Rollouts, evaluations, samples, imported and selected responses and the sequences of a probe have a row per "
        "response and some of the same columns.\n",
        _columns("Columns", _COLUMN_WORDS.strip(), response_columns.COLUMNS),
    ]
    for name, words, schema in _RESPONSES:
        parts.append(f"## {name}\n\n{words}\n\nColumns: {_listed(schema.names)}.\n")
    parts.append(_columns(*_TABLES[0]))
    return "\n".join(parts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _columns(title: str, words: str, columns: tables.Columns) -> str:
    rows = [
        f"| `{name}` | {_type_name(kind)} | {text.replace('|', '&#124;')} |" for name, (kind, text) in columns.items()
    ]
    return "\n".join([f"## {title}\n\n{words}\n", "| column | type | what it is |", "|---|---|---|", *rows, ""])


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return "label"
    if pa.types.is_list(kind):
        return f"list of {_type_name(kind.value_type)}"
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
