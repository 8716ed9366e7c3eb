"""The head pass of the probe, all statistics of two models from hidden states, against its two bare products.

    python -m benchmarks.probe_head [--shapes 128256x2048 32000x512 512x128] [--tokens 512] [--repeats 3]
    (results/: 512 tokens of the two large vocabularies, 8,192 of the small one)

- eager, compiled: `head_divergence` without and (`_top20`) with the 20 most likely tokens of both models.
- rl_probe: the way of an analysis script: both `[tokens, vocabulary]` logits at once, `log_softmax`, both KL, JS and
  the entropies from stored tensors. In float32 here, so that all compute the same; `rl_probe_bf16` shows in the
  accuracy what the same formulas give from 16-bit logits.
- floor: nothing but the two matrix products, in chunks of the same rows into buffers allocated once.

Hidden states and weights are random, float32, one thread; the second model is the first plus noise (mean KL about
1e-3). Time: the ways alternate within one process, a figure is the median over repeats, a ratio the median over pairs;
short runs are repeated until they last about a quarter of a second. Compilation is not counted (its seconds are given).
Memory: each way in a process of its own, the growth of peak resident memory beyond the inputs (Linux; null elsewhere),
after a run on few tokens that loads the libraries. Accuracy: against float64 statistics of the same float32 logits;
the divergences' largest relative errors over positions above 1e-6 nats (null where there is none), at several sizes of
the noise.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from torch import Tensor

from benchmarks.process import (
    MIB,
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

MIN_ROWS, CHUNK_LOGITS = 256, 1 << 20
NOISES = (7e-4, 3e-3, 2e-2, 0.3)
TIMED = ("floor", "eager", "eager_top20", "compiled", "compiled_top20", "rl_probe")
MIN_SECONDS = 0.25


def rows_of(vocabulary: int) -> int:
    """Return the rows of a chunk: 256, or more where that is less than 2^20 logits."""
    return max(MIN_ROWS, CHUNK_LOGITS // vocabulary)


class Models:
    """Hidden states and heads of two models that are near each other, and the ways to compare them."""

    def __init__(self, vocabulary: int, width: int, tokens: int, noise: float = 2e-2) -> None:
        generator = torch.Generator().manual_seed(0)
        self.vocabulary, self.rows = vocabulary, rows_of(vocabulary)
        self.hidden_ref = torch.randn(tokens, width, generator=generator)
        self.hidden = self.hidden_ref + torch.randn(tokens, width, generator=generator) * noise
        self.weight_ref = torch.randn(vocabulary, width, generator=generator) * 2 * width**-0.5
        self.weight = (
            torch.randn(vocabulary, width, generator=generator).mul_(noise * width**-0.5).add_(self.weight_ref)
        )
        self.ids = torch.randint(vocabulary, (tokens,), generator=generator)

    def run(self, way: str) -> None:
        """Compare the models, or form their logits, in one of the ways."""
        if way == "floor":
            self._floor()
        elif way == "rl_probe":
            rl_probe(self.hidden @ self.weight.T, self.hidden_ref @ self.weight_ref.T, self.ids)
        else:
            self.compare("compiled" if way.startswith("compiled") else "eager", 20 if way.endswith("top20") else 0)

    def compare(self, backend: HeadBackend, top_k: int = 0) -> DivergenceStats:
        """Return what the head pass finds."""
        heads = (LinearHead(weight=self.weight), LinearHead(weight=self.weight_ref))
        found = head_divergence(
            self.hidden, self.hidden_ref, *heads, self.ids, top_k=top_k, rows_per_chunk=self.rows, backend=backend
        )
        return found.stats

    def _floor(self) -> None:
        buffers = [torch.empty(self.rows, self.vocabulary) for _ in range(2)]
        pairs = ((self.hidden, self.weight), (self.hidden_ref, self.weight_ref))
        for start in range(0, len(self.ids), self.rows):
            for buffer, (hidden, weight) in zip(buffers, pairs, strict=True):
                chunk = hidden[start : start + self.rows]
                torch.mm(chunk, weight.T, out=buffer[: len(chunk)])


def rl_probe(logits: Tensor, logits_ref: Tensor, ids: Tensor) -> dict[str, Tensor]:
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


def measure_memory(way: str, vocabulary: int, width: int, tokens: int) -> dict[str, float | None]:
    """Return the peak memory of one way beyond its inputs; to be called in a fresh process."""
    models = Models(vocabulary, width, tokens)
    small = Models(1280, width, 64)
    small.run(way)
    if way.startswith("compiled"):
        _compile(vocabulary)
    return peak_growth(lambda: models.run(way))


def _compile(vocabulary: int) -> float:
    """Compile the kernels of a shape; return seconds."""
    started = time.perf_counter()
    Models(vocabulary, 2, rows_of(vocabulary)).compare("compiled")
    return time.perf_counter() - started


def measure_time(models: Models, ways: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Return median CPU seconds and the median ratio to the floor of every way, alternating."""
    times = math.ceil(MIN_SECONDS / cpu_seconds(lambda: models.run("floor")))
    for way in ways:
        models.run(way)
    seconds = alternate(models.run, ways, repeats, times)
    return {
        way: {
            "seconds": round(statistics.median(measured), 4),
            "time_to_floor": median_ratio(measured, seconds["floor"]),
        }
        for way, measured in seconds.items()
    }


