"""Spikes: do divergences and other scores find the steps that are known to be wrong?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from swerve.artifacts.probe_claims import NULL_NAMES
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, Divergence, SelectorRecovery, SpikeDensity, SpikeHits
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.draw.curves import Chart, Curve, Level
from swerve.report.draw.figures import (
    COLOURS,
    GREY,
    Drawing,
    Row,
    chart_drawing,
    error_bars,
    estimate_rows,
    label_text,
    legend_beside,
    name_ticks,
    named_rows,
    numbers,
    set_title,
)
from swerve.report.draw.panels import (
    AUC_ENDS,
    FRACTION_ENDS,
    Absent,
    DotPlot,
    Panel,
    Section,
    Table,
    dot_row,
    panel,
    section,
)
from swerve.report.format import (
    NOT_MEASURED,
    claim_words,
    count,
    listed,
    number,
    number_interval,
    percent,
    percent_interval,
)
from swerve.report.names import METHODS, REGIONS, SELECTORS, divergence_name, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.topics.divergence import step_axis
from swerve.report.topics.topic import KNOWN_STEPS, FigureSpec, Tile, Topic, of_probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_NULL_NOTE = "The null pair is one model run twice: every spike there is false."


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _top_spikes(summary)
    yield _area(summary)
    yield _selectors(summary)
    yield _rule(summary)
    yield _null(summary)


def _final_hits(summary: ProbeSummary) -> SpikeHits | None:
    return summary.spike_hits(summary.final, summary.divergence)


def _top_spikes(summary: ProbeSummary) -> str:
    if summary.knows_no_wrong_step:
        return "No step of the rollouts is known to be wrong, so whether spikes find wrong steps was not measured."
    first, wrong = summary.claim("top", "first_wrong"), summary.claim("top", "wrong")
    if first is None or wrong is None:
        return "Where the highest divergence of a rollout falls was not measured."
    return (
        f"The token of a rollout where {summary.final} differs most from {summary.reference} "
        f"({divergence_name(summary)}) is the first wrong step in {claim_words(first)}. It is some wrong step in "
        f"{claim_words(wrong)}."
    )


def _area(summary: ProbeSummary) -> str:
    claim = summary.claim("auc", "first_wrong")
    if claim is None:
        return ""
    return (
        f"As a score, {divergence_name(summary)} ranks first wrong tokens above those that are not wrong with an AUC "
        f"of {claim_words(claim)}."
    )


def _areas(selectors: Iterable[SelectorRecovery]) -> list[tuple[str, Estimate]]:
    """Return the area under the ROC curve of each selector that has one."""
    return [(selector.selector, selector.auc) for selector in selectors if selector.auc is not None]


def _selectors(summary: ProbeSummary) -> str:
    areas = _areas(() if summary.recovery is None else summary.recovery.selectors)
    if not areas:
        return ""
    above = [(name, auc) for name, auc in areas if auc.low > 0.5]
    if not above:
        return "No score ranks the known wrong steps above chance."
    # The best of several has no interval of its own.
    ranked = sorted(areas, key=lambda area: area[1].mean)
    (least, low), (most, high) = ranked[0], ranked[-1]
    return (
        f"Each by an interval of its own, {count(len(above))} of {count(len(areas))} scores rank the known wrong steps "
        f"above chance; AUCs are {number(low.mean)} ({selector_word(least)}) to {number(high.mean)} "
        f"({selector_word(most)})."
    )


def _rule(summary: ProbeSummary) -> str:
    rule = summary.rule
    if rule is None or rule.precision is None or rule.recall is None:
        return ""
    return (
        f"Of the {count(rule.num_spikes)} {named(METHODS, rule.method)} spikes {percent_interval(rule.precision)} are "
        f"on a wrong step (by chance {percent(rule.chance_precision)}), and {percent_interval(rule.recall)} of the "
        f"wrong steps have one (by chance {percent(rule.chance_recall)})."
    )


def _null(summary: ProbeSummary) -> str:
    """Say what each method finds in the null pair, where there is nothing to find."""
    rates = _null_rates(summary)
    some = [f"{name} {number_interval(rate)}" for name, rate, _ in rates if rate.mean > 0]
    none = [f"{name} none (at most {number(rate.high)})" for name, rate, _ in rates if rate.mean == 0]
    if not some and not none:
        return ""
    density = None if summary.rule is None else summary.spikes_per_1000(summary.rule)
    there = ""
    if density is not None:
        there = f"; at {summary.final} {named(METHODS, summary.spike_method)} finds {number(density)}"
    return (
        "Between two runs of one model, where every spike is false, the methods find per 1,000 tokens: "
        f"{listed([*some, *none])}{there}."
    )


def _tile(inputs: ReportInputs) -> Tile:
    summary = inputs.summary
    if summary is not None and summary.knows_no_wrong_step:
        return _divergence_tile(summary)
    caption, hits = "Top spike on the first wrong step", None if summary is None else _final_hits(summary)
    if hits is None or hits.top_on_first_wrong is None:
        return Tile(caption=caption, value=NOT_MEASURED, detail="run swerve probe")
    hit, claim = hits.top_on_first_wrong, summary and summary.claim("top", "first_wrong")
    beside = ", ".join(f"{null.null} {percent(null.value)}" for null in (claim.nulls if claim else ()))
    return Tile(
        caption=caption,
        value=percent(hit.mean),
        detail=f"{percent(hit.low)[:-1]} to {percent(hit.high)[:-1]}, {count(hits.num_rollouts)} rollouts; {beside}",
    )


def _divergence_tile(summary: ProbeSummary) -> Tile:
    """Return how far the final checkpoint went, for a probe that has no wrong steps to look for."""
    mean = summary.final_divergence
    value, detail = NOT_MEASURED, "run swerve probe"
    if mean is not None:
        # The median first, which no rare problem can move.
        middle, also = mean, ""
        if isinstance(mean, SkewedMean) and mean.median is not None:
            middle, also = mean.median, f"; mean {number(mean.mean)} ({number(mean.low)} to {number(mean.high)})"
        ends = f"{'median, ' if also else ''}{number(middle.low)} to {number(middle.high)}"
        num = count(summary.num_rollout_problems or summary.num_rollouts)
        value, detail = number(middle.mean), f"{ends}{also} nats per token, {num} problems"
    return Tile(caption=f"{divergence_name(summary)} from {summary.reference}", value=value, detail=detail)


def _section(inputs: ReportInputs) -> Section | None:
    summary = inputs.summary
    if summary is not None and summary.knows_no_wrong_step:
        return section(
            "steps",
            "What do the methods for spikes find in noise?",
            [panel("", _null_table(summary), note=_NULL_NOTE, wide=True)],
            short="Spikes",
            lead="No step of these rollouts is known to be wrong: where a program checks answers only, whether spikes "
            "find wrong steps cannot be said. The causal tests do not need to know.",
        )
    panels = [_top_panel(summary)]
    if summary is not None:
        panels += [_selector_panel(summary), _recovery_panel(summary)]
    return section("steps", "Do spikes find the wrong steps?", panels, short="Wrong steps")


def _hits(summary: ProbeSummary) -> list[tuple[str, Estimate, float | None]]:
    """Return how often the top spike of each checkpoint and null is on the first wrong step, and by chance."""
    hits = (summary.spike_hits(label, summary.divergence) for label in summary.checkpoints)
    rows = [
        (hit.checkpoint, hit.top_on_first_wrong, hit.chance_first_wrong)
        for hit in hits
        if hit is not None and hit.top_on_first_wrong is not None
    ]
    claim = summary.claim("top", "first_wrong")
    for null in claim.nulls if claim and rows else ():
        if null.null != "chance":
            low, high = (null.value if end is None else end for end in (null.low, null.high))
            rows.append((NULL_NAMES[null.null], Estimate(mean=null.value, low=low, high=high), rows[-1][2]))
    return rows


def _top_panel(summary: ProbeSummary | None) -> Panel | None:
    title, hits = "Does the top spike find the first wrong step?", [] if summary is None else _hits(summary)
    if summary is None or not hits:
        return panel(title, Absent(what="Spikes against chance", command="swerve probe RUN"))
    rows = tuple(dot_row(label, percent_interval(hit), hit, chance) for label, hit, chance in hits)
    note = (
        f"Fraction of rollouts, by {divergence_name(summary)}, with its interval, of noise models their range. The "
        "tick is chance."
    )
    return panel(title, DotPlot(rows=rows, ends=FRACTION_ENDS), note=note)


def _auc_plot(selectors: Iterable[SelectorRecovery]) -> DotPlot:
    """Return a line for each selector with the area under its ROC curve; chance is one half."""
    rows = (dot_row(named(SELECTORS, name), number_interval(auc), auc, 0.5) for name, auc in _areas(selectors))
    return DotPlot(rows=tuple(rows), ends=AUC_ENDS)


def _selector_panel(summary: ProbeSummary) -> Panel | None:
    recovery = summary.recovery
    if recovery is None:
        return None

    # Each score with its areas; the plot shows them, the table is folded.
    rows = tuple(
        (
            named(SELECTORS, selector.selector),
            number_interval(selector.auc),
            number_interval(selector.auc_first),
            number_interval(selector.average_precision),
        )
        for selector in recovery.selectors
    )
    return panel(
        "Which score ranks wrong steps above the other tokens?",
        _auc_plot(recovery.selectors),
        Table(
            id="selectors",
            caption="Scores against known wrong steps",
            note=f"Average precision by chance: {number(recovery.base_rate)}.",
            header=("Score", "AUC", "AUC, first wrong tokens", "Average precision"),
            rows=rows,
            folded=True,
        ),
        note=(
            f"Area under the ROC curve over the {count(recovery.num_tokens)} tokens of "
            f"{count(recovery.num_rollouts)} rollouts with {count(recovery.num_wrong)} known wrong "
            f"tokens, at {summary.final}. The tick is chance."
        ),
    )


def _recovery_panel(summary: ProbeSummary) -> Panel | None:
    others = [_recovery_table(summary, key, folded=True) for key in DIVERGENCE_NAMES if key != summary.divergence]
    return panel(
        "Which method for spikes finds them, and what does it find in noise?",
        _recovery_table(summary, summary.divergence, folded=False),
        *others,
        _null_table(summary),
        note=(
            "Precision is the fraction of spikes on a wrong step, recall that of wrong steps with a spike; chance puts "
            f"each rollout's spikes anywhere in it. {_NULL_NOTE}"
        ),
        wide=True,
    )


def _recovery_table(summary: ProbeSummary, divergence: Divergence, *, folded: bool) -> Table:
    rows = []
    for recovery in () if summary.recovery is None else summary.recovery.spikes:
        if recovery.divergence == divergence:
            null = summary.false_discoveries(divergence, recovery.method)
            rows.append(
                (
                    named(METHODS, recovery.method),
                    count(recovery.num_spikes),
                    percent_interval(recovery.precision),
                    percent(recovery.chance_precision),
                    percent_interval(recovery.recall),
                    percent(recovery.chance_recall),
                    number_interval(recovery.f1),
                    number(summary.spikes_per_1000(recovery)),
                    number_interval(None if null is None else null.per_1000_tokens),
                )
            )
    return Table(
        id=f"recovery-{divergence}" if folded else "recovery",
        caption=f"Methods on {DIVERGENCE_NAMES[divergence]}",
        header=(
            "Method", "Spikes", "Precision", "Chance", "Recall", "Chance", "F1", "Per 1,000 tokens", "In the null pair",
        ),
        rows=tuple(rows),
        folded=folded,
    )  # fmt: skip


def _null_table(summary: ProbeSummary) -> Table | None:
    """Return the null pair's spikes on their own, where no wrong step is known to set beside them."""
    null = summary.null
    if null is None or not null.false_discoveries or (summary.recovery is not None and summary.recovery.spikes):
        return None

    def rate(divergence: Divergence, method: str) -> str:
        discoveries = summary.false_discoveries(divergence, method)
        return number_interval(None if discoveries is None else discoveries.per_1000_tokens)

    methods = dict.fromkeys(method for discovery in null.false_discoveries.values() for method in discovery)
    return Table(
        id="null",
        caption="Spikes per 1,000 tokens in the null pair",
        note=f"{count(null.num_tokens)} tokens.",
        header=("Method", *DIVERGENCE_NAMES.values()),
        rows=tuple((named(METHODS, method), *(rate(key, method) for key in DIVERGENCE_NAMES)) for method in methods),
    )


