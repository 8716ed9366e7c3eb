"""The rows that sentences about a run were made of, a case each: problems, forced tokens, tokens of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pyarrow.compute as pc

from swerve.artifacts.probe_causes import CrossSamplingDirection, CrossSamplingPoint, CrossSamplingSelector
from swerve.report.evidence import Evidence, Figure, Value
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
    tables = [frame_line(inputs, f"eval/{each.file_name}.parquet") for each in ends]
    read = [f"{table}.query('temperature == 0').set_index('problem_id').{column}" for table in tables]
    made = ", ".join(f"{each.checkpoint!r}: {one}" for each, one in zip(ends, read, strict=True))
    return Evidence(
        id=f"greedy-{name}",
        table=" and ".join(f"eval/{each.file_name}.parquet" for each in ends),
        filter="the greedy answer to each problem (temperature 0)" if column else "the sampled answers to each problem",
        columns={"problem": own.problems, **of, **_rollouts(inputs, own.problems)},
        figures=figures,
        command=f"{IMPORTS}\nrows = pd.DataFrame({{{made}}})" if column else "",
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
        command=f"{IMPORTS}\nforced = {frame_line(inputs, 'probe/interventions.parquet')}\n"
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
        command=f"{IMPORTS}\ncrossed = {frame_line(inputs, 'probe/cross_samples.parquet')}\n"
        f"crossed = crossed[crossed.direction == {entry.direction!r}]\n"
        "def right(crossed): return crossed.groupby('problem_id').correct.mean()\n"
        f"at = crossed[(crossed['share'] - {point.budget:g}).abs() < 1e-6]\n"
        "rows = pd.DataFrame({'alone': right(crossed[crossed['share'] == 0]), 'with chosen tokens': "
        f"right(at[at.selector == {selector.selector!r}]), 'with random tokens': right(at[at.selector == 'random']), "
        "'other': right(crossed[crossed['share'] == 1])})",
        note="A number is the share of a problem's samples that are right; brackets are intervals over problems.",
    )


IMPORTS = "import pandas as pd, swerve"


def frame_line(inputs: ReportInputs, name: str) -> str:
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
