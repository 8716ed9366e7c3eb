from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swerve.errors import SwerveError
from swerve.rewards import grade_all, pool
from swerve.rewards.pool import GraderPool, shared_pool
from swerve.sandbox import limits
from swerve.sandbox.limits import GraderLimits, configure_pool
from swerve.types import Problem, Reward

REWARD_FILE = """
import ctypes, os, signal, sys, time
from pathlib import Path

FOLDER = Path(__file__).parent

def once(name):
    "Whether this is the first call with this name, in any process."
    try:
        (FOLDER / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def recurse():
    return recurse()

def start_another_and_leave():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    (FOLDER / "started").write_text(str(pid))
    os._exit(4)

def exhaust_memory():
    try:
        return [0] * 10**9
    except MemoryError:
        raise

def print_much():
    print("noise" * 100_000)
    sys.stdout.flush()
    os.write(1, b"noise")
    return 0.5

def wait_to_be_killed(text):
    if once(text):
        time.sleep(60)
    return 1

def reward(problem, text):
    behaviours = {
        "hang": lambda: [None for _ in iter(int, 1)],
        "power": lambda: 9**9**9**9,
        "sleep": lambda: time.sleep(60),
        "memory": exhaust_memory,
        "recursion": recurse,
        "segfault": lambda: ctypes.string_at(0),
        "exit": lambda: os._exit(3),
        "system exit": lambda: sys.exit("bye"),
        "raise": lambda: [][0],
        "nan": lambda: float("nan"),
        "string": lambda: "1",
        "nothing": lambda: None,
        "print": print_much,
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "child": start_another_and_leave,
        "close": lambda: os.closerange(0, 64),
    }
    if text.startswith("wait"):
        return wait_to_be_killed(text)
    if text.startswith("span"):
        started = time.monotonic()
        time.sleep(0.3)
        return {"value": 1, "parts": {"started": started, "ended": time.monotonic()}}
    if text in behaviours:
        return behaviours[text]()
    return {"value": int(text == problem.answer), "extracted": text}
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("reward") / "reward_file.py"
    path.write_text(REWARD_FILE)
    return Problem(id="p", family="python", question="q", answer="right", grading={"file": str(path)})


@pytest.fixture(scope="module")
def graders() -> Iterator[GraderPool]:
    with GraderPool(num_workers=2, limits=GraderLimits(cpu_seconds=0.3)) as graders:
        yield graders


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for ancestor in found:
        found += [child for child, parent in parents.items() if parent == ancestor]
    return found[1:]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        ("hang", "timeout", "CPU time limit 0.3 s"),
        ("power", "timeout", "CPU time limit 0.3 s"),
        ("memory", "timeout", "memory limit 1024 MiB"),
        ("recursion", "timeout", "recursion limit 1000"),
        ("x" * 200_001, "timeout", "text of 200001 characters, limit 200000"),
        ("segfault", "error", "its process died of SIGSEGV"),
        ("exit", "error", "its process ended with status 3"),
        ("child", "error", "its process ended with status 4"),
        ("system exit", "error", "SystemExit: bye"),
        ("kill", "error", "the grader's process was lost twice: killed by SIGKILL"),
        ("raise", "error", "IndexError: list index out of range"),
        ("nan", "error", "a reward must be a finite number"),
        ("string", "error", "the reward function returned '1' (str)"),
        ("nothing", "unparsed", ""),
    ],
)
def test_every_failure_has_its_status_and_the_pool_goes_on(
    graders: GraderPool, problem: Problem, text: str, status: str, detail: str
) -> None:
    before, failed, after = graders.grade_all([(problem, "right"), (problem, text), (problem, "right")])
    assert (failed.value, failed.status) == (None, status)
    assert detail in (failed.detail or "")
    assert (before.value, after.value) == (1.0, 1.0)


def test_a_grader_that_sleeps_reaches_the_limit_on_the_clock(problem: Problem) -> None:
    with GraderPool(num_workers=1, limits=GraderLimits(wall_seconds=0.5)) as graders:
        (reward,) = graders.grade_all([(problem, "sleep")])
    assert (reward.status, reward.detail) == ("timeout", "wall clock limit 0.5 s")


def test_memory_too_small_for_anything_is_a_limit_as_well(problem: Problem) -> None:
    with GraderPool(num_workers=1, limits=GraderLimits(memory_bytes=20 << 20)) as graders:
        rewards = graders.grade_all([(problem, "memory"), (problem, "memory")])
    assert [(reward.status, reward.detail) for reward in rewards] == [("timeout", "memory limit 20 MiB")] * 2


def test_a_grader_that_closes_its_pipes_is_an_error(graders: GraderPool, problem: Problem) -> None:
    assert [reward.status for reward in graders.grade_all([(problem, "close"), (problem, "right")])] == [
        "error",
        "graded",
    ]


def test_printing_does_not_disturb_the_answers_and_is_not_kept(graders: GraderPool, problem: Problem) -> None:
    assert [reward.value for reward in graders.grade_all([(problem, "print")] * 3)] == [0.5] * 3
    assert [worker._read_log() for worker in graders._workers if worker] == [[], []]


def test_what_a_grader_started_ends_with_it(graders: GraderPool, problem: Problem) -> None:
    assert graders.grade_all([(problem, "child")])[0].status == "error"
    started = int((Path(problem.grading["file"]).parent / "started").read_text())
    assert wait_until(lambda: not running(started), seconds=5)


def test_order_is_kept_and_any_text_survives(graders: GraderPool, problem: Problem) -> None:
    texts = [
        "right",
        "lone \ud800 surrogate",
        "nul \0",
        "é \U0001f600",
        "",
        "x" * 150_000,
        *(str(n) for n in range(50)),
    ]
    rewards = graders.grade_all([(problem, text) for text in texts])
    assert [reward.extracted for reward in rewards] == texts
    assert [reward.value for reward in rewards] == [1.0] + [0.0] * (len(texts) - 1)


def test_workers_judge_side_by_side(graders: GraderPool, problem: Problem) -> None:
    one, other = graders.grade_all([(problem, "span 1"), (problem, "span 2")])
    assert one.parts["started"] < other.parts["ended"]
    assert other.parts["started"] < one.parts["ended"]


def test_several_threads_get_their_own_answers(graders: GraderPool, problem: Problem) -> None:
    answers: dict[int, list[Reward]] = {}

    def ask(number: int) -> None:
        answers[number] = graders.grade_all([(problem, f"{number} {i}") for i in range(20)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert [reward.extracted for reward in answers[number]] == [f"{number} {i}" for i in range(20)]


@pytest.mark.parametrize("whom", ["worker", "child"])
def test_an_answer_whose_process_is_killed_from_outside_is_judged_again(problem: Problem, whom: str) -> None:
    flag = Path(problem.grading["file"]).parent / f"wait {whom}"
    with GraderPool(num_workers=1) as graders:
        answers: list[Reward] = []
        thread = threading.Thread(target=lambda: answers.extend(graders.grade_all([(problem, flag.name)])))
        thread.start()
        assert wait_until(flag.exists)
        started = graders._workers[0]
        assert started is not None
        (child,) = descendants(started.pid)
        os.kill(started.pid if whom == "worker" else child, signal.SIGKILL)
        thread.join(20)
        assert wait_until(lambda: not running(child))
    assert [answer.value for answer in answers] == [1.0]


def test_signals_that_ask_the_trainer_to_save_do_not_reach_its_graders(problem: Problem) -> None:
    """Slurm's `--signal=USR1` and a closed terminal go to every process of a job, often more than once."""
    with GraderPool(num_workers=1) as graders:
        assert graders.grade_all([(problem, "right")])[0].value == 1.0
        started = graders._workers[0]
        assert started is not None
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
            os.kill(started.pid, number)
        assert graders.grade_all([(problem, "right")])[0].value == 1.0
        assert graders._workers[0] is started


