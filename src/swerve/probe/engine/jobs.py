"""A measurement's work laid out in units and comparisons, the checks before it, and its result.

The plan is the same in every process: units (forward batches), jobs (comparisons of two models over units), the order
in which models take their turns, and the keys under which results are stored.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.parts import digest_of
from swerve.batch import TokenSequence, token_batches
from swerve.config.probe import ProbeConfig
from swerve.errors import MismatchError
from swerve.functional.divergence import DivergenceStats
from swerve.functional.head_divergence import TopProbs
from swerve.models.sources import CheckedModel, ModelSource
from swerve.positions import max_positions
from swerve.probe.engine.forward import STATISTICS
from swerve.tokens import num_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats:
    """Statistics of every pair at every completion position, all sequences one after the other (N positions)."""

    stats: dict[tuple[str, str], DivergenceStats]
    """(checkpoint, reference) -> `[N]` each, on the CPU."""
    tops: dict[str, TopProbs]
    """Label -> `[N, K]`; empty without `top_k`."""
    noise: DivergenceStats | None
    """The null pair, `[M]` each: a model compared with itself, run in other batches."""
    noise_positions: Int[Tensor, " M"]
    """Which of the N positions the null pair covers."""
    vocabulary_sizes: dict[str, int]
    """Label -> logits of its head. A pair is compared over the smaller number of its two."""
    tokenizer: PreTrainedTokenizerBase
    """Of all models."""

    @property
    def pieces(self) -> list[str]:
        """Text of every token id, up to the largest of `vocabulary_sizes`."""
        return [str(self.tokenizer.decode([token])) for token in range(max(self.vocabulary_sizes.values()))]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """A comparison of two models, or of one model with itself, over some units."""

    labels: tuple[str, str]
    """(checkpoint P, reference Q); the same label twice in a null pair."""
    tops: tuple[bool, bool]
    """Whose most likely tokens this job delivers, so that every model's are delivered once."""
    units: tuple[int, ...]
    key: str

    @property
    def is_null(self) -> bool:
        """Whether it compares a model with itself."""
        return self.labels[0] == self.labels[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """All that follows from the arguments, the same in every process."""

    sources: Mapping[str, ModelSource]
    order: tuple[str, ...]
    """Labels in the order of their turns: the most compared one first, the others as given."""
    sequences: tuple[TokenSequence, ...]
    places: tuple[Sequence[int], ...]
    """Of each sequence the positions of its completion that are compared."""
    units: tuple[tuple[int, ...], ...]
    """The sequences of each forward batch."""
    jobs: tuple[MeasureJob, ...]
    state_keys: Mapping[str, str]
    checked: Mapping[str, CheckedModel]
    """What is known of each model before it is loaded."""

    def unit_sequences(self, unit: int) -> list[TokenSequence]:
        """Return a unit's (prompt ids, completion ids)."""
        return [self.sequences[row] for row in self.units[unit]]

    def unit_ids(self, unit: int) -> Int[Tensor, " N"]:
        """Return the tokens of a unit that are compared."""
        return torch.tensor([self.sequences[row][1][place] for row in self.units[unit] for place in self.places[row]])

    def unit_rows(self, unit: int) -> Int[Tensor, " N"]:
        """Return which of a unit's completion tokens are compared, all of them one sequence after the other."""
        starts = itertools.accumulate((len(completion) for _, completion in self.unit_sequences(unit)), initial=0)
        return torch.cat(
            [torch.tensor(self.places[row]) + start for row, start in zip(self.units[unit], starts, strict=False)]
        )

    def num_tokens(self, unit: int) -> int:
        """Return the number of tokens of a unit that are compared."""
        return sum(len(self.places[row]) for row in self.units[unit])

    @property
    def num_positions(self) -> int:
        """Number of tokens of all sequences that are compared."""
        return sum(map(len, self.places))

    def positions(self, units: Sequence[int]) -> Int[Tensor, " N"]:
        """Return, for every position of these units in turn, its number among the positions of all sequences."""
        lengths = torch.tensor([len(places) for places in self.places])
        starts = lengths.cumsum(0) - lengths
        rows = [row for unit in units for row in self.units[unit]]
        return torch.cat([torch.arange(int(lengths[row])) + starts[row] for row in rows])


def plan_measurement(
    models: Sequence[ModelSource],
    pairs: Sequence[tuple[str, str]],
    sequences: Sequence[TokenSequence],
    *,
    settings: ProbeConfig,
    noise_of: str | None,
    noise_tokens: int | None,
    kept: bool,
    positions: Sequence[Sequence[int]] | None = None,
) -> MeasurePlan:
    """Plan a measurement and check the models; no weight is loaded.

    Args:
        models: sources with labels of their own.
        pairs: (checkpoint, reference) by label.
        sequences: (prompt ids, completion ids).
        settings: batches, chunks, kernel and likeliest tokens.
        noise_of: model of the null pair.
        noise_tokens: its compared positions, at most (but at least one unit); None for all.
        kept: whether results go to a store. Only then do keys depend on content, which takes reading fingerprints; else
            labels do.
        positions: of each sequence those of its completion that are compared, at least one; None: all.

    Raises:
        ValueError: a label is given twice or is unknown, a pair is of a model with itself or given twice, there are
            no pairs or no sequences, or a sequence has an empty part.
        MismatchError: the models of a pair have different tokenizers, or one lacks an id or has too few positions.
    """
    _check(models, pairs, sequences, noise_of)
    order = turn_order([model.label for model in models], pairs, noise_of=noise_of)
    sources = {model.label: model for model in models if model.label in order}
    units = tuple(
        batch.rows for batch in token_batches(sequences, pad_id=0, tokens_per_batch=settings.tokens_per_batch)
    )
    # Pairs first: where tokenizers differ, an id that a model lacks is only the consequence.
    checked = {label: sources[label].check() for label in order}
    for pair in pairs:
        check_pair(pair, (checked[pair[0]], checked[pair[1]]), sequences)
    for label in order:
        check_sequences(label, checked[label], sequences)

    # What is kept is named by its content; in memory labels tell the models apart.
    places = tuple(positions or (range(len(completion)) for _, completion in sequences))
    ids = [[[int(token) for token in part] for part in pair] for pair in sequences]
    content = digest_of("sequences", ids, [*map(list, places)], [list(unit) for unit in units]) if kept else ""
    state_keys = {
        label: digest_of("states", content, source.fingerprint if kept else label) for label, source in sources.items()
    }
    variant = [settings.tokens_per_chunk, settings.kernel, settings.top_k, list(STATISTICS)]

    # Each model's most likely tokens are delivered by the first pair that has it.
    jobs: list[MeasureJob] = []
    delivered: set[str] = set()
    for pair in pairs:
        tops = (pair[0] not in delivered, pair[1] not in delivered)
        delivered |= set(pair)
        key = digest_of("pair", [state_keys[label] for label in pair], list(tops), variant)
        jobs.append(MeasureJob(labels=pair, tops=tops, units=tuple(range(len(units))), key=key))
    if noise_of is not None:
        sizes = [sum(len(places[row]) for row in unit) for unit in units]
        key = digest_of("null", state_keys[noise_of], variant)
        chosen = _spread_units(sizes, noise_tokens)
        jobs.append(MeasureJob(labels=(noise_of, noise_of), tops=(False, False), units=chosen, key=key))
    return MeasurePlan(
        sources=sources,
        order=order,
        sequences=tuple(sequences),
        places=places,
        units=units,
        jobs=tuple(jobs),
        state_keys=state_keys,
        checked=checked,
    )


def _spread_units(sizes: Sequence[int], num_tokens: int | None) -> tuple[int, ...]:
    """Return every unit, or every n-th so that the positions are at most `num_tokens`; units are sorted by length."""
    everything = range(len(sizes))
    for step in everything:
        units = everything[step // 2 :: step + 1]
        if num_tokens is None or sum(sizes[unit] for unit in units) <= num_tokens:
            return tuple(units)
    return (len(sizes) // 2,)


def turn_order(labels: Sequence[str], pairs: Sequence[tuple[str, str]], *, noise_of: str | None) -> tuple[str, ...]:
    """Return the labels in the order of their turns: the most compared one first, the others as given.

    >>> turn_order(["sft", "dpo", "rl"], [("dpo", "sft"), ("rl", "dpo")], noise_of=None)
    ('dpo', 'sft', 'rl')
    """
    num = Counter([label for pair in pairs for label in pair] + ([noise_of] if noise_of else []))
    used = [label for label in labels if label in num]
    return tuple(sorted(used, key=lambda label: num[label] < max(num.values())))


def _check(
    models: Sequence[ModelSource],
    pairs: Sequence[tuple[str, str]],
    sequences: Sequence[TokenSequence],
    noise_of: str | None,
) -> None:
    known = [model.label for model in models]
    if len(set(known)) < len(known):
        raise ValueError(f"every model needs a label of its own, got {', '.join(known)}")
    if not pairs or not sequences:
        raise ValueError(f"there are no {'sequences' if pairs else 'pairs of models'} to measure; give at least one")
    for label in [*(label for pair in pairs for label in pair), *([noise_of] if noise_of else [])]:
        if label not in known:
            raise ValueError(f"there is no model '{label}'; there are {', '.join(known)}")
    for pair in pairs:
        if pair[0] == pair[1]:
            raise ValueError(f"{pair[0]} cannot be paired with itself; noise_of compares a model with itself")
    if len(set(pairs)) < len(pairs):
        raise ValueError("a pair is given twice")


def check_pair(
    labels: tuple[str, str], models: tuple[CheckedModel, CheckedModel], sequences: Sequence[TokenSequence]
) -> None:
    """Raise MismatchError unless two models can be compared.

    Tokens beyond two heads of one size neither model reads or writes.

    Raises:
        MismatchError: their tokenizers differ, or have tokens beyond the smaller of two heads; the message names both
            models, and an id that stands for other tokens, of the sequences if possible.
    """
    # Every id must stand for the same token.
    sizes = [model.vocabulary_size for model in models]
    own, theirs = ({index: token for token, index in model.tokenizer.get_vocab().items()} for model in models)
    differing = sorted(index for index in {*own, *theirs} if own.get(index) != theirs.get(index))
    if differing:
        what = f"the tokenizers of {labels[0]} and {labels[1]} differ"
        if sizes[0] != sizes[1]:
            what = f"{labels[0]} has a vocabulary of {sizes[0]} tokens and {labels[1]} one of {sizes[1]}"
        used = {token for prompt, completion in sequences for token in (*prompt, *completion)}
        first = next((index for index in differing if index in used), differing[0])
        raise MismatchError(
            f"{what}; only models with the same tokenizer can be compared: {len(differing)} ids stand for other "
            f"tokens, {len(used & set(differing))} of them in the responses, such as {first}: {own.get(first)!r} in "
            f"{labels[0]}, {theirs.get(first)!r} in {labels[1]}"
        )

    # Heads of two sizes must differ by padding only.
    largest_id = num_ids(models[0].tokenizer) - 1
    if largest_id >= min(sizes) < max(sizes):
        raise MismatchError(
            f"{labels[0]} and {labels[1]} share {min(sizes)} tokens, but their tokenizer has the id "
            f"{largest_id}; compare models that cover the whole tokenizer"
        )


def check_sequences(label: str, model: CheckedModel, sequences: Sequence[TokenSequence]) -> None:
    """Raise unless a model has every token id of some sequences, and positions for the longest.

    Raises:
        MismatchError: it lacks an id, or has too few positions: rotary ones could be computed, but mean nothing.
    """
    largest_id = max((max(*prompt, *completion) for prompt, completion in sequences), default=0)
    if largest_id >= model.vocabulary_size:
        raise MismatchError(
            f"the sequences have the token id {largest_id}, but {label} has {model.vocabulary_size} tokens; tokenise "
            "the sequences with the models' own tokenizer"
        )
    longest = max((len(prompt) + len(completion) for prompt, completion in sequences), default=0)
    limit = max_positions(model.config)
    if limit is not None and longest > limit:
        raise MismatchError(
            f"a sequence has {longest} tokens, prompt and completion, but {label} has {limit} positions; "
            "leave longer ones out, or compare models that can read them"
        )
