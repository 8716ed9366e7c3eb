"""What the parts of a card are measured on: the two models, their responses, and passes over given tokens."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.parts import Parts
from swerve.artifacts.responses import Response, by_problem
from swerve.artifacts.samples import StoredSamples, is_samples_file
from swerve.artifacts.shards import Shard
from swerve.claim.design import CardSize, num_alike
from swerve.claim.settings import ClaimSettings
from swerve.config.sampling import SampleJob
from swerve.errors import ArtifactError
from swerve.eval.comparison import misread_of
from swerve.eval.pairing import Paired, check_asked, paired
from swerve.eval.sampling import sample_jobs
from swerve.formats.imported_problems import has_made_id
from swerve.formats.imported_responses import LeftOut, iter_responses
from swerve.formats.problem_joins import with_groups
from swerve.formats.typed_fields import Fields, at_place
from swerve.progress import Progress, WithinTask
from swerve.statistics.sample_counts import most_have
from swerve.text import counted
from swerve.types import Problem, clusters_of

if TYPE_CHECKING:
    from swerve.batch import TokenSequence
    from swerve.models.model_folder import LoadedModel

_SEQUENCES_PER_PART = 256
"""That are read and kept together."""


class NotMeasuredError(Exception):
    """A part cannot be measured: why, and what it needs."""


class ElsewhereError(Exception):
    """Other shards have the rest of what is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two models."""

    label: str
    model: Path | str | None
    """Folder or hub name; None: only its samples are there."""
    samples: Path | None = None
    """File of its samples, where there is one."""
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Names of the file's fields where they differ from those known."""
    is_prompt: bool = False
    """Whether it is the base once more, under another prompt."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Responses that are sampled for a part."""

    name: str
    """Of their file, without its ending."""
    label: str
    model: Path | str | Callable[[], AbstractContextManager[Path]]
    """Folder or hub name; or what makes a folder for as long as it is sampled from."""
    problems: Sequence[Problem]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the card's settings, in which one response is sampled greedily: task, template, temperatures and the like."""


def judged_responses(path: Path, fields: Mapping[str, str], left_out: LeftOut) -> Iterator[Response]:
    """Yield the responses in a file of samples, or in one of another program, each with its verdict, None without one.

    `fields` are names of the file's fields where they differ from those known; `left_out` counts records without a
    response.

    Raises:
        ArtifactError: the file is missing or damaged, or has no response with a verdict.
    """
    if is_samples_file(path):
        yield from _with_groups(StoredSamples(path).samples, path, fields.get("group"))
        return
    last: Problem | None = None
    are_judged, are_grouped = False, "group" not in fields
    for response in iter_responses(path, left_out=left_out, fields=fields, verdicts_suffice=True):
        is_one_grader = response.correct is not None or response.status is not None
        answered, problem = response.answered if is_one_grader else None, response.problem
        if problem == last:  # held once
            problem = last
        last = problem
        are_judged |= response.verdict is not None
        are_grouped |= problem.group is not None
        yield replace(response, problem=problem, correct=response.verdict, answered=answered)
    if not are_judged:
        graded = path.with_name(f"{path.name.partition('.')[0]}-graded.jsonl")
        command = f"swerve grade {shlex.quote(str(path))} --task math --out {shlex.quote(str(graded))}"
        raise ArtifactError(f"no response in {path} has a verdict; grade it first, such as by mathematics: {command}")
    if not are_grouped:
        raise ArtifactError(f"no response in {path} has text or a number as its {fields['group']!r} (--field group=)")


def _with_groups(samples: Iterable[Response], path: Path, field: str | None) -> Iterator[Response]:
    """Yield samples whose problems' groups are in a field of what else their source says, where one is named.

    Raises:
        ArtifactError: no sample has the field.
    """
    is_there = field is None
    for sample in samples:
        group = at_place({**sample.problem.metadata, **sample.extra}, field) if field is not None else None
        is_there |= group is not None
        group = Fields("", {"group": group}, {"group": ("group",)}).group()
        yield sample if group is None else replace(sample, problem=replace(sample.problem, group=group))
    if not is_there:
        raise ArtifactError(f"no problem in {path} has '{field}' in its metadata (--field group={field})")


