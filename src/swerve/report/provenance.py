"""Where what a page says is from, in one line at its end: intervals, date, versions, command and models."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from swerve.artifacts.samples import Samples, StoredSamples
from swerve.artifacts.study import Study
from swerve.progress import format_duration
from swerve.report.read import ReportInputs
from swerve.text import count, counted
from swerve.version import __version__

_OF_FILES = ("schema_version", "folder")
"""Keys of run.json that say nothing of how a run was made."""
_DIGITS = 12
"""Of a digest, in the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where what a page says is from."""

    date: str
    line: str
    rows: tuple[tuple[str, str], ...] = ()
    """All that is recorded, by name."""


def run_provenance(inputs: ReportInputs) -> Provenance:
    """Return when, how long, with what, of which models and by which command a run or a probe was made."""
    recorded = {
        key.replace("_", " "): str(value)
        for key, value in inputs.provenance.items()
        if isinstance(value, str | int | float) and key not in _OF_FILES
    }
    stages = inputs.provenance.get("stages")
    if isinstance(stages, dict):
        recorded["stages"] = ", ".join(f"{name} {count(steps)} steps" for name, steps in stages.items())
    if inputs.model:
        recorded["model"] = inputs.model

    # The models that are compared, else the last one that was evaluated, each with its size and digest.
    summary, sizes = inputs.summary, inputs.provenance.get("models")
    sizes = sizes if isinstance(sizes, dict) else {}
    digests = {each.checkpoint: each.weights_sha256 for each in inputs.evaluations[-1:]}
    if summary is not None:
        recorded |= {"reference": summary.reference, "compared": ", ".join(summary.checkpoints)}
        digests = {name: summary.weights_sha256.get(name, "") for name in (summary.reference, summary.final)}
        recorded |= {f"digest of {name}": digest for name, digest in summary.weights_sha256.items()}
    models = _models({name: (str(sizes.get(name, inputs.model)), digest) for name, digest in digests.items()})

    # The line has what people ask for first.
    date, seconds = recorded.get("date", "")[:10], inputs.provenance.get("seconds")
    took = f"{format_duration(seconds)} of training" if isinstance(seconds, int | float) and seconds else ""
    names = {"machine": "", "swerve version": "swerve ", "torch version": "torch ", "seed": "seed ", "command": ""}
    facts = [date, took, *(f"{name}{recorded[key]}" for key, name in names.items() if key in recorded)]
    levels = {each.confidence for each in inputs.evaluations if each.confidence}
    if summary is not None:
        levels.add(summary.confidence)
    level = levels.pop() if len(levels) == 1 else None
    return Provenance(date=date, line=_line(level, facts, models), rows=tuple(recorded.items()))


def samples_provenance(confidence: float, files: Sequence[Samples]) -> Provenance:
    """Return of which models files of samples are, and when and with what their page was written."""
    infos = [file.info for file in files]
    paths = [file.path for file in files if isinstance(file, StoredSamples)]
    models = {info.model.label: ("", info.model.fingerprint) for info in infos}
    made = f"sampled by swerve {_some({info.swerve_version for info in infos})}" if infos else ""
    facts = [*written_now(), _report_command(paths), made]
    return Provenance(date=facts[0], line=_line(confidence, facts, _models(models)))


def study_provenance(study: Study, folder: Path | None) -> Provenance:
    """Return of which runs a comparison is, when its page was written, and with what; `folder`: that of a study."""
    date, *versions = written_now()
    torch = _some({run.torch_version for run in study.runs if run.torch_version})
    facts = [
        date,
        *([f"swerve {study.swerve_version}", f"torch {torch}"] if torch else versions),
        _report_command([] if folder is None else [folder]),
        *([f"recipe {study.recipe}"] if study.recipe else []),
        f"seeds {_some(study.seeds)}",
    ]
    last = {run.variant: (run.model, run.weights_sha256 or "") for run in reversed(study.runs) if run.weights_sha256}
    return Provenance(date=date, line=_line(study.confidence, facts, _models(dict(reversed(last.items())))))


def card_line(made: Sequence[str], digests: Mapping[str, str]) -> str:
    """Return the line of a claim card.

    Args:
        made: when and with what it was written.
        digests: of its models, or of their files.
    """
    return _line(0.95, made, _models({name: ("", digest) for name, digest in digests.items()}))


def _line(confidence: float | None, facts: Iterable[str], models: str) -> str:
    """Return what people ask for, the level of the intervals first."""
    level = f"{100 * confidence:g}% intervals" if confidence else ""
    return "; ".join(filter(None, (level, ", ".join(filter(None, facts)), models)))


def _models(models: Mapping[str, tuple[str, str]]) -> str:
    """Return each model with its size and the first digits of its digest; a size that all have stands once.

    >>> _models({"sft-5": ("GPT-2 model of 8 parameters", "0123456789abcdef"), "rl-8": ("GPT-2 model", "")})
    'sft-5 0123456789ab (GPT-2 model of 8 parameters), rl-8 (GPT-2 model)'
    """
    sizes = {size for size, _ in models.values()}
    same = sizes.pop() if len(sizes) == 1 else ""
    each = [
        " ".join(filter(None, (name, digest[:_DIGITS], f"({size})" if size and not same else "")))
        for name, (size, digest) in models.items()
    ]
    return f"{same}: {', '.join(each)}" if same else ", ".join(each)


def written_now() -> list[str]:
    """Return when and with what a page is written that nothing else dates: the day, UTC, and versions."""
    facts = [datetime.now(UTC).strftime("%Y-%m-%d"), f"swerve {__version__}"]
    try:
        return [*facts, f"torch {version('torch')}"]
    except PackageNotFoundError:
        return facts


def _report_command(paths: Sequence[Path]) -> str:
    """Return the command that writes a page, of absolute paths with the last folder alone: a page is read elsewhere."""
    shown = [Path(*path.parts[-2:]) if path.is_absolute() else path for path in paths]
    return shlex.join(["swerve", "report", *map(str, shown)]) if paths else ""


def _some(values: Iterable[object]) -> str:
    """Return values in a list; of many how many there are.

    >>> _some((0, 1, 2)), _some(range(20))
    ('0, 1, 2', '20 values')
    """
    texts = [str(value) for value in values]
    return ", ".join(sorted(texts)) if len(texts) <= 10 else counted(len(texts), "value")
