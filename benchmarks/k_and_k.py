"""Knights and knaves: how fast puzzles are generated, solved in writing and graded, and what sources prove.

    python -m benchmarks.k_and_k [SPEC ...]

For each number of people: CPU seconds for 1,000 training puzzles (generated, proved, held-out structures left out, with
a written solution), the median and the largest number of words of their solutions, and grades a second. For each data
spec: puzzles, those read from their English text, those proved to have one solution, those whose stored fields are the
proved ones.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.process import print_header, print_line
from swerve.config import KAndKTask
from swerve.problems.data_specs import read_source
from swerve.problems.knights.grade_k_and_k import grade_k_and_k
from swerve.problems.knights.k_and_k import KAndK
from swerve.problems.knights.rows import prove_row

PUZZLES = 1000


def generated(num_people: int) -> dict[str, float]:
    """Return the figures of one number of people."""
    start = time.process_time()
    problems = KAndK(KAndKTask(people=(num_people,), num_train=PUZZLES)).problems("train", seed=0)
    made = time.process_time()
    rewards = [grade_k_and_k(problem, problem.solution or "") for problem in problems]
    graded = time.process_time()
    assert all(reward.value == 1.0 for reward in rewards)
    words = [len((problem.solution or "").split()) for problem in problems]
    return {
        "people": num_people,
        "seconds": round(made - start, 2),
        "median_words": statistics.median(words),
        "max_words": max(words),
        "grades_per_second": round(PUZZLES / (graded - made)),
    }


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", metavar="SPEC")
    arguments = parser.parse_args()
    print_header()
    for num_people in range(2, 9):
        print_line(generated(num_people))
    for spec in arguments.specs:
        start = time.process_time()
        rows = [prove_row(record) for record in read_source(spec)]
        line = {
            "spec": spec,
            "puzzles": len(rows),
            "read": sum(row.puzzle is not None for row in rows),
            "unique": sum(row.solution is not None for row in rows),
            "as_stored": sum(row.solution is not None and not row.differences for row in rows),
            "seconds": round(time.process_time() - start, 2),
        }
        print_line(line)


if __name__ == "__main__":
    main()
