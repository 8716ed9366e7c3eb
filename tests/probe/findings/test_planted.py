from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from swerve.artifacts.files import dump_json
from swerve.artifacts.probe_findings import SpikeRecovery
from swerve.artifacts.responses import Response
from swerve.config.probe import SpikeConfig
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.divergence_claims import divergence_claims
from swerve.probe.findings.planted import Sentences, planted_recovery, selector_scores, sentence_recovery
from swerve.probe.findings.spike_table import all_spikes, spike_hits
from swerve.probe.findings.spikes import Spike
from swerve.probe.intervals import Intervals
from swerve.statistics import auc, average_precision, ranking_intervals, ratio_interval
from swerve.types import Problem
from tests.builders import measurements, response

LENGTHS = (4, 5, 3, 6)
WRONG: tuple[dict[int, str], ...] = ({1: "a", 2: "b"}, {3: "c"}, {}, {0: "d", 2: "e", 5: "f"})
PROBLEMS = ("p0", "p1", "p2", "p0")
SPIKES = ([2], [0, 3], [1], [0, 4])  # on wrong tokens: 1, 1, (unknown), 1
TRUTH = [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1]  # of the first, second and last rollout
HOW = Intervals(confidence=0.9)
KNOWN = [index for index in range(18) if not 9 <= index < 12]


def sequence(index: int) -> Response:
    problem = Problem(id=PROBLEMS[index], family="addition", question="", answer="")
    return response(index, LENGTHS[index], problem=problem, wrong=WRONG[index])


def drawn(**columns: Any) -> Measurements:
    rng = np.random.default_rng(0)
    values = {name: rng.random((2, 18)).astype(np.float32) for name in STATISTICS}
    for name in ("rank", "rank_ref", "argmax", "argmax_ref"):
        values[name] = rng.integers(1, 4, (2, 18)).astype(np.int32)
    sequences = list(map(sequence, range(4)))
    data = measurements(sequences, checkpoints=("rl-1", "rl-2"), reference="dpo", **{**values, **columns})
    return replace(data, intervals=HOW)


def spikes(positions: Any = SPIKES) -> list[list[Spike]]:
    return [[Spike(position=one, value=1.0, threshold=0.5, height=1) for one in each] for each in positions]


def figures_of(positions: Any = SPIKES, **options: Any) -> SpikeRecovery:
    data = replace(drawn(), intervals=replace(HOW, **options))
    found = planted_recovery(data, {("rl-2", "js", "zscore"): spikes(positions)})
    (one,) = found.spikes
    assert (one.checkpoint, one.divergence, one.method) == ("rl-2", "js", "zscore")
    return one


def test_each_selector_by_hand() -> None:
    columns = {
        "js": np.array([0.1, 0.2], np.float32),
        "kl_forward": np.array([0.3, 0.4], np.float32),
        "kl_reverse": np.array([0.5, 0.6], np.float32),
        "entropy": np.array([1.0, 2.0], np.float32),
        "entropy_ref": np.array([1.5, 0.5], np.float32),
        "logprob": np.array([-3.0, -1.0], np.float32),
        "logprob_ref": np.array([-1.0, -2.0], np.float32),
        "rank": np.array([5, 1], np.int32),
        "rank_ref": np.array([2, 3], np.int32),
        "argmax": np.array([7, 8], np.int32),
        "argmax_ref": np.array([7, 9], np.int32),
    }
    scores = {name: values.tolist() for name, values in selector_scores(columns).items()}
    assert scores == {
        "js": pytest.approx([0.1, 0.2]),
        "kl_forward": pytest.approx([0.3, 0.4]),
        "kl_reverse": pytest.approx([0.5, 0.6]),
        "bernoulli_kl": pytest.approx([0.28774, 0.16986], abs=1e-5),
        "abs_logprob_change": [2.0, 1.0],
        "logprob_drop": [2.0, -1.0],
        "entropy": [1.5, 0.5],
        "entropy_change": [-0.5, 1.5],
        "rank": [5.0, 1.0],
        "argmax_changed": [0.0, 1.0],
    }


def test_impossible_tokens_have_a_score() -> None:
    columns = drawn().columns
    data = {name: column[0, :3] for name, column in columns.items()}
    data["logprob"] = np.array([-math.inf, -math.inf, -1.0], np.float32)
    data["logprob_ref"] = np.array([-math.inf, -1.0, -math.inf], np.float32)
    assert selector_scores(data)["logprob_drop"].tolist() == [0.0, math.inf, -math.inf]
    assert selector_scores(data)["abs_logprob_change"].tolist() == [0.0, math.inf, math.inf]


def test_only_rollouts_with_known_wrong_steps_count() -> None:
    found = planted_recovery(drawn(), {})
    assert (found.num_rollouts, found.num_rollouts_unknown) == (3, 1)
    assert (found.num_tokens, found.num_wrong) == (15, 6)
    assert found.base_rate == pytest.approx(0.4)
    assert found.spikes == ()


