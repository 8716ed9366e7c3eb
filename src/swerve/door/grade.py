"""`swerve.grade`: the answers of a table or a file, judged by a task's grader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from swerve.artifacts.frames import Framed, table_of_rows
from swerve.artifacts.given_rows import rows_of
from swerve.artifacts.samples import SampleFile
from swerve.door.given import is_place, problem_rows, working_folder, write_rows
from swerve.door.sample import SampleSet
from swerve.door.spoken import in_python, spoken
from swerve.errors import ConfigError, shown
from swerve.estimates import Estimate
from swerve.notebook import html_rows
from swerve.progress import Progress, shown_progress
from swerve.text import NOT_MEASURED, counted, percent_interval

_FORM = "give a list of mappings, a table with a row for each answer, or a file"


class Grades(Framed, Sequence[Mapping[str, Any]]):
    """Verdicts: each row of what was graded with `value`, `status`, `answered`, `extracted`, `parts` and `detail`."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
        """Keep the rows, and what `swerve grade --json` prints of them."""
        self._rows = list(rows)
        self.summary = dict(summary)
        """What `swerve grade --json` prints: counts, graders, audits."""

    @property
    def right(self) -> Estimate | None:
        """The share that is right, with its interval over problems; None: no answer could be graded."""
        found: Estimate | None = self.summary["right"]
        return found

    def __getitem__(self, place: Any) -> Any:
        """Return a row, or some."""
        if isinstance(place, str):
            columns = ", ".join(self.table().column_names)
            raise ConfigError(f"rows have numbers, got {place!r}; the columns of grades.to_pandas() are {columns}")
        return self._rows[place]

    def __len__(self) -> int:
        """Return how many answers were graded."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Go through the rows."""
        return iter(self._rows)

    def table(self) -> pa.Table:
        """Return one row an answer; what is neither a number nor a text is JSON."""
        plain = (str, int, float, bool, type(None))
        return table_of_rows(
            {name: value if isinstance(value, plain) else json.dumps(value, default=str) for name, value in row.items()}
            for row in self._rows
        )

    def _lines(self) -> list[tuple[str, str]]:
        summary = self.summary
        share = NOT_MEASURED if self.right is None else percent_interval(self.right)
        statuses = ", ".join(f"{name} {count}" for name, count in summary["statuses"].items())
        return [
            (
                "Grades",
                f"{counted(summary['num_records'], 'answer')} by {', '.join(summary['graders']) or summary['grader']}",
            ),
            ("right", f"{summary['num_right']}, {share}"),
            ("no answer", f"{summary['num_unanswered']}; {statuses}"),
            *([("left out", in_python(summary["left_out"].replace(" left out", "")))] if summary["left_out"] else []),
            *([("misread?", summary["misread"])] if summary["misread"] else []),
        ]

    def __repr__(self) -> str:
        """Return some lines: the graders, how many are right, how many have no answer, and what is left out."""
        return "\n".join(f"{name}: {value}" for name, value in self._lines())

    def _repr_html_(self) -> str:
        return html_rows(self._lines())


