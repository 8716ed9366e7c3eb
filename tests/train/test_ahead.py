"""Rollouts one step ahead, and engines with weights of their own in whole runs."""

from __future__ import annotations

import copy
import sys
import threading
from functools import partial
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
import yaml

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.batch import completion_logits, token_batches
from swerve.config.engines import TorchEngineConfig
from swerve.errors import ArtifactError, EngineError
from swerve.functional import token_logprobs
from swerve.models.model_folder import load_model, load_tokenizer
from swerve.probe.rollouts.recorded import training_rollouts
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.torch_engine import TorchEngine
from swerve.train import loop
from swerve.train.learner import Learner
from swerve.train.loop import train_run
from swerve.train.sampling import StepSampler
from tests.campaign.states import contents, differences

RL = {"kind": "rl", "steps": 4, "prompts_per_step": 4, "samples_per_prompt": 4, "optimizer": {"lr": 1e-3}}
KEEP = {"checkpoints": [1, 2, 3]}


@pytest.fixture
def start(small_run, tmp_path):
    """Train stages from the supervised model of the small run, one step ahead; return the run."""

    def run(
        name: str, *stages: dict[str, Any], resume: bool = False, progress: Any = None, **keys: Any
    ) -> RunDirectory:
        document = {
            "name": "ahead",
            "seed": 5,
            "task": {"kind": "addition", "digits": 2, "num_train": 400, "num_heldout": 24, "mistake_rate": 0.5},
            "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
            "max_new_tokens": 36,
            "stages": list(stages),
            "runtime": {"device": "cpu", "threads": 1, "max_rows": 64},
            "rollout": {"ahead": 1},
            **keys,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(document))
        directory = RunDirectory(tmp_path / name)
        train_run(load_config(path), directory, resume=resume, progress=progress or SilentProgress())
        return directory

    return run


def _versions(run: RunDirectory, steps: int) -> list[set[int]]:
    return [set(_rows(run, step, "version")) for step in range(1, steps + 1)]


def _rows(run: RunDirectory, step: int, name: str) -> list[Any]:
    return read_table(run.rollouts_path(step), ROLLOUTS_SCHEMA)[name].to_pylist()


def _metric(run: RunDirectory, name: str) -> list[Any]:
    return [record.get(name) for record in read_metrics(run.metrics_path)]


def _logprobs(run: RunDirectory, step: int, checkpoint: Path) -> float:
    """Return the largest difference of a step's recorded log-probabilities from those of a checkpoint."""
    model = load_model(checkpoint, device="cpu", dtype="float32").model.eval()
    sequences = list(zip(_rows(run, step, "prompt_ids"), _rows(run, step, "completion_ids"), strict=True))
    (batch,) = token_batches(sequences, pad_id=0, in_order=True)
    with torch.inference_mode():
        found = token_logprobs(completion_logits(model, batch), batch.completion_ids)[batch.mask]
    recorded = torch.tensor([value for row in _rows(run, step, "logprobs") for value in row])
    return float((found - recorded).abs().max())


def test_each_step_but_the_first_is_sampled_with_the_weights_before_the_last_update(start):
    run = start("run", {**RL, **KEEP})
    assert _versions(run, 4) == [{0}, {0}, {1}, {2}]
    assert _metric(run, "staleness") == [0.0, 1.0, 1.0, 1.0]
    assert _logprobs(run, 3, run.checkpoint_path(1)) < 1e-4 < 0.05 < _logprobs(run, 3, run.checkpoint_path(2))
    # The two policies differ, and that is what sampler and trainer now differ by.
    gaps = _metric(run, "logprob_gap")
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 1e-3
    on_policy = start("on_policy", RL, rollout={})
    assert run.rollouts_path(1).read_bytes() == on_policy.rollouts_path(1).read_bytes()
    assert _metric(on_policy, "staleness") == [0.0] * 4
    assert _versions(on_policy, 4) == [{0}, {1}, {2}, {3}]
    # Both are what the probe reads as rollouts of training, and neither passes for the other.
    for one, other in ((run, on_policy), (on_policy, run)):
        config, tokenizer = load_config(one.path / "config.yaml"), load_tokenizer(one.checkpoint_path(4))
        read = partial(
            training_rollouts, stage="rl", family=load_family(config.task), tokenizer=tokenizer, max_rollouts=32
        )
        assert len(read(config, one).sequences) == 32
        if one is on_policy:
            with pytest.raises(ArtifactError, match="was sampled by the weights of step 0, not by those before step 2"):
                read(config, other)
    # Only the weights differ: the same problems and as many rollouts.
    assert [_rows(run, step, "problem_id") for step in range(1, 5)] == [
        _rows(on_policy, step, "problem_id") for step in range(1, 5)
    ]


