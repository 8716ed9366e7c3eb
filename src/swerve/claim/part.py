"""A question of the claim card: its records, what it needs and costs, and how it is measured. Free of torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, NamedTuple

from swerve.artifacts.record import Record
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import ClaimVerdict
from swerve.claim.work import Work
from swerve.estimates import Estimate

# The second argument says how a number is written: in percent, in points, as it is, or as a whole number.
_Figure = Estimate | float | None
Share = Annotated[_Figure, "share"]
Points = Annotated[_Figure, "points"]
Number = Annotated[_Figure, "number"]
Count = Annotated[int | None, "count"]
Chance = Annotated[float, "share"]


class Cost(NamedTuple):
    """What a part takes beside the samples of the card."""

    samples: int = 0
    sequences: int = 0
    """That a model reads."""


class Row(Record):
    """A row of one of a card's tables: a field for each column, the first its name."""


class Part(Record):
    """One question of the card, the first line of its docstring. A field that is a tuple of rows is a table."""

    needs_models: ClassVar[bool] = True
    """Whether files of samples are not enough."""
    is_of_samples: ClassVar[bool] = False
    """Whether it rests on the samples at temperature 1."""

    verdicts: tuple[ClaimVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    """What limits it, a sentence each."""
    missing: str = ""
    """Why it was not measured, or what more would need; empty: it was."""

    @classmethod
    @abstractmethod
    def measure(cls, work: Work) -> Part:
        """Return this part.

        Raises:
            NotMeasuredError: it lacks something; the message says what it needs.
            ElsewhereError: other shards have samples that it needs.
        """

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes with some settings, of so many problems and runs of the training."""
        return Cost()

    @classmethod
    def question(cls) -> str:
        """Return what it answers."""
        return str(cls.__doc__).partition("\n")[0]

    def facts(self, base: str, trained: str) -> Sequence[str]:
        """Return what it says that is no claim, a sentence each.

        Args:
            base: label of the model before.
            trained: label of the model after.
        """
        return ()

    @property
    def is_measured(self) -> bool:
        """Whether there is anything in it: it was asked for, and could be measured."""
        return not self.missing and self != type(self)()

    @property
    def tables(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """Its tables by name, those without a row left out."""
        for name in type(self).model_fields:
            rows = getattr(self, name)
            if isinstance(rows, tuple) and rows and isinstance(rows[0], Row):
                yield name, rows
