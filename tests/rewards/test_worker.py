from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swerve.errors import SwerveError
from swerve.grading.grader import GraderEntry
from swerve.rewards import pool
from swerve.rewards.messages import encode_request
from swerve.rewards.pool import GraderPool
from swerve.sandbox.limits import GraderLimits
from swerve.sandbox.wire import frame
from swerve.types import Problem, Reward

WORKER = """
import builtins, os, random, sys, types
from pathlib import Path
from swerve.errors import MissingExtraError
from swerve.rewards import graders
from swerve.rewards import worker
from swerve.grading.grader import GraderEntry
from swerve.types import Problem, Reward

def verdict(extracted):
    return Reward(value=1.0, status="graded", extracted=str(extracted))

def swallow(code):
    try:
        builtins.eval(code)
    except BaseException:
        pass
    return verdict("went on")

def missing():
    raise MissingExtraError("puzzles", "puzzle", "this grader")

def grade(problem, text):
    actions = {
        "pid": lambda: verdict(os.getpid()),
        "random": lambda: verdict(random.random()),
        "eval": lambda: verdict(builtins.eval(problem.question)),
        "swallowed": lambda: swallow(problem.question),
        "write": lambda: verdict(open(problem.question, "w")),
        "missing": missing,
        "half": lambda: 0.5,
        "infinite part": lambda: Reward(value=1.0, status="graded", parts={"a": float("inf")}),
        "extracted": lambda: Reward(value=1.0, status="graded", extracted=7),
        "digits": lambda: verdict(10**5000),
        "unspeakable": unspeakable,
    }
    return actions[text]()

def unspeakable():
    class Bad(Exception):
        def __str__(self):
            raise ValueError("no words")
    raise Bad

fake = types.ModuleType("swerve.rewards.fake")
fake.grade = grade
grade.__module__ = "swerve.rewards.fake"
sys.modules["swerve.rewards.fake"] = fake
entries = {
    "fake": GraderEntry(module="swerve.rewards.fake", function="grade", isolated=True),
    "free": GraderEntry(module="swerve.rewards.fake", function="grade", isolated=True, confined=False),
    "absent": GraderEntry(module="swerve.rewards.absent", function="grade", isolated=True),
}
worker.GRADERS = graders.GRADERS = entries
worker._MAX_SERVED = 5
worker.main(sys.argv[1:])
"""


@pytest.fixture
def graders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(pool, "COMMAND", (sys.executable, str(script)))
    entry = GraderEntry(module="", function="", isolated=True)
    monkeypatch.setattr("swerve.rewards.graders.GRADERS", {"fake": entry, "free": entry, "absent": entry})
    with GraderPool(num_workers=1) as graders:
        yield graders


def ask(graders: GraderPool, text: str, *, family: str = "fake", question: str = "") -> Reward:
    return graders.grade_all([(Problem(id="p", family=family, question=question, answer=""), text)])[0]


def test_text_that_is_run_as_code_is_refused_and_not_run(graders: GraderPool, tmp_path: Path) -> None:
    code = f"__import__('os').system('touch {tmp_path / 'marker'}')"
    for text in ("eval", "swallowed"):
        reward = ask(graders, text, question=code)
        assert (reward.status, reward.detail) == ("error", "the grader tried to run text as code; refused")
    assert not (tmp_path / "marker").exists()
    assert ask(graders, "random").status == "graded"


