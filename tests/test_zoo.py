"""Small random models of many architectures, as folders that somebody has, through training, evaluation and the probe.

Right is what a checksum of the text says, so that half of all texts are. docs/any-model.md has the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import ROLLOUTS_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOKENS_SCHEMA, read_table
from swerve.cli import main
from swerve.errors import ConfigError
from swerve.eval.heldout import evaluate_run
from swerve.probe import probe_run
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run
from tests.builders import Notes

DOCS = Path(__file__).parents[1] / "docs"
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = "<s>{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
DATED = "<s>{{ strftime_now('%d') }}{% if enable_thinking %}think{% endif %}" + TEMPLATE
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
GROUPED = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 8}
WINDOWS = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SOFT = {"initializer_range": 0.05, "query_pre_attn_scalar": 8}  # embeddings are multiplied by the root of their width
MAMBA = {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
DELTA = {f"linear_{name}": size for name, size in [("num_value_heads", 4), ("num_key_heads", 2)]}
DELTA |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "shared_expert_intermediate_size": 16, **EXPERTS}


@dataclass(frozen=True, kw_only=True)
class Animal:
    """How a small model of an architecture is made, and what is expected of it."""

    about: str
    """What it has that others have not."""
    config: Callable[..., Any]
    keys: dict[str, Any]
    packs: bool = True
    template: str = TEMPLATE
    saved: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    stops: int | list[int] = 2
    beyond: tuple[str, ...] = ()
    """Tokens of the tokenizer that the model has no embedding for."""
    model: dict[str, Any] = field(default_factory=dict)
    """Further keys of the recipe's model."""


