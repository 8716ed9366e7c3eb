"""Adapters in training: what is trained, what is shared, what is saved, and who reads it."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.files import read_manifest
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.batch import token_batches
from swerve.config.models import LoraConfig, TinyModel
from swerve.config.recipe import Config
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.errors import CheckpointError, ConfigError, MissingExtraError
from swerve.eval.heldout import evaluate_run
from swerve.models import model_folder
from swerve.models.adapter import new_adapter
from swerve.models.export import export_model
from swerve.models.model_card import WeightsOrigin
from swerve.models.model_folder import load_model
from swerve.models.saving import save_checkpoint
from swerve.models.tiny import build_tiny_model
from swerve.plan.training import predicted_memory
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.learner import Learner
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World
from tests.builders import trained_run
from tests.campaign.ranks import torchrun_train
from tests.campaign.states import contents, differences

pytest.importorskip("peft")

SEQUENCES = [([1, 4], [5, 6, 7, 2]), ([1, 4], [5, 2]), ([1, 9, 3], [2])]
RECIPE = """
name: adapted
seed: 5
task: {kind: addition, digits: 2, num_train: 100, num_heldout: 24, mistake_rate: 0.5}
model: {kind: pretrained, path: BASE, lora: {rank: 4, alpha: 8}}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 3, batch_size: 8, optimizer: {lr: 4e-3}, checkpoints: [2]}
  - {kind: dpo, steps: 1, batch_size: 4, max_prompts: 64, optimizer: {lr: 1e-3}}
  - kind: rl
    steps: 3
    prompts_per_step: 4
    samples_per_prompt: 4
    zero_variance: keep
    kl: {kind: loss, coef: 0.1}
    optimizer: {lr: 1e-3}
    checkpoints: [1, 2]
eval: {num_problems: 12, samples_per_problem: 1}
probe: {reference: sft, min_rollouts: 1, max_rollouts: 4, causal: {num_continuations: 2}}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""


def _adapted(tiny: Any, *, scale: float = 0.0, **lora: Any) -> Any:
    """Return a tiny model with an adapter whose matrices B are random, times `scale`."""
    model = new_adapter(copy.deepcopy(tiny[0]), LoraConfig(rank=3, alpha=6.0, **lora), seed=1)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            parameter.data = scale * torch.randn(parameter.shape, generator=generator)
    return model


def _learner(model: Any, tokenizer: Any, **settings: Any) -> Learner:
    moments = settings.pop("moments", "float32")
    weights = ReplicatedModel(model, World(), runtime=RuntimeConfig(**settings))
    return Learner(weights, tokenizer, OptimizerConfig(lr=1e-2, max_grad_norm=None, moments=moments))


def _update(learner: Learner) -> float:
    def loss(batch: Any, hidden: torch.Tensor) -> Any:
        ids = batch.completion_ids[batch.mask]
        return learner.head.loss(
            hidden, lambda logits, rows: -logits.log_softmax(-1).gather(1, ids[rows, None]).sum() / 7
        ), {}

    return learner.update(learner.batches(SEQUENCES, tokens_per_batch=7), loss, learning_rate=1e-2).loss


def _mean_loss(model: Any) -> torch.Tensor:
    """Return the same loss from the logits of whole sequences, one at a time."""
    total = torch.zeros((), dtype=torch.float64)
    for prompt, completion in SEQUENCES:
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        total = total - logits[torch.arange(len(completion)), torch.tensor(completion)].sum()
    return total / 7


