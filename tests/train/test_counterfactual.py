"""Training run on with one thing changed: against copies of the run in which it was changed by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import swerve
from swerve.artifacts.replays import Replays
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.responses import Response, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table, write_table
from swerve.cli.app import run_command
from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.models.model_folder import load_model
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.seeds import derive_seed
from swerve.train import counterfactual
from swerve.train.certificate import stored_weights
from swerve.train.changes import Stretch, Variation, starting_point
from swerve.train.replay import replay_session, replayed_steps, training_problems
from swerve.types import Problem

FIRST = 222
"""Steps before the last stage of the small run, whose 4 steps have 6 groups of 4 completions."""


@pytest.fixture
def copied(small_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(small_run.path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def rows_of(run: RunDirectory, step: int) -> list[dict[str, Any]]:
    return read_table(run.rollouts_path(FIRST + step), ROLLOUTS_SCHEMA).to_pylist()


def weights_of(run: RunDirectory, variation: Variation, *, start: str = "dpo", steps: int = 2) -> dict[str, Tensor]:
    """Return the weights after some steps of a replay."""
    config = load_config(run)
    with replay_session(config, run, SilentProgress()) as session:
        place = starting_point(run, config, start)
        made = [*replayed_steps(session, training_problems(session), start=place, stop=place.step + steps,
                                variation=variation)]  # fmt: skip
        return stored_weights(made[-1].context.learner, config)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


def varied(run: RunDirectory, step: int) -> tuple[list[int], list[int]]:
    """Return the groups of a step whose rewards differ, and those whose rewards agree."""
    rewards: dict[int, set[float]] = {}
    for row in rows_of(run, step):
        rewards.setdefault(row["group"], set()).add(row["reward"])
    return [n for n, values in rewards.items() if len(values) > 1], [
        n for n, values in rewards.items() if len(values) == 1
    ]


def solution_logprob(run: RunDirectory, label: str) -> float:
    """Return the mean log-probability of the written solutions of held-out problems, read one by one."""
    loaded, config = load_model(run.select_checkpoint(label).path, device="cpu", dtype="float32"), load_config(run)
    tokenizer, sums = loaded.tokenizer, []
    for problem in load_family(config.task).problems("heldout", seed=derive_seed(config.seed, "problems")):
        prompt = tokenizer(problem.question)["input_ids"]
        ids = [*tokenizer.encode(problem.solution, add_special_tokens=False), tokenizer.eos_token_id]
        with torch.no_grad():
            logits = loaded.model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        sums.append(float(logits.log_softmax(-1)[range(len(ids)), ids].sum()))
    return sum(sums) / len(sums)


def edited(run: RunDirectory, step: int, change: Callable[[dict[str, Any]], None]) -> None:
    rows = rows_of(run, step)
    for row in rows:
        change(row)
    write_table(run.rollouts_path(FIRST + step), rows, ROLLOUTS_SCHEMA)


@pytest.mark.slow
def test_planted_zeros_and_oracles(copied: RunDirectory) -> None:
    unchanged = weights_of(copied, Variation(name="none"))
    assert same(unchanged, load_file(copied.checkpoint_path(FIRST + 2) / "model.safetensors"))
    differ, agree = varied(copied, 1)
    # Nothing is changed: sampled again all is as it was, and a group without a gradient moves nothing.
    assert same(weights_of(copied, Variation(name="again", again=True)), unchanged)
    for group in agree:
        assert same(weights_of(copied, Variation(name="zero", without_group=group)), unchanged)
    # A verdict that is turned round in the file is one that the replay turns round.
    row = next(row for row in rows_of(copied, 1) if row["group"] == differ[0])
    flip = Variation(name="flip", flip=(row["group"], row["sample"]))
    flipped, kept = weights_of(copied, flip), copied.rollouts_path(FIRST + 1).read_bytes()

    def turn(one: dict[str, Any]) -> None:
        if (one["group"], one["sample"]) == (row["group"], row["sample"]):
            one.update(reward=1.0 - one["reward"], correct=not one["correct"], parts=None)

    edited(copied, 1, turn)
    assert same(weights_of(copied, Variation(name="none")), flipped)
    assert not same(flipped, unchanged)
    copied.rollouts_path(FIRST + 1).write_bytes(kept)
    # A group whose rewards all agree is dropped by this stage: what is left divides by its own tokens.
    own = Variation(name="own", without_group=differ[0], own_denominators=True)
    without = weights_of(copied, own)
    kept_tokens = weights_of(copied, Variation(name="kept", without_group=differ[0]))
    edited(copied, 1, lambda one: one.update(reward=0.0, correct=False) if one["group"] == differ[0] else None)
    assert same(weights_of(copied, Variation(name="none")), without)
    assert not same(kept_tokens, without)


def test_settings_act_from_their_step_on(small_run: RunDirectory) -> None:
    still = Variation(name="still", settings=("optimizer.lr=1e-30",))
    before = load_file(small_run.checkpoint_path(FIRST + 2) / "model.safetensors")
    assert same(weights_of(small_run, still, start="rl-2"), before)
    # What is frozen stays, and all else learns.
    frozen = "model.layers.0.mlp.up_proj.weight"
    after = weights_of(small_run, Variation(name="freeze", settings=(f"freeze=[{frozen}]",)), start="rl-2")
    assert [name for name in before if torch.equal(before[name], after[name])] == [frozen]


@contextmanager
def stopped_after(monkeypatch: pytest.MonkeyPatch, num: int) -> Iterator[None]:
    """Interrupt after so many replays."""
    made, rows = [0], counterfactual._Work.rows

    def counted(self: Any, variation: Variation) -> Any:
        if made[0] == num:
            raise KeyboardInterrupt
        made[0] += 1
        return rows(self, variation)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(counterfactual._Work, "rows", counted)
        yield


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_rows_of_replays_and_the_same_bytes_after_an_interruption(
    copied: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differ, agree = varied(copied, 1)
    asked = {"start": 0, "without": [f"group={differ[0]}", f"group={agree[0]}"], "flip_share": 0.5, "to": "+2"}
    found = swerve.replay(copied, **asked)
    (path,) = (copied.path / "replay").glob("*.json")
    whole = path.read_bytes()
    assert (found.start, found.stop, found.rollouts) == (0, 2, "recorded")
    by_name = {name: [row for row in found.rows if row.replay == name] for name in found.replays}
    zero = by_name[f"without group={agree[0]}"]
    assert {(row.difference, row.weight_distance, row.other_rollouts) for row in zero} == {(0.0, 0.0, 0.0)}
    assert found.horizons[f"without group={agree[0]}"] == {"accuracy": None, "solution": None}
    one = by_name[f"without group={differ[0]}"]
    assert all(row.weight_distance > 0 and row.other_verdicts == 0 for row in one)
    assert all(row.difference == row.value - row.unchanged for row in found.rows)
    assert all(0.2 < row.other_verdicts < 0.8 for row in by_name["flip share 0.5"])
    assert 0 <= found.floor["accuracy"] < 1e-6
    assert found.rows[-1].unchanged == pytest.approx(solution_logprob(copied, "rl-2"), abs=1e-4)
    # Interrupted after each number of replays, the same file comes out.
    for num in (0, 2):
        path.unlink()
        with stopped_after(monkeypatch, num):
            swerve.replay(copied, **asked)
        assert not path.exists()
        swerve.replay(copied, **asked)
        assert path.read_bytes() == whole
        assert not path.with_suffix(".partial").exists()

    # Nor are parts left where the end came between the whole and theirs.
    path.unlink()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(counterfactual.Parts, "finish", interrupted)
        swerve.replay(copied, **asked)
    assert path.with_suffix(".partial").exists()
    swerve.replay(copied, **asked)
    assert path.read_bytes() == whole
    assert not path.with_suffix(".partial").exists()


@pytest.mark.slow
def test_a_probe_that_is_made_later_has_its_target(copied: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"start": 2, "without": [f"group={varied(copied, 3)[0][0]}"], "to": "+1"}
    assert set(swerve.replay(copied, **asked).floor) == {"accuracy", "solution"}
    interrupted = {**asked, "without": [*asked["without"], f"group={varied(copied, 3)[0][1]}"]}
    with stopped_after(monkeypatch, 2):
        swerve.replay(copied, **interrupted)
    # The probe knows a wrong token and what is right there.
    row = rows_of(copied, 3)[0]
    wrong = Response(
        problem=Problem(id="p", family="addition", question="1 + 1 =", answer="2"), sequence_id=0, label="dpo",
        prompt_ids=tuple(row["prompt_ids"]), completion_ids=tuple(row["completion_ids"]), correct=False, wrong={1: "5"},
        text=row["text"], spans=tuple((0, 0) for _ in row["completion_ids"]),
    )  # fmt: skip
    copied.probe_path.mkdir(exist_ok=True)
    write_responses(copied.probe_path / "sequences.parquet", [wrong], SEQUENCES_SCHEMA)
    for given in (asked, interrupted):
        assert set(swerve.replay(copied, **given).floor) == {"accuracy", "first_wrong", "solution"}
    assert not list((copied.path / "replay").glob("*.partial"))


def test_steps_lost_are_those_since_the_unchanged_replay_was_where_the_changed_one_ends() -> None:
    course = {21: -4.0, 22: -3.0, 25: -3.5, 30: -1.0}
    ends = {"a": -2.0, "none": -1.0, "between": -3.25, "better": -0.9, "all": -5.0}
    rows = [
        {"replay": name, "step": step, "target": "solution", "value": end, "unchanged": value,
         "difference": end - value, "weight_distance": 0.1}
        for name, end in ends.items()
        for step, value in course.items()
    ]  # fmt: skip
    replays = Replays.model_validate(
        {"run": "r", "stage": "rl", "start": 20, "stop": 30, "rollouts": "again", "replays": list(ends), "rows": rows,
         "floor": {"solution": 1e-8}, "spread": {}, "horizons": {}, "ranks": {}}
    )  # fmt: skip
    lost = {name: each["solution"] for name, each in replays.steps_lost.items()}
    # From 25 to 30 it rises by half a nat a step: -2 was two steps, -3.25 four and a half before the end.
    assert lost == {"a": 2.0, "none": 0.0, "between": 4.5, "better": None, "all": None}
    # A course that falls is better, and no step is lost, where it is ended earlier.
    falls = [
        row.model_copy(update={"unchanged": -row.unchanged, "value": 2.0, "difference": 1.0}) for row in replays.rows
    ]
    assert replays.model_copy(update={"rows": falls}).steps_lost["a"]["solution"] is None


@pytest.mark.slow
def test_the_command_shows_spread_over_seeds(copied: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(copied.path), "--from", "2", "--set", "kl.kind=loss", "--set", "kl.coef=0.5"]
    assert run_command([*words, "--rollouts", "again", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["rollouts"], said["replays"]) == ("again", ["set kl.kind=loss kl.coef=0.5"])
    assert sorted({row["replay"] for row in said["rows"]}) == [
        "other batches", "seed 1", "seed 2", "seed 3", "set kl.kind=loss kl.coef=0.5",
    ]  # fmt: skip
    assert said["spread"]["accuracy"] == max(
        abs(row["difference"])
        for row in said["rows"]
        if row["target"] == "accuracy" and row["replay"].startswith("seed")
    )
    assert run_command([*words, "--rollouts", "again"]) == 0
    text = capsys.readouterr().out
    assert "other seeds alone, the largest of three: accuracy" in text
    assert text.startswith("rl-2 to rl-4, rollouts again;")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"without": "group=9"}, "step 1 of stage 'rl' has no group 9: it has 0 to 5"),
        ({"without": "groups=1"}, "without='groups=1' is neither group=N"),
        ({"flip": "3"}, "flip='3' is not GROUP.SAMPLE"),
        ({"flip": "0.4"}, "flip=0.4: group 0 of step 1 of stage 'rl' has samples 0 to 3"),
        ({"flip_share": 1.5}, "flip_share=1.5 is not a share above 0 and up to 1"),
        ({"settings": ["steps=3"]}, "settings='steps=3': a replay leaves steps, phases"),
        ({"settings": {"kl.coof": 1}}, "kl.coof"),
        ({"flip": "0.0", "start": 4}, "start='4': a change needs a step of stage 'rl' before it, 0 to 3"),
        ({"flip": "0.0", "to": "+9"}, r"to='\+9' is not after step 0 and up to 4"),
        ({"flip": "0.0", "to": "end"}, "'end' is neither a step, such as 40"),
        ({"flip": "0.0", "rollouts": "new"}, "'new' is not one of recorded, again"),
        ({"flip": "0.0", "denominators": "none"}, "'none' is not one of kept, own"),
        ({"to": "+1"}, "are of a replay with a change"),
        ({"denominators": "own"}, "are of a replay with a change"),
        ({"without": "kind=none"}, "the training problems are of the kinds 0 carries, 1 carry"),
    ],
)
def test_changes_that_cannot_be_made(copied: RunDirectory, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        swerve.replay(copied, **{"start": 0, **asked})
    assert not (copied.path / "replay").exists()


def test_a_change_needs_its_step(small_run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="is missing: the step of the last stage after which the change begins"):
        swerve.replay(small_run, flip="0.0")


def test_changes_in_other_forms_are_answered_with_the_whole_line(small_run: RunDirectory) -> None:
    run, sets = small_run.quoted, "--set kl.kind=loss --set kl.coef=0.5"
    for line, said in (
        ("kl.kind=loss kl.coef=0.5", f"swerve replay {run} --from STEP {sets}"),
        ("stages.rl.kl.kind=loss stages.rl.kl.coef=0.5 --from 2", f"swerve replay {run} --from 2 {sets}"),
        ("seed=99", f"swerve train {run}/config.yaml seed=99 --out DIR"),
        ("--set seed=99", f"swerve train {run}/config.yaml seed=99 --out DIR"),
        ("stages.sft.steps=5", f"swerve train {run}/config.yaml stages.sft.steps=5 --out DIR"),
        ("--set eval.num_problems=5 --from 2", f"swerve eval {run} eval.num_problems=5"),
        ("--set stages.rl.optimizer.lr=1", "without its name: --set optimizer.lr=1"),
    ):
        with pytest.raises(ConfigError) as raised:
            run_command(["replay", str(small_run.path), *line.split()])
        assert str(raised.value).endswith(f": {said}".replace(": without", ", without"))
    for changes, said in (
        ({"kl.kind": "loss", "optimizer.lr": 1}, "start=2, settings={'kl.kind': 'loss', 'optimizer.lr': 1})"),
        ({"seed": 99}, "/config.yaml', seed=99, out=DIR)"),
    ):
        with pytest.raises(ConfigError) as raised:
            swerve.replay(small_run, changes, start=2)
        assert str(raised.value).endswith(said)
    with pytest.raises(ConfigError, match="unknown key 'zebra'"):
        swerve.replay(small_run, "zebra=3")


def test_what_is_written_is_nobody_elses(copied: RunDirectory) -> None:
    folder, asked = copied.path / "replay", {"start": 2, "taught": "solution"}
    folder.write_text("mine")
    with pytest.raises(ConfigError, match="replay is no folder, and replays are kept there; move it away"):
        swerve.replay(copied, **asked)
    folder.unlink()
    folder.mkdir()
    (folder / "2-4-recorded-solution.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"solution.json has no digest .*; move it away, and it is made again"):
        swerve.replay(copied, **asked)
    (folder / "2-4-recorded-solution.json").unlink()
    name = "replay/.2-4-recorded-solution.lock"
    with (
        copied.lock(name=name),
        pytest.raises(ArtifactError, match=r"solution.json is in use by .*; wait for it or stop"),
    ):
        swerve.replay(copied, **asked)
    partial = folder / "2-4-recorded-solution-removed.partial"
    partial.mkdir()
    (partial / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"removed.partial exists and is no interrupted work of swerve; move it away"):
        swerve.replay(copied, **asked)


def test_labels_begin_a_change_too(small_run: RunDirectory) -> None:
    config = load_config(small_run)
    for start, first, label in (("dpo", 0, "dpo-2"), ("dpo-2", 0, "dpo-2"), ("rl-2", 2, "rl-2"), ("3", 3, "rl-2")):
        stretch = Stretch.of(config, small_run, start, None)
        assert stretch.start is not None
        assert (stretch.first, stretch.stop, stretch.start.label) == (first, 4, label)
    for start in ("rl", "sft-100"):
        with pytest.raises(ConfigError, match="0 to 3; --from 0 begins with the stage"):
            Stretch.of(config, small_run, start, None)
    with pytest.raises(CheckpointError, match="has no checkpoint 'dpo-3'; it has sft-100, sft-220, dpo-2"):
        Stretch.of(config, small_run, "dpo-3", None)


def test_what_cannot_be_is_said_before_torch_is_imported(copied: RunDirectory) -> None:
    copied.rollouts_path(FIRST + 4).unlink()
    asked = {
        "--from none": "has no checkpoint 'none'",
        "--from 0 --without kind=none": "the training problems are of the kinds 0 carries",
        "--from 0 --without group=9": "has no group 9",
        "--from 0 --flip 3": "is not GROUP.SAMPLE",
        "--from 0 --set kl.coof=1": "kl.coof",
        "--from 1 --set optimizer.lr=1": "step 1 has no checkpoint; the last one before it is of step 0: --from 0",
        "--from 3 --flip 0.0": "step_000226.parquet is missing",
        "--from 9 --flip 0.0": "0 to 3",
        "--from 0 --to 9 --flip 0.0": "is not after step 0",
        "--from 0 --taught carry": "must be first_wrong or solution",
        "--from 0 --taught first_wrong": "has no target first_wrong: probe it first",
        "--to 3": "are of a replay with a change",
    }
    lines = [["replay", str(copied.path), *line.split(" ")] for line in asked]
    code = (
        "import sys; from swerve.cli.app import run_command; from swerve.errors import SwerveError\n"
        f"for line in {lines!r}:\n"
        "    try: run_command(line)\n"
        "    except SwerveError as error: print(error)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    *messages, imported = done.stdout.splitlines()
    assert imported == "False False"
    for message, wanted in zip(messages, asked.values(), strict=True):
        assert wanted in message
