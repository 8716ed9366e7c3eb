"""The model and prompts of `benchmarks.step`, and TRL's side of it, which runs under the Python of TRL's environment.

As a script it reads the work as JSON from its argument, makes one step of `GRPOTrainer` for each line it is sent, and
prints a JSON object with the CPU seconds and the tokens of each. It imports nothing of swerve.
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

END, PAD = 1, 0


def build_model(work: Mapping[str, Any]) -> PreTrainedModel:
    """Return a random Qwen3 that ends a completion with probability `end_probability` at each token, to rounding.

    Its other tokens are about equally likely. The end token has its probability from a bias of the output head.
    """
    torch.manual_seed(0)
    config = Qwen3Config(**work["model"], max_position_embeddings=1024, pad_token_id=PAD, eos_token_id=END)
    model: PreTrainedModel = Qwen3ForCausalLM(config)
    bias = torch.zeros(config.vocab_size)
    odds = work["end_probability"] / (1 - work["end_probability"])
    bias[END] = math.log(odds * (config.vocab_size - 1))
    model.lm_head.bias = torch.nn.Parameter(bias)
    return model


def build_prompts(work: Mapping[str, Any]) -> list[list[int]]:
    """Return the prompts of all steps, of lengths uniform in the range `prompt_tokens`."""
    rng = random.Random(0)
    shortest, longest = work["prompt_tokens"]
    vocabulary = range(2, work["model"]["vocab_size"])
    num_prompts = work["prompts"] * work["steps"]
    return [rng.choices(vocabulary, k=rng.randint(shortest, longest)) for _ in range(num_prompts)]


def build_agreements(work: Mapping[str, Any]) -> list[bool]:
    """Return for each prompt of all steps whether its completions all have one reward: the first `agree` of a step."""
    return [number % work["prompts"] < work["agree"] for number in range(work["prompts"] * work["steps"])]


def reward(completion_ids: list[int], agrees: bool) -> float:
    """Return a reward that costs nothing: whether the first token is odd, so that it differs where none agree."""
    return 0.0 if agrees else float(completion_ids[0] % 2)


def main() -> None:
    """Make a step of GRPOTrainer for each line of the standard input."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    work = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr
    words = {"<pad>": PAD, "<end>": END, **{f"w{index}": index for index in range(2, work["model"]["vocab_size"])}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<end>")
    prompts = [" ".join(f"w{token}" for token in prompt) for prompt in build_prompts(work)]
    tokens: list[int] = []

    def rewards(completion_ids: list[list[int]], agrees: list[bool], **_: Any) -> list[float]:
        tokens[:] = [sum(map(len, completion_ids))]
        return list(map(reward, completion_ids, agrees))

    class Timed(TrainerCallback):
        """Waits for a line before each step and answers when it is over."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                raise SystemExit
            self.started = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            print(
                json.dumps({"step": time.process_time() - self.started, "tokens": tokens[0]}), file=answers, flush=True
            )

    rows = work["prompts"] * work["samples"]
    parts = rows // work["trl_rows"]
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
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
        dataset = Dataset.from_dict({"prompt": prompts, "agrees": build_agreements(work)})
        GRPOTrainer(
            build_model(work), rewards, config, dataset, processing_class=tokenizer, callbacks=[Timed()]
        ).train()


if __name__ == "__main__":
    main()