@pytest.mark.parametrize("runtime", [{}, {"activation_checkpointing": "full", "rows": "padded"}], ids=["", "again"])
def test_loss_and_gradients_are_those_of_base_plus_b_a(tiny: Any, runtime: dict[str, Any]) -> None:
    model = _adapted(tiny, scale=0.3)
    factors = {name: value.double().clone() for name, value in model.state_dict().items() if ".lora_" in name}
    expected = copy.deepcopy(tiny[0]).double().requires_grad_(True)
    layers = [name.removesuffix(".lora_A.default.weight") for name in factors if ".lora_A." in name]
    assert len(layers) == 14
    weights = dict(expected.named_parameters())
    for layer in layers:
        weights[f"{layer}.weight"].data += (
            2.0 * factors[f"{layer}.lora_B.default.weight"] @ factors[f"{layer}.lora_A.default.weight"]
        )
    loss = _mean_loss(expected)
    loss.backward()

    learner = _learner(model, tiny[1], **runtime)
    assert _update(learner) == pytest.approx(loss.item(), rel=1e-6)
    found = learner.named_parameters()
    assert found.keys() == factors.keys()
    for layer in layers:
        whole = weights[f"{layer}.weight"].grad
        a, b = (factors[f"{layer}.lora_{one}.default.weight"] for one in "AB")
        for name, gradient in (("A", 2.0 * b.T @ whole), ("B", 2.0 * whole @ a.T)):
            own = found[f"{layer}.lora_{name}.default.weight"].grad
            assert float((own - gradient).norm() / gradient.norm()) < 1e-5, (layer, name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_only_the_adapter_is_trained_and_the_reference_is_the_same_base(tiny: Any, precision: str) -> None:
    base = copy.deepcopy(tiny[0])
    plain = ReplicatedModel(
        copy.deepcopy(tiny[0]), World(), runtime=RuntimeConfig(precision=precision), is_trained=False
    )
    learner = _learner(new_adapter(base, LoraConfig(rank=2), seed=1), tiny[1], precision=precision)
    reference = learner.weights.frozen_copy()
    assert reference is not None
    for _ in range(3):
        _update(learner)
    (batch,) = token_batches(SEQUENCES, pad_id=0, packed=True)
    with torch.no_grad():
        expected = plain.completion_hidden(batch)
        assert torch.equal(reference.completion_hidden(batch), expected)
        assert not torch.equal(learner.weights.completion_hidden(batch), expected)
    frozen = {name: one for name, one in learner.model.named_parameters() if ".lora_" not in name}
    shared = dict(reference.model.named_parameters())
    assert all(one.data_ptr() == shared[name].data_ptr() and one.grad is None for name, one in frozen.items())
    assert {str(one.dtype) for one in frozen.values()} == {f"torch.{precision}"}
    trained = learner.named_parameters()
    assert all(".lora_" in name and one.dtype == torch.float32 for name, one in trained.items())
    assert set(learner.optimizer.state) == set(trained.values())


def test_an_engine_that_keeps_no_weight_is_given_all(tiny: Any) -> None:
    """Sums live only as long as they are read, and the next one may lie where the last one lay."""
    weights = _learner(_adapted(tiny, scale=0.3), tiny[1]).weights
    names = [name for name, value in weights.stream_weights() if value is not None]
    assert sorted(names) == sorted(set(tiny[0].state_dict()) - {"lm_head.weight"})


def test_an_engine_is_given_the_sum_and_the_embedded_one_samples_with_it(tiny: Any) -> None:
    model = _adapted(tiny, scale=0.3)
    whole = copy.deepcopy(tiny[0])
    whole.load_state_dict(dict(_learner(model, tiny[1]).weights.stream_weights()), strict=False)
    engine = TorchEngine(model, pad_id=0, max_rows=8)
    params = SamplingParams(num_samples=3, max_new_tokens=6, temperature=1.0, stop_ids=(2,))
    found = engine.generate([[1, 4], [1, 5, 6]], params, seeds=[1, 2])
    assert engine._one_token.checked
    assert engine._one_token.usable
    for prompt, group in zip(([1, 4], [1, 5, 6]), found, strict=True):
        for one in group:
            ids = torch.tensor([[*prompt, *one.token_ids]])
            with torch.no_grad():
                own, summed = (each(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1) for each in (model, whole))
            chosen = torch.tensor(one.token_ids)[:, None]
            torch.testing.assert_close(own.gather(1, chosen)[:, 0], torch.tensor(one.logprobs), atol=1e-5, rtol=0.0)
            torch.testing.assert_close(own, summed, atol=1e-5, rtol=0.0)


def _changed(config: Config, **keys: Any) -> Config:
    return Config.model_validate_json(json.dumps({**config.model_dump(mode="json"), **keys}))


@pytest.fixture(scope="module")
def base(small_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model in a folder of its own."""
    source = small_run.select_checkpoint("sft").path
    return shutil.copytree(
        source, tmp_path_factory.mktemp("base") / "model", ignore=shutil.ignore_patterns("MANI*", "tr*_s*")
    )


@pytest.fixture(scope="module")
def config(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("recipe") / "adapted.yaml"
    path.write_text(RECIPE.replace("BASE", str(base)))
    return load_config(path)


@pytest.fixture(scope="module")
def run(config: Config, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    found = trained_run(config, tmp_path_factory.mktemp("adapted") / "run")
    evaluate_run(config, found, progress=SilentProgress())
    return found


def test_checkpoints_hold_the_adapter_and_name_the_base(run: RunDirectory, base: Path) -> None:
    folder = run.select_checkpoint("rl").path
    names = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    assert names == {
        "MANIFEST.json", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "trainer_state/optimizer.safetensors",
    }  # fmt: skip
    described = json.loads((folder / "adapter_config.json").read_text())
    assert (described["base_model_name_or_path"], described["r"]) == (str(base), 4)
    assert len(read_manifest(folder)["base_sha256"]) == 64
    weights = load_file(folder / "adapter_model.safetensors")
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in weights
    moments = load_file(folder / "trainer_state/optimizer.safetensors")
    assert sum(one.numel() for name, one in moments.items() if name.endswith("exp_avg")) == sum(
        one.numel() for one in weights.values()
    )


def test_stages_follow_one_another_and_sample_what_they_score(run: RunDirectory) -> None:
    first, last = (load_file(run.select_checkpoint(one).path / "adapter_model.safetensors") for one in ("sft-2", "rl"))
    assert all(not torch.equal(first[name], last[name]) for name in first)
    records = [one for one in read_metrics(run.metrics_path) if one["stage"] == "rl"]
    assert all(one["logprob_gap"] < 1e-5 for one in records)
    assert records[0]["kl"] == 0.0  # the reference is the policy that the stage begins with, adapter included
    assert records[2]["kl"] > 0.0


@pytest.mark.parametrize("kept", ["sft-2", "rl-1"])
def test_a_resumed_run_ends_with_the_same_bytes(run: RunDirectory, config: Config, tmp_path: Path, kept: str) -> None:
    ignored = shutil.ignore_patterns("eval", ".lock")
    whole = shutil.copytree(run.path, tmp_path / "whole", ignore=ignored)
    again = RunDirectory(shutil.copytree(run.path, tmp_path / "again", ignore=ignored))
    for checkpoint in again.checkpoints:
        if checkpoint.step > again.select_checkpoint(kept).step:
            shutil.rmtree(checkpoint.path)
    trained_run(config, again.path, resume=True)
    (again.path / ".lock").unlink()
    assert differences(contents(again.path), contents(whole)) == []


def _greedy(loaded: Any, prompts: list[list[int]]) -> list[tuple[int, ...]]:
    params = SamplingParams(num_samples=1, max_new_tokens=30, temperature=0.0, stop_ids=(2,))
    engine = TorchEngine(loaded.model, pad_id=0, max_rows=64)
    return [one.token_ids for (one,) in engine.generate(prompts, params, seeds=[0] * len(prompts))]


def test_an_exported_run_answers_as_the_run_does(run: RunDirectory, base: Path, tmp_path: Path) -> None:
    folder = run.select_checkpoint("rl").path
    export_model(WeightsOrigin.of(folder), tmp_path / "merged", dtype=None)
    models = [load_model(one, device="cpu", dtype="float32") for one in (folder, tmp_path / "merged", base)]
    vocabulary = models[0].tokenizer.get_vocab()
    prompts = [[1, *(vocabulary[word] for word in f"{a} + {b} =".split())] for a in range(1, 9) for b in range(2, 9)]
    own, exported, untrained = (_greedy(one, prompts) for one in models)
    assert own == exported != untrained
    assert "base model" in (tmp_path / "merged" / "README.md").read_text()
    card = (tmp_path / "merged" / "README.md").read_text()
    assert str(base) in card


def test_a_probe_and_an_evaluation_hold_the_base_once(
    run: RunDirectory, config: Config, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swerve.config.probe import ProbeConfig
    from swerve.models.sources import CheckpointSource, shared_bases
    from swerve.probe.engine.measure import measure

    loaded: list[str] = []
    load = model_folder._load_whole

    def counted(path: Path | str, **options: Any) -> Any:
        loaded.append(str(path))
        return load(path, **options)

    monkeypatch.setattr(model_folder, "_load_whole", counted)
    labels = {"base": base, "sft": run.select_checkpoint("sft").path, "rl": run.select_checkpoint("rl").path}
    sources = [CheckpointSource(label=name, path=path, device="cpu", dtype="float32") for name, path in labels.items()]
    with shared_bases(sources):
        pairs = [("sft", "base"), ("rl", "base"), ("rl", "sft")]
        found = measure(sources, pairs, SEQUENCES, settings=ProbeConfig())
    assert loaded == [str(base)]
    assert not model_folder._bases
    models = [load_model(path, device="cpu", dtype="float32").model for path in labels.values()]
    for pair, (p, q) in zip(pairs, ((1, 0), (2, 0), (2, 1)), strict=True):
        expected = []
        for prompt, completion in SEQUENCES:
            ids = torch.tensor([[*prompt, *completion]])
            with torch.no_grad():
                first, second = (
                    models[index](ids).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1) for index in (p, q)
                )
            expected += (first.exp() * (first - second)).sum(-1).tolist()
        torch.testing.assert_close(
            found.stats[pair].kl_forward.double(), torch.tensor(expected).double(), atol=1e-6, rtol=1e-3
        )

    loaded.clear()
    moved = RunDirectory(shutil.copytree(run.path, tmp_path / "moved", ignore=shutil.ignore_patterns("eval")))
    again = evaluate_run(config, moved, progress=SilentProgress())
    assert loaded == [str(base)]
    assert [one.greedy for one in again] == [one.greedy for one in evaluate_run(config, run, progress=SilentProgress())]


def test_a_changed_or_missing_base_is_one_line(run: RunDirectory, base: Path, config: Config, tmp_path: Path) -> None:
    folder = run.select_checkpoint("rl").path
    kept = base / "config.json"
    text = kept.read_text()
    try:
        kept.write_text(text + "\n")
        with pytest.raises(CheckpointError, match=f"{folder} is an adapter of {base} as it was .* has changed since"):
            load_model(folder, device="cpu", dtype="float32")
        with pytest.raises(ConfigError, match="cannot resume .*: the code or data of model.path has changed since"):
            trained_run(config, run.path, resume=True)
    finally:
        kept.write_text(text)
    base.rename(tmp_path / "elsewhere")
    try:
        with pytest.raises(CheckpointError, match=f"{folder} is an adapter of {base}, which is not there any more"):
            load_model(folder, device="cpu", dtype="float32")
    finally:
        (tmp_path / "elsewhere").rename(base)


def test_adapters_that_name_each_other_are_refused(run: RunDirectory, tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        shutil.copytree(run.checkpoint_path(3), tmp_path / name)
        (tmp_path / name / "MANIFEST.json").unlink()
        entry = json.loads((tmp_path / name / "adapter_config.json").read_text())
        entry["base_model_name_or_path"] = str(tmp_path / other)
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(entry))
    with pytest.raises(CheckpointError, match="one is an adapter of adapters that name each other"):
        load_model(tmp_path / "one", device="cpu", dtype="float32")


def test_a_tiny_models_adapters_move_with_the_run(config: Config, tmp_path: Path) -> None:
    tiny = {
        "kind": "tiny",
        "hidden_size": 16,
        "num_heads": 2,
        "lora": {"rank": 2, "targets": ["q_proj"], "dropout": 0.1},
    }
    stages = [{"kind": "sft", "steps": 2, "optimizer": {"lr": 1e-3}, "checkpoints": [1]}]
    own = _changed(config, model=tiny, stages=stages, probe={})
    run = trained_run(own, tmp_path / "run")
    expected = load_model(run.checkpoint_path(2), device="cpu", dtype="float32").model.state_dict()
    run.path.rename(tmp_path / "moved")
    moved = RunDirectory(tmp_path / "moved")
    found = load_model(moved.checkpoint_path(2), device="cpu", dtype="float32").model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.parametrize("lora", [{"rank": 2}, None], ids=["adapter", "whole"])
def test_training_goes_on_from_an_adapter(run: RunDirectory, config: Config, tmp_path: Path, lora: Any) -> None:
    first = run.select_checkpoint("rl").path
    stages = [{"kind": "sft", "steps": 1, "optimizer": {"lr": 1e-9}}]
    own = _changed(config, model={"kind": "pretrained", "path": str(first), "lora": lora}, stages=stages, probe={})
    second = trained_run(own, tmp_path / "run").checkpoint_path(1)
    assert predicted_memory(own).weights > 0
    export_model(WeightsOrigin.of(second), tmp_path / "merged", dtype=None)
    ids = torch.tensor([[1, 4, 5, 6]])
    with torch.no_grad():
        before, after, merged = (
            load_model(one, device="cpu", dtype="float32").model(ids).logits
            for one in (first, second, tmp_path / "merged")
        )
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0.0)
    torch.testing.assert_close(merged, before, atol=1e-5, rtol=0.0)


def test_frozen_weights_stay_and_have_no_moments(config: Config, base: Path, tmp_path: Path) -> None:
    stage = {"kind": "sft", "steps": 2, "optimizer": {"lr": 1e-3}, "freeze": ["*embed*", "model.layers.0.*"]}
    model = {"kind": "pretrained", "path": str(base)}
    stages = [stage, {**stage, "name": "later", "freeze": ["model.layers.1.*"]}]
    own = _changed(config, model=model, stages=stages, probe={})
    run = trained_run(own, tmp_path / "run")
    before, after = load_file(base / "model.safetensors"), load_file(run.checkpoint_path(2) / "model.safetensors")
    frozen = {name for name in before if "embed" in name or ".layers.0." in name}
    assert {name for name in before if torch.equal(before[name], after[name])} == frozen != set()
    moments = load_file(run.checkpoint_path(2) / "trainer_state" / "optimizer.safetensors")
    assert {name.rpartition("/")[0] for name in moments} == before.keys() - frozen
    last = load_file(run.checkpoint_path(4) / "model.safetensors")
    assert {name for name in last if torch.equal(last[name], after[name])} == {n for n in last if ".layers.1." in n}


NOT_LINEAR = "'{}' is no linear layer of Qwen3ForCausalLM before its output head"
WRONG = {
    "model.lora.targets": {
        "q_pro": f"{NOT_LINEAR.format('q_pro')}; did you mean 'q_proj'?; it has down_proj, gate_proj",
        "lm_head": NOT_LINEAR.format("lm_head"),
    },
    "stages.sft.freeze": {
        "model.layer.0.*": "no parameter that is trained has a name like 'model.layer.0.*'; near it: model.layers.0.",
        "*": "* would freeze every parameter",
    },
}


@pytest.mark.parametrize(("key", "given"), [(key, given) for key, values in WRONG.items() for given in values])
def test_what_fits_nothing_is_one_line_and_leaves_no_run(config: Config, tmp_path: Path, key: str, given: str) -> None:
    keys = config.model_dump(mode="json")
    (keys["model"]["lora"] if key.startswith("model") else keys["stages"][0])[key.rpartition(".")[2]] = [given]
    with pytest.raises(ConfigError, match=re.escape(f"{key}: ")) as raised:
        trained_run(_changed(config, **keys), tmp_path / "run")
    assert WRONG[key][given] in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_rank_0_and_a_quantised_base_are_refused(config: Config, base: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("BASE", str(base)))
    with pytest.raises(ConfigError, match=r"'model.lora.rank' must be greater than 0"):
        load_config(recipe, ["model.lora.rank=0"])
    quantised = shutil.copytree(base, tmp_path / "quantised")
    described = json.loads((quantised / "config.json").read_text())
    (quantised / "config.json").write_text(json.dumps({**described, "quantization_config": {"quant_method": "int8"}}))
    own = _changed(config, model={"kind": "pretrained", "path": str(quantised), "lora": {}})
    with pytest.raises(CheckpointError, match="the weights in .*quantised are quantised"):
        trained_run(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_gpt2_whose_layers_store_their_weights_the_other_way_round(tiny: Any, tmp_path: Path) -> None:
    """Trained, saved, read by peft, and exported: the logits are those of peft."""
    from peft import PeftModel

    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": len(tiny[1])}
    torch.manual_seed(3)
    GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path / "base")
    tiny[1].save_pretrained(tmp_path / "base")
    base = load_model(tmp_path / "base", device="cpu", dtype="float32")
    learner = _learner(new_adapter(base.model, LoraConfig(rank=3, alpha=6.0), seed=1), tiny[1])
    losses = [_update(learner) for _ in range(3)]
    assert losses[2] < losses[0]
    model = learner.weights.model
    assert len(learner.named_parameters()) == 2 * 2 * 4  # A and B of c_attn, c_proj and the two of each MLP
    where = CheckpointRef(path=tmp_path / "adapter", step=1, stage="sft", stage_step=1, scheduled=True, final=True)
    save_checkpoint(where, model=model, tokenizer=tiny[1], trainer_state={}, provenance={}, base=tmp_path / "base")
    export_model(WeightsOrigin.of(where.path), tmp_path / "whole", dtype=None)
    ids = torch.tensor([[1, 4, 8, 5, 9]])
    with torch.inference_mode():
        expected = (
            PeftModel.from_pretrained(GPT2LMHeadModel.from_pretrained(tmp_path / "base").eval(), where.path)
            .eval()(ids)
            .logits
        )
        for other in (
            model.eval(),
            load_model(where.path, device="cpu", dtype="float32").model,
            GPT2LMHeadModel.from_pretrained(tmp_path / "whole").eval(),
        ):
            torch.testing.assert_close(other(ids).logits, expected, rtol=0, atol=1e-6)
    streamed = dict(learner.weights.stream_weights())
    stored = load_file(tmp_path / "whole" / "model.safetensors")
    torch.testing.assert_close(
        streamed["transformer.h.0.attn.c_attn.weight"], stored["transformer.h.0.attn.c_attn.weight"]
    )


def test_without_peft_the_extra_is_named(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=re.escape("model.lora needs the package 'peft'; install it with: pip")):
        trained_run(config, tmp_path / "run")


def test_the_memory_of_adapters_and_frozen_weights_is_predicted(config: Config) -> None:
    rl = config.model_copy(update={"stages": config.stages[-1:]})
    whole = predicted_memory(rl.model_copy(update={"model": rl.model.model_copy(update={"lora": None})}))
    adapted = predicted_memory(rl)
    num = 4 * 2 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 192))  # rank x layers x (q o, k v, gate up down)
    assert (adapted.gradients, adapted.optimizer, adapted.frozen) == (4 * num, 8 * num, 4 * num)
    assert adapted.weights == whole.weights + 4 * num
    assert whole.frozen == whole.weights
    stage = rl.stages[0].model_copy(update={"freeze": ("*.layers.*",)})
    frozen = predicted_memory(
        rl.model_copy(update={"stages": (stage,), "model": rl.model.model_copy(update={"lora": None})})
    )
    assert frozen.weights == whole.weights
    assert 3 * frozen.gradients == 1.5 * frozen.optimizer == 3 * frozen.frozen < whole.gradients
    assert frozen.update < whole.update


def test_moments_in_int8_are_small_and_survive_saving(tiny: Any) -> None:
    pytest.importorskip("bitsandbytes")
    model = build_tiny_model(TinyModel(), tiny[1], seed=1)
    first, second, wide = (_learner(copy.deepcopy(model), tiny[1], moments=one) for one in ("int8", "int8", "float32"))
    assert [_update(first) for _ in range(4)] == pytest.approx([_update(wide) for _ in range(4)], rel=0.05)
    saved = {key: one.clone() for key, one in first.weights.trainer_state(first.optimizer)["optimizer"].items()}
    assert saved["model.layers.0.mlp.up_proj.weight/state1"].dtype == torch.uint8
    assert saved["model.norm.weight/state1"].dtype == torch.float32  # too small to be worth it
    second.weights.load_weights(first.model)
    second.weights.load_trainer_state(second.optimizer, {"optimizer": saved})
    assert _update(second) == _update(first)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


@pytest.mark.slow
def test_two_processes_end_as_one(config: Config, base: Path, tmp_path: Path) -> None:
    text = RECIPE.replace("BASE", str(base))
    (tmp_path / "recipe.yaml").write_text(text)
    process = torchrun_train(tmp_path / "recipe.yaml", "--out", tmp_path / "two", errors=tmp_path / "errors")
    alone = trained_run(load_config(tmp_path / "recipe.yaml"), tmp_path / "one")
    assert process.wait(timeout=170) == 0, (tmp_path / "errors").read_text()
    files = [one.checkpoint_path(7) / "adapter_model.safetensors" for one in (alone, RunDirectory(tmp_path / "two"))]
    first, second = map(load_file, files)
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, atol=2e-4, rtol=0.0)


@pytest.mark.slow
def test_reinforcement_learning_of_an_adapter_removes_the_demos_mistake(tmp_path: Path) -> None:
    demo = load_config("demo_addition", ["runtime.device=cpu"])
    stages = demo.model_dump(mode="json")["stages"]
    first = _changed(demo, stages=stages[:1], probe={})
    trained = trained_run(first, tmp_path / "sft")
    path = trained.select_checkpoint("sft").path
    stage = {**stages[2], "steps": 8, "checkpoints": [], "optimizer": {"lr": 1e-3}}
    model = {"kind": "pretrained", "path": str(path), "lora": {"rank": 8, "alpha": 16.0}}
    second = _changed(demo, model=model, stages=[stage], probe={})
    adapted = trained_run(second, tmp_path / "rl")
    (before,) = evaluate_run(first, trained, progress=SilentProgress())
    base, after = evaluate_run(second, adapted, progress=SilentProgress())
    assert base.greedy.accuracy == before.greedy.accuracy
    assert before.greedy.accuracy.mean < 0.6
    assert after.greedy.accuracy.mean > 0.9