ZOO = {
    "Llama": Animal(
        about="bfloat16 files, shards, two end tokens, untied head",
        config=hf.LlamaConfig,
        keys={**GROUPED, "tie_word_embeddings": False},
        dtype=torch.bfloat16,
        stops=[2, 3],
        saved={"max_shard_size": "40KB"},
    ),
    "Mistral": Animal(about="sliding window", config=hf.MistralConfig, keys={**GROUPED, "sliding_window": 6}),
    "Qwen2": Animal(about="tied head", config=hf.Qwen2Config, keys={**GROUPED, "tie_word_embeddings": True}),
    "Qwen3": Animal(
        about="tied head, more rows than tokens",
        config=hf.Qwen3Config,
        keys={**HEADS, "tie_word_embeddings": True, "vocab_size": 272},
    ),
    "Qwen3-MoE": Animal(about="experts", config=hf.Qwen3MoeConfig, keys={**HEADS, **EXPERTS}),
    "Qwen3-Next": Animal(
        about="linear attention, experts",
        config=hf.Qwen3NextConfig,
        packs=False,
        keys={**HEADS, **DELTA, "layer_types": ["linear_attention", "full_attention"]},
    ),
    "Gemma 2": Animal(
        about="soft caps, sliding windows",
        config=hf.Gemma2Config,
        keys={**HEADS, **SOFT, "sliding_window": 6},
        packs=False,
    ),
    "Gemma 3": Animal(
        about="sliding windows, a token beyond the embeddings",
        config=hf.Gemma3TextConfig,
        keys={**HEADS, **SOFT, **WINDOWS},
        beyond=("<image_soft_token>",),
    ),
    "Phi-3": Animal(about="projections in one matrix", config=hf.Phi3Config, keys=GROUPED),
    "OLMo 2": Animal(about="norms after the layers", config=hf.Olmo2Config, keys=GROUPED),
    "OLMo 3": Animal(about="sliding windows", config=hf.Olmo3Config, keys={**GROUPED, **WINDOWS}),
    "SmolLM3": Animal(
        about="a layer without positions, a template with a date and `enable_thinking`",
        config=hf.SmolLM3Config,
        keys={**GROUPED, "no_rope_layers": [1, 0]},
        template=DATED,
        model={"template_args": {"enable_thinking": True}, "today": "2025-03-17"},
    ),
    "Granite": Animal(
        about="scaled logits",
        config=hf.GraniteConfig,
        keys={**GROUPED, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    ),
    "Cohere 2": Animal(about="scaled logits, sliding windows", config=hf.Cohere2Config, keys={**GROUPED, **WINDOWS}),
    "GLM-4": Animal(about="rotation of half a head", config=hf.Glm4Config, keys=HEADS),
    "gpt-oss": Animal(
        about="experts, sinks, sliding windows",
        config=hf.GptOssConfig,
        packs=False,
        keys={**HEADS, **WINDOWS, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "GPT-2": Animal(
        about="learned positions, dropout",
        config=hf.GPT2Config,
        keys={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "GPT-NeoX": Animal(about="parallel layers", config=hf.GPTNeoXConfig, keys={**SIZES, "intermediate_size": 48}),
    "LFM2": Animal(
        about="convolutions",
        config=hf.Lfm2Config,
        keys={**GROUPED, "layer_types": ["conv", "full_attention"]},
        packs=False,
    ),
    "Falcon-H1": Animal(
        about="state-space layers beside attention", config=hf.FalconH1Config, keys={**HEADS, **MAMBA}, packs=False
    ),
}


def build_tokenizer(template: str = TEMPLATE, more: tuple[str, ...] = ()) -> hf.PreTrainedTokenizerFast:
    """Return a tokenizer of bytes."""
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIAL, *more])
    special = {"pad_token": SPECIAL[0], "bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **special)


def save(animal: Animal, folder: Path) -> Path:
    tokenizer = build_tokenizer(animal.template, animal.beyond)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": animal.stops}
    sizes = {"vocab_size": len(tokenizer) - len(animal.beyond), "initializer_range": 0.3}
    torch.manual_seed(0)
    config = animal.config(**{**ids, **sizes, **animal.keys})
    model = hf.AutoModelForCausalLM.from_config(config, dtype=animal.dtype)
    model.save_pretrained(folder, **animal.saved)
    tokenizer.save_pretrained(folder)
    return folder


REWARD = """
def reward(problem, text):
    return float((sum(map(ord, text)) + int(problem.answer)) % 2)
"""
STAGES = {
    "sft": {"steps": 3, "batch_size": 8, "optimizer": {"lr": 1e-3}},
    "dpo": {"steps": 2, "batch_size": 4, "samples_per_prompt": 4, "optimizer": {"lr": 1e-3}},
    "rl": {
        "steps": 3,
        "prompts_per_step": 6,
        "samples_per_prompt": 4,
        "optimizer": {"lr": 4e-2},
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.01},
        "zero_variance": "drop",
    },
}


def write_recipe(folder: Path, model: Path, stages: tuple[str, ...] = ("sft", "dpo", "rl"), **keys: Any) -> Path:
    rows = [{"question": f"{n} {n * 7 % 11}", "answer": str(n // 2 % 2), "solution": "ab cd"} for n in range(320)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    task = {"kind": "table", "train": str(folder / "problems.jsonl"), "num_heldout": 24}
    recipe = {
        "seed": 3,
        "task": {**task, "grader": "python", "reward_file": str(folder / "reward.py")},
        "model": {"kind": "pretrained", "path": str(model), **keys},
        "max_new_tokens": 8,
        "stages": [{"kind": name, **STAGES[name]} for name in stages],
        "eval": {"num_problems": 24, "samples_per_problem": 1},
        "probe": {"min_rollouts": 1, "causal": {"max_rollouts": 1, "num_continuations": 2}, "kernel": "eager"},
        "runtime": {"device": "cpu", "threads": 1, "grader_workers": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def plain_logprobs(model: Any, prompt: list[int], completion: list[int], *, num_ids: int) -> list[float]:
    """Return what transformers itself says of one sequence, over the ids of the tokenizer."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1, :num_ids].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None]).squeeze(1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_a_model_goes_through_every_stage(name, tmp_path):
    animal, run, progress = ZOO[name], RunDirectory(tmp_path / "run"), Notes()
    folder = save(animal, tmp_path / "model")
    assert (folder / "model.safetensors.index.json").is_file() == bool(animal.saved)
    config = load_config(write_recipe(tmp_path, folder, **animal.model))
    train_run(config, run, resume=False, progress=progress)
    evaluate_run(config, run, progress=progress)
    summary = probe_run(config, run, progress=progress)

    assert animal.packs is not any("does not read packed rows" in note for note in progress.notes)
    steps = read_metrics(run.metrics_path)
    assert all(math.isfinite(step["loss"]) and step["grad_norm"] > 0 for step in steps)
    of = {name: [step for step in steps if step["stage"] == name] for name in STAGES}
    assert of["sft"][-1]["loss"] < of["sft"][0]["loss"]
    assert of["dpo"][0]["num_pairs"] == 8
    assert of["dpo"][0]["loss"] == pytest.approx(math.log(2), abs=1e-4)  # policy and reference are one
    assert all(step["num_used_rollouts"] > 0 and step["logprob_gap"] < 1e-5 for step in of["rl"])
    assert abs(of["rl"][0]["kl"]) < 1e-6 < of["rl"][-1]["kl"]
    checkpoints = run.checkpoints
    assert len({one.weights_sha256 for one in checkpoints}) == len(checkpoints) == 3

    # The probe read rollouts that were wrong and are right now, and its numbers are those of transformers.
    assert summary is not None
    assert summary.num_rollouts > 0
    tokens = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    sequences = {
        one["sequence_id"]: one
        for one in read_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA).to_pylist()
    }
    own = [one for one in tokens if (one["checkpoint"], one["reference"]) == ("rl-3", "dpo-2")]
    assert sum(one["js"] for one in own) > 1e-3
    assert all(math.isfinite(one[kl]) and one[kl] >= 0 for one in own for kl in ("kl_forward", "kl_reverse", "js"))
    final = checkpoints[-1].path
    model = hf.AutoModelForCausalLM.from_pretrained(final, dtype=torch.float32).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(final)
    for number in list({one["sequence_id"] for one in own})[:6]:
        of_sequence = sorted((one for one in own if one["sequence_id"] == number), key=lambda one: one["position"])
        one = sequences[number]
        expected = plain_logprobs(model, one["prompt_ids"], one["completion_ids"], num_ids=len(tokenizer))
        assert [one["logprob"] for one in of_sequence] == pytest.approx(expected, abs=2e-4)

    # A checkpoint says of itself what the folder said that it began with.
    said = [hf.AutoConfig.from_pretrained(one) for one in (folder, final)]
    assert said[0].tie_word_embeddings == said[1].tie_word_embeddings
    assert said[1].dtype == torch.float32
    stops = [hf.GenerationConfig.from_pretrained(one).eos_token_id for one in (folder, final)]
    assert stops == [animal.stops, [2, 3]]  # 3 ends a turn in the template
    rollouts = read_table(run.rollouts_path(8), ROLLOUTS_SCHEMA)["prompt_ids"].to_pylist()
    prompts = {tuple(ids) for ids in [*rollouts, *(one["prompt_ids"] for one in sequences.values())]}
    begin = "<s>17think<s><|user|>" if animal.template == DATED else "<s><|user|>"
    assert all(tokenizer.decode(list(prompt)).startswith(begin) for prompt in prompts)


def test_the_table_of_the_docs_is_the_zoo():
    rows = [f"| {name} | {'packed' if animal.packs else 'padded'} | {animal.about} |" for name, animal in ZOO.items()]
    assert "\n".join(rows) + "\n" in (DOCS / "any-model.md").read_text(encoding="utf-8")


MAMBA_2 = Animal(
    about="",
    config=hf.Mamba2Config,
    keys={"hidden_size": 32, "num_hidden_layers": 1, "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2},
    packs=False,
)


@pytest.mark.slow
def test_a_model_that_cannot_be_sampled_is_refused_before_anything_starts(tmp_path, capsys):
    """Of two stages the first could be trained."""
    model = save(MAMBA_2, tmp_path / "model")
    recipe, out = write_recipe(tmp_path, model, ("sft", "rl")), tmp_path / "run"
    with pytest.raises(ConfigError, match="cannot sample from Mamba2ForCausalLM"):
        train_run(load_config(recipe), RunDirectory(out), resume=False, progress=SilentProgress())
    assert not out.exists()
    capsys.readouterr()
    task = ("--task", "table", f"train={tmp_path / 'problems.jsonl'}", "--max-new-tokens", "4")
    for command in (
        ("config", "check", recipe),
        ("sample", model, *task, "--out", tmp_path / "samples.parquet"),
        ("eval", "--model", model, *task, "--out", tmp_path / "eval"),
    ):
        with pytest.raises(SystemExit):
            main([str(word) for word in command])
        line = capsys.readouterr().err
        assert "error: the embedded engine cannot sample from Mamba2ForCausalLM: it keeps what it has read in" in line
        assert len(line.splitlines()) == 1
    assert {one.name for one in tmp_path.iterdir()} == {"model", "problems.jsonl", "reward.py", "recipe.yaml"}
    with pytest.raises(SystemExit) as caught:
        main(["config", "check", str(write_recipe(tmp_path, model, ("sft",)))])
    assert caught.value.code == 0


@pytest.mark.slow
def test_a_model_that_cannot_be_sampled_learns_and_is_probed_on_responses(tmp_path):
    model, run = save(MAMBA_2, tmp_path / "model"), RunDirectory(tmp_path / "run")
    train_run(load_config(write_recipe(tmp_path, model, ("sft",))), run, resume=False, progress=SilentProgress())
    rows = [{"question": f"{n} 1", "response": f"a{n} b", "answer": "0"} for n in range(6)]
    (tmp_path / "responses.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    final = run.checkpoints[-1].path
    command = ["probe", "--use-responses", tmp_path / "responses.jsonl", "--reference", f"base={model}"]
    with pytest.raises(SystemExit):
        main([str(word) for word in (*command, "--checkpoint", f"sft={final}", "--out", tmp_path / "probe")])
    tokens = read_table(RunDirectory(tmp_path / "probe").probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    assert sum(one["js"] for one in tokens) > 1e-3