def _temperature(response: Response) -> float | None:
    """Return the temperature of a response, also from a field that its layout has no name for."""
    known = response.extra.get("temperature") if response.temperature is None else response.temperature
    return float(known) if isinstance(known, int | float) and not isinstance(known, bool) else None


@dataclass
class Work:
    """The models and problems of a card, and what is known of them so far."""

    base: Side
    trained: Side
    settings: ClaimSettings
    problems: Sequence[Problem]
    """Of the card; none where both sides are files."""
    out: Path
    """The card's folder."""
    parts: Parts
    """What is kept of interrupted work."""
    shard: Shard
    """Whose share of the sampling is done, and nothing else, unless it is the whole."""
    progress: Progress
    runs: Sequence[Side] = ()
    """Further runs of the training that the trained model is of."""
    prompts: Sequence[Side] = ()
    """The base under other prompts."""
    _read: Sequence[tuple[list[Response], str]] = ()
    """Samples of both models as they were read, where further ones are paired with them."""
    _loaded: tuple[Path | str, LoadedModel] | None = None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both models."""
        return self.base, self.trained

    def check_models(self) -> None:
        """Check that the models are there.

        Raises:
            NotMeasuredError: only samples are.
        """
        if self.base.model is None or self.trained.model is None:
            raise NotMeasuredError("needs the two models; files of samples were given")

    @property
    def models(self) -> tuple[Path | str, Path | str]:
        """Folders or hub names of both models.

        Raises:
            NotMeasuredError: only samples are there.
        """
        self.check_models()
        assert self.base.model is not None
        assert self.trained.model is not None
        return self.base.model, self.trained.model

    @cached_property
    def problem_of_each(self) -> list[Problem]:
        """The problems that are compared, in the order of `samples`; each with the group that any of the files names.

        Raises:
            ConfigError, ArtifactError: see `paired`; two files name two groups.
        """
        others = (*self.paired_runs, *self.paired_prompts) if self.base.model is None else ()
        sides = [*self.samples, *(side for pair in others for side in pair[:2])]
        named = with_groups([side[name][0] for side in sides for name in self.samples[0] if name in side])
        return [response.problem for response in named[: len(self.samples[0])]]

    @property
    def clusters(self) -> list[str] | None:
        """The name of the cluster of each problem, in the order of `samples`; None where no problem has a group."""
        return clusters_of(self.problem_of_each)

    @property
    def group_notes(self) -> list[str]:
        """That some problems have no group though others have."""
        known = self.problem_of_each
        num = sum(problem.group is None for problem in known)
        said = f"{num:,} of {len(known):,} problems have no group, and count as one each."
        return [said] if 0 < num < len(known) else []

    @cached_property
    def size(self) -> CardSize:
        """How much the lines of the card rest on."""
        asked = [Response(problem=problem) for problem in self.problems]  # of models, which need not be sampled yet
        num_samples = self.settings.num_samples
        if not asked:
            asked, num_samples = [group[0] for group in self.samples[0].values()], most_have(self.counts[0])
        known = self.problems or self.problem_of_each
        clusters = clusters_of(known)
        texts = (
            (each.problem.family, next(iter(each.asked_texts), ""))
            for each, problem in zip(asked, known, strict=True)
            if problem.group is None
        )
        return CardSize(
            num_problems=len(asked),
            num_groups=len({*clusters}) if clusters else None,
            num_alike=num_alike(texts),
            num_samples=num_samples,
            num_runs=1 + len(self.runs),
        )

    @property
    def samples(self) -> tuple[dict[str, list[Response]], dict[str, list[Response]]]:
        """The samples of both models at temperature 1 by problem, of the problems that both have."""
        return self.paired.first, self.paired.second

    def pair_files(self) -> None:
        """Pair the responses of all files, before there is anything of the card: they may not fit.

        Raises:
            ConfigError, ArtifactError: see `problem_of_each`.
        """
        assert self.problem_of_each

    @cached_property
    def paired(self) -> Paired:
        """The samples of both models at temperature 1, and what is said of them.

        Raises:
            ConfigError, ArtifactError: see `swerve.eval.pairing.paired`.
        """
        read = self._responses(self.sides)
        if self.runs or self.prompts:
            self._read = read
        result = self._paired(self.sides, read)
        for note in result.notes:
            self.progress.note(note)
        return result

    @cached_property
    def paired_runs(self) -> list[Paired]:
        """The samples of the base and of each further run; see `paired`, whose notes are not said again."""
        known = self.paired.notes
        pairs = (self._paired((self.base, run), [self._read[0], *self._responses([run])]) for run in self.runs)
        return [pair._replace(notes=[note for note in pair.notes if note not in known]) for pair in pairs]

    @cached_property
    def paired_prompts(self) -> list[Paired]:
        """The samples of the base under each other prompt and of the trained model; see `paired_runs`.

        The prompt may be a part of what a file calls the question: problems with ids of their own are paired by these.

        Raises:
            ConfigError: a file asks other questions.
        """
        known, pairs = self.paired.notes, []
        for prompt in self.prompts:
            ((own, left_out),) = self._responses([prompt])
            named = [
                each if has_made_id(each.problem) else replace(each, problem=replace(each.problem, question=""))
                for each in own
            ]
            pair = self._paired((prompt, self.trained), [(named, left_out), self._read[1]])
            check_asked((self.base.label, prompt.label), self.samples[0], by_problem(own))
            pairs.append(pair._replace(notes=[note for note in pair.notes if note not in known]))
        return pairs

    def _responses(self, sides: Sequence[Side]) -> list[tuple[list[Response], str]]:
        """Return the samples of models or files at temperature 1, and which records are left out."""
        if sides[0].model is None:
            read = []
            for side in sides:
                assert side.samples is not None
                left_out = LeftOut()
                responses = list(judged_responses(side.samples, side.fields, left_out))
                read.append((responses, f"Of {side.label}: {left_out.note}." if left_out.num_failed else ""))
            return read
        num = self.settings.num_samples
        wanted = [self.wanted("t1", side, temperatures=(1.0,), num_samples=num) for side in sides]
        greedy = self._wanted_greedy if sides == self.sides else []  # at once: a shard takes its share of all
        return [(responses, "") for responses in self.sample([*wanted, *greedy])[: len(wanted)]]

    def _paired(self, sides: Sequence[Side], read: Sequence[tuple[list[Response], str]]) -> Paired:
        labels = [side.label for side in sides]
        judged = [[each for each in own if each.correct is not None] for own, _ in read]
        result = paired(labels, *judged, only_common=self.settings.common)
        left_out = [note for _, note in read if note]
        left_out += [
            f"{len(own) - len(kept):,} of {len(own):,} samples by {label} have no verdict and are left out."
            for label, (own, _), kept in zip(labels, read, judged, strict=True)
            if len(kept) < len(own)
        ]
        misread = misread_of([*judged[0], *judged[1]]).note
        return result._replace(notes=[*left_out, *filter(None, [misread]), *result.notes])

    @cached_property
    def greedy(self) -> tuple[list[Response], list[Response]]:
        """The greedy response of both models to each problem.

        Raises:
            NotMeasuredError: only samples are there.
        """
        self.check_models()
        base, trained = self.sample(self._wanted_greedy)
        return base, trained

    @property
    def _wanted_greedy(self) -> list[Wanted]:
        return [self.wanted("greedy", side) for side in self.sides]

    @property
    def samples_said(self) -> str:
        """What the samples are called, by how they are recorded to be chosen, in their file or a field of it."""
        temperatures = {_temperature(own) for side in self.samples for group in side.values() for own in group}
        if temperatures == {0.0}:
            return "greedy answers"
        if None in temperatures:
            return "answers (greedy or sampled: not recorded)"
        return "answers, greedy and sampled" if 0.0 in temperatures else "sampled answers"

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many samples with a verdict each problem has, and how many of them are right.

        Both are `[2, N]`, of the base and of the trained model, the problems in the order of `samples`.
        """
        groups = [list(side.values()) for side in self.samples]
        verdicts = [[[one.correct for one in group] for group in side] for side in groups]
        right, wrong = (
            np.array([[own.count(is_right) for own in side] for side in verdicts]) for is_right in (True, False)
        )
        return right + wrong, right

    def wanted(self, name: str, side: Side, problems: Sequence[Problem] | None = None, **changes: Any) -> Wanted:
        """Return what is sampled of one of the models; see `Wanted`.

        Args:
            name: what its file's name ends in.
            side: the model.
            problems: None: the card's.
            changes: of the card's settings.
        """
        assert side.model is not None
        asked = self.problems if problems is None else problems
        return Wanted(f"{side.label}-{name}", side.label, side.model, asked, changes)

    def sample(self, wanted: Sequence[Wanted]) -> list[list[Response]]:
        """Sample responses, or read those that are there; each is kept in a file in `OUT/samples`.

        Raises:
            ElsewhereError: other shards have the rest.
            SwerveError: see `swerve.eval.sampling.sample`.
        """
        paths = [self.out / "samples" / f"{each.name}.parquet" for each in wanted]
        left = [(each, path) for each, path in zip(wanted, paths, strict=True) if not path.exists()]
        for each, path in left:
            if not callable(each.model):
                self._sample(each, path, self.progress)
        self._sample_made([(each, path) for each, path in left if callable(each.model)])
        if not all(path.exists() for path in paths):
            raise ElsewhereError
        return [list(StoredSamples(path).samples) for path in paths]

    def _sample_made(self, wanted: Sequence[tuple[Wanted, Path]]) -> None:
        """Sample from folders that are made on demand, of which there are many: one task for all."""
        if not wanted:
            return
        total = sum(len(each.problems) for each, _ in wanted)
        with self.progress.task(f"sample {counted(len(wanted), 'part')} of the change", total) as task:
            for each, path in wanted:
                self._sample(each, path, WithinTask(task, len(each.problems)))

    def _sample(self, wanted: Wanted, path: Path, progress: Progress) -> None:
        changes = {"temperatures": (0.0,), "num_samples": 1, **wanted.changes}
        settings, place = self.settings.sampling.model_copy(update=changes), wanted.model
        with place() if callable(place) else nullcontext(place) as model:
            job = SampleJob(wanted.label, model, settings, path)
            sample_jobs([job], progress, problems=wanted.problems, shard=self.shard)

    def logprobs(self, name: str, model: Path | str, sequences: Sequence[TokenSequence]) -> list[NDArray[np.float64]]:
        """Return the log-probability (nats) of every completion token of given sequences under a model.

        What was read is kept, so that an interrupted card continues.

        Args:
            name: of what is kept.
            model: folder or hub name.
            sequences: prompt ids and completion ids.

        Raises:
            ElsewhereError: a shard does none of this.
        """
        self.check_whole()
        values: list[NDArray[np.float64]] = []
        with self.progress.task(f"read {name}", len(sequences)) as task:
            for start in range(0, len(sequences), _SEQUENCES_PER_PART):
                piece = list(sequences[start : start + _SEQUENCES_PER_PART])
                depends = [str(model), piece]
                known = self.parts.get(name, depends)
                if known is None:
                    from swerve.claim.passes import read_logprobs

                    known = read_logprobs(self.load(model), piece)
                    self.parts.put(name, depends, known)
                values += [np.asarray(row, dtype=np.float64) for row in known]
                task.advance(len(piece))
        return values

    def check_whole(self) -> None:
        """Check that this process does more than a share of the sampling.

        Raises:
            ElsewhereError: it is a shard, which does not.
        """
        if self.shard.is_share:
            raise ElsewhereError

    def load(self, model: Path | str) -> LoadedModel:
        """Return a model; the last one asked for is held.

        Raises:
            ElsewhereError: a shard does none of this.
            CheckpointError: there is no such model, or it is damaged.
        """
        self.check_whole()
        if self._loaded is None or self._loaded[0] != model:
            from swerve.models.sources import checkpoint_source

            self._loaded = None  # one is in memory
            self._loaded = model, checkpoint_source("", model, self.settings.runtime).load()
        return self._loaded[1]
