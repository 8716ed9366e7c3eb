"""Where: which tokens carry the divergence, early or late, style or reasoning, certain or forking?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

from swerve.artifacts.probe_claims import NULL_NAMES
from swerve.artifacts.probe_findings import CategoryShare, EntropyChange, RankClass
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate, SkewedMean
from swerve.report.draw.curves import Chart, Curve
from swerve.report.draw.figures import Drawing, chart_drawing, numbers, set_title, shades, side_by_side
from swerve.report.draw.panels import Absent, Bar, BarPlot, Panel, Section, Table, measured_columns, panel, section
from swerve.report.format import (
    NOT_MEASURED,
    claim_words,
    count,
    listed,
    null_words,
    number,
    number_interval,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)
from swerve.report.names import REGIONS, divergence_name
from swerve.report.read import ReportInputs
from swerve.report.topics.divergence import step_axis
from swerve.report.topics.topic import FigureSpec, Topic, of_probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CLASSES: tuple[RankClass, ...] = get_args(RankClass)


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _null_note(summary)
    yield from (_falls(summary, of) for of in ("third", "style", "uncertain", "good"))
    yield _categories(summary)
    yield _ranks(summary)


def _falls(summary: ProbeSummary, of: str) -> str:
    claim = summary.claim("share", of)
    return "" if claim is None else f"{claim.name}: {claim_words(claim)}."


def _categories(summary: ProbeSummary) -> str:
    """Say which categories have more or less of the divergence than by any null."""
    claims = [claim for claim in summary.claims if claim.of == "category"]
    if not claims:
        return ""
    parts = []
    for side, word in ((1, "more"), (-1, "less")):
        kept = [claim for claim in claims if claim.stands and claim.nulls[0].side == side]
        names = [f"{claim.part.replace('_', ' ')} {percent_interval(claim.estimate)}" for claim in kept]
        parts += [f"{word} falls on {listed(names)}"] if names else []
    against = listed([NULL_NAMES[null.null] for null in claims[0].nulls])
    said = " and ".join(parts) or "none has more or less of the divergence"
    return f"Of {count(len(claims))} categories of tokens, {said} than by {against}."


def _ranks(summary: ProbeSummary) -> str:
    for entry in summary.rank_shift:
        if entry.shift is not None and entry.writer == "checkpoint":
            ranks = entry.rank if entry.shift == "rank" else entry.rank_ref
            first, second, lower = (percent_interval(ranks[name].share) for name in _CLASSES)
            return (
                f"In its own text, {entry.checkpoint} writes the first choice of {summary.reference} at {first} of the "
                f"tokens, its second or third at {second} and a lower one at {lower}."
            )
    return ""


def _section(inputs: ReportInputs) -> Section | None:
    summary, title = inputs.summary, "Where does training change the text?"
    if summary is None:
        return section("where", title, [_category_panel(None)], short="Where")
    panels = [
        _claim_panel(summary),
        _category_panel(summary),
        panel("Early or late, style or reasoning?", _region_table(summary), _style_table(summary)),
        panel(
            "Would the other model have written the token?",
            _rank_table(summary),
            note="Ranks of the tokens that stand there: 1 unshifted, 2 or 3 marginal, beyond 3 shifted.",
        ),
        _entropy_panel(summary),
    ]
    return section("where", title, panels, short="Where")


def _claim_panel(summary: ProbeSummary) -> Panel | None:
    """Return every figure about where the divergence falls, beside its nulls."""
    rows = tuple(
        (
            claim.name,
            number_interval(claim.estimate) if claim.figure == "auc" else percent_interval(claim.estimate),
            *(null_words(claim, nulls[name]) if name in nulls else NOT_MEASURED for name in NULL_NAMES),
            *(", ".join(null.null for null in claim.nulls if null.side == side) for side in (1, -1)),
            "yes" if claim.stands else "no",
        )
        for claim in summary.claims
        for nulls in ({null.null: null for null in claim.nulls},)
    )
    header = ("Figure", summary.final, "Chance", "Entropy", "Noise", "Above", "Below", "Stands")
    return panel(
        "Where does the divergence fall, and where would it without training?",
        Table(id="claims", caption="Figures against their nulls", header=header, rows=rows),
        note="A figure stands where it is above all nulls, or below all: no interval of a paired difference holds 0. "
        f"Entropy: that of {summary.reference} in the place of the divergence. {_null_note(summary)}".strip(),
        wide=True,
    )


def _null_note(summary: ProbeSummary) -> str:
    """Say what noise the figures are set against, or why it was not measured."""
    noise = summary.noise_models
    if noise is None:
        return ""
    if not noise.scales:
        return f"Noise of the same size was not measured: {noise.not_measured}."
    return (
        f"To go as far from {summary.reference} as {summary.final}, random directions need "
        f"{number(min(noise.scales))} to {number(max(noise.scales))} times the norm of what training changed; "
        f"{count(len(noise.scales))} such models, of a mean {divergence_name(summary)} of "
        f"{number(min(noise.means))} to {number(max(noise.means))}, are the matched noise."
    )


def _category_panel(summary: ProbeSummary | None) -> Panel | None:
    title, categories = "Which tokens carry the divergence?", [] if summary is None else _final_categories(summary)
    plot = BarPlot(rows=_bars(categories), key=("fraction of divergence", "fraction of tokens"))
    return panel(
        title,
        plot if plot.measured else Absent(what="Token categories", command="swerve probe RUN"),
        None if summary is None else _category_table(summary, categories),
    )


def _final_categories(summary: ProbeSummary) -> list[CategoryShare]:
    categories = [category for category in summary.categories if category.checkpoint == summary.final]
    return sorted(categories, key=lambda category: -(category.share_divergence or 0.0))


def _bars(categories: list[CategoryShare]) -> tuple[Bar, ...]:
    """Return each category's fraction of the divergence and of the tokens."""
    return tuple(
        Bar(
            name=category.category.replace("_", " "),
            first=round(100 * category.share_divergence, 2),
            second=round(100 * category.share_tokens, 2),
            label=f"{percent(category.share_divergence)} of divergence, {percent(category.share_tokens)} of tokens",
        )
        for category in categories
        if category.share_divergence is not None
    )


