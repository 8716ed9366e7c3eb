"""The probe of five checkpoints that swerve never trained, by the commands that its page documents.

    python -m studies.any_model [--anew] [--work WORK]    run the commands of the page whose output is not kept

`python -m studies any_model` puts the output into the page. The page is the script: every block of commands that a
place for its output follows is run in WORK, in order, and every block of YAML is written there as `probe.yaml`. What
the commands print is the result. One thread, one seed.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from studies.pages import ROOT, Record, fenced
from studies.records import RESULTS, append_record, read_records

PAGE = "five-checkpoints.md"
_BLOCKS = re.compile(r"```(console|yaml)\n(.*?)```\n(?:\n<!-- (any_model: [\w ]+) -->)?", re.DOTALL)
_STEP_LINES = re.compile(r"skipped|done in|nothing to do")
"""Of what a command says on stderr, the lines that say what it did."""


def tables(records: Sequence[Record]) -> Mapping[str, str]:
    """Return the output of each block of commands, up to an empty line."""
    return {
        record["name"]: fenced([record["output"].partition("\n\n")[0]])
        for record in records
        if record["kind"] == "commands"
    }


def blocks(page: str) -> list[tuple[str, str, str]]:
    r"""Return the language, the text and the name of each block of a page; a block without a place has no name.

    >>> blocks("```console\\n$ ls\\n```\\n\\n<!-- any_model: files -->")
    [('console', '$ ls\\n', 'any_model: files')]
    """
    return [(block[1], block[2], block[3] or "") for block in _BLOCKS.finditer(page)]


def run_commands(text: str, work: Path) -> str:
    """Run the commands of a block in a folder; return what they print, and the lines that say what was skipped.

    Raises:
        CalledProcessError: a command fails.
    """
    said = []
    for line in text.replace("\\\n", "").splitlines():
        program, *rest = shlex.split(line.removeprefix("$ "))
        command = [sys.executable, *(["-m", "swerve"] if program == "swerve" else []), *rest]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stderr)
            done.check_returncode()
        steps = [line for line in done.stderr.splitlines() if _STEP_LINES.search(line)]
        said += [*steps, *done.stdout.splitlines()]
    return "\n".join(line.rstrip() for line in said)


def measure(out: Path, work: Path) -> None:
    """Append the output of the blocks that are not in the file of results."""
    work.mkdir(parents=True, exist_ok=True)
    known = {record["name"] for record in read_records(out) if record["kind"] == "commands"}
    for language, text, name in blocks((ROOT / "docs" / PAGE).read_text(encoding="utf-8")):
        if language == "yaml":
            (work / "probe.yaml").write_text(text, encoding="utf-8")
        elif name and name not in known:
            started = time.perf_counter()
            output = run_commands(text, work)
            seconds = round(time.perf_counter() - started, 1)
            append_record(out, {"kind": "commands", "name": name, "seconds": seconds, "output": output})
            print(f"{name}: {seconds} s", flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "any_model.jsonl", help="JSON lines, appended to")
    parser.add_argument("--anew", action="store_true", help="begin with an empty file")
    parser.add_argument("--work", type=Path, help="where models and results are kept; a temporary directory by default")
    arguments = parser.parse_args()
    if arguments.anew:
        arguments.out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        measure(arguments.out, arguments.work or Path(scratch))


if __name__ == "__main__":
    main()
