"""What the probe finds of a name that was replaced in the stories a model was trained on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from studies.stories.causal import doses, forced
from studies.stories.plant import StorySettings, name_ids, planted, sequence, write_stories
from swerve.artifacts.probe_findings import DIVERGENCES, Divergence
from swerve.artifacts.responses import Response
from swerve.config.probe import ProbeConfig, SpikeConfig
from swerve.models.model_folder import LoadedModel, load_model
from swerve.models.sources import CheckpointSource
from swerve.probe.engine.jobs import TokenStats
from swerve.probe.engine.measure import measure
from swerve.probe.engine.measured import Measurements, stack_measurements
from swerve.probe.findings.planted import planted_recovery, selector_scores
from swerve.probe.findings.spike_table import all_spikes
from swerve.probe.findings.spikes import Spike
from swerve.probe.summary_entries import divergence_means
from swerve.statistics import mean_interval, ranking_intervals, ratio_interval
from swerve.token_categories import token_categories

Record = dict[str, Any]
Ids = tuple[int, ...]
NARROW = "bfloat16"
"""The reference in this type, compared with itself in float32: the noise of rounding."""
ABLE = 0.05
"""A position where the reference gives the old name at least this probability could have it, whatever it has."""


def story_records(path: Path, work: Path, settings: StorySettings, *, known: Collection[str] = ()) -> Iterator[Record]:
    """Plant, probe and test; yield the JSON lines of kinds that are not known yet."""
    reference = load_model(path, device="cpu", dtype="float32")
    old, new = (name_ids(reference, name) for name in (settings.old, settings.new))
    if len(old) != 1:
        raise ValueError(f"the old name must be one token, {settings.old!r} is {len(old)}; choose another")
    folders = planted(reference, old, new, work, settings)
    stories = write_stories(reference, settings.num_stories, settings, "probe")
    sequences = [sequence(reference, index, story, old[0], new) for index, story in enumerate(stories)]
    data, measured = _measured(path, folders, sequences)
    final = f"planted-{settings.steps[-1]}"
    changed = load_model(folders[final], device="cpu", dtype="float32")
    parts: dict[str, Callable[[], Record]] = {
        "stories_found": lambda: _found(data, measured, final, reference, old[0], settings),
        "stories_forced": lambda: forced(reference, data, final, settings),
        "stories_dose_into_reference": lambda: doses(reference, changed, "into_reference", settings),
        "stories_dose_into_changed": lambda: doses(changed, reference, "into_changed", settings),
    }
    for kind, part in parts.items():
        if kind not in known:
            started = time.perf_counter()
            record = part()
            seconds = round(time.perf_counter() - started, 1)
            yield {"kind": kind, "old": settings.old, "new": settings.new, "seconds": seconds, **record}


def _measured(
    path: Path, folders: Mapping[str, Path], sequences: Sequence[Response]
) -> tuple[Measurements, TokenStats]:
    named = {"pretrained": path, **folders}
    sources = [
        CheckpointSource(label=label, path=folder, device="cpu", dtype="float32") for label, folder in named.items()
    ]
    sources.append(CheckpointSource(label=NARROW, path=path, device="cpu", dtype=NARROW))
    measured = measure(
        sources,
        [(label, "pretrained") for label in (*folders, NARROW)],
        [(one.prompt_ids, one.completion_ids) for one in sequences],
        settings=ProbeConfig(),
        noise_of="pretrained",
    )
    categories = [name for one in sequences for name in token_categories(one.text, one.spans)]
    stats = {pair: stats for pair, stats in measured.stats.items() if pair[0] != NARROW}
    return stack_measurements(sequences, stats, categories), measured


def _found(
    data: Measurements, measured: TokenStats, final: str, reference: LoadedModel, old: int, settings: StorySettings
) -> Record:
    """Return what is found of the planted change, and of the placebo."""
    labels = [label for label in data.checkpoints if label.startswith("planted")]
    placebo = next(label for label in data.checkpoints if label.startswith("placebo"))
    planted = data.pick(lambda label, _: label in labels)
    nulls = {name: data.columns[name][data.checkpoints.index(placebo)] for name in DIVERGENCES}
    batching = {name: getattr(measured.noise, name).numpy() for name in DIVERGENCES}
    found = all_spikes(planted, SpikeConfig(), nulls=batching).found
    with_placebo = all_spikes(planted, SpikeConfig(), nulls=nulls).found
    named = {key: value for key, value in found.items() if key[0] == final}
    named |= {
        (key[0], key[1], "calibrated, placebo"): value
        for key, value in with_placebo.items()
        if key[0] == final and key[2] == "calibrated"
    }
    last = planted.pick(lambda label, _: label == final)
    recovery = planted_recovery(last, named)
    able = _probability(reference, data, old)
    return {
        "num_stories": len(data.sequences),
        "num_with_name": sum(bool(one.wrong) for one in data.sequences),
        "num_tokens": len(data.categories),
        "recovery": recovery,
        "able": _able_figures(last, able, settings),
        "spikes_able": _spikes_on(last, named, able >= ABLE),
        "divergences": divergence_means(data),
        "noise": {
            kind: {name: float(getattr(stats, name).mean()) for name in DIVERGENCES}
            for kind, stats in (("batching", measured.noise), (NARROW, measured.stats[NARROW, "pretrained"]))
        },
        "steps": [_share_on_name(data, index) for index in range(len(data.checkpoints))],
    }


def _probability(loaded: LoadedModel, data: Measurements, token: int) -> NDArray[np.float64]:
    """Return the reference's probability of a token at every position: `[N]`."""
    parts = []
    with torch.no_grad():
        for one in data.sequences:
            ids = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
            logits = loaded.model(input_ids=ids).logits[0, len(one.prompt_ids) - 1 : -1].double()
            parts.append(logits.softmax(-1)[:, token].numpy())
    return np.concatenate(parts)


