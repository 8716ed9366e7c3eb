from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from threading import Barrier

import numpy as np
import pytest
import torch

from swerve.probe.causal.continuations import ContinuationSampler, Outcome, Prefix
from swerve.rollout import TorchEngine
from swerve.statistics import difference_interval, share
from swerve.types import Problem, Reward
from swerve.world import World


def outcome(num: int, successes: int, failures: int = 0, *, even: int | None = None) -> Outcome:
    return Outcome(num_continuations=num, num_successes=successes, num_failures=failures, even_successes=even)


def test_the_toy_has_the_values_that_a_coin_has(toys) -> None:
    toy = toys.fair(lambda words: words[1] == "a", length=3)
    values = [toy.value(written) for written in ((), (toys.b,), (toys.b, toys.a), (toys.b, toys.b), (toys.a,) * 3)]
    assert values == [0.5, 0.5, 1.0, 0.0, 1.0]


def test_values_are_right_to_three_standard_errors(toys) -> None:
    toy = toys.random(1)
    prefixes = [written for written in toy.prefixes() if len(written) < 3]
    found = toy.sampler().sample([toys.prefix(written) for written in prefixes], 4000)
    exact = [toy.value(written) for written in prefixes]
    assert max(exact) - min(exact) > 0.5  # a test of something
    for value, one in zip(exact, found, strict=True):
        assert abs(one.value - value) <= 3.5 * np.sqrt(value * (1 - value) / 4000) + 1e-9


def test_intervals_hold_the_exact_value_at_the_stated_rate(toys) -> None:
    held = []
    for seed in range(20):
        toy = toys.random(seed)
        prefixes = [written for written in toy.prefixes() if len(written) < 3]
        found = toy.sampler(seed=seed).sample([toys.prefix(written) for written in prefixes], 40)
        for written, one in zip(prefixes, found, strict=True):
            interval = share(one.num_successes, one.num_continuations)
            held.append(interval.low <= toy.value(written) <= interval.high)
    assert len(held) == 260
    assert 0.92 <= np.mean(held) <= 0.985


def test_two_sample_sets_of_the_same_tokens_differ_no_more_than_stated(toys) -> None:
    held = []
    for seed in range(400):
        toy = toys.random(seed, length=3)
        sampler, prefix = toy.sampler(seed=seed), toys.prefix((toys.a,))
        (first,), (second,) = sampler.sample([prefix], 32), sampler.sample([prefix], 32, look=1)
        effect = difference_interval(second.num_successes, 32, first.num_successes, 32)
        held.append(effect.low <= 0 <= effect.high)
    assert 0.93 <= np.mean(held) <= 0.985


def test_equal_prefixes_are_continued_once_and_all_in_one_call(toys) -> None:
    toy = toys.random(0)
    finished: list[int] = []
    sampler = replace(toy.sampler(), on_finished=finished.append)
    prefixes = [toys.prefix((toys.a,)), toys.prefix(()), toys.prefix((toys.a,)), toys.prefix((toys.a,), problem="q")]
    found = sampler.sample(prefixes, 5)
    assert found[0] == found[2]
    assert [[written for written, _, _ in call] for call in toy.calls] == [[(toys.a,), (), (toys.a,)]]
    assert [budget for _, _, budget in toy.calls[0]] == [3, 4, 3]
    assert sum(finished) == 15 == 5 * sampler.num_continued(prefixes)
    assert sampler.sample([], 5) == []


def test_processes_share_the_prefixes_by_problem_and_know_all_outcomes(toys) -> None:
    written = [((toys.a,), "p"), ((), "p"), ((toys.b,), "q"), ((toys.a, toys.eos), "q"), ((toys.b,), "r")]
    prefixes = [toys.prefix(tokens, problem=problem) for tokens, problem in written]
    parts, met = [None, None], Barrier(2)

    class Two(World):
        """Of two threads."""

        def gather(self, value):
            parts[self.rank] = json.loads(json.dumps(value))
            met.wait()
            found = list(parts)
            met.wait()
            return found

    copies, finished = [toys.random(0), toys.random(0)], ([], [])

    def sample(rank):
        world = Two(rank=rank, size=2)
        return replace(copies[rank].sampler(), world=world, on_finished=finished[rank].append).sample(prefixes, 5)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(sample, range(2))
    assert first == second == toys.random(0).sampler().sample(prefixes, 5)
    called = [[written for written, _, _ in call] for copy in copies for call in copy.calls]
    assert called == [[(toys.a,), (), (toys.b,)], [(toys.b,)]]
    assert [sum(one) for one in finished] == [20, 20]


def test_prefixes_of_one_length_share_random_numbers_and_no_others_do(toys) -> None:
    toy = toys.random(0)
    same = [toys.prefix((toys.a, toys.a)), toys.prefix((toys.a, toys.b))]
    others = [toys.prefix((toys.a,)), toys.prefix((toys.a, toys.a), problem="q")]
    toy.sampler().sample([*same, *others], 2)
    toy.sampler().sample(same, 2, look=1)
    toy.sampler(seed=1).sample(same, 2)
    first, look, seed = [[seed for _, seed, _ in call] for call in toy.calls]
    assert first[0] == first[1]
    assert look[0] == look[1]
    assert len({first[0], first[2], first[3], look[0], seed[0]}) == 5