def _category_table(summary: ProbeSummary, categories: list[CategoryShare]) -> Table:
    rows = tuple(
        (
            category.category.replace("_", " "),
            count(category.num_tokens),
            percent(category.share_tokens),
            percent(category.share_divergence),
            count(category.num_spikes),
            percent(category.spike_rate),
            percent(category.base_rate),
        )
        for category in categories
    )
    return Table(
        id="categories",
        caption=f"Token categories at {summary.final}",
        note=f"Divergence and spikes by {divergence_name(summary)}; the base rate is that of all tokens.",
        header=("Category", "Tokens", "Of tokens", "Of divergence", "Spikes", "Spike rate", "Base rate"),
        rows=rows,
    )


def _region_table(summary: ProbeSummary) -> Table:
    key = summary.divergence
    rows = tuple(
        (
            REGIONS[region.region],
            percent(region.share_tokens),
            percent_interval(region.share_divergence.get(key)),
            number_interval(region.mean.get(key)),
            percent(region.spike_rate.get(key)),
            percent(region.base_rate.get(key)),
        )
        for region in summary.regions
        if region.checkpoint == summary.final
    )
    return Table(
        id="regions",
        caption=f"Thirds of the rollouts at {summary.final}",
        note=f"By {divergence_name(summary)}; means in nats per token.",
        header=("Third", "Tokens", "Divergence", "Mean", "Spike rate", "Base rate"),
        rows=rows,
    )


def _style_table(summary: ProbeSummary) -> Table:
    rows = tuple(
        (
            style.checkpoint,
            count(style.num_style_tokens),
            percent_interval(style.share_tokens),
            percent_interval(style.share_divergence),
            points_interval(style.excess),
        )
        for style in summary.style
    )
    return Table(
        id="style",
        caption="Style against reasoning, by checkpoint",
        note="Style is mark-up, punctuation, white space and discourse words. The excess is the fraction of the "
        "divergence minus that of the tokens, in points.",
        header=("Checkpoint", "Style tokens", "Of tokens", "Of divergence", "Excess"),
        rows=rows,
        folded=True,
    )


def _rank_table(summary: ProbeSummary) -> Table:
    rows = []
    for shift in summary.rank_shift:
        for model, ranks in ((shift.checkpoint, shift.rank), (summary.reference, shift.rank_ref)):
            text = "its own text" if shift.source == model else f"text of {shift.source}"
            cells = (percent_interval(ranks[name].share if name in ranks else None) for name in _CLASSES)
            rows.append((f"{model} on {text}", count(shift.num_tokens), *cells))
    header = ("Rank under", "Tokens", *(name.capitalize() for name in _CLASSES))
    return Table(id="ranks", caption="Rank shifts", header=header, rows=tuple(rows))


def _entropy_panel(summary: ProbeSummary) -> Panel | None:
    return panel(
        "Did the model become more certain, and where does it fork?",
        _entropy_table(summary),
        _forking_table(summary),
        _entropy_places(summary),
        note="Forking tokens are the fifth of the tokens at which the reference is least certain.",
    )


def _entropy_table(summary: ProbeSummary) -> Table:
    rows = tuple(
        (
            mean.checkpoint,
            number_interval(mean.entropy),
            signed_interval(mean.change),
            percent_interval(mean.share_argmax_changed),
        )
        for mean in (() if summary.entropy is None else summary.entropy.means)
    )
    return Table(
        id="entropy",
        caption="Entropy on these rollouts, by checkpoint",
        note="Nats per token; the change is against the reference on the same tokens.",
        header=("Checkpoint", "Entropy", "Change", "Top token changed"),
        rows=rows,
    )


