"""Maths answers a second through the grader pool, against plain math-verify in one process; what hostile answers cost.

    python -m benchmarks.graders [--rollouts FILE.jsonl.gz] [--workers 2] [--answers 200] [--repeats 3]

- grade_all: `swerve.rewards.grade_all`, easy answers where it is called, the others in worker processes.
- pool: every answer in worker processes.
- in_process: the same grader in this process, without limits.
- math_verify: `verify(parse(gold), parse(text))` with its timeouts off, in this process, without limits.

"generated": boxed answers with a gold that is the same or a similar expression (integers, fractions, surds, tuples,
polynomials), other ones in each repeat. "rollouts": responses with a gold from a file (fields `gold`, `response`),
judged once. The ways alternate, a figure is the median over repeats. Answers a second are on the clock, `ratio` is to
math_verify's within one repeat; CPU time (all processes) does not depend on what else the machine does. "start": from
nothing to the first answer. "hostile": answers that are made to hang, mixed with as many ordinary ones. Memory:
resident, of the workers and their children, pages shared between them counted once (Linux; null elsewhere).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from math_verify import parse, verify

from benchmarks.process import print_header, print_line
from swerve.grading.grade_math import grade_math
from swerve.rewards import grade_all
from swerve.rewards.pool import GraderPool, shared_pool
from swerve.sandbox.limits import GraderLimits, configure_pool
from swerve.types import Problem, Reward

Pairs = list[tuple[Problem, str]]
HOSTILE = (
    r"9^{9^{9^9}}",
    r"(10^9)!",
    r"\sqrt{2}^{\sqrt{3}^{10^{12}}}",
    "{" * 3000 + "1" + "}" * 3000,
    r"\{" + ",".join(f"\\sqrt{{{n}}}" for n in range(2000)) + r"\}",
    r"\sum_{k=1}^{10^{10}} \frac{1}{k!}",
    r"\int_0^{10^9} \sin(x^x) dx",
    r"\prod_{k=1}^{10^{6}} (x+k)",
)


def generated(num: int, seed: int) -> Pairs:
    """Return boxed answers, half of them right."""
    rng = random.Random(seed)
    pairs = []
    for number in range(num):
        gold, same, other = rng.choice((_integers, _fractions, _surds, _tuples, _polynomials))(rng)
        problem = Problem(id=str(number), family="math", question="", answer=gold)
        pairs.append((problem, rf"Therefore the answer is $\boxed{{{same if number % 2 else other}}}$."))
    return pairs


def _integers(rng: random.Random) -> tuple[str, str, str]:
    n = rng.randint(1000, 99999)
    return str(n), f"{n:,}", str(n + 1)


def _fractions(rng: random.Random) -> tuple[str, str, str]:
    a, b = rng.randint(1, 99), rng.randint(2, 99)
    return rf"\frac{{{a}}}{{{b}}}", f"{3 * a}/{3 * b}", rf"\frac{{{a}}}{{{b + 1}}}"


def _surds(rng: random.Random) -> tuple[str, str, str]:
    a, b = rng.randint(2, 30), rng.choice((2, 3, 5, 7))
    return rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}", rf"{a}\sqrt{{{b + 8}}}"


def _tuples(rng: random.Random) -> tuple[str, str, str]:
    a, b = rng.randint(-50, 50), rng.randint(2, 50)
    return rf"\left({a}, \frac{{1}}{{{b}}}\right)", rf"({a}, 1/{b})", rf"(1/{b}, {a})"


def _polynomials(rng: random.Random) -> tuple[str, str, str]:
    a, b = rng.randint(1, 20), rng.randint(21, 50)
    return f"(x+{a})(x-{b})", f"x^2-{b - a}x-{a * b}", f"x^2+{b - a}x-{a * b}"


def read_rollouts(path: Path) -> Pairs:
    """Return the responses of a file with their gold answers."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [(Problem(id="r", family="math", question="", answer=row["gold"]), row["response"]) for row in rows]


def plain_math_verify(pairs: Pairs) -> list[bool]:
    """Judge with math-verify alone."""
    return [
        verify(
            parse(f"${problem.answer}$", parsing_timeout=None), parse(text, parsing_timeout=None), timeout_seconds=None
        )
        for problem, text in pairs
    ]


