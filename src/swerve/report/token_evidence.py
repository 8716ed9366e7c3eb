"""The rows that sentences about a probe's tokens were made of: a rollout, a problem or a token, with sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow.compute as pc

from swerve.artifacts.probe_claims import DivergenceClaim
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.evidence import Evidence, Figure, Value, digits_of
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs
from swerve.report.read_tokens import Floats, Mask, ReadTokens, read_tokens
from swerve.report.run_evidence import frame_line
from swerve.text import number_interval


def divergence_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each problem the summed headline divergence of its rollouts' tokens, and their number."""
    data = read_tokens(inputs)
    if data is None:
        return None
    # Rollouts of one problem are one row: the unit of the intervals.
    first = dict(zip(data.problems[::-1], data.numbers[::-1], strict=True))
    problems = list(dict.fromkeys(data.problems))
    place = {problem: at for at, problem in enumerate(problems)}
    of_problem = np.array([place[problem] for problem in data.problems])[data.rollout]

    def total(values: Floats | Mask) -> Floats:
        found: Floats = np.bincount(of_problem, np.asarray(values, dtype=np.float64), len(problems)).astype(np.float64)
        return found

    name, sums, nums = data.summary.divergence, total(data.values), total(np.ones(len(of_problem)))
    return Evidence(
        id="divergence",
        table="probe/tokens.parquet",
        filter=data.filter,
        columns={
            "problem": problems,
            "tokens": nums.astype(int).tolist(),
            f"sum of {name}": sums.tolist(),
            f"mean {name}": (sums / np.maximum(nums, 1)).tolist(),
            f"sum of entropy of {data.summary.final}": total(data.column("entropy")).tolist(),
            f"sum of entropy of {data.summary.reference}": total(data.column("entropy_ref")).tolist(),
            "another first choice": total(data.other_choice).astype(int).tolist(),
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
    data = read_tokens(inputs)
    if data is None:
        return None
    is_coarse = claim.of == "first_wrong_sentence"
    marks = None if is_coarse else data.wrong(claim.of)
    any_wrong = None if is_coarse else data.wrong("wrong")
    divergences, entropies, positions = data.values, data.column("entropy_ref"), data.positions
    table: dict[str, list[Value]] = {name: [] for name in ("problem", "rollout", "token", *_TOP)}
    for at, own in enumerate(data.split()):
        # Sentences have the highest value of their tokens; of equal pieces each counts in part.
        starts = _sentence_starts(data, at) if is_coarse else np.arange(own.stop - own.start)
        here = _wrong_sentence(data, at) if marks is None else marks[own]
        if not here.any():
            continue
        values, doubts = (np.maximum.reduceat(each[own], starts) for each in (divergences, entropies))
        also = here if any_wrong is None else any_wrong[own]
        cells: tuple[Value, ...] = (
            *(data.problems[at], data.numbers[at], int(positions[own][np.argmax(divergences[own])])),
            *(float(here[column == column.max()].mean()) for column in (values, doubts, np.ones(len(values)))),
            *(float(also[column == column.max()].mean()) for column in (values, doubts, np.ones(len(values)))),
        )
        for column, cell in zip(table.values(), cells, strict=True):
            column.append(cell)
    piece = "sentence" if is_coarse else "token"
    return Evidence(
        id=f"top-{claim.of}",
        table="probe/tokens.parquet and probe/sequences.parquet",
        filter=f"{data.filter}, on rollouts whose first wrong {piece} is known",
        unit="rollout",
        columns=table,
        figures=figures,
        command="" if is_coarse else f"{data.command}\n{_TOP_LINES.format(name=data.summary.divergence)}",
        note=f"“token” has the highest {divergence_name(data.summary)} of the rollout. By chance every {piece} counts "
        "alike. The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


def _sentence_starts(data: ReadTokens, at: int) -> np.ndarray:
    return np.array(data.rows[at]["sentence_starts"] or (), dtype=np.int64)


def _wrong_sentence(data: ReadTokens, at: int) -> Mask:
    """Return of each sentence of a rollout whether it is the one that is labelled as the first wrong one."""
    wrong = data.rows[at]["wrong_sentence"]
    here: Mask = np.arange(len(_sentence_starts(data, at))) == (-1 if wrong is None else wrong)
    return here


_TOP = (
    *("divergence on it", "entropy on it", "chance on it"),
    *("divergence on any wrong", "entropy on any wrong", "chance on any wrong"),
)
_TOP_LINES = """first = sequences.set_index('sequence_id').first_wrong.dropna()
tokens = tokens[tokens.sequence_id.isin(first.index)]
def on_it(own, column):
    return (own.position[own[column] == own[column].max()] == first[own.name]).mean()
own = tokens.groupby('sequence_id')
rows = pd.DataFrame({{'divergence on it': own.apply(on_it, '{name}'), 'entropy on it': own.apply(on_it, 'entropy_ref'),
                     'chance on it': 1 / own.size()}})"""


def area_evidence(inputs: ReportInputs, claim: DivergenceClaim, *figures: Figure) -> Evidence | None:
    """Return of each wrong token, or sentence, which share of those that are not wrong its score is above.

    The area under the ROC curve is the mean of these shares.
    """
    data = read_tokens(inputs)
    if data is None:
        return None
    scores: dict[str, Floats] = {"divergence": data.values, "entropy": data.column("entropy_ref")}
    if claim.of == "first_wrong_sentence":
        pieces = [(at, own, _sentence_starts(data, at)) for at, own in enumerate(data.split())]
        pieces = [(at, own, starts) for at, own, starts in pieces if _wrong_sentence(data, at).any()]
        scores = {
            name: np.concatenate([np.maximum.reduceat(values[own], starts) for _, own, starts in pieces])
            for name, values in scores.items()
        }
        positive = np.concatenate([_wrong_sentence(data, at) for at, *_ in pieces])
        rollouts = np.repeat([at for at, *_ in pieces], [len(starts) for *_, starts in pieces])
        places, others, unit = np.concatenate([starts for *_, starts in pieces]), ~positive, "wrong sentence"
    else:
        marked, any_wrong = np.array([bool(row["wrong_positions"]) for row in data.rows]), data.wrong("wrong")
        positive, others, unit = data.wrong(claim.of), marked[data.rollout] & ~any_wrong, "wrong token"
        rollouts, places = data.rollout, data.positions
    chosen = [int(at) for at in rollouts[positive]]
    return Evidence(
        id=f"auc-{claim.of}",
        table="probe/tokens.parquet and probe/sequences.parquet",
        filter=f"{data.filter}; {int(others.sum()):,} others that are not wrong, of the same rollouts",
        unit=unit,
        columns={
            "problem": [data.problems[at] for at in chosen],
            "rollout": [data.numbers[at] for at in chosen],
            "token": places[positive].tolist(),
            **{f"above the others by {name}": _placed(own[positive], own[others]) for name, own in scores.items()},
        },
        figures=figures,
        note="A number is the share of the others with a lower value, those with the same value counting half; its "
        "mean is the area under the ROC curve. By chance it is a half. Brackets are DeLong's intervals over problems "
        "(swerve.statistics.auc_interval), which need the other tokens, too.",
    )


def _placed(values: Floats, others: Floats) -> list[float]:
    ascending = np.sort(others)
    below = np.searchsorted(ascending, values, "left") + np.searchsorted(ascending, values, "right")
    return [float(value) for value in below / (2 * max(1, len(ascending)))]


def share_evidence(inputs: ReportInputs, claim: DivergenceClaim, *figures: Figure) -> Evidence | None:
    """Return of each rollout how much of its divergence is on the tokens that a claim is about."""
    data = read_tokens(inputs)
    if data is None or (claim.of == "good" and any(row["correct"] is None for row in data.rows)):
        return None
    there, asked, line = _PLACES[claim.of](data, claim.part)
    name = data.summary.divergence
    weights = {
        f"sum of {name}": data.values,
        f"sum of {name} there": np.where(there, data.values, 0.0),
        "sum of entropy": data.column("entropy_ref"),
        "sum of entropy there": np.where(there, data.column("entropy_ref"), 0.0),
    }
    made = (
        f"\n{line}\nown, part = (each.groupby('sequence_id') for each in (tokens, tokens[there]))\n"
        f"rows = pd.DataFrame({{'tokens': own.size(), 'tokens there': part.size(), 'sum of {name}': "
        f"own.{name}.sum(), 'sum of {name} there': part.{name}.sum()}}).fillna(0)"
    )
    return Evidence(
        id="-".join(filter(None, ("share", claim.of, claim.part))),
        table="probe/tokens.parquet",
        filter=f"{data.filter}; there: {asked}",
        unit="rollout",
        columns={
            "problem": data.problems,
            "rollout": data.numbers,
            "tokens": data.lengths.tolist(),
            "tokens there": data.counts(there),
            **{key: data.sums(values) for key, values in weights.items()},
        },
        figures=figures,
        command=f"{data.command}{made}" if line else "",
        note="The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


_UNSURE = 0.2
_THIRDS = ("early", "mid", "late")


def _uncertain(data: ReadTokens, part: str) -> tuple[Mask, str, str]:
    """Return the fifth of the tokens with the highest entropies of the reference, and what ties with the last."""
    entropies = data.column("entropy_ref")
    num = len(entropies)
    least = float(np.sort(entropies)[num - min(num, max(1, int(_UNSURE * num + 0.5)))])
    asked = f"the fifth of the tokens with the highest entropy of {data.summary.reference}, {least:.4g} nats or more"
    return entropies >= least, asked, f"there = tokens.entropy_ref >= {least!r}"


def _third(data: ReadTokens, part: str) -> tuple[Mask, str, str]:
    starts = np.cumsum(data.lengths) - data.lengths
    place, third = np.arange(len(data.rollout)) - starts[data.rollout], _THIRDS.index(part)
    own = "tokens.groupby('sequence_id')"
    line = f"there = 3 * {own}.cumcount() // {own}.position.transform('size') == {third}"
    return 3 * place // data.lengths[data.rollout] == third, f"the {part} third of each rollout", line


def _category(data: ReadTokens, part: str) -> tuple[Mask, str, str]:
    return data.categories == part, f"tokens of the category {part}", f"there = tokens.category == {part!r}"


def _style(data: ReadTokens, part: str) -> tuple[Mask, str, str]:
    return data.styles, "mark-up, punctuation, white space and discourse words (swerve.token_categories)", ""


def _good(data: ReadTokens, part: str) -> tuple[Mask, str, str]:
    line = (
        "right = tokens.sequence_id.map(sequences.set_index('sequence_id').correct).astype(bool)\n"
        "there = (tokens.logprob - tokens.logprob_ref) * (2 * right - 1) > 0"
    )
    return data.good, "tokens that became likelier in a right rollout, or less likely in a wrong one", line


_PLACES: dict[str, Callable[[ReadTokens, str], tuple[Mask, str, str]]] = {
    "uncertain": _uncertain,
    "third": _third,
    "category": _category,
    "style": _style,
    "good": _good,
}
"""Which tokens a claim is about, those in words, and the line of Python that finds them."""


def category_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout the divergence on the tokens of every category."""
    data = read_tokens(inputs)
    if data is None:
        return None
    name, categories, own = data.summary.divergence, data.categories, data.values
    known = [str(each) for each in np.unique(categories)]
    return Evidence(
        id="categories",
        table="probe/tokens.parquet",
        filter=data.filter,
        unit="rollout",
        columns={
            "problem": data.problems,
            "rollout": data.numbers,
            f"sum of {name}": data.sums(own),
            **{f"on {each}": data.sums(np.where(categories == each, own, 0.0)) for each in known},
        },
        figures=figures,
        command=f"{data.command}\n"
        f"own = tokens.pivot_table(index='sequence_id', columns='category', values={name!r}, aggfunc='sum', "
        f"observed=True).fillna(0)\nrows = own.add_prefix('on ').assign(**{{{f'sum of {name}'!r}: own.sum(axis=1)}})",
        note="The models of matched noise are in probe/summary.json alone; brackets are intervals over problems.",
    )


def spike_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout with a known wrong step its spikes by the headline rule, its tokens and its wrong ones."""
    data = read_tokens(inputs)
    if data is None or inputs.tables is None:
        return None
    summary, spikes = data.summary, inputs.tables.spikes
    wanted = {"method": summary.spike_method, "divergence": summary.divergence, "checkpoint": summary.final}
    for name, value in wanted.items():
        spikes = spikes.filter(pc.equal(spikes[name], value))
    num = max(data.numbers, default=0) + 1
    wrong = spikes.filter(spikes["is_wrong"])
    all_of, on_wrong = (
        np.bincount(np.asarray(each["sequence_id"].to_numpy(), dtype=np.int64), minlength=num)
        for each in (spikes, wrong)
    )
    known = [at for at, row in enumerate(data.rows) if row["wrong_positions"]]
    numbers, num_wrong = [data.numbers[at] for at in known], data.counts(data.wrong("wrong"))
    asked = " and ".join(f"{name} == {value!r}" for name, value in wanted.items())
    return Evidence(
        id="spikes",
        table="probe/spikes.parquet and probe/tokens.parquet",
        filter=f"{asked.replace(' == ', ' ')}, on rollouts of “{data.population}” with a known wrong step",
        unit="rollout",
        columns={
            "problem": [data.problems[at] for at in known],
            "rollout": numbers,
            "spikes": all_of[numbers].tolist(),
            "on wrong": on_wrong[numbers].tolist(),
            "tokens": data.lengths[known].tolist(),
            "wrong tokens": [num_wrong[at] for at in known],
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
