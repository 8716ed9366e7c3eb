"""The rows that sentences about a probe's tokens were made of: a rollout, or a problem, with sums over its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.probe_claims import DivergenceClaim
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.evidence import Evidence, Figure, Value, digits_of
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import IMPORTS, frame_line
from swerve.text import number_interval


def divergence_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each problem the summed headline divergence of its rollouts' tokens, and their number."""
    data = _headline(inputs)
    if data is None:
        return None
    # Rollouts of one problem are one row: the unit of the intervals.
    first = dict(zip(data.problems[::-1], data.numbers[::-1], strict=True))
    problems = list(dict.fromkeys(data.problems))
    place = {problem: at for at, problem in enumerate(problems)}
    of_problem = np.array([place[problem] for problem in data.problems])[data.rollout]
    columns = (data.values, np.ones(len(of_problem)), data.own_entropies)
    sums, nums, entropies = (np.bincount(of_problem, weights, len(problems)) for weights in columns)
    name = data.summary.divergence
    return Evidence(
        id="divergence",
        table="probe/tokens.parquet",
        filter=f"{data.compared}, on “{data.population}”",
        columns={
            "problem": problems,
            "tokens": nums.astype(int).tolist(),
            f"sum of {name}": sums.tolist(),
            f"mean {name}": (sums / np.maximum(nums, 1)).tolist(),
            f"sum of entropy of {data.summary.final}": entropies.tolist(),
            "rollout": [first[problem] for problem in problems],
        },
        figures=figures,
        command=f"{data.command}\nown = tokens.groupby('problem_id', sort=False).{name}\n"
        f"rows = pd.DataFrame({{'tokens': own.size(), 'sum of {name}': own.sum(), 'mean {name}': own.mean()}})",
        note="Brackets are intervals over problems.",
    )


def divergence_figure(summary: ProbeSummary, known: Estimate) -> Figure:
    """Return the mean divergence a token, or the problems' median where a few large values move the mean."""
    name, statistic = summary.divergence, "ratio of sums"
    columns: tuple[str, ...] = (f"sum of {name}", "tokens")
    if isinstance(known, SkewedMean) and not known.reliable and known.median is not None:
        known, columns, statistic = known.median, (f"mean {name}",), "median"
    return Figure(name="a token", statistic=statistic, columns=columns, write=digits_of(number_interval, known))


