from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from swerve.artifacts.probe_causes import Swaps, SwapSelection
from swerve.artifacts.probe_dynamics import Direction
from swerve.artifacts.probe_findings import DIVERGENCES, DivergenceMeans, NoiseFloor, SpikeHits
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.tables import SPIKES_SCHEMA, TOKENS_SCHEMA, TOPK_SCHEMA
from swerve.config.probe import ProbeConfig, SpikeConfig
from swerve.estimates import Estimate
from swerve.functional.head_divergence import TopProbs
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measured import Measurements, token_table, topk_table
from swerve.probe.findings.spike_table import all_spikes, spike_hits
from swerve.probe.findings.token_shares import category_shares
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.summary_entries import divergence_means, grouped, noise_floor, summary_notes
from swerve.statistics import mean_interval
from tests.builders import measurements, response

SETTINGS = ProbeConfig(min_rollouts=3)


def diverged(js: list[list[float]], wrong: list[dict[int, str]], lengths: list[int]) -> Measurements:
    """Two checkpoints; the other divergences, entropies and log-probabilities are 0.25."""
    sequences = [response(i, length, wrong=marks) for i, (length, marks) in enumerate(zip(lengths, wrong, strict=True))]
    zeros = np.zeros((2, sum(lengths)), dtype=np.int32)
    return measurements(
        sequences,
        checkpoints=("rl-1", "rl-2"),
        reference="dpo-8",
        categories=("number", "math_symbol"),
        fill=0.25,
        **dict.fromkeys(("rank", "rank_ref", "argmax", "argmax_ref"), zeros),
        js=np.array(js, dtype=np.float32),
    )


DATA = diverged(
    [[0, 0, 0, 0.5, 0, 0, 0.6, 0, 0.1, 0], [0, 0.6, 0, 0, 0.1, 0, 0.2, 0, 0, 0.5]],
    [{1: "a", 3: "b"}, {2: "c"}],
    [6, 4],
)
SPIKES = all_spikes(DATA, SpikeConfig(num_sd=1.5))


def test_spikes_of_both_sequences() -> None:
    found = [row for row in SPIKES.table().to_pylist() if (row["divergence"], row["method"]) == ("js", "zscore")]
    assert [(row["checkpoint"], row["sequence_id"], row["position"], row["height"]) for row in found] == [
        ("rl-1", 0, 3, 1),
        ("rl-1", 1, 0, 1),
        ("rl-2", 0, 1, 1),
        ("rl-2", 1, 3, 1),
    ]
    assert [(row["is_wrong"], row["is_first_wrong"]) for row in found] == [
        (True, False),
        (False, False),
        (True, True),
        (False, False),
    ]
    assert SPIKES.tops["rl-2", "js"] == (1, 3)
    assert SPIKES.tops["rl-1", "kl_forward"] == (0, 0)  # flat: no spike, but a top position all the same


def test_hit_rates_against_chance() -> None:
    figures = {(one.checkpoint, one.divergence): one for one in spike_hits(DATA, SPIKES, confidence=0.95)}
    assert len(figures) == 6
    first, second = figures["rl-1", "js"], figures["rl-2", "js"]
    assert (first.num_rollouts, first.num_spikes) == (2, 2)
    assert first.top_on_wrong.mean == 0.5
    assert first.top_on_first_wrong.mean == 0.0
    assert second.top_on_first_wrong.mean == 0.5
    assert first.chance_wrong == pytest.approx((2 / 6 + 1 / 4) / 2)
    assert first.chance_first_wrong == pytest.approx((1 / 6 + 1 / 4) / 2)
    assert first.top_on_wrong.low == pytest.approx(1 - 0.975**0.5)
    assert figures["rl-1", "kl_forward"].num_spikes == 0


