"""The rows of sentences that compare rollouts or checkpoints: populations, pairs of checkpoints, writers of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from swerve.artifacts.probe_dynamics import Correlate
from swerve.artifacts.probe_findings import RankClass
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.evidence import Evidence, Figure, Value, digits_of
from swerve.report.read import ReportInputs
from swerve.report.read_tokens import Mask, read_tokens
from swerve.text import number_interval


def population_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout of any population its tokens and divergence, in columns called as the populations are."""
    data = read_tokens(inputs, "")
    if data is None:
        return None
    name, sums, tokens = data.summary.divergence, data.sums(data.values), data.lengths.tolist()
    of = [str(row["population"]) for row in data.rows]

    def only(population: str, values: Sequence[float]) -> list[Value]:
        return [value if own == population else 0 for own, value in zip(of, values, strict=True)]

    columns: dict[str, Sequence[Value]] = {"problem": data.problems, "rollout": data.numbers, "population": of}
    for population in dict.fromkeys(of):
        columns[f"tokens of {population}"] = only(population, tokens)
        columns[f"sum of {name} of {population}"] = only(population, sums)
    return Evidence(
        id="populations",
        table="probe/tokens.parquet",
        filter=data.filter,
        unit="rollout",
        columns=columns,
        figures=figures,
        note="Columns of a population are 0 in the rows of others. Brackets are intervals over problems.",
    )


def population_columns(summary: ProbeSummary, population: str) -> tuple[str, str]:
    """Return the columns of a population: summed divergence and tokens."""
    return f"sum of {summary.divergence} of {population}", f"tokens of {population}"


def pair_evidence(inputs: ReportInputs, pairs: Sequence[tuple[str, str]], id: str, *figures: Figure) -> Evidence | None:
    """Return of each problem the summed divergence of some pairs of models on the headline rollouts.

    Args:
        inputs: the run.
        pairs: checkpoint and reference of each.
        id: of the rows.
        figures: numbers of the sentence.
    """
    first = read_tokens(inputs)
    if first is None:
        return None
    problems = list(dict.fromkeys(first.problems))
    columns: dict[str, Sequence[Value]] = {"problem": problems}
    for checkpoint, reference in pairs:
        data = read_tokens(inputs, None, checkpoint, reference)
        if data is None:
            continue
        place = {problem: at for at, problem in enumerate(problems)}
        of_problem = np.array([place[problem] for problem in data.problems])[data.rollout]
        columns.setdefault("tokens", np.bincount(of_problem, minlength=len(problems)).tolist())
        sums = np.bincount(of_problem, data.values, len(problems)).tolist()
        summed, mean = _pair_columns(first.summary, checkpoint, reference)
        columns[summed] = sums
        nums = columns["tokens"]
        columns[mean] = [one / max(1, int(num or 0)) for one, num in zip(sums, nums, strict=True)]
    if len(columns) == 1:
        return None
    name = first.summary.divergence
    return Evidence(
        id=id,
        table="probe/tokens.parquet",
        filter=f"on “{first.population}”, a column for each pair of models",
        columns=columns,
        figures=figures,
        command=f"{first.command.partition('tokens = tokens[(')[0]}"
        "tokens = tokens[tokens.sequence_id.isin(sequences.sequence_id)]\n"
        "tokens['pair'] = tokens.reference.astype(str) + ' to ' + tokens.checkpoint.astype(str)\n"
        f"rows = tokens.pivot_table(index='problem_id', columns='pair', values={name!r}, aggfunc='sum')\n"
        f"rows = rows.add_prefix('sum of {name}, ')[{[*columns][2::2]!r}]",
        note="Brackets are intervals over problems.",
    )


def _pair_columns(summary: ProbeSummary, checkpoint: str, reference: str) -> tuple[str, str]:
    """Return the columns of a pair of models: the sum of a problem's tokens, and their mean."""
    pair = f"{summary.divergence}, {reference} to {checkpoint}"
    return f"sum of {pair}", f"mean {pair}"


