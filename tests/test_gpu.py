"""The chain on a CUDA device against the CPU. Skipped where there is none."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.batch import completion_hidden, completion_logits, token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.functional import LinearHead, chunked_head_loss, divergence_stats, token_logprobs
from swerve.models import packed_attention
from swerve.models.model_folder import load_model
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout import SamplingParams, TorchEngine
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

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


def _update_cases() -> Any:
    path = Path(__file__).parent / "train" / "test_policy_update.py"
    spec = importlib.util.spec_from_file_location("update_cases", path)
    assert spec is not None
    assert spec.loader is not None
    cases = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = cases
    spec.loader.exec_module(cases)
    return cases


def test_the_update_of_every_objective_agrees_with_the_cpu():
    cases = _update_cases()
    policy, reference, tokenizer = cases.two_models()
    on_cuda = (
        copy.deepcopy(policy).cuda(),
        ReplicatedModel(copy.deepcopy(reference.model).cuda(), World(), is_trained=False).frozen(),
        tokenizer,
    )
    for name in cases.VARIANTS:
        cpu = cases.Update((policy, reference, tokenizer), cases.stage_of(name), cases.rollouts())
        cuda = cases.Update(on_cuda, cases.stage_of(name), cases.rollouts(), world=World(device="cuda"))
        assert float((cpu.gradient - cuda.gradient.cpu()).norm() / cpu.gradient.norm()) < 1e-6, name


def test_packed_rows_and_bfloat16_make_the_update_of_padded_float32():
    cases = _update_cases()
    policy, reference, tokenizer = cases.two_models()
    on_cuda = (
        copy.deepcopy(policy).float().cuda(),
        ReplicatedModel(copy.deepcopy(reference.model).float().cuda(), World(), is_trained=False).frozen(),
        tokenizer,
    )
    for name in ("dr_grpo", "clip", "gae", "max_prob_kl", "kl k3", "kl exact_reverse"):
        padded, packed, narrow = (
            cases.Update(on_cuda, cases.stage_of(name), cases.rollouts(), world=World(device="cuda"), **runtime)
            for runtime in ({"rows": "padded"}, {}, {"precision": "bfloat16", "activation_checkpointing": "full"})
        )
        size = padded.gradient.norm()
        assert float((packed.gradient - padded.gradient).norm() / size) < 1e-4, name
        assert narrow.gradient.dtype == torch.float32
        assert float((narrow.gradient - padded.gradient).norm() / size) < 0.15, name  # .104 seen on an H200


@pytest.mark.parametrize("name", packed_attention._FLASH)
def test_flash_attention_gives_what_sdpa_gives(tiny, name):
    if not packed_attention._FLASH[name]():
        pytest.skip(f"needs the package of {name}")
    runtime = RuntimeConfig(precision="bfloat16")
    sequences = [([1, 4, 5], [6, 7, 2]), ([1, 4, 5], [5, 2]), ([1, 9], [3, 8, 4, 2])]
    found = []
    for attention in ("auto", name):
        weights = ReplicatedModel(
            copy.deepcopy(tiny[0]).cuda(), World(device="cuda"), runtime=runtime, attention=attention
        )
        assert weights.packs
        (batch,) = token_batches(sequences, pad_id=0, packed=True)
        hidden = weights.completion_hidden(batch.to("cuda"))
        hidden.sin().sum().backward()
        gradients = [one.grad.flatten() for one in weights.named_parameters().values() if one.grad is not None]
        found.append((hidden.float(), torch.cat(gradients)))
        params = SamplingParams(num_samples=4, max_new_tokens=8, temperature=1.0, stop_ids=(2,))
        engine = TorchEngine(weights.model, pad_id=0, max_rows=8)
        prompts = [[1, 4, 5], [1, 9, 9, 4, 8]]
        for prompt, group in zip(prompts, engine.generate(prompts, params, seeds=[0, 1]), strict=True):
            for one in group:
                (padded,) = token_batches([(prompt, one.token_ids)], pad_id=0)
                with torch.no_grad():
                    logits = weights.head(completion_hidden(weights.model, padded.to("cuda"), weights.head))
                ids = torch.tensor(one.token_ids, device="cuda")
                assert torch.allclose(token_logprobs(logits, ids).cpu(), torch.tensor(one.logprobs), atol=0.05)
    for one, other in zip(*found, strict=True):
        assert float((one - other).norm() / other.norm()) < 0.05


def test_predicted_memory_is_what_the_allocator_saw(tmp_path):
    from benchmarks import memory

    for name in memory.MODELS:
        found = memory.measure(name, "cuda", 8192)
        assert 0.85 < found["ratio"] < 1.15, found


def test_chunked_head_agrees_with_whole_logits_in_bfloat16():
    """Hidden states and weight in bfloat16, logits in float32: the loss and the gradients of float32 copies."""
    generator = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(300, 64, device="cuda", generator=generator).bfloat16().requires_grad_()
    weight = torch.randn(5000, 64, device="cuda", generator=generator).bfloat16().requires_grad_()
    ids = torch.randint(0, 5000, (300,), device="cuda", generator=generator)
    total = chunked_head_loss(
        hidden, LinearHead(weight=weight), lambda logits, rows: -token_logprobs(logits, ids[rows]).sum(), rows=128
    )
    total.backward()
    wide = [tensor.detach().float().requires_grad_() for tensor in (hidden, weight)]
    expected = -token_logprobs(wide[0] @ wide[1].T, ids).sum()
    expected.backward()
    assert float(total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for found, plain in zip((hidden, weight), wide, strict=True):
        assert found.grad is not None
        assert plain.grad is not None
        assert float((found.grad.float() - plain.grad).norm() / plain.grad.norm()) < 5e-3


def test_the_stages_run(small_recipe, tmp_path):
    from swerve.eval.heldout import evaluate_run
    from swerve.probe import probe_run
    from swerve.train.loop import train_run

    config = load_config(small_recipe, ["runtime.device=cuda", "probe.reference=sft-100"])
    run = RunDirectory(tmp_path / "run")
    train_run(config, run, resume=False, progress=SilentProgress())
    assert read_metrics(run.metrics_path)[219]["loss"] < 0.4
    assert len(evaluate_run(config, run, progress=SilentProgress())) == 5
    summary = probe_run(config, run, progress=SilentProgress())
    assert summary is not None
    assert list(summary.checkpoints) == ["rl-2", "rl-4"]


@pytest.mark.parametrize("backend", ["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_head_pass_agrees_with_float64_on_the_cpu(backend, dtype):
    from swerve.functional.head_divergence import head_divergence
    from swerve.functional.head_logits import LinearHead
    from swerve.functional.row_sums import compiled_available

    if backend == "compiled" and not compiled_available("cuda"):
        pytest.skip("needs triton")
    generator = torch.Generator().manual_seed(0)
    hidden_q, weight_q = torch.randn(300, 256, generator=generator), torch.randn(32_003, 256, generator=generator) / 8
    hidden_p = hidden_q + 0.05 * torch.randn(300, 256, generator=generator)
    weight_p = weight_q + 0.005 * torch.randn(32_003, 256, generator=generator)
    hidden_p, hidden_q, weight_p, weight_q = (each.to(dtype) for each in (hidden_p, hidden_q, weight_p, weight_q))
    ids = torch.randint(0, 32_003, (300,), generator=generator)
    heads = [LinearHead(weight=weight.cuda()) for weight in (weight_p, weight_q)]
    found = head_divergence(
        hidden_p.cuda(), hidden_q.cuda(), *heads, ids.cuda(), vocabulary_size=32_000, top_k=20, backend=backend
    )
    logits_p = hidden_p.double() @ weight_p[:32_000].double().T
    logits_q = hidden_q.double() @ weight_q[:32_000].double().T
    exact = divergence_stats(logits_p, logits_q, ids)
    for name in ("kl_forward", "kl_reverse", "js"):
        torch.testing.assert_close(
            getattr(found.stats, name).cpu().double(), getattr(exact, name), rtol=1e-4, atol=1e-8, msg=name
        )
    for name in ("entropy", "entropy_ref", "logprob", "logprob_ref"):
        torch.testing.assert_close(
            getattr(found.stats, name).cpu().double(), getattr(exact, name), rtol=0, atol=2e-5, msg=name
        )
    top = logits_p.softmax(-1).topk(20)
    torch.testing.assert_close(found.top.probs.cpu().double(), top.values, rtol=1e-4, atol=1e-9)
    same = head_divergence(
        hidden_q.cuda(), hidden_q.cuda(), heads[1], heads[1], ids.cuda(), vocabulary_size=32_000, backend=backend
    )
    assert float(same.stats.js.max()) == float(same.stats.kl_forward.max()) == 0.0
