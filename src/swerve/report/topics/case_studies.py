"""Case studies: one rollout of a problem, token by token, with its spikes and what a swapped token did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.errors import ConfigError, nearest
from swerve.report.draw.figures import (
    COLOURS,
    GREY,
    Drawing,
    Row,
    figure_of,
    label_text,
    legend_beside,
    named_rows,
    set_title,
)
from swerve.report.names import METHODS, divergence_name, named
from swerve.report.read import ProbeTables, ReportInputs
from swerve.report.rollouts import RolloutRows, headline_rows
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_CHOSEN = 3
_MONO = "DejaVu Sans Mono"
_COLUMNS, _LINES = 100, 8
"""Characters and lines of the text that a figure shows."""
_MAX_CELLS = 70
"""Tokens of a heat map."""
_ARMS = {"reference": "rollout's own", "checkpoint": "{final}'s choice", "alternative": "neither's choice"}
_DEEP = 0.6
"""Fraction of the highest divergence from which the background is dark."""
_PALE, _DARK = "#b6bcc6", COLOURS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """One rollout with what figures of it show."""

    name: str
    """The problem's id as a part of a file's name."""
    summary: ProbeSummary
    sequence: Mapping[str, Any]
    rows: RolloutRows
    words: tuple[str, ...]
    """Its tokens."""

    @property
    def id(self) -> int:
        """Of the sequence."""
        return int(self.sequence["sequence_id"])

    @property
    def final(self) -> list[dict[str, Any]]:
        """Rows of the tokens at the final checkpoint."""
        return self.rows.tokens.get((self.id, self.summary.final), [])

    @property
    def spikes(self) -> dict[int, float]:
        """Position and threshold of the spikes of the final checkpoint, by the headline divergence and method."""
        spikes = self.rows.spikes.get((self.id, self.summary.final), [])
        return {row["position"]: row["threshold"] for row in spikes if row["divergence"] == self.summary.divergence}

    @property
    def swaps(self) -> list[dict[str, Any]]:
        """The arms of the swap at this rollout's top spike; none where it was not tested."""
        swaps = self.rows.interventions.get(self.id, [])
        return [row for row in swaps if row["selection"] == "spike" and row["spike_sequence_id"] == self.id]

    @property
    def spike(self) -> int:
        """Position of the swap, else of the highest divergence."""
        if self.swaps:
            return int(self.swaps[0]["position"])
        return int(max(self.final, key=lambda row: (row[self.summary.divergence], -row["position"]))["position"])

    def around_spike(self, num: int) -> range:
        """Return so many positions around the spike, all of them where there are no more."""
        start = max(0, min(self.spike - num // 2, len(self.words) - num))
        return range(start, min(len(self.words), start + num))

    def where(self, shown: range) -> str:
        """Say which of the tokens are shown; empty where all are."""
        if len(shown) == len(self.words):
            return ""
        return f", tokens {shown.start:,} to {shown.stop - 1:,} of {len(self.words):,}"


def case_studies(inputs: ReportInputs) -> Iterator[CaseStudy]:
    """Yield a rollout of each chosen problem: of the headline population where it has one.

    Raises:
        ConfigError: a chosen problem has no rollout in the probe; the message names the nearest.
    """
    summary = inputs.summary
    if summary is None or inputs.tables is None:
        return
    tables = headline_rows(inputs.tables, reference=summary.reference, method=summary.spike_method)
    sequences = _chosen(inputs.problems, summary, tables)
    rows = RolloutRows.of(tables, [sequence["sequence_id"] for sequence in sequences])
    names: list[str] = []
    for sequence in sequences:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", sequence["problem_id"]).strip("-.")[:60] or "problem"
        names.append(name)
        if (repeat := names.count(name)) > 1:
            name = f"{name}-{repeat}"
        study = CaseStudy(name=name, summary=summary, sequence=sequence, rows=rows, words=tuple(rows.words(sequence)))
        if study.final:
            yield study


def _chosen(problems: Sequence[str], summary: ProbeSummary, tables: ProbeTables) -> list[dict[str, Any]]:
    """Return the rollouts of the problems; without any those where the swap, then the divergence, is largest."""
    # The highest divergence of each rollout at the final checkpoint.
    at_final = tables.tokens.filter(pc.equal(tables.tokens["checkpoint"], summary.final))
    grouped = at_final.group_by("sequence_id").aggregate([(summary.divergence, "max")]).to_pydict()
    highest = dict(zip(grouped["sequence_id"], grouped[f"{summary.divergence}_max"], strict=True))
    effects = _swap_effects(tables)
    columns = ["sequence_id", "problem_id", "population"]
    known = [
        sequence for sequence in tables.sequences.select(columns).to_pylist() if sequence["sequence_id"] in highest
    ]

    def order(sequence: Mapping[str, Any]) -> tuple[Any, ...]:
        id = sequence["sequence_id"]
        return sequence["population"] != summary.population, -effects.get(id, -1.0), -highest[id], id

    # One rollout of each problem, the one with the largest swap first.
    first: dict[str, int] = {}
    for sequence in sorted(known, key=order):
        first.setdefault(sequence["problem_id"], sequence["sequence_id"])
    for problem in problems:
        if problem not in first:
            raise ConfigError(f"--problem: the probe has no rollout of problem '{problem}'{nearest(problem, first)}")
    chosen = [first[problem] for problem in dict.fromkeys(problems)] or list(first.values())[:_NUM_CHOSEN]
    rows = tables.sequences.filter(pc.is_in(tables.sequences["sequence_id"], pc.cast(chosen, "int32"))).to_pylist()
    return sorted(rows, key=lambda row: chosen.index(row["sequence_id"]))


def _swap_effects(tables: ProbeTables) -> dict[int, float]:
    """Return the checkpoint's success minus that of the rollout's own token at each tested spike, by sequence."""
    success: dict[tuple[int, str], float] = {}
    for row in [] if tables.interventions is None else tables.interventions.to_pylist():
        if row["selection"] == "spike" and row["sequence_id"] == row["spike_sequence_id"]:
            success[row["sequence_id"], row["arm"]] = row["num_successes"] / max(1, row["num_continuations"])
    own = {id: value for (id, arm), value in success.items() if arm == "reference"}
    return {id: success[id, "checkpoint"] - value for id, value in own.items() if (id, "checkpoint") in success}


def _token(word: str, *, limit: int = 14) -> str:
    """Return a token as figures show it: its spaces visible."""
    return label_text(word.replace(" ", "\N{OPEN BOX}"), limit=limit, font=_MONO)


def _line_rows(study: CaseStudy) -> tuple[Row, ...]:
    wrong, spikes = set(study.sequence["wrong_positions"] or []), study.spikes
    return tuple(
        {
            "position": row["position"],
            "token": study.words[row["position"]],
            **{key: row[key] for key in DIVERGENCE_NAMES},
            "is_spike": row["position"] in spikes,
            "threshold": spikes.get(row["position"]),
            "is_wrong": row["position"] in wrong,
        }
        for row in study.final
    )


def _draw_line(axes: Axes, *, study: CaseStudy) -> None:
    """Draw the divergences of the final checkpoint along the rollout, with its spikes and known wrong steps."""
    positions = [row["position"] for row in study.final]
    for colour, (key, name) in zip(COLOURS, DIVERGENCE_NAMES.items(), strict=False):
        axes.plot(positions, [row[key] for row in study.final], color=colour, linewidth=1.1, label=name)
    values = [row[study.summary.divergence] for row in study.final]
    spikes = [position for position in study.spikes if position < len(values)]
    axes.plot(
        spikes, [values[position] for position in spikes], "v", color=COLOURS[5], markersize=5,
        label=label_text(f"{named(METHODS, study.summary.spike_method)} spike of {divergence_name(study.summary)}"),
    )  # fmt: skip
    for index, position in enumerate(study.sequence["wrong_positions"] or []):
        axes.axvspan(
            position - 0.5, position + 0.5, color="#f3d9a4", linewidth=0, zorder=0,
            label="known wrong step" if index == 0 else None,
        )  # fmt: skip
    axes.set_xlabel("position of the token")
    axes.set_ylabel("nats")
    axes.set_ylim(bottom=0)
    set_title(axes, f"{study.sequence['problem_id']}: {study.summary.final} against {study.summary.reference}")
    legend_beside(axes)


def _draw_text(axes: Axes, *, study: CaseStudy) -> None:
    """Draw the rollout's text, each token on a background as dark as its divergence."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    values = [row[study.summary.divergence] for row in study.final]
    top = max(values, default=0.0) or 1.0
    cells, shown = _text_cells(study)
    for line, column, position, text in cells:
        depth = min(1.0, values[position] / top) if position < len(values) else 0.0
        place = (column, line - 0.42)
        axes.add_patch(
            Rectangle(
                place, len(text), 0.84, facecolor=colormaps["Blues"](0.9 * depth), linewidth=1.0,
                edgecolor=_DARK if position == study.spike else "none", zorder=3 if position == study.spike else 2,
            )
        )  # fmt: skip
        axes.text(
            column, line, text.replace("$", r"\$"), family=_MONO, fontsize=7.0, va="center_baseline", zorder=4,
            color="white" if depth > _DEEP else "black",
        )  # fmt: skip
    axes.set_xlim(0, _COLUMNS)
    axes.set_ylim(cells[-1][0] + 0.6, -0.6)
    axes.set_axis_off()
    outcome = "right" if study.sequence["correct"] else "wrong"
    set_title(axes, f"Text of {study.sequence['label']} ({outcome}){study.where(shown)}")


def _text_cells(study: CaseStudy) -> tuple[list[tuple[int, int, int, str]], range]:
    """Return line, column, position and text of the tokens that fit, around the spike; and which these are."""
    texts = [_token(word, limit=24).replace(r"\$", "$") for word in study.words]
    num = len(texts)
    while True:
        shown = study.around_spike(num)
        cells, line, column = [], 0, 0
        for position in shown:
            width = len(texts[position]) + 1
            if column and column + width > _COLUMNS:
                line, column = line + 1, 0
            cells.append((line, column, position, texts[position]))
            column += width
        if line < _LINES:
            return cells, shown
        num = min(len(shown) - 1, num * 9 // 10)


def _top_tokens(study: CaseStudy) -> dict[str, dict[str, float]]:
    """Return the most likely tokens at the spike with their probabilities, of the reference and the checkpoint."""
    tokens = {}
    for label in (study.summary.reference, study.summary.final):
        rows = study.rows.topk.get((study.id, label), [])
        row = next((row for row in rows if row["position"] == study.spike), None)
        if row is not None:
            tokens[label] = dict(zip(row["tokens"], row["probs"], strict=True))
    return tokens


def _draw_top(axes: Axes, *, study: CaseStudy) -> None:
    """Draw the probabilities of both models' likeliest tokens at the spike; one that is in no top list has no bar."""
    top = _top_tokens(study)
    tokens = list(dict.fromkeys(token for probs in top.values() for token in list(probs)[:5]))
    rows = named_rows(axes, [_token(token).replace(r"\$", "$") for token in tokens])
    for sign, colour, (label, probs) in zip((-1, 1), (_PALE, _DARK), top.items(), strict=False):
        known = [(row + sign * 0.19, probs[token]) for row, token in zip(rows, tokens, strict=True) if token in probs]
        axes.barh(
            [row for row, _ in known], [value for _, value in known], 0.36, color=colour,
            label=label_text(label, limit=24),
        )  # fmt: skip
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("probability")
    set_title(axes, f"Likeliest tokens at position {study.spike:,}")
    legend_beside(axes)


def _draw_swap(axes: Axes, *, study: CaseStudy) -> None:
    """Draw the success of the continuations after each forced token."""
    swaps = study.swaps
    names = [f"{_ARMS[row['arm']].format(final=study.summary.final)}: {row['token']}" for row in swaps]
    rows = named_rows(axes, names)
    fractions = [row["num_successes"] / max(1, row["num_continuations"]) for row in swaps]
    axes.barh(rows, fractions, 0.5, color=[_DARK if row["arm"] == "checkpoint" else _PALE for row in swaps])
    for place, fraction, row in zip(rows, fractions, swaps, strict=True):
        axes.text(
            fraction + 0.02, place, f"{row['num_successes']} of {row['num_continuations']}", va="center", fontsize=8,
            color=GREY,
        )  # fmt: skip
    axes.set_xlim(0, 1.3)
    axes.set_xticks([0.0, 0.5, 1.0])
    axes.set_xlabel("fraction right")
    model = study.summary.final if swaps[0]["policy"] == "checkpoint" else study.summary.reference
    set_title(axes, f"Success when {model} continues")


def _draw_study(*panels: Axes, study: CaseStudy) -> None:
    drawn = (_draw_text, _draw_line, _draw_top, _draw_swap)
    if not _top_tokens(study):
        drawn = (_draw_text, _draw_line, _draw_swap, _draw_swap)
    for axes, draw in zip(panels, drawn, strict=False):
        draw(axes, study=study)


def _study_drawing(study: CaseStudy) -> Drawing:
    rows: list[Row] = [{"panel": "divergence", **row} for row in _line_rows(study)]
    for label, probs in _top_tokens(study).items():
        place: Row = {"panel": "likeliest tokens", "position": study.spike, "model": label}
        rows += [{**place, "token": token, "probability": value} for token, value in probs.items()]
    keys = ("position", "token", "arm", "policy", "num_continuations", "num_successes")
    rows += [{"panel": "swap", **{key: row[key] for key in keys}} for row in study.swaps]
    num = len([part for part in (_top_tokens(study), study.swaps) if part])
    cells, _ = _text_cells(study)
    heights = (0.2 * (1 + cells[-1][0]), 1.9, 1.7)[: 2 + bool(num)]
    return Drawing(
        name=f"case_study_{study.name}",
        draw=partial(_draw_study, study=study),
        rows=tuple(rows),
        panels="AA;BB" + ("", ";CC", ";CD")[num],
        heights=heights,
        size=(9.0, sum(heights) + 0.8 * len(heights)),
    )


def _line_drawing(study: CaseStudy) -> Drawing:
    name = f"line_plot_with_spikes_{study.name}"
    return Drawing(name=name, draw=partial(_draw_line, study=study), rows=_line_rows(study), size=(8.0, 3.0))


def _map_drawing(study: CaseStudy) -> Drawing:
    """Return the headline divergence of the tokens around the spike at every checkpoint."""
    key, shown = study.summary.divergence, study.around_spike(_MAX_CELLS)
    labels = [label for label in study.summary.checkpoints if (study.id, label) in study.rows.tokens]
    values = [[row[key] for row in study.rows.tokens[study.id, label][shown.start : shown.stop]] for label in labels]
    rows = (
        {"checkpoint": label, "position": position, "token": study.words[position], key: value}
        for label, each in zip(labels, values, strict=True)
        for position, value in zip(shown, each, strict=True)
    )
    return Drawing(
        name=f"token_heat_map_{study.name}",
        draw=partial(_draw_map, study=study, labels=labels, values=values, shown=shown),
        rows=tuple(rows),
        size=(max(6.0, 2.6 + 0.15 * len(shown)), 1.9 + 0.25 * len(labels)),
    )


def _draw_map(
    axes: Axes, *, study: CaseStudy, labels: Sequence[str], values: Sequence[Sequence[float]], shown: range
) -> None:
    image = axes.imshow(values, aspect="auto", cmap="Blues", vmin=0.0, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_yticks(range(len(labels)), [label_text(label, limit=24) for label in labels])
    words = [_token(study.words[position], limit=10) for position in shown]
    axes.set_xticks(range(len(words)), words, rotation=90, family=_MONO, fontsize=7)
    spike = study.spike - shown.start
    axes.axvspan(spike - 0.5, spike + 0.5, fill=False, edgecolor=_DARK, linewidth=1.2)
    figure_of(axes).colorbar(image, ax=axes, label="nats", pad=0.01)
    set_title(axes, f"{divergence_name(study.summary)} on {study.sequence['problem_id']}{study.where(shown)}")


def _each(draw: Callable[[CaseStudy], Drawing]) -> Callable[[ReportInputs], Iterator[Drawing]]:
    return lambda inputs: map(draw, case_studies(inputs))


TOPIC = Topic(
    figures={
        "case_study": FigureSpec(
            shows="A rollout with its divergence and spikes, both models' likeliest tokens and the swap at the spike.",
            draw=_each(_study_drawing),
            is_of_problem=True,
        ),
        "token_heat_map": FigureSpec(
            shows="The divergence of every token of a rollout at every checkpoint.",
            draw=_each(_map_drawing),
            is_of_problem=True,
        ),
        "line_plot_with_spikes": FigureSpec(
            shows="The divergences along a rollout at the final checkpoint, with its spikes.",
            draw=_each(_line_drawing),
            is_of_problem=True,
        ),
    },
)