def top_evidence(inputs: ReportInputs, claim: DivergenceClaim, *figures: Figure) -> Evidence | None:
    """Return of each rollout whether the highest divergence, and the reference's highest entropy, are on the place."""
    data, is_coarse = _headline(inputs), claim.of == "first_wrong_sentence"
    if data is None:
        return None
    table: dict[str, list[Value]] = {name: [] for name in ("problem", "rollout", "token", *_TOP)}
    for at, own in enumerate(data.split()):
        marks, starts = data.marks(at, own, claim.of)
        if not marks.any():
            continue
        # Sentences have the highest value of their tokens; of equal pieces each counts in part.
        values, doubts = (np.maximum.reduceat(column[own], starts) for column in (data.values, data.entropies))
        cells: tuple[Value, ...] = (
            *(data.problems[at], data.numbers[at], int(data.positions[own][np.argmax(data.values[own])])),
            *(float(marks[column == column.max()].mean()) for column in (values, doubts, np.ones(len(values)))),
        )
        for column, cell in zip(table.values(), cells, strict=True):
            column.append(cell)
    piece = "sentence" if is_coarse else "token"
    mark = "wrong_sentence" if is_coarse else "first_wrong"
    return Evidence(
        id=f"top-{claim.of}",
        table="probe/tokens.parquet and probe/sequences.parquet",
        filter=f"{data.compared}, on rollouts of “{data.population}” whose {mark.replace('_', ' ')} {piece} is known"
        if not is_coarse
        else f"{data.compared}, on rollouts of “{data.population}” whose first wrong sentence is known",
        unit="rollout",
        columns=table,
        figures=figures,
        command="" if is_coarse else f"{data.command}\n{_TOP_LINES.format(name=data.summary.divergence)}",
        note=f"“token” has the highest {divergence_name(data.summary)} of the rollout. By chance every {piece} counts "
        "alike. The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


_TOP = ("divergence on it", "entropy on it", "chance on it")
_TOP_LINES = """first = sequences.set_index('sequence_id').first_wrong.dropna()
tokens = tokens[tokens.sequence_id.isin(first.index)]
def on_it(own, column):
    return (own.position[own[column] == own[column].max()] == first[own.name]).mean()
own = tokens.groupby('sequence_id')
rows = pd.DataFrame({{'divergence on it': own.apply(on_it, '{name}'), 'entropy on it': own.apply(on_it, 'entropy_ref'),
                     'chance on it': 1 / own.size()}})"""


def share_evidence(inputs: ReportInputs, claim: DivergenceClaim, *figures: Figure) -> Evidence | None:
    """Return of each rollout how much of its divergence is on the tokens that a claim is about.

    Those are the fifth of all tokens where the reference is least sure, or a third of the rollout; of other parts None.
    """
    data = _headline(inputs)
    if data is None or claim.of not in ("uncertain", "third"):
        return None
    if claim.of == "uncertain":
        # The fifth with the highest entropies, and what ties with the last of them.
        num = len(data.entropies)
        least = float(np.sort(data.entropies)[num - min(num, max(1, int(_UNSURE * num + 0.5)))])
        there = data.entropies >= least
        asked = (
            f"the fifth of the tokens with the highest entropy of {data.summary.reference}, {least:.4g} nats or more"
        )
        line = f"there = tokens.entropy_ref >= {least!r}"
    else:
        lengths = np.bincount(data.rollout, minlength=len(data.numbers))
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(data.rollout)) - starts[data.rollout]
        third = _THIRDS.index(claim.part)
        there = 3 * place // lengths[data.rollout] == third
        asked = f"the {claim.part} third of each rollout"
        own = "tokens.groupby('sequence_id')"
        line = f"there = 3 * {own}.cumcount() // {own}.position.transform('size') == {third}"

    name = data.summary.divergence
    weights = {
        "tokens": np.ones(len(there)),
        "tokens there": there,
        f"sum of {name}": data.values,
        f"sum of {name} there": np.where(there, data.values, 0.0),
        "sum of entropy": data.entropies,
        "sum of entropy there": np.where(there, data.entropies, 0.0),
    }
    sums = {
        key: np.bincount(data.rollout, np.asarray(values, dtype=np.float64), len(data.numbers))
        for key, values in weights.items()
    }
    return Evidence(
        id="-".join(filter(None, ("share", claim.of, claim.part))),
        table="probe/tokens.parquet",
        filter=f"{data.compared}, on “{data.population}”; there: {asked}",
        unit="rollout",
        columns={"problem": data.problems, "rollout": data.numbers, **{key: own.tolist() for key, own in sums.items()}},
        figures=figures,
        command=f"{data.command}\n{line}\n"
        "own, part = (each.groupby('sequence_id') for each in (tokens, tokens[there]))\n"
        f"rows = pd.DataFrame({{'tokens': own.size(), 'tokens there': part.size(), 'sum of {name}': "
        f"own.{name}.sum(), 'sum of {name} there': part.{name}.sum()}}).fillna(0)",
        note="The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


_UNSURE = 0.2
_THIRDS = ("early", "mid", "late")


def spike_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout with a known wrong step its spikes by the headline rule, and its tokens."""
    data = _headline(inputs)
    if data is None or inputs.tables is None:
        return None
    summary, spikes = data.summary, inputs.tables.spikes
    wanted = {"method": summary.spike_method, "divergence": summary.divergence, "checkpoint": summary.final}
    for name, value in wanted.items():
        spikes = spikes.filter(pc.equal(spikes[name], value))
    num = np.bincount(
        np.asarray(spikes["sequence_id"].to_numpy(), dtype=np.int64), minlength=max(data.numbers, default=0) + 1
    )
    tokens = np.bincount(data.rollout, minlength=len(data.numbers))
    wrong = spikes.filter(spikes["is_wrong"])
    on_wrong = np.bincount(np.asarray(wrong["sequence_id"].to_numpy(), dtype=np.int64), minlength=len(num))
    known = [at for at, row in enumerate(data.rows) if row["wrong_positions"]]
    asked = " and ".join(f"{name} == {value!r}" for name, value in wanted.items())
    return Evidence(
        id="spikes",
        table="probe/spikes.parquet and probe/tokens.parquet",
        filter=f"{asked.replace(' == ', ' ')}, on rollouts of “{data.population}” with a known wrong step",
        unit="rollout",
        columns={
            "problem": [data.problems[at] for at in known],
            "rollout": [data.numbers[at] for at in known],
            "spikes": num[[data.numbers[at] for at in known]].tolist(),
            "on wrong": on_wrong[[data.numbers[at] for at in known]].tolist(),
            "tokens": tokens[known].tolist(),
        },
        figures=figures,
        command=f"{data.command}\nspikes = {frame_line(inputs, 'probe/spikes.parquet')}.query({asked!r})\n"
        "known = sequences.set_index('sequence_id').wrong_positions.str.len() > 0\n"
        "known = known[known].index\n"
        "own = spikes.groupby('sequence_id')\n"
        "rows = pd.DataFrame({'spikes': own.size().reindex(known, fill_value=0), "
        "'on wrong': own.is_wrong.sum().reindex(known, fill_value=0), "
        "'tokens': tokens.groupby('sequence_id').size().reindex(known)})",
        note="The null pair is in probe/summary.json alone; brackets are intervals over problems.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Headline:
    """The tokens of the headline population at the final checkpoint, rollout by rollout."""

    summary: ProbeSummary
    command: str
    numbers: list[int]
    """Of each rollout in the page's list."""
    problems: list[str]
    rows: list[dict[str, Any]]
    """What is known of the wrong steps of each."""
    rollout: NDArray[np.int64]
    """Which of these each token is of."""
    positions: NDArray[np.int64]
    values: NDArray[np.float64]
    """The headline divergence."""
    entropies: NDArray[np.float64]
    """Of the reference."""
    own_entropies: NDArray[np.float64]
    """Of the final checkpoint."""

    @classmethod
    def of(cls, inputs: ReportInputs) -> _Headline | None:
        """Read them; None without a probe's tables."""
        summary, tables = inputs.summary, inputs.tables
        if summary is None or tables is None or not tables.tokens.num_rows:
            return None
        names = ["sequence_id", "problem_id", "first_wrong", "wrong_positions", "sentence_starts", "wrong_sentence"]
        own = tables.sequences.filter(pc.equal(tables.sequences["population"], summary.population)).select(names)
        numbers = own["sequence_id"]
        place = pc.index_in(tables.tokens["sequence_id"], value_set=numbers.combine_chunks())
        is_own = pc.and_(pc.is_valid(place), pc.equal(tables.tokens["checkpoint"], summary.final))
        is_own = pc.and_(is_own, pc.equal(tables.tokens["reference"], summary.reference))
        tokens = tables.tokens.append_column("place", place).filter(is_own)
        tokens = tokens.sort_by([("place", "ascending"), ("position", "ascending")])
        if not tokens.num_rows:
            return None

        def column(name: str, kind: type) -> NDArray[Any]:
            return np.asarray(tokens[name].to_numpy(), dtype=kind)

        is_headline = f"population == {summary.population!r}"
        command = (
            f"{IMPORTS}\ntokens = swerve.Run({inputs.run_name!r}).tokens\n"
            f"sequences = {frame_line(inputs, 'probe/sequences.parquet')}.query({is_headline!r})\n"
            f"tokens = tokens[(tokens.checkpoint == {summary.final!r}) & (tokens.reference == {summary.reference!r})]\n"
            "tokens = tokens[tokens.sequence_id.isin(sequences.sequence_id)]"
        )
        return cls(
            summary=summary,
            command=command,
            numbers=numbers.to_pylist(),
            problems=own["problem_id"].to_pylist(),
            rows=own.to_pylist(),
            rollout=column("place", np.int64),
            positions=column("position", np.int64),
            values=column(summary.divergence, np.float64),
            entropies=column("entropy_ref", np.float64),
            own_entropies=column("entropy", np.float64),
        )

    @property
    def compared(self) -> str:
        """Which models the tokens compare."""
        return f"checkpoint {self.summary.final}, reference {self.summary.reference}"

    @property
    def population(self) -> str:
        """Name of the rollouts, as the table has it."""
        return self.summary.population

    def split(self) -> list[slice]:
        """Return which of the tokens are those of each rollout."""
        ends = np.searchsorted(self.rollout, np.arange(len(self.numbers) + 1))
        return [slice(int(start), int(end)) for start, end in pairwise(ends)]

    def marks(self, at: int, own: slice, of: str) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which pieces of a rollout are the place that is asked for, and where each begins among its tokens."""
        row, positions = self.rows[at], self.positions[own]
        if of != "first_wrong_sentence":
            wrong = row["wrong_positions"] if of == "wrong" else [row["first_wrong"]]
            return np.isin(positions, [place for place in wrong if place is not None]), np.arange(len(positions))
        starts = np.array(row["sentence_starts"] or (), dtype=np.int64)
        return np.arange(len(starts)) == (-1 if row["wrong_sentence"] is None else row["wrong_sentence"]), starts


@lru_cache(maxsize=1)
def _headline(inputs: ReportInputs) -> _Headline | None:
    """Return the tokens of a run, read once for all of its sentences."""
    return _Headline.of(inputs)
