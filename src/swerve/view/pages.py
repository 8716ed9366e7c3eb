"""The pages that `swerve view` serves: the list, a run while it trains, and reports, each made when it is asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import read_responses, response_schema
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.artifacts.samples import read_samples
from swerve.artifacts.study import find_study, read_study
from swerve.config import ReportConfig
from swerve.errors import SwerveError
from swerve.eval.comparison import compare
from swerve.progress import one_line
from swerve.recipes.loader import load_config
from swerve.report.draw.svg import plots_svg
from swerve.report.page import fill_template, render
from swerve.report.read import read_inputs
from swerve.report.rollouts import Payload
from swerve.report.rows import NATS, NUMBER, REWARD, SHARE, TOKENS, Curves, Rows, Unit
from swerve.report.run_page import run_page
from swerve.report.samples import samples_page
from swerve.report.study import run_name, study_page
from swerve.run import entry_texts
from swerve.view.catalogue import Entry, Item, describe

_CHARTS: tuple[tuple[str, Unit, Mapping[str, str]], ...] = (
    ("Reward", REWARD, {"mean": "reward"}),
    ("Right answers", SHARE, {"in training": "accuracy", "held out": "eval_accuracy"}),
    (
        "Divergence from the start of the stage",
        NATS,
        {"JS": "live_js", "forward KL": "live_kl_forward", "reverse KL": "live_kl_reverse"},
    ),
    ("Loss", NUMBER, {"training": "loss", "validation": "val_loss"}),
    ("Entropy of sampling", NATS, {"mean": "entropy"}),
    ("Length of the samples", TOKENS, {"mean": "completion_length"}),
    ("KL term", NATS, {"mean": "kl"}),
)
"""Title and unit of each plot of a run in training, and the metric of each of its curves."""
_MAX_POINTS = 200
"""Of a curve; where there are more steps, each is a mean."""
_MAX_SAMPLES = 8
_LIVE = ("created", "training")
"""Statuses of runs that are shown as they train."""


def list_state(folder: Path, entries: Sequence[Entry], num_unread: int) -> dict[str, Any]:
    """Return what the list shows, the newest first.

    Args:
        folder: whose items are listed.
        entries: what is known of them.
        num_unread: how many more there are.
    """
    kinds = Counter(entry["kind"] for entry in entries)
    counts = [f"{kinds[kind]:,} {words[kinds[kind] != 1]}" for kind, words in _KINDS.items() if kinds[kind]]
    others = {
        "in training": sum(entry["status"] == "training" for entry in entries),
        "with something wrong": sum(entry["error"] is not None for entry in entries),
        "more to be read": num_unread,
    }
    said = [f"{num:,} {words}" for words, num in others.items() if num]
    ordered = sorted(entries, key=lambda entry: entry["date"] or "", reverse=True)
    return {
        "title": ", ".join(counts) or "Nothing to show yet",
        "lead": f"In {one_line(str(folder.resolve()))}{': ' if said else ''}{', '.join(said)}.",
        "columns": _COLUMNS,
        "entries": list(map(_listed, ordered)),
        "num_unread": num_unread,
    }


_KINDS = {
    "run": ("run", "runs"),
    "probe": ("probe", "probes"),
    "study": ("study", "studies"),
    "samples": ("sample file", "sample files"),
    "folder": ("other folder", "other folders"),
}
"""What one and several of them are called."""
_COLUMNS = ("Name", "What", "Status", "Date (UTC)", "Steps", "Accuracy", "Reward", "Duration")


def _listed(entry: Entry) -> dict[str, Any]:
    """Return an item as its line shows it: for each column a text and what it is sorted by."""
    texts, is_live = entry_texts(entry), entry["status"] in _LIVE
    date = "".join(filter(str.isdigit, entry["date"] or ""))
    best = {name: (entry[name] or {}).get("value") for name in ("accuracy", "reward")}
    return {
        "key": entry["key"],
        "page": None if entry["kind"] == "folder" else f"{entry['key']}/{'live' if is_live else ''}",
        "is_live": is_live,
        "error": entry["error"],
        "cells": (
            (texts["run"], None),
            (_KINDS[entry["kind"]][0], None),
            (texts["status"], None),
            (entry["date"] or "-", date),
            (texts["steps"], entry["last_step"]),
            (texts["best accuracy"].partition(" ")[0], best["accuracy"]),
            (texts["best reward"].partition(" ")[0], best["reward"]),
            (texts["trained for"], entry["seconds"]),
        ),
    }


def list_page(folder: Path, state: Mapping[str, Any]) -> str:
    """Return the page that lists what is below a folder."""
    return _page("list", folder.resolve().name, state)


def live_page(item: Item, state: Mapping[str, Any]) -> str:
    """Return the page of a run while it trains."""
    return _page("live", item.name, state)


def message_page(title: str, message: str) -> str:
    """Return a page that says why there is no other."""
    return _page("message", title, {"title": title, "lead": one_line(message)})


def _page(kind: str, name: str, state: Mapping[str, Any]) -> str:
    return fill_template(
        "view.html.j2",
        scripts=("dom.js", "view.js", "page.js"),
        styles=("page.css", "view.css"),
        data={"csv": {}, "kind": kind, "state": state},
        kind=kind,
        name=one_line(name),
        state=state,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The page of an item, and what is too much to be in it."""

    page: str
    rollouts: Payload | None = None

    def rollout(self, number: str) -> bytes | None:
        """Return the block of a rollout, named as addresses do; None: there is none."""
        num = 0 if self.rollouts is None else len(self.rollouts.index["rollouts"])
        return self.rollouts.encode(int(number)) if number in map(str, range(num)) and self.rollouts else None


