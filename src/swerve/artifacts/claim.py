"""The claim card (`claim.json`): what RL changed, question by question, as typed records. Free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from swerve.artifacts.record import Record
from swerve.artifacts.tables import import_pandas
from swerve.errors import ConfigError, nearest
from swerve.estimates import Estimate

PartName = Literal[
    "accuracy",
    "runs",
    "gained",
    "answers",
    "contamination",
    "forgetting",
    "behaviour",
    "weights",
    "reasoning",
    "controls",
]

# The second argument says how a number is written: in percent, in points, as it is, or as a whole number.
_Figure = Estimate | float | None
Share = Annotated[_Figure, "share"]
Points = Annotated[_Figure, "points"]
Number = Annotated[_Figure, "number"]
Count = Annotated[int | None, "count"]

QUESTIONS: dict[PartName, str] = {
    "accuracy": "Did accuracy rise?",
    "runs": "Does it hold over runs?",
    "gained": "What was gained and lost?",
    "answers": "Is it format or length?",
    "contamination": "Is it contamination?",
    "forgetting": "What was forgotten?",
    "behaviour": "Where did behaviour change?",
    "weights": "What changed in the weights?",
    "reasoning": "Does the reasoning matter?",
    "controls": "Would any reward have done it?",
}
"""What each part of a card answers."""


class Row(Record):
    """A row of one of a card's tables: a field for each column, the first its name."""


class Verdict(Record):
    """A line of the card: a claim that is shown, or is not, or cannot be judged from what was given."""

    claim: str
    """A key of `claim_rates`: each is judged on planted models before it is printed."""
    of: str = ""
    """What it is about, where a card makes it several times: a model, a task, a rank."""
    shown: bool | None
    """False: not shown, which is not its opposite; None: not determined, and the sentence says why."""
    sentence: str
    """In words, with the numbers."""
    estimate: Estimate | float | None = None
    """A fraction, or a difference of fractions."""
    num: int | None = None
    """Problems (or directions, or runs) that it is over."""
    null: str = ""
    """What it is compared with."""
    false_rate: float | None = None
    """The fraction of cards of this size, of two equal models, that show this line (`claim_rates`); None: not known."""
    detectable: float | None = None
    """The size that 80% of such cards would show, of `base_reaches_gained` in samples; None: not known."""


class Part(Record):
    """One question of the card. A field that is a tuple of rows is a table."""

    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    """What limits it, a sentence each."""
    missing: str = ""
    """Why it was not measured, or what more would need; empty: it was."""

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


class PassAtK(Row):
    """How probable one of k samples is right, up to all samples; verdicts are of k up to half of them."""

    k: Count
    base: Share
    trained: Share
    difference: Points
    """Paired over problems, with the interval of this k alone."""
    band: Points
    """The same with the interval that holds for all k together."""


class CoverRow(Row):
    """Which fraction of problems is solved with at least some probability."""

    probability: Share
    base: Share
    trained: Share


class AccuracyPart(Part):
    """Did accuracy rise? Does the base catch up?"""

    greedy_base: Share = None
    greedy_trained: Share = None
    base: Share = None
    trained: Share = None
    difference: Points = None
    pass_at_k: tuple[PassAtK, ...] = ()
    crossing_after: Count = None
    """The trained model is shown to be better up to this k; None: not at 1."""
    crossing_before: Count = None
    """The base is shown to be better from this k on; None: not shown."""
    cover: tuple[CoverRow, ...] = ()


class RunRow(Row):
    """One of several runs of the same training."""

    run: str
    accuracy: Share
    difference: Points
    """From the base's, with the interval over problems alone."""


class RunsPart(Part):
    """Does it hold over runs?"""

    base: Share = None
    trained: Share = None
    """Mean over runs, with the interval over runs and problems, as that of the difference."""
    difference: Points = None
    runs: tuple[RunRow, ...] = ()