def test_uniform_placement_hits_at_the_rate_of_chance() -> None:
    rng = np.random.default_rng(0)
    lengths = [int(value) for value in rng.integers(5, 30, size=400)]
    wrong = [{int(rng.integers(length)): "x", 0: "y"} for length in lengths]
    wrong = [dict(sorted(marks.items())) for marks in wrong]
    noise = rng.random((2, sum(lengths)))
    data = diverged(noise.tolist(), wrong, lengths)
    (figure,) = [
        one
        for one in spike_hits(data, all_spikes(data, SpikeConfig()), confidence=0.999)
        if (one.checkpoint, one.divergence) == ("rl-1", "js")
    ]
    assert figure.top_on_wrong.low < figure.chance_wrong < figure.top_on_wrong.high


def test_rollouts_without_a_known_wrong_step_are_left_out() -> None:
    data = diverged(DATA.columns["js"].tolist(), [{1: "a"}, {}], [6, 4])
    figure = spike_hits(data, all_spikes(data, SpikeConfig()), confidence=0.95)[2]
    assert (figure.num_rollouts, figure.chance_wrong) == (1, pytest.approx(1 / 6))
    none = diverged(DATA.columns["js"].tolist(), [{}, {}], [6, 4])
    figure = spike_hits(none, all_spikes(none, SpikeConfig()), confidence=0.95)[2]
    assert (figure.num_rollouts, figure.top_on_wrong, figure.chance_wrong) == (0, None, None)


def test_means_by_checkpoint() -> None:
    first, second = divergence_means(DATA)
    assert first.js.mean == pytest.approx(0.12)
    assert second.js.mean == pytest.approx(0.14)
    assert first.js.low <= 0.5 / 6 + 1e-6  # the first sequence alone
    assert first.js.high >= 0.7 / 4 - 1e-6  # the second alone
    assert (first.js.reliable, first.js.median) == (False, None)  # two problems
    assert first.entropy.low < first.entropy.mean == 0.25 < first.entropy.high


def test_a_stage_is_the_mean_of_its_checkpoints_token_by_token() -> None:
    both, late = divergence_means(grouped(DATA, {"early": ["rl-1", "rl-2"], "late": ["rl-2"]}))
    assert (both.checkpoint, both.reference, late.checkpoint) == ("early", "dpo-8", "late")
    tokens = (DATA.columns["js"][0] + DATA.columns["js"][1]) / 2
    halves = diverged([tokens.tolist()] * 2, [{}, {}], [6, 4])
    assert both.js.mean == pytest.approx(0.13)
    expected = divergence_means(halves)[0].js
    assert (both.js.mean, both.js.low, both.js.high) == pytest.approx((expected.mean, expected.low, expected.high))
    assert late.js == divergence_means(DATA)[1].js
    assert divergence_means(grouped(DATA, {})) == ()


RECIPE = {
    "models": {name: name for name in ("dpo", "a", "b", "c")}, "reference": "dpo", "responses": "r.jsonl", "out": "out",
    "steps": {"a": 100, "b": 300, "c": 900},
}  # fmt: skip


def test_stages_are_ranges_of_steps_or_names_of_checkpoints() -> None:
    recipe = ProbeRecipe(**RECIPE, stages={"early": "100..300", "final": ("c",)})
    assert recipe.checkpoints_of_stages == {"early": ("a", "b"), "final": ("c",)}
    for stages, message in (
        ({"early": "100-300"}, r"stages.early: must be a range of steps such as 100..300, or a list, got '100-300'"),
        ({"mid": "400..700"}, r"stages.mid: 400..700 names no checkpoint, or one that is not compared \(a, b, c; with"),
        ({"late": ("dpo",)}, r"stages.late: \('dpo',\) names no checkpoint, or one that is not compared"),
    ):
        with pytest.raises(ValueError, match=message):
            ProbeRecipe(**RECIPE, stages=stages)


