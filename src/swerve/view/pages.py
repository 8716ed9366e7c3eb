"""The pages that `swerve view` serves: the list, a run while it trains, and reports, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from swerve.artifacts.metrics import read_step_metrics
from swerve.artifacts.response_columns import response_schema
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.artifacts.samples import StoredSamples
from swerve.artifacts.study import find_study, read_study
from swerve.config.recipe import ReportConfig
from swerve.errors import SwerveError
from swerve.eval.comparison import compare
from swerve.progress import one_line
from swerve.recipes.loader import load_config
from swerve.report.draw.svg import plots_svg
from swerve.report.page import fill_template, render
from swerve.report.read import read_inputs
from swerve.report.rollouts import Payload
from swerve.report.run_page import run_page
from swerve.report.samples import samples_page
from swerve.report.study import study_page
from swerve.report.study_rows import run_name
from swerve.report.topics.training_curves import training_rows
from swerve.run import entry_texts
from swerve.text import counted
from swerve.view.catalogue import Entry, Item, describe

_MAX_SAMPLES = 8
_LIVE = ("created", "training")
"""Statuses of runs that are shown as they train."""
_COLUMNS: Mapping[str, str] = {
    "Name": "run", "What": "kind", "Status": "status", "Date": "began", "Steps": "steps", "Accuracy": "best accuracy",
    "Reward": "best reward", "Duration": "trained for",
}  # fmt: skip
"""What the list shows of `entry_texts`, by its headings."""


def list_state(folder: Path, entries: Sequence[Entry], num_unread: int) -> dict[str, Any]:
    """Return what the list shows, the newest first.

    Args:
        folder: whose items are listed.
        entries: what is known of them.
        num_unread: how many more there are.
    """
    facts = {
        "in training": sum(entry["status"] == "training" for entry in entries),
        "with something wrong": sum(entry["error"] is not None for entry in entries),
        "yet to be read": num_unread,
    }
    return {
        "title": f"{counted(len(entries) + num_unread, 'item')} in {one_line(str(folder))}",
        "lead": ", ".join(f"{num} {words}" for words, num in facts.items() if num),
        "columns": tuple(_COLUMNS),
        "entries": list(map(_listed, sorted(entries, key=lambda entry: entry["date"] or "", reverse=True))),
        "num_unread": num_unread,
    }


def _listed(entry: Entry) -> dict[str, Any]:
    """Return an item as its line shows it: for each column a text, and a number where it is not sorted by its text."""
    texts, is_live = {**entry_texts(entry), "kind": entry["kind"]}, entry["status"] in _LIVE
    date = "".join(filter(str.isdigit, entry["date"] or ""))
    return {
        "key": entry["key"],
        "page": None if entry["kind"] == "folder" else f"{entry['key']}/{'live' if is_live else ''}",
        "is_live": is_live,
        "error": entry["error"],
        "cells": [texts[name] for name in _COLUMNS.values()],
        "numbers": {3: date, 7: entry["seconds"]},
    }


def view_page(kind: str, name: str, state: Mapping[str, Any]) -> str:
    """Return a page of the view itself.

    Args:
        kind: `list`, `live` or `message`.
        name: of what it shows.
        state: at present; `list` and `live` ask for it again.
    """
    return fill_template(
        "view.html.j2",
        scripts=("dom.js", "tables.js", "page.js", "view.js"),
        styles=("page.css", "view.css"),
        data={"kind": kind, "state": state},
        kind=kind,
        name=one_line(name),
        state=state,
    )


def make_report(item: Item, items: Iterable[Item]) -> tuple[str, Payload | None]:
    """Return the page of a run, a probe, a study or a file of samples, from what is there now, and its rollouts.

    Args:
        item: whose report.
        items: all that have one: a study links to its runs.

    Raises:
        SwerveError: there is nothing to report, or an artifact is damaged.
    """
    if item.kind == "run":
        run = RunDirectory(item.path)
        page = run_page(read_inputs(run), options=_options(run))
    elif item.kind == "study":
        # Its runs are pages beside its own.
        study = read_study(find_study(item.path) or item.path)
        names = {item.path / run.path: run_name(study, run) for run in study.runs}
        links = {names[other.path]: f"../{other.key}/" for other in items if other.path in names}
        page = study_page(study, options=ReportConfig(), links=links, folder=item.path)
    else:
        file = StoredSamples(item.path)
        page = samples_page(compare([file.samples], pooled=True), [file], options=ReportConfig())
    return render(page), page.rollouts


def _options(run: RunDirectory) -> ReportConfig:
    """Return the options of a run's recipe; the defaults where it has none, or one of another version."""
    with suppress(SwerveError):
        if run.read_provenance().get("status") != PROBED:
            return load_config(run).report
    return ReportConfig()


def live_state(item: Item) -> dict[str, Any]:
    """Return what a run's page shows while it trains: what is known of it, its curves and its last samples."""
    run, entry = RunDirectory(item.path), describe(item)
    assert entry is not None, "only files may be nothing"
    texts = entry_texts(entry)
    facts = (f"{name} {texts[name]}" for name in ("steps", "best accuracy", "best reward", "trained for"))
    state = {
        "title": f"{texts['run']}: {texts['status']}",
        "lead": ", ".join(fact for fact in facts if not fact.endswith(" -")) or "Nothing is measured yet",
        **{"plots": [], "note": "", "samples": None, "error": entry["error"]},
    }
    # What is damaged, or being replaced at this moment, is told beside what was read before.
    try:
        state["samples"] = _last_samples(run)
        rows = training_rows(list(read_step_metrics(run.metrics_path))).kept
        state |= {"plots": list(plots_svg(rows)), "note": rows.note}
    except SwerveError as error:
        state["error"] = one_line(str(error))
    return state


def _last_samples(run: RunDirectory) -> dict[str, Any] | None:
    """Return what was sampled at the last step: a sample of each of the first prompts; None without any."""
    path = max((run.path / "rollouts").glob("step_*.parquet"), default=None)
    if path is None:
        return None
    responses = read_response_table(path, response_schema("group", "problem_id", "text", "reward", "correct"))
    verdicts = [response.correct for response in responses if response.correct is not None]
    said = f"{verdicts.count(True)} of {counted(len(verdicts), 'sample')} right"
    if not verdicts:
        said = f"not determined, because none of {counted(len(responses), 'sample')} has a verdict: how many are right"
    elif len(verdicts) < len(responses):
        said += f", {len(responses) - len(verdicts)} more without a verdict"
    firsts = {response.group: response for response in reversed(responses)}
    return {
        "title": f"Step {int(path.stem[5:])}: {said}",
        "rows": [
            (response.problem.id, response.correct, response.reward, response.text or "")
            for response in [*reversed(firsts.values())][:_MAX_SAMPLES]
        ],
    }
