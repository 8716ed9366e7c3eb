"""Case studies: one rollout of a problem, token by token, with its spikes and what a swapped token did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.errors import ConfigError, nearest
from swerve.report.draw.figures import (
    Drawing,
    Panel,
    colour_map,
    curves_panel,
    figure_of,
    label_text,
    rows_panels,
    set_labels,
)
from swerve.report.names import METHODS, divergence_name, named
from swerve.report.read import ReportInputs
from swerve.report.rollouts import Rollouts, rank
from swerve.report.rows import COUNT, JS, NATS, SHARE, Curves, Dots, Rows
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_CHOSEN = 3
_MONO = "DejaVu Sans Mono"
_LETTER = 0.059
"""Width of a letter of it at the size of all text, in inches."""
_NUM_LINES = 10
"""Of the text that a figure shows."""
_TOKEN_WIDTH = 0.11
"""Of a column of a heat map, in inches."""
_INK, _WRONG = "#1c1a17", "#f3d9a4"
_DEEP = 0.5
"""Shade from which text on it is white."""
_ARMS = {"reference": "its own", "checkpoint": "{final}'s", "alternative": "another"}
_MIN_PROBABILITY = 0.01
"""Of the likeliest tokens that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """One rollout with what figures of it show."""

    name: str
    """The problem's id as a part of a file's name."""
    title: str
    summary: ProbeSummary
    tokens: Sequence[str]
    gaps: Sequence[str]
    """What stands before each token."""
    measured: Mapping[str, pa.Table]
    """Rows of its tokens by checkpoint, in the order of checkpoints and tokens."""
    spikes: Sequence[int]
    """Positions at the final checkpoint, by the headline divergence and method."""
    wrong: Sequence[int]
    """Positions known to be wrong."""
    swaps: Sequence[Mapping[str, Any]]
    """The forced tokens at its top spike; none where it was not tested."""
    tops: Mapping[str, Mapping[str, float]]
    """Model -> its likeliest tokens at the spike with their probabilities."""
    spike: int
    """Position of the swap, else of the highest divergence."""

    def values(self, label: str) -> dict[int, float]:
        """Return the headline divergence of a checkpoint by position."""
        table = self.measured[label]
        return dict(zip(table["position"].to_pylist(), table[self.summary.divergence].to_pylist(), strict=True))

    def around_spike(self, num: int) -> range:
        """Return so many positions around the spike, all of them where there are no more."""
        start = max(0, min(self.spike - num // 2, len(self.tokens) - num))
        return range(start, min(len(self.tokens), start + num))

    def where(self, shown: range) -> str:
        """Say which of the tokens are shown; empty where all are."""
        if len(shown) == len(self.tokens):
            return ""
        return f"; tokens {shown.start:,} to {shown.stop - 1:,} of {len(self.tokens):,}"


def case_studies(inputs: ReportInputs) -> Iterator[CaseStudy]:
    """Yield a rollout of each chosen problem: of the headline population where it has one.

    Raises:
        ConfigError: a chosen problem has no rollout in the probe; the message names the nearest.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return
    rollouts = Rollouts.of(summary, tables, inputs.final_completions)
    entries = [rollouts.entry(number) for number in range(len(rollouts.rows))]
    known = [number for number, entry in enumerate(entries) if entry["position"] is not None]

    # One rollout of each problem, the one with the largest effect of its swap first.
    first: dict[str, int] = {}
    for number in sorted(known, key=lambda number: (entries[number]["population"] != 0, *rank(entries[number]))):
        first.setdefault(entries[number]["problem"], number)
    for problem in inputs.problems:
        if problem not in first:
            raise ConfigError(f"--problem: the probe has no rollout of problem '{problem}'{nearest(problem, first)}")
    names: list[str] = []
    for problem in dict.fromkeys(inputs.problems) or list(first)[:_NUM_CHOSEN]:
        bare = re.sub(r"\.jsonl?$", "", problem)
        names.append(re.sub(r"[^A-Za-z0-9._-]+", "-", bare).strip("-.")[:60] or "problem")
        repeat = names.count(names[-1])
        number, entry = first[problem], entries[first[problem]]
        outcome = {True: ", right", False: ", wrong", None: ""}[entry["correct"]]
        yield _study(
            inputs, rollouts, number, entry["position"], name=names[-1] + (f"-{repeat}" if repeat > 1 else ""),
            title=f"{bare} by {entry['source']}{outcome}",
        )  # fmt: skip


def _study(inputs: ReportInputs, rollouts: Rollouts, number: int, peak: int, *, name: str, title: str) -> CaseStudy:
    """Return what the tables have of a rollout."""
    summary, tables, row = inputs.summary, inputs.tables, rollouts.rows[number]
    assert summary is not None
    assert tables is not None
    # Its tokens at every checkpoint, and the likeliest tokens at the swap, else at the highest divergence.
    is_own = pc.field("sequence_id") == row["sequence_id"]
    own = tables.tokens.filter(is_own & (pc.field("reference") == summary.reference)).sort_by("position")
    by_label = {label: own.filter(pc.field("checkpoint") == label) for label in summary.checkpoints}
    swaps = [swap for swap in rollouts.swaps[number] if (swap["selection"], swap["spike"]) == ("spike", number)]
    spike = swaps[0]["position"] if swaps else peak
    at_spike = [] if tables.topk is None else tables.topk.filter(is_own & (pc.field("position") == spike)).to_pylist()
    texts, gaps = rollouts.texts[number]
    spikes = rollouts.spikes[number][list(DIVERGENCE_NAMES).index(summary.divergence)]
    return CaseStudy(
        name=name,
        title=title,
        summary=summary,
        tokens=[rollouts.token(number, position) for position in range(len(texts))],
        gaps=gaps,
        measured={label: table for label, table in by_label.items() if table.num_rows},
        spikes=spikes[rollouts.layout.model(summary.final) - 1],
        wrong=row["wrong_positions"] or [],
        swaps=swaps,
        tops={top["checkpoint"]: dict(zip(top["tokens"], top["probs"], strict=True)) for top in at_spike},
        spike=spike,
    )


def _plain(token: str, *, limit: int) -> str:
    """Return a token as it stands in a text; a dot stands for each space of one of spaces alone."""
    return label_text(token.strip(" ") or "\N{MIDDLE DOT}" * len(token), limit=limit, font=_MONO)


def _line_rows(study: CaseStudy) -> Rows:
    """Return the divergences along the rollout at the final checkpoint: JS, which has a bound, apart from the KLs."""
    table = study.measured[study.summary.final]
    places = table["position"].to_pylist()
    *kls, js = DIVERGENCE_NAMES.values()
    marks = [tuple(int(place in marked) for place in places) for marked in (study.spikes, study.wrong)]
    columns = [table[key].to_pylist() for key in DIVERGENCE_NAMES]
    return Rows(
        id=f"line_plot_with_spikes_{study.name}",
        title=f"{study.title}: {study.summary.final} against {study.summary.reference}",
        first="Token",
        columns={
            **{name: replace(JS if name == js else NATS, axis="nats") for name in DIVERGENCE_NAMES.values()},
            "Spike": COUNT,
            "Known wrong": COUNT,
        },
        rows=tuple(zip([study.tokens[place] for place in places], *columns, *marks, strict=True)),
        plots=tuple(
            Curves(columns=names, x=tuple(places), x_title="position of the token") for names in ((js,), tuple(kls))
        ),
    )


def _line_panels(study: CaseStudy) -> list[Panel]:
    """Return the panels of the divergences; that of the headline first, with the spikes and known wrong steps."""
    rows = _line_rows(study)
    panels = [replace(curves_panel(rows, plot), is_wide=True) for plot in rows.plots if isinstance(plot, Curves)]
    if study.summary.divergence != "js":
        panels.reverse()
    names = [f"spike by the {named(METHODS, study.summary.spike_method)} rule"] if study.spikes else []
    names += ["known wrong step"] if study.wrong else []
    draw = partial(_draw_marked, panel=panels[0], study=study)
    return [replace(panels[0], draw=draw, key=(*panels[0].key, *names)), *panels[1:]]


def _draw_marked(axes: Axes, width: float, *, panel: Panel, study: CaseStudy) -> Sequence[Any]:
    handles, values = panel.draw(axes, width)[: len(panel.key)], study.values(study.summary.final)
    # Tokens lie as far from each other as the curve has them, from 0 to 1.
    first, last = min(values), max(values)
    step = 1 / max(1, last - first)
    marked = axes.plot(
        [step * (place - first) for place in study.spikes], [values[place] for place in study.spikes], "v", color=_INK
    )
    spans = [
        axes.axvspan(step * (place - first - 0.5), step * (place - first + 0.5), color=_WRONG, linewidth=1, zorder=0)
        for place in study.wrong
    ]
    return [*handles, *(marked if study.spikes else []), *spans[:1]]


def _text_lines(study: CaseStudy, width: float) -> tuple[list[tuple[int, int, int, str]], range]:
    """Return line, column, position and text of the tokens that fit, around the spike; and which these are."""
    columns = int((width - 0.1) / _LETTER)
    texts = [_plain(token, limit=24).replace(r"\$", "$") for token in study.tokens]
    num = len(texts)
    while True:
        shown = study.around_spike(num)
        cells, line, column = [], 0, 0
        for position in shown:
            column += bool(column and study.gaps[position])
            if column and column + len(texts[position]) > columns:
                line, column = line + 1, 0
            cells.append((line, column, position, texts[position]))
            column += len(texts[position])
        if line < _NUM_LINES:
            return cells, shown
        num = min(len(shown) - 1, num * 9 // 10)


def _draw_text(axes: Axes, width: float, *, study: CaseStudy) -> Sequence[Any]:
    """Draw the rollout's text, each token on a background as deep as its divergence."""
    from matplotlib.patches import Rectangle

    values = study.values(study.summary.final)
    top = max(values.values()) or 1.0
    cells, shown = _text_lines(study, width)
    shades = colour_map()
    # Low shades are told apart as in the reader: by the square root.
    for line, column, position, text in cells:
        depth = float((max(0.0, values.get(position, 0.0)) / top) ** 0.5)
        frame: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4, "zorder": 2}
        if position == study.spike:
            frame = {"edgecolor": _INK, "linewidth": 1.0, "zorder": 3}
        axes.add_patch(Rectangle((column, line - 0.42), len(text), 0.84, facecolor=shades(depth), **frame))
        colour = "white" if depth > _DEEP else _INK
        shown_text = text.replace("$", r"\$")
        axes.text(column, line, shown_text, family=_MONO, va="center_baseline", zorder=4, color=colour)
    axes.set_xlim(-0.3, (width - 0.05) / _LETTER)
    axes.set_ylim(cells[-1][0] + 0.55, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    name = divergence_name(study.summary)
    set_labels(axes, 1.3 * width, x=f"deeper: higher {name}, at most {top:.3g} nats; framed: spike{study.where(shown)}")
    return ()


def _top_rows(study: CaseStudy) -> Rows:
    """Return the probabilities of both models' likeliest tokens at the spike."""
    reference, final = (study.tops.get(label, {}) for label in (study.summary.reference, study.summary.final))
    tokens = [token for token, prob in (*reference.items(), *final.items()) if prob >= _MIN_PROBABILITY]
    unit = replace(SHARE, axis=f"probability at position {study.spike:,} (%)")
    return Rows(
        id="likeliest_tokens",
        title="Likeliest tokens",
        first="Token",
        columns={study.summary.final: unit, study.summary.reference: unit},
        rows=tuple((f'"{token}"', final.get(token), reference.get(token)) for token in dict.fromkeys(tokens)),
        plots=(Dots(column=study.summary.final, null=study.summary.reference),),
    )


def _swap_rows(study: CaseStudy) -> Rows:
    """Return how often an answer is right that goes on after each forced token."""
    summary = study.summary
    model = summary.final if study.swaps and study.swaps[0]["policy"] == "checkpoint" else summary.reference
    names = {}
    for swap in study.swaps:
        arm, num = _ARMS[swap["arm"]].format(final=summary.final), f"{swap['successes']} of {swap['num']}"
        names[swap["arm"]] = f'{arm} "{swap["token"]}": {num}'
    column = f"right when {model} goes on"
    return Rows(
        id="swap",
        title="Forced tokens",
        first="Token",
        columns={column: SHARE, "Continuations": COUNT},
        rows=tuple((names[swap["arm"]], swap["successes"] / max(1, swap["num"]), swap["num"]) for swap in study.swaps),
        plots=(Dots(column=column, greys=tuple(name for arm, name in names.items() if arm != "checkpoint")),),
    )


def _study_drawing(study: CaseStudy) -> Drawing:
    """Return text, divergence along it, both models' likeliest tokens at the spike, and the swap there."""
    text = Panel(
        draw=partial(_draw_text, study=study),
        height=lambda width: 0.42 + 0.16 * (1 + _text_lines(study, width)[0][-1][0]),
        is_wide=True,
        is_aligned=False,
    )
    more = [rows for rows in (_top_rows(study), _swap_rows(study)) if rows.measured]
    parts = {"divergence": _line_rows(study), **{rows.id: rows for rows in more}}
    return Drawing(
        name=f"case_study_{study.name}",
        title=study.title,
        panels=(text, _line_panels(study)[0], *(panel for rows in more for panel in rows_panels(rows))),
        records=tuple({"panel": name, **record} for name, rows in parts.items() for record in rows.records),
    )


def _line_drawing(study: CaseStudy) -> Drawing:
    rows = _line_rows(study)
    return Drawing(name=rows.id, title=rows.title, panels=tuple(_line_panels(study)), records=rows.records)


def _map_drawing(study: CaseStudy) -> Drawing:
    """Return the headline divergence of the tokens around the spike at every checkpoint; its CSV has all tokens."""
    key = study.summary.divergence
    return Drawing(
        name=f"token_heat_map_{study.name}",
        title=study.title,
        panels=(Panel(draw=partial(_draw_map, study=study), height=lambda width: 1.0 + 0.16 * len(study.measured)),),
        records=tuple(
            {"checkpoint": label, "position": place, "token": study.tokens[place], key: value}
            for label in study.measured
            for place, value in study.values(label).items()
        ),
    )


def _draw_map(axes: Axes, width: float, *, study: CaseStudy) -> Sequence[Any]:
    from matplotlib.colors import PowerNorm

    shown = study.around_spike(int((width - 1.2) / _TOKEN_WIDTH))
    by_label = {label: study.values(label) for label in study.measured}
    values = [[max(0.0, own.get(place, 0.0)) for place in shown] for own in by_label.values()]
    top = max(map(max, values)) or 1.0
    norm = PowerNorm(0.5, vmin=0.0, vmax=top)
    image = axes.imshow(values, aspect="auto", cmap=colour_map(), norm=norm, interpolation="nearest")
    # The spike is framed; tokens stand below their columns.
    spike = study.spike - shown.start
    axes.axvspan(spike - 0.5, spike + 0.5, fill=False, edgecolor=_INK, linewidth=1.0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_yticks(range(len(values)), [label_text(label, limit=14) for label in by_label])
    axes.set_xticks(
        range(len(shown)), [_plain(study.tokens[place], limit=8) for place in shown], rotation=90, family=_MONO
    )
    set_labels(axes, width, x=f"framed: spike{study.where(shown)}")
    bar = figure_of(axes).colorbar(image, ax=axes, pad=0.02, label=f"{divergence_name(study.summary)} (nats)")
    ticks = [0.0, top / 4, top]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.outline.set_visible(False)
    return ()


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
            shows="The divergence of the tokens of a rollout at every checkpoint.",
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
