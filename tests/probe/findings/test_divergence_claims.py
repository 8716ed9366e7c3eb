"""Figures about where the divergence falls, against their nulls: brute force, and truths that are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from swerve.artifacts.probe_claims import DivergenceClaim, NullFigure
from swerve.estimates import Estimate
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.divergence_claims import divergence_claims
from swerve.types import Problem
from tests.builders import measurements, response

NUM, LENGTH, FIRST = 60, 20, 7
CATEGORIES = ("word", "number", "word", "format")


def rollouts(**columns: np.ndarray) -> Measurements:
    """60 wrong rollouts of 20 tokens, of which those at 7 and 8 are wrong."""
    sequences = [response(index, LENGTH, wrong={FIRST: "", FIRST + 1: ""}) for index in range(NUM)]
    logprobs = {"logprob": np.full(NUM * LENGTH, -2.0), "logprob_ref": np.full(NUM * LENGTH, -1.0)}
    return measurements(sequences, categories=CATEGORIES, **{**logprobs, **columns})


def noise_models(like: Measurements, columns: np.ndarray) -> Measurements:
    """Noise models of these divergences `[5, N]` on the same rollouts."""
    labels = tuple(f"dpo-1 with noise {number}" for number in range(1, len(columns) + 1))
    wide = {name: np.repeat(column, len(columns), axis=0) for name, column in like.columns.items()}
    return replace(like, checkpoints=labels, references=("dpo-1",) * len(labels), columns={**wide, "js": columns})


def spread(rng: np.random.Generator, entropy: np.ndarray, own: float = 0.3) -> np.ndarray:
    """What noise makes: it grows with the entropy, and each model has places of its own."""
    places = np.exp(own * rng.normal(size=LENGTH))
    return entropy * np.tile(places, NUM) * np.exp(rng.normal(size=entropy.size))


def entropies(rng: np.random.Generator) -> np.ndarray:
    return np.exp(rng.normal(size=NUM * LENGTH))


def found(js: np.ndarray, entropy: np.ndarray, noise: np.ndarray | None) -> dict[tuple[str, str, str], DivergenceClaim]:
    data = rollouts(js=js, entropy_ref=entropy)
    claims = divergence_claims(data, None if noise is None else noise_models(data, noise), divergence="js")
    return {(claim.figure, claim.of, claim.part): claim for claim in claims}


def test_figures_and_nulls_equal_those_counted_by_hand():
    rng = np.random.default_rng(0)
    entropy, js = entropies(rng), entropies(rng)
    noise = np.stack([spread(rng, entropy) for _ in range(5)])
    claims = found(js, entropy, noise)
    at = np.arange(NUM * LENGTH) % LENGTH
    first, others = at == FIRST, (at != FIRST) & (at != FIRST + 1)

    def area(scores):
        return np.mean(scores[first][:, None] > scores[others]) + np.mean(scores[first][:, None] == scores[others]) / 2

    def top(scores):
        return np.mean(scores.reshape(NUM, LENGTH).argmax(axis=1) == FIRST)

    def numbers(scores):
        return scores[at % 4 == 1].sum() / scores.sum()

    def late(scores):
        return scores[at >= 14].sum() / scores.sum()

    figures = {
        ("auc", "first_wrong", ""): area,
        ("top", "first_wrong", ""): top,
        ("share", "category", "number"): numbers,
        ("share", "third", "late"): late,
    }
    chances = (0.5, 1 / LENGTH, 0.25, 6 / LENGTH)
    for (key, figure), chance in zip(figures.items(), chances, strict=True):
        claim = claims[key]
        nulls = {null.null: null for null in claim.nulls}
        draws = [figure(column) for column in noise]
        assert claim.estimate.mean == pytest.approx(figure(js))
        assert nulls["chance"].value == pytest.approx(chance)
        assert nulls["entropy"].value == pytest.approx(figure(entropy))
        assert nulls["noise"].value == pytest.approx(np.mean(draws))
        assert (nulls["noise"].low, nulls["noise"].high) == pytest.approx((min(draws), max(draws)))
        for null in nulls.values():
            assert null.difference.mean == pytest.approx(figure(js) - null.value)


def test_a_token_that_training_moved_stands_though_neither_entropy_nor_noise_points_to_it():
    rng = np.random.default_rng(1)
    entropy = entropies(rng)
    entropy[np.arange(entropy.size) % LENGTH == FIRST] *= 0.3
    js = 0.1 * spread(rng, entropy)
    js[np.arange(js.size) % LENGTH == FIRST] += 3 * rng.random(NUM)
    claims = found(js, entropy, np.stack([spread(rng, entropy) for _ in range(5)]))
    for key in (
        ("auc", "first_wrong", ""),
        ("top", "first_wrong", ""),
        ("top", "wrong", ""),
        ("share", "third", "mid"),
    ):
        assert claims[key].stands, claims[key]
        assert claims[key].verdict == "more than chance, the reference's entropy and matched noise"
    uncertain = claims["share", "uncertain", ""].verdict
    assert uncertain == "more than chance, less than the reference's entropy and matched noise"


def test_what_the_entropy_explains_is_not_more_than_it():
    rng = np.random.default_rng(2)
    entropy = entropies(rng)
    entropy[np.arange(entropy.size) % LENGTH == FIRST] *= 20
    js = entropy * np.exp(0.3 * rng.normal(size=entropy.size))
    noise = np.stack([np.exp(rng.normal(size=entropy.size)) for _ in range(5)])
    claims = found(js, entropy, noise)
    for key in (("auc", "first_wrong", ""), ("top", "first_wrong", ""), ("share", "uncertain", "")):
        sides = {null.null: null.side for null in claims[key].nulls}
        assert (sides["chance"], sides["noise"]) == (1, 1)
        assert sides["entropy"] != 1
        assert not claims[key].stands


@pytest.mark.parametrize("own", [0.0, 0.5, 1.5])
def test_another_noise_model_is_seldom_above_or_below_five(own):
    false = num = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        entropy = entropies(rng)
        six = np.stack([spread(rng, entropy, own) for _ in range(6)])
        for claim in found(six[0], entropy, six[1:]).values():
            num += 1
            false += next(null for null in claim.nulls if null.null == "noise").side != 0
    assert false <= 0.08 * num


def test_good_moves_of_a_noise_model_are_its_own():
    rng = np.random.default_rng(3)
    js = entropies(rng)
    unknown = rollouts(js=js, logprob=np.where(rng.random(js.size) < 0.5, -0.5, -2.0))
    data = replace(unknown, sequences=tuple(replace(one, correct=False) for one in unknown.sequences))
    noise = noise_models(data, np.stack([js] * 5))
    falls = rng.random((5, js.size)) < 0.9
    noise.columns["logprob"] = np.where(falls, -2.0, -0.5)
    (claim,) = [claim for claim in divergence_claims(data, noise, divergence="js") if claim.of == "good"]
    nulls = {null.null: null.value for null in claim.nulls}
    assert nulls["noise"] == pytest.approx(np.mean([js[row].sum() / js.sum() for row in falls]))
    assert nulls["chance"] == pytest.approx(np.mean(data.columns["logprob"] < -1))
    # Which way is good is not known of a rollout that is neither right nor wrong.
    assert not [claim for claim in divergence_claims(unknown, noise, divergence="js") if claim.of == "good"]


def test_without_noise_models_chance_and_entropy_are_left():
    rng = np.random.default_rng(4)
    claims = found(entropies(rng), entropies(rng), None)
    assert all([null.null for null in claim.nulls] == ["chance", "entropy"] for claim in claims.values())
    assert ("top", "first_wrong", "") in claims


def test_infinite_divergences_and_rollouts_without_wrong_steps():
    rng = np.random.default_rng(5)
    js = entropies(rng)
    data = measurements([response(index, LENGTH) for index in range(NUM)], js=js)
    assert {claim.figure for claim in divergence_claims(data, None, divergence="js")} == {"share"}
    js[3] = np.inf
    infinite = divergence_claims(rollouts(js=js), None, divergence="js")
    assert {claim.figure for claim in infinite} == {"auc", "top"}


def test_rollouts_of_one_problem_count_as_one():
    rng = np.random.default_rng(6)
    entropy, js = entropies(rng), entropies(rng)
    data = rollouts(js=js, entropy_ref=entropy)
    same = Problem(id="p", family="addition", question="", answer="")
    pooled = replace(data, sequences=tuple(replace(each, problem=same) for each in data.sequences))
    (claim,) = [one for one in divergence_claims(pooled, None, divergence="js") if one.of == "uncertain"]
    assert not claim.stands, "one problem says nothing of others"


def test_verdicts_say_which_nulls_a_figure_is_above():
    def null(name: str, low: float, high: float) -> NullFigure:
        return NullFigure(null=name, value=0.5, difference=Estimate(mean=(low + high) / 2, low=low, high=high))

    def claim(*nulls: NullFigure) -> DivergenceClaim:
        whole = Estimate(mean=0.6, low=0.5, high=0.7)
        return DivergenceClaim(figure="share", of="style", estimate=whole, nulls=nulls)

    above, below, open_ = (null("chance", 0.1, 0.2), null("entropy", -0.2, -0.1), null("noise", -0.1, 0.2))
    assert claim(above, below, open_).verdict == (
        "more than chance, less than the reference's entropy, not distinguishable from matched noise"
    )
    assert not claim(above, below, open_).stands
    assert claim(above, null("entropy", 0.1, 0.3)).stands
    assert claim(below).verdict == "less than the reference's entropy"
    assert not claim(open_).stands
    assert not claim().stands
