"""Probes of responses from files by models in folders: no run directory anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import SampledModel, SamplesInfo, SamplesTokenizer, write_samples
from swerve.artifacts.tables import (
    CROSS_SAMPLES_SCHEMA,
    INTERVENTIONS_SCHEMA,
    PREFIX_VALUES_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    read_table,
)
from swerve.config.models import TinyModel
from swerve.errors import ConfigError
from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint
from swerve.models.sources import CheckpointSource
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.from_files import plan_files
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe, ProbeSettings
from swerve.probe.rollouts.imported import import_responses
from swerve.probe.steps import probe_in_steps
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.recipes.loader import load_settings
from swerve.report.read import read_inputs
from swerve.report.rollouts import rollout_payload
from swerve.rewards import grade, grade_all
from swerve.statistics import share
from swerve.types import Completion, Prompt, Reward, Rollout
from tests.json_lines import write_json_lines

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
    write_json_lines(path, rows)
    return path


def plan(
    models: Mapping[str, Path], responses: Path | None, out: Path, overrides: Sequence[str] = (), **keys: Any
) -> ProbePlan:
    named = {name: str(models[name]) for name in ("dpo", "rl-1", "rl-2")}
    data = {"models": named, "reference": "dpo", "out": str(out), **keys}
    if responses is not None:
        data["responses"] = str(responses)
    return plan_files(load_settings(ProbeRecipe, [*SMALL, *overrides], data=data))


def probe(*args: Any, **options: Any) -> ProbeSummary:
    summary = probe_in_steps(plan(*args, **options), progress=SilentProgress())
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
    assert [one.policy for one in by_task.pivots] == ["reference", "checkpoint"]
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
    assert plan(models, own, tmp_path / "x").max_new_tokens == longest


def test_what_the_grader_of_the_task_says_counts(models: Mapping[str, Path], tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{**row, "correct": False} for row in records()])
    as_recorded = plan(models, path, tmp_path / "x")
    assert {one.population for one in as_recorded.sequences} == {"imported_wrong"}
    assert as_recorded.notes == (
        f"6 of 6 responses in {path} have a gold answer and no grader, so there are no swaps: name the grader with "
        "--task KIND",
    )
    regraded = plan(models, path, tmp_path / "x", ["task=addition"])
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
            "probe.cross_sampling.max_problems: 4 of 4 responses in .* have a gold answer and no grader; name",
        ),
        ({}, CAUSAL[:5], "probe.pivots.max_rollouts: 4 of 4 responses in .*; name the grader with --task KIND"),
        (
            {"gold": None, "correct": None},
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
        plan(models, write(tmp_path / "r.jsonl", rows), tmp_path / "x", overrides)


def test_graders_come_with_the_problems(models: Mapping[str, Path], tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [{"id": row["id"], "response": row["response"]} for row in records()])
    known = [{"id": row["id"], "problem": row["problem"], "answer": row["gold"]} for row in records()]
    own = {"grader": "math", "grading": {"extraction": ["auto"]}}
    problems = write(tmp_path / "p.jsonl", [{**row, **own} for row in known])
    found = plan(models, path, tmp_path / "x", ["task=addition"], problems=str(problems))
    assert {one.problem.grader for one in found.sequences} == {"math"}  # not the task's
    assert found.has_verifier
    bad = write(tmp_path / "bad.jsonl", [{**row, **own, "grading": {"extract": "auto"}} for row in known])
    with pytest.raises(ConfigError, match="the grader math has no policy 'extract'; did you mean 'extraction'"):
        plan(models, path, tmp_path / "x", problems=str(bad))


@pytest.mark.slow
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


def graded(num: int, marks: str) -> list[dict[str, Any]]:
    """Samples of the first problems, one for each mark: `+` right, `-` wrong; recorded the wrong way round."""
    families = {sign: load_family(AdditionTask(digits=2, num_heldout=40, mistake_rate=rate)) for sign, rate in RATES}
    found = []
    for problem in FAMILY.problems("heldout", seed=1)[:num]:
        for index, mark in enumerate(marks):
            text = next(
                text
                for seed in range(index * 100, 10_000)
                if grade(problem, text := families[mark].trace(problem, random.Random(seed))).is_right == (mark == "+")
            )
            row = {"id": problem.id, "problem": problem.question, "gold": problem.answer, "response": text}
            found.append({**row, "correct": mark == "-", "level": 3 + len(found) % 2})
    return found


RATES = (("+", 0.0), ("-", 1.0))


@pytest.mark.slow
def test_rollouts_chosen_from_samples_of_two_models(models: Mapping[str, Path], tmp_path: Path) -> None:
    reference = write(tmp_path / "dpo.jsonl", graded(4, "-") + graded(6, "+")[4:])
    final = write(tmp_path / "rl.jsonl", graded(3, "+") + graded(6, "-")[3:])
    files = {"reference": str(reference), "final": str(final)}
    asked = plan(models, None, tmp_path / "out", ["task=addition", *CAUSAL], samples=files)

    class Notes(SilentProgress):
        lines: ClassVar[list[str]] = []

        def note(self, message: str) -> None:
            self.lines.append(message)

    summary = probe_in_steps(asked, progress=Notes())
    assert summary is not None
    table = "of 6 problems 0 are right with both, 2 with dpo alone, 3 with rl-2 alone, 1 with neither"
    assert Notes.lines[0].startswith(table + " (McNemar p ")
    assert summary.mcnemar is not None
    assert (summary.mcnemar.num_first_only, summary.mcnemar.num_second_only, summary.mcnemar.num) == (2, 3, 6)
    assert (summary.selection, summary.population, summary.num_rollouts) == ("single", "reference_wrong_final_right", 3)
    assert (summary.num_problems, summary.num_reference_wrong, summary.num_reference_wrong_final_right) == (6, 4, 3)
    selected = summary.selected
    assert selected is not None
    assert (selected.both_right, selected.only_reference_right, selected.both_wrong) == (0, 2, 1)
    assert (selected.reference.num_recorded, selected.reference.num_regraded) == (6, 6)  # graded anew
    assert (selected.reference_accuracy, selected.final_accuracy) == (share(2, 6), share(3, 6))
    assert {one.population: (one.source, one.num_rollouts) for one in summary.populations} == {
        "reference_wrong_final_right": ("dpo", 3),
        "reference_wrong_final_wrong": ("dpo", 1),
        "reference_right": ("dpo", 2),
        "checkpoint_right": ("rl-2", 3),
        "checkpoint_wrong": ("rl-2", 3),
    }
    assert summary.causal is not None
    samples = tables(tmp_path / "out")[2]  # of all problems, not of those that were chosen
    assert {row["problem_id"] for row in samples} == {row["id"] for row in graded(2, "-")}
    assert any("chosen by the same samples that are read here" in note for note in summary.notes)

    from swerve.report.run_page import write_page

    page = write_page(RunDirectory(tmp_path / "out"), options=asked.recipe.report).read_text()
    assert "Who gets which problems right?" in page
    assert "dpo wrong, rl-2 right" in page
    assert "Accuracy was not measured" not in page
    assert "On 6 problems, accuracy of the samples was 33% (4 to 78) at dpo and 50% (12 to 88) at" in page
    assert ", a difference of +17 (" in page
    assert ") points, so no change is shown." in page


def test_selection_on_one_half_of_the_samples(models: Mapping[str, Path], tmp_path: Path) -> None:
    reference = write(tmp_path / "dpo.jsonl", graded(3, "--+-"))
    final = write(tmp_path / "rl.jsonl", graded(3, "++-"))
    files = {"reference": str(reference), "final": str(final)}
    changes = ["task=addition", "seed=7"]
    asked = plan(models, None, tmp_path / "out", changes, samples=files, where=["level=3,4"])
    texts = [row["response"] for row in graded(3, "--+-")]
    assert [one.text for one in asked.headline] == texts[3::4]  # the wrong one of the half that did not decide
    assert (asked.compared.selection, asked.compared.num_ties) == ("split", 0)
    assert asked.compared.tie_seed is not None
    ungraded = write(tmp_path / "none.jsonl", [{**row, "gold": None} for row in graded(3, "-")])
    with pytest.raises(ConfigError, match="3 of 3 samples in .*none.jsonl have no gold answer or no grader"):
        plan(models, None, tmp_path / "x", samples={"reference": str(ungraded), "final": str(ungraded)})


def test_samples_that_could_not_be_graded_decide_nothing_and_are_counted(
    models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each problem the first sample reaches a limit: what the second says is what counts."""
    paths = [write(tmp_path / f"{name}.jsonl", graded(2, marks)) for name, marks in (("dpo", "+-"), ("rl", "-+"))]
    lost = Reward(value=None, status="timeout")

    def limited(pairs: Any, **options: Any) -> list[Reward]:
        return [lost if number % 2 == 0 else reward for number, reward in enumerate(grade_all(pairs, **options))]

    monkeypatch.setattr("swerve.probe.rollouts.imported.grade_all", limited)
    files = dict(zip(("reference", "final"), map(str, paths), strict=True))
    asked = plan(models, None, tmp_path / "out", ["task=addition"], samples=files)
    selected = asked.compared.selected
    assert selected is not None
    assert (selected.only_final_right, selected.both_wrong, asked.compared.selection) == (2, 0, "single")
    assert (selected.reference_accuracy, selected.final_accuracy) == (share(0, 2), share(2, 2))
    for path in paths:
        said = f"2 of 4 samples in {path} could not be graded: they decide nothing and count in no accuracy"
        assert said in asked.notes


