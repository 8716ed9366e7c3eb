"""Who gets which sequences: as even as moving single rows makes it, with groups together, by the model's own FLOPs."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2Config

from benchmarks.update import LAYOUTS, LENGTHS, sequences
from swerve.train.balance import RowWork, WorkEstimate, balanced_pieces, deal, total_work
from tests.cases import each


def _loads(works: list[RowWork], ranks: list[int], num: int) -> list[int]:
    return [total_work(work for work, one in zip(works, ranks, strict=True) if one == rank) for rank in range(num)]


@pytest.mark.parametrize("name", ["GSM8K-like", "K&K-like"])
@pytest.mark.parametrize("num", [2, 3, 8])
def test_the_slowest_rank_has_little_more_than_the_mean_and_groups_stay_together(name, num):
    profile = LENGTHS[name]
    estimate = WorkEstimate.of(Qwen2Config(**LAYOUTS["1.5B"]), packs=True)
    works = [
        estimate.row(row // profile["samples"], len(prompt), len(completion))
        for row, (prompt, completion) in enumerate(sequences(profile, seed=7))
    ]
    ranks = deal(works, num)
    loads = _loads(works, ranks, num)
    assert max(loads) < 1.03 * sum(loads) / num
    parts = {(work.group, rank) for work, rank in zip(works, ranks, strict=True)}
    assert len(parts) - profile["groups"] <= 2 * (num - 1)
    assert ranks == deal(works, num)


@each("seed", range(20))
def test_no_single_row_could_move_from_the_most_to_the_least_loaded_rank(seed):
    rng = random.Random(seed)
    prompts = [rng.randrange(20) for _ in range(rng.randrange(1, 8))]
    works = [
        RowWork(group, prompt, int(rng.lognormvariate(3, 1)) + 1)
        for group, prompt in enumerate(prompts)
        for _ in range(rng.randrange(1, 6))
    ]
    num = rng.randrange(1, 6)
    ranks = deal(works, num)
    loads = _loads(works, ranks, num)
    most, least = loads.index(max(loads)), loads.index(min(loads))
    assert len(ranks) == len(works)
    for row, rank in enumerate(ranks):
        if rank == most and max(loads) > 1.01 * sum(loads) / num:
            moved = _loads(works, [*ranks[:row], least, *ranks[row + 1 :]], num)
            assert max(moved[most], moved[least]) >= max(loads)


def test_fewer_rows_than_ranks_leave_ranks_without_any():
    assert sorted(deal([RowWork(0, 1, 5), RowWork(0, 1, 9)], 4)) != [0, 0]
    assert deal([], 3) == []


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pieces_hold_every_row_once_and_fit(limit):
    rng = random.Random(limit)
    works = [RowWork(row // 3, 4, rng.randrange(1, 50)) for row in range(17)]
    found = balanced_pieces(works, 4, lambda rows: len(rows) <= limit)
    assert sorted(row for rows in found for row in rows) == list(range(17))
    assert max(map(len, found)) <= max(1, limit)
    loads = [total_work(works[row] for row in rows) for rows in found]
    assert loads == sorted(loads, reverse=True)
    assert len(found) == 4 or limit < 17


def test_the_estimate_is_the_models_flops(tiny):
    """Attention is counted whole there, half of it where it is causal; rotary embeddings are not in the estimate."""
    model, length = copy.deepcopy(tiny[0]), 16
    model.set_attn_implementation("eager")
    estimate = WorkEstimate.of(model.config, packs=True)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros(1, length, dtype=torch.long), use_cache=False)
    linear = length * (estimate.per_token + estimate.per_completion_token)
    assert counter.get_total_flops() == pytest.approx(linear + length**2 * estimate.per_pair, rel=0.01)


def test_padded_rows_read_their_prompt_each():
    shared, alone = (
        WorkEstimate(per_token=10, per_completion_token=5, per_pair=1, shares_prompts=flag) for flag in (True, False)
    )
    assert total_work([shared.row(0, 4, 2), shared.row(0, 4, 2)]) == 40 + 2 * 51
    assert total_work([alone.row(0, 4, 2), alone.row(0, 4, 2)]) == 2 * (40 + 51)
    assert total_work([shared.row(0, 4, 2, 2)]) == 40 + 2 * 51