def test_entropies_are_asked_for_where_the_update_can_leave_completions_unread(start, monkeypatch):
    asked: list[bool] = []
    generate = TorchEngine.generate

    def noted(engine: TorchEngine, prompts: Any, params: Any, **more: Any) -> Any:
        asked.append(params.with_entropy)
        return generate(engine, prompts, params, **more)

    monkeypatch.setattr(TorchEngine, "generate", noted)
    stage = {**RL, "steps": 2}
    start("ahead", {**stage, "zero_variance": "keep"})  # the second step's rollouts are of weights that are gone
    assert asked == [True, False]
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"zero_variance": "keep"}, True),
        ({"loss": {"kind": "max_prob_kl"}}, True),
        ({"zero_variance": "keep", "num_epochs": 2}, False),
    ]
    for number, (changes, expected) in enumerate(cases):
        asked.clear()
        start(f"fresh{number}", {**stage, **changes}, rollout={})
        assert asked == [expected] * 2, changes


def test_every_stage_and_phase_begins_with_its_own_policy_and_nothing_is_sampled_for_no_step(start, monkeypatch):
    sampled: list[tuple[str, int]] = []
    original = StepSampler._refilled

    def noted(sampler: StepSampler, rollouts: Any, index: int, *arguments: Any) -> Any:
        sampled.append((sampler._stage.label, index))
        return original(sampler, rollouts, index, *arguments)

    monkeypatch.setattr(StepSampler, "_refilled", noted)
    phases = [{"steps": 2}, {"steps": 2, "samples_per_prompt": 6, "temperature": 1.3}]
    distill = {"kind": "distill", "steps": 2, "prompts_per_step": 2, "teacher": "rl", "optimizer": {"lr": 1e-3}}
    stage = {name: value for name, value in RL.items() if name != "steps"}
    run = start("run", {**stage, "phases": phases}, distill)
    assert _metric(run, "staleness") == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    assert _versions(run, 6) == [{0}, {0}, {2}, {2}, {4}, {4}]
    assert sampled == [*(("rl", index) for index in range(4)), ("distill", 0), ("distill", 1)]


STATEFUL = {
    **RL,
    "loss": {"kind": "clip"},
    "num_minibatches": 2,
    "correction": {"kind": "tis", "level": "sequence"},
    "zero_variance": "refill",
    "max_refills": 2,
    "curriculum": {"kind": "success_rate"},
    "checkpoints": [2],
    "save_every": 1,
}


class _Killed(BaseException):
    pass


def _kill_after(monkeypatch: Any, lines: int) -> None:
    """Let training be killed where it is about to write this line of the metrics."""
    original, written = loop.append_metrics, []

    def append(path, record):
        if path.name == "metrics.jsonl":
            written.append(record)
            if len(written) == lines:
                raise _Killed
        return original(path, record)

    monkeypatch.setattr(loop, "append_metrics", append)


@pytest.fixture(scope="module")
def wholes() -> dict[str, dict[str, object]]:
    """The contents of uninterrupted runs, by name."""
    return {}


