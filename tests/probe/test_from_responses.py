"""Probes of responses from files by models in folders: no run directory anywhere."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.tables import CROSS_SAMPLES_SCHEMA, INTERVENTIONS_SCHEMA, PREFIX_VALUES_SCHEMA, read_table
from swerve.cli.runs import resolve_model
from swerve.config import AdditionTask, TinyModel
from swerve.errors import ConfigError
from swerve.models.model_folder import load_tokenizer
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.from_responses import ProbeRequest, plan_responses, probe_responses, request_probe
from swerve.probe.request import ComparedModels, ProbeSettings
from swerve.probe.rollouts.imported import import_responses
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes.loader import load_settings
from swerve.rewards import grade

FAMILY = load_family(AdditionTask(digits=2, num_train=5, num_heldout=40, mistake_rate=1.0, slip_rate=0.0))
TOKENIZER = build_word_tokenizer(FAMILY.words)
SMALL = ["runtime.device=cpu", "runtime.max_rows=32", "probe.top_k=2", "probe.min_rollouts=2"]
CAUSAL = [
    "probe.causal.max_rollouts=2",
    "probe.causal.num_continuations=2",
    "probe.pivots.max_rollouts=1",
    "probe.pivots.num_continuations=2",
    "probe.pivots.gap=0.5",
    "probe.cross_sampling.max_problems=2",
    "probe.cross_sampling.shares=[0.1]",
    "probe.cross_sampling.selectors=[js]",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models that differ by random changes of their weights."""
    made = {}
    for number, name in enumerate(("base", "dpo", "rl-1", "rl-2")):
        model = build_tiny_model(TinyModel(hidden_size=16, intermediate_size=24), TOKENIZER, seed=0).eval()
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
        made[name] = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(made[name])
        TOKENIZER.save_pretrained(made[name])
    return made


def records(num: int = 6, **more: Any) -> list[dict[str, Any]]:
    """Responses of the family's own traces with a wrong answer, but for every third, which is right."""
    right = load_family(AdditionTask(digits=2, num_train=5, num_heldout=40, mistake_rate=0.0, slip_rate=0.0))
    found = []
    for problem in FAMILY.problems("heldout", seed=1):
        text = FAMILY.trace(problem, random.Random(0))
        if len(found) < num and not grade(problem, text).is_right:
            text = right.trace(problem, random.Random(0)) if len(found) % 3 == 2 else text
            row = {"id": problem.id, "problem": problem.question, "gold": problem.answer, "response": text}
            found.append({**row, **more})
    return found


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def request(
    models: Mapping[str, Path], responses: Path, out: Path, overrides: Sequence[str] = (), **options: Any
) -> ProbeRequest:
    named = [resolve_model(f"{name}={models[name]}") for name in ("dpo", "rl-1", "rl-2")]
    compared = ComparedModels(reference=named[0], baseline=None, checkpoints=tuple(named[1:]))
    settings = load_settings(ProbeSettings, [*SMALL, *overrides])
    return request_probe(settings, compared, run=None, responses=responses, out=out, **options)


def probe(*args: Any, **options: Any) -> ProbeSummary:
    summary = probe_responses(request(*args, **options), progress=SilentProgress())
    assert summary is not None
    return summary


def tables(out: Path) -> list[list[dict[str, Any]]]:
    schemas = {
        "interventions": INTERVENTIONS_SCHEMA,
        "prefix_values": PREFIX_VALUES_SCHEMA,
        "cross_samples": CROSS_SAMPLES_SCHEMA,
    }
    return [read_table(out / "probe" / f"{name}.parquet", one).to_pylist() for name, one in schemas.items()]


def test_every_causal_test_runs_without_a_run(models: Mapping[str, Path], tmp_path: Path) -> None:
    by_task = probe(models, write(tmp_path / "r.jsonl", records()), tmp_path / "task", ["task=addition", *CAUSAL])
    own = write(tmp_path / "own.jsonl", records(family="addition"))  # a file may say it itself
    by_problem = probe(models, own, tmp_path / "own", CAUSAL)
    assert (by_task.population, by_task.num_rollouts) == ("imported_wrong", 4)
    assert by_task.causal is not None
    assert by_task.causal.num_rollouts == 2
    assert by_task.pivots is not None
    assert by_task.cross_sampling is not None
    assert by_task.prediction
    swaps, values, samples = tables(tmp_path / "task")
    assert {row["num_continuations"] for row in swaps} == {2}
    assert values
    # Of six problems two are left to the pilot and two of the others are measured: right and wrong ones alike.
    assert {row["problem_id"] for row in samples} == {row["id"] for row in records()[:2]}
    assert tables(tmp_path / "own") == [swaps, values, samples]
    assert by_problem.causal == by_task.causal
    assert by_task.recovery is not None  # the task's step checker marks the mistakes
    longest = max(len(TOKENIZER(row["response"])["input_ids"]) - 1 for row in records())
    assert plan_responses(request(models, own, tmp_path / "x")).max_new_tokens == longest


