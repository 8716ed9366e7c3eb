"""How divergence relates to right and wrong answers, difficulty, length and uncertainty of a rollout.

Correlations are Spearman's, within the rollouts of one writer, with intervals over problems; all tests of one call are
one family, for which Benjamini and Hochberg's false discovery rate is controlled. None of this says what causes what.

Direction asks whether training moved probability towards the tokens that lead to right answers. A token's move is
logprob - logprob_ref of the realised token (nats). In a right rollout a rise is good, in a wrong one a fall. Rollouts
of different writers are never mixed: a model's own text is likely under it for reasons of its own, and right and wrong
rollouts would then differ in who wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_dynamics import Correlate, Direction, WrongStepMoves
from swerve.artifacts.probe_findings import Divergence
from swerve.estimates import Correlation, Estimate
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.parts import Intervals, by_source, problem_clusters
from swerve.statistics.association import spearman
from swerve.statistics.hypothesis_tests import benjamini_hochberg, cliffs_delta, paired_wilcoxon
from swerve.statistics.ranking import ranking_intervals

CORRELATES = ("correct", "difficulty", "length", "entropy_ref")
"""Of a rollout."""

Floats = NDArray[np.float64]


def divergence_correlates(
    data: Measurements, *, divergence: Divergence, rate: float = 0.05, intervals: Intervals | None = None
) -> tuple[Correlate, ...]:
    """Return the rank correlations of a divergence, for each writer of rollouts and checkpoint.

    At the level of rollouts it is the mean divergence of a rollout's tokens, with the answer's correctness (0 or 1),
    the problem's difficulty where it has one, the number of tokens and the reference's mean entropy. At the level of
    tokens it is the divergence of a token with the reference's entropy there. `num` counts the rollouts or tokens for
    which both are known and finite; `estimate` is null with fewer than three, of one problem, or where one of the two
    is constant.

    Args:
        data: the measurements.
        divergence: the column.
        rate: false discovery rate of `significant`, over all tests returned.
        intervals: how intervals are made.
    """
    how = intervals or Intervals()
    found = [
        Correlate(
            checkpoint=checkpoint,
            source=source,
            divergence=divergence,
            level="token" if name == "token" else "rollout",
            correlate="entropy_ref" if name == "token" else name,
            num=num,
            estimate=one and one.estimate,
            p_value=None if one is None else one.p_value,
        )
        for source, part in by_source(data).items()
        for index, checkpoint in enumerate(part.checkpoints)
        for name, (num, one) in _correlations(part, index, divergence, how).items()
    ]
    adjusted, rejected = benjamini_hochberg([one.p_value for one in found], rate)
    return tuple(
        one.model_copy(update={"p_adjusted": p_value, "significant": significant})
        for one, p_value, significant in zip(found, adjusted, rejected, strict=True)
    )


Counted = tuple[int, Correlation | None]
"""How many rollouts or tokens a correlation is over, and the correlation."""


def _correlations(data: Measurements, index: int, divergence: Divergence, how: Intervals) -> dict[str, Counted]:
    """Return the correlation with each property of a rollout, and last that over tokens (`token`)."""
    means = _rollout_means(data, data.columns[divergence][index])
    read = [one.problem for one in data.sequences]
    levels = [one.difficulty for one in read]
    correlates: dict[str, Floats] = {
        "correct": np.array([one.correct for one in data.sequences], dtype=np.float64),
        "difficulty": np.array([np.nan if level is None else level for level in levels], dtype=np.float64),
        "length": data.lengths.astype(np.float64),
        "entropy_ref": _rollout_means(data, data.columns["entropy_ref"][index]),
    }
    problems = np.array([one.problem.id for one in data.sequences], dtype=str)
    by_rollout = {name: _ranked(means, correlates[name], problems, how) for name in CORRELATES}
    return {**by_rollout, "token": _token_correlation(data, index, divergence, how)}


def _rollout_means(data: Measurements, values: NDArray[Any]) -> Floats:
    """Return `[S]`: the mean of each rollout's values, NaN for one without tokens."""
    sums = np.bincount(data.sequence_index, weights=values.astype(np.float64), minlength=len(data.sequences))
    counts = data.lengths.astype(np.float64)
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _ranked(x: Floats, y: Floats, problems: NDArray[np.str_], how: Intervals) -> Counted:
    """Return Spearman's correlation over the rollouts for which both are known; an infinite mean is unknown."""
    known = np.isfinite(x) & np.isfinite(y)
    found = spearman(x[known], y[known], clusters=problems[known], confidence=how.confidence)
    return int(known.sum()), found


