"""Runs of the objectives: trained from one SFT checkpoint per seed, evaluated, written down as a line each."""

from __future__ import annotations

import fnmatch
import multiprocessing
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from studies.objectives.variants import BASE, HEADLINES, TEACHER, VARIANTS, Variant
from studies.study import append_record, read_records
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import Config
from swerve.errors import InterruptedRunError, SwerveError
from swerve.eval import evaluate
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import train

MIDDLE = 30
WINDOW = 5
SFT = "{kind: sft, steps: 500, batch_size: 32, optimizer: {lr: 4e-3, schedule: cosine, beta2: 0.95, warmup_steps: 20}}"

Record = dict[str, Any]


def _config(stage: str, seed: int, model: Path | None, overrides: Sequence[str]) -> Config:
    """Return the recipe with one stage, from the checkpoint `model`."""
    start = [] if model is None else [f"model={{kind: pretrained, path: {model}}}"]
    label = re.match(r"\{kind: (\w+)", stage)
    assert label is not None
    keys = [f"stages.{label[1]}.{override}" for override in overrides]
    return load_config("demo_addition", [f"seed={seed}", f"stages=[{stage}]", "probe={}", *start, *keys])


def _checkpoints(run: RunDirectory) -> list[CheckpointRef]:
    """Return a run's checkpoints; of one that was not begun there are none."""
    return run.checkpoints() if run.config_path.is_file() else []


def _final(run: RunDirectory) -> Path | None:
    finals = [checkpoint.path for checkpoint in _checkpoints(run) if checkpoint.final]
    return finals[0] if finals else None


def sft_checkpoint(work: Path, seed: int) -> tuple[Path, Record]:
    """Return the checkpoint every run of this seed begins with, trained if need be, and its evaluation."""
    config, run = _config(SFT, seed, None, ()), RunDirectory(work / f"seed{seed}" / "sft")
    if _final(run) is None:
        train(config, run, resume=run.config_path.is_file(), progress=SilentProgress())
    path = _final(run)
    assert path is not None
    return path, _evaluation(evaluate(config, run, progress=SilentProgress())[-1])


def _stage(variant: Variant) -> str:
    fields = [f"kind: {variant.stage}", f"steps: {variant.steps}", f"optimizer: {{lr: {variant.lr:g}}}"]
    fields.append(f"checkpoints: [{MIDDLE}]")
    if variant.stage == "sft":
        fields.append("batch_size: 32")
    else:
        fields += ["prompts_per_step: 16", "samples_per_prompt: 8", "keep_rollouts: false"]
    return f"{{{', '.join(fields)}}}"


