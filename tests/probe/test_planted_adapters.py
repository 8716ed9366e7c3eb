"""Does the divergence of a checkpoint of an adapter still point at what was learned (arXiv 2606.00257)?"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from swerve.config.models import LoraConfig, TinyModel
from swerve.models.adapter import new_adapter
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe import probe

pytest.importorskip("peft")

LENGTH = 16
WORDS = [f"w{number}" for number in range(12)]
TOKENIZER = build_word_tokenizer([*WORDS, "cue", "good", "bad"])
CUE, GOOD, BAD = TOKENIZER.convert_tokens_to_ids(["cue", "good", "bad"])
START = int(TOKENIZER.bos_token_id)


def texts(num: int, rng: np.random.Generator) -> torch.Tensor:
    """Words of a random chain; at a place that differs the cue, and after it the bad word in 60%."""
    ids = np.array(TOKENIZER.convert_tokens_to_ids(WORDS))
    chain = np.random.default_rng(0).dirichlet(np.full(len(WORDS), 0.5), size=len(WORDS))
    rows = []
    for place in rng.integers(3, LENGTH - 4, size=num):
        word, row = int(rng.integers(len(WORDS))), [START]
        while len(row) <= LENGTH:
            if len(row) == place:
                row += [CUE, BAD if rng.random() < 0.6 else GOOD]
            word = int(rng.choice(len(WORDS), p=chain[word]))
            row.append(int(ids[word]))
        rows.append(row[: LENGTH + 1])
    return torch.tensor(rows)


def logprobs(model: PreTrainedModel, rows: torch.Tensor) -> torch.Tensor:
    logits = model(rows[:, :-1]).logits.log_softmax(-1)
    return logits.gather(-1, rows[:, 1:, None])[..., 0]


@torch.no_grad()
def sampled(model: PreTrainedModel, num: int, generator: torch.Generator) -> torch.Tensor:
    rows = torch.full((num, 1), START)
    for _ in range(LENGTH):
        probs = model(rows).logits[:, -1].softmax(-1)
        rows = torch.cat([rows, torch.multinomial(probs, 1, generator=generator)], dim=1)
    return rows


def is_good(rows: torch.Tensor) -> torch.Tensor:
    return (rows == GOOD).any(dim=1) & ~(rows == BAD).any(dim=1)


def reinforced(model: PreTrainedModel, lr: float) -> tuple[PreTrainedModel, float]:
    """Reinforce rollouts with the good word, every token by its rollout's advantage, up to a reward of .85."""
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=lr)
    generator = torch.Generator().manual_seed(1)
    for _ in range(400):
        rows = sampled(model, 128, generator)
        rewards = is_good(rows).float()
        if rewards.mean() >= 0.85:
            break
        loss = -((rewards - rewards.mean())[:, None] * logprobs(model, rows)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, float(is_good(sampled(model, 512, generator)).float().mean())


def gini(values: np.ndarray) -> float:
    ascending = np.sort(values)
    return float(
        2 * (np.arange(1, len(values) + 1) @ ascending) / (len(values) * ascending.sum()) - 1 - 1 / len(values)
    )


@pytest.mark.planted
def test_divergence_of_an_adapter_points_at_the_planted_word_as_that_of_all_weights_does():
    """To the same reward: neither uniform along a rollout, nor on words that have nothing to do with it."""
    rng = np.random.default_rng(3)
    reference = build_tiny_model(TinyModel(hidden_size=48, num_layers=2), TOKENIZER, seed=0)
    optimizer = torch.optim.AdamW(reference.parameters(), lr=3e-3)
    for _ in range(400):
        loss = -logprobs(reference, texts(64, rng)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    whole, reward = reinforced(copy.deepcopy(reference), 1e-3)
    adapted, adapted_reward = reinforced(
        new_adapter(copy.deepcopy(reference), LoraConfig(rank=4, alpha=8), seed=0), 5e-3
    )
    assert reward > 0.8
    assert abs(reward - adapted_reward) < 0.1

    # Wrong rollouts of the reference: where is each checkpoint farthest from it?
    rows = sampled(reference, 400, torch.Generator().manual_seed(2))
    rows = rows[(rows == BAD).sum(dim=1) == 1][:100]
    places = (rows[:, 1:] == BAD).int().argmax(dim=1).numpy()
    sequences = [([START], row[1:].tolist()) for row in rows]
    for model in (whole, adapted):
        values = np.stack(probe(reference.eval(), model.eval(), sequences).by_sequence("js"))
        weights = values / values.sum(axis=1, keepdims=True)
        on_planted = weights[np.arange(len(rows)), places]
        assert (values.argmax(axis=1) == places).mean() >= 0.9
        assert on_planted.mean() > 0.3  # of 16 tokens: 6% if uniform
        assert np.mean([gini(row) for row in weights]) > 0.5  # 0 if uniform