def test_spikes_by_hand() -> None:
    one = figures_of()
    assert one.num_spikes == 5  # the one of the unknown rollout is not judged
    assert one.precision.mean == pytest.approx(3 / 5)
    assert one.recall.mean == pytest.approx(3 / 6)
    assert one.f1.mean == pytest.approx(2 * 0.6 * 0.5 / 1.1)
    assert one.recall_first.mean == pytest.approx(2 / 3)  # not of the first rollout: position 1
    assert one.rollouts_hit.mean == pytest.approx(1.0)
    by_chance = 1 * 2 / 4 + 2 * 1 / 5 + 2 * 3 / 6
    assert one.chance_precision == pytest.approx(by_chance / 5)
    assert one.chance_recall == pytest.approx(by_chance / 6)
    assert one.chance_recall_first == pytest.approx((1 / 4 + 2 / 5 + 2 / 6) / 3)


def test_spike_intervals_are_over_problems() -> None:
    one = figures_of()
    num, wrong = np.array([1, 2, 2]), np.array([2, 1, 3])
    hits, first = np.array([1, 1, 1]), np.array([0, 1, 1])

    def expected(top: np.ndarray, bottom: np.ndarray) -> Any:
        estimate = ratio_interval(top, bottom, clusters=["p0", "p1", "p0"], confidence=0.9)
        return pytest.approx(asdict(estimate))

    assert asdict(one.precision) == expected(hits, num)
    assert asdict(one.recall) == expected(hits, wrong)
    assert asdict(one.f1) == expected(2 * hits, num + wrong)
    assert asdict(one.recall_first) == expected(first, np.ones(3))


def test_where_all_problems_agree_the_interval_leaves_room() -> None:
    one = figures_of()
    reach = 1 - 0.1 ** (1 / 2)  # two problems
    assert asdict(one.rollouts_hit) == pytest.approx({"mean": 1.0, "low": 1 - reach, "high": 1.0})


def test_no_spikes_have_no_precision() -> None:
    one = figures_of([[], [], [0], []])
    assert one.num_spikes == 0
    assert one.precision is None
    assert one.chance_precision is None
    assert (one.recall.mean, one.f1.mean, one.chance_recall) == (0.0, 0.0, 0.0)


def test_selectors_rank_the_tokens_of_known_rollouts() -> None:
    data = drawn()
    found = planted_recovery(data, {})
    assert [(one.checkpoint, one.selector) for one in found.selectors] == [
        (checkpoint, name) for checkpoint in ("rl-1", "rl-2") for name in selector_scores(data.columns)
    ]
    for one in found.selectors:
        index = data.checkpoints.index(one.checkpoint)
        scores = selector_scores({name: column[index, KNOWN] for name, column in data.columns.items()})[one.selector]
        assert one.auc.mean == pytest.approx(auc(scores, np.array(TRUTH, bool)))
        assert one.average_precision.mean == pytest.approx(average_precision(scores, np.array(TRUTH, bool)))
        clusters = ["p0"] * 4 + ["p1"] * 5 + ["p0"] * 6
        ranking = ranking_intervals(scores, np.array(TRUTH, bool), clusters=clusters, confidence=0.9)
        assert (one.auc, one.average_precision) == (ranking.auc, ranking.average_precision)


def test_a_planted_score_is_recovered_at_its_checkpoint() -> None:
    planted = np.full((2, 18), 0.1, np.float32)
    planted[1, np.array(KNOWN)[np.array(TRUTH, bool)]] = 0.6
    found = planted_recovery(drawn(js=planted), {})
    js = {one.checkpoint: one.auc.mean for one in found.selectors if one.selector == "js"}
    assert js == {"rl-1": 0.5, "rl-2": 1.0}


def test_figures_are_json_and_nothing_known_is_none() -> None:
    nothing = drawn().select(lambda one: not one.wrong)
    found = planted_recovery(nothing, {("rl-1", "js", "zscore"): spikes([[1]])})
    assert (found.num_rollouts, found.base_rate, found.spikes) == (0, None, ())
    assert all(one.auc is None and one.average_precision is None for one in found.selectors)
    dump_json(found)
    dump_json(planted_recovery(drawn(), {("rl-2", "js", "x"): spikes()}))


def test_spikes_of_other_measurements_are_refused() -> None:
    with pytest.raises(ValueError, match="are of 3 sequences, the measurements of 4"):
        planted_recovery(drawn(), {("rl-1", "js", "zscore"): spikes(SPIKES[:3])})


def test_problems_without_spikes_do_not_count_among_those_that_agree() -> None:
    one = figures_of([[1], [], [0], [0]])  # only the first problem has spikes, all on wrong tokens
    assert asdict(one.precision) == pytest.approx({"mean": 1.0, "low": 0.1, "high": 1.0})


