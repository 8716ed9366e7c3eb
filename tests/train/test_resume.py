"""Processes that are really killed, and runs that end with the same weights, bit for bit."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

import swerve
from swerve.artifacts.run import RunDirectory
from swerve.errors import (
    ArtifactError,
    ConfigError,
    DiskFullError,
    EngineError,
    InterruptedRunError,
    SwerveError,
)
from swerve.interruption import deferred_signals
from swerve.progress import SilentProgress
from swerve.train.loop import train_run
from tests.builders import Notes, figures
from tests.campaign.kills import killed_at
from tests.campaign.states import contents, differences


def _begun(whole, path) -> RunDirectory:
    """Copy a run as it was when killed after its first checkpoint."""
    shutil.copytree(whole.path, path, ignore=shutil.ignore_patterns("rollouts", "eval"))
    run = RunDirectory(path)
    first, *others = run.checkpoints
    for checkpoint in others:
        shutil.rmtree(checkpoint.path)
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(lines[: first.step]))
    return run


def _start(*arguments) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "swerve", "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _wait_for_step(process, run, step):
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if run.metrics_path.exists() and run.metrics_path.read_bytes().count(b"\n") >= step:
            return
        time.sleep(0.002)
    raise AssertionError(f"step {step} was not reached: {process.communicate()}")


def _kill_at(run, step, *arguments, number=signal.SIGKILL):
    process = _start(*arguments)
    _wait_for_step(process, run, step)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def _same_as(run, expected):
    """Check that two runs agree byte for byte but for their evaluations: the same files, the same content, no times."""
    assert [one for one in differences(contents(run.path), contents(expected.path)) if ": eval" not in one] == []


@pytest.fixture(autouse=True)
def _hangups_are_heard():
    """Also where the tests were started by nohup: children ignore what their parent ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_killed_twice_and_resumed_gives_the_same_weights(small_recipe, small_run, tmp_path):
    run = RunDirectory(tmp_path / "run")
    status, _ = _kill_at(run, 130, small_recipe, "--out", run.path)
    assert status == -signal.SIGKILL
    assert [checkpoint.label for checkpoint in run.checkpoints] == ["sft-100"]
    status, errors = _kill_at(run, 223, run.path, "--resume")
    assert status == -signal.SIGKILL
    assert "continuing after sft-100 (step 100)" in errors
    finished = _start(run.path, "--resume")
    _, errors = finished.communicate(timeout=120)
    assert finished.returncode == 0, errors
    _same_as(run, small_run)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR1, 138, marks=pytest.mark.slow),
        pytest.param(signal.SIGXCPU, 152, marks=pytest.mark.slow),
    ],
)
def test_interrupted_saves_and_resumes(small_config, small_run, tmp_path, number, status):
    run = _begun(small_run, tmp_path / "run")
    found, errors = _kill_at(run, 130, run.path, "--resume", number=number)
    assert found == status
    _, checkpoint = run.checkpoints
    assert not checkpoint.scheduled
    assert errors.splitlines()[-1].startswith(
        f"swerve: interrupted after step {checkpoint.step}; its checkpoint is saved; continue with: swerve train "
    )
    assert run.read_provenance()["status"] == "interrupted"
    train_run(small_config, run, resume=True, progress=SilentProgress())
    _same_as(run, small_run)


