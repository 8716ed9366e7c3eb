"""The rollouts as the page shows them: columns of rounded numbers for each checkpoint."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import Response
from swerve.report.names import population_note, population_title
from swerve.report.read import ProbeTables, ReportInputs

MAX_CELLS = 50_000
"""Most tokens x checkpoints that a page holds (about 100 bytes each); the first rollout is always shown."""

_OTHERS = 4
"""Of each population but the headline one, a fourth as many rollouts are shown."""
_OF_ONE_MODEL = ("entropy", "logprob", "rank")
"""What is shown of each checkpoint at a token, and of the reference, whose columns end in `_ref`."""

Group = Mapping[tuple[int, str], list[dict[str, Any]]]


@dataclass(slots=True)
class Vocabulary:
    """Distinct strings in order of first use, each with its index: a page stores a string once."""

    words: list[str] = field(default_factory=list)
    _index: dict[str, int] = field(default_factory=dict)

    def add(self, word: str) -> int:
        """Return the index of `word`, new or known."""
        if word not in self._index:
            self._index[word] = len(self.words)
            self.words.append(word)
        return self._index[word]


def compact(value: float | int | None) -> float | int | None:
    """Round to four significant digits; what is not finite becomes None.

    >>> compact(0.123456), compact(7), compact(2e-9), compact(float("inf"))
    (0.1235, 7, 0, None)
    """
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.4g}")
    if abs(rounded) < 1e-8:
        return 0
    return int(rounded) if rounded.is_integer() else rounded


def split_pieces(text: str, starts: Sequence[int], ends: Sequence[int]) -> tuple[list[str], list[str]]:
    """Split a text into its tokens and what lies before, between and after them.

    Offsets count Unicode characters, which JavaScript does not, so the cutting is done here.

    Returns:
        (tokens, gaps), with one gap more than tokens; joined in turn they give the text again.

    >>> split_pieces("4 + 6", [0, 2, 4, 5], [1, 3, 5, 5])
    (['4', '+', '6', ''], ['', ' ', ' ', '', ''])
    """
    tokens, gaps, position = [], [], 0
    for start, end in zip(starts, ends, strict=True):
        start = max(start, position)
        gaps.append(text[position:start])
        tokens.append(text[start : max(end, start)])
        position = max(end, start)
    return tokens, [*gaps, text[position:]]


def outside_spaces(tokens: Sequence[str], gaps: Sequence[str]) -> tuple[list[str], list[str]]:
    """Move the spaces before a token's text into the gap before it, so that marks lie on what a reader sees.

    Many tokenizers make the space before a word a part of its token. A token of spaces alone stays as it is.

    >>> outside_spaces(["a", " b", " "], ["", "", "", ""])
    (['a', 'b', ' '], ['', ' ', '', ''])
    """
    shown = [token.lstrip(" ") or token for token in tokens]
    moved = [token[: len(token) - len(kept)] for token, kept in zip(tokens, shown, strict=True)]
    return shown, [gap + space for gap, space in zip(gaps, [*moved, ""], strict=True)]


def viewer_payload(inputs: ReportInputs, *, max_rollouts: int) -> dict[str, Any] | None:
    """Return what the page's rollout viewer needs, or None where the probe has not run.

    The rollouts are the first `max_rollouts` of the headline population and a quarter as many of each other one, fewer
    where `MAX_CELLS` is reached. Divergences are those from the summary's reference, spikes those of its method.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None or tables.sequences.num_rows == 0:
        return None

    # Which rollouts are shown, and what is known of each token of theirs.
    reference = summary.reference
    tables = headline_rows(tables, reference=reference, method=summary.spike_method)
    checkpoints = _ordered_checkpoints(summary, tables)
    by_population = _by_population(tables.sequences, summary.population)
    sequences = _first_sequences(by_population, max_rollouts=max_rollouts, num_checkpoints=len(checkpoints))
    chosen = [sequence["sequence_id"] for sequence in sequences]
    groups = RolloutRows.of(tables, chosen)

    # Words and categories are sent once and referred to by number.
    vocabulary, categories = Vocabulary(), Vocabulary()
    rollouts = [
        _rollout(sequence, checkpoints, reference, groups, vocabulary, categories, inputs.final_completions)
        for sequence in sequences
    ]
    return {
        "reference": reference,
        "final": summary.final,
        "checkpoints": checkpoints,
        "steps": [inputs.step(label) for label in checkpoints],
        "divergence": summary.divergence,
        "divergence_names": DIVERGENCE_NAMES,
        "populations": _populations(by_population, sequences, summary),
        "max": {name: _largest(rollouts, name) for name in DIVERGENCE_NAMES},
        "vocabulary": vocabulary.words,
        "categories": categories.words,
        "rollouts": rollouts,
    }