def pair_figures(summary: ProbeSummary, checkpoint: str, reference: str, known: Estimate) -> list[Figure]:
    """Return how far a pair of models lies apart a token, or in the median problem where few values move the mean."""
    summed, mean = _pair_columns(summary, checkpoint, reference)
    statistic = "ratio of sums"
    columns: tuple[str, ...] = (summed, "tokens")
    if isinstance(known, SkewedMean) and not known.reliable and known.median is not None:
        known, statistic, columns = known.median, "median", (mean,)
    name = f"{reference} to {checkpoint}"
    return [Figure(name=name, statistic=statistic, columns=columns, write=digits_of(number_interval, known))]


RANKS: Mapping[RankClass, str] = {"unshifted": "first choice", "marginal": "second or third", "shifted": "lower"}


def rank_evidence(inputs: ReportInputs, source: str, rank: str, *figures: Figure) -> Evidence | None:
    """Return of each rollout of one writer how many tokens are which choice of a model.

    Args:
        inputs: the run.
        source: label of the writer.
        rank: `rank` under the final checkpoint, `rank_ref` under the reference.
        figures: numbers of the sentence.
    """
    data = read_tokens(inputs, "")
    if data is None:
        return None
    ranks = data.column(rank)
    classes: dict[str, Mask] = {
        "first choice": ranks == 1,
        "second or third": (ranks > 1) & (ranks <= 3),
        "lower": ranks > 3,
    }
    lengths = data.lengths.tolist()
    kept = [at for at, row in enumerate(data.rows) if row["label"] == source and lengths[at]]
    counts = {name: data.counts(marks) for name, marks in classes.items()}
    return Evidence(
        id=f"ranks-{rank}",
        table="probe/tokens.parquet",
        filter=f"{data.filter}, on text of {source}",
        unit="rollout",
        columns=data.of_rollouts(kept, {"tokens": lengths, **counts}),
        figures=figures,
        command=f"{data.command}\n"
        f"tokens = tokens[tokens.sequence_id.isin(sequences[sequences.label == {source!r}].sequence_id)]\n"
        f"own = tokens.groupby('sequence_id').{rank}\n"
        "rows = pd.DataFrame({'tokens': own.size(), 'first choice': own.apply(lambda one: (one == 1).sum()), "
        "'lower': own.apply(lambda one: (one > 3).sum())})",
        note="Brackets are intervals over problems.",
    )


def correlate_evidence(inputs: ReportInputs, entry: Correlate, *figures: Figure) -> Evidence | None:
    """Return of each graded rollout of one writer its mean divergence, and whether it is right."""
    data = read_tokens(inputs, "")
    if data is None:
        return None
    name, lengths = entry.divergence, np.maximum(1, data.lengths)
    means = (np.array(data.sums(data.column(name))) / lengths).tolist()
    right = [int(bool(row["correct"])) for row in data.rows]
    kept = [
        at
        for at, row in enumerate(data.rows)
        if row["label"] == entry.source and row["correct"] is not None and _counts(row["population"])
    ]
    # Rollouts of a problem lie in the order of their tokens, as the intervals take them.
    of = {} if inputs.tables is None else _tokens_of(inputs)
    kept.sort(key=lambda at: of.get(data.numbers[at], ()))
    return Evidence(
        id=f"right-{entry.source}",
        table="probe/tokens.parquet and probe/sequences.parquet",
        filter=f"{data.filter}, on graded text of {entry.source}",
        unit="rollout",
        columns=data.of_rollouts(kept, {"right": right, f"mean {name}": means}),
        figures=figures,
        note="The p-value is adjusted for all such tests of the probe. Brackets are intervals over problems.",
    )


def _counts(population: str) -> bool:
    """Return whether a population tells right from wrong answers, and not what changing weights wrote."""
    return population not in ("training", "imported")


def _tokens_of(inputs: ReportInputs) -> dict[int, tuple[int, ...]]:
    assert inputs.tables is not None
    table = inputs.tables.sequences.select(["sequence_id", "completion_ids"]).to_pylist()
    return {row["sequence_id"]: tuple(row["completion_ids"]) for row in table}
