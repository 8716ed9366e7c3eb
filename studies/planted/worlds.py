"""Models whose effects are planted: what each of them writes at every place, and what of it decides the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from studies.planted.chain import (
    ANSWERS,
    ASKED,
    EOS,
    LENGTH,
    LEVEL_OF,
    NUM_IDS,
    NUM_LEVELS,
    NUM_TOKENS,
    NUM_WRITINGS,
    WORDS,
    Floats,
    as_distributions,
)

REFERENCE = "ref"
_WRITING_SPREAD = 1.0
"""Standard deviation of the logits of the ways to write a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A reference and checkpoints, by label and in order of training, whose answers depend on levels alone."""

    name: str
    shares: tuple[float, ...]
    """How frequent each type of problem is."""
    probs: Mapping[str, Floats]
    """`[K, NUM_TOKENS, V, V]` by label, the reference first: see `chain_model`."""
    answers: Floats
    """`[K, levels]`: probability of the right answer after the last word."""
    top: int | None = None
    """Position at which the final checkpoint is farthest from the reference in every rollout."""
    effects: str = ""
    """`none`: no word has an effect on the answer; else what has."""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """All labels but the reference's."""
        return tuple(self.probs)[1:]

    @property
    def final(self) -> str:
        """The last checkpoint."""
        return self.checkpoints[-1]

    @property
    def is_null(self) -> bool:
        """Whether no word has an effect on the answer."""
        return self.effects == "none"


def _probs(moves: Floats, writings: Floats, answers: Floats, start: int) -> Floats:
    """Return `[K, NUM_TOKENS, V, V]`.

    Args:
        moves: `[K, LENGTH, levels, writings, levels]`: probability of the next level, by the level and the next word's
            way of writing.
        writings: `[K, LENGTH, writings, writings]`: logits of the way to write it, by the last word's way.
        answers: `[K, levels]`: probability of the right answer. At odd levels the random numbers that make it right
            are others than at even ones, and independent of them: continuations that share their random numbers would
            else have the same answer after any word.
        start: level before the first word.
    """
    weights = np.zeros((len(answers), NUM_TOKENS, NUM_IDS, NUM_IDS))
    ways = np.exp(writings) / np.exp(writings).sum(axis=-1, keepdims=True)
    for last in range(NUM_IDS):
        level = LEVEL_OF.get(last, start if last == ASKED else 0)
        way = int(np.argmax(np.equal(last, WORDS).any(axis=0))) if last in LEVEL_OF else 0
        for number in range(NUM_WRITINGS):
            chosen = ways[:, :, way, number, None] * moves[:, :, level, number]
            weights[:, :LENGTH, last, WORDS[:, number]] = chosen
        right = answers[:, level]
        parts = (right**2, right - right**2, right - right**2, (1 - right) ** 2) if level % 2 else (right, 1 - right)
        for token, part in zip(ANSWERS, parts, strict=False):
            weights[:, LENGTH, last, token] = part
    weights[:, LENGTH + 1, :, EOS] = 1.0
    return as_distributions(weights)


def _staying(num_kinds: int) -> Floats:
    """Return moves that leave every level as it is."""
    stay = np.broadcast_to(np.eye(NUM_LEVELS)[:, None], (NUM_LEVELS, NUM_WRITINGS, NUM_LEVELS))
    return np.broadcast_to(stay, (num_kinds, LENGTH, *stay.shape)).copy()


def _turning(num_kinds: int) -> Floats:
    """Return moves between levels 0 and 1: a word written the second way turns one into the other."""
    moves = _staying(num_kinds)
    moves[:, :, 0, 1], moves[:, :, 1, 1] = np.eye(NUM_LEVELS)[1], np.eye(NUM_LEVELS)[0]
    return moves


def _writings(rng: np.random.Generator, num_kinds: int, spread: float = _WRITING_SPREAD) -> Floats:
    """Return logits of the ways to write a word, the same for all types."""
    drawn = rng.normal(0, spread, (1, LENGTH, NUM_WRITINGS, NUM_WRITINGS))
    return np.broadcast_to(drawn, (num_kinds, *drawn.shape[1:])).copy()


def one_token(seed: int) -> World:
    """One word decides: half of the rollouts take the bad one, and it costs .8 to .6 of the probability to be right."""
    start, good, bad = 0, 1, 2
    place, answers = 4, np.full((3, NUM_LEVELS), 0.5)
    answers[:, good], answers[:, bad] = (0.9, 0.85, 0.8), (0.1, 0.15, 0.2)
    rng = np.random.default_rng(0)
    common = _writings(rng, 3)

    def model(share_bad: float, spread: float) -> Floats:
        moves = _staying(3)
        moves[:, place, start] = 0
        moves[:, place, start, :, good], moves[:, place, start, :, bad] = 1 - share_bad, share_bad
        return _probs(moves, common + _writings(rng, 3, spread), answers, start)

    return World(
        name="one_token",
        shares=(0.4, 0.3, 0.3),
        probs={REFERENCE: model(0.6, 0.0), "rl-1": model(0.4, 0.05), "rl-2": model(0.1, 0.05)},
        answers=answers,
        top=place,
        effects="one word of .6 to .8",
    )


