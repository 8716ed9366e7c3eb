"""Selection: which rollouts are compared, how they were chosen, and what depends on whose text it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary, Responses, Selected
from swerve.report.draw.panels import Panel, Section, Table, panel, section
from swerve.report.format import (
    NOT_MEASURED,
    compared,
    count,
    listed,
    number_interval,
    p_value,
    p_words,
    percent_interval,
    points_interval,
    quoted,
    signed_interval,
)
from swerve.report.names import divergence_name, population_title
from swerve.report.read import ReportInputs
from swerve.report.topics.divergence import floor_note
from swerve.report.topics.topic import Tile, Topic, of_probe


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _imported(summary) if summary.responses is not None else _population(summary)
    yield _mcnemar(summary)
    if (again := summary.reselected) is not None:
        yield f"Another draw of completions would select {percent_interval(again)} of these problems again."
    yield _populations(summary)


def _population(summary: ProbeSummary) -> str:
    wrong, changed = summary.num_reference_wrong, summary.num_reference_wrong_final_right
    every = "all " if changed == wrong else ""
    if summary.selected is not None:
        title = quoted(population_title(summary.population, summary))
        by = " by most of its deciding samples" if summary.selection == "split" else ""
        return (
            f"Of {count(summary.num_problems)} problems {summary.reference} gets {count(wrong)} wrong{by}, and "
            f"{summary.final} gets {every}{count(changed)} of those right ({summary.by_itself}); "
            f"{count(summary.num_rollouts)} rollouts {title} were compared token by token."
        )
    return (
        f"Of the {count(wrong)} problems that {summary.reference} gets wrong, {summary.final} gets "
        f"{every}{count(changed)} right ({summary.by_itself}); {count(summary.num_rollouts)} of these wrong rollouts "
        f"of {summary.reference} were compared token by token."
    )


def _imported(summary: ProbeSummary) -> str:
    responses = summary.responses or Responses()
    parts = [
        f"{count(population.num_rollouts)} {population_title(population.population, summary)}"
        for population in summary.populations
    ]
    kinds = f" ({'; '.join(parts)})" if parts else ""
    return (
        f"{count(responses.num_responses)} responses to {count(summary.num_problems)} problems were read from "
        f"{responses.path or 'a file'}{kinds}; the metrics are about the {count(summary.num_rollouts)} in the "
        f"population {quoted(population_title(summary.population, summary))}."
    )


def _mcnemar(summary: ProbeSummary) -> str:
    test = summary.mcnemar
    if test is None or test.difference is None:
        return ""
    shown = "" if test.difference.excludes(0) else ": the interval holds 0, so no difference is shown"
    return (
        f"On the same {count(test.num)} problems {summary.final} alone is right on {count(test.num_second_only)} and "
        f"{summary.reference} alone on {count(test.num_first_only)}, a difference of "
        f"{points_interval(test.difference)} points ({p_words(test.p_value)}){shown}."
    )


def _populations(summary: ProbeSummary) -> str:
    """Compare the headline population's divergence with those of the others."""
    others = []
    for population in summary.populations:
        above = population.above_headline
        if above is not None:
            word = compared(above, 0.0, above="higher", below="lower").removesuffix(" from")
            title = quoted(population_title(population.population, summary))
            others.append(f"{word} on {title} ({signed_interval(above)})")
    own = summary.final_divergence
    if own is None or not others:
        return ""
    return (
        f"{divergence_name(summary)} of {summary.final} is {number_interval(own)} nats per token on these rollouts; "
        f"its mean is {listed(others)}."
    )


def _tile(inputs: ReportInputs) -> Tile:
    summary = inputs.summary
    if summary is None:
        return Tile(caption="Wrong before, right after", value=NOT_MEASURED, detail="run swerve probe")
    if summary.is_imported and summary.selected is None:
        num = None if summary.responses is None else summary.responses.num_responses
        detail = f"of {count(num)} responses from a file"
        return Tile(caption="Responses compared", value=count(summary.num_rollouts), detail=detail)
    return Tile(
        caption="Wrong before, right after",
        value=count(summary.num_reference_wrong_final_right),
        detail=f"of {count(summary.num_reference_wrong)} problems {summary.reference} gets wrong ({summary.by_itself})",
    )


