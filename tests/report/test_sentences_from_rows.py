"""Sentences of whole pages are recomputed from the rows that the page opens: of runs that were measured, of claim
cards, of studies and comparisons, and of files of samples."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from swerve import statistics
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import Study
from swerve.claim.page import claim_page
from swerve.claim.record import ClaimCard
from swerve.config.recipe import ReportConfig
from swerve.estimates import Estimate
from swerve.probe import probe_run
from swerve.probe.from_files import plan_files
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.steps import probe_in_steps
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.recipes.loader import load_settings
from swerve.report.evidence import Evidence, Figure, Sentence
from swerve.report.page import Page, render
from swerve.report.read import read_inputs
from swerve.report.run_page import run_page
from swerve.report.study import study_page
from swerve.statistics.clusters import by_cluster
from swerve.statistics.decomposition import GAIN_PARTS, accuracy_parts
from swerve.statistics.intervals import rows_and_columns_interval
from tests.claim.test_evidence import CARDS, write
from tests.report.opened_page import opened_data, with_opened_data
from tests.report.test_samples import answers
from tests.report.test_samples import page_of as page_of_samples
from tests.report.test_study_sentences import planted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_SHORT = 700
"""Characters of an answer."""


@dataclass(frozen=True)
class Said:
    """A sentence of a page with its evidence."""

    where: str
    text: str
    evidence: Evidence | None


def said_on(page: Page) -> Iterator[Said]:
    """Yield all sentences of a page, and the numbers below its picture."""
    picture = page.rollouts.raster if page.rollouts else None
    for evidence in picture.evidence if picture else ():
        yield Said("picture", "; ".join(value for value, *_ in picture.figures), evidence)
    for where, sentence in (
        ("sentence", page.sentence),
        ("lead", page.lead),
        ("story", page.story),
        ("caution", page.caution),
    ):
        if sentence:
            yield Said(where, str(sentence), getattr(sentence, "evidence", None))
    for verdict in page.verdicts:
        yield Said(verdict.id, f"{verdict.title} {verdict.text}", verdict.evidence)
        for line, _ in verdict.lines:
            yield Said(verdict.id, str(line), getattr(line, "evidence", None))
    own = [verdict.fold for verdict in page.verdicts if verdict.fold is not None]
    for fold in (*page.folds, *own):
        for sentence in fold.sentences:
            yield Said(fold.id, str(sentence), getattr(sentence, "evidence", None))


def opened_rows(text: str) -> Mapping[str, Any]:
    """Return the rows inside a page, by the name of their table."""
    known = opened_data(text)["evidence"]
    return {id: dict(zip(packed["names"], packed["columns"], strict=True)) for id, packed in known.items()}


def recomputed(columns: Mapping[str, list[Any]], figure: Figure) -> float:
    """Compute a figure from rows as a reader would, with none of the page's own code."""
    statistic, names = figure.statistic, figure.columns
    if statistic == "rows":
        return len(next(iter(columns.values())))
    rows = [row for row in zip(*(columns[name] for name in names), strict=True) if None not in row]
    if not rows:
        return math.nan
    first, *others = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if figure.end:
        kept = zip(columns.get("group", columns["problem"]), *(columns[name] for name in names), strict=True)
        problems = [problem for problem, *row in kept if None not in row]
        interval = interval_of(statistic, first, *others, clusters=problems, confidence=figure.level)
        return math.nan if interval is None else getattr(interval, figure.end)
    return {
        "sum": lambda: sum(first),
        "mean": lambda: sum(first) / len(first),
        "median": lambda: float(np.percentile(first, 50)),
        "least": lambda: min(first),
        "most": lambda: max(first),
        "ratio of sums": lambda: sum(first) / sum(others[0]),
        "per 1,000": lambda: 1000 * sum(first) / sum(others[0]),
        "rises": lambda: sum(a < b for a, b in zip(first, others[0], strict=True)),
        "falls": lambda: sum(a > b for a, b in zip(first, others[0], strict=True)),
        "paired difference of means": lambda: sum(b - a for a, b in zip(first, others[0], strict=True)) / len(first),
        "mean of differences": lambda: sum(b - a for a, b in zip(first, others[0], strict=True)) / len(first),
        "change as a share of the wrong": lambda: sum(sum(others) / len(others) - first) / sum(1 - first),
        "change as a share of the right": lambda: sum(first - sum(others) / len(others)) / sum(first),
        "columns": lambda: len(names),
        "mean over runs": lambda: sum(map(sum, (first, *others))) / len(names) / len(first),
        OVER_RUNS: lambda: sum(sum(each - first) for each in others) / len(others) / len(first),
        **{f"{part} of the gain": lambda at=at: shapley(at, first, *others) for at, part in enumerate(GAIN_PARTS)},
        "share of the difference": lambda: sum(others[0] - first) / sum(others[1] - first),
        "difference of ratios": lambda: sum(first) / sum(others[0]) - sum(others[1]) / sum(others[2]),
        "number": lambda: len(first),
        "rank correlation": lambda: scipy.stats.spearmanr(first, others[0]).statistic,
    }[statistic]()