_VALUES = (0.0, 0.15, 0.3, 0.45, 0.6, 1.0)
_KEPT = 0.2
"""How often the reference stays at its level, where a rollout that does still has places enough to lose all."""


def four_tokens(seed: int) -> World:
    """A wrong rollout loses .15 at each of four words, and no other; the checkpoint keeps more often what it has."""
    places, start = (1, 2, 4, 5, 7, 8), 4
    answers = np.tile(_VALUES, (2, 1))
    rng = np.random.default_rng(0)
    common = _writings(rng, 2)

    def model(keep: Mapping[int, float], spread: float) -> Floats:
        moves = _staying(2)
        for number, place in enumerate(places):
            for level in range(1, start + 1):
                may_keep = number - (start - level) < len(places) - start and level > 1
                rise = (_VALUES[level] - _VALUES[level - 1]) / (1 - _VALUES[level - 1])  # the reference's cancel falls
                rise *= 1 - _KEPT if may_keep else 1
                kept = keep[place] if may_keep else 0.0
                moves[:, place, level] = 0
                moves[:, place, level, :, level] = kept
                moves[:, place, level, :, level - 1] = 1 - kept - rise
                moves[:, place, level, :, -1] = rise
        return _probs(moves, common + _writings(rng, 2, spread), answers, start)

    return World(
        name="four_tokens",
        shares=(0.5, 0.5),
        probs={
            REFERENCE: model(dict.fromkeys(places, _KEPT), 0.0),
            "rl-1": model({place: 0.7 if place == places[0] else 0.5 for place in places}, 0.05),
        },
        answers=answers,
        top=places[0],
        effects="four words of .15",
    )


def _null_answers(values: tuple[float, ...]) -> Floats:
    """Return answers that are right as often from every level; below 1/2, so that the likeliest one is wrong."""
    return np.tile(np.array(values)[:, None], (1, NUM_LEVELS))


_SHARES = (0.4, 0.3, 0.3)
_CHANCES = (0.48, 0.4, 0.3)


def _null(name: str, writings: Mapping[str, Floats]) -> World:
    answers = _null_answers(_CHANCES)
    return World(
        name=name,
        shares=_SHARES,
        probs={label: _probs(_turning(3), logits, answers, 0) for label, logits in writings.items()},
        answers=answers,
        effects="none",
    )


def same(seed: int) -> World:
    """The same distribution under two labels."""
    common = _writings(np.random.default_rng(seed), 3)
    return _null("same", {REFERENCE: common, "rl-1": common})


def pair(seed: int) -> World:
    """Two models that moved away from a third one, each at random, in how they write and not in what they answer."""
    rng = np.random.default_rng(seed)
    common = _writings(rng, 3)
    return _null("pair", {label: common + _writings(rng, 3, 0.5) for label in (REFERENCE, "rl-1")})


def confounded(seed: int) -> World:
    """No effect, but models are unsure and far apart where the answer is open: scores go with the noise of effects."""
    rng = np.random.default_rng(seed)
    unsure = np.array([0.3, 1.0, 2.0])[:, None, None, None]
    far = np.array([0.8, 0.4, 0.2])[:, None, None, None]
    common = _writings(rng, 3) * unsure
    answers = _null_answers((0.48, 0.2, 0.1))
    logits = {REFERENCE: common, "rl-1": common + _writings(rng, 3) * far}
    return World(
        name="confounded",
        shares=(0.5, 0.3, 0.2),
        probs={label: _probs(_turning(3), one, answers, 0) for label, one in logits.items()},
        answers=answers,
        effects="none",
    )


def drift(seed: int) -> World:
    """Eight checkpoints whose ways of writing wander at random, in steps that add up; answers stay as they are."""
    rng = np.random.default_rng(seed)
    logits = {REFERENCE: _writings(rng, 3)}
    for number in range(1, 9):
        logits[f"rl-{number}"] = [*logits.values()][-1] + _writings(rng, 3, 0.3)
    return _null("drift", logits)


WORLDS: Mapping[str, Callable[[int], World]] = {
    one.__name__: one for one in (one_token, four_tokens, same, pair, confounded, drift)
}
"""Every world by name, made from the seed of a draw; the first two are the same in every draw."""
