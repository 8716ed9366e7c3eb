"""What is measured, kept and deleted while a run trains: none of it changes the training."""

from __future__ import annotations

import shutil
from functools import partial

import pytest
import torch

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.eval.heldout import evaluate_run
from swerve.models.model_folder import load_model, stop_ids
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.prompts.encode import encode_prompts
from swerve.recipes import load_config
from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine
from swerve.seeds import derive_seed
from swerve.train.loop import train_run
from tests.builders import Notes
from tests.campaign.kills import killed_at
from tests.campaign.states import contents, differences
from tests.models.test_weight_shards import CountedHashes

MICRO = """
name: micro
task: {kind: addition, digits: 2, num_train: 50, num_heldout: 6}
model: {kind: tiny, hidden_size: 16, num_heads: 2, num_kv_heads: 1, num_layers: 1, intermediate_size: 16}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 4, batch_size: 2, save_every: 1, optimizer: {lr: 1e-3}}
  - {kind: rl, steps: 5, prompts_per_step: 2, samples_per_prompt: 2, checkpoint_every: 1, zero_variance: keep,
     kl: {kind: loss, coef: 0.1}, entropy: {coef: 0.1}, optimizer: {lr: 1e-3}}
runtime: {device: cpu, threads: 1}
"""
LIVE = ["eval.every=2", "probe.every=2"]
RETENTION = ["retention.keep=2", "retention.save_optimizer=false"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train the recipe with overrides, once each; treat the runs as read-only."""
    folder, known = tmp_path_factory.mktemp("live"), {}
    (folder / "micro.yaml").write_text(MICRO)

    def run(*overrides):
        if overrides not in known:
            config = load_config(folder / "micro.yaml", overrides)
            directory = RunDirectory(folder / str(len(known)))
            train_run(config, directory, resume=False, progress=SilentProgress())
            known[overrides] = config, directory
        return known[overrides]

    return run


def _weights(run):
    return {one.label: one.weights_sha256 for one in run.checkpoints}


def _same(run, whole):
    assert differences(contents(run.path), contents(whole.path)) == []


def _cut_back(whole, path, last_step):
    """Copy a run as it was when killed after a step whose checkpoint is kept."""
    shutil.copytree(whole.path, path)
    run = RunDirectory(path)
    for one in run.checkpoints:
        if one.step > last_step:
            shutil.rmtree(one.path)
    return run


def test_evaluating_and_probing_while_training_changes_no_bit_of_it(trained):
    _, plain = trained()
    _, live = trained(*LIVE)
    assert _weights(live) == _weights(plain)
    assert len(set(_weights(plain).values())) == 6
    own = {"eval_accuracy", "eval_reward", "eval_num_tokens", "eval_entropy", "eval_truncated", "seconds"}
    measured = own | {"live_kl_forward", "live_kl_reverse", "live_js", "live_entropy"}
    for with_it, without in zip(read_metrics(live.metrics_path), read_metrics(plain.metrics_path), strict=True):
        assert {name: value for name, value in with_it.items() if name not in measured} == {
            name: value for name, value in without.items() if name != "seconds"
        }
    found = [sorted(record.keys() & measured - {"seconds"}) for record in read_metrics(live.metrics_path)]
    everything = sorted(measured - {"seconds"})
    assert found == [[], everything, [], everything, [], everything, [], everything, sorted(own - {"seconds"})]


def test_without_heldout_problems_it_is_refused_before_the_first_step(trained, tmp_path, monkeypatch):
    config, _ = trained(*LIVE)
    monkeypatch.setattr("swerve.train.watches.heldout_problems", lambda *_: [])
    with pytest.raises(ConfigError, match="task 'addition' has no held-out problems, which eval.every and probe.every"):
        train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())
    assert not (tmp_path / "run").exists()


def test_the_evaluation_is_that_of_swerve_eval_and_is_not_made_again(trained, tmp_path, monkeypatch):
    config, live = trained(*LIVE)
    plain_config, plain = trained()
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(plain.path, run.path)
    evaluate_run(plain_config, run, progress=SilentProgress())
    names = ["step_000004", "step_000006", "step_000008", "step_000009"]
    assert sorted(path.stem for path in live.path.glob("eval/*.json")) == names
    for name in names:
        table = f"eval/{name}.parquet"
        assert (live.path / table).read_bytes() == (run.path / table).read_bytes()
    whole = RunDirectory(tmp_path / "whole")
    shutil.copytree(live.path, whole.path)
    loaded = []
    monkeypatch.setattr("swerve.eval.heldout.load_model", lambda path, **_: loaded.append(path.name) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate_run(config, whole, progress=SilentProgress())
    assert loaded == ["step_000005"]  # the only one that training did not evaluate


def test_live_divergence_is_that_of_the_two_policies_on_rollouts_of_the_first(trained):
    config, live = trained(*LIVE)
    start, now = (load_model(live.checkpoint_path(step), device="cpu", dtype="float32") for step in (4, 8))
    problems = load_family(config.task).problems("heldout", seed=derive_seed(config.seed, "problems"))
    prompts = [one.token_ids for one in encode_prompts(start.tokenizer, problems)]
    params = SamplingParams(
        num_samples=1, max_new_tokens=36, temperature=1.0, stop_ids=stop_ids(start.model, start.tokenizer)
    )
    seeds = [derive_seed(config.seed, "live", one.id) for one in problems]
    sampled = TorchEngine(start.model, pad_id=0, max_rows=64).generate(prompts, params, seeds=seeds)
    logprobs = [[], []]
    for prompt, (completion,) in zip(prompts, sampled, strict=True):
        ids = torch.tensor([[*prompt, *completion.token_ids]])
        for found, loaded in zip(logprobs, (now, start), strict=True):
            with torch.no_grad():
                found.append(loaded.model(ids).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1))
    p, q = map(torch.cat, logprobs)
    record = next(one for one in read_metrics(live.metrics_path) if one["step"] == 8)
    assert record["live_kl_forward"] == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-4)
    assert record["live_kl_reverse"] == pytest.approx(float((q.exp() * (q - p)).sum(-1).mean()), rel=1e-4)
    assert record["live_entropy"] == pytest.approx(float(-(p.exp() * p).sum(-1).mean()), rel=1e-5)


def test_killed_and_resumed_it_measures_the_same(trained, tmp_path):
    config, live = trained(*LIVE)
    run = _cut_back(live, tmp_path / "run", last_step=6)
    (run.path / "eval" / "step_000006.json").unlink()  # killed before its evaluation was written
    train_run(config, run, resume=True, progress=SilentProgress())
    _same(run, live)


def test_retention_keeps_the_newest_and_what_others_need(trained):
    _, plain = trained()
    _, run = trained(*RETENTION)
    assert _weights(run) == {name: _weights(plain)[name] for name in ("sft-4", "rl-4", "rl-5")}
    assert [path.parent.name for path in run.path.glob("checkpoints/*/trainer_state")] == ["step_000009"]
    named, run = trained("retention.keep=1", "probe.final=rl-2", "probe.baseline=step_000007")
    assert [one.step for one in run.checkpoints] == [4, 6, 7, 9]
    assert named.retained_steps(6) == {4, 6, 7, 8, 9}


def test_what_retention_deleted_is_named_in_one_line_and_not_made_again(trained, tmp_path):
    config, whole = trained(*RETENTION)
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(whole.path, run.path)
    progress = Notes()
    train_run(config, run, resume=True, progress=progress)
    _same(run, whole)
    evaluate_run(config, run, progress=progress)
    assert [note for note in progress.notes if "again" in note or "deleted" in note] == [
        "left out, for retention.keep deleted them: step_000005, step_000006, step_000007"
    ]


@pytest.mark.slow
def test_a_run_with_all_of_it_is_the_same_wherever_it_is_killed(trained, tmp_path):
    config, whole = trained(*RETENTION, *LIVE)
    for point in range(61, 5000, 61):
        run = RunDirectory(tmp_path / "killed" / str(point))
        run.path.parent.mkdir(exist_ok=True)
        command = partial(train_run, config, run, resume=False, progress=SilentProgress())
        if not killed_at(command, point, root=run.path.parent, log=tmp_path / "printed"):
            break
        train_run(config, run, resume=True, progress=SilentProgress())
        _same(run, whole)
    assert point > 600


def test_a_checkpoint_without_optimizer_state_is_passed_over(trained, tmp_path):
    config, whole = trained(*RETENTION)
    run = _cut_back(whole, tmp_path / "run", last_step=8)
    progress = Notes()
    train_run(config, run, resume=True, progress=progress)
    assert any("has no optimizer state any more (retention.save_optimizer: false)" in note for note in progress.notes)
    assert "continuing after sft-4 (step 4)" in progress.notes
    _same(run, whole)


def test_resuming_reads_one_checkpoint_once_unless_all_are_asked_for(trained, tmp_path, monkeypatch):
    config, whole = trained()
    # What a process reads once, such as the files of the package, is not counted.
    shutil.copytree(whole.path, tmp_path / "before")
    train_run(config, RunDirectory(tmp_path / "before"), resume=True, progress=Notes())
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(whole.path, run.path)
    raw = bytearray((run.checkpoint_path(6) / "model.safetensors").read_bytes())
    raw[-2] ^= 1
    (run.checkpoint_path(6) / "model.safetensors").write_bytes(raw)
    sizes = [one.stat().st_size for one in run.checkpoint_path(9).rglob("*") if one.is_file()]
    counted = CountedHashes(monkeypatch)
    progress = Notes()
    train_run(config, run, resume=True, progress=progress)
    assert sum(sizes) < counted.num_bytes < sum(sizes) + 60_000  # manifests, config.yaml and a small tokenizer
    assert not any("step_000006" in note for note in progress.notes)
    train_run(config, run, resume=True, progress=progress, verify=True)
    assert any("passing over" in note and "step_000006" in note for note in progress.notes)
