"""Measure what RL changed, part by part, and write the card: `claim.json` and its page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import combinations, count
from pathlib import Path
from typing import Any

from swerve.artifacts.excerpts import AskedProblem, asked_problems
from swerve.artifacts.files import TEMPORARY_PREFIX, regular_file, sha256_file, verify_file
from swerve.artifacts.parts import Parts, digest_of
from swerve.artifacts.responses import IMPORTED
from swerve.artifacts.run import RunDirectory, given_command
from swerve.artifacts.shards import Shard
from swerve.artifacts.study import find_study
from swerve.claim.answers import BY_PROBLEM, AnsweredProblem
from swerve.claim.part import Part
from swerve.claim.record import ClaimCard, ProblemRow
from swerve.claim.settings import ClaimSettings
from swerve.claim.sides import check_vocabularies
from swerve.claim.work import ElsewhereError, NotMeasuredError, Side, Work, judged_responses
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.eval.sampling import chosen_problems
from swerve.formats.imported_responses import LeftOut
from swerve.formats.table_files import digest_of_table
from swerve.models.folder_texts import check_asked
from swerve.progress import Progress
from swerve.rewards.checks import problems_digest
from swerve.types import Problem

_CHANGES_NOTHING = {"parts", "runtime", "rollout", "study"}
"""Settings that change none of the samples."""


def write_card(
    sides: Sequence[Side], settings: ClaimSettings, *, out: Path, shard: Shard, progress: Progress
) -> ClaimCard | None:
    """Measure the parts that are asked for and write `out/claim.json` and `out/index.html`.

    Each part is kept as soon as it is there. Parts of an earlier card of the same models, problems and settings stay
    in it. The first of `sides` is the base, the second the trained model; others are further runs of
    the same training, or the base under another prompt.

    Returns:
        The card; None of a shard.

    Raises:
        ConfigError: `out` has a card of other models, problems or settings; or a run is given twice.
        ArtifactError: a text is missing or empty, or there is no such study.
        SwerveError: see `swerve.eval.sampling.sample`.
    """
    # Everything that can be wrong is checked before the first sample.
    kinds = ClaimCard.kinds(settings.parts)
    _check_given(sides, settings)
    base, trained, *runs = (side for side in sides if not side.is_prompt)
    prompts = [side for side in sides if side.is_prompt]
    problems = chosen_problems(settings, progress) if base.model else []
    models = {side.label: side.model for side in sides if side.model is not None}
    check_asked(models, problems, settings.max_new_tokens)
    check_vocabularies(sides)
    contents = tuple(map(_content, sides))
    _check_given_once(sides, contents)
    parts = Parts(out / "claim.partial", _inputs(sides, contents, problems, settings), copied=shard.copied)

    # Of an earlier card the parts that are measured stay.
    known = _earlier_card(out, parts, sides, contents, progress)
    done = {name for name, part in known.parts if part.is_measured} if known else set()
    done -= {"controls"} if settings.study else set()  # the study may be another
    wanted = [name for name in kinds if name not in done]
    if known and not wanted:
        progress.note(f"{out / 'claim.json'} has these parts already: nothing to do")
        _clear(out)
        return known
    shard.copied.check_fit(parts)
    work = Work(base, trained, settings, problems, out, parts, shard, progress, runs=runs, prompts=prompts)
    if base.model is None:
        work.pair_files()
    parts.begin()

    # A shard takes its share of the samples; what rests on them is measured once all are there.
    measured: dict[str, Part] = dict(known.parts) if known else {}
    with nullcontext() if shard.is_share else RunDirectory(out).lock():
        for name in wanted:
            with suppress(ElsewhereError):
                measured[name] = _measured(name, work)
        if shard.is_share:
            return None
        card = _card(work, sides, contents, measured, known)
        card.write(out / "claim.json")
        _write_page(out, card)
        _clear(out)
    return card


def _inputs(
    sides: Sequence[Side], contents: Sequence[str], problems: Sequence[Problem], settings: ClaimSettings
) -> dict[str, Any]:
    """Return what a card is of: cards of other inputs are other cards."""
    of_files = {"task"} if sides[0].model is None else set()  # it says where the files are, and they may be moved
    inputs: dict[str, Any] = {
        "models": [[side.label, content] for side, content in zip(sides, contents, strict=True)],
        "problems": problems_digest(problems),
        "settings": settings.model_dump(mode="json", exclude=_CHANGES_NOTHING | of_files),
    }
    if any(side.fields for side in sides):
        inputs["fields"] = [dict(side.fields) for side in sides]
    if settings.texts:
        inputs["texts"] = [sha256_file(Path(text)) for text in settings.texts]
    return inputs


def _card(
    work: Work, sides: Sequence[Side], contents: tuple[str, ...], measured: Mapping[str, Part], known: ClaimCard | None
) -> ClaimCard:
    """Return the card of all that was measured; what an earlier one has of the samples stays."""
    return ClaimCard(
        base=work.base.label,
        trained=work.trained.label,
        task=_task_name(work),
        num_problems=work.size.num_problems,
        num_groups=work.size.num_groups,
        num_alike=work.size.num_alike,
        num_samples=work.size.num_samples,
        inputs=digest_of(work.parts.inputs),
        contents=contents,
        made=_made(sides, work.out),
        by_problem=(known and known.by_problem) or _problem_rows(work, measured),
        answers_by_problem=(known and known.answers_by_problem)
        or tuple(map(AnsweredProblem.model_validate, work.parts.get(BY_PROBLEM) or ())),
        written=(known and known.written) or _written(work, measured),
        files={str(file.relative_to(work.out)): sha256_file(file) for file in _rests_on(work.out)},
        **measured,  # type: ignore[arg-type]
    )


def _task_name(work: Work) -> str:
    """Return the kind of the task; of files that name no task of swerve the family or the set that all samples name."""
    kind = work.settings.task.kind
    if work.problems or kind != "table":
        return kind
    samples = [one for side in work.samples for group in side.values() for one in group]
    families, sets = {one.problem.family for one in samples} - {IMPORTED}, {one.population for one in samples}
    return next((name for names in (families, sets) if len(names) == 1 for name in names if name), kind)


def _is_of_samples(measured: Mapping[str, Part]) -> bool:
    return any(part.is_of_samples and part.is_measured for part in measured.values())


def _problem_rows(work: Work, measured: Mapping[str, Part]) -> tuple[ProblemRow, ...]:
    """Return how many samples of each problem are right; none where no part that was measured is of samples."""
    if not _is_of_samples(measured):
        return ()
    nums, right = work.counts
    groups = work.clusters or [""] * nums.shape[1]
    return tuple(
        ProblemRow(problem=name, base_right=a, base_samples=b, trained_right=c, trained_samples=d, group=group)
        for name, a, b, c, d, group in zip(work.samples[0], right[0], nums[0], right[1], nums[1], groups, strict=True)
    )


def _written(work: Work, measured: Mapping[str, Part]) -> tuple[AskedProblem, ...]:
    """Return what both models wrote to problems; nothing where `_problem_rows` has none."""
    if not _is_of_samples(measured):
        return ()
    return asked_problems(dict(zip((work.base.label, work.trained.label), work.samples, strict=True)))


def _made(sides: Sequence[Side], out: Path) -> tuple[str, ...]:
    """Return when and with what a card is written: the day, versions, and the command, of Python the one that it is."""
    from swerve.report.provenance import written_now

    given = [f"{side.label.split()[0]}={side.samples or side.model}" for side in sides]
    command = given_command() or shlex.join(["swerve", "claim", *given, "--out", str(out)])
    return (*written_now(), command)


def _write_page(out: Path, card: ClaimCard) -> None:
    from swerve.claim.page import write_claim_page

    write_claim_page(out / "index.html", card)


def _earlier_card(
    out: Path, parts: Parts, sides: Sequence[Side], contents: tuple[str, ...], progress: Progress
) -> ClaimCard | None:
    """Return the card that is there already, with its page, or None where there is no card yet.

    Raises:
        ConfigError: it is of other models, problems or settings.
        ArtifactError: what it rests on is missing or damaged.
    """
    path, page, begun = out / "claim.json", out / "index.html", parts.begun()
    known = ClaimCard.read(path, remedy="run swerve claim again with another --out") if path.exists() else None
    if known:
        _check_known(known, sides, contents, out)
    elif begun is None and page.exists():
        progress.note(f"{path} is missing: the card is made again")
    if (known and known.inputs != digest_of(parts.inputs)) or begun not in (None, parts.inputs):
        raise ConfigError(
            f"{out} has a card of other models, problems or settings; give another --out, such as --out {_free(out)}, "
            "or delete it"
        )
    if known:
        from swerve.claim.page import claim_html

        if not regular_file(page).is_file() or page.read_bytes() != claim_html(known).encode():
            _write_page(out, known)
            progress.note(f"{page} was not the page of {path}: written again")
    return known


def _free(out: Path) -> str:
    """Return a folder beside another that is not there."""
    places = (out.with_name(f"{out.name}-{number}") for number in count(2))
    return shlex.quote(str(next(place for place in places if not place.exists())))


def _clear(out: Path) -> None:
    """Remove what is kept of interrupted work, also where a kill came between a whole and the end of its parts."""
    Parts(out / "claim.partial", None).finish()
    for folder in (out / "samples").glob("*.partial"):
        if folder.with_suffix("").is_file():
            Parts(folder, None).finish()


def _rests_on(out: Path) -> list[Path]:
    """Return the files below a card's folder that its parts were measured on, or that hold what was measured."""
    files = (file for place in ("samples", "probe/probe") for file in (out / place).rglob("*"))
    return sorted(
        file
        for file in files
        if file.is_file()
        and not file.name.startswith(TEMPORARY_PREFIX)
        and not any(name.endswith(".partial") for name in file.relative_to(out).parts)  # removed once the card is there
    )


