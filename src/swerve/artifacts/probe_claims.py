"""Where the divergence falls, beside what it would be without training: entries of `probe/summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from swerve.artifacts.record import Record
from swerve.estimates import Estimate
from swerve.text import listed

NullName = Literal["chance", "entropy", "noise", "length"]


class NoiseModels(Record):
    """Models that are as far from the reference as the final checkpoint, in random directions."""

    target: float | None
    """Mean divergence of the final checkpoint over the tokens of the headline population."""
    not_measured: str | None = None
    """Why there are none."""
    scales: tuple[float, ...] = ()
    """Of each noise model: norm of the noise of a matrix, in those of what training changed of it."""
    relative_norm: float | None = None
    """Norm of what training changed of all matrices together over that of these matrices of the reference."""
    means: tuple[float, ...] = ()
    """Mean divergence of each noise model from the reference on the same tokens."""


class NullFigure(Record):
    """What a figure would be without training, and how far the checkpoint's is from it."""

    null: NullName
    """`chance`: every position, or sentence, alike; `entropy`: the reference's entropy in the place of the divergence;
    `noise`: the divergence of the noise models; `length`, of sentences: their number of tokens, as a long one has more
    chances of a high value."""
    value: float
    """Of noise models their mean."""
    low: float | None = None
    """Lowest of the noise models."""
    high: float | None = None
    difference: Estimate | None
    """The checkpoint's figure minus this one, paired over problems; of noise models with their own spread, so that the
    interval is about any other noise model too."""

    @property
    def side(self) -> Literal[-1, 0, 1] | None:
        """1: the checkpoint's figure is above this one, -1: below, 0: the interval of the difference holds 0.

        None: there is no interval.
        """
        if self.difference is None:
            return None
        if not self.difference.excludes(0):
            return 0
        return 1 if self.difference.mean > 0 else -1


class DivergenceClaim(Record):
    """A figure about where the final checkpoint's divergence falls in the headline population, beside its nulls."""

    figure: Literal["auc", "top", "share"]
    """`auc`: of the divergence as a score of the tokens; `top`: fraction of rollouts whose highest divergence is there;
    `share`: of the summed divergence."""
    of: Literal["first_wrong", "wrong", "first_wrong_sentence", "uncertain", "style", "good", "third", "category"]
    """The tokens: the first wrong one of each rollout, all wrong ones, the fifth at which the reference is least
    certain, style, those that moved the good way, a third of the completions, a category. `first_wrong_sentence` is of
    sentences, or steps: those that are the first wrong one of their rollout, each with the highest value of its
    tokens."""
    part: str = ""
    """Which third or category."""
    estimate: Estimate
    nulls: tuple[NullFigure, ...]

    @property
    def name(self) -> str:
        """What it is called wherever a person reads it.

        >>> DivergenceClaim(figure="top", of="first_wrong", estimate=Estimate(mean=1, low=1, high=1), nulls=()).name
        'Top spike on the first wrong token'
        """
        where = {"third": f"the {_THIRDS.get(self.part)} third", "category": f"category {self.part.replace('_', ' ')}"}
        return f"{_FIGURES[self.figure]} {where.get(self.of) or _PLACES[self.of]}"

    def null(self, name: NullName) -> NullFigure | None:
        """Return what it would be by one of the nulls."""
        return next((null for null in self.nulls if null.null == name), None)

    @property
    def stands(self) -> bool:
        """Whether the figure is above all nulls, or below all of them: only then does it say something of training."""
        return {null.side for null in self.nulls} in ({-1}, {1})

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the nulls from which the difference has no interval."""
        return tuple(NULL_NAMES[null.null] for null in self.nulls if null.side is None)

    @property
    def verdict(self) -> str:
        """Which nulls it is above and below, in words."""
        parts = []
        for side, word in SIDES.items():
            names = [NULL_NAMES[null.null] for null in self.nulls if null.side == side]
            if names:
                parts.append(f"{word} {listed(names)}")
        return ", ".join(parts)


_FIGURES = {"auc": "AUC of", "top": "Top spike on", "share": "Divergence on"}
_THIRDS = {"early": "first", "mid": "middle", "late": "last"}
_PLACES = {
    "first_wrong": "the first wrong token",
    "wrong": "wrong tokens",
    "first_wrong_sentence": "the first wrong sentence",
    "uncertain": "the most uncertain fifth",
    "style": "style tokens",
    "good": "tokens moved the good way",
}
SIDES: Mapping[int | None, str] = {
    1: "more than",
    -1: "less than",
    0: "not distinguishable from",
    None: "not determined, because the difference has no interval, against",
}
"""What `NullFigure.side` is in words, which the null follows."""
NULL_NAMES: Mapping[NullName, str] = {
    "chance": "chance",
    "entropy": "the reference's entropy",
    "noise": "matched noise",
    "length": "the length of the sentence",
}
"""What they are called wherever a person reads them."""
TOKEN_NULLS: tuple[NullName, ...] = ("chance", "entropy", "noise")
"""Those of figures about tokens."""
