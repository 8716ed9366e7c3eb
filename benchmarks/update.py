"""The update alone: seconds, tokens per second and memory by precision, rows and activation checkpointing.

    python -m benchmarks.update [--layout small|0.5B|1.5B|4B] [--layers 28] [--tokens 16384] [--repeats 3] [--ways 2 4]
    MALLOC_MMAP_THRESHOLD_=65536 python -m benchmarks.update --layout 1.5B --layers 2 ...
    python -m benchmarks.update --places --tokens 16384 [--responses FILE]

GSM8K-like groups (8 completions of 250 tokens on average, prompts of 60 to 250), random weights, forward and backward
pass of one loss in micro-batches of `--tokens`. `kept` is what the forward pass leaves for the backward pass, and
`peak` the most that is held beyond weights and gradients, both in GB and of one micro-batch: on CUDA as torch's
allocator counts it, on a processor the growth of resident memory, where the C library gives back what is freed (the
second command).

`--places` instead prints, for three distributions of lengths, the places of the rows for each token of the sequences:
padded, packed with nothing in common, packed with what sequences begin with once, which is a group's prompt here; and
the places that attention then reads side by side. `--responses` adds the responses of a file, JSON lines with
`question` and `response`, compressed; their tokens are words and single marks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from benchmarks.process import print_header, print_line, reset_peak, resident_bytes
from swerve.batch import TokenBatch, TokenSequence, token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.functional.logprobs import token_logprobs
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

LAYOUTS: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 6, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 4096},
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151_936},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "vocab_size": 151_936},
    "4B": {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936},
}  # fmt: skip
"""Shapes of Qwen2, but for those that name another architecture."""
WAYS: tuple[dict[str, Any], ...] = (
    {"rows": "padded"},
    {"rows": "packed"},
    {"rows": "padded", "precision": "bfloat16"},
    {"rows": "packed", "precision": "bfloat16"},
    {"rows": "packed", "precision": "bfloat16", "activation_checkpointing": "every_second"},
    {"rows": "packed", "precision": "bfloat16", "activation_checkpointing": "full"},
)


# Prompts are uniform in length; a completion has mean x exp(N(0, 0.35)) of its group x exp(N(0, sigma)) tokens.
LENGTHS: dict[str, dict[str, Any]] = {
    "GSM8K-like": {"groups": 64, "samples": 8, "prompt": (60, 250), "mean": 250, "sigma": 0.4, "cap": 1024},
    "K&K-like": {"groups": 8, "samples": 16, "prompt": (250, 450), "mean": 900, "sigma": 0.6, "cap": 4096},
    "DeepScaleR-like": {"groups": 128, "samples": 8, "prompt": (60, 300), "mean": 2500, "sigma": 0.7, "cap": 8192},
}


def layout_config(layout: Mapping[str, Any]) -> PreTrainedConfig:
    """Return the configuration of a model of these shapes, whose head is its embeddings."""
    more = {"model_type": "qwen2", "tie_word_embeddings": True, "max_position_embeddings": 4096}
    found: PreTrainedConfig = AutoConfig.for_model(**{**more, **layout})
    return found


def sequences(profile: Mapping[str, Any], *, seed: int = 0) -> list[TokenSequence]:
    """Return the groups of one step, as long as a profile says."""
    rng = random.Random(seed)
    found = []
    for _ in range(profile["groups"]):
        prompt = [rng.randrange(1000) for _ in range(rng.randint(*profile["prompt"]))]
        mean = profile["mean"] * math.exp(rng.gauss(0, 0.35))
        for _ in range(profile["samples"]):
            length = max(1, min(profile["cap"], round(mean * math.exp(rng.gauss(0, profile["sigma"])))))
            found.append((prompt, [rng.randrange(1000) for _ in range(length)]))
    return found


def read_responses(path: Path) -> list[TokenSequence]:
    """Return the responses of a file in their order, with words for tokens."""
    ids: dict[str, int] = {}

    def tokens(text: str) -> list[int]:
        return [ids.setdefault(word, len(ids)) for word in re.findall(r"\s?\w+|\s|[^\w\s]", text)]

    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [(tokens(line["question"]), tokens(line["response"])) for line in map(json.loads, lines)]


def row_places(name: str, chosen: Sequence[TokenSequence], tokens: int) -> dict[str, Any]:
    """Return how many places the rows of a step have for each token of its sequences."""
    real = sum(len(prompt) + len(completion) for prompt, completion in chosen)
    alone = [([-number, *prompt[1:]], completion) for number, (prompt, completion) in enumerate(chosen)]
    padded, packed_alone, packed = (
        token_batches(sequences, pad_id=0, tokens_per_batch=tokens, packed=is_packed)
        for sequences, is_packed in ((chosen, False), (alone, True), (chosen, True))
    )
    rows = {"padded": padded, "packed_alone": packed_alone, "packed": packed}
    attended = sum(places.numel() for batch in packed if batch.packed_row for places in batch.packed_row.blocks)
    return {
        "lengths": name,
        "tokens": real,
        "tokens_per_batch": tokens,
        **{way: round(sum(batch.input_ids.numel() for batch in found) / real, 3) for way, found in rows.items()},
        "attended": round(attended / real, 3),
    }


def measure(
    config: PreTrainedConfig, way: dict[str, Any], chosen: Sequence[TokenSequence], tokens: int, repeats: int
) -> dict[str, Any]:
    """Return the figures of one way to make the update."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        torch.manual_seed(0)
        untyped: Any = AutoModelForCausalLM
        model = untyped.from_config(config, dtype=torch.float32)
    weights = ReplicatedModel(model, World(device=device), runtime=RuntimeConfig(**way))
    weights.model.train()
    for parameter in weights.named_parameters().values():
        parameter.grad = torch.zeros_like(parameter)
    batches = token_batches(chosen, pad_id=0, tokens_per_batch=tokens, packed=weights.packs)
    held = {"kept": 0, "peak": 0}

    def update(batch: TokenBatch) -> None:
        ids = batch.completion_ids[batch.mask]

        def loss(logits: Tensor, rows: slice) -> Tensor:
            return -token_logprobs(logits, ids[rows]).mean()

        before = _allocated(device)
        value = weights.head.loss(weights.completion_hidden(batch), loss)
        held["kept"] = max(held["kept"], _allocated(device) - before)
        value.backward()
        held["peak"] = max(held["peak"], _allocated(device, peak=True) - before)

    seconds = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        elif _gives_back():
            reset_peak()
        started = time.perf_counter() if device == "cuda" else time.process_time()
        for batch in batches:
            update(batch.to(device))
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() if device == "cuda" else time.process_time()) - started)
    took = statistics.median(seconds[1:] or seconds)
    real = sum(len(prompt) + len(completion) for prompt, completion in chosen)
    return {
        **way,
        "layers": config.num_hidden_layers,
        "seconds": round(took, 3),
        "tokens_per_second": round(real / took),
        "places": max(batch.input_ids.numel() for batch in batches),
        "cells_per_token": round(sum(batch.input_ids.numel() for batch in batches) / real, 3),
        **({name: round(size / 1e9, 2) for name, size in held.items()} if device == "cuda" or _gives_back() else {}),
    }