def accuracy(vocabulary: int, backend: HeadBackend | None, noise: float) -> dict[str, float | None]:
    """Return errors against float64 on 256 positions of narrow models; backend None is rl_probe from 16 bits."""
    models = Models(vocabulary, 64, 256, noise)
    logits, logits_ref = models.hidden @ models.weight.T, models.hidden_ref @ models.weight_ref.T
    exact = divergence_stats(logits.double(), logits_ref.double(), models.ids)
    if backend is None:
        found = rl_probe(logits.bfloat16(), logits_ref.bfloat16(), models.ids)
    else:
        stats = models.compare(backend)
        found = {name: getattr(stats, name) for name in ("kl_forward", "kl_reverse", "js", "entropy", "logprob")}
    errors: dict[str, float | None] = {"mean_kl": float(exact.kl_forward.mean())}
    for name in ("kl_forward", "kl_reverse", "js"):
        true = getattr(exact, name)
        relative = ((found[name].double() - true).abs() / true)[true > 1e-6]
        errors[f"{name}_relative"] = float(relative.max()) if len(relative) else None
    for name in ("entropy", "logprob"):
        errors[f"{name}_absolute"] = float((found[name].double() - getattr(exact, name)).abs().max())
    return {name: None if value is None else float(f"{value:.2g}") for name, value in errors.items()}


def report(vocabulary: int, width: int, tokens: int, repeats: int) -> None:
    """Print one line a way, then the accuracy."""
    ways = [way for way in TIMED if compiled_available() or not way.startswith("compiled")]
    shape = {"vocabulary": vocabulary, "width": width, "tokens": tokens, "rows": rows_of(vocabulary)}
    compiled = {"compile_seconds": round(_compile(vocabulary), 1)} if compiled_available() else {}
    memory = {way: memory_in_fresh_process("probe_head", way, vocabulary, width, tokens) for way in ways}
    for way, measured in measure_time(Models(vocabulary, width, tokens), ways, repeats).items():
        extra = compiled if way == "compiled" else {}
        print_line({**shape, "way": way, **measured, **memory[way], **extra})
    bound = 2 * rows_of(vocabulary) * vocabulary * 4 / MIB + 32
    print_line({**shape, "memory_bound_mib": round(bound, 1)})
    backends: list[HeadBackend | None] = ["eager", "compiled", None] if compiled_available() else ["eager", None]
    for noise in NOISES:
        for backend in backends:
            line = {"vocabulary": vocabulary, "way": backend or "rl_probe_bf16", "noise": noise}
            print_line({**line, **accuracy(vocabulary, backend, noise)})


def main() -> None:
    """Measure every shape; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["128256x2048", "32000x512", "512x128"])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--memory-of", nargs=4, metavar=("WAY", "VOCABULARY", "WIDTH", "TOKENS"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        way, *shape = arguments.memory_of
        print_line(measure_memory(way, *(int(number) for number in shape)))
        return
    print_header("torch")
    for shape in arguments.shapes:
        vocabulary, width = (int(number) for number in shape.split("x"))
        report(vocabulary, width, arguments.tokens, arguments.repeats)


if __name__ == "__main__":
    main()
