"""The rows that sentences about a run were made of, from its evaluations and its probe's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import CrossSamplingDirection, CrossSamplingPoint, CrossSamplingSelector
from swerve.artifacts.probe_claims import DivergenceClaim
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs

Column = Sequence[Value]


def paired_evidence(
    inputs: ReportInputs, name: Literal["right", "pass", "tokens", "entropy", "trace"], *figures: Figure
) -> Evidence | None:
    """Return a value of the answers to each problem, before and after, in columns called as the checkpoints are."""
    own, first, last = inputs.paired.get(name), inputs.reference, inputs.final
    if own is None or not own.problems or first is None or last is None:
        return None
    column = {"right": "correct.astype(float)", "tokens": "completion_ids.str.len()", "entropy": "entropy",
              "trace": "trace_right.astype(float)"}.get(name)  # fmt: skip
    ends = [each for each in (first, last) if each is last or own.before]
    of = {each.checkpoint: values for each, values in zip(ends, filter(None, (own.before, own.after)), strict=True)}
    read = [
        f"{_frame(inputs, f'eval/{each.file_name}.parquet')}.query('temperature == 0').set_index('problem_id').{column}"
        for each in ends
    ]
    made = ", ".join(f"{each.checkpoint!r}: {one}" for each, one in zip(ends, read, strict=True))
    return Evidence(
        id=f"greedy-{name}",
        table=" and ".join(f"eval/{each.file_name}.parquet" for each in ends),
        filter="the greedy answer to each problem (temperature 0)" if column else "the sampled answers to each problem",
        columns={"problem": own.problems, **of, **_rollouts(inputs, own.problems)},
        figures=figures,
        command=f"{_IMPORTS}\nrows = pd.DataFrame({{{made}}})" if column else "",
        note="Brackets are intervals over problems.",
    )


def manner_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return the mean entropy and the number of tokens of the greedy answer to each problem, before and after."""
    entropy, tokens = (paired_evidence(inputs, name) for name in ("entropy", "tokens"))
    if entropy is None or tokens is None or entropy.columns["problem"] != tokens.columns["problem"]:
        return None
    lengths = {
        f"tokens at {name}": tokens.columns[name] for name in tokens.columns if name not in ("problem", "rollout")
    }
    read = tokens.command.partition("\n")[2].replace("rows =", "lengths =", 1)
    return replace(
        entropy,
        id="greedy-manner",
        columns={**entropy.columns, **lengths},
        figures=figures,
        command=f"{entropy.command}\n{read}\nrows = rows.join(lengths.add_prefix('tokens at '))",
    )


def divergence_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each problem the summed headline divergence of its rollouts' tokens, and their number."""
    data = _headline(inputs)
    if data is None:
        return None
    # Rollouts of one problem are one row: the unit of the intervals.
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
            "sum of entropy": entropies.tolist(),
            "rollout": [data.numbers[data.problems.index(problem)] for problem in problems],
        },
        figures=figures,
        command=f"{data.command}\nown = tokens.groupby('problem_id', sort=False).{name}\n"
        f"rows = pd.DataFrame({{'tokens': own.size(), 'sum of {name}': own.sum(), 'mean {name}': own.mean()}})",
        note="Brackets are intervals over problems.",
    )


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


def uncertain_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout how much of its divergence is on the fifth of all tokens where the reference is unsure."""
    data = _headline(inputs)
    if data is None:
        return None
    # The fifth with the highest entropies, and what ties with the last of them.
    num = len(data.entropies)
    least = float(np.sort(data.entropies)[num - min(num, max(1, int(_UNSURE * num + 0.5)))])
    inside = data.entropies >= least

    def sums(values: NDArray[Any]) -> list[Value]:
        return list(np.bincount(data.rollout, values, len(data.numbers)).tolist())

    name = data.summary.divergence
    weights = {
        "tokens": np.ones(num),
        "of these unsure": inside,
        f"sum of {name}": data.values,
        f"of this unsure {name}": np.where(inside, data.values, 0.0),
        "sum of entropy": data.entropies,
        "of this unsure entropy": np.where(inside, data.entropies, 0.0),
    }
    return Evidence(
        id="unsure",
        table="probe/tokens.parquet",
        filter=f"{data.compared}, on “{data.population}”; unsure: the fifth of the tokens with the highest entropy of "
        f"{data.summary.reference}, {least:.4g} nats or more",
        unit="rollout",
        columns={
            "problem": data.problems,
            "rollout": data.numbers,
            **{key: sums(np.asarray(values, dtype=np.float64)) for key, values in weights.items()},
        },
        figures=figures,
        command=f"{data.command}\nunsure = tokens[tokens.entropy_ref >= {least!r}].groupby('sequence_id')\n"
        "own = tokens.groupby('sequence_id')\n"
        f"rows = pd.DataFrame({{'tokens': own.size(), 'of these unsure': unsure.size(), 'sum of {name}': "
        f"own.{name}.sum(), 'of this unsure {name}': unsure.{name}.sum()}})",
        note="The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


_UNSURE = 0.2


def swap_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each top spike how often the reference ends right after each of the tokens that were forced there."""
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return None
    wanted = pc.and_(
        pc.equal(tables.interventions["selection"], "spike"), pc.equal(tables.interventions["policy"], "reference")
    )
    table = tables.interventions.filter(wanted)
    # Drawing until the data are clear favours clear data: the first look counts, whose number is fixed.
    spots: dict[tuple[int, int], dict[str, float]] = {}
    chosen: dict[tuple[int, int], dict[str, int]] = {}
    for row in table.to_pylist():
        num, right = row["first_continuations"], row["first_successes"]
        if not num:
            num, right = row["num_continuations"], row["num_successes"]
        spots.setdefault((row["sequence_id"], row["position"]), {})[str(row["arm"])] = right / num
        chosen.setdefault((row["sequence_id"], row["position"]), {})[str(row["arm"])] = row["token_id"]
    differ = {spot: ids.get("reference") != ids.get("checkpoint") for spot, ids in chosen.items()}
    problems = tables.sequences["problem_id"].to_pylist()
    arms = {"own token": "reference", f"token of {summary.final}": "checkpoint", "other token": "alternative"}
    return Evidence(
        id="swaps",
        table="probe/interventions.parquet",
        filter=f"tokens forced at the top spike of a rollout, continued by {summary.reference}",
        unit="spike",
        columns={
            "problem": [problems[number] for number, _ in spots],
            "rollout": [number for number, _ in spots],
            "token": [position for _, position in spots],
            **{name: [spot.get(arm) for spot in spots.values()] for name, arm in arms.items()},
            **{
                f"{name} where it differs": [
                    own.get(arms[name]) if differ[spot] else None for spot, own in spots.items()
                ]
                for name in (f"token of {summary.final}", "other token")
            },
        },
        figures=figures,
        command=f"{_IMPORTS}\nforced = {_frame(inputs, 'probe/interventions.parquet')}\n"
        "forced = forced.query(\"selection == 'spike' and policy == 'reference'\")\n"
        "forced['right'] = forced.first_successes / forced.first_continuations\n"
        "rows = forced.pivot_table(index=['sequence_id', 'position'], columns='arm', values='right', observed=True)\n"
        f"rows = rows.rename(columns={ {arm: name for name, arm in arms.items()} })",
        note="A number is the share of right continuations; brackets are intervals over problems.",
    )


