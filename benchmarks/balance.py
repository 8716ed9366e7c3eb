"""How evenly several processes share the work of a step, by estimate: completions dealt by number and by work.

    python -m benchmarks.balance [--tokens 16384] [--seeds 3]

Steps of three distributions of lengths (those of `benchmarks.update`) for a model of Qwen 2.5's 1.5B layout.
`by_number` and `dealt` are the work of the slowest process over the mean, in all; `_batches` the same added up over
micro-batches of `--tokens` tokens at most, at each of which sharded processes wait for one another: filled one after
the other where rows are dealt by number, of equal work where they are dealt by work. `work` is what all do together,
dealt by work over by number; `read_again` is in how many more processes than one a group's prompt is read, `moved`
the share of completions that another process sampled. All are means over seeds, but for `most`, the largest `dealt`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from statistics import fmean
from typing import Any

from transformers import Qwen2Config

from benchmarks.process import print_header, print_line
from benchmarks.update import LAYOUTS, LENGTHS, sequences
from swerve.batch import TokenSequence, packed_tokens
from swerve.train.balance import Work, WorkEstimate, deal, pieces, total_work

RANKS = (2, 3, 8)


def balance(profile: Mapping[str, Any], num_ranks: int, *, tokens: int, seed: int) -> dict[str, float]:
    """Return the figures of one step."""
    # Only the lengths count, and which prompts are the same.
    lengths = [(len(prompt), len(completion)) for prompt, completion in sequences(profile, seed=seed)]
    groups = [row // profile["samples"] for row in range(len(lengths))]
    rows: list[TokenSequence] = [
        (range(10_000 * group, 10_000 * group + prompt), range(completion))
        for group, (prompt, completion) in zip(groups, lengths, strict=True)
    ]
    estimate = WorkEstimate.of(Qwen2Config(**LAYOUTS["1.5B"]), packs=True)
    works = [estimate.row(group, *two) for group, two in zip(groups, lengths, strict=True)]

    # By number, as processes sample; dealt from there, so that few rows move.
    ranks = [group % num_ranks for group in groups]
    by_home = sorted(range(len(rows)), key=lambda row: ranks[row])
    dealt = dict(zip(by_home, deal([works[row] for row in by_home], num_ranks), strict=True))
    found: dict[str, float] = {}
    totals: list[list[int]] = []
    for name, chosen in (("by_number", ranks), ("dealt", [dealt[row] for row in range(len(rows))])):
        shares = [[row for row in range(len(rows)) if chosen[row] == rank] for rank in range(num_ranks)]
        totals.append([total_work(works[row] for row in share) for share in shares])
        found[name] = max(totals[-1]) / fmean(totals[-1])
        batches = _batches(rows, works, shares, tokens, even=name == "dealt")
        loads = [[total_work(works[row] for row in batch) for batch in some] for some in batches]
        together = list(zip_longest(*loads, fillvalue=0))
        found[f"{name}_batches"] = sum(map(max, together)) / (sum(map(sum, together)) / num_ranks)
    found["work"] = sum(totals[1]) / sum(totals[0])
    found["read_again"] = len({(groups[row], dealt[row]) for row in dealt}) / profile["groups"] - 1
    found["moved"] = fmean(dealt[row] != ranks[row] for row in dealt)
    return found


def _batches(
    rows: Sequence[TokenSequence], works: Sequence[Work], shares: Sequence[Sequence[int]], tokens: int, *, even: bool
) -> list[list[list[int]]]:
    """Return the micro-batches of each process: filled one after the other, or as many of equal work everywhere."""

    def fits(share: Sequence[int], some: Sequence[int]) -> bool:
        return packed_tokens(rows[share[row]] for row in some) <= tokens

    def cut(share: Sequence[int], num: int) -> list[list[int]]:
        found = pieces([works[row] for row in share], num, partial(fits, share))
        return [[share[row] for row in piece] for piece in found]

    if not even:
        return [_filled(rows, share, tokens) for share in shares]
    num = max(len(cut(share, packed_tokens(rows[row] for row in share) // tokens + 1)) for share in shares)
    return [cut(share, num) for share in shares]


def _filled(rows: Sequence[TokenSequence], share: Sequence[int], tokens: int) -> list[list[int]]:
    found: list[list[int]] = []
    for row in share:
        if found and packed_tokens(rows[one] for one in [*found[-1], row]) <= tokens:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def main() -> None:
    """Print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print_header(tokens=arguments.tokens, seeds=arguments.seeds)
    for name, profile in LENGTHS.items():
        for num_ranks in RANKS:
            steps = [balance(profile, num_ranks, tokens=arguments.tokens, seed=seed) for seed in range(arguments.seeds)]
            means = {key: round(fmean(step[key] for step in steps), 3) for key in steps[0]}
            print_line({"lengths": name, "ranks": num_ranks, **means, "most": round(max(s["dealt"] for s in steps), 3)})


if __name__ == "__main__":
    main()