@pytest.mark.parametrize("line", [2, *(pytest.param(line, marks=pytest.mark.slow) for line in (1, 3, 4))])
def test_killed_and_resumed_it_ends_byte_for_byte_as_uninterrupted(start, wholes, tmp_path, monkeypatch, line):
    if "stateful" not in wholes:
        wholes["stateful"] = contents(start("whole", STATEFUL).path)
        assert any(_metric(RunDirectory(tmp_path / "whole"), "num_refills"))
    with monkeypatch.context() as killing, pytest.raises(_Killed):
        _kill_after(killing, line)
        start("parts", STATEFUL)
    run = start("parts", STATEFUL, resume=True)
    assert _metric(run, "staleness") == [0.0, 1.0, 1.0, 1.0]
    assert differences(contents(run.path), wholes["stateful"]) == []


def test_a_resumed_run_tosses_the_coins_of_a_control_again_and_records_the_graders_verdict(start, monkeypatch):
    stage = {**RL, "steps": 2, "reward": "random", "save_every": 1}
    whole = start("whole", stage)
    with monkeypatch.context() as killing, pytest.raises(_Killed):
        _kill_after(killing, 2)
        start("parts", stage)
    assert differences(contents(start("parts", stage, resume=True).path), contents(whole.path)) == []
    # Of 16 rollouts each: what was right, and what the coins gave.
    assert _metric(whole, "accuracy") == [sum(_rows(whole, step, "correct")) / 16 for step in (1, 2)]
    assert _metric(whole, "reward") == [10 / 16, 11 / 16]