def test_what_is_finished_is_graded_as_it_stands(toys) -> None:
    toy = toys.random(0)
    ended = [(toys.a, toys.a, toys.eos), (toys.c, toys.eos), (toys.eos,), (toys.c, toys.c, toys.c, toys.b)]
    found = toy.sampler().sample([toys.prefix(written) for written in ended], 7)
    assert found == [
        outcome(7, 7, even=4),
        outcome(7, 0, even=0),
        outcome(7, 0, 7, even=0),
        outcome(7, 7, even=4),
    ]
    assert toy.calls == []


def test_continuations_that_cannot_be_judged_are_counted_as_wrong(toys) -> None:
    toy = toys.given(lambda written: {toys.eos: 1.0}, lambda words: True, length=3)
    assert toy.sampler().sample([toys.prefix(()), toys.prefix((toys.c,))], 3) == [
        outcome(3, 0, 3, even=0),
        outcome(3, 3, 0, even=2),
    ]


def test_a_value_needs_continuations(toys) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        toys.random(0).sampler().sample([toys.prefix(())], 0)


def test_halves_are_the_even_and_the_odd_continuations_of_every_arm(toys) -> None:
    """The halves of an arm are those that the same seed gives one by one; both arms share them."""
    toy = toys.fair(lambda words: words[1] == "a", length=2)
    prefixes = [toys.prefix((toys.a,)), toys.prefix((toys.b,))]
    first, second = toy.sampler().sample(prefixes, 9)
    seed = toy.calls[0][0][1]
    right = np.random.default_rng(seed).random((9, 2))[:, 0] < 0.5
    assert first == second == outcome(9, right.sum(), even=right[::2].sum())
    assert first.half_values == (right[::2].sum() / 5, right[1::2].sum() / 4)
    assert first.extended(second).half_values == first.half_values  # those of the first look
    assert outcome(1, 1, even=1).half_values is None
    assert outcome(8, 4).half_values is None


def test_extended_keeps_the_part_of_fixed_size() -> None:
    total = outcome(4, 1).extended(outcome(4, 3, 1)).extended(outcome(8, 8))
    assert (total.num_continuations, total.num_successes, total.num_failures) == (16, 12, 1)
    assert (total.value, total.unbiased_value) == (0.75, 0.25)
    assert outcome(4, 3).unbiased_value == 0.75


LENGTH = 3


def _grade(problem: Problem, text: str) -> Reward:
    words = text.split()
    return Reward(value=float("1" in words and "+" not in words[:1]), status="graded")


def _sampler(tiny, *, max_new_tokens: int = LENGTH, max_rows: int = 4096) -> ContinuationSampler:
    model, tokenizer = tiny
    return ContinuationSampler(
        engine=TorchEngine(model, pad_id=0, max_rows=max_rows),
        tokenizer=tokenizer,
        stop_ids=(2,),
        max_new_tokens=max_new_tokens,
        temperature=1.0,
        seed=3,
        grade=lambda pairs: [_grade(*pair) for pair in pairs],
    )


def _exact(tiny, prompt: tuple[int, ...], written: tuple[int, ...]) -> float:
    """V by enumeration of all completions, from one forward pass over all of full length."""
    model, tokenizer = tiny
    tails = list(product(range(len(tokenizer)), repeat=LENGTH - len(written)))
    rows = torch.tensor([[*prompt, *written, *tail] for tail in tails])
    with torch.inference_mode():
        logprobs = model(input_ids=rows).logits.double().log_softmax(-1)
    total = 0.0
    for row, tail in enumerate(tails):
        ended = tail.index(2) + 1 if 2 in tail else len(tail)
        if any(token != 0 for token in tail[ended:]):
            continue  # what comes after the end is not sampled: one row stands for all of them
        start = len(prompt) + len(written)
        prob = sum(float(logprobs[row, start + t - 1, tail[t]]) for t in range(ended))
        text = tokenizer.decode([*written, *tail[:ended]], skip_special_tokens=True)
        total += np.exp(prob) * _grade(Problem(id="p", family="toy", question="?", answer=""), text).value
    return total


def test_the_embedded_engine_against_enumeration_of_its_models_probabilities(tiny) -> None:
    problem = Problem(id="p", family="toy", question="?", answer="")
    prompt, num = (1, 6, 8), 4000
    writings = [(), (5,), (8,), (4, 7)]
    prefixes = [Prefix(problem=problem, prompt_ids=prompt, completion_ids=written) for written in writings]
    for written, one in zip(writings, _sampler(tiny).sample(prefixes, num), strict=True):
        exact = _exact(tiny, prompt, written)
        assert abs(one.value - exact) <= 3 * np.sqrt(max(exact * (1 - exact), 1e-4) / num)


def test_the_result_of_a_prefix_does_not_depend_on_the_others_of_the_call(tiny) -> None:
    problem = Problem(id="p", family="toy", question="?", answer="")
    prefixes = [
        Prefix(problem=problem, prompt_ids=(1, 6), completion_ids=written) for written in ((4, 6, 6, 7), (6,), (4, 7))
    ]
    together = _sampler(tiny, max_new_tokens=6).sample(prefixes, 100)
    alone = [_sampler(tiny, max_new_tokens=6, max_rows=7).sample([prefix], 100)[0] for prefix in prefixes]
    assert together == alone
    assert len({one.num_successes for one in together}) > 1