OVER_RUNS = "mean over runs, less that of the first"


def shapley(at: int, *counts: Any) -> float:
    """Return the share of one of three rates in the change of their product, a mean over the orders of change."""
    table = np.array(counts, dtype=float).reshape(2, 4, -1)
    if not (table[:, :3] > 0).all():  # a rate is not known: what is taken for it has a test of its own
        return float(accuracy_parts(table[:, 0], table[0, 1:], table[1, 1:])[0][at].gain.mean)
    before, after = table[:, 1:] / table[:, :3]
    gains = []
    for order in permutations(range(3)):
        start = np.array(before)
        for rate in order:
            changed = start.copy()
            changed[rate] = after[rate]
            if rate == at:
                gains.append(changed.prod(axis=0) - start.prod(axis=0))
            start = changed
    return float(np.mean(gains))


def interval_of(statistic: str, first: Any, *others: Any, **how: Any) -> Estimate | None:
    """Return the interval of a figure, by the public function that the page names beside it."""
    bounds = {"bounds": (-1.0, 1.0)}
    if statistic == "paired difference of means":
        return statistics.paired_difference(first, *others, **bounds, **how)[0]
    if statistic == "mean of differences":
        return statistics.mean_interval(others[0] - first, **bounds, **how)
    if statistic == "mean":
        return statistics.mean_interval(first, bounds=(0.0, 1.0), **how)
    if statistic == OVER_RUNS:
        gains = by_cluster(np.array(others) - first, how.pop("clusters"))
        return rows_and_columns_interval(gains, **bounds, **how)
    if statistic.endswith(" of the gain"):
        table = np.array([first, *others]).reshape(2, 4, -1)
        parts, _ = accuracy_parts(table[:, 0], table[0, 1:], table[1, 1:], clusters=how["clusters"])
        return next(each.gain for each in parts if statistic.startswith(each.part))
    return {"ratio of sums": statistics.ratio_interval, "rank correlation": statistics.spearman}[statistic](
        first, *others, **how
    )


WITHOUT_ROWS: Mapping[str, str] = {}
"""Beginning of a sentence that opens no rows -> why. There is none."""
WITHOUT_FIGURE: Mapping[str, str] = {
    r"Brackets are intervals": "notes of the probe, in its own words; the rows say how much there is of each kind",
    r"Not measured \(it needs": "there is no number: the rows say what there is, and what makes more",
    r"No step of the rollouts is known": "the rows are the rollouts, none of which has a known wrong step",
    r"(One|One half of the) .* decided": "the rows are the answers that decided",
    r"By stage, ": "a token's mean over the checkpoints of a stage, whose names the recipe alone has",
    r"Whether the token of .* was not measured": "there is no number",
    r"At \w+ positions (no token was forced|both models choose)": "there is no number of its own",
    r"\w+ (rollouts? (is|are) too few to rely)": "the number is a word",
    r"Where the (checkpoints differ|highest divergence)": "there is no number",
    r"(Accuracy|The responses) (was|were) not": "there is no number",
    r"Of \d+ categories of tokens none": "the number is that of the columns",
    r"Not tested: whether the changed token": "there is no number",
    r"\*\*Does it matter\?\*\* (Not determined|\w+ problems? (is|are) too few)": "there is no number but a word",
}
"""Sentence whose rows give none of its numbers -> why."""