def _able_figures(last: Measurements, able: NDArray[np.float64], settings: StorySettings) -> Record:
    """Return how well scores find the positions where the name could be, in all stories."""
    columns = {name: column[0] for name, column in last.columns.items()}
    clusters = last.sequence_index
    rankings = {
        name: ranking_intervals(scores, able >= ABLE, clusters=clusters, confidence=0.95)
        for name, scores in selector_scores(columns).items()
    }
    js = columns["js"].astype(np.float64)
    return {
        "num": int((able >= ABLE).sum()),
        "base_rate": float((able >= ABLE).mean()),
        "share_js": float(js[able >= ABLE].sum() / js.sum()),
        "selectors": rankings,
    }


def _spikes_on(
    last: Measurements, found: Mapping[tuple[str, Divergence, str], Sequence[Sequence[Spike]]], able: NDArray[np.bool_]
) -> list[Record]:
    """Return the share of spikes at positions where the name could be, over all stories."""
    marks = np.split(able, np.cumsum(last.lengths)[:-1])
    rows = []
    for (_, divergence, method), spikes in found.items():
        hits = [mark[spike.position] for mark, one in zip(marks, spikes, strict=True) for spike in one]
        owners = [index for index, one in enumerate(spikes) for _ in one]
        estimate = mean_interval(np.array(hits, float), clusters=owners, bounds=(0.0, 1.0))
        rows.append({"divergence": divergence, "method": method, "num_spikes": len(hits), "precision": estimate})
    return rows


def _share_on_name(data: Measurements, index: int) -> Record:
    """Return the share of the divergence that is on the old name."""
    marks = np.array([t in one.wrong for one in data.sequences for t in range(len(one.completion_ids))])
    values = data.columns["js"][index].astype(np.float64)
    return {
        "checkpoint": data.checkpoints[index],
        "share_tokens": float(marks.mean()),
        "share_js": ratio_interval(values * marks, values, clusters=data.sequence_index),
    }