@pytest.mark.slow
def test_a_closed_terminal_saves_though_nothing_can_be_shown_any_more(small_config, small_run, tmp_path):
    run = _begun(small_run, tmp_path / "run")
    child, terminal = pty.fork()
    if not child:
        command = [sys.executable, "-m", "swerve", "train", str(run.path), "--resume"]
        os.execve(sys.executable, command, {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"})
    deadline = time.monotonic() + 120
    while run.metrics_path.read_bytes().count(b"\n") < 130:
        assert time.monotonic() < deadline
        if select.select([terminal], [], [], 0.01)[0]:
            os.read(terminal, 65536)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGHUP
    assert run.read_provenance()["status"] == "interrupted"
    assert len(run.checkpoints) == 2
    train_run(small_config, run, resume=True, progress=SilentProgress())
    _same_as(run, small_run)


@pytest.mark.parametrize(
    ("numbers", "recorded"),
    [
        ([signal.SIGINT], signal.SIGINT),
        ([signal.SIGHUP], signal.SIGHUP),
        ([signal.SIGUSR1], signal.SIGUSR1),
        ([signal.SIGXCPU] * 3, signal.SIGXCPU),  # the limit of CPU time sends it every second
        ([signal.SIGUSR1, signal.SIGTERM], signal.SIGTERM),  # a notice, and then the end of the time to save
        ([signal.SIGTERM, signal.SIGHUP], signal.SIGTERM),
    ],
)
def test_signals_are_noted_and_their_handlers_put_back(numbers, recorded):
    for number in numbers:
        if signal.getsignal(number) is signal.SIG_IGN:  # under nohup, where an ignored SIGHUP stays ignored
            signal.signal(number, signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in signal.Signals}
    with deferred_signals() as interruption:
        for number in numbers:
            os.kill(os.getpid(), number)
        assert interruption.signal_number == recorded
    assert {number: signal.getsignal(number) for number in signal.Signals} == before


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT, signal.SIGINT], [signal.SIGINT, signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM]],
)
def test_a_second_urgent_signal_ends_the_process_at_once(numbers):
    child = os.fork()
    if not child:
        with deferred_signals():
            for number in numbers:
                os.kill(os.getpid(), number)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + numbers[-1]


def test_what_torchrun_passes_on_of_ctrl_c_is_no_second_signal(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    with deferred_signals() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert interruption.signal_number == signal.SIGINT


def test_a_closed_terminal_is_ignored_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with deferred_signals() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interruption.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_interrupted_before_the_first_update_of_a_stage(small_recipe, tmp_path):
    """A signal while preference pairs are sampled, which takes long here because there are none to be found."""
    run = RunDirectory(tmp_path / "run")
    endless = ["stages.sft.steps=2", "stages.dpo.max_prompts=1000000"]
    process = _start(small_recipe, *endless, "--out", run.path)
    _wait_for_step(process, run, 2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted after step 2; its checkpoint is saved" in errors.splitlines()[-1]
    assert run.read_provenance()["status"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("place", ["set_status", "read_provenance"])
def test_a_signal_before_the_first_step_ends_it_at_once_and_is_written_down(
    micro, tmp_path, monkeypatch, number, place
):
    """Also where it comes while the run is being made, or inside what passes on no errors."""
    config, whole = micro
    run, original, before = RunDirectory(tmp_path / "run"), getattr(RunDirectory, place), signal.getsignal(number)

    def with_signal(*arguments):
        monkeypatch.setattr(RunDirectory, place, original)
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), number)
        return original(*arguments)

    monkeypatch.setattr(RunDirectory, place, with_signal)
    with pytest.raises(InterruptedRunError, match="interrupted before the first step; continue with: swerve") as caught:
        train_run(config, run, resume=False, progress=SilentProgress())
    assert caught.value.exit_status == 128 + number
    assert run.read_provenance()["status"] == "interrupted"
    assert signal.getsignal(number) == before
    train_run(config, run, resume=True, progress=SilentProgress())
    _same_as(run, whole)


_REFUSED_WRITE = "swerve.artifacts.tables.pq.ParquetWriter"


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        (_REFUSED_WRITE, OSError(errno.ENOSPC, "No space left on device"), "disk full while writing .*step_000001"),
        (_REFUSED_WRITE, OSError(errno.EIO, "Input/output error"), "cannot write .*step_000001.*: Input/output error"),
        (_REFUSED_WRITE, OSError(errno.EROFS, "Read-only file system"), "cannot write .*: Read-only file system"),
        ("swerve.train.loop.append_metrics", OSError(errno.EIO, "Input/output error"), "Input/output error"),
        ("swerve.rollout.torch_engine.TorchEngine.generate", EngineError("http://a does not answer"), "not answer"),
    ],
)
def test_a_fault_before_the_first_metrics_leaves_a_run_that_is_continued(
    short, tmp_path, monkeypatch, place, error, message
):
    config, whole = short
    run = RunDirectory(tmp_path / "run")

    def failing(*_, **__):
        raise error

    with monkeypatch.context() as patched, pytest.raises((SwerveError, OSError), match=message):
        patched.setattr(place, failing)
        train_run(config, run, resume=False, progress=SilentProgress())
    assert run.read_provenance()["status"] == "failed"
    train_run(config, run, resume=True, progress=SilentProgress())
    _same_as(run, whole)


