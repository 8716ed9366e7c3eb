"""Every command that reads tables of responses: how it is run on two of them, and what of its result is compared."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from typer.main import get_command

import swerve
from swerve.cli import main
from swerve.cli.app import app
from swerve.config.models import TinyModel
from swerve.errors import SwerveError
from swerve.models.tiny import build_tiny_model, learn_tokenizer
from tests.relations.tables import Rows, encoded, made_problems, made_rows


class Command(NamedTuple):
    """How a command is run; `{a}` and `{b}` are the files, `{out}` is a new folder."""

    words: str
    figures: tuple[str, ...]
    """Places in its result of what a user reads first."""
    written: str = ""
    """File under `{out}` whose rows are part of the result as `written`."""
    columns: str = ""
    """Of these rows, what is compared."""
    size: tuple[int, int] = (12, 4)
    """Problems and samples of each."""


_TEXTS, _VERDICTS = "question gold text correct reward", "text value status answered extracted detail"
_TOKENS = "position token_id js kl_forward kl_reverse entropy logprob logprob_ref"
COMMANDS = {
    "claim": Command(
        "claim base={a} rl={b} --out {out}/card", ("accuracy.base.mean", "accuracy.trained.mean", "num_problems")
    ),
    "eval": Command(
        "eval --rows base={a} --rows rl={b} --data {problems} --baseline base --out {out}/eval",
        ("rows.0.accuracy.mean", "rows.1.accuracy.mean"),
    ),
    "swerve.compare": Command("swerve.compare {a} {b}", ("rows.0.accuracy.mean", "rows.1.accuracy.mean")),
    "data behaviours": Command("data behaviours {a} {b}", ("labels.0.accuracy.mean", "labels.1.accuracy.mean")),
    "grade": Command("grade {a} --task math --out {out}/told.jsonl", ("right.mean",), "told.jsonl", _VERDICTS),
    "data import": Command("data import {a} --out {out}/told.parquet", ("num_responses",), "told.parquet", _TEXTS),
    "data select": Command(
        "data select {a} --correct --out {out}/told.parquet", ("counts.num_kept",), "told.parquet", _TEXTS
    ),
    "data export": Command(
        "data export {a} --format messages --out {out}/told.parquet", ("num_rows",), "told.parquet", _TEXTS
    ),
    "probe": Command(
        "probe --use-responses {a} --reference one={model}0 --checkpoint two={model}1 --out {out} "
        "probe.causal.max_rollouts=0",
        ("responses.num_responses",),
        "probe/tokens.parquet",
        _TOKENS,
        size=(3, 3),
    ),
    "train": Command(
        "train {recipe} stages.sft.data={a} --out {out}/run",
        ("written.0.num_tokens", "written.0.loss"),
        "run/metrics.jsonl",
        "loss num_tokens grad_norm",
    ),
}
OTHERS = (
    *("demo", "sample", "study", "serve", "export", "view", "runs", "recipes show", "config show", "config check"),
    *("config schema", "data list", "data show", "data write"),
    *("report", "replay", "bench estimators"),  # which take tables that swerve wrote, and no others
)
"""Commands that read no tables of responses."""

_BATCH = 240
"""Rows of the training step: whole passes over 4, 5, 8, 10, 40 or 48 responses, so that all count alike."""
_UNLIKE = (
    *("path", "out", "file", "source", "provenance", "inputs", "contents", "sha256", "run", "place", "extra", "notes"),
    *("tables", "columns", "format", "made", "by_problem", "answers_by_problem", "problem"),
)
"""Keys of what names the files, their lines, their ids or the command."""
_UNSAID = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python does not show to users."""


class Outcome(NamedTuple):
    """What a command did."""

    said: str
    """All that a user reads."""
    value: Any
    """The result; None: the command refused its input."""
    error: str = ""
    """The line of a refusal."""


def registered(group: Any = None, before: str = "") -> dict[str, Any]:
    """Return the commands of the command line by their words, from its own parser."""
    found: dict[str, Any] = {}
    for name, command in (group or get_command(app)).commands.items():
        words = f"{before} {name}".strip()
        found |= registered(command, words) if hasattr(command, "commands") else {words: command}
    return found