class OwnWeights(TorchEngine):
    """Samples with a copy of the policy; in another thread it waits until an update has begun."""

    shares_weights, concurrent = False, True
    updating: ClassVar[threading.Event] = threading.Event()
    overlaps: ClassVar[list[bool]] = []
    loads: ClassVar[bool] = True
    shift: ClassVar[float] = 0.0

    def __init__(self, model: Any, **options: Any) -> None:
        self.own = copy.deepcopy(model)
        super().__init__(self.own, **options)

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        if self.loads or not version:
            self.own.load_state_dict(dict(weights), strict=False)

    def generate(self, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.overlaps.append(self.updating.wait(5.0))
        groups = super().generate(*arguments, **options)
        return [tuple(self._shifted(one) for one in group) for group in groups]

    def _shifted(self, one: Any) -> Any:
        """Return a completion whose last fifth of tokens has other log-probabilities."""
        last = len(one.token_ids) * 4 // 5
        logprobs = tuple(value - self.shift * (place >= last) for place, value in enumerate(one.logprobs))
        return type(one)(token_ids=one.token_ids, logprobs=logprobs, finish_reason=one.finish_reason)


@pytest.fixture
def own_weights(monkeypatch):
    """Put an engine with weights of its own in the place of the embedded one; return its class."""
    defaults = {"updating": threading.Event(), "overlaps": [], "loads": True, "shift": 0.0}
    for name, value in defaults.items():
        monkeypatch.setattr(OwnWeights, name, value)
    update = Learner.update

    def updating(learner: Learner, *arguments: Any, **options: Any) -> Any:
        OwnWeights.updating.set()
        result = update(learner, *arguments, **options)
        OwnWeights.updating.clear()
        return result

    monkeypatch.setattr(Learner, "update", updating)
    monkeypatch.setitem(sys.modules, "own_weights", SimpleNamespace(OwnWeights=OwnWeights))
    monkeypatch.setattr(TorchEngineConfig, "path", "own_weights:OwnWeights")
    return OwnWeights


def test_a_concurrent_engine_samples_while_the_policy_is_updated_and_nothing_else_changes(
    start, own_weights, monkeypatch
):
    stage = {**RL, **KEEP, "zero_variance": "keep"}
    run = start("beside", stage)
    assert own_weights.overlaps == [True] * 3
    assert max(_metric(run, "sync_logprob_difference_max")[:3]) < 1e-4
    assert _metric(run, "sync_logprob_difference")[3] is None  # the last step samples nothing
    assert min(_metric(run, "sync_seconds")[:3]) > 0
    monkeypatch.setattr(TorchEngineConfig, "path", "swerve.rollout.torch_engine:TorchEngine")
    before = start("before", stage)
    for step in range(1, 5):
        assert run.rollouts_path(step).read_bytes() == before.rollouts_path(step).read_bytes()
    assert run.select_checkpoint("rl").weights_sha256 == before.select_checkpoint("rl").weights_sha256
    assert not {name for record in read_metrics(before.metrics_path) for name in record if name.startswith("sync_")}


@pytest.mark.slow
def test_a_concurrent_engine_resumes_exactly(start, own_weights, tmp_path, monkeypatch):
    whole = start("whole", STATEFUL, eval={"every": 2, "num_problems": 4})
    with monkeypatch.context() as killing, pytest.raises(_Killed):
        _kill_after(killing, 4)
        start("parts", STATEFUL, eval={"every": 2, "num_problems": 4})
    parts = start("parts", STATEFUL, eval={"every": 2, "num_problems": 4}, resume=True)
    assert differences(contents(parts.path), contents(whole.path)) == []


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_engine_that_keeps_old_weights_stops_the_run_at_the_next_sync(start, own_weights, ahead):
    own_weights.loads = False
    message = (
        "^the engine OwnWeights does not sample with the policy's weights of version 1: .* differ from the trainer's"
    )
    with pytest.raises(EngineError, match=message):
        start("run", RL, rollout={"ahead": ahead})


def test_without_the_check_old_weights_show_in_the_metrics(start, own_weights):
    own_weights.loads = False
    run = start("unchecked", RL, rollout={"check": None})
    assert _metric(run, "sync_logprob_difference") == [None] * 4
    assert _metric(run, "logprob_gap")[3] > 2 * _metric(run, "logprob_gap")[1] > 0


def test_a_difference_that_lasts_stops_the_run_with_its_state_saved(start, own_weights):
    own_weights.shift = 2.0
    settings = {"check": None, "mismatch": {"stop": 0.2, "window": 2}}
    stage = {**RL, "steps": 3, "zero_variance": "keep", "optimizer": {"lr": 1e-5}}
    message = (
        "stage 'rl' stopped at its step 2: over the last 2 steps the log-probabilities of sampler and trainer differ "
        r"by 0\.\d+ nats per token, more than rollout.mismatch.stop=0.2; the state is saved"
    )
    with pytest.raises(EngineError, match=message):
        start("run", stage, rollout=settings)
    own_weights.shift = 0.0
    run = start("run", stage, rollout=settings, resume=True)
    records = read_metrics(run.metrics_path)
    assert [record.get("stopped_logprob_gap", 0) > 0.2 for record in records] == [False, True, False]
    first = records[0]
    assert 0.3 < first["logprob_gap"] < 0.6
    assert first["logprob_gap_max"] == pytest.approx(2.0, abs=1e-3)
    assert max(first[f"logprob_gap_q{quarter}"] for quarter in (1, 2, 3)) < 1e-4
    assert 1.4 < first["logprob_gap_q4"] < 2.001
    own_weights.shift = 2.0
    assert len(_metric(start("free", stage, rollout={**settings, "mismatch": None}), "step")) == 3


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_sample_ahead_as_one_does_and_resume(on_two_processes, start, tmp_path):
    stage = {**STATEFUL, "prompts_per_step": 3}
    alone = start("alone", stage)
    recipe = tmp_path / "recipe.yaml"
    together = RunDirectory(tmp_path / "together")
    on_two_processes("-m", "swerve", "train", recipe, "--out", together.path)
    assert _versions(together, 4) == _versions(alone, 4)
    for step in range(1, 5):
        assert _rows(together, step, "completion_ids") == _rows(alone, step, "completion_ids")
    expected = contents(together.path)
    for checkpoint in together.checkpoints[1:]:
        rmtree(checkpoint.path)
    on_two_processes("-m", "swerve", "train", together.path, "--resume")
    assert differences(contents(together.path), expected) == []
