"""What the benchmarks read of processes: CPU time, ratios of it, peak memory; and the first line they print."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from studies.records import made_here

MIB = 2**20


def print_header(*packages: str, **more: Any) -> None:
    """Print date, machine and versions as a JSON line."""
    print_line({**made_here(*packages), **more})


def print_line(line: object) -> None:
    """Print a result as a JSON line, at once."""
    print(json.dumps(line), flush=True)


def swerve(*words: str) -> str:
    """Run a command of swerve on one thread; return what it prints with `--json`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "swerve", *words, "--json"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def cpu_seconds(function: Callable[[], object], times: int = 1) -> float:
    """Return the CPU seconds of a call, the mean of several."""
    started = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - started) / times


def alternate(
    run: Callable[[str], object], ways: Sequence[str], repeats: int, times: int = 1
) -> dict[str, list[float]]:
    """Return the CPU seconds of every way in each repeat; the ways alternate."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, measured in seconds.items():
            measured.append(cpu_seconds(lambda way=way: run(way), times))  # type: ignore[misc]
    return seconds


def median_ratio(tops: Sequence[float], bottoms: Sequence[float]) -> float:
    """Return the median ratio of figures taken in the same repeat."""
    return round(statistics.median(top / bottom for top, bottom in zip(tops, bottoms, strict=True)), 3)


def resident_bytes(field: str) -> int | None:
    """Return a figure of this process's memory as Linux gives it, such as VmRSS or VmHWM; None elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def reset_peak() -> None:
    """Set this process's peak resident memory (VmHWM) back to the present; Linux only."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_growth(run: Callable[[], object]) -> dict[str, float | None]:
    """Return by how much resident memory grows at most during a call; None where Linux does not say."""
    before = resident_bytes("VmRSS")
    if before is None:
        return {"memory_mib": None}
    reset_peak()
    run()
    after = resident_bytes("VmHWM")
    assert after is not None
    return {"memory_mib": round((after - before) / MIB, 1)}


def memory_in_fresh_process(benchmark: str, way: str, *shape: int) -> Any:
    """Return what `python -m benchmarks.NAME --memory-of WAY SHAPE...` prints in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--memory-of", way, *map(str, shape)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB)}  # large blocks go back to the system at once
    root = Path(__file__).parents[1]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=root)
    return json.loads(done.stdout)