def measure(name: str, sets: list[Pairs], pool: GraderPool) -> None:
    """Print a line a way: what it does on each of the sets."""
    ways: dict[str, Callable[[Pairs], object]] = {
        "math_verify": plain_math_verify,
        "in_process": lambda pairs: [grade_math(*pair) for pair in pairs],
        "pool": pool.grade_all,
        "grade_all": grade_all,
    }
    for judge in ways.values():
        judge(generated(8, seed=-1))
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu_seconds: dict[str, list[float]] = {way: [] for way in ways}
    for pairs in sets:
        for way, judge in ways.items():
            started, cpu_started = time.perf_counter(), _cpu_seconds()
            judge(pairs)
            seconds[way].append((time.perf_counter() - started) / len(pairs))
            cpu_seconds[way].append((_cpu_seconds() - cpu_started) / len(pairs))
    for way in ways:
        ratios = [base / took for took, base in zip(seconds[way], seconds["math_verify"], strict=True)]
        figures = {
            "answers_per_second": round(1 / statistics.median(seconds[way])),
            "ratio": round(statistics.median(ratios), 2),
            "cpu_ms_per_answer": round(1000 * statistics.median(cpu_seconds[way]), 2),
        }
        print_line({"set": name, "answers": len(sets[0]), "way": way, **figures})


def _cpu_seconds() -> float:
    """Return the CPU time of this process, and on Linux of those that descend from it, ended ones included."""
    ticks = 0
    for process in _descendants():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def measure_start(num_workers: int) -> None:
    """Print the time from nothing to the first answers, and the memory of the workers then."""
    with GraderPool(num_workers=num_workers) as pool:
        started = time.perf_counter()
        pool.grade_all(generated(num_workers, seed=-2))
        seconds = time.perf_counter() - started
        pool.grade_all(generated(200, seed=-3))
        memory = _memory_mib()
    print_line({"start_seconds": round(seconds, 2), "workers": num_workers, "memory_mib": memory})


def _memory_mib() -> float | None:
    """Return the proportional resident memory of all processes that descend from this one."""
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    kib = 0
    for process in _descendants():
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return round(kib / 1024, 1)


def _descendants() -> list[int]:
    """Return the ids of the processes that descend from this one (Linux; none elsewhere)."""
    children = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children[int((entry / "stat").read_text().rpartition(")")[2].split()[1])].append(int(entry.name))
    found = [os.getpid()]
    for process in found:
        found += children[process]
    return found[1:]


def measure_hostile(num_workers: int) -> None:
    """Print what a batch of hostile and ordinary answers costs."""
    gold = Problem(id="h", family="math", question="", answer=r"\sqrt{2}")
    pairs = [
        pair for answer in HOSTILE for pair in ((gold, rf"\boxed{{{answer}}}"), (gold, r"\boxed{\frac{2}{\sqrt 2}}"))
    ]
    with GraderPool(num_workers=num_workers) as pool:
        pool.grade_all(generated(num_workers, seed=-4))
        started = time.perf_counter()
        rewards: list[Reward] = pool.grade_all(pairs)
        seconds = time.perf_counter() - started
    outcomes = Counter(
        f"{reward.status} {reward.value:g}" if reward.value is not None else reward.status for reward in rewards
    )
    line = {"hostile": len(HOSTILE), "ordinary": len(HOSTILE), "seconds": round(seconds, 2), "outcomes": dict(outcomes)}
    print_line({**line, "cpu_limit_seconds": GraderLimits().cpu_seconds})


def main() -> None:
    """Measure; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=Path, help="JSON lines, compressed, with the fields gold and response")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print_header("math-verify", "sympy", workers=arguments.workers, load=round(os.getloadavg()[0], 1))
    configure_pool(num_workers=arguments.workers)
    measure_start(arguments.workers)
    measure("generated", [generated(arguments.answers, seed) for seed in range(arguments.repeats)], shared_pool())
    if arguments.rollouts:
        measure("rollouts", [read_rollouts(arguments.rollouts)], shared_pool())
    measure_hostile(arguments.workers)


if __name__ == "__main__":
    main()
