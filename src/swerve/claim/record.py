"""The claim card (`claim.json`): what RL changed, question by question. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from swerve.artifacts.excerpts import AskedProblem
from swerve.artifacts.frames import Framed, flat_cells, polars_frame, table_of_rows
from swerve.artifacts.record import Record
from swerve.artifacts.tables import data_frame
from swerve.claim.accuracy import AccuracyPart
from swerve.claim.answers import AnsweredProblem, AnswersPart
from swerve.claim.behaviour import BehaviourPart
from swerve.claim.contamination import ContaminationPart
from swerve.claim.controls import ControlsPart
from swerve.claim.forgetting import ForgettingPart
from swerve.claim.gained import GainedPart
from swerve.claim.part import Count, Part, Row
from swerve.claim.prompts import PromptsPart
from swerve.claim.reasoning import ReasoningPart
from swerve.claim.runs import RunsPart
from swerve.claim.verdicts import ClaimVerdict
from swerve.claim.weights import WeightsPart
from swerve.errors import ConfigError, nearest
from swerve.notebook import html_rows
from swerve.text import counted

if TYPE_CHECKING:
    import polars
    from pandas import DataFrame


class ProblemRow(Row):
    """How many of the samples of a problem are right."""

    problem: str
    base_right: Count
    base_samples: Count
    trained_right: Count
    trained_samples: Count
    group: str = ""
    """Name of what it counts as in intervals, of problems in groups."""


_WORDS = {True: "shown", False: "not shown", None: "not determined"}


class ClaimCard(Framed, Record):
    """What RL changed, with the minimum standard of evidence."""

    base: str
    """Label of the model before."""
    trained: str
    task: str
    num_problems: int
    num_groups: int | None = None
    """Of the problems, as which they count; None: no problem has a group."""
    num_alike: int = 0
    """Problems that differ only in their numbers, where these make intervals too narrow and none has a group."""
    num_samples: int
    inputs: str
    """Digest of models, problems and settings."""
    contents: tuple[str, ...] | None = None
    """Digests of the models, or of the files: the base's, then those of each run."""
    made: tuple[str, ...] = ()
    """When and with what it was written: the day, versions, and the command."""
    files: Mapping[str, str] = {}
    """SHA-256 of each file that it rests on, by its path below the card's folder."""
    by_problem: tuple[ProblemRow, ...] = ()
    """What its lines on samples were made of."""
    answers_by_problem: tuple[AnsweredProblem, ...] = ()
    """What the parts of the gain were made of."""
    written: tuple[AskedProblem, ...] = ()
    """Answers to these problems, up to a bound, those first on which the models differ most."""
    accuracy: AccuracyPart = AccuracyPart()
    runs: RunsPart = RunsPart()
    prompts: PromptsPart = PromptsPart()
    gained: GainedPart = GainedPart()
    answers: AnswersPart = AnswersPart()
    contamination: ContaminationPart = ContaminationPart()
    forgetting: ForgettingPart = ForgettingPart()
    behaviour: BehaviourPart = BehaviourPart()
    weights: WeightsPart = WeightsPart()
    reasoning: ReasoningPart = ReasoningPart()
    controls: ControlsPart = ControlsPart()

    _folder: ClassVar[TemporaryDirectory[str] | None] = None
    """Of one card, which `in_temporary` made, where it is; no field of the record."""

    @property
    def parts(self) -> Iterator[tuple[str, Part]]:
        """Its parts by name, in the order of the page."""
        for name in self.kinds():
            yield name, getattr(self, name)

    @classmethod
    def kinds(cls, names: Sequence[str] = ()) -> dict[str, type[Part]]:
        """Return the parts that a card can have, or those of them that are named, in the order of the page.

        Raises:
            ConfigError: there is no part of a name.
        """
        fields = {name: field.annotation for name, field in cls.model_fields.items()}
        kinds = {name: kind for name, kind in fields.items() if isinstance(kind, type) and issubclass(kind, Part)}
        for name in names:
            if name not in kinds:
                raise ConfigError(f"there is no part {name!r}{nearest(name, kinds)}; a card has {', '.join(kinds)}")
        return {name: kind for name, kind in kinds.items() if not names or name in names}

    @property
    def verdicts(self) -> list[ClaimVerdict]:
        """All lines, in the order of the page."""
        return [verdict for _, part in self.parts for verdict in part.verdicts]

    def to_pandas(self, table: str = "verdicts") -> DataFrame:
        """Return `table(table)` as a data frame of pandas.

        Raises:
            ConfigError: there is no such table.
            MissingExtraError: pandas is not installed.
        """
        return data_frame(self.table(table))

    def to_polars(self, table: str = "verdicts") -> polars.DataFrame:
        """Return `table(table)` as a data frame of polars.

        Raises:
            ConfigError: there is no such table.
            MissingExtraError: polars is not installed.
        """
        return polars_frame(self.table(table))

    def __repr__(self) -> str:
        """Return three lines: what the card is of, what it shows, what it does not; a fourth names a temporary page."""
        counts = Counter(_WORDS[verdict.shown] for verdict in self.verdicts)
        lines = [verdict.sentence for verdict in self.verdicts if verdict.shown]
        title = (
            f"ClaimCard of {self.trained} against {self.base}, {counted(self.num_problems, 'problem')} of {self.task}"
        )
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        shown = [title, said or "nothing was asked", lines[0] if lines else "Nothing is shown."]
        return "\n".join(shown if self._folder is None else [*shown, self._kept()])

    def _instead_of(self, name: str) -> str | None:
        if name in ("to_dict", "to_json", "json", "dict"):
            return "model_dump() is a mapping of it, model_dump_json() a text"
        return "swerve.claim(..., out=FOLDER) keeps a card" if name == "save" else None

    def _kept(self) -> str:
        return "" if self._folder is None else f"{self._folder.name}/index.html lasts as long as this; out= keeps it"

    def in_temporary(self, folder: TemporaryDirectory[str]) -> ClaimCard:
        """Return the card with the folder of its page and samples, which lasts as long as the card."""
        card = self.model_copy()
        object.__setattr__(card, "_folder", folder)
        return card

    def _repr_html_(self) -> str:
        """Return its lines as a table."""
        rows = [(_WORDS[verdict.shown], verdict.sentence) for verdict in self.verdicts]
        return html_rows(rows if self._folder is None else [*rows, ("page", self._kept())])

    def table(self, table: str = "verdicts") -> pa.Table:
        """Return a table: `verdicts`, `by_problem`, or `part.table`, such as `accuracy.pass_at_k`.

        Raises:
            ConfigError: there is no such table.
        """
        tables: dict[str, Sequence[Record]] = {"verdicts": self.verdicts, "by_problem": self.by_problem}
        tables |= {f"{name}.{table}": rows for name, part in self.parts for table, rows in part.tables}
        if table not in tables:
            raise ConfigError(f"the card has no table '{table}'{nearest(table, tables)}; it has {', '.join(tables)}")
        return table_of_rows(map(flat_cells, tables[table]))
