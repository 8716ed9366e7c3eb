"""Whether the rollouts on disk alone give the weights of a run's checkpoints: made once more, and compared."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
import transformers
from torch import Tensor

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.files import read_manifest
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.config.recipe import Config
from swerve.errors import ArtifactError
from swerve.models.adapter import adapter_tensors
from swerve.models.model_folder import stored_tensors
from swerve.models.weight_shards import read_shards, whole_tensor
from swerve.progress import Progress
from swerve.rollout.groups import completion_text
from swerve.train.learner import Learner
from swerve.train.replay import ReplayedStep, replay_session, replayed_steps, training_problems
from swerve.version import __version__
from swerve.world import World

_OF_SAMPLER = ("entropy", "logprob_gap", "logprob_gap_max", *(f"logprob_gap_q{quarter}" for quarter in range(1, 5)))
"""Means over the tokens that the update read; a replay reads those, too, whose entropy only the sampler knew."""
_ROUNDING = 1e-5
"""Below it a difference of weights can come of sums in another order."""
_SHOWN = 6
"""Lines about the first step that differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCheckpoint:
    """A checkpoint beside the weights that the replay has after its step."""

    label: str
    step: int
    """Global."""
    max_difference: float
    """Largest absolute difference of a weight; 0.0 also where only the sign of a zero differs."""
    num_different: int
    """Tensors whose bytes differ."""
    findings: tuple[str, ...] = ()
    """What else is not as the rollouts give it since the checkpoint before, a line each."""

    @property
    def is_equal(self) -> bool:
        """Whether the weights have the same bytes and the records since the checkpoint before are what they give."""
        return not self.num_different and not self.findings


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Certificate:
    """What a replay of a run found: every checkpoint up to the first that differs."""

    run: str
    start: str
    """Label of the checkpoint that it began with; `base`: the model before training."""
    checkpoints: tuple[ReplayedCheckpoint, ...]
    num_steps: int
    """That were made once more."""
    num_rollouts: int
    """Of these steps."""
    seconds: float
    causes: tuple[str, ...] = ()
    """What could have changed, where a checkpoint differs."""

    @property
    def first_difference(self) -> ReplayedCheckpoint | None:
        """The first checkpoint that differs; None: all are equal."""
        return next((checkpoint for checkpoint in self.checkpoints if not checkpoint.is_equal), None)

    def __repr__(self) -> str:
        """Return what was found, as people read it."""
        different, num = self.first_difference, sum(checkpoint.is_equal for checkpoint in self.checkpoints)
        done = f"{self.num_steps:,} steps from {self.start}, {self.num_rollouts:,} rollouts, {self.seconds:.1f} s"
        labels = ", ".join(checkpoint.label for checkpoint in self.checkpoints if checkpoint.is_equal)
        equal = f"{num} of {len(self.checkpoints)} checkpoints equal, bit for bit, without an engine ({done})"
        lines = [f"{equal}: {labels}" if labels else equal]
        if different is not None:
            weights = (
                f"{different.num_different} tensors of weights differ, by {different.max_difference:.3g} at most"
                if different.num_different
                else "its weights are equal, but not what was recorded of the steps before it"
            )
            lines += [f"{different.label} differs: {weights}", *(f"  {line}" for line in different.findings)]
            lines += ["What could have changed:", *(f"  {line}" for line in self.causes)]
        return "\n".join(lines)


def certify(config: Config, run: RunDirectory, *, start: CheckpointRef | None, progress: Progress) -> Certificate:
    """Make a run's steps once more from its rollouts, up to the first checkpoint that does not come out.

    A checkpoint comes out where its weights have the same bytes and, since the one before, every column of the rollouts
    and every figure of the metrics is what the replay gives, every text is that of its tokens, and every recorded
    log-probability is the trainer's up to ten times what the run itself recorded as their largest difference.

    Args:
        config: the run's.
        run: it.
        start: checkpoint to begin with; None: the beginning of the run.
        progress: told how far it is.

    Raises:
        ArtifactError: there is no checkpoint after `start`, or what is needed is missing or damaged.
        ConfigError: see `replay_session`.
    """
    began = time.monotonic()
    first = 0 if start is None else start.step
    kept = {checkpoint.step: checkpoint for checkpoint in run.checkpoints if checkpoint.step > first}
    if not kept:
        after = "" if start is None else f" after {start.label}"
        raise ArtifactError(f"{run.path} has no checkpoint{after}: there is nothing to compare")
    logged = {line["step"]: line for line in read_metrics(run.metrics_path)}
    gaps = [line["logprob_gap_max"] for line in logged.values() if line.get("logprob_gap_max") is not None]
    bound = max(1e-4, 10 * max(gaps, default=0.0))
    compared: list[ReplayedCheckpoint] = []
    findings: list[str] = []
    num_steps = num_rollouts = 0
    with replay_session(config, run, progress) as session:
        world = session.world
        with progress.task("replay", max(kept) - first) as task:
            for step in replayed_steps(session, training_problems(session), start=start, stop=max(kept)):
                num_steps += 1
                task.advance(1)
                # What is wrong with the first step that is not as it was recorded; later ones follow from it.
                if world.is_main and not findings:
                    findings = list(_step_findings(step, logged.get(step.step), run, bound))[:_SHOWN]
                num_rollouts += int(step.metrics.get("num_completions") or 0)
                step.written.unlink(missing_ok=True)
                checkpoint = kept.get(step.position.step)
                if checkpoint is not None:
                    compared.append(_compared(checkpoint, step.context.learner, config, run, findings, world))
                    if world.any(not compared[-1].is_equal):
                        break
    different = compared[-1] if compared and not compared[-1].is_equal else None
    return Certificate(
        run=str(run.path),
        start="base" if start is None else start.label,
        checkpoints=tuple(compared),
        num_steps=num_steps,
        num_rollouts=num_rollouts,
        seconds=time.monotonic() - began,
        causes=() if different is None else tuple(_causes(different, config, run, world)),
    )