def _forking_table(summary: ProbeSummary) -> Table:
    rows = []

    # What falls on the tokens at which the reference is least certain.
    for forking in () if summary.entropy is None else summary.entropy.forking:
        spikes = forking.spikes.get(summary.divergence)
        rows.append(
            (
                forking.checkpoint,
                percent(forking.share_tokens),
                percent_interval(forking.share_divergence.get(summary.divergence)),
                percent_interval(None if spikes is None else spikes.share),
                percent_interval(forking.wrong_steps.share),
            )
        )
    return measured_columns(
        Table(
            id="forking",
            caption="What falls on forking tokens, by checkpoint",
            header=("Checkpoint", "Of tokens", "Of divergence", "Of spikes", "Of wrong steps"),
            rows=tuple(rows),
            folded=True,
        )
    )


def _entropy_places(summary: ProbeSummary) -> Table:
    entry = None if summary.entropy is None else summary.at_final(summary.entropy.means)
    places: list[tuple[str, EntropyChange]] = []
    if entry is not None:
        places += [(f"third {REGIONS[region.region]}", region) for region in entry.regions]
        places += [(f"category {category.category.replace('_', ' ')}", category) for category in entry.categories]
    return Table(
        id="entropy-places",
        caption=f"Entropy at {summary.final}, by third and category",
        header=("Where", "Entropy", "Change"),
        rows=tuple(
            (name, number_interval(entropy.entropy), signed_interval(entropy.change)) for name, entropy in places
        ),
        folded=True,
    )


def _category_drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    """Yield the mean forward KL of every category at every checkpoint, the largest category at the end first."""
    means = {(category.checkpoint, category.category): category.forward_kl for category in summary.categories}
    if not any(means.values()):
        return

    # Categories that the final checkpoint lacks come last.
    categories = [category.category for category in _final_categories(summary)]
    categories += dict.fromkeys(category for _, category in means if category not in categories)
    labels = list(dict.fromkeys(label for label, _ in means))
    rows = (
        {
            "checkpoint": category.checkpoint,
            "category": category.category,
            "num_tokens": category.num_tokens,
            "share_tokens": category.share_tokens,
            "share_divergence": category.share_divergence,
            **{f"{key}_{part}": value for key, mean in category.mean.items() for part, value in numbers(mean).items()},
        }
        for category in summary.categories
    )
    series = {label: [means.get((label, category)) for category in categories] for label in labels}
    yield Drawing(
        name="category_kl_breakdown",
        draw=partial(_draw_categories, categories=categories, series=series),
        rows=tuple(rows),
        size=(min(16.0, max(6.0, 2.5 + 0.1 * len(categories) * (2 + len(labels)))), 3.4),
    )


def _draw_categories(
    axes: Axes, *, categories: Sequence[str], series: Mapping[str, Sequence[SkewedMean | None]]
) -> None:
    side_by_side(axes, [category.replace("_", " ") for category in categories], series, colours=shades(len(series)))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("nats per token")
    set_title(axes, "Mean forward KL by category of the token")


def _entropy_drawings(inputs: ReportInputs) -> Iterator[Drawing]:
    """Yield how much entropy each checkpoint lost against the reference, on the same tokens, in all and by third."""
    summary = inputs.summary
    means = () if summary is None or summary.entropy is None else summary.entropy.means
    parts: list[dict[str, EntropyChange]] = [
        {"all tokens": mean, **{f"{REGIONS[region.region]} third": region for region in mean.regions}} for mean in means
    ]

    # A curve for all tokens and one for each third.
    axis = step_axis(inputs, [mean.checkpoint for mean in means])
    names = dict.fromkeys(name for each in parts for name in each)
    chart = Chart(
        id="entropy_reduction",
        title="Entropy lost against the reference, on the same tokens",
        unit="nats",
        labels=axis.sort([mean.checkpoint for mean in means]),
        steps=axis.steps,
        x_title=axis.title,
        curves=tuple(
            Curve(name=name, points=axis.sort([_reduction(each.get(name)) for each in parts])) for name in names
        ),
        stages=(),
    )

    # The same numbers as a table.
    rows = (
        {
            "checkpoint": mean.checkpoint,
            "tokens": name,
            "entropy": None if part.entropy is None else part.entropy.mean,
            "entropy_ref": None if part.entropy_ref is None else part.entropy_ref.mean,
            **{f"reduction_{key}": value for key, value in numbers(_reduction(part)).items()},
        }
        for mean, each in zip(means, parts, strict=True)
        for name, part in each.items()
    )
    if chart.measured:
        yield chart_drawing(chart, rows=rows)


def _reduction(part: EntropyChange | None) -> Estimate | None:
    """Return the reference's entropy minus the checkpoint's."""
    if part is None or part.change is None:
        return None
    return Estimate(mean=-part.change.mean, low=-part.change.high, high=-part.change.low)


TOPIC = Topic(
    sentences={"Where": of_probe(_sentences)},
    section=_section,
    figures={
        "category_kl_breakdown": FigureSpec(
            shows="Mean forward KL by category of the token, at every checkpoint.", draw=of_probe(_category_drawings)
        ),
        "entropy_reduction": FigureSpec(
            shows="Entropy that every checkpoint lost against the reference, in all and by third of the rollout.",
            draw=_entropy_drawings,
        ),
    },
)