def _token_correlation(data: Measurements, index: int, divergence: Divergence, how: Intervals) -> Counted:
    values, entropy = data.columns[divergence][index], data.columns["entropy_ref"][index]
    known = np.isfinite(values) & np.isfinite(entropy)
    clusters = problem_clusters(data)[known]
    found = spearman(values[known], entropy[known], clusters=clusters, confidence=how.confidence)
    return int(known.sum()), found


Mask = NDArray[np.bool_]


def token_moves(data: Measurements, index: int) -> Floats:
    """Return `[N]`: logprob - logprob_ref of each token at the index-th checkpoint, nats; NaN where one is infinite."""
    own = data.columns["logprob"][index].astype(np.float64)
    reference = data.columns["logprob_ref"][index].astype(np.float64)
    finite = np.isfinite(own) & np.isfinite(reference)
    return np.where(finite, np.where(finite, own, 0.0) - np.where(finite, reference, 0.0), np.nan)


def move_directions(
    data: Measurements,
    *,
    divergence: Divergence,
    pieces: Sequence[str] | None = None,
    intervals: Intervals | None = None,
) -> tuple[Direction, ...]:
    """Return, for each writer of rollouts and checkpoint, how the moves go with right and wrong.

    - `share_good`: share of the summed divergence on tokens with a good move (no preference: about their share of the
      tokens, `share_good_tokens`).
    - `mean_move_right`, `mean_move_wrong`: nats per token; `difference`: the first minus the
      second.
    - `wilcoxon`: wrong -> right within the problems that have both, of the rollouts' mean moves; `cliffs_delta`: right
      against wrong over all problems, unpaired, each problem's rollouts averaged.
    - `auc`: does the summed move of a rollout (the implicit reward of DPO, arXiv 2305.18290, with beta = 1) rank right
      ones above wrong ones; 0.5 is chance.
    - `wrong_steps`: moves on tokens known to be wrong against the other tokens of the same rollouts, and how often each
      model's most likely token there is the expected one.

    Figures that need both outcomes are null where there is only one, and all are where a log-probability is infinite.

    Args:
        data: rollouts, right and wrong.
        divergence: the column shared out by `share_good`.
        pieces: the text of every token of the vocabulary; without it nothing is said about expected tokens.
        intervals: how intervals are made.
    """
    how = intervals or Intervals()
    return tuple(
        Direction(
            checkpoint=checkpoint,
            source=source,
            divergence=divergence,
            **_move_entries(part, index, part.columns[divergence][index].astype(np.float64), how),
            wrong_steps=_wrong_step_moves(part, index, pieces, how),
        )
        for source, part in by_source(data).items()
        for index, checkpoint in enumerate(part.checkpoints)
    )


def _move_entries(data: Measurements, index: int, values: Floats, how: Intervals) -> dict[str, Any]:
    moves, clusters = token_moves(data, index), problem_clusters(data)
    correct = np.array([one.correct for one in data.sequences], dtype=np.bool_)
    right = np.repeat(correct, data.lengths)
    good = np.where(right, moves > 0, moves < 0)
    known = bool(np.isfinite(moves).all())
    return {
        "num_right": int(correct.sum()),
        "num_wrong": int((~correct).sum()),
        "share_good": how.ratio(np.where(good, values, 0.0), values, clusters) if known else None,
        "share_good_tokens": how.share(good, clusters) if known else None,
        "mean_move_right": how.mean(moves[right], clusters[right]),
        "mean_move_wrong": how.mean(moves[~right], clusters[~right]),
        "difference": _mean_difference(moves, right, clusters, how) if known else None,
        **(_rollout_entries(data, moves, correct, how) if known else _NO_ROLLOUTS),
    }


