"""Yes, no, unknown: what is not known of a response counts as neither, in whatever takes responses and says figures.

Every public function of the packages below that takes responses is in `FIGURES` or, with the reason, in `NO_FIGURES`: a
new one fails here until it is in one of the two.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import pytest
from pydantic import BaseModel

from swerve.artifacts.responses import Response, by_problem
from swerve.behaviours.label_summary import summarise
from swerve.behaviours.measures import ProblemValues, problem_values
from swerve.behaviours.response_rows import behaviour_rows
from swerve.cli.behaviours import behaviours_text
from swerve.config.probe import ProbeConfig
from swerve.config.recipe import ReportConfig
from swerve.errors import ArtifactError, ConfigError
from swerve.eval.comparison import ModelResponses, compare
from swerve.eval.heldout import heldout_scores
from swerve.eval.pairing import paired, shared
from swerve.eval.response_behaviours import behaviour_summary
from swerve.formats.comparison_table import FORMATS, comparison_notes, comparison_table, measures_table
from swerve.formats.problem_joins import joined
from swerve.probe.rollouts.population import select_rollouts
from swerve.probe.rollouts.samples import choose_rollouts
from swerve.report.page import render
from swerve.report.samples import samples_page
from swerve.types import Problem

PACKAGES = ("behaviours", "eval", "report", "claim", "statistics", "audit", "view", "probe.findings", "probe.rollouts")
Responses = Sequence[Response]


def _of_model(responses: Responses) -> Any:
    measured = ModelResponses()
    for name, group in by_problem(responses).items():
        measured.add(name, group)
    return measured.scores(model="m", temperature=None, confidence=0.95)


def _values(responses: Responses) -> Any:
    values = ProblemValues()
    for name, group in by_problem(responses).items():
        values.add(name, group)
    return values.known


def _summary(responses: Responses) -> dict[str, Any]:
    return behaviour_summary(responses, behaviour_rows(responses), source="s", by=None)


FIGURES: Mapping[str, Callable[[Responses], Any]] = {
    "behaviours.label_summary.summarise": summarise,
    "behaviours.measures.ProblemValues.add": _values,
    "behaviours.measures.problem_values": lambda responses: problem_values(by_problem(responses)),
    "behaviours.response_rows.behaviour_rows": behaviour_rows,
    "eval.comparison.ModelResponses.add": _of_model,
    "eval.comparison.compare": lambda responses: compare([responses]),
    "eval.heldout.heldout_scores": lambda responses: heldout_scores(
        [[*group, *group] for group in by_problem(responses).values()], confidence=0.95
    ),
    "eval.response_behaviours.behaviour_summary": _summary,
}
"""What makes figures of responses."""
NO_FIGURES = {
    "eval.comparison.misread_of": "reads what was judged wrong here",
    "eval.heldout.write_evaluation": "writes what heldout_scores says",
    "eval.pairing.check_asked": "compares problems",
    "eval.pairing.paired": "pairs them; below",
    "eval.pairing.shared": "compares problems",
    "eval.responses.response_batches": "reads tokens",
    "probe.rollouts.checks.check_samples": "reads problems",
    "probe.rollouts.checks.task_policies": "reads problems",
    "probe.rollouts.encoder.ResponseEncoder.encode_all": "reads texts",
    "probe.rollouts.imported.import_responses": "takes problems",
    "probe.rollouts.imported.cut_at_padding": "reads tokens",
    "probe.rollouts.population.select_rollouts": "refuses what has no verdict; below",
    "probe.rollouts.population.probe_sequences": "reads tokens",
    "probe.rollouts.samples.choose_rollouts": "leaves out what has no verdict; below",
    "probe.rollouts.selection.select_by_rules": "takes what the two above let through",
    "probe.rollouts.selection.turned_by_itself": "takes what the two above let through",
}
COUNTS = {"num_responses", "num_problems", "num_groups", "num_samples", "samples", "num_characters"}
"""Counts of what is there, whatever is known of it."""


def unknown(problem: str, num: int = 2, **known: Any) -> list[Response]:
    """Return responses of which nothing is known but what they answer."""
    asked = Problem(id=problem, family="imported", question="", answer="")
    return [Response(problem=asked, sample=number, **known) for number in range(num)]


def known(problem: str, right: Sequence[bool]) -> list[Response]:
    asked = Problem(id=problem, family="math", question=f"{problem}?", answer="4")
    return [
        Response(
            problem=asked, sample=number, text=f"Wait, it is {3 + one}", correct=one, answered=True, reward=float(one),
            extracted=str(3 + one), status="graded", finish_reason="stop", completion_ids=(1, 2, 3), entropy=0.5,
            temperature=None,
        )
        for number, one in enumerate(right)
    ]  # fmt: skip


KNOWN = [*known("a", (True, False)), *known("b", (True, True)), *known("c", (False, True))]
NOTHING = [*unknown("x"), *unknown("y"), *unknown("z")]


def consumers() -> Iterator[str]:
    """Yield the public functions and methods that take several responses."""
    for package in PACKAGES:
        found = importlib.import_module(f"swerve.{package}")
        for info in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            for name, own in vars(importlib.import_module(info.name)).items():
                if name.startswith("_") or getattr(own, "__module__", None) != info.name:
                    continue
                methods = vars(own).items() if inspect.isclass(own) else [("", own)]
                for method, function in methods:
                    if inspect.isfunction(function) and not method.startswith("_"):
                        taken = (str(each.annotation) for each in inspect.signature(function).parameters.values())
                        if any(re.search(r"\bResponse\b.*]|\bGroup\b", each.split("Callable")[0]) for each in taken):
                            yield f"{info.name.removeprefix('swerve.')}.{name}{'.' * bool(method)}{method}"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a result says, each number and text with its path."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}.{number}")
    else:
        yield path, value


def figures(result: Any) -> dict[str, Any]:
    """Return the numbers of a result but for counts of what is there."""
    return {
        path: value
        for path, value in leaves(result)
        if isinstance(value, int | float)
        and not COUNTS & {*path.split(".")}
        and not re.search(r"num_judged|statuses|num_measured|confidence|\.k$", path)
    }


def test_whatever_takes_responses_is_registered() -> None:
    assert {*consumers()} == {*FIGURES, *NO_FIGURES}


@pytest.mark.parametrize("name", FIGURES)
def test_of_what_nothing_is_known_of_nothing_is_said(name: str) -> None:
    assert figures(FIGURES[name](NOTHING)) == {}


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_not_known_changes_no_figure(name: str) -> None:
    """Beside other problems, of which nothing is known, all figures are what they were."""
    alone, beside = (figures(FIGURES[name](responses)) for responses in (KNOWN, [*KNOWN, *NOTHING]))
    assert alone
    if "num_unanswered" in str([*alone]):  # is of all, or not known
        alone = {path: value for path, value in alone.items() if "num_unanswered" not in path}
    assert not any("num_unanswered" in path for path in beside)
    assert beside == alone
    assert all(math.isfinite(value) for value in beside.values())


@pytest.mark.parametrize("text", [None, "Wait, it is 4"])
def test_pages_and_tables_of_what_is_unknown_say_so(text: str | None) -> None:
    responses = [replace(each, label=label, text=text) for label in ("base", "rl") for each in NOTHING]
    comparison = compare([responses[:6], responses[6:]])
    said = [str(comparison_table(comparison)), str(measures_table(comparison)), *comparison_notes(comparison)]
    said += [form(comparison) for form in FORMATS.values()]
    page = samples_page(comparison, [], options=ReportConfig())
    assert "Not determined, because no response has a verdict: the accuracy of base, all temperatures and rl" in str(
        said
    )
    assert page.sentence == (
        "On 3 problems: how often `base` and `rl` are right is not determined, because no sample has a verdict."
    )
    assert "is not determined, because no sample has a verdict" in render(page)
    terminal = behaviours_text(_summary(responses))
    assert "accuracy and pass@k are not determined, because none of 12 responses has a verdict" in terminal
    assert ("Signs of hacking: not determined" in terminal) == (text is None)
    for each in (*said, terminal):
        assert not re.search(r"\bnan\b|\binf\b|0 of 12|0\.0%", each, re.IGNORECASE)


def test_of_some_it_is_said_of_how_many() -> None:
    """Half of the samples of a problem have a verdict."""
    halves = [each for name in "abcde" for each in (*known(name, (True,)), *unknown(name, 1, text="it is 4"))]
    notes_ = _summary(halves)["notes"]
    assert any(
        "5 of 10 responses have no verdict; accuracy is over the others, and pass@k over the problems of a label whose "
        "responses all have one, 0 of 5" in note
        for note in notes_
    )
    (row,) = compare([halves]).rows
    assert row.accuracy is not None
    assert (row.accuracy.mean, row.num_measured.get("accuracy", row.num_problems)) == (1.0, 5)
    assert [point.num_problems for point in row.curve] == []  # of no problem are all samples known
    assert row.num_unanswered is None
    assert (row.ungraded, compare([NOTHING]).rows[0].ungraded) == (0.0, None)
    (row,) = compare([[*KNOWN, *NOTHING]]).rows
    assert row.num_measured["accuracy"] == 3
    assert [point.num_problems for point in row.curve] == [3, 3]
    assert "Responses without a verdict count in no accuracy, and their problems in no pass@k." in comparison_notes(
        compare([[*KNOWN, *NOTHING]])
    )


def test_pairs_are_told_apart_by_verdicts_that_are_known() -> None:
    """The same text with and without a verdict is the same text; with two verdicts it is two samples."""
    asked = [replace(each, sample=None, text="4") for each in known("p", (True, True, True, True))]
    half = [replace(each, correct=None) if number % 2 else each for number, each in enumerate(asked)]
    nothing = [replace(each, correct=None) for each in asked]
    for side in (asked, half, nothing):
        assert [len(group) for group in paired(("a", "b"), side, asked).first.values()] == [1]
    differing = [replace(each, correct=number > 1) for number, each in enumerate(asked)]
    assert len(paired(("a", "b"), differing, asked).first["p"]) == 4
    unsaid = unknown("p", 3)
    assert [len(side["p"]) for side in paired(("a", "b"), unsaid, unsaid)[:2]] == [3, 3]
    assert [*joined(unsaid, lambda: unsaid)] == unsaid
    assert shared(("a", "b"), [by_problem(unsaid), by_problem(unsaid)], []) == ["p"]


def test_what_has_no_verdict_selects_nothing() -> None:
    config, labels = ProbeConfig(), ("base", "rl")
    greedy = [replace(each, temperature=0.0) for each in known("a", (False,))]
    with pytest.raises(
        ArtifactError, match="rl has a response to problem 'a' without a verdict; run swerve eval again"
    ):
        select_rollouts(greedy, [replace(greedy[0], correct=None)], config, labels=labels)
    options: Any = {"labels": labels, "headline": "reference_wrong_final_right", "where": (), "config": config}
    wrong, right = (known(name, one) for name, one in (("a", (False, False)), ("a", (True, True))))
    chosen = choose_rollouts([*wrong, *unknown("b")], [*right, *known("b", (True, True))], tie_seed=0, **options)
    assert (chosen.problem_ids, chosen.num_reference_wrong) == (("a",), 1)
    with pytest.raises(ConfigError, match="no sample of base could be graded; look at its answers with swerve grade"):
        choose_rollouts(NOTHING, right, tie_seed=0, **options)
