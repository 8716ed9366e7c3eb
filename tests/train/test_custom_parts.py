"""Stages with parts of the user's own: those of the documentation train, and a changed file is refused on resuming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.eval.heldout import evaluate_run
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
from tests.json_lines import write_json_lines

FILES = ("my_loss.py", "my_advantages.py", "my_kl.py", "my_engine.py")


@pytest.fixture
def document(small_run, custom_parts, tmp_path, monkeypatch):
    """The parts of the documentation in a recipe; the files are in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_bytes((custom_parts / name).read_bytes())
    stage = {
        "kind": "rl",
        "steps": 2,
        "prompts_per_step": 4,
        "samples_per_prompt": 4,
        "num_minibatches": 2,
        "optimizer": {"lr": 1e-3},
        "loss": {"kind": "custom", "path": "my_loss.py:soft_clip_loss", "options": {"width": 0.3}},
        "advantages": {"kind": "custom", "path": "my_advantages.py:rank_advantages"},
        "kl": {"kind": "custom", "path": "my_kl.py:KlInAdvantages", "coef": 0.05, "options": {"wrong": 2.0}},
    }
    return {
        "seed": 5,
        "task": {"kind": "addition", "digits": 2, "num_train": 100, "num_heldout": 24, "mistake_rate": 0.5},
        "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
        "max_new_tokens": 36,
        "stages": [stage],
        "rollout": {"engine": {"kind": "custom", "path": "my_engine.py:GenerateEngine"}},
        "eval": {"num_problems": 4, "samples_per_problem": 2},
        "runtime": {"device": "cpu", "threads": 1},
    }


def _load(document, *overrides):
    with open("recipe.yaml", "w", encoding="utf-8") as stream:
        yaml.safe_dump(document, stream)
    return load_config("recipe.yaml", overrides)


def _train(config, run, *, resume=False):
    train_run(config, run, resume=resume, progress=SilentProgress())
    return run


def test_parts_of_the_users_own_train_evaluate_and_are_held_to_their_files(document, tmp_path):
    config = _load(document)
    assert config.stages[0].zero_variance == "keep"
    run = _train(config, RunDirectory(Path("run")))
    first, second = read_metrics(run.metrics_path)
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)  # the policy is its reference still
    assert abs(second["kl"]) > 1e-5
    assert second["kl_coef"] == 0.05
    assert max(first["logprob_gap"], second["logprob_gap"]) < 1e-4
    assert first["clipped_share"] is None
    assert [one.checkpoint for one in evaluate_run(config, run, progress=SilentProgress())] == ["base", "rl-2"]
    recorded = run.read_provenance()["custom"]
    assert list(recorded) == ["rollout.engine", "stages.rl.advantages", "stages.rl.loss", "stages.rl.kl"]
    _train(config, run, resume=True)
    # A file that was edited is refused before it runs.
    marker = tmp_path / "it-ran"
    edited = (tmp_path / "my_loss.py").read_text() + f"\nopen({str(marker)!r}, 'w').close()\n"
    (tmp_path / "my_loss.py").write_text(edited)
    with pytest.raises(ConfigError, match=r"cannot resume run: the code or data of stages\.rl\.loss has changed since"):
        _train(config, run, resume=True)
    assert not marker.exists()


def test_changed_problems_of_a_file_are_not_trained_on_and_are_evaluated_again(document, tmp_path):
    def write(name, *answers):
        rows = [{"question": f"{n} 2 + 3 4 =", "answer": answer, "solution": "1"} for n, answer in enumerate(answers)]
        write_json_lines(tmp_path / name, rows)

    write("train.jsonl", "3 6", "4 6", "5 6")
    write("heldout.jsonl", "3 6")
    document["task"] = {"kind": "table", "train": "train.jsonl", "heldout": "heldout.jsonl"}
    stage = {"kind": "sft", "steps": 1, "optimizer": {"lr": 1e-3}}
    config = _load({**document, "stages": [stage], "rollout": {"engine": "torch"}})
    run = _train(config, RunDirectory(Path("run")))
    base, before = evaluate_run(config, run, progress=SilentProgress())
    with (tmp_path / "train.jsonl").open("a") as stream:
        stream.write("\n")  # the same problems
    _train(config, run, resume=True)
    assert evaluate_run(config, run, progress=SilentProgress()) == [base, before]
    write("heldout.jsonl", "9 9")
    _, after = evaluate_run(config, run, progress=SilentProgress())
    digests = [one.settings.pop("problems_sha256") for one in (before, after)]
    assert digests[0] != digests[1]
    assert before.settings == after.settings
    write("train.jsonl", "3 6", "4 6", "5 7")
    with pytest.raises(
        ConfigError, match="cannot resume run: its training problems, or what grades them, have changed"
    ):
        _train(config, run, resume=True)


