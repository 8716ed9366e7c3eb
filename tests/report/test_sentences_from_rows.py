"""Sentences of whole pages are recomputed from the rows that the page opens, for three runs that were measured."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import ReportConfig
from swerve.probe import probe_run
from swerve.probe.from_files import plan_files
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.steps import probe_in_steps
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.recipes.loader import load_settings
from swerve.report.evidence import Evidence
from swerve.report.page import Page, render
from swerve.report.read import read_inputs
from swerve.report.run_page import run_page

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
    yield Said("sentence", str(page.sentence), getattr(page.sentence, "evidence", None))
    for verdict in page.verdicts:
        yield Said(verdict.id, f"{verdict.title} {verdict.text}", verdict.evidence)
    for fold in page.folds:
        for sentence in fold.sentences:
            yield Said(fold.id, str(sentence), getattr(sentence, "evidence", None))


def opened_rows(text: str) -> Mapping[str, Any]:
    """Return the rows inside a page, by the name of their table."""
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    return {id: dict(zip(packed["names"], packed["columns"], strict=True)) for id, packed in data["evidence"].items()}


def recomputed(columns: Mapping[str, list[Any]], statistic: str, names: tuple[str, ...]) -> float:
    """Compute a figure from rows as a reader would, with none of the page's own code."""
    if statistic == "rows":
        return len(next(iter(columns.values())))
    rows = [row for row in zip(*(columns[name] for name in names), strict=True) if None not in row]
    first, *others = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
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
        "share of the difference": lambda: sum(others[0] - first) / sum(others[1] - first),
    }[statistic]()


def disagreements(page: Page, text: str) -> list[str]:
    """Return each figure that the opened rows do not give as its sentence has it."""
    rows, found = opened_rows(text), []
    for said in said_on(page):
        for figure in () if said.evidence is None else said.evidence.figures:
            value = recomputed(rows[said.evidence.id], figure.statistic, figure.columns)
            written = figure.write(value) if math.isfinite(value) else "none"
            if re.search(rf"(?<![\d.,]){re.escape(written)}(?![\d%]|[.,]\d)", said.text) is None:
                found.append(f"{said.where}: {figure.name} is {written} by its rows, in: {said.text}")
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
        "probe.pivots.max_rollouts=0",
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
    assert disagreements(page, text) == []
    # The first sentence and the verdicts have no number of their own that is not of their rows.
    for verdict in page.verdicts:
        said = Said(verdict.id, verdict.title, verdict.evidence)
        # The null pair, one model run twice, is in the summary alone.
        known = re.findall(r"twice gives ([\d.]+) in (1,000) tokens", verdict.title)
        if verdict.evidence is not None:
            assert {*numbers_without_rows(said)} <= {*sum(known, ())}, verdict.title
    for bad in ("nan", "not reliable", ", not 0.", "None"):
        assert not [said.text for said in said_on(page) if bad in said.text]


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
        for name, column in found["rows"].items():
            assert sorted(filter(math.isfinite, column)) == pytest.approx(
                sorted(value for value in rows[id][name] if value is not None), rel=1e-5, abs=1e-7
            ), (id, name)


def test_a_planted_fault_is_found(trained: RunDirectory) -> None:
    page, text = page_of(trained)
    packed = json.loads(text.split('id="data">')[1].split("</script>")[0])["evidence"]["greedy-right"]
    after = packed["columns"][2]
    wrong = json.dumps([1 - after[0], *after[1:]], separators=(",", ":"))
    changed = text.replace(json.dumps(after, separators=(",", ":")), wrong)
    assert changed != text
    assert [fault.partition(":")[0] for fault in disagreements(page, changed)][:1] == ["sentence"]
    assert disagreements(page, text) == []
