"""What bfloat16 costs in accuracy: the demo's training by `runtime.precision`, several seeds.

    python -m benchmarks.precision [--seeds 0 1 2] [-- overrides of demo_addition ...]

Trains `demo_addition` (SFT, DPO, RL) in float32 and in bfloat16 and evaluates the last checkpoint of every stage, each
in float32, greedily on 400 held-out problems.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.process import print_header, print_line, swerve

_STAGES = ("sft", "dpo", "rl")


def measure(precision: str, seed: int, overrides: list[str]) -> dict[str, Any]:
    """Return the accuracy after every stage, and the CPU time of training."""
    with tempfile.TemporaryDirectory() as scratch:
        run = str(Path(scratch) / "run")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        swerve("train", "demo_addition", f"seed={seed}", f"runtime.precision={precision}", *overrides, "--out", run)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        found = json.loads(swerve("eval", run, "eval.samples_per_problem=1"))
    last = {one["stage"]: one["accuracy"]["mean"] for one in found}
    return {"precision": precision, "seed": seed, **{name: last[name] for name in _STAGES}, "seconds": round(seconds)}


def main() -> None:
    """Train every seed in both; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    print_header("torch", "transformers")
    for seed in arguments.seeds:
        for precision in ("float32", "bfloat16"):
            print_line(measure(precision, seed, arguments.overrides))


if __name__ == "__main__":
    main()
