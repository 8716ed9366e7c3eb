"""How well scores and spikes find the tokens, and the sentences, that are known to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import Divergence, Recovery, SelectorRecovery, SentenceRecovery, SpikeRecovery
from swerve.artifacts.responses import Response
from swerve.functional.kl_divergence import bernoulli_kl
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spikes import Spike
from swerve.probe.intervals import Intervals
from swerve.statistics.clusters import membership
from swerve.statistics.ranking import auc_interval, ranking_intervals

Array = NDArray[np.float64]

Columns = Mapping[str, NDArray[Any]]


def _logprob_change(columns: Columns) -> Array:
    checkpoint, reference = (columns[name].astype(np.float64) for name in ("logprob", "logprob_ref"))
    with np.errstate(invalid="ignore"):
        change = checkpoint - reference
    return np.where(checkpoint == reference, 0.0, change)  # both may be minus infinity


def _bernoulli_kl(columns: Columns) -> Array:
    own, reference = (torch.from_numpy(np.asarray(columns[name])).clamp(max=0) for name in ("logprob", "logprob_ref"))
    return np.asarray(bernoulli_kl(own, reference).numpy())


def _column(name: str) -> Callable[[Columns], Array]:
    return lambda columns: columns[name].astype(np.float64)


_SELECTORS: Mapping[str, Callable[[Columns], Array]] = {
    "js": _column("js"),
    "kl_forward": _column("kl_forward"),
    "kl_reverse": _column("kl_reverse"),
    "bernoulli_kl": _bernoulli_kl,
    "abs_logprob_change": lambda columns: np.abs(_logprob_change(columns)),
    "logprob_drop": lambda columns: -_logprob_change(columns),
    "entropy": _column("entropy_ref"),
    "entropy_change": lambda columns: columns["entropy"].astype(np.float64) - columns["entropy_ref"],
    "rank": _column("rank"),
    "argmax_changed": lambda columns: (columns["argmax"] != columns["argmax_ref"]).astype(np.float64),
}
"""Every score of a token: add one here to have it ranked against wrong steps and effects of swaps."""


def selector_scores(columns: Columns) -> dict[str, Array]:
    """Return each selector's score of each token; the higher, the sooner the selector picks the token.

    - `js`, `kl_forward`, `kl_reverse`: the divergence, nats;
    - `bernoulli_kl`: the part of the forward KL that is about the realised token alone, nats;
    - `abs_logprob_change`: |logprob - logprob_ref| of the realised token, nats;
    - `logprob_drop`: logprob_ref - logprob: how much less likely the checkpoint finds the realised token, nats;
    - `entropy`: the reference's, nats; `entropy_change`: the checkpoint's less the reference's;
    - `rank`: of the realised token under the checkpoint (1 = most likely);
    - `argmax_changed`: 1 where the models' most likely tokens differ, else 0.

    Args:
        columns: columns of `Measurements` by name, of any one shape.

    >>> columns = {name: np.zeros(2) for name in ("js", "kl_forward", "kl_reverse", "entropy", "entropy_ref")}
    >>> columns |= {"rank": np.array([1, 7]), "argmax": np.array([4, 4]), "argmax_ref": np.array([4, 9])}
    >>> columns |= {"logprob": np.array([-1.0, -3.0]), "logprob_ref": np.array([-1.5, -1.0])}
    >>> scores = selector_scores(columns)
    >>> scores["logprob_drop"].tolist(), scores["rank"].tolist(), scores["argmax_changed"].tolist()
    ([-0.5, 2.0], [1.0, 7.0], [0.0, 1.0])
    """
    return {name: score(columns) for name, score in _SELECTORS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """The S sentences of the rollouts of which it is known which sentence is the first wrong one, rollout by rollout.

    A sentence has the highest value of its tokens: which of them is wrong is not known.
    """

    data: Measurements
    """Of these rollouts."""
    is_wrong: NDArray[np.bool_]
    """`[S]`."""
    problems: NDArray[np.int64]
    """`[S]`: number of the problem that each is of."""
    _in_marked: NDArray[np.bool_]
    """`[N]`: is the token of one of these rollouts, among the tokens that they were taken from."""
    _starts: NDArray[np.int64]
    """`[S]`: where each begins among the tokens of `data`."""
    _counts: NDArray[np.int64]
    """Sentences of each rollout."""

    @classmethod
    def of(cls, data: Measurements) -> Sentences:
        """Return the sentences of the rollouts with such a label; of others none."""
        marked = data.select(lambda sequence: sequence.wrong_sentence is not None)
        counts = np.array([len(sequence.sentence_starts) for sequence in marked.sequences], dtype=np.int64)
        starts = [
            begin + np.array(sequence.sentence_starts, dtype=np.int64)
            for begin, sequence in zip(marked.starts.tolist(), marked.sequences, strict=True)
        ]
        wrong = [
            number == sequence.wrong_sentence
            for sequence in marked.sequences
            for number in range(len(sequence.sentence_starts))
        ]
        _, of_rollouts = membership([sequence.problem.id for sequence in marked.sequences], len(marked.sequences))
        has_label = np.array([sequence.wrong_sentence is not None for sequence in data.sequences], dtype=np.bool_)
        return cls(
            data=marked,
            is_wrong=np.array(wrong, dtype=np.bool_),
            problems=np.repeat(of_rollouts, counts),
            _in_marked=np.repeat(has_label, data.lengths),
            _starts=np.concatenate([np.arange(0), *starts]),
            _counts=counts,
        )

    @property
    def lengths(self) -> Array:
        """`[S]`: tokens of each."""
        return np.diff(self._starts, append=len(self.data.categories)).astype(np.float64)

    def highest(self, values: NDArray[Any]) -> Array:
        """Return `[S]`, the highest value of each, from one value a token of the measurements they were taken from."""
        return np.maximum.reduceat(values[self._in_marked].astype(np.float64), self._starts)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Return one value a sentence, cut into one array a rollout."""
        return np.split(values, np.cumsum(self._counts)[:-1])


