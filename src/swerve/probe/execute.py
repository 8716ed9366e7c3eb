"""A probe from plan to summary: measurements, tables, findings, causal tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from swerve.artifacts import tables
from swerve.artifacts.files import fsync, remove, sha256_file
from swerve.artifacts.parts import Parts
from swerve.artifacts.probe_findings import DIVERGENCES
from swerve.artifacts.probe_summary import DivergenceFindings, ProbeSummary, Tested, read_summary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import write_responses
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError
from swerve.functional.head_divergence import TopProbs
from swerve.models.runtime import apply_runtime
from swerve.models.sources import shared_bases
from swerve.probe.causal.causal_tests import CausalTests
from swerve.probe.engine.measured import Measurement, Measurements, measure_plan, token_table, topk_table
from swerve.probe.findings.biography import biography_rows
from swerve.probe.findings.spike_table import all_spikes
from swerve.probe.plan import ProbePlan
from swerve.probe.summary_entries import findings, summary_notes, untested_notes
from swerve.progress import Progress, SilentProgress, tell
from swerve.text import counted
from swerve.version import __version__
from swerve.world import ALONE, World

_SCHEMAS: Mapping[str, pa.Schema] = {
    "tokens": tables.TOKENS_SCHEMA,
    "topk": tables.TOPK_SCHEMA,
    "spikes": tables.SPIKES_SCHEMA,
    "interventions": tables.INTERVENTIONS_SCHEMA,
    "prefix_values": tables.PREFIX_VALUES_SCHEMA,
    "cross_samples": tables.CROSS_SAMPLES_SCHEMA,
    "biographies": tables.BIOGRAPHIES_SCHEMA,
    "signals": tables.SIGNALS_SCHEMA,
    "attributions": tables.ATTRIBUTIONS_SCHEMA,
}

_ALWAYS = ("tokens", "topk", "spikes", "interventions")
"""Written even when empty: what the report reads."""


_Write = Callable[[str, "Sequence[Mapping[str, Any]] | pa.Table"], None]
"""Writes a table of the probe, by its name."""


def execute(plan: ProbePlan, *, progress: Progress, world: World = ALONE) -> ProbeSummary | None:
    """Do everything a plan asks for; write its tables and, last, `summary.json`; return the summary.

    A shard does its share, leaves it as parts and writes nothing; it returns None. The processes of a world share the
    measurements and the causal tests. The first one holds the directory and writes; the others return None.

    Raises:
        MismatchError: the models have different tokenizers or vocabularies.
        CheckpointError: a model is missing or damaged.
        ArtifactError: another process works in the directory.
        DiskFullError: no room.
        MissingShardsError: the share of the measurement is done, and the causal tests need that of other shards.
    """
    apply_runtime(plan.recipe.runtime)
    with shared_bases(plan.models):
        if world.is_main and not plan.shard.is_share:
            with RunDirectory(Path(plan.recipe.out)).lock():
                return _write_probe(plan, progress, world)
        if plan.headline:  # as the first process does: all of them wait for each other in there
            shown = progress if world.is_main else SilentProgress()
            _measure_and_test(plan, shown, world, lambda name, rows: None)
        return None


def _write_probe(plan: ProbePlan, progress: Progress, world: World) -> ProbeSummary:
    """Do the part of the first process, which writes."""
    # What is there already was measured otherwise.
    path = plan.path / "summary.json"
    with suppress(ArtifactError):
        if (before := read_summary(RunDirectory(Path(plan.recipe.out)))) is not None:
            tell(progress, _replaced(plan, before))

    # From here on tables change; a summary beside tables of another probe would be worse than none.
    remove(path)
    for name in ("sequences", *_SCHEMAS):
        remove(plan.path / f"{name}.parquet")
    write_responses(plan.path / "sequences.parquet", plan.sequences, SEQUENCES_SCHEMA)
    written = {"sequences"}

    def write(name: str, rows: Sequence[Mapping[str, Any]] | pa.Table) -> None:
        """Write a table; an optional one only if it has rows."""
        if name in _ALWAYS or len(rows):
            tables.write_table(plan.path / f"{name}.parquet", rows, _SCHEMAS[name])
            written.add(name)

    headline = plan.headline
    measured, tested = _measure_and_test(plan, progress, world, write) if headline else (DivergenceFindings(), Tested())
    for name in _ALWAYS:
        if name not in written:
            write(name, [])

    # The summary, with what its own entries call for, is written last.
    summary = ProbeSummary(
        **{**dict(plan.compared), **dict(measured), **dict(tested)},
        population=plan.population,
        divergence=plan.recipe.probe.divergence,
        spike_method=plan.recipe.probe.spikes.method,
        confidence=plan.confidence,
        num_rollouts=len(headline),
        num_rollout_problems=len({sequence.problem.id for sequence in headline}),
        reliable=len(headline) >= plan.recipe.probe.min_rollouts,
    )
    notes = (*plan.notes, *summary_notes(summary, plan.recipe.probe), *untested_notes(summary, plan))
    digests = {f"{name}.parquet": sha256_file(plan.path / f"{name}.parquet") for name in sorted(written)}
    summary = summary.model_copy(update={"notes": notes, "tables": digests})
    summary.write(path)
    if plan.recipe.probe.keep_states or plan.keep_statistics:
        Parts(plan.states_path, None).end_sharing()
    else:
        remove(plan.states_path)
        fsync(plan.path)  # or a power cut brings them back beside a probe that counts as done
    return summary


def _replaced(plan: ProbePlan, before: ProbeSummary) -> str:
    """Say that an earlier probe makes way, and how much it and the new one are of."""
    sizes = (
        f"{counted(num, 'rollout')} from {counted(problems, 'problem')}"
        for num, problems in (
            (before.num_rollouts, before.num_problems),
            (len(plan.headline), plan.compared.num_problems),
        )
    )
    said = f"the probe in {plan.path} was of other settings, evaluations or versions and is replaced"
    return f"{said}: {', now '.join(sizes)}"


def _measure_and_test(
    plan: ProbePlan, progress: Progress, world: World, write: _Write
) -> tuple[DivergenceFindings, Tested]:
    """Run the models over the rollouts, find spikes and test causes, together with all processes."""
    world.doing("running the models over the rollouts")
    measured = measure_plan(plan, store=plan.states_path, world=world, progress=progress)

    # Each checkpoint against the reference: everywhere, and the spikes of the headline population.
    everything = measured.against(plan.reference.label)
    headline = everything.select(lambda sequence: sequence.population == plan.population)
    nulls = {name: measured.null.columns[name][0] for name in DIVERGENCES}
    spikes = all_spikes(headline, plan.recipe.probe.spikes, nulls=nulls)
    tops = _tops(measured, headline)
    entries = DivergenceFindings()
    if world.is_main and not plan.shard.is_share:
        write("tokens", token_table(measured.pairs))
        write("spikes", spikes.table())
        write("topk", topk_table(headline, tops, measured.pieces))
        entries, histories = findings(plan, measured, everything, headline, spikes)
        write("biographies", biography_rows(headline, histories))
        write("signals", plan.signals)

    world.doing("testing causes")
    parts = Parts(plan.states_path, _inputs(plan), copied=plan.shard.copied)
    tests = CausalTests(plan=plan, data=headline, spikes=spikes, tops=tops, parts=parts, progress=progress, world=world)
    tested: dict[str, Any] = {}
    for table, rows, entry in tests.run():
        write(table, rows)
        tested |= entry
    return entries, Tested(**tested)


def _inputs(plan: ProbePlan) -> list[Any]:
    """Return what every result of the causal tests depends on."""
    return [
        __version__,
        torch.__version__,
        plan.recipe.seed,
        plan.max_new_tokens,
        plan.confidence,
        plan.recipe.runtime.max_rows,  # batches decide how sums are rounded, and so which token is drawn
        plan.recipe.runtime.grader_cpu_seconds,  # an answer beyond a limit is wrong
        plan.recipe.runtime.grader_memory_mb,
        plan.recipe.rollout.model_dump(mode="json"),
        plan.reference.fingerprint,
        [model.fingerprint for model in plan.checkpoints if model.label == plan.final],
    ]


def _tops(measured: Measurement, headline: Measurements) -> dict[str, TopProbs]:
    """Return the likeliest tokens on the headline population, of the reference and the checkpoints."""
    chosen = {sequence.sequence_id for sequence in headline.sequences}
    mask = np.repeat([sequence.sequence_id in chosen for sequence in measured.pairs.sequences], measured.pairs.lengths)
    rows = torch.from_numpy(mask)
    labels = [*dict.fromkeys(headline.references), *headline.checkpoints]
    return {
        label: TopProbs(probs=measured.tops[label].probs[rows], ids=measured.tops[label].ids[rows])
        for label in labels
        if label in measured.tops
    }
