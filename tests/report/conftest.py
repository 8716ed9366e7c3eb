"""A synthetic run and its report, made once for all tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from swerve.artifacts.files import read_json, write_json
from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import SAMPLES_SCHEMA, SEQUENCES_SCHEMA, read_table, write_table
from swerve.config import ReportConfig
from swerve.report import build_report


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
def synthetic() -> ModuleType:
    """The module `synthetic_run.py`."""
    return _beside("synthetic_run")


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
def report(run: RunDirectory) -> Path:
    """The page of `run`."""
    return build_report(run, options=ReportConfig())


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
        "trace_right": None,
        "failures": 30 + place,
        "settings": {"eval": eval_settings},
        "statuses": {"graded": 1970 - place, "unparsed": 20, "timeout": 10 + place, "error": 0},
        "by_num_samples": [
            {"k": k, "num_problems": 400, "pass_at_k": passed if k == 4 else share, "pass_hat_k": share,
             "majority_at_k": share if k == 4 else None}
            for k in (1, 2, 4)
        ],
        "responses": {
            "format_rate": 0.0, "dummy_thinking_share": None, "repeated_4gram_share": 0.0,
            "reflections_per_1000_words": 1.5 * place,
        },
        "by_kind": {kind: {"num_problems": 33, "accuracy": share} for kind in ODD_KINDS},
        "by_part": {part: {"num_problems": 200, "accuracy": share} for part in ("gsm8k", "k_and_k 2")},
    }  # fmt: skip


@pytest.fixture(scope="session")
def answers_only(synthetic: Any, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
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
            "num_unparsed": 8 if step == 5 else 0,
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
        write_json(path, _answers_only_evaluation(read_json(path), place))
        answers = ["a b a", "b a b", "a b a", None] if place else ["a b a", "x", None, None]
        rows = [
            {"problem_id": f"p{problem}", "sample": sample, "completion_ids": [1], "text": "", "extracted": answer,
             "status": "graded", "correct": answer is not None and answer != "x"}
            for problem in range(4)
            for sample, answer in enumerate(answers)
        ]  # fmt: skip
        write_table(run.path / "eval" / "samples" / f"{path.stem}.parquet", rows, SAMPLES_SCHEMA)
    _forget_wrong_steps(run)
    return run


def _forget_wrong_steps(run: RunDirectory) -> None:
    summary = read_json(run.probe_path / "summary.json")
    unknown = {"num_rollouts": 0, **dict.fromkeys(("top_on_wrong", "top_on_first_wrong", "chance_wrong"))}
    spikes = [{**entry, **unknown, "chance_first_wrong": None} for entry in summary["spikes"]]
    rates = {"per_1000_tokens": {"mean": 54.4, "low": 42.7, "high": 66.1}, "num_spikes": 20, "num_tokens": 400}
    null = {"num_tokens": 400, "false_discoveries": {"js": {"zscore": rates}}}
    write_json(run.probe_path / "summary.json", {**summary, "spikes": spikes, "recovery": None, "null": null})
    path = run.probe_path / "sequences.parquet"
    rows = read_table(path, SEQUENCES_SCHEMA).to_pylist()
    cleared = [{**row, "first_wrong": None, "wrong_positions": [], "wrong_expected": []} for row in rows]
    write_table(path, cleared, SEQUENCES_SCHEMA)


@pytest.fixture(scope="session")
def answers_only_report(answers_only: RunDirectory) -> Path:
    """The page of `answers_only`."""
    return build_report(answers_only, options=ReportConfig())
