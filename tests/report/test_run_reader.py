"""What Python and notebooks read of a run: frames, the result of its probe, and how both are shown."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from swerve import Run
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.probe.result import ProbeResult, read_result


@pytest.fixture(scope="module")
def result(run: RunDirectory) -> ProbeResult:
    found = read_result(run)
    assert found is not None
    return found


def test_frames_of_a_run(run: RunDirectory) -> None:
    pytest.importorskip("pandas")
    reader = Run(run)
    metrics, evaluations, tokens, spikes = reader.metrics, reader.evaluations, reader.tokens, reader.spikes
    assert metrics["step"].is_monotonic_increasing
    assert evaluations.checkpoint.tolist()[-1] == "rl-80"
    assert (
        (evaluations.accuracy_low <= evaluations.accuracy) & (evaluations.accuracy <= evaluations.accuracy_high)
    ).all()
    assert "sampled_accuracy" in evaluations.columns
    assert len(tokens) == pq.read_metadata(run.probe_path / "tokens.parquet").num_rows
    # The texts of a rollout's tokens, one after the other, are the rollout's text.
    summary = reader.summary
    assert summary is not None
    one = tokens.query("sequence_id == 0 and checkpoint == @summary.final and reference == @summary.reference")
    rows = pq.read_table(run.probe_path / "sequences.parquet").to_pylist()
    assert "".join(one.token) == rows[0]["text"]
    assert set(one.problem_id) == {rows[0]["problem_id"]}
    assert set(spikes.method) <= {"zscore", "percentile", "adaptive", "absolute", "calibrated"}
    assert spikes.token.map(type).eq(str).all()


def test_a_token_has_what_stands_before_it_and_what_another_in_its_place_repairs(run: RunDirectory) -> None:
    pytest.importorskip("pandas")
    tokens = Run(run).tokens
    one = tokens.query("sequence_id == 0 and checkpoint == 'rl-80' and reference == 'dpo-8'").set_index("position")
    text = pq.read_table(run.probe_path / "sequences.parquet")["text"][0].as_py()
    starts = pq.read_table(run.probe_path / "sequences.parquet")["token_starts"][0].as_py()
    assert one["context"][0] == ""
    assert one["context"][3] == text[: starts[3]].strip()
    assert all(text[: starts[at]].rstrip().endswith(one["context"][at]) for at in one.index)
    assert one["context"].str.len().max() <= 28
    assert (one["rank_change"] == one["rank_ref"] - one["rank"]).all()

    # Where tokens were forced, the fraction right after the checkpoint's less that after the rollout's own.
    forced = pq.read_table(run.probe_path / "interventions.parquet").to_pylist()
    own = [row for row in forced if (row["sequence_id"], row["policy"]) == (0, "reference")]
    for position in {row["position"] for row in own}:
        rate = {
            row["arm"]: row["num_successes"] / row["num_continuations"] for row in own if row["position"] == position
        }
        assert one["repair"][position] == pytest.approx(rate["checkpoint"] - rate["reference"])
    assert one["repair"].notna().sum() == len({row["position"] for row in own}) > 0


def test_the_result_of_a_runs_probe(run: RunDirectory, result: ProbeResult) -> None:
    summary = Run(run).summary
    assert summary is not None
    assert (result.checkpoint, result.reference, result.summary) == (summary.final, summary.reference, summary)
    assert np.unique(result.sequence_ids).tolist() == list(range(12))
    means = {entry.checkpoint: entry.js.mean for entry in summary.divergences if entry.js is not None}
    assert len(result.token_ids) == len(result.js) == len(result.texts or ())
    assert summary.final in means
    sequences = pq.read_table(run.probe_path / "sequences.parquet").to_pylist()
    chosen = [one["sequence_id"] for one in sequences if one["population"] == summary.population]
    of_run = Run(run).tokens.query("checkpoint == @summary.final and reference == @summary.reference")
    of_run = of_run[of_run.sequence_id.isin(chosen)]
    same = ["problem_id", "position", "token", "context", "token_id", "js", "category"]
    told = of_run.sort_values(["sequence_id", "position"])[same].reset_index(drop=True)
    assert told.equals(result.tokens[same])
    lines = repr(result).splitlines()
    assert len(lines) == 4
    assert lines[0] == (
        f"ProbeResult: {summary.final} against {summary.reference}, {len(result.js):,} tokens of 12 responses"
        f" of {summary.reference}, chosen by {summary.population}"
    )
    assert lines[1].startswith("JS divergence, nats per token: mean ")
    assert summary.causal is not None
    selection = summary.causal.selections[0]
    effect = f"{100 * selection.effect.mean:+.1f} (+{100 * selection.effect.low:.1f} to"
    assert lines[3].startswith("at 100 spikes dpo-8 ends right")
    assert effect in lines[3]


def test_a_notebook_shows_coloured_tokens_and_no_markup_of_theirs(run: RunDirectory, result: ProbeResult) -> None:
    shown = result._repr_html_()
    assert shown.count("<pre") == 4  # the four lines, and three sequences
    assert "background: #b8430fb4" in shown
    page = Run(run)._repr_html_()
    assert page.endswith(shown)
    assert "demo-$x$&lt;b&gt;" in page
    assert "<b>" not in page


def test_the_figure_of_a_sequence(result: ProbeResult) -> None:
    axes = result.plot()
    series = result.by_sequence("js")
    highest = int(np.argmax([values.max() for values in series]))
    assert axes.get_lines()[0].get_ydata().tolist() == series[highest].tolist()
    assert axes.get_title().endswith(f"sequence {highest}")
    assert result.plot(0, axes, divergence="kl_forward") is axes
    with pytest.raises(ConfigError, match=r"there is no sequence 99; there are \d+, from 0"):
        result.plot(99)
