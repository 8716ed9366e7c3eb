"""`swerve.compare`: runs, samples and files of responses side by side, paired by problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.given_rows import rows_of
from swerve.artifacts.responses import Response, by_problem
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import SampleFile, StoredSamples, is_samples_file
from swerve.door.evaluate import run_of
from swerve.door.given import is_place, working_folder, write_rows
from swerve.door.grade import Grades
from swerve.door.kinds import kind_of
from swerve.door.sample import SampleSet
from swerve.door.spoken import in_python, spoken
from swerve.errors import ArtifactError, ConfigError, not_there

_FORM = "give runs, what swerve.sample or swerve.grade returned, or files or tables of graded responses"


@spoken
def compare(*sources: Any, baseline: str | None = None, fields: Mapping[str, str] | None = None) -> Comparison:
    """Compare runs, samples or graded responses: every measure, and paired differences over common problems.

    Args:
        sources: two or more, or label -> source. Of a run its last evaluated checkpoint counts, of `RUN:LABEL` that
            one, and greedy answers come first; samples are what `swerve.sample` returned, or one model's of it; a file,
            or a table, is one of samples, or of responses that are graded, as `swerve.grade` returns them. A table with
            several labels is as many sources.
        baseline: label of what the others are compared with; by default the first.
        fields: names of the files' fields, where they differ from those known.

    Raises:
        ConfigError: there is one source only, two have one label, or no label is the baseline.
        ArtifactError: a run is not evaluated, or a file cannot be read.

    Example:
        swerve.compare("demo-addition", "demo-addition-2")
        swerve.compare({"before": "a.parquet", "after": "b.jsonl"})
    """
    from swerve.eval.comparison import compare as compare_responses

    given: list[tuple[str | None, Any]] = []
    for source in sources:
        if isinstance(source, Mapping) and kind_of(source) != "rows":
            given += [(str(label), own) for label, own in source.items()]
        elif isinstance(source, SampleSet):
            given += [(None, source[label]) for label in source.labels]
        elif isinstance(source, Grades) or kind_of(source) == "rows":
            given += _labelled(source, f"answers {1 + len(given)}")
        elif isinstance(source, list | tuple) and not all(isinstance(entry, Response) for entry in source):
            given += [(None, own) for own in source]
        else:
            given.append((None, source))
    notes: list[str] = []
    read = [_read(own, label, fields, notes) for label, own in given]
    if len(read) < 2:
        raise ConfigError(f"{len(read)} to compare; {_FORM}, two or more")
    labels = [label for label, _ in read]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two are called {twice!r}; give them names, as in swerve.compare({{'early': ..., 'late': ...}})"
        )
    # Of runs alone the greedy answers come first, as wherever else a run is spoken of.
    pooled = any(_run_of(own)[0] is None for _, own in given)
    compared = compare_responses((iter(responses) for _, responses in read), baseline=baseline, pooled=pooled)
    return compared.model_copy(update={"notes": (*compared.notes, *notes)})


def _labelled(table: Any, name: str) -> list[tuple[str | None, Any]]:
    """Return a table's rows by label; rows without one have this name."""
    by_label: dict[Any, list[Any]] = {}
    for row in list(table) if isinstance(table, Grades) else rows_of(table, what="answers", form=_FORM):
        by_label.setdefault(row.get("label") if isinstance(row, Mapping) else None, []).append(row)
    return [(name if label is None else str(label), own) for label, own in by_label.items()]


def _read(
    source: Any, label: str | None, fields: Mapping[str, str] | None, notes: list[str]
) -> tuple[str, Iterator[Response]]:
    """Return what a source is called, and its responses, each with this label; note what takes no part."""
    run, checkpoint = _run_of(source)
    if run is not None:
        return _named(label or checkpoint or run.path.name, _evaluated(run, checkpoint))
    if isinstance(source, SampleFile | StoredSamples):
        return _named(label or source.info.model.label, iter(source.samples))
    if isinstance(source, Grades) or kind_of(source) == "rows":
        rows = list(source) if isinstance(source, Grades) else rows_of(source, what="answers", form=_FORM)
        said: list[str] = []
        with working_folder() as folder:
            place = write_rows(folder, "answers", rows)
            found = _read(place, label, fields, said)
        notes += [note.replace(str(place), found[0]) for note in said]
        return found
    if not is_place(source):
        if not isinstance(source, Sequence) or not source or not all(isinstance(one, Response) for one in source):
            what = "an empty" if isinstance(source, Sequence) and not source else "a"
            raise ConfigError(f"{what} {type(source).__name__} is nothing that can be compared; {_FORM}")
        return _named(label or str(source[0].label), iter(source))
    path = Path(source)
    if not path.exists():
        raise ArtifactError(f"{path} {not_there(str(path), _FORM)}")
    if is_samples_file(path):
        return _read(StoredSamples(path), label, fields, notes)
    from swerve.formats.imported_responses import LeftOut, iter_responses

    left_out = LeftOut()
    responses = list(iter_responses(path, left_out=left_out, fields=fields, verdicts_suffice=True))
    unjudged = sum(response.verdict is None for response in responses)
    judged = f"responses without a verdict, no part of its accuracy: {unjudged} of {len(responses)}" * (unjudged > 0)
    judged += "; swerve.grade judges them" * (unjudged == len(responses) > 0)
    notes += [f"{path}: {in_python(note)}" for note in (left_out.note, *left_out.notes, judged) if note]
    in_order = itertools.chain.from_iterable(by_problem(responses).values())  # a file's rows stand in any order
    return _named(label or path.name.partition(".")[0], in_order)


def _run_of(source: Any) -> tuple[RunDirectory | None, str | None]:
    """Return the run that something is, or names, and of `RUN:LABEL` the label of its checkpoint."""
    run = run_of(source)
    if run is not None or not is_place(source):
        return run, None
    name, colon, selector = str(source).rpartition(":")
    run = run_of(name) if colon and not Path(source).exists() else None
    return run, None if run is None else run.select_checkpoint(selector).label


def _evaluated(run: RunDirectory, checkpoint: str | None) -> Iterator[Response]:
    """Return the held-out answers of a checkpoint of a run, by default of the last that is evaluated."""
    from swerve.artifacts.evaluation import read_evaluations
    from swerve.artifacts.response_columns import EVALUATION_SCHEMA
    from swerve.artifacts.responses import iter_response_table

    known = [one for one in read_evaluations(run) if checkpoint in (None, one.checkpoint)]
    if not known:
        what = run.path if checkpoint is None else f"{checkpoint} of {run.path}"
        raise ArtifactError(f"{what} is not evaluated; do it with swerve.evaluate({str(run.path)!r})")
    return iter_response_table(run.path / "eval" / f"{known[-1].file_name}.parquet", EVALUATION_SCHEMA)


def _named(label: str, responses: Iterator[Response]) -> tuple[str, Iterator[Response]]:
    return label, (replace(response, label=label) for response in responses)
