"""The probe of any models on responses from elsewhere: no run is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from swerve.artifacts.files import write_json
from swerve.artifacts.run import PROBED, RUN_SCHEMA_VERSION, RunDirectory
from swerve.config import ProbeConfig, RuntimeConfig
from swerve.errors import ConfigError
from swerve.models.load import resolve_device
from swerve.probe.execute import execute, worker
from swerve.probe.plan import ProbePlan
from swerve.probe.population import ProbeSequence
from swerve.probe.sources import ModelSource
from swerve.progress import Progress
from swerve.version import __version__
from swerve.world import joined_world

__all__ = ["probe_models"]

_HEADLINES = ("imported_wrong", "imported", "imported_right")
"""Of the populations of a file, the first of these that has responses is what the headline figures are about."""


def probe_models(
    settings: ProbeConfig,
    *,
    runtime: RuntimeConfig,
    seed: int,
    confidence: float,
    max_new_tokens: int,
    reference: ModelSource,
    baseline: ModelSource | None,
    checkpoints: Sequence[ModelSource],
    steps: Mapping[str, int],
    sequences: Sequence[ProbeSequence],
    provenance: Mapping[str, Any],
    out: RunDirectory,
    progress: Progress,
) -> dict[str, Any]:
    """Compare checkpoints with a reference on sequences from elsewhere, every one of them; return the summary.

    Writes the tables and `summary.json` to `out/probe/`, and a `run.json` with which `swerve report` can show them.
    Interrupted, it goes on where it stopped the next time.

    Args:
        settings: of the probe; its selection and populations are those of the sequences.
        runtime: device, dtype and threads.
        seed: of resampling and continuations.
        confidence: level of all intervals.
        max_new_tokens: longest completion of the causal tests, in tokens.
        reference: what the checkpoints are compared with.
        baseline: what the reference is compared with.
        checkpoints: in order of training; the last is the one the headline figures are about.
        steps: step of every model, by label.
        sequences: at least one; those of one problem have its id.
        provenance: JSON values: where the sequences are from.
        out: where results go; it need not exist.
        progress: told how far it is.

    Raises:
        ConfigError: there is no checkpoint or no sequence, or something else is in `out`.
        MismatchError: the models have different tokenizers or vocabularies.
        ArtifactError: another process works in `out`.
    """
    if not checkpoints or not sequences:
        raise ConfigError(f"there is no {'response' if checkpoints else 'checkpoint'} to probe; give at least one")
    known = {one.population for one in sequences}
    headline = next((name for name in _HEADLINES if name in known), sequences[0].population)
    plan = ProbePlan(
        settings=settings,
        runtime=runtime,
        seed=seed,
        confidence=confidence,
        max_new_tokens=max_new_tokens,
        reference=reference,
        checkpoints=tuple(checkpoints),
        final=checkpoints[-1].label,
        steps=steps,
        baseline=baseline,
        sequences=_headline_first(sequences, headline),
        population=headline,
        path=out.probe_path,
        facts=_facts(reference, baseline, checkpoints, sequences, provenance),
    )
    _refuse_occupied(out)
    with joined_world(resolve_device(runtime.device)) as world:
        if world.is_main:
            _record(out, _run_record(plan, provenance))
        world.barrier()  # a directory can only be made where nobody has put anything yet
        if not world.is_main:
            return worker(plan, world=world)
        with out.lock():
            return execute(plan, progress=progress, world=world)


def _refuse_occupied(out: RunDirectory) -> None:
    """Do nothing where `out` is new, empty, or another probe of responses, whose place this one takes."""
    if (out.path / "run.json").is_file():
        if out.read_provenance().get("status") != PROBED:
            raise ConfigError(f"{out.path} is a run, whose own probe would be lost; choose a directory with --out")
    elif out.path.exists() and not (out.path.is_dir() and not any(out.path.iterdir())):
        raise ConfigError(f"{out.path} exists and is no probe of responses; choose another directory with --out")


def _record(out: RunDirectory, record: Mapping[str, Any]) -> None:
    """Say in `run.json` what is probed, unless another process is at work there."""
    if not (out.path / "run.json").is_file():
        out.create(config_yaml="", provenance=record)
        return
    with out.lock():
        write_json(out.path / "run.json", {"schema_version": RUN_SCHEMA_VERSION, **record})


def _headline_first(sequences: Sequence[ProbeSequence], headline: str) -> tuple[ProbeSequence, ...]:
    """Return the sequences numbered anew, those of the headline population first."""
    ordered = sorted(sequences, key=lambda one: one.population != headline)
    return tuple(replace(one, sequence_id=index) for index, one in enumerate(ordered))


def _facts(
    reference: ModelSource,
    baseline: ModelSource | None,
    checkpoints: Sequence[ModelSource],
    sequences: Sequence[ProbeSequence],
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "reference": reference.label,
        "final": checkpoints[-1].label,
        "baseline": None if baseline is None else baseline.label,
        "checkpoints": [one.label for one in checkpoints],
        "weights_sha256": {one.label: one.fingerprint for one in (reference, *checkpoints)},
        "num_problems": len({one.problem.id for one in sequences}),
        "num_reference_wrong": None,
        "num_reference_wrong_final_right": None,
        "selection": "imported",
        "mcnemar": None,
        "reselected": None,
        "responses": dict(provenance),
    }


def _run_record(plan: ProbePlan, provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": plan.path.parent.name,
        "status": PROBED,
        "swerve_version": __version__,
        "seed": plan.seed,
        "responses": str(provenance.get("path", "")),
    }
