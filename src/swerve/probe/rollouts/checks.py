"""What can be wrong with a file of responses before a tokenizer is there. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import STEP_LABELS, LeftOut, iter_responses
from swerve.formats.problem_joins import check_prompts
from swerve.formats.typed_fields import parse_fields
from swerve.models.folder_texts import longest, plain_texts
from swerve.probe.recipe import ProbeRecipe
from swerve.problems import Task
from swerve.rewards.checks import has_grader, outside_policies
from swerve.rewards.graders import GRADERS


def check_recipe_files(recipe: ProbeRecipe, *, has_run: bool = False) -> None:
    """Check the files that the recipe of a probe names, as far as they are there.

    Args:
        recipe: of a probe.
        has_run: whether a run has the problems of the responses; they are joined to them later.

    Raises:
        ArtifactError, ConfigError: see `swerve.probe.from_files.plan_files`.
    """
    fields = parse_fields([f"{name}={field}" for name, field in recipe.fields.items()])
    problems = read_problems(Path(recipe.problems), fields=fields) if recipe.problems is not None else {}
    for path in recipe.sample_files or (Path(str(recipe.responses)),):
        if recipe.sample is None or path.is_file():
            records = list(iter_responses(path, fields=fields, left_out=LeftOut(), problems=problems))
            if has_run:
                continue
            check_prompts(path, records)
            if recipe.responses is not None:
                _check_readable(path, records, [recipe.models[name] for name in recipe.used])
            if recipe.task is not None:
                task_policies(path, recipe.task, records)
            elif recipe.responses is None:
                check_samples(path, records)


def _check_readable(path: Path, records: Sequence[Response], models: Sequence[str]) -> None:
    """Check that models can read responses that are texts, as far as the models' files say.

    Raises:
        ArtifactError: a response has a word that the first model's tokenizer lacks, or each is too long.
    """
    texts = [record.text or "" if not record.completion_ids and not record.turns else "" for record in records]
    limit, plain = longest(models), plain_texts(Path(models[0]), texts)
    for record, text in zip(records, plain, strict=False):
        if text.has_unknown:
            raise ArtifactError(
                f"{record.place}: the tokenizer has no token for a word of the response; give models whose vocabulary "
                "covers the text"
            )
    if plain and limit is not None and all(text.num_tokens >= limit for text in plain):
        raise ArtifactError(
            f"{path}: none of its {len(records)} responses can be read as tokens: each is longer than the {limit:,} "
            "tokens that each of the models can read"
        )


def check_samples(path: Path | str, samples: Sequence[Response]) -> None:
    """Check that every sample has a grader.

    Raises:
        ConfigError: some have none.
    """
    lacking = sum(not has_grader(sample.problem) for sample in samples)
    if lacking:
        raise ConfigError(
            f"{lacking} of {len(samples)} samples in {path} have no gold answer or no grader, so right and wrong are "
            "not known; name the grader with --task KIND (swerve data list)"
        )


def task_policies(path: Path, task: Task, records: Sequence[Response]) -> dict[str, Any]:
    """Return the policies of a task's grader on texts from elsewhere.

    Raises:
        ConfigError: the task has no grader, or a response without one of its own lacks the gold answer, and no verdict
            or label says what it is.
    """
    # A response needs a grader of its own, or the task's, which may need the gold answer.
    open_ones = [response for response in records if not has_grader(response.problem)]
    if task.kind not in GRADERS:
        if open_ones:
            raise ConfigError(
                f"the task {task.kind} has no grader of its own, and {len(open_ones)} of {len(records)} responses in "
                f"{path} name none; name a task that has one ({', '.join(sorted(GRADERS))})"
            )
        return {}
    # What another program said of a response stands where nothing can be graded.
    lacking = sum(not response.problem.answer and not _is_judged(response) for response in open_ones)
    if lacking and GRADERS[task.kind].needs_gold:
        raise ConfigError(
            f"{path}: {lacking} of {len(records)} responses have no gold answer, so {task.kind} cannot grade them; "
            "give the problems with --problems FILE, or name the field with --field gold=FIELD"
        )
    given = task.policies if "grading" in task.model_fields_set else None
    return outside_policies(task.kind, {} if given is None else given.model_dump(mode="json", exclude_unset=True))


def _is_judged(response: Response) -> bool:
    """Whether the file says of a response whether it is right, or where it goes wrong."""
    return response.verdict is not None or any(response.extra.get(name) is not None for name in STEP_LABELS)
