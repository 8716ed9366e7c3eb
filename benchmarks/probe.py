"""The whole probe of K checkpoints against a reference: CPU time and peak memory against bare forward passes.

    python -m benchmarks.probe [--cases 32000x1 32000x4 512x1 512x10] [--repeats 3] [--ways bare eager ...]

- bare: 2K forward passes (each checkpoint, and the reference again for each) that give the logits, and nothing else.
- eager, compiled: `measure`, states in memory; `_disk`: states and statistics written to files and read back; `_top20`:
  with the 20 most likely tokens of every model (1 otherwise).
- rl_probe: the way of the RL-Probe scripts: 3K forward passes (checkpoint, reference, checkpoint again for the
  entropy), logits of whole sequences, KL both ways and JS each from a P and a Q of its own, in float32;
  `rl_probe_bf16` casts the logits to 16 bits first.

Random models of the Qwen3 architecture, float32, one thread, in memory beforehand (loading is not counted; neither is
compiling): width 512 and 8 layers for a vocabulary of 32,000 (41 million parameters), width 128 and 4 layers for 512.
Eight sequences (48 for the small vocabulary) of 32 prompt and 96 to 224 completion tokens, the same batches for every
way. The ways alternate within one process; a figure is the median over repeats, a ratio the median over pairs. Memory:
each way in a process of its own on 8 and on 32 sequences, the growth of peak resident memory beyond the models (Linux;
null elsewhere), after a run on one short sequence; `forwards` runs both models without logits and keeps the states, so
that what a way needs beyond it is what its statistics cost.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from benchmarks.process import (
    MIB,
    alternate,
    median_ratio,
    memory_in_fresh_process,
    peak_growth,
    print_header,
    print_line,
)
from studies.models import MemorySource
from swerve.batch import TokenBatch, token_batches
from swerve.config.probe import ProbeConfig
from swerve.functional.row_sums import compiled_available
from swerve.models.model_folder import LoadedModel
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.engine.forward import forced_states
from swerve.probe.engine.measure import measure

TOKENS_PER_BATCH = 1024
ROWS = 256
PROMPT = 32
SHORTEST, LONGEST = 96, 224
SHAPES = {32000: (512, 8), 512: (128, 4)}  # width, layers
SEQUENCES = {32000: 8, 512: 48}
MEMORY_WAYS = ("forwards", "eager", "compiled", "bare", "rl_probe")
Sequences = list[tuple[list[int], list[int]]]


class Probe:
    """A reference, K checkpoints near it, and the ways to compare them."""

    def __init__(self, vocabulary: int, num_checkpoints: int, num_sequences: int | None = None) -> None:
        width, layers = SHAPES[vocabulary]
        config = Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            num_key_value_heads=max(1, width // 128),
            head_dim=64,
            tie_word_embeddings=True,
        )
        torch.manual_seed(0)
        tokenizer = build_word_tokenizer([f"w{index}" for index in range(vocabulary - 4)])
        reference = Qwen3ForCausalLM(config).eval()
        models = [reference]
        for seed in range(num_checkpoints):
            models.append(Qwen3ForCausalLM(config).eval())
            models[-1].load_state_dict(reference.state_dict())
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for parameter in models[-1].parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=2e-3)
        self.sources = [
            MemorySource(label=str(index), loaded=LoadedModel(model=model, tokenizer=tokenizer))
            for index, model in enumerate(models)
        ]
        draw = random.Random(0)
        self.sequences: Sequences = [
            ([draw.randrange(4, vocabulary) for _ in range(PROMPT)], self._completion(draw, vocabulary))
            for _ in range(num_sequences or SEQUENCES[vocabulary])
        ]

    @staticmethod
    def _completion(draw: random.Random, vocabulary: int) -> list[int]:
        return [draw.randrange(4, vocabulary) for _ in range(draw.randint(SHORTEST, LONGEST))]

    def run(self, way: str) -> None:
        """Compare every checkpoint with the reference in one way."""
        with torch.inference_mode():
            if way == "bare":
                self._bare()
            elif way.startswith("rl_probe"):
                self._rl_probe(torch.bfloat16 if way.endswith("bf16") else torch.float32)
            elif way == "forwards":
                self._forwards()
            else:
                self._measure(way)

    def _batches(self) -> list[TokenBatch]:
        return token_batches(self.sequences, pad_id=0, tokens_per_batch=TOKENS_PER_BATCH)

    def _bare(self) -> None:
        for checkpoint in self.sources[1:]:
            for source in (checkpoint, self.sources[0]):
                for batch in self._batches():
                    _logits(source.loaded.model, batch)

    def _rl_probe(self, dtype: torch.dtype) -> None:
        reference = self.sources[0].loaded.model
        for checkpoint in self.sources[1:]:
            for batch in self._batches():
                logits, logits_ref, again = (
                    _logits(model, batch).to(dtype)
                    for model in (checkpoint.loaded.model, reference, checkpoint.loaded.model)
                )
                script_statistics(logits, logits_ref, again)

    def _forwards(self) -> None:
        self._kept = [
            forced_states(one.loaded, self.sequences, label=one.label, tokens_per_batch=TOKENS_PER_BATCH)
            for one in self.sources
        ]

    def _measure(self, way: str) -> None:
        kernel = "compiled" if way.startswith("compiled") else "eager"
        with tempfile.TemporaryDirectory() as folder:
            settings = ProbeConfig(
                tokens_per_batch=TOKENS_PER_BATCH,
                tokens_per_chunk=ROWS,
                kernel=kernel,
                top_k=20 if way.endswith("top20") else 1,
            )
            store = Path(folder) / "states" if "disk" in way else None
            pairs = [(source.label, self.sources[0].label) for source in self.sources[1:]]
            measure(self.sources, pairs, self.sequences, settings=settings, store=store)


def _logits(model: PreTrainedModel, batch: TokenBatch) -> Tensor:
    return model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        use_cache=False,
    ).logits


def script_statistics(logits: Tensor, logits_ref: Tensor, logits_again: Tensor) -> list[Tensor]:
    """Return KL both ways, JS and the entropy as an analysis script computes them, in the type of the logits.

    Each divergence makes its own P and Q, with 1e-10 added and renormalised.
    """
    found = []
    for name in ("forward", "reverse", "js"):
        p, q = (torch.softmax(one, dim=-1) + 1e-10 for one in (logits, logits_ref))
        p, q = p / p.sum(dim=-1, keepdim=True), q / q.sum(dim=-1, keepdim=True)
        if name == "js":
            mean = (p + q) / 2
            found.append(((p * (p.log() - mean.log())).sum(dim=-1) + (q * (q.log() - mean.log())).sum(dim=-1)) / 2)
        else:
            first, second = (p, q) if name == "forward" else (q, p)
            found.append((first * (first.log() - second.log())).sum(dim=-1))
    logprobs = torch.log_softmax(logits_again, dim=-1)
    return [*found, -(logprobs.exp() * logprobs).sum(dim=-1)]


def ways_of(num_checkpoints: int) -> list[str]:
    """Return what is timed: files where states are reused."""
    kernels = ["eager", "compiled"] if compiled_available() else ["eager"]
    ways = ["bare", *kernels, *(f"{kernel}_top20" for kernel in kernels), "rl_probe", "rl_probe_bf16"]
    return ways + ([f"{kernel}_disk" for kernel in kernels] if num_checkpoints > 1 else [])


def measure_time(probe: Probe, ways: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Return median CPU seconds of every way, and the median ratios to `bare` and of `rl_probe` to it, alternating."""
    seconds = alternate(probe.run, ways, repeats)
    return {
        way: {
            "seconds": round(statistics.median(measured), 3),
            "time_to_bare": median_ratio(measured, seconds["bare"]),
            "rl_probe_to_way": median_ratio(seconds["rl_probe"], measured),
        }
        for way, measured in seconds.items()
    }


