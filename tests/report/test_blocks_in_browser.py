"""What `cells.js` reads of the page's blocks, in headless Chromium, against the tables they come from."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import TOKENS_SCHEMA, TOPK_SCHEMA, read_table
from swerve.report.page import json_block
from swerve.report.read import ReportInputs
from swerve.report.rollouts import rollout_payload

pytestmark = [pytest.mark.browser, pytest.mark.slow]

READ = """async (number) => {
  const rollout = await readRollout(number);
  const { checkpoints } = pageData.rollouts;
  const names = ["js", "kl_forward", "kl_reverse", "entropy", "logprob", "rank"];
  const listed = (column) => column && Array.from(column);
  const ofModel = (column) => Object.fromEntries(names.map((name) => [name, listed(column(name))]));
  const tops = (checkpoint) => rollout.tokens.map((_, position) => rollout.top(checkpoint, position));
  return {
    isKept: (await readRollout(number)) === rollout,
    texts: [rollout.tokens, rollout.gaps, rollout.words, rollout.categories, rollout.finalText],
    wrong: rollout.wrong,
    reference: ofModel(rollout.ofReference),
    columns: checkpoints.map((_, k) => ofModel((name) => rollout.column(name, k))),
    tops: [-1, ...checkpoints.keys()].map(tops),
    spikes: rollout.spikes,
    swaps: rollout.swaps,
  };
}"""


@pytest.fixture
def opened(browser: Any, inputs: ReportInputs, tmp_path: Path) -> Any:
    """A page of the blocks and nothing else; the final checkpoint was not measured on rollout 1."""
    assert inputs.tables is not None
    tokens = inputs.tables.tokens
    rows = [row for row in tokens.to_pylist() if (row["sequence_id"], row["checkpoint"]) != (1, "rl-80")]
    tables = replace(inputs.tables, tokens=tokens.from_pylist(rows, schema=tokens.schema))
    payload = rollout_payload(replace(inputs, tables=tables))
    assert payload is not None
    assets = files("swerve.report") / "assets"
    scripts = "\n".join((assets / name).read_text(encoding="utf-8") for name in ("dom.js", "cells.js"))
    data = json_block({"rollouts": payload.index})
    blocks = (
        f'<script type="application/octet-stream" id="r{n}">{blob}</script>' for n, blob in enumerate(payload.blobs)
    )
    path = tmp_path / "blocks.html"
    head = f'<meta charset="utf-8"><script type="application/json" id="data">{data}</script><script>{scripts}</script>'
    path.write_text(head + "".join(blocks), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    yield page
    page.close()


def test_every_number_is_that_of_the_tables(
    opened: Any, run: RunDirectory, inputs: ReportInputs, synthetic: Any
) -> None:
    rows = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    rows = [row for row in rows if row["reference"] == "dpo-8" and row["sequence_id"] == 11]
    labels = list(dict.fromkeys(row["checkpoint"] for row in rows))
    block = opened.evaluate(READ, 11)
    assert block["isKept"]

    # Numbers of the models
    for label, columns in zip(labels, block["columns"], strict=True):
        own = [row for row in rows if row["checkpoint"] == label]
        for name in ("js", "kl_forward", "kl_reverse", "entropy", "logprob"):
            np.testing.assert_allclose(columns[name], [row[name] for row in own], rtol=0.004, atol=1e-12)
        assert columns["rank"] == [row["rank"] for row in own]
    for name in ("entropy", "logprob"):
        np.testing.assert_allclose(block["reference"][name], [row[f"{name}_ref"] for row in own], rtol=0.004)
    assert block["reference"]["rank"] == [row["rank_ref"] for row in own]

    # Top tokens, of the reference first
    lists = read_table(run.probe_path / "topk.parquet", TOPK_SCHEMA).to_pylist()
    for label, tops in zip(["dpo-8", *labels], block["tops"], strict=True):
        own = [row for row in lists if (row["sequence_id"], row["checkpoint"]) == (11, label)]
        assert [[word for word, _ in pairs] for pairs in tops] == [row["tokens"] for row in own]
        for pairs, row in zip(tops, own, strict=True):
            np.testing.assert_allclose([share for _, share in pairs], row["probs"], atol=1e-5)

    # Texts as they are, whatever they hold
    tokens, gaps, words, categories, final = block["texts"]
    sequence = inputs.tables.sequences.to_pylist()[11]  # type: ignore[union-attr]
    assert "".join(gap + token for gap, token in zip(gaps, [*tokens, ""], strict=True)) == sequence["text"]
    assert words[: len(synthetic.HOSTILE_TOKENS)] == list(synthetic.HOSTILE_TOKENS)
    assert categories == [row["category"] for row in rows if row["checkpoint"] == labels[0]]
    assert final == inputs.final_completions[sequence["problem_id"]].text
    wrong = [list(pair) for pair in zip(sequence["wrong_positions"], sequence["wrong_expected"], strict=True)]
    assert block["wrong"] == wrong
    assert [len(lists) for lists in block["spikes"].values()] == [len(labels)] * 3
    assert block["spikes"]["js"][-1][0] == int(np.argmax(block["columns"][-1]["js"]))
    assert [swap["spike"] for swap in block["swaps"]] == [11] * 9


def test_what_was_not_measured_is_null(opened: Any) -> None:
    block = opened.evaluate(READ, 1)
    assert block["columns"][-1] == dict.fromkeys(("js", "kl_forward", "kl_reverse", "entropy", "logprob", "rank"))
    assert None not in block["columns"][0].values()
    # Another population of which no top tokens were written.
    assert {pairs for tops in opened.evaluate(READ, 13)["tops"] for pairs in tops} == {None}


def test_a_rollout_that_is_not_in_the_file_says_so(opened: Any) -> None:
    message = opened.evaluate("readRollout(99).catch((error) => error.message)")
    assert message == "This rollout is not in the file; swerve view opens it."
