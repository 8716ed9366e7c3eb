"""A probe from plan to summary: measurements, tables, findings, causal tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from swerve.artifacts import tables
from swerve.artifacts.files import fsync, remove, sha256_file
from swerve.artifacts.parts import Parts
from swerve.artifacts.probe_findings import DIVERGENCES
from swerve.artifacts.probe_summary import Measured, ProbeSummary, Tested
from swerve.artifacts.responses import SEQUENCES_SCHEMA, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.functional.head_divergence import TopProbs
from swerve.models.runtime import apply_runtime
from swerve.models.sources import shared_bases
from swerve.probe.causal.causal_tests import CausalTests
from swerve.probe.engine.measured import Measurement, Measurements, measure_plan, token_table, topk_table
from swerve.probe.findings.biography import biography_rows
from swerve.probe.findings.spike_table import SpikeTable, all_spikes
from swerve.probe.plan import ProbePlan
from swerve.probe.summary_entries import Findings, cut_off_notes, summary_notes
from swerve.progress import Progress, SilentProgress
from swerve.version import __version__
from swerve.world import World

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


def execute_in(plan: ProbePlan, *, progress: Progress, world: World) -> ProbeSummary | None:
    """Execute a plan with the processes of a world: the first one locks the directory and writes; None for others."""
    if not world.is_main:
        worker(plan, world=world)
        return None
    with RunDirectory(Path(plan.recipe.out)).lock():
        return execute(plan, progress=progress, world=world)


def execute(plan: ProbePlan, *, progress: Progress, world: World | None = None) -> ProbeSummary:
    """Do everything a plan asks for; write its tables and, last, `summary.json`; return the summary.

    The processes of a world share the measurements and the causal tests; the others call `worker`.

    Raises:
        MismatchError: the models have different tokenizers or vocabularies.
        CheckpointError: a model is missing or damaged.
        DiskFullError: no room.
    """
    apply_runtime(plan.runtime)
    with shared_bases(plan.models):
        return _Execution(plan=plan, progress=progress, world=world or World()).run()


def worker(plan: ProbePlan, *, world: World) -> None:
    """Do this process's share of the measurements and the causal tests, for the first process to use."""
    apply_runtime(plan.runtime)
    if plan.headline:  # as the first process does: all of them wait for each other in there
        with shared_bases(plan.models):
            _Execution(plan=plan, progress=SilentProgress(), world=world, writes=False).share()


@dataclass(slots=True, kw_only=True)
class _Execution:
    plan: ProbePlan
    progress: Progress
    world: World
    writes: bool = True
    written: set[str] = field(default_factory=set)

    def run(self) -> ProbeSummary:
        plan, path = self.plan, self.plan.path / "summary.json"
        # From here on tables change; a summary beside tables of another probe would be worse than none.
        remove(path)
        for name in ("sequences", *_SCHEMAS):
            remove(plan.path / f"{name}.parquet")
        if self.writes:
            write_responses(plan.path / "sequences.parquet", plan.sequences, SEQUENCES_SCHEMA)
            self.written.add("sequences")
        headline = plan.headline
        measured, tested = self._measure() if headline else (Measured(), Tested())
        for name in _ALWAYS:
            if name not in self.written:
                self._write(name, [])
        summary = ProbeSummary(
            **{**dict(plan.compared), **dict(measured), **dict(tested)},
            population=plan.population,
            divergence=plan.settings.divergence,
            spike_method=plan.settings.spikes.method,
            confidence=plan.confidence,
            num_rollouts=len(headline),
            num_rollout_problems=len({sequence.problem.id for sequence in headline}),
            reliable=len(headline) >= plan.settings.min_rollouts,
        )
        notes = (*plan.notes, *summary_notes(summary, plan.settings), *cut_off_notes(summary, plan))
        digests = {f"{name}.parquet": sha256_file(plan.path / f"{name}.parquet") for name in sorted(self.written)}
        summary = summary.model_copy(update={"notes": notes, "tables": digests})
        summary.write(path)
        if not (plan.settings.keep_states or plan.keep_statistics):
            remove(plan.states_path)
            fsync(plan.path)  # or a power cut brings them back beside a probe that counts as done
        return summary

    def share(self) -> None:
        """Do the part of a process that is not the first."""
        measured = self._measured()
        headline, spikes = self._spikes(measured)
        self._test(headline, spikes, _tops(measured, headline))

    def _measured(self) -> Measurement:
        self.world.doing("running the models over the rollouts")
        return measure_plan(self.plan, store=self.plan.states_path, world=self.world, progress=self.progress)

    def _spikes(self, measured: Measurement) -> tuple[Measurements, SpikeTable]:
        """Return each checkpoint against the reference on the headline population, and the spikes found there."""
        headline = measured.against(self.plan.reference.label).select(
            lambda sequence: sequence.population == self.plan.population
        )
        nulls = {name: measured.null.columns[name][0] for name in DIVERGENCES}
        return headline, all_spikes(headline, self.plan.settings.spikes, nulls=nulls)

    def _measure(self) -> tuple[Measured, Tested]:
        plan, measured = self.plan, self._measured()
        self._write("tokens", token_table(measured.pairs))
        everything = measured.against(plan.reference.label)
        headline, spikes = self._spikes(measured)
        self._write("spikes", spikes.table())
        tops = _tops(measured, headline)
        self._write("topk", topk_table(headline.sequences, tops, measured.pieces))
        findings = Findings(plan=plan, measured=measured, everything=everything, headline=headline, spikes=spikes)
        entries = findings.entries()
        self._write("biographies", biography_rows(headline, findings.biographies))
        if plan.signals:
            self._write("signals", plan.signals)
        return entries, self._test(headline, spikes, tops)

    def _test(self, headline: Measurements, spikes: SpikeTable, tops: Mapping[str, TopProbs]) -> Tested:
        plan, world = self.plan, self.world
        world.doing("testing causes")
        parts = Parts(plan.states_path, self._inputs())
        tests = CausalTests(
            plan=plan, data=headline, spikes=spikes, tops=tops, parts=parts, progress=self.progress, world=world
        )
        entries: dict[str, Any] = {}
        for table, rows, entry in tests.run():
            self._write(table, rows)
            entries |= entry
        return Tested(**entries)

    def _inputs(self) -> list[Any]:
        """Return what every result of the causal tests depends on."""
        plan = self.plan
        return [
            __version__,
            torch.__version__,
            plan.seed,
            plan.max_new_tokens,
            plan.confidence,
            plan.runtime.max_rows,  # batches decide how sums are rounded, and so which token is drawn
            plan.runtime.grader_cpu_seconds,  # an answer beyond a limit is wrong
            plan.runtime.grader_memory_mb,
            plan.rollout.model_dump(mode="json"),
            plan.reference.fingerprint,
            [model.fingerprint for model in plan.checkpoints if model.label == plan.final],
        ]

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]] | pa.Table) -> None:
        """Write a table; an optional one only if it has rows."""
        if self.writes and (name in _ALWAYS or len(rows)):
            tables.write_table(self.plan.path / f"{name}.parquet", rows, _SCHEMAS[name])
            self.written.add(name)


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
