"""The Python and console blocks of the README and of the documentation run as they stand.

A page's blocks run in their order, in one folder that holds a small run under the demo's name. A block with
`title="NAME"` is a file of that folder. A comment before a block says where it does not run: `<!-- slow -->` (with the
slow tests), `<!-- hub -->` (with the slow tests, on a hub of this machine), `<!-- not run: REASON -->`, or
`<!-- excerpt: FILE -->`, whose lines stand in a file that another test runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swerve.cli import main
from tests.chat_models import TURNS, byte_level, save_model
from tests.hub import Hub, Repository

ROOT = Path(__file__).parents[1]
REASONS = {
    "a study",
    "a GPU",
    "a run of the demo",
    "another program",
    "a server",
    "data of yours",
    "gigabytes of models",
    "hours of training",
    "it serves until Ctrl-C",
    "it changes your shell's configuration",
    "minutes of training",
    "several machines",
    "the network",
}
"""Why a block may be left out."""
QUICK = ("docs/install.md", "docs/trl-verl.md", "docs/your-models.md")
"""Pages whose blocks run in every test run; those of the others are slow."""
HUB_MODELS = ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct")
"""Names that the pages use; tiny models stand for them here."""
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>slow|hub|excerpt: [^>]+|not run: [^>]+) -->\n\n?)?"
    r"^(?P<fence>`{3})(?P<language>\w+)(?P<options>[^\n]*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page, with the line of the page on which it begins."""

    page: str
    line: int
    language: str
    mark: str
    title: str | None
    body: str

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, lines that end in a backslash joined to the next."""
        return re.findall(r"^\$ (.*)$", self.body.replace("\\\n", ""), re.MULTILINE)


def _blocks(page: Path) -> list[Block]:
    text, blocks = page.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', match["options"])
        line = text.count("\n", 0, match.start("fence")) + 1
        blocks.append(
            Block(
                page=str(page.relative_to(ROOT)),
                line=line,
                language=match["language"],
                mark=match["mark"] or "",
                title=title[1] if title else None,
                body=match["body"],
            )
        )
    return blocks


PAGES = {str(page.relative_to(ROOT)): _blocks(page) for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))}
RUN = [name for name, blocks in PAGES.items() if any(block.language in ("console", "python") for block in blocks)]


def test_every_mark_has_a_known_reason():
    reasons = {block.mark.removeprefix("not run: ") for blocks in PAGES.values() for block in blocks}
    assert {reason for reason in reasons if not reason.startswith("excerpt: ")} - {"", "slow", "hub"} <= REASONS


def test_excerpts_stand_in_their_files():
    excerpts = [block for blocks in PAGES.values() for block in blocks if block.mark.startswith("excerpt: ")]
    assert excerpts
    for block in excerpts:
        lines = [line.strip() for line in (ROOT / block.mark.removeprefix("excerpt: ")).read_text().splitlines()]
        assert "\n".join(line.strip() for line in block.body.splitlines()) in "\n".join(lines)


def test_python_blocks_compile():
    python = [block for blocks in PAGES.values() for block in blocks if block.language == "python"]
    compiled = [compile(block.body, f"{block.page}:{block.line}", "exec") for block in python]
    assert sum(bool(code.co_names) for code in compiled) > 20


@pytest.fixture
def world(small_run, tmp_path, monkeypatch):
    """A folder that holds nothing but a small run under the names of two demos."""
    for name in ("demo-addition", "demo-multiplication"):
        shutil.copytree(small_run.path, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))  # restored, whatever a command does
    return tmp_path


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A hub of this machine with a tiny model under each name of the pages; what reaches it from a process."""
    folder = tmp_path_factory.mktemp("hub")
    repositories = {}
    for number, name in enumerate(HUB_MODELS):
        path = folder / str(number)
        model = save_model(path, byte_level(TURNS), eos=1)
        model.lm_head.weight.data[number::2] *= 1.0 + number  # the second is another model than the first
        model.save_pretrained(path)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
        repositories[name] = Repository(revisions={"main": path})
    hub = Hub(repositories)
    hub.open()
    yield {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "cache")}
    hub.close()


def _run_command(line: str, block: Block, environment: dict[str, str] | None) -> None:
    """Run a line of a console block: swerve in this process, anything else, and with a hub, by a shell."""
    words = shlex.split(line, comments=True)
    if words[0] == "swerve" and environment is None and not {">", "|", "&&"} & set(words):
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert ended.value.code == 0, f"{block.page}:{block.line}: {line}"
        return
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{block.page}:{block.line}: {line}\n{done.stdout}\n{done.stderr}"


def _run_page(name: str, marks: set[str], environment: dict[str, str] | None = None) -> None:
    """Run the blocks of a page that carry one of these marks."""
    names: dict[str, object] = {"__name__": "__main__"}
    script = ""
    for block in PAGES[name]:
        if block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.body, encoding="utf-8")
        elif block.mark not in marks:
            continue
        elif block.language == "console":
            for line in block.commands:
                _run_command(line, block, environment)
        elif block.language == "python" and environment is None:
            exec(compile(block.body, f"{block.page}:{block.line}", "exec"), names)
        elif block.language == "python":
            script += block.body  # a process of its own does not know what blocks before it have made
            Path("blocks.py").write_text(script, encoding="utf-8")
            _run_command("python blocks.py", block, environment)


@pytest.mark.parametrize("name", [name for name in RUN if name in QUICK])
def test_blocks_run(name, world):
    _run_page(name, {""})


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_slow_blocks_run(name, world):
    _run_page(name, {"", "slow"})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUN if any(block.mark == "hub" for block in PAGES[name])])
def test_blocks_with_models_of_the_hub_run(name, world, hub):
    _run_page(name, {"hub"}, hub)
