"""Plans against what commands then take: memory, disk, tokens and hours of a model with the shapes of 0.5 billion.

    python -m benchmarks.plan [--config FOLDER] [--commands sample step eval probe claim]

The model has random weights, so that no completion ends early. Each command is planned with `--measure` and then run,
in processes of their own, one right after the other. What loading takes (a `swerve sample` of one token, and of two
models) is left out of the hours, and so is what a first step takes beyond the second, for it is the first to touch its
memory. The disk is the largest that the folder becomes. Linux only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.process import print_header, print_line

HALF = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True, "max_position_embeddings": 32_768,
}  # fmt: skip
RECIPE = {
    "name": "step",
    "task": {"kind": "addition", "digits": 2, "num_train": 200, "num_heldout": 20},
    "max_new_tokens": 36,
    "eval": {"num_problems": 4, "samples_per_problem": 1},
    "retention": {"save_optimizer": True},
    "stages": [
        {
            "kind": "rl",
            "steps": 2,  # the optimizer's moments are there beside what the second one computes
            "prompts_per_step": 2,
            "samples_per_prompt": 8,
            "tokens_per_batch": 1024,
            "zero_variance": "keep",
            "entropy": {"coef": 0.01},  # a random model is never right, and without it nothing has a gradient
            "optimizer": {"lr": 1e-6},
        }
    ],
}
_NUM_LOADED = {"sample": 1, "step": 1, "eval": 2, "probe": 2, "claim": 4}
"""Models that a command loads, one after another; a card loads each to sample, and again to read."""
_INTERVAL = 0.02
"""Seconds between two looks at the memory of a process."""
_FILLERS = 15_000
"""Words beside the task's: the end token is one of so many."""
_TASK = "--task addition digits=2 num_heldout=8 --max-new-tokens 36"
COMMANDS = {
    "sample": f"sample model {_TASK} --num-samples 2 --out samples.parquet",
    "step": "train step.yaml --out run",
    "eval": "eval run",
    "probe": "probe --use-responses samples.parquet --reference model --checkpoint late=run:rl --out probed "
    "probe.noise_models=0 probe.causal.max_rollouts=0",
    "claim": f"claim base=model late=run:rl {_TASK} --num-samples 2 --parts accuracy,gained --out card",
}


def _prepare(folder: Path, config: Path | None) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

    from swerve.models.folder_checks import quiet_transformers
    from swerve.models.tiny import build_word_tokenizer
    from swerve.problems import load_family
    from swerve.problems.addition import AdditionTask

    torch.manual_seed(0)
    made: Any = AutoModelForCausalLM
    with quiet_transformers():
        shapes = AutoConfig.from_pretrained(config) if config else Qwen2Config(**HALF)
        made.from_config(shapes).save_pretrained(folder / "model")
    words = load_family(AdditionTask()).words
    build_word_tokenizer([*words, *map(str, range(10**6, 10**6 + _FILLERS))]).save_pretrained(folder / "model")
    (folder / "step.yaml").write_text(yaml.safe_dump({**RECIPE, "model": {"kind": "pretrained", "path": "model"}}))


class _Ran(NamedTuple):
    """What a command took."""

    seconds: float
    memory: int
    """Bytes at the peak; pages of files do not count: the system takes them back when it needs room."""
    disk: int
    """Bytes at the peak of all files in the folder."""
    printed: str


def _run(folder: Path, words: str) -> _Ran:
    command = [sys.executable, "-m", "swerve", *shlex.split(words), "--json"]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    started, peak, disk = time.perf_counter(), 0, _size(folder)
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out)
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)
            disk = max(disk, _size(folder))
            time.sleep(_INTERVAL)
        seconds = time.perf_counter() - started
        out.seek(0)
        printed = out.read().decode()
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}")
    return _Ran(seconds, peak * 1024, max(disk, _size(folder)), printed)


def _tokens(folder: Path, name: str, printed: str) -> int | None:
    """Return how many tokens a command sampled; None where its files do not say."""
    import pyarrow.parquet as pq

    files = {"sample": ["samples.parquet"], "step": ["run/rollouts"], "eval": ["run/eval"], "claim": ["card"]}
    found = 0
    for place in files.get(name, ()):
        paths = [folder / place] if place.endswith(".parquet") else sorted((folder / place).rglob("*.parquet"))
        for path in paths:
            table = pq.read_table(path)
            found += sum(map(len, table["completion_ids"].to_pylist())) if "completion_ids" in table.column_names else 0
    return found or None


def _size(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a temporary file of the command
            sizes.append(path.stat().st_size if path.is_file() else 0)
    return sum(sizes)


def _begins(folder: Path) -> float:
    """Return how much longer the first step of the run took than the second."""
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first, second = (json.loads(line)["seconds"] for line in lines[:2])
    return float(first - second)


def main() -> None:
    """Plan and run each command; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, help="Folder with another config.json.")
    parser.add_argument("--commands", nargs="+", choices=[*COMMANDS], default=[*COMMANDS])
    arguments = parser.parse_args()
    print_header("torch", "transformers", device="cpu")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        preparing = multiprocessing.get_context("spawn").Process(target=_prepare, args=(folder, arguments.config))
        preparing.start()
        preparing.join()
        idle = _run(folder, "config show step.yaml").memory  # without torch
        little = f"{_TASK} --limit 1 --max-new-tokens 1"
        loading = _run(folder, f"sample model {little} --out one.parquet").seconds
        again = _run(folder, f"sample a=model b=model {little} --out two").seconds - loading
        for name in arguments.commands:
            plan = json.loads(_run(folder, f"plan {COMMANDS[name]} --measure").printed)
            before = _size(folder)
            ran = _run(folder, COMMANDS[name])
            seconds = ran.seconds - loading - again * (_NUM_LOADED[name] - 1)
            seconds -= _begins(folder) if name == "step" else 0.0
            hours = plan["hours"]["total"]
            print_line(
                {
                    "command": name,
                    "memory": plan["memory"] and plan["memory"]["peak"],
                    "memory_measured": ran.memory - idle,
                    "disk": plan["disk"]["total"],
                    "disk_measured": ran.disk - before,
                    "tokens": sum(plan["tokens"].values()),
                    "tokens_measured": _tokens(folder, name, ran.printed),
                    "seconds": hours and round(3600 * hours, 1),
                    "seconds_measured": round(seconds, 1),
                    "loading": round(loading, 1),
                    "loading_again": round(again, 1),
                }
            )


if __name__ == "__main__":
    main()
