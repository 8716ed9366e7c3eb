"""Behaviours of the responses of a run or of any file: records, metrics with intervals over problems, and notes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from swerve.artifacts.messages import message_notes
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.responses import Response, by_problem, read_response_table
from swerve.artifacts.run import RunDirectory, find_run
from swerve.artifacts.samples import is_samples_file
from swerve.behaviours.diversity import Embedder
from swerve.behaviours.label_summary import summarise
from swerve.behaviours.measures import problem_values
from swerve.behaviours.response_rows import Lexicon, Row
from swerve.behaviours.signs import SIGNS
from swerve.config.recipe import Config
from swerve.errors import ArtifactError, ConfigError, SwerveError, nearest
from swerve.eval.comparison import adjusted, check_baseline, measure_differences
from swerve.eval.pairing import shared
from swerve.formats import imported_responses
from swerve.formats.imported_responses import LeftOut
from swerve.formats.problem_joins import with_groups
from swerve.formats.table_files import is_table
from swerve.formats.typed_fields import RESPONSE_NAMES, parse_fields
from swerve.problems import load_family
from swerve.recipes.loader import load_run_config
from swerve.seeds import derive_seed
from swerve.statistics.pass_at_k import SampledProblem, sampling_curve

_BY = ("label", "step", "set")
"""What the responses of a file are compared by, unless the user says: the first of these that it has."""


def behaviour_summary(
    responses: Sequence[Response],
    rows: Sequence[Row],
    *,
    source: str,
    by: str | None,
    baseline: str | None = None,
    lexicon: Lexicon | None = None,
    embed: Embedder | None = None,
    left_out: LeftOut | None = None,
) -> dict[str, Any]:
    """Return the metrics of each label with their intervals, pass@k, differences from the baseline, and notes.

    Differences are those of a comparison of models: each measure, paired over the problems that two labels share.

    Args:
        responses: what is measured.
        rows: `behaviour_rows` of the same responses.
        source: where the responses are from, and
        by: what they are compared by: both are only recorded.
        baseline: the label that the others are compared with; by default the first.
        lexicon: the phrases to count; by default those that ship.
        embed: texts to vectors, for the similarity of embeddings.
        left_out: records of the source without a response, which are noted.
    """
    # Differences from the baseline, with p-values adjusted for all of them.
    labels = summarise(responses, rows=rows, lexicon=lexicon, embed=embed)
    names = [label["label"] for label in labels]
    check_baseline(baseline, names)
    base = baseline or names[0]
    own: dict[str, list[Response]] = {}
    for response, row in zip(responses, rows, strict=True):
        own.setdefault(row["label"], []).append(response)
    values = {name: problem_values(by_problem(own[name]), lexicon=lexicon, embed=embed) for name in names}
    asked = (response.problem for response in responses)
    clusters = {problem.id: problem.cluster for problem in asked if problem.group is not None}
    differences = adjusted(
        [
            {} if name == base else measure_differences(values[base], values[name], base, clusters=clusters)
            for name in names
        ]
    )
    # What is known of each label, and of all.
    for label, of_label in zip(labels, differences, strict=True):
        label["sampling"] = _sampling(own[label["label"]])
        label["differences"] = {name: difference.model_dump() for name, difference in of_label.items()}
    notes = [*filter(None, [left_out.note if left_out else None]), *_notes(responses)]
    groups = {name: by_problem(own[name]) for name in names}
    for name in names:
        if not shared((base, name), (groups[base], groups[name]), notes) and by == "source":
            notes.append(f"{base} and {name} have no problem in common, by id or question: they are not compared")
    known = {"source": source, "by": by, "baseline": base, "num_responses": len(responses)}
    return {**known, "notes": notes, "labels": labels}


def file_responses(
    path: Path, *, by: str | None, fields: Mapping[str, str], left_out: LeftOut
) -> tuple[list[Response], str | None]:
    """Return the responses of a file in the order in which labels are shown, and the field they are compared by.

    Args:
        path: see `read_response_table`.
        by: field to compare by; by default the first of label, step and set that the file has.
        fields: names of the file's fields where they differ from those known.
        left_out: counts records without a response.

    Raises:
        ArtifactError: the file is damaged, or a response has no text.
        ConfigError: the file has no field `by`.
    """
    responses = with_groups(list(imported_responses.iter_responses(path, left_out=left_out, fields=fields)))
    for response in responses:
        if response.text is None:
            raise ArtifactError(f"{response.place} has token ids but no text; behaviours are measured on texts")

    # What the file's responses can be compared by, and what they are.
    comparable = list(map(_comparable, responses))
    known = sorted({name for values in comparable for name, value in values.items() if value not in (None, "")})
    # The file may call a field otherwise than its responses do.
    places = {**RESPONSE_NAMES, **{name: (field,) for name, field in fields.items()}}
    source = by if by in known else next((name for name in known if by in places.get(name, ())), None)
    if by is not None and source is None:
        raise ConfigError(f"--by '{by}' is not a field of {path}{nearest(by, known)}; it has {', '.join(known)}")
    chosen = by or next((name for name in _BY if name in known), None)
    if chosen is None:
        return [replace(response, label="all") for response in responses], None

    # Numbers are in their order, names in that of the file.
    values: list[Any] = [own.get(source or chosen) for own in comparable]
    labelled = []
    for response, value in zip(responses, values, strict=True):
        label = f"no {chosen}" if value in (None, "") else str(value)
        if isinstance(value, int | float):
            label = f"{chosen} {value:g}" if isinstance(value, float) else f"{chosen} {value}"
        labelled.append(replace(response, label=label))
    if all(isinstance(value, int | float) for value in values):
        order = sorted(range(len(values)), key=lambda number: values[number])
        labelled = [labelled[number] for number in order]
    return labelled, chosen


def _comparable(response: Response) -> dict[str, Any]:
    """Return the single values of a response by which it can be compared with others."""
    problem = response.problem
    own = {name: getattr(response, name) for name in ("label", "step", "correct", "finish_reason", "temperature")}
    asked = {"problem_id": problem.id, "family": problem.family, "kind": problem.kind, "difficulty": problem.difficulty}
    others = {name: value for name, value in response.extra.items() if isinstance(value, str | int | float)}
    return {**others, **own, **asked, "set": response.population}


def run_responses(run: RunDirectory, config: Config) -> list[Response]:
    """Return the rollouts of a run by step, with their problems and the beginning of the answer that its prompts gave.

    Where the run's problems cannot be made or read here, rollouts have their ids alone.

    Raises:
        ArtifactError: the run has no rollouts, or a table is damaged.
    """
    paths = sorted((run.path / "rollouts").glob("step_*.parquet"))
    if not paths:
        raise ArtifactError(f"{run.path} has no rollouts; train an rl or distill stage with keep_rollouts: true")
    task = config.task
    try:
        problems = load_family(task).problems("train", seed=derive_seed(config.seed, "problems"))
    except SwerveError:  # its data is not here
        problems = []
    known = {problem.id: problem for problem in problems}
    begun = run.read_provenance().get("answer_begun")
    rollouts: list[Response] = []
    for path in paths:
        for number, rollout in enumerate(read_response_table(path, ROLLOUTS_SCHEMA), start=1):
            unknown = replace(rollout.problem, family=task.kind, prefix=task.prefix)
            problem = replace(known.get(rollout.problem.id, unknown), begun=begun)
            place = f"{path.name}, row {number}"
            rollouts.append(replace(rollout, problem=problem, label=f"step {rollout.step}", place=place))
    return rollouts


def _sampling(responses: Sequence[Response]) -> list[dict[str, Any]]:
    """Return pass@k, pass^k and maj@k over the problems whose samples all have a verdict."""
    sampled: list[SampledProblem] = []
    for group in by_problem(responses).values():
        verdicts = [response.verdict for response in group]
        if None not in verdicts:
            answers = [response.extracted and " ".join(response.extracted.split()) for response in group]
            sampled.append({"answers": answers, "right": list(map(bool, verdicts))})
    return [asdict(entry) for entry in sampling_curve(sampled)]


def _notes(responses: Sequence[Response]) -> list[str]:
    """Say what could not be measured, and how few problems intervals rest on."""
    notes, num = [], len(responses)
    num_problems = len(by_problem(responses))
    if num_problems < 10:
        notes.append(f"intervals are over problems, and {num_problems} are too few to say much")
    num_without = sum(not response.problem.question for response in responses)
    if num_without:
        notes.append(
            f"{num_without} of {num} responses have no question beside them: thinking about something else and signs "
            f"that need the question ({', '.join(_NEED_QUESTION)}) are not measured there"
        )
    num_unjudged = sum(response.verdict is None for response in responses)
    if num_unjudged == num:
        notes.append(f"accuracy and pass@k are not determined, because none of {num} responses has a verdict")
    elif num_unjudged:
        groups: dict[tuple[str | None, str], list[bool | None]] = {}
        for response in responses:
            groups.setdefault((response.label, response.problem.id), []).append(response.verdict)
        whole = sum(None not in verdicts for verdicts in groups.values())
        notes.append(
            f"{num_unjudged} of {num} responses have no verdict; accuracy is over the others, and pass@k over the "
            f"problems of a label whose responses all have one, {whole} of {len(groups)}"
        )
    return notes + message_notes((each.turns, each.no_answer) for each in responses)


_NEED_QUESTION = ("thinking_repeats_question", "answer_repeats_question", "lists_all_options")
assert set(_NEED_QUESTION) <= set(SIGNS)


def source_responses(
    sources: Sequence[str], by: str | None, fields: Sequence[str], left_out: LeftOut
) -> tuple[list[Response], str | None]:
    """Return the responses of all sources and what they are compared by: of several sources, them and their labels.

    A source without labels, or with one that others have too, goes by its own name, with the folders before it that
    tell it from another of this name.

    Args:
        sources: runs, tables of rollouts, files of responses, folders of samples.
        by: field to compare by; None: see `file_responses`.
        fields: `NAME=FIELD` of files whose fields are called otherwise.
        left_out: counts records without a response.

    Raises:
        ArtifactError: a source does not exist or is damaged.
        ConfigError: `by` or `fields` does not fit a source, or one is given twice.
    """
    read = [each for source in sources for each in _records(source, by, fields, left_out)]
    if len(read) == 1:
        return read[0][1:]
    labels = Counter(label for _, records, _ in read for label in {record.label for record in records})
    responses = []
    names = _names([place for place, _, _ in read])
    for name, (_, records, chosen) in zip(names, read, strict=True):
        num = len({record.label for record in records})
        for record in records:
            shared = name if num == 1 else f"{name} {record.label}"
            is_own = chosen is not None and labels[record.label] == 1
            responses.append(record if is_own else replace(record, label=shared))
    return responses, "source"


def _names(places: Sequence[Path]) -> list[str]:
    """Return what files and runs are called, with an ending and folders before it only where names alone are the same.

    Raises:
        ConfigError: one is given twice.

    >>> _names([Path("/a/base/results.jsonl"), Path("/a/rl/results.jsonl")])
    ['base/results', 'rl/results']
    """
    for place, count in Counter(places).items():
        if count > 1:
            raise ConfigError(f"{place} is given {count} times; give each source once")
    candidates = (
        [
            "/".join((*place.parts[-depth:-1], place.name if has_ending else place.name.partition(".")[0]))
            for place in places
        ]
        for depth in itertools.count(1)
        for has_ending in (False, True)
    )
    return next(names for names in candidates if len({*names}) == len(names))


def _records(
    source: str, by: str | None, fields: Sequence[str], left_out: LeftOut
) -> Iterator[tuple[Path, list[Response], str | None]]:
    """Yield place, responses and what they are compared by: of a file, those in a folder of samples, or a run."""
    path, named = Path(source), parse_fields(fields)
    files = [path] if path.is_file() else [file for file in sorted(path.glob("*.parquet")) if is_samples_file(file)]
    files = files or [path] * (path.is_dir() and is_table(path))
    if files:
        for file in files:
            yield file.absolute(), *file_responses(file, by=by, fields=named, left_out=left_out)
        return
    if path.suffix and not path.exists():
        raise ArtifactError(f"{path} does not exist; give a run, or a file of responses")
    if by not in (None, "step"):
        raise ConfigError(f"--by {by}: the rollouts of a run are compared by step; give one of its tables instead")
    if fields:
        raise ConfigError("--field names the fields of a file of responses; a run has its own")
    run = find_run(source)
    yield run.path.resolve(), run_responses(run, load_run_config(run, ())), "step"
