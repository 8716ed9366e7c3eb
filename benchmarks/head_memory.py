"""The chunked output head against the whole logits: peak memory and CPU time of one policy-gradient step of the head.

    python -m benchmarks.head_memory [--vocabularies 32000 128256] [--tokens 2048] [--width 512] [--repeats 3]

Every way computes the same clipped policy loss, its gradients with respect to hidden states and weight, and the entropy
as a metric; float32, one thread.

- plain: `[tokens, vocabulary]` logits, `log_softmax`, autograd.
- selective: whole logits too, but the log-probability as logit minus `logsumexp` row by row and the entropy in chunks
  of 128 rows without gradient, as TRL describes its `selective_log_softmax` and `entropy_from_logits`.
- loss, map: `chunked_head_loss` and `chunked_head_map` at their default rows.
- floor: nothing but the three matrix products, in chunks of the same rows; floor_256 in chunks of 256 rows.

Peak memory: each way runs in a process of its own. "allocated" is the peak of what torch's CPU allocator hands out
above the inputs, from the profiler's allocation events: exact, with temporaries inside operators, without the scratch
space of the matrix library. It includes the gradients that every way returns; "beyond_gradients" does not. "resident"
is the growth of the process's peak resident memory in the same run, as a check (Linux; null elsewhere); the C allocator
is told to return large blocks to the system at once, or the figure would show what it keeps for later.
Time: the ways alternate within one process; a figure is the median over repeats, a ratio the median over pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.process import (
    MIB,
    alternate,
    median_ratio,
    memory_in_fresh_process,
    print_header,
    print_line,
    reset_peak,
    resident_bytes,
)
from swerve.functional.head_logits import LinearHead
from swerve.functional.token_head import chunked_head_loss, chunked_head_map, rows_per_chunk

CLIP = 0.2
WAYS = ("plain", "selective", "loss", "map", "floor")


class Step:
    """Inputs of one policy-gradient step, and the ways to take it."""

    def __init__(self, vocabulary: int, tokens: int, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.hidden = torch.randn(tokens, width, generator=generator)
        self.weight = torch.randn(vocabulary, width, generator=generator) * width**-0.5
        self.ids = torch.randint(vocabulary, (tokens,), generator=generator)
        self.advantages = torch.randn(tokens, generator=generator)
        self.rows = rows_per_chunk(vocabulary)
        with torch.no_grad():
            self.old_logprobs = (
                chunked_head_map(self.hidden, LinearHead(weight=self.weight), self._statistics)[:, 0] - 0.05
            )

    def run(self, way: str) -> tuple[float, Tensor, Tensor]:
        """Return the loss and its gradients (zeros for the floor, which has no loss)."""
        hidden, weight = self.hidden.detach().requires_grad_(), self.weight.detach().requires_grad_()
        if way.startswith("floor"):
            return self._products(256 if way == "floor_256" else self.rows)
        total = {"plain": self._plain, "selective": self._selective, "loss": self._loss, "map": self._map}[way](
            hidden, weight
        )
        total.backward()
        return total.item(), hidden.grad, weight.grad

    def _policy_loss(self, logprobs: Tensor, rows: slice) -> Tensor:
        ratio = (logprobs - self.old_logprobs[rows]).exp()
        advantages = self.advantages[rows]
        return -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).sum()

    def _statistics(self, logits: Tensor, rows: slice) -> Tensor:
        logprobs = torch.log_softmax(logits, dim=-1)
        with torch.no_grad():
            entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        return torch.stack([logprobs.gather(-1, self.ids[rows, None])[:, 0], entropy], dim=-1)

    def _chunk_loss(self, logits: Tensor, rows: slice) -> Tensor:
        return self._policy_loss(self._statistics(logits, rows)[:, 0], rows)

    def _plain(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return self._chunk_loss(hidden @ weight.T, slice(0, len(hidden)))

    def _selective(self, hidden: Tensor, weight: Tensor) -> Tensor:
        logits = hidden @ weight.T
        totals = torch.stack([row.logsumexp(dim=-1) for row in logits])
        with torch.no_grad():
            for chunk in logits.split(128):
                logprobs = torch.log_softmax(chunk, dim=-1)
                (logprobs.exp() * logprobs).sum(dim=-1)
        return self._policy_loss(logits.gather(-1, self.ids[:, None])[:, 0] - totals, slice(0, len(hidden)))

    def _loss(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return chunked_head_loss(hidden, LinearHead(weight=weight), self._chunk_loss)

    def _map(self, hidden: Tensor, weight: Tensor) -> Tensor:
        logprobs = chunked_head_map(hidden, LinearHead(weight=weight), self._statistics)[:, 0]
        return self._policy_loss(logprobs, slice(0, len(hidden)))

    def _products(self, rows: int) -> tuple[float, Tensor, Tensor]:
        hidden_grad, weight_grad = torch.zeros_like(self.hidden), torch.zeros_like(self.weight)
        buffer = torch.empty(rows, len(self.weight))
        for start in range(0, len(self.hidden), rows):
            chunk = self.hidden[start : start + rows]
            logits = torch.mm(chunk, self.weight.T, out=buffer[: len(chunk)])
            hidden_grad[start : start + rows].addmm_(logits, self.weight)
            weight_grad.addmm_(logits.T, chunk)
        return 0.0, hidden_grad, weight_grad


def _allocated_peak(profiler: torch.profiler.profile) -> int:
    """Return the largest growth (bytes) of what the CPU allocator had handed out during the profile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [(event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"]
    live = peak = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        live += change
        peak = max(peak, live)
    return peak


def _profiled(step: Step, way: str) -> tuple[torch.profiler.profile, int | None]:
    """Return the profile of one step and the process's peak resident memory at its end."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step.run(way)
        peak = resident_bytes("VmHWM")
    return profiler, peak


def measure_memory(way: str, vocabulary: int, tokens: int, width: int) -> dict[str, float | None]:
    """Return the peak memory of one way; to be called in a fresh process."""
    _profiled(Step(1000, 64, width), way)  # libraries and the profiler allocate on first use
    step = Step(vocabulary, tokens, width)
    before = resident_bytes("VmRSS")
    if before is not None:
        reset_peak()
    profiler, after = _profiled(step, way)
    allocated = _allocated_peak(profiler)
    gradients = (step.hidden.numel() + step.weight.numel()) * 4
    return {
        "allocated_mib": round(allocated / MIB, 1),
        "beyond_gradients_mib": round((allocated - gradients) / MIB, 1),
        "resident_mib": None if before is None or after is None else round((after - before) / MIB, 1),
    }


def measure_time(vocabulary: int, tokens: int, width: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return median CPU seconds and the median ratio to the floor of every way, alternating."""
    step = Step(vocabulary, tokens, width)
    seconds = alternate(step.run, (*WAYS, "floor_256"), repeats)
    return {
        way: {
            "seconds": round(statistics.median(measured), 3),
            "time_to_floor": median_ratio(measured, seconds["floor"]),
        }
        for way, measured in seconds.items()
    }


def gradient_error(step: Step, way: str) -> float:
    """Return the largest difference of a way's weight gradient from plain's, relative to its largest entry."""
    plain, other = step.run("plain")[2], step.run(way)[2]
    return float((plain - other).abs().max() / plain.abs().max())


def main() -> None:
    """Measure every vocabulary; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[32000, 128256])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--memory-of", nargs=4, metavar=("WAY", "VOCABULARY", "TOKENS", "WIDTH"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        way, *shape = arguments.memory_of
        print_line(measure_memory(way, *(int(number) for number in shape)))
        return
    print_header("torch")
    for vocabulary in arguments.vocabularies:
        report(vocabulary, arguments.tokens, arguments.width, arguments.repeats)


def report(vocabulary: int, tokens: int, width: int, repeats: int) -> None:
    """Print one line a way, then the gradients' agreement."""
    shape = {"vocabulary": vocabulary, "tokens": tokens, "width": width, "rows": rows_per_chunk(vocabulary)}
    memory = {way: memory_in_fresh_process("head_memory", way, vocabulary, tokens, width) for way in WAYS}
    for way, time_of_way in measure_time(vocabulary, tokens, width, repeats).items():
        print_line({**shape, "way": way, **time_of_way, **memory.get(way, {})})
    ratios = {
        f"{field}_plain_to_{way}": round(memory["plain"][f"{field}_mib"] / memory[way][f"{field}_mib"], 1)
        for field in ("allocated", "beyond_gradients")
        for way in ("loss", "map")
    }
    step = Step(vocabulary, min(tokens, 256), width)
    errors = {f"gradient_error_{way}": gradient_error(step, way) for way in ("loss", "map")}
    print_line({**shape, **ratios, **errors})


if __name__ == "__main__":
    main()