def spike_table(summary: ProbeSummary) -> Table:
    """Return the top spikes of every checkpoint and divergence against chance, or only their number."""
    if summary.knows_no_wrong_step:
        return _spike_numbers(summary)
    rows = tuple(
        (
            spike.checkpoint,
            DIVERGENCE_NAMES[spike.divergence],
            count(spike.num_rollouts),
            count(spike.num_spikes),
            percent_interval(spike.top_on_first_wrong),
            percent(spike.chance_first_wrong),
            percent_interval(spike.top_on_wrong),
            percent(spike.chance_wrong),
        )
        for spike in summary.spikes
    )
    return Table(
        id="spikes",
        caption="Top spike against chance",
        note="Chance is the fraction expected if the position were drawn uniformly from the same rollout.",
        header=(
            "Checkpoint", "Divergence", "Rollouts", "Spikes", "Top spike on first wrong step", "Chance",
            "On any wrong step", "Chance",
        ),
        rows=rows,
        folded=True,
    )  # fmt: skip


def _spike_numbers(summary: ProbeSummary) -> Table:
    def num(label: str, divergence: Divergence) -> str:
        hits = summary.spike_hits(label, divergence)
        return count(None if hits is None else hits.num_spikes)

    labels = dict.fromkeys(spike.checkpoint for spike in summary.spikes)
    return Table(
        id="spike-numbers",
        caption="Spikes by checkpoint",
        note="Number in the rollouts of the headline population.",
        header=("Checkpoint", *DIVERGENCE_NAMES.values()),
        rows=tuple((label, *(num(label, key) for key in DIVERGENCE_NAMES)) for label in labels),
        folded=True,
    )


