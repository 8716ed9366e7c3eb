"""A small synthetic run directory, written through the real artifact writers: what the report is tested on.

Two models over a vocabulary of addition words are described by their logits; every divergence, entropy, rank and
probability in the tables is computed from them, so that the files are consistent with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.files import sha256_file, write_sealed
from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, SPIKES_SCHEMA, TOKENS_SCHEMA, TOPK_SCHEMA, write_table
from swerve.functional.divergence import divergence_stats
from swerve.probe.result import STATISTICS

Floats = NDArray[np.float64]
Filled = Callable[[Any, Mapping[str, Any]], dict[str, Any]]

REFERENCE = "dpo-8"
CHECKPOINTS = ("rl-5", "rl-10", "rl-20", "rl-30", "rl-40", "rl-60", "rl-70", "rl-80")
_STRENGTHS = (0.02, 0.06, 0.35, 0.75, 0.9, 0.97, 0.99, 1.0)
HOSTILE_TOKENS = ("</script><img onerror=alert(1) src=x>", "[/bold]", "$\\frac{$", "<!--", "'\"&\u2028")
HOSTILE_TEXT = " ".join(HOSTILE_TOKENS)
_WORDS = (*"0123456789", "+", "=", ";", "write", "carry", "answer", "<eos>", *HOSTILE_TOKENS)
_ID = {word: index for index, word in enumerate(_WORDS)}
_NUM_RIGHT = 2
_STAGES = (("sft", 500, 500), ("dpo", 508, 8), *(("rl", 508 + int(c[3:]), int(c[3:])) for c in CHECKPOINTS))


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A wrong rollout of the reference and what a right step has at its wrong positions."""

    operands: tuple[int, int]
    words: tuple[str, ...]
    wrong: Mapping[int, str]

    @property
    def gold(self) -> str:
        return " ".join(f"{sum(self.operands):05d}")

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word != "<eos>")


