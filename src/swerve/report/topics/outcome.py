"""Outcome: did training change how often the model is right?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from swerve.artifacts.comparison import ModelScores, Scores
from swerve.artifacts.evaluation import MANY_SAMPLES, largest_k, rewards_are_fractions
from swerve.estimates import Estimate
from swerve.formats.text_tables import by_number
from swerve.report.format import change, count, percent, percent_interval
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, NUMBER, REWARD, SHARE, Cell, Dots, Rows
from swerve.report.topics.topic import Column, FigureSpec, Topic, by_checkpoint

_MAX_DOTS = 24
"""A plot of more kinds than these says less than the table."""


def _sentences(inputs: ReportInputs) -> Iterator[str]:
    yield _accuracy(inputs)
    yield _samples(inputs)
    last = inputs.final
    right = None if last is None else last.greedy.trace_right
    if last is not None and right is not None:
        yield f"Of the traces of {last.checkpoint}, {percent_interval(right)} have no wrong step at all."
    if inputs.summary is None:
        yield "Where the checkpoints differ from the reference was not measured."


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracies:
    """The accuracies of reference and final checkpoint on the same problems."""

    name: str
    problems: str
    labels: tuple[str, str]
    first: Estimate
    last: Estimate
    difference: Estimate | None = None
    """Of the same problems, paired, where that was measured."""


def accuracies(inputs: ReportInputs) -> Accuracies | None:
    """Return the greedy accuracies of the evaluations; without them those of the samples that rollouts are from."""
    first, last, summary = inputs.reference, inputs.final, inputs.summary
    if first is not None and last is not None:
        return Accuracies(
            name="greedy accuracy",
            problems=f"{count(last.greedy.num_problems)} held-out problems",
            labels=(first.checkpoint, last.checkpoint),
            first=first.greedy.accuracy,
            last=last.greedy.accuracy,
            difference=inputs.greedy_change,
        )

    # Without evaluations, the samples that rollouts were selected from.
    selected = None if summary is None else summary.selected
    if summary is None or selected is None or selected.reference_accuracy is None or selected.final_accuracy is None:
        return None
    return Accuracies(
        name="accuracy of the samples",
        problems=f"{count(summary.num_problems)} problems",
        labels=(summary.reference, summary.final),
        first=selected.reference_accuracy,
        last=selected.final_accuracy,
        difference=selected.accuracy_difference,
    )


def _accuracy(inputs: ReportInputs) -> str:
    measured = accuracies(inputs)
    if measured is not None:
        said = change(measured.first, measured.last, measured.difference, at=measured.labels)
        return f"On {measured.problems}, {measured.name} {said}"
    if inputs.is_imported:
        return _imported(inputs)
    return "Accuracy was not measured."


def _imported(inputs: ReportInputs) -> str:
    """Say how many of the responses from elsewhere are right, as far as they were graded."""
    populations = () if inputs.summary is None else inputs.summary.populations
    graded = [population for population in populations if population.population != "imported"]
    num, right = (sum(getattr(each, name) for each in graded) for name in ("num_rollouts", "num_correct"))
    if not num:
        return "The responses were not graded."
    return f"Of {count(num)} graded responses {count(right)} are right ({percent(right / num)})."


def _samples(inputs: ReportInputs) -> str:
    """Say whether one of many samples is right more often than before: what is new, not only what is more likely."""
    k = largest_k(inputs.evaluations)
    first, last = inputs.reference, inputs.final
    if first is None or last is None or first is last or k < MANY_SAMPLES:
        return ""
    before, after = (evaluation.sampled.of_samples(k).pass_at_k for evaluation in (first, last))
    if before is None or after is None:
        return ""
    said = change(before, after, inputs.pass_change, at=(first.checkpoint, last.checkpoint))
    return f"The chance that one of {k} samples is right (pass@{k}) {said}"


def _rows(inputs: ReportInputs) -> Iterator[Rows]:
    if not inputs.evaluations and (measured := accuracies(inputs)) is not None:
        reference, final = measured.labels
        yield Rows(
            id="accuracy",
            title=f"Accuracy of the samples of {measured.problems}",
            first="Model",
            columns={"Accuracy": SHARE},
            rows=((reference, measured.first), (final, measured.last)),
            plots=(Dots(column="Accuracy", greys=(reference,)),),
        )
        return
    is_fraction = rewards_are_fractions(inputs.evaluations)
    reward: dict[str, Column] = {"Sampled reward": (SHARE if is_fraction else REWARD, "sampled.mean_reward")}
    columns: dict[str, Column] = {
        "Greedy accuracy": (SHARE, "greedy.accuracy"),
        **(reward if is_fraction else {}),
        "Fully right traces": (SHARE, "greedy.trace_right"),
    }
    more = f"swerve eval RUN eval.samples_per_problem={MANY_SAMPLES}"
    note = "" if largest_k(inputs.evaluations) > 1 else f"Several samples of a problem were not measured ({more})."
    yield by_checkpoint(
        inputs, inputs.evaluations, columns, id="accuracy", title="Accuracy on held-out problems", note=note
    )
    if not is_fraction:
        # Rewards on another scale than fractions have a plot of their own.
        yield by_checkpoint(inputs, inputs.evaluations, reward, id="reward", title="Reward on held-out problems")
    yield from _sample_rows(inputs)
    yield _kinds(inputs, lambda greedy: greedy.by_part or {}, id="parts", first="Part")
    yield _kinds(inputs, lambda greedy: greedy.by_kind, id="accuracy_by_difficulty", first="Kind")


def _sample_rows(inputs: ReportInputs) -> Iterator[Rows]:
    """Yield what several samples of a problem are worth, where there are several."""
    ks = sorted({point.k for evaluation in inputs.evaluations for point in evaluation.sampled.curve})
    most = max(ks, default=0)
    if most < 2:
        return

    def of(k: int, name: str) -> Column:
        return SHARE, lambda evaluation: getattr(evaluation.sampled.of_samples(k), name)

    # The majority of two is one of the two.
    columns = {f"pass@{k}": of(k, "pass_at_k") for k in ks}
    columns |= {f"maj@{most}": of(most, "majority_at_k")} if most > 2 else {}
    columns[f"pass^{most}"] = of(most, "pass_hat_k")
    columns["Different right answers"] = NUMBER, "sampled.distinct_right"
    drawn = ["pass@1", f"pass@{most}", f"maj@{most}"] if most >= MANY_SAMPLES else []
    majority = "; maj@k: that the most frequent answer is, ties broken at random" if most > 2 else ""
    settings = inputs.evaluations[0].eval_settings
    temperature = f" at temperature {settings['temperature']:g}" if "temperature" in settings else ""
    yield by_checkpoint(
        inputs,
        inputs.evaluations,
        columns,
        id="sampling",
        title=f"What are {most} samples of a problem worth?",
        note=f"Samples{temperature}. pass@k: chance that at least one of k is right; pass^k: that all are{majority}.",
        drawn=drawn,
    )


def _kinds(
    inputs: ReportInputs, grouped: Callable[[ModelScores], Mapping[str, Scores]], *, id: str, first: str
) -> Rows:
    """Return accuracy by part of a mixture or by kind of problem: every checkpoint, the final one on the reference."""
    scores = {each.checkpoint: found for each in inputs.evaluations if (found := grouped(each.greedy))}
    kinds = sorted({kind for found in scores.values() for kind in found}, key=by_number)
    reference, final = (None if each is None else each.checkpoint for each in (inputs.reference, inputs.final))
    rows: list[tuple[Cell, ...]] = []
    for kind in kinds if len(kinds) > 1 else ():  # one kind is the accuracy once more
        cells = [found.get(kind) for found in scores.values()]
        size = next(cell.num_problems for cell in cells if cell is not None)
        rows.append((kind, size, *(None if cell is None else cell.accuracy for cell in cells)))
    null = reference if reference in scores and reference != final else ""
    is_drawn = final in scores and len(kinds) <= _MAX_DOTS
    return Rows(
        id=id,
        title=f"Greedy accuracy by {first.lower()} of problem",
        first=first,
        columns={"Problems": COUNT, **dict.fromkeys(scores, SHARE)},
        rows=tuple(rows),
        note=f"The plot has {final}{f', and {null} in grey' if null else ''}." if is_drawn else "",
        plots=(Dots(column=final or "", null=null or ""),) if is_drawn else (),
    )


TOPIC = Topic(
    title="How often is it right?",
    note="accuracy and samples by checkpoint and kind of problem",
    sentences={"Outcome": _sentences},
    rows=_rows,
    figures={
        "accuracy": FigureSpec(
            shows="Accuracy on held-out problems of every checkpoint.",
            needs="swerve eval RUN",
        ),
        "reward": FigureSpec(
            shows="Mean reward on held-out problems, where rewards are no fractions.",
            needs="swerve eval RUN, of a task whose rewards are not from 0 to 1",
        ),
        "sampling": FigureSpec(
            shows="pass@k and majority votes of every checkpoint.",
            needs=f"swerve eval RUN eval.samples_per_problem={MANY_SAMPLES}",
        ),
        "accuracy_by_difficulty": FigureSpec(
            shows="Greedy accuracy of every checkpoint by kind of problem.",
            needs="swerve eval RUN, of a task with several kinds of problems",
        ),
    },
)