def _hit_drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if hits := _hits(summary):
        rows = ({"checkpoint": label, **numbers(hit), "chance": chance} for label, hit, chance in hits)
        yield Drawing(name="spikes", draw=partial(_draw_hits, hits=hits), rows=tuple(rows))


def _recovery_drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if areas := _areas(() if summary.recovery is None else summary.recovery.selectors):
        yield Drawing(
            name="recovery",
            draw=partial(_draw_areas, areas=areas, final=summary.final),
            rows=tuple({"checkpoint": summary.final, "score": name, **numbers(area)} for name, area in areas),
            size=(6.0, 1.2 + 0.26 * len(areas)),
        )


def _null_drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if rates := _null_rates(summary):
        rows = ({"method": name, **numbers(rate), "final_per_1000_tokens": real} for name, rate, real in rates)
        draw = partial(_draw_null, rates=rates, summary=summary)
        yield Drawing(name="null_spikes", draw=draw, rows=tuple(rows), size=(7.0, 1.3 + 0.36 * len(rates)))


def _density_drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    """Yield the spikes of each third and checkpoint, by a rule whose threshold is in nats, and of the null pair."""
    summary = inputs.summary
    if summary is None or not summary.spike_densities:
        return
    densities = [density for density in summary.spike_densities if density.per_1000_tokens is not None]
    methods = {density.method for density in densities}
    method = next((name for name in (summary.spike_method, "absolute", "calibrated") if name in methods), None)

    # Thresholds in nats are comparable between checkpoints, those relative to a rollout are not.
    shown = [density for density in densities if density.method == method]
    if method is None or not shown:
        return
    labels = list(dict.fromkeys(density.checkpoint for density in shown))
    at = {(density.checkpoint, density.region): density.per_1000_tokens for density in shown}
    null = summary.false_discoveries(shown[0].divergence, method)
    limits = {density.threshold for density in shown if density.threshold is not None}
    above = f" above {limits.pop():g} nats" if len(limits) == 1 else f" ({METHODS[method]} rule)"
    axis = step_axis(inputs, labels)
    chart = Chart(
        id="spike_density_comparison",
        title=f"{DIVERGENCE_NAMES[shown[0].divergence]} spikes{above}, by third of the rollout",
        unit="per_1000_tokens",
        labels=axis.sort(labels),
        steps=axis.steps,
        x_title=axis.title,
        curves=tuple(
            Curve(name=f"{name} third", points=axis.sort([at.get((label, region)) for label in labels]))
            for region, name in REGIONS.items()
        ),
        stages=(),
        levels=()
        if null is None or null.per_1000_tokens is None
        else (Level(name="one model run twice", value=null.per_1000_tokens),),
    )
    yield chart_drawing(chart, rows=_density_rows(summary, densities))


