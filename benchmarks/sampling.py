"""Sampling: the embedded engine against `generate` of transformers, same model, same prompts, same lengths.

    python -m benchmarks.sampling [--rows 32 128 512] [--repeats 5]

Both sides alternate within one process on one thread; a figure is the median over repeats of the ratio of one pair.
"fixed": every completion has the full length. "natural": completions end where the model ends them, at lengths that
differ; `generate` keeps finished rows in the batch until the last one ends.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from benchmarks.process import cpu_seconds, median_ratio, print_header, print_line
from swerve.config.models import TinyModel
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.prompts.encode import encode_prompts
from swerve.rollout import SamplingParams, TorchEngine

NEW_TOKENS = 64
GROUP = 8


def _generate(model: PreTrainedModel, prompts: Sequence[Sequence[int]], stop: int | None) -> None:
    ids = torch.tensor([list(prompt) for prompt in prompts])
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        num_return_sequences=GROUP,
        max_new_tokens=NEW_TOKENS,
        eos_token_id=stop,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )


def _ragged(model: PreTrainedModel, stop: int) -> None:
    """Give the end token a constant chance of a few percent at every position, so that lengths differ widely."""
    with torch.no_grad():
        model.lm_head.weight[stop] = model.lm_head.weight.mean(dim=0)


def measure(rows: int, repeats: int, *, natural: bool) -> dict[str, float | int | str]:
    """Return the median ratio for one batch size."""
    family = load_family(AdditionTask())
    tokenizer = build_word_tokenizer(family.words)
    model = build_tiny_model(TinyModel(tie_embeddings=False), tokenizer, seed=0).eval()
    stop = int(tokenizer.eos_token_id)
    _ragged(model, stop)
    prompts = [prompt.token_ids for prompt in encode_prompts(tokenizer, family.problems("heldout", seed=0))]
    chosen = random.Random(0).sample(prompts, rows // GROUP)
    stops = (stop,) if natural else ()
    params = SamplingParams(num_samples=GROUP, max_new_tokens=NEW_TOKENS, temperature=1.0, stop_ids=stops)
    engine = TorchEngine(model, pad_id=0, max_rows=rows)
    pairs = []
    for repeat in range(repeats + 1):
        own = cpu_seconds(lambda: engine.generate(chosen, params, seeds=range(len(chosen))))
        peer = cpu_seconds(lambda: _generate(model, chosen, stop if natural else None))
        if repeat:  # the first pair warms up
            pairs.append((own, peer))
    return {
        "rows": rows,
        "lengths": "natural" if natural else "fixed",
        "engine_seconds": round(statistics.median(own for own, _ in pairs), 4),
        "generate_seconds": round(statistics.median(peer for _, peer in pairs), 4),
        "ratio": median_ratio(*zip(*pairs, strict=True)),
    }


def main() -> None:
    """Measure every batch size with fixed and with natural lengths; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_header("torch", "transformers")
    for natural in (False, True):
        for rows in arguments.rows:
            print_line(measure(rows, arguments.repeats, natural=natural))


if __name__ == "__main__":
    main()
