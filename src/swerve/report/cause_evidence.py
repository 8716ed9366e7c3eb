"""The rows that sentences about causes were made of: forced tokens, tokens of another model, values along rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.probe_causes import (
    CrossSamplingDirection,
    CrossSamplingPoint,
    CrossSamplingSelector,
    Prediction,
)
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.names import SELECTORS, named
from swerve.report.read import ReportInputs
from swerve.report.read_tokens import read_tokens
from swerve.report.run_evidence import frame_lines


def swap_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each top spike how often the reference ends right after each of the tokens that were forced there."""
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return None
    wanted = pc.and_(
        pc.equal(tables.interventions["selection"], "spike"), pc.equal(tables.interventions["policy"], "reference")
    )
    table = tables.interventions.filter(wanted)
    spots = _arms(table)
    success = {spot: {arm: _success(row) for arm, row in own.items()} for spot, own in spots.items()}
    ids = {spot: [own[arm]["token_id"] if arm in own else None for arm in _ENDS] for spot, own in spots.items()}
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
            **{name: [spot.get(arm) for spot in success.values()] for name, arm in arms.items()},
            **{
                f"{name} where it differs": [
                    own.get(arms[name]) if ids[spot][0] != ids[spot][1] else None for spot, own in success.items()
                ]
                for name in (f"token of {summary.final}", "other token")
            },
            "effect": [_effect(spot) for spot in success.values()],
            **_controls(inputs, [number for number, _ in spots]),
        },
        figures=figures,
        command=f"{frame_lines(inputs, forced='probe/interventions.parquet')}"
        "forced = forced.query(\"selection == 'spike' and policy == 'reference'\")\n"
        "forced['right'] = forced.first_successes / forced.first_continuations\n"
        "rows = forced.pivot_table(index=['sequence_id', 'position'], columns='arm', values='right', observed=True)\n"
        f"rows = rows.rename(columns={ {arm: name for name, arm in arms.items()} })\n"
        "ids = forced.pivot_table(index=['sequence_id', 'position'], columns='arm', values='token_id', observed=True)\n"
        "others = rows.drop(columns='own token').where(ids.reference != ids.checkpoint)\n"
        "rows = rows.join(others.add_suffix(' where it differs'))",
        note="A number is the share of right continuations; brackets are intervals over problems.",
    )


_Arms = dict[str, Mapping[str, Any]]
"""Which token was forced (`reference`, `checkpoint`, `alternative`) -> the row of its continuations."""
_ENDS = ("reference", "checkpoint")


def _arms(table: pa.Table) -> dict[tuple[int, int], _Arms]:
    """Return the tokens that were forced, by rollout and position."""
    spots: dict[tuple[int, int], _Arms] = {}
    for row in table.to_pylist():
        spots.setdefault((row["sequence_id"], row["position"]), {})[str(row["arm"])] = row
    return spots


def _success(row: Mapping[str, Any]) -> float:
    """Return the share of right continuations of those whose number was fixed before anything was seen.

    Drawing until the data are clear favours clear data.
    """
    num, right = row["first_continuations"], row["first_successes"]
    return float(right / num) if num else float(row["num_successes"] / row["num_continuations"])


def _effect(arms: Mapping[str, float]) -> float | None:
    return arms["checkpoint"] - arms["reference"] if {"checkpoint", "reference"} <= arms.keys() else None


def _controls(inputs: ReportInputs, rollouts: Sequence[int]) -> Mapping[str, Sequence[Value]]:
    """Return of each spike's rollout what the same swap does at its controls, and whether the tokens are the same."""
    assert inputs.tables is not None
    found: dict[str, Sequence[Value]] = {}
    table = inputs.tables.interventions
    table = table.filter(pc.equal(table["policy"], "reference"))
    for selection in ("matched", "random"):
        arms: dict[int, dict[str, tuple[float, int]]] = {}
        for row in table.filter(pc.equal(table["selection"], selection)).to_pylist():
            arms.setdefault(row["spike_sequence_id"], {})[str(row["arm"])] = (_success(row), row["token_id"])
        known = [arms.get(number, {}) for number in rollouts]
        effects = [
            own["checkpoint"][0] - own["reference"][0] if {"checkpoint", "reference"} <= own.keys() else None
            for own in known
        ]
        if any(effect is not None for effect in effects):
            found[f"effect at its {selection} position"] = effects
            found[f"same token at its {selection} position"] = [
                int(own["checkpoint"][1] == own["reference"][1]) if effect is not None else None
                for own, effect in zip(known, effects, strict=True)
            ]
    return found


