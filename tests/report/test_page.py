"""The page as a file: policy, escaping, absent stages, and numbers equal to the artifacts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.comparison import Scores
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.artifacts.run import RunDirectory
from swerve.config.recipe import ReportConfig
from swerve.errors import ArtifactError
from swerve.estimates import false_by_chance
from swerve.report.evidence import Evidence
from swerve.report.page import Page as ReportPage
from swerve.report.page import Verdict, json_block, render
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.run_page import all_findings, run_page, write_page

OWN_ASSETS = [path.name for path in (files("swerve.report") / "assets").iterdir() if path.name.endswith((".js", ".j2"))]


class Page(HTMLParser):
    """Collects tags with their attributes, the text, and the raw contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self._raw: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._raw = (tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._raw = None

    def handle_data(self, data: str) -> None:
        if self._raw is not None:
            self.raw.append((*self._raw, data))
        else:
            self.text += data


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def rendered(inputs: ReportInputs, **options: Any) -> str:
    return render(run_page(inputs, options=ReportConfig(**options)))


def policy_of(page: Page) -> str:
    found = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(found) == 1
    return str(found[0])


def test_policy_allows_exactly_the_blocks_of_the_page(page: Page) -> None:
    policy = dict(part.strip().split(" ", 1) for part in policy_of(page).split(";"))
    blocks: dict[str, list[str]] = {"script": [], "style": []}
    for tag, attributes, content in page.raw:
        if attributes.get("type") is None:
            digest = hashlib.sha256(content.encode()).digest()
            blocks[tag].append(f"'sha256-{base64.b64encode(digest).decode()}'")
    assert policy["default-src"] == "'none'"
    assert policy["img-src"] == "data:"
    assert policy["script-src"].split() == blocks["script"]
    assert policy["style-src"].split() == blocks["style"]


def test_page_refers_to_nothing_outside(page: Page) -> None:
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert name != "style", tag
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                assert value is not None
                assert value.startswith(("#", "data:")), (tag, value)
    assert not {"iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    images = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert images
    assert all((image or "").startswith("data:image/png;base64,") for image in images)


@pytest.mark.parametrize("name", OWN_ASSETS)
def test_assets_never_parse_data_as_markup(name: str) -> None:
    text = (files("swerve.report") / "assets" / name).read_text(encoding="utf-8")
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|\|safe\b"
    plots = ["DOMParser"] if name == "view.js" else []  # plots that the server drew, all text in them escaped
    assert re.findall(banned, text) == plots


def test_the_runs_name_is_escaped(page: Page, report: Path) -> None:
    assert "demo-$x$&lt;b&gt;" in report.read_text(encoding="utf-8")
    assert "demo-$x$<b>" in page.text


def test_names_of_models_in_the_new_entries_are_escaped(synthetic: Any, entries: Any, tmp_path: Path) -> None:
    text = json.dumps(entries).replace('"sft-500"', json.dumps("<img src=x onerror=alert(1)>"))
    run = synthetic.write_synthetic_run(tmp_path / "run", num_rollouts=2, entries=json.loads(text))
    text = rendered(read_inputs(run))
    assert "<img src=x" not in text
    assert "dpo-8 against <img src=x onerror=alert(1)>" in Page(text).text


def test_any_entry_may_be_missing(inputs: ReportInputs, entries: Any) -> None:
    assert inputs.summary is not None
    recorded = inputs.summary.model_dump()
    optional = [key for key, field in ProbeSummary.model_fields.items() if not field.is_required()]
    assert set(entries) - set(optional) == {
        "baseline",
        "selection",
        "population",
        "spike_method",
        "mcnemar",
        "reselected",
    }
    lacking = [{name: value for name, value in recorded.items() if name != key} for key in optional]
    lacking += [{**recorded, key: None} for key in ("baseline", "mcnemar", "reselected", "num_reference_wrong")]
    for one in lacking:
        changed = replace(inputs, summary=ProbeSummary.model_validate(one))
        page = run_page(replace(changed, tables=None), options=ReportConfig())
        assert len(page.folds) > 5
        assert len(page.verdicts) > 3
        assert all_findings(changed)


def without_estimates(value: Any) -> Any:
    """Replace every estimate by None, as where nothing was measured."""
    if isinstance(value, dict):
        return None if {"mean", "low", "high"} <= value.keys() else {k: without_estimates(v) for k, v in value.items()}
    return [without_estimates(one) for one in value] if isinstance(value, list) else value


def test_estimates_may_all_be_missing(inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    known = {**inputs.summary.model_dump(mode="json"), "claims": []}  # without an estimate there is no claim
    summary = ProbeSummary.model_validate(without_estimates(known))
    page = Page(rendered(replace(inputs, summary=summary, tables=None)))
    assert "None" not in page.text.replace("None of them", "")
    assert re.search(r"\bnan\b", page.text) is None


def test_responses_from_elsewhere_are_told_as_such(synthetic: Any, entries: Any, tmp_path: Path) -> None:
    imported = {
        **entries,
        "selection": "imported",
        "population": "imported_wrong",
        "responses": {"path": "answers.jsonl", "num_responses": 310, "num_problems": 300, "boundaries": {"ids": 310}},
        "populations": [
            {**entries["populations"][0], "population": "imported_wrong", "source": "imported"},
            {**entries["populations"][1], "population": "imported_right", "source": "imported"},
        ],
        **dict.fromkeys(("num_reference_wrong", "num_reference_wrong_final_right", "mcnemar", "reselected")),
    }
    run = synthetic.write_synthetic_run(
        tmp_path / "run", num_rollouts=2, evaluation=False, entries=imported, config_yaml=""
    )
    page = Page(rendered(read_inputs(run)))
    assert (
        "310 responses to 400 problems were read from answers.jsonl; the "
        "metrics are about the 200 in the population \N{LEFT DOUBLE QUOTATION MARK}imported, wrong"
        "\N{RIGHT DOUBLE QUOTATION MARK}."
    ) in page.text
    assert "Nothing was selected" in page.text
    assert "swerve eval" not in page.text
    assert "not measured problems" not in page.text
    assert "Configuration" not in page.text


def test_without_a_probe_the_page_says_what_was_evaluated(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", probe=False)
    page = Page(write_page(run, options=ReportConfig()).read_text(encoding="utf-8"))
    assert "from 47% to 99.5% right" in page.text
    assert "Where the checkpoints differ from the reference was not measured." in page.text
    assert not any(attributes.get("id") == "hero" for _, attributes in page.tags)
    assert not (run.report_path / "figures").exists()


def test_without_evaluations_the_page_says_how_far_it_went(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", evaluation=False, num_rollouts=2)
    page = Page(rendered(read_inputs(run), title="A title"))
    assert "rl-80 writes almost what dpo-8 writes: their predictions lie 0.0" in page.text
    assert "A title" in page.text
    # Without evaluations the global steps are unknown; those of the labels remain.
    assert "step of the stage" in page.text


def test_a_probe_that_is_not_to_be_relied_upon_says_so(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", reliable=False, num_rollouts=2)
    assert "12 rollouts, fewer than the 20 asked for: not to be relied upon." in Page(rendered(read_inputs(run))).text


def test_a_run_with_metrics_only_has_a_page(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", evaluation=False, probe=False)
    page = Page(rendered(read_inputs(run)))
    assert "nothing is evaluated yet" in page.text
    assert not any(attributes.get("id") == "verdicts" for _, attributes in page.tags)


def test_nothing_at_all_is_an_error_that_says_what_to_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    with pytest.raises(ArtifactError, match=r"run has nothing to report: .* swerve eval .* swerve probe"):
        write_page(run, options=ReportConfig())
    assert not run.report_path.exists()


def test_a_damaged_table_is_named(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", num_rollouts=2)
    path = run.probe_path / "tokens.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ArtifactError, match=r"tokens\.parquet is damaged"):
        write_page(run, options=ReportConfig())


json_values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values)
def test_a_data_block_keeps_its_value_and_cannot_end_its_element(value: Any) -> None:
    block = json_block(value)
    assert json.loads(block) == value
    assert not set("<>&\u2028\u2029") & set(block)


def test_the_page_says_once_how_many_intervals_are_false_by_chance(report: Path, inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    told = false_by_chance(num_intervals(*inputs.evaluations, inputs.summary), 0.95).partition(". ")[0]
    assert report.read_text(encoding="utf-8").count(told) == 1


def test_an_interval_that_is_repeated_counts_once() -> None:
    mean = {"mean": 0.5, "low": 0.4, "high": 0.6}
    greedy = Scores(num_problems=3, accuracy=mean, mean_reward=mean, num_tokens={**mean, "high": 0.7})
    assert (num_intervals(greedy), num_intervals(greedy, greedy), num_intervals()) == (2, 2, 0)


def test_what_is_written_of_files_names_no_folder_and_code_is_code() -> None:
    rows = Evidence(id="a", table="/home/me/runs/a/eval.parquet", columns={"n": [1]}, filter="answers of `rl-80`")
    text = render(
        ReportPage(
            title="t",
            sentence="s",
            lead="Read from /home/me/data/b.jsonl.",
            caution="3 of 9 verdicts recorded in /home/me/data/b.jsonl differ from the grader's",
            provenance="swerve report /home/me/runs/a",
            verdicts=(Verdict(title="v", evidence=rows),),
        )
    )
    assert "/home" not in text
    seen = Page(text).text
    assert "3 of 9 verdicts recorded in b.jsonl differ" in seen
    assert "From eval.parquet: answers of rl-80; n = 1." in seen
    assert "swerve report a." in seen
