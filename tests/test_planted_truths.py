"""The study of planted truths: its exact values, how claims are judged, and that it finds faults of the statistics."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from swerve.artifacts.record import Record
from swerve.config.probe import CausalConfig, PivotConfig, ProbeConfig
from swerve.estimates import Correlation, Estimate, McNemarResult, WilcoxonResult
from swerve.rewards import grade_all
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.groups import completion_text
from swerve.statistics import mean_interval
from swerve.types import Problem

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _root_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def part(name):
    return importlib.import_module(f"studies.planted.{name}")


@pytest.mark.parametrize("name", ["four_tokens", "confounded"])
def test_exact_values_are_those_of_rollouts_that_the_engine_samples(name):
    chain, exact, worlds = (part(one) for one in ("chain", "exact", "worlds"))
    probs = worlds.WORLDS[name](3).probs["ref"]
    loaded, num = chain.chain_model(probs), 1000
    params = SamplingParams(num_samples=num, max_new_tokens=chain.NUM_TOKENS, temperature=1.0, stop_ids=(chain.EOS,))
    engine = TorchEngine(loaded.model, pad_id=0, max_rows=num)
    kind = 1
    (group,) = engine.generate([chain.prompt_ids(kind)], params, seeds=[0])
    problem = Problem(id="p", family="planted", question="?", answer="A", grader="choice")
    texts = [completion_text(loaded.tokenizer, one.token_ids) for one in group]
    right = np.array([reward.is_right for reward in grade_all([(problem, text) for text in texts])])
    chance = exact.values(probs)[kind, 0, chain.ASKED]
    assert right.mean() == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / num))
    for outcome, chosen in (("right", right), ("wrong", ~right)):
        ids = np.array([one.token_ids for one in group])[chosen]
        expected = exact.flows(probs, outcome)[kind].sum(axis=1)  # of each token at each position
        seen = np.stack([np.bincount(column, minlength=chain.NUM_IDS) for column in ids.T]) / len(ids)
        assert np.abs(seen - expected).max() < 5 * 0.5 / np.sqrt(len(ids))


def test_a_wrong_rollout_of_four_tokens_loses_fifteen_hundredths_four_times():
    chain, exact, worlds = (part(one) for one in ("chain", "exact", "worlds"))
    probs = worlds.WORLDS["four_tokens"](0).probs["ref"]
    known, flow = exact.values(probs), exact.flows(probs, "wrong")
    assert known[0, 0, chain.ASKED] == pytest.approx(0.6, abs=1e-6)
    jumps = known[:, 1:, None, :] - known[:, :-1, :, None]
    taken = flow[:, :-1] > 1e-6
    assert jumps[taken].min() == pytest.approx(-0.15, abs=1e-6)
    falls = (flow[:, :-1] * taken * (jumps < -0.1)).sum(axis=(1, 2, 3))
    assert falls == pytest.approx([4.0, 4.0], abs=1e-5)
    assert jumps[taken].max() == pytest.approx(0.0, abs=1e-6)


def estimate(low, high):
    return Estimate(mean=(low + high) / 2, low=low, high=high)


class Part(Record):
    region: str
    mean: Estimate | None


class Summary(Record):
    final: str
    parts: tuple[Part, ...]
    mcnemar: McNemarResult
    by_name: dict[str, Correlation]
    test: WilcoxonResult


def test_all_intervals_and_p_values_of_a_record_are_claims_and_judged_by_the_truth():
    claims = part("claims")
    summary = Summary(
        final="rl",
        parts=(Part(region="early", mean=estimate(0, 1)), Part(region="late", mean=None)),
        mcnemar=McNemarResult(num=9, num_first_only=1, num_second_only=8, difference=estimate(0.2, 0.4), p_value=0.04),
        by_name={"js": Correlation(mean=0.1, low=0.0, high=0.2, p_value=0.06, num_clusters=9)},
        test=WilcoxonResult(
            num_pairs=9,
            median_difference=0.1,
            statistic=1.0,
            p_value=0.01,
            effect_size=0.1,
            p_adjusted=0.2,
            sign_flip_p=0.03,
        ),
    )
    walked = list(claims.walk(summary))
    assert [(one.path, one.p_value) for one in walked] == [
        ("parts[early].mean", None),
        ("mcnemar", 0.04),
        ("by_name.js", 0.06),
        ("test", 0.01),
        ("test.p_adjusted", 0.2),
        ("test.sign_flip", 0.03),
    ]
    known = claims.Truths(
        values={"parts[early].mean": 1.1, "mcnemar": 0.2, "by_name.js": 0.1, "elsewhere": 0.0},
        no_difference=frozenset({"mcnemar", "by_name.js", "test.p_adjusted"}),
    )
    assert claims.judge(iter(walked), known) == {
        "parts[early].mean: interval": True,
        "mcnemar: interval": False,
        "mcnemar: p": True,
        "by_name.js: interval": False,
        "by_name.js: p": False,
        "test.p_adjusted: p": False,
    }


def test_no_more_than_19_of_200_may_be_false():
    tables = part("tables")
    assert [tables.allowed(num) for num in (1, 20, 100, 200)] == [1, 4, 12, 19]
    record = {"kind": "planted", "world": "pair", "num": 200, "found": {}, "without_truth": []}
    records = [{"kind": "versions"}, {**record, "false": {"a.js: interval": [19, 200], "b: p": [20, 200]}}]
    assert tables.too_often(records) == ["pair: b: p: 20 of 200"]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    measure = part("measure")
    stop_at = [4]

    def judged(name, number):
        stop_at[0] -= 1
        if not stop_at[0]:
            raise KeyboardInterrupt
        return {"draw": number, "false": {name: False}, "found": {}, "without_truth": []}

    monkeypatch.setattr(measure, "judged_draw", judged)
    with pytest.raises(KeyboardInterrupt):
        measure.make_draws(tmp_path, {"a": 3, "b": 3}, jobs=1)
    with (tmp_path / "b.jsonl").open("a") as stream:
        stream.write('{"draw": 1, "fal')  # killed while it wrote
    assert [one["draw"] for one in measure.read_draws(tmp_path, "b")] == [0]
    measure.make_draws(tmp_path, {"a": 3, "b": 3}, jobs=1)
    for name in ("a", "b"):
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["draw"] for line in lines] == [0, 1, 2]
    assert measure.summarised("a", measure.read_draws(tmp_path, "a"))["false"] == {"a": [0, 3]}


def _breaking(*, costs):
    """A reference that is right in 2% and always writes a word; a checkpoint right in 90%, unless the word `costs`."""
    worlds = part("worlds")
    start, good, bad, place = 0, 1, 2, 4
    common = worlds._writings(np.random.default_rng(0), 3)

    def model(share_bad, right):
        moves, answers = worlds._staying(3), np.full((3, worlds.NUM_LEVELS), 0.02)
        answers[:, [good, bad]] = right
        moves[:, place, start] = 0
        moves[:, place, start, :, good], moves[:, place, start, :, bad] = 1 - share_bad, share_bad
        return worlds._probs(moves, common, answers, start)

    values = np.zeros((3, worlds.NUM_LEVELS))
    values[:, [start, good, bad]] = (0.7, 0.9, 0.1)  # by these the word is marked as wrong, whatever it costs
    probs = {worlds.REFERENCE: model(1.0, (0.02, 0.02)), "rl-1": model(0.2, (0.9, 0.05 if costs else 0.9))}
    return worlds.World(name="breaking", shares=(0.4, 0.3, 0.3), probs=probs, answers=values)


@pytest.mark.parametrize("costs", [True, False])
def test_a_break_that_the_reference_cannot_see_is_found_by_the_checkpoint(monkeypatch, costs):
    """On problems that were selected because the reference is wrong there, its own success has nowhere to fall from."""
    draw = part("draw")
    settings = {name: getattr(draw.SETTINGS, name) for name in ("selection", "max_rollouts", "noise_models")}
    settings |= {"causal": CausalConfig(max_rollouts=0), "pivots": PivotConfig(max_rollouts=12)}
    monkeypatch.setattr(draw, "SETTINGS", ProbeConfig(**settings))
    by_reference, by_checkpoint = draw.probe_world(_breaking(costs=costs), 3).summary.pivots
    assert (by_reference.policy, by_reference.num_pivots, by_reference.num_could_fall) == ("reference", 0, 0)
    assert by_reference.start.mean < 0.06
    assert (by_checkpoint.policy, by_checkpoint.num_could_fall, by_checkpoint.num_confirmed) == ("checkpoint", 12, 12)
    # Without a cost the checkpoint loses only by the wrong answer itself, at the end.
    assert by_checkpoint.on_first_wrong.num == 12
    assert by_checkpoint.on_first_wrong.share.mean == (1.0 if costs else 0.0)


NUM_DRAWS = 20
MOST = 7
"""At a true error of 5% more than 7 of 20 are false once in 30,000 claims."""


def judged(name):
    """Return how many of 20 draws have each claim false, and how many made it."""
    measure = part("measure")
    return measure.summarised(name, [measure.judged_draw(name, number) for number in range(NUM_DRAWS)])["false"]


@pytest.mark.planted
@pytest.mark.parametrize("name", ["one_token", "four_tokens", "same", "pair", "confounded", "drift"])
def test_claims_about_planted_truths_are_false_no_more_often_than_they_say(name):
    found = judged(name)
    assert {claim: counts for claim, counts in found.items() if counts[0] > MOST} == {}
    assert sum(false / num for false, num in found.values()) / len(found) < 0.065


@pytest.mark.planted
def test_ranking_positions_by_noisy_effects_is_found_out():
    """Squared effects have the size of their noise, products of two halves none: their mean says it."""
    draw, worlds, (_, fault) = part("draw"), part("worlds"), part("measure").FAULTS["noisy_effects"]

    def mean_and_error(how):
        means = []
        for seed in range(10):
            with how():
                (prediction,) = draw.probe_world(worlds.confounded(seed), seed).summary.prediction
            means.append(prediction.mean_square_effect.mean)
        return np.mean(means), np.std(means, ddof=1) / np.sqrt(len(means))

    mean, error = mean_and_error(nullcontext)
    assert abs(mean) < 3 * error
    mean, error = mean_and_error(fault)
    assert mean > 5 * error


def _probed(monkeypatch, world, seed):
    """Probe a draw of a world with noise models, and without causal tests; return its claims by what they are about."""
    draw = part("draw")
    nothing = {"causal": "max_rollouts", "pivots": "max_rollouts", "cross_sampling": "max_problems"}
    tests = {name: getattr(draw.SETTINGS, name).model_copy(update={key: 0}) for name, key in nothing.items()}
    monkeypatch.setattr(draw, "SETTINGS", draw.SETTINGS.model_copy(update={**tests, "noise_models": 5}))
    claims = draw.probe_world(world, seed).summary.claims
    return {(claim.figure, claim.of, claim.part): claim for claim in claims}


def _sides(claim):
    return {null.null: null.side for null in claim.nulls}


@pytest.mark.slow
def test_a_word_that_training_moved_is_found_against_all_nulls_and_what_entropy_finds_too_is_not(monkeypatch):
    """The word that decides is in the middle third, where writing is as uncertain as elsewhere, and is itself open."""
    claims = _probed(monkeypatch, part("worlds").WORLDS["one_token"](1), 1)
    for key in (("share", "third", "mid"), ("share", "uncertain", "")):
        assert _sides(claims[key]) == {"chance": 1, "entropy": 1, "noise": 1}
        assert claims[key].stands
    for figure in ("auc", "top"):
        assert _sides(claims[figure, "first_wrong", ""]) == {"chance": 1, "entropy": 0, "noise": 1}


def _noisy(world, seed, size):
    """A world whose checkpoint is the reference with Gaussian noise on its logits."""
    worlds = part("worlds")
    probs = world.probs[worlds.REFERENCE]
    logits = np.log(probs) + size * np.random.default_rng([seed, 7]).normal(size=probs.shape)
    noisy = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    return replace(world, probs={worlds.REFERENCE: probs, "rl-1": noisy})


@pytest.mark.planted
def test_noise_on_the_weights_is_seldom_beyond_noise_models(monkeypatch):
    sides = []
    for seed in range(NUM_DRAWS):
        world = _noisy(part("worlds").WORLDS["one_token"](seed), seed, 0.3)
        sides += [_sides(claim)["noise"] for claim in _probed(monkeypatch, world, seed).values()]
    assert len(sides) > 10 * NUM_DRAWS
    assert np.mean(np.array(sides) != 0) < 0.065


MOST_OF_A_SENTENCE = 4
"""A claim with a true error of 5% is made in 5 and more of 20 draws once in 400."""


@pytest.mark.planted
@pytest.mark.parametrize("name", ["unchanged", "noised"])
def test_one_model_sampled_twice_is_not_said_to_have_changed(name):
    """The whole command, evaluation to report: each claim, and the fraction of all of a draw."""
    made, rates = part("twice").draws(name)
    assert {claim: sum(found) for claim, found in made.items() if sum(found) > MOST_OF_A_SENTENCE} == {}
    assert mean_interval(rates).low <= 0.05
    assert len(made) >= 10


@pytest.mark.planted
def test_what_a_planted_token_does_is_said():
    """The same judge, of a model that has learned to avoid the one word that decides."""
    twice, worlds = part("twice"), part("worlds")
    draws = [twice.claims(worlds.one_token(number), number) for number in range(5)]
    for claim in (
        "greedy accuracy changed",
        "one of them is right more often",
        "the spike does more than random positions",
        "stands: Divergence on the middle third",
        "accuracy at T=1",
    ):
        assert sum(claims.get(claim, False) for claims in draws) >= 4, claim