def _section(inputs: ReportInputs) -> Section | None:
    summary = inputs.summary
    if summary is None:
        return None
    panels = [_selection_panel(summary), _population_panel(summary)]
    if summary.selected is not None:
        panels = [_table_panel(summary, summary.selected), *panels]
    elif summary.is_imported:
        return section("selection", "Which responses?", [_import_panel(summary), *panels], short="Responses")
    return section("selection", "Which rollouts, and how were they selected?", panels, short="Selection")


def _import_panel(summary: ProbeSummary) -> Panel | None:
    """Return where responses from elsewhere are from."""
    recorded = {} if summary.responses is None else summary.responses.model_dump()
    rows = [(key.replace("_", " "), _shown(value)) for key, value in recorded.items() if value not in ({}, None)]
    facts = Table(id="responses", caption="Where the responses are from", header=("", "Recorded"), rows=tuple(rows))
    return panel("Responses from elsewhere", facts, note="Nothing was selected: every response was compared.")


def _table_panel(summary: ProbeSummary, selected: Selected) -> Panel | None:
    """Return the table of right and wrong that rollouts were chosen by."""
    rows = (
        (f"{summary.reference} right", count(selected.both_right), count(selected.only_reference_right)),
        (f"{summary.reference} wrong", count(selected.only_final_right), count(selected.both_wrong)),
    )
    header = ("Problems", f"{summary.final} right", f"{summary.final} wrong")
    facts = Table(id="outcomes", caption="Right and wrong of both", header=header, rows=rows)
    files = [(side.path, side.num_responses) for side in (selected.reference, selected.final)]
    read = " and ".join(f"{count(num)} samples in {path}" for path, num in files)
    asked = f"; only {', '.join(selected.where)}" if selected.where else ""
    left_out = f" {count(selected.num_unshared)} problems are in one file only." if selected.num_unshared else ""
    return panel("Who gets which problems right?", facts, note=f"Graded anew: {read}{asked}.{left_out}")


def _shown(value: str | int | Mapping[str, str | int]) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return count(value) if isinstance(value, int) else value


def _selection_panel(summary: ProbeSummary) -> Panel | None:
    test, again = summary.mcnemar, summary.reselected
    rows: list[tuple[str, str]] = []
    if test is not None:
        rows = [
            ("problems answered by both", count(test.num)),
            (f"right only with {summary.reference}", count(test.num_first_only)),
            (f"right only with {summary.final}", count(test.num_second_only)),
            ("difference of accuracy (points)", points_interval(test.difference)),
            ("p-value (McNemar, mid-p)", p_value(test.p_value)),
        ]
    if again is not None:
        rows.append(("of those selected, another draw would select", percent_interval(again)))
    facts = Table(
        id="selection", caption="Both checkpoints on the same problems", header=("", "Measured"), rows=tuple(rows)
    )
    return panel("Is the selection sound?", facts, note=_selection_note(summary))


def _selection_note(summary: ProbeSummary) -> str:
    lead = f"Problems that {summary.reference} got wrong and {summary.final} right on one"
    if summary.selected is not None:
        title = population_title(summary.population, summary)
        lead = f"A problem is right where most samples are; chosen ({title}) by one"
    if summary.selection == "single":
        return f"{lead} sample each, which is also the rollout compared. The test is over all problems, not only those."
    if summary.selection == "split":
        ties = summary.num_ties or 0
        drawn = f" {count(ties)} verdicts were ties, drawn by a coin." if ties else ""
        return f"{lead} half of the sampled completions; the rollouts compared are of the other half.{drawn}"
    return (
        f"{lead} greedy completion each; these completions are also the rollouts compared. The test is over all "
        "problems, not only those."
    )


def _population_panel(summary: ProbeSummary) -> Panel | None:
    rows = []
    for population in summary.populations:
        means, name = summary.at_final(population.divergences), population_title(population.population, summary)
        rows.append(
            (
                f"{name} (headline)" if population.population == summary.population else name,
                population.source,
                count(population.num_rollouts),
                count(population.num_correct),
                *(number_interval(None if means is None else means.of(key)) for key in DIVERGENCE_NAMES),
            )
        )
    header = ("Population", "Written by", "Rollouts", "Right", *DIVERGENCE_NAMES.values())
    return panel(
        "Does the divergence depend on whose text it is?",
        Table(id="populations", caption="Populations", header=header, rows=tuple(rows)),
        note=f"Means over the tokens of a population at {summary.final}, nats. {floor_note(summary)}".strip(),
        wide=True,
    )


TOPIC = Topic(sentences={"Selection": of_probe(_sentences)}, tile=_tile, section=_section)
