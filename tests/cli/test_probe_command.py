"""`swerve probe --use-responses`: what reaches the probe, and one clear line for every wrong input."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.files import atomic_directory
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import weights_fingerprint
from swerve.models.named_models import resolve_model, split_name
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeSettings
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.recipes.loader import load_config, load_settings
from tests.builders import write_evaluation
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]
RESPONSES = [
    {"id": "p1", "problem": "1 + 1 =", "response": " 2", "correct": True},
    {"id": "p2", "problem": "1 + 2 =", "response": " 2", "correct": False},
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, filled: Any) -> list[ProbePlan]:
    """Collect what the command hands to the probe, instead of probing."""
    collected: list[ProbePlan] = []

    def collect(plan: ProbePlan, *, progress: Any) -> ProbeSummary:
        collected.append(plan)
        return ProbeSummary.model_validate(filled(ProbeSummary, {"notes": ["collected"]}))

    monkeypatch.setattr("swerve.probe.steps.probe_in_steps", collect)
    return collected


@pytest.fixture
def folder(tiny: Any, tmp_path: Path) -> Path:
    model, tokenizer = tiny
    path = tmp_path / "models" / "one"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    return write_json_lines(tmp_path / "dpo.jsonl", RESPONSES)


@pytest.fixture
def run(tiny: Any, tmp_path: Path) -> RunDirectory:
    """A run of two stages whose first checkpoint was evaluated on one addition problem."""
    directory = RunDirectory(tmp_path / "runs" / "mine")
    family = load_family(AdditionTask(digits=2))
    tokenizer = build_word_tokenizer(family.words)
    recipe = "task: {kind: addition, digits: 2}\nmodel: {kind: tiny}\nstages:\n" + "".join(
        f"  - {{kind: {kind}}}\n"
        for kind in ("sft, steps: 5, optimizer: {lr: 1e-3}", "rl, steps: 3, optimizer: {lr: 1e-3}")
    )
    directory.create(config_yaml=recipe, provenance={})
    load_config(directory.config_path)
    model, digest = tiny[0], weights_fingerprint(tiny[0])
    for step, stage, scheduled in ((5, "sft", True), (6, "rl", True), (7, "rl", False), (8, "rl", True)):
        record = {"step": step, "stage": stage, "stage_step": step - (0 if stage == "sft" else 5)}
        more = {"scheduled": scheduled, "final": step in (5, 8), "weights_sha256": digest}
        with atomic_directory(directory.checkpoint_path(step), run_files={}, **record, **more) as place:
            model.save_pretrained(place)
            tokenizer.save_pretrained(place)
    first = directory.select_checkpoint("sft")
    row = dict.fromkeys(EVALUATION_SCHEMA.names)
    known = {"problem_id": "p", "kind": "1 carry", "question": "0 6 + 0 4 =", "gold": "0 1 0", "temperature": 0.0}
    write_table(directory.evaluation_path(first).with_suffix(".parquet"), [{**row, **known}], EVALUATION_SCHEMA)
    write_evaluation(directory, first)
    return directory


def arguments(responses: Path, folder: Path, *more: str) -> list[str]:
    options = ["--reference", f"first={folder}", "--checkpoint", f"late={folder}"]
    return ["probe", "--use-responses", str(responses), *options, *more]


def test_models_and_sequences_without_a_run(
    swerve: Swerve, plans: list[ProbePlan], folder: Path, responses: Path
) -> None:
    more = ["probe.top_k=3", "seed=4", "runtime.dtype=bfloat16", "runtime.device=cpu", "eval.confidence=0.9"]
    status, out, err = swerve(*arguments(responses, folder, *more, "--baseline", str(folder), "--out", "x"))
    assert status == 0, err
    (plan,) = plans
    assert (plan.reference.label, plan.reference.path) == ("first", folder)
    assert (plan.reference.dtype, plan.reference.device) == ("bfloat16", "cpu")
    assert [(one.label, one.path) for one in plan.checkpoints] == [("late", folder)]
    assert plan.baseline is not None
    assert plan.baseline.label == "one"
    assert plan.steps == {"one": 0, "first": 1, "late": 2}
    config = plan.recipe
    assert (config.probe.top_k, config.seed, config.eval.confidence) == (3, 4, 0.9)
    assert plan.recipe.out == "x"
    sequences = plan.sequences
    assert [(one.problem.id, one.population) for one in sequences] == [
        ("p2", "imported_wrong"),  # the headline population stands first
        ("p1", "imported_right"),
    ]
    assert plan.compared.responses.path == str(responses)
    assert out.splitlines()[-1] == "All findings: swerve report x; 1 note: collected"
    assert f"tables: {Path('x') / 'probe'}" in err


def test_responses_longer_than_the_models_read_are_left_out_and_named(
    swerve: Swerve, plans: list[ProbePlan], folder: Path, responses: Path
) -> None:
    limit = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    long = {"id": "p3", "problem": "1 + 1 =", "response": " 2" * limit, "correct": True}
    write_json_lines(responses, [*RESPONSES, long])
    status, _, err = swerve(*arguments(responses, folder))
    assert status == 0, err
    assert {one.problem.id for one in plans[0].sequences} == {"p1", "p2"}
    said = f"1 responses in {responses} are left out: longer than the {limit:,} tokens that each of the models can read"
    assert any(note.startswith(f"{said}: 'p3' with ") for note in plans[0].notes)


def test_json_and_default_place(swerve: Swerve, plans: list[ProbePlan], folder: Path, responses: Path) -> None:
    status, out, _ = swerve(*arguments(responses, folder, "--json", "--ends", "eos", "--template", "raw"))
    assert status == 0
    assert json.loads(out)["notes"] == ["collected"]
    assert plans[0].recipe.out == "probe-dpo"
    assert (plans[0].recipe.ends, plans[0].recipe.template) == ("eos", "raw")
    assert plans[0].sequences[0].completion_ids[-1] == 2


def test_prompts_from_a_file_and_named_fields(
    swerve: Swerve, plans: list[ProbePlan], folder: Path, tmp_path: Path
) -> None:
    path, problems = tmp_path / "r.json", tmp_path / "problems.json"
    path.write_text(json.dumps({"a": {"text": " 2"}}))
    problems.write_text(json.dumps([{"unique_id": "a", "problem": "1 + 1 =", "answer": "2"}]))
    status, _, err = swerve(*arguments(path, folder, "--problems", str(problems), "--field", "response=text"))
    assert status == 0, err
    (sequence,) = plans[0].sequences
    assert (sequence.problem.question, sequence.problem.answer, sequence.population) == ("1 + 1 =", "2", "imported")


def test_a_run_brings_models_problems_and_its_grader(
    swerve: Swerve, plans: list[ProbePlan], run: RunDirectory, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"id": "p", "response": " 6 + 4 + 0 = 1 0 write 0 carry 0 ; answer 0 0 0"}))
    for name in ("sft-5", "rl-3"):  # other models that are called so do not take the place of the run's
        shutil.copytree(run.checkpoint_path(7), tmp_path / name)
    status, _, err = swerve("probe", "mine", "--use-responses", str(path))
    assert status == 0, err
    (plan,) = plans
    assert (plan.reference.label, plan.reference.path) == ("sft-5", Path("runs/mine/checkpoints/step_000005"))
    assert [one.label for one in plan.checkpoints] == ["rl-1", "rl-3"]  # not the one that only serves resuming
    assert [one.path.name for one in plan.checkpoints] == ["step_000006", "step_000008"]
    assert plan.steps == {"sft-5": 5, "rl-1": 6, "rl-3": 8}
    assert plan.baseline is None
    assert plan.recipe.out == "runs/mine/probe-mine"
    (sequence,) = plan.sequences
    assert (sequence.problem.family, sequence.problem.kind, sequence.population) == (
        "addition",
        "1 carry",
        "imported_wrong",
    )
    assert dict(sequence.wrong)[11] == "1"
    chosen = ["--checkpoint", "rl-1", "--checkpoint", "end=rl", "--reference", "mine:sft", "--baseline", "step_000007"]
    status, _, err = swerve("probe", "mine", "probe.top_k=2", "--use-responses", str(path), *chosen)
    assert status == 0, err
    plan = plans[1]
    assert [one.label for one in plan.checkpoints] == ["rl-1", "end"]
    assert plan.checkpoints[1].path == Path("runs/mine/checkpoints/step_000008")
    assert plan.baseline is not None
    assert (plan.reference.label, plan.baseline.label, plan.recipe.probe.top_k) == ("sft-5", "rl-2", 2)


def test_order_and_steps(swerve: Swerve, plans: list[ProbePlan], run: RunDirectory, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps({"id": "p", "response": " 6 + 4"}))
    command = ["probe", "mine", "--use-responses", str(path), "--checkpoint", "end=rl", "--checkpoint", "rl-1"]
    assert swerve(*command)[0] == 0
    assert [one.label for one in plans[0].checkpoints] == ["rl-1", "end"]  # by step
    assert plans[0].steps == {"sft-5": 5, "rl-1": 6, "end": 8}
    assert swerve(*command, "--reference", "rl-2")[0] == 0
    assert plans[1].steps == {"rl-2": 0, "rl-1": 1, "end": 2}  # the reference is not the first by step


def test_a_run_alone_is_probed_as_ever(swerve: Swerve, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr("swerve.probe.from_run.probe_run", lambda config, run, **_: called.append((config, run)))
    assert swerve("probe", "mine", "probe.top_k=2", "--json")[:2] == (0, "null\n")
    ((config, probed),) = called
    assert (config.probe.top_k, probed.path) == (2, Path("runs/mine"))


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        ([], 2, "give RUN, whose rollouts are probed, or --use-responses FILE (or --select) with --reference MODEL"),
        (["probe.top_k=2"], 2, "give RUN, whose rollouts are probed"),
        (["mine", "--checkpoint", "rl"], 2, "--checkpoint needs --use-responses FILE"),
        (["mine", "--reference", "rl"], 2, "--reference needs --use-responses FILE"),
        (["mine", "--baseline", "rl"], 2, "--baseline needs --use-responses FILE"),
        (["mine", "--problems", "p"], 2, "--problems needs --use-responses FILE"),
        (["mine", "--field", "id=x"], 2, "--field needs --use-responses FILE"),
        (["mine", "--template", "raw"], 2, "--template needs --use-responses FILE"),
        (["mine", "--ends", "eos"], 2, "--ends needs --use-responses FILE"),
        (["mine", "--out", "x"], 2, "--out needs --use-responses FILE"),
        (["--use-responses", "R"], 2, "without RUN --reference MODEL and --checkpoint MODEL must be given"),
        (["--use-responses", "R", "--reference", "M"], 2, "without RUN --checkpoint MODEL must be given"),
        (["--use-responses", "R", "--reference", "M", "--checkpoint", "M"], 2, "two models are called 'one'"),
        (
            ["--use-responses", "R", "--reference", "M", "--checkpoint", "b c=M"],
            2,
            "the name before '=' may have letters",
        ),
        (["--use-responses", "R", "--reference", "M", "--checkpoint", "b="], 2, "there is no model after '='"),
        (
            ["--use-responses", "R", "--reference", "M", "--checkpoint", "x"],
            1,
            "checkpoint x does not exist; give a folder",
        ),
        (["--use-responses", "R", "--reference", "M", "--checkpoint", "x:rl"], 1, "run directory x does not exist"),
        (["none", "--use-responses", "R"], 1, "run directory none does not exist"),
        (["--use-responses", "none.jsonl", "OK"], 1, "none.jsonl does not exist; give a file that ends in .json"),
        (["--use-responses", "bad.jsonl", "OK"], 1, "bad.jsonl, line 2 is not JSON"),
        (["--use-responses", "bare.jsonl", "OK"], 1, "bare.jsonl: no prompt for 1 of 1 responses (problems 'p'); give"),
        (["--use-responses", "R", "OK", "--problems", "none.json"], 1, "none.json does not exist"),
        (["--use-responses", "R", "OK", "--field", "respons=x"], 2, "unknown name 'respons'; did you mean 'response'"),
        (["--use-responses", "R", "OK", "--field", "response=x"], 1, "has no field 'x' (--field response=x)"),
        (
            ["--use-responses", "R", "OK", "--template", "chat"],
            2,
            "--template: 'template' must be one of 'auto', 'raw', got 'chat'",
        ),
        (["--use-responses", "R", "OK", "--ends", "x"], 2, "--ends: 'ends' must be one of 'none', 'eos', got 'x'"),
        (["--use-responses", "R", "OK", "probe.top_q=2"], 2, "unknown key 'probe.top_q'"),
        (["--use-responses", "R", "OK", "task.digits=2"], 2, "missing required key 'task.kind'"),
        (["--use-responses", "R", "OK", "levels=[3]"], 2, "unknown key 'levels'"),
        (["--use-responses", "R", "OK", "--task", "maths"], 2, "'maths'; did you mean 'math'?"),
        (["--use-responses", "R", "OK", "--task", "math", "level=[3]"], 2, "'task.level'; did you mean 'levels'?"),
        (["--use-responses", "N", "OK", "--task", "gsm8k"], 2, "2 of 2 responses have no gold answer, so gsm8k cannot"),
        (["mine", "--task", "math"], 2, "--task needs --use-responses FILE"),
        (["--select", "all", "OK"], 2, "--select needs --reference-samples FILE and --final-samples FILE"),
        (["--where", "level=3", "--final-samples", "R"], 2, "--select needs --reference-samples FILE"),
        (
            ["--select", "al", "--reference-samples", "R", "--final-samples", "R", "OK"],
            2,
            "--select: 'select' must be one of 'reference_wrong_final_right', ",
        ),
        (
            ["--select", "all", "--reference-samples", "R", "--final-samples", "R", "--use-responses", "R", "OK"],
            2,
            "give either responses, or samples",
        ),
        (["--reference-samples", "R", "--final-samples", "R"], 2, "without RUN --reference MODEL and --checkpoint"),
        (["--reference-samples", "R", "--final-samples", "R", "OK"], 2, "2 of 2 samples in .* have no gold answer"),
        (["--reference-samples", "none.parquet", "--final-samples", "R", "OK"], 1, "none.parquet does not exist"),
        (["mine", "--use-responses", "R", "--task", "math"], 2, "the responses are graded by the task of mine"),
        (["--use-responses", "R", "OK", "probe.top_k=no"], 2, "probe.top_k"),
    ],
)
def test_wrong_input(
    swerve: Swerve,
    plans: list[ProbePlan],
    folder: Path,
    responses: Path,
    tmp_path: Path,
    given: list[str],
    status: int,
    message: str,
) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(RESPONSES[0]) + "\n{oops")
    (tmp_path / "bare.jsonl").write_text('{"id": "p", "response": "2"}')
    unjudged = [{key: value for key, value in row.items() if key != "correct"} for row in RESPONSES]
    write_json_lines(tmp_path / "unjudged.jsonl", unjudged)
    texts = {"R": str(responses), "N": str(tmp_path / "unjudged.jsonl"), "M": str(folder), "b c=M": f"b c={folder}"}
    models = ["--reference", str(folder), "--checkpoint", f"late={folder}"]
    filled = [part for text in given for part in (models if text == "OK" else [texts.get(text, text)])]
    found, out, err = swerve("probe", *filled)
    assert (found, out) == (status, "")
    assert re.search(message if ".*" in message else re.escape(message), err.splitlines()[-1])
    assert err.splitlines()[-1].startswith("swerve: error: ")
    assert not plans


def test_models_by_name(tmp_path: Path, folder: Path, run: RunDirectory) -> None:
    assert resolve_model("owner/name#v2").path == "owner/name#v2"
    assert resolve_model("owner/name#v2").label == "name"
    assert resolve_model("late=owner/name").label == "late"
    assert resolve_model(f"mine:{'rl-1'}").label == "rl-1"
    assert resolve_model("rl", run=run).step == 8
    assert resolve_model("models/one", run=run).path == Path("models/one")
    with pytest.raises(CheckpointError, match=r"models/two does not exist; .*, or a name on the hub"):
        resolve_model("models/two")  # a folder that is missing, since `models` is one that is there
    with pytest.raises(CheckpointError, match="has no checkpoint 'rl-9'; it has sft-5, rl-1, rl-2, rl-3"):
        resolve_model("rl-9", run=run)
    for name in ("mine:rl-9", "mine"):
        with pytest.raises(CheckpointError) as caught:
            resolve_model(name)
        assert "hub" not in str(caught.value)
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert split_name("a=b") == (None, "a=b")
    assert split_name("x=a=b") == ("x", "a=b")
    with pytest.raises(ConfigError, match="the name before '=' may have"):
        split_name("=a")


def test_settings_without_a_recipe() -> None:
    settings = load_settings(ProbeSettings, ["probe.spikes.method=absolute", "max_new_tokens=9"])
    assert (settings.probe.spikes.method, settings.max_new_tokens, settings.seed) == ("absolute", 9, 0)
    with pytest.raises(ConfigError, match=r"override 'probe.top_q=1': unknown key 'probe.top_q'; did you mean 'top_k'"):
        load_settings(ProbeSettings, ["probe.top_q=1"])


def test_runs_without_enough_stages(run: RunDirectory, responses: Path, swerve: Swerve, plans: list[Any]) -> None:
    for one in run.checkpoints:
        if one.stage == "rl":
            shutil.rmtree(one.path)
    status, _, err = swerve("probe", "mine", "--use-responses", str(responses))
    assert (status, "has no checkpoint of a stage 'rl' (probe.checkpoints); it has sft" in err) == (1, True)
    shutil.rmtree(run.checkpoints[0].path)
    status, _, err = swerve("probe", "mine", "--use-responses", str(responses))
    assert (status, "has no checkpoint 'sft'; it has none" in err) == (1, True)
