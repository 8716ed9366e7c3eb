"""Selection: which rollouts are compared, how they were chosen, and what depends on whose text it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary, Responses, Selected
from swerve.report.format import (
    compared,
    count,
    listed,
    p_words,
    percent_interval,
    quoted,
    signed_interval,
)
from swerve.report.names import divergence_name, population_title
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, P_VALUE, SHARE, TEXT, Cell, Dots, Rows, divergence_unit
from swerve.report.topics.topic import Topic, of_probe


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _imported(summary) if summary.responses is not None else _population(summary)
    yield _mcnemar(summary)
    if (again := summary.reselected) is not None:
        yield f"Another draw of completions would select {percent_interval(again)} of these problems again."
    yield _populations(summary)


def _population(summary: ProbeSummary) -> str:
    wrong, changed = summary.num_reference_wrong, summary.num_reference_wrong_final_right
    by = " by most of its deciding samples" if summary.selection == "split" and summary.selected is not None else ""
    compared_rollouts = f"of these wrong rollouts of {summary.reference}"
    if summary.selected is not None:
        compared_rollouts = f"rollouts {quoted(population_title(summary.population, summary))}"
    return (
        f"Of the {count(wrong)} problems that {summary.reference} gets wrong{by}, {summary.final} gets "
        f"{'all ' if changed == wrong else ''}{count(changed)} right ({summary.by_itself}); "
        f"{count(summary.num_rollouts)} {compared_rollouts} were compared token by token."
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
    """Return on which problems one alone is right; by how much accuracy differs is said among the outcomes."""
    test = summary.mcnemar
    if test is None or not test.num:
        return ""
    return (
        f"On the same {count(test.num)} problems {summary.final} alone is right on {count(test.num_second_only)} and "
        f"{summary.reference} alone on {count(test.num_first_only)} ({p_words(test.p_value)})."
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
        f"{divergence_name(summary)} of {summary.final} is {divergence_unit(summary.divergence).text(own)} nats per "
        f"token on these rollouts; its mean is {listed(others)}."
    )


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    summary = inputs.summary
    if summary is None:
        return
    if summary.selected is not None:
        yield _right_and_wrong(summary, summary.selected)
    elif summary.is_imported:
        yield _responses(summary)
    yield _selection(summary)
    yield _population_rows(summary)


def _responses(summary: ProbeSummary) -> Rows:
    """Return where responses from elsewhere are from."""
    recorded = {} if summary.responses is None else summary.responses.model_dump()
    return Rows(
        id="responses",
        title="Where the responses are from",
        columns={"Recorded": TEXT},
        rows=tuple(
            (key.replace("_", " "), _shown(value)) for key, value in recorded.items() if value not in ({}, None)
        ),
        note="Nothing was selected: every response was compared.",
    )


def _right_and_wrong(summary: ProbeSummary, selected: Selected) -> Rows:
    """Return the table of right and wrong that rollouts were chosen by."""
    read = " and ".join(
        f"{count(side.num_responses)} samples in {side.path}" for side in (selected.reference, selected.final)
    )
    asked = f"; only {', '.join(selected.where)}" if selected.where else ""
    left_out = f" {count(selected.num_unshared)} problems are in one file only." if selected.num_unshared else ""
    return Rows(
        id="right-and-wrong",
        title="Who gets which problems right?",
        first="Problems",
        columns={f"{summary.final} right": COUNT, f"{summary.final} wrong": COUNT},
        rows=(
            (f"{summary.reference} right", selected.both_right, selected.only_reference_right),
            (f"{summary.reference} wrong", selected.only_final_right, selected.both_wrong),
        ),
        note=f"Graded anew: {read}{asked}.{left_out}",
    )


def _shown(value: str | int | Mapping[str, str | int]) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return count(value) if isinstance(value, int) else value


def _selection(summary: ProbeSummary) -> Rows:
    """Return how both checkpoints do on the same problems, and how much the selection owes to chance."""
    test = summary.mcnemar
    counts = (None,) * 4 if test is None else (test.num, test.num_first_only, test.num_second_only, test.p_value)
    return Rows(
        id="selection",
        title="Is the selection sound?",
        columns={
            "Problems": COUNT,
            f"Right with {summary.reference} alone": COUNT,
            f"Right with {summary.final} alone": COUNT,
            "McNemar's p (mid-p)": P_VALUE,
            "Selected by another draw too": SHARE,
        },
        rows=((f"{summary.final} against {summary.reference}", *counts, summary.reselected),),
        note=_selection_note(summary),
    )


def _selection_note(summary: ProbeSummary) -> str:
    lead = f"Problems that {summary.reference} got wrong and {summary.final} right on one"
    if summary.selected is not None:
        title = population_title(summary.population, summary)
        lead = f"A problem is right where most samples are; chosen ({title}) by one"
    if summary.selection == "split":
        ties = f" {count(summary.num_ties)} verdicts were ties, drawn by a coin." if summary.num_ties else ""
        return f"{lead} half of the sampled completions; the rollouts compared are of the other half.{ties}"
    sample = "sample" if summary.selection == "single" else "greedy completion"
    return f"{lead} {sample} each, which is also the rollout compared. The test is over all problems, not only those."


def _population_rows(summary: ProbeSummary) -> Rows:
    """Return the divergence of the final checkpoint by population, the headline first among equals."""
    headline = f"{population_title(summary.population, summary)} (headline)"
    rows: list[tuple[Cell, ...]] = []
    for population in summary.populations:
        means, name = summary.at_final(population.divergences), population_title(population.population, summary)
        rows.append(
            (
                headline if population.population == summary.population else name,
                population.source,
                population.num_rollouts,
                population.num_correct,
                *(None if means is None else means.of(key) for key in DIVERGENCE_NAMES),
            )
        )
    return Rows(
        id="populations",
        title="Does the divergence depend on whose text it is?",
        first="Population",
        columns={
            "Written by": TEXT,
            "Rollouts": COUNT,
            "Right": COUNT,
            **{name: divergence_unit(key) for key, name in DIVERGENCE_NAMES.items()},
        },
        rows=tuple(rows),
        note=f"Means over the tokens of a population at {summary.final}, nats.",
        plots=(Dots(column=divergence_name(summary)),),
    )


TOPIC = Topic(
    title="Which rollouts are compared?",
    note="how they were chosen, and whose text they are",
    sentences={"Selection": of_probe(_sentences)},
    rows=_rows,
)