def sentence_recovery(data: Measurements) -> SentenceRecovery | None:
    """Return how well each score ranks the sentence that is the first wrong one above the others; None without any.

    A sentence's score is the highest of its tokens, so that a long one has more chances than a short one; that holds of
    every score alike, and `divergence_claims` has length itself as a null. `auc` and `average_precision` are over
    sentences: by chance 0.5 and `base_rate`. What stands after the first wrong sentence may be wrong as well, and
    counts among the others.
    """
    sentences = Sentences.of(data)
    if not sentences.data.sequences:
        return None
    entries = []
    for pair in data.pairs():
        for name, scores in selector_scores(pair.columns).items():
            ranking = ranking_intervals(
                sentences.highest(scores),
                sentences.is_wrong,
                clusters=sentences.problems,
                confidence=data.intervals.confidence,
            )
            entries.append(
                SelectorRecovery(
                    checkpoint=pair.checkpoint,
                    selector=name,
                    auc=ranking.auc,
                    average_precision=ranking.average_precision,
                )
            )
    return SentenceRecovery(
        num_rollouts=len(sentences.data.sequences),
        num_sentences=len(sentences.is_wrong),
        base_rate=float(sentences.is_wrong.mean()),
        selectors=tuple(entries),
    )


def planted_recovery(
    data: Measurements,
    spikes: Mapping[tuple[str, Divergence, str], Sequence[Sequence[Spike]]],
) -> Recovery:
    """Return how well each score and each kind of spike finds the tokens of known wrong steps.

    Only rollouts with a known wrong token count. `selectors`, for each checkpoint and score: `auc` and
    `average_precision` over tokens (by chance 0.5 and `base_rate`), and `auc_first` of the first wrong token against
    those that are not wrong. `spikes`, for each checkpoint, divergence and
    method:

    - `precision`: share of spikes on wrong tokens; `recall`: share of wrong tokens with a spike; `f1`: their harmonic
      mean, 2 hits / (spikes + wrong tokens);
    - `recall_first`: share of rollouts with a spike on their first wrong token; `rollouts_hit`: on any wrong token;
    - `chance_precision`, `chance_recall`, `chance_recall_first`: the same if each rollout's spikes lay on positions
      drawn uniformly from its own.

    Spikes keep a distance, so `recall` cannot reach 1 where wrong tokens are neighbours. Intervals are over
    problems; metrics of nothing are None.

    Args:
        data: measurements of checkpoints against one reference.
        spikes: (checkpoint, divergence, method) -> the spikes of each sequence of `data`, in the same order.

    Raises:
        ValueError: the spikes are of another number of sequences.
    """
    for key, by_sequence in spikes.items():
        if len(by_sequence) != len(data.sequences):
            raise ValueError(
                f"spikes of {key} are of {len(by_sequence)} sequences, the measurements of {len(data.sequences)}; "
                "find them in the same measurements"
            )
    # Only rollouts with a known wrong step count.
    known = [index for index, sequence in enumerate(data.sequences) if sequence.wrong]
    marked = data.select(lambda sequence: bool(sequence.wrong))
    wrong = marked.wrong
    chosen = {key: [by_sequence[index] for index in known] for key, by_sequence in spikes.items()}
    return Recovery(
        num_rollouts=len(known),
        num_rollouts_unknown=len(data.sequences) - len(known),
        num_tokens=len(wrong),
        num_wrong=int(wrong.sum()),
        base_rate=float(wrong.mean()) if len(wrong) else None,
        selectors=_selector_recovery(marked, wrong),
        spikes=_spike_recovery(marked.sequences, chosen, data.intervals),
    )