def measure_memory(way: str, vocabulary: int, num_sequences: int) -> dict[str, float | None]:
    """Return the peak memory of one way beyond its models, for one checkpoint; to be called in a fresh process."""
    probe = Probe(vocabulary, 1, num_sequences)
    sequences = probe.sequences
    probe.sequences = [(sequences[0][0], sequences[0][1][:8])]
    probe.run(way)  # loads libraries, compiles
    probe.sequences = sequences
    return peak_growth(lambda: probe.run(way))


def report_time(vocabulary: int, num_checkpoints: int, repeats: int, chosen: list[str] | None) -> None:
    """Print one line a way; `bare` and `rl_probe`, which the others are compared with, are always run."""
    probe = Probe(vocabulary, num_checkpoints)
    ways = [way for way in ways_of(num_checkpoints) if chosen is None or way in (*chosen, "bare", "rl_probe")]
    sequences, probe.sequences = probe.sequences, probe.sequences[:1]
    for way in ways:
        probe.run(way)  # compiles
    probe.sequences = sequences
    case = {"vocabulary": vocabulary, "checkpoints": num_checkpoints}
    for way, figures in measure_time(probe, ways, repeats).items():
        print_line({**case, "way": way, **figures})


def report_memory(vocabulary: int) -> None:
    """Print one line a way and number of sequences, and the bound on what the statistics may cost."""
    for way in MEMORY_WAYS:
        if way == "compiled" and not compiled_available():
            continue
        for num_sequences in (8, 32):
            if way == "rl_probe" and num_sequences > 8:
                continue  # its memory is that of one batch as well
            case = {"vocabulary": vocabulary, "checkpoints": 1, "way": way, "sequences": num_sequences}
            print_line({**case, **memory_in_fresh_process("probe", way, vocabulary, num_sequences)})
    bound = 2 * ROWS * vocabulary * 4 / MIB + 32
    print_line({"vocabulary": vocabulary, "memory_bound_mib": round(bound, 1)})


def main() -> None:
    """Measure every case; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=["32000x1", "32000x4", "512x1", "512x10"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--memory-of", nargs=3, metavar=("WAY", "VOCABULARY", "SEQUENCES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        way, vocabulary, num_sequences = arguments.memory_of
        print_line(measure_memory(way, int(vocabulary), int(num_sequences)))
        return
    print_header("torch")
    for case in arguments.cases:
        vocabulary, num_checkpoints = (int(number) for number in case.split("x"))
        report_time(vocabulary, num_checkpoints, arguments.repeats, arguments.ways)
    if not arguments.no_memory:
        report_memory(32000)


if __name__ == "__main__":
    main()