def without_rows(page: Page) -> list[str]:
    """Return the sentences that open no rows, or none of whose numbers comes from them, without a reason above."""
    found = []
    for said in said_on(page):
        known = WITHOUT_ROWS if said.evidence is None else WITHOUT_FIGURE
        has_figures = said.evidence is not None and bool(said.evidence.figures)
        if not has_figures and not any(re.match(pattern, said.text) for pattern in known):
            found.append(f"{said.where}: {said.text}")
    return found


def disagreements(page: Page, text: str) -> list[str]:
    """Return each figure that the opened rows do not give as its sentence has it."""
    rows, found = opened_rows(text), []
    for said in said_on(page):
        for figure in () if said.evidence is None else said.evidence.figures:
            value = recomputed(rows[said.evidence.id], figure)
            # A page holds seven digits of a number, of which the last may decide how a half is rounded.
            near = (value, value * (1 + 1e-6), value * (1 - 1e-6))
            written = [figure.write(each) if math.isfinite(each) else "none" for each in near]
            if not any(re.search(rf"(?<![\d.,]){re.escape(each)}(?![\d%]|[.,]\d)", said.text) for each in written):
                found.append(f"{said.where}: {figure.name} is {written[0]} by its rows, in: {said.text}")
    return found


def numbers_without_rows(said: Said) -> list[str]:
    """Return the numbers of a verdict's title that are neither a figure of its rows, nor their number."""
    assert said.evidence is not None
    text = re.sub(r"`[^`]*`", "", said.text)
    known = {number.strip("+%\N{MINUS SIGN}") for each in said.evidence.texts.values() for number in each.split()}
    known |= {f"{said.evidence.num:,}"}
    return [number for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text) if number not in known]