def test_a_full_disk_on_which_no_status_can_be_written_is_what_is_told(short, tmp_path, monkeypatch):
    config, whole = short
    run, replace = RunDirectory(tmp_path / "run"), os.replace

    def failing(source, target):
        if target.name not in ("run.json", "config.yaml") or (run.path / "rollouts").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patched, pytest.raises(DiskFullError, match=r"rollouts/step_000001\.parquet"):
        patched.setattr(os, "replace", failing)
        train_run(config, run, resume=False, progress=SilentProgress())
    assert not run.is_held()
    train_run(config, run, resume=True, progress=SilentProgress())
    _same_as(run, whole)


def test_what_is_refused_at_the_first_step_leaves_nothing(short, tmp_path, monkeypatch):
    config, _ = short

    def refusing(*_):
        raise SwerveError("not with this recipe")

    monkeypatch.setattr("swerve.train.loop.judge_grading", refusing)
    with pytest.raises(SwerveError, match="not with this recipe"):
        train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_interrupted_leaves_no_spare_checkpoint_once_resumed(small_recipe, small_config, tmp_path):
    run = RunDirectory(tmp_path / "run")
    _kill_at(run, 30, small_recipe, "--out", run.path, number=signal.SIGINT)
    (spare,) = run.checkpoints
    train_run(small_config, run, resume=True, progress=SilentProgress())
    assert spare.path not in [checkpoint.path for checkpoint in run.checkpoints]