def forgetful_trace(first: int, second: int) -> Trace:
    """Write a column addition in which the carry of the first column that sums to 10 or 11 is forgotten."""
    words: list[str] = []
    wrong: dict[int, str] = {}
    carry, digits = 0, []
    for column in range(4):
        a, b = (first // 10**column) % 10, (second // 10**column) % 10
        total = a + b + carry
        words += [str(a), "+", str(b), "+", str(carry), "=", *f"{total:02d}", "write", str(total % 10), "carry"]
        carry = total // 10
        if total in (10, 11) and not wrong:
            wrong, carry = {len(words): "1"}, 0
        words += [str(carry), ";"]
        digits.append(str(total % 10))
    words += ["answer", str(carry), *reversed(digits), "<eos>"]
    return Trace(operands=(first, second), words=tuple(words), wrong=wrong)


def _traces(count: int, hostile: bool, rng: np.random.Generator) -> list[Trace]:
    traces: list[Trace] = []
    while len(traces) < count:
        trace = forgetful_trace(int(rng.integers(1000, 9999)), int(rng.integers(1000, 9999)))
        if trace.wrong:
            traces.append(trace)
    if hostile:
        last = traces[-1]
        words = (*HOSTILE_TOKENS, *last.words)
        wrong = {position + len(HOSTILE_TOKENS): word for position, word in last.wrong.items()}
        traces[-1] = Trace(operands=last.operands, words=words, wrong=wrong)
    return traces


def _softmax(logits: Floats) -> Floats:
    shifted: Floats = np.exp(logits - logits.max(-1, keepdims=True))
    result: Floats = shifted / shifted.sum(-1, keepdims=True)
    return result


def _model_logits(trace: Trace, strength: float, noise: Floats) -> Floats:
    """Logits `[T, V]` of a model that has unlearned the mistake to the degree `strength` (0: the reference)."""
    logits = noise.copy()
    for position, word in enumerate(trace.words):
        logits[position, _ID[word]] += 8.0
        expected = trace.wrong.get(position)
        if expected is not None:
            logits[position, _ID[expected]] += 6.9 + 6.0 * strength
            logits[position, _ID[word]] -= 1.5 * strength
    return logits


def _token_columns(logits: Floats, reference: Floats, ids: NDArray[np.int64]) -> dict[str, list[Any]]:
    stats = divergence_stats(*map(torch.from_numpy, (logits, reference, ids)))
    return {name: getattr(stats, name).tolist() for name in STATISTICS}


def _category(word: str) -> str:
    if word.isdigit():
        return "number"
    if word in "+=":
        return "math_symbol"
    return {";": "punctuation", "<eos>": "format", "answer": "step_marker"}.get(word, "word")


def _records(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _topk_rows(sequence: int, checkpoint: str, logits: Floats) -> Iterator[dict[str, Any]]:
    for position, row in enumerate(_softmax(logits)):
        top = np.argsort(-row, kind="stable")[:5]
        yield {
            "sequence_id": sequence,
            "position": position,
            "checkpoint": checkpoint,
            "token_ids": top.tolist(),
            "tokens": [_WORDS[index] for index in top],
            "probs": row[top].tolist(),
        }


def _spike_rows(sequence: int, checkpoint: str, trace: Trace, columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for divergence in ("kl_forward", "kl_reverse", "js"):
        values = np.asarray(columns[divergence])
        threshold = float(values.mean() + 2 * values.std())
        found = sorted(np.flatnonzero(values > threshold), key=lambda position: -values[position])
        for height, position in enumerate(found[:3], start=1):
            yield {
                "sequence_id": sequence,
                "position": int(position),
                "checkpoint": checkpoint,
                "method": "zscore",
                "divergence": divergence,
                "value": float(values[position]),
                "threshold": threshold,
                "height": height,
                "is_wrong": int(position) in trace.wrong,
                "is_first_wrong": int(position) == min(trace.wrong),
            }


def _decoy_spikes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Spikes of another method, one position further: what the page must not show."""
    return [{**row, "method": "percentile", "position": row["position"] + 1} for row in rows]


def _right_row(sequence: int, trace: Trace) -> dict[str, Any]:
    """A rollout of another population: the same words, called right, without known wrong steps."""
    right = {"population": "reference_right", "correct": True, "extracted": trace.gold}
    return {**_sequence_row(sequence, trace), **right, "first_wrong": None, "wrong_positions": [], "wrong_expected": []}


def _sequence_row(sequence: int, trace: Trace) -> dict[str, Any]:
    starts, ends, end = [], [], 0
    for index, word in enumerate(trace.words):
        starts.append(end)
        # As most tokenizers have it, the space before a word is a part of its token.
        end += 0 if word == "<eos>" else len(word) + (index > 0)
        ends.append(end)
    wrong = sorted(trace.wrong)
    a, b = trace.operands
    return {
        "sequence_id": sequence,
        "problem_id": f"addition-{a}+{b}",
        "kind": f"{1 + sequence % 3} carries",
        "population": "reference_wrong_final_right",
        "label": REFERENCE,
        "question": " ".join([*str(a), "+", *str(b), "="]),
        "gold": trace.gold,
        "prompt_ids": [_ID[word] for word in [*str(a), "+", *str(b), "="]],
        "completion_ids": [_ID[word] for word in trace.words],
        "sampled": None,
        "turns": None,
        "text": trace.text,
        "token_starts": starts,
        "token_ends": ends,
        "extracted": " ".join(trace.words[-6:-1]),
        "correct": False,
        "first_wrong": wrong[0],
        "wrong_positions": wrong,
        "wrong_expected": [trace.wrong[position] for position in wrong],
        "sentence_starts": None,
        "wrong_sentence": None,
    }


def _intervention_rows(sequence: int, trace: Trace, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    spike = min(trace.wrong)
    places = (("spike", spike, (0.05, 0.95, 0.9)), ("matched", 4, (0.1, 0.1, 0.05)), ("random", 2, (0.1, 0.1, 0.05)))
    for policy in ("reference", "checkpoint"):
        for selection, position, shares in places:
            tokens = (trace.words[position], trace.wrong.get(position, trace.words[position]), "9")
            for arm, token, share in zip(("reference", "checkpoint", "alternative"), tokens, shares, strict=True):
                num_successes = int(rng.binomial(16, share)) if policy == "reference" else 16
                yield {
                    "sequence_id": sequence,
                    "position": position,
                    "spike_sequence_id": sequence,
                    "selection": selection,
                    "arm": arm,
                    "policy": policy,
                    "token_id": _ID[token],
                    "token": token,
                    "num_continuations": 16,
                    "num_successes": num_successes,
                    "num_failures": 0,
                    "first_continuations": 16,
                    "first_successes": num_successes,
                    "first_even_successes": num_successes // 2,
                }


def _interval(mean: float, half_width: float) -> dict[str, float]:
    return {"mean": mean, "low": max(0.0, mean - half_width), "high": mean + half_width}


def _rate(mean: float, half_width: float) -> dict[str, float]:
    return {"mean": mean, "low": max(0.0, mean - half_width), "high": min(1.0, mean + half_width)}


def _share(share: float, half_width: float) -> dict[str, float]:
    return {"mean": share, "low": max(0.0, share - half_width), "high": min(1.0, share + half_width)}


def _accuracy(stage: str, stage_step: int) -> float:
    if stage != "rl":
        return 0.47
    return float(0.47 + 0.525 / (1 + np.exp(-(stage_step - 22) / 5)))


def _right_trace(trace: Trace) -> str:
    first, second = trace.operands
    words, carry = [], 0
    for column in range(4):
        a, b = (first // 10**column) % 10, (second // 10**column) % 10
        total = a + b + carry
        words += [str(a), "+", str(b), "+", str(carry), "=", *f"{total:02d}", "write", str(total % 10), "carry"]
        carry = total // 10
        words += [str(carry), ";"]
    return " ".join([*words, "answer", *trace.gold.split()])


def _write_evaluations(run: RunDirectory, traces: Sequence[Trace], filled: Filled) -> None:
    for stage, step, stage_step in _STAGES:
        accuracy = _accuracy(stage, stage_step)
        summary = {
            "checkpoint": f"{stage}-{stage_step}",
            "stage": stage,
            "step": step,
            "stage_step": stage_step,
            "settings": {"eval": {"confidence": 0.95}},
            "greedy": {
                "num_problems": 400,
                "accuracy": _rate(round(accuracy, 4), 0.03),
                "trace_right": _rate(round(accuracy - 0.02, 4), 0.03),
                "num_tokens": _interval(57.0 + 0.01 * stage_step, 0.1),
                "entropy": _interval(round(0.08 * (1.4 - accuracy), 5), 0.004),
                "truncated": _rate(0.0, 0.0),
                "by_kind": {
                    f"{carries} carries": {"num_problems": 100, "accuracy": _rate(round(accuracy**carries, 4), 0.06)}
                    for carries in (0, 1, 2, 3)
                },
            },
            "sampled": dict.fromkeys(("accuracy", "mean_reward"), _rate(round(accuracy - 0.05, 4), 0.02)),
        }
        name = f"step_{step:06d}"
        write_sealed(run.path / "eval" / f"{name}.json", filled(Evaluation, summary))
        rows = [
            {
                **dict.fromkeys(EVALUATION_SCHEMA.names),
                "problem_id": f"addition-{trace.operands[0]}+{trace.operands[1]}",
                "kind": "1 carries",
                "difficulty": 1.0,
                "question": "",
                "gold": trace.gold,
                "prompt_ids": [1],
                "completion_ids": [1],
                "text": _right_trace(trace) if accuracy > 0.9 else trace.text,
                "extracted": trace.gold if accuracy > 0.9 else " ".join(trace.words[-6:-1]),
                "status": "graded",
                "answered": True,
                "correct": accuracy > 0.9,
                "trace_right": accuracy > 0.9,
                "entropy": 0.05,
                "reward": accuracy,
                "finish_reason": "stop",
                "temperature": 0.0,
                "sample": 0,
            }
            for trace in traces
        ]
        write_table(run.path / "eval" / f"{name}.parquet", rows, EVALUATION_SCHEMA)


def _probe_summary(means: Mapping[str, Mapping[str, float]], *, reliable: bool) -> dict[str, Any]:
    categories = ("number", "math_symbol", "word", "punctuation", "step_marker", "format")
    share_tokens = (0.55, 0.18, 0.14, 0.08, 0.03, 0.02)
    share_divergence = (0.9, 0.03, 0.03, 0.02, 0.01, 0.01)
    return {
        "reference": REFERENCE,
        "final": CHECKPOINTS[-1],
        "checkpoints": list(CHECKPOINTS),
        "divergence": "js",
        "spike_method": "zscore",
        "population": "reference_wrong_final_right",
        "selection": "greedy",
        "confidence": 0.95,
        "num_problems": 400,
        "num_reference_wrong": 215,
        "num_reference_wrong_final_right": 208,
        "num_rollouts": 200,
        "reliable": reliable,
        "notes": [] if reliable else ["12 rollouts, fewer than the 20 asked for: not to be relied upon"],
        "noise_floor": {name: {"mean": 2.1e-8, "max": 4.4e-7} for name in ("kl_forward", "kl_reverse", "js")},
        "spikes": [
            {
                "checkpoint": checkpoint,
                "divergence": divergence,
                "num_rollouts": 200,
                "num_spikes": 310 + 8 * index,
                "top_on_wrong": _share(round(0.2 + 0.72 * strength - offset, 4), 0.05),
                "top_on_first_wrong": _share(round(0.18 + 0.72 * strength - offset, 4), 0.05),
                "chance_wrong": 0.03,
                "chance_first_wrong": 0.026,
            }
            for index, (checkpoint, strength) in enumerate(zip(CHECKPOINTS, _STRENGTHS, strict=True))
            for divergence, offset in (("kl_forward", 0.06), ("kl_reverse", 0.01), ("js", 0.0))
        ],
        "divergences": [
            {
                "checkpoint": checkpoint,
                **{name: _interval(value, 0.12 * value) for name, value in means[checkpoint].items()},
            }
            for checkpoint in CHECKPOINTS
        ],
        "categories": [
            {
                "checkpoint": checkpoint,
                "category": category,
                "num_tokens": round(11600 * tokens),
                "share_tokens": tokens,
                "mean": {
                    name: _interval(divergence * means[checkpoint][name], 0.001)
                    for name in ("kl_forward", "kl_reverse", "js")
                },
                "share_divergence": divergence,
                "num_spikes": round(400 * divergence),
                "spike_rate": round(0.035 * divergence / tokens, 5),
                "base_rate": 0.035,
            }
            for checkpoint in CHECKPOINTS
            for category, tokens, divergence in zip(categories, share_tokens, share_divergence, strict=True)
        ],
        "causal": {
            "num_rollouts": 100,
            "num_continuations": 16,
            "selections": [
                {
                    "selection": "spike",
                    "reference": {"success": 0.061},
                    "checkpoint": {"success": 0.935},
                    "num_positions": 100,
                    "num_different": 98,
                    "effect": {"mean": 0.874, "low": 0.825, "high": 0.916},
                    "share_same_token": 0.02,
                    "different_tokens": {"checkpoint_minus_alternative": {"mean": 0.31, "low": 0.22, "high": 0.4}},
                },
                {
                    "selection": "random",
                    "reference": {"success": 0.102},
                    "checkpoint": {"success": 0.113},
                    "num_positions": 100,
                    "num_different": 7,
                    "effect": {"mean": 0.011, "low": -0.004, "high": 0.029},
                    "share_same_token": 0.93,
                },
            ],
        },
    }


def _write_probe(
    run: RunDirectory,
    traces: Sequence[Trace],
    rng: np.random.Generator,
    *,
    reliable: bool,
    entries: Mapping[str, Any],
    filled: Filled,
) -> None:
    tokens, topk, spikes, interventions = [], [], [], []
    sums: dict[str, dict[str, list[float]]] = {checkpoint: {} for checkpoint in CHECKPOINTS}
    for sequence, trace in enumerate(traces):
        ids = np.asarray([_ID[word] for word in trace.words])
        noise = rng.normal(0, 0.6, (len(ids), len(_WORDS)))
        reference = _model_logits(trace, 0.0, noise)
        topk += list(_topk_rows(sequence, REFERENCE, reference))
        interventions += list(_intervention_rows(sequence, trace, rng))
        for checkpoint, strength in zip(CHECKPOINTS, _STRENGTHS, strict=True):
            drift = noise + rng.normal(0, 0.05 + 0.25 * strength, noise.shape)
            logits = _model_logits(trace, strength, drift)
            columns = _token_columns(logits, reference, ids)
            fixed = {
                "sequence_id": [sequence] * len(ids),
                "position": list(range(len(ids))),
                "token_id": ids.tolist(),
                "checkpoint": [checkpoint] * len(ids),
                "reference": [REFERENCE] * len(ids),
                "category": [_category(word) for word in trace.words],
            }
            tokens += list(_records({**fixed, **columns}))
            # The same checkpoint against another one: rows the page must not mix up with those of the reference.
            other = {**fixed, **columns, "reference": ["sft-500"] * len(ids), "js": [0.5] * len(ids)}
            tokens += list(_records(other))
            if sequence < _NUM_RIGHT:
                tokens += list(_records({**fixed, **columns, "sequence_id": [len(traces) + sequence] * len(ids)}))
            topk += list(_topk_rows(sequence, checkpoint, logits))
            found = list(_spike_rows(sequence, checkpoint, trace, columns))
            spikes += [*_decoy_spikes(found), *found]
            for name in ("kl_forward", "kl_reverse", "js", "entropy", "entropy_ref"):
                sums[checkpoint].setdefault(name, []).extend(columns[name])
    sequences = [_sequence_row(*pair) for pair in enumerate(traces)]
    sequences += [_right_row(len(traces) + index, trace) for index, trace in enumerate(traces[:_NUM_RIGHT])]
    write_table(run.probe_path / "sequences.parquet", sequences, SEQUENCES_SCHEMA)
    write_table(run.probe_path / "tokens.parquet", tokens, TOKENS_SCHEMA)
    write_table(run.probe_path / "topk.parquet", topk, TOPK_SCHEMA)
    write_table(run.probe_path / "spikes.parquet", spikes, SPIKES_SCHEMA)
    write_table(run.probe_path / "interventions.parquet", interventions, INTERVENTIONS_SCHEMA)
    means = {checkpoint: {name: float(np.mean(v)) for name, v in entry.items()} for checkpoint, entry in sums.items()}
    digests = {path.name: sha256_file(path) for path in run.probe_path.glob("*.parquet")}
    summary = {**_probe_summary(means, reliable=reliable), "tables": digests, **entries}
    write_sealed(run.probe_path / "summary.json", filled(ProbeSummary, summary))


def write_synthetic_run(
    path: Path,
    *,
    num_rollouts: int = 12,
    seed: int = 0,
    hostile: bool = True,
    evaluation: bool = True,
    probe: bool = True,
    reliable: bool = True,
    entries: Mapping[str, Any] | None = None,
    config_yaml: str | None = None,
    filled: Filled,
) -> RunDirectory:
    """Write a run of three stages with ten evaluated and eight probed checkpoints; the last rollout may be hostile.

    `entries` are added to the summary of the probe; without them it has few metrics. `filled` completes records.
    """
    rng = np.random.default_rng(seed)
    run = RunDirectory(path)
    provenance = {
        "swerve_version": "0.1.0",
        "config_hash": "3f9a1c0e77d2b6a4",
        "seed": seed,
        "torch_version": "2.13.0",
        "transformers_version": "5.23.0",
        "created": "2026-01-02T03:04:05+00:00",
    }
    recipe = f"name: {path.name}\nseed: {seed}\neval:\n  confidence: 0.95\n" if config_yaml is None else config_yaml
    run.create(config_yaml=recipe, provenance=provenance)
    run.set_status("trained")
    for step in range(1, 589):
        place = ("rl", step - 508) if step > 508 else ("sft", step)
        append_metrics(run.metrics_path, {"step": step, "stage": place[0], "stage_step": place[1], "loss": 1 / step})
    traces = _traces(num_rollouts, hostile, rng)
    if evaluation:
        _write_evaluations(run, traces, filled)
    if probe:
        _write_probe(run, traces, rng, reliable=reliable, entries=entries or {}, filled=filled)
    return run
