"""Real trainings with the callback, for test_callback_against_trl.py.

Runs under the Python of an environment that has TRL and what swerve imports; `PYTHONPATH` leads to swerve. Trains a
random Qwen3 of a few thousand weights, for a few steps each, under the folder named by its argument, and prints one
JSON object: for each training its logs, the recorded lines, and `swerve.probe` of the saved models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import swerve.probe
from swerve.probe import DivergenceCallback

WORDS = ["<pad>", "<eos>", "<unk>", "zero", "one", "two", "three", "four", "plus", "is", "answer", "so"]
SEQUENCES = [([4, 8, 5, 9], [6, 1]), ([5, 8, 5], [9, 7, 1]), ([3], [8, 3, 9, 3, 11])]
OPTIONS: dict[str, Any] = {
    "max_steps": 4,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "learning_rate": 0.02,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 3,
}


def tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def model() -> Qwen3ForCausalLM:
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        attention_dropout=0.1,
        tie_word_embeddings=True,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
    )
    return Qwen3ForCausalLM(config)


def trainer(kind: str, out: Path, **more: Any) -> Trainer:
    options = {**OPTIONS, "output_dir": str(out), **more}
    texts = [f"{a} plus {b} is" for a in WORDS[3:8] for b in WORDS[3:8]]
    if kind == "trainer":
        rows = [{"input_ids": [4, 8, 5, 9, 6, 1], "labels": [4, 8, 5, 9, 6, 1], "attention_mask": [1] * 6}] * 8
        return Trainer(model=model(), args=TrainingArguments(**options), train_dataset=Dataset.from_list(rows))
    if kind == "sft":
        data = Dataset.from_list([{"prompt": text, "completion": " answer two"} for text in texts])
        return SFTTrainer(model=model(), args=SFTConfig(**options), train_dataset=data, processing_class=tokenizer())
    if kind == "dpo":
        data = Dataset.from_list([{"prompt": text, "chosen": " two", "rejected": " four"} for text in texts])
        return DPOTrainer(
            model=model(),
            ref_model=model(),
            args=DPOConfig(**options),
            train_dataset=data,
            processing_class=tokenizer(),
        )
    options |= {"num_generations": 4, "max_completion_length": 6, "per_device_train_batch_size": 4}
    return GRPOTrainer(
        model=model(),
        reward_funcs=lambda completions, **_: [float(len(text)) for text in completions],
        args=GRPOConfig(**options),
        train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
        processing_class=tokenizer(),
    )


def weights(trained: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}


def train(kind: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Train without and with the callback; compare the recorded figures with those of the saved models."""
    plain = trainer(kind, folder / "plain", **more)
    plain.train()
    observed = trainer(kind, folder / "observed", **more)
    observed.model.save_pretrained(folder / "initial")
    path = folder / "probe.jsonl"
    DivergenceCallback(SEQUENCES, every=3, path=path).attach(observed)
    observed.train()
    observed.model.save_pretrained(folder / "final")
    first, last = (Qwen3ForCausalLM.from_pretrained(folder / name) for name in ("initial", "final"))
    found = swerve.probe(first, last, SEQUENCES)
    before, after = weights(plain), weights(observed)
    return {
        "same_weights": all(torch.equal(before[name], after[name]) for name in before),
        "lines": [json.loads(line) for line in path.read_text().splitlines()],
        "library": {
            name: [float(value) for value in getattr(found, name)]
            for name in ("js", "kl_forward", "kl_reverse", "entropy", "entropy_ref")
        },
        "history": observed.state.log_history,
        "plain_history": plain.state.log_history,
    }


def resume(folder: Path) -> dict[str, Any]:
    """Train in one go and in two parts; the lines must be the same."""
    lines = []
    for name, parts in (("whole", [6]), ("parts", [4, 6])):
        path = folder / f"{name}.jsonl"
        for steps in parts:
            one = trainer("trainer", folder / name, max_steps=6, save_strategy="steps", save_steps=2)
            if steps < 6:  # stop early, as a killed process would, after step `steps`
                one.add_callback(_StopAt(steps))
            DivergenceCallback(SEQUENCES, every=1, path=path).attach(one)
            one.train(
                resume_from_checkpoint=str(folder / name / "checkpoint-2") if steps == 6 and len(parts) > 1 else None
            )
        lines.append([json.loads(line) for line in path.read_text().splitlines()])
    return {"whole": lines[0], "parts": lines[1]}


class _StopAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


def main() -> None:
    folder = Path(sys.argv[1])
    results: dict[str, Any] = {kind: train(kind, folder / kind) for kind in ("trainer", "sft", "dpo", "grpo")}
    results["bf16"] = train("sft", folder / "bf16", bf16=True)
    results["resume"] = resume(folder)
    sys.stdout.write("\n" + json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
