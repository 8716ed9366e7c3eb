"""Case studies: one rollout of a problem, token by token, with its spikes and what a swapped token did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, Divergence
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.errors import ConfigError, nearest
from swerve.report.draw.paper import (
    COLOURS,
    GREY,
    HUE,
    LINES,
    PALE,
    Drawing,
    Panel,
    Record,
    colour_map,
    figure_of,
    label_text,
    name_rows,
    rows_height,
    set_labels,
)
from swerve.report.names import METHODS, divergence_name, named
from swerve.report.read import ProbeTables, ReportInputs
from swerve.report.topics.topic import FigureSpec, Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUM_CHOSEN = 3
_MONO = "DejaVu Sans Mono"
_MONO_LETTER = 0.0590
"""Width of a letter of 7 points, in inches."""
_NUM_LINES = 10
"""Of the text that a figure shows."""
_TOKEN_WIDTH = 0.11
"""Of a column of a heat map, in inches."""
_INK = "#1c1a17"
_WRONG = "#f3d9a4"
_MIN_PROBABILITY = 0.01
_ARMS = {"reference": "its own", "checkpoint": "{final}'s", "alternative": "another"}
_DEEP = 0.5
"""Shade from which text on it is white."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """One rollout with what figures of it show."""

    name: str
    """The problem's id as a part of a file's name."""
    summary: ProbeSummary
    sequence: Mapping[str, Any]
    words: tuple[str, ...]
    """Its tokens."""
    is_spaced: tuple[bool, ...]
    """Whether a space stands before each."""
    tokens: Mapping[str, list[dict[str, Any]]]
    """Rows of its tokens by checkpoint, in the order of the checkpoints and tokens."""
    thresholds: Mapping[int, float]
    """Position and threshold of the spikes of the final checkpoint, by the headline divergence and method."""
    swaps: Sequence[Mapping[str, Any]]
    """The arms of the swap at its top spike; none where it was not tested."""
    tops: Mapping[str, Mapping[str, float]]
    """Model -> its likeliest tokens at the spike with their probabilities."""
    spike: int
    """Position of the swap, else of the highest divergence."""

    @property
    def final(self) -> list[dict[str, Any]]:
        """Rows of the tokens at the final checkpoint."""
        return self.tokens[self.summary.final]

    @property
    def title(self) -> str:
        """What a figure of it is about."""
        outcome = {True: ", right", False: ", wrong", None: ""}[self.sequence["correct"]]
        return f"{_bare(self.sequence['problem_id'])} by {self.sequence['label']}{outcome}"

    def around_spike(self, num: int) -> range:
        """Return so many positions around the spike, all of them where there are no more."""
        start = max(0, min(self.spike - num // 2, len(self.words) - num))
        return range(start, min(len(self.words), start + num))

    def where(self, shown: range) -> str:
        """Say which of the tokens are shown; empty where all are."""
        if len(shown) == len(self.words):
            return ""
        return f"; tokens {shown.start:,} to {shown.stop - 1:,} of {len(self.words):,}"


def case_studies(inputs: ReportInputs) -> Iterator[CaseStudy]:
    """Yield a rollout of each chosen problem: of the headline population where it has one.

    Raises:
        ConfigError: a chosen problem has no rollout in the probe; the message names the nearest.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None:
        return
    names: list[str] = []
    for sequence in _chosen(inputs.problems, summary, tables):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", _bare(sequence["problem_id"])).strip("-.")[:60] or "problem"
        names.append(name)
        if (repeat := names.count(name)) > 1:
            name = f"{name}-{repeat}"
        yield _study(name, sequence, summary, tables)


def _bare(problem: str) -> str:
    """Return a problem's id without the ending of the file that it is from."""
    return re.sub(r"\.jsonl?$", "", problem)