@pytest.mark.slow
def test_a_worker_that_dies_on_an_answer_twice_makes_it_an_error(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "reward_file.py"
    path.write_text(
        "import os, signal\ndef reward(problem, text):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 1\n"
    )
    deadly = Problem(id="d", family="python", question="q", answer="a", grading={"file": str(path)})
    with GraderPool(num_workers=1) as graders:
        rewards = graders.grade_all([(deadly, "x"), (problem, "right")])
    assert rewards[0].status == "error"
    assert "lost twice: killed by SIGKILL" in (rewards[0].detail or "")
    assert rewards[1].value == 1.0


@pytest.mark.slow
def test_a_stopped_worker_is_given_up(problem: Problem) -> None:
    with GraderPool(num_workers=1) as graders:
        graders.grade_all([(problem, "right")])
        stopped = graders._workers[0]
        assert stopped is not None
        stopped._patience = 0.3
        os.kill(stopped.pid, signal.SIGSTOP)
        assert graders.grade_all([(problem, "x" * 150_000)])[0].value == 0.0
        assert not running(stopped.pid)


@pytest.mark.slow
def test_a_forked_copy_starts_its_own_workers(graders: GraderPool, problem: Problem) -> None:
    graders.grade_all([(problem, "right")] * 2)
    pids = [worker.pid for worker in graders._workers if worker]
    reads, writes = os.pipe()
    copy = os.fork()
    if copy == 0:
        values = [reward.value for reward in graders.grade_all([(problem, "right"), (problem, "wrong")])]
        own = [worker.pid for worker in graders._workers if worker]
        graders.close()
        os.write(writes, repr((values, set(own) & set(pids), [running(pid) for pid in own])).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as stream:
        assert stream.read() == repr(([1.0, 0.0], set(), [False, False]))
    assert os.waitpid(copy, 0)[1] == 0
    assert [reward.value for reward in graders.grade_all([(problem, "right"), (problem, "wrong")])] == [1.0, 0.0]
    assert [worker.pid for worker in graders._workers if worker] == pids


@pytest.mark.slow
def test_closing_leaves_no_process_behind(problem: Problem) -> None:
    before = set(descendants(os.getpid()))
    graders = GraderPool(num_workers=2)
    assert graders.grade_all([(problem, "right")] * 4)[3].value == 1.0
    started = set(descendants(os.getpid())) - before
    assert len(started) == 4  # two workers, a child each
    graders.close()
    assert wait_until(lambda: not any(running(pid) for pid in started))
    with pytest.raises(ValueError, match="closed"):
        graders.grade_all([(problem, "right")])


SCRIPT = """
import os, signal, sys, threading, time
from swerve.rewards.pool import GraderPool, shared_pool
from swerve.types import Problem

problem = Problem(id="p", family="python", question="q", answer="right", grading={"file": sys.argv[1]})
pool = shared_pool()
print(pool.grade_all([(problem, "right")])[0].value, flush=True)
"""


def start_script(problem: Problem, lines: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(lines), str(problem.grading["file"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_workers_do_not_survive_a_killed_process(problem: Problem) -> None:
    script = start_script(problem, "pool.grade_all([(problem, 'sleep')])")
    assert script.stdout is not None
    assert script.stdout.readline() == "1.0\n"
    started = descendants(script.pid)
    assert len(started) == 2
    script.kill()
    script.communicate()
    assert wait_until(lambda: not any(running(pid) for pid in started))


@pytest.mark.slow
def test_ctrl_c_reaches_the_caller_and_not_the_workers(problem: Problem) -> None:
    script = start_script(
        problem,
        """
        kept = [worker.pid for worker in pool._workers if worker]
        threading.Timer(0.5, lambda: os.killpg(0, signal.SIGINT)).start()
        try:
            time.sleep(20)
        except KeyboardInterrupt:
            print("idle", flush=True)
        print(kept == [worker.pid for worker in pool._workers if worker], pool.grade_all([(problem, "right")])[0].value)
        threading.Timer(0.5, lambda: os.killpg(0, signal.SIGINT)).start()
        try:
            pool.grade_all([(problem, "sleep")])
        except KeyboardInterrupt:
            print("busy", flush=True)
        print(pool.grade_all([(problem, "wrong")])[0].value)
        """,
    )
    output, errors = script.communicate(timeout=60)
    assert output.splitlines() == ["1.0", "idle", "True 1.0", "busy", "0.0"]
    assert errors == ""


def test_a_worker_that_cannot_start_is_one_clear_error(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "COMMAND", (sys.executable, "-c", "import no_such_package"))
    with (
        GraderPool(num_workers=2) as graders,
        pytest.raises(SwerveError, match=r"cannot start \(exit status 1\): ModuleNotFoundError: No module named 'no_s"),
    ):
        graders.grade_all([(problem, "right")])


def test_unknown_graders_and_values_that_are_no_json_are_refused(graders: GraderPool, problem: Problem) -> None:
    with pytest.raises(ValueError, match="no grader 'nobody'"):
        graders.grade_all([(Problem(id="p", family="nobody", question="", answer=""), "")])
    odd = Problem(id="odd", family="python", question="", answer="", metadata={"a": {1, 2}})
    with pytest.raises(ValueError, match="problem 'odd' cannot be sent to a grader: Object of type set"):
        graders.grade_all([(problem, "right"), (odd, "")])
    assert graders.grade_all([(problem, "right")])[0].value == 1.0


def test_the_caller_goes_on_while_hostile_answers_are_judged(graders: GraderPool, problem: Problem) -> None:
    gaps, stop = [], threading.Event()

    def tick() -> None:
        last = time.monotonic()
        while not stop.wait(0.01):
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    rewards = graders.grade_all([(problem, text) for text in ("power", "hang", "memory", "segfault", "power")])
    stop.set()
    thread.join()
    assert [reward.status for reward in rewards] == ["timeout", "timeout", "timeout", "error", "timeout"]
    assert max(gaps) < 1.0


def test_the_shared_pool_has_the_settings_it_was_given(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_shared", None)
    monkeypatch.setattr(limits, "_settings", limits.pool_settings())
    configure_pool(num_workers=1, cpu_seconds=0.2, memory_mb=512)
    first = shared_pool()
    assert first is shared_pool()
    assert [reward.detail for reward in grade_all([(problem, "hang"), (problem, "memory")])] == [
        "CPU time limit 0.2 s",
        "memory limit 512 MiB",
    ]
    configure_pool(num_workers=1, cpu_seconds=0.2, memory_mb=512)
    assert shared_pool() is first
    configure_pool(num_workers=1, cpu_seconds=0.4, memory_mb=512)
    assert shared_pool() is not first
    assert grade_all([(problem, "hang")])[0].detail == "CPU time limit 0.4 s"
    shared_pool().close()


@pytest.mark.parametrize("field", ["cpu_seconds", "wall_seconds", "memory_bytes", "max_chars"])
def test_limits_must_be_above_zero(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be above 0; got 0"):
        GraderLimits(**{field: 0})
    with pytest.raises(ValueError, match="num_workers must be at least 1; got 0"):
        GraderPool(num_workers=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_cores", "num_processes", "expected"),
    [(4, None, 4), (64, None, 8), (4, "", 4), (4, "2", 2), (64, "4", 8), (64, "16", 4), (2, "8", 1)],
)
def test_processes_that_torchrun_starts_share_the_cores(monkeypatch, num_cores, num_processes, expected) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cores)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if num_processes is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", num_processes)
    assert pool._default_num_workers() == expected
