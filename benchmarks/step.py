"""A whole step of reinforcement learning against TRL's GRPOTrainer: same model, prompts, group sizes and lengths.

    SWERVE_TRL_PYTHON=trl-env/bin/python python -m benchmarks.step [--profiles ragged fixed demo] [--repeats 7]

swerve and TRL run in a process and an environment each, on one thread, and make their steps in turn; a ratio is the
median over pairs of neighbouring steps. A step is sampling, scoring (log-probs and advantages) and one update; the
reward is read off a few tokens. Both use no KL term, one update per rollout, and rewards, clipping and optimizer as
they come.

TRL has gradient checkpointing off, which is slower, and computes no reference or old log-probs. Its micro-batch is the
whole step; a quarter of it takes about as long (`--trl-rows`). swerve's micro-batches have 4,096 tokens. Both sides
compute in float32, or both in bfloat16 beside float32 weights (TRL's bf16): on a CPU that has it faster for the larger
model.

"demo" is `demo_addition` where its reinforcement learning begins: its model after SFT and DPO, which is trained first,
its problems, groups and lengths; a completion is right if it ends with the sum. Neither side leaves out the groups
whose rewards agree.

Elsewhere the weights are random, and a bias of the output head, the same on both sides, gives the end token a fixed
probability at every position. So completions have the same distribution of lengths on both sides whatever is sampled:
"ragged" has a mean of about 90 tokens, cut off at 256; "fixed" is 128, but for one in a hundred that ends before.
"demo's size, random" has the shape of the demo's model, and its number of tokens; there no two completions begin alike,
and no group agrees.

"1.5B" is for a card and not among those run by default: 64 groups of 8 completions of 512 tokens, 1.5 billion
parameters in bfloat16 beside float32, TRL's micro-batches of 16 rows. Both sides are on the card at once, take turns,
and are timed by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoTokenizer

from benchmarks.process import median_ratio, print_header, print_line, swerve
from benchmarks.step_trl import PAD, build_model, build_problems, clock, reward
from benchmarks.update import LAYOUTS
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.config.stages import RlStage
from swerve.models.runtime import apply_runtime
from swerve.problems import load_family
from swerve.prompts.encode import encode_prompts
from swerve.recipes import load_config
from swerve.rollout import SamplingParams, TorchEngine
from swerve.seeds import derive_seed
from swerve.train.context import StepRollouts
from swerve.train.kl import kl_term
from swerve.train.learner import Learner
from swerve.train.phases import phases_of
from swerve.train.policy_update import update_policy
from swerve.train.preparation import prepare_step
from swerve.train.replicated_model import ReplicatedModel
from swerve.types import Problem, Prompt, Reward, Rollout, RolloutGroup
from swerve.world import World

_MODEL = {
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": False,
}
_TINY = {
    **_MODEL,
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "head_dim": 16,
    "initializer_range": 0.08,
}
_WORK = {
    "precision": "float32",
    "model": _MODEL,
    "prompts": 8,
    "samples": 8,
    "prompt_tokens": (24, 64),
    "end": 1,
    "trl_rows": 64,
    "tokens_per_batch": 4096,
    "device": "cpu",
}
_DEMO = {**_WORK, "recipe": "demo_addition", "prompts": 16, "max_new_tokens": 72, "trl_rows": 128}
_RANDOM = {"model": _TINY, "prompt_tokens": (11, 11), "end_probability": 1e-4, "max_new_tokens": 57}
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "ragged": {**_WORK, "end_probability": 0.0105, "max_new_tokens": 256},
    "fixed": {**_WORK, "end_probability": 1e-4, "max_new_tokens": 128},
    "fixed, bfloat16": {**_WORK, "end_probability": 1e-4, "max_new_tokens": 128, "precision": "bfloat16"},
    "demo": _DEMO,
    "demo, bfloat16": {**_DEMO, "precision": "bfloat16"},
    "demo's size, random": {**_WORK, **_RANDOM, "prompts": 16, "trl_rows": 128},
    "1.5B": {
        **_WORK,
        "model": {**LAYOUTS["1.5B"], "head_dim": 128, "tie_word_embeddings": True},
        "precision": "bfloat16",
        "prompts": 64,
        "end_probability": 1e-6,
        "max_new_tokens": 512,
        "trl_rows": 16,
        "tokens_per_batch": 16_384,
        "device": "cuda",
    },
}
_PARTS = ("sampling", "scoring", "update")


class OwnSteps:
    """swerve's side."""

    def __init__(self, work: Mapping[str, Any]) -> None:
        world = World(device=work["device"])
        model = build_model(work).to(world.device)
        optimizer = OptimizerConfig(lr=1e-6)
        tokenizer: Any = SimpleNamespace(pad_token_id=PAD)
        runtime = RuntimeConfig(precision=work["precision"], device=work["device"], threads=1)
        apply_runtime(runtime)
        self._learner = Learner(ReplicatedModel(model, world, runtime=runtime), tokenizer, optimizer)
        self._engine = TorchEngine(model, pad_id=PAD, max_rows=512)
        self._params = SamplingParams(
            num_samples=work["samples"],
            max_new_tokens=work["max_new_tokens"],
            temperature=1.0,
            stop_ids=(work["end"],),
            with_entropy=True,
        )
        self._problems = build_problems(work)
        self._count = work["prompts"]
        self._stage = RlStage(
            kind="rl",
            steps=work["steps"],
            prompts_per_step=work["prompts"],
            samples_per_prompt=work["samples"],
            tokens_per_batch=work["tokens_per_batch"],
            optimizer=optimizer,
        )
        # What the functions below read of a training run.
        self._context: Any = SimpleNamespace(
            config=SimpleNamespace(max_new_tokens=work["max_new_tokens"]),
            learner=self._learner,
            world=world,
            phase=phases_of(self._stage)[0],
        )

    def step(self, index: int) -> dict[str, float]:
        """Make a step; return the seconds of its parts, by `clock`, and the tokens sampled."""
        device = self._context.world.device
        times = [clock(device)]
        rollouts = self._sample(index)
        times.append(clock(device))
        kl = kl_term(self._stage.kl)
        prepared = prepare_step(rollouts, self._stage, self._context, kl)
        times.append(clock(device))
        update_policy(prepared, self._stage, self._context, index, kl, 0.0)
        times.append(clock(device))
        seconds = dict(zip(_PARTS, (after - before for before, after in pairwise(times)), strict=True))
        return {"step": times[-1] - times[0], "tokens": int(prepared.table.mask.sum()), **seconds}

    def _sample(self, index: int) -> StepRollouts:
        problems = self._problems[index * self._count : (index + 1) * self._count]
        prompts = [prompt for prompt, _ in problems]
        seeds = [index * self._count + number for number in range(self._count)]
        sampled = self._engine.generate(prompts, self._params, seeds=seeds)
        rewards = [
            [reward(list(each.token_ids), ending) for each in group]
            for group, (_, ending) in zip(sampled, problems, strict=True)
        ]
        groups = []
        for number, (prompt, group, values) in enumerate(zip(prompts, sampled, rewards, strict=True)):
            problem = Problem(id=str(number), family="none", question="", answer="")
            rollouts = tuple(
                Rollout(completion=each, text="", reward=Reward(value=value, status="graded"), version=index)
                for each, value in zip(group, values, strict=True)
            )
            groups.append(RolloutGroup(prompt=Prompt(problem=problem, token_ids=tuple(prompt)), rollouts=rollouts))
        return StepRollouts(groups=groups, numbers=range(self._count), rewards=rewards)


