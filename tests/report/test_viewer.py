"""The data of the rollout viewer against the tables it comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import SPIKES_SCHEMA, TOKENS_SCHEMA, TOPK_SCHEMA, read_table
from swerve.report import viewer
from swerve.report.read import ReportInputs
from swerve.report.viewer import outside_spaces, split_pieces, viewer_payload


@pytest.fixture(scope="module")
def payload(inputs: ReportInputs) -> dict[str, Any]:
    made = viewer_payload(inputs, max_rollouts=40)
    assert made is not None
    return made


def test_divergences_are_those_of_the_table(run: RunDirectory, payload: dict[str, Any]) -> None:
    rows = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    wanted = [row for row in rows if (row["sequence_id"], row["checkpoint"], row["reference"]) == (3, "rl-30", "dpo-8")]
    entry = payload["rollouts"][3]["by_checkpoint"][payload["checkpoints"].index("rl-30")]
    for name in ("kl_forward", "kl_reverse", "js", "entropy", "logprob", "rank"):
        assert entry[name] == pytest.approx([row[name] for row in wanted], rel=1e-3, abs=1e-8)
    reference = payload["rollouts"][3]["reference"]
    assert reference["rank"] == [row["rank_ref"] for row in wanted]
    assert reference["logprob"] == pytest.approx([row["logprob_ref"] for row in wanted], rel=1e-3)


def test_top_tokens_are_those_of_the_table(run: RunDirectory, payload: dict[str, Any]) -> None:
    rows = read_table(run.probe_path / "topk.parquet", TOPK_SCHEMA).to_pylist()
    for label, top in (
        ("dpo-8", payload["rollouts"][1]["reference"]["top"]),
        ("rl-80", payload["rollouts"][1]["by_checkpoint"][-1]["top"]),
    ):
        wanted = [row for row in rows if row["sequence_id"] == 1 and row["checkpoint"] == label]
        assert [[payload["vocabulary"][i] for i in flat[::2]] for flat in top] == [row["tokens"] for row in wanted]
        for flat, row in zip(top, wanted, strict=True):
            assert flat[1::2] == pytest.approx(row["probs"], abs=5e-5)


def test_tokens_are_named_as_the_vocabulary_writes_them(payload: dict[str, Any]) -> None:
    rollout = payload["rollouts"][0]
    assert rollout["tokens"][:4] == ["9", "+", "7", "+"]
    assert rollout["gaps"][:3] == ["", " ", " "]
    assert rollout["tokens"][-1] == ""
    assert [payload["vocabulary"][word] for word in rollout["words"]] == [*rollout["tokens"][:-1], "<eos>"]


def test_spikes_come_by_height(run: RunDirectory, payload: dict[str, Any]) -> None:
    rows = read_table(run.probe_path / "spikes.parquet", SPIKES_SCHEMA).to_pylist()
    wanted = sorted(
        (row["height"], row["position"])
        for row in rows
        if (row["sequence_id"], row["checkpoint"], row["divergence"], row["method"]) == (2, "rl-40", "js", "zscore")
    )
    entry = payload["rollouts"][2]["by_checkpoint"][payload["checkpoints"].index("rl-40")]
    assert entry["spikes"]["js"] == [position for _, position in wanted]


def test_the_final_checkpoints_own_completion_is_joined_by_problem(payload: dict[str, Any]) -> None:
    first = payload["rollouts"][0]
    assert first["final"]["answer"] == first["gold"]
    assert first["answer"] != first["gold"]


def test_rollouts_are_limited_by_option_and_by_size(inputs: ReportInputs, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of the headline population, and at least one of the other.
    assert [rollout["id"] for rollout in viewer_payload(inputs, max_rollouts=2)["rollouts"]] == [0, 1, 12]  # type: ignore[index]
    monkeypatch.setattr(viewer, "MAX_CELLS", 1)
    assert [rollout["id"] for rollout in viewer_payload(inputs, max_rollouts=2)["rollouts"]] == [0]  # type: ignore[index]


def test_an_infinite_divergence_is_null_and_leaves_the_scale_finite(inputs: ReportInputs) -> None:
    assert inputs.tables is not None
    rows = inputs.tables.tokens.to_pylist()
    assert (rows[0]["checkpoint"], rows[0]["reference"]) == ("rl-5", "dpo-8")
    rows[0]["kl_reverse"] = float("inf")
    tables = replace(inputs.tables, tokens=inputs.tables.tokens.from_pylist(rows, schema=TOKENS_SCHEMA))
    payload = viewer_payload(replace(inputs, tables=tables), max_rollouts=1)
    assert payload is not None
    assert payload["rollouts"][0]["by_checkpoint"][0]["kl_reverse"][0] is None
    assert 0 < payload["max"]["kl_reverse"] < 100
    assert json.loads(json.dumps(payload, allow_nan=False))["populations"][0]["total"] == 12


def test_populations_are_named_and_the_headline_one_comes_first(inputs: ReportInputs) -> None:
    assert inputs.tables is not None
    backwards = inputs.tables.sequences.take(list(range(13, -1, -1)))
    payload = viewer_payload(replace(inputs, tables=replace(inputs.tables, sequences=backwards)), max_rollouts=4)
    assert payload is not None
    assert [(one["id"], one["shown"], one["total"]) for one in payload["populations"]] == [
        ("reference_wrong_final_right", 4, 12),
        ("reference_right", 1, 2),
    ]
    assert [rollout["id"] for rollout in payload["rollouts"]] == [11, 10, 9, 8, 13]
    assert [rollout["correct"] for rollout in payload["rollouts"]] == [False] * 4 + [True]
    other = payload["rollouts"][-1]
    assert (other["population"], other["source"], other["wrong"]) == ("reference_right", "dpo-8", [])
    assert other["reference"]["top"] is None
    assert other["by_checkpoint"][-1]["spikes"] == {"kl_forward": [], "kl_reverse": [], "js": []}


def test_continuations_are_those_of_the_reference_if_there_are_any(inputs: ReportInputs) -> None:
    assert inputs.tables is not None
    assert inputs.tables.interventions is not None
    payload = viewer_payload(inputs, max_rollouts=1)
    assert payload is not None
    causal = payload["rollouts"][0]["causal"]
    assert [(row["selection"], row["arm"]) for row in causal] == [
        (selection, arm)
        for selection in ("spike", "matched", "random")
        for arm in ("reference", "checkpoint", "alternative")
    ]
    assert {row["policy"] for row in causal} == {"reference"}
    rows = [row for row in inputs.tables.interventions.to_pylist() if row["policy"] == "checkpoint"]
    own = inputs.tables.interventions.from_pylist(rows, schema=inputs.tables.interventions.schema)
    payload = viewer_payload(replace(inputs, tables=replace(inputs.tables, interventions=own)), max_rollouts=1)
    assert payload is not None
    assert {row["policy"] for row in payload["rollouts"][0]["causal"]} == {"checkpoint"}


def test_without_a_probe_there_is_nothing_to_view(inputs: ReportInputs) -> None:
    assert viewer_payload(replace(inputs, summary=None), max_rollouts=40) is None


@given(st.text(max_size=30), st.data())
def test_pieces_join_to_the_text(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=0, max_size=12)))
    starts, ends = cuts[0::2], cuts[1::2]
    tokens, gaps = split_pieces(text, starts[: len(ends)], ends)
    assert len(gaps) == len(tokens) + 1
    assert "".join(gap + token for gap, token in zip(gaps, [*tokens, ""], strict=True)) == text
    assert tokens == [text[start:end] for start, end in zip(starts, ends, strict=False)]
    shown, moved = outside_spaces(tokens, gaps)
    assert "".join(gap + token for gap, token in zip(moved, [*shown, ""], strict=True)) == text
    assert all(not token.startswith(" ") or token.isspace() for token in shown)