def _selector_recovery(data: Measurements, wrong: NDArray[np.bool_]) -> tuple[SelectorRecovery, ...]:
    """Return how well each score ranks wrong tokens, and the first one of each rollout, at each checkpoint."""
    _, problems = membership(data.problem_ids, len(wrong))
    confidence = data.intervals.confidence
    first = data.first_wrong
    kept = first | ~wrong
    entries = []
    for pair in data.pairs():
        # Of every score: over all tokens, and of the first wrong tokens against those that are not wrong.
        for name, scores in selector_scores(pair.columns).items():
            ranking = ranking_intervals(scores, wrong, clusters=problems, confidence=confidence)
            auc_first = auc_interval(scores[kept], first[kept], clusters=problems[kept], confidence=confidence)
            entries.append(
                SelectorRecovery(
                    checkpoint=pair.checkpoint,
                    selector=name,
                    auc=ranking.auc,
                    auc_first=auc_first,
                    average_precision=ranking.average_precision,
                )
            )
    return tuple(entries)


_RATIOS = {
    "precision": ("hits", "spikes"),
    "recall": ("hits", "wrong"),
    "f1": ("twice_hits", "spikes_and_wrong"),
    "recall_first": ("first_hits", "rollouts"),
    "rollouts_hit": ("rollouts_hit", "rollouts"),
}

_CHANCES = {
    "chance_precision": ("chance_hits", "spikes"),
    "chance_recall": ("chance_hits", "wrong"),
    "chance_recall_first": ("chance_first_hits", "rollouts"),
}


def _spike_recovery(
    sequences: Sequence[Response],
    spikes: Mapping[tuple[str, Divergence, str], Sequence[Sequence[Spike]]],
    how: Intervals,
) -> tuple[SpikeRecovery, ...]:
    """Return how well the spikes of each checkpoint, divergence and method find wrong tokens."""
    num_problems, problems = membership([sequence.problem.id for sequence in sequences], len(sequences))
    if not num_problems:
        return ()
    entries = []
    for (checkpoint, divergence, method), by_sequence in spikes.items():
        # Ratios of sums over rollouts, and what they would be by chance.
        counts = _counts(sequences, by_sequence)
        sums = {name: float(values.sum()) for name, values in counts.items()}
        estimates: dict[str, Any] = {}
        for name, (top, bottom) in _RATIOS.items():
            estimates[name] = how.ratio(counts[top], counts[bottom], problems)
        for name, (top, bottom) in _CHANCES.items():
            estimates[name] = sums[top] / sums[bottom] if sums[bottom] else None
        entries.append(
            SpikeRecovery(
                checkpoint=checkpoint,
                divergence=divergence,
                method=method,
                num_spikes=int(sums["spikes"]),
                **estimates,
            )
        )
    return tuple(entries)


def _counts(sequences: Sequence[Response], spikes: Sequence[Sequence[Spike]]) -> dict[str, Array]:
    """Return the counts of each rollout, and what they would be by chance."""
    rows = []
    for sequence, own in zip(sequences, spikes, strict=True):
        positions = {spike.position for spike in own}
        # A spike at a wrong token is a hit; by chance each is anywhere in its rollout.
        num, num_wrong, length = len(positions), len(sequence.wrong), len(sequence.sampled_positions)
        hits = len(positions & sequence.wrong.keys())
        rows.append(
            {
                "spikes": num,
                "wrong": num_wrong,
                "rollouts": 1,
                "hits": hits,
                "twice_hits": 2 * hits,
                "spikes_and_wrong": num + num_wrong,
                "first_hits": sequence.first_wrong in positions,
                "rollouts_hit": hits > 0,
                "chance_hits": num * num_wrong / length,
                "chance_first_hits": num / length,
            }
        )
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
