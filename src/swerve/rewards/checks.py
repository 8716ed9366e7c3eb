"""Whether problems can be graded, found out before the first one is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from swerve.artifacts.files import sha256_file
from swerve.artifacts.problem_records import problem_record
from swerve.errors import ConfigError, nearest
from swerve.problems.registry import TASKS
from swerve.rewards.graders import GRADERS
from swerve.types import Problem


def check_graders(problems: Iterable[Problem]) -> None:
    """Check that every problem's grader exists and takes the problem's policies.

    Raises:
        ConfigError: a grader does not exist or does not take a policy; the message names it and the nearest valid word.
    """
    for name, grading in _distinct(problems).values():
        if name not in GRADERS:
            known = ", ".join(sorted(GRADERS))
            raise ConfigError(f"there is no grader '{name}'{nearest(name, GRADERS)} (known: {known})")
        if name == "python":
            from swerve.rewards.python_file import check_reward_file

            file = grading.get("file")
            if not isinstance(file, str):
                raise ConfigError("the grader python needs a file; set task.reward_file")
            check_reward_file(Path(file))

        # Policies: known names first, then their values.
        model = GRADERS[name].policies
        if model is None:
            continue
        unknown = next((key for key in grading if key not in model.model_fields), None)
        if unknown is not None:
            raise ConfigError(
                f"the grader {name} has no policy '{unknown}'{nearest(unknown, model.model_fields)}; "
                f"it has {', '.join(model.model_fields)}"
            )
        try:
            model.model_validate_json(json.dumps(dict(grading)))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"policy '{place}' of the grader {name}: {first['msg']}, got {first['input']!r:.60}"
            ) from None


def _distinct(problems: Iterable[Problem]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the graders of problems with their policies, each pair once, by its JSON."""
    pairs = ((problem.grader or problem.family, problem.grading) for problem in problems)
    return {json.dumps([name, dict(grading)], sort_keys=True, default=str): (name, grading) for name, grading in pairs}


def outside_policies(grader: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policies for texts from elsewhere: those of the grader's task, changed as given.

    Args:
        grader: one of `GRADERS`.
        given: policies by name.

    Raises:
        ConfigError: the grader has no such policy.
    """
    if grader in ("python", "reasoning_gym"):
        return dict(given)
    if GRADERS[grader].policies is None:
        if given:
            raise ConfigError(f"--task {grader} has no policies, got {', '.join(given)}")
        return {}
    own = TASKS[grader].config.model_fields.get("grading") if grader in TASKS else None
    chosen = {**(own.default.model_dump(mode="json", exclude_defaults=True) if own else {}), **given}
    check_graders([Problem(id="", family=grader, question="", answer="", grading=chosen)])
    return chosen


def has_grader(problem: Problem) -> bool:
    """Whether the problem names a grader that exists, or its family has one."""
    return (problem.grader or problem.family) in GRADERS


def grading_of(problems: Iterable[Problem]) -> list[list[Any]]:
    """Return what verdicts on these problems depend on beside problem and text: names of graders, policies, files.

    Policies are given with their defaults, which may change while a problem does not; of a file of the user's own there
    is the content. Equal for equal sets of graders, whatever the problems' order.
    """
    graders = []
    for _, (name, grading) in sorted(_distinct(problems).items()):
        model = GRADERS[name].policies if name in GRADERS else None
        policies = dict(grading)
        if model is not None:
            with suppress(ValidationError):  # which `check_graders` names
                policies = model.model_validate(policies).model_dump(mode="json")
        file = Path(str(grading["file"])) if name == "python" and "file" in grading else None
        graders.append([name, policies, sha256_file(file) if file is not None and file.is_file() else None])
    return graders


def problems_digest(problems: Sequence[Problem]) -> str:
    """Return the SHA-256 of problems in their order, and of all that grading them depends on; see `grading_of`."""
    # Whatever the model's template, and whichever problems count as one.
    asked = [problem_record(replace(problem, begun=None, group=None)) for problem in problems]
    records = json.dumps([asked, grading_of(problems)], sort_keys=True)
    return hashlib.sha256(records.encode()).hexdigest()
