"""The measurements of a plan, held by column, and their tables `tokens.parquet` and `topk.parquet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from swerve.artifacts.probe_claims import NoiseModels
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import TOKENS_SCHEMA, TOPK_SCHEMA
from swerve.functional.divergence import DivergenceStats
from swerve.functional.head_divergence import TopProbs
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.measure import measure, shared_progress
from swerve.probe.engine.noise import measure_noise
from swerve.probe.intervals import Intervals, TokenIntervals
from swerve.probe.plan import ProbePlan
from swerve.progress import Progress
from swerve.token_categories import token_categories
from swerve.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What was measured of one checkpoint against its reference on N completion tokens."""

    checkpoint: str
    reference: str
    columns: Mapping[str, NDArray[Any]]
    """Each of `STATISTICS`, `[N]`."""

    def nats(self, name: str) -> NDArray[np.float64]:
        """Return a column in double precision."""
        return self.columns[name].astype(np.float64)

    @property
    def moves(self) -> NDArray[np.float64]:
        """`[N]`: logprob - logprob_ref of each token, nats; NaN where one of the two is infinite."""
        own, reference = self.nats("logprob"), self.nats("logprob_ref")
        finite = np.isfinite(own) & np.isfinite(reference)
        return np.where(finite, np.where(finite, own, 0.0) - np.where(finite, reference, 0.0), np.nan)

    @property
    def argmax_changed(self) -> NDArray[np.bool_]:
        """`[N]`: do the two models differ in their most likely token."""
        return np.asarray(self.columns["argmax"] != self.columns["argmax_ref"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What was measured at K checkpoints on N tokens: those that the models sampled of all sequences, in turn."""

    sequences: tuple[Response, ...]
    checkpoints: tuple[str, ...]
    """Labels, K of them."""
    references: tuple[str, ...]
    """Label of the other model of each pair, K of them; all the same unless the pairs are consecutive checkpoints."""
    columns: dict[str, NDArray[Any]]
    """Each of `STATISTICS`, `[K, N]`."""
    categories: tuple[str, ...]
    """One a token, N of them."""
    intervals: Intervals = field(default_factory=Intervals)
    """How intervals of metrics are made."""

    @property
    def over(self) -> TokenIntervals:
        """Metrics over some of the tokens, with intervals over their problems, in order of first appearance."""
        names = {name: index for index, name in enumerate(dict.fromkeys(self.problem_ids))}
        of_sequences = np.array([names[sequence.problem.id] for sequence in self.sequences], dtype=np.int64)
        return TokenIntervals(problems=np.repeat(of_sequences, self.lengths), intervals=self.intervals)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each sequence."""
        return np.array([len(sequence.sampled_positions) for sequence in self.sequences], dtype=np.int64)

    @property
    def sequence_index(self) -> NDArray[np.int64]:
        """`[N]`: which sequence each token belongs to."""
        return np.repeat(np.arange(len(self.sequences)), self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """`[N]`: each token's position in its completion."""
        positions = (np.array(sequence.sampled_positions, dtype=np.int64) for sequence in self.sequences)
        return np.concatenate([np.arange(0), *positions])

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """`[N]`."""
        return np.array(
            [sequence.completion_ids[t] for sequence in self.sequences for t in sequence.sampled_positions],
            dtype=np.int64,
        )

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """`[N]`: does the token belong to a step known to be wrong."""
        return np.array(
            [t in sequence.wrong for sequence in self.sequences for t in sequence.sampled_positions], dtype=bool
        )

    @property
    def first_wrong(self) -> NDArray[np.bool_]:
        """`[N]`: is the token the first of its sequence that belongs to a wrong step."""
        return np.array(
            [t == sequence.first_wrong for sequence in self.sequences for t in sequence.sampled_positions], dtype=bool
        )

    @property
    def turns(self) -> NDArray[np.int64]:
        """`[N]`: the turn of each token, from 1."""
        return np.array([turn for sequence in self.sequences for turn in sequence.turn_numbers], dtype=np.int64)

    @property
    def in_marked_rollouts(self) -> NDArray[np.bool_]:
        """`[N]`: is the token of a rollout with a step known to be wrong."""
        return np.repeat([bool(sequence.wrong) for sequence in self.sequences], self.lengths).astype(np.bool_)

    @property
    def problem_ids(self) -> list[str]:
        """The problem of each token, N of them."""
        return [sequence.problem.id for sequence in self.sequences for _ in sequence.sampled_positions]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each sequence begins among the N tokens."""
        return np.cumsum(self.lengths) - self.lengths

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Return one value a token, cut into one array a sequence."""
        return np.split(values, self.starts[1:]) if self.sequences else []

    def pairs(self) -> Iterator[Pair]:
        """Go through the pairs, each checkpoint with its reference."""
        for index, (checkpoint, reference) in enumerate(zip(self.checkpoints, self.references, strict=True)):
            columns = {name: column[index] for name, column in self.columns.items()}
            yield Pair(checkpoint=checkpoint, reference=reference, columns=columns)

    def pair(self, checkpoint: str) -> Pair:
        """Return the first pair with this checkpoint."""
        return next(pair for pair in self.pairs() if pair.checkpoint == checkpoint)

    def by_sequence(self, name: str, checkpoint: str) -> list[NDArray[Any]]:
        """Return a column at one checkpoint, cut into one array a sequence."""
        return self.split(self.pair(checkpoint).columns[name])

    def pick(self, wanted: Callable[[str, str], bool]) -> Measurements:
        """Return the pairs (checkpoint, reference) for which `wanted` holds, in the same order."""
        pairs = list(zip(self.checkpoints, self.references, strict=True))
        kept = [index for index, pair in enumerate(pairs) if wanted(*pair)]
        return replace(
            self,
            checkpoints=tuple(self.checkpoints[index] for index in kept),
            references=tuple(self.references[index] for index in kept),
            columns={name: column[kept] for name, column in self.columns.items()},
        )

    def select(self, wanted: Callable[[Response], bool]) -> Measurements:
        """Return the part of the sequences for which `wanted` holds, in the same order."""
        kept = np.array([wanted(sequence) for sequence in self.sequences], dtype=np.bool_)
        tokens = np.repeat(kept, self.lengths)
        return replace(
            self,
            sequences=tuple(sequence for sequence, keep in zip(self.sequences, kept.tolist(), strict=True) if keep),
            columns={name: column[:, tokens] for name, column in self.columns.items()},
            categories=tuple(name for name, keep in zip(self.categories, tokens.tolist(), strict=True) if keep),
        )


def stack_measurements(
    sequences: Sequence[Response], stats: dict[tuple[str, str], DivergenceStats], categories: Sequence[str]
) -> Measurements:
    """Put the statistics of each pair (labels of checkpoint and reference) side by side."""
    columns = {name: np.stack([getattr(own, name).numpy() for own in stats.values()]) for name in STATISTICS}
    return Measurements(
        sequences=tuple(sequences),
        checkpoints=tuple(checkpoint for checkpoint, _ in stats),
        references=tuple(reference for _, reference in stats),
        columns=columns,
        categories=tuple(categories),
    )


def labels(values: Sequence[str], repeats: NDArray[Any]) -> pa.DictionaryArray:
    """Return `values[repeats]` as a column of labels, each distinct label stored once."""
    names = list(dict.fromkeys(values))
    codes = np.array([names.index(value) for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes[repeats]), pa.array(names, pa.string()))


def _places(data: Measurements, times: int) -> dict[str, NDArray[Any]]:
    """Return the columns that say which token each row is of, every token so many times in a row."""
    ids = np.array([sequence.sequence_id for sequence in data.sequences])
    return {
        "sequence_id": np.repeat(ids[data.sequence_index], times),
        "position": np.repeat(data.positions, times),
    }


def token_table(data: Measurements) -> pa.Table:
    """Return `tokens.parquet`: one row a token and checkpoint, by sequence, position and checkpoint."""
    num_checkpoints, num_tokens = len(data.checkpoints), len(data.categories)
    names, categories = np.unique(np.array(data.categories, dtype=np.str_), return_inverse=True)
    # The pairs of a token stand one after the other.
    pairs = np.tile(np.arange(num_checkpoints), num_tokens)
    columns = {
        **_places(data, num_checkpoints),
        "token_id": np.repeat(data.token_ids, num_checkpoints),
        "checkpoint": labels(data.checkpoints, pairs),
        "reference": labels(data.references, pairs),
        **{name: column.T.reshape(-1) for name, column in data.columns.items()},
        "category": labels(names.tolist(), np.repeat(categories, num_checkpoints)),
    }
    return pa.table({name: columns[name] for name in TOKENS_SCHEMA.names})


def topk_table(data: Measurements, tops: dict[str, TopProbs], pieces: Sequence[str]) -> pa.Table:
    """Return `topk.parquet`: one row a token and model (by label), by sequence, position and model.

    Args:
        data: the rollouts.
        tops: the most likely tokens of each model at all N tokens.
        pieces: the text of every token of the vocabulary.
    """
    probs = np.stack([top.probs.numpy() for top in tops.values()], axis=1).astype(np.float32)  # [N, models, k]
    ids = pa.array(np.stack([top.ids.numpy() for top in tops.values()], axis=1).reshape(-1).astype(np.int32))
    num_tokens, num_models, k = probs.shape
    offsets = pa.array(np.arange(num_tokens * num_models + 1, dtype=np.int32) * k)
    names = pa.DictionaryArray.from_arrays(ids, pa.array(list(pieces), pa.string()))
    columns = {
        **_places(data, num_models),
        "checkpoint": labels(list(tops), np.tile(np.arange(num_models), num_tokens)),
        "token_ids": pa.ListArray.from_arrays(offsets, ids),
        "tokens": pa.ListArray.from_arrays(offsets, names.cast(pa.string())),
        "probs": pa.ListArray.from_arrays(offsets, pa.array(probs.reshape(-1))),
    }
    return pa.table({name: columns[name] for name in TOPK_SCHEMA.names})


MAX_NOISE_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured on all rollouts of a plan."""

    pairs: Measurements
    """Every pair: each checkpoint against the reference, consecutive ones, the reference against the baseline."""
    null: Measurements
    """The reference against itself, run in other batches, on whole rollouts."""
    noise_models: NoiseModels
    """The reference with random directions in the place of what training changed."""
    noise: Measurements | None
    """Those against the reference, on the headline population; None: there are none."""
    tops: dict[str, TopProbs]
    """By label: the likeliest tokens of the reference and the checkpoints at every position."""
    pieces: list[str]
    """Text of every token id."""
    vocabulary_size: int
    """Number of tokens that the distributions are over."""

    def against(self, reference: str) -> Measurements:
        """Return the pairs with this reference."""
        return self.pairs.pick(lambda _, other: other == reference)


def plan_pairs(plan: ProbePlan) -> list[tuple[str, str]]:
    """Return the pairs (checkpoint, reference) that a plan asks for, by label, each once."""
    labels = [source.label for source in plan.checkpoints]
    pairs = [(label, plan.reference.label) for label in labels]
    if "consecutive" in plan.recipe.probe.pairs:
        pairs += zip(labels[1:], labels, strict=False)
    if plan.baseline is not None:
        pairs.append((plan.reference.label, plan.baseline.label))
    return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def measure_plan(plan: ProbePlan, *, store: Path | None, world: World | None, progress: Progress) -> Measurement:
    """Run every model of a plan once over all rollouts, and noise models over those of the headline population.

    All processes must call it.

    Raises:
        MismatchError: the models have different tokenizers or vocabularies.
        CheckpointError: a model is missing or damaged.
        MissingShardsError: see `measure`.
    """
    models, together = plan.models, world or World()
    positions = [sequence.sampled_positions for sequence in plan.sequences]
    total = len(models) * sum(map(len, positions))
    num_sharing = plan.shard.total if plan.shard.is_share else together.size
    with progress.task("probe", total) as task, shared_progress(task, total, num_sharing) as advance:
        measured = measure(
            models,
            plan_pairs(plan),
            [(sequence.prompt_ids, sequence.completion_ids) for sequence in plan.sequences],
            settings=plan.recipe.probe,
            store=store,
            noise_of=plan.reference.label,
            noise_tokens=MAX_NOISE_TOKENS,
            world=together,
            shard=plan.shard,
            on_tokens=advance,
            positions=positions,
        )
    categories: list[str] = []
    for sequence in plan.sequences:
        named = token_categories(sequence.text or "", sequence.spans)
        categories += compress(named, sequence.sampled) if sequence.sampled else named
    assert measured.noise is not None, "asked for above"
    pairs = replace(
        stack_measurements(plan.sequences, measured.stats, categories),
        intervals=Intervals(confidence=plan.confidence, max_entropy=math.log(min(measured.vocabulary_sizes.values()))),
    )
    headline = pairs.select(lambda sequence: sequence.population == plan.population)
    last = headline.pair(plan.final)
    noise_models, noise = measure_noise(
        plan, float(last.nats(plan.recipe.probe.divergence).mean()), store=store, world=together, progress=progress
    )
    return Measurement(
        pairs=pairs,
        null=_null(plan, measured.noise, measured.noise_positions.numpy(), categories),
        noise_models=noise_models,
        noise=replace(stack_measurements(headline.sequences, noise, headline.categories), intervals=pairs.intervals)
        if noise
        else None,
        tops=measured.tops,
        pieces=measured.pieces,
        vocabulary_size=min(measured.vocabulary_sizes.values()),
    )


def _null(plan: ProbePlan, stats: DivergenceStats, positions: NDArray[Any], categories: Sequence[str]) -> Measurements:
    """Return the null pair on the rollouts it covers."""
    ends = np.cumsum([len(sequence.sampled_positions) for sequence in plan.sequences])
    known = set(positions.tolist())
    covered: list[Response] = [
        sequence for sequence, end in zip(plan.sequences, ends.tolist(), strict=True) if end - 1 in known
    ]
    label = plan.reference.label
    return stack_measurements(covered, {(label, label): stats}, [categories[index] for index in positions.tolist()])
