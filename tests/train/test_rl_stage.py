"""Whole RL and distillation stages: references, refills, coefficients, collapses, resumption, processes."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.engines import TorchEngineConfig
from swerve.errors import CollapseError, ConfigError
from swerve.models.model_folder import load_model, weights_fingerprint
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.checks import check_recipe
from swerve.train.health import collapse
from swerve.train.health.collapse import Collapse
from swerve.train.learner import Learner, NotFiniteError
from swerve.train.loop import train_run
from tests.builders import Notes, figures
from tests.json_lines import write_json_lines

RL = {"kind": "rl", "steps": 3, "prompts_per_step": 6, "samples_per_prompt": 4, "optimizer": {"lr": 1e-4}}


@pytest.fixture
def recipe(small_run, tmp_path):
    """Write a recipe whose stages begin with the supervised model of the small run."""

    def write(*stages: dict[str, object]):
        document = {
            "name": "stages",
            "seed": 5,
            "task": {"kind": "addition", "digits": 2, "num_train": 100, "num_heldout": 24, "mistake_rate": 0.5},
            "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
            "max_new_tokens": 36,
            "stages": list(stages),
            "runtime": {"device": "cpu", "threads": 1, "max_rows": 64},
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def _train(path, run, *, resume=False, progress=None):
    run = RunDirectory(run)
    train_run(load_config(path), run, resume=resume, progress=progress or SilentProgress())
    return run


def test_the_kl_to_the_policy_at_the_start_begins_at_zero_and_grows(recipe, tmp_path):
    kl = {"kind": "loss", "estimator": "exact_reverse", "coef": 0.01}
    run = _train(recipe({**RL, "optimizer": {"lr": 1e-3}, "kl": kl}), tmp_path / "run")
    divergences = [record["kl"] for record in read_metrics(run.metrics_path)]
    assert divergences[0] == 0
    assert all(0.001 < divergence < 0.5 for divergence in divergences[1:])


def test_a_reference_can_be_another_checkpoint(recipe, small_run, tmp_path):
    kl = {"kind": "reward", "coef": 1e-6, "reference": str(small_run.checkpoint_path(100))}
    run = _train(recipe({**RL, "steps": 1, "kl": kl}), tmp_path / "run")
    assert read_metrics(run.metrics_path)[0]["kl"] > 0.01


def test_a_reference_with_another_tokenizer_is_refused(recipe, tiny, tmp_path):
    for part in tiny:
        part.save_pretrained(tmp_path / "other")
    kl = {"kind": "loss", "reference": str(tmp_path / "other")}
    with pytest.raises(ConfigError, match="rl.kl.reference=.*other: its tokenizer is not the one of the model in tra"):
        _train(recipe({**RL, "kl": kl}), tmp_path / "run")


ONE = {"steps": 1, "optimizer": {"lr": 1e-4}}


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ({**RL, "kl": {"kind": "loss", "reference": "sftt"}}, "stages.rl.kl.reference=sftt: .* did you mean 'sft'?"),
        ({"kind": "distill", **ONE, "teacher": "./none"}, "distill.teacher=./none: there is no such folder"),
        ({"kind": "distill", **ONE, "teacher": "sft-2"}, "teacher=sft-2: stage 'sft' keeps no checkpoint after step 2"),
        ({"kind": "reject", **ONE, "teacher": "a b"}, "stages.reject.teacher=a b: there is no such folder"),
    ],
)
def test_a_model_that_is_not_there_is_found_before_the_first_step(recipe, tmp_path, last, message):
    path = recipe({"kind": "sft", **ONE}, last)
    with pytest.raises(ConfigError, match=message):
        check_recipe(load_config(path))
    with pytest.raises(ConfigError, match=message):
        _train(path, tmp_path / "run")
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_refilled_groups_replace_those_that_agree(recipe, tmp_path):
    plain = _train(recipe({**RL, "zero_variance": "drop"}), tmp_path / "drop")
    refilled = _train(recipe({**RL, "zero_variance": "refill", "max_refills": 8}), tmp_path / "refill")
    for before, after in zip(read_metrics(plain.metrics_path), read_metrics(refilled.metrics_path), strict=True):
        assert after["num_used_rollouts"] == 24
        assert after["num_groups"] - after["num_zero_variance_groups"] == 6
        assert after["num_refills"] <= 8
        assert bool(after["num_refills"]) == (
            before["num_used_rollouts"] < 24 if before["step"] == 1 else after["num_groups"] > 6
        )
        rows = read_table(refilled.rollouts_path(after["step"]), ROLLOUTS_SCHEMA).to_pylist()
        assert len(rows) == 4 * after["num_groups"]
        groups = [row["group"] for row in rows]
        assert groups == sorted(groups)
        assert len({(row["group"], row["problem_id"]) for row in rows}) == len({row["group"] for row in rows})


def test_rollouts_hold_the_signal_of_each_token_and_none_where_the_update_left_them_out(recipe, tmp_path):
    stage = {**RL, "steps": 2, "loss": {"kind": "clip"}, "num_epochs": 2, "kl": {"kind": "loss", "coef": 0.01}}
    run = _train(recipe({**stage, "zero_variance": "drop"}), tmp_path / "run")
    for record in read_metrics(run.metrics_path):
        rows = read_table(run.rollouts_path(record["step"]), ROLLOUTS_SCHEMA).to_pylist()
        by_group: dict[int, list[float]] = {}
        for row in rows:
            by_group.setdefault(row["group"], []).append(row["reward"] or 0.0)  # a failure counts as 0
        used = [row for row in rows if len(set(by_group[row["group"]])) > 1]
        assert 0 < len(used) == record["num_used_rollouts"] < len(rows)
        for row in rows:
            names = ("advantages", "kl", "clipped")
            if len(set(by_group[row["group"]])) == 1:
                assert [row[name] for name in names] == [None, None, None]
                continue
            assert [len(row[name]) for name in names] == [len(row["completion_ids"])] * 3
            rewards = by_group[row["group"]]
            advantage = (row["reward"] or 0.0) - sum(rewards) / len(rewards)
            assert row["advantages"] == pytest.approx([advantage] * len(row["advantages"]), abs=1e-6)
        clipped = [value for row in used for value in row["clipped"]]
        assert sum(clipped) / len(clipped) == pytest.approx(record["clipped_share"], abs=1e-6)
    assert any(value > 0 for row in used for value in row["kl"])


def test_rollouts_of_an_update_that_fails_are_kept_to_look_at(recipe, tmp_path, monkeypatch):
    def fail(*_arguments, **_keys):
        raise NotFiniteError("the loss is not finite")

    monkeypatch.setattr(Learner, "update", fail)
    with pytest.raises(NotFiniteError):
        _train(recipe(RL), tmp_path / "run")
    rows = read_table(RunDirectory(tmp_path / "run").rollouts_path(1), ROLLOUTS_SCHEMA).to_pylist()
    assert len(rows) == 24
    assert all(row["advantages"] is None for row in rows)


def test_a_reward_beyond_single_precision_is_named(recipe, tmp_path):
    rows = [{"question": f"{n} {n} + 1 {n} =", "answer": "0"} for n in range(1, 9)]
    write_json_lines(tmp_path / "problems.jsonl", rows)
    (tmp_path / "reward.py").write_text("def reward(problem, text):\n    return 1e300 * (sum(map(ord, text)) % 2)\n")
    path = recipe({**RL, "prompts_per_step": 4})
    document = yaml.safe_load(path.read_text())
    document["task"] = {"kind": "table", "train": str(tmp_path / "problems.jsonl"), "num_heldout": 2}
    document["task"] |= {"grader": "python", "reward_file": str(tmp_path / "reward.py")}
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(NotFiniteError, match=r"a reward of 1e\+300 is too large .*; scale what the grader returns"):
        _train(path, tmp_path / "run")


class _CopyEngine(TorchEngine):
    """Samples with a copy of the policy, as an engine in another process does; writes down what is asked of it."""

    calls: ClassVar[list[Any]] = []

    def __init__(self, model: Any, **options: Any) -> None:
        self._own = copy.deepcopy(model)
        super().__init__(self._own, **options)
        self.calls.append("make")

    def generate(self, *arguments: Any, **options: Any) -> Any:
        if self.calls[-1] != "generate":
            self.calls.append("generate")
        return super().generate(*arguments, **options)

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        tensors = dict(weights)
        assert self._own.state_dict().keys() - tensors.keys() == {"lm_head.weight"}  # tied to the embeddings
        self._own.load_state_dict(tensors, strict=False)
        self.calls.append(("load", version))

    def sleep(self) -> None:
        self.calls.append("sleep")

    def wake(self) -> None:
        self.calls.append("wake")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def copy_engine(monkeypatch):
    """Put `_CopyEngine` in the place of the embedded engine; return the list of calls, those of updates included."""
    update = Learner.update

    def recorded(learner: Learner, *arguments: Any, **options: Any) -> Any:
        _CopyEngine.calls.append("update")
        return update(learner, *arguments, **options)

    monkeypatch.setitem(sys.modules, "copy_engine", SimpleNamespace(_CopyEngine=_CopyEngine))
    monkeypatch.setattr(TorchEngineConfig, "path", "copy_engine:_CopyEngine")
    monkeypatch.setattr(Learner, "update", recorded)
    monkeypatch.setattr(_CopyEngine, "calls", [])
    return _CopyEngine.calls


def test_an_engine_with_weights_of_its_own_samples_what_the_embedded_one_does(recipe, tmp_path, copy_engine):
    dpo = {"kind": "dpo", "steps": 2, "batch_size": 2, "max_prompts": 64, "optimizer": {"lr": 1e-4}}
    kl = {"kind": "loss", "coef": 0.01}
    path = recipe(dpo, {**RL, "kl": kl, "zero_variance": "refill", "max_refills": 2, "optimizer": {"lr": 1e-3}})
    run = _train(path, tmp_path / "own")
    sampled = ["wake", "generate", "sleep"]
    assert copy_engine == [
        "make",
        *(("load", 0), *sampled, "update", "update"),
        *(("load", 2), *sampled, "update"),
        *(("load", 3), *sampled, "update"),
        *(("load", 4), *sampled, "update"),
        "close",
    ]
    with pytest.MonkeyPatch.context() as embedded:
        embedded.setattr(TorchEngineConfig, "path", "swerve.rollout.torch_engine:TorchEngine")
        other = _train(path, tmp_path / "embedded")
    assert figures(run) == figures(other)
    assert run.select_checkpoint("rl").weights_sha256 == other.select_checkpoint("rl").weights_sha256
    for step in (3, 4, 5):
        assert run.rollouts_path(step).read_bytes() == other.rollouts_path(step).read_bytes()
        assert set(read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA)["version"].to_pylist()) == {step - 1}


def test_the_engine_is_closed_where_training_fails(recipe, tmp_path, copy_engine, monkeypatch):
    path = recipe(RL)
    monkeypatch.setattr("swerve.train.loop.judge_collapse", lambda *_arguments: pytest.fail("in step 1"))
    with pytest.raises(pytest.fail.Exception):
        _train(path, tmp_path / "run")
    assert copy_engine == ["make", ("load", 0), "wake", "generate", "sleep", "update", "close"]


def test_refills_are_bounded(recipe, tmp_path):
    run = _train(recipe({**RL, "steps": 1, "zero_variance": "refill", "max_refills": 1}), tmp_path / "run")
    (record,) = read_metrics(run.metrics_path)
    assert record["num_refills"] == 1
    assert 6 < record["num_groups"] < 12


def test_coefficients_follow_what_was_measured(recipe, tmp_path):
    stage = {
        **RL,
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.5, "target": 0.5, "horizon": 100.0},
        "entropy": {"coef": 0.001, "target": 9.0, "target_step": 0.002},
    }
    records = read_metrics(_train(recipe(stage), tmp_path / "run").metrics_path)
    # Far below its target, the KL's coefficient falls by 0.2 x 24 / 100 a step.
    assert [record["kl_coef"] for record in records] == pytest.approx([0.5, 0.5 * 0.952, 0.5 * 0.952**2])
    assert [record["entropy_coef"] for record in records] == pytest.approx([0.001, 0.003, 0.005])


STATEFUL = {
    **RL,
    "steps": 6,
    "advantages": {"kind": "gae"},
    "loss": {"kind": "clip"},
    "num_epochs": 2,
    "num_minibatches": 2,
    "kl": {"kind": "loss", "estimator": "exact_forward", "coef": 0.1, "target": 0.001},
    "entropy": {"coef": 0.01, "target": 0.2, "top_share": 0.5},
    "zero_variance": "refill",
    "max_refills": 2,
    "save_every": 1,
}


def test_a_stage_with_all_kinds_of_state_resumes_exactly(recipe, tmp_path, monkeypatch):
    path = recipe(STATEFUL)
    whole = _train(path, tmp_path / "whole")

    class Stopped(BaseException):
        pass

    def stop_after_three(run, record):
        appended.append(record)
        if len(appended) == 4:
            raise Stopped
        return original(run, record)

    import swerve.train.loop as loop

    appended: list[object] = []
    original = loop.append_metrics
    monkeypatch.setattr(loop, "append_metrics", stop_after_three)
    with pytest.raises(Stopped):
        _train(path, tmp_path / "parts")
    monkeypatch.setattr(loop, "append_metrics", original)
    parts = _train(path, tmp_path / "parts", resume=True)
    assert figures(parts) == figures(whole)
    assert parts.select_checkpoint("rl").weights_sha256 == whole.select_checkpoint("rl").weights_sha256


def _collapse_at(monkeypatch, steps: Sequence[int], since: int = 3) -> None:
    def detect(records, _config):
        step = records[-1]["stage_step"]
        return Collapse(sign="reward", message="the reward fell", since=since) if step in steps else None

    monkeypatch.setattr(collapse, "detect_collapse", detect)


def test_a_collapse_is_named_and_training_goes_on(recipe, tmp_path, monkeypatch):
    _collapse_at(monkeypatch, [2])
    notes = Notes()
    run = _train(recipe(RL), tmp_path / "run", progress=notes)
    assert [record.get("collapse") for record in read_metrics(run.metrics_path)] == [None, "reward", None]
    assert "rl step 2: the reward fell" in notes.notes


def test_a_collapse_stops_training_where_the_recipe_says_so(recipe, tmp_path, monkeypatch):
    _collapse_at(monkeypatch, [2])
    path = recipe({**RL, "collapse": {"action": "stop"}})
    with pytest.raises(CollapseError, match="stage 'rl' collapsed at its step 2: the reward fell; the state is saved"):
        _train(path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    assert run.read_provenance()["status"] == "collapsed"
    assert [checkpoint.label for checkpoint in run.checkpoints] == ["rl-2"]
    _collapse_at(monkeypatch, [])
    _train(path, tmp_path / "run", resume=True)
    assert run.read_provenance()["status"] == "trained"
    assert len(read_metrics(run.metrics_path)) == 3


@pytest.mark.slow
def test_distillation_brings_the_student_to_its_teacher(recipe, small_run, tmp_path):
    """From the model after 100 supervised steps to the one after 220; the loss is the exact KL between them."""
    stage = {
        "kind": "distill",
        "steps": 40,
        "prompts_per_step": 6,
        "samples_per_prompt": 4,
        "optimizer": {"lr": 1e-3, "warmup_steps": 10},
        "teacher": str(small_run.checkpoint_path(220)),
    }
    path = recipe(stage)
    document = yaml.safe_load(path.read_text())
    document["model"]["path"] = str(small_run.checkpoint_path(100))
    path.write_text(yaml.safe_dump(document))
    records = read_metrics(_train(path, tmp_path / "run").metrics_path)
    assert records[0]["loss"] > 0.02
    assert sum(record["loss"] for record in records[-10:]) < 0.95 * sum(record["loss"] for record in records[:10])


def test_a_student_that_is_its_teacher_has_no_gradient(recipe, small_run, tmp_path):
    stage = {"kind": "distill", "steps": 1, "prompts_per_step": 2, "optimizer": {"lr": 1e-3}}
    for divergence in ("reverse", "forward", "js"):
        options = {**stage, "teacher": str(small_run.checkpoint_path(220)), "divergence": divergence}
        (record,) = read_metrics(_train(recipe(options), tmp_path / divergence).metrics_path)
        assert record["loss"] == 0
        assert record["grad_norm"] < 1e-6


def test_a_teacher_can_be_an_earlier_stage_of_the_run(recipe, tmp_path):
    stage = {"kind": "distill", "steps": 1, "prompts_per_step": 2, "optimizer": {"lr": 1e-3}, "teacher": "rl"}
    run = _train(recipe({**RL, "steps": 1}, stage), tmp_path / "run")
    assert read_metrics(run.metrics_path)[-1]["loss"] == 0


def test_supervised_training_by_the_greedy_losses_moves_the_model(recipe, small_run, tmp_path):
    stage = {"kind": "sft", "steps": 6, "batch_size": 16, "optimizer": {"lr": 3e-3}}
    losses = {}
    for loss in ("cross_entropy", "greedy_kl", "greedy_js"):
        run = _train(recipe({**stage, "loss": loss}), tmp_path / loss)
        losses[loss] = [record["loss"] for record in read_metrics(run.metrics_path)]
        before = load_model(small_run.checkpoint_path(220), device="cpu", dtype="float32").model
        after = load_model(run.select_checkpoint("sft").path, device="cpu", dtype="float32").model
        assert weights_fingerprint(before) != weights_fingerprint(after)
    assert losses["greedy_js"][0] < losses["greedy_kl"][0] < losses["cross_entropy"][0]


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_make_the_same_updates_of_every_kind(on_two_processes, recipe, tmp_path):
    """Whitening, minibatches, token ranking, values, refills: everything that looks across processes."""
    shared = {**RL, "steps": 2, "prompts_per_step": 5}
    stages = [
        {**shared, "name": "a", "advantages": {"kind": "reinforce_pp"}, "kl": {"kind": "reward"}, "num_minibatches": 2},
        {**shared, "name": "b", "advantages": {"kind": "gae"}, "loss": {"kind": "clip"}, "num_epochs": 2},
        {
            **shared,
            "name": "c",
            "entropy": {"top_share": 0.3},
            "zero_variance": "refill",
            "kl": {"kind": "loss", "estimator": "exact_js", "target": 0.1},
        },
        {**shared, "name": "d", "loss": {"kind": "max_prob_kl", "normalize": "correct"}},
        {**shared, "name": "e", "loss": {"kind": "gspo"}, "num_epochs": 2, "prompts_per_step": 2},
    ]
    path = recipe(*stages)
    alone = _train(path, tmp_path / "alone")
    on_two_processes("-m", "swerve", "train", path, "--out", tmp_path / "together")
    together = RunDirectory(tmp_path / "together")
    for one, two in zip(figures(alone), figures(together), strict=True):
        assert two.keys() == one.keys()
        for name, value in one.items():
            if name != "logprob_gap":  # rounding itself
                expected = pytest.approx(value, rel=2e-3, abs=3e-5) if isinstance(value, float) else value
                assert two[name] == expected, (one["stage"], one["stage_step"], name)
    for step in range(1, 11):
        rows = [read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA).to_pylist() for run in (alone, together)]
        assert [row["completion_ids"] for row in rows[0]] == [row["completion_ids"] for row in rows[1]]
        for one, two in zip(*rows, strict=True):
            for name in ("advantages", "kl"):
                expected = None if one[name] is None else pytest.approx(one[name], rel=5e-3, abs=1e-4)
                assert two[name] == expected, (step, name)
    assert json.loads((together.path / "run.json").read_text())["status"] == "trained"


@pytest.mark.parametrize("kind", ["rl", "distill"])
def test_the_last_step_of_an_epoch_has_the_problems_that_are_left(recipe, small_run, tmp_path, kind):
    stage = {**RL, "kind": kind, "steps": None, "epochs": 0.08}  # 8 of 100, 6 a step
    more = {"teacher": str(small_run.checkpoint_path(100))} if kind == "distill" else {"num_minibatches": 3}
    run = _train(recipe({**stage, **more}), tmp_path / "run")
    read = [read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA).to_pylist() for step in (1, 2)]
    assert [len(rows) for rows in read] == [24, 8]
    assert len({row["problem_id"] for rows in read for row in rows}) == 8
    assert read_metrics(run.metrics_path)[1]["num_tokens"] == sum(len(row["completion_ids"]) for row in read[1])
    full = _train(recipe({**RL, **more, "kind": kind, "steps": 1}), tmp_path / "full")
    assert read[0] == read_table(full.rollouts_path(1), ROLLOUTS_SCHEMA).to_pylist()
