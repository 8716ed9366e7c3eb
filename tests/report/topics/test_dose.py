"""What is said of dose and response, and its rows."""

from __future__ import annotations

from typing import Any

from swerve.report.read import ReportInputs
from swerve.report.topics.dose import TOPIC


def test_the_sentences_on_dose(entries: dict[str, Any], told: Any) -> None:
    into, out, *pivots = told(entries)["Dose"]
    assert into == (
        "dpo-8 with tokens of rl-80: right in 82.2% (75.2 to 89.2) with 2.2% of the tokens, chosen by JS, in 51.0% "
        "(42.0 to 60.0) without; 80% (70 to 90) of the way to 90.0% (81.0 to 99.0). Over all budgets that recovers "
        "80.0% (71.0 to 89.0) of the gap more than random choice."
    )
    assert out.startswith("rl-80 with tokens of dpo-8: right in ")
    assert pivots[:4] == [
        "Along 20 rollouts, continued by dpo-8 (right 4.0% (2.0 to 6.0) of the time from the prompt on), a search "
        "found 9 tokens across which its success changes by 20.0% or more. Fresh continuations confirm 8 of them, at "
        "most 0.45 of these wrongly on average.",
        "Such a fall could be found in 12 of the rollouts: in the others dpo-8 is nowhere right so often.",
        "Of the 9 tokens found along text continued by dpo-8, 89% (69 to 100) are on a spike (by chance 1.9%).",
        "In 6 of the rollouts the success of dpo-8 falls for good at one token. The highest divergence is there in 67% "
        "(37 to 97) of them (by chance 1.9%), the reference's highest entropy in 50% (20 to 80). Whether it is there "
        "more often is not to be seen: +17 (-3 to +37) points.",
    ]
    assert pivots[4].startswith("Along 20 rollouts, continued by rl-80 (right 90.0% (85.0 to 95.0) of the time")
    assert not any("Such a fall" in one for one in pivots[4:])  # one could be found in all


def test_the_score_that_is_quoted_was_named_before_whichever_does_best(entries: dict[str, Any], told: Any) -> None:
    direction = entries["cross_sampling"]["directions"][0]
    best = {**direction["selectors"][0], "selector": "rank"}
    selectors = [best, *direction["selectors"]]
    crossing = {**entries["cross_sampling"], "directions": [{**direction, "selectors": selectors}]}
    assert "chosen by JS" in told({**entries, "cross_sampling": crossing})["Dose"][0]
    others = [each for each in selectors if each["selector"] != "js"]
    crossing = {**crossing, "directions": [{**direction, "selectors": others}]}
    assert "chosen by rank" in told({**entries, "cross_sampling": crossing})["Dose"][0]


def test_accuracy_lies_at_the_share_of_tokens_that_each_score_took(inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, inputs)
    dose = rows["dose_response"]
    alone = "51.0% (42.0 to 60.0)"
    none = "\N{EN DASH}"
    assert dose.texts == (
        ("0.0%", alone, alone),
        ("1.8%", none, "54.1% (47.1 to 61.1)"),
        ("2.2%", "82.2% (75.2 to 89.2)", none),
        ("9.2%", none, "54.9% (47.9 to 61.9)"),
        ("11.0%", "90.0% (83.0 to 97.0)", none),
    )
    (plot,) = dose.plots
    assert plot.x == (0.0, 1.84, 2.2, 9.2, 11.0)
    assert (plot.greys, list(plot.levels)) == (("Random",), ["dpo-8 alone", "rl-80 alone"])
    # The share of a gap may be more than all of it.
    assert rows["gap_checkpoint_into_reference"].texts[0] == (
        "JS", "86.0% (82.0 to 90.0)", "80.0% (71.0 to 89.0)", "80% (70 to 90)", "100% (90 to 110)",
    )  # fmt: skip


def test_pivots_stand_beside_chance_and_are_of_the_model_that_continues(inputs: ReportInputs, rows_of: Any) -> None:
    rows, others = (rows_of(TOPIC, inputs)[name] for name in ("pivots", "pivots_checkpoint"))
    assert rows.texts[0] == ("On a spike", "89% (69 to 100)", "1.9%", "9")
    assert "2 are rises" in rows.note
    assert (rows.first, others.first) == ("Pivotal tokens of dpo-8", "Pivotal tokens of rl-80")
    assert others.title == "Where single tokens decide the outcome, continued by rl-80"
    assert ("by dpo-8; two equal rates" in rows.note, "by rl-80; two equal rates" in others.note) == (True, True)


def test_a_search_that_found_nothing_says_where_it_could_have(entries: dict[str, Any], told: Any) -> None:
    nothing = {name: 0 for name, value in entries["pivots"][0].items() if name.startswith("num_") and value < 10}
    lacking = dict.fromkeys(("size_search", "size_estimate", "on_spike", "on_wrong", "on_first_wrong"))
    breaks = {"num_rollouts": 0, "num_confirmed": 0, "top_divergence": None, "top_entropy": None, "above_entropy": None}
    effort = {"unit": "sentence", "num_rounds": 1, "num_compared": 60, "num_could_fall": 0}
    none = {**entries["pivots"][0], **nothing, **lacking, **effort, "breaks": breaks}
    assert told({**entries, "pivots": [none]})["Dose"][-2:] == (
        "Along 20 rollouts, continued by dpo-8 (right 4.0% (2.0 to 6.0) of the time from the prompt on), a search "
        "found 0 sentences across which its success changes by 20.0% or more.",
        "Such a fall could be found in 0 of the rollouts: in the others dpo-8 is nowhere right so often.",
    )
    assert len(told({**entries, "pivots": None})["Dose"]) == 2  # as it was written where nothing was searched
    # Of a summary from before there were two policies it is the reference's, and nothing else is known.
    old = {name: value for name, value in none.items() if name not in ("policy", "start", "num_could_fall")}
    assert told({**entries, "pivots": old})["Dose"][-1] == (
        "Along 20 rollouts, continued by dpo-8, a search found 0 sentences across which its success changes by 20.0% "
        "or more."
    )