def _ordered_checkpoints(summary: ProbeSummary, tables: ProbeTables) -> list[str]:
    measured = set(tables.tokens["checkpoint"].unique().to_pylist())
    return [label for label in summary.checkpoints if label in measured]


def headline_rows(tables: ProbeTables, *, reference: str, method: str) -> ProbeTables:
    """Return the tables with the rows the page shows: one pair for each checkpoint, one kind of spike, one policy."""
    interventions = _where(tables.interventions, "policy", "reference")
    if interventions is not None and interventions.num_rows == 0:
        interventions = _where(tables.interventions, "policy", "checkpoint")
    tokens = _where(tables.tokens, "reference", reference)
    assert tokens is not None
    return ProbeTables(
        sequences=tables.sequences,
        tokens=tokens,
        topk=tables.topk,
        spikes=_where(tables.spikes, "method", method),
        interventions=interventions,
    )


def _where(table: pa.Table | None, column: str, value: str) -> pa.Table | None:
    if table is None:
        return None
    return table.filter(pc.equal(table[column].cast(pa.string()), value))


def _by_population(table: pa.Table, headline: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rollouts of each population, the headline one first."""
    groups: dict[str, list[dict[str, Any]]] = {headline: []}
    for row in table.to_pylist():
        groups.setdefault(str(row["population"]), []).append(row)
    return {name: rows for name, rows in groups.items() if rows}


def _first_sequences(
    by_population: Mapping[str, Sequence[dict[str, Any]]], *, max_rollouts: int, num_checkpoints: int
) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = []
    cells = 0
    for number, rows in enumerate(by_population.values()):
        for row in rows[: max_rollouts if number == 0 else max(1, max_rollouts // _OTHERS)]:
            cells += len(row["token_starts"]) * max(1, num_checkpoints)
            if chosen and cells > MAX_CELLS:
                return chosen
            chosen.append(row)
    return chosen


def _populations(
    by_population: Mapping[str, Sequence[Mapping[str, Any]]],
    chosen: Sequence[Mapping[str, Any]],
    summary: ProbeSummary,
) -> list[dict[str, Any]]:
    """Return what the page says of the populations of which it shows rollouts."""
    shown = Counter(str(row["population"]) for row in chosen)
    return [
        {
            "id": name,
            "title": population_title(name, summary),
            "note": population_note(name, rows[0]["label"], summary),
            "shown": shown[name],
            "total": len(rows),
        }
        for name, rows in by_population.items()
        if shown[name]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRows:
    """Rows of the probe's tables by sequence and checkpoint (interventions: by sequence)."""

    tokens: Group
    topk: Group
    spikes: Group
    interventions: Mapping[int, list[dict[str, Any]]]
    names: Mapping[int, str]
    """What is known of the vocabulary: token id to string."""

    def words(self, sequence: Mapping[str, Any]) -> list[str]:
        """Return each token of a rollout as the vocabulary writes it; one without a text has its id."""
        pieces, _ = split_pieces(sequence["text"], sequence["token_starts"], sequence["token_ends"])
        pairs = zip(sequence["completion_ids"], pieces, strict=True)
        return [self.names.get(token_id, piece or f"[{token_id}]") for token_id, piece in pairs]

    @staticmethod
    def of(tables: ProbeTables, chosen: Sequence[int]) -> RolloutRows:
        """Return the rows of some sequences, by their ids."""
        interventions = defaultdict(list)
        for row in _rows(tables.interventions, chosen):
            interventions[row["sequence_id"]].append(row)
        topk = _rows(tables.topk, chosen)
        return RolloutRows(
            tokens=_grouped(_rows(tables.tokens, chosen)),
            topk=_grouped(topk),
            spikes=_grouped(_rows(tables.spikes, chosen)),
            interventions=interventions,
            names={index: token for row in topk for index, token in zip(row["token_ids"], row["tokens"], strict=True)},
        )


def _rows(table: pa.Table | None, chosen: Sequence[int]) -> list[dict[str, Any]]:
    if table is None:
        return []
    wanted = pa.array(chosen, type=table.schema.field("sequence_id").type)
    rows: list[dict[str, Any]] = table.filter(pc.is_in(table["sequence_id"], value_set=wanted)).to_pylist()
    return rows


def _grouped(rows: Sequence[dict[str, Any]]) -> Group:
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["sequence_id"], row["checkpoint"]].append(row)
    for entries in groups.values():
        entries.sort(key=lambda row: row["position"])
    return groups


