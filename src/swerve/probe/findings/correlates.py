"""How divergence relates to right and wrong answers, difficulty, length and uncertainty of a rollout.

Correlations are Spearman's, within the rollouts of one writer, with intervals over problems; all tests of one call are
one family, for which Benjamini and Hochberg's false discovery rate is controlled. None of this says what causes what.

Direction asks whether training moved probability towards the tokens that lead to right answers. A token's move is
logprob - logprob_ref of the realised token (nats). In a right rollout a rise is good, in a wrong one a fall. Rollouts
of different writers are never mixed: a model's own text is likely under it for reasons of its own, and right and wrong
rollouts would then differ in who wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_dynamics import Correlate, Direction, WrongStepMoves
from swerve.artifacts.probe_findings import Divergence
from swerve.estimates import Estimate
from swerve.probe.engine.measured import Measurements, Pair
from swerve.probe.findings.token_shares import by_source, good_moves
from swerve.probe.intervals import Mask
from swerve.statistics.association import spearman
from swerve.statistics.hypothesis_tests import benjamini_hochberg, cliffs_delta, paired_wilcoxon
from swerve.statistics.ranking import auc_interval
from swerve.statistics.ratios import divided

CORRELATES = ("correct", "difficulty", "length", "entropy_ref")
"""Of a rollout."""

Floats = NDArray[np.float64]


def divergence_correlates(data: Measurements, *, divergence: Divergence) -> tuple[Correlate, ...]:
    """Return the rank correlations of a divergence, for each writer of rollouts and checkpoint.

    At the level of rollouts it is the mean divergence of a rollout's tokens, with the answer's correctness (0 or 1),
    the problem's difficulty where it has one, the number of tokens and the reference's mean entropy. At the level of
    tokens it is the divergence of a token with the reference's entropy there. `num` counts the rollouts or tokens for
    which both are known and finite; `estimate` is null with fewer than three, of one problem, or where one of the two
    is constant. `p_adjusted` is over all of them.

    Args:
        data: the measurements.
        divergence: the column.
    """
    entries: list[Correlate] = []
    for source, part in by_source(data).items():
        problems = np.array([sequence.problem.id for sequence in part.sequences], dtype=str)
        # Rollouts of a problem are set side by side in the order of their tokens, whatever order a file has.
        order = sorted(range(problems.size), key=lambda number: part.sequences[number].completion_ids)
        by_token = part.over.problems
        for pair in part.pairs():
            values, entropy = pair.nats(divergence), pair.nats("entropy_ref")
            of_rollouts = _rollout_correlates(part, entropy)
            means = _rollout_means(part, values)
            # Each correlation: level, name, the two columns and the problem of each row.
            columns: list[_Columns] = [
                ("rollout", name, means[order], of_rollouts[name][order], problems[order]) for name in CORRELATES
            ]
            columns.append(("token", "entropy_ref", values, entropy, by_token))
            for level, name, x, y, clusters in columns:
                known = np.isfinite(x) & np.isfinite(y)
                correlation = spearman(
                    x[known], y[known], clusters=clusters[known], confidence=part.intervals.confidence
                )
                entries.append(
                    Correlate(
                        checkpoint=pair.checkpoint,
                        source=source,
                        divergence=divergence,
                        level=level,
                        correlate=name,
                        num=int(known.sum()),
                        estimate=correlation and correlation.estimate,
                        p_value=correlation.p_value if correlation else None,
                    )
                )
    adjusted = benjamini_hochberg([entry.p_value for entry in entries])
    return tuple(
        entry.model_copy(update={"p_adjusted": p_value}) for entry, p_value in zip(entries, adjusted, strict=True)
    )


_Columns = tuple[Literal["rollout", "token"], str, Floats, Floats, NDArray[Any]]


def _rollout_correlates(data: Measurements, entropy: Floats) -> dict[str, Floats]:
    """Return what each rollout's mean divergence is set against, NaN where it is not known."""
    levels = [sequence.problem.difficulty for sequence in data.sequences]
    return {
        "correct": np.array(
            [np.nan if sequence.correct is None else sequence.correct for sequence in data.sequences], dtype=np.float64
        ),
        "difficulty": np.array([np.nan if level is None else level for level in levels], dtype=np.float64),
        "length": data.lengths.astype(np.float64),
        "entropy_ref": _rollout_means(data, entropy),
    }


def _rollout_means(data: Measurements, values: Floats) -> Floats:
    """Return `[S]`: the mean of each rollout's values, NaN for one without tokens."""
    sums = np.bincount(data.sequence_index, weights=values, minlength=len(data.sequences)).astype(np.float64)
    return divided(sums, data.lengths.astype(np.float64))