@pytest.mark.parametrize("file", ["model.safetensors", "trainer_state/optimizer.safetensors", "MANIFEST.json"])
def test_a_damaged_checkpoint_is_passed_over_loudly(small_config, small_run, tmp_path, file):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    run = RunDirectory(path)
    target = run.checkpoint_path(226) / file
    raw = bytearray(target.read_bytes())
    raw[len(raw) // 2] ^= 4
    target.write_bytes(raw)
    progress = Notes()
    train_run(small_config, run, resume=True, progress=progress)
    assert any("passing over" in note and "step_000226" in note for note in progress.notes)
    _same_as(run, small_run)


def test_a_run_that_is_trained_to_its_end_says_so_without_torch(small_run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    code = (
        "import sys; from swerve.cli.app import run_command; "
        f"run_command(['train', {str(path)!r}, '--resume']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert done.stderr.endswith("trained to its end, rl-4 (step 226): there is nothing to do\n")
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("change", ["weights", "lost checkpoint", "log", "problems", "status", "verify", "nothing"])
def test_whatever_else_resuming_finds_it_says_and_makes_itself(small_run, tmp_path, monkeypatch, change):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    run, verify = RunDirectory(path), change == "verify"
    last = run.checkpoints[-1].path / "model.safetensors"
    if change == "weights":
        raw = bytearray(last.read_bytes())
        raw[len(raw) // 2] ^= 4
        last.write_bytes(raw)
    elif change == "lost checkpoint":
        shutil.rmtree(run.checkpoints[0].path)
    elif change == "log":
        run.metrics_path.write_text(run.metrics_path.read_text().replace("0", "1", 1))
    elif change == "problems":
        run.write_provenance({"problems_sha256": "0" * 64})
    elif change == "status":
        run.set_status("failed")
    resumed = []
    monkeypatch.setattr("swerve.train.loop.train_run", lambda *args, **options: resumed.append(options["resume"]))
    agrees = change != "log"  # with no checkpoint
    with contextlib.nullcontext() if agrees else pytest.raises(ArtifactError, match="metrics.jsonl"):
        swerve.train(run, resume=True, verify=verify, progress=SilentProgress())
    assert resumed == [True] * (agrees and change != "nothing")


def test_kept_checkpoints_before_the_newest_that_are_missing_or_damaged_are_named_and_stay_so(micro, tmp_path):
    """Training goes on after the newest one; with `verify` a change that keeps the size is seen, too."""
    config, run, whole = _copy(micro, tmp_path / "run")
    shutil.rmtree(run.checkpoints[3].path)  # two steps are left to train
    shutil.rmtree(run.checkpoint_path(1))
    damaged = run.checkpoint_path(2) / "model.safetensors"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    progress = Notes()
    train_run(config, run, resume=True, progress=progress, verify=True)
    assert any(note.startswith(f"passing over a checkpoint: {damaged}") for note in progress.notes)
    assert "continuing after sft-3 (step 3)" in progress.notes
    assert (
        f"checkpoint of step 1 is missing: {run.checkpoint_path(1)}; restore it from a copy, or continue without it"
    ) in progress.notes
    assert [one.step for one in run.checkpoints] == [2, 3, 4]
    assert run.checkpoints[-1].weights_sha256 == whole.checkpoints[-1].weights_sha256
    for path in (run.checkpoint_path(1), run.checkpoint_path(2)):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole.checkpoint_path(int(path.name[-1])), path)
    _same_as(run, whole)


def test_resumed_figures_are_the_same_to_the_last_bit_for_a_width_that_is_no_power_of_two(tmp_path):
    """Weights mapped from a file are not aligned, and unaligned operands round otherwise: the figures showed it."""
    from swerve.recipes import load_config

    recipe = tmp_path / "width48.yaml"
    recipe.write_text(WIDTH_48)
    config = load_config(recipe)
    expected = RunDirectory(tmp_path / "expected")
    train_run(config, expected, resume=False, progress=SilentProgress())
    run = _begun(expected, tmp_path / "run")
    train_run(config, run, resume=True, progress=SilentProgress())
    assert figures(run) == figures(expected)


WIDTH_48 = """
name: width48
task: {kind: addition, digits: 2, num_train: 100, num_heldout: 4}
model: {kind: tiny, hidden_size: 48, intermediate_size: 96}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 40, batch_size: 8, optimizer: {lr: 4e-3}}
  - {kind: rl, steps: 4, prompts_per_step: 16, samples_per_prompt: 4, optimizer: {lr: 1e-4}}
runtime: {device: cpu, threads: 1}
"""

MICRO = """
name: micro
task: {kind: addition, digits: 2, num_train: 50, num_heldout: 4}
model: {kind: tiny, hidden_size: 16, num_heads: 2, num_kv_heads: 1, num_layers: 1, intermediate_size: 16}
stages:
  - {kind: sft, steps: 4, batch_size: 2, save_every: 1, optimizer: {lr: 1e-3}}
runtime: {device: cpu, threads: 1}
"""


@pytest.fixture(scope="module")
def micro(tmp_path_factory):
    """A configuration of four steps, and its run with every step's checkpoint kept; treat the run as read-only."""
    from swerve.recipes import load_config

    recipe = tmp_path_factory.mktemp("micro") / "micro.yaml"
    recipe.write_text(MICRO.replace("save_every: 1", "checkpoints: [1, 2, 3]"))
    config = load_config(recipe)
    run = RunDirectory(recipe.parent / "run")
    train_run(config, run, resume=False, progress=SilentProgress())
    return config, run


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A configuration of two steps of RL, and its run; treat the run as read-only."""
    from swerve.recipes import load_config

    recipe = tmp_path_factory.mktemp("short") / "short.yaml"
    stage = "{kind: rl, steps: 2, prompts_per_step: 2, samples_per_prompt: 2, optimizer: {lr: 1e-3}}"
    recipe.write_text(re.sub(r"stages:\n.*\n", f"max_new_tokens: 36\nstages: [{stage}]\n", MICRO))
    config = load_config(recipe)
    run = RunDirectory(recipe.parent / "run")
    train_run(config, run, resume=False, progress=SilentProgress())
    return config, run


def _copy(micro, path):
    config, whole = micro
    shutil.copytree(whole.path, path)
    return config, RunDirectory(path), whole


def _digits(path):
    return [place for place, byte in enumerate(path.read_bytes()) if chr(byte).isdigit()]


def _with_digit_changed(path, place):
    raw = bytearray(path.read_bytes())
    raw[place] = ord(str((int(chr(raw[place])) + 1) % 10))
    path.write_bytes(raw)


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["run.json", "config.yaml", "checkpoints/step_000002/MANIFEST.json"])
def test_a_changed_digit_of_what_a_run_is_known_by_is_named(micro, tmp_path, name, stride):
    _, run, _ = _copy(micro, tmp_path / "run")
    path = run.path / name
    original = path.read_bytes()
    for place in _digits(path)[::stride]:
        _with_digit_changed(path, place)
        with pytest.raises(ArtifactError, match=re.escape(name)):
            run.checkpoints  # noqa: B018
        try:
            intact, damages = run.intact_checkpoints()
            assert [one.step for one in intact] == [1, 3, 4]
            assert name in str(damages[0])
        except ArtifactError as error:  # nothing is trained
            assert name in str(error)  # noqa: PT017
        path.write_bytes(original)


def test_a_changed_log_is_passed_over_to_where_it_was_right(micro, tmp_path):
    """The digit is in the third of four lines: the checkpoints of the first two steps still stand."""
    config, run, whole = _copy(micro, tmp_path / "run")
    line = run.metrics_path.read_text().splitlines()[2]
    run.metrics_path.write_text(run.metrics_path.read_text().replace(line, line.replace('loss": 3', 'loss": 4')))
    progress = Notes()
    train_run(config, run, resume=True, progress=progress)
    passed = "metrics.jsonl was changed: its first .* bytes have another SHA-256, which sft-3 .step 3. was saved with"
    assert any(re.search(passed, note) for note in progress.notes)
    assert "continuing after sft-2 (step 2)" in progress.notes
    _same_as(run, whole)


def test_another_configuration_is_not_a_resumed_one(micro, tmp_path):
    config, run, _ = _copy(micro, tmp_path / "run")
    with pytest.raises(ConfigError, match="cannot resume .*: its configuration differs in 'seed'"):
        train_run(config.model_copy(update={"seed": 7}), run, resume=True, progress=SilentProgress())


def test_logs_are_on_the_disk_before_a_checkpoint_counts(tmp_path, monkeypatch):
    """What a power cut leaves: a checkpoint is there from its rename on, a log as far as it was synced before."""
    from swerve.artifacts import files
    from swerve.recipes import load_config

    recipe = tmp_path / "micro.yaml"
    recipe.write_text(MICRO)
    run = RunDirectory(tmp_path / "run")
    synced, found = {}, []
    fsync, rename = os.fsync, os.rename

    def recording(descriptor):
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size
        fsync(descriptor)

    def counting(source, target):
        if "step_" in str(target):
            found.append((synced.get(str(run.metrics_path)), run.metrics_path.read_bytes().count(b"\n")))
            assert synced.get(str(run.metrics_path)) == run.metrics_path.stat().st_size
            assert str(run.path) in synced  # the log's own entry in the directory
        rename(source, target)

    monkeypatch.setattr(files.os, "fsync", recording)
    monkeypatch.setattr(files.os, "rename", counting)
    train_run(load_config(recipe), run, resume=False, progress=SilentProgress())
    assert [lines for _, lines in found] == [1, 2, 3, 4]


@pytest.mark.parametrize("stride", [pytest.param(stride, marks=pytest.mark.slow) for stride in (29, 5)])
def test_killed_wherever_it_touches_the_disk(tmp_path, stride):
    """A forked child dies at its N-th event; each time the resumed run ends the same."""
    from swerve.recipes import load_config

    recipe = tmp_path / "micro.yaml"
    recipe.write_text(MICRO)
    config = load_config(recipe)
    expected = RunDirectory(tmp_path / "expected")
    train_run(config, expected, resume=False, progress=SilentProgress())
    points = 0
    for point in range(stride, 1000, stride):
        run = RunDirectory(tmp_path / "killed" / str(point))
        run.path.parent.mkdir(exist_ok=True)
        command = partial(train_run, config, run, resume=False, progress=SilentProgress())
        if not killed_at(command, point, root=run.path.parent, log=tmp_path / "printed"):
            break
        points += 1
        train_run(config, run, resume=True, progress=SilentProgress())
        _same_as(run, expected)
        assert not list(run.path.parent.glob(".swerve-tmp-*"))
    assert points > 100 / stride