def test_an_infinite_divergence_has_no_mean() -> None:
    js = DATA.columns["js"].tolist()
    js[0][4] = math.inf
    data = diverged(js, [{}, {}], [6, 4])
    assert divergence_means(data)[0].js is None
    figures = category_shares(data, all_spikes(data, SpikeConfig()), divergence="js")
    assert figures[0].share_divergence is None


def test_category_shares_and_rates() -> None:
    figures = category_shares(DATA, SPIKES, divergence="js")
    assert [(one.checkpoint, one.category) for one in figures] == [
        ("rl-1", "math_symbol"),
        ("rl-1", "number"),
        ("rl-2", "math_symbol"),
        ("rl-2", "number"),
    ]
    symbol, number = figures[:2]
    assert (symbol.num_tokens, symbol.share_tokens) == (5, 0.5)
    assert symbol.share_divergence == pytest.approx(0.5 / 1.2)
    assert number.share_divergence == pytest.approx(0.7 / 1.2)
    assert (symbol.num_spikes, symbol.spike_rate, symbol.base_rate) == (1, 0.2, 0.2)


def test_tokens_table_is_sorted_and_keeps_every_column() -> None:
    table = token_table(DATA).cast(TOKENS_SCHEMA)
    rows = table.to_pylist()
    assert len(rows) == 20
    keys = [(row["sequence_id"], row["position"], row["checkpoint"]) for row in rows]
    assert keys == sorted(keys)
    assert rows[7] == {
        "sequence_id": 0,
        "position": 3,
        "token_id": 3,
        "checkpoint": "rl-2",
        "reference": "dpo-8",
        **dict.fromkeys(STATISTICS, 0.25),
        **dict.fromkeys(("rank", "rank_ref", "argmax", "argmax_ref"), 0),
        "js": 0.0,
        "category": "math_symbol",
    }
    assert rows[6]["js"] == 0.5
    assert rows[12]["sequence_id"] == 1
    assert rows[12]["js"] == pytest.approx(0.6)


def test_topk_table_has_the_models_side_by_side() -> None:
    data = replace(DATA, sequences=(response(0, 2), response(1, 1)))
    tops = {
        "dpo-8": TopProbs(
            probs=torch.tensor([[0.5, 0.4], [0.9, 0.1], [0.6, 0.3]]), ids=torch.tensor([[0, 1], [1, 2], [2, 0]])
        ),
        "rl-1": TopProbs(
            probs=torch.tensor([[0.7, 0.2], [0.8, 0.1], [0.5, 0.5]]), ids=torch.tensor([[1, 0], [2, 1], [0, 1]])
        ),
    }
    rows = topk_table(data, tops, ["a", "b", "c"]).cast(TOPK_SCHEMA).to_pylist()
    keys = [(row["sequence_id"], row["position"], row["checkpoint"]) for row in rows]
    assert keys == [(0, 0, "dpo-8"), (0, 0, "rl-1"), (0, 1, "dpo-8"), (0, 1, "rl-1"), (1, 0, "dpo-8"), (1, 0, "rl-1")]
    assert rows[3]["token_ids"] == [2, 1]
    assert rows[3]["tokens"] == ["c", "b"]
    assert rows[3]["probs"] == pytest.approx([0.8, 0.1])
    assert rows[4]["tokens"] == ["c", "a"]


def test_noise_floor_is_mean_and_largest() -> None:
    null = DATA.pick(lambda checkpoint, _: checkpoint == "rl-1")
    floor = noise_floor(null)
    assert set(floor) == set(DIVERGENCES)
    assert floor["js"].model_dump() == {"mean": pytest.approx(0.12), "max": pytest.approx(0.6)}
    assert floor["kl_forward"].model_dump() == {"mean": 0.25, "max": 0.25}


