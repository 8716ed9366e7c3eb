"""Training of 8 and 70 billion parameters on 8 to 64 devices, by arithmetic: memory, traffic and time of a step.

    python -m benchmarks.devices

Memory is what `swerve config check --processes N` predicts; nothing is measured. Traffic and time follow from the
assumptions in `ASSUMED`: FSDP2 gathers the weights of the model for every micro-batch forward and backward, and sums
its gradients; reading the prompts and completions takes 2 floating-point operations a weight and token, gradients 4,
running layers again 2. Prints JSON lines.
"""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.process import print_header, print_line
from swerve.recipes import load_config
from swerve.train.memory import predicted_memory

ASSUMED = {
    "device_gb": 80,
    "flops": 0.4 * 989e12,
    "bytes_per_second": 0.8 * 400e9,
    "memory_bytes_per_second": 0.6 * 3.35e12,
    "prompts": 128,
    "samples": 8,
    "prompt_tokens": 200,
    "completion_tokens": 1024,
    "tokens_per_batch": 16384,
}
"""A device of 80 GB that reaches 40% of 989 TFLOP/s in bfloat16; 80% of 400 GB/s for what it receives (eight links of
50 GB/s between machines of eight devices); decoding at 60% of 3.35 TB/s. A step of 1,024 completions."""
_LLAMA = {"model_type": "llama", "vocab_size": 128_256, "num_key_value_heads": 8, "tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "8 billion": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "70 billion": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
}
_WEIGHTS = {"8 billion": 8_030_261_248, "70 billion": 70_553_706_496}
"""Of Llama 3.1, as published."""
_CHANGES = (
    "task={kind: gsm8k, train: train.jsonl, heldout: test.jsonl}",
    "stages=[{kind: rl, advantages: {kind: dr_grpo}, steps: 1, prompts_per_step: 128, samples_per_prompt: 8, "
    "tokens_per_batch: 16384, optimizer: {lr: 1e-6}}]",
    "max_new_tokens=1024",
    "runtime.precision=bfloat16",
    "runtime.activation_checkpointing=full",
    "runtime.sharding.kind=fsdp",
    "rollout.engine={kind: torch, cache_gb: 20}",
)


def estimate(name: str, devices: int, changes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a step takes in each process."""
    layout = {**_LLAMA, **MODELS[name]}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(json.dumps(layout))
        config = load_config("gsm8k", [f"model.path={scratch}", *_CHANGES, *changes])
        memory = replace(predicted_memory(config, processes=devices), libraries=0)  # the devices are GPUs
    weights, rows = _WEIGHTS[name], ASSUMED["prompts"] * ASSUMED["samples"]
    tokens = ASSUMED["prompts"] * ASSUMED["prompt_tokens"] + rows * ASSUMED["completion_tokens"]
    batches = math.ceil(tokens / devices / ASSUMED["tokens_per_batch"])
    share = (devices - 1) / devices
    update_bytes = batches * weights * (2 + 2 + 4) * share  # gathered twice in bfloat16, gradients in float32
    update_seconds = 8 * weights * tokens / devices / ASSUMED["flops"]
    traffic_seconds = update_bytes / ASSUMED["bytes_per_second"]
    # Every forward pass of sampling reads the weights, and the keys and values of the completions so far.
    cache = 2 * 2 * layout["num_hidden_layers"] * layout["num_key_value_heads"] * 128
    middle = ASSUMED["prompt_tokens"] + ASSUMED["completion_tokens"] / 2
    passes = ASSUMED["completion_tokens"] * max(1, math.ceil(rows / devices * 1224 * cache / 20e9))
    read = 2 * weights + min(rows / devices * middle * cache, 20e9)
    is_whole = memory.held + memory.sampling <= ASSUMED["device_gb"] * 1e9
    return {
        "model": name,
        "devices": devices,
        "held": memory.held,
        "update": memory.held + memory.gradients + memory.gathered + memory.update,
        "sampling": memory.held + memory.sampling if is_whole else None,
        "received_bytes": update_bytes,
        "micro_batches": batches,
        "sampling_seconds": passes * read / ASSUMED["memory_bytes_per_second"] if is_whole else None,
        "update_seconds": update_seconds,
        "traffic_seconds": traffic_seconds,
    }


def main() -> None:
    """Print the table's lines."""
    print_header()
    for name in MODELS:
        for devices in (8, 16, 32, 64):
            print_line(estimate(name, devices))


if __name__ == "__main__":
    main()