def _study(name: str, sequence: Mapping[str, Any], summary: ProbeSummary, tables: ProbeTables) -> CaseStudy:
    """Return what the tables have of a rollout."""
    id = sequence["sequence_id"]
    rows = _rows(tables.tokens, sequence_id=id, reference=summary.reference)
    tokens = {label: [row for row in rows if row["checkpoint"] == label] for label in summary.checkpoints}
    spikes = _rows(
        tables.spikes, sequence_id=id, checkpoint=summary.final, method=summary.spike_method,
        divergence=summary.divergence,
    )  # fmt: skip
    swaps = _rows(tables.interventions, sequence_id=id, spike_sequence_id=id, selection="spike")
    swaps = [row for row in swaps if row["policy"] == "reference"] or swaps
    highest = max(tokens[summary.final], key=lambda row: (row[summary.divergence], -row["position"]))
    spike = int(swaps[0]["position"] if swaps else highest["position"])

    # The vocabulary's own text of a token where one of the likeliest tokens has it, else what stands in the rollout.
    likeliest = _rows(tables.topk, sequence_id=id)
    texts = {token: text for row in likeliest for token, text in zip(row["token_ids"], row["tokens"], strict=True)}
    text, ends = sequence["text"], sequence["token_ends"]
    spans = zip(sequence["completion_ids"], sequence["token_starts"], ends, strict=True)
    at_spike = {row["checkpoint"]: row for row in likeliest if row["position"] == spike}
    return CaseStudy(
        name=name,
        summary=summary,
        sequence=sequence,
        words=tuple(texts.get(token, text[start:end] or f"[{token}]") for token, start, end in spans),
        is_spaced=tuple(text[before : before + 1] == " " for before in (0, *ends[:-1])),
        tokens={label: sorted(own, key=lambda row: row["position"]) for label, own in tokens.items() if own},
        thresholds={row["position"]: row["threshold"] for row in spikes},
        swaps=swaps,
        tops={
            label: dict(zip(at_spike[label]["tokens"], at_spike[label]["probs"], strict=True))
            for label in (summary.reference, summary.final)
            if label in at_spike
        },
        spike=spike,
    )


def _rows(table: pa.Table | None, **wanted: int | str) -> list[dict[str, Any]]:
    """Return the rows of a table whose columns have these values; none without the table."""
    if table is None:
        return []
    for column, value in wanted.items():
        values = table[column]
        table = table.filter(pc.equal(values.cast(pa.string()) if isinstance(value, str) else values, value))
    return list(table.to_pylist())


def _chosen(problems: Sequence[str], summary: ProbeSummary, tables: ProbeTables) -> list[dict[str, Any]]:
    """Return the rollouts of the problems; without any those where the swap, then the divergence, is largest."""
    # The highest divergence of each rollout at the final checkpoint.
    is_wanted = pc.and_(
        pc.equal(tables.tokens["checkpoint"].cast(pa.string()), summary.final),
        pc.equal(tables.tokens["reference"].cast(pa.string()), summary.reference),
    )
    at_final = tables.tokens.filter(is_wanted)
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
    return [_rows(tables.sequences, sequence_id=id)[0] for id in chosen]


def _swap_effects(tables: ProbeTables) -> dict[int, float]:
    """Return the checkpoint's success minus that of the rollout's own token at each tested spike, by sequence."""
    success: dict[tuple[int, str], float] = {}
    swaps = _rows(tables.interventions, selection="spike")
    for row in [row for row in swaps if row["policy"] == "reference"] or swaps:
        if row["sequence_id"] == row["spike_sequence_id"]:
            success[row["sequence_id"], row["arm"]] = row["num_successes"] / max(1, row["num_continuations"])
    own = {id: value for (id, arm), value in success.items() if arm == "reference"}
    return {id: success[id, "checkpoint"] - value for id, value in own.items() if (id, "checkpoint") in success}


def _quoted(word: str) -> str:
    """Return a token in quotes, so that its spaces are seen."""
    return f'"{label_text(word, limit=14)}"'


def _plain(word: str, *, limit: int) -> str:
    """Return a token as it stands in a text, without the spaces around it; one of spaces alone has a dot for each."""
    return label_text(word.strip(" ") or "\N{MIDDLE DOT}" * len(word), limit=limit, font=_MONO)


def _line_records(study: CaseStudy) -> list[Record]:
    wrong = set(study.sequence["wrong_positions"] or [])
    return [
        {
            "position": row["position"],
            "token": study.words[row["position"]],
            **{key: row[key] for key in DIVERGENCE_NAMES},
            "is_spike": row["position"] in study.thresholds,
            "threshold": study.thresholds.get(row["position"]),
            "is_wrong": row["position"] in wrong,
        }
        for row in study.final
    ]


def _line_panel(study: CaseStudy, keys: Sequence[Divergence]) -> Panel:
    """Return the panel of divergences along the rollout; that of the headline has the spikes and known wrong steps."""
    key = [DIVERGENCE_NAMES[name] for name in keys] if len(keys) > 1 else []
    if study.summary.divergence in keys:
        key += [f"spike by the {named(METHODS, study.summary.spike_method)} rule"] if study.thresholds else []
        key += ["known wrong step"] if study.sequence["wrong_positions"] else []
    return Panel(
        draw=partial(_draw_line, study=study, keys=keys), height=lambda width: 1.45, is_wide=True, key=tuple(key)
    )