NOTED = ProbeSummary(
    reference="dpo-8",
    final="rl-2",
    baseline=None,
    checkpoints=("rl-1", "rl-2"),
    weights_sha256={},
    num_problems=9,
    num_reference_wrong=None,
    num_reference_wrong_final_right=None,
    selection="greedy",
    mcnemar=None,
    reselected=None,
    population="reference_wrong_final_right",
    divergence="js",
    spike_method="zscore",
    confidence=0.95,
    num_rollouts=5,
    reliable=True,
    spikes=(SpikeHits.model_construct(num_rollouts=5),),
    noise_floor={"js": NoiseFloor(mean=1e-8, max=1e-7)},
    divergences=(
        DivergenceMeans.model_construct(checkpoint="rl-1", js=Estimate(mean=5e-8, low=0, high=1)),
        DivergenceMeans.model_construct(checkpoint="rl-2", js=Estimate(mean=1e-3, low=0, high=1)),
    ),
)


def notes(settings: ProbeConfig = SETTINGS, **changes: Any) -> list[str]:
    return summary_notes(NOTED.model_copy(update=changes), settings)


def test_notes_say_what_the_figures_call_for() -> None:
    selection = "the problems were chosen by the same greedy completions that are read here"
    first, second = notes()
    assert first == "the mean js of rl-1 is within 10 times the rounding noise: its spikes are noise"
    assert second.startswith(selection)
    few, marks, *_ = notes(num_rollouts=2, spikes=(SpikeHits.model_construct(num_rollouts=1),))
    assert few == ("only 2 rollouts, fewer than the 3 asked for by probe.min_rollouts: the metrics are not reliable")
    assert marks == (
        "no wrong step is marked in 1 of 2 rollouts: at which token a wrong one of them goes wrong is not known"
    )
    same = {"spike": 1.0, "matched": 0.5, "random": 0.96}
    selections = [
        SwapSelection.model_construct(selection=name, share_same_token=one, num_different=3)
        for name, one in same.items()
    ]
    control = Swaps.model_construct(selections=selections)
    assert notes(causal=control)[1] == (
        "the random control positions say little about forcing a token: at 96% of them rl-2 chooses the same token as "
        "dpo-8, so that nothing was replaced"
    )
    assert notes(reselected=Estimate(mean=0.7, low=0.66, high=0.74))[-1].endswith(
        "for new problems: judged by other samples, 70.0% (66.0 to 74.0) of them would be chosen again"
    )
    assert not any(note.startswith(selection) for note in notes(selection="split"))
    empty = notes(num_rollouts=0, spikes=(), noise_floor=None, divergences=())
    assert empty == [few.replace("2", "0")]


def test_pairs_and_sequences_are_picked_together_with_their_columns() -> None:
    data = replace(DATA, references=("dpo-8", "rl-1"))
    part = data.pick(lambda checkpoint, reference: reference == "rl-1").select(lambda one: one.sequence_id == 1)
    assert (part.checkpoints, part.references, len(part.sequences)) == (("rl-2",), ("rl-1",), 1)
    assert part.columns["js"].tolist() == [[pytest.approx(value) for value in (0.2, 0, 0, 0.5)]]
    assert part.categories == DATA.categories[6:]
    rows = token_table(data).cast(TOKENS_SCHEMA).to_pylist()
    assert [(row["checkpoint"], row["reference"]) for row in rows[:2]] == [("rl-1", "dpo-8"), ("rl-2", "rl-1")]


def test_several_rollouts_of_a_problem_are_one_observation() -> None:
    js = [[0.1, 0.9] * 8, [0.1, 0.9] * 8]
    data = diverged(js, [{1: "a"}] * 4 + [{0: "a"}] * 4, [2] * 8)
    alone = spike_hits(data, all_spikes(data, SpikeConfig()), confidence=0.95)[2]
    assert alone.top_on_wrong.mean == 0.5
    assert alone.top_on_wrong.low == pytest.approx(0.157, abs=1e-3)  # Clopper and Pearson, 4 of 8
    problems = [DATA.sequences[0].problem] * 4 + [DATA.sequences[1].problem] * 4
    sequences = tuple(replace(one, problem=problem) for one, problem in zip(data.sequences, problems, strict=True))
    twice = replace(data, sequences=sequences)
    figure = spike_hits(twice, all_spikes(twice, SpikeConfig()), confidence=0.95)[2]
    assert figure.top_on_wrong == mean_interval([1, 0], bounds=(0.0, 1.0))  # one problem has all, the other none