def _density_rows(summary: ProbeSummary, densities: Iterable[SpikeDensity]) -> Iterator[Row]:
    for density in densities:
        null = summary.false_discoveries(density.divergence, density.method)
        yield {
            **density.model_dump(include={"checkpoint", "region", "divergence", "method", "threshold", "num_tokens"}),
            "num_spikes": density.num_spikes,
            **{f"{key}_per_1000_tokens": value for key, value in numbers(density.per_1000_tokens).items()},
            "null_per_1000_tokens": None if null is None or null.per_1000_tokens is None else null.per_1000_tokens.mean,
        }


def _draw_hits(axes: Axes, *, hits: list[tuple[str, Estimate, float | None]]) -> None:
    places = name_ticks(axes, [label for label, _, _ in hits])
    error_bars(axes, places, [hit for _, hit, _ in hits], across=False)
    chances = [chance for _, _, chance in hits if chance is not None]
    if chances:
        chance = sum(chances) / len(chances)
        axes.axhline(chance, color=GREY, linestyle="--", linewidth=1, label=f"chance {100 * chance:.1f}%")
        legend_beside(axes)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("fraction of rollouts")
    set_title(axes, "Top spike on the first wrong step")


def _draw_areas(axes: Axes, *, areas: list[tuple[str, Estimate]], final: str) -> None:
    estimate_rows(axes, [(named(SELECTORS, name), area) for name, area in areas])
    axes.axvline(0.5, color=GREY, linestyle="--", linewidth=1, label="chance")
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("area under the ROC curve")
    set_title(axes, f"Known wrong steps at {final}, ranked by score")
    legend_beside(axes)


