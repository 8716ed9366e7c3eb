"""Long files: the peak memory of `grade`, `data import` and `report` at N and at 4 N rows, above that at ten rows.

    python -m benchmarks.rows FOLDER [--of grade,import,report] [--rows 50000] [--mib 250]

Each command runs in a process of its own. `peak_mib` is its own peak of resident memory (`VmHWM`), `others_mib` the
most that its other processes (graders, the check of a Parquet file) held together.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.process import MIB, print_header, print_line
from swerve.artifacts.files import sealed
from swerve.artifacts.response_columns import SAMPLES_SCHEMA
from swerve.artifacts.responses import Response, responses_table, write_responses
from swerve.artifacts.samples import SAMPLES_TABLE, SampledModel, SamplesInfo, SamplesTokenizer
from swerve.artifacts.streams import chunks
from swerve.rewards import grade
from swerve.types import Problem

_FEW = 10
_PER_PROBLEM = 8
_WORDS = (
    "so",
    "we",
    "take",
    "the",
    "sum",
    "of",
    "all",
    "terms",
    "that",
    "it",
    "is",
    "equal",
    "to",
    "what",
    "was",
    "asked",
)


def rows() -> Iterator[dict[str, Any]]:
    """Yield records of about 2 kB without end: right answers, wrong ones and none."""
    rng = random.Random(0)
    for number in range(sys.maxsize):
        gold = rng.randrange(100)
        said = rf"\boxed{{{gold + (rng.random() < 0.4)}}}" if rng.random() < 0.9 else "I do not know."
        problem = number // _PER_PROBLEM
        yield {
            "id": f"problem-{problem}",
            "question": f"What is number {problem}?",
            "gold": str(gold),
            "response": f"{' '.join(rng.choices(_WORDS, k=480))} {said}",
            "correct": rng.random() < 0.5,
            "step": 10 * (number % 4),
        }


def write_rows(path: Path, *, num: int = sys.maxsize, num_bytes: int = sys.maxsize) -> int:
    """Write so many records, or so many as fill some bytes; return how many."""
    with path.open("w") as stream:
        for number, row in enumerate(rows(), start=1):
            stream.write(json.dumps(row) + "\n")
            if number == num or (number % 1000 == 0 and stream.tell() >= num_bytes):
                return number
    return 0


def write_samples(path: Path, num: int) -> int:
    """Write a file of samples with texts and 300 token ids and log-probabilities each."""
    ids, logprobs = tuple(range(300)), (-0.5,) * 300

    def sampled() -> Iterator[Response]:
        for number, row in zip(range(num), rows(), strict=False):
            problem = Problem(id=row["id"], family="gsm8k", question=row["question"], answer="7")
            text = f"{row['response'][:1200]} #### {7 + number % 2}"
            response = Response(
                problem=problem, text=text, label="model", sample=number % _PER_PROBLEM, prompt=row["question"],
                prompt_ids=ids[:40], completion_ids=ids, logprobs=logprobs, finish_reason="stop", temperature=1.0,
                seed=number,
            )  # fmt: skip
            yield response.judged(grade(problem, text))

    model = SampledModel(label="model", source="model", fingerprint="0", dtype="float32", device="cpu")
    info = SamplesInfo(
        model=model, tokenizer=SamplesTokenizer(name="model", sha256="0"), task={"kind": "gsm8k"}, split="heldout",
        num_problems=-(-num // _PER_PROBLEM), problems_sha256="0", num_samples=_PER_PROBLEM, temperatures=(1.0,),
        max_new_tokens=300, seed=0, swerve_version="0.1.0",
    )  # fmt: skip
    tables = (responses_table(chunk, SAMPLES_SCHEMA) for chunk in chunks(sampled(), lambda _: 1))
    said = sealed(info.model_dump(mode="json"))
    write_responses(path, tables, SAMPLES_SCHEMA, table=SAMPLES_TABLE, provenance=said)
    return num


def measured(words: Sequence[str]) -> dict[str, Any]:
    """Run a command of swerve; return its peak memory and its CPU time, processes that it started included."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "swerve", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    peak = others = 0
    while True:
        peak = max(peak, _kib(process.pid, "VmHWM"))
        others = max(others, sum(_kib(child, "VmRSS") for child in _descendants(process.pid)))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    if status:
        raise SystemExit((process.stderr.read() if process.stderr else b"").decode())
    return {
        "peak_mib": round(peak / 1024, 1),
        "others_mib": round(others / 1024, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "seconds": round(time.monotonic() - started, 1),
    }


def _kib(process: int, name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _descendants(process: int) -> list[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *_descendants(child))]


def main() -> None:
    """Measure the commands and print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the files, some GB")
    parser.add_argument("--of", default="grade,import,report", help="commands")
    parser.add_argument("--rows", type=int, default=50_000, help="N of grade and report")
    parser.add_argument("--mib", type=int, default=250, help="N of import, in MiB of JSONL")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    print_header()
    for command in options.of.split(","):
        base = 0.0
        for times in (0, 1, 4):
            source = folder / f"{command}-{times}{'.parquet' if command == 'report' else '.jsonl'}"
            if command == "import":
                num = write_rows(source, num_bytes=times * options.mib * MIB) if times else write_rows(source, num=_FEW)
                words = ["data", "import", str(source), "--out", str(folder / "imported.parquet")]
            elif command == "grade":
                num = write_rows(source, num=times * options.rows or _FEW)
                words = ["grade", str(source), "--task", "math", "--audit", "correct", "--out", str(folder / "v.jsonl")]
            else:
                num = write_samples(source, times * options.rows or _FEW)
                words = ["report", str(source)]
            found = measured(words)
            base = base or found["peak_mib"]
            above = round(found["peak_mib"] - base, 1)
            mib = round(source.stat().st_size / MIB, 1)
            print_line({"command": command, "rows": num, "file_mib": mib, **found, "above_mib": above})
            source.unlink()


if __name__ == "__main__":
    main()
