"""Case studies: one rollout of a problem, token by token, with its spikes and what a swapped token did."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.errors import ConfigError, nearest
from swerve.notebook import INK
from swerve.report.draw.figures import Drawing, Panel, colour_map, figure_of, label_text, rows_drawing
from swerve.report.names import METHODS, divergence_name, named
from swerve.report.read import ReportInputs
from swerve.report.rollouts import Rollouts, rank, wrong_sentence
from swerve.report.rows import COUNT, JS, NATS, SHARE, Curves, Dots, Rows
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import PowerNorm

_NUM_CHOSEN = 3
_MONO = "DejaVu Sans Mono"
_LETTER = 0.059
"""Width of a letter of it at the size of all text, in inches."""
_NUM_LINES = 10
"""Of the text that a figure shows."""
_TOKEN_WIDTH = 0.11
"""Of a column of a heat map, in inches."""
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
    """What stands before each token, and after the last."""
    heights: Mapping[str, Mapping[int, float]]
    """The headline divergence by checkpoint, in order, and position."""
    spike: int
    """Position of the swap, else of the highest divergence."""
    rows: Mapping[str, Rows]
    """The divergences at the final checkpoint, the likeliest tokens at the spike, and the swap there."""

    def where(self, first: int, last: int) -> str:
        """Say what is framed, and which of the tokens are shown where not all are."""
        num = len(self.tokens)
        return "framed: spike" + (f"; tokens {first:,} to {last:,} of {num:,}" if last - first + 1 < num else "")


def case_studies(inputs: ReportInputs) -> Iterator[CaseStudy]:
    """Yield a rollout of each chosen problem: of the headline population where it has one.

    Raises:
        ConfigError: a chosen problem has no rollout in the probe; the message names the nearest.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return
    rollouts = Rollouts(summary, tables, inputs.final_completions)
    entries = {number: rollouts.entry(number) for number in range(len(rollouts.rows))}
    known = [number for number, entry in entries.items() if entry["position"] is not None]

    # One rollout of each problem, the one with the largest effect of its swap first.
    first: dict[str, int] = {}
    for number in sorted(known, key=lambda number: (entries[number]["population"] != 0, *rank(entries[number]))):
        first.setdefault(entries[number]["problem"], number)
    for problem in inputs.problems:
        if problem not in first:
            raise ConfigError(f"--problem: the probe has no rollout of problem '{problem}'{nearest(problem, first)}")
    names: list[str] = []
    for problem in dict.fromkeys(inputs.problems) or list(first)[:_NUM_CHOSEN]:
        names.append(re.sub(r"[^A-Za-z0-9._-]+", "-", problem.removesuffix(".json")).strip("-.")[:60] or "problem")
        repeat = names.count(names[-1])
        yield _study(inputs, rollouts, first[problem], names[-1] + (f"-{repeat}" if repeat > 1 else ""))


def _study(inputs: ReportInputs, rollouts: Rollouts, number: int, name: str) -> CaseStudy:
    """Return what the tables have of a rollout."""
    summary, tables, row, entry = inputs.summary, inputs.tables, rollouts.rows[number], rollouts.entry(number)
    assert summary is not None
    assert tables is not None
    # Its tokens at every checkpoint, and the likeliest tokens at the swap, else at the highest divergence.
    is_own = pc.field("sequence_id") == row["sequence_id"]
    own = tables.tokens.filter(is_own & (pc.field("reference") == summary.reference)).sort_by("position").to_pylist()
    heights: dict[str, dict[int, float]] = {}
    for label in rollouts.layout.models[1:]:
        heights[label] = {cell["position"]: cell[summary.divergence] for cell in own if cell["checkpoint"] == label}
    swaps = rollouts.spike_swaps(number)
    spike = swaps[0]["position"] if swaps else entry["position"]
    at_spike = tables.topk.filter(is_own & (pc.field("position") == spike)).to_pylist()

    # Spikes by the headline divergence and method, and tokens known to be wrong, which the tables say of some tasks.
    tokens = [rollouts.token(number, position) for position in range(len(row["tokens"]))]
    rule = f"spike by the {named(METHODS, summary.spike_method)} rule"
    spikes = rollouts.spikes[number, summary.divergence, summary.final]
    marks = {rule: spikes, "known wrong step": [*row["wrong_positions"], *wrong_sentence(row)]}
    final = [cell for cell in own if cell["checkpoint"] == summary.final]
    outcome = {True: ", right", False: ", wrong", None: ""}[row["correct"]]
    title = f"{row['problem_id'].removesuffix('.json')} by {row['label']}{outcome}"
    rows = (_line_rows(summary, tokens, final, marks), _top_rows(summary, at_spike, spike), _swap_rows(summary, swaps))
    return CaseStudy(
        name=name,
        title=title,
        summary=summary,
        tokens=tokens,
        gaps=row["gaps"],
        heights={label: values for label, values in heights.items() if values},
        spike=spike,
        rows={part.id: part for part in rows},
    )