def test_a_changed_reward_file_is_refused_before_it_runs(document, tmp_path, monkeypatch):
    reward = tmp_path / "reward.py"
    reward.write_text("def reward(problem, text):\n    return 1.0\n")
    for name, answer in (("train", "4 6"), ("heldout", "3 6")):
        row = {"question": f"{answer} + 0 0 =", "answer": answer, "solution": "1"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    document["task"] = {
        "kind": "table",
        "train": "train.jsonl",
        "heldout": "heldout.jsonl",
        "grader": "python",
        "reward_file": "reward.py",
    }
    stage = {"kind": "sft", "steps": 1, "optimizer": {"lr": 1e-3}}
    config = _load({**document, "stages": [stage], "rollout": {"engine": "torch"}})
    run, ran = RunDirectory(Path("run")), []
    monkeypatch.setattr("swerve.rewards.python_file.check_reward_file", ran.append)
    _train(config, run)
    reward.write_text("def reward(problem, text):\n    return 0.0\n")
    del ran[:]
    with pytest.raises(ConfigError, match="or what grades them, have changed"):
        _train(config, run, resume=True)
    assert ran == []


def test_custom_parts_that_do_what_the_shipped_ones_do_give_the_same_weights(document, tmp_path):
    (tmp_path / "same.py").write_text(
        "from swerve.functional import clip_loss, dr_grpo_advantages\n"
        "from swerve.rollout import TorchEngine\n"
        "from swerve.train.kl import SampledKl\n"
        "from swerve.functional import kl_estimate\n"
        "class Kl(SampledKl):\n"
        "    def in_loss(self, logits, logprobs, old, tokens, ref_logits):\n"
        "        return kl_estimate(logprobs[None], tokens.ref_logprobs[None], estimator='k3')[0]\n"
    )
    (stage,) = document["stages"]
    own = {
        "loss": {"kind": "custom", "path": "same.py:clip_loss", "options": {"low": 0.1}},
        "advantages": {"kind": "custom", "path": "same.py:dr_grpo_advantages"},
        "kl": {"kind": "custom", "path": "same.py:Kl", "coef": 0.1},
    }
    shipped = {
        "loss": {"kind": "clip", "low": 0.1},
        "advantages": "dr_grpo",
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.1},
    }
    document["rollout"]["engine"]["path"] = "same.py:TorchEngine"
    ours = _train(_load({**document, "stages": [{**stage, **own}]}), RunDirectory(Path("own")))
    theirs = _train(
        _load({**document, "stages": [{**stage, **shipped}], "rollout": {"engine": "torch"}}),
        RunDirectory(Path("shipped")),
    )
    assert ours.select_checkpoint("rl").weights_sha256 == theirs.select_checkpoint("rl").weights_sha256
    assert [record["kl"] for record in read_metrics(ours.metrics_path)] == [
        record["kl"] for record in read_metrics(theirs.metrics_path)
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.rl.loss.path=my_loss.py:soft", r"^stages\.rl\.loss: .*my_loss\.py has no function or class 'soft'"),
        (
            "stages.rl.kl.path=my_engine.py:GenerateEngine",
            r"^stages\.rl\.kl: .* inherits from swerve\.train\.kl\.KlTerm$",
        ),
        ("stages.rl.kl.options={wrng: 1}", r"^stages\.rl\.kl: .*unexpected keyword argument 'wrng'"),
        ("rollout.engine.options={top: 1}", r"^rollout\.engine: .*unexpected keyword argument 'top'"),
        ("rollout.engine.path=swerve.rollout:Engine", r"^rollout\.engine: .* must define generate"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused_before_there_is_a_run(document, override, message):
    config = _load(document, override)
    run = RunDirectory(Path("run"))
    with pytest.raises(ConfigError, match=message):
        _train(config, run)
    assert not run.path.exists()


def test_a_path_of_another_form_is_refused_with_the_recipe(document):
    with pytest.raises(ConfigError, match=r"'stages\.rl\.loss\.path': must have the form FILE\.py:NAME or package"):
        _load(document, "stages.rl.loss.path=my_loss.py")