def _compared(
    checkpoint: CheckpointRef,
    learner: Learner,
    config: Config,
    run: RunDirectory,
    findings: Sequence[str],
    world: World,
) -> ReplayedCheckpoint:
    """Compare the weights as they are with those of a checkpoint; all processes must call it."""
    own, num, largest, found = stored_weights(learner, config), 0, 0.0, list(findings)
    if world.is_main:
        # The log that it was saved beside, and its own files.
        try:
            run.check_run_files(checkpoint)
        except ArtifactError as error:
            found.append(str(error))
        try:
            listed = read_manifest(checkpoint.path)["files"].items()
            files = {checkpoint.path / name: digest for name, digest in listed if _is_weights(name)}
            num, largest = _difference(own, read_shards(files))
        except ArtifactError as error:
            found.append(str(error))
    return ReplayedCheckpoint(
        label=checkpoint.label,
        step=checkpoint.step,
        max_difference=largest,
        num_different=num,
        findings=tuple(found),
    )


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name


def stored_weights(learner: Learner, config: Config) -> dict[str, Tensor]:
    """Return the weights that a checkpoint has, whole and on the CPU; all processes must call it."""
    weights = learner.weights.whole_weights()
    stored = stored_tensors if config.model.lora is None else adapter_tensors
    return {name: whole_tensor(tensor).detach().cpu() for name, tensor in stored(learner.model, weights).items()}


def _difference(own: Mapping[str, Tensor], recorded: Mapping[str, Tensor]) -> tuple[int, float]:
    """Return how many tensors have other bytes, and the largest difference of two numbers."""
    num, largest = len(own.keys() ^ recorded.keys()), 0.0
    for name in own.keys() & recorded.keys():
        one, other = own[name].contiguous(), recorded[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            num += 1
        elif not torch.equal(one.view(torch.uint8), other.view(torch.uint8)):
            num += 1
            largest = max(largest, float((one.double() - other.double()).abs().max()))
    return num, largest


def _step_findings(
    step: ReplayedStep, logged: Mapping[str, Any] | None, run: RunDirectory, bound: float
) -> Iterator[str]:
    """Yield what is not as it was recorded of a step, a line each."""
    where = f"step {step.step} ({step.position.stage}-{step.metrics['stage_step']})"
    path = run.rollouts_path(step.step)
    if step.written.is_file():
        made, recorded = (read_table(one, ROLLOUTS_SCHEMA) for one in (step.written, path))
        yield from (f"{where}: {path.name}, {line}" for line in _row_findings(made, recorded, step))
    gap = step.metrics.get("logprob_gap_max")
    if gap is not None and not gap <= bound:
        yield (
            f"{where}: {path.name}, a recorded log-probability is {gap:.3g} nats from that of the token under the "
            f"weights that sampled it (at most {bound:.3g} is rounding)"
        )
    if logged is None:
        yield f"{where}: metrics.jsonl has no line of it"
        return
    # Log-probabilities are kept with 32 bits, which those of another engine than swerve's own need not have had.
    is_rounded = step.context.config.rollout.engine.kind != "torch"
    for name, value in step.metrics.items():
        if name not in logged or name in _OF_SAMPLER or logged[name] == value:
            continue
        if not (is_rounded and name == "neg_logprob" and math.isclose(logged[name], value, rel_tol=1e-7)):
            yield f"{where}: {name} is {logged[name]} in metrics.jsonl, and {value} from the rollouts"


def _row_findings(made: pa.Table, recorded: pa.Table, step: ReplayedStep) -> Iterator[str]:
    """Yield in which columns a table of rollouts is not the one that the replay would have written."""
    rows, tokenizer = recorded.to_pylist(), step.context.learner.tokenizer
    for name in recorded.column_names:
        own, other = made[name], recorded[name]
        if own.equals(other):
            continue
        pairs = zip(rows, own.to_pylist(), other.to_pylist(), strict=True)
        place = next((row for row, one, two in pairs if repr(one) != repr(two)), None)
        if place is not None:
            yield f"`{name}` is not what the replay gives, first of group {place['group']}, sample {place['sample']}"
    for row in rows:
        if row["text"] != completion_text(tokenizer, row["completion_ids"]):
            yield f"group {row['group']}, sample {row['sample']}: `text` is not that of `completion_ids`"


def _causes(different: ReplayedCheckpoint, config: Config, run: RunDirectory, world: World) -> Iterator[str]:
    """Yield what could have changed, the likeliest first."""
    record = run.read_provenance()
    now = {
        "swerve_version": __version__,
        "torch_version": torch.__version__,
        "transformers_version": transformers.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPU threads",
        "num_processes": [world.size],
    }
    others = [
        f"{name.replace('_', ' ')}: the run has {record[name]}, this replay {value}"
        for name, value in now.items()
        if record.get(name) not in (None, value)
    ]
    if world.device != "cpu":
        others.append(f"the device {world.device}: its kernels need not add in one order")
    changed = [
        "the rollouts, the metrics or the checkpoint that are named above were changed since training wrote them"
    ]
    changed *= bool(different.findings)
    if config.runtime.threads is None:
        others.append(f"the number of threads, which runtime.threads does not set: here {torch.get_num_threads()}")
    # Where sums are made in another order, weights differ a little, and figures with them.
    if 0 < different.max_difference < _ROUNDING:
        yield from (*others, "kernels of another processor, which add in another order", *changed)
    else:
        yield from (*changed, *others)
    if not different.findings:
        yield "the checkpoint, or a pair or a selected completion of a stage before it"
