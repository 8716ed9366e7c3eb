"""Folders of the zoo's models with a tokenizer of bytes, and recipes that train them on a checksum of the text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers as hf
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.zoo.animal import SPECIAL, TEMPLATE, Animal


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
    """Write a random model and its tokenizer; return the folder."""
    tokenizer = build_tokenizer(animal.template, animal.beyond)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": animal.stops}
    sizes = {"vocab_size": len(tokenizer) - len(animal.beyond), "initializer_range": 0.3}
    torch.manual_seed(0)
    config = hf.AutoConfig.for_model(animal.type, **{**ids, **sizes, **animal.keys})
    model = hf.AutoModelForCausalLM.from_config(config, dtype=animal.dtype)
    with torch.no_grad():
        for weight in model.parameters():
            if not animal.is_new and weight.min() == weight.max():
                weight.add_(0.1 * torch.randn_like(weight))  # biases of 0 and norms of 1 would hide a fault
        embeddings = model.get_input_embeddings().weight
        empty = embeddings.abs().amax(1) == 0  # the padding's, whose states of 0 choose experts and keys by chance
        embeddings[empty] = 0.3 * torch.randn_like(embeddings[empty])
    model.save_pretrained(folder, **animal.saved)
    tokenizer.save_pretrained(folder)
    return folder


_STAGES = {
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


def few_steps(*names: str) -> dict[str, dict[str, Any]]:
    """Return the settings of stages of two or three steps, in this order."""
    return {name: _STAGES[name] for name in names}


REWARD = """
def reward(problem, text):
    return float((sum(map(ord, text)) + int(problem.answer)) % 2)
"""


def write_recipe(
    folder: Path, model: Path, stages: Mapping[str, Mapping[str, Any]], *, max_new_tokens: int = 8, **keys: Any
) -> Path:
    """Write a recipe with its problems and its reward: right is what a checksum of the text says, half of all texts."""
    rows = [
        {"question": f"{n} {n * 7 % 11}" + " ab" * (n % 4), "answer": str(n // 2 % 2), "solution": "ab cd"}
        for n in range(320)
    ]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    task = {"kind": "table", "train": str(folder / "problems.jsonl"), "num_heldout": 24}
    recipe = {
        "seed": 3,
        "task": {**task, "grader": "python", "reward_file": str(folder / "reward.py")},
        "model": {"kind": "pretrained", "path": str(model), **keys},
        "max_new_tokens": max_new_tokens,
        "stages": [{"kind": name, **settings} for name, settings in stages.items()],
        "eval": {"num_problems": 24, "samples_per_problem": 1},
        "probe": {"min_rollouts": 1, "causal": {"max_rollouts": 1, "num_continuations": 2}, "kernel": "eager"},
        "runtime": {"device": "cpu", "threads": 1, "grader_workers": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path
