"""The chain on a CUDA device against the CPU. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.batch import completion_logits, token_batches
from swerve.functional import divergence_stats
from swerve.models.load import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout import SamplingParams, TorchEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch finds none"),
]


def test_greedy_sampling_and_logits_agree_with_the_cpu(small_run):
    path = small_run.select_checkpoint("rl").path
    models = {device: load_model(path, device=device, dtype="float32").model for device in ("cpu", "cuda")}
    prompts = [[1, 4, 5, 14, 6, 7, 15], [1, 8, 8, 14, 9, 9, 15]]
    params = SamplingParams(num_samples=1, max_new_tokens=36, temperature=0.0, stop_ids=(2,))
    found = {
        device: TorchEngine(model, pad_id=0, max_rows=4).generate(prompts, params, seeds=[0, 0])
        for device, model in models.items()
    }
    ids = [completion.token_ids for (completion,) in found["cpu"]]
    assert [completion.token_ids for (completion,) in found["cuda"]] == ids
    (batch,) = token_batches(list(zip(prompts, ids, strict=True)), pad_id=0)
    with torch.inference_mode():
        logits = {
            device: completion_logits(model, batch.to(device))[batch.mask.to(device)].cpu()
            for device, model in models.items()
        }
    assert torch.allclose(logits["cpu"], logits["cuda"], atol=1e-4)
    stats = divergence_stats(logits["cuda"], logits["cpu"], batch.completion_ids[batch.mask])
    assert float(stats.js.max()) < 1e-8


def test_divergences_agree_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(64, 32_000, generator=generator) for _ in range(2))
    ids = torch.randint(0, 32_000, (64,), generator=generator)
    cpu = divergence_stats(p, q, ids)
    cuda = divergence_stats(p.cuda(), q.cuda(), ids.cuda())
    for name in ("kl_forward", "kl_reverse", "js", "entropy", "logprob"):
        assert torch.allclose(getattr(cpu, name), getattr(cuda, name).cpu(), rtol=1e-4, atol=1e-6)
    assert torch.equal(cpu.rank, cuda.rank.cpu())


def test_the_stages_run(small_recipe, tmp_path):
    from swerve.eval import evaluate
    from swerve.probe import probe_run
    from swerve.train import train

    config = load_config(small_recipe, ["runtime.device=cuda", "probe.reference=sft-100"])
    run = RunDirectory(tmp_path / "run")
    train(config, run, resume=False, progress=SilentProgress())
    assert read_metrics(run.metrics_path)[219]["loss"] < 0.4
    assert len(evaluate(config, run, progress=SilentProgress())) == 5
    assert probe_run(config, run, progress=SilentProgress())["checkpoints"] == ["rl-2", "rl-4"]
