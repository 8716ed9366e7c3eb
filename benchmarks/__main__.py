"""Fill the pages that show benchmarks from the kept results: `python -m benchmarks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import equivalence, rewritten_golds
from studies.markdown import fill_page, table
from studies.study import read_records

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    ROOT / "docs" / f"{name}.md" for name in ("graders", "k-and-k", "many-processes", "maths-answers", "performance")
)
_WAYS = {
    "math_verify": "math-verify {version} alone, one process, no limits",
    "in_process": "the grader of swerve, one process, no limits",
    "pool": "every answer in the pool",
    "grade_all": "`grade_all`",
}
_STEPS = {"responses": "of Qwen2.5-Math"}
_SIZES = {"layers", "kept", "peak"}
_SETS = {"rollouts": "responses to MATH problems", "generated": "answers in another form than the gold"}


def texts() -> dict[str, str]:
    """Return tables and numbers by the names of their places."""
    results = ROOT / "benchmarks" / "results"
    names = ("graders", "k_and_k", "equivalence", "rewritten_golds", "sampling", "step", "update", "memory")
    graders, puzzles, maths, golds, sampled, steps, updates, peaks = (
        read_records(results / f"{name}.jsonl") for name in names
    )
    layers, places, divided = (
        read_records(results / f"{name}.jsonl") for name in ("update_layers", "places", "divided")
    )
    answers = {
        "equivalence": equivalence.shown(maths),
        "equivalence: made": _made(maths[0]),
        "rewritten-golds": rewritten_golds.shown(golds),
        "rewritten-golds: made": _made(golds[0]),
    }
    speed = {**_sampling(sampled), **_steps(steps), **_updates(updates), **_places(places)}
    memory = {**_peaks(peaks), **_layers(layers), **_divided(divided)}
    return {**_graders(graders), **_puzzles(puzzles), **answers, **speed, **memory}


def _graders(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    header, pool = lines[0], next(line for line in lines if "start_seconds" in line)
    rows = []
    for key, words in _SETS.items():
        measured = [line for line in lines if line.get("set") == key]
        rows.append([f"{measured[0]['answers']} {words}", "", "", ""])
        rows += [
            [
                _WAYS[line["way"]].format(version=header["math-verify"]),
                str(line["answers_per_second"]),
                f"{line['ratio']:.2g}",
                f"{line['cpu_ms_per_answer']:.2g} ms",
            ]
            for line in measured
        ]
    return {
        "graders speed": table(["", "answers per second", "to math-verify", "CPU time per answer"], rows),
        "graders: made": f"{_made(header)}, load {header['load']:.0f}",
        "graders: memory": f"{pool['memory_mib']:.0f} MiB",
        "graders: start": f"{pool['start_seconds']:.1f} s",
    }


def _puzzles(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    header = lines[0]
    found = {
        "k_and_k: made": f"{header['date']}, swerve {header['swerve']}, {header.get('processor', header['machine'])}"
    }
    for line in lines[1:]:
        if "people" in line:
            found[f"k_and_k: seconds {line['people']}"] = f"{line['seconds']:.1f} s"
            found[f"k_and_k: words {line['people']}"] = f"{line['median_words']:.0f}"
            found[f"k_and_k: most words {line['people']}"] = str(line["max_words"])
    return found


def _sampling(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    rows = [
        [
            str(line["rows"]),
            line["lengths"],
            f"{line['engine_seconds']:.2g} s",
            f"{line['generate_seconds']:.2g} s",
            f"{line['ratio']:.2f}",
        ]
        for line in lines[1:]
    ]
    head = ["completions", "lengths", "the embedded engine", "`generate`", "ratio"]
    return {"sampling speed": table(head, rows), "sampling: made": _made(lines[0])}


def _steps(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    rows = [
        [
            line["profile"],
            f"{line['parameters'] / 1e6:.1f} million",
            f"{line['tokens']:.0f} ({line['trl_tokens']:.0f})",
            *(f"{line[f'{part}_seconds']:.2g} s" for part in ("sampling", "scoring", "update", "step", "trl")),
            f"{line['ratio']:.2f}",
        ]
        for line in lines[1:]
    ]
    head = ["lengths", "parameters", "tokens (TRL)", "sampling", "scoring", "update", "step", "TRL's step", "ratio"]
    return {"step speed": table(head, rows), "step: made": f"{_made(lines[0])}, TRL {lines[0]['trl']}"}


def _updates(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    rows = [
        [
            line["rows"],
            line.get("precision", "float32"),
            line.get("activation_checkpointing", "none").replace("_", " "),
            f"{line['cells_per_token']:.2f}",
            f"{line['seconds']:.2g} s",
            f"{line['seconds'] / lines[1]['seconds']:.2f}",
        ]
        for line in lines[1:]
    ]
    head = ["rows", "precision", "layers run again", "places per token", "update", "to the first"]
    return {"update speed": table(head, rows), "update: made": _made(lines[0])}


def _places(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    ways = ("padded", "packed_alone", "packed", "attended")
    rows = [
        [_STEPS.get(line["lengths"], line["lengths"]), f"{line['tokens']:,}", *(f"{line[way]:.2f}" for way in ways)]
        for line in lines[1:]
    ]
    head = ["lengths", "tokens", "padded", "packed", "packed, what is shared once", "the same, in attention"]
    return {"places": table(head, rows), "places: tokens": f"{lines[0]['tokens']:,}"}


def _peaks(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    parts = ("weights", "gradients", "optimizer", "frozen", "update", "predicted", "measured")
    rows = [
        [line["model"], *(f"{line[part] / 1e9:.2f}" for part in parts), f"{line['ratio']:.2f}"] for line in lines[1:]
    ]
    return {
        "memory": table(["model", *parts, "ratio"], rows),
        "memory: made": f"{_made(lines[0])}, {lines[0]['device']}",
    }


def _layers(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what the update of few layers takes, and what 28 of them would."""
    few, more = lines[1:]
    between, rows = more["layers"] - few["layers"], [few, more]
    rows.append(
        {key: few[key] + (28 - few["layers"]) / between * (more[key] - few[key]) for key in few.keys() & _SIZES}
    )
    cells = [[f"{row['layers']:.0f}", f"{row['kept']:.2f} GB", f"{row['peak']:.2f} GB"] for row in rows]
    return {
        "layers": table(["layers", "kept for the backward pass", "held at most"], cells),
        "layers: places": f"{few['places']:,}",
        "layers: made": _made(lines[0]),
    }


def _divided(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what each of some processes holds of a model, and how long saving it takes them."""
    held, peaks = ("weights", "gradients", "optimizer"), ("loading", "updating", "saving", "resuming")
    rows = [[str(line["processes"]), *(f"{line[part] / 1e6:.0f} MB" for part in (*held, *peaks))] for line in lines[1:]]
    saved = [
        [
            str(line["processes"]),
            *(f"{line[f'{way}_seconds']:.1f} s, {line[way] / 1e6:.0f} MB" for way in ("saving", "by_torch")),
            f"{line['saving_seconds'] / line['by_torch_seconds']:.2f}",
        ]
        for line in lines[1:]
    ]
    return {
        "saved": table(["processes", "swerve", "torch, files joined", "ratio of the times"], saved),
        "divided": table(["processes", *held, *peaks], rows),
        "divided: made": f"{_made(lines[0])}, {lines[0]['parameters'] / 1e6:.0f} million parameters",
    }


def _made(header: Mapping[str, Any]) -> str:
    return f"{header['date']}, swerve {header['swerve']}, {header.get('processor', header['machine'])}"


def main() -> None:
    """Fill the pages."""
    for page in PAGES:
        fill_page(page, texts())


if __name__ == "__main__":
    main()
