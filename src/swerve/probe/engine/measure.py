"""The engine of the probe: any number of models and pairs, each model run once over the same sequences.

The unit of work is one forward batch of sequences of similar length. Models take turns: each is loaded once, run over
the units that need it, and every pair whose other model was there before is compared at once. What is kept of a model
between turns is its hidden states at the completion positions, and its output head for as long as a pair needs it.
With a folder as store, an interrupted measurement continues where it stopped.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.parts import Parts
from swerve.batch import TokenSequence
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
from swerve.probe.engine.jobs import Job, Measured, MeasurePlan, MeasureSettings, NullKind, plan_measurement
from swerve.probe.engine.model_facts import ModelFacts, check_pair, check_sequences, model_facts
from swerve.probe.engine.store import open_units, pack_units, unpack_units, versions
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
    settings: MeasureSettings,
    noise_of: str | None = None,
    world: World | None = None,
    on_tokens: Callable[[int], None] | None = None,
) -> Measured:
    """Compare pairs of models at every completion position of the sequences; each model is run once.

    The result does not depend on the number of processes, on interruptions, nor on where states are kept.

    Args:
        models: sources with labels of their own; those in no pair are left alone.
        pairs: (checkpoint P, reference Q) by label.
        sequences: (prompt ids, completion ids), at least one.
        settings: batches, chunks, kernel and store.
        noise_of: the label of a model to compare with itself, run again in other batches; None for no null pair.
        world: the processes that share the work, each with the same arguments; None for this one alone.
        on_tokens: called with the number of completion positions done since the last call: in the end all positions
            once for each model in a pair, all processes together; those found in the store count too.

    Raises:
        ValueError: labels, pairs, sequences or settings are wrong, or a kernel is asked for that cannot be had.
        MismatchError: the models of a pair have different tokenizers, or one has too few positions; the message names
            them.
        DiskFullError: the store has no room.
    """
    plan = plan_measurement(models, pairs, sequences, settings=settings, noise_of=noise_of)
    together = World() if world is None else world
    engine = _Engine(plan=plan, settings=settings, world=together, on_tokens=on_tokens or (lambda count: None))
    engine.run()
    measured = engine.collect()
    # The caller may remove the store, which another process may still read.
    together.barrier()
    return measured


_SecondRun = Callable[[Sequence[TokenSequence]], tuple[Tensor, Head]]
"""Gives the hidden states of sequences in another run of a model, and the head that belongs to them."""


def _other_batches(loaded: LoadedModel) -> _SecondRun:
    head = model_head(loaded.model)
    return lambda sequences: (rebatched_hidden(loaded, head, sequences), head)


def _other_dtype(loaded: LoadedModel, *, dtype: torch.dtype) -> _SecondRun:
    # The model may belong to the caller, so it is a copy that changes its type.
    model: Any = copy.deepcopy(loaded.model)
    narrow = dataclasses.replace(loaded, model=model.to(dtype))
    head = model_head(narrow.model)
    return lambda sequences: (unit_hidden(narrow, head, sequences), head)


_NULLS: Mapping[NullKind, Callable[[LoadedModel], _SecondRun]] = {
    "batching": _other_batches,
    "bfloat16": partial(_other_dtype, dtype=torch.bfloat16),
    "float16": partial(_other_dtype, dtype=torch.float16),
}


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A model that is loaded."""

    label: str
    loaded: LoadedModel
    checked: bool = False
    """Whether its head was compared with its own logits."""
    second_runs: dict[NullKind, _SecondRun] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Engine:
    plan: MeasurePlan
    settings: MeasureSettings
    world: World
    on_tokens: Callable[[int], None]
    units: Parts = field(init=False)
    """Hidden states of each model and statistics of each pair, by forward batch."""
    heads: dict[str, Head] = field(init=False, default_factory=dict)
    facts: dict[str, ModelFacts] = field(init=False, default_factory=dict)
    device_type: str = field(init=False, default="cpu")
    missing: dict[Job, set[int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.units = open_units(self.settings.store)
        mine = set(self._mine())
        for job in self.plan.jobs:
            todo = mine & set(job.units)
            self.missing[job] = {unit for unit in todo if self.units.get("pair", [job.key, unit]) is None}

    def run(self) -> None:
        for label in self.plan.order:
            known = self._kept_facts.get("facts", self.plan.state_keys[label])
            if known is not None and (known["pieces"] or label != self.plan.order[0]):
                self.facts[label] = ModelFacts(**known)
            units = [unit for unit in self._mine() if self._open_jobs(label, unit)]
            if units or (label not in self.facts and self.world.rank == 0):
                self._run_model(label, set(units))
            else:
                self._check(label)
                self.on_tokens(sum(self.plan.num_tokens(unit) for unit in self._mine()))
        if not self._keep:  # a kill may have come between the statistics of a unit and its hidden states' end
            for label, unit in itertools.product(self.plan.order, self._mine()):
                self.units.drop("states", [self.plan.state_keys[label], unit])

    def _mine(self) -> range:
        return range(self.world.rank, len(self.plan.units), self.world.size)

    def _run_model(self, label: str, units: set[int]) -> None:
        # What must be known of it is kept, so that a resumed measurement need not load it.
        loaded = self.plan.sources[label].load()
        self.heads[label] = head = model_head(loaded.model)
        self.facts[label] = model_facts(
            loaded.model.config, loaded.tokenizer, head.vocabulary_size, with_pieces=label == self.plan.order[0]
        )
        if self.world.rank == 0:
            self._kept_facts.put("facts", self.plan.state_keys[label], dataclasses.asdict(self.facts[label]))
        self._check(label)
        self.device_type = loaded.model.device.type
        if self.settings.kernel == "compiled" and not compiled_available(self.device_type):
            raise ValueError("kernel 'compiled' needs a C++ compiler (Triton on a GPU); use 'auto' or 'eager'")
        turn = _Turn(label=label, loaded=loaded)
        for unit in self._mine():
            if unit in units:
                self._run_unit(turn, unit)
            self.on_tokens(self.plan.num_tokens(unit))
        # Heads that no pair waits for go with the model.
        del loaded, turn
        for other in list(self.heads):
            if not any(other in job.labels and left for job, left in self.missing.items()):
                del self.heads[other]

    def _run_unit(self, turn: _Turn, unit: int) -> None:
        label = turn.label
        stored = self._states(label, unit)
        if stored is None:
            if not turn.checked:
                checked_model_head(turn.loaded, self.plan.sequences[0])
                turn.checked = True
            hidden = unit_hidden(turn.loaded, self.heads[label], self.plan.unit_sequences(unit))
        else:
            hidden = stored
        # Facts are known of the models that had their turn, and of this one.
        open_jobs = self._open_jobs(label, unit)
        ready = [job for job in open_jobs if set(job.labels) <= self.facts.keys()]
        if stored is None and (self._keep or len(ready) < len(open_jobs)):
            self.units.put("states", [self.plan.state_keys[label], unit], {"hidden": hidden})
        for job in ready:
            self._run_job(job, unit, turn, hidden)
        for other in {label, *(name for job in ready for name in job.labels)}:
            if not self._keep and not self._open_jobs(other, unit):
                self.units.drop("states", [self.plan.state_keys[other], unit])

    @property
    def _keep(self) -> bool:
        return self.settings.keep and self.settings.store is not None

    def _open_jobs(self, label: str, unit: int) -> list[Job]:
        return [job for job, units in self.missing.items() if label in job.labels and unit in units]

    def _states(self, label: str, unit: int) -> Tensor | None:
        tensors = self.units.get("states", [self.plan.state_keys[label], unit])
        return None if tensors is None else tensors["hidden"]

    def _run_job(self, job: Job, unit: int, turn: _Turn, hidden: Tensor) -> None:
        # Hidden states and heads of P and Q: of two models, or of two runs of one.
        states: list[Tensor | None]
        if job.kind == "pair":
            states = [hidden if label == turn.label else self._states(label, unit) for label in job.labels]
            head, ref_head = (self.heads[label] for label in job.labels)
        else:
            if job.kind not in turn.second_runs:
                turn.second_runs[job.kind] = _NULLS[job.kind](turn.loaded)
            again, head = turn.second_runs[job.kind](self.plan.unit_sequences(unit))
            states, ref_head = [again, hidden], self.heads[turn.label]
        if states[0] is None or states[1] is None:
            raise ArtifactError(_CHANGED)
        size = min(self.facts[label].vocabulary_size for label in job.labels)
        compared = pair_statistics(
            states[0],
            states[1],
            head,
            ref_head,
            self.plan.unit_ids(unit),
            vocabulary_size=size,
            tokens_per_chunk=self.settings.tokens_per_chunk,
            top_k=self.settings.top_k if any(job.tops) else 0,
            backend=self._backend(size),
        )
        # One table of tensors: the statistics, and the most likely tokens that this job delivers.
        tensors = {name: getattr(compared.stats, name) for name in STATISTICS}
        for side, top, wanted in zip(("top", "top_ref"), (compared.top, compared.top_ref), job.tops, strict=True):
            if wanted and top is not None:
                tensors |= {f"{side}_probs": top.probs, f"{side}_ids": top.ids}
        self.units.put("pair", [job.key, unit], tensors)
        self.missing[job].discard(unit)

    def _backend(self, vocabulary_size: int) -> HeadBackend:
        if self.settings.kernel != "auto":
            return self.settings.kernel
        num_logits = self.plan.num_positions * vocabulary_size
        return "compiled" if num_logits >= _COMPILED_PAYS_FROM and compiled_available(self.device_type) else "eager"

    @property
    def _kept_facts(self) -> Parts:
        return Parts(self.settings.store, versions())

    def _check(self, label: str) -> None:
        # Pairs first: where tokenizers differ, an id that a model lacks is only the consequence.
        for job in self.plan.jobs:
            if label in job.labels and set(job.labels) <= self.facts.keys():
                check_pair(job.labels, (self.facts[job.labels[0]], self.facts[job.labels[1]]))
        if label in self.facts:
            longest = max(len(prompt) + len(completion) for prompt, completion in self.plan.sequences)
            check_sequences(label, self.facts[label], largest_id=self.plan.largest_id, longest=longest)

    def collect(self) -> Measured:
        facts: dict[str, Any]
        facts = self.world.gather({label: dataclasses.asdict(own) for label, own in self.facts.items()})[0]
        results = {job: self._gathered(job) for job in self.plan.jobs}
        main = [job for job in self.plan.jobs if job.kind == "pair"]
        null = [job for job in self.plan.jobs if job.kind != "pair"]
        positions = self.plan.positions(null[0].units).sort().values if null else torch.empty(0, dtype=torch.long)
        return Measured(
            stats={job.labels: _stats(results[job]) for job in main},
            tops={
                label: TopProbs(probs=results[job][f"{side}_probs"], ids=results[job][f"{side}_ids"])
                for job in main
                for label, side, wanted in zip(job.labels, ("top", "top_ref"), job.tops, strict=True)
                if wanted and self.settings.top_k
            },
            noise={job.kind: _stats(results[job]) for job in null},
            noise_positions=positions,
            vocabulary_sizes={label: facts[label]["vocabulary_size"] for label in self.plan.order},
            pieces=facts[self.plan.order[0]]["pieces"],
        )

    def _gathered(self, job: Job) -> dict[str, Tensor]:
        """Return a job's tensors from all processes, in the order of the sequences."""
        found: dict[int, dict[str, Tensor]] = {}
        for unit in sorted(set(self._mine()) & set(job.units)):
            tensors = self.units.get("pair", [job.key, unit])
            if tensors is None:
                raise ArtifactError(_CHANGED)
            found[unit] = tensors
        if self.world.size > 1:
            parts = self.world.gather(pack_units(found))
            found = {unit: tensors for part in parts for unit, tensors in unpack_units(part).items()}
        units = sorted(found)
        assert units == sorted(job.units), "a unit is missing"
        order = self.plan.positions(units).argsort()
        return {name: torch.cat([found[unit][name] for unit in units])[order] for name in found[units[0]]}


def _stats(tensors: dict[str, Tensor]) -> DivergenceStats:
    return DivergenceStats(**{name: tensors[name] for name in STATISTICS})
