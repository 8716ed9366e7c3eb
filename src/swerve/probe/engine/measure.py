"""The engine of the probe: any number of models and pairs, each model run once over the same sequences.

The unit of work is one forward batch of sequences of similar length. Models take turns: each is loaded once, run over
the units that need it, and every pair whose other model was there before is compared at once. What is kept of a model
between turns is its hidden states at the completion positions, and its output head for as long as a pair needs it.
With a folder as store, an interrupted measurement continues where it stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from swerve.artifacts.parts import Parts
from swerve.artifacts.shards import WHOLE, Shard
from swerve.batch import TokenSequence
from swerve.config.probe import ProbeConfig
from swerve.errors import ArtifactError
from swerve.functional.divergence import DivergenceStats
from swerve.functional.head_divergence import HeadBackend, TopProbs
from swerve.functional.row_sums import compiled_available
from swerve.models.head import Head, model_head
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import ModelSource
from swerve.probe.engine.forward import (
    STATISTICS,
    checked_model_head,
    pair_statistics,
    rebatched_hidden,
    unit_hidden,
)
from swerve.probe.engine.jobs import MeasureJob, MeasurePlan, TokenStats, plan_measurement
from swerve.probe.engine.store import TENSORS, open_units
from swerve.progress import ProgressTask
from swerve.world import World

# Logits of one model below which compiling takes longer than what it saves. The number of pairs plays no part: units of
# a pair that is continued beside others must be computed as before.
_COMPILED_PAYS_FROM = 2e9

_CHANGED = "hidden states or statistics were deleted while they were in use; run the command again"


def measure(
    models: Sequence[ModelSource],
    pairs: Sequence[tuple[str, str]],
    sequences: Sequence[TokenSequence],
    *,
    settings: ProbeConfig,
    store: Path | None = None,
    noise_of: str | None = None,
    noise_tokens: int | None = None,
    world: World | None = None,
    shard: Shard = WHOLE,
    on_tokens: Callable[[int], None] | None = None,
    positions: Sequence[Sequence[int]] | None = None,
) -> TokenStats:
    """Compare pairs of models at the completion positions of the sequences; each model is run once.

    The result does not depend on the number of processes, on interruptions, nor on where states are kept.

    Args:
        models: sources with labels of their own; those in no pair are left alone.
        pairs: (checkpoint P, reference Q) by label.
        sequences: (prompt ids, completion ids), at least one.
        settings: batches, chunks, kernel, likeliest tokens, and whether hidden states stay in the store, so that
            further pairs need no forward pass.
        store: folder for hidden states and statistics; None keeps them in memory.
        noise_of: the label of a model to compare with itself, run again in other batches; None for no null pair.
        noise_tokens: completion positions of the null pair, at most (but at least one unit); None for all.
        world: the processes that share the work, each with the same arguments; None for this one alone.
        shard: a share of the batches is done, whose statistics are left in the store; by default all.
        on_tokens: called with the number of completion positions done since the last call: in the end all positions
            once for each model in a pair, all processes together; those found in the store count too.
        positions: of each sequence those of its completion that are compared, at least one; the other tokens are read
            as context. None: all.

    Raises:
        ValueError: labels, pairs, sequences or settings are wrong, or a kernel is asked for that cannot be had.
        MismatchError: the models of a pair have different tokenizers, or one lacks an id or has too few positions; the
            message names them.
        DiskFullError: the store has no room.
        MissingShardsError: the share is done, but other shards have not done theirs.
    """
    plan = plan_measurement(
        models,
        pairs,
        sequences,
        settings=settings,
        noise_of=noise_of,
        noise_tokens=noise_tokens,
        kept=store is not None,
        positions=positions,
    )
    together = World() if world is None else world
    engine = _Engine(
        plan=plan,
        settings=settings,
        store=store,
        world=together,
        shard=shard,
        on_tokens=on_tokens or (lambda count: None),
    )
    engine.run()
    if shard.is_share:
        shard.check_none_missing(engine.missing_units(), "the measurement")
    measured = engine.collect()
    # The caller may remove the store, which another process may still read.
    together.barrier()
    return measured


@contextmanager
def shared_progress(task: ProgressTask, total: int, num_sharing: int) -> Iterator[Callable[[int], None]]:
    """Yield what shows the work of so many processes by this one's: the others do about as much in the same time."""
    left = total

    def advance(num: int) -> None:
        nonlocal left
        done = min(num * num_sharing, left)
        left -= done
        task.advance(done)

    yield advance
    if left:
        task.advance(left)  # the other processes are done too