def _line_rows(
    summary: ProbeSummary,
    tokens: Sequence[str],
    cells: Sequence[Mapping[str, Any]],
    marks: Mapping[str, Sequence[int]],
) -> Rows:
    """Return the divergences along the rollout, the headline first: JS, which has a bound, apart from the KLs."""
    x = tuple(cell["position"] for cell in cells)
    *kls, js = DIVERGENCE_NAMES.values()
    groups = sorted(((js,), tuple(kls)), key=lambda names: divergence_name(summary) not in names)
    units = {name: replace(JS if name == js else NATS, axis="nats") for name in DIVERGENCE_NAMES.values()}
    return Rows(
        id="divergence",
        title=f"{summary.final} against {summary.reference}",
        first="Token",
        columns={**units, "Spike": COUNT, "Known wrong": COUNT},
        rows=tuple(
            (tokens[at], *map(cell.get, DIVERGENCE_NAMES), *(int(at in marked) for marked in marks.values()))
            for at, cell in zip(x, cells, strict=True)
        ),
        plots=tuple(Curves(columns=names, x=x, x_title="position of the token", marks=marks) for names in groups),
    )


def _top_rows(summary: ProbeSummary, at_spike: Sequence[Mapping[str, Any]], spike: int) -> Rows:
    """Return the probabilities of both models' likeliest tokens at the spike."""
    models = (summary.final, summary.reference)
    by_model = {top["checkpoint"]: dict(zip(top["tokens"], top["probs"], strict=True)) for top in at_spike}
    final, reference = (by_model.get(model, {}) for model in models)
    tokens = [token for token, prob in (*reference.items(), *final.items()) if prob >= _MIN_PROBABILITY]
    return Rows(
        id="likeliest_tokens",
        title="Likeliest tokens",
        first="Token",
        columns=dict.fromkeys(models, replace(SHARE, axis=f"probability at position {spike:,} (%)")),
        rows=tuple((f'"{token}"', final.get(token), reference.get(token)) for token in dict.fromkeys(tokens)),
        plots=(Dots(column=models[0], null=models[1]),),
    )


def _swap_rows(summary: ProbeSummary, swaps: Sequence[Mapping[str, Any]]) -> Rows:
    """Return how often the answer is right after each forced token."""
    rows = {}
    for swap in swaps:
        arm, num, right = named(_ARMS, swap["arm"]).format(final=summary.final), swap["num"], swap["successes"]
        rows[swap["arm"]] = (f'{arm} "{swap["token"]}": {right} of {num}', right / num, num)
    by_final = any(swap["policy"] == "checkpoint" for swap in swaps)
    column = f"right when {summary.final if by_final else summary.reference} continues"
    return Rows(
        id="swap",
        title="Forced tokens",
        first="Token",
        columns={column: SHARE, "Continuations": COUNT},
        rows=tuple(rows.values()),
        plots=(Dots(column=column, greys=tuple(row[0] for arm, row in rows.items() if arm != "checkpoint")),),
    )


def _plain(token: str, *, limit: int) -> str:
    """Return a token as it stands in a text; a dot stands for each space of one of spaces alone."""
    return label_text(token.strip(" ") or "\N{MIDDLE DOT}" * len(token), limit=limit, font=_MONO)


