"""A synthetic run and its report, made once for all tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.files import read_json, sha256_file, write_sealed
from swerve.artifacts.metrics import StepMetrics, append_metrics
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import (
    Detectable,
    Study,
    StudyCurve,
    StudyDesign,
    StudyDifference,
    StudyMean,
    StudyRun,
    StudyTrial,
    StudyVariant,
    StudyVerdict,
)
from swerve.artifacts.tables import read_table, write_table
from swerve.config.recipe import ReportConfig
from swerve.estimates import Estimate
from swerve.report.page import render
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.rollouts import rollout_payload
from swerve.report.rows import Rows
from swerve.report.run_page import all_findings, run_page
from swerve.report.topics.topic import Topic


def _beside(name: str) -> ModuleType:
    """Load a module beside this file (tests are not a package)."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"swerve_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic(filled: Any) -> Any:
    """The module `synthetic_run.py`, whose runs are made of complete records."""
    module = _beside("synthetic_run")
    return SimpleNamespace(
        **{name: value for name, value in vars(module).items() if name.isupper()},
        write_synthetic_run=partial(module.write_synthetic_run, filled=filled),
    )


@pytest.fixture(scope="session")
def entries(synthetic: Any) -> dict[str, Any]:
    """Every entry of a summary beside those of the synthetic tables; treat it as read-only."""
    found: dict[str, Any] = _beside("synthetic_entries").probe_entries(synthetic.REFERENCE, synthetic.CHECKPOINTS)
    return found


@pytest.fixture(scope="session")
def run(synthetic: Any, entries: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with evaluations and a probe of twelve rollouts, the last one hostile; treat it as read-only."""
    path = tmp_path_factory.mktemp("runs") / "demo-$x$<b>"
    written: RunDirectory = synthetic.write_synthetic_run(path, entries=entries)
    return written


@pytest.fixture(scope="session")
def inputs(run: RunDirectory) -> ReportInputs:
    """What the report reads of `run`."""
    return read_inputs(run)


@pytest.fixture(scope="session")
def index(inputs: ReportInputs) -> Any:
    """What the scripts of the page of `run` know of its rollouts."""
    payload = rollout_payload(inputs)
    assert payload is not None
    return payload.index


@pytest.fixture(scope="session")
def answers_inputs(answers_only: RunDirectory) -> ReportInputs:
    """What the report reads of `answers_only`."""
    return read_inputs(answers_only)


@pytest.fixture(scope="session")
def report(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `run`."""
    return _page(inputs, tmp_path_factory.mktemp("page") / "index.html")


def _page(inputs: ReportInputs, path: Path) -> Path:
    path.write_text(render(run_page(inputs, options=ReportConfig())), encoding="utf-8")
    return path


def evaluation(checkpoint: str, step: int, mean: float, low: float, high: float) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "step": step,
        "greedy": {
            "num_problems": 400,
            "accuracy": {"mean": mean, "low": low, "high": high},
            "trace_right": {"mean": 0.96, "low": 0.93, "high": 0.975},
        },
        "sampled": {},
    }


EVALUATIONS = (evaluation("dpo-8", 508, 0.465, 0.417, 0.514), evaluation("rl-80", 588, 0.9925, 0.978, 0.997))
SUMMARY: dict[str, Any] = {
    "confidence": 0.95,
    "reference": "dpo-8",
    "final": "rl-80",
    "divergence": "js",
    "spike_method": "zscore",
    "population": "reference_wrong_final_right",
    "selection": "greedy",
    "num_reference_wrong": 215,
    "num_reference_wrong_final_right": 208,
    "num_rollouts": 200,
    "reliable": True,
    "spikes": [
        {
            "checkpoint": "rl-80",
            "divergence": "js",
            "num_rollouts": 200,
            "top_on_wrong": {"mean": 0.92, "low": 0.87, "high": 0.95},
            "top_on_first_wrong": {"mean": 0.9, "low": 0.85, "high": 0.94},
            "chance_wrong": 0.03,
            "chance_first_wrong": 0.026,
        }
    ],
    "claims": [
        {
            "figure": "top",
            "of": of,
            "estimate": {"mean": mean, "low": low, "high": high},
            "nulls": [
                {"null": "chance", "value": 0.03, "difference": {"mean": mean - 0.03, "low": 0.8, "high": 0.95}},
                {"null": "entropy", "value": 0.91, "difference": {"mean": mean - 0.91, "low": -0.05, "high": 0.05}},
            ],
        }
        for of, mean, low, high in (("first_wrong", 0.9, 0.85, 0.94), ("wrong", 0.92, 0.87, 0.95))
    ],
    "causal": {
        "selections": [
            {"selection": "spike", "effect": {"mean": 0.874, "low": 0.825, "high": 0.916}},
            {"selection": "random", "effect": {"mean": 0.011, "low": -0.004, "high": 0.029}},
        ]
    },
}