def move_directions(
    data: Measurements, *, divergence: Divergence, pieces: Sequence[str] | None = None
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
        data: rollouts, right and wrong; those of which neither is known count nowhere.
        divergence: the column shared out by `share_good`.
        pieces: the text of every token of the vocabulary; without it nothing is said about expected tokens.
    """
    entries = []
    for source, part in by_source(data.select(lambda sequence: sequence.correct is not None)).items():
        # Wrong steps are known of some rollouts only.
        marked = part.select(lambda sequence: bool(sequence.wrong))
        for pair, on_marked in zip(part.pairs(), marked.pairs(), strict=True):
            entries.append(
                Direction(
                    checkpoint=pair.checkpoint,
                    source=source,
                    divergence=divergence,
                    **_move_entries(part, pair, divergence),
                    wrong_steps=_wrong_steps(marked, on_marked, pieces) if marked.sequences else None,
                )
            )
    return tuple(entries)


def _move_entries(data: Measurements, pair: Pair, divergence: Divergence) -> dict[str, Any]:
    """Return the entries of one pair about right and wrong rollouts."""
    tokens, moves = data.over, pair.moves
    correct = np.array([sequence.correct for sequence in data.sequences], dtype=np.bool_)
    right = np.repeat(correct, data.lengths)
    entries: dict[str, Any] = {
        "num_right": int(correct.sum()),
        "num_wrong": int((~correct).sum()),
        "mean_move_right": tokens.mean(moves, right),
        "mean_move_wrong": tokens.mean(moves, ~right),
    }
    nothing = ("share_good", "share_good_tokens", "difference", "wilcoxon", "cliffs_delta", "auc")
    good = good_moves(data, pair)
    if good is None:
        return {**entries, "num_paired": 0, **dict.fromkeys(nothing)}
    entries["share_good"] = tokens.share_of(pair.nats(divergence), good)
    entries["share_good_tokens"] = tokens.share(good)
    entries["difference"] = tokens.mean_difference(moves, right, ~right)
    # By rollout: mean moves averaged over each problem's rollouts, and summed moves.
    sums = np.bincount(data.sequence_index, weights=moves, minlength=len(data.sequences))
    means = sums / np.maximum(data.lengths, 1)
    problems = [sequence.problem.id for sequence in data.sequences]
    of_right, of_wrong = _by_problem(problems, means, correct), _by_problem(problems, means, ~correct)
    entries |= _paired(of_wrong, of_right)
    entries["cliffs_delta"] = cliffs_delta(list(of_right.values()), list(of_wrong.values()))
    entries["auc"] = auc_interval(sums, correct, clusters=problems, confidence=data.intervals.confidence)
    return entries


def _by_problem(problems: Sequence[str], values: Floats, kept: Mask) -> dict[str, float]:
    """Return the mean of the kept values of each problem that has any."""
    by_problem: dict[str, list[float]] = {}
    for name, value in zip(np.array(problems)[kept].tolist(), values[kept].tolist(), strict=True):
        by_problem.setdefault(name, []).append(value)
    return {name: sum(own) / len(own) for name, own in by_problem.items()}


def _paired(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """Return the signed-rank test of the problems that have both, and how many these are."""
    both = [name for name in after if name in before]
    test = paired_wilcoxon([before[name] for name in both], [after[name] for name in both])
    return {"num_paired": len(both), "wilcoxon": test}


def _wrong_steps(data: Measurements, pair: Pair, pieces: Sequence[str] | None) -> WrongStepMoves:
    """Return the moves in rollouts with known wrong steps."""
    tokens, moves, wrong = data.over, pair.moves, data.wrong
    difference = wilcoxon = None
    if np.isfinite(moves).all():
        difference = tokens.mean_difference(moves, wrong, ~wrong)
        others, on_wrong = (_by_problem(data.problem_ids, moves, mask) for mask in (~wrong, wrong))
        wilcoxon = _paired(others, on_wrong)["wilcoxon"]
    # Texts are compared without white space around them: an expected word of several tokens never is the likeliest one.
    expected = {
        start + sequence.sampled_positions.index(position): text.strip()
        for start, sequence in zip(data.starts.tolist(), data.sequences, strict=True)
        for position, text in sequence.wrong.items()
        if text.strip() and pieces is not None
    }
    places = np.array(list(expected), dtype=np.int64)
    shares: dict[str, Estimate | None] = {}
    for name, column in (("share_expected", "argmax"), ("share_expected_ref", "argmax_ref")):
        chosen = [(pieces or ())[token].strip() for token in pair.columns[column][places].tolist()]
        hits = np.array([own == text for own, text in zip(chosen, expected.values(), strict=True)], dtype=np.bool_)
        shares[name] = data.intervals.share(hits, tokens.problems[places]) if expected else None
    return WrongStepMoves(
        num_rollouts=len(data.sequences),
        num_tokens=int(wrong.sum()),
        mean_move=tokens.mean(moves, wrong),
        mean_move_others=tokens.mean(moves, ~wrong),
        difference=difference,
        wilcoxon=wilcoxon,
        num_expected=len(expected),
        **shares,
    )
