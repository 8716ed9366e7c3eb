"""The probe of a run: evaluations and checkpoints in, tables and a summary out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.files import remove, write_json
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.artifacts.tables import (
    INTERVENTIONS_SCHEMA,
    SEQUENCES_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    TOPK_SCHEMA,
    write_table,
)
from swerve.config import Config
from swerve.errors import CheckpointError, ConfigError
from swerve.functional.divergence import DivergenceStats
from swerve.models.load import LoadedModel, load_model, load_tokenizer, resolve_device, stop_ids
from swerve.probe.categories import token_categories
from swerve.probe.causal import (
    causal_summary,
    count_continued,
    intervention_rows,
    plan_interventions,
    run_interventions,
)
from swerve.probe.population import (
    POPULATION,
    ProbeSequence,
    probe_sequences,
    read_evaluation,
    reference_wrong_final_right,
    refuse_other_settings,
    sequence_rows,
)
from swerve.probe.summary import category_figures, divergence_figures, noise_floor, notes, spike_figures
from swerve.probe.tables import Measurements, SpikeTable, find_spikes, stack_measurements, token_table, topk_table
from swerve.probe.teacher_forcing import ForcedStates, TopTokens, compare, forced_states, top_tokens
from swerve.problems import load_family
from swerve.progress import Progress, ProgressTask
from swerve.rollout import TorchEngine

__all__ = ["probe_run"]

_TOKENS_PER_BATCH = 16384
_MAX_NOISE_SEQUENCES = 64


def probe_run(config: Config, run: RunDirectory, *, progress: Progress) -> dict[str, Any]:
    """Compare a stage's checkpoints with the reference on the reference's wrong rollouts; return the summary.

    Writes `probe/{sequences,tokens,topk,spikes,interventions}.parquet` and, last, `probe/summary.json`.

    Raises:
        CheckpointError: a checkpoint that `config.probe` names is missing or damaged.
        ArtifactError: the reference or the final checkpoint was not evaluated, or another process holds the run.
        MismatchError: two models have different tokenizers or vocabularies.
    """
    run.read_provenance()
    if config.runtime.threads is not None:
        torch.set_num_threads(config.runtime.threads)
    with run.lock():
        summary = _Probe(config, run, progress).run()
        write_json(run.probe_path / "summary.json", summary)
    return summary


class _Probe:
    """What the steps of one probe share."""

    def __init__(self, config: Config, run: RunDirectory, progress: Progress) -> None:
        self._config = config
        self._run = run
        self._progress = progress
        labels = [stage.label for stage in config.stages]
        if config.probe.reference is None and len(labels) == 1:
            raise ConfigError(
                "a run of one stage has no stage before it; name the reference with probe.reference=LABEL"
            )
        self._reference = _evaluated(run, config.probe.reference or labels[-2], "probe.reference")
        self._final = _evaluated(run, config.probe.final or labels[-1], "probe.final")
        compared = _compared_checkpoints(run, config.probe.checkpoints or labels[-1], self._final)
        self._checkpoints = tuple(one for one in compared if one.path != self._reference.path)

    def run(self) -> dict[str, Any]:
        refuse_other_settings(self._run, self._reference, self._final)
        population = reference_wrong_final_right(
            read_evaluation(self._run, self._reference), read_evaluation(self._run, self._final)
        )
        sequences = probe_sequences(
            population.rows[: self._config.probe.max_rollouts],
            family=load_family(self._config.task),
            tokenizer=load_tokenizer(self._reference.path),
        )
        # From here on tables change; a summary beside tables of another probe would be worse than none.
        remove(self._run.probe_path / "summary.json")
        self._write("sequences", sequence_rows(sequences), SEQUENCES_SCHEMA)
        summary: dict[str, Any] = {
            "reference": self._reference.label,
            "final": self._final.label,
            "checkpoints": [checkpoint.label for checkpoint in self._checkpoints],
            "weights_sha256": {one.label: one.weights_sha256 for one in (self._reference, *self._checkpoints)},
            "population": POPULATION,
            "divergence": self._config.probe.divergence,
            "confidence": self._config.eval.confidence,
            "num_problems": population.num_problems,
            "num_reference_wrong": population.num_reference_wrong,
            "num_reference_wrong_final_right": len(population.rows),
            "num_rollouts": len(sequences),
            "reliable": len(sequences) >= self._config.probe.min_rollouts,
            **(self._figures(sequences) if sequences else self._no_figures()),
        }
        return {**summary, "notes": notes(summary, self._config)}

    def _no_figures(self) -> dict[str, Any]:
        schemas = {"tokens": TOKENS_SCHEMA, "topk": TOPK_SCHEMA, "spikes": SPIKES_SCHEMA}
        for name, schema in {**schemas, "interventions": INTERVENTIONS_SCHEMA}.items():
            self._write(name, [], schema)
        return {"noise_floor": None, "spikes": [], "divergences": [], "categories": [], "causal": None}

    def _figures(self, sequences: Sequence[ProbeSequence]) -> dict[str, Any]:
        data, floor = self._measure(sequences)
        self._write("tokens", token_table(data), TOKENS_SCHEMA)
        spikes = find_spikes(data, self._config.probe.spikes)
        self._write("spikes", spikes.rows, SPIKES_SCHEMA)
        return {
            "noise_floor": floor,
            "spikes": spike_figures(data, spikes, confidence=self._config.eval.confidence),
            "divergences": divergence_figures(data, self._config),
            "categories": category_figures(data, spikes, divergence=self._config.probe.divergence),
            "causal": self._causal(data, spikes),
        }

    def _measure(self, sequences: Sequence[ProbeSequence]) -> tuple[Measurements, dict[str, Any]]:
        """Run the reference once and every checkpoint once, one model in memory at a time."""
        ids = torch.tensor([token for one in sequences for token in one.completion_ids])
        stats: dict[str, DivergenceStats] = {}
        tops: dict[str, TopTokens] = {}
        with self._progress.task("probe", len(sequences) * (1 + len(self._checkpoints))) as task:
            loaded = self._load(self._reference)
            reference = self._force(loaded, self._reference, sequences, task)
            floor = self._noise_floor(loaded, reference, sequences, ids)
            pieces = [str(loaded.tokenizer.decode([token])) for token in range(reference.head.vocabulary_size)]
            del loaded
            tops[reference.label] = self._top(reference)
            for checkpoint in self._checkpoints:
                states = self._force(self._load(checkpoint), checkpoint, sequences, task)
                stats[states.label] = compare(
                    states, reference, ids, tokens_per_chunk=self._config.probe.tokens_per_chunk
                )
                tops[states.label] = self._top(states)
                mean = float(getattr(stats[states.label], self._config.probe.divergence).mean())
                task.advance(0, checkpoint=checkpoint.label, **{self._config.probe.divergence: mean})
        self._write("topk", topk_table(sequences, tops, pieces), TOPK_SCHEMA)
        categories = [category for one in sequences for category in token_categories(one.text, one.spans)]
        return stack_measurements(sequences, stats, categories), floor

    def _noise_floor(
        self, loaded: LoadedModel, reference: ForcedStates, sequences: Sequence[ProbeSequence], ids: Tensor
    ) -> dict[str, Any]:
        """Compare the reference with itself, batched otherwise and with prompts padded by one position more."""
        part = _pairs(sequences[:_MAX_NOISE_SEQUENCES])
        prompt, completion = max(part, key=lambda pair: len(pair[0]))
        wider = ((prompt[0], *prompt), completion[:1])
        again = forced_states(loaded, [*part, wider], label=reference.label, tokens_per_batch=_TOKENS_PER_BATCH)
        num_tokens = len(again.hidden) - 1
        first, second = (replace(states, hidden=states.hidden[:num_tokens]) for states in (reference, again))
        chunk = self._config.probe.tokens_per_chunk
        return noise_floor(compare(second, first, ids[:num_tokens], tokens_per_chunk=chunk))

    def _causal(self, data: Measurements, spikes: SpikeTable) -> dict[str, Any] | None:
        settings = self._config.probe.causal
        count = min(settings.max_rollouts, len(data.sequences))
        planned = plan_interventions(
            data.sequences[:count],
            tops=spikes.tops[self._final.label, self._config.probe.divergence][:count],
            argmax=[row.tolist() for row in data.by_sequence("argmax", self._final.label)[:count]],
            seed=self._config.seed,
        )
        if not planned:
            self._write("interventions", [], INTERVENTIONS_SCHEMA)
            return None
        loaded = self._load(self._reference)
        stops = stop_ids(loaded.model, loaded.tokenizer)
        engine = TorchEngine(
            loaded.model, pad_id=int(loaded.tokenizer.pad_token_id or 0), max_rows=self._config.runtime.max_rows
        )
        num_continued = count_continued(planned, stops, self._config.max_new_tokens) * settings.num_continuations
        with self._progress.task("causal test", num_continued) as task:
            outcomes = run_interventions(
                planned,
                engine,
                loaded.tokenizer,
                settings=settings,
                stop_ids=stops,
                max_new_tokens=self._config.max_new_tokens,
                seed=self._config.seed,
                on_finished=task.advance,
            )
        self._write("interventions", intervention_rows(planned, outcomes, loaded.tokenizer), INTERVENTIONS_SCHEMA)
        return causal_summary(
            planned, outcomes, settings=settings, confidence=self._config.eval.confidence, seed=self._config.seed
        )

    def _load(self, checkpoint: CheckpointRef) -> LoadedModel:
        runtime = self._config.runtime
        return load_model(checkpoint.path, device=resolve_device(runtime.device), dtype=runtime.dtype)

    def _force(
        self, loaded: LoadedModel, checkpoint: CheckpointRef, sequences: Sequence[ProbeSequence], task: ProgressTask
    ) -> ForcedStates:
        return forced_states(
            loaded,
            _pairs(sequences),
            label=checkpoint.label,
            tokens_per_batch=_TOKENS_PER_BATCH,
            on_batch=task.advance,
        )

    def _top(self, states: ForcedStates) -> TopTokens:
        probe = self._config.probe
        return top_tokens(states, k=probe.top_k, tokens_per_chunk=probe.tokens_per_chunk)

    def _write(self, name: str, rows: Any, schema: Any) -> None:
        write_table(self._run.probe_path / f"{name}.parquet", rows, schema)


def _pairs(sequences: Sequence[ProbeSequence]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(sequence.prompt_ids, sequence.completion_ids) for sequence in sequences]


def _evaluated(run: RunDirectory, selector: str, key: str) -> CheckpointRef:
    checkpoint = run.select_checkpoint(selector)
    if not checkpoint.scheduled:
        raise CheckpointError(
            f"{key}: {checkpoint.label} only serves resuming and is not evaluated; name a scheduled one"
        )
    return checkpoint


def _compared_checkpoints(run: RunDirectory, stage: str, final: CheckpointRef) -> tuple[CheckpointRef, ...]:
    """Return the stage's scheduled checkpoints and the final one, by step."""
    known = run.checkpoints()
    chosen = [one for one in known if one.stage == stage and one.scheduled]
    if not chosen:
        stages = ", ".join(dict.fromkeys(one.stage for one in known))
        raise CheckpointError(f"{run.path} has no checkpoint of a stage '{stage}' (probe.checkpoints); it has {stages}")
    if all(one.path != final.path for one in chosen):
        chosen.append(final)
    return tuple(sorted(chosen, key=lambda one: one.step))
