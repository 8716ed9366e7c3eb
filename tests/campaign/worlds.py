"""Directories in which commands run: a tiny recipe with every kind of stage, and what is there after each command."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swerve.cli import main
from tests.campaign.kills import Ended, forked

BASE = """
name: base
seed: 5
task: {kind: addition, digits: 2, num_train: 400, num_heldout: 24, mistake_rate: 0.5}
model: {kind: tiny}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 220, batch_size: 24, optimizer: {lr: 4e-3, beta2: 0.95, schedule: cosine}, checkpoints: [120]}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""
_EARLY, _LATE = "../base/checkpoints/step_000120", "../base/checkpoints/step_000220"
"""Models, as seen from each directory."""
_BEGINNING = """
name: run
seed: 7
task: {kind: addition, digits: 2, num_train: 60, num_heldout: 16, mistake_rate: 0.5}
model: {kind: pretrained, path: MODEL}
max_new_tokens: 36
runtime: {device: cpu, threads: 1, max_rows: 512}
stages:
"""
RECIPE = f"""{_BEGINNING}
  - {{kind: sft, steps: 2, batch_size: 4, save_every: 1, optimizer: {{lr: 1e-3}}}}
  - {{kind: dpo, steps: 2, batch_size: 1, max_prompts: 64, save_every: 1, optimizer: {{lr: 1e-3}}}}
  - kind: rl
    steps: 3
    prompts_per_step: 2
    samples_per_prompt: 2
    save_every: 1
    checkpoints: [1]
    optimizer: {{lr: 1e-3}}
    curriculum: {{kind: success_rate}}
    zero_variance: keep
    kl: {{kind: loss, coef: 0.1, target: 0.02, horizon: 20}}
eval: {{num_problems: 16, samples_per_problem: 2}}
probe:
  reference: sft
  checkpoints: rl
  populations: [training, reference_wrong]
  min_rollouts: 1
  max_other_rollouts: 2
  causal: {{num_continuations: 2, max_rollouts: 2}}
  pivots: {{max_rollouts: 1, num_continuations: 2}}
  cross_sampling: {{max_problems: 1, directions: [checkpoint_into_reference], selectors: [js], shares: [0.1]}}
  attribution: {{method: gradient, max_spikes: 2}}
"""
_REJECT = f"""{_BEGINNING}
  - kind: reject
    teacher: {_EARLY}
    num_prompts: 48
    samples_per_prompt: 2
    steps: 3
    batch_size: 4
    save_every: 1
    validation_share: 0.2
    validate_every: 1
    early_stopping: {{patience: 2}}
    optimizer: {{lr: 1e-3}}
  - {{kind: rl, steps: 2, prompts_per_step: 2, samples_per_prompt: 2, save_every: 1, optimizer: {{lr: 1e-3}}}}
"""
_PHASES = f"""{_BEGINNING}
  - kind: rl
    prompts_per_step: 2
    samples_per_prompt: 2
    save_every: 1
    zero_variance: keep
    kl: {{kind: loss, coef: 0.1}}
    optimizer: {{lr: 1e-3, schedule: linear}}
    phases:
      - {{steps: 2}}
      - {{steps: 2, samples_per_prompt: 3, temperature: 1.3, lr: 5e-4, num_minibatches: 2}}
      - {{steps: 2, keep_optimizer: false, keep_reference: false, advantages: gae, kl: {{coef: 0.2}}}}
"""
_PROBE = f"""
models: {{early: {_EARLY}, late: {_LATE}}}
reference: early
task: {{kind: addition, digits: 2, num_heldout: 24}}
sample: {{limit: 20, num_samples: 4, max_new_tokens: 36}}
out: probed
probe: {{min_rollouts: 1, tokens_per_batch: 64, causal: {{num_continuations: 2, max_rollouts: 2}}}}
runtime: {{device: cpu, threads: 1, max_rows: 16}}
"""
_WHOLE = "--out exported"
_MODELS = (f"early={_EARLY}", f"late={_LATE}")
_SAMPLED = ("--task", "addition", "digits=2", "num_heldout=24", "--num-samples", "4", "--max-new-tokens", "36",
            "--batch", "16")  # fmt: skip