@pytest.fixture(scope="session")
def inputs_of(filled: Any) -> Callable[..., ReportInputs]:
    """Make a run of literal keys: of two evaluations, a probe whose other keys are those of `SUMMARY`, and metrics."""

    def make(
        evaluations: Sequence[dict[str, Any]] = EVALUATIONS,
        summary: dict[str, Any] | None = SUMMARY,
        metrics: Sequence[dict[str, Any]] = (),
    ) -> ReportInputs:
        return ReportInputs(
            run_name="run",
            provenance={},
            config_text=None,
            metrics=tuple(map(StepMetrics.model_validate, metrics)),
            evaluations=tuple(Evaluation.model_validate(filled(Evaluation, one)) for one in evaluations),
            summary=None
            if summary is None
            else ProbeSummary.model_validate(filled(ProbeSummary, {**SUMMARY, **summary})),
            tables=None,
            final_completions={},
        )

    return make


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Topic, ReportInputs], dict[str, Rows]]:
    """Return what a topic measured of a run, by id."""
    return lambda topic, inputs: {rows.id: rows.kept for rows in topic.rows(inputs) if rows.measured}


@pytest.fixture(scope="session")
def said(inputs_of: Any) -> Callable[..., tuple[str, ...]]:
    """Return all sentences of a run of literal keys."""

    def say(*args: Any, **options: Any) -> tuple[str, ...]:
        return tuple(one for group in all_findings(inputs_of(*args, **options)).values() for one in group)

    return say