class GainedRow(Row):
    """A problem that the trained model solved and the base never did."""

    problem: str
    right: Count
    """Samples of the trained model."""
    bound: Annotated[float, "share"]
    """The base's probability of the right answers that the trained model wrote: no less than this."""
    samples_needed: Number
    """1 / bound: so many samples of the base are expected to hold one, at most."""


class GainedPart(Part):
    """What was gained and lost? What the base writes with a probability above zero, sampling may not have shown."""

    both: Count = None
    only_base: Count = None
    only_trained: Count = None
    neither: Count = None
    newly_solved: Number = None
    """How many that the base never solved as many samples again would solve, with its 90% interval."""
    newly_solved_at_most: Number = None
    """Upper end of the number expected; not known where problems have groups."""
    mean_bound: Share = None
    """The base's mean probability of the right answers that the trained model wrote; at most its accuracy."""
    mean_own: Share = None
    """The same of the trained model: how much of its own mass is on them."""
    gained: tuple[GainedRow, ...] = ()


class FailureRow(Row):
    """Why answers of a model are wrong."""

    model: str
    accuracy: Share
    truncated: Share
    """Of the wrong ones: cut off at the limit."""
    unparsed: Share
    """Of the wrong ones: no answer could be read."""
    lenient: Share
    """Of the wrong ones: right under a lenient reading."""
    abstained: Share
    """Of the wrong ones: the text says that it does not know."""
    right_if_parsed: Share
    """Of those with an answer."""
    tokens: Number
    second_grader: Share
    """Of all: fraction on which a second grader disagrees."""


class GainRow(Row):
    """A part of the gain in accuracy."""

    part: str
    gain: Points
    """Where a model reads nothing its interval is of whatever its answers might be, or it is not determined."""


class LengthRow(Row):
    """Accuracy of samples of the same length."""

    tokens: str
    base: Share
    trained: Share
    problems: Count
    """With samples of both models."""


class AnswersPart(Part):
    """Is it format or length?"""

    failures: tuple[FailureRow, ...] = ()
    gains: tuple[GainRow, ...] = ()
    filled: Share = None
    """Fraction of problems for which a rate was unknown and was taken from the other model's."""
    by_length: tuple[LengthRow, ...] = ()


class ContaminationRow(Row):
    """What a model makes of the beginnings of questions."""

    model: str
    given: Share
    """How much of the question it is given."""
    exact: Share
    """Fraction of questions whose rest it writes exactly."""
    exact_control: Share
    rouge_l: Share
    """F-measure of the longest common subsequence of words with the rest."""
    rouge_l_control: Share
    right: Share
    """Fraction whose continuation has the right answer."""
    right_control: Share
    """With other numbers it is still the question's own answer that is right."""


class ContaminationPart(Part):
    """Is it contamination?"""

    control: str = ""
    """What the questions are compared with."""
    completions: tuple[ContaminationRow, ...] = ()


class ForgettingRow(Row):
    """Another task before and after; the difference is paired over its problems."""

    task: str
    base: Share
    trained: Share
    difference: Points


class TextRow(Row):
    """A text before and after, in nats per token."""

    text: str
    base: Number
    trained: Number
    difference: Number
    tokens: Count


class ForgettingPart(Part):
    """What was forgotten?"""

    tasks: tuple[ForgettingRow, ...] = ()
    texts: tuple[TextRow, ...] = ()
    kl_from_base: Number = None
    """KL(base, trained) of a response to the new task, under the base's samples, nats per response."""
    kl_from_trained: Number = None
    """KL(trained, base) under the trained model's samples."""


class DivergenceRow(Row):
    """Where the models differ, beside what it would be without training."""

    figure: str
    value: Share
    chance: Share = None
    """Were every position alike."""
    entropy: Share = None
    """Of the base's entropy in the place of the divergence."""
    noise: Share = None
    """Of random changes of the weights that move the base as far, mean."""


class TakenRow(Row):
    """The base's accuracy where some of its tokens are the trained model's."""

    taken: Share
    """Of the base's tokens."""
    at_spikes: Share
    """Accuracy where they are taken at the highest divergence."""
    anywhere: Share
    """The same at random places."""


