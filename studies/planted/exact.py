"""What is exactly true of a world: probabilities, values and expectations by sums over its chain, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.stats import binom

from studies.planted.chain import ASKED, NUM_IDS, NUM_TOKENS, RIGHT, Floats
from studies.planted.worlds import REFERENCE, World

Outcome = Literal["right", "wrong"]


def values(writer: Floats) -> Floats:
    """Return `[K, NUM_TOKENS, V]`: the chance of a right answer before each position, by the last token.

    Args:
        writer: `[K, NUM_TOKENS, V, V]`, who continues.
    """
    found = np.zeros(writer.shape[:3])
    found[:, -1, list(RIGHT)] = 1.0
    for t in range(NUM_TOKENS - 2, -1, -1):
        found[:, t] = np.einsum("ksx,kx->ks", writer[:, t], found[:, t + 1])
    return found


def flows(writer: Floats, outcome: Outcome) -> Floats:
    """Return `[K, NUM_TOKENS, V, V]`: how probable (last token, token) is at each position of a right or wrong rollout.

    Rows of one type and position sum to 1.
    """
    known = values(writer)
    ends = known if outcome == "right" else 1 - known
    before = np.zeros((len(writer), NUM_IDS))
    before[:, ASKED] = 1.0
    found = np.zeros_like(writer)
    for t in range(NUM_TOKENS):
        pairs = before[:, :, None] * writer[:, t]
        after = ends[:, t + 1, None, :] if t + 1 < NUM_TOKENS else ends[:, t, :, None]
        found[:, t] = pairs * after
        before = pairs.sum(axis=1)
    return found / ends[:, 0, ASKED][:, None, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How problems are selected: by most of the first samples of each model, and what is read is among the others."""

    num_deciding: int
    """Odd, so that there are no ties."""
    num_read: int


@dataclass(frozen=True, kw_only=True)
class Exact:
    """A world's exact values; arrays over tokens are `[K, NUM_TOKENS, V, V]`: type, position, last token, token."""

    world: World
    split: Split

    @cached_property
    def chances(self) -> dict[str, Floats]:
        """`[K]` by label: how often a model is right."""
        return {label: values(probs)[:, 0, ASKED] for label, probs in self.world.probs.items()}

    def accuracy(self, label: str) -> float:
        """Return how often a model is right."""
        return float(np.dot(self.world.shares, self.chances[label]))

    @cached_property
    def flipped(self) -> Floats:
        """`[K]`: how often a problem of each type is `reference wrong, final right`."""
        num = self.split.num_deciding
        wrong = binom.cdf(num // 2, num, self.chances[REFERENCE])
        right = 1 - binom.cdf(num // 2, num, self.chances[self.world.final])
        return np.asarray(wrong * right)

    def rates(self, label: str, outcome: Outcome) -> Floats:
        """Return `[K]`: rollouts with this outcome per problem among those read, at most one of each problem."""
        chance = self.chances[label] if outcome == "right" else 1 - self.chances[label]
        return np.asarray(np.array(self.world.shares) * (1 - (1 - chance) ** self.split.num_read))

    @cached_property
    def populations(self) -> dict[str, Floats]:
        """Weights of (type, position, last token, token) in each population of rollouts."""
        final = self.world.final
        wrong, share = self.rates(REFERENCE, "wrong"), self.flipped
        by_name: Mapping[str, tuple[str, Outcome, Floats]] = {
            "reference_wrong_final_right": (REFERENCE, "wrong", wrong * share),
            "reference_wrong_final_wrong": (REFERENCE, "wrong", wrong * (1 - share)),
            "reference_right": (REFERENCE, "right", self.rates(REFERENCE, "right")),
            "checkpoint_right": (final, "right", self.rates(final, "right")),
            "checkpoint_wrong": (final, "wrong", self.rates(final, "wrong")),
        }
        return {
            name: flows(self.world.probs[label], outcome) * rates[:, None, None, None]
            for name, (label, outcome, rates) in by_name.items()
        }

    @property
    def headline(self) -> Floats:
        """Weights of the headline population."""
        return self.populations["reference_wrong_final_right"]

    @cached_property
    def outcomes(self) -> dict[Outcome, Floats]:
        """Weights of the reference's rollouts, right and wrong ones, of any problem."""
        names = ("reference_wrong_final_right", "reference_wrong_final_wrong")
        wrong = sum((self.populations[name] for name in names), np.zeros(1))
        return {"right": self.populations["reference_right"], "wrong": wrong}

    def statistics(self, checkpoint: str, reference: str) -> dict[str, Floats]:
        """Return divergences and entropies `[K, NUM_TOKENS, V, 1]` of a pair, and moves and ranks of every token."""
        p, q = self.world.probs[checkpoint], self.world.probs[reference]
        m = (p + q) / 2

        def kl(one: Floats, other: Floats) -> Floats:
            return np.asarray((one * np.log(one / other)).sum(axis=-1, keepdims=True))

        return {
            "kl_forward": kl(p, q),
            "kl_reverse": kl(q, p),
            "js": (kl(p, m) + kl(q, m)) / 2,
            "entropy": -(p * np.log(p)).sum(axis=-1, keepdims=True),
            "entropy_ref": -(q * np.log(q)).sum(axis=-1, keepdims=True),
            "argmax_changed": (p.argmax(axis=-1) != q.argmax(axis=-1))[..., None].astype(np.float64),
            "move": np.log(p) - np.log(q),
            "logprob": np.log(p),
            "logprob_ref": np.log(q),
            "rank": _ranks(p),
            "rank_ref": _ranks(q),
        }


def _ranks(probs: Floats) -> Floats:
    return np.asarray((probs[..., None, :] > probs[..., :, None]).sum(axis=-1) + 1, dtype=np.float64)


def mean(weights: Floats, figure: Floats, inside: Floats | None = None) -> float | None:
    """Return the mean of a figure over tokens, or over those inside; None where there are none."""
    kept = weights if inside is None else weights * inside
    total = float(kept.sum())
    return float((kept * figure).sum() / total) if total > 1e-6 * float(weights.sum()) else None


def share(weights: Floats, figure: Floats, inside: Floats) -> float | None:
    """Return the part of the summed figure that is inside; None where there is nothing to share out."""
    total = float((weights * figure).sum())
    return float((weights * figure * inside).sum() / total) if total else None
