"""The tables and numbers of the pages that show benchmarks, from the kept results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from studies.pages import ROOT, Column, Record, code, percent, shown, table, table_of
from studies.records import read_records

RESULTS = ROOT / "benchmarks" / "results"
_GRADED = {
    "math_verify": "math-verify {version} alone, one process, no limits",
    "in_process": "the grader of swerve, one process, no limits",
    "pool": "every answer in the pool",
    "grade_all": "`grade_all`",
}
_REASONS = {
    r"\beginboxed{8\sqrt{6}}": "no box in LaTeX: the command is misspelt",
    r"\boxed{9} \boxed{42}": "boxes side by side are one answer, the list 9, 42",
    "not it's not 10": "a sentence that negates a value states none",
}
"""Why an answer of the equivalence cases is judged otherwise, by a part of its text."""


def read(name: str) -> list[dict[str, Any]]:
    """Return the kept lines of a benchmark; the first says when and where."""
    return read_records(RESULTS / f"{name}.jsonl")


def tables() -> dict[str, str]:
    """Return the tables by the names of their places."""
    return {
        "graders speed": _graders(read("graders")),
        "equivalence": _equivalence(read("equivalence")),
        "rewritten-golds": _rewritten_golds(read("rewritten_golds")),
        "sampling speed": table_of(
            read("sampling")[1:],
            ("completions", "rows"),
            ("lengths", "lengths"),
            ("the embedded engine", _seconds("engine_seconds")),
            ("`generate`", _seconds("generate_seconds")),
            ("ratio", _two("ratio")),
        ),
        "step speed": table_of(
            read("step")[1:],
            ("lengths", "profile"),
            ("parameters", lambda line: f"{line['parameters'] / 1e6:.1f} million"),
            ("tokens (TRL)", lambda line: f"{line['tokens']:.0f} ({line['trl_tokens']:.0f})"),
            *((part, _seconds(f"{part}_seconds")) for part in ("sampling", "scoring", "update", "step")),
            ("TRL's step", _seconds("trl_seconds")),
            ("ratio", _two("ratio")),
        ),
        "update speed": _update(read("update")[1:]),
        "places": table_of(
            read("places")[1:],
            ("lengths", lambda line: {"responses": "of Qwen2.5-Math"}.get(line["lengths"], line["lengths"])),
            ("tokens", "tokens:thousands"),
            ("padded", _two("padded")),
            ("packed", _two("packed_alone")),
            ("packed, what is shared once", _two("packed")),
            ("the same, in attention", _two("attended")),
        ),
        "memory": table_of(
            read("memory")[1:],
            ("model", "model"),
            *((part, _two(part, 1e9)) for part in ("weights", "gradients", "optimizer", "frozen", "update")),
            ("predicted", _two("predicted", 1e9)),
            ("measured", _two("measured", 1e9)),
            ("ratio", _two("ratio")),
        ),
        "long files": table_of(
            read("rows")[1:],
            ("command", lambda line: f"`{_COMMANDS[line['command']]}`"),
            ("rows", "rows:thousands"),
            ("file, MiB", lambda line: f"{line['file_mib']:.0f}"),
            ("peak, MiB", lambda line: f"{line['peak_mib']:.0f}"),
            ("above ten rows, MiB", lambda line: f"{line['above_mib']:.0f}"),
            ("rows a CPU second", lambda line: f"{line['rows'] / line['cpu_seconds']:,.0f}"),
        ),
        "layers": _layers(read("update_layers")),
        "divided": table_of(
            read("divided")[1:],
            ("processes", "processes"),
            *((part, _megabytes(part)) for part in ("weights", "gradients", "optimizer")),
            *((part, _megabytes(part)) for part in ("loading", "updating", "saving", "resuming")),
        ),
        "coverage": _coverage(read("coverage")),
        **_cards([read(path.stem) for path in sorted(RESULTS.glob("card-*.jsonl"))]),
    }


def numbers() -> dict[str, str]:
    """Return the numbers that sentences quote; `NAME: made` says what made the results NAME."""
    files = ("graders", "equivalence", "rewritten_golds", "sampling", "step", "update", "memory", "divided", "rows")
    headers = {name.replace("rewritten_", "rewritten-"): read(name)[0] for name in files}
    texts = {f"{name}: made": _made(header) for name, header in headers.items()}
    texts["layers: made"] = _made(read("update_layers")[0])
    texts["layers: places"] = f"{read('update_layers')[1]['places']:,}"
    texts["places: tokens"] = f"{read('places')[0]['tokens']:,}"

    # What else a result depends on.
    texts["graders: made"] += f", load {headers['graders']['load']:.0f}"
    texts["step: made"] += f", TRL {headers['step']['trl']}"
    texts["memory: made"] += f", {headers['memory']['device']}"
    texts["divided: made"] += f", {headers['divided']['parameters'] / 1e6:.0f} million parameters"

    pool = next(line for line in read("graders") if "start_seconds" in line)
    texts["graders: memory"] = f"{pool['memory_mib']:.0f} MiB"
    texts["graders: start"] = f"{pool['start_seconds']:.1f} s"
    return texts


def _made(header: Record) -> str:
    return f"{header['date']}, swerve {header['swerve']}, {header.get('processor', header['machine'])}"


_COMMANDS = {"grade": "grade --audit", "import": "data import", "report": "report samples.parquet"}
Cell = Callable[[Record], str]


def _two(name: str, unit: float = 1.0) -> Cell:
    return lambda line: f"{line[name] / unit:.2f}"


def _seconds(name: str) -> Cell:
    return lambda line: f"{line[name]:.2g} s"


def _megabytes(name: str) -> Cell:
    return lambda line: f"{line[name] / 1e6:.0f} MB"


def _graders(lines: Sequence[Record]) -> str:
    sets = {"rollouts": "responses to MATH problems", "generated": "answers in another form than the gold"}
    columns: list[Column] = [
        ("", lambda line: _GRADED[line["way"]].format(version=lines[0]["math-verify"])),
        ("answers per second", "answers_per_second"),
        ("to math-verify", lambda line: f"{line['ratio']:.2g}"),
        ("CPU time per answer", lambda line: f"{line['cpu_ms_per_answer']:.2g} ms"),
    ]
    rows = []
    for key, words in sets.items():
        measured = [line for line in lines if line.get("set") == key]
        rows.append([f"{measured[0]['answers']} {words}", "", "", ""])
        rows += [[shown(line, cell) for _, cell in columns] for line in measured]
    return table([head for head, _ in columns], rows)


def _update(lines: Sequence[Record]) -> str:
    return table_of(
        lines,
        ("rows", "rows"),
        ("precision", lambda line: line.get("precision", "float32")),
        ("layers run again", lambda line: line.get("activation_checkpointing", "none").replace("_", " ")),
        ("places per token", _two("cells_per_token")),
        ("update", _seconds("seconds")),
        ("to the first", _two("seconds", lines[0]["seconds"])),
    )


def _layers(lines: Sequence[Record]) -> str:
    """Return what the update of few layers takes, and what 28 of them would."""
    few, more = lines[1:]
    layers = (28 - few["layers"]) / (more["layers"] - few["layers"])
    many = {key: few[key] + layers * (more[key] - few[key]) for key in ("layers", "kept", "peak")}
    return table_of(
        [few, more, many],
        ("layers", lambda line: f"{line['layers']:.0f}"),
        ("kept for the backward pass", lambda line: f"{line['kept']:.2f} GB"),
        ("held at most", lambda line: f"{line['peak']:.2f} GB"),
    )


def _equivalence(lines: Sequence[Record]) -> str:
    """Return the counts of every set, and the cases that are judged otherwise."""

    def reason(line: Record) -> str:
        return next((reason for part, reason in _REASONS.items() if part in line["text"]), "not explained")

    counts = table_of(
        [line for line in lines if "name" in line],
        ("cases", "name"),
        ("number", "cases"),
        ("agree", lambda line: f"{line['agree']} ({percent(line['agree'] / line['cases'])})"),
        ("wrong accepts", "wrong_accepts"),
        ("decided quickly", lambda line: percent(line["quick"] / line["cases"], 0)),
        ("CPU ms, mean", "mean_ms"),
        ("CPU ms, most", "most_ms"),
    )
    cases = table_of(
        [line for line in lines if "read" in line],
        ("gold", lambda line: code(line["gold"])),
        ("end of the text", lambda line: code(line["text"])),
        ("expected", lambda line: "accept" if line["expected"] else "reject"),
        ("answer read", lambda line: code(line["read"][-60:])),
        ("reason", reason),
    )
    return f"{counts}\n\nEvery case of `equivalence` that is judged otherwise:\n\n{cases}"


def _rewritten_golds(lines: Sequence[Record]) -> str:
    def accepted(line: Record) -> str:
        return f"{line['accepted']:,} of {line['right']:,} ({percent(line['accepted'] / line['right'])})"

    return table_of(
        [line for line in lines if "half" in line],
        ("half", "half:words"),
        ("golds", "golds"),
        ("right ones accepted", accepted),
        ("wrong ones accepted", lambda line: f"{line['wrong_accepts']} of {line['wrong']:,}"),
        ("CPU ms, mean", "mean_ms"),
        ("CPU ms, most", "most_ms"),
    )


def _cards(files: Sequence[Sequence[Record]]) -> dict[str, str]:
    """Return the tables of what `benchmarks.card` measured on each device: the chain, rates, memory of training."""
    parts = [{**header, **part} for header, *lines in files for part in lines]
    found = [{**part, **line} for part in parts for line in part.get("found", ())]
    return {
        "card chain": table_of(
            [part for part in parts if "found" not in part],
            ("device", "device"),
            ("part", "part"),
            ("tokens", lambda line: f"{line['tokens']:,}" if "tokens" in line else "-"),
            ("time", lambda line: f"{line['cpu_seconds' if line['device'] == 'cpu' else 'seconds']:.0f} s"),
            ("memory of the process", lambda line: f"{line['peak_gb']:.1f} GB"),
            ("of the card", _gigabytes("device_gb")),
            ("predicted", _gigabytes("predicted_gb")),
            ("written", _gigabytes("disk_gb")),
        ),
        "card rates": table_of(
            [line for line in found if "tokens_per_second" in line or "trl_seconds" in line],
            ("device", "device"),
            ("part", "part"),
            ("way", _way),
            ("tokens per second", lambda line: f"{_rate(line):,.0f}"),
            ("beyond weights and gradients", _gigabytes("peak")),
        ),
        "card memory": table_of(
            [line for line in found if "predicted" in line],
            ("device", "device"),
            ("model", "model"),
            ("tokens of a micro-batch", lambda line: f"{line['tokens']:,}"),
            ("predicted", lambda line: f"{line['predicted'] / 1e9:.1f} GB"),
            ("measured", lambda line: f"{line['measured'] / 1e9:.1f} GB"),
            ("ratio", "ratio"),
        ),
    }


def _gigabytes(name: str) -> Cell:
    return lambda line: f"{line[name]:.1f} GB" if name in line else "-"


def _way(line: Record) -> str:
    if "trl_seconds" in line:
        return f"{line['ratio']} of TRL's time"
    if "rows" not in line:
        return "completions of full length"
    again = {"every_second": ", every second layer run again", "full": ", all layers run again"}
    return f"{line['rows']}, {line.get('precision', 'float32')}{again.get(line.get('activation_checkpointing'), '')}"


def _rate(line: Record) -> float:
    rate: float = line["tokens"] / line["step_seconds"] if "trl_seconds" in line else line["tokens_per_second"]
    return rate


def _coverage(cells: Sequence[Record]) -> str:
    """Return for each method and number of problems the rate of its worst family."""
    sizes = list(dict.fromkeys(cell["num_problems"] for cell in cells))
    rows = []
    for method in dict.fromkeys(cell["method"] for cell in cells):
        own = [cell for cell in cells if cell["method"] == method and cell["num_counted"] >= 0.1 * cell["num_draws"]]
        is_test = own[0]["is_test"]
        worst = max if is_test else min
        rates = []
        for size in sizes:
            rate = worst((cell["rate"] for cell in own if cell["num_problems"] == size), default=math.nan)
            rates.append("none called reliable" if math.isnan(rate) else f"{rate:.3f}")
        family = worst(own, key=lambda cell: cell["rate"])["family"]
        rows.append([method, "size" if is_test else "coverage", *rates, family])
    head = ["method", "measured", *(f"{size} problems" for size in sizes), "worst family"]
    draws = sorted({cell["num_draws"] for cell in cells})
    numbers = " to ".join(f"{number:,}" for number in dict.fromkeys((draws[0], draws[-1])))
    return f"{table(head, rows)}\n\n{numbers} draws per cell."
