"""How few tokens carry the change?"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.probe_causes import CrossSamplingDirection, CrossSamplingPoint
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.cause_evidence import dose_evidence
from swerve.report.evidence import Figure
from swerve.report.format import is_few, too_few, would_show
from swerve.report.names import selector_word
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import SHARE
from swerve.report.topics.dose import dose_rows, least_dose
from swerve.report.topics.outcome import accuracies
from swerve.text import count, percent, percent_interval, points_interval, sentence_case, whole_percent


def dose(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say how few tokens of one model carry its difference from the other."""
    crossing = summary.cross_sampling
    if crossing is None or not crossing.directions:
        return
    entry = crossing.directions[0]
    into = entry.direction == "checkpoint_into_reference"
    writer, giver = (summary.reference, summary.final) if into else (summary.final, summary.reference)
    found, num = least_dose(entry, summary.divergence), crossing.num_problems
    if found is None or entry.gap is None or not entry.gap.excludes(0):
        ends = {"alone": entry.base, "other": entry.other}
        alone = [
            Figure(name=name, statistic="mean", columns=(name,), write=whole_percent)
            for name, end in ends.items()
            if end is not None and entry.gap is not None and not entry.gap.excludes(0)
        ]
        yield Verdict(
            id="dose",
            title=_nothing_to_carry(entry, writer, giver),
            text=_gap_text(entry, num),
            num=num,
            evidence=dose_evidence(inputs, entry, None, *alone),
        )
        return
    selector, point = found
    random = (each for one in entry.selectors if one.selector == "random" for each in one.points)
    same = next((each for each in random if each.budget == point.budget), None)
    means = {
        "alone": entry.base,
        "with chosen tokens": point.accuracy,
        "with random tokens": same,
        "other": entry.other,
    }
    numbers = [
        Figure(name=name, statistic="mean", columns=(name,), write=whole_percent) for name, one in means.items() if one
    ]
    taken = Figure(name="tokens taken", statistic="ratio of sums", columns=("tokens taken", "tokens"), write=_one_in)
    is_shown = point.recovered is not None and point.recovered.low > 0
    verb = "recover part" if is_shown else "are not shown to recover any"
    yield Verdict(
        id="dose",
        title=_title(entry, point, writer, giver, num),
        text=f"{_text(point, same, selector_word(selector.selector), num)}{_not_greedy(inputs)}",
        said=f"Few tokens {verb} of the difference",
        num=num,
        figures={
            "tokens taken": (SHARE, point.share_swapped),
            "recovered of the difference": (SHARE, None if point.recovered is None else point.recovered.mean),
        },
        rows=dose_rows(entry, summary).kept,
        evidence=dose_evidence(inputs, entry, found, taken, *numbers),
    )


def _one_in(share: float) -> str:
    """Return a share of tokens as one in so many.

    >>> _one_in(0.005), _one_in(0.4), _one_in(0.0)
    ('1 token in 200', '40.0% of the tokens', 'no token')
    """
    if share <= 0:
        return "no token"
    return f"1 token in {count(1 / share)}" if share <= 0.2 else f"{percent(share)} of the tokens"


def _title(entry: CrossSamplingDirection, point: CrossSamplingPoint, writer: str, giver: str, num: int) -> str:
    """Return the verdict: from where to where, and how far that is of the way."""
    base, other, reached = entry.base, entry.other, point.accuracy
    assert base is not None
    assert other is not None
    assert reached is not None
    taking = f"Taking {_one_in(point.share_swapped)} from `{giver}`"
    ends = f"the sampled answers of `{writer}` from {whole_percent(base.mean)} to {whole_percent(reached.mean)} right"
    goal = f"`{giver}` alone is right in {whole_percent(other.mean)}"
    gain = point.gain
    if is_few(num, gain):
        few = too_few(num, "problem", "say how few tokens are enough")
        return f"{few}: {taking[:1].lower()}{taking[1:]} takes {ends}; {goal}."
    if gain is None:
        return f"{taking} takes {ends}; {goal}. Whether that is a difference is not determined."
    if not gain.excludes(0):
        both = f"{whole_percent(base.mean)} right before, {whole_percent(reached.mean)} after"
        return f"{taking} does nothing to be seen: {both}; {goal}."
    verb = "lifts" if gain.mean > 0 else "lowers"
    if (gain.mean > 0) != (other.mean > base.mean):
        return f"{taking} {verb} {ends}, the other way from {whole_percent(other.mean)}."
    if (recovered := point.recovered) is not None and not recovered.excludes(1):
        goal = f"all the way to the {whole_percent(other.mean)} of `{giver}`, as far as can be seen"
        return f"{taking} {verb} {ends}, {goal}."
    way = (
        ""
        if point.recovered is None
        else f", {whole_percent(point.recovered.mean)} of the way to {whole_percent(other.mean)}"
    )
    return f"{taking} {verb} {ends}{way}."


def _not_greedy(inputs: ReportInputs) -> str:
    """Return that these accuracies are another measure than the greedy ones that the page begins with."""
    measured = accuracies(inputs)
    if measured is None or measured.how != "greedily" or measured.first is None:
        return ""
    greedy = f"{whole_percent(measured.first.mean)} and {whole_percent(measured.last.mean)}"
    return f" Sampled answers are another measure than the greedy ones, of which {greedy} are right."


def _text(point: CrossSamplingPoint, same: CrossSamplingPoint | None, score: str, num: int) -> str:
    """Return how the tokens were chosen, how far that is of the way, and what as many at random do."""
    does = f"{percent_interval(point.recovered)} of the difference"
    if point.gain is not None and not point.gain.excludes(0):
        does = f"{points_interval(point.gain)} points{would_show(point.gain)}"
    parts = [f"The tokens were chosen by {score}, on {count(num)} problems whatever their answers were: {does}."]
    if same is not None and same.accuracy is not None:
        does = _does(same.gain)
        many = "As many" if same.share_swapped == point.share_swapped else sentence_case(_one_in(same.share_swapped))
        does = does if many == "As many" else does.replace("do ", "does ", 1)
        parts.append(f"{many} at random {does}: {whole_percent(same.accuracy.mean)}.")
    return " ".join(parts)


def _does(gain: Estimate | None) -> str:
    if gain is None:
        return "were not compared"
    return "do nothing to be seen" if not gain.excludes(0) else f"do {points_interval(gain)} points"


def _nothing_to_carry(entry: CrossSamplingDirection, writer: str, giver: str) -> str:
    if entry.gap is None or entry.base is None or entry.other is None or entry.gap.excludes(0):
        return "Not determined: how few tokens carry the difference."
    ends = f"`{writer}` is right in {whole_percent(entry.base.mean)}, `{giver}` in {whole_percent(entry.other.mean)}"
    return f"No difference to be seen that tokens could carry: by sampling, {ends}."


def _gap_text(entry: CrossSamplingDirection, num: int) -> str:
    if entry.gap is None or entry.gap.excludes(0):
        return f"Because no token was taken, or one of the two was not sampled alone, on {count(num)} problems."
    on = f"On {count(num)} problems whatever their answers were"
    return f"{on}: {points_interval(entry.gap)} points{would_show(entry.gap)}."