def test_files_are_not_written_by_confined_graders(graders: GraderPool, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert ask(graders, "write", question=str(marker)).detail == "the grader tried to open a file for writing; refused"
    assert not marker.exists()
    assert ask(graders, "write", question=str(marker), family="free").status == "graded"
    assert marker.exists()


def test_confined_and_other_graders_do_not_share_a_process(graders: GraderPool) -> None:
    confined, free = (ask(graders, "pid", family=family).extracted for family in ("fake", "free"))
    assert confined != free
    assert ask(graders, "pid").extracted == confined


def test_a_child_is_replaced_after_it_has_served_enough(graders: GraderPool) -> None:
    pids = [ask(graders, "pid").extracted for _ in range(12)]
    assert len(set(pids)) == 3
    assert pids[0] == pids[4] != pids[5] == pids[9] != pids[10]


def test_every_answer_sees_the_same_random_numbers(graders: GraderPool) -> None:
    assert len({ask(graders, "random").extracted for _ in range(7)}) == 1
    assert len({ask(graders, "random", family="free").extracted for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        ("half", "error", "the grader returned 0.5 (float) instead of a Reward"),
        ("infinite part", "error", "the grader returned a=inf; it must be a finite number"),
        ("extracted", "error", "the grader returned extracted=7; it must be a string or None"),
        ("unspeakable", "error", "Bad"),
        ("digits", "timeout", "limit of 4300 digits of a written integer"),
    ],
)
def test_what_is_no_reward_is_an_error(graders: GraderPool, text: str, status: str, detail: str) -> None:
    reward = ask(graders, text)
    assert (reward.value, reward.status, reward.detail) == (None, status, detail)


def test_a_missing_package_ends_the_batch_with_its_name(graders: GraderPool) -> None:
    with pytest.raises(SwerveError, match=r"this grader needs the package 'puzzles'; install it with: pip install"):
        ask(graders, "missing")
    with pytest.raises(SwerveError, match="the grader 'absent' cannot be loaded: ModuleNotFoundError"):
        ask(graders, "pid", family="absent")
    assert ask(graders, "pid").status == "graded"


LATE_IMPORTS = r"""
import json, sys
from swerve.rewards import worker
from swerve.rewards.graders import GRADERS
from swerve.types import Problem

entry = GRADERS["math"]
worker._load(entry)
before = set(sys.modules)
pairs = [
    ("7", "7"), (r"\frac{1}{2}", "0.5"), (r"\sqrt{8}", r"2\sqrt{2}"), (r"(1, \pi)", "(1, 3.14)"),
    ("x^2-1", "(x-1)(x+1)"), (r"\sin 30^\circ", "1/2"), (r"\{1, 2\}", r"\{2, 1\}"), (r"[0, \infty)", r"x \ge 0"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"), (r"\binom{10}{3}", "120"),
    ("blue", "red"), ("x=5", "5"), ("50\\%", "0.5"),
]
for gold, answer in pairs:
    entry.load()(Problem(id="p", family="math", question="", answer=gold), r"\boxed{" + answer + "}")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_graders_import_what_they_need_before_the_first_answer() -> None:
    """What is imported while an answer is judged would count as its CPU time, in every new child."""
    done = subprocess.run([sys.executable, "-c", LATE_IMPORTS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_worker_ends_when_its_pipe_does_and_leaves_standard_output_to_the_answers() -> None:
    limits = json.dumps({"cpu_seconds": 1.0})
    done = subprocess.run(
        [sys.executable, "-m", "swerve.rewards.worker", limits, str(os.getpid())],
        input=b"",
        capture_output=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_worker_ends_when_its_pipe_does_while_an_answer_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "sleeping.py"
    path.write_text(
        "import time\nfrom pathlib import Path\n"
        "def reward(problem, text):\n    Path(text).touch()\n    time.sleep(60)\n"
    )
    problem = Problem(id="p", family="python", question="q", answer="a", grading={"file": str(path)})
    limits = json.dumps({"wall_seconds": 50.0})
    worker = subprocess.Popen(
        [sys.executable, "-m", "swerve.rewards.worker", limits, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert worker.stdin is not None
    worker.stdin.write(frame(encode_request("python", problem, str(tmp_path / "began"))))
    worker.stdin.flush()
    while not (tmp_path / "began").exists():
        time.sleep(0.01)
    worker.stdin.close()
    assert worker.wait(30) == 0


def test_limits_hold_the_values_that_the_worker_was_given() -> None:
    problem = Problem(id="p", family="python", question="q", answer="a", grading={"file": "/nowhere.py"})
    with GraderPool(num_workers=1, limits=GraderLimits(max_chars=3)) as graders:
        rewards = graders.grade_all([(problem, "abcd"), (problem, "abc")])
    assert rewards[0].detail == "text of 4 characters, limit 3"
    assert rewards[1].detail == "reward file /nowhere.py: FileNotFoundError: [Errno 2] No such file or directory: " + (
        "'/nowhere.py'"
    )


def test_tasks_of_one_grader_are_imported_before_the_answer_is_judged() -> None:
    """They are imported when they are asked for, which a confined child is refused."""
    problems = [Problem(id="p", family=name, question="q", answer="7") for name in ("math", "gsm8k", "deepscaler")]
    with GraderPool(num_workers=1) as graders:
        rewards = graders.grade_all([(problem, r"\boxed{7} #### 7") for problem in problems])
    assert [(reward.value, reward.detail) for reward in rewards] == [(1.0, None)] * 3
