"""The picture of all wrong answers, pixel by pixel."""

from __future__ import annotations

import base64
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOKENS_SCHEMA, read_table
from swerve.report.cells import codes
from swerve.report.raster import _cells, _figures, _order, _shades
from swerve.report.read import ReportInputs
from swerve.report.rollouts import rollout_payload


def pixels(address: str) -> NDArray[np.uint8]:
    """Return the shades of an image, checked as a reader of PNG does."""
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size : place + 12 + size])[0] == zlib.crc32(kind + content)
        chunks[kind] = content
        place += 12 + size
    width, height, depth, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colours, len(chunks[b"tRNS"])) == (8, 3, 16)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()  # no filter
    return rows[:, 1:]


def test_each_cell_has_the_shade_of_its_token(inputs: ReportInputs, run: RunDirectory) -> None:
    payload = rollout_payload(inputs)
    assert payload is not None
    assert payload.raster is not None
    places, rollouts = payload.index["raster"], payload.index["rollouts"]
    wrong = [at for at, entry in enumerate(rollouts) if entry["correct"] is False and entry["source"] == "dpo-8"]
    assert sorted(places["rows"]) == wrong
    assert [rollouts[at]["wrong"] for at in places["rows"]] == sorted(rollouts[at]["wrong"] for at in wrong)
    assert (places["align"], places["labels"]) == ("start", ["rl-5", "rl-20", "rl-60", "rl-80"])

    table = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    value = {
        (row["sequence_id"], row["position"], row["checkpoint"]): row["js"]
        for row in table
        if row["reference"] == "dpo-8"
    }
    top = payload.index["top"]["js"]
    shown = [
        (label, pixels(image)) for label, (*_, image) in zip(places["labels"], payload.raster.panels, strict=False)
    ]
    for label, shades in shown:
        for row, at in enumerate(places["rows"]):
            length = rollouts[at]["length"]
            expected = [15 * min(1, value[at, token, label] / top) ** 0.5 for token in range(length)]
            assert shades[row, :length].tolist() == pytest.approx(expected, abs=0.53)
            assert not shades[row, length:].any()

    # Beside them is where the first wrong steps are, and nothing else.
    kind, caption, image = payload.raster.panels[-1]
    assert (kind, caption) == ("steps", "first wrong step")
    assert np.argwhere(pixels(image)).tolist() == [
        [row, rollouts[at]["wrong"]] for row, at in enumerate(places["rows"])
    ]
    assert payload.raster.title == f"Where `rl-80` changed **{len(wrong)} wrong answers**"


@pytest.mark.parametrize(
    ("population", "of"),
    [
        ("reference_wrong_final_right", ""),
        ("all", "of 100 answers, right or wrong, "),
        ("reference_right_final_right", "of 100 right answers "),
    ],
)
def test_figures_below_wrong_answers_say_which_answers_tokens_were_forced_in(population: str, of: str) -> None:
    arms = {name: SimpleNamespace(success=value) for name, value in
            (("reference", 0.84), ("checkpoint", 0.87), ("alternative", 0.43))}  # fmt: skip
    spike = SimpleNamespace(effect=object(), num_positions=100, **arms)
    summary: Any = SimpleNamespace(
        reliable=True, claim=lambda *_: None, spike_swaps=spike, final="rl-80", population=population
    )
    assert _figures(summary) == [
        ("84% \N{RIGHTWARDS ARROW} 87%", f"{of}end right once rl-80's token stands there", False),
        ("43%", f"{of}end right with a token of neither model", True),
    ]


def test_texts_of_other_lengths_lie_under_each_other_at_the_first_wrong_token_or_by_share() -> None:
    lengths = np.array([4, 6])
    cells, before = _cells(lengths, [1, 3], "wrong")
    assert before == 3
    assert cells.tolist() == [[-1, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    cells, _ = _cells(lengths, [0, 0], "share")
    assert cells.tolist() == [[0, 0, 1, 2, 2, 3], [0, 1, 2, 3, 4, 5]]
    cells, _ = _cells(np.array([320, 80]), [0, 0], "share")
    assert cells[:, :4].tolist() == [[0, 2, 4, 6], [0, 0, 1, 1]]


class _Drawn:
    """A layout of two texts of 400 and 300 tokens, each with one that is as dark as can be."""

    def __init__(self) -> None:
        self.summary = SimpleNamespace(divergence="js")
        self.names = ["js"]
        self.models, self.largest = ["base", "rl"], {"js": 1.0}
        self.columns = np.zeros((5, 2, 700), dtype=np.uint16)
        self.columns[0, 1, [399, 400 + 150]] = codes(np.array([1.0, 1.0]))


@pytest.mark.parametrize(
    ("align", "dark"),
    [("share", [[0, 159], [1, 80]]), ("wrong", [[1, 80]])],  # around the first wrong tokens nothing else is drawn
)
def test_a_cell_of_several_tokens_has_the_highest_and_a_window_has_no_more_than_its_own(
    align: Any, dark: list[list[int]]
) -> None:
    lengths = np.array([400, 300])
    first, _ = _cells(lengths, [200, 150], align)
    shades = _shades(_Drawn(), "rl", np.array([0, 400]), first, lengths if align == "share" else None)  # type: ignore[arg-type]
    assert first.shape == (2, 160)
    assert np.argwhere(shades).tolist() == dark


def test_rows_are_by_outcome_then_by_place() -> None:
    def entry(correct: bool | None, wrong: int | None, position: int, length: int) -> dict[str, Any]:
        return {"correct": correct, "wrong": wrong, "position": position, "length": length}

    entries = [
        entry(None, None, 0, 9),
        entry(True, None, 2, 4),
        entry(True, None, 3, 9),
        entry(False, 5, 0, 9),
        entry(False, None, 1, 9),
    ]
    order = sorted(range(5), key=lambda at: _order(entries[at], "share"))
    assert order == [3, 4, 2, 1, 0]