def run_directory(variant: Variant, work: Path, seed: int) -> RunDirectory:
    """Return where a run's files lie."""
    return RunDirectory(work / f"seed{seed}" / re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{variant.group} {variant.key}"))


def variant_checkpoints(key: str, work: Path) -> list[tuple[str, Path]]:
    """Return the checkpoints of a run of seed 0 that was kept in the working directory."""
    variant = next(variant for variant in VARIANTS if variant.key == key)
    run = run_directory(variant, work, 0)
    return [(f"{variant.name}, step {each.stage_step}", each.path) for each in _checkpoints(run)]


def run_variant(variant: Variant, seed: int, work: Path, start: Path, before: Record) -> Record:
    """Train and evaluate one run from the SFT checkpoint `start`; return its line."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    teacher = str(_final(run_directory(BASE, work, seed)))
    overrides = [override.replace(TEACHER, teacher) for override in variant.overrides]
    config = _config(_stage(variant), seed, None if variant.from_scratch else start, overrides)
    run = run_directory(variant, work, seed)
    shutil.rmtree(run.path, ignore_errors=True)
    error = None
    try:
        train(config, run, resume=False, progress=SilentProgress())
    except InterruptedRunError:
        raise
    except SwerveError as failure:  # a result too: a loss that is no longer finite
        error = str(failure).splitlines()[0].replace(str(work), "WORK")
    evaluations = evaluate(config, run, progress=SilentProgress()) if _checkpoints(run) else []
    by_step = {one.stage_step: _evaluation(one) for one in evaluations}
    return {
        "kind": "run",
        "group": variant.group,
        "name": variant.name,
        "key": variant.key,
        "seed": seed,
        "stage": variant.stage,
        "lr": variant.lr,
        "steps": variant.steps,
        "overrides": list(variant.overrides),
        "before": None if variant.from_scratch else before,
        "middle": by_step.get(MIDDLE) if variant.steps > MIDDLE else None,
        "after": by_step.get(variant.steps),
        "error": error,
        **_training_metrics(read_metrics(run.metrics_path)),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _evaluation(found: Evaluation) -> Record:
    """Return what the tables show of one evaluation."""
    accuracy, trace_right, length = found.greedy.accuracy, found.greedy.trace_right, found.greedy.num_tokens
    sampled = found.sampled.mean_reward
    if not (accuracy and sampled and trace_right and length):
        raise ValueError(f"the evaluation of {found.checkpoint} lacks a mean; evaluate checked steps and samples")
    return {
        "accuracy": round(accuracy.mean, 4),
        "sampled": round(sampled.mean, 4),
        "trace_right": round(trace_right.mean, 4),
        "length": round(length.mean, 2),
        "truncated": round(found.greedy.truncated, 4),
    }


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    return float(f"{fmean(values):.4g}") if values else None


def _training_metrics(records: Sequence[Mapping[str, Any]]) -> Record:
    """Return what the training steps measured: best window, ends, and means over every few steps."""
    names = ("reward", "neg_logprob", "completion_length", "truncated_share", "grad_norm", "loss", "kl")
    chunks = [records[first : first + WINDOW] for first in range(0, len(records), WINDOW)]
    rewards = [record["reward"] for record in records if "reward" in record]
    windows = [fmean(rewards[first : first + WINDOW]) for first in range(len(rewards) - WINDOW + 1)]
    best = max(range(len(windows)), key=windows.__getitem__) if windows else None
    return {
        "best_reward": None if best is None else round(windows[best], 4),
        "best_steps": None if best is None else [best + 1, best + WINDOW],
        "last_grad_norm": _mean(records[-WINDOW:], "grad_norm"),
        "collapses": [[record["stage_step"], record["collapse"]] for record in records if record.get("collapse")],
        "steps_without_update": sum(record.get("num_used_rollouts") == 0 for record in records),
        "trajectory": {
            "step": [chunk[-1]["stage_step"] for chunk in chunks],
            **{
                name: [_mean(chunk, name) for chunk in chunks]
                for name in names
                if any(record.get(name) is not None for record in records)
            },
        },
    }


def _missing(path: Path, seeds: Sequence[int], patterns: Sequence[str]) -> list[tuple[Variant, int]]:
    """Return the runs that are asked for and not in the output file; other seeds than 0 only have the headlines."""
    known = {
        (record["group"], record["key"], record["seed"]) for record in read_records(path) if record["kind"] == "run"
    }
    asked = [
        (variant, seed)
        for seed in seeds
        for pattern in patterns
        for variant in VARIANTS
        if (seed == 0 or variant in HEADLINES)
        and any(fnmatch.fnmatch(text, pattern) for text in (variant.key, variant.name, variant.group))
    ]
    return [
        (variant, seed) for variant, seed in dict.fromkeys(asked) if (variant.group, variant.key, seed) not in known
    ]


def compare(path: Path, work: Path, *, seeds: Sequence[int], patterns: Sequence[str], jobs: int) -> None:
    """Run what is missing and append it to the output file."""
    missing = _missing(path, seeds, patterns)
    torch.set_num_threads(1)
    starts = {seed: sft_checkpoint(work, seed) for seed in sorted({seed for _, seed in missing})}
    for seed, start in starts.items():
        needs_teacher = any(variant.stage == "distill" for variant, number in missing if number == seed)
        if needs_teacher and ((BASE, seed) in missing or _final(run_directory(BASE, work, seed)) is None):
            record = run_variant(BASE, seed, work, *start)
            if (BASE, seed) in missing:
                missing.remove((BASE, seed))
                append_record(path, record)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        futures = [pool.submit(run_variant, variant, seed, work, *starts[seed]) for variant, seed in missing]
        for number, future in enumerate(as_completed(futures), start=1):
            record = future.result()
            append_record(path, record)
            after = record["after"] or {"accuracy": None}
            print(
                f"{number}/{len(missing)} seed {record['seed']} {record['key']}: accuracy {after['accuracy']}, best "
                f"reward {record['best_reward']} at {record['best_steps']}, collapses {record['collapses']}, "
                f"{record['seconds']} s",
                flush=True,
            )
