"""Passes over the output head against whole logits: CPU time, peak memory, accuracy.

    python -m benchmarks.heads [--cases step probe] [--shapes 128256x2048 32000x512] [--tokens 512] [--repeats 3]

"step" is one policy-gradient step of the head: a clipped policy loss, its gradients with respect to hidden states and
weight, and the entropy as a metric.

- plain: `[tokens, vocabulary]` logits, `log_softmax`, autograd.
- selective: whole logits too, but the log-probability as logit minus `logsumexp` row by row and the entropy in chunks
  of 128 rows without gradient, as TRL describes its `selective_log_softmax` and `entropy_from_logits`.
- loss, map: `chunked_head_loss` and `chunked_head_map` at their default rows.

"probe" is all statistics of two models from their hidden states; the second is the first plus noise.

- eager, compiled: `head_divergence` without and (`_top20`) with the 20 most likely tokens of both models.
- rl_probe: the way of an analysis script: both whole logits at once, `log_softmax`, both KL, JS and the entropies from
  stored tensors. In float32 here, so that all compute the same; `rl_probe_bf16` shows in the accuracy what the same
  formulas give from 16-bit logits.

In both, floor is nothing but the matrix products, in chunks of the same rows into buffers allocated once. Hidden states
and weights are random, float32, one thread. Time: the ways alternate within one process, a figure is the median over
repeats, a ratio the median over pairs; short runs are repeated until they last about a quarter of a second. Memory:
each way in a process of its own, the growth of peak resident memory beyond the inputs (Linux; null elsewhere), after a
run on few tokens that loads the libraries. Accuracy of a step: the largest difference of the weight's gradient from
plain's, relative to its largest entry; of the probe: against float64 statistics of the same float32 logits, at several
sizes of the noise, the divergences' largest relative errors over positions above 1e-6 nats (null where there is none).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from benchmarks.process import (
    alternate,
    cpu_seconds,
    median_ratio,
    memory_in_fresh_process,
    peak_growth,
    print_header,
    print_line,
)
from swerve.functional.divergence import DivergenceStats, divergence_stats
from swerve.functional.head_divergence import HeadBackend, head_divergence
from swerve.functional.head_logits import LinearHead
from swerve.functional.row_sums import compiled_available
from swerve.functional.token_head import chunked_head_loss, chunked_head_map, rows_per_chunk

CLIP = 0.2
MIN_SECONDS = 0.25


class Step:
    """Inputs of one policy-gradient step, and the ways to take it."""

    ways = ("floor", "plain", "selective", "loss", "map")

    def __init__(self, vocabulary: int, width: int, tokens: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.hidden = torch.randn(tokens, width, generator=generator)
        self.weight = torch.randn(vocabulary, width, generator=generator) * width**-0.5
        self.ids = torch.randint(vocabulary, (tokens,), generator=generator)
        self.advantages = torch.randn(tokens, generator=generator)
        with torch.no_grad():
            self.old_logprobs = (
                chunked_head_map(self.hidden, LinearHead(weight=self.weight), self._statistics)[:, 0] - 0.05
            )

    def run(self, way: str) -> Tensor:
        """Take the step; return the gradient of the weight."""
        if way == "floor":
            return self._floor()
        hidden, weight = self.hidden.detach().requires_grad_(), self.weight.detach().requires_grad_()
        if way == "plain":
            total = self._chunk_loss(hidden @ weight.T, slice(None))
        elif way == "selective":
            total = self._selective(hidden @ weight.T)
        elif way == "loss":
            total = chunked_head_loss(hidden, LinearHead(weight=weight), self._chunk_loss)
        else:
            logprobs = chunked_head_map(hidden, LinearHead(weight=weight), self._statistics)[:, 0]
            total = self._policy_loss(logprobs, slice(None))
        total.backward()
        assert weight.grad is not None
        return weight.grad

    def accuracy(self) -> Iterator[Mapping[str, Any]]:
        """Yield the error of each chunked way."""
        plain = self.run("plain")
        for way in ("loss", "map"):
            yield {"way": way, "gradient_error": float((plain - self.run(way)).abs().max() / plain.abs().max())}

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

    def _selective(self, logits: Tensor) -> Tensor:
        totals = torch.stack([row.logsumexp(dim=-1) for row in logits])
        with torch.no_grad():
            for chunk in logits.split(128):
                logprobs = torch.log_softmax(chunk, dim=-1)
                (logprobs.exp() * logprobs).sum(dim=-1)
        return self._policy_loss(logits.gather(-1, self.ids[:, None])[:, 0] - totals, slice(None))

    def _floor(self) -> Tensor:
        hidden_grad, weight_grad = torch.zeros_like(self.hidden), torch.zeros_like(self.weight)
        rows = rows_per_chunk(len(self.weight))
        buffer = torch.empty(rows, len(self.weight))
        for start in range(0, len(self.hidden), rows):
            chunk = self.hidden[start : start + rows]
            logits = torch.mm(chunk, self.weight.T, out=buffer[: len(chunk)])
            hidden_grad[start : start + rows].addmm_(logits, self.weight)
            weight_grad.addmm_(logits.T, chunk)
        return weight_grad


class Pair:
    """Hidden states and heads of two models that are near each other, and the ways to compare them."""

    ways = (
        "floor",
        "eager",
        "eager_top20",
        "rl_probe",
        *(("compiled", "compiled_top20") if compiled_available() else ()),
    )

    def __init__(self, vocabulary: int, width: int, tokens: int, noise: float = 2e-2) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = max(256, 2**20 // vocabulary)
        self.hidden_ref = torch.randn(tokens, width, generator=generator)
        self.hidden = self.hidden_ref + torch.randn(tokens, width, generator=generator) * noise
        self.weight_ref = torch.randn(vocabulary, width, generator=generator) * 2 * width**-0.5
        change = torch.randn(vocabulary, width, generator=generator)
        self.weight = change.mul_(noise * width**-0.5).add_(self.weight_ref)
        self.ids = torch.randint(vocabulary, (tokens,), generator=generator)

    def run(self, way: str) -> None:
        """Compare the models, or form their logits, in one of the ways."""
        if way == "floor":
            self._floor()
        elif way == "rl_probe":
            script_statistics(self.hidden @ self.weight.T, self.hidden_ref @ self.weight_ref.T, self.ids)
        else:
            self.compare("compiled" if way.startswith("compiled") else "eager", 20 if way.endswith("top20") else 0)

    def compare(self, backend: HeadBackend, top_k: int = 0) -> DivergenceStats:
        """Return what the head pass finds."""
        heads = (LinearHead(weight=self.weight), LinearHead(weight=self.weight_ref))
        found = head_divergence(
            self.hidden, self.hidden_ref, *heads, self.ids, top_k=top_k, rows_per_chunk=self.rows, backend=backend
        )
        return found.stats

    def accuracy(self) -> Iterator[Mapping[str, Any]]:
        """Yield the errors of each way on 256 positions of narrow models, by noise."""
        backends: tuple[HeadBackend, ...] = ("eager", "compiled") if compiled_available() else ("eager",)
        for noise in (7e-4, 3e-3, 2e-2, 0.3):
            narrow = Pair(len(self.weight), 64, 256, noise)
            logits, logits_ref = narrow.hidden @ narrow.weight.T, narrow.hidden_ref @ narrow.weight_ref.T
            exact = divergence_stats(logits.double(), logits_ref.double(), narrow.ids)
            for backend in backends:
                yield {"way": backend, "noise": noise, **_errors(asdict(narrow.compare(backend)), exact)}
            found = script_statistics(logits.bfloat16(), logits_ref.bfloat16(), narrow.ids)
            yield {"way": "rl_probe_bf16", "noise": noise, **_errors(found, exact)}

    def _floor(self) -> None:
        buffers = [torch.empty(self.rows, len(self.weight)) for _ in range(2)]
        pairs = ((self.hidden, self.weight), (self.hidden_ref, self.weight_ref))
        for start in range(0, len(self.ids), self.rows):
            for buffer, (hidden, weight) in zip(buffers, pairs, strict=True):
                chunk = hidden[start : start + self.rows]
                torch.mm(chunk, weight.T, out=buffer[: len(chunk)])


def script_statistics(logits: Tensor, logits_ref: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """Return the statistics as a plain script computes them, in the type of the logits."""
    logprobs, ref_logprobs = torch.log_softmax(logits, dim=-1), torch.log_softmax(logits_ref, dim=-1)
    p, q = logprobs.exp(), ref_logprobs.exp()
    log_mean = ((p + q) / 2).log()
    return {
        "kl_forward": (p * (logprobs - ref_logprobs)).sum(dim=-1),
        "kl_reverse": (q * (ref_logprobs - logprobs)).sum(dim=-1),
        "js": ((p * (logprobs - log_mean)).sum(dim=-1) + (q * (ref_logprobs - log_mean)).sum(dim=-1)) / 2,
        "entropy": -(p * logprobs).sum(dim=-1),
        "entropy_ref": -(q * ref_logprobs).sum(dim=-1),
        "logprob": logprobs.gather(-1, ids[:, None])[:, 0],
        "logprob_ref": ref_logprobs.gather(-1, ids[:, None])[:, 0],
    }


def _errors(found: Mapping[str, Tensor], exact: DivergenceStats) -> dict[str, float | None]:
    errors: dict[str, float | None] = {"mean_kl": float(exact.kl_forward.mean())}
    for name in ("kl_forward", "kl_reverse", "js"):
        true = getattr(exact, name)
        relative = ((found[name].double() - true).abs() / true)[true > 1e-6]
        errors[f"{name}_relative"] = float(relative.max()) if len(relative) else None
    for name in ("entropy", "logprob"):
        errors[f"{name}_absolute"] = float((found[name].double() - getattr(exact, name)).abs().max())
    return {name: None if error is None else float(f"{error:.2g}") for name, error in errors.items()}


CASES: Mapping[str, type[Step] | type[Pair]] = {"step": Step, "probe": Pair}


def measure_memory(case: str, way: str, vocabulary: int, width: int, tokens: int) -> dict[str, float | None]:
    """Return the peak memory of one way beyond its inputs; to be called in a fresh process."""
    CASES[case](1000, width, 64).run(way)
    if way.startswith("compiled"):
        Pair(vocabulary, 2, 256).run(way)  # the kernels of the shape are compiled
    inputs = CASES[case](vocabulary, width, tokens)
    return peak_growth(lambda: inputs.run(way))


def report(case: str, vocabulary: int, width: int, tokens: int, repeats: int) -> None:
    """Print a line for each way, then the accuracy."""
    shape = {"case": case, "vocabulary": vocabulary, "width": width, "tokens": tokens}
    inputs = CASES[case](vocabulary, width, tokens)
    memory = {way: memory_in_fresh_process("heads", f"{case}:{way}", vocabulary, width, tokens) for way in inputs.ways}

    # All ways run once before their time is taken.
    for way in inputs.ways:
        inputs.run(way)
    times = math.ceil(MIN_SECONDS / cpu_seconds(lambda: inputs.run("floor")))
    seconds = alternate(inputs.run, inputs.ways, repeats, times)
    for way, measured in seconds.items():
        median, ratio = round(statistics.median(measured), 4), median_ratio(measured, seconds["floor"])
        print_line({**shape, "way": way, "seconds": median, "time_to_floor": ratio, **memory[way]})
    for errors in inputs.accuracy():
        print_line({"case": case, "vocabulary": vocabulary, **errors})


def main() -> None:
    """Measure every shape; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--shapes", nargs="+", default=["128256x2048", "32000x512"], help="vocabulary x width")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-of", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        named, *shape = arguments.memory_of
        print_line(measure_memory(*named.split(":"), *map(int, shape)))
        return
    print_header("torch")
    for case in arguments.cases:
        for shape in arguments.shapes:
            vocabulary, width = (int(number) for number in shape.split("x"))
            report(case, vocabulary, width, arguments.tokens, arguments.repeats)


if __name__ == "__main__":
    main()