@dataclass(slots=True, kw_only=True)
class _Engine:
    plan: MeasurePlan
    settings: ProbeConfig
    store: Path | None
    world: World
    shard: Shard
    on_tokens: Callable[[int], None]
    units: Parts = field(init=False)
    """Hidden states of each model and statistics of each pair, by forward batch."""
    heads: dict[str, Head] = field(init=False, default_factory=dict)
    turned: set[str] = field(init=False, default_factory=set)
    """Models that had their turn, and the one that has it."""
    missing: dict[MeasureJob, set[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.units = open_units(self.store, self.shard.copied)
        for job in self.plan.jobs:
            self.missing[job] = self._not_there(job, set(self._mine()).intersection(job.units))

    def missing_units(self) -> set[int]:
        """Return the units of which a comparison is not there."""
        return set().union(*(self._not_there(job, job.units) for job in self.plan.jobs))

    def _not_there(self, job: MeasureJob, units: Iterable[int]) -> set[int]:
        return {unit for unit in units if self.units.get("pair", [job.key, unit]) is None}

    def run(self) -> None:
        for label in self.plan.order:
            self.turned.add(label)
            units = {unit for unit in self._mine() if self._open_jobs(label, unit)}
            if units:
                self._run_model(label, units)
            else:
                self.on_tokens(sum(self.plan.num_tokens(unit) for unit in self._mine()))
        if not self._keep:  # a kill may have come between the statistics of a unit and its hidden states' end
            for label, unit in itertools.product(self.plan.order, self._mine()):
                self.units.drop("states", [self.plan.state_keys[label], unit])

    def _mine(self) -> Sequence[int]:
        everything = range(len(self.plan.units))
        return self.shard.own(everything) if self.shard.is_share else everything[self.world.rank :: self.world.size]

    def _run_model(self, label: str, units: set[int]) -> None:
        loaded = self.plan.sources[label].load()
        self.heads[label] = model_head(loaded.model)
        if self.settings.kernel == "compiled" and not compiled_available(loaded.model.device.type):
            raise ValueError("kernel 'compiled' needs a C++ compiler (Triton on a GPU); use 'auto' or 'eager'")
        is_checked = False
        for unit in self._mine():
            if unit in units:
                hidden = self._states(label, unit)
                is_stored = hidden is not None
                if hidden is None:
                    # Before its first forward pass a model's head is compared with its own logits.
                    if not is_checked:
                        checked_model_head(loaded, self.plan.sequences[0])
                        is_checked = True
                    hidden = unit_hidden(loaded, self.heads[label], self.plan.unit_sequences(unit))
                    hidden = hidden[self.plan.unit_rows(unit)]
                self._run_unit(label, loaded, unit, hidden, is_stored=is_stored)
            self.on_tokens(self.plan.num_tokens(unit))

        # Heads that no pair waits for go with the model.
        del loaded
        for other in list(self.heads):
            if not any(other in job.labels and left for job, left in self.missing.items()):
                del self.heads[other]

    def _run_unit(self, label: str, loaded: LoadedModel, unit: int, hidden: Tensor, *, is_stored: bool) -> None:
        """Do the comparisons of a unit whose other model had its turn; keep or drop hidden states accordingly."""
        open_jobs = self._open_jobs(label, unit)
        ready = [job for job in open_jobs if self.turned.issuperset(job.labels)]
        if not is_stored and (self._keep or len(ready) < len(open_jobs)):
            self.units.put("states", [self.plan.state_keys[label], unit], {"hidden": hidden})
        for job in ready:
            # Hidden states of P and Q: of two models, or of two runs of one.
            if job.is_null:
                again = rebatched_hidden(loaded, self.heads[label], self.plan.unit_sequences(unit))
                self._run_job(job, unit, (again[self.plan.unit_rows(unit)], hidden), loaded.model.device.type)
            else:
                own, ref = (hidden if name == label else self._states(name, unit) for name in job.labels)
                self._run_job(job, unit, (own, ref), loaded.model.device.type)
        for other in {label, *(name for job in ready for name in job.labels)}:
            # Checkpoints of the same weights, with no update between them, share their hidden states.
            key = self.plan.state_keys[other]
            sharing = (name for name in self.plan.order if self.plan.state_keys[name] == key)
            if not self._keep and not any(self._open_jobs(name, unit) for name in sharing):
                self.units.drop("states", [key, unit])

    @property
    def _keep(self) -> bool:
        return self.settings.keep_states and self.store is not None

    def _open_jobs(self, label: str, unit: int) -> list[MeasureJob]:
        return [job for job, units in self.missing.items() if label in job.labels and unit in units]

    def _states(self, label: str, unit: int) -> Tensor | None:
        tensors = self.units.get("states", [self.plan.state_keys[label], unit])
        return None if tensors is None else tensors["hidden"]

    def _run_job(
        self, job: MeasureJob, unit: int, states: tuple[Tensor | None, Tensor | None], device_type: str
    ) -> None:
        hidden, ref_hidden = states
        if hidden is None or ref_hidden is None:
            raise ArtifactError(_CHANGED)
        size = min(self.plan.checked[label].vocabulary_size for label in job.labels)

        # Compiling takes longer than it saves where there are few logits.
        backend: HeadBackend = "eager" if self.settings.kernel == "auto" else self.settings.kernel
        if self.settings.kernel == "auto" and self.plan.num_positions * size >= _COMPILED_PAYS_FROM:
            backend = "compiled" if compiled_available(device_type) else "eager"
        compared = pair_statistics(
            hidden,
            ref_hidden,
            self.heads[job.labels[0]],
            self.heads[job.labels[1]],
            self.plan.unit_ids(unit),
            vocabulary_size=size,
            tokens_per_chunk=self.settings.tokens_per_chunk,
            top_k=self.settings.top_k if any(job.tops) else 0,
            backend=backend,
        )

        # One table of tensors: the statistics, and the most likely tokens that this job delivers.
        tensors = {name: getattr(compared.stats, name) for name in STATISTICS}
        for side, top, wanted in zip(("top", "top_ref"), (compared.top, compared.top_ref), job.tops, strict=True):
            if wanted and top is not None:
                tensors |= {f"{side}_probs": top.probs, f"{side}_ids": top.ids}
        self.units.put("pair", [job.key, unit], tensors)
        self.missing[job].discard(unit)

    def collect(self) -> TokenStats:
        results = {job: self._gathered(job) for job in self.plan.jobs}
        main = [job for job in self.plan.jobs if not job.is_null]
        null = next((job for job in self.plan.jobs if job.is_null), None)
        positions = torch.empty(0, dtype=torch.long) if null is None else self.plan.positions(null.units).sort().values
        sizes = {label: checked.vocabulary_size for label, checked in self.plan.checked.items()}
        return TokenStats(
            stats={job.labels: _stats(results[job]) for job in main},
            tops={
                label: TopProbs(probs=results[job][f"{side}_probs"], ids=results[job][f"{side}_ids"])
                for job in main
                for label, side, wanted in zip(job.labels, ("top", "top_ref"), job.tops, strict=True)
                if wanted
            },
            noise=None if null is None else _stats(results[null]),
            noise_positions=positions,
            vocabulary_sizes=sizes,
            tokenizer=self.plan.checked[self.plan.order[0]].tokenizer,
        )

    def _gathered(self, job: MeasureJob) -> dict[str, Tensor]:
        """Return a job's tensors from all processes or shards, in the order of the sequences."""
        by_unit: dict[int, dict[str, Tensor]] = {}
        there = range(len(self.plan.units)) if self.shard.is_share else self._mine()
        for unit in sorted(set(there) & set(job.units)):
            tensors = self.units.get("pair", [job.key, unit])
            if tensors is None:
                raise ArtifactError(_CHANGED)
            by_unit[unit] = tensors
        if self.world.size > 1:
            own = {f"{unit} {name}": tensor for unit, tensors in by_unit.items() for name, tensor in tensors.items()}
            for content in self.world.exchange([TENSORS.write(own)] * self.world.size):
                for key, tensor in TENSORS.read(content).items():
                    unit, name = key.split()
                    by_unit.setdefault(int(unit), {})[name] = tensor
        units = sorted(by_unit)
        assert units == sorted(job.units), "a unit is missing"
        order = self.plan.positions(units).argsort()
        return {name: torch.cat([by_unit[unit][name] for unit in units])[order] for name in by_unit[units[0]]}


def _stats(tensors: dict[str, Tensor]) -> DivergenceStats:
    return DivergenceStats(**{name: tensors[name] for name in STATISTICS})