def make_report(item: Item, keys: Mapping[Path, str]) -> Report:
    """Return the report of a run, a probe, a study or a file of samples, from what is there now.

    Args:
        item: whose report.
        keys: of all items by their paths: a study links to its runs.

    Raises:
        SwerveError: there is nothing to report, or an artifact is damaged.
    """
    if item.kind == "run":
        run = RunDirectory(item.path)
        page = run_page(read_inputs(run), options=_options(run))
    elif item.kind == "study":
        study = read_study(find_study(item.path) or item.path)
        places = {run_name(study, run): item.path / run.path for run in study.runs}
        links = {name: f"../{keys[path]}/" for name, path in places.items() if path in keys}
        page = study_page(study, options=ReportConfig(), links=links)
    else:
        file = read_samples(item.path)
        page = samples_page(compare([file.samples], pooled=True), [file], options=ReportConfig())
    return Report(page=render(page), rollouts=page.rollouts)


def _options(run: RunDirectory) -> ReportConfig:
    """Return the options of a run's recipe; the defaults where it has none, or one of another version."""
    with suppress(SwerveError):
        if run.read_provenance().get("status") != PROBED:
            return load_config(run.config_path).report
    return ReportConfig()


def live_state(item: Item) -> dict[str, Any]:
    """Return what a run's page shows while it trains: what is known of it, its curves and its last samples."""
    run, entry = RunDirectory(item.path), describe(item)
    assert entry is not None, "only files may be nothing"
    texts, errors = entry_texts(entry), {entry["error"]} - {None}
    charts, samples = [], None
    try:
        for rows in live_rows(read_metrics(run.metrics_path)):
            unit = next(iter(rows.columns.values()))
            charts.append({"title": rows.title, "unit": unit.axis, "plots": list(plots_svg(rows))})
        samples = _last_samples(run)
    except SwerveError as error:
        errors.add(one_line(str(error)))
    said = {"step": texts["steps"], "best accuracy": texts["best accuracy"], "best reward": texts["best reward"]}
    facts = [f"{name} {text}" for name, text in said.items() if text != "-"]
    facts += [f"{texts['trained for']} so far"] if entry["seconds"] else []
    return {
        "title": f"{texts['run']}: {texts['status']}",
        "lead": "; ".join([", ".join(facts) or "Nothing is measured yet", *sorted(errors)]),
        "charts": charts,
        "samples": samples,
    }


def live_rows(records: Sequence[Mapping[str, Any]]) -> Iterator[Rows]:
    """Yield the curves of the stage in training that there is something of; the report has those before it.

    Args:
        records: the lines of `metrics.jsonl`.
    """
    stage = records[-1].get("stage", "") if records else ""
    own = [record for record in records if record.get("stage", "") == stage]
    for title, unit, metrics in _CHARTS:
        keys = tuple(metrics.values())
        points = list(_thinned([record for record in own if any(_is_number(record.get(key)) for key in keys)], keys))
        if points:
            rows = tuple((f"{stage} {step:g}", *values) for step, values in points)
            curves = Curves(x=tuple(step for step, _ in points), x_title=f"step of {stage}")
            yield Rows(id="", title=title, columns=dict.fromkeys(metrics, unit), rows=rows, plots=(curves,)).kept


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _thinned(
    records: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> Iterator[tuple[float, tuple[float | None, ...]]]:
    """Yield the steps with some metrics, as means over neighbours where there are many; the last step is one."""
    width = math.ceil(len(records) / _MAX_POINTS) or 1
    for start in range(0, len(records), width):
        group = records[start : start + width]
        known = [[record[key] for record in group if _is_number(record.get(key))] for key in keys]
        yield (
            float(group[-1].get("stage_step", 0)),
            tuple(sum(values) / len(values) if values else None for values in known),
        )


def _last_samples(run: RunDirectory) -> dict[str, Any] | None:
    """Return what was sampled at the last step: a sample of each of the first prompts; None without any."""
    path = max((run.path / "rollouts").glob("step_*.parquet"), default=None)
    if path is None:
        return None
    responses = read_responses(path, response_schema("group", "problem_id", "text", "reward", "correct"))
    first = {response.group: response for response in reversed(responses)}
    shown = [first[group] for group in sorted(first, key=lambda group: group or 0)[:_MAX_SAMPLES]]
    words = {True: "right", False: "wrong", None: "not graded"}
    rows = [
        {
            "problem": response.problem.id,
            "outcome": words[response.correct],
            "reward": response.reward,
            "text": response.text or "",
        }
        for response in shown
    ]
    right = [response.correct for response in responses if response.correct is not None]
    note = f"{sum(right)} of the {len(right)} graded are right; one of each prompt is shown."
    return {"title": f"Sampled at step {path.stem.removeprefix('step_').lstrip('0')}", "note": note, "rows": rows}