def _rollout(
    sequence: Mapping[str, Any],
    checkpoints: Sequence[str],
    reference: str,
    groups: RolloutRows,
    vocabulary: Vocabulary,
    categories: Vocabulary,
    finals: Mapping[str, Response],
) -> dict[str, Any]:
    identity = sequence["sequence_id"]
    pieces = split_pieces(sequence["text"], sequence["token_starts"], sequence["token_ends"])
    tokens, gaps = outside_spaces(*pieces)
    by_checkpoint = [groups.tokens.get((identity, label)) for label in checkpoints]
    rows = next((rows for rows in by_checkpoint if rows), [])
    return {
        "id": identity,
        "problem": sequence["problem_id"],
        "kind": sequence["kind"],
        "population": sequence["population"],
        "source": sequence["label"],
        "correct": sequence["correct"],
        "question": sequence["question"],
        "gold": sequence["gold"],
        "answer": sequence["extracted"],
        "final": _final(finals.get(sequence["problem_id"])),
        "tokens": tokens,
        "gaps": gaps,
        # Each token as the vocabulary writes it: what the top tokens are compared with; the end has no other text.
        "words": [vocabulary.add(word) for word in groups.words(sequence)],
        "categories": [categories.add(row["category"] or "") for row in rows],
        "first_wrong": sequence["first_wrong"],
        "wrong": list(zip(sequence["wrong_positions"] or [], sequence["wrong_expected"] or [], strict=False)),
        "reference": _reference_columns(rows, groups.topk.get((identity, reference)), vocabulary),
        "by_checkpoint": [
            _checkpoint_columns(
                rows, groups.topk.get((identity, label)), groups.spikes.get((identity, label)), vocabulary
            )
            for label, rows in zip(checkpoints, by_checkpoint, strict=True)
        ],
        "causal": [_intervention(row) for row in groups.interventions.get(identity, [])],
    }


def _final(completion: Response | None) -> dict[str, Any] | None:
    return None if completion is None else {"text": completion.text or "", "answer": completion.extracted}


def _reference_columns(
    rows: Sequence[Mapping[str, Any]], topk: Sequence[Mapping[str, Any]] | None, vocabulary: Vocabulary
) -> dict[str, Any]:
    columns = {name: [compact(row[f"{name}_ref"]) for row in rows] for name in _OF_ONE_MODEL}
    return {**columns, "top": _top(topk, vocabulary)}


def _checkpoint_columns(
    rows: Sequence[Mapping[str, Any]] | None,
    topk: Sequence[Mapping[str, Any]] | None,
    spikes: Sequence[Mapping[str, Any]] | None,
    vocabulary: Vocabulary,
) -> dict[str, Any] | None:
    if not rows:
        return None
    columns = {name: [compact(row[name]) for row in rows] for name in (*DIVERGENCE_NAMES, *_OF_ONE_MODEL)}
    by_height = sorted(spikes or [], key=lambda row: row["height"])
    return {
        **columns,
        "top": _top(topk, vocabulary),
        "spikes": {
            name: [row["position"] for row in by_height if row["divergence"] == name] for name in DIVERGENCE_NAMES
        },
    }


def _top(rows: Sequence[Mapping[str, Any]] | None, vocabulary: Vocabulary) -> list[list[Any]] | None:
    """Each position's most likely tokens as one flat list: word, probability (to 0.0001), word, probability, ..."""
    if not rows:
        return None
    flat: list[list[Any]] = []
    for row in rows:
        pairs = zip(row["tokens"], row["probs"], strict=True)
        flat.append([entry for token, prob in pairs for entry in (vocabulary.add(token), round(prob, 4))])
    return flat


def _intervention(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "selection": row["selection"],
        "arm": row["arm"],
        "policy": row["policy"],
        "spike": row["spike_sequence_id"],
        "position": row["position"],
        "token": row["token"],
        "num": row["num_continuations"],
        "successes": row["num_successes"],
    }


def _largest(rollouts: Sequence[Mapping[str, Any]], name: str) -> float | int:
    """Return the top of the colour scale, the same for all rollouts and checkpoints; JS has a bound of its own."""
    if name == "js":
        return 0.6931
    values = [
        value for rollout in rollouts for entry in rollout["by_checkpoint"] if entry for value in entry[name] if value
    ]
    return max(values, default=1.0)
