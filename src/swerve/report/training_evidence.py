"""The rows of sentences about training: when tokens left, how they were pushed, which tokens decide a spike, steps."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from swerve.artifacts.probe_causes import Attribution
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.read import ReportInputs
from swerve.report.read_tokens import read_tokens
from swerve.report.run_evidence import frame_line, frame_lines

_NUM_RECENT = 5
"""Tokens before a spike that count as just before it."""
_LEAST_MOVE = 0.01
"""Nats: a log-probability that changed by less has not moved."""


def biography_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout with a wrong step how many of its wrong and other tokens left the reference for good."""
    table = None if inputs.tables is None else inputs.tables.read("biographies")
    data = read_tokens(inputs)
    if table is None or data is None:
        return None
    left = table.filter(pc.is_valid(table["onset_step"]))
    moved = {*zip(left["sequence_id"].to_pylist(), left["position"].to_pylist(), strict=True)}
    known = [row for row in data.rows if row["wrong_positions"]]
    every: dict[int, list[int]] = {}
    for number, position in zip(table["sequence_id"].to_pylist(), table["position"].to_pylist(), strict=True):
        every.setdefault(number, []).append(position)
    cells: list[tuple[int, ...]] = []
    for row in known:
        number, wrong = row["sequence_id"], {*row["wrong_positions"]}
        own = every.get(number, [])
        gone = [position for position in own if (number, position) in moved]
        num_wrong, wrong_gone = (sum(position in wrong for position in some) for some in (own, gone))
        cells.append((num_wrong, wrong_gone, len(own) - num_wrong, len(gone) - wrong_gone))
    names = ("wrong tokens", "of them left", "other tokens", "of those left")
    return Evidence(
        id="biographies",
        table="probe/biographies.parquet and probe/sequences.parquet",
        filter=f"on rollouts of “{data.population}” with a known wrong step",
        unit="rollout",
        columns={
            "problem": [row["problem_id"] for row in known],
            "rollout": [row["sequence_id"] for row in known],
            **{name: [row[at] for row in cells] for at, name in enumerate(names)},
        },
        figures=figures,
        command=f"{frame_lines(inputs, lives='probe/biographies.parquet')}"
        f"sequences = {frame_line(inputs, 'probe/sequences.parquet')}"
        f".query({f'population == {data.population!r}'!r}).set_index('sequence_id')\n"
        "wrong = sequences.wrong_positions[sequences.wrong_positions.str.len() > 0]\n"
        "lives = lives[lives.sequence_id.isin(wrong.index)]\n"
        "is_wrong = pd.Series([place in wrong[number] for number, place in zip(lives.sequence_id, lives.position)], "
        "lives.index)\n"
        "left, own = lives.onset_step.notna(), lives.sequence_id\n"
        "rows = pd.DataFrame({'wrong tokens': is_wrong.groupby(own).sum(), 'of them left': (is_wrong & left)"
        ".groupby(own).sum(), 'other tokens': (~is_wrong).groupby(own).sum(), 'of those left': (~is_wrong & left)"
        ".groupby(own).sum()})",
        note="Brackets are intervals over problems.",
    )


def signal_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each rollout of training how many tokens moved, and how many the way their advantage pushed."""
    table = None if inputs.tables is None else inputs.tables.read("signals")
    data = read_tokens(inputs, "training")
    summary = inputs.summary
    if table is None or data is None or summary is None:
        return None
    last = inputs.final
    step = None if last is None else last.step
    rows = zip(*(table[name].to_pylist() for name in ("sequence_id", "position", "advantage", "used", "step")),
               strict=True)  # fmt: skip
    pushes = {
        (number, position): advantage
        for number, position, advantage, used, at in rows
        if used and advantage and (step is None or at <= step)
    }
    floor = max(_LEAST_MOVE, _noise(inputs))
    moves = data.column("logprob") - data.column("logprob_ref")
    numbers = np.array(data.numbers)[data.rollout].tolist()
    advantages = np.array(
        [pushes.get(spot) or 0.0 for spot in zip(numbers, data.positions.tolist(), strict=True)], dtype=np.float64
    )
    moved = (advantages != 0) & (abs(moves) > floor)
    kept = [at for at, number in enumerate(data.counts(moved)) if number]
    counts = {
        "moved": data.counts(moved),
        "as pushed": data.counts(moved & (advantages * moves > 0)),
        "pushed up": data.counts(moved & (advantages > 0)),
        "rose": data.counts(moved & (moves > 0)),
    }
    return Evidence(
        id="signals",
        table="probe/signals.parquet and probe/tokens.parquet",
        filter=f"{data.filter}; tokens that an update used with an advantage other than 0 and that moved by more than "
        f"{floor:g} nats",
        unit="rollout",
        columns=data.of_rollouts(kept, counts),
        figures=figures,
        note="By chance a token that is pushed up rises as often as any other. Brackets are intervals over problems.",
    )


def _noise(inputs: ReportInputs) -> float:
    """Return ten times by how much log-probabilities differ in one model run twice, where biographies recorded it."""
    summary = inputs.summary
    return 0.0 if summary is None or summary.biographies is None else summary.biographies.noise / 10


def attribution_evidence(inputs: ReportInputs, entry: Attribution, *figures: Figure) -> Evidence | None:
    """Return of each spike which share of the attribution is on the tokens just before it."""
    table = None if inputs.tables is None else inputs.tables.read("attributions")
    if table is None or inputs.tables is None:
        return None
    problems = inputs.tables.sequences["problem_id"].to_pylist()
    own = table.filter(pc.and_(pc.equal(table["model"], entry.model), pc.equal(table["method"], entry.method)))
    cells: list[tuple[Value, ...]] = []
    for row in own.to_pylist():
        scores = [*row["prompt_scores"], *row["completion_scores"]]
        recent = scores[-_NUM_RECENT:]
        number = row["sequence_id"]
        cells.append((problems[number], number, row["position"], sum(recent), len(recent) / len(scores)))
    names = ("problem", "rollout", "token", "on the last 5", "if all counted alike")
    return Evidence(
        id=f"attribution-{entry.model}",
        table="probe/attributions.parquet",
        filter=f"scores of {entry.model} by {entry.method}",
        unit="spike",
        columns={name: [row[at] for row in cells] for at, name in enumerate(names)},
        figures=figures,
        note="Brackets are intervals over problems.",
    )


def step_evidence(inputs: ReportInputs, stage: str, *figures: Figure) -> Evidence:
    """Return every step of a stage of training."""
    steps = [step for step in inputs.metrics if step.stage == stage]
    columns = {"step": "stage_step", "reward": "reward", "loss": "loss", "sampler gap": "logprob_gap"}
    return Evidence(
        id=f"steps-{stage}",
        table="metrics.jsonl",
        filter=f"stage {stage}",
        unit="step",
        columns={name: [getattr(step, key) for step in steps] for name, key in columns.items()},
        figures=figures,
    )
