"""Continuations of a rollout's prefixes: shared prefill against each prefix on its own, and against `generate`.

    python -m benchmarks.continuations [--checkpoint FOLDER] [--rollouts 4] [--long-rollouts 1] [--repeats 3]

What the causal tests of the probe ask of the engine: each rollout is cut at several positions, at each two tokens are
forced, and every such prefix is continued several times. The three sides alternate within one process on one thread; a
figure is the median over repeats of CPU seconds, or of the ratio within one repeat. `seconds_full` extrapolates in
proportion to 100 rollouts x 20 prefixes.

"demo": column addition at natural lengths, by the checkpoint given (of `swerve demo`) or by a random model of its size.
"long": prefixes of 400-token rollouts of a random model of 4 layers of width 256, continued by 32 tokens each.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from benchmarks.process import alternate, median_ratio, print_header, print_line
from swerve.config import AdditionTask, TinyModel
from swerve.models.model_folder import LoadedModel, load_model, stop_ids
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.prompts import encode_prompts
from swerve.rollout import SamplingParams, TorchEngine

PREFIXES = 20
FULL_ROLLOUTS = 100
MAX_ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Prefixes to continue."""

    name: str
    model: PreTrainedModel
    prompts: list[list[int]]
    budgets: list[int]
    num_samples: int
    stops: tuple[int, ...]

    @property
    def params(self) -> SamplingParams:
        """How they are continued."""
        return SamplingParams(
            num_samples=self.num_samples, max_new_tokens=max(self.budgets), temperature=1.0, stop_ids=self.stops
        )


def _prefixes(prompt: Sequence[int], completion: Sequence[int], vocabulary: int, seed: int) -> list[list[int]]:
    """Return prompt and completion up to each of some positions, once with its own token and once with another."""
    rng = random.Random(seed)
    positions = sorted(rng.sample(range(1, len(completion) - 1), PREFIXES // 2))
    return [
        [*prompt, *completion[:position], token]
        for position in positions
        for token in (completion[position], rng.randrange(4, vocabulary))
    ]


def demo_work(checkpoint: Path | None, rollouts: int, num_samples: int) -> Work:
    """Return prefixes of the model's own completions of held-out additions."""
    family = load_family(AdditionTask())
    if checkpoint is not None:
        loaded = load_model(checkpoint, device="cpu", dtype="float32")
    else:
        tokenizer = build_word_tokenizer(family.words)
        loaded = LoadedModel(model=build_tiny_model(TinyModel(), tokenizer, seed=0).eval(), tokenizer=tokenizer)
    model, limit, stops = loaded.model, 72, stop_ids(loaded.model, loaded.tokenizer)
    prompts = [each.token_ids for each in encode_prompts(loaded.tokenizer, family.problems("heldout", seed=0))]
    params = SamplingParams(num_samples=1, max_new_tokens=limit, temperature=1.0, stop_ids=stops)
    engine = TorchEngine(model, pad_id=0, max_rows=MAX_ROWS)
    sampled = engine.generate(prompts[: 4 * rollouts], params, seeds=range(4 * rollouts))
    pairs = zip(prompts[: 4 * rollouts], sampled, strict=True)
    long_enough = [(prompt, each) for prompt, (each,) in pairs if len(each.token_ids) > PREFIXES]
    cut, budgets = [], []
    for seed, (prompt, each) in enumerate(long_enough[:rollouts]):
        found = _prefixes(prompt, each.token_ids, len(loaded.tokenizer), seed)
        cut += found
        budgets += [limit - (len(prefix) - len(prompt)) for prefix in found]
    return Work(name="demo", model=model, prompts=cut, budgets=budgets, num_samples=num_samples, stops=stops)


def long_work(rollouts: int, num_samples: int) -> Work:
    """Return prefixes of random 400-token rollouts."""
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    config = TinyModel(hidden_size=256, num_layers=4, num_heads=8, num_kv_heads=4, intermediate_size=768)
    model = build_tiny_model(config, tokenizer, seed=0).eval()
    rng = random.Random(0)
    cut = []
    for seed in range(rollouts):
        tokens = [rng.randrange(4, len(tokenizer)) for _ in range(400)]
        cut += _prefixes(tokens[:20], tokens[20:], len(tokenizer), seed)
    return Work(name="long", model=model, prompts=cut, budgets=[32] * len(cut), num_samples=num_samples, stops=())


def _engine(work: Work, share: str) -> int:
    engine = TorchEngine(work.model, pad_id=0, max_rows=MAX_ROWS, share_prefixes="auto" if share == "auto" else "never")
    groups = engine.generate(work.prompts, work.params, seeds=range(len(work.prompts)), budgets=work.budgets)
    return sum(len(each.token_ids) for group in groups for each in group)


def _generate(work: Work) -> None:
    """Continue with `generate`, prefixes of about the same length in one batch."""
    order = sorted(range(len(work.prompts)), key=lambda index: len(work.prompts[index]))
    size = max(1, MAX_ROWS // work.num_samples)
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        width = max(len(work.prompts[index]) for index in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, index in enumerate(batch):
            ids[row, width - len(work.prompts[index]) :] = torch.tensor(work.prompts[index])
            mask[row, width - len(work.prompts[index]) :] = 1
        work.model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            num_return_sequences=work.num_samples,
            max_new_tokens=max(work.budgets[index] for index in batch),
            eos_token_id=list(work.stops) or None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )


def measure(work: Work, repeats: int) -> dict[str, float | int | str]:
    """Return the median seconds and ratios of one piece of work."""
    ways: dict[str, Callable[[], object]] = {
        "shared": lambda: _engine(work, "auto"),
        "unshared": lambda: _engine(work, "never"),
        "generate": lambda: _generate(work),
    }
    if repeats:
        alternate(lambda way: ways[way](), list(ways), 1)  # the first round warms up
    seconds = alternate(lambda way: ways[way](), list(ways), max(1, repeats))
    medians = {way: statistics.median(measured) for way, measured in seconds.items()}
    num = len(work.prompts) * work.num_samples
    full = FULL_ROLLOUTS * PREFIXES * work.num_samples
    return {
        "work": work.name,
        "prefixes": len(work.prompts),
        "mean_prefix_tokens": round(statistics.mean(map(len, work.prompts)), 1),
        "continuations": num,
        "mean_tokens": round(_engine(work, "auto") / num, 1),
        **{f"{way}_seconds": round(median, 3) for way, median in medians.items()},
        "ratio_to_unshared": median_ratio(seconds["shared"], seconds["unshared"]),
        "ratio_to_generate": median_ratio(seconds["shared"], seconds["generate"]),
        "continuations_full": full,
        "seconds_full": round(medians["shared"] / num * full, 1),
    }


def main() -> None:
    """Measure both kinds of work with several numbers of continuations; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a checkpoint of the demo; else a random model of its size")
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--long-rollouts", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_header("torch", "transformers")
    for num_samples in (64, 16, 1):
        work = demo_work(arguments.checkpoint, arguments.rollouts, num_samples)
        print_line(measure(work, arguments.repeats))
    for num_samples in (8, 1):
        print_line(measure(long_work(arguments.long_rollouts, num_samples), arguments.repeats))


if __name__ == "__main__":
    main()
