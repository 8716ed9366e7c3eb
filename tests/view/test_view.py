"""`swerve view`: what is listed, opened and refused, with a real server on a free port."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import write_responses
from swerve.artifacts.run import PROBED, RunDirectory
from swerve.artifacts.samples import write_samples
from swerve.artifacts.study import Study, StudyMean, StudyRun, StudyVariant
from swerve.errors import ConfigError
from swerve.view.catalogue import Catalogue, find_items
from swerve.view.server import ViewServer
from tests.artifacts.test_samples import EASY, INFO, LOST, RIGHT, _sample
from tests.cases import each
from tests.report.synthetic_run import write_synthetic_run


class Reply(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """Asks a server as a browser would, or as one should not."""

    def __init__(self, server: ViewServer) -> None:
        self.server = server

    def ask(self, place: str = "", method: str = "GET", *, path: str | None = None, **headers: str) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        connection.request(method, f"/{self.server.token}/{place}" if path is None else path, headers=headers)
        reply = connection.getresponse()
        answer = Reply(reply.status, reply.headers, reply.read())
        connection.close()
        return answer

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the lines of the list, read to the end, by name."""
        while (state := self.ask("list.json").json)["num_unread"]:
            pass
        return {entry["cells"][0]: entry for entry in state["entries"]}

    def open(self, name: str, more: str = "") -> Reply:
        return self.ask(f"{self.entries()[name]['key']}/{more}")


