"""A model divided over processes: the memory of each, from loading to an update and a checkpoint.

    python -m benchmarks.divided [--processes 1 2 4]

A Qwen3 of 60 million parameters in bfloat16 files is loaded, makes two updates, and is saved and loaded again, on a
processor, by processes under torchrun. Printed are the bytes of weights, gradients and optimizer states that the first
process holds, and the peak of its private memory above the level before: what is mapped from files is not in it.

The same tensors are also saved by torch.distributed.checkpoint as safetensors, which are then joined to whole files, as
another program would read them; without digests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.process import print_header, print_line, resident_bytes
from swerve.artifacts.checkpoint import CheckpointRef
from swerve.config.runtime import RuntimeConfig, ShardingConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.functional.logprobs import token_logprobs
from swerve.models.folder_checks import quiet_transformers
from swerve.models.model_folder import read_trainer_state
from swerve.models.saving import save_checkpoint
from swerve.models.tiny import build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.train.learner import Learner, load_trainer_state
from swerve.train.sharded_model import ShardedModel, load_for
from swerve.world import World, joined_world

_CONFIG = Qwen3Config(
    hidden_size=640, intermediate_size=1920, num_hidden_layers=10, num_attention_heads=12, num_key_value_heads=4,
    head_dim=64, vocab_size=16_000, tie_word_embeddings=True, pad_token_id=0, dtype="bfloat16",
)  # fmt: skip
_RUNTIME = RuntimeConfig(sharding=ShardingConfig(kind="fsdp"), activation_checkpointing="full")
_SEQUENCES = [([1 + number] * 24, [5, 6, 7] * 32) for number in range(8)]


@contextmanager
def _peak() -> Iterator[list[int]]:
    """Watch the private memory of this process; the list has the largest growth, in bytes, afterwards."""
    before, found, ended = resident_bytes("RssAnon") or 0, [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            found[0] = max(found[0], (resident_bytes("RssAnon") or 0) - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _seconds(world: World, act: Callable[[], Any]) -> float:
    """Return how long all processes together take to do something."""
    world.barrier()
    started = time.perf_counter()
    act()
    world.barrier()
    return round(time.perf_counter() - started, 2)


def _save_by_torch(folder: Path, learner: Learner) -> None:
    state = {**learner.weights.whole_weights()}
    for name, tensors in learner.weights.trainer_state(learner.optimizer).items():
        state |= {
            f"{name}.{key}": tensor.reshape(-1) if tensor.dim() == 0 else tensor for key, tensor in tensors.items()
        }
    for name in learner.model.all_tied_weights_keys:
        state.pop(name, None)
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True, enable_consolidation=True)
    save(state, storage_writer=writer)


def _own_bytes(tensors: Any) -> int:
    local = [one.to_local() if hasattr(one, "to_local") else one for one in tensors if one is not None]
    return sum(one.numel() * one.element_size() for one in local)


def _learner(folder: Path, world: World) -> Learner:
    loaded = load_for(_RUNTIME, folder, world)
    return Learner(ShardedModel(loaded.model, world, runtime=_RUNTIME), loaded.tokenizer, OptimizerConfig(lr=1e-4))


def _update(learner: Learner) -> None:
    mine = learner.world.shard(_SEQUENCES)

    def loss(batch: Any, hidden: Any) -> Any:
        ids = batch.completion_ids[batch.mask]
        return learner.head.loss(hidden, lambda logits, rows: -token_logprobs(logits, ids[rows]).sum() / 768), {}

    learner.update(learner.batches(mine, tokens_per_batch=4096), loss, learning_rate=1e-4)


def _measure(folder: Path) -> None:
    with joined_world("cpu", also_alone=True) as world:
        with _peak() as loading:
            learner = _learner(folder / "model", world)
        with _peak() as updating:
            _update(learner)
            parameters = list(learner.named_parameters().values())
            held = {
                "weights": _own_bytes(parameters),
                "gradients": _own_bytes(one.grad for one in parameters),
                "optimizer": _own_bytes(
                    value for state in learner.optimizer.state.values() for value in state.values()
                ),
            }
            _update(learner)
        learner.drop_gradients()
        place = CheckpointRef(
            path=folder / "checkpoint", step=2, stage="sft", stage_step=2, scheduled=True, final=False
        )

        def save() -> None:
            save_checkpoint(
                place,
                model=learner.model,
                weights=learner.weights.whole_weights(),
                tokenizer=learner.tokenizer,
                trainer_state=learner.weights.trainer_state(learner.optimizer),
                provenance={},
                world=world,
            )

        with _peak() as saving:
            seconds = _seconds(world, save)
        with _peak() as by_torch:
            torch_seconds = _seconds(world, lambda: _save_by_torch(folder / "by_torch", learner))
        del learner, parameters
        with _peak() as resuming:
            learner = _learner(place.path, world)
            load_trainer_state(place.path, learner, read_trainer_state(place.path, world))
        peaks = {"loading": loading[0], "updating": updating[0], "saving": saving[0], "resuming": resuming[0]}
        peaks |= {"by_torch": by_torch[0]}
        taken = {"saving_seconds": seconds, "by_torch_seconds": torch_seconds}
        if world.is_main:
            print_line({"processes": world.size, **held, **peaks, **taken})


def main() -> None:
    """Measure each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        _measure(arguments.folder)
        return
    torch.manual_seed(0)
    untyped: Any = AutoModelForCausalLM
    model = untyped.from_config(_CONFIG, dtype=torch.bfloat16)
    print_header(parameters=sum(one.numel() for one in model.parameters()))
    for number in arguments.processes:
        with tempfile.TemporaryDirectory() as scratch, quiet_transformers():
            model.save_pretrained(Path(scratch) / "model")
            build_word_tokenizer(load_family(AdditionTask()).words).save_pretrained(Path(scratch) / "model")
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
            command = [sys.executable, *launch, "-m", "benchmarks.divided", "--folder", scratch]
            environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise SystemExit(done.stderr)
            print_line(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