def test_what_the_grader_of_the_task_says_counts(models: Mapping[str, Path], tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{**row, "correct": False} for row in records()])
    as_recorded = plan_responses(request(models, path, tmp_path / "x"))
    assert {one.population for one in as_recorded.sequences} == {"imported_wrong"}
    assert as_recorded.notes == (
        f"6 of 6 responses in {path} have no gold answer or no grader, so there are no swaps: name the grader with "
        "--task KIND",
    )
    regraded = plan_responses(request(models, path, tmp_path / "x", ["task=addition"]))
    assert [one.population for one in regraded.sequences] == ["imported_wrong"] * 4 + ["imported_right"] * 2
    assert regraded.notes == (f"2 of 6 verdicts recorded in {path} differ from the grader's, which are used",)
    responses = regraded.compared.responses
    assert responses is not None
    assert (responses.task, responses.num_recorded, responses.num_regraded) == ("addition", 6, 2)


@pytest.mark.parametrize(
    ("change", "overrides", "message"),
    [
        (
            {},
            CAUSAL,
            "probe.cross_sampling.max_problems: 4 of 4 responses in .* have no gold answer or no grader; name",
        ),
        ({}, CAUSAL[:5], "probe.pivots.max_rollouts: 4 of 4 responses in .*; name the grader with --task KIND"),
        (
            {"gold": None},
            ["task=addition"],
            "6 of 6 responses have no gold answer, so addition cannot grade them; give",
        ),
        ({}, ["task={kind: table, train: [x.jsonl]}"], "the task table has no grader of its own, and 6 of 6 responses"),
        ({"id": "p", "problem": "0 1 + 0 2 ="}, ["task=addition", *CAUSAL], "needs two problems and more, .* has one"),
    ],
)
def test_what_cannot_be_tested_is_said_before_a_model_runs(
    models: Mapping[str, Path],
    tmp_path: Path,
    change: Mapping[str, Any],
    overrides: Sequence[str],
    message: str,
) -> None:
    rows = [{"correct": index % 3 == 2, **row, **change} for index, row in enumerate(records())]
    with pytest.raises(ConfigError, match=message):
        plan_responses(request(models, write(tmp_path / "r.jsonl", rows), tmp_path / "x", overrides))


def test_graders_come_with_the_problems(models: Mapping[str, Path], tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{"id": row["id"], "response": row["response"]} for row in records()])
    known = [{"id": row["id"], "problem": row["problem"], "answer": row["gold"]} for row in records()]
    own = {"grader": "math", "grading": {"extraction": ["auto"]}}
    problems = write(tmp_path / "p.jsonl", [{**row, **own} for row in known])
    found = plan_responses(request(models, path, tmp_path / "x", ["task=addition"], problems=problems))
    assert {one.problem.grader for one in found.sequences} == {"math"}  # not the task's
    assert found.has_verifier
    bad = write(tmp_path / "bad.jsonl", [{**row, **own, "grading": {"extract": "auto"}} for row in known])
    with pytest.raises(ConfigError, match="the grader math has no policy 'extract'; did you mean 'extraction'"):
        request(models, path, tmp_path / "x", problems=bad)


def test_real_responses_are_regraded(shared_data: Callable[[str], Path]) -> None:
    """The recorded verdicts come from a regular expression; `correct` of the file is checked by hand."""
    from swerve.formats.records import read_records

    path = shared_data("rl_probe") / "responses.jsonl.gz"
    tokenizer = load_tokenizer(shared_data("tiny_models") / "stories260K" / "hf")
    task = load_settings(ProbeSettings, ["task=math"]).task
    fields = {"correct": "recorded_correct"}
    found = import_responses(path, tokenizer=tokenizer, fields=fields, task=task)
    by_hand = [record.values["correct"] for record in read_records(path)]
    assert [one.correct for one in found.sequences] == by_hand
    assert found.provenance["num_regraded"] == sum(
        record.values["recorded_correct"] not in (None, truth)
        for record, truth in zip(read_records(path), by_hand, strict=True)
    )
    assert {one.problem.grading["extraction"][0] for one in found.sequences} == {"auto"}
