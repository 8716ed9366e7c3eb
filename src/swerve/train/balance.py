"""Which process learns from which sequences: equal estimated work, and groups together as far as that allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from transformers import PreTrainedConfig

from swerve.models.folder_checks import layer_configs

_CLOSE = 1.01
"""Nothing more is moved once the most loaded rank has so many times the mean."""


class RowWork(NamedTuple):
    """What one row takes: a sequence, or some that stay together. In FLOPs of a forward pass."""

    group: int
    """Rows of one group share a prompt."""
    prompt: int
    """Of reading the prompt, which each rank does once for all of its rows of the group."""
    own: int
    """Of everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEstimate:
    """FLOPs of a model's forward pass; a backward pass takes twice as many."""

    per_token: int
    """In the layers, attention left out."""
    per_completion_token: int
    """In the output head."""
    per_pair: int
    """In attention, of a token that attends to another or to itself."""
    shares_prompts: bool
    """Whether a prompt that follows itself is read once, as in packed rows."""

    @classmethod
    def of(cls, config: PreTrainedConfig, *, packs: bool) -> WorkEstimate:
        """Return the estimate for a model, from the sizes that its configuration names.

        Args:
            config: the model's.
            packs: whether it reads packed rows.
        """
        text: Any = config.get_text_config()
        layer, layers, size = layer_configs(config)[0], text.num_hidden_layers, text.hidden_size
        heads = getattr(layer, "num_attention_heads", 0)
        width = heads * (getattr(layer, "head_dim", None) or size // max(1, heads))
        keys = width * (getattr(layer, "num_key_value_heads", None) or heads) // max(1, heads)
        inner = getattr(layer, "moe_intermediate_size", None) or getattr(layer, "intermediate_size", None) or 4 * size
        inner *= getattr(layer, "num_experts_per_tok", None) or 1
        return cls(
            per_token=2 * layers * size * (2 * width + 2 * keys + 3 * inner),
            per_completion_token=2 * size * text.vocab_size,
            per_pair=4 * layers * width,
            shares_prompts=packs,
        )

    def row(self, group: int, num_prompt: int, *num_completion: int) -> RowWork:
        """Return the work of a prompt's completions that stay together, all lengths in tokens.

        >>> estimate = WorkEstimate(per_token=10, per_completion_token=5, per_pair=1, shares_prompts=True)
        >>> estimate.row(0, 4, 2)  # 4 prompt tokens; 2 tokens with the head and attention over 6: 1 + 2 + ... + 6
        RowWork(group=0, prompt=40, own=51)
        """
        lengths = [num_prompt + num for num in num_completion]
        own = sum(num_completion) * (self.per_token + self.per_completion_token)
        own += self.per_pair * sum(length * (length + 1) // 2 for length in lengths)
        prompt = num_prompt * self.per_token
        return RowWork(group, prompt, own) if self.shares_prompts else RowWork(group, 0, own + len(lengths) * prompt)


class _Share:
    """The rows of one rank, with their work."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.load = 0
        self._num_of_group: Counter[int] = Counter()

    def added(self, work: RowWork) -> int:
        """Return what one more row would add."""
        return work.own + (0 if self._num_of_group[work.group] else work.prompt)

    def saved(self, work: RowWork) -> int:
        """Return what one row less would save."""
        return work.own + (work.prompt if self._num_of_group[work.group] == 1 else 0)

    def add(self, row: int, work: RowWork) -> None:
        self.load += self.added(work)
        self._num_of_group[work.group] += 1
        self.rows.append(row)

    def remove(self, row: int, work: RowWork) -> None:
        self.load -= self.saved(work)
        self._num_of_group[work.group] -= 1
        self.rows.remove(row)


def deal(works: Iterable[RowWork], num_ranks: int) -> list[int]:
    """Return the rank of each row, so that the most loaded rank has as little to do as can be.

    The rows, in the order given, are cut into pieces of about equal work, a piece for each rank; then single rows move
    from the most to the least loaded rank while that lowers the larger of the two. The same arguments give the same
    ranks everywhere.

    Args:
        works: of each row; those of a group follow one another.
        num_ranks: number of processes.

    >>> deal([RowWork(0, 2, 5), RowWork(0, 2, 5), RowWork(1, 2, 6), RowWork(1, 2, 2), RowWork(1, 2, 2)], 2)
    [0, 0, 1, 1, 1]
    >>> works = [RowWork(0, 1, 3), RowWork(0, 1, 3), RowWork(1, 1, 9), RowWork(1, 1, 2), RowWork(1, 1, 2)]
    >>> deal(works, 2)  # the fourth one moves
    [0, 0, 1, 0, 1]
    """
    works = list(works)
    shares = _cut(works, num_ranks)
    total = sum(share.load for share in shares)
    while True:
        most, least = (choose(shares, key=lambda share: share.load) for choose in (max, min))
        if most.load * num_ranks <= _CLOSE * total or not _move_one(works, most, least):
            break
    ranks = [0] * len(works)
    for rank, share in enumerate(shares):
        for row in share.rows:
            ranks[row] = rank
    return ranks


def balanced_pieces(works: Sequence[RowWork], num: int, fits: Callable[[Sequence[int]], bool]) -> list[list[int]]:
    """Return the rows in pieces of about equal work, those with the most work first.

    Args:
        works: of each row; those of a group follow one another.
        num: of pieces; there are more where they must be smaller to fit, and fewer where there are fewer rows.
        fits: whether some rows may be one piece; one row always may.

    >>> works = [RowWork(row, 0, own) for row, own in enumerate([1, 2, 4, 3])]
    >>> balanced_pieces(works, 2, lambda rows: True)
    [[0, 2], [1, 3]]
    >>> balanced_pieces(works, 2, lambda rows: len(rows) < 2)
    [[2], [3], [1], [0]]
    """
    # One more piece, or some, as long as a piece does not fit; in the end every row is one.
    while num < len(works):
        dealt: list[list[int]] = [[] for _ in range(num)]
        for row, rank in enumerate(deal(works, num)):
            dealt[rank].append(row)
        if all(len(rows) < 2 or fits(rows) for rows in dealt):
            break
        num += 1 + num // 16
    else:
        dealt = [[row] for row in range(len(works))]
    return sorted(filter(None, dealt), key=lambda rows: -total_work(works[row] for row in rows))


def total_work(works: Iterable[RowWork]) -> int:
    """Return the work of some rows in one place.

    >>> total_work([RowWork(0, 2, 5), RowWork(0, 2, 6), RowWork(1, 3, 1)])
    17
    """
    share = _Share()
    for row, work in enumerate(works):
        share.add(row, work)
    return share.load


def _cut(works: Sequence[RowWork], num_ranks: int) -> list[_Share]:
    """Return the rows in pieces of about equal work."""
    prompts = {work.group: work.prompt for work in works}
    left = sum(prompts.values()) + sum(work.own for work in works)
    shares = [_Share() for _ in range(num_ranks)]
    number = 0
    for row, work in enumerate(works):
        share, ranks_left = shares[number], num_ranks - number
        # A row goes where more than half of it fits.
        if ranks_left > 1 and (2 * share.load + share.added(work)) * ranks_left > 2 * left:
            left -= share.load
            number += 1
        shares[number].add(row, work)
    return shares


def _move_one(works: Sequence[RowWork], most: _Share, least: _Share) -> bool:
    """Move the row that makes the larger of two loads smallest; return whether there is one."""

    def larger(row: int) -> int:
        return max(most.load - most.saved(works[row]), least.load + least.added(works[row]))

    row = min(most.rows, key=larger, default=None)
    if row is None or larger(row) >= most.load:
        return False
    most.remove(row, works[row])
    least.add(row, works[row])
    return True