def _mean_difference(moves: Floats, first: Mask, clusters: NDArray[np.int64], how: Intervals) -> Estimate | None:
    """Return the mean over the first tokens minus the mean over the others; None where either are missing."""
    one, other = first.astype(np.float64), (~first).astype(np.float64)
    return how.ratio_difference((moves * one, one), (moves * other, other), clusters)


_NO_ROLLOUTS: dict[str, Any] = {"num_paired": 0, "wilcoxon": None, "cliffs_delta": None, "auc": None}


def _rollout_entries(data: Measurements, moves: Floats, correct: Mask, how: Intervals) -> dict[str, Any]:
    sums = np.bincount(data.sequence_index, weights=moves, minlength=len(data.sequences))
    means = sums / np.maximum(data.lengths, 1)
    problems = [one.problem.id for one in data.sequences]
    right, wrong = (_by_problem(problems, means, correct == wanted) for wanted in (True, False))
    paired = [name for name in right if name in wrong]
    ranking = ranking_intervals(sums, correct, clusters=problems, confidence=how.confidence)
    return {
        "num_paired": len(paired),
        "wilcoxon": paired_wilcoxon([wrong[name] for name in paired], [right[name] for name in paired]),
        "cliffs_delta": cliffs_delta(list(right.values()), list(wrong.values())),
        "auc": ranking.auc,
    }


def _by_problem(problems: Sequence[str], values: Floats, kept: Mask) -> dict[str, float]:
    """Return the mean of the kept values of each problem that has any."""
    found: dict[str, list[float]] = {}
    for name, value, keep in zip(problems, values.tolist(), kept.tolist(), strict=True):
        if keep:
            found.setdefault(name, []).append(value)
    return {name: sum(one) / len(one) for name, one in found.items()}


def _wrong_step_moves(
    data: Measurements, index: int, pieces: Sequence[str] | None, how: Intervals
) -> WrongStepMoves | None:
    """Return the moves in rollouts with known wrong steps; None where there are none."""
    marked = data.select(lambda one: bool(one.wrong))
    if not marked.sequences:
        return None
    moves, clusters = token_moves(marked, index), problem_clusters(marked)
    wrong, known = marked.wrong, bool(np.isfinite(moves).all())
    on_wrong, others = (_by_problem(marked.problem_ids, moves, wrong == wanted) for wanted in (True, False))
    paired = [name for name in on_wrong if name in others]
    return WrongStepMoves(
        num_rollouts=len(marked.sequences),
        num_tokens=int(wrong.sum()),
        mean_move=how.mean(moves[wrong], clusters[wrong]),
        mean_move_others=how.mean(moves[~wrong], clusters[~wrong]),
        difference=_mean_difference(moves, wrong, clusters, how) if known else None,
        wilcoxon=paired_wilcoxon([others[name] for name in paired], [on_wrong[name] for name in paired])
        if known
        else None,
        **_expected_entries(marked, index, pieces, clusters, how),
    )


def _expected_entries(
    data: Measurements, index: int, pieces: Sequence[str] | None, clusters: NDArray[np.int64], how: Intervals
) -> dict[str, Any]:
    """Return how often each model's most likely token at a wrong step is the expected one.

    Texts are compared without white space around them and must be equal: an expected word of several tokens never is.
    """
    nothing = {"num_expected": 0, "share_expected": None, "share_expected_ref": None}
    if pieces is None:
        return nothing
    starts = np.cumsum([0, *data.lengths.tolist()])[:-1].tolist()
    places = [
        (start + position, text.strip())
        for start, one in zip(starts, data.sequences, strict=True)
        for position, text in one.wrong.items()
        if text.strip()
    ]
    if not places:
        return nothing
    at = np.array([place for place, _ in places])

    def share(column: str) -> Estimate | None:
        chosen = [pieces[token].strip() for token in data.columns[column][index][at].tolist()]
        hits = np.array([one == text for one, (_, text) in zip(chosen, places, strict=True)])
        return how.share(hits, clusters[at])

    return {"num_expected": len(places), "share_expected": share("argmax"), "share_expected_ref": share("argmax_ref")}
