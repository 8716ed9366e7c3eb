"""`swerve.sample`: graded completions of any models on any problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from filecmp import cmp
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.frames import Framed
from swerve.artifacts.output_names import check_output
from swerve.artifacts.responses import Response
from swerve.artifacts.samples import StoredSamples, file_of_model, how_judged, num_words, right_words
from swerve.config.sampling import SampleSettings
from swerve.door.given import models_of, task_of, temporary_folder, working_folder
from swerve.door.keywords import SAMPLING, SampleKeywords, as_called, check_keywords, keywords_of, settings_of
from swerve.door.spoken import spoken
from swerve.errors import ConfigError, nearest, refusals_told
from swerve.progress import Progress, shown_progress

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


class SampleSet(Framed):
    """The samples of one model or several: going through it gives the responses, `samples["rl"]` those of a model."""

    def __init__(self, files: Mapping[str, Path], *, folder: TemporaryDirectory[str] | None = None) -> None:
        """Name the files.

        Args:
            files: of each model, by label.
            folder: where they are, if it lasts only as long as this.
        """
        self.files = dict(files)
        """The file of each model's samples, by label."""
        self._folder = folder

    @property
    def labels(self) -> list[str]:
        """What the models are called."""
        return list(self.files)

    def __iter__(self) -> Iterator[Response]:
        """Go through the responses, model by model and problem by problem."""
        for path in self.files.values():
            yield from StoredSamples(path).samples

    def __len__(self) -> int:
        """Return the number of responses."""
        return sum(len(StoredSamples(path)) for path in self.files.values())

    def __getitem__(self, label: str) -> StoredSamples:
        """Return the samples of a model."""
        if label not in self.files:
            hint = nearest(str(label), self.files) or f"; there are {self._names}"
            raise ConfigError(f"there is no model {label!r}{hint}")
        return StoredSamples(self.files[label])

    @property
    def is_temporary(self) -> bool:
        """Whether the files last only as long as this."""
        return self._folder is not None

    @property
    def _names(self) -> str:
        return ", ".join(self.files)

    def _instead_of(self, name: str) -> str | None:
        return f"a model's samples are samples[{name!r}]" if name in self.__dict__.get("files", ()) else None

    def file_of(self, label: str, source: Path | str) -> Path | None:
        """Return the samples of a model by what it is called, or else by where it is; None: there are none."""
        return file_of_model(self.files, label, source)

    @cached_property
    def comparison(self) -> Comparison:
        """Every measure of each model with its interval, and the differences from the first."""
        from swerve.eval.comparison import compare

        return compare((StoredSamples(path).samples for path in self.files.values()), pooled=True)

    def table(self) -> pa.Table:
        """Return one row a response; `label` is the model's."""
        return pa.concat_tables([StoredSamples(path).table() for path in self.files.values()])

    @refusals_told()
    def save(self, folder: str | Path) -> Path:
        """Copy the files to a folder, as `LABEL.parquet`; return the folder.

        Raises:
            ConfigError: it has an ending, as of a file, or has other samples of a model already.
            ArtifactError: the system refuses to write there.
        """
        place = Path(folder)
        check_output(place, folder=True, option="")
        copies = {place / f"{label}.parquet": path for label, path in self.files.items()}
        there = {copy for copy in copies if copy.exists()}
        other = next((copy for copy in copies if copy in there and not cmp(copies[copy], copy, shallow=False)), None)
        if other is not None:
            raise ConfigError(f"{other} has other samples, which would be lost; give another folder, or remove it")
        place.mkdir(parents=True, exist_ok=True)
        for copy, path in copies.items():
            if copy not in there:
                copyfile(path, copy)
        return place

    def __repr__(self) -> str:
        """Return three lines: the models, how many are right, and where they are."""
        first = next(iter(self.files.values()))
        info = StoredSamples(first).info
        tables = {label: StoredSamples(path).table() for label, path in self.files.items()}
        rates = ", ".join(f"{label} {right_words(table)}" for label, table in tables.items())
        judged = how_judged(pa.concat_tables(tables.values()))
        place = str(first.parent if len(self.files) > 1 else first)
        if self._folder:
            place = "in a temporary folder; save(FOLDER) keeps it"
        return f"SampleSet of {self._names}: {num_words(info)}\n{rates}{judged}\n{place}"

    def _repr_html_(self) -> str:
        return self.comparison._repr_html_()


@spoken
def sample(
    models: Any,
    problems: Any = None,
    *,
    task: Any = None,
    data: Any = None,
    fields: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    **keywords: Unpack[SampleKeywords],
) -> SampleSet:
    """Sample and grade completions of models on the same problems, as `swerve sample` does.

    Args:
        models: one, a list of them, or label -> model. A model is a folder, `RUN:LABEL`, `run.model("rl")`, a name on
            the hub (`owner/name#revision`), or a model of transformers in memory, alone or as `(model, tokenizer)`.
        problems: a file, a folder or a data set; the name of a task (`swerve.tasks()`); a list of mappings with
            `question` and `answer`, or of such pairs; or a table of pandas, polars, pyarrow or datasets.
            `SampleSettings` say it, too.
        task: what the problems are of, or whose are sampled: a name, or a mapping such as `{"kind": "math", "levels":
            [3]}`.
        data: another name of `problems`, as in the terminal.
        fields: the problems' fields, where they are called otherwise: `{"question": "prompt", "answer": "gold"}`.
        out: the file (`.parquet`) of one model, else the folder of the files; interrupted, the same call continues.
            None: a temporary folder, which lasts as long as the result; `save` keeps it.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        keywords: `num_samples`, `max_new_tokens`, `temperature` (one, or several that share the samples), `limit`,
            `seed`, `split`, `system`, `template`, `template_args`, `date`, `batch`, `device`, `dtype`, `problem_seed`,
            `runtime` and `rollout` as in a recipe; `help(swerve.SampleSettings)` explains them.

    Returns:
        The samples.

    Raises:
        ConfigError: there is no problem, a keyword is wrong, or what is at `out` has other settings.
        CheckpointError: there is no such model, or it is damaged.
        ArtifactError: the problems cannot be read.

    Example:
        samples = swerve.sample({"base": "owner/base", "tuned": "owner/tuned"}, "problems.jsonl", num_samples=4)
        samples.to_pandas().groupby("label")["correct"].mean()
    """
    from swerve.artifacts.torchrun import is_main_process
    from swerve.eval.sampling import sample as sample_models

    if out is None and not is_main_process():
        raise ConfigError("several processes need one place for the samples; give out=")
    if out is not None:
        check_output(Path(out), ".parquet", folder=True)
    temporary = temporary_folder() if out is None else None
    with working_folder() as folder:
        place = Path(temporary.name if temporary is not None else out or "")
        beside = place.parent if place.suffix == ".parquet" else place
        settings = asked_settings(problems if data is None else data, task, keywords, beside, fields=fields)
        named = models_of(models, folder, is_served=settings.rollout.engine.kind == "openai")
        paths = sample_models(named, settings, out=place, progress=shown_progress(progress))
    return SampleSet(paths, folder=temporary)


def asked_settings(
    problems: Any,
    task: Any,
    keywords: Mapping[str, Any],
    folder: Path,
    *,
    fields: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] = {},
) -> SampleSettings:
    """Return the settings of sampling that problems, a task and keywords say; see `settings_of`."""
    check_keywords(as_called(keywords, keywords_of(SAMPLING)), keywords_of(SAMPLING))
    record, settings = task_of(problems, task, folder, fields=fields)
    return settings_of(SampleSettings, record, keywords, SAMPLING, settings=settings, defaults=defaults)