def _null_rates(summary: ProbeSummary) -> list[tuple[str, Estimate, float | None]]:
    """Return each method's spikes per 1,000 tokens in the null pair, and those at the final checkpoint."""
    rules = () if summary.recovery is None else summary.recovery.spikes
    real = {rule.method: summary.spikes_per_1000(rule) for rule in rules if rule.divergence == summary.divergence}
    rates = []
    for method, name in METHODS.items():
        discoveries = summary.false_discoveries(summary.divergence, method)
        if discoveries is not None and discoveries.per_1000_tokens is not None:
            rates.append((name, discoveries.per_1000_tokens, real.get(method)))
    return rates


def _draw_null(axes: Axes, *, rates: list[tuple[str, Estimate, float | None]], summary: ProbeSummary) -> None:
    rows = named_rows(axes, [name for name, _, _ in rates])
    real = [(row, value) for row, (_, _, value) in zip(rows, rates, strict=True) if value is not None]
    label = label_text(f"{summary.final} against {summary.reference}", limit=32)
    if real:  # a little below the null pair's, so that equal numbers can both be seen
        values, places = [value for _, value in real], [row + 0.17 for row, _ in real]
        axes.plot(values, places, "s", color=COLOURS[1], markersize=5, label=label)
    nulls = [rate for _, rate, _ in rates]
    error_bars(axes, [row - 0.17 for row in rows], nulls, across=True, label="one model run twice")
    # Zero is to be seen beside rates of three orders of magnitude.
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(left=-0.08)
    ticks = [0, 1, 10, 100, 1000]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(right=max([20.0, *(rate.high for rate in nulls), *(value for _, value in real)]) * 1.6)
    axes.set_xlabel("spikes per 1,000 tokens")
    set_title(axes, f"Spikes where nothing changed ({divergence_name(summary)})")
    legend_beside(axes)


TOPIC = Topic(
    sentences={"Wrong steps": of_probe(_sentences)},
    tile=_tile,
    section=_section,
    figures={
        "spike_density_comparison": FigureSpec(
            shows="Spikes per 1,000 tokens by checkpoint and third of the rollout, with the rate of the null pair.",
            draw=_density_drawings,
        ),
        "spikes": FigureSpec(
            shows="How often the top spike is on the first wrong step, against chance.",
            draw=of_probe(_hit_drawings),
            needs=KNOWN_STEPS,
        ),
        "recovery": FigureSpec(
            shows="How well each score ranks the tokens of wrong steps.",
            draw=of_probe(_recovery_drawings),
            needs=KNOWN_STEPS,
        ),
        "null_spikes": FigureSpec(
            shows="Spikes of every method between two runs of one model.", draw=of_probe(_null_drawings)
        ),
    },
)
