"""How the model in training computes: in bfloat16 beside float32 weights, and with layers that run again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BioGptConfig, FalconConfig, GPT2Config, OPTConfig

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.batch import token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.errors import ConfigError, InterruptedRunError, MismatchError, MissingExtraError
from swerve.models.model_folder import load_model
from swerve.models.model_folder import load_model_config as load_config_of
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import replicated_model
from swerve.train.learner import Learner
from swerve.train.loop import train_run
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

SEQUENCES = [([1, 4], [5, 6, 7, 2]), ([1, 4], [5, 2]), ([1, 9, 3], [2])]


def _learner(tiny: Any, **runtime: Any) -> Learner:
    weights = ReplicatedModel(copy.deepcopy(tiny[0]), World(), runtime=RuntimeConfig(**runtime))
    return Learner(weights, tiny[1], OptimizerConfig(lr=1e-3, max_grad_norm=None))


def _update(learner: Learner) -> dict[str, torch.Tensor]:
    """Make an update with the mean of the log-partition functions; return the gradients."""

    def loss(_batch: Any, hidden: torch.Tensor) -> Any:
        return learner.head.loss(hidden, lambda logits, rows: logits.logsumexp(dim=-1).sum() / 7), {}

    learner.update(learner.batches(SEQUENCES, tokens_per_batch=5), loss, learning_rate=1e-6)
    return {
        name: parameter.grad for name, parameter in learner.named_parameters().items() if parameter.grad is not None
    }


_SIZES = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
_DROPPING = [
    GPT2Config(vocab_size=11, n_embd=16, n_layer=2, n_head=2, n_positions=16),
    # Layers of these drop out in their own code, by the mode of the layer.
    OPTConfig(**_SIZES, ffn_dim=16, word_embed_proj_dim=16, max_position_embeddings=16, dropout=0.2),
    FalconConfig(**_SIZES, alibi=False, hidden_dropout=0.2),
    BioGptConfig(**_SIZES, intermediate_size=16, max_position_embeddings=16),
]


@pytest.mark.parametrize("config", _DROPPING, ids=lambda config: config.model_type)
def test_only_supervised_updates_drop_out_and_layers_run_again_without_dropout_too(tiny: Any, config: Any) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    found = {}
    for drops, layers in ((False, "none"), (False, "full"), (True, "none")):
        runtime = RuntimeConfig(activation_checkpointing=layers)
        weights = ReplicatedModel(copy.deepcopy(model), World(), runtime=runtime)
        learner = Learner(weights, tiny[1], OptimizerConfig(lr=1e-3, max_grad_norm=None), drops=drops)
        found[drops, layers] = torch.cat([gradient.flatten() for gradient in _update(learner).values()])
    weights = ReplicatedModel(copy.deepcopy(model).eval(), World())
    (batch,) = token_batches(SEQUENCES, pad_id=0, packed=True)
    weights.head.loss(weights.completion_hidden(batch), lambda logits, _: logits.logsumexp(-1).sum() / 7).backward()
    expected = torch.cat([one.grad.flatten() for one in weights.named_parameters().values() if one.grad is not None])
    torch.testing.assert_close(found[False, "none"], expected)
    torch.testing.assert_close(found[False, "full"], expected)
    assert float((found[True, "none"] - expected).norm() / expected.norm()) > 0.05


def test_layers_of_liger_are_used_where_they_change_nothing(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, bool]] = []
    factor = 1.0

    def replace_norms(model: Any, keys: dict[str, bool]) -> None:
        given.append(keys)
        model.model.norm.register_forward_hook(lambda _module, _args, output: output * factor)

    monkeypatch.setattr(replicated_model, "is_liger_kernel_available", lambda: False)
    with pytest.raises(MissingExtraError, match=r"runtime.liger needs the package 'liger-kernel'; .*'swerve\[liger\]'"):
        _learner(tiny, liger=True)
    monkeypatch.setattr(replicated_model, "is_liger_kernel_available", lambda: True)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="runtime.liger=true: its kernels need a CUDA device"):
            _learner(tiny, liger=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("transformers.integrations.liger.apply_liger_kernel", replace_norms)
    assert _learner(tiny, liger=True).weights.packs
    assert given == [{"cross_entropy": False, "fused_linear_cross_entropy": False}]
    factor = 1.01
    with pytest.raises(MismatchError, match="give Qwen3ForCausalLM other states or gradients than its own"):
        _learner(tiny, liger=True)


def test_bfloat16_has_gradients_and_small_updates_in_float32(tiny: Any) -> None:
    wide, narrow = _learner(tiny), _learner(tiny, precision="bfloat16")
    name = "model.layers.0.mlp.up_proj.weight"
    before = narrow.weights.whole_weights()[name].clone()
    expected, found = _update(wide), _update(narrow)
    assert found.keys() == expected.keys()
    for key, gradient in expected.items():
        assert found[key].dtype == torch.float32
        assert float((found[key] - gradient).norm() / gradient.norm()) < 0.03, key
    after = narrow.weights.whole_weights()
    assert all(weight.dtype == torch.float32 for weight in after.values())
    # AdamW's first step is the learning rate itself, which bfloat16 weights around 0.1 would not notice.
    assert float((after[name] - before).abs().max()) == pytest.approx(1e-6, rel=0.02)
    assert {parameter.dtype for parameter in narrow.model.parameters()} == {torch.bfloat16}
    assert torch.equal(dict(narrow.model.named_parameters())[name], after[name].bfloat16())
    assert all(parameter.grad is None for parameter in narrow.model.parameters())
    narrow.drop_gradients()
    assert all(parameter.grad is None for parameter in narrow.named_parameters().values())


def test_a_frozen_copy_stays_what_it_was(tiny: Any) -> None:
    learner = _learner(tiny, precision="bfloat16")
    frozen = learner.weights.frozen_copy()
    assert frozen is not None
    (batch,) = token_batches(SEQUENCES, pad_id=0, packed=True)
    with torch.no_grad():
        before = frozen.completion_hidden(batch)
        assert torch.equal(before, learner.weights.completion_hidden(batch))
    for parameter in learner.named_parameters().values():
        parameter.data.mul_(1.1)
    learner.weights.follow()
    with torch.no_grad():
        assert torch.equal(frozen.completion_hidden(batch), before)
        assert not torch.equal(learner.weights.completion_hidden(batch), before)
        learner.weights.load_weights(tiny[0])
        assert torch.equal(learner.weights.completion_hidden(batch), before)
    assert torch.equal(learner.weights.whole_weights()["lm_head.weight"], tiny[0].lm_head.weight)
    assert not any(parameter.requires_grad for parameter in frozen.model.parameters())


@pytest.mark.parametrize(("layers", "again"), [("full", 2), ("every_second", 1)])
def test_layers_that_run_again_give_the_same_gradients(tiny: Any, layers: str, again: int) -> None:
    expected = _update(_learner(tiny))
    learner = _learner(tiny, activation_checkpointing=layers)
    calls: list[None] = []
    for layer in learner.model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_unused: calls.append(None))
    found = _update(learner)
    num_batches = len(learner.batches(SEQUENCES, tokens_per_batch=5))
    assert len(calls) == num_batches * (2 + again)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_bfloat16_run_saves_float32_weights_and_is_resumed_to_the_same_bytes(
    small_recipe: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ["stages.sft.steps=4", "stages.sft.checkpoints=[2]", "stages.sft.save_every=1", "stages.rl.steps=2"]
    changes += ["stages.rl.checkpoints=[1]", "runtime.precision=bfloat16", "runtime.activation_checkpointing=full"]
    changes += ["stages.rl.zero_variance=keep", "stages.rl.kl={kind: loss, estimator: k3, coef: 0.1}"]
    config = load_config(small_recipe, changes)
    config = config.model_copy(update={"stages": (config.stages[0], config.stages[-1])})
    whole, killed = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "killed")
    train_run(config, whole, resume=False, progress=SilentProgress())
    update = Learner.update
    for stop in (3, 6):  # in sft, and after the first step of rl

        def interrupted(learner: Learner, *args: Any, stop: int = stop, **keywords: Any) -> Any:
            if len(read_metrics(killed.metrics_path)) == stop - 1:
                raise InterruptedRunError("killed", signal_number=9)
            return update(learner, *args, **keywords)

        with monkeypatch.context() as patch:
            patch.setattr(Learner, "update", interrupted)
            with pytest.raises(InterruptedRunError):
                train_run(config, killed, resume=stop == 6, progress=SilentProgress())
    train_run(config, killed, resume=True, progress=SilentProgress())
    assert [(one.label, one.weights_sha256) for one in killed.checkpoints] == [
        (one.label, one.weights_sha256) for one in whole.checkpoints
    ]
    assert all(record["logprob_gap"] < 0.05 for record in read_metrics(whole.metrics_path)[-2:])
    path = whole.checkpoints[-1].path
    assert load_config_of(path).dtype == torch.float32
    loaded = load_model(path, device="cpu", dtype="float32").model
    assert any(not torch.equal(weight, weight.bfloat16().float()) for weight in loaded.parameters())