@contextmanager
def trl_steps(python: str, work: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Yield the process that makes TRL's steps."""
    command = [python, str(Path(__file__).with_name("step_trl.py")), json.dumps(work)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        try:
            yield process
        except json.JSONDecodeError:
            errors.seek(0)
            sys.exit(f"TRL's side failed:\n{errors.read()[-2000:]}")
        finally:
            process.kill()
            process.wait()


def measure(name: str, python: str, repeats: int, trl_rows: int | None) -> dict[str, Any]:
    """Return the result of one profile."""
    work = {**PROFILES[name], "steps": repeats + 1}
    work["trl_rows"] = trl_rows or work["trl_rows"]
    with tempfile.TemporaryDirectory() as scratch:
        return _measure(name, {**work, **(_trained(work, Path(scratch)) if "recipe" in work else {})}, python)


def _trained(work: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """Train a recipe up to its reinforcement learning; return the model's folder, and the first training problems."""
    run, folder = scratch / "run", scratch / "model"
    swerve("train", work["recipe"], "stages.rl.steps=1", "stages.rl.checkpoints=[1]", "--out", str(run))
    swerve("export", f"{run}:dpo", "--out", str(folder))
    config, tokenizer = load_config(work["recipe"]), AutoTokenizer.from_pretrained(folder)
    drawn = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
    problems = drawn[: work["prompts"] * work["steps"]]
    prompts = [list(prompt.token_ids) for prompt in encode_prompts(tokenizer, problems)]
    words = [["answer", *problem.answer.split(), tokenizer.eos_token] for problem in problems]
    endings = map(tokenizer.convert_tokens_to_ids, words)
    return {"folder": str(folder), "end": tokenizer.eos_token_id, "problems": list(zip(prompts, endings, strict=True))}


def _measure(name: str, work: Mapping[str, Any], python: str) -> dict[str, Any]:
    own = OwnSteps(work)
    pairs: list[tuple[Mapping[str, float], Mapping[str, float]]] = []
    with trl_steps(python, work) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for index in range(work["steps"]):
            ours = own.step(index)
            peer.stdin.write("\n")
            peer.stdin.flush()
            pairs.append((ours, json.loads(peer.stdout.readline())))
    return _summary(name, work, pairs[1:])  # the first pair warms up


def _summary(name: str, work: Mapping[str, Any], pairs: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))

    def median(side: Sequence[Mapping[str, float]], key: str) -> float:
        return round(statistics.median(one[key] for one in side), 3)

    return {
        "profile": name,
        "parameters": sum(parameter.numel() for parameter in build_model(work).parameters()),
        "rows": work["prompts"] * work["samples"],
        "repeats": len(pairs),
        "trl_rows": work["trl_rows"],
        "tokens": median(ours, "tokens"),
        "trl_tokens": median(theirs, "tokens"),
        **{f"{part}_seconds": median(ours, part) for part in _PARTS},
        "step_seconds": median(ours, "step"),
        "trl_seconds": median(theirs, "step"),
        "ratio": median_ratio([one["step"] for one in ours], [one["step"] for one in theirs]),
    }


def main() -> None:
    """Measure the profiles; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--profiles",
        nargs="+",
        choices=PROFILES,
        default=[name for name in PROFILES if PROFILES[name]["device"] == "cpu"],
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--trl-rows", type=int, help="rows of TRL's micro-batches; by default the whole step")
    parser.add_argument("--trl-python", default=os.environ.get("SWERVE_TRL_PYTHON"), help="of TRL's environment")
    arguments = parser.parse_args()
    if not arguments.trl_python:
        parser.error("name the Python of an environment with TRL: --trl-python or SWERVE_TRL_PYTHON")
    torch.set_num_threads(1)
    asked = "from importlib.metadata import version; print(*map(version, ('trl', 'torch', 'transformers')))"
    found = subprocess.check_output([arguments.trl_python, "-c", asked], text=True).split()
    theirs = dict(zip(("trl", "trl_torch", "trl_transformers"), found, strict=True))
    print_header("torch", "transformers", **theirs)
    for name in arguments.profiles:
        print_line(measure(name, arguments.trl_python, arguments.repeats, arguments.trl_rows))


if __name__ == "__main__":
    main()
