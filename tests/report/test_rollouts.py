"""What the page holds of the rollouts, against the tables it comes from."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import SPIKES_SCHEMA, TOKENS_SCHEMA, TOPK_SCHEMA, read_table
from swerve.report import layout, rollouts
from swerve.report.format import joined_digits
from swerve.report.read import ReportInputs
from swerve.report.rollouts import Payload, rollout_payload, split_pieces


@dataclass(frozen=True, kw_only=True)
class Block:
    """A rollout as the page reads it; in all arrays of models the reference comes first."""

    facts: dict[str, Any]
    words: list[str]
    categories: list[str]
    columns: dict[str, NDArray[Any]]
    tops: dict[tuple[int, int], list[tuple[str, float]]]


def unpacked(payload: Payload, number: int) -> Block:
    """Read a block as `cells.js` does."""
    index, data = payload.index, gzip.decompress(payload.encode(number))
    num_tokens, num_models = index["rollouts"][number]["length"], len(index["checkpoints"]) + 1
    text_end = 4 + int.from_bytes(data[:4], "little")
    facts, place = json.loads(data[4:text_end]), text_end

    def take(width: int, *shape: int) -> NDArray[np.int64]:
        nonlocal place
        count = int(np.prod(shape))
        stored = np.frombuffer(data, np.uint8, width * count, place).reshape(width, count).astype(np.int64)
        place += width * count
        values: NDArray[np.int64] = (stored << (8 * np.arange(width)[:, None])).sum(axis=0).reshape(shape)
        return values

    def added(folded: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.cumsum((folded >> 1) ^ -(folded & 1), axis=-2)

    words, categories = take(3, num_tokens), take(2, num_tokens)
    names = index["columns"]
    coded = added(take(2, len(names), num_models, num_tokens))
    coded[:3] = np.cumsum(coded[:3], axis=0)
    scale = index["codes"]
    values = scale["lowest"] * (scale["highest"] / scale["lowest"]) ** ((coded - 1) / (scale["missing"] - 2))
    values[coded == 0], values[coded == scale["missing"]] = 0, np.nan
    signs = {name: -1 if name.startswith("logprob") else 1 for name in names}
    ranks, marks = added(take(3, num_models, num_tokens)), take(1, num_models, num_tokens)
    marked = np.argwhere(marks).tolist()
    top_words, probs = take(3, facts["numTop"], len(marked)).T, take(2, facts["numTop"], len(marked)).T
    assert place == len(data)
    return Block(
        facts=facts,
        words=[index["words"][word] for word in words],
        categories=[index["categories"][category] for category in categories],
        columns={"rank": ranks, **{name: signs[name] * own for name, own in zip(names, values, strict=True)}},
        tops={
            (model, position): [(index["words"][word], prob / 65535) for word, prob in zip(row, shares, strict=True)]
            for (model, position), row, shares in zip(marked, top_words, probs, strict=True)
        },
    )


def made(inputs: ReportInputs) -> Payload:
    payload = rollout_payload(inputs)
    assert payload is not None
    return payload


@pytest.fixture(scope="module")
def payload(inputs: ReportInputs) -> Payload:
    return made(inputs)


@pytest.fixture
def changed(inputs: ReportInputs) -> Callable[..., ReportInputs]:
    """Return the inputs with other tables: `name=change`, where `change` takes and returns rows."""

    def change(**changes: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> ReportInputs:
        tables = inputs.tables
        assert tables is not None
        new = {}
        for name, function in changes.items():
            table = getattr(tables, name)
            new[name] = pa.Table.from_pylist(function(table.to_pylist()), schema=table.schema)
        return replace(inputs, tables=replace(tables, **new))

    return change


def test_every_number_is_that_of_the_table(run: RunDirectory, payload: Payload) -> None:
    rows = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    labels = [checkpoint["label"] for checkpoint in payload.index["checkpoints"]]
    wanted = {
        (row["sequence_id"], row["checkpoint"], row["position"]): row for row in rows if row["reference"] == "dpo-8"
    }
    for number in (3, 11, 13):
        block = unpacked(payload, number)
        for model, label in enumerate(labels, start=1):
            own = [wanted[number, label, position] for position in range(len(block.words))]
            for name in payload.index["columns"]:
                np.testing.assert_allclose(
                    block.columns[name][model], [row[name] for row in own], rtol=0.004, atol=1e-12
                )
            assert block.columns["rank"][model].tolist() == [row["rank"] for row in own]
            assert block.categories == [row["category"] for row in own]
        for name in payload.index["columns"][3:]:
            np.testing.assert_allclose(block.columns[name][0], [row[f"{name}_ref"] for row in own], rtol=0.004)
        assert block.columns["rank"][0].tolist() == [row["rank_ref"] for row in own]
        assert not block.columns["js"][0].any()


def test_top_tokens_are_those_of_the_table(run: RunDirectory, payload: Payload) -> None:
    rows = read_table(run.probe_path / "topk.parquet", TOPK_SCHEMA).to_pylist()
    models = ["dpo-8", *(checkpoint["label"] for checkpoint in payload.index["checkpoints"])]
    block = unpacked(payload, 11)
    wanted = {(models.index(row["checkpoint"]), row["position"]): row for row in rows if row["sequence_id"] == 11}
    assert block.tops.keys() == wanted.keys()
    for place, row in wanted.items():
        assert [word for word, _ in block.tops[place]] == row["tokens"]
        np.testing.assert_allclose([prob for _, prob in block.tops[place]], row["probs"], atol=1e-5)


def test_of_too_many_top_tokens_those_of_two_models_and_at_spikes_stay(
    inputs: ReportInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_MAX_TOPS", 10)
    payload = made(inputs)
    block = unpacked(payload, 0)
    last, tokens = len(payload.index["checkpoints"]), set(range(len(block.words)))
    at_spikes = {position for lists in block.facts["spikes"].values() for spikes in lists for position in spikes}
    assert at_spikes
    for model in range(last + 1):
        kept = {position for place, position in block.tops if place == model}
        assert kept == (tokens if model in (0, last) else at_spikes)


def test_tokens_are_named_as_the_vocabulary_writes_them(payload: Payload) -> None:
    block = unpacked(payload, 0)
    tokens, gaps = block.facts["tokens"], block.facts["gaps"]
    assert (tokens[:4], gaps[:3], tokens[-1]) == (["9", "+", "7", "+"], ["", " ", " "], "")
    assert block.words == [*tokens[:-1], "<eos>"]


def test_without_top_tokens_a_token_has_its_text_or_its_number(changed: Any) -> None:
    payload = made(changed(**dict.fromkeys(("topk", "spikes", "interventions"), lambda rows: [])))
    block = unpacked(payload, 0)
    assert block.words[:2] == ["9", " +"]
    assert block.words[-1].startswith("[")
    assert (block.tops, block.facts["swaps"]) == ({}, [])
    assert not any(positions for lists in block.facts["spikes"].values() for positions in lists)
    assert payload.index["rollouts"][0]["effect"] is None
    assert "this has the token at which rl-80 differs most among those" in payload.index["why"]


def test_offsets_count_characters_beyond_the_basic_plane(changed: Any) -> None:
    text = "\N{GOTHIC LETTER AHSA}\N{GOTHIC LETTER BAIRKAN} \N{GRINNING FACE}\N{ZERO WIDTH JOINER}!\u2028</script>"

    def write(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        num = len(rows[0]["token_starts"])
        cuts = [min(place, len(text)) for place in range(num + 1)]
        return [{**rows[0], "text": text, "token_starts": cuts[:-1], "token_ends": cuts[1:]}, *rows[1:]]

    facts = unpacked(made(changed(sequences=write)), 0).facts
    assert "".join(gap + token for gap, token in zip(facts["gaps"], [*facts["tokens"], ""], strict=True)) == text
    assert facts["tokens"][:2] == ["\N{GOTHIC LETTER AHSA}", "\N{GOTHIC LETTER BAIRKAN}"]


def test_spikes_come_by_height(run: RunDirectory, payload: Payload) -> None:
    rows = read_table(run.probe_path / "spikes.parquet", SPIKES_SCHEMA).to_pylist()
    spikes = unpacked(payload, 2).facts["spikes"]
    for name in ("kl_forward", "kl_reverse", "js"):
        for checkpoint, positions in zip(payload.index["checkpoints"], spikes[name], strict=True):
            wanted = (2, checkpoint["label"], name, "zscore")
            of_list = [
                (row["height"], row["position"])
                for row in rows
                if (row["sequence_id"], row["checkpoint"], row["divergence"], row["method"]) == wanted
            ]
            assert positions == [position for _, position in sorted(of_list)]


def test_the_list_says_where_and_how_high_a_rollout_diverges(run: RunDirectory, payload: Payload) -> None:
    rows = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    entry = payload.index["rollouts"][4]
    heights = [
        row["js"] for row in rows if (row["sequence_id"], row["checkpoint"], row["reference"]) == (4, "rl-80", "dpo-8")
    ]
    assert (entry["length"], entry["position"]) == (len(heights), int(np.argmax(heights)))
    assert entry["peak"] == pytest.approx(max(heights), rel=1e-3)
    spark = np.frombuffer(base64.b64decode(entry["spark"]), np.uint8)
    assert len(spark) == min(64, len(heights))
    assert spark.max() == round(255 * min(1, max(heights) / payload.index["top"]["js"]) ** 0.5)


def test_the_darkest_shade_is_what_one_token_in_two_hundred_of_the_final_checkpoint_has(
    run: RunDirectory, payload: Payload
) -> None:
    rows = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    for name, top in payload.index["top"].items():
        values = sorted(row[name] for row in rows if (row["checkpoint"], row["reference"]) == ("rl-80", "dpo-8"))
        place = 0.995 * (len(values) - 1)
        low, high = values[int(place)], values[int(place) + 1]
        assert top == pytest.approx(low + (place % 1) * (high - low), rel=1e-3)


def test_the_final_checkpoints_own_completion_is_joined_by_problem(payload: Payload) -> None:
    entry = payload.index["rollouts"][0]
    assert entry["final_answer"] == entry["gold"]
    assert entry["answer"] != entry["gold"]
    assert unpacked(payload, 0).facts["finalText"].replace(" ", "").endswith(entry["gold"])


def test_without_greedy_completions_the_final_checkpoints_own_rollouts_say_what_it_writes(
    inputs: ReportInputs, changed: Callable[..., ReportInputs]
) -> None:
    assert inputs.tables is not None
    problem = inputs.tables.sequences["problem_id"][0].as_py()

    # Two more of rl-80 to the problem of the first rollout: the first of them counts, also where it is wrong.
    def sampled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row, said in zip(rows[-2:], ("77777", "88888"), strict=True):
            row |= {"problem_id": problem, "label": "rl-80", "extracted": said, "correct": False}
        return rows

    entry, *_, last = made(replace(changed(sequences=sampled), final_completions={})).index["rollouts"]
    assert (entry["final_answer"], entry["final_correct"]) == ("77777", False)
    assert last["answer"] == "88888"
    # A problem that it did not answer has none, and greedy completions go first.
    assert made(replace(inputs, final_completions={})).index["rollouts"][1]["final_answer"] is None
    assert made(changed(sequences=sampled)).index["rollouts"][0]["final_correct"] is True


def test_all_rollouts_up_to_so_many_cells_are_in_the_page(
    inputs: ReportInputs, payload: Payload, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(payload.blobs) == 14
    assert all(entry["held"] for entry in payload.index["rollouts"])
    assert base64.b64decode(payload.blobs[5]) == payload.encode(5)
    cells = [entry["length"] * 8 for entry in payload.index["rollouts"]]
    for most, num in ((sum(cells[:3]), 3), (sum(cells[:4]) - 1, 3), (1, 1)):
        monkeypatch.setattr(rollouts, "MAX_CELLS", most)
        cut = made(inputs)
        assert [entry["held"] for entry in cut.index["rollouts"]] == [True] * num + [False] * (14 - num)
        assert cut.blobs == payload.blobs[:num]
        assert cut.encode(13) == payload.encode(13)
        assert cut.index["hero"] < num
        assert cut.index["why"].startswith(
            f"Rollout {cut.index['hero']}: of {num} rollout{'s' * (num > 1)} (dpo-8 wrong, rl-80 right, in this file), "
        )


def test_what_is_infinite_or_was_not_measured_has_no_value(changed: Any) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        assert (rows[0]["checkpoint"], rows[0]["reference"], rows[0]["position"]) == ("rl-5", "dpo-8", 0)
        rows[0]["kl_reverse"] = float("inf")
        return [row for row in rows if (row["sequence_id"], row["checkpoint"]) not in {(1, "rl-80"), (2, "rl-5")}]

    payload = made(changed(tokens=change))
    columns = unpacked(payload, 0).columns
    assert np.isnan(columns["kl_reverse"][1][0])
    assert np.isfinite(columns["kl_forward"]).all()
    assert 0 < payload.index["top"]["kl_reverse"] < 100
    assert not unpacked(payload, 1).columns["rank"][8].any()
    assert unpacked(payload, 1).columns["rank"][7].all()
    assert not unpacked(payload, 2).columns["rank"][1].any()
    assert unpacked(payload, 2).columns["rank"][0].all()
    entry = payload.index["rollouts"][1]
    assert (entry["peak"], entry["position"], set(base64.b64decode(entry["spark"]))) == (None, None, {0})
    json.dumps(payload.index, allow_nan=False)


@pytest.mark.filterwarnings("error")
def test_an_infinite_divergence_is_deepest_in_the_curve(changed: Any) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "js": float("inf") if row["sequence_id"] == 1 else row["js"]} for row in rows]

    entry = made(changed(tokens=change)).index["rollouts"][1]
    assert (entry["peak"], entry["position"], set(base64.b64decode(entry["spark"]))) == (None, 0, {255})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unknown", [float("nan"), None])
def test_a_list_of_top_tokens_without_probabilities_is_not_shown(changed: Any, unknown: float | None) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**rows[0], "probs": [*rows[0]["probs"][:-1], unknown]}, *rows[1:]]

    left, right = (unpacked(made(changed(topk=function)), 0).tops for function in (change, list))
    assert right.keys() - left.keys() == {(0, 0)}


def test_checkpoints_are_named_by_steps_of_their_stage(inputs: ReportInputs, payload: Payload) -> None:
    assert payload.index["checkpoints"][-1] == {"label": "rl-80", "name": "80"}
    unknown = made(replace(inputs, evaluations=()))
    assert unknown.index["checkpoints"][-1] == {"label": "rl-80", "name": "rl-80"}


def test_populations_are_named_and_rollouts_keep_their_order(inputs: ReportInputs, payload: Payload) -> None:
    assert payload.index["populations"] == [
        {"title": "dpo-8 wrong, rl-80 right", "note": "Completions of dpo-8."},
        {"title": "dpo-8 right", "note": "Completions of dpo-8."},
    ]
    listed = payload.index["rollouts"]
    assert [entry["population"] for entry in listed] == [0] * 12 + [1] * 2
    assert inputs.tables is not None
    sequences = inputs.tables.sequences
    assert [entry["problem"] for entry in listed] == sequences["problem_id"].to_pylist()
    assert [entry["wrong"] for entry in listed] == sequences["first_wrong"].to_pylist()
    questions = [entry["question"] for entry in listed]
    assert questions == [joined_digits(text, text) for text in sequences["question"].to_pylist()]
    assert (listed[-1]["source"], listed[-1]["correct"], listed[-1]["wrong"]) == ("dpo-8", True, None)


def test_swaps_are_those_of_the_reference_if_there_are_any(payload: Payload, changed: Any) -> None:
    swaps = unpacked(payload, 1).facts["swaps"]
    assert [(row["selection"], row["arm"]) for row in swaps] == [
        (selection, arm)
        for selection in ("spike", "matched", "random")
        for arm in ("reference", "checkpoint", "alternative")
    ]
    assert {(row["policy"], row["spike"]) for row in swaps} == {("reference", 1)}
    assert payload.index["rollouts"][1]["effect"] == [swaps[0]["successes"], swaps[1]["successes"], 16]
    lacking = made(changed(interventions=lambda rows: [row for row in rows if row["arm"] != "checkpoint"]))
    assert lacking.index["rollouts"][1]["effect"] is None
    own = made(changed(interventions=lambda rows: [row for row in rows if row["policy"] == "checkpoint"]))
    assert {row["policy"] for row in unpacked(own, 1).facts["swaps"]} == {"checkpoint"}


def test_the_first_rollout_is_the_one_that_a_token_turns_most(changed: Any) -> None:
    def turn(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        best = {"reference": 0, "checkpoint": 16}
        return [{**row, "num_successes": best.get(row["arm"], 0) if row["sequence_id"] == 7 else 3} for row in rows]

    index = made(changed(interventions=turn)).index
    assert index["hero"] == 7
    assert index["why"] == (
        "Rollout 7: of 12 rollouts (dpo-8 wrong, rl-80 right), this is the one that rl-80's token at the spike "
        "improves most; of equals, it has the largest divergence. Over all 100 spikes right answers go from 6% to 94%. "
        "The shade of a token is how far rl-80 moved its prediction from that of dpo-8, given the same text before it."
    )


def test_where_no_token_helps_the_first_rollout_is_the_one_that_diverges_most(changed: Any) -> None:
    def helpless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "num_successes": 3} for row in rows]

    def same(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "argmax": row["argmax_ref"]} for row in rows]

    index = made(changed(interventions=helpless, tokens=same)).index
    peaks = [entry["peak"] for entry in index["rollouts"][:12]]
    assert index["hero"] == peaks.index(max(peaks))
    assert index["heroToken"] == index["rollouts"][index["hero"]]["position"]
    assert "this has the token at which rl-80 differs most from dpo-8." in index["why"]


def test_where_no_token_helps_one_that_another_would_be_written_for_comes_first(changed: Any) -> None:
    def other(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        places = {(4, 2): 0.2, (5, 3): 0.3}
        return [
            {**row, "argmax": row["argmax_ref"] + ((row["sequence_id"], row["position"]) in places),
             "js": places.get((row["sequence_id"], row["position"]), row["js"])}
            for row in rows
        ]  # fmt: skip

    index = made(changed(interventions=lambda rows: [], tokens=other)).index
    assert (index["hero"], index["heroToken"]) == (5, 3)
    assert index["rollouts"][5]["position"] != 3


def test_the_first_rollout_is_one_that_is_repaired(inputs: ReportInputs) -> None:
    finals = {name: replace(final, correct=False) for name, final in inputs.final_completions.items()}
    assert inputs.tables is not None
    problem = inputs.tables.sequences["problem_id"][5].as_py()
    finals[problem] = replace(finals[problem], correct=True)
    index = made(replace(inputs, final_completions=finals)).index
    assert index["hero"] == 5
    assert index["why"].startswith("Rollout 5: of 1 rollout (dpo-8 wrong, rl-80 right, wrong where rl-80 is right), ")


def test_the_first_rollout_is_one_that_can_be_read(inputs: ReportInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [entry["length"] for entry in made(inputs).index["rollouts"][:12]]
    assert min(lengths) < max(lengths)
    monkeypatch.setattr(rollouts, "_READABLE", min(lengths))
    index = made(inputs).index
    num = lengths.count(min(lengths))
    assert lengths[index["hero"]] == min(lengths)
    assert index["why"].startswith(
        f"Rollout {index['hero']}: of {num} rollout{'s' * (num > 1)} (dpo-8 wrong, rl-80 right, at most "
    )
    monkeypatch.setattr(rollouts, "_READABLE", 1)
    assert made(inputs).index["why"].split(": ")[1].startswith("of 12 rollouts (dpo-8 wrong, rl-80 right), ")


def test_hostile_text_stays_as_it_is(payload: Payload, synthetic: Any) -> None:
    block = unpacked(payload, 11)
    assert block.words[: len(synthetic.HOSTILE_TOKENS)] == list(synthetic.HOSTILE_TOKENS)


def test_without_a_probe_there_is_nothing_to_show(inputs: ReportInputs) -> None:
    assert rollout_payload(replace(inputs, summary=None)) is None


@given(st.text(max_size=30), st.data())
def test_pieces_join_to_the_text(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=0, max_size=12)))
    starts, ends = cuts[0::2], cuts[1::2]
    row = {"text": text, "token_starts": starts[: len(ends)], "token_ends": ends, "completion_ids": range(len(ends))}
    tokens, gaps, pieces = split_pieces(row).values()
    assert len(gaps) == len(tokens) + 1
    assert "".join(gap + token for gap, token in zip(gaps, [*tokens, ""], strict=True)) == text
    cut = [text[start:end] for start, end in zip(starts, ends, strict=False)]
    assert pieces == [piece or f"[{id}]" for id, piece in enumerate(cut)]
    assert tokens == [piece.lstrip(" ") or piece for piece in cut]


def test_a_column_that_an_earlier_probe_did_not_measure_is_left_out(inputs: ReportInputs) -> None:
    assert inputs.tables is not None
    place = inputs.tables.tokens.schema.get_field_index("entropy")
    nothing = pa.nulls(len(inputs.tables.tokens), pa.float32())
    tokens = inputs.tables.tokens.set_column(place, "entropy", nothing)
    found = made(replace(inputs, tables=replace(inputs.tables, tokens=tokens)))
    assert found.index["columns"] == ["js", "kl_forward", "kl_reverse", "logprob"]
    assert unpacked(found, 3).columns["logprob"].max() <= 0