def prediction_evidence(inputs: ReportInputs, entry: Prediction, *figures: Figure) -> Evidence | None:
    """Return of each swapped position the size of the effect there, and the scores that might go with it."""
    data = read_tokens(inputs)
    if data is None or inputs.tables is None:
        return None
    table = inputs.tables.interventions
    table = table.filter(pc.equal(table["policy"], entry.policy))
    spots = _arms(table.filter(pc.is_in(table["selection"], pa.array(["spike", "matched", "random"]))))
    kept = {spot: _squared_effect(arms["reference"], arms["checkpoint"]) for spot, arms in spots.items()
            if arms["reference"]["token_id"] != arms["checkpoint"]["token_id"]}  # fmt: skip
    kept = {spot: size for spot, size in kept.items() if size is not None}
    numbers = np.array(data.numbers)[data.rollout].tolist()
    places = {spot: at for at, spot in enumerate(zip(numbers, data.positions.tolist(), strict=True))}
    moves = data.column("logprob") - data.column("logprob_ref")
    scores = {
        **{str(key): data.column(key) for key in DIVERGENCE_NAMES},
        "abs_logprob_change": abs(moves),
        "logprob_drop": -moves,
        "entropy": data.column("entropy_ref"),
        "entropy_change": data.column("entropy") - data.column("entropy_ref"),
        "rank": data.column("rank"),
    }
    of = dict(zip(data.numbers, data.problems, strict=True))
    return Evidence(
        id=f"prediction-{entry.policy}",
        table="probe/interventions.parquet and probe/tokens.parquet",
        filter=f"swapped positions where the two models' tokens differ, continued by the {entry.policy}",
        unit="position",
        columns={
            "problem": [of[number] for number, _ in kept],
            "rollout": [number for number, _ in kept],
            "token": [position for _, position in kept],
            "size of the effect": list(kept.values()),
            **{
                named(SELECTORS, name): [float(values[places[spot]]) if spot in places else None for spot in kept]
                for name, values in scores.items()
            },
        },
        figures=figures,
        note="The size is the product of the effects in two halves of the continuations: 0 on average without an "
        "effect. Rank correlations of the scores with it are made by swerve.statistics.spearman, clusters=problem.",
    )


def _squared_effect(own: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """Return the effect in the even continuations times that in the odd ones."""
    halves = []
    for row in (own, other):
        num, right, even = row["first_continuations"], row["first_successes"], row["first_even_successes"]
        if even is None or not num or num < 2:
            return None
        halves.append((even / (num - num // 2), (right - even) / (num // 2)))
    (before, before_odd), (after, after_odd) = halves
    return float((after - before) * (after_odd - before_odd))


def dose_evidence(
    inputs: ReportInputs,
    entry: CrossSamplingDirection,
    dose: tuple[CrossSamplingSelector, CrossSamplingPoint] | None,
    *figures: Figure,
) -> Evidence | None:
    """Return of each problem how often one model is right alone, with some tokens of the other, and the other alone."""
    table = None if inputs.tables is None else inputs.tables.cross_samples
    if table is None:
        return None
    selector, budget = ("", -1.0) if dose is None else (dose[0].selector, dose[1].budget)
    of: dict[str, dict[str, list[float]]] = {}
    table = table.filter(pc.equal(table["direction"], entry.direction))
    keys = zip(*(table[name].to_pylist() for name in ("problem_id", "selector", "share", "correct")), strict=True)
    sizes = zip(*(pc.list_value_length(table[name]).to_pylist() for name in ("swapped", "completion_ids")), strict=True)
    for (problem, chosen, share, is_right), (swapped, length) in zip(keys, sizes, strict=True):
        if share in (0.0, 1.0):
            name = "alone" if share == 0 else "other alone"
        elif abs(share - budget) < 1e-6 and chosen in (selector, "random"):
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
    chosen_tokens = f"share {budget:g}, selector {selector} or random, and both models alone"
    columns: dict[str, Sequence[Value]] = {
        "problem": [*of],
        **{shown: [mean(cells.get(name)) for cells in of.values()] for name, shown in names.items()},
        **{name: [sum(cells.get(name, ())) for cells in of.values()] for name in ("tokens taken", "tokens")},
    }
    if dose is None:
        columns = {name: columns[name] for name in ("problem", "alone", "other")}
    return Evidence(
        id=f"doses-{entry.direction}",
        table="probe/cross_samples.parquet",
        filter=f"direction {entry.direction}, {'both models alone' if dose is None else chosen_tokens}",
        columns=columns,
        figures=figures,
        command=""
        if dose is None
        else f"{frame_lines(inputs, crossed='probe/cross_samples.parquet')}"
        f"crossed = crossed[crossed.direction == {entry.direction!r}]\n"
        "def right(crossed): return crossed.groupby('problem_id').correct.mean()\n"
        f"at = crossed[(crossed['share'] - {budget:g}).abs() < 1e-6]\n"
        "rows = pd.DataFrame({'alone': right(crossed[crossed['share'] == 0]), 'with chosen tokens': "
        f"right(at[at.selector == {selector!r}]), 'with random tokens': right(at[at.selector == 'random']), "
        "'other': right(crossed[crossed['share'] == 1])})",
        note="A number is the share of a problem's samples that are right; brackets are intervals over problems.",
    )