def dose_evidence(
    inputs: ReportInputs,
    entry: CrossSamplingDirection,
    dose: tuple[CrossSamplingSelector, CrossSamplingPoint],
    *figures: Figure,
) -> Evidence | None:
    """Return of each problem how often one model is right alone, with some tokens of the other, and the other alone."""
    table = None if inputs.tables is None else inputs.tables.cross_samples
    if table is None:
        return None
    selector, point = dose
    of: dict[str, dict[str, list[float]]] = {}
    table = table.filter(pc.equal(table["direction"], entry.direction))
    keys = zip(*(table[name].to_pylist() for name in ("problem_id", "selector", "share", "correct")), strict=True)
    sizes = zip(*(pc.list_value_length(table[name]).to_pylist() for name in ("swapped", "completion_ids")), strict=True)
    for (problem, chosen, share, is_right), (swapped, length) in zip(keys, sizes, strict=True):
        if share in (0.0, 1.0):
            name = "alone" if share == 0 else "other alone"
        elif abs(share - point.budget) < 1e-6 and chosen in (selector.selector, "random"):
            name = "random" if chosen == "random" else "chosen"
        else:
            continue
        cells = of.setdefault(problem, {})
        cells.setdefault(name, []).append(float(is_right))
        if name == "chosen":
            cells.setdefault("tokens taken", []).append(swapped)
            cells.setdefault("tokens", []).append(length)

    def mean(values: Sequence[float] | None) -> Value:
        return None if not values else sum(values) / len(values)

    names = {"alone": "alone", "chosen": "with chosen tokens", "random": "with random tokens", "other alone": "other"}
    return Evidence(
        id=f"doses-{entry.direction}",
        table="probe/cross_samples.parquet",
        filter=f"direction {entry.direction}, share {point.budget:g}, selector {selector.selector} or random, and both "
        "models alone",
        columns={
            "problem": [*of],
            **{shown: [mean(cells.get(name)) for cells in of.values()] for name, shown in names.items()},
            **{name: [sum(cells.get(name, ())) for cells in of.values()] for name in ("tokens taken", "tokens")},
        },
        figures=figures,
        command=f"{_IMPORTS}\ncrossed = {_frame(inputs, 'probe/cross_samples.parquet')}\n"
        f"crossed = crossed[crossed.direction == {entry.direction!r}]\n"
        "def right(crossed): return crossed.groupby('problem_id').correct.mean()\n"
        f"at = crossed[(crossed['share'] - {point.budget:g}).abs() < 1e-6]\n"
        "rows = pd.DataFrame({'alone': right(crossed[crossed['share'] == 0]), 'with chosen tokens': "
        f"right(at[at.selector == {selector.selector!r}]), 'with random tokens': right(at[at.selector == 'random']), "
        "'other': right(crossed[crossed['share'] == 1])})",
        note="A number is the share of a problem's samples that are right; brackets are intervals over problems.",
    )


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
        command=f"{data.command}\nspikes = {_frame(inputs, 'probe/spikes.parquet')}.query({asked!r})\n"
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
            f"{_IMPORTS}\ntokens = swerve.Run({inputs.run_name!r}).tokens\n"
            f"sequences = {_frame(inputs, 'probe/sequences.parquet')}.query({is_headline!r})\n"
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


_IMPORTS = "import pandas as pd, swerve"


def _frame(inputs: ReportInputs, name: str) -> str:
    """Return the line of Python that reads a table of the run."""
    return f"pd.read_parquet(swerve.Run({inputs.run_name!r}).path / {name!r})"


def _rollouts(inputs: ReportInputs, problems: Sequence[str]) -> Mapping[str, Column]:
    """Return the first rollout of each problem that the page lists; nothing where it lists none of them."""
    if inputs.tables is None:
        return {}
    first: dict[str, int] = {}
    for number, problem in enumerate(inputs.tables.sequences["problem_id"].to_pylist()):
        first.setdefault(problem, number)
    found = [first.get(problem) for problem in problems]
    return {"rollout": found} if any(number is not None for number in found) else {}
