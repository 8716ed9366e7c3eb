"""What was meant by an option that is a key, a key that is an option, and a key that stands or is called elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.cli.app import _named
from swerve.cli.hints import taken_as
from swerve.config.recipe import Config
from swerve.recipes.loader import dump_yaml, load_config
from swerve.schema import places_of
from tests.cli.conftest import Swerve
from tests.plan.test_training import SHAPES


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        # Options that are keys.
        ("train demo_addition --seed", "seed=VALUE"),
        ("train demo_addition --steps 4", "stages.sft.steps=4 or stages.dpo.steps=4 or stages.rl.steps=4"),
        ("train demo_addition --trackers wandb", "runtime.trackers=wandb"),
        ("train demo_addition --learning-rate 1", "stages.sft.optimizer.lr=1 or stages.dpo.optimizer.lr=1 or "),
        ("study demo_study --seed 3", "seeds=3"),
        # Options that are called otherwise here.
        ("sample m --task math --samples-per-prompt 4 --out o", "--num-samples"),
        ("grade a.jsonl --grader-workers 2", "--workers"),
        # Words that are no command.
        ("compare a.jsonl b.jsonl", "swerve claim a.jsonl b.jsonl?"),
        ("figures mine", "swerve report RUN --figures?"),
        ("plot mine reward", "swerve report RUN --figures?"),
        ("ls", "swerve runs?"),
        # A name that may be either of two fields.
        ("grade a.csv --task math --answer key", "--field gold=key (the right answer) or --field answer=key (what is"),
        # Keys that are options.
        ("train demo_addition out=x", "--out x"),
        ("train demo_addition resume=true", "--resume"),
        ("eval --model m --task math limit=3", "--limit 3"),
        ("eval --model m --task math samples_per_prompt=3", "--num-samples 3"),
        # Keys that stand or are called elsewhere.
        ("train demo_addition stages.rl.num_samples=4", "'samples_per_prompt'"),
        ("train demo_addition eval.num_samples=4", "'samples_per_problem'"),
        ("train demo_addition stages.rl.seed=3", "'seed' at the top level"),
        ("train demo_addition stages.rl.model.path=x", "'model' at the top level"),
        ("train demo_addition tracker=wandb", "'runtime.trackers'"),
        ("train demo_addition steps=4", "'stages.sft.steps' or 'stages.dpo.steps' or 'stages.rl.steps'"),
        ("train demo_addition stages.rl.step=4", "'steps'"),
        # Keys without what they stand in, or with something else.
        ("demo task=addition rl.steps=10", "'stages.rl.steps'?"),
        ("train demo_addition rl.lr=1", "'stages.rl.optimizer.lr'?"),
        ("train demo_addition rl.step=1", "'stages.rl.steps'?"),
        ("train demo_addition stage.rl.steps=1", "'stages.rl.steps'?"),
        ("train demo_addition optimizer.lr=1", "'stages.sft.optimizer.lr' or 'stages.dpo.optimizer.lr' or "),
        ("train demo_addition grpo.steps=1", "'stages.sft.steps' or 'stages.dpo.steps' or 'stages.rl.steps'?"),
        ("train demo_addition stages.rl.grpo.steps=1", "'stages.rl.steps'?"),
    ],
)
def test_what_was_meant(swerve: Swerve, command: str, meant: str) -> None:
    status, out, err = swerve(*command.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"; did you mean {meant}" in err
    assert err.count("did you mean") == 1


@pytest.mark.parametrize(
    ("command", "option", "taken"),
    [
        ("train demo_addition --seed 3 --quiet", "--seed", "train demo_addition seed=3 --quiet"),
        ("train demo_addition --seed=3", "--seed", "train demo_addition seed=3"),
        ("train demo_addition --stages.rl.steps 4", "--stages.rl.steps", "train demo_addition stages.rl.steps=4"),
        ("demo --task addition", "--task", "demo task=addition"),
        ("sample m --task k_and_k --people 3", "--people", "sample m --task k_and_k people=3"),
        ("sample m --task math --n=4 -o x", "-o", "sample m --task math --n=4 --out x"),
        ("sample m --task math --n=4", "--n", "sample m --task math --num-samples=4"),
        ("train demo_addition --set seed=3 --quiet", "--set", "train demo_addition seed=3 --quiet"),
        ("train demo_addition --override=seed=3 --quiet", "--override", "train demo_addition seed=3 --quiet"),
        ("sample m --problems p.csv --task math", "--problems", "sample m --data p.csv --task math"),
        ("eval --model m --tasks=math", "--tasks", "eval --model m --task=math"),
        ("grade a.csv --prompt q --task math", "--prompt", "grade a.csv --field question=q --task math"),
        ("claim a.csv b.csv --gold=key", "--gold", "claim a.csv b.csv --field gold=key"),
        ("sample m --data p.csv --answer key", "--answer", "sample m --data p.csv fields.answer=key"),
        ("train demo_addition --set", "--set", None),
        ("train demo_addition --set seed", "--set", None),
        ("view mine --set seed=3", "--set", None),
        ("grade a.csv --answer key", "--answer", None),
        ("eval --model m --data p.csv --answer key", "--answer", None),
        ("train demo_addition --seed", "--seed", None),
        ("train demo_addition --steps 4", "--steps", None),
        ("study demo_study --seed 3", "--seed", None),
        ("sample m --task math -n 4", "-n", "sample m --task math --num-samples 4"),
        ("sample m -- --seed 3", "--seed", None),
        ("sample --model m --task math", "--model", "sample m --task math"),
        ("sample m --task math --max-tokens=4", "--max-tokens", "sample m --task math --max-new-tokens=4"),
        ("train demo_addition -n 4", "-n", None),
    ],
)
def test_an_option_that_can_mean_one_thing_is_taken(command: str, option: str, taken: str | None) -> None:
    words = command.split()
    named = _named(words)
    assert named is not None
    assert taken_as(named, words, option) == (None if taken is None else taken.split())


def test_other_names_of_options_reach_the_command(swerve: Swerve, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer,response\n2+3?,5,5\n")
    assert swerve("grade", str(tmp_path / "a.csv"), "--task", "math", "-o", str(tmp_path / "b.jsonl"))[0] == 0
    assert (tmp_path / "b.jsonl").is_file()
    assert "a recipe, whose name comes first" in swerve("train", "seed=3")[2]
    assert swerve("tasks")[:2] == swerve("data", "list")[:2]
    assert "swerve eval RUN" in swerve("evaluate")[2]


def test_a_file_of_problems_is_one_whichever_option_names_it(swerve: Swerve, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("question,answer\n1 + 1?,2\n2 + 2?,4\n3 + 3?,6\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text(json.dumps(SHAPES))
    asked = ["--max-new-tokens", "8", "--out", "x", "--json"]
    said = [
        json.loads(swerve("plan", "sample", str(tmp_path / "m"), option, str(tmp_path / "p.csv"), *asked)[1])["tokens"]
        for option in ("--task", "--data", "--problems")
    ]
    assert said == [{"samples": 3 * 8}] * 3


def test_folders_of_models_are_known_without_their_option(swerve: Swerve, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("{}")
    err = swerve("eval", "m", "--task", "addition")[2]
    assert "needs --model" not in err
    assert "no run" not in err
    err = swerve("probe", "m", "--causal")[2]
    assert "m is a model and no run" in err
    assert "such as swerve sample m --task TASK --out samples.parquet writes" in err
    assert "--use-responses samples.parquet --reference m" in err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("help claim", "it is an option: swerve claim --help"),
        ("train m --steps 5", "a model is trained by a recipe: swerve train demo_multiplication model.path=m"),
        ("replay mine --step 40", "did you mean --from 40?"),
        ("train demo_addition --dry-run seed=1", "without doing it: swerve plan train demo_addition seed=1; see"),
        ("grade p.csv --k 4", "rows with one question, or one id, are its samples, however many: leave it out"),
        ("grade p.csv --task multiple_choice", "did you mean 'choice'?"),
        ("report mine mine2 --out r.html", "has no ending such as .html: --out r"),
        ("report mine --out r.html", "the report of one is in its folder: swerve report mine"),
        (
            "data show table train=q.csv",
            "problem, key; say task.fields.question=problem task.fields.answer=FIELD",
        ),
        ("report mine --figures --out there", "--out is where several runs are compared; figures are in the folder of"),
        ("report mine --out there", "the report of one is in its folder: swerve report mine"),
        ("data show p.csv", "'p.csv' is a file and no task; the task that has its problems is: table train=p.csv"),
        (
            "data import p.csv --out o.parquet",
            "say --field response=FIELD; problems alone are sampled: swerve sample MODEL --data FILE",
        ),
    ],
)
def test_what_is_asked_for_in_other_words_is_answered_with_what_to_write(
    swerve: Swerve, tmp_path: Path, command: str, said: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "p.csv").write_text("question,answer\n1 + 1?,2\n")
    (tmp_path / "q.csv").write_text("problem,key\n1 + 1?,2\n")
    status, out, err = swerve(*command.split())
    assert (status != 0, out, err.count("\n")) == (True, "", 1)
    assert said in err


def test_the_value_of_an_option_is_no_key(swerve: Swerve, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    err = swerve("grade", "a.jsonl", "--task", "math", "--field", "tasks=x")[2]
    assert "--field 'tasks=x': unknown name 'tasks'" in err
    assert "did you mean --" not in err


@pytest.mark.parametrize("command", ["train demo_addition --zebra 3", "train demo_addition zebra=3", "runs --seed 3"])
def test_nothing_is_guessed(swerve: Swerve, command: str) -> None:
    assert "did you mean" not in swerve(*command.split())[2]


def test_a_file_names_its_line_and_the_place(swerve: Swerve, tmp_path: Path) -> None:
    recipe = "extends: demo_addition\nstages:\n- kind: sft\n  steps: 3\n  optimizer: {lr: 1}\n  seed: 3\n"
    (tmp_path / "mine.yaml").write_text(recipe)
    err = swerve("train", "mine.yaml")[2]
    assert err == ("swerve: error: mine.yaml:6: unknown key 'stages.sft.seed'; did you mean 'seed' at the top level?\n")


def test_places_follow_the_kinds_of_the_data() -> None:
    data = {"task": {"kind": "k_and_k"}, "stages": [{"kind": "sft"}, {"kind": "rl"}, {"kind": "rl"}]}
    assert places_of("people", Config, data) == ["task.people"]
    assert places_of("people", Config, {"task": {"kind": "math"}}) == []
    places = ["eval.samples_per_problem", "stages.1.samples_per_prompt", "stages.2.samples_per_prompt"]
    assert places_of("samples_per_prompt", Config, data) == places


_PROBE = "swerve probe --use-responses {} --reference mine:dpo --checkpoint {}"


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("probe mine:dpo mine:rl --samples s2 --causal --out p", _PROBE.format("s2", "mine:rl --out p")),
        ("probe mine:dpo mine:rl samples=s2", _PROBE.format("s2", "mine:rl")),
        ("probe mine:dpo mine:rl --use-responses s2", _PROBE.format("s2", "mine:rl")),
        ("probe mine:dpo", _PROBE.format("samples.parquet", "MODEL")),
        ("plan probe mine:dpo", _PROBE.format("samples.parquet", "MODEL").replace("swerve", "swerve plan")),
        ("probe --causal mine:dpo mine:rl s2", _PROBE.format("s2", "mine:rl")),
        ("eval mine:dpo mine:rl --out e limit=3", "swerve eval mine:dpo mine:rl --out e limit=3 --task addition"),
    ],
)
def test_models_in_place_of_a_run(swerve: Swerve, tmp_path: Path, command: str, form: str) -> None:
    _run_called_mine(tmp_path)
    (tmp_path / "s2").mkdir()
    status, out, err = swerve(*command.split())
    assert (status > 0, out) == (True, "")
    assert err.startswith("swerve: error: mine:dpo is a model and no run")
    assert err.endswith(f": {form}\n")


def test_models_and_problems_in_place_of_a_run(swerve: Swerve, tmp_path: Path) -> None:
    _run_called_mine(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"question": "1 + 1 =", "answer": "2"}\n')
    (tmp_path / "r.jsonl").write_text('{"question": "1 + 1 =", "answer": "2", "response": "2"}\n')
    err = swerve("probe", "mine:dpo", "mine:rl", "--problems", "p.jsonl", "--task", "addition", "--out", "o")[2]
    assert "such as swerve sample mine:dpo mine:rl --data p.jsonl --task addition --out samples writes" in err
    assert err.endswith(f": {_PROBE.format('samples', 'mine:rl --out o')}\n")
    err = swerve("probe", "mine:dpo", "mine:rl", "r.jsonl")[2]
    assert err.endswith(f": {_PROBE.format('r.jsonl', 'mine:rl')}\n")
    assert "swerve sample" not in err


def test_models_of_runs_beside_their_problems_are_evaluated(swerve: Swerve, tmp_path: Path) -> None:
    _run_called_mine(tmp_path)
    for given in (["--data", "gone.csv"], ["--task", "adition"]):
        assert "no run" not in swerve("eval", "mine:dpo", *given)[2]
    assert "has no checkpoint 'dpo'" in swerve("eval", "mine:dpo", "--task", "addition")[2]


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("compare mine runs/mine", "swerve report mine runs/mine?"),
        ("export mine rl there", "swerve export mine:rl --out there?"),
        ("export mine rl", "swerve export mine:rl --out DIR?"),
        ("export mine rl --out there", "swerve export mine:rl --out there?"),
        ("export m there --dtype bfloat16", "swerve export m --out there --dtype bfloat16?"),
        ("sample m p.csv s.parquet", "swerve sample m p.csv --out s.parquet?"),
        ("recipes demo_addition", "swerve recipes show demo_addition?"),
        ("config demo_addition seed=3", "swerve config show demo_addition seed=3?"),
        ("data addition", "swerve data show addition?"),
    ],
)
def test_the_command_that_was_meant_has_the_names_that_were_given(
    swerve: Swerve, tmp_path: Path, command: str, meant: str
) -> None:
    _run_called_mine(tmp_path)
    (tmp_path / "p.csv").touch()
    status, out, err = swerve(*command.split())
    assert (status, out, err.count("did you mean")) == (2, "", 1)
    assert f"; did you mean {meant}" in err


@pytest.mark.parametrize("command", ["export m", "sample m p.csv", "recipes zebra", "data zebra"])
def test_no_command_is_guessed(swerve: Swerve, command: str) -> None:
    assert "did you mean" not in swerve(*command.split())[2]


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("probe mine --samples s2", "; did you mean --use-responses?"),
        ("probe mine --min-rollouts 3", "; did you mean probe.min_rollouts=3?"),
    ],
)
def test_a_run_takes_the_keys_of_what_comes_after_training(swerve: Swerve, command: str, meant: str) -> None:
    assert meant in swerve(*command.split())[2]


@pytest.mark.parametrize("command", ["probe mine --causal", "probe mine --models a"])
def test_keys_that_would_be_refused_are_not_named(swerve: Swerve, command: str) -> None:
    assert "did you mean" not in swerve(*command.split())[2]


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("probe s2", "s2 is no run; if it has responses, probe them with --use-responses s2 --reference MODEL "),
        ("probe s2/a.parquet", "probe them with --use-responses s2/a.parquet --reference MODEL --checkpoint MODEL\n"),
        ("eval mine limit=20", "; did you mean 'eval.num_problems'?\n"),
        ("eval mine temperature=1", "; did you mean 'eval.temperature' or "),
        ("eval mine --temperature 1", "--temperature (of a run eval.temperature=T) needs --model MODEL; give a run"),
        ("eval mine --system hello", "--system needs --model MODEL; a run is evaluated as its recipe says"),
    ],
)
def test_what_a_run_takes_is_said(swerve: Swerve, tmp_path: Path, command: str, form: str) -> None:
    _run_called_mine(tmp_path)
    (tmp_path / "s2").mkdir()
    (tmp_path / "s2/a.parquet").touch()
    status, out, err = swerve(*command.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert form in err


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("plan mine", "swerve plan train demo_multiplication"),
        ("plan demo_addition", "swerve plan train demo_addition"),
        ("plan --measure mine", "swerve plan train demo_multiplication"),
        ("plan kl_study", "swerve plan study kl_study"),
    ],
)
def test_a_plan_is_of_a_command(swerve: Swerve, command: str, form: str) -> None:
    assert f"name the command that is planned, as in: {form}; see:" in swerve(*command.split())[2]


def test_a_default_is_said_once(swerve: Swerve) -> None:
    said = " ".join(swerve("replay", "--help")[1].split())
    assert (said.count("[default: recorded]"), said.count("[default: kept]")) == (1, 1)


def _run_called_mine(folder: Path) -> None:
    recipe = dump_yaml(load_config("demo_addition"))
    RunDirectory(folder / "runs/mine").create(config_yaml=recipe, provenance={"status": "trained", "stages": {}})
