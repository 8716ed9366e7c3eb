from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from swerve.artifacts.responses import Response
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA
from swerve.config.probe import CausalConfig
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.causal.continuations import ContinuationSampler, Outcome
from swerve.probe.causal.interventions import Control, Intervention, plan_interventions
from swerve.probe.causal.swaps import count_continued, decide, intervention_rows, look_sizes, run_interventions
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.spikes import Spike
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.rollout import SamplingParams
from swerve.types import Completion, Problem
from tests.builders import response

TOKENIZER = build_word_tokenizer(load_family(AdditionTask()).words)
EOS = int(TOKENIZER.eos_token_id)
SETTINGS = CausalConfig(num_continuations=4, controls=("random",), alternative=False)


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def sequence(index: int = 0, *, completion: tuple[int, ...] = (*ids("carry 0 ; answer 0 1"), EOS)) -> Response:
    return response(
        index,
        len(completion),
        problem=Problem(id=f"p{index}", family="addition", question="5 + 6 =", answer="1 1"),
        prompt_ids=ids("5 + 6 ="),
        completion_ids=completion,
        text="carry 0 ; answer 0 1",
        wrong={1: "1"},
    )


class CopyingEngine:
    """Continues every prefix with the answer of which the forced carry is the first digit; counts what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], int, int]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        assert budgets is not None
        self.calls += list(zip(map(tuple, prompts), seeds, budgets, strict=True))
        results = []
        for prompt in prompts:
            token_ids = (*ids("; answer"), prompt[-1], *ids("1"), EOS)
            completion = Completion(token_ids=token_ids, logprobs=(0.0,) * 5, finish_reason="stop")
            results.append((completion,) * params.num_samples)
            if on_finished is not None:
                on_finished(params.num_samples)
        return results


def at_spike(own: Response, position: int, **tokens: int) -> Intervention:
    return Intervention(sequence=own, position=position, selection="spike", tokens=tokens, spike=own)


def spike_arms(*, forced: tuple[int, int]) -> Intervention:
    return at_spike(sequence(), 1, reference=forced[0], checkpoint=forced[1])


def run(interventions: Sequence[Intervention], engine: CopyingEngine, *, max_new_tokens: int = 12) -> list[Outcome]:
    sampler = ContinuationSampler(
        engine=engine,
        tokenizer=TOKENIZER,
        stop_ids=(EOS,),
        max_new_tokens=max_new_tokens,
        temperature=SETTINGS.temperature,
        seed=0,
    )
    return outcomes_of(run_interventions(interventions, sampler, settings=SETTINGS))


def outcomes_of(interventions: Sequence[Intervention]) -> list[Outcome]:
    return [outcome for item in interventions for outcome in item.outcomes.values()]


def outcome(num: int, successes: int, failures: int = 0, *, even: int | None = None) -> Outcome:
    return Outcome(num_continuations=num, num_successes=successes, num_failures=failures, even_successes=even)


def test_the_forced_token_decides_and_the_whole_completion_is_graded() -> None:
    engine = CopyingEngine()
    (zero,), (one,) = ids("0"), ids("1")
    assert run([spike_arms(forced=(zero, one))], engine) == [outcome(4, 0, even=0), outcome(4, 4, even=2)]
    prefix = (*ids("5 + 6 ="), *ids("carry"))
    assert [(prompt, budget) for prompt, _, budget in engine.calls] == [((*prefix, zero), 10), ((*prefix, one), 10)]
    assert engine.calls[0][1] == engine.calls[1][1]  # the arms share their random numbers


def test_equal_tokens_are_continued_once_with_equal_outcomes() -> None:
    engine = CopyingEngine()
    (one,) = ids("1")
    arms = spike_arms(forced=(one, one))
    outcomes = run([arms], engine)
    assert outcomes[0] == outcomes[1]
    assert len(engine.calls) == count_continued([arms], (EOS,), 12) == 1


def test_an_ending_token_or_an_empty_budget_is_graded_as_it_stands() -> None:
    engine = CopyingEngine()
    at_end = at_spike(sequence(), 6, reference=EOS)
    early = at_spike(sequence(), 1, checkpoint=EOS)
    right = sequence(1, completion=(*ids("answer 1 1"), EOS))
    full = at_spike(right, 2, reference=ids("1")[0])
    outcomes = run([at_end, early, full], engine, max_new_tokens=3)
    assert engine.calls == []
    assert count_continued([at_end, early, full], (EOS,), 3) == 0
    # "carry 0 ; answer 0 1"; "carry": no answer; "answer 1 1"
    assert outcomes == [outcome(4, 0, even=0), outcome(4, 0, 4, even=0), outcome(4, 4, even=2)]


@pytest.mark.parametrize("max_new_tokens", [3, 5, 12])
def test_continuations_never_outgrow_the_budget(max_new_tokens: int) -> None:
    engine = CopyingEngine()
    run([spike_arms(forced=ids("0 1"))], engine, max_new_tokens=max_new_tokens)
    assert all(
        len(prompt) - len(sequence().prompt_ids) + budget == max_new_tokens for prompt, _, budget in engine.calls
    )


def test_random_streams_differ_between_problems() -> None:
    engine = CopyingEngine()
    run([at_spike(sequence(index), 1, reference=ids("0")[0]) for index in range(3)], engine)
    assert len({seed for _, seed, _ in engine.calls}) == 3


def plan(
    sequences, *, tops, argmax, seed=0, settings=SETTINGS, spikes=None, categories=None, entropy_ref=None, **known
) -> list[Intervention]:
    """Everything is given by rollout and position."""
    num = sum(len(own.completion_ids) for own in sequences)
    columns = {"argmax": list(chain(*argmax)), "entropy_ref": list(chain(*(entropy_ref or [[0.0] * num])))}
    data = Measurements(
        sequences=tuple(sequences),
        checkpoints=("rl",),
        references=("dpo",),
        columns={name: np.array([values]) for name, values in columns.items()},
        categories=tuple(chain(*(categories or ["n" * num]))),
    )
    found = [
        [Spike(position=at, value=1.0, threshold=0.5, height=1) for at in row] for row in spikes or [()] * len(tops)
    ]
    table = SpikeTable(
        sequences=data.sequences,
        method="zscore",
        found={("rl", "js", "zscore"): found},
        tops={("rl", "js"): tuple(tops)},
    )
    how = {"checkpoint": "rl", "divergence": "js", "settings": settings, "seed": seed}
    return plan_interventions(data, table, **how, **known)


def test_the_plan_forces_both_tokens_at_the_spike_and_at_another_position() -> None:
    sequences = [sequence(index) for index in range(40)]
    tops = [index % 7 for index in range(40)]
    choices = [[10 + t for t in range(7)]] * 40
    planned = plan(sequences, tops=tops, argmax=choices, seed=3)
    assert len(planned) == 80
    for index, item in enumerate(planned):
        own = sequences[index // 2]
        assert item.sequence is own
        assert (item.position == tops[index // 2]) == (item.selection == "spike")
        assert item.tokens == {"reference": own.completion_ids[item.position], "checkpoint": 10 + item.position}
        for arm, token in item.tokens.items():
            assert item.forced(arm).completion_ids == (*own.completion_ids[: item.position], token)
            assert item.forced(arm).prompt_ids == own.prompt_ids
    controls = {item.position for item in planned if item.selection == "random"}
    assert controls == set(range(7))
    assert planned == plan(sequences, tops=tops, argmax=choices, seed=3)
    assert planned != plan(sequences, tops=tops, argmax=choices, seed=4)


def test_a_single_token_has_no_control() -> None:
    planned = plan([sequence(completion=(EOS,))], tops=[0], argmax=[[5]])
    assert [(item.selection, item.tokens) for item in planned] == [("spike", {"reference": EOS, "checkpoint": 5})]


def test_the_alternative_is_the_likeliest_token_of_neither() -> None:
    own = sequence(completion=(20, 21, 22, 23))
    settings = SETTINGS.model_copy(update={"alternative": True, "controls": ()})
    likely = [[20, 30, 31], [40, 41, 42], [22, 50, 99], [23, 60, 60]]
    tokens = {}
    for top in range(4):
        (item,) = plan([own], tops=[top], argmax=[[30, 31, 22, 60]], top_ref=np.array(likely), settings=settings)
        tokens[top] = item.tokens
    assert tokens == {
        0: {"reference": 20, "checkpoint": 30, "alternative": 31},
        1: {"reference": 21, "checkpoint": 31, "alternative": 40},
        2: {"reference": 22, "checkpoint": 22, "alternative": 50},
        3: {"reference": 23, "checkpoint": 60},  # none is left
    }


def test_matched_controls_keep_their_spike_and_may_be_in_another_rollout() -> None:
    first, second = sequence(7, completion=(20, 21, 22)), sequence(8, completion=(30, 31, 32))
    settings = SETTINGS.model_copy(update={"controls": ("matched",), "policies": ("reference", "checkpoint")})
    planned = plan(
        [first, second],
        tops=[0, 1],
        argmax=[[60, 61, 62], [70, 71, 72]],
        spikes=[[0], [1]],
        categories=["nww", "nww"],
        entropy_ref=[[0.2, 0.4, 0.64], [0.22, 0.6, 0.9]],
        settings=settings,
    )
    assert [item.policy for item in planned] == ["reference"] * 4 + ["checkpoint"] * 4
    of_first, of_second = planned[1], planned[3]
    control = Control(
        index=1,
        position=0,
        same_rollout=False,
        same_category=True,
        same_third=True,
        entropy_gap=pytest.approx(0.02),
    )
    assert (of_first.control, of_first.selection) == (control, "matched")
    assert (of_first.sequence.sequence_id, of_first.position) == (8, 0)
    assert of_first.tokens == {"reference": 30, "checkpoint": 70}
    assert (of_first.spike.sequence_id, of_first.spike.problem.id) == (7, "p7")
    # of the second spike ("w", second third, entropy .6): not the same place of the first rollout, which has .4
    assert (of_second.sequence.sequence_id, of_second.position) == (7, 2)


def test_what_the_settings_ask_for_must_be_given() -> None:
    with pytest.raises(ValueError, match="top_ref"):
        plan([sequence()], tops=[0], argmax=[[1] * 7], settings=CausalConfig(controls=()))
    arms = spike_arms(forced=ids("0 1"))
    with pytest.raises(ValueError, match="several policies"):
        run([arms, replace(arms, policy="checkpoint")], CopyingEngine())


def test_rows_of_the_table() -> None:
    arms = spike_arms(forced=(ids("0")[0], EOS))
    outcomes = {"reference": outcome(4, 0, even=0), "checkpoint": outcome(4, 1, 2, even=1)}
    rows = intervention_rows([replace(arms, outcomes=outcomes)], TOKENIZER)
    assert rows[1] == {
        "sequence_id": 0,
        "position": 1,
        "spike_sequence_id": 0,
        "selection": "spike",
        "arm": "checkpoint",
        "policy": "reference",
        "token_id": EOS,
        "token": "<eos>",
        "num_continuations": 4,
        "num_successes": 1,
        "num_failures": 2,
        "first_continuations": 4,
        "first_successes": 1,
        "first_even_successes": 1,
    }
    assert rows[0]["token"] == "0"
    assert rows[0].keys() == set(INTERVENTIONS_SCHEMA.names)


def test_sizes_of_looks() -> None:
    assert look_sizes(CausalConfig(num_continuations=16)) == [16]
    assert look_sizes(CausalConfig(num_continuations=16, max_continuations=16)) == [16]
    assert look_sizes(CausalConfig(num_continuations=5, max_continuations=21)) == [5, 10, 20, 21]


def test_verdicts_by_hand() -> None:
    settings = CausalConfig(num_continuations=50, delta=0.1)

    def found(
        reference: int, checkpoint: int, num: int, settings: CausalConfig = settings, tokens=(1, 2), **changes
    ) -> str:
        outcomes = {"reference": outcome(num, reference), "checkpoint": outcome(num, checkpoint)}
        item = replace(spike_arms(forced=tokens), outcomes=outcomes)
        return decide(item, **{"settings": settings, "confidence": 0.95, **changes})

    # Newcombe at 95%: 20 and 30 of 50 differ by 0.2 [0.004, 0.376], 10 and 30 by 0.4 [0.211, 0.555]
    assert found(20, 30, 50) == "undecided"
    assert found(10, 30, 50) == "outside"
    assert found(30, 10, 50) == "outside"
    # 1,000 and 1,000 of 2,000: 0 +- 0.031
    assert found(1000, 1000, 2000) == "inside"
    assert found(1000, 1000, 200 * 10) == found(1000, 1030, 2000) == "inside"
    assert found(10, 30, 50, tokens=(1, 1)) == "same_token"
    # 12 and 28 of 50 differ by 0.32 [0.130, 0.486] at 95%, by [0.065, 0.532] at 99%: five looks
    assert found(12, 28, 50) == "outside"
    looks = settings.model_copy(update={"max_continuations": 800})
    assert len(look_sizes(looks)) == 5
    assert found(12, 28, 50, looks) == "undecided"
    assert found(12, 28, 50, looks, confidence=0.75) == "outside"  # five looks at 95% each


SEQUENTIAL = CausalConfig(num_continuations=8, max_continuations=128, delta=0.2, controls=(), alternative=False)


def toy_run(toys, toy, items, *, seed=0, settings=SEQUENTIAL) -> list[Intervention]:
    sampler = ContinuationSampler(
        engine=toy,
        tokenizer=toys.tokenizer,
        stop_ids=(toys.eos,),
        max_new_tokens=toy.max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        grade=toy.grade_all,
    )
    return run_interventions(items, sampler, settings=settings)


def toy_arms(toys, index: int, position: int = 0, *, num_arms: int = 3) -> Intervention:
    """The rollout's own a against the checkpoint's b, after a first c where the position is 1."""
    own = toys.rollout(index, "a a a a" if position == 0 else "c a a a")
    tokens = {"reference": toys.a, "checkpoint": toys.b, "alternative": toys.c}
    return at_spike(own, position, **dict(list(tokens.items())[:num_arms]))


def test_effects_are_right_to_three_standard_errors(toys) -> None:
    settings = CausalConfig(num_continuations=3000)
    sizes = []
    for seed in range(6):
        toy = toys.random(seed)
        for position, start in ((0, ()), (1, (toys.c,))):
            (found,) = toy_run(toys, toy, [toy_arms(toys, 0, position, num_arms=2)], settings=settings)
            own, other = toy.value((*start, toys.a)), toy.value((*start, toys.b))
            error = np.sqrt((own * (1 - own) + other * (1 - other)) / 3000)
            assert abs(found.effect - (other - own)) <= 3 * error + 1e-9
            sizes.append(abs(other - own))
    assert max(sizes) > 0.3


def test_clear_positions_stop_and_unclear_ones_go_on(toys) -> None:
    """B after a c always wins, a never does: clear. At the start both win half of the time: unclear to the end."""
    toy = toys.fair(lambda words: words[1] == "b" if words[0] == "c" else words[2] == "b", length=4)
    clear, unclear = toy_arms(toys, 0, 1), toy_arms(toys, 1)
    same = at_spike(toys.rollout(2, "a b"), 0, reference=toys.a, checkpoint=toys.a)
    outcomes = outcomes_of(toy_run(toys, toy, [clear, unclear, same]))
    assert [one.num_continuations for one in outcomes] == [8, 8, 8, 128, 128, 128, 8, 8]
    assert outcomes[0].value == 0.0
    assert outcomes[1].value == 1.0
    assert [len(call) for call in toy.calls] == [7, 3, 3, 3, 3]  # 3 + 3 + 1 distinct prefixes, then the unclear one's
    seeds = {seed for call in toy.calls for written, seed, _ in call if written == (toys.a,) and seed}
    assert len(seeds) == 6  # five looks of one problem, one of the other: always fresh
    assert outcomes[3].first.num_continuations == 8
    assert outcomes[0].first is None


def test_verdicts_of_sequential_sampling_are_right_as_often_as_stated(toys) -> None:
    wrong, stopped, num = [], [], 0
    for seed in range(250):
        toy = toys.random(seed, length=3)
        effect = toy.value((toys.b,)) - toy.value((toys.a,))
        (item,) = toy_run(toys, toy, [toy_arms(toys, seed, num_arms=2)], seed=seed)
        first, second = item.outcomes.values()
        assert first.num_continuations == second.num_continuations
        assert first.num_continuations in look_sizes(SEQUENTIAL)
        found = decide(item, settings=SEQUENTIAL, confidence=0.95)
        assert found != "undecided" or first.num_continuations == 128
        num += 1
        if found != "undecided":
            stopped.append(first.num_continuations)
            wrong.append((found == "outside") != (abs(effect) > SEQUENTIAL.delta))
    assert len(stopped) > 80
    assert min(stopped) < 128
    assert sum(wrong) <= 0.05 * num


def test_the_first_look_is_without_the_bias_of_stopping(toys) -> None:
    """True effect 0.4: all continuations say more on average, those of the first look do not."""
    toy = toys.given(
        lambda written: {toys.a: 0.7, toys.b: 0.3} if written[0] == toys.b else {toys.a: 0.3, toys.b: 0.7},
        lambda words: words[1] == "a",
        length=2,
    )
    settings = SEQUENTIAL.model_copy(update={"delta": 0.1})
    items = [toy_arms(toys, index, num_arms=2) for index in range(500)]
    effects = toy_run(toys, toy, items, settings=settings)
    first = np.array([one.effect for one in effects])
    total = np.array([one.outcomes["checkpoint"].value - one.outcomes["reference"].value for one in effects])
    assert abs(first.mean() - 0.4) <= 3 * first.std() / np.sqrt(500)
    assert total.mean() - 0.4 > 4 * total.std() / np.sqrt(500)


def test_other_scores_choose_further_positions() -> None:
    sequences = [sequence(0), sequence(1)]
    planned = plan(
        sequences, tops=[2, 2], argmax=[list(range(10, 17))] * 2, others={"entropy": [4, 2], "first_wrong": [1, None]}
    )
    further = [one for one in planned if one.selection in ("entropy", "first_wrong")]
    assert [(item.sequence.sequence_id, item.selection, item.position) for item in further] == [
        (0, "entropy", 4),
        (0, "first_wrong", 1),
        (1, "entropy", 2),
    ]
    assert all(list(item.tokens) == ["reference", "checkpoint"] for item in further)