@pytest.fixture(scope="session")
def told(inputs_of: Any) -> Callable[[dict[str, Any]], dict[str, tuple[str, ...]]]:
    """Return the sentences of a probe, by heading, with an ordinary minus sign."""

    def tell(summary: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        found = all_findings(inputs_of(summary=summary))
        return {name: tuple(one.replace("\N{MINUS SIGN}", "-") for one in group) for name, group in found.items()}

    return tell


ODD_KINDS = (
    "10 people", "2 people", "<b>3 people</b>", "level $x_1$", "\u202eright to left",
    "naïve \N{CJK UNIFIED IDEOGRAPH-6570}",
    "a_kind_with_a_name_of_many_words_and_no_space_at_all_that_goes_on_and_on_for_a_whole_line_of_the_page",
    "gsm8k: 3 steps", "'quoted' \"twice\"", "{{ braces }}", "50% off", "tab\tand [brackets]",
)  # fmt: skip


def _answers_only_evaluation(entry: dict[str, Any], place: int) -> dict[str, Any]:
    share = {"mean": 0.5, "low": 0.4, "high": 0.6}
    passed = {"mean": 0.6 + 0.03 * place, "low": 0.6 + 0.03 * place - 0.02, "high": 0.6 + 0.03 * place + 0.02}
    eval_settings = {"confidence": 0.95, "samples_per_problem": 4, "temperature": 1.0}
    return {
        **entry,
        "settings": {"eval": eval_settings},
        "greedy": {
            **entry["greedy"],
            "trace_right": None,
            "statuses": {"graded": 400, "unparsed": 0, "timeout": 0, "error": 0},
            "num_unanswered": 0,
            "by_kind": {kind: {"num_problems": 33, "accuracy": share} for kind in ODD_KINDS},
            "by_part": {part: {"num_problems": 200, "accuracy": share} for part in ("gsm8k", "k_and_k 2")},
            "in_format": {"mean": 0.0, "low": 0.0, "high": 0.01},
            "empty_thinking": None,
            "repeated_4grams": {"mean": 0.0, "low": 0.0, "high": 0.01},
            "reflections": {"mean": 1.5 * place, "low": 1.0 * place, "high": 2.0 * place},
        },
        "sampled": {
            **entry["sampled"],
            "statuses": {"graded": 1570 - place, "unparsed": 20, "timeout": 10 + place, "error": 0},
            "num_unanswered": 20,
            "distinct_right": {"mean": 1.0 + place, "low": 0.5 + place, "high": 1.5 + place},
            "curve": [
                {"k": k, "num_problems": 400, "pass_at_k": passed if k == 4 else share, "pass_hat_k": share,
                 "majority_at_k": share if k == 4 else None}
                for k in (1, 2, 4)
            ],
        },
    }  # fmt: skip


@pytest.fixture(scope="session")
def answers_only(synthetic: Any, filled: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of a mixture whose steps nobody checks, with failures, samples, behaviours and a curriculum."""
    run: RunDirectory = synthetic.write_synthetic_run(
        tmp_path_factory.mktemp("runs") / "answers", num_rollouts=3, hostile=False
    )
    run.metrics_path.unlink()
    for step in range(1, 4):
        append_metrics(run.metrics_path, {"step": step, "stage": "sft", "stage_step": step, "pool_share": 1.0})
    for step in range(4, 9):
        figures = {
            "reward": 0.1 * step,
            "neg_logprob": 0.2,
            "num_completions": 32,
            "num_unanswered": 8 if step == 5 else 0,
            "num_timeouts": 0,
            "num_errors": 0,
            "error_details": {"time limit of 5 s <i>": 2, f"step {step}": 1},
            "format_rate": 0.0,
            "dummy_thinking_share": None,
            "repeated_4gram_share": 0.0,
            "truncated_share": 0.25,
            "reflections_per_1000_words": 0.0,
            "mean_difficulty": 2.0 if step < 6 else 3.0,
            "pool_share": step / 8,
        }
        append_metrics(run.metrics_path, {"step": step, "stage": "rl", "stage_step": step - 3, **figures})
    for place, path in enumerate(sorted((run.path / "eval").glob("*.json"))):
        write_sealed(path, filled(Evaluation, _answers_only_evaluation(read_json(path), place)))
        answers = ["a b a", "b a b", "a b a", None] if place else ["a b a", "x", None, None]
        rows = [
            {**dict.fromkeys(EVALUATION_SCHEMA.names), "problem_id": f"p{problem}", "sample": sample,
             "temperature": 1.0,
             "completion_ids": [1], "text": "", "extracted": answer, "status": "graded",
             "answered": answer is not None, "correct": answer is not None and answer != "x"}
            for problem in range(4)
            for sample, answer in enumerate(answers)
        ]  # fmt: skip
        table = run.path / "eval" / f"{path.stem}.parquet"
        greedy = read_table(table, EVALUATION_SCHEMA).to_pylist()
        write_table(table, [*greedy, *rows], EVALUATION_SCHEMA)
    _forget_wrong_steps(run)
    return run


def _forget_wrong_steps(run: RunDirectory) -> None:
    summary = read_json(run.probe_path / "summary.json")
    unknown = {"num_rollouts": 0, **dict.fromkeys(("top_on_wrong", "top_on_first_wrong", "chance_wrong"))}
    spikes = [{**entry, **unknown, "chance_first_wrong": None} for entry in summary["spikes"]]
    rates = {"per_1000_tokens": {"mean": 54.4, "low": 42.7, "high": 66.1}, "num_spikes": 20, "num_tokens": 400}
    null = {"num_tokens": 400, "false_discoveries": {"js": {"zscore": rates}}}
    path = run.probe_path / "sequences.parquet"
    rows = read_table(path, SEQUENCES_SCHEMA).to_pylist()
    cleared = [{**row, "first_wrong": None, "wrong_positions": [], "wrong_expected": []} for row in rows]
    write_table(path, cleared, SEQUENCES_SCHEMA)
    changed = {"spikes": spikes, "recovery": None, "null": null}
    tables = {**summary["tables"], path.name: sha256_file(path)}
    write_sealed(run.probe_path / "summary.json", {**summary, **changed, "tables": tables})


@pytest.fixture(scope="session")
def answers_only_report(answers_inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `answers_only`."""
    return _page(answers_inputs, tmp_path_factory.mktemp("page") / "index.html")


@pytest.fixture
def study() -> Study:
    """A study of two variants, from literal values; one of its runs failed."""
    difference = StudyDifference(
        measure="accuracy", variant="kl", num_seeds=3, mean=0.1, over_seeds=Estimate(mean=0.1, low=-0.02, high=0.22),
        p_seeds=0.06, p_seeds_adjusted=0.12, effect_size=1.5, num_problems=400,
        over_problems=Estimate(mean=0.1, low=0.07, high=0.13), p_problems=1e-5, p_problems_adjusted=2e-5,
    )  # fmt: skip
    curves = [
        StudyCurve(metric="accuracy", variant="kl", steps=(1, 2), mean=(0.4, 0.6), low=(0.3, 0.5), high=(0.5, 0.7)),
        StudyCurve(metric="kl", variant="kl", steps=(1,), mean=(0.4,), low=(0.3,), high=(0.5,)),
    ]
    return Study(
        swerve_version="0", name="a <study>", recipe="r", baseline="none", seeds=(0, 1, 2), confidence=0.95,
        variants=(
            StudyVariant(name="none", changes={}, num_runs=3, num_collapsed=0, first_collapse=None),
            StudyVariant(name="kl", changes={"a.b": None}, num_runs=2, num_collapsed=1, first_collapse=7),
        ),
        runs=(
            StudyRun(variant="none", seed=0, path="runs/none/seed-0", state="trained", checkpoint="rl-4",
                     task="digits", model="tiny model",
                     values={"accuracy": 0.5}),
            StudyRun(variant="kl", seed=2, path="runs/kl/seed-2", state="failed", reason="no <room>"),
            StudyRun(variant="kl", seed=0, path="runs/kl/seed-0", state="trained", checkpoint="rl-4",
                     task="digits", model="tiny model",
                     values={"accuracy": 0.6}),
        ),
        means=(
            StudyMean(measure="accuracy", variant="none", num_seeds=3, mean=0.5,
                      over_seeds=Estimate(mean=0.5, low=0.4, high=0.6)),
            StudyMean(measure="accuracy", variant="kl", num_seeds=3, mean=0.6, over_seeds=None),
            StudyMean(measure="length", variant="kl", num_seeds=1, mean=57.25, over_seeds=None),
        ),
        differences=(difference,),
        kinds=(
            StudyMean(measure="accuracy", kind="easy", variant="start", num_seeds=1, mean=0.25, over_seeds=None),
            StudyMean(measure="accuracy", kind="easy", variant="kl", num_seeds=2, mean=0.5,
                      over_seeds=Estimate(mean=0.5, low=0.4, high=0.6)),
            StudyMean(measure="accuracy", kind="hard", variant="kl", num_seeds=1, mean=0.125, over_seeds=None),
        ),
        curves=tuple(curves),
        detectable=(
            Detectable(measure="accuracy", unit="seeds", num=3, sd=0.03, is_assumed=True, difference=0.098),
            Detectable(measure="accuracy", unit="problems", num=1, sd=0.4, is_assumed=False, difference=None),
        ),
    )  # fmt: skip


@pytest.fixture
def judged(study) -> Study:
    """The study with a design, settings that were tried and a verdict."""
    design = StudyDesign(
        measure="accuracy",
        margin=0.05,
        min_gain=0.15,
        ceiling=0.97,
        tuning_seeds=(100, 101),
        num_by_seed=(2, 1),
        num_problems=200,
        widening=1.75,
    )
    trials = (
        StudyTrial(
            variant="none",
            number=2,
            changes={"lr": 1e-4},
            seeds=(100, 101),
            values={"accuracy": 0.5, "entropy": 0.25},
            is_chosen=True,
        ),
        StudyTrial(variant="none", number=3, changes={"lr": 1e-3}, seeds=(100,), values={}, is_chosen=False),
    )
    verdict = StudyVerdict(
        variant="kl",
        verdict="not shown",
        words="not shown to differ",
        p=0.3,
        over_seeds=Estimate(mean=0.1, low=-0.11, high=0.31),
    )
    return study.model_copy(update={"design": design, "trials": trials, "verdicts": (verdict,),
                                    "gain": Estimate(mean=0.3, low=0.2, high=0.4)})  # fmt: skip