def test_the_auc_of_first_wrong_tokens_leaves_later_wrong_ones_out() -> None:
    """The first wrong tokens are highest, the later ones of the same mistake lowest."""
    js = np.full((2, 18), 0.5, np.float32)
    rollouts = np.split(np.arange(18), np.cumsum(LENGTHS)[:-1])
    for places, wrong in zip(rollouts, WRONG, strict=True):
        for number, position in enumerate(wrong):
            js[0, places[position]] = 0.1 if number else 0.9
    found = planted_recovery(drawn(js=js), {})
    by_js = next(one for one in found.selectors if (one.checkpoint, one.selector) == ("rl-1", "js"))
    assert by_js.auc_first.mean == 1.0
    assert by_js.auc.mean == pytest.approx(0.5)


def labelled() -> Measurements:
    """A rollout of two sentences, one with a wrong token, one of three sentences, one without a label."""
    sequences = [
        response(0, 4, sentence_starts=(0, 2), wrong_sentence=1),
        response(1, 3, wrong={1: ""}),
        response(2, 5, sentence_starts=(0, 1, 3), wrong_sentence=0),
        response(3, 2),
    ]
    js = np.array([0.1, 0.2, 0.3, 0.0, 9, 9, 9, 0.15, 0.4, 0.1, 0.05, 0.02, 9, 9])
    return replace(measurements(sequences, js=js), intervals=HOW)


def test_a_sentence_has_the_highest_value_of_its_tokens_and_is_the_unit() -> None:
    data = labelled()
    sentences = Sentences.of(data)
    assert sentences.highest(data.columns["js"][0]).tolist() == [0.2, 0.3, 0.15, 0.4, 0.05]
    assert sentences.is_wrong.tolist() == [False, True, True, False, False]
    assert [len(own) for own in sentences.split(sentences.problems)] == [2, 3]
    assert [len(set(own.tolist())) for own in sentences.split(sentences.problems)] == [1, 1]
    found = sentence_recovery(data)
    assert found is not None
    assert (found.num_rollouts, found.num_sentences, found.base_rate) == (2, 5, 2 / 5)
    js = next(one for one in found.selectors if one.selector == "js")
    assert js.auc is not None
    # The wrong ones have .3 and .15, the others .2, .4 and .05: three of six pairs are in order.
    assert (js.auc.mean, js.auc_first) == (pytest.approx(3 / 6), None)
    assert (
        js.average_precision
        == ranking_intervals(
            [0.2, 0.3, 0.15, 0.4, 0.05], sentences.is_wrong, clusters=[0, 0, 1, 1, 1], confidence=0.9
        ).average_precision
    )


def test_labels_of_tokens_and_of_sentences_are_judged_apart() -> None:
    data = labelled()
    by_token = planted_recovery(data, {})
    assert (by_token.num_rollouts, by_token.num_tokens, by_token.num_wrong) == (1, 3, 1)
    claims = {(claim.figure, claim.of): claim for claim in divergence_claims(data, None, divergence="js")}
    top = claims["top", "first_wrong_sentence"]
    assert top.estimate.mean == 0.5  # the second sentence of the first rollout, not the first of the third
    assert top.nulls[0].value == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert claims["auc", "first_wrong_sentence"].nulls[0].value == 0.5
    assert claims["top", "first_wrong"].nulls[0].value == pytest.approx(1 / 3)
    (hits,) = (
        one for one in spike_hits(data, all_spikes(data, SpikeConfig()), confidence=0.9) if one.divergence == "js"
    )
    assert (hits.num_rollouts, hits.num_sentence_rollouts, hits.chance_wrong_sentence) == (1, 2, pytest.approx(5 / 12))
    assert hits.top_in_wrong_sentence is not None
    assert hits.top_in_wrong_sentence.mean == 0.5
    assert sentence_recovery(data.select(lambda one: one.wrong_sentence is None)) is None


def test_what_a_long_sentence_has_by_its_length_alone_does_not_stand() -> None:
    """Wrong sentences are three times as long as others, and divergence and entropy are noise."""
    found = []
    for seed in range(12):
        rng, sequences = np.random.default_rng(seed), []
        for index in range(60):
            wrong = int(rng.integers(5))
            lengths = [12 if number == wrong else 4 for number in range(5)]
            starts = tuple(np.cumsum([0, *lengths[:-1]]).tolist())
            sequences.append(response(index, sum(lengths), sentence_starts=starts, wrong_sentence=wrong))
        noise = {name: rng.exponential(size=28 * 60) for name in ("js", "entropy_ref")}
        for claim in divergence_claims(measurements(sequences, **noise), None, divergence="js"):
            if claim.of == "first_wrong_sentence":
                sides = {null.null: null.side for null in claim.nulls}
                found.append((sides["chance"] == 1, sides["length"] == -1, claim.stands))
    above_chance, below_length, stands = np.sum(found, axis=0)
    assert above_chance >= 22
    assert (len(found), below_length, stands) == (24, 24, 0)