@spoken
def grade(
    answers: Any,
    golds: Any = None,
    *,
    task: str | None = None,
    problems: Any = None,
    fields: Mapping[str, str] | None = None,
    audits: str | Sequence[str] = (),
    out: str | Path | None = None,
    workers: int | None = None,
    cpu_seconds: float | None = None,
    memory_mb: int | None = None,
    progress: Progress | bool | None = None,
    **policies: Any,
) -> Grades:
    """Grade answers, and compare the verdicts with recorded ones, as `swerve grade` does.

    Args:
        answers: a table (pandas, polars, pyarrow, datasets, a mapping of columns) or a list of mappings, with a
            response and a gold answer each; a file; or samples. `swerve.rewards.math` judges one text.
        golds: of a list of texts as many gold answers; without `task` they are graded as mathematics.
        task: the grader: math, gsm8k, k_and_k, ...; samples and problems have their own.
        problems: problems by `id`, as a file or rows, for answers without a gold one.
        fields: the answers' fields, where they are called otherwise: `{"response": "completion", "gold": "answer"}`.
        audits: fields with recorded verdicts, which the grader's are compared with: `summary["audits"]`.
        out: where the verdicts go, too, as JSON Lines.
        workers: processes of graders that are not trusted with this one.
        cpu_seconds: of such a grader for each answer.
        memory_mb: of such a grader.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        policies: of the grader, such as `extraction=["boxed"]`.

    Raises:
        ConfigError: no grader is known, it has no such policy, or answers are something else.
        ArtifactError: an answer has no text or no gold answer, or a file cannot be read.

    Example:
        grades = swerve.grade([{"response": "It is 4.", "gold": "4"}], task="math")
        grades.right.mean, grades.to_pandas()["value"]
    """
    if "grader" in policies:
        raise ConfigError(f"there is no keyword 'grader'; it is 'task' here: task={policies['grader']!r:.60}")
    from swerve.config.runtime import RuntimeConfig
    from swerve.eval.answer_files import FIELDS, answer_file
    from swerve.eval.grading import MOST_KEPT, GradingSummary, check_answers, grade_answers, graded_row
    from swerve.eval.recorded_verdicts import VerdictComparison
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.runtime import apply_runtime
    from swerve.recipes.layers import overrides_of
    from swerve.recipes.loader import load_settings

    limits = {"grader_workers": workers, "grader_cpu_seconds": cpu_seconds, "grader_memory_mb": memory_mb}
    given = {name: value for name, value in limits.items() if value is not None}
    # The name of a field as a keyword; an answer may be the gold one, or what is judged.
    fields = dict(fields or {})
    for name in [name for name, field in policies.items() if name in (*FIELDS, "prompt") and isinstance(field, str)]:
        if name == "answer":
            field = f"{policies[name]!r:.60}"
            raise ConfigError(
                f"answer={field}: fields={{'gold': {field}}} names the field of the right answer, "
                f"fields={{'answer': {field}}} that of the text to judge"
            )
        fields["question" if name == "prompt" else name] = policies.pop(name)
    with working_folder() as folder:
        named = parse_fields([f"{name}={field}" for name, field in fields.items()], FIELDS)
        known = _place(problems, folder, "problems")
        chosen = [f"{name}={json.dumps(value)}" for name, value in policies.items()]
        task = "math" if task is None and golds is not None else task
        file = answer_file(_answers(_paired(answers, golds), folder), chosen, task, known, named)
        apply_runtime(load_settings(RuntimeConfig, overrides_of([given])))
        fields_of_verdicts = [audits] if isinstance(audits, str) else list(dict.fromkeys(audits))
        comparisons = [VerdictComparison(field, most=MOST_KEPT) for field in fields_of_verdicts]
        num, left_out = check_answers(file, comparisons)
        counts, rows = GradingSummary(file, left_out, comparisons), []
        for answer, reward in grade_answers(file, num, shown_progress(progress)):
            counts.add(answer, reward)
            rows.append(graded_row(answer.record, reward))
        if out is not None:
            _write(Path(out), rows)
        return Grades(rows, counts.summary())


def _paired(answers: Any, golds: Any) -> Any:
    """Return texts with their gold answers as pairs."""
    if golds is None:
        return answers
    texts, own = ([given] if isinstance(given, str) else list(given) for given in (answers, golds))
    if len(texts) != len(own):
        raise ConfigError(f"{counted(len(texts), 'text')} and {counted(len(own), 'gold answer')}; give as many of both")
    return list(zip(texts, own, strict=True))


def _answers(answers: Any, folder: Path) -> Path:
    """Return the file of what is graded, which is written where it is rows."""
    if isinstance(answers, SampleSet):
        if len(answers.files) > 1:
            raise ConfigError(f"these are samples of {len(answers.files)} models; give one's: samples['NAME']")
        return next(iter(answers.files.values()))
    if isinstance(answers, SampleFile):
        raise ConfigError("samples that are held have their verdicts; give the path of their file")
    if isinstance(answers, str) and not Path(answers).exists() and ("\n" in answers or " " in answers):
        raise ConfigError(f"{answers!r:.60} is one text; swerve.rewards.math(text, gold) judges it, or {_FORM}")
    if is_place(answers):
        return Path(answers)
    rows = rows_of(answers, what="answers", form=_FORM)
    for number, row in enumerate(rows):
        if isinstance(row, tuple | list) and len(row) == 2 and isinstance(row[0], str | None):
            rows[number] = {"response": row[0], "gold": row[1]}
        elif not isinstance(row, Mapping):
            raise ConfigError(f"answer {number} is {shown(row)}; {_FORM}, or pairs (response, gold)")
    if not rows:
        raise ConfigError(f"there are no answers; {_FORM}")
    return write_rows(folder, "answers", rows)


def _place(problems: Any, folder: Path, name: str) -> Path | None:
    if problems is None or is_place(problems):
        return None if problems is None else Path(problems)
    return write_rows(folder, name, problem_rows(problems))


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from swerve.artifacts.files import write_text

    if path.suffix != ".jsonl":
        raise ConfigError(f"out={str(path)!r} must end in .jsonl; grades.to_pandas() has other formats")
    write_text(path, "".join(f"{json.dumps(row, allow_nan=False, default=str)}\n" for row in rows))