def _allocated(device: str, *, peak: bool = False) -> int:
    """Return the bytes that are held, or were at most; 0 where that is not known."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    return (resident_bytes("VmHWM" if peak else "VmRSS") or 0) if _gives_back() else 0


def _gives_back() -> bool:
    """Whether the C library gives freed blocks back at once, so that resident memory is what is held."""
    return "MALLOC_MMAP_THRESHOLD_" in os.environ


def main() -> None:
    """Measure every way; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", choices=tuple(LAYOUTS), default="small")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", type=int, nargs="+", default=range(len(WAYS)), help="the first is 0")
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--responses", type=Path)
    arguments = parser.parse_args()
    if arguments.places:
        print_header(tokens=arguments.tokens)
        steps = {name: sequences(lengths) for name, lengths in LENGTHS.items()}
        if arguments.responses:
            steps["responses"] = read_responses(arguments.responses)
        for name, chosen in steps.items():
            print_line(row_places(name, chosen, arguments.tokens))
        return
    torch.set_num_threads(1)
    layout = {**LAYOUTS[arguments.layout], **({"num_hidden_layers": arguments.layers} if arguments.layers else {})}
    config = layout_config(layout)
    chosen = sequences({**LENGTHS["GSM8K-like"], "groups": arguments.groups})
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print_header(
        "torch", "transformers", device=device, layout=layout, tokens=arguments.tokens, groups=arguments.groups
    )
    for way in (WAYS[number] for number in arguments.ways):
        try:
            print_line(measure(config, way, chosen, arguments.tokens, arguments.repeats))
        except torch.OutOfMemoryError:
            print_line({**way, "out_of_memory": True})
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