def _draw_line(axes: Axes, width: float, *, study: CaseStudy, keys: Sequence[Divergence]) -> None:
    positions = [row["position"] for row in study.final]
    for index, key in enumerate(keys):
        values = [row[key] for row in study.final]
        name = DIVERGENCE_NAMES[key] if len(keys) > 1 else None
        axes.plot(positions, values, color=COLOURS[index], linestyle=LINES[index], linewidth=0.9, label=name)
    if study.summary.divergence in keys:
        values = [row[study.summary.divergence] for row in study.final]
        known = [place for place, position in enumerate(positions) if position in study.thresholds]
        axes.plot(
            [positions[place] for place in known], [values[place] for place in known], "v", color=_INK, markersize=3.5,
            label=f"spike by the {named(METHODS, study.summary.spike_method)} rule",
        )  # fmt: skip
        for index, position in enumerate(study.sequence["wrong_positions"] or []):
            axes.axvspan(
                position - 0.5, position + 0.5, color=_WRONG, linewidth=0, zorder=0,
                label="known wrong step" if index == 0 else None,
            )  # fmt: skip
    axes.set_ylim(0, 1.1 * max(row[key] for row in study.final for key in keys) or 1.0)
    axes.locator_params(axis="y", nbins=5)
    name = divergence_name(study.summary) if len(keys) == 1 else ""
    set_labels(axes, width, x="position of the token", y=f"{name} (nats)" if name else "nats")