class Bench:
    """Runs commands on tables, each once for the same files."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._num = folder, 0
        self._known: dict[Any, Outcome] = {}
        tokenizer = learn_tokenizer([row["response"] for row in made_rows(0.5)], 300)
        for seed in range(2):
            config = TinyModel(hidden_size=32, intermediate_size=48, max_positions=2048)
            build_tiny_model(config, tokenizer, seed=seed).save_pretrained(folder / f"model{seed}")
            tokenizer.save_pretrained(folder / f"model{seed}")
        asked = [{"question": f"{number} + 1?", "answer": str(number + 1)} for number in range(30)]
        recipe = {
            "name": "relations",
            "task": {"kind": "table", "train": str(self.file("asked", asked))},
            "model": {"kind": "pretrained", "path": str(folder / "model0")},
            "max_new_tokens": 16,
            "stages": [{"kind": "sft", "data": "", "steps": 1, "batch_size": _BATCH, "optimizer": {"lr": 1e-3}}],
            "runtime": {"threads": 1},
        }
        (folder / "recipe.yaml").write_text(json.dumps(recipe))

    def file(self, name: str, rows: Rows, form: str = "jsonl") -> Path:
        """Write rows into a folder that is named by their content; return the path."""
        content = encoded(rows, form)
        folder = self._folder / hashlib.sha256(content).hexdigest()[:12]
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.{form}"
        if not path.exists():
            path.write_bytes(content)
        return path

    def copies(self, path: Path) -> tuple[Path, Path]:
        """Return two copies of a file, beside which others may be written."""
        folders = [self._folder / f"{path.parent.name}-{side}" for side in ("base", "rl")]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        return Path(shutil.copy(path, folders[0])), Path(shutil.copy(path, folders[1]))

    def pair(self, command: str) -> tuple[Rows, Rows]:
        """Return the rows of two models, the second of which is better."""
        size = COMMANDS[command].size
        return made_rows(0.4, *size), made_rows(0.7, *size)

    def outcome(self, command: str, a: Rows, b: Rows, form: str = "jsonl", problems: Rows | None = None) -> Outcome:
        """Return what a command makes of two tables; the problems are those that were made, unless they are given."""
        return self.of_files(command, self.file("base", a, form), self.file("rl", b, form), problems)

    def of_files(self, command: str, a: Path, b: Path, problems: Rows | None = None) -> Outcome:
        """Return what a command makes of two files.

        Raises:
            AssertionError: it ends in anything but a result or one line, or shows a NaN or a warning.
        """
        asked = problems or made_problems(COMMANDS[command].size[0])
        known = self.file("problems", [row | {"answer": row["gold"]} for row in asked])
        key = (command, a, b, known)
        if key not in self._known:
            self._num += 1
            out = self._folder / f"out{self._num}"
            out.mkdir()
            own = {"model": self._folder / "model", "recipe": self._folder / "recipe.yaml"}
            words = COMMANDS[command].words.format(a=a, b=b, problems=known, out=out, **own)
            self._known[key] = _outcome(COMMANDS[command], [*words.split(), "--json"], out)
        return self._known[key]


def _outcome(command: Command, words: Sequence[str], out: Path) -> Outcome:
    status, stdout, stderr, warned = called(words)
    pages = [path.read_text() for path in out.rglob("*") if path.suffix in (".html", ".md", ".csv", ".tex")]
    shown = [re.sub(r"(?s)<(script|style|svg)\b.*?</\1>|<[^>]+>", " ", page) for page in pages]
    told, what = "\n".join([stdout, stderr, *shown]), f"swerve {' '.join(words)}: {status} {stderr[-400:]}"
    assert not re.search("internal error|Traceback", stderr), what
    assert not warned, f"{what} {warned}"
    assert not re.search(r"(?i)(?<![\w-])-?nan(?![\w-])", told), f"{what}: a NaN is shown"
    if status != 0:
        errors = [line for line in stderr.splitlines() if line.startswith("swerve: error: ")]
        assert (status in (1, 2), errors) == (True, stderr.splitlines()[-1:]), what
        return Outcome(told, None, errors[0])
    value = json.loads(stdout)
    if command.written:
        value["written"] = _rows_of(out / command.written, command.columns.split())
    return Outcome(told, value)


def called(words: Sequence[str]) -> tuple[Any, str, str, list[str]]:
    """Run the command line in this process; return its status, both streams and the warnings that users see."""
    stdout, stderr = io.StringIO(), io.StringIO()
    status: Any = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(contextlib.redirect_stderr(stderr))
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        try:
            if words[0] == "swerve.compare":
                _compare(*words[1:3])
            else:
                main(words)
        except SystemExit as end:
            status = end.code
    seen = [f"{one.category.__name__}: {one.message}" for one in warned if not issubclass(one.category, _UNSAID)]
    return status, stdout.getvalue(), stderr.getvalue(), seen


def _compare(*paths: str) -> None:
    """Do in Python what no command does; its result and errors are printed as those of commands are."""
    try:
        compared = swerve.compare(dict(zip(("base", "rl"), paths, strict=True)))
    except SwerveError as error:
        print(f"swerve: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(compared, file=sys.stderr)
    print(compared.model_dump_json())


def _rows_of(path: Path, columns: Sequence[str]) -> Rows:
    """Return columns of a written table, its rows in an order that their content alone decides."""
    is_parquet = path.suffix == ".parquet"
    rows = pq.read_table(path).to_pylist() if is_parquet else map(json.loads, path.read_text().splitlines())
    # Where the text of a graded response stands is where the file had it.
    told = [{name: row.get("response" if name == "text" else name, row.get(name)) for name in columns} for row in rows]
    return sorted(
        told, key=lambda row: [(type(one) is float, one if type(one) is float else str(one)) for one in row.values()]
    )


def at(value: Any, place: str) -> Any:
    """Return what stands at a place of a result, such as `rows.0.accuracy.mean`; None: nothing."""
    for name in place.split("."):
        value = value[int(name)] if name.isdigit() else value.get(name) if value is not None else None
    return value


def difference(one: Any, two: Any, place: str = "") -> str:
    """Return where two results differ first, "" if they do not; names of files, lines and ids are not compared."""
    if isinstance(one, dict) and isinstance(two, dict):
        names = [name for name in dict.fromkeys([*one, *two]) if name not in _UNLIKE]
        found = (difference(one.get(name), two.get(name), f"{place}.{name}") for name in names)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        found = (difference(*both, f"{place}.{number}") for number, both in enumerate(zip(one, two, strict=True)))
    else:
        are_numbers = isinstance(one, int | float) and isinstance(two, int | float)
        is_same = abs(one - two) <= 1e-5 * max(1.0, abs(one)) if are_numbers else one == two
        return "" if is_same else f"{place}: {one!r:.120} and {two!r:.120}"
    return next(filter(None, found), "")
