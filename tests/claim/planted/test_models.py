"""Planted models have the probabilities that their tables say, through the engine that samples them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from swerve.artifacts.shards import WHOLE
from swerve.claim.passes import read_logprobs
from swerve.models.model_folder import load_model
from tests.claim.planted.models import (
    END,
    RIGHT,
    bigram_model,
    completions,
    planted_pair,
    success,
    table_settings,
)

CHAINS = {"ask": {"add": 0.3, "subtract": 0.7}, "add": {RIGHT: 0.6, "well": 0.4}, "well": {"well": 0.5, END: 0.5}}


def test_logits_are_the_table_whatever_stood_before(tmp_path):
    loaded = load_model(bigram_model(tmp_path, CHAINS), device="cpu", dtype="float32")
    ids = loaded.tokenizer(["ask", "well add ask"])["input_ids"]
    word = loaded.tokenizer.convert_tokens_to_ids
    asked = [(ids[0], [word("add"), word(RIGHT), word(END)]), (ids[1], [word("subtract"), word(END)])]
    first, second = read_logprobs(loaded, asked)
    assert first == pytest.approx([np.log(0.3), np.log(0.6), 0.0], abs=1e-6)
    assert second == pytest.approx([np.log(0.7), 0.0], abs=1e-6)


def test_completions_are_enumerated():
    every = {words: (chance, ends) for words, chance, ends in completions(CHAINS, "ask", limit=3)}
    assert every == {
        ("add", RIGHT): (pytest.approx(0.18), True),
        ("add", "well", "well"): (pytest.approx(0.06), False),
        ("add", "well"): (pytest.approx(0.06), True),
        ("subtract",): (pytest.approx(0.7), True),
    }
    assert success(CHAINS, "1 2 ask", limit=3) == pytest.approx(0.18)


@pytest.mark.parametrize(
    ("kind", "size", "gain"),
    [
        ("sharpening", 0.1, 0.1),
        ("rank1", 0.1, 0.1),
        ("skill", 0.06, 0.06),
        ("format", 0.12, 0.12),
        ("length", 0.12, 0.12),
        ("forgetting", 0.1, 0.0),
        ("memorised", 0.5, 0.0),
        ("reworded", 0.0, 0.0),
        ("nothing", 0.01, 0.0),
    ],
)
def test_pairs_gain_what_is_planted(tmp_path, kind, size, gain):
    pair = planted_pair(tmp_path, kind, size=size, num_problems=40)
    assert pair.gain == pytest.approx(gain, abs=1e-6)
    if kind == "forgetting":
        before, after = np.mean(pair.chances(pair.other_questions), axis=0)
        assert [before, after] == pytest.approx([0.5225, 0.4225], abs=1e-6)


def test_a_rank_one_change_is_one(tmp_path):
    pair = planted_pair(tmp_path, "rank1", size=0.1, num_problems=8)
    heads = [load_model(path, device="cpu", dtype="float32").model.lm_head.weight for path in (pair.base, pair.rl)]
    singular = torch.linalg.svdvals((heads[1] - heads[0]).double())
    assert singular[1] / singular[0] < 1e-6


def test_the_engine_samples_them(tmp_path):
    from swerve.artifacts.parts import Parts
    from swerve.claim import work
    from swerve.eval.sampling import chosen_problems
    from swerve.progress import SilentProgress

    pair = planted_pair(tmp_path, "sharpening", size=0.2, num_problems=16)
    settings = table_settings(pair.problems, num_samples=64)
    of = [work.Side(label=name, model=path) for name, path in (("base", pair.base), ("rl", pair.rl))]
    progress = SilentProgress()
    out = tmp_path / "card"
    parts = Parts(out / "claim.partial", {})
    problems = chosen_problems(settings, progress)
    assert len(problems) == 16
    samples = work.Work(*of, settings, problems, out=out, parts=parts, shard=WHOLE, progress=progress).samples
    for side in (0, 1):
        for problem in problems:
            chance = pair.chances([problem.question])[0][side]
            share = np.mean([response.correct for response in samples[side][problem.id]])
            assert abs(share - chance) <= 4 * np.sqrt(chance * (1 - chance) / 64) + 1e-9