def _check_known(card: ClaimCard, sides: Sequence[Side], contents: tuple[str, ...], out: Path) -> None:
    """Check that what an earlier card rests on is as it was.

    Raises:
        ConfigError: a model, or a file of samples, is another.
        ArtifactError: a file that it was measured on, or of a model, is missing or damaged; the message names it.
    """
    for side, content, known in zip(sides, contents, card.contents or contents, strict=False):  # others: other inputs
        if content != known:
            raise ConfigError(
                f"{side.model or side.samples} is not what the card in {out} is of: it has changed, or is another; put "
                f"it back, or give another --out, such as --out {_free(out)}"
            )
        if side.model is not None:
            from swerve.models.model_folder import verify_folder

            verify_folder(side.model)
    try:
        for name, digest in card.files.items():
            verify_file(out / name, digest, listed_in=str(out / "claim.json"))
        if card.files and card.behaviour.is_measured:
            RunDirectory(out / "probe").read_provenance()
    except ArtifactError as error:
        raise ArtifactError(f"{error}; put it back, or delete {out} to make the card again") from None


def _check_given_once(sides: Sequence[Side], contents: Sequence[str]) -> None:
    """Check that no run, and no prompt of the base, is there twice.

    Raises:
        ConfigError: one is, and would count twice.
    """
    for (first, one), (second, two) in combinations(zip(sides, contents, strict=True), 2):
        if one == two and (first is not sides[0] or second.is_prompt):
            raise ConfigError(
                f"{second.samples or second.model} is {first.samples or first.model} once more; give each run, and "
                "each prompt of the base, once"
            )


