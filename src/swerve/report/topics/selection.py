"""Selection: which rollouts are compared, how they were chosen, and what depends on whose text it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, Population
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import SkewedMean
from swerve.report.evidence import Evidence, Figure, Sentence, digits_of, with_interval
from swerve.report.format import counted_in_words, is_few, mean_words
from swerve.report.names import divergence_name, population_title
from swerve.report.pair_evidence import population_columns, population_evidence
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, TEXT, Cell, Dots, Rows, divergence_unit
from swerve.report.run_evidence import paired_evidence, selection_evidence
from swerve.report.summary_evidence import response_evidence
from swerve.report.token_evidence import divergence_evidence, divergence_figure
from swerve.report.topics.topic import Column, Topic, of_probe, rows_of, with_rows
from swerve.text import count, number_interval, p_words, percent_interval, quoted, signed_interval


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    title = quoted(population_title(summary.population, summary))
    if summary.responses is not None:
        yield Sentence(
            f"{count(summary.responses.num_responses)} responses to {count(summary.num_problems)} problems were read "
            f"from {summary.responses.path or 'a file'}; the metrics are about the {count(summary.num_rollouts)} in "
            f"the population {title}.",
            response_evidence(
                inputs,
                Figure(name="responses", statistic="rows"),
                Figure(name="problems", statistic="sum", columns=("first of its problem",)),
                Figure(name="in the population", statistic="sum", columns=("in the headline",)),
            ),
        )
    else:
        by = " by most of its deciding samples" if summary.selection == "split" else ""
        ends = (summary.reference, summary.final)
        numbers = [Figure(name="became right", statistic="rises", columns=ends)]
        if (turned := summary.turned_by_itself) is not None:
            column, write = f"turned by {summary.reference} itself", digits_of(number_interval, turned)
            numbers.append(Figure(name=column, statistic="sum", columns=(column,), write=write))
        yield Sentence(
            f"Of the {count(summary.num_reference_wrong)} problems that {summary.reference} gets wrong{by}, "
            f"{summary.final} gets {count(summary.num_reference_wrong_final_right)} right ({summary.by_itself}); "
            f"{count(summary.num_rollouts)} rollouts {title} were compared token by token.",
            _selected(inputs, summary, *numbers),
        )
        yield Sentence(_deciding(summary), _selected(inputs, summary))

    # By how much accuracy differs is said among the outcomes; here on which problems one alone is right.
    test = summary.mcnemar
    if test is not None and test.num:
        ends, how = (summary.reference, summary.final), "" if summary.is_imported else ", answering greedily,"
        numbers = [Figure(name="problems", statistic="rows")]
        numbers.append(Figure(name=f"right at {summary.final} alone", statistic="rises", columns=ends))
        numbers.append(Figure(name=f"right at {summary.reference} alone", statistic="falls", columns=ends))
        yield Sentence(
            f"On the same {count(test.num)} problems{how} {summary.final} alone is right on "
            f"{count(test.num_second_only)} and {summary.reference} alone on {count(test.num_first_only)} "
            f"({p_words(test.p_value)}, mid-p McNemar).",
            paired_evidence(inputs, "right", *numbers) or response_evidence(inputs),
        )
    if summary.reselected is not None:
        again = Figure(name="selected again", statistic="mean", columns=("selected again",))
        yield Sentence(
            f"Another draw of completions would select {percent_interval(summary.reselected)} of these problems again.",
            _selected(inputs, summary, *with_interval(again, percent_interval, summary.reselected, summary.confidence)),
        )
    yield _populations(inputs, summary)


def _selected(inputs: ReportInputs, summary: ProbeSummary, *figures: Figure) -> Evidence | None:
    """Return what was selected, and by which answers; of halves of samples the rollouts alone."""
    own = selection_evidence(inputs, *figures) if summary.selection == "greedy" else None
    return own or response_evidence(inputs)


def _deciding(summary: ProbeSummary) -> str:
    """Say which completions decided what is compared."""
    if summary.selection != "split":
        sample = "sample" if summary.selection == "single" else "greedy completion"
        return f"One {sample} of each model decided, which is also the rollout compared."
    ties = f"; {count(summary.num_ties)} verdicts were ties, drawn by a coin" if summary.num_ties else ""
    return f"One half of the sampled completions decided; the rollouts compared are of the other half{ties}."


def _populations(inputs: ReportInputs, summary: ProbeSummary) -> str:
    """Compare the headline population's divergence with those of the others."""
    own, headline = summary.final_divergence, population_columns(summary, summary.population)
    if own is None:
        return ""
    others, figures = [], []
    for population in summary.populations:
        if (above := population.above_headline) is None:
            continue
        title = quoted(population_title(population.population, summary))
        if is_few(population.num_rollouts, above):
            few = f"the {counted_in_words(population.num_rollouts)}" if population.num_rollouts > 1 else "the one"
            others.append(f"{few} of {title} {'are' if population.num_rollouts > 1 else 'is'} too few to compare")
            continue
        said = f"no difference from that is to be seen on {title}: {signed_interval(above)}"
        if above.excludes(0):
            said = f"{'further' if above.mean > 0 else 'less far'} apart on {title}, by {signed_interval(above)}"
        others.append(said)
        columns = (*population_columns(summary, population.population), *headline)
        write = digits_of(signed_interval, above)
        figures.append(
            Figure(name=population.population, statistic="difference of ratios", columns=columns, write=write)
        )
    if not others:
        return ""
    said = (
        f"On these rollouts the predictions of {summary.final} and {summary.reference} lie {mean_words(own)} nats a "
        f"token apart ({divergence_name(summary)}); {'; '.join(others)}."
    )
    if not figures:
        return Sentence(said, divergence_evidence(inputs, divergence_figure(summary, own)))
    if not isinstance(own, SkewedMean) or own.reliable:
        write = digits_of(number_interval, own)
        figures.append(Figure(name="a token", statistic="ratio of sums", columns=headline, write=write))
    return Sentence(said, population_evidence(inputs, *figures))


