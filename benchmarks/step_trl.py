"""The model and prompts of `benchmarks.step`, and TRL's side of it, which runs under the Python of TRL's environment.

As a script it reads the work as JSON from its argument, makes one step of `GRPOTrainer` for each line it is sent, and
prints a JSON object with the seconds, by `clock`, and the tokens of each. It imports nothing of swerve.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

PAD = 0


def build_model(work: Mapping[str, Any]) -> PreTrainedModel:
    """Return the Qwen3 of a folder, or a random one whose end token has probability `end_probability`, to rounding.

    The random one's other tokens are about equally likely. The end token has its probability from a bias of the output
    head.
    """
    if "folder" in work:
        trained: PreTrainedModel = Qwen3ForCausalLM.from_pretrained(work["folder"], dtype=torch.float32)
        return trained
    torch.manual_seed(0)
    config = Qwen3Config(**work["model"], max_position_embeddings=1024, pad_token_id=PAD, eos_token_id=work["end"])
    model: PreTrainedModel = Qwen3ForCausalLM(config)
    bias = torch.zeros(config.vocab_size)
    odds = work["end_probability"] / (1 - work["end_probability"])
    bias[work["end"]] = math.log(odds * (config.vocab_size - 1))
    model.lm_head.bias = torch.nn.Parameter(bias)
    return model


def build_problems(work: Mapping[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Return the prompts of all steps, and what their right completions end with.

    Random ones have lengths uniform in the range `prompt_tokens`, and no such end.
    """
    if "problems" in work:
        return [(prompt, ending) for prompt, ending in work["problems"]]
    rng = random.Random(0)
    shortest, longest = work["prompt_tokens"]
    vocabulary = range(2, work["model"]["vocab_size"])
    num_prompts = work["prompts"] * work["steps"]
    return [(rng.choices(vocabulary, k=rng.randint(shortest, longest)), []) for _ in range(num_prompts)]


def clock(device: str) -> float:
    """Return seconds: of this process's CPU, or on a card the clock's, when all that was asked of the card is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def reward(completion_ids: list[int], ending: list[int]) -> float:
    """Return 1 for a completion that ends as it should, or, if it may end in any way, whose first token is odd."""
    return float(completion_ids[-len(ending) :] == ending) if ending else float(completion_ids[0] % 2)


def main() -> None:
    """Make a step of GRPOTrainer for each line of the standard input."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    model = build_model(work)
    words = {f"w{index}": index for index in range(model.config.vocab_size)}
    inner = Tokenizer(models.WordLevel(words, unk_token=f"w{PAD}"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": f"w{PAD}", "eos_token": f"w{work['end']}"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    problems = build_problems(work)
    prompts = [" ".join(f"w{token}" for token in prompt) for prompt, _ in problems]
    tokens: list[int] = []

    def rewards(completion_ids: list[list[int]], endings: list[list[int]], **_: Any) -> list[float]:
        tokens[:] = [sum(map(len, completion_ids))]
        return list(map(reward, completion_ids, endings))

    class Timed(TrainerCallback):
        """Waits for a line before each step and answers when it is over."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                raise SystemExit
            self.started = clock(work["device"])

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds = clock(work["device"]) - self.started
            print(json.dumps({"step": seconds, "tokens": tokens[0]}), file=answers, flush=True)

    rows = work["prompts"] * work["samples"]
    parts = rows // work["trl_rows"]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=work["device"] == "cpu",
            bf16=work["precision"] == "bfloat16",
            gradient_checkpointing=False,
            beta=0.0,
            num_iterations=1,
            num_generations=work["samples"],
            per_device_train_batch_size=rows // parts,
            gradient_accumulation_steps=parts,
            steps_per_generation=parts,
            max_completion_length=work["max_new_tokens"],
            max_steps=work["steps"],
            learning_rate=1e-6,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        dataset = Dataset.from_dict({"prompt": prompts, "endings": [ending for _, ending in problems]})
        GRPOTrainer(model, rewards, config, dataset, processing_class=tokenizer, callbacks=[Timed()]).train()


if __name__ == "__main__":
    main()
