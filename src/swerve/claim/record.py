"""The claim card (`claim.json`): what RL changed, question by question. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swerve.artifacts.record import Record
from swerve.artifacts.tables import import_pandas
from swerve.claim.accuracy import AccuracyPart
from swerve.claim.answers import AnswersPart
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
from swerve.estimates import Estimate


class ProblemRow(Row):
    """How many of the samples of a problem are right."""

    problem: str
    base_right: Count
    base_samples: Count
    trained_right: Count
    trained_samples: Count


class ClaimCard(Record):
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

    def to_pandas(self, table: str = "verdicts") -> Any:
        """Return a table as a data frame: `verdicts`, `by_problem`, or `part.table`, such as `accuracy.pass_at_k`.

        Raises:
            ConfigError: there is no such table.
            MissingExtraError: pandas is not installed.
        """
        tables: dict[str, Sequence[Record]] = {"verdicts": self.verdicts, "by_problem": self.by_problem}
        tables |= {f"{name}.{table}": rows for name, part in self.parts for table, rows in part.tables}
        if table not in tables:
            raise ConfigError(f"the card has no table '{table}'{nearest(table, tables)}; it has {', '.join(tables)}")
        rows = []
        for record in tables[table]:
            cells: dict[str, Any] = {}
            for name, value in record:
                if isinstance(value, Estimate):
                    cells |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
                else:
                    cells[name] = value
            rows.append(cells)
        return import_pandas().DataFrame(rows)