def _rows(summary: ProbeSummary) -> Iterator[Rows]:
    if (selected := summary.selected) is not None:
        sides = (selected.reference, selected.final)
        asked = "".join(f"; only {condition}" for condition in selected.where)
        yield Rows(
            id="right-and-wrong",
            title="Who gets which problems right?",
            first="Problems",
            columns={f"{summary.final} right": COUNT, f"{summary.final} wrong": COUNT},
            rows=(
                (f"{summary.reference} right", selected.both_right, selected.only_reference_right),
                (f"{summary.reference} wrong", selected.only_final_right, selected.both_wrong),
            ),
            note=f"Graded anew: {' and '.join(f'{count(side.num_responses)} samples in {side.path}' for side in sides)}"
            f"{asked}. Problems in one file only: {count(selected.num_unshared)}.",
        )

    # Responses from elsewhere, with all that was recorded of them.
    if summary.responses is not None:
        recorded = summary.responses.model_dump(exclude_none=True)
        yield Rows(
            id="responses",
            title="Where the responses are from",
            columns={"Recorded": COUNT},
            rows=tuple(
                (
                    key.replace("_", " "),
                    ", ".join(f"{name} {entry}" for name, entry in value.items()) if isinstance(value, dict) else value,
                )
                for key, value in recorded.items()
            ),
            note="Nothing was selected: every response was compared.",
        )
    yield _population_rows(summary)


def _population_rows(summary: ProbeSummary) -> Rows:
    """Return the divergence of the final checkpoint by population, the headline first among equals."""
    headline = summary.population

    def mean(key: str, population: Population) -> Cell:
        return getattr(summary.at_final(population.divergences), key, None)

    # A row for each population, with the mean of every divergence.
    divergences: Mapping[str, Column] = {
        name: (divergence_unit(key), partial(mean, key)) for key, name in DIVERGENCE_NAMES.items()
    }
    return rows_of(
        summary.populations,
        {
            "Written by": (TEXT, "source"),
            "Rollouts": (COUNT, "num_rollouts"),
            "Right": (COUNT, "num_correct"),
            **divergences,
        },
        name=lambda each: (
            f"{population_title(each.population, summary)}{' (headline)' * (each.population == headline)}"
        ),
        id="populations",
        title="Does the divergence depend on whose text it is?",
        first="Population",
        note=f"Means over the tokens of a population at {summary.final}, nats.",
        plots=(Dots(column=divergence_name(summary)),),
    )


TOPIC = Topic(
    title="Which rollouts are compared?",
    note="how they were chosen, and whose text they are",
    sentences={"Selection": with_rows(_sentences)},
    rows=of_probe(_rows),
)