NUM_ANSWERS = 600
"""More than two batches of `swerve grade`."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "train": ("train", "recipe.yaml", "--out", "run", "--resume-or-start", "--verify"),
    "reject": ("train", "reject.yaml", "--out", "run", "--resume-or-start", "--verify"),
    "phases": ("train", "phases.yaml", "--out", "run", "--resume-or-start", "--verify"),
    "eval": ("eval", "run"),
    "probe": ("probe", "run"),
    "report": ("report", "run"),
    "grade": ("grade", "--task", "math", "answers.jsonl", "--out", "verdicts.jsonl", "--audit", "recorded"),
    "sample": ("sample", *_MODELS, *_SAMPLED, "--out", "samples"),
    "select": ("data", "select", "samples/late.parquet", "--correct", "--per-problem", "1", "--out", "sft.parquet"),
    "probe-select": ("probe", "--select", "reference_wrong_final_right", "--reference-samples", "samples/early.parquet",
                     "--final-samples", "samples/late.parquet", "--reference", _MODELS[0], "--checkpoint", _MODELS[1],
                     "--out", "probed", "probe.min_rollouts=1", "probe.tokens_per_batch=64", "runtime.device=cpu",
                     "probe.causal.max_rollouts=2", "probe.causal.num_continuations=2"),
    "probe-file": ("probe", "probe.yaml"),
    "eval-models": ("eval", "--model", _MODELS[0], "--model", _MODELS[1], *_SAMPLED, "--out", "evaluated"),
    "export": ("export", _LATE, *_WHOLE.split()),
}  # fmt: skip
"""Each runs again as it is, as a queue starts a job again."""
_AFTER = {"eval": "train", "probe": "eval", "report": "probe", "select": "sample", "probe-select": "sample"}
"""Commands that begin with what another one wrote."""


def forked_command(arguments: Sequence[str], world: Path, log: Path, *, before: Callable[[], object] | None = None,
                   kill_after: float | None = None) -> Ended:  # fmt: skip
    """Run the command line in a directory, in a copy of this process; `before` is called there first.

    An export that refuses to replace a folder has done its work.
    """

    def command() -> None:
        os.chdir(world)
        if before is not None:
            before()
        main(arguments)

    ended = forked(command, log=log, kill_after=kill_after)
    return replace(ended, status=0) if f"{_WHOLE} exists; give the name of a new folder" in ended.err else ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that may go wrong."""

    name: str
    """Says all about it, but for places that are chosen by the seed and this name."""
    check: Callable[[], tuple[list[str], int]]
    """Tries it; returns what is wrong, in lines, and how many commands were killed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worlds:
    """What is there before each command, `before[name]`, and after it."""

    path: Path
    before: Mapping[str, Path]
    after: Mapping[str, Path]

    @property
    def log(self) -> Path:
        """Where forked commands print."""
        return self.path / "printed"

    def copy(self, world: Path) -> Path:
        """Return a copy of a directory to break, at a path that is always the same."""
        target = self.path / "broken"
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(world, target, symlinks=True)
        return target

    def run(self, name: str, world: Path) -> Ended:
        """Run a command to its end."""
        return forked_command(COMMANDS[name], world, self.log)


def make_worlds(
    path: Path,
    *,
    commands: Sequence[str] = tuple(COMMANDS),
    base: Path | None = None,
    changes: Sequence[tuple[str, str]] = (),
) -> Worlds:
    """Run commands and those before them, with a copy of everything before each.

    Args:
        path: directory to make.
        commands: those that are needed.
        base: the model that training begins with; trained here by default.
        changes: texts of the recipe to replace, for another run.
    """
    path.mkdir()
    if base is None:
        (path / "base.yaml").write_text(BASE)
        _checked(forked_command(("train", "base.yaml", "--out", "base"), path, path / "printed"))
        base = path / "base" / "checkpoints" / "step_000220"
    world = path / "begun"
    world.mkdir()
    recipe = RECIPE.replace("MODEL", str(base))
    for old, new in changes:
        recipe = recipe.replace(old, new)
    (world / "recipe.yaml").write_text(recipe)
    for name, text in (("reject", _REJECT), ("phases", _PHASES), ("probe", _PROBE)):
        (world / f"{name}.yaml").write_text(text.replace("MODEL", _LATE))
    rows = ({"id": n, "gold": str(n), "answer": str(n + n % 3 // 2), "recorded": n % 2} for n in range(NUM_ANSWERS))
    (world / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    worlds = Worlds(path=path, before={}, after={})
    needed = set(commands)
    while missing := {_AFTER[name] for name in needed & _AFTER.keys()} - needed:
        needed |= missing
    for name in sorted(needed, key=list(COMMANDS).index):
        before = worlds.after[_AFTER[name]] if name in _AFTER else world
        worlds.before[name], worlds.after[name] = before, shutil.copytree(before, path / name)
        _checked(worlds.run(name, path / name))
    return worlds


def _checked(ended: Ended) -> None:
    if ended.status:
        raise AssertionError(f"what the campaign begins with cannot be made: status {ended.status}\n{ended.err}")


def contents(world: Path) -> dict[str, object]:
    """Return the mode and content of every file and folder by name, apart from times and what was made of them."""
    return {
        str(path.relative_to(world)): (oct(path.stat().st_mode), _timeless(path) if path.is_file() else None)
        for path in world.rglob("*")
    }


def _timeless(path: Path) -> object:
    """Return a file's bytes; of logs and manifests what they say apart from times and what follows from them."""
    try:
        if path.name == "metrics.jsonl":
            times = {"seconds": None, "sync_seconds": None}
            return [{**json.loads(line), **times} for line in path.read_bytes().splitlines()]
        if path.name == "run.json":
            return {
                **json.loads(path.read_bytes()),
                "date": None,
                "seconds": None,
                "command": None,
                "folder": None,
                "fields_sha256": None,
            }
        if path.name == "index.html":  # a page shows when its run was begun
            return re.sub(rb"\d{4}-\d\d-\d\d \d\d:\d\d", b"", path.read_bytes())
        if path.name == "MANIFEST.json":
            entry = json.loads(path.read_bytes())
            return {**entry, "run_files": sorted(entry["run_files"]), "fields_sha256": None}
    except (ValueError, TypeError, KeyError, RecursionError):  # damaged
        pass
    return path.read_bytes()


def differences(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """Return what differs between two directories' contents, a line per file."""
    return [
        *(f"extra: {name}" for name in sorted(found.keys() - expected.keys())),
        *(f"missing: {name}" for name in sorted(expected.keys() - found.keys())),
        *(f"other: {name}" for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]),
    ]
