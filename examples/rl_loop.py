"""RL with verifiable rewards in one file, written on swerve's pieces, and the tokens that it changed.

A tiny transformer first imitates column additions in which a carry is often forgotten. Then the loop samples, grades
and reinforces, until more than 90% of the held-out sums are right. At the end both models read the same completions,
and the divergence shows which tokens the loop has changed: the forgotten carries.

    python examples/rl_loop.py

It takes about a minute on one CPU core. `swerve train demo_addition` does the same with checkpoints, resume and logs.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Sequence

import torch

# swerve's pieces: objectives on tensors, batches, problems, prompts, rewards and an engine that samples.
import swerve
from swerve import functional
from swerve.batch import TokenSequence, completion_logits, token_batches
from swerve.config.models import TinyModel
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.prompts.encode import encode_completions, encode_prompts
from swerve.rewards import grade_all
from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine
from swerve.types import Completion, Problem

SEED = 0
SFT_STEPS, SFT_BATCH, SFT_RATE = 500, 32, 4e-3
RL_STEPS, PROMPTS_PER_STEP, SAMPLES_PER_PROMPT, RL_RATE = 80, 16, 8, 5e-5
MAX_NEW_TOKENS = 72  # a sum of four columns is written out in about 57

# For a model this small one thread is faster than two.
torch.set_num_threads(1)

# The task: problems, the traces to imitate, mistakes included, and a grader that looks at the answer alone.
config = swerve.load_config("demo_addition", seed=SEED)
family = load_family(config.task)
problems = family.problems("train", seed=SEED)
heldout = family.problems("heldout", seed=SEED)

# The model: 100,000 parameters and one token for each word of the task.
assert isinstance(config.model, TinyModel)
tokenizer = build_word_tokenizer(family.words)
model = build_tiny_model(config.model, tokenizer, seed=SEED)
engine = TorchEngine(model, pad_id=tokenizer.pad_token_id, max_rows=512)


def sample(
    chosen: Sequence[Problem], *, num_samples: int, temperature: float, seed: int
) -> list[tuple[Completion, ...]]:
    """Return completions of each problem: token ids with their log-probabilities; temperature 0 is greedy."""
    params = SamplingParams(
        num_samples=num_samples,
        max_new_tokens=MAX_NEW_TOKENS,
        temperature=temperature,
        stop_ids=(tokenizer.eos_token_id,),
    )
    prompts = [prompt.token_ids for prompt in encode_prompts(tokenizer, chosen)]
    # One seed a prompt: what is drawn for it does not depend on what else is in the call.
    return engine.generate(prompts, params, seeds=[seed + number for number in range(len(prompts))])


def grade(chosen: Sequence[Problem], groups: Sequence[Sequence[Completion]]) -> torch.Tensor:
    """Return the reward of every completion, `[problems, samples]`; a text without an answer is worth 0."""
    texts = [
        (problem, tokenizer.decode(completion.token_ids, skip_special_tokens=True))
        for problem, group in zip(chosen, groups, strict=True)
        for completion in group
    ]
    rewards = [reward.value or 0.0 for reward in grade_all(texts)]
    return torch.tensor(rewards).view(len(chosen), -1)


def accuracy() -> float:
    """Return the share of held-out problems that the model gets right, greedily."""
    model.eval()
    return float(grade(heldout, sample(heldout, num_samples=1, temperature=0.0, seed=0)).mean())


def update(optimizer: torch.optim.Optimizer, sequences: Sequence[TokenSequence], advantages: torch.Tensor) -> float:
    """Make one update with an advantage `[B]` for each sequence; all ones is supervised learning. Return the loss."""
    (batch,) = token_batches(sequences, pad_id=tokenizer.pad_token_id, in_order=True)
    # The log-probability of every completion token, [B, T]; swerve shifts by one token nowhere else.
    logprobs = functional.token_logprobs(completion_logits(model, batch), batch.completion_ids)
    # Each token has its sequence's advantage. The loss is one number a token; the mean over tokens is a step apart.
    losses = functional.reinforce_loss(logprobs, advantages[:, None].expand_as(logprobs))
    loss = functional.token_mean(losses, batch.mask, num_tokens=int(batch.mask.sum()))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def imitate() -> None:
    """Learn to write traces, with the mistakes that are planted in them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=SFT_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    # The rate rises for 20 steps and falls along a half cosine.
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 20, total_iters=20)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SFT_STEPS - 20)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [20])
    draws = random.Random(SEED)
    for step in range(SFT_STEPS):
        chosen = draws.sample(problems, SFT_BATCH)
        prompts = encode_prompts(tokenizer, chosen)
        traces = [family.trace(problem, draws) for problem in chosen]
        completions = encode_completions(tokenizer, prompts, traces)
        pairs = [(prompt.token_ids, ids) for prompt, ids in zip(prompts, completions, strict=True)]
        loss = update(optimizer, pairs, torch.ones(len(pairs)))
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"sft {step + 1:3d}: loss {loss:.3f}")


def reinforce() -> None:
    """Sample, grade, compare within each group, update: the loop."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RL_RATE, weight_decay=0.0)
    draws = random.Random(SEED + 1)
    for step in range(RL_STEPS):
        # Several completions of each problem, from the model as it is.
        chosen = draws.sample(problems, PROMPTS_PER_STEP)
        model.eval()
        groups = sample(chosen, num_samples=SAMPLES_PER_PROMPT, temperature=1.0, seed=1000 * step)
        # What each is worth, and how much better it is than the others of its group.
        rewards = grade(chosen, groups)
        advantages = functional.dr_grpo_advantages(rewards)
        # One update on all of them, on the policy that sampled them: the importance ratio is 1.
        prompts = encode_prompts(tokenizer, chosen)
        pairs = [
            (prompt.token_ids, completion.token_ids)
            for prompt, group in zip(prompts, groups, strict=True)
            for completion in group
        ]
        model.train()
        update(optimizer, pairs, advantages.flatten())
        if (step + 1) % 10 == 0:
            print(f"rl  {step + 1:3d}: reward {rewards.mean():.3f}")


def changed_tokens(before: torch.nn.Module, sequences: Sequence[TokenSequence]) -> None:
    """Let both models read what the first one wrote, and print where they differ most."""
    # At each token the two models' distributions over the whole vocabulary are compared.
    result = swerve.probe(before, model, sequences, tokenizer=tokenizer)
    print(result)

    # The step checker knows where the carries were forgotten; the divergence does not.
    highest = sorted(zip(result.js, result.sequence_ids, result.positions, strict=True), reverse=True)[:5]
    for js, number, position in highest:
        ids = sequences[number][1]
        text = tokenizer.decode(ids[max(0, position - 6) : position + 1])
        print(f"  {js:.3f} nats at the end of: {text}")


if __name__ == "__main__":
    started = time.perf_counter()
    imitate()
    print(f"accuracy after imitation {accuracy():.1%} (n = {len(heldout)})")

    # The model before RL, and what it writes.
    reference = copy.deepcopy(model).eval()
    prompts = [prompt.token_ids for prompt in encode_prompts(tokenizer, heldout[:100])]
    written = sample(heldout[:100], num_samples=1, temperature=0.0, seed=0)
    sequences = [(prompt, group[0].token_ids) for prompt, group in zip(prompts, written, strict=True)]

    reinforce()
    print(f"accuracy after RL {accuracy():.1%} (n = {len(heldout)}), {time.perf_counter() - started:.0f} s")
    changed_tokens(reference, sequences)
