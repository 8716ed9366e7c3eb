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
from swerve.artifacts.files import read_json
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.artifacts.run import RunDirectory
from swerve.config import ReportConfig
from swerve.errors import ArtifactError
from swerve.estimates import false_by_chance
from swerve.report import build_report
from swerve.report.figures import figure_specs
from swerve.report.page import all_charts, all_findings, all_sections, all_tiles, json_block, render_page
from swerve.report.read import ReportInputs, read_inputs

OWN_ASSETS = ("dom.js", "colour.js", "curves.js", "tooltip.js", "positions.js", "viewer.js", "start.js", "page.html.j2")


class Page(HTMLParser):
    """Collects tags, attributes, the text of each table's cells and the raw contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._raw: tuple[str, dict[str, str | None]] | None = None
        self._table = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag in ("script", "style"):
            self._raw = (tag, attributes)
        if tag == "table":
            self._table = attributes["id"] or ""
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("th", "td"):
            self.tables[self._table][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        self._raw = None
        if tag in ("th", "td"):
            self._cell = False
        if tag == "table":
            self._table = ""

    def handle_data(self, data: str) -> None:
        if self._raw is not None:
            self.raw.append((*self._raw, data))
            return
        self.text += data
        if self._cell:
            self.tables[self._table][-1][-1] += data


@pytest.fixture(scope="module")
def page(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def render(run: RunDirectory, *, options: ReportConfig | None = None) -> Page:
    return Page(render_page(read_inputs(run), options=options or ReportConfig()))


def policy_of(page: Page) -> str:
    found = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(found) == 1
    return str(found[0])


def test_policy_allows_exactly_the_blocks_of_the_page(page: Page) -> None:
    policy = dict(part.strip().split(" ", 1) for part in policy_of(page).split(";"))
    blocks: dict[str, list[str]] = {"script": [], "style": []}
    for tag, attributes, content in page.raw:
        if attributes.get("type") != "application/json":
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
    assert not {"iframe", "object", "embed", "img", "base", "form"} & {tag for tag, _ in page.tags}


@pytest.mark.parametrize("name", OWN_ASSETS)
def test_assets_never_parse_data_as_markup(name: str) -> None:
    text = (files("swerve.report") / "assets" / name).read_text(encoding="utf-8")
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser|\|safe\b"
    assert re.findall(banned, text) == []


def test_vendored_library_comes_with_its_licence() -> None:
    assets = files("swerve.report") / "assets"
    assert "innerHTML" not in (assets / "uplot.iife.min.js").read_text(encoding="utf-8")
    assert (assets / "uplot.LICENSE.txt").read_text(encoding="utf-8").startswith("The MIT License (MIT)")


def test_hostile_text_is_only_in_the_escaped_data(page: Page, report: Path, synthetic: Any) -> None:
    data = next(content for _, attributes, content in page.raw if attributes.get("type") == "application/json")
    assert "<" not in data
    last = json.loads(data)["viewer"]["rollouts"][11]
    assert last["tokens"][:5] == list(synthetic.HOSTILE_TOKENS)
    assert "onerror=alert(1) src=x>" not in report.read_text(encoding="utf-8")
    assert [content for tag, _, content in page.raw if tag == "script" and "onerror" in content] == [data]


def test_the_runs_name_is_escaped(page: Page, report: Path) -> None:
    assert "demo-$x$&lt;b&gt;" in report.read_text(encoding="utf-8")
    assert "demo-$x$<b>" in page.text


def test_accuracies_on_the_page_are_those_of_the_artifacts(page: Page, run: RunDirectory) -> None:
    rows = page.tables["table-evaluation"][1:]
    entries = [read_json(path) for path in sorted((run.path / "eval").glob("*.json"))]
    assert [row[0] for row in rows] == [entry["checkpoint"] for entry in entries]
    for row, entry in zip(rows, entries, strict=True):
        accuracy = entry["greedy"]["accuracy"]
        shown = [float(number) for number in re.findall(r"[\d.]+", row[2])]
        assert shown == pytest.approx([100 * accuracy[key] for key in ("mean", "low", "high")], abs=0.051)


def test_probe_figures_on_the_page_are_those_of_the_summary(page: Page, run: RunDirectory) -> None:
    summary = read_json(run.probe_path / "summary.json")
    rows = page.tables["table-spikes"][1:]
    assert len(rows) == len(summary["spikes"]) == 24
    for row, entry in zip(rows, summary["spikes"], strict=True):
        shares = entry["top_on_first_wrong"]
        shown = [float(number) for number in re.findall(r"[\d.]+", row[4])]
        assert shown == pytest.approx([100 * shares[key] for key in ("mean", "low", "high")], abs=0.051)
    assert page.tables["table-categories"][1] == ["number", "6,380", "55.0%", "90.0%", "360", "5.7%", "3.5%"]
    assert "Noise floor" in page.text


ROWS = {
    "table-selection": (3, ["right only with rl-80", "211"]),
    "table-populations": (
        2,
        [
            "dpo-8 right",
            "dpo-8",
            "100",
            "100",
            "8.00e-4 (7.20e-4 to 8.80e-4)",
            "0.00180 (0.00162 to 0.00198)",
            "2.00e-4 (1.80e-4 to 2.20e-4)",
        ],
    ),
    "table-pairs": (
        1,
        [
            "dpo-8 against sft-500",
            "0.00200 (0.00180 to 0.00220)",
            "0.00450 (0.00405 to 0.00495)",
            "5.00e-4 (4.50e-4 to 5.50e-4)",
            "7.50e-4 (6.75e-4 to 8.25e-4)",
            "0.00125 (0.00112 to 0.00137)",
        ],
    ),
    "table-recovery": (
        3,
        [
            "adaptive",
            "290",
            "75.0% (72.0 to 78.0)",
            "2.4%",
            "99.0% (97.0 to 100.0)",
            "2.8%",
            "0.900 (0.880 to 0.920)",
            "24.2",
            "18.8 (18.2 to 19.4)",
        ],
    ),
    "table-regions": (2, ["middle", "34.0%", "47.0% (42.0 to 52.0)", "0.00600 (0.00500 to 0.00700)", "2.0%", "2.3%"]),
    "table-style": (1, ["rl-80", "1,000", "8.5% (8.4 to 8.6)", "2.1% (1.7 to 2.5)", "-6.4 (-6.8 to -6.0)"]),
    "table-ranks": (
        4,
        ["dpo-8 on text of rl-80", "5,900", "93.0% (92.0 to 94.0)", "5.0% (4.0 to 6.0)", "2.0% (1.0 to 3.0)"],
    ),
    "table-entropy": (
        1,
        ["rl-80", "0.0110 (0.0100 to 0.0120)", "-0.0110 (-0.0130 to -0.00900)", "2.2% (2.1 to 2.3)"],
    ),
    "table-forking": (1, ["rl-80", "20.0%", "98.4% (97.9 to 98.9)", "99.0% (98.0 to 100.0)", "98.0% (97.0 to 99.0)"]),
    "table-causal": (
        1,
        [
            "Top spike",
            "6.1%",
            "93.5%",
            "not measured",
            "+87.4 (+82.5 to +91.6)",
            "not measured",
            "not measured",
            "2 of 100",
            "not measured",
            "+31.0 (+22.0 to +40.0)",
            "not measured",
            "not measured",
        ],
    ),
    "table-prediction-1": (
        2,
        ["Entropy of reference", "+0.0300 (-0.0300 to +0.0900)", "0.20", "0.40"],
    ),
    "table-dose-1": (
        1,
        ["JS", "0.860 (0.820 to 0.900)", "+0.800 (+0.710 to +0.890)", "80.0% (70.0 to 90.0)", "100.0% (90.0 to 110.0)"],
    ),
    "table-pivots": (4, ["of these with a smaller change, on average at most", "0.5"]),
    "table-direction": (
        8,
        [
            "rl-80 on text of dpo-8",
            "97.0% (96.0 to 98.0)",
            "52.0% (51.0 to 53.0)",
            "+1.00e-4 (-1.00e-4 to +3.00e-4)",
            "-0.120 (-0.130 to -0.110)",
            "0.990 (0.985 to 0.995)",
        ],
    ),
    "table-wrong-steps": (
        1,
        [
            "rl-5 on text of dpo-8",
            "258",
            "-2.40 (-2.50 to -2.30)",
            "-0.00100 (-0.00150 to -5.00e-4)",
            "0.0% (0.0 to 1.0)",
            "96.0% (94.0 to 98.0)",
        ],
    ),
    "table-biographies": (
        1,
        ["wrong steps", "258", "96.9% (96.7 to 97.1)", "5.0% (3.0 to 7.0)", "0.957", "3.0% (2.0 to 4.0)"],
    ),
    "table-correlates": (1, ["rollout: right answer", "dpo-8", "300", "-0.610 (-0.660 to -0.560)", "0.0040"]),
    "table-signal": (
        2,
        [
            "rl-80 against dpo-8",
            "0.00600 (0.00500 to 0.00700)",
            "0.00200 (0.00100 to 0.00300)",
            "not measured",
            "0.330 (0.230 to 0.430)",
            "+0.210 (+0.160 to +0.260)",
            "71.0% (68.0 to 74.0)",
            "50.0%",
            "+0.210 (+0.180 to +0.240)",
        ],
    ),
    "table-attribution": (6, ["dpo-8: last 5 tokens", "40", "35.1% (33.1 to 37.1)", "9.6%"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_show_the_figures_of_the_summary(page: Page, name: str) -> None:
    index, row = ROWS[name]
    assert [cell.replace("\N{MINUS SIGN}", "-") for cell in page.tables[name][index]] == row


def test_interval_plots_have_a_line_for_every_estimate(page: Page) -> None:
    labels = [str(a["aria-label"]) for tag, a in page.tags if tag == "svg" and a.get("class") == "dot-plot"]
    assert "Rise of entropy: 0.120 (0.100 to 0.140)" in labels
    assert "Top spike, token of rl-80: +87.4 (+82.5 to +91.6)" in labels
    assert "Top spike, token of rl-80 against another: +31.0 (+22.0 to +40.0)" in labels
    assert "matched noise: 1.0% (0.0 to 2.0)" in labels
    assert len(labels) == 8 + 2 + 4 + 3 + 2 * 2 + 4  # checkpoints, two nulls; the last four are kinds of problems
    assert sum("carries: " in label for label in labels) == 4
    bars = [str(a["aria-label"]) for tag, a in page.tags if tag == "svg" and "wrong steps" in str(a.get("aria-label"))]
    assert bars[2] == "rl-20: 78.0% of wrong steps, 16.7% of other tokens"


def test_names_of_models_in_the_new_entries_are_escaped(synthetic: Any, entries: Any, tmp_path: Path) -> None:
    text = json.dumps(entries).replace('"sft-500"', json.dumps("<img src=x onerror=alert(1)>"))
    run = synthetic.write_synthetic_run(tmp_path / "run", num_rollouts=2, entries=json.loads(text))
    rendered = render_page(read_inputs(run), options=ReportConfig())
    assert "<img" not in rendered
    assert "dpo-8 against <img src=x onerror=alert(1)>" in [row[0] for row in Page(rendered).tables["table-pairs"]]


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
        assert all_sections(changed)
        assert all_findings(changed)
        assert len(all_tiles(changed)) == 4
        assert all_charts(changed)
        for spec in figure_specs().values():
            list(spec.draw(replace(changed, tables=None)))


def without_estimates(value: Any) -> Any:
    """Replace every estimate by None, as where nothing was measured."""
    if isinstance(value, dict):
        return None if {"mean", "low", "high"} <= value.keys() else {k: without_estimates(v) for k, v in value.items()}
    return [without_estimates(one) for one in value] if isinstance(value, list) else value


def test_estimates_may_all_be_missing(inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    known = {**inputs.summary.model_dump(mode="json"), "claims": []}  # without an estimate there is no claim
    summary = ProbeSummary.model_validate(without_estimates(known))
    page = Page(render_page(replace(inputs, summary=summary, tables=None), options=ReportConfig()))
    assert page.tables["table-regions"][1] == ["first", "34.0%", "not measured", "not measured", "2.0%", "2.3%"]
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
    page = render(run)
    assert (
        "310 responses to 400 problems were read from answers.jsonl (200 imported, wrong; 100 imported, right); the "
        "metrics are about the 200 in the population \N{LEFT DOUBLE QUOTATION MARK}imported, wrong"
        "\N{RIGHT DOUBLE QUOTATION MARK}."
    ) in page.text
    assert ["boundaries", "ids 310"] in page.tables["table-responses"]
    assert "table-selection" not in page.tables
    assert "swerve eval" not in page.text
    assert "not measured problems" not in page.text
    assert "Resolved configuration" not in page.text


def test_forty_rollouts_stay_under_three_megabytes(page: Page, report: Path) -> None:
    data = next(content for _, attributes, content in page.raw if attributes.get("type") == "application/json")
    rest = report.stat().st_size - len(data.encode())
    assert rest + len(data.encode()) * 40 / 14 < 3_000_000


def test_without_a_probe_the_page_says_so(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", probe=False)
    page = Page(build_report(run, options=ReportConfig()).read_text(encoding="utf-8"))
    for what in ("Token by token divergence", "Spikes against chance", "Causal effect", "Token categories"):
        assert f"{what}: not measured." in page.text
    assert "Where the checkpoints differ from the reference was not measured." in page.text
    assert sorted(page.tables) == ["table-evaluation", "table-kinds"]
    assert sorted(path.name for path in (run.report_path / "figures").glob("*.png")) == [
        "accuracy.png",
        "accuracy_by_difficulty.png",
        "entropy.png",
        "length.png",
    ]


def test_without_evaluations_the_page_says_so(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", evaluation=False, num_rollouts=2)
    page = render(run, options=ReportConfig(title="A title"))
    assert "Accuracy was not measured." in page.text
    assert "Accuracy: not measured." in page.text
    assert "A title" in page.text
    assert "table-evaluation" not in page.tables
    data = json.loads(next(content for _, a, content in page.raw if a.get("type") == "application/json"))
    assert [chart["id"] for chart in data["charts"]] == ["mean_kl_progression"]
    # Without evaluations the global steps are unknown; those of the labels remain.
    assert data["charts"][0]["steps"] == [5, 10, 20, 30, 40, 60, 70, 80]
    assert data["charts"][0]["x_title"] == "step of the stage"


def test_an_unreliable_probe_is_flagged(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", reliable=False, num_rollouts=2)
    page = render(run)
    assert "The probe had too few rollouts for its metrics to be relied upon." in page.text
    assert "12 rollouts, fewer than the 20 asked for: not to be relied upon." in page.text


def test_a_run_with_metrics_only_has_a_page_without_figures(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", evaluation=False, probe=False)
    page = render(run)
    assert page.text.count("not measured") >= 5
    assert page.tables == {}


def test_nothing_at_all_is_an_error_that_says_what_to_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    with pytest.raises(ArtifactError, match=r"run has nothing to report: .* swerve eval .* swerve probe"):
        build_report(run, options=ReportConfig())
    assert not run.report_path.exists()


def test_a_damaged_table_is_named(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", num_rollouts=2)
    path = run.probe_path / "tokens.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ArtifactError, match=r"tokens\.parquet is damaged"):
        build_report(run, options=ReportConfig())


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
    told = false_by_chance(num_intervals(*inputs.evaluations, inputs.summary), 0.95)
    assert report.read_text(encoding="utf-8").count(told) == 1


def test_an_interval_that_is_repeated_counts_once() -> None:
    mean = {"mean": 0.5, "low": 0.4, "high": 0.6}
    greedy = Scores(num_problems=3, accuracy=mean, mean_reward=mean, num_tokens={**mean, "high": 0.7})
    assert (num_intervals(greedy), num_intervals(greedy, greedy), num_intervals()) == (2, 2, 0)
