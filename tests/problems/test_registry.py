from __future__ import annotations

import subprocess
import sys

import pytest

from swerve.problems import TASKS
from swerve.rewards.graders import GRADERS

SCRIPT = """
import sys
from swerve import rewards
from swerve.problems import TASKS

def loaded():
    return [name for name in sys.modules if name.startswith("swerve.problems.") and hasattr(sys.modules[name], "TASK")]

print(sorted(TASKS) == list(TASKS), len(TASKS), loaded())
print(TASKS["addition"].config.__name__, "gsm8" in TASKS, loaded())
print(rewards.graders.GRADERS["gsm8k"].function, loaded())
"""


def test_a_task_is_imported_when_its_kind_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"False {len(TASKS)} []",
        "AdditionTask False ['swerve.problems.addition']",
        "grade_math ['swerve.problems.addition', 'swerve.problems.gsm8k']",
    ]


def test_each_kind_is_the_one_of_its_configuration_and_grader() -> None:
    assert [task.config.model_fields["kind"].default for task in TASKS.values()] == list(TASKS)
    assert {name: GRADERS.get(name) for name in TASKS} == {name: task.grader for name, task in TASKS.items()}
    assert len(GRADERS) == len(list(GRADERS)) == len(dict(GRADERS))


@pytest.mark.parametrize("name", ["table", "mixture", "nobody"])
def test_what_has_no_grader_is_not_in_the_table(name: str) -> None:
    assert name not in GRADERS
    with pytest.raises(KeyError, match=name):
        GRADERS[name]
