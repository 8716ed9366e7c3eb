"""The zoo: small models of many architectures through RL, DPO, SFT, the probe and an export, beside plain transformers.

python -m tests.zoo                     those that are not done with this code, then the pages are filled
python -m tests.zoo --only rwkv,opt     these, again
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import pkgutil
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import swerve
from studies.pages import fill_pages
from studies.records import RESULTS, append_record, keep_records, read_records, versions
from tests.campaign.kills import forked
from tests.zoo.architectures import ZOO

_IMPORTED = ("torch", "transformers.masking_utils", "pandas", "tests.zoo.life")
"""What is imported once beside swerve: each model lives in a fork of this process."""
_TIME_LIMIT = 300.0
"""Seconds for one model."""


def main() -> None:
    """Try what the command line asks for; the exit status is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names with commas between them [all]")
    parser.add_argument("--results", type=Path, default=RESULTS / "zoo.jsonl", help="where rows are kept")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name]
    if unknown := sorted(set(names) - set(ZOO)):
        parser.error(f"there is no '{unknown[0]}' in the zoo; there are {', '.join(ZOO)}")
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        os.environ.setdefault(name, "1")

    # A zoo that was killed goes on; rows of other code are made again.
    code = _code_digest()
    done = {row["name"] for row in _rows(given.results) if row["code"] == code}
    if not names and not done:
        given.results.unlink(missing_ok=True)
    own = (one.name for one in pkgutil.walk_packages(swerve.__path__, "swerve.") if not one.name.endswith("__main__"))
    for name in (*_IMPORTED, *own):
        importlib.import_module(name)
    for name in names or [name for name in ZOO if name not in done]:
        row = {"kind": "model", "code": code, **_lived(name)}
        (keep_records if names else append_record)(given.results, [row] if names else row)
        print(f"{name}: {'; '.join(row['wrong']) or row['refused'] or 'as plain transformers'}", flush=True)
    sys.exit(_finish(given.results, code))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [line for line in read_records(path) if line["kind"] == "model"]


def _code_digest() -> str:
    """Return what rows depend on: the package, the zoo, and the versions it runs with."""
    folders = (Path(swerve.__path__[0]), Path(__file__).parent)
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    parts = [json.dumps(versions()["torch"]), versions()["transformers"], *(path.read_text("utf-8") for path in files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _lived(name: str) -> dict[str, Any]:
    """Return the row of a model that lived in a fork, with the seconds of CPU that it took."""
    folder, before = Path(tempfile.mkdtemp(prefix="swerve-zoo-")), _children()
    try:
        ended = forked(lambda: _live(name, folder), log=folder / "log", time_limit=_TIME_LIMIT)
        path = folder / "row.json"
        if path.is_file():
            row = json.loads(path.read_text())
        else:
            said = ended.err.strip().rpartition("\n")[2][:300]
            row = {"name": name, "refused": None, "wrong": [f"ended with status {ended.status}: {said}"]}
        return {**row, "seconds": round(_children() - before, 1)}
    finally:
        shutil.rmtree(folder)


def _live(name: str, folder: Path) -> None:
    import transformers

    from tests.zoo.life import Life

    transformers.utils.logging.disable_progress_bar()
    (folder / "life").mkdir()
    (folder / "row.json").write_text(json.dumps(Life(name, folder / "life").live()))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _finish(results: Path, code: str) -> int:
    """Say what there is; fill the pages if all of it is of this code and right."""
    rows = _rows(results)
    wrong = [row["name"] for row in rows if row["wrong"]]
    stale = sorted(set(ZOO) - {row["name"] for row in rows if row["code"] == code})
    seconds = sum(row["seconds"] for row in rows)
    print(f"{len(rows)} models, {len(wrong)} of them wrong, {seconds / 60:.1f} minutes of CPU")
    if stale:
        print(f"not done with this code: {', '.join(stale)}")
    elif not wrong and results == RESULTS / "zoo.jsonl":
        fill_pages(*importlib.import_module("studies.__main__").texts("zoo"))
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