@pytest.fixture(scope="module")
def folder(filled: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind, and what is damaged or of another program."""
    folder = tmp_path_factory.mktemp("all")
    write_synthetic_run(folder / "a <b>run</b>", num_rollouts=3, filled=filled)
    probe = write_synthetic_run(folder / "probe", num_rollouts=2, evaluation=False, filled=filled)
    probe.write_provenance({**probe.read_provenance(), "status": PROBED})
    write_samples(folder / "samples.parquet", INFO, [_sample(EASY, 0, RIGHT), _sample(EASY, 1, LOST)])
    study = Study(
        swerve_version="0", name="s", recipe="r", baseline="none", seeds=(0,), confidence=0.95,
        variants=(StudyVariant(name="none", changes={}, num_runs=1, num_collapsed=0, first_collapse=None),),
        runs=(StudyRun(variant="none", seed=0, path="runs/none", state="failed", reason="no room"),),
        means=(StudyMean(measure="accuracy", variant="none", num_seeds=1, mean=0.5, over_seeds=None),),
        differences=(), curves=(), detectable=(),
    )  # fmt: skip
    (folder / "studies" / "s").mkdir(parents=True)
    study.write(folder / "studies" / "s" / "study.json")
    training_run(folder / "studies" / "s" / "runs" / "none").set_status("failed")

    # What a list must survive.
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{", encoding="utf-8")
    (folder / "half").mkdir()
    (folder / "half" / "metrics.jsonl").write_text('{"step": 1, "st', encoding="utf-8")
    (folder / "begun").mkdir()
    (folder / "begun" / "study.yaml").write_text("recipe: gsm8k\n", encoding="utf-8")
    (folder / "cut.parquet").write_bytes(b"PAR1 and no end")
    (folder / "notes.parquet").write_text("not Parquet at all", encoding="utf-8")
    (folder / "link").symlink_to("/")
    (folder / "inside").symlink_to("studies")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with serve(folder) as client:
        yield client


@contextmanager
def serve(folder: Path) -> Iterator[Client]:
    with ViewServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Client(server)
        finally:
            server.shutdown()
            thread.join()


def training_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    run.create(config_yaml="", provenance={"name": path.name, "stages": {"rl": 3}, "date": "2026-01-02 03:04"})
    run.set_status("training")
    return run


def step(run: RunDirectory, number: int, **figures: float) -> None:
    append_metrics(run.metrics_path, {"step": number, "stage": "rl", "stage_step": number, "seconds": 2.0, **figures})


def test_the_list_has_a_line_for_everything_and_says_what_is_wrong(client: Client) -> None:
    entries = client.entries()
    kinds = {name: entry["cells"][1] for name, entry in entries.items()}
    assert kinds == {
        "a <b>run</b>": "run",
        "probe": "probe",
        "samples.parquet": "samples",
        "studies/s": "study",
        "studies/s/runs/none": "run",
        "broken": "run",
        "half": "run",
        "begun": "study",
        "cut.parquet": "samples",
        "link": "folder",
    }
    errors = {name: entry["error"] for name, entry in entries.items() if entry["error"]}
    assert {name: error.split(":")[0].split(";")[0][:34] for name, error in errors.items()} == {
        "broken": "run.json is not readable JSON",
        "half": "is not a run directory (it has no ",
        "cut.parquet": "is damaged",
        "link": "a link out of this folder",
    }
    assert entries["link"]["page"] is None
    assert entries["samples.parquet"]["cells"][2] == "2 problems x 2"
    assert entries["samples.parquet"]["cells"][4:] == ["-", "50.0% (dpo)", "-", "-"]
    assert entries["studies/s"]["cells"][5] == "50.0% (none)"
    assert entries["studies/s"]["cells"][2] == "0 of 1 runs"
    assert entries["begun"]["cells"][2] == "not finished"
    state = client.ask("list.json").json
    assert state["title"] == f"10 items in {client.server.catalogue.folder}"
    assert state["lead"] == "4 with something wrong"


def test_the_newest_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new", "older")):
        run = training_run(tmp_path / name)
        run.write_provenance({**run.read_provenance(), "date": f"2026-0{(5, 9, 1)[number]}-01 00:00"})
    with serve(tmp_path) as client:
        assert list(client.entries()) == ["new", "old", "older"]
        new = client.entries()["new"]
        assert (new["cells"][3], new["numbers"]["3"]) == ("2026-09-01 00:00 UTC", "202609010000")


def test_a_run_is_opened_and_made_again_when_its_files_change(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    shutil.copytree(folder / "a <b>run</b>", run)
    with serve(tmp_path / "runs") as client:
        opened = client.open("mine")
        assert (opened.status, opened.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "<title>mine - swerve report</title>" in opened.text
        report = client.server._made(client.server.catalogue.find(client.entries()["mine"]["key"]))
        assert client.server._made(client.server.catalogue.find(client.entries()["mine"]["key"])) is report
        (run / "eval" / "step_000508.json").write_text("{", encoding="utf-8")
        (run / "eval" / "step_000508.json").rename(run / "eval" / "step_000509.json")
        damaged = client.open("mine")
        assert damaged.status == 422
        assert "step_000509.json is not readable JSON" in damaged.text


def test_probes_studies_and_samples_are_opened(client: Client) -> None:
    for name, title in (("probe", "probe"), ("studies/s", "s"), ("samples.parquet", "Samples of dpo")):
        opened = client.open(name)
        assert (opened.status, opened.text.partition("<title>")[2].partition(" - swerve")[0]) == (200, title)
    key = client.entries()["studies/s/runs/none"]["key"]
    assert f'<a href="../{key}/">' in client.open("studies/s").text
    begun = client.open("begun")
    assert (begun.status, "begun: not finished" in begun.text, "begun --gather" in begun.text) == (200, True, True)


def test_a_study_with_runs_to_do_is_not_finished(folder: Path, tmp_path: Path) -> None:
    place = folder / "studies" / "s" / "study.json"
    study = Study.read(place, remedy="")
    (run,) = study.runs
    left = study.model_copy(update={"runs": (run.model_copy(update={"state": "missing"}),)})
    (tmp_path / "s").mkdir()
    left.write(tmp_path / "s" / "study.json")
    with serve(tmp_path) as client:
        assert client.entries()["s"]["cells"][2] == "not finished, 0 of 1 runs"


def test_rollouts_are_served_one_at_a_time(client: Client) -> None:
    block = client.open("probe", "rollouts/1")
    assert (block.status, block.headers["Content-Type"]) == (200, "application/octet-stream")
    plain = gzip.decompress(block.body)
    texts = json.loads(plain[4 : 4 + int.from_bytes(plain[:4], "little")])
    assert texts["tokens"][:2] == ["</script><img onerror=alert(1) src=x>", "[/bold]"]
    for number in ("99", "-1", "01", "x", "", "1/", "%31"):
        assert client.open("probe", f"rollouts/{number}").status == 404
    assert client.open("samples.parquet", "live").status == 404


def test_a_run_in_training_is_followed(tmp_path: Path) -> None:
    run = training_run(tmp_path / "now")
    with serve(tmp_path) as client:
        with run.lock():
            entry = client.entries()["now"]
            assert (entry["page"], entry["is_live"]) == (f"{entry['key']}/live", True)
            state = client.open("now", "live.json").json
            assert (state["title"], state["lead"]) == ("now: training", "Nothing is measured yet")
            assert (state["plots"], state["samples"], state["error"]) == ([], None, None)

            # Steps, a sample and a divergence are written while somebody looks.
            step(run, 1, reward=0.25, live_kl_forward=0.0)
            step(run, 2, reward=0.5, live_kl_forward=0.125)
            samples = [_sample(EASY, 0, RIGHT), _sample(EASY, 1, LOST)]
            write_responses(run.rollouts_path(2), samples, ROLLOUTS_SCHEMA, table="rollouts")
            state = client.open("now", "live.json").json
            assert state["lead"] == "steps 2/3, best reward 0.500 (rl-2), trained for 4.0 s"
            assert [name for name in ("Reward", "KL to the start", "RL loss") if name in "".join(state["plots"])] == [
                "Reward", "KL to the start",
            ]  # fmt: skip
            assert state["samples"]["title"] == "Step 2: 1 of 2 samples right"
            for verdicts, said in (
                ((None, None), "not determined, because none of 2 samples has a verdict: how many are right"),
                ((None, True), "1 of 1 sample right, 1 more without a verdict"),
            ):
                judged = [replace(each, correct=one) for each, one in zip(samples, verdicts, strict=True)]
                write_responses(run.rollouts_path(2), judged, ROLLOUTS_SCHEMA, table="rollouts")
                assert client.open("now", "live.json").json["samples"]["title"] == f"Step 2: {said}"
            write_responses(run.rollouts_path(2), samples, ROLLOUTS_SCHEMA, table="rollouts")
            assert state["samples"]["rows"] == [["math-1", True, 1.0, "so 2"]]
            assert client.entries()["now"]["cells"][4] == "2/3"

            # A line that is being written is not there yet; a damaged one is told.
            with run.metrics_path.open("a", encoding="utf-8") as stream:
                stream.write('{"step": 3')
            assert client.open("now", "live.json").json["lead"].startswith("steps 2/3")
            run.metrics_path.write_text("]\n" + run.metrics_path.read_text("utf-8"), encoding="utf-8")
            assert "metrics.jsonl:1 is not a JSON object" in client.open("now", "live.json").json["error"]
        assert client.entries()["now"]["cells"][2] == "killed"


@each("path", ["/", "/wrong/", "/wrong/list.json", "//", "//["])
def test_without_its_token_an_address_shows_nothing(client: Client, path: str) -> None:
    refused = client.ask(path=path)
    assert refused.status == 403
    assert client.server.token not in refused.text
    assert "run" not in refused.text.partition("<main>")[2].partition("</main>")[0]


@each("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "169.254.169.254"])
def test_another_name_of_this_machine_is_refused(client: Client, host: str) -> None:
    assert client.ask(Host=host).status == 403


def test_only_its_own_pages_may_ask(client: Client) -> None:
    port = client.server.server_port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost:9000"):  # the last through a tunnel
        assert client.ask(Host=host).status == 200
        assert client.ask(Host=host, Origin=f"http://{host}").status == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"):
        assert client.ask(Origin=origin).status == 403


@each("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_sent(client: Client, method: str) -> None:
    refused = client.ask(method=method)
    assert refused.status == 501
    assert refused.headers["X-Content-Type-Options"] == "nosniff"


@each(
    "place",
    ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc/passwd", "a <b>run</b>/run.json", "/etc/passwd",
     "file:///etc/passwd", "broken/run.json", "link/etc/passwd", "0000000000000000/", "\x00", "list.json/x"],
)  # fmt: skip
def test_an_address_is_never_a_path(client: Client, place: str) -> None:
    answer = client.server.answer("127.0.0.1", None, f"/{client.server.token}/{place}")
    assert (int(answer[0]), b"root:" in answer[2], b"schema_version" in answer[2]) == (404, False, False)


def test_links_are_followed_no_further_than_the_folder(folder: Path, client: Client) -> None:
    names = [item.name for item in find_items(folder)]
    assert sum(name.startswith(("link", "inside")) for name in names) == 1
    assert client.open("link").status == 404


def test_answers_have_strict_headers_and_no_body_for_head(client: Client) -> None:
    page, head = client.ask(), client.ask(method="HEAD")
    for reply in (page, head, client.ask(path="/wrong")):
        strict = {name: reply.headers[name] for name in ("Cache-Control", "X-Content-Type-Options", "Referrer-Policy")}
        assert list(strict.values()) == ["no-store", "nosniff", "no-referrer"]
        assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
    assert (head.status, head.body, page.body[:15]) == (200, b"", b"<!doctype html>")
    policy = page.text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.replace("&#39;", "'").startswith("default-src 'none'; script-src 'sha256-")


def test_names_stay_text(client: Client, tmp_path: Path) -> None:
    for page in (client.ask(), client.open("a <b>run</b>", "live")):
        assert "<b>run" not in page.text
    run = training_run(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / "<!--<script>alert(1)\n\udcff")
    with serve(tmp_path) as client:
        assert client.ask().text.count("<script>") == 1
        assert list(client.entries()) == ["<!--<script>alert(1) \N{REPLACEMENT CHARACTER}"]
        (entry,) = client.entries().values()
        assert client.ask(f"{entry['key']}/live").status == 200
    assert not run.path.exists()


def test_hundreds_of_runs_are_read_a_part_at_a_time_and_only_once(tmp_path: Path, monkeypatch: Any) -> None:
    for number in range(30):
        training_run(tmp_path / f"run-{number}")
    catalogue, read = Catalogue(tmp_path), []
    monkeypatch.setattr("swerve.view.catalogue.describe_run", lambda path: read.append(path.name) or {"status": "x"})
    assert catalogue.list(seconds=-1.0) == ([], 30)
    for _ in range(2):
        entries, num_unread = catalogue.list(seconds=60.0)
        assert (len(entries), num_unread, len(read)) == (30, 0, 30)
    step(RunDirectory(tmp_path / "run-7"), 1)
    catalogue.list(seconds=60.0)
    assert read[30:] == ["run-7"]


def test_looking_at_what_is_known_does_not_keep_the_rest_from_being_read(tmp_path: Path, monkeypatch: Any) -> None:
    for number in range(30):
        training_run(tmp_path / f"run-{number}")
    clock, catalogue = [0.0], Catalogue(tmp_path)

    def passes(seconds: float, value: Any) -> Any:
        clock[0] += seconds
        return value

    monkeypatch.setattr("swerve.view.catalogue.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("swerve.view.catalogue.Item.stamp", property(lambda item: passes(0.1, item.path)))
    monkeypatch.setattr("swerve.view.catalogue.describe_run", lambda path: passes(0.1, {"status": "x"}))
    assert [catalogue.list(seconds=0.95)[1] for _ in range(4)] == [20, 10, 0, 0]


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none is no folder; give one with runs in it"):
        ViewServer(tmp_path / "none")
    with ViewServer(tmp_path) as server, pytest.raises(ConfigError, match="--port .*in use; give another"):
        ViewServer(tmp_path, port=server.server_port)
    with serve(tmp_path) as client:
        assert client.ask("list.json").json["title"] == f"0 items in {tmp_path}"