class BehaviourPart(Part):
    """Where did behaviour change?"""

    figures: tuple[DivergenceRow, ...] = ()
    tokens_taken: tuple[TakenRow, ...] = ()
    swap_effect: Points = None
    """Success where the trained model's token is taken at the highest spike, minus that of the base's own."""


class MatrixRow(Row):
    """What changed in the weights of one kind or layer."""

    weights: str
    unchanged: Share
    unchanged_bf16: Share
    """After rounding to bfloat16."""
    relative_norm: Number
    """Norm of the change over the norm of the weights."""
    rank90: Number
    """Rank that holds 90% of the change's energy, mean over matrices."""


class GraftRow(Row):
    """The base with a part of the change."""

    graft: str
    energy: Share
    """Of the change's squared norm."""
    accuracy: Share
    difference: Points
    """From the trained model's, paired."""


class WeightsPart(Part):
    """What changed in the weights, and which part suffices?"""

    matrices: tuple[MatrixRow, ...] = ()
    grafts: tuple[GraftRow, ...] = ()
    directions: tuple[float, ...] = ()
    """Accuracy of the base with each random change."""
    margin: Share = None


class ReasoningRow(Row):
    """How probable the answers are after part of the reasoning, mean over problems."""

    kept: Share
    """Of the reasoning's tokens."""
    base: Share
    """Probability of the answer after the base's own reasoning, cut."""
    trained: Share
    base_other: Share
    """After the reasoning on another problem, cut as far."""
    trained_other: Share


class ReasoningPart(Part):
    """Does the reasoning matter?"""

    curve: tuple[ReasoningRow, ...] = ()


class ControlRow(Row):
    """Training with another reward."""

    arm: str
    """Variant of the study."""
    accuracy: Share
    """Sampled, over seeds."""
    difference: Points
    """From the real reward's, paired over seeds."""
    runs: Count


class ControlsPart(Part):
    """Would any reward have done it?"""

    arms: tuple[ControlRow, ...] = ()
    study: str = ""


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
    files: Mapping[str, str] = {}
    """SHA-256 of each file that it rests on, by its path below the card's folder."""
    accuracy: AccuracyPart = AccuracyPart()
    runs: RunsPart = RunsPart()
    gained: GainedPart = GainedPart()
    answers: AnswersPart = AnswersPart()
    contamination: ContaminationPart = ContaminationPart()
    forgetting: ForgettingPart = ForgettingPart()
    behaviour: BehaviourPart = BehaviourPart()
    weights: WeightsPart = WeightsPart()
    reasoning: ReasoningPart = ReasoningPart()
    controls: ControlsPart = ControlsPart()

    @property
    def parts(self) -> Iterator[tuple[PartName, Part]]:
        """Its parts by name, in the order of the page."""
        for name in QUESTIONS:
            yield name, getattr(self, name)

    @property
    def verdicts(self) -> list[Verdict]:
        """All lines, in the order of the page."""
        return [verdict for _, part in self.parts for verdict in part.verdicts]

    def to_pandas(self, table: str = "verdicts") -> Any:
        """Return a table as a data frame: the verdicts, or `part.table`, such as `accuracy.pass_at_k`.

        Raises:
            ConfigError: there is no such table.
            MissingExtraError: pandas is not installed.
        """
        tables: dict[str, Sequence[Record]] = {"verdicts": self.verdicts}
        tables |= {f"{name}.{table}": rows for name, part in self.parts for table, rows in part.tables}
        if table not in tables:
            raise ConfigError(f"the card has no table '{table}'{nearest(table, tables)}; it has {', '.join(tables)}")
        rows = []
        for record in tables[table]:
            cells: dict[str, Any] = {}
            for name, value in record:
                ends = {f"{name}_low": value.low, f"{name}_high": value.high} if isinstance(value, Estimate) else {}
                cells |= {name: value.mean if ends else value, **ends}
            rows.append(cells)
        return import_pandas().DataFrame(rows)
