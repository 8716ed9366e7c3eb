"""The report's page in headless Chromium: what a reader meets first, and how long it takes; and what the page costs.

    python -m benchmarks.page RUN [--tokens 100000 125000] [--repeats 20] [--keep FOLDER]

RUN is a probed run, such as one of `swerve demo`. Its page is measured, and those of larger runs: copies of it whose
probe tables are drawn from its own (each token's numbers of all models, scaled by a common and a single factor), with
the lengths 1,500, 10,000 and then 1,000 tokens, words of a vocabulary of 151,000 and top fives of all models. So the
whole way is measured, from Parquet to the screen.

A line has, for windows of 1280, 700 and 390 pixels, the y of the first token, words and numbers above it and the height
of the page; its size, and CPU seconds of `swerve report`; and medians in milliseconds:

- first_view, loaded: from the start of loading to the first rollout, and to the list of all.
- opening: from a change of the address to another rollout's tokens on the screen, of 1,000 tokens in larger runs.
- slider, hover: from the event to the next frame, at 1,500 tokens in larger runs; `_script`: the script's own part.
- calibration: ten million additions in plain script, in the same page, as machines differ.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.process import print_header, print_line, swerve
from swerve.artifacts.files import sha256_file
from swerve.artifacts.probe_findings import DIVERGENCES
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import (
    INTERVENTIONS_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    TOPK_SCHEMA,
    read_table,
    write_table,
)

WIDTHS = (1280, 700, 390)
VOCABULARY = 151_000
SHARE_OF_SPIKES = 0.025
FIRST_LENGTHS, LENGTH = (1500, 10_000), 1000

# Runs whose tables are larger


def grow(source: Path, target: Path, num_tokens: int, *, seed: int = 0) -> None:
    """Copy a run and draw `num_tokens` tokens for its probe from those that it has."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("report"))
    run, rng = RunDirectory(target), np.random.default_rng(seed)
    summary = read_summary(run)
    assert summary is not None
    lengths = [*FIRST_LENGTHS, *[LENGTH] * ((num_tokens - sum(FIRST_LENGTHS)) // LENGTH)]
    words, ids = _words(rng), _zipf(rng, (sum(lengths),))
    sequence, position = np.repeat(np.arange(len(lengths)), lengths), np.concatenate([np.arange(n) for n in lengths])
    values, categories = _drawn(run, summary, rng, len(ids))

    tables = {
        "sequences": (_sequences(summary, lengths, ids, words), SEQUENCES_SCHEMA),
        "tokens": (_tokens(summary, sequence, position, ids, values, categories), TOKENS_SCHEMA),
        "topk": (_topk(summary, sequence, position, words, rng), TOPK_SCHEMA),
        "spikes": (_spikes(summary, lengths, values), SPIKES_SCHEMA),
        "interventions": (_interventions(lengths, values["js"][:, -1], words, rng), INTERVENTIONS_SCHEMA),
    }
    for name, (table, schema) in tables.items():
        write_table(run.probe_path / f"{name}.parquet", table, schema)
    digests = {name: sha256_file(run.probe_path / name) for name in summary.tables}
    summary.model_copy(update={"tables": digests, "num_rollouts": len(lengths)}).write(run.probe_path / "summary.json")


def _words(rng: np.random.Generator) -> pa.Array:
    """Return the texts of a vocabulary: words of one to six letters with a space before them, and the end of a line."""
    letters = np.array(list("etaoinshrdlucm"))[rng.integers(0, 14, (VOCABULARY, 6))]
    sizes = rng.integers(1, 7, VOCABULARY)
    texts = [f" {''.join(word[:size])}" for word, size in zip(letters, sizes, strict=True)]
    return pa.array([" the", "\n", *texts[2:]])


def _zipf(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return token ids of which few are frequent."""
    return np.minimum(rng.zipf(1.25, shape), VOCABULARY) - 1


def _drawn(
    run: RunDirectory, summary: ProbeSummary, rng: np.random.Generator, num: int
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the columns `[tokens, checkpoints]` of drawn tokens, and their categories."""
    table = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA)
    table = table.filter(pa.compute.equal(table["reference"], summary.reference))
    places = {label: place for place, label in enumerate(summary.checkpoints)}
    checkpoint = np.array([places[label] for label in table["checkpoint"].to_pylist()])
    order = np.lexsort((checkpoint, table["position"].to_numpy(), table["sequence_id"].to_numpy()))
    shape = (-1, len(places))
    chosen = rng.integers(0, len(order) // len(places), num)
    factor = np.exp(rng.normal(0, 0.8, (num, 1)))
    values: dict[str, NDArray[Any]] = {}
    for name in TOKENS_SCHEMA.names[5:-1]:
        values[name] = table[name].to_numpy()[order].reshape(shape)[chosen]
        if values[name].dtype == np.float32:
            own = np.exp(rng.normal(0, 0.12, (num, 1 if name.endswith("_ref") else len(places))))
            values[name] = values[name] * factor * own
    values["js"] = np.minimum(values["js"], np.log(2))
    categories = np.array(table["category"].to_pylist())[order].reshape(shape)[chosen, 0]
    return values, categories.tolist()


def _sequences(summary: ProbeSummary, lengths: Sequence[int], ids: NDArray[np.int64], words: pa.Array) -> pa.Table:
    texts, rows, first = words.take(pa.array(ids)).to_pylist(), [], 0
    for number, length in enumerate(lengths):
        pieces = texts[first : first + length]
        ends = np.cumsum([len(piece) for piece in pieces])
        rows.append(
            {
                "sequence_id": number,
                "problem_id": f"problem-{number}",
                "kind": f"{1 + number % 4} steps",
                "population": summary.population,
                "label": summary.reference,
                "question": f"What is {number} + {number}? " + "".join(pieces[:30]),
                "gold": str(2 * number),
                "prompt_ids": [0],
                "completion_ids": ids[first : first + length].tolist(),
                "text": "".join(pieces),
                "token_starts": [0, *ends[:-1].tolist()],
                "token_ends": ends.tolist(),
                "extracted": str(number),
                "correct": False,
                "first_wrong": length // 2,
                "wrong_positions": [length // 2],
                "wrong_expected": [" the"],
            }
        )
        first += length
    return pa.Table.from_pylist(rows, schema=SEQUENCES_SCHEMA)


def _tokens(
    summary: ProbeSummary,
    sequence: NDArray[np.int64],
    position: NDArray[np.int64],
    ids: NDArray[np.int64],
    values: Mapping[str, NDArray[Any]],
    categories: Sequence[str],
) -> pa.Table:
    num = len(summary.checkpoints)
    columns = {
        "sequence_id": np.repeat(sequence, num),
        "position": np.repeat(position, num),
        "token_id": np.repeat(ids, num),
        "checkpoint": np.tile(np.array(summary.checkpoints), len(ids)),
        "reference": np.full(num * len(ids), summary.reference),
        **{name: column.ravel() for name, column in values.items()},
        "category": np.repeat(np.array(categories), num),
    }
    return pa.table(
        {name: pa.array(columns[name]).cast(TOKENS_SCHEMA.field(name).type) for name in TOKENS_SCHEMA.names}
    )


def _topk(
    summary: ProbeSummary,
    sequence: NDArray[np.int64],
    position: NDArray[np.int64],
    words: pa.Array,
    rng: np.random.Generator,
    top_k: int = 5,
) -> pa.Table:
    """Return sharp lists of which one token in twelve is not that of the other models."""
    labels = [summary.reference, *summary.checkpoints]
    shape = (len(sequence), len(labels), top_k)
    ids = np.broadcast_to(_zipf(rng, (shape[0], 1, top_k)), shape).copy()
    is_other = rng.random(shape) < 0.08
    ids[is_other] = _zipf(rng, (int(is_other.sum()),))
    shares = np.sort(rng.dirichlet([0.35] * 7, (shape[0], 1)), axis=-1)[..., :1:-1]
    probs = np.clip(shares * np.exp(rng.normal(0, 0.08, shape)), 1e-9, 1)
    offsets = pa.array(np.arange(0, ids.size + 1, top_k), type=pa.int32())
    flat = pa.array(ids.ravel(), type=pa.int32())
    return pa.table(
        {
            "sequence_id": np.repeat(sequence, len(labels)).astype(np.int32),
            "position": np.repeat(position, len(labels)).astype(np.int32),
            "checkpoint": pa.array(np.tile(np.array(labels), len(sequence))),
            "token_ids": pa.ListArray.from_arrays(offsets, flat),
            "tokens": pa.ListArray.from_arrays(offsets, words.take(flat)),
            "probs": pa.ListArray.from_arrays(offsets, pa.array(probs.ravel().astype(np.float32))),
        }
    )


def _spikes(summary: ProbeSummary, lengths: Sequence[int], values: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return the highest values of every rollout, checkpoint and divergence."""
    rows, first = [], 0
    for number, length in enumerate(lengths):
        for place, checkpoint in enumerate(summary.checkpoints):
            for name in DIVERGENCES:
                heights = values[name][first : first + length, place]
                highest = np.argsort(-heights)[: int(SHARE_OF_SPIKES * length)].tolist()
                rows += [
                    {
                        "sequence_id": number,
                        "position": position,
                        "checkpoint": checkpoint,
                        "method": summary.spike_method,
                        "divergence": name,
                        "value": heights[position],
                        "threshold": heights[highest[-1]],
                        "height": height,
                        "is_wrong": position == length // 2,
                        "is_first_wrong": position == length // 2,
                    }
                    for height, position in enumerate(highest, start=1)
                ]
        first += length
    return rows


def _interventions(
    lengths: Sequence[int], heights: NDArray[np.float64], words: pa.Array, rng: np.random.Generator
) -> list[dict[str, Any]]:
    rows, first = [], 0
    for number, length in enumerate(lengths[:100]):
        position = int(np.argmax(heights[first : first + length]))
        for arm, share in (("reference", 0.05), ("checkpoint", 0.9), ("alternative", 0.6)):
            successes, token = int(rng.binomial(16, share)), int(rng.integers(VOCABULARY))
            rows.append(
                {
                    "sequence_id": number,
                    "position": position,
                    "spike_sequence_id": number,
                    "selection": "spike",
                    "arm": arm,
                    "policy": "reference",
                    "token_id": token,
                    "token": words[token].as_py(),
                    "num_continuations": 16,
                    "num_successes": successes,
                    "num_failures": 0,
                    "first_continuations": 16,
                    "first_successes": successes,
                    "first_even_successes": successes // 2,
                }
            )
        first += length
    return rows


# What Chromium shows

_BEFORE_TOKENS = """() => {
  const box = document.querySelector("#hero .tokens");
  const top = box.getBoundingClientRect().top;
  const shown = [...box.querySelectorAll(".k")].find((token) => token.getBoundingClientRect().top >= top);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const words = [];
  for (let node = walker.nextNode(); !box.contains(node); node = walker.nextNode()) {
    const { parentElement } = node;
    const isText = parentElement.checkVisibility() && !parentElement.closest("script, style");
    if (isText) words.push(...node.data.split(/\\s+/));
  }
  return {
    first_token_y: Math.round(shown.getBoundingClientRect().top + scrollY),
    words: words.filter((word) => /\\p{L}/u.test(word)).length,
    numbers: words.filter((word) => /^[^\\p{L}\\p{N}]*\\p{N}/u.test(word)).length,
    height: document.documentElement.scrollHeight,
    overflow: document.documentElement.scrollWidth > innerWidth,
  };
}"""
_CALIBRATION = """() => {
  const start = performance.now();
  let sum = 0;
  for (let i = 0; i < 1e7; i += 1) sum += i % 7;
  return sum > 0 ? performance.now() - start : 0;
}"""
# The time until the frame after an event is drawn, and the script's part of it.
_TIMED = """
const drawn = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
const timed = async (act) => {
  await drawn();
  const start = performance.now();
  act();
  const script = performance.now() - start;
  await drawn();
  return [performance.now() - start, script];
};
"""
_OPENING = f"""async (number) => {{ {_TIMED}
  const before = document.querySelector("#panel .k");
  const start = performance.now();
  location.hash = `#r=${{number}}`;
  while (document.querySelector("#panel .k") === before || !document.querySelector("#panel .k")) await drawn();
  await drawn();
  return performance.now() - start;
}}"""
_SLIDER = f"""async (place) => {{ {_TIMED}
  const slider = document.querySelector("#panel input[type=range]");
  return timed(() => {{
    slider.value = String(place);
    slider.dispatchEvent(new Event("input", {{ bubbles: true }}));
  }});
}}"""
_HOVER = f"""async (place) => {{ {_TIMED}
  const tokens = document.querySelectorAll("#panel .k");
  const token = tokens[place % tokens.length];
  return timed(() => token.dispatchEvent(new PointerEvent("pointerover", {{ bubbles: true }})));
}}"""


def median(values: Sequence[float]) -> float:
    """Return the median with one decimal."""
    return round(statistics.median(values), 1)


@contextmanager
def opened(browser: Any, path: Path, width: int = 1280, height: int = 900) -> Iterator[Any]:
    """Open a page in a profile of its own; whatever it complains of is an error."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    # The page's policy allows no eval, which waiting for a condition would need.
    while not page.evaluate("performance.getEntriesByName('loaded').length"):
        page.wait_for_timeout(10)
    yield page
    context.close()
    if complaints:
        raise RuntimeError(f"{path}: {complaints}")


def measured(browser: Any, path: Path, repeats: int) -> dict[str, Any]:
    """Return what a page shows and how fast."""
    result: dict[str, Any] = {"mb": round(path.stat().st_size / 1e6, 2)}
    by_width = {}
    for width in WIDTHS:
        with opened(browser, path, width) as page:
            by_width[width] = page.evaluate(_BEFORE_TOKENS)
    for name in ("first_token_y", "words", "numbers", "height", "overflow"):
        result[name] = [by_width[width][name] for width in WIDTHS]

    views = []
    for _ in range(repeats):
        with opened(browser, path) as page:
            views.append(
                page.evaluate("['first', 'loaded'].map((name) => performance.getEntriesByName(name)[0].startTime)")
            )
    result["first_view"], result["loaded"] = (median(times) for times in zip(*views, strict=True))
    with opened(browser, path) as page:
        result["calibration"] = median([page.evaluate(_CALIBRATION) for _ in range(repeats)])
        last = page.evaluate("pageData.rollouts.rollouts.length") - 1
        result["opening"] = median([page.evaluate(_OPENING, 1 + place % last) for place in range(repeats)])
        page.evaluate(_OPENING, 0)
        last = int(page.locator("#panel input[type=range]").get_attribute("max"))
        for name, script in (("slider", _SLIDER), ("hover", _HOVER)):
            times = [page.evaluate(script, (place % last if name == "slider" else place)) for place in range(repeats)]
            shown, own = zip(*times, strict=True)
            result |= {name: median(shown), f"{name}_script": median(own), f"{name}_max": round(max(shown), 1)}
    return result


def reported(run: Path) -> tuple[Path, float]:
    """Write a run's page; return its path and the CPU seconds of the command."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    swerve("report", str(run))
    return run / "report" / "index.html", round(used() - before, 2)


def main() -> None:
    """Measure the page of a run and those of larger ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tokens", type=int, nargs="*", default=[100_000, 125_000])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="where the runs are kept; a run that is there is taken as it is")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    print_header("playwright", "numpy", "pyarrow")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = arguments.keep or Path(temporary)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"]
        )
        for num_tokens in (None, *arguments.tokens):
            run = folder / (arguments.run.name if num_tokens is None else f"tokens_{num_tokens}")
            if num_tokens is None:
                shutil.copytree(arguments.run, run, dirs_exist_ok=True)
            elif not run.exists():
                grow(arguments.run, run, num_tokens)
            page, seconds = reported(run)
            print_line({"run": run.name, "report_cpu_s": seconds, **measured(browser, page, arguments.repeats)})
        browser.close()


if __name__ == "__main__":
    main()
