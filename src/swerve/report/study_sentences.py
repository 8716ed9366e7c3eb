"""What a study says in sentences: what was varied, what came out, what else differs, and what it could have found.

Each sentence has one form for each outcome: higher, lower, nothing to be seen (with what would have been seen), not
determined (because ...) and not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from statistics import fmean
from typing import Any

from swerve.artifacts.study import MEASURES, Detectable, Study, StudyDifference
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Sentence
from swerve.report.page import Verdict
from swerve.report.rows import Dots, Rows, against, changed, measure_unit, value_as
from swerve.report.study_evidence import (
    detectable_evidence,
    others_evidence,
    pairs_evidence,
    points_needed,
    runs_evidence,
    trends_evidence,
    values_evidence,
)
from swerve.report.study_rows import (
    FEW,
    KNOWN,
    Outcome,
    curves_rows,
    expected,
    joined,
    measure_title,
    outcome_rows,
    outcomes_of,
    pairs_of,
    run_name,
    untested,
)
from swerve.report.topics.topic import step_name
from swerve.text import count, counted, listed, p_words, percent, points_interval, sentence_case

_MAX_ALIKE = 3
"""Curves on the first screens of runs that differ by seed alone."""
_MAX_NAMED = 3
"""Variants and settings that a sentence names; of more it gives the number."""
_MAX_SHOWN = 6
"""Differences in other measures that a verdict lists."""
_MAX_KEYS = 2
"""Keys below one setting that are named; of more it is the setting that differs."""
_OF_THE_SAME = ("first_accuracy", "first_sampled_accuracy", "best_accuracy", "peak_step")
"""Measures of other places of the same curve, whose gaps say nothing new."""
FEWEST = 20
"""Problems or seeds below which nothing is bold."""


def headline(study: Study) -> Sentence:
    """Return what the variants differ in, and what came out, with the value of each run."""
    outcomes = outcomes_of(study)
    if len(outcomes) == 1:
        return Sentence(
            _headline(study),
            pairs_evidence(
                study,
                outcomes[0].difference,
                outcomes[0].value,
                has_difference=outcomes[0].verdict != "unknown" and outcomes[0].has_interval,
            ),
        )
    return Sentence(_headline(study), values_evidence(study, outcomes if len(outcomes) <= _MAX_NAMED else []))


def _headline(study: Study) -> str:
    measure = KNOWN[study.headline or "accuracy"]
    one_run = " One training run each." if len(study.seeds) == 1 else ""
    if len(study.variants) == 1:
        alone = study.mean_of(study.headline, study.variants[0].name) if study.headline else None
        if alone is None:
            return "No run is evaluated yet."
        if alone.num_seeds == 1:
            return f"{sentence_case(measure.title)} is {value_as(measure, None, alone.mean)}: one training run."
        value = measure_unit(measure).text(alone.over_seeds or value_as(measure, None, alone.mean))
        return f"Over {counted(alone.num_seeds, 'seed')} {measure.title} is {value}."

    who = "runs" if one_run else "variants"
    settings = _listed(varied(study), "setting")
    start = f"The {who} differ in {settings}." if settings else f"The {who} differ in no setting."
    if other_tasks := _other_tasks(study):
        start = f"{other_tasks} {start}"
    outcomes = outcomes_of(study)
    if not outcomes:
        return f"{start} No two of them are evaluated yet."
    if len(outcomes) <= _MAX_NAMED:
        said = " ".join(f"{outcome_said(study, each, is_bold=True)}." for each in outcomes)
        return f"{start} {said}{one_run}"
    return f"{start} {_counts(study, outcomes)}{one_run}"


def _other_tasks(study: Study) -> str:
    """Return of which task each variant is; empty where all are of one, or it is not known."""
    tasks = {run.variant: run.task for run in study.runs if run.task}
    if len({*tasks.values()}) < 2:
        return ""
    named = listed([f"`{variant}` {task}" for variant, task in tasks.items()])
    return f"These are different tasks: {named}. A difference in what they get right is one of the problems, too."


def _counts(study: Study, outcomes: Sequence[Outcome]) -> str:
    """Return how many of many variants came out in which way, each kind with its names."""
    title = KNOWN[outcomes[0].difference.measure].title
    kinds = {
        "higher": f"with a higher {title}",
        "lower": f"with a lower {title}",
        "by rule": "with a verdict by the rule",
        "nothing": "without a difference to be seen",
        "unknown": "not determined",
    }
    names = {kind: [each.difference.variant for each in outcomes if each.verdict == kind] for kind in kinds}
    parts = [
        f"{len(own)} {kinds[kind]} ({_listed((f'`{name}`' for name in own), 'variant')})"
        for kind, own in names.items()
        if own
    ]
    return f"Of {len(outcomes)} variants, compared with `{study.baseline}`: {listed(parts)}."


def varied(study: Study) -> list[str]:
    """Return the settings in which variants differ as people call them, each with its values where these are short."""
    values: dict[tuple[str, ...], dict[str, Any]] = {}
    for variant in study.variants:
        for key, value in variant.changes.items():
            path = tuple(key.split("."))
            if path[-1].isdigit():  # an item of a list, which is named as a whole
                values[path[:-1]] = {}
            else:
                values.setdefault(path, {})[variant.name] = value

    # Of many keys below one setting it is the setting that differs.
    below = Counter(path[:-1] for path in values)
    said: dict[str, str] = {}
    for path, by_variant in values.items():
        if len(path) > 3 and below[path[:-1]] > _MAX_KEYS:
            said.setdefault(_setting(path[:-1]), "")
            continue
        known = [by_variant.get(variant.name) for variant in study.variants]
        is_short = 1 < len(known) <= _MAX_NAMED + 1 and all(
            isinstance(value, bool | int | float | str) for value in known
        )
        said.setdefault(_setting(path), f" ({joined(known)})" if is_short else "")
    return [f"{name}{text}" for name, text in sorted(said.items(), key=lambda item: not item[1])]


def _setting(path: Sequence[str]) -> str:
    """Return what people call a setting.

    >>> _setting(["stages", "rl", "steps"]), _setting(["stages", "rl", "kl", "coef"]), _setting(["num_train"])
    ('RL steps', 'RL KL coef', 'num train')
    """
    words = [word for word in path if word != "stages"]
    return " ".join("KL" if word == "kl" else step_name(word).replace("_", " ") for word in words)


def _listed(texts: Iterable[str], noun: str) -> str:
    """Return different texts as a sentence lists them, of many the first; empty without any.

    >>> _listed(["a", "b", "c", "d", "e", "a"], "thing"), _listed(["", ""], "thing")
    ('a, b, c and 2 more things', '')
    """
    names = [*dict.fromkeys(filter(None, texts))]
    if len(names) > _MAX_NAMED + 1:
        names[_MAX_NAMED:] = [f"{len(names) - _MAX_NAMED} more {noun}s"]
    return listed(names) if names else ""


def outcome_said(study: Study, outcome: Outcome, *, is_bold: bool = False) -> str:
    """Return what came out of a variant, both ends named, without its end."""
    name, title = outcome.difference.variant, KNOWN[outcome.difference.measure].title
    said = {
        "higher": f"`{name}` has a higher {title} than `{study.baseline}`",
        "lower": f"`{name}` has a lower {title} than `{study.baseline}`",
        "by rule": f"`{name}` is {outcome.words.split(';')[0]} in {title}, compared with `{study.baseline}`",
        "nothing": f"no difference in {title} is to be seen between `{name}` and `{study.baseline}`",
        "unknown": f"whether `{name}` differs from `{study.baseline}` in {title} is not determined, because "
        f"{outcome.words}",
    }[outcome.verdict]
    num = outcome.num
    said = f"**{said}**" if is_bold and num >= FEWEST and outcome.verdict != "unknown" else said
    ends = ends_said(study, outcome.difference, outcome.value)
    if outcome.verdict == "unknown":
        return f"{sentence_case(said)}{ends and f': {ends}'}"
    by = changed(KNOWN[outcome.difference.measure], outcome.value) if outcome.has_interval else ""
    numbers = ", ".join(filter(None, (ends, by)))
    return f"Over {counted(num, outcome.unit)} {said}{numbers and f': {numbers}'}"


def ends_said(study: Study, difference: StudyDifference, value: Estimate | float | None = None) -> str:
    """Return a variant's value against the baseline's, over the seeds that both have; empty without one."""
    pairs = pairs_of(study, difference.measure, difference.variant).values()
    if not pairs:
        return ""
    before, after = (fmean(ends) for ends in zip(*pairs, strict=True))
    return against(KNOWN[difference.measure], after, before, difference.over_seeds if value is None else value)


def verdicts(study: Study) -> Iterator[Verdict]:
    """Yield the comparison as a plot, each variant in words, what else differs, and what could have been found."""
    outcomes, rows = outcomes_of(study), outcome_rows(study)
    text = f"The line is no difference{', a band what is too small to matter' if study.design else ''}. "
    title = f"{measure_title(study.headline or 'accuracy')} minus that of `{study.baseline}`"
    yield Verdict(title=title, text=f"{text}{100 * study.confidence:g}% intervals.", rows=rows)
    for each in outcomes:
        title = f"`{each.difference.variant}`: {changed(KNOWN[each.difference.measure], each.value)}"
        evidence = pairs_evidence(study, each.difference, each.value, has_difference=True, has_ends=False)
        yield Verdict(
            id=f"of-{each.difference.variant}",
            title=title,
            text=_rests_on(study, each),
            evidence=evidence,
            num=each.num,
        )

    # Every other measure, what was expected, and what the seeds suffice for.
    others = [each for each in study.differences if each.measure != study.headline]
    if others:
        yield _others(study, others)
    if study.trends:
        yield _trends(study)
    if study.detectable:
        yield Verdict(
            id="suffice",
            title="What these seeds suffice for",
            text=detectable_words(study.detectable),
            evidence=detectable_evidence(study.detectable),
        )


def _rests_on(study: Study, outcome: Outcome) -> str:
    """Return the verdict on a variant with its test, what would have been seen, and what it leaves open."""
    if outcome.verdict == "unknown":
        return f"Not determined, because {outcome.words}."
    words = {"nothing": "No difference is to be seen"}.get(outcome.verdict, sentence_case(outcome.words))
    verdict, *more = words.split("; ")
    test = f", {p_words(outcome.p)}" if outcome.p is not None else ""
    said = [f"{verdict} over {counted(outcome.num, outcome.unit)}{test}", *map(sentence_case, more)]
    known = [each for each in study.detectable if each.unit == f"{outcome.unit}s" and each.difference is not None]
    if outcome.verdict == "nothing" and known:
        said.append(f"A true difference of {points_needed(known[0].difference or 0.0)} {_WOULD_SHOW}")
    if outcome.unit == "problem":
        said.append("It is of these runs alone: another training run may come out otherwise")
    return f"{'. '.join(said)}."


def _others(study: Study, others: Sequence[StudyDifference]) -> Verdict:
    """Return which differences in other measures are shown, or that they were not tested, and the largest of them."""
    tested = [each for each in others if each.p_seeds_adjusted is not None]
    level = 1 - study.confidence
    shown = [each for each in tested if (each.p_seeds_adjusted or 0.0) < level]
    known = [each for each in others if each.measure not in _OF_THE_SAME]
    gap, largest = _largest_gap(study, known)
    if not tested:
        because = listed([*dict.fromkeys("one seed each" if each.num_seeds < 2 else untested(each) for each in others)])
        title = f"Other measures were not tested: {because}"
        return Verdict(id="others", title=title, text=gap, evidence=largest)

    # What was not tested stands apart.
    left = [untested(each) for each in others if each.p_seeds_adjusted is None]
    more = f"{count(len(left))} more were not tested: {listed([*dict.fromkeys(left)])}." if left else ""
    if len(left) == 1:
        more = f"One more was not tested: {left[0]}."
    title = f"Of {counted(len(tested), 'difference')} in other measures "
    if not shown:
        return Verdict(id="others", title=f"{title}none is shown", text=f"{gap} {more}".strip(), evidence=largest)
    lines = [
        (
            Sentence(
                f"{measure_title(each.measure)} of `{each.variant}`: {ends_said(study, each)}, "
                f"{changed(KNOWN[each.measure], each.over_seeds or each.mean)}.",
                pairs_evidence(study, each, has_difference=True),
            ),
            p_words(each.p_seeds_adjusted),
        )
        for each in shown[:_MAX_SHOWN]
    ]
    chance = f"Where nothing differs, about {100 * level:.0f} in 100 would be."
    if len(shown) > _MAX_SHOWN:
        chance = f"Here are {_MAX_SHOWN} of them. {chance}"
    return Verdict(
        id="others",
        title=f"{title}{len(shown)} {'is' if len(shown) == 1 else 'are'} shown",
        num=min(each.num_seeds for each in tested),
        text=f"{chance} {more}".strip(),
        evidence=others_evidence(tested, shown),
        lines=tuple(lines),
    )


def _largest_gap(study: Study, others: Sequence[StudyDifference]) -> tuple[str, Evidence | None]:
    """Return the largest difference with its runs: of shares where there are any, else in proportion."""
    shares = [each for each in others if KNOWN[each.measure].unit == "share" and each.mean]
    known = shares or [each for each in others if each.mean and pairs_of(study, each.measure, each.variant)]
    if not known:
        return "They are the same wherever both are known.", None

    def size(each: StudyDifference) -> float:
        if shares:
            return abs(each.mean)
        ends = [abs(end) for pair in pairs_of(study, each.measure, each.variant).values() for end in pair]
        return abs(each.mean) / (max(ends) or 1.0)

    largest = max(known, key=size)
    of = f" of `{largest.variant}`" if len(study.variants) > 2 else ""
    ends = ends_said(study, largest) or changed(KNOWN[largest.measure], largest.mean)
    rows = pairs_evidence(study, largest)
    return f"The largest gap: {KNOWN[largest.measure].title}{of}, {ends}.", rows


def _trends(study: Study) -> Verdict:
    """Return which findings from elsewhere are found here too, or that this was not tested."""
    told = [trend for trend in study.trends if trend.is_shown is not None]
    num, left = len(told), len(study.trends) - len(told)
    shown = [f"{trend.variant}: {expected(trend)}" for trend in told if trend.is_shown]
    if not told:
        were = "was" if left == 1 else "were"
        title, text = f"{counted(left, 'finding')} from elsewhere {were} not tested: {FEW}", ""
    else:
        found = f"{len(shown)} {'is' if len(shown) == 1 else 'are'} found" if shown else "none is found"
        title, text = f"Of {counted(num, 'finding')} from elsewhere {found} here too", ""
        text = f"{'; '.join(shown)}. " if shown else ""
        text += f"{left} more {'was' if left == 1 else 'were'} not tested: {FEW}. " if left else ""
    text += "All stand below, with their numbers."
    return Verdict(id="trends", title=title, text=text, evidence=trends_evidence(told))


def alike(study: Study) -> Iterator[Verdict]:
    """Yield what runs that differ by seed alone came to, each by itself and over training."""
    if study.headline is None:
        return
    unit, title = measure_unit(KNOWN[study.headline]), measure_title(study.headline)
    values = [(run_name(study, run), run.values[study.headline]) for run in study.runs if study.headline in run.values]
    if values:
        low, high = (unit.text(end(value for _, value in values)) for end in (min, max))
        rows = Rows(
            id="study_runs", title=title, columns={title: unit}, rows=tuple(values), plots=(Dots(column=title),)
        )
        said = f"is {low} in each of {len(values)} runs" if low == high else f"is {low} to {high} in {len(values)} runs"
        said = f"is {low} in the one run" if len(values) == 1 else said
        evidence = runs_evidence(study, values)
        yield Verdict(id="runs-of-one", title=f"{title} {said}.", text="A dot is a run.", rows=rows, evidence=evidence)
    for rows in islice(curves_rows(study), _MAX_ALIKE):
        text = "The line is the mean over seeds, the band from the lowest to the highest."
        yield Verdict(title=f"{rows.title} over training.", text=text, rows=rows.kept)


def design_words(study: Study) -> list[str]:
    """Return what was decided before the runs, and which difference they can find."""
    lines = ["No rule was named before these runs, so differences are described and nothing is decided."]
    if (design := study.design) is not None:
        gain = f" {100 * design.min_gain:g} points and more" if design.min_gain else ""
        lines = [
            f"Judged by {MEASURES[design.measure].title} over seeds {joined(study.seeds)}; the smallest difference "
            f"that matters is {100 * design.margin:g} points. Nothing is said where {study.baseline} does not "
            f"gain{gain} over seeds, or where it or the variant is above {percent(design.ceiling)}."
        ]
        # How settings were tuned, and what that costs.
        pairs = zip(design.num_by_seed, design.tuning_seeds, strict=True)
        if rounds := ", then ".join(f"{num} with seed {seed}" for num, seed in pairs):
            lines.append(
                f"Settings of each variant are chosen before, on {count(design.num_problems)} other held-out "
                f"problems: {rounds}, always the better ones; the highest mean over these seeds is taken. Intervals of "
                f"verdicts are {design.widening:.2g} times as wide as over seeds alone, for what another tuning would "
                "choose."
            )
    if study.gain is not None:
        lines.append(f"{study.baseline} itself gains {points_interval(study.gain)} points over seeds.")
    if len(study.variants) > 1 and study.detectable:
        lines.append(Sentence(detectable_words(study.detectable), detectable_evidence(study.detectable)))
    return lines


_WOULD_SHOW = "would be shown by 80 of 100 such studies"


def detectable_words(effects: Sequence[Detectable]) -> str:
    """Return which difference a comparison of a study finds, with what that rests on."""
    num, title = effects[0].num_comparisons, MEASURES[effects[0].measure].title
    first = f", if it is the clearest of {num} (Holm)" if num > 1 else ""
    alone = {"seeds": "One seed shows nothing of another training run", "problems": "One problem decides nothing"}
    said = []
    for each in effects:
        over = counted(each.num, each.unit.removesuffix("s"))
        if each.difference is None:
            said += [alone[each.unit]] * each.num  # of none nothing is said
            continue
        of = " of these runs" if each.unit == "problems" else ""
        found = f"Over {over}{of} a true difference of {points_needed(each.difference)} in {title} {_WOULD_SHOW}{first}"
        pairs = "from problem to problem" if each.unit == "problems" else "from seed to seed"
        seen = "is taken to vary" if each.is_assumed else "varies"
        said.append(f"{found}; the difference {seen} by {points_needed(each.sd)} {pairs} (standard deviation)")
    return " ".join(f"{sentence_case(one)}." for one in said)