@pytest.fixture(scope="module")
def trained(small_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of one seed, trained, evaluated and probed, with forced tokens and tokens of the other model."""
    run = RunDirectory(tmp_path_factory.mktemp("trained") / "run")
    shutil.copytree(small_run.path, run.path)
    changes = ["probe.reference=sft-100", "probe.final=rl", "probe.checkpoints=rl", "probe.causal.max_rollouts=3"]
    changes += [
        "probe.causal.num_continuations=2",
        "probe.cross_sampling.max_problems=3",
        "probe.pivots.max_rollouts=3",
        "probe.attribution.method=gradient",
    ]
    probe_run(load_config(run.config_path, changes), run, progress=SilentProgress())
    return run


@pytest.fixture(scope="module")
def imported(shared_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Real answers of a file, read by a real model and by the same with a little noise on its weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, source = shared_data("tiny_models") / "stories260K" / "hf", shared_data("rl_probe") / "responses.jsonl.gz"
    folder = tmp_path_factory.mktemp("imported")
    model, generator = AutoModelForCausalLM.from_pretrained(base), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * parameter.std() * 0.02)
    model.save_pretrained(folder / "tuned")
    AutoTokenizer.from_pretrained(base).save_pretrained(folder / "tuned")

    # The model reads 512 tokens: the answers that are short enough for it.
    with gzip.open(source, "rt") as lines:
        short = [line for line in lines if len(json.loads(line)["response"]) < _SHORT]
    (folder / "responses.jsonl").write_text("".join(short), encoding="utf-8")
    data = {"models": {"base": str(base), "tuned": str(folder / "tuned")}, "reference": "base"}
    data |= {"out": str(folder / "run"), "responses": str(folder / "responses.jsonl")}
    settings = load_settings(ProbeRecipe, ["runtime.device=cpu"], data=data)
    probe_in_steps(plan_files(settings), progress=SilentProgress())
    return RunDirectory(folder / "run")


@pytest.fixture(scope="module")
def evaluated(small_run: RunDirectory) -> RunDirectory:
    """A run of one seed that nobody probed."""
    return small_run


@pytest.fixture(params=["trained", "imported", "evaluated"])
def run(request: pytest.FixtureRequest) -> RunDirectory:
    found: RunDirectory = request.getfixturevalue(request.param)
    return found


def page_of(run: RunDirectory) -> tuple[Page, str]:
    page = run_page(read_inputs(run), options=ReportConfig())
    return page, render(page)


def test_sentences_are_what_the_opened_rows_give(run: RunDirectory) -> None:
    page, text = page_of(run)
    figures = [figure for said in said_on(page) if said.evidence for figure in said.evidence.figures]
    assert len(figures) >= 2
    assert without_rows(page) == []
    assert disagreements(page, text) == []
    # The first sentence and the verdicts have no number of their own that is not of their rows.
    for verdict in page.verdicts:
        said = Said(verdict.id, verdict.title, verdict.evidence)
        # The null pair, one model run twice, is in the summary alone.
        known = re.findall(r"twice gives ([\d.]+) in (1,000) tokens", verdict.title)
        # How many intervals miss is a rate of their number.
        known += re.findall(r"some ([\d,]+) to ([\d,]+) do not hold the true", verdict.title)
        if verdict.evidence is not None:
            assert {*numbers_without_rows(said)} <= {*sum(known, ())}, verdict.title
    for bad in ("nan", "not reliable", ", not 0.", "None"):
        # Above the verdicts the probe says in its own words what its metrics call for.
        assert not [said.text for said in said_on(page) if bad in said.text and said.where != "caution"]


_BESIDE = r"(?<![\d.,])%s(?: [a-z][a-z ]*)? \((%s) to (%s)\)"
"""A number as a sentence writes it, and the interval that stands beside it."""
_NUMBER = r"[<>]?[+\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?"
NOT_FROM_ROWS: Mapping[str, str] = {
    "null": "of tokens of one model run twice, which the probe does not keep: the rows are their number",
    "selection": "of what single samples would turn, by the chances of the samples",
    "auc-first_wrong": "of the placements of all other tokens too: the rows have those of the wrong ones",
}
"""Rows that give no interval -> why."""


def beside(statistic: str, columns: Sequence[Any], problems: Sequence[str], level: float) -> Iterator[Estimate | None]:
    """Yield the intervals that a figure of some rows may have, by the functions of `swerve.statistics`.

    A token of a rollout stands for its mean: intervals are of the sums over problems, which stay as they are.
    """
    how: dict[str, Any] = {"clusters": problems, "confidence": level}
    if statistic == "median":
        yield statistics.median_interval(columns[0], confidence=level)
    elif statistic == "mean":
        yield interval_of(statistic, *columns, **how)
        yield statistics.skewed_mean_interval(columns[0], **how)  # of nats
    elif statistic == "ratio of sums":
        nums = columns[1].astype(int)
        values, of = np.repeat(columns[0] / np.maximum(1, nums), nums), np.repeat(problems, nums)
        if (columns[0] <= columns[1]).all():
            yield interval_of(statistic, *columns, **how)
        if (values >= 0).all():
            yield statistics.skewed_mean_interval(values, clusters=of, confidence=level)  # of nats
        yield statistics.mean_interval(values, bounds=_NATS, padded=False, clusters=of, confidence=level)  # of entropy
        yield statistics.mean_interval(values, bounds=(0.0, 1.0), clusters=of, confidence=level)  # of one token each
    elif statistic == "difference of ratios":
        yield statistics.statistic_interval(
            lambda sums: sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3], columns, bounds=(-1.0, 1.0), **how
        )
        nums = columns[1].astype(int)
        values, of = np.repeat((columns[0] - columns[2]) / np.maximum(1, nums), nums), np.repeat(problems, nums)
        yield statistics.mean_interval(values, bounds=_NATS, padded=False, clusters=of, confidence=level)  # of entropy
    elif statistic in ("paired difference of means", "mean of differences", "rank correlation"):
        yield interval_of(statistic, *columns, **how)


_NATS = (-100.0, 100.0)


def _ends_agree(found: Estimate, written: Sequence[str]) -> bool:
    """Return whether an interval is what is written, as a fraction, in hundredths or in thousandths."""
    ends = [float(re.sub(r"[<>+,]", "", end).replace("\N{MINUS SIGN}", "-")) for end in written]
    steps = [10.0 ** -len(end.partition(".")[2]) for end in written]
    return any(
        all(
            abs(scale * own - end) <= 0.51 * step
            for own, end, step in zip((found.low, found.high), ends, steps, strict=True)
        )
        for scale in (1, 100, 1000)
    )


def intervals_of(page: Page, text: str) -> Iterator[tuple[str, bool]]:
    """Yield each interval of a page that stands beside a figure, and whether the opened rows give it."""
    rows = opened_rows(text)
    for said in said_on(page):
        for figure in () if said.evidence is None else said.evidence.figures:
            assert said.evidence is not None
            written = said.evidence.texts[figure.name]
            hit = re.search(_BESIDE % (re.escape(written), _NUMBER, _NUMBER), said.text)
            if figure.end or hit is None or said.evidence.id in NOT_FROM_ROWS:
                continue
            own = rows[said.evidence.id]
            cells = zip(own["problem"], *(own[name] for name in figure.columns), strict=True)
            problems, *columns = zip(*(row for row in cells if None not in row), strict=True)
            arrays = [np.array(column, dtype=float) for column in columns]
            made = beside(figure.statistic, arrays, problems, figure.level)
            yield f"{said.where}: {hit[0]}", any(one is not None and _ends_agree(one, hit.groups()) for one in made)


def test_intervals_are_what_the_opened_rows_give(run: RunDirectory) -> None:
    found = [*intervals_of(*page_of(run))]
    assert [where for where, agrees in found if not agrees] == []
    assert len(found) >= 6


def test_the_lines_that_stand_there_make_the_rows(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    page, text = page_of(run)
    rows = opened_rows(text)
    made = {
        said.evidence.id: said.evidence.command for said in said_on(page) if said.evidence and said.evidence.command
    }
    assert made
    for id, command in made.items():
        found: dict[str, Any] = {}
        exec(command, found)
        if id == "swaps":
            assert sum(name.endswith(" where it differs") for name in found["rows"].columns) == 2
        for name, column in found["rows"].items():
            assert sorted(filter(math.isfinite, column)) == pytest.approx(
                sorted(value for value in rows[id][name] if value is not None), rel=1e-5, abs=1e-7
            ), (id, name)


def test_a_sentence_without_rows_is_found(trained: RunDirectory) -> None:
    page, _ = page_of(trained)
    fold = page.folds[0]
    no_figure = Sentence("Of 7 nothing is known.", replace(page.sentence.evidence, figures=()))
    bare = replace(fold, sentences=(str(fold.sentences[0]), no_figure))
    changed = replace(page, folds=(bare, *page.folds[1:]))
    assert [said.partition(":")[0] for said in without_rows(changed)] == [fold.id, fold.id]


def test_a_planted_fault_is_found(trained: RunDirectory) -> None:
    page, text = page_of(trained)
    opened = opened_data(text)
    after = opened["evidence"]["greedy-right"]["columns"][2]
    after[0] = 1 - after[0]
    changed = with_opened_data(text, opened)
    assert [fault.partition(":")[0] for fault in disagreements(page, changed)][:1] == ["sentence"]
    assert disagreements(page, text) == []
    assert [where for where, agrees in intervals_of(page, changed) if not agrees] != []


# Pages that are no run's: no sentence with a number of its own is without rows.

EXCEPTIONS = {
    r"(?:is|are|were|was) not (?:determined|tested)": "says what could not be asked, and why",
    r"^“Such cards” beside|^Planted: ": "of simulated cards, which are in rates.json",
    r"should solve about .* problems more": "estimated of the chances behind the rows, which it opens",
    r"nats per response in samples of": "of every token that was read, of which means are kept",
    r"greedy responses reason before an answer": "counts responses that another part left out",
    r"^Task .* samples of each": "of what was sampled; what the lines below count is in their rows",
    r"\*\*What was compared\?\*\*": "of what was sampled; what the lines below count is in their rows",
    r"^Differences are from .*, paired over the problems": "says how the figures of all rows are made",
    r"^Problems have .* samples|have no group, and count as one": "counts of the files that were given",
    r"samples by .* have no verdict and are left out": "counts of the files that were given",
    r"^Judged by |^Settings of each variant ": "decided before the runs",
    r" itself gains ": "of the runs' first evaluations, whose mean is kept",
    r"word for word with a chance of": "of every token that was read",
    r"of the change (?:can be told to suffice|loses less)|^Over .* no rank up to": "what is right with all of "
    "the change, and without it, is of answers that the card keeps in files; the part's own rows are checked",
}
"""Sentences that have a number and no row that gives it, each with its reason."""

_INTERVAL = r"(?<=[\d%s]) \([^()]*\bto\b[^()]*\)"
_NOT_MEASURED = (
    r"\bp (?:=|<) [\d.]+|\b[\d.]+% interval|\b80 of 100\b|about 5 in 100 would be|of random ones|\bin 95 of 100\b"
    r"|\bk = \d+(?: to \d+)?(?: on)?|up to \d+;|pass@k|[Rr]ank \d+|after 25 to 100%|less than [\d.]+ points"
    r"|limit of [\d,]+ tokens|within [\d.,]+ points|by [\d.]+ points or more|\(Holm\)|clearest of \d+"
    r"|per 1,000 words|Here are \d+|[Aa] true difference of (?:about )?[+\N{MINUS SIGN}]?[\d.]+ points(?! in)"
)
"""What is no figure of the rows: intervals and p-values, which a test makes of them, names of columns, and what was
decided before."""


def faults_of(page: Page) -> list[str]:
    """Return each sentence with a number that no row gives, but for the exceptions."""
    found = []
    for said in said_on(page):
        if any(re.search(pattern, said.text) for pattern in EXCEPTIONS):
            continue
        text = re.sub(r"`[^`]*`", "", said.text).replace("**", "")
        text = re.sub(_NOT_MEASURED, "", re.sub(_INTERVAL, "", text))
        numbers = re.findall(r"(?<![\w.])\d(?:[\d,]*\d)?(?:\.\d+)?", text)
        known = set()
        if said.evidence is not None:
            known = {part.strip("+<>%\N{MINUS SIGN}") for each in said.evidence.texts.values() for part in each.split()}
            known |= {f"{said.evidence.num:,}"}
        if lost := [number for number in numbers if number not in known]:
            found.append(f"{said.where}: {lost} in: {said.text}")
    return found


def _card(folder: Path, *files: Path, **options: Any) -> Page:
    import swerve

    first, *others = files
    card = swerve.claim(first, list(others), out=folder / "card", progress=False, **options)
    assert card is not None
    # As anyone reads it again.
    return claim_page(ClaimCard.read(folder / "card" / "claim.json", remedy=""))


def _card_of_models(small_run: RunDirectory, folder: Path) -> Page:
    import swerve

    settings = load_settings(
        swerve.ClaimSettings,
        ["num_samples=4", "limit=12", "directions=3", "ranks=[1,2]", "runtime.device=cpu", "max_new_tokens=36"],
        data={"task": {"kind": "addition", "digits": 2}, "others": [{"kind": "addition", "digits": 3}]},
    )
    models = [f"{small_run.path}:{label}" for label in ("sft-100", "rl")]
    card = swerve.claim(*models, settings, out=folder / "card", progress=False)
    assert card is not None
    return claim_page(card)


def _released(name: str, *labels: str) -> Callable[[pytest.FixtureRequest, Path], Page]:
    def page(request: pytest.FixtureRequest, folder: Path) -> Page:
        data = request.getfixturevalue("shared_data")("evidence") / name
        return _card(folder, *(data / f"{label}.jsonl.gz" for label in labels))

    return page


def _planted_card(name: str) -> Callable[[pytest.FixtureRequest, Path], Page]:
    def page(_: pytest.FixtureRequest, folder: Path) -> Page:
        base, runs, num = CARDS[name]
        files = [write(folder / f"{number}.jsonl", own, num, number) for number, own in enumerate((base, *runs))]
        return _card(folder, *files)

    return page


def _study(**right: tuple[int, ...]) -> Callable[[pytest.FixtureRequest, Path], Page]:
    num = max(map(len, right.values()))
    others = {"entropy": (0.017, 0.018, 0.016), "sampled_accuracy": (0.41, 0.45, 0.39)}
    given = {
        name: {variant: tuple(value + 0.2 * place for value in values[:num]) for place, variant in enumerate(right)}
        for name, values in others.items()
    }
    return lambda *_: study_page(planted(right, **given), options=ReportConfig())


def _judging(judged: Study) -> Page:
    """Return the page of planted runs under the rule of a study that named one before."""
    study = planted({"none": (50, 52, 54), "kl": (70, 73, 73)})
    (rule,), found = judged.verdicts, study.difference_of("accuracy", "kl")
    assert found is not None
    rule = rule.model_copy(update={"over_seeds": found.over_seeds})
    named = {"design": judged.design, "gain": judged.gain, "verdicts": (rule,)}
    return study_page(study.model_copy(update=named), options=ReportConfig())


PAGES: dict[str, Callable[[pytest.FixtureRequest, Path], Page]] = {
    "card of a released gain": _released("gsm8k-ppo-k8", "before", "after"),
    "card of a released gain in length": _released("countdown-sft-grpo", "before", "after"),
    "card of released verdicts": _released("gsm8k-qwen35-drgrpo-200", "before", "after-drgrpo-seed42"),
    "card of released runs": _released(
        "gsm8k-qwen35-drgrpo-200", "before", "after-rho070-seed42", "after-rho070-seed43"
    ),
    "card of a base that is never right": _released("countdown-sft-grpo", "base", "after"),
    **{f"card, {name}": _planted_card(name) for name in CARDS},
    "card of two models": lambda request, folder: _card_of_models(request.getfixturevalue("small_run"), folder),
    "study, higher": _study(none=(50, 52, 54), kl=(70, 73, 73)),
    "study, alike": _study(none=(50, 55, 60), kl=(56, 52, 58)),
    "study of three": _study(none=(50, 52, 54), up=(90, 92, 93), down=(10, 12, 13)),
    "study of one recipe": _study(none=(50, 52, 54)),
    "study that judges": lambda request, _: _judging(request.getfixturevalue("judged")),
    "two runs": _study(none=(50,), kl=(70,)),
    "samples, more": lambda *_: page_of_samples(answers("a", "0" * 30 + "1" * 10), answers("b", "1" * 40)),
    "samples, alike": lambda *_: page_of_samples(answers("a", "1" * 20 + "0" * 20), answers("b", "01" * 20)),
    "samples of three": lambda *_: page_of_samples(
        answers("a", "01" * 20), answers("b", "1" * 40, text="wait, so", length=9), answers("c", "0" * 40)
    ),
}


@pytest.mark.parametrize("kind", PAGES)
def test_each_sentence_of_a_page_has_rows_that_give_its_numbers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = PAGES[kind](request, tmp_path)
    assert disagreements(page, render(page)) == []
    assert faults_of(page) == []
    assert any(said.evidence is not None and said.evidence.figures for said in said_on(page))


def test_a_sentence_of_a_study_without_rows_is_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    page = PAGES["study, higher"](request, tmp_path)
    bare = replace(page, sentence="Over 3 seeds `kl` is right more often: 72.0% against 52.0%.")
    assert faults_of(page) == []
    assert [fault.partition(":")[0] for fault in faults_of(bare)] == ["sentence"]
    other = replace(page, sentence=Sentence(str(page.sentence).replace("52.0%", "51.0%"), page.sentence.evidence))  # type: ignore[attr-defined]
    assert "51.0" in faults_of(other)[0]