def _text_cells(study: CaseStudy, width: float) -> list[tuple[int, int, int, str]]:
    """Return line, column, position and text of the tokens that are shown: some lines around the spike's."""
    columns, line, column = int((width - 0.1) / _LETTER), 0, 0
    cells = []
    for position, (token, gap) in enumerate(zip(study.tokens, study.gaps, strict=False)):
        text = _plain(token, limit=24).replace(r"\$", "$")
        column += bool(column and gap)
        if column and column + len(text) > columns:
            line, column = line + 1, 0
        cells.append((line, column, position, text))
        column += len(text)
    first = max(0, min(cells[study.spike][0] - _NUM_LINES // 2, line + 1 - _NUM_LINES))
    shown = (cell for cell in cells if first <= cell[0] < first + _NUM_LINES)
    return [(line - first, column, position, text) for line, column, position, text in shown]


def _scale(values: Iterable[float]) -> PowerNorm:
    """Return how deep shades are: by the square root, as in the reader, so that low ones can be distinguished.

    >>> _scale([math.nan, 2.0, math.inf]).vmax
    2.0
    """
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0.0, vmax=max(filter(math.isfinite, values), default=0.0) or 1.0, clip=True)


def _draw_text(axes: Axes, width: float, *, study: CaseStudy) -> Sequence[Any]:
    """Draw the rollout's text, each token on a background as deep as its divergence."""
    values, cells, shades = study.heights[study.summary.final], _text_cells(study, width), colour_map()
    scale = _scale(values.values())
    for line, column, position, text in cells:
        depth = float(scale(values.get(position, 0.0)))
        box = {"facecolor": shades(depth), "edgecolor": INK if position == study.spike else "none", "pad": 1}
        axes.text(
            column, line, text, family=_MONO, va="center_baseline", color="white" if depth > _DEEP else INK,
            bbox=box, zorder=3 + (position == study.spike), parse_math=False,
        )  # fmt: skip
    axes.set(xlim=(-0.3, (width - 0.05) / _LETTER), ylim=(cells[-1][0] + 0.55, -0.55), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    shown = study.where(cells[0][2], cells[-1][2])
    axes.set_xlabel(f"deeper: higher {divergence_name(study.summary)}, at most {scale.vmax:.3g} nats\n{shown}")
    return ()


def _study_drawing(study: CaseStudy) -> Drawing:
    """Return text, divergence along it, both models' likeliest tokens at the spike, and the swap there."""
    text = Panel(
        draw=partial(_draw_text, study=study),
        height=lambda width: 0.54 + 0.16 * (1 + _text_cells(study, width)[-1][0]),
        is_wide=True,
        names=("text",),
    )
    return Drawing(
        name=f"case_study_{study.name}",
        title=study.title,
        panels=(text, *(panel for rows in study.rows.values() for panel in rows_drawing(rows).panels[:1])),
        records=tuple({"panel": name, **record} for name, rows in study.rows.items() for record in rows.records),
    )


def _line_drawing(study: CaseStudy) -> Drawing:
    rows = study.rows["divergence"]
    title = f"{study.title}: {rows.title}"
    return rows_drawing(replace(rows, id=f"line_plot_with_spikes_{study.name}", title=title))


def _map_drawing(study: CaseStudy) -> Drawing:
    """Return the headline divergence of the tokens around the spike at every checkpoint; its CSV has all tokens."""
    return Drawing(
        name=f"token_heat_map_{study.name}",
        title=study.title,
        panels=(Panel(draw=partial(_draw_map, study=study), height=lambda width: 1.0 + 0.16 * len(study.heights)),),
        records=tuple(
            {"checkpoint": label, "position": at, "token": study.tokens[at], study.summary.divergence: value}
            for label, values in study.heights.items()
            for at, value in values.items()
        ),
    )


def _draw_map(axes: Axes, width: float, *, study: CaseStudy) -> Sequence[Any]:
    """Draw a row of shades for each checkpoint, a column for each token around the spike."""
    num = int((width - 1.2) / _TOKEN_WIDTH)
    start = max(0, min(study.spike - num // 2, len(study.tokens) - num))
    shown = range(len(study.tokens))[start : start + num]
    values = [[row.get(at, 0.0) for at in shown] for row in study.heights.values()]
    norm = _scale(value for row in values for value in row)
    image = axes.imshow(values, aspect="auto", cmap=colour_map(), norm=norm, interpolation="nearest")

    # The spike is framed; tokens stand below their columns.
    axes.axvspan(study.spike - start - 0.5, study.spike - start + 0.5, fill=False, edgecolor=INK, linewidth=1.0)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_yticks(range(len(values)), [label_text(label, limit=14) for label in study.heights])
    tokens = [_plain(study.tokens[at], limit=8) for at in shown]
    axes.set_xticks(range(len(shown)), tokens, rotation=90, family=_MONO)
    axes.set(xlabel=study.where(shown[0], shown[-1]), ylabel="checkpoint")
    label, top = f"{divergence_name(study.summary)} (nats)", norm.vmax or 0.0
    figure_of(axes).colorbar(image, ax=axes, pad=0.02, label=label, ticks=[0.0, top / 4, top], format="%.2g")
    return ()


def _spec(shows: str, draw: Callable[[CaseStudy], Drawing]) -> FigureSpec:
    return FigureSpec(shows=shows, draw=lambda inputs: map(draw, case_studies(inputs)), is_of_problem=True)


TOPIC = Topic(
    figures={
        "case_study": _spec(
            "A rollout with its divergence and spikes, both models' likeliest tokens and the swap at the spike.",
            _study_drawing,
        ),
        "token_heat_map": _spec("The divergence of the tokens of a rollout at every checkpoint.", _map_drawing),
        "line_plot_with_spikes": _spec(
            "The divergences along a rollout at the final checkpoint, with its spikes.", _line_drawing
        ),
    },
)