def _check_given(sides: Sequence[Side], settings: ClaimSettings) -> None:
    """Check what would otherwise be noticed after the samples are there; the errors are those of `write_card`."""
    for side in sides:
        if side.samples is not None:
            # Up to the first verdict, which shows most of what is wrong with a file.
            responses = judged_responses(side.samples, side.fields, LeftOut())
            next((each for each in responses if each.correct is not None), None)
    if lost := [path for path in settings.texts if not Path(path).is_file() or not Path(path).read_bytes().strip()]:
        raise ArtifactError(f"{lost[0]} is missing or empty; --text is a text file whose loss is measured")
    if settings.study is not None and find_study(settings.study) is None:
        raise ArtifactError(
            f"--study {settings.study} is no folder of a study; make one: swerve study RECIPE controls=all"
        )


def _measured(name: str, work: Work) -> Part:
    """Return a part, measured or kept from an interruption.

    Raises:
        ElsewhereError: other shards have what it needs.
    """
    kind = ClaimCard.kinds()[name]
    kept = work.parts.get(f"part-{name}")
    if kept is not None:
        return kind.model_validate(kept)
    try:
        if kind.needs_models:
            work.check_models()
        part = kind.measure(work)
        if kind.is_of_samples and not kind.needs_models:  # lines over the problems and samples of the card
            part = part.model_copy(update={"verdicts": tuple(map(work.size.told, part.verdicts))})
    except (NotMeasuredError, MismatchError) as error:
        return kind(missing=str(error))
    if name != "controls":  # rests on a study, and is quick
        work.parts.put(f"part-{name}", None, part.model_dump(mode="json"))
    return part


def _content(side: Side) -> str:
    """Return a digest of a model's weights and tokenizer, or of its file of samples."""
    if side.model is None:
        assert side.samples is not None
        return digest_of_table(side.samples)
    from swerve.models.sources import CheckpointSource

    return CheckpointSource(label="", path=side.model, device="cpu", dtype="float32").content
