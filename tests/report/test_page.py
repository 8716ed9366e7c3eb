"""The page as a file: policy, escaping, absent stages, and numbers equal to the artifacts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.config import ReportConfig
from swerve.errors import ArtifactError
from swerve.report import build_report
from swerve.report.inputs import read_inputs
from swerve.report.page import json_block, render_page

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
    last = json.loads(data)["viewer"]["rollouts"][-1]
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
        accuracy = entry["accuracy"]
        shown = [float(number) for number in re.findall(r"[\d.]+", row[2])]
        assert shown == pytest.approx([100 * accuracy[key] for key in ("mean", "low", "high")], abs=0.051)


def test_probe_figures_on_the_page_are_those_of_the_summary(page: Page, run: RunDirectory) -> None:
    summary = read_json(run.probe_path / "summary.json")
    rows = page.tables["table-spikes"][1:]
    assert len(rows) == len(summary["spikes"]) == 24
    for row, entry in zip(rows, summary["spikes"], strict=True):
        shares = entry["top_on_first_wrong"]
        shown = [float(number) for number in re.findall(r"[\d.]+", row[4])]
        assert shown == pytest.approx([100 * shares[key] for key in ("share", "low", "high")], abs=0.051)
    assert page.tables["table-causal"][1] == ["Top spike", "6.1%", "93.5%", "+87.4 (+82.5 to +91.6)", "0.0%"]
    assert page.tables["table-categories"][1] == ["number", "6,380", "55.0%", "90.0%", "360", "5.7%", "3.5%"]
    assert "Noise floor" in page.text


def test_forty_rollouts_stay_under_three_megabytes(page: Page, report: Path) -> None:
    data = next(content for _, attributes, content in page.raw if attributes.get("type") == "application/json")
    rest = report.stat().st_size - len(data.encode())
    assert rest + len(data.encode()) * 40 / 12 < 3_000_000


def test_without_a_probe_the_page_says_so(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", probe=False)
    page = Page(build_report(run, options=ReportConfig()).read_text(encoding="utf-8"))
    for what in ("Token by token divergence", "Spikes against chance", "Causal effect", "Token categories"):
        assert f"{what}: not measured." in page.text
    assert "Where the checkpoints differ from the reference was not measured." in page.text
    assert sorted(page.tables) == ["table-evaluation", "table-kinds"]
    assert sorted(path.name for path in (run.report_path / "figures").glob("*.png")) == [
        "accuracy.png",
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
    assert [chart["id"] for chart in data["charts"]] == ["divergence"]
    # Without evaluations the global steps are unknown; those of the labels remain.
    assert data["charts"][0]["steps"] == [5, 10, 20, 30, 40, 60, 70, 80]
    assert data["charts"][0]["x_title"] == "step of the stage"


def test_an_unreliable_probe_is_flagged(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", reliable=False, num_rollouts=2)
    page = render(run)
    assert "The probe had too few rollouts for its figures to be relied upon." in page.text
    assert "12 rollouts, fewer than the 20 asked for: not to be relied upon." in page.text


def test_a_run_with_metrics_only_has_a_page_without_figures(synthetic: Any, tmp_path: Path) -> None:
    run = synthetic.write_synthetic_run(tmp_path / "run", evaluation=False, probe=False)
    page = render(run)
    assert page.text.count("not measured") >= 6
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


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, swerve.report; "
        "print([m for m in ('torch', 'transformers', 'matplotlib', 'pandas', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


json_values = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(json_values)
def test_a_data_block_keeps_its_value_and_cannot_end_its_element(value: Any) -> None:
    block = json_block(value)
    assert json.loads(block) == value
    assert not set("<>&\u2028\u2029") & set(block)
