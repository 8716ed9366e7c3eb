"""The rows that sentences about a run were made of, a problem each, and the lines of Python that read its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.read import ReportInputs

Column = Sequence[Value]


def paired_evidence(
    inputs: ReportInputs,
    name: Literal["right", "pass", "tokens", "entropy", "trace", "samples", "turned"],
    *figures: Figure,
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


def selection_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each problem whether its greedy answer is right before and after, and what another draw would say."""
    right, samples, turned = (paired_evidence(inputs, name) for name in _DRAWN)
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if right is None or first is None or last is None or summary is None or first is last:
        return right and replace(right, id="selection")
    ends = first.checkpoint, last.checkpoint
    before, after = (right.columns[name] for name in ends)
    columns = dict(right.columns)
    if samples is not None and samples.columns["problem"] == right.columns["problem"]:
        chosen = [not one and bool(two) for one, two in zip(before, after, strict=True)]
        drawn = zip(*(samples.columns[name] for name in ends), strict=True)
        again = [(1 - _number(wrong)) * _number(now) for wrong, now in drawn]
        columns["selected again"] = [value if own else None for own, value in zip(chosen, again, strict=True)]
    if turned is not None and turned.columns["problem"] == right.columns["problem"]:
        columns[f"turned by {first.checkpoint} itself"] = turned.columns[first.checkpoint]
    return replace(
        right,
        id="selection",
        columns=columns,
        figures=figures,
        note="Selected again: the share of pairs of samples by which a problem would be selected; turned by itself: "
        "the chance that one sample of the old model is wrong and another right. Brackets are intervals over problems.",
    )


_DRAWN: tuple[Literal["right"], Literal["samples"], Literal["turned"]] = ("right", "samples", "turned")


def kinds_evidence(inputs: ReportInputs, kinds: Sequence[str], *figures: Figure) -> Evidence | None:
    """Return of each problem its kind and whether its greedy answer is right, before and after.

    Some kinds have columns of their own, as `kind_column` calls them, in which problems of others are empty.
    """
    right = paired_evidence(inputs, "right")
    if right is None:
        return None
    known = [inputs.kinds.get(str(problem), "") for problem in right.columns["problem"]]
    ends = [name for name in right.columns if name not in ("problem", "rollout")]
    own = {
        kind_column(name, kind): [
            value if kind == each else None for value, each in zip(right.columns[name], known, strict=True)
        ]
        for kind in kinds
        for name in ends
    }
    return replace(right, id="greedy-kinds", columns={**right.columns, "kind": known, **own}, figures=figures)


def kind_column(label: str, kind: str) -> str:
    """Return what the column of a kind's answers at a checkpoint is called."""
    return f"{label}, {kind}"


def planted_evidence(inputs: ReportInputs, *figures: Figure) -> Evidence | None:
    """Return of each problem whether its greedy answer is right, and has a wrong step, before and after."""
    right, trace = paired_evidence(inputs, "right"), paired_evidence(inputs, "trace")
    if right is None or trace is None or right.columns["problem"] != trace.columns["problem"]:
        return right and replace(right, figures=figures)
    ends = [name for name in trace.columns if name not in ("problem", "rollout")]
    steps = {f"a wrong step at {name}": [1 - _number(value) for value in trace.columns[name]] for name in ends}
    return replace(right, id="greedy-steps", columns={**right.columns, **steps}, figures=figures)


def _number(value: Value) -> float:
    assert isinstance(value, float | int)
    return value


IMPORTS = "import pandas as pd, swerve"


def frame_line(inputs: ReportInputs, name: str) -> str:
    """Return the line of Python that reads a table of the run."""
    return f"pd.read_parquet(swerve.Run({inputs.run_name!r}).path / {name!r})"


def frame_lines(inputs: ReportInputs, **tables: str) -> str:
    """Return the lines of Python that read tables of the run, each under its name."""
    lines = (f"{name} = {frame_line(inputs, table)}\n" for name, table in tables.items())
    return f"{IMPORTS}\n{''.join(lines)}"


def _rollouts(inputs: ReportInputs, problems: Sequence[str]) -> Mapping[str, Column]:
    """Return the first rollout of each problem that the page lists; nothing where it lists none of them."""
    if inputs.tables is None:
        return {}
    first: dict[str, int] = {}
    for number, problem in enumerate(inputs.tables.sequences["problem_id"].to_pylist()):
        first.setdefault(problem, number)
    found = [first.get(problem) for problem in problems]
    return {"rollout": found} if any(number is not None for number in found) else {}