def _text_lines(study: CaseStudy, width: float) -> tuple[list[tuple[int, int, int, str]], range]:
    """Return line, column, position and text of the tokens that fit, around the spike; and which these are."""
    columns = int((width - 0.1) / _MONO_LETTER)
    texts = [_plain(word, limit=24).replace(r"\$", "$") for word in study.words]
    num = len(texts)
    while True:
        shown = study.around_spike(num)
        cells, line, column = [], 0, 0
        for position in shown:
            column += bool(column) and study.is_spaced[position]
            if column and column + len(texts[position]) > columns:
                line, column = line + 1, 0
            cells.append((line, column, position, texts[position]))
            column += len(texts[position])
        if line < _NUM_LINES:
            return cells, shown
        num = min(len(shown) - 1, num * 9 // 10)


def _draw_text(axes: Axes, width: float, *, study: CaseStudy) -> None:
    """Draw the rollout's text, each token on a background as deep as its divergence."""
    from matplotlib.patches import Rectangle

    values = {row["position"]: row[study.summary.divergence] for row in study.final}
    top = max(values.values(), default=0.0) or 1.0
    cells, shown = _text_lines(study, width)
    shades = colour_map()
    for line, column, position, text in cells:
        depth = float((max(0.0, values.get(position, 0.0)) / top) ** 0.5)
        is_spike = position == study.spike
        axes.add_patch(
            Rectangle(
                (column, line - 0.42), len(text), 0.84, facecolor=shades(depth), linewidth=1.0 if is_spike else 0.4,
                edgecolor=_INK if is_spike else "white", zorder=3 if is_spike else 2,
            )
        )  # fmt: skip
        axes.text(
            column, line, text.replace("$", r"\$"), family=_MONO, va="center_baseline", zorder=4,
            color="white" if depth > _DEEP else _INK,
        )  # fmt: skip
    axes.set_xlim(-0.3, (width - 0.05) / _MONO_LETTER)
    axes.set_ylim(cells[-1][0] + 0.55, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    name = divergence_name(study.summary)
    set_labels(axes, 1.3 * width, x=f"deeper: higher {name}, at most {top:.3g} nats; framed: spike{study.where(shown)}")


def _draw_top(axes: Axes, width: float, *, study: CaseStudy) -> None:
    """Draw the probabilities of both models' likeliest tokens at the spike; one that is in no top list has no bar."""
    tokens = _likeliest(study)
    rows = name_rows(axes, [_quoted(token).replace(r"\$", "$") for token in tokens], width)
    for shift, colour, (label, probs) in zip((-0.19, 0.19), (PALE, HUE), study.tops.items(), strict=False):
        known = [(row + shift, 100 * probs[token]) for row, token in zip(rows, tokens, strict=True) if token in probs]
        places, values = [place for place, _ in known], [value for _, value in known]
        axes.barh(places, values, 0.36, color=colour, label=label_text(label))
    axes.set_xlim(0, 102)
    axes.set_xticks([0, 50, 100])
    set_labels(axes, width, x=f"probability at position {study.spike:,} (%)")


def _likeliest(study: CaseStudy) -> list[str]:
    """Return the tokens that a model gives a hundredth or more, at least its first."""
    tokens = [
        token
        for probs in study.tops.values()
        for place, (token, prob) in enumerate(probs.items())
        if place == 0 or prob >= _MIN_PROBABILITY
    ]
    return list(dict.fromkeys(tokens))


def _arms(study: CaseStudy) -> list[str]:
    return [f"{_ARMS[row['arm']].format(final=study.summary.final)}: {_quoted(row['token'])}" for row in study.swaps]


def _draw_swap(axes: Axes, width: float, *, study: CaseStudy) -> None:
    """Draw the success of the continuations after each forced token."""
    rows = name_rows(axes, [name.replace(r"\$", "$") for name in _arms(study)], width)
    percents = [100 * row["num_successes"] / max(1, row["num_continuations"]) for row in study.swaps]
    axes.barh(rows, percents, 0.5, color=[HUE if row["arm"] == "checkpoint" else PALE for row in study.swaps])
    for place, percent, row in zip(rows, percents, study.swaps, strict=True):
        text = f"{row['num_successes']} of {row['num_continuations']}"
        axes.text(percent + 3, place, text, va="center", color=GREY)
    axes.set_xlim(0, 160)
    axes.set_xticks([0, 50, 100])
    axes.spines["bottom"].set_bounds(0, 100)
    model = study.summary.final if study.swaps[0]["policy"] == "checkpoint" else study.summary.reference
    set_labels(axes, width, x=f"right when {model} goes on (%)")


def _study_drawing(study: CaseStudy) -> Drawing:
    """Return text, divergence along it, both models' likeliest tokens at the spike, and the swap there."""
    text = Panel(
        draw=partial(_draw_text, study=study),
        height=lambda width: 0.25 + 0.16 * (1 + _text_lines(study, width)[0][-1][0]),
        is_wide=True,
        is_aligned=False,
    )
    panels = [text, _line_panel(study, (study.summary.divergence,))]
    records: list[Record] = [{"panel": "divergence", **row} for row in _line_records(study)]
    if study.tops:
        height = partial(rows_height, _likeliest(study))
        panels.append(Panel(draw=partial(_draw_top, study=study), height=height, key=tuple(study.tops)))
        for label, probs in study.tops.items():
            place: Record = {"panel": "likeliest tokens", "position": study.spike, "model": label}
            records += [{**place, "token": token, "probability": value} for token, value in probs.items()]
    if study.swaps:
        height = partial(rows_height, _arms(study))
        panels.append(Panel(draw=partial(_draw_swap, study=study), height=height))
        keys = ("position", "token", "arm", "policy", "num_continuations", "num_successes")
        records += [{"panel": "swap", **{key: row[key] for key in keys}} for row in study.swaps]
    return Drawing(name=f"case_study_{study.name}", title=study.title, panels=tuple(panels), records=tuple(records))


def _line_drawing(study: CaseStudy) -> Drawing:
    """Return the divergences along the rollout: JS, which has a bound, apart from the two KLs."""
    *kls, js = DIVERGENCE_NAMES
    return Drawing(
        name=f"line_plot_with_spikes_{study.name}",
        title=f"{study.title}: {study.summary.final} against {study.summary.reference}",
        panels=tuple(_line_panel(study, keys) for keys in ((js,), kls)),
        records=tuple(_line_records(study)),
    )


def _map_drawing(study: CaseStudy) -> Drawing:
    """Return the headline divergence of the tokens around the spike at every checkpoint; its CSV has all tokens."""
    key = study.summary.divergence
    return Drawing(
        name=f"token_heat_map_{study.name}",
        title=study.title,
        panels=(Panel(draw=partial(_draw_map, study=study), height=lambda width: 1.0 + 0.16 * len(study.tokens)),),
        records=tuple(
            {"checkpoint": label, "position": row["position"], "token": study.words[row["position"]], key: row[key]}
            for label, rows in study.tokens.items()
            for row in rows
        ),
    )


def _draw_map(axes: Axes, width: float, *, study: CaseStudy) -> None:
    from matplotlib.colors import PowerNorm

    key, shown = study.summary.divergence, study.around_spike(int((width - 1.2) / _TOKEN_WIDTH))
    values = [[max(0.0, row[key]) for row in rows[shown.start : shown.stop]] for rows in study.tokens.values()]
    top = max(map(max, values)) or 1.0
    image = axes.imshow(
        values, aspect="auto", cmap=colour_map(), norm=PowerNorm(0.5, vmin=0.0, vmax=top), interpolation="nearest"
    )
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_yticks(range(len(values)), [label_text(label, limit=14) for label in study.tokens])
    words = [_plain(study.words[position], limit=8) for position in shown]
    axes.set_xticks(range(len(words)), words, rotation=90, family=_MONO)
    spike = study.spike - shown.start
    axes.axvspan(spike - 0.5, spike + 0.5, fill=False, edgecolor=_INK, linewidth=1.0)
    bar = figure_of(axes).colorbar(image, ax=axes, pad=0.02, label=f"{divergence_name(study.summary)} (nats)")
    ticks = [0.0, top / 4, top]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.outline.set_visible(False)
    set_labels(axes, width, x=f"framed: spike{study.where(shown)}")


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
