"""Objectives: one short run of each on column addition, all from the same SFT checkpoint.

    python benchmarks/objectives.py --work WORK --jobs 2             run what is missing, one JSON line each
    python benchmarks/objectives.py --only 'max_prob*' --seeds 1 2   some of them, other seeds
    python benchmarks/objectives.py --signals --work WORK            what gradient each loss has, by checkpoint
    python benchmarks/objectives.py --page docs/objectives-compared.md --figures docs/images

The SFT stage of the recipe `demo_addition` is trained once a seed; every run continues from its checkpoint with 80
steps of its own objective and is evaluated on 400 held-out problems. Runs that are in the output file are skipped, so
an interrupted comparison goes on where it was. Each run uses one thread.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers
from objectives_page import draw_figures, tables, write_page
from objectives_signals import signal_rows
from objectives_variants import BASE, HEADLINES, TEACHER, VARIANTS, Variant

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config import Config
from swerve.errors import InterruptedRunError, SwerveError
from swerve.eval import evaluate
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train import train
from swerve.version import __version__

RESULTS = Path(__file__).parent / "results" / "objectives-2026-11-20.jsonl"
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


def _final(run: RunDirectory) -> Path | None:
    finals = [checkpoint.path for checkpoint in run.checkpoints() if checkpoint.final]
    return finals[0] if finals else None


def sft_checkpoint(work: Path, seed: int) -> tuple[Path, Record]:
    """Return the checkpoint every run of this seed begins with, trained if need be, and its evaluation."""
    config, run = _config(SFT, seed, None, ()), RunDirectory(work / f"seed{seed}" / "sft")
    if _final(run) is None:
        train(config, run, resume=run.path.exists(), progress=SilentProgress())
    path = _final(run)
    assert path is not None
    return path, _figures(evaluate(config, run, progress=SilentProgress())[-1])


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


def _checkpoints(key: str, work: Path) -> list[tuple[str, Path]]:
    """Return the checkpoints of a run of seed 0 that was kept in the working directory."""
    variant = next(variant for variant in VARIANTS if variant.key == key)
    run = run_directory(variant, work, 0)
    return [(f"{variant.name}, step {each.stage_step}", each.path) for each in run.checkpoints()]


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
    evaluations = evaluate(config, run, progress=SilentProgress()) if run.checkpoints() else []
    by_step = {summary["stage_step"]: _figures(summary) for summary in evaluations}
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
        **_course(read_metrics(run.metrics_path)),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _figures(summary: Mapping[str, Any]) -> Record:
    """Return what the tables show of one evaluation."""
    accuracy = summary["accuracy"]
    return {
        "accuracy": round(accuracy["mean"], 4),
        "interval": [round(accuracy["low"], 4), round(accuracy["high"], 4)],
        "sampled": round(summary["mean_reward"]["mean"], 4),
        "trace_right": round(summary["trace_right"]["mean"], 4),
        "length": round(summary["num_tokens"]["mean"], 2),
        "truncated": round(summary["truncated"], 4),
    }


def _mean(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [record[name] for record in records if record.get(name) is not None]
    return float(f"{fmean(values):.4g}") if values else None


def _course(records: Sequence[Mapping[str, Any]]) -> Record:
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


def _read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _append(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, allow_nan=False) + "\n")


def _missing(path: Path, seeds: Sequence[int], patterns: Sequence[str]) -> list[tuple[Variant, int]]:
    """Return the runs that are asked for and not in the output file; other seeds than 0 only have the headlines."""
    known = {(record["group"], record["key"], record["seed"]) for record in _read(path) if record["kind"] == "run"}
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
    if not path.exists():
        versions = {"swerve": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
        date = time.strftime("%Y-%m-%d")
        _append(path, {"kind": "versions", "date": date, "machine": platform.machine(), **versions})
    missing = _missing(path, seeds, patterns)
    torch.set_num_threads(1)
    starts = {seed: sft_checkpoint(work, seed) for seed in sorted({seed for _, seed in missing})}
    for seed, start in starts.items():
        needs_teacher = any(variant.stage == "distill" for variant, number in missing if number == seed)
        if needs_teacher and ((BASE, seed) in missing or _final(run_directory(BASE, work, seed)) is None):
            record = run_variant(BASE, seed, work, *start)
            if (BASE, seed) in missing:
                missing.remove((BASE, seed))
                _append(path, record)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        futures = [pool.submit(run_variant, variant, seed, work, *starts[seed]) for variant, seed in missing]
        for number, future in enumerate(as_completed(futures), start=1):
            record = future.result()
            _append(path, record)
            after = record["after"] or {"accuracy": None}
            print(
                f"{number}/{len(missing)} seed {record['seed']} {record['key']}: accuracy {after['accuracy']}, best "
                f"reward {record['best_reward']} at {record['best_steps']}, collapses {record['collapses']}, "
                f"{record['seconds']} s",
                flush=True,
            )


@contextmanager
def _work_directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    """Run, or show what was run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON lines, read and appended to")
    parser.add_argument("--work", type=Path, help="where runs are kept; a temporary directory by default")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, a thread each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="PATTERN", help="runs whose name or group matches, in this order"
    )
    parser.add_argument("--signals", action="store_true", help="measure the losses' gradients instead")
    parser.add_argument("--table", action="store_true", help="print the tables")
    parser.add_argument("--page", type=Path, help="put the tables into this page")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="draw the figures there")
    arguments = parser.parse_args()
    if arguments.signals:
        with _work_directory(arguments.work) as work:
            known = {record["checkpoint"] for record in _read(arguments.out) if record["kind"] == "signal"}
            for row in signal_rows(sft_checkpoint(work, 0)[0], lambda key: _checkpoints(key, work), known=known):
                _append(arguments.out, row)
                print(json.dumps(row), flush=True)
    elif arguments.table or arguments.page or arguments.figures:
        records = _read(arguments.out)
        if arguments.table:
            print("\n\n".join(tables(records).values()))
        if arguments.page:
            write_page(arguments.page, records)
        if arguments.figures:
            draw_figures(arguments.figures, records)
    else:
        with _work_directory(arguments.work) as work:
            compare(arguments.out, work, seeds=arguments.seeds, patterns=arguments.only, jobs=max(1, arguments.jobs))


if __name__ == "__main__":
    main()