def test_files_of_swerve_sample_need_no_task(models: Mapping[str, Path], tmp_path: Path) -> None:
    paths = {name: str(sample_file(tmp_path / f"{name}.parquet", models[name], mark)) for name, mark in MARKS}
    chosen = plan(models, None, tmp_path / "x", samples={"reference": paths["dpo"], "final": paths["rl-2"]})
    assert (len(chosen.headline), chosen.has_verifier, chosen.notes) == (3, True, ())
    assert chosen.headline[0].completion_ids[-1] == TOKENIZER.eos_token_id  # the ids as they were sampled
    other = plan(models, None, tmp_path / "x", samples={"reference": paths["dpo"], "final": paths["rl-1"]})
    assert other.notes == (f"{paths['rl-1']} was sampled from {models['rl-1']}, whose files are not those of rl-2",)


MARKS = (("dpo", "-"), ("rl-1", "+"), ("rl-2", "+"))


def sample_file(path: Path, folder: Path, mark: str) -> Path:
    """Write samples as `swerve sample` does."""
    known = {one.id: one for one in FAMILY.problems("heldout", seed=1)}
    samples = []
    for row in graded(3, mark):
        problem = known[row["id"]]
        ids = (*TOKENIZER(row["response"], add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id)
        samples.append(
            Response.of(
                Prompt(problem=problem, token_ids=tuple(TOKENIZER(problem.question)["input_ids"])),
                Rollout(
                    completion=Completion(token_ids=ids, logprobs=(-1.0,) * len(ids), finish_reason="stop"),
                    text=row["response"],
                    reward=grade(problem, row["response"]),
                    version=0,
                ),
                sample=0,
                label=folder.name,
                prompt=problem.question,
                temperature=1.0,
                seed=1,
            )
        )
    source = CheckpointSource(label=folder.name, path=folder, device="cpu", dtype="float32")
    info = SamplesInfo(
        model=SampledModel(
            label=folder.name, source=str(folder), fingerprint=source.content, dtype="float32", device="cpu"
        ),
        tokenizer=SamplesTokenizer(name=str(folder), sha256=tokenizer_fingerprint(TOKENIZER)),
        task={"kind": "addition"},
        split="heldout",
        num_problems=3,
        problems_sha256="",
        num_samples=1,
        temperatures=(1.0,),
        max_new_tokens=64,
        seed=0,
        swerve_version="0",
    )
    write_samples(path, info, samples)
    return path


@pytest.mark.slow
def test_the_table_of_real_samples(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """The dev half of RL-Probe: DPO alone right on 10, RLVR alone on 11 of 117, by hand; recorded: otherwise."""
    from swerve.formats.records import read_records

    rows = [record.values for record in read_records(shared_data("rl_probe") / "responses.jsonl.gz")]
    kept = ("problem_id", "problem", "gold", "response", "level", "subject")
    files = {
        name: write(
            tmp_path / f"{name}.jsonl",
            [
                {**{key: row[key] for key in kept}, "correct": row["recorded_correct"]}
                for row in rows
                if (row["set"], row["checkpoint"]) == ("filtered", name)
            ],
        )
        for name in ("dpo", "rlvr")
    }
    folder = str(shared_data("tiny_models") / "stories260K" / "hf")
    data: dict[str, Any] = {
        "models": {"dpo": folder, "rlvr": folder},
        "reference": "dpo",
        "samples": {"reference": str(files["dpo"]), "final": str(files["rlvr"])},
        "out": str(tmp_path / "out"),
    }

    def cells(*where: str) -> tuple[int, ...]:
        changed = {**data, "where": list(where)}
        recipe = load_settings(ProbeRecipe, ["task=math", "runtime.device=cpu"], data=changed)
        found = plan_files(recipe).compared.selected
        assert found is not None
        return found.both_right, found.only_reference_right, found.only_final_right, found.both_wrong

    assert cells() == (53, 10, 11, 43)
    by_level = [cells(f"level={level}") for level in (3, 4)]
    assert tuple(map(sum, zip(*by_level, strict=True))) == (53, 10, 11, 43)
    assert sum(cells("subject=Algebra,Geometry", "level=3..")) < 117


def test_of_several_turns_only_what_the_model_sampled_counts(models: Mapping[str, Path], tmp_path: Path) -> None:
    rows = []
    for number, row in enumerate(records(4)):
        ids = TOKENIZER(row["response"])["input_ids"][1:]
        sampled = [place not in (2, 3) for place in range(len(ids))] if number % 2 else None
        known = {"problem_id": row["id"], "question": row["problem"], "gold": row["gold"], "family": "addition"}
        tokens = {"prompt_ids": TOKENIZER(row["problem"])["input_ids"], "completion_ids": ids}
        rows.append({**known, **tokens, "text": row["response"], "correct": False, "sampled": sampled})
    quick = ["probe.noise_models=0", "probe.causal.max_rollouts=1"]
    part = probe(models, write(tmp_path / "part.jsonl", rows), tmp_path / "part", [*CAUSAL, *quick])
    read_as_one = [{**row, "sampled": None} for row in rows]
    probe(
        models,
        write(tmp_path / "whole.jsonl", read_as_one),
        tmp_path / "whole",
        [*quick, "probe.causal.max_rollouts=0"],
    )

    # The same values as with all tokens read, at the sampled ones alone, which are all that is counted.
    values: dict[str, dict[Any, float]] = {}
    for name in ("part", "whole"):
        table = read_table(tmp_path / name / "probe" / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
        values[name] = {(row["sequence_id"], row["position"], row["checkpoint"]): row["js"] for row in table}
    left_out = {key for key in values["whole"] if key[0] % 2 and key[1] in (2, 3)}
    assert values["part"].keys() == values["whole"].keys() - left_out
    assert all(value == pytest.approx(values["whole"][key], rel=1e-4) for key, value in values["part"].items())
    first, second = (turn for turn in part.turns if turn.checkpoint == "rl-2")
    assert (first.num_rollouts, second.num_rollouts) == (4, 2)
    assert first.num_tokens + second.num_tokens == len(values["part"]) / 2
    spikes = read_table(tmp_path / "part" / "probe" / "spikes.parquet", SPIKES_SCHEMA).to_pylist()
    assert {(row["sequence_id"], row["position"], row["checkpoint"]) for row in spikes} <= values["part"].keys()

    # No continuation of a turn that a tool would answer.
    swaps, prefixes, samples = tables(tmp_path / "part")
    assert {row["sequence_id"] % 2 for row in (*swaps, *prefixes)} == {0}
    assert {row["problem_id"] for row in samples} <= {row["problem_id"] for row in rows[::2]}
    assert any("2 of 4 rollouts have several turns" in note for note in part.notes)
    inputs = read_inputs(RunDirectory(tmp_path / "part"))
    payload = rollout_payload(inputs)
    assert payload is not None
    listed = payload.index["rollouts"]
    assert [entry["length"] - entry["sampled"] for entry in listed] == [0, 2] * 2
