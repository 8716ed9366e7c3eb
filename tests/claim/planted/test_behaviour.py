"""Differences planted at uncertain tokens are told from noise of the weights, and noise is not taken for them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.claim.behaviour import PROBE, behaviour_part
from swerve.probe.findings.divergence_claims import divergence_claims
from tests.builders import measurements, response
from tests.claim.planted.rates import check_rates

NUM_PROBLEMS, LENGTH, STATES, WORDS = 60, 15, 24, 12
SIZE = 0.92
"""Logits by which training raises the second most likely word at the least certain fifth of the tokens."""
NOISE = 0.2
"""Norm of what else changed of the weights, in any direction, over the base's."""


def shown(rng: np.random.Generator, size: float) -> bool:
    """Return whether a card says that a planted model differs beyond noise.

    The base is a head of random weights on random states, the changes are of the head; what training did beside, it
    did to the states of uncertain tokens alone.
    """
    states = rng.standard_normal((NUM_PROBLEMS * LENGTH, STATES)) / np.sqrt(STATES)
    states *= rng.uniform(1, 12, len(states))[:, None]
    head = rng.standard_normal((STATES, WORDS))
    base = log_softmax(states @ head)
    entropy = -(np.exp(base) * base).sum(1)

    # Training: noise of the head, and the second word raised where the entropy is highest.
    change = rng.standard_normal(head.shape) * NOISE
    logits = states @ (head + change)
    second = np.argsort(base, axis=1)[:, -2]
    uncertain = entropy >= np.quantile(entropy, 0.8)
    logits[uncertain, second[uncertain]] += size
    trained = divergence(log_softmax(logits), base)

    # Noise models as the probe makes them: as far away, in random directions.
    noise = [matched(rng.standard_normal(head.shape), states, head, base, trained.mean()) for _ in range(9)]
    rows = [response(index, LENGTH) for index in range(NUM_PROBLEMS)]
    own = measurements(rows, js=trained, entropy_ref=entropy)
    names = [f"noise-{index}" for index in range(len(noise))]
    null = measurements(rows, checkpoints=names, js=np.stack(noise), entropy_ref=np.stack([entropy] * len(noise)))
    summary = ProbeSummary.model_construct(
        claims=divergence_claims(own, null, divergence="js"),
        reference="base",
        reliable=True,
        num_rollout_problems=NUM_PROBLEMS,
        causal=None,
    )
    (verdict,) = behaviour_part(summary).verdicts
    return verdict.shown


def matched(
    direction: NDArray[np.float64],
    states: NDArray[np.float64],
    head: NDArray[np.float64],
    base: NDArray[np.float64],
    mean: float,
) -> NDArray[np.float64]:
    """Return the divergence of each token under noise in a direction, scaled to have a mean."""
    low, high = 0.0, 8.0
    for _ in range(25):
        scale = (low + high) / 2
        moved = divergence(log_softmax(states @ (head + scale * direction)), base)
        low, high = (scale, high) if moved.mean() < mean else (low, scale)
    return moved


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


def divergence(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Jensen-Shannon divergence of each row, in nats."""
    middle = np.logaddexp(first, second) - np.log(2)
    return ((np.exp(first) * (first - middle)).sum(1) + (np.exp(second) * (second - middle)).sum(1)) / 2


@pytest.mark.planted
def test_differs_beyond_noise():
    draws = 150
    assert PROBE.noise_models == 9
    rates = [
        np.mean([shown(np.random.default_rng([number, draw]), size) for draw in range(draws)])
        for number, size in enumerate((SIZE, 1.3 * SIZE, 0.0))
    ]
    check_rates(
        "differs_beyond_noise",
        size="a word raised by .92 logits at the most uncertain fifth of 900 tokens in 60 problems, "
        "beside noise of a fifth of the weights' norm",
        right=float(rates[0]),
        right_more=float(rates[1]),
        false=float(rates[2]),
        draws=draws,
    )
