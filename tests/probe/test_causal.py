from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from swerve.config import AdditionTask, CausalConfig
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.causal import (
    Intervention,
    Outcome,
    causal_summary,
    count_continued,
    intervention_rows,
    plan_interventions,
    run_interventions,
)
from swerve.probe.population import ProbeSequence
from swerve.problems import load_family
from swerve.rollout import SamplingParams
from swerve.types import Completion, Problem

TOKENIZER = build_word_tokenizer(load_family(AdditionTask()).words)
EOS = int(TOKENIZER.eos_token_id)
SETTINGS = CausalConfig(num_continuations=4, num_bootstrap=500)


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def sequence(index: int = 0, *, completion: tuple[int, ...] = (*ids("carry 0 ; answer 0 1"), EOS)) -> ProbeSequence:
    return ProbeSequence(
        sequence_id=index,
        problem=Problem(id=f"p{index}", family="addition", question="5 + 6 =", answer="1 1"),
        prompt_ids=ids("5 + 6 ="),
        completion_ids=completion,
        text="carry 0 ; answer 0 1",
        spans=(),
        wrong={1: "1"},
        extracted="0 1",
        correct=False,
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


def spike_arms(*, position: int = 1, forced: tuple[int, int]) -> list[Intervention]:
    return [
        Intervention(sequence=sequence(), position=position, selection="spike", arm=arm, token_id=token)
        for arm, token in zip(("reference", "checkpoint"), forced, strict=True)
    ]


def run(interventions: Sequence[Intervention], engine: CopyingEngine, *, max_new_tokens: int = 12) -> list[Outcome]:
    return run_interventions(
        interventions,
        engine,
        TOKENIZER,
        settings=SETTINGS,
        stop_ids=(EOS,),
        max_new_tokens=max_new_tokens,
        seed=0,
    )


def test_the_forced_token_decides_and_the_whole_completion_is_graded() -> None:
    engine = CopyingEngine()
    (zero,), (one,) = ids("0"), ids("1")
    outcomes = run(spike_arms(forced=(zero, one)), engine)
    assert outcomes == [
        Outcome(num_continuations=4, num_successes=0, num_failures=0),
        Outcome(num_continuations=4, num_successes=4, num_failures=0),
    ]
    prefix = (*ids("5 + 6 ="), *ids("carry"))
    assert [(prompt, budget) for prompt, _, budget in engine.calls] == [((*prefix, zero), 10), ((*prefix, one), 10)]
    assert engine.calls[0][1] == engine.calls[1][1]  # the arms share their random numbers


def test_equal_tokens_are_continued_once_with_equal_outcomes() -> None:
    engine = CopyingEngine()
    (one,) = ids("1")
    arms = spike_arms(forced=(one, one))
    outcomes = run(arms, engine)
    assert outcomes[0] == outcomes[1]
    assert len(engine.calls) == count_continued(arms, (EOS,), 12) == 1


def test_an_ending_token_or_an_empty_budget_is_graded_as_it_stands() -> None:
    engine = CopyingEngine()
    at_end = Intervention(sequence=sequence(), position=6, selection="spike", arm="reference", token_id=EOS)
    early = Intervention(sequence=sequence(), position=1, selection="spike", arm="checkpoint", token_id=EOS)
    right = sequence(1, completion=(*ids("answer 1 1"), EOS))
    full = Intervention(sequence=right, position=2, selection="spike", arm="reference", token_id=ids("1")[0])
    outcomes = run([at_end, early, full], engine, max_new_tokens=3)
    assert engine.calls == []
    assert outcomes == [
        Outcome(num_continuations=4, num_successes=0, num_failures=0),  # "carry 0 ; answer 0 1"
        Outcome(num_continuations=4, num_successes=0, num_failures=4),  # "carry": no answer
        Outcome(num_continuations=4, num_successes=4, num_failures=0),  # "answer 1 1"
    ]


def test_the_plan_forces_both_tokens_at_the_spike_and_at_another_position() -> None:
    sequences = [sequence(index) for index in range(40)]
    tops = [index % 7 for index in range(40)]
    planned = plan_interventions(sequences, tops=tops, argmax=[[10 + t for t in range(7)]] * 40, seed=3)
    assert len(planned) == 160
    for index, item in enumerate(planned):
        own = sequences[index // 4]
        assert item.sequence is own
        assert (item.position == tops[index // 4]) == (item.selection == "spike")
        expected = own.completion_ids[item.position] if item.arm == "reference" else 10 + item.position
        assert item.token_id == expected
        assert item.forced_ids == (*own.completion_ids[: item.position], expected)
    controls = {item.position for item in planned if item.selection == "random"}
    assert controls == set(range(7))
    assert planned == plan_interventions(sequences, tops=tops, argmax=[[10 + t for t in range(7)]] * 40, seed=3)
    assert planned != plan_interventions(sequences, tops=tops, argmax=[[10 + t for t in range(7)]] * 40, seed=4)


def test_a_single_token_has_no_control() -> None:
    planned = plan_interventions([sequence(completion=(EOS,))], tops=[0], argmax=[[5]], seed=0)
    assert [(item.selection, item.arm, item.token_id) for item in planned] == [
        ("spike", "reference", EOS),
        ("spike", "checkpoint", 5),
    ]


def outcome(successes: int, failures: int = 0) -> Outcome:
    return Outcome(num_continuations=4, num_successes=successes, num_failures=failures)


def test_summary_of_literal_outcomes() -> None:
    planned = plan_interventions(
        [sequence(0), sequence(1)], tops=[1, 1], argmax=[[ids("1")[0]] * 7, list(sequence().completion_ids)], seed=0
    )
    # rollout 0: spike 0 -> 4 of 4, control 1 -> 2; rollout 1: the checkpoint chooses the same tokens
    outcomes = [*map(outcome, (0, 4, 1, 2)), *map(outcome, (2, 2, 3, 3))]
    summary = causal_summary(planned, outcomes, settings=SETTINGS, confidence=0.95, seed=0)
    assert summary is not None
    assert (summary["num_rollouts"], summary["num_continuations"]) == (2, 4)
    spike, control = summary["selections"]
    assert (spike["selection"], control["selection"]) == ("spike", "random")
    assert spike["reference"] == {"success": 0.25}
    assert spike["checkpoint"] == {"success": 0.75}
    assert spike["effect"] == {"mean": 0.5, "low": 0.0, "high": 1.0}
    assert spike["share_same_token"] == 0.5
    assert control["effect"]["mean"] == 0.125
    assert summary["difference"]["mean"] == 0.375
    assert causal_summary([], [], settings=SETTINGS, confidence=0.95, seed=0) is None


def test_rows_of_the_table() -> None:
    arms = spike_arms(forced=(ids("0")[0], EOS))
    rows = intervention_rows(arms, [outcome(0), outcome(1, 2)], TOKENIZER)
    assert rows[1] == {
        "sequence_id": 0,
        "position": 1,
        "selection": "spike",
        "arm": "checkpoint",
        "token_id": EOS,
        "token": "<eos>",
        "num_continuations": 4,
        "num_successes": 1,
        "num_failures": 2,
    }
    assert rows[0]["token"] == "0"


def test_random_streams_differ_between_rollouts() -> None:
    engine = CopyingEngine()
    items = [
        Intervention(sequence=sequence(index), position=1, selection="spike", arm="reference", token_id=ids("0")[0])
        for index in range(3)
    ]
    run(items, engine)
    assert len({seed for _, seed, _ in engine.calls}) == 3


@pytest.mark.parametrize("max_new_tokens", [3, 5, 12])
def test_continuations_never_outgrow_the_budget(max_new_tokens: int) -> None:
    engine = CopyingEngine()
    run(spike_arms(forced=ids("0 1")), engine, max_new_tokens=max_new_tokens)
    assert all(
        len(prompt) - len(sequence().prompt_ids) + budget == max_new_tokens for prompt, _, budget in engine.calls
    )