def test_categories_have_intervals_over_problems() -> None:
    (symbol, *_) = category_shares(DATA, SPIKES, divergence="js")
    assert symbol.share_divergence_interval.mean == symbol.share_divergence
    # of two problems, 0 and all of what is there
    assert symbol.share_divergence_interval.low < 0.01 < 0.99 < symbol.share_divergence_interval.high
    assert symbol.spike_rate_interval.mean == symbol.spike_rate == 0.2
    assert symbol.spike_rate_interval.low < 0.01
    assert symbol.spike_rate_interval.high > 1 / 3  # the rate in the one problem that has any


def test_categories_do_not_depend_on_how_sequences_are_numbered() -> None:
    renumbered = replace(DATA, sequences=tuple(replace(one, sequence_id=7 - one.sequence_id) for one in DATA.sequences))
    spikes = all_spikes(renumbered, SpikeConfig(num_sd=1.5))
    again = category_shares(renumbered, spikes, divergence="js")
    assert again == category_shares(DATA, SPIKES, divergence="js")


def test_the_table_of_spikes_has_their_rows() -> None:
    table = SPIKES.table().cast(SPIKES_SCHEMA)
    rows = iter(table.to_pylist())
    for (checkpoint, divergence, method), by_sequence in SPIKES.found.items():
        for own, spikes in zip(SPIKES.sequences, by_sequence, strict=True):
            for spike in spikes:
                assert next(rows) == {
                    "sequence_id": own.sequence_id,
                    "position": spike.position,
                    "checkpoint": checkpoint,
                    "method": method,
                    "divergence": divergence,
                    "value": np.float32(spike.value),
                    "threshold": np.float32(spike.threshold),
                    "height": spike.height,
                    "is_wrong": spike.position in own.wrong,
                    "is_first_wrong": spike.position == own.first_wrong,
                }
    assert table.num_rows > 20
    assert next(rows, None) is None
    flat = diverged([[0.0] * 4, [0.0] * 4], [{}, {}], [2, 2])
    none = all_spikes(replace(flat, columns={name: 0 * column for name, column in flat.columns.items()}), SpikeConfig())
    assert none.table().cast(SPIKES_SCHEMA).num_rows == 0


def test_a_part_of_nothing_is_nothing() -> None:
    nothing = DATA.select(lambda one: False)
    again = nothing.select(lambda one: True)
    assert (again.sequences, again.categories, again.checkpoints) == ((), (), DATA.checkpoints)
    assert {name: column.tolist() for name, column in again.columns.items()} == {
        name: [[], []] for name in DATA.columns
    }


def test_few_problems_and_rollouts_chosen_by_the_final_are_noted() -> None:
    few = notes(selection="split", num_rollout_problems=2)[-1]
    assert few == ("the 5 rollouts are of 2 problems only: intervals are over problems and say little with so few")
    assert len(notes(selection="split", num_rollout_problems=3)) == 1
    counts = {
        "num_reference_wrong": 9,
        "num_reference_wrong_final_right": 5,
        "reference": "dpo-8",
        "direction": (Direction.model_construct(),),
    }
    unread = SETTINGS.model_copy(update={"populations": ("reference_right",)})
    assert notes(unread, selection="split", **counts)[-1] == (
        "4 problems that both dpo-8 and rl-2 get wrong are not read, so the wrong rollouts are those rl-2 moved away "
        "from, and direction and correlates say too much about right and wrong: add reference_wrong to "
        "probe.populations"
    )
    read = SETTINGS.model_copy(update={"populations": ("reference_wrong",)})
    assert len(notes(read, selection="split", **counts)) == 1
