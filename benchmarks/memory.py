"""Memory: the peak that `swerve config check` predicts against the peak that training reaches.

    python -m benchmarks.memory [--device cpu|cuda] [--tokens 2048]

Models of 50 million parameters and more, with random weights, make two RL steps with a KL term, each in a
process of its own. On CUDA the peak is that of torch's allocator. On a processor it is the peak of resident memory
above what the process had after its imports, with `MALLOC_MMAP_THRESHOLD_=65536`: without it the C library keeps freed
blocks of up to 32 MiB for itself, and a process that frees tensors of many sizes holds up to 1.7 times as much.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from benchmarks.process import print_header, print_line, reset_peak, resident_bytes
from swerve.artifacts.run import RunDirectory
from swerve.models.folder_checks import quiet_transformers
from swerve.models.tiny import build_word_tokenizer
from swerve.plan.training import predicted_memory
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.loop import train_run

_SIZES = {"vocab_size": 32_000, "num_attention_heads": 8, "num_key_value_heads": 4, "pad_token_id": 0}
_QWEN3 = Qwen3Config(
    hidden_size=512, intermediate_size=1536, num_hidden_layers=12, head_dim=64, tie_word_embeddings=True, **_SIZES
)
MODELS: dict[str, tuple[PreTrainedConfig, dict[str, Any]]] = {
    "qwen3, tied": (_QWEN3, {}),
    "qwen3, tied, lora": (_QWEN3, {"lora": {"rank": 32}}),
    "qwen3, tied, frozen but 2 layers": (
        _QWEN3,
        {"freeze": ["*embed*", "*.norm.*", *(f"*.layers.{n}.*" for n in range(10))]},
    ),
    "llama, untied, bfloat16": (
        LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=10, tie_word_embeddings=False, **_SIZES),
        {"precision": "bfloat16"},
    ),
    "qwen2, tied, checkpointed": (
        Qwen2Config(hidden_size=768, intermediate_size=2048, num_hidden_layers=10, tie_word_embeddings=True, **_SIZES),
        {"activation_checkpointing": "full"},
    ),
}


def _recipe(folder: Path, name: str, device: str, tokens: int) -> Path:
    """Write a model and the recipe that trains it; return the recipe."""
    config, settings = MODELS[name]
    lora, freeze = settings.get("lora"), settings.get("freeze", [])
    runtime = {key: value for key, value in settings.items() if key not in ("lora", "freeze")}
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)
    with quiet_transformers():
        model.save_pretrained(folder / "model")
    build_word_tokenizer(load_family(AdditionTask()).words).save_pretrained(folder / "model")
    stage = {
        "kind": "rl",
        "steps": 2,
        "prompts_per_step": max(4, tokens // 512),
        "samples_per_prompt": 8,
        "tokens_per_batch": tokens,
        "zero_variance": "keep",
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.1},
        "optimizer": {"lr": 1e-6},
        "freeze": freeze,
    }
    document = {
        "task": {"kind": "addition", "num_train": 200},
        "model": {"kind": "pretrained", "path": str(folder / "model"), "lora": lora},
        "max_new_tokens": 96,
        "stages": [stage],
        "runtime": {"device": device, **runtime},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _measured(recipe: Path) -> int:
    """Train in this process; return the peak in bytes."""
    config = load_config(recipe)
    if config.model.lora is not None:
        import peft  # noqa: F401 - its own size is not measured
    before = resident_bytes("VmRSS") or 0
    reset_peak()
    train_run(config, RunDirectory(recipe.parent / "run"), resume=False, progress=SilentProgress())
    if config.runtime.device == "cuda":
        return torch.cuda.max_memory_allocated()
    return (resident_bytes("VmHWM") or 0) - before


def measure(name: str, device: str, tokens: int) -> dict[str, Any]:
    """Return the parts that are predicted for one model, and both peaks, in bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        recipe = _recipe(Path(scratch), name, device, tokens)
        predicted = predicted_memory(load_config(recipe))
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.memory", "--recipe", str(recipe)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        measured = int(done.stdout)
    parts = {part: getattr(predicted, part) for part in predicted.__dataclass_fields__ if part != "stage"}
    ratio = round(predicted.peak / measured, 3)
    return {"model": name, "tokens": tokens, **parts, "predicted": predicted.peak, "measured": measured, "ratio": ratio}


def main() -> None:
    """Measure every model; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--recipe", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.recipe is not None:
        sys.stdout.write(json.dumps(_measured(arguments.recipe)))
        return
    print_header("torch", "transformers", device=torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu")
    for name in MODELS:
        print_line(measure(name, arguments.device, arguments.tokens))


if __name__ == "__main__":
    main()
