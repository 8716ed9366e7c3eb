"""The sentence and the verdicts of a run: their words follow from the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.estimates import Estimate
from swerve.report.story import provenance, sentence, verdicts

GAIN = Estimate(mean=0.5275, low=0.48, high=0.57)
NONE = Estimate(mean=0.01, low=-0.02, high=0.04)
LOSS = Estimate(mean=-0.3, low=-0.4, high=-0.2)
MEAN = {"mean": 0.02, "low": 0.019, "high": 0.021}


def effects(effect: Estimate, headline: Estimate | None) -> dict[str, Any]:
    """Return the swaps of a probe, with an effect and its difference from that of a token of neither model."""
    value = None if headline is None else {"mean": headline.mean, "low": headline.low, "high": headline.high}
    spike = {
        "selection": "spike",
        "num_rollouts": 100,
        "num_different": 100,
        "effect": {"mean": effect.mean, "low": effect.low, "high": effect.high},
        "alternative_effect": {"mean": 0.2, "low": 0.1, "high": 0.3},
        "reference": {"success": 0.1},
        "checkpoint": {"success": 0.6},
        "different_tokens": {"checkpoint_minus_alternative": value},
    }
    return {"causal": {"num_continuations": 16, "selections": [spike], "policies": []}}


def titles(inputs: Any) -> list[str]:
    return [verdict.title.replace("\N{MINUS SIGN}", "-") for verdict in verdicts(inputs)]


@pytest.mark.parametrize(
    ("change", "word", "end"),
    [
        (GAIN, "Better at the task", ""),
        (NONE, "No change of accuracy is shown", "; no change is shown"),
        (LOSS, "Worse at the task", ""),
    ],
)
def test_accuracy_is_said_by_the_paired_difference(inputs_of: Any, change: Estimate, word: str, end: str) -> None:
    before, after = inputs_of().evaluations
    after = after.model_copy(update={"stage": "rl", "stage_step": 80})
    known = {"model": "Qwen3 model of 99,968 parameters", "task": "addition", "greedy_change": change}
    inputs = replace(inputs_of(), evaluations=(before, after), **known)
    assert titles(inputs)[0] == f"{word}: 46.5% to 99.2% right."
    assert sentence(inputs) == (
        "80 steps of reinforcement learning took a Qwen3 model of 99,968 parameters **from 46.5% to 99.2% (97.8 to "
        f"99.7) right**, answering greedily, on 400 held-out problems at addition{end}."
    )


def test_a_place_that_entropy_finds_too_is_said_so(inputs_of: Any) -> None:
    (title,) = (title for title in titles(inputs_of()) if "first wrong token" in title)
    assert title == (
        "In 90.0% of 200 rollouts `rl-80` changed the first wrong token most: no more than the reference's entropy."
    )


def test_a_cause_is_said_beside_a_token_of_neither_model(inputs_of: Any) -> None:
    (title, text) = next(
        (verdict.title, verdict.text)
        for verdict in verdicts(inputs_of(summary=effects(GAIN, NONE)))
        if "Forcing" in verdict.title
    )
    assert title == (
        "Forcing the token of `rl-80` at the spike changes the success of `dpo-8` by +52.8 points; a token of neither "
        "model, by +20.0."
    )
    assert "dpo-8 ends right +1.0 (" in text
    assert "the two are not distinguishable. Null: no difference." in text
    assert "100 rollouts of 16 continuations" in text
    assert any("does more than another" in verdict.text for verdict in verdicts(inputs_of(summary=effects(GAIN, GAIN))))
    assert any("is not shown to change" in title for title in titles(inputs_of(summary=effects(NONE, None))))


def test_what_was_not_measured_has_no_verdict(inputs_of: Any) -> None:
    assert titles(inputs_of(evaluations=(), summary=None, metrics=())) == []
    assert sentence(inputs_of(evaluations=(), summary=None)) == "0 steps of training; **nothing is evaluated yet**."


def test_the_line_of_provenance_has_what_people_ask_for_first(inputs_of: Any) -> None:
    recorded = {
        "date": "2026-11-26 18:56",
        "seconds": 83.6,
        "machine": "Linux x86_64, 2 CPU threads",
        "swerve_version": "0.1.0",
        "torch_version": "2.13.0",
        "seed": 0,
        "command": "swerve train demo_addition",
    }
    facts = provenance(replace(inputs_of(), provenance=recorded))
    assert facts.date == "2026-11-26"
    assert facts.line == (
        "2026-11-26, 1 min 24 s, Linux x86_64, 2 CPU threads, swerve 0.1.0, torch 2.13.0, seed 0, "
        "swerve train demo_addition"
    )
