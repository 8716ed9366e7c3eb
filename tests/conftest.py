"""Shared fixtures: tiny models of real architectures, and the optional folder of shared data."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("COLUMNS", None)  # which readline sets in the parent of parallel workers, and tables would be folded at
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, where Ctrl-C tests would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from swerve import errors

# What a power cut leaves is tried by the campaign, in processes of its own; the tests do not wait for the disk.
os.fsync = lambda descriptor: None  # type: ignore[assignment]

# The same examples in every run: a failure belongs to a change, not to chance.
settings.register_profile("swerve", derandomize=True, deadline=None)
settings.load_profile("swerve")

REPOSITORY = Path(__file__).parents[1]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(autouse=True, scope="session")
def _one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    yield
    errors._secrets.clear()


@pytest.fixture(autouse=True)
def _trials_of_changed_code_are_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """How an architecture was found to read in a test that changes code says nothing of the code as it is."""
    trial = sys.modules.get("swerve.models.trial")
    known = dict(trial._faults) if trial is not None else {}
    yield
    trial = sys.modules.get("swerve.models.trial")
    if trial is not None and "monkeypatch" in request.fixturenames:
        trial._faults.clear()
        trial._faults.update(known)
        trial._last.clear()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; a test that asks for it is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield launched
        launched.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("vllm") is None:
        absent = pytest.mark.skip(reason="needs vLLM, in an environment of its own: make test-vllm")
        for item in items:
            if item.get_closest_marker("vllm"):
                item.add_marker(absent)


def pytest_collection_finish() -> None:
    gc.freeze()  # the tests and what they import stay: no need to look through them for garbage again and again


TwoProcesses = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def on_processes() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python with some arguments on so many processes under torchrun; it must succeed."""

    def run(num: int, *arguments: object) -> subprocess.CompletedProcess[str]:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num}"]
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])  # for tests.builders
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [*launch, *map(str, arguments)], capture_output=True, text=True, timeout=240, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def on_two_processes(on_processes: Callable[..., subprocess.CompletedProcess[str]]) -> TwoProcesses:
    """Run Python with some arguments on two processes under torchrun; it must succeed."""
    return partial(on_processes, 2)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return the path of a folder of shared data; skip the test where it is absent."""

    def locate(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.exists():
            pytest.skip(f"needs the data folder '{name}', which is not part of the project")
        return path

    return locate


@pytest.fixture(scope="session")
def tiny():
    """A randomly initialised two-layer Qwen3 with a word tokenizer, in evaluation mode; treat it as read-only."""
    from swerve.config.models import TinyModel
    from swerve.models.tiny import build_tiny_model, build_word_tokenizer

    tokenizer = build_word_tokenizer(["0", "1", "2", "3", "+", "=", ";"])
    model = build_tiny_model(TinyModel(hidden_size=32, intermediate_size=48), tokenizer, seed=1).eval()
    return model, tokenizer


@pytest.fixture(scope="session")
def longrope():
    """A randomly initialised Phi 3 with 128 positions that reads texts of more than 32 tokens with other angles."""
    import torch
    from transformers import Phi3Config, Phi3ForCausalLM

    factors = {"short_factor": [1.0, 1.3, 1.7, 2.0], "long_factor": [2.0, 4.0, 9.0, 30.0]}
    config = Phi3Config(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        original_max_position_embeddings=32,
        rope_parameters={"rope_type": "longrope", "rope_theta": 100.0, "factor": 4.0, **factors},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = Phi3ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that attention is not nearly uniform
    return model


@pytest.fixture(scope="session")
def save_addition_model() -> Callable[..., Path]:
    """Save a randomly initialised model, with 40 positions, for the words of the addition task; return its folder."""
    from swerve.config.models import TinyModel
    from swerve.models.tiny import build_tiny_model, build_word_tokenizer
    from swerve.problems import load_family
    from swerve.problems.addition import AdditionTask

    def save(folder: Path, *, seed: int, template: str | None = None, words: tuple[str, ...] = ()) -> Path:
        tokenizer = build_word_tokenizer([*load_family(AdditionTask()).words, *words])
        config = TinyModel(hidden_size=32, intermediate_size=48, max_positions=40)
        tokenizer.chat_template = template
        build_tiny_model(config, tokenizer, seed=seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def custom_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page on custom parts shows, in a folder."""
    text = (REPOSITORY / "docs" / "custom-parts.md").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("custom_parts")
    for name, body in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(body)
    return folder


def _filled(schema: dict[str, Any], given: Any, schemas: dict[str, Any]) -> Any:
    """Return `given` with the required keys that it lacks: null where allowed, else empty, 0 or the first choice."""
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if given is None or len(options) > 1:
        return given
    kind = schemas[options[0]["$ref"].rpartition("/")[2]] if "$ref" in options[0] else options[0]
    if "properties" in kind and isinstance(given, dict):
        known = {name: _filled(kind["properties"].get(name, {}), value, schemas) for name, value in given.items()}
        # Earlier versions wrote some means as `share`.
        lacking = [
            name for name in kind.get("required", []) if name not in known and not (name == "mean" and "share" in known)
        ]
        return known | {name: _empty(kind["properties"][name], schemas) for name in lacking}
    if isinstance(given, dict):
        values = kind.get("additionalProperties")
        return (
            {name: _filled(values, one, schemas) for name, one in given.items()} if isinstance(values, dict) else given
        )
    return [_filled(kind.get("items", {}), one, schemas) for one in given] if isinstance(given, list | tuple) else given


def _empty(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    if "anyOf" in schema:
        return None
    if "enum" in schema:
        return schema["enum"][0]
    empty = {"string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}}
    kind = schema.get("type", "object")
    return _filled(schema, {}, schemas) if kind == "object" else empty[kind]


@pytest.fixture(scope="session")
def filled() -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """Complete some literal keys of a typed record's JSON, so that a test names only those it is about."""

    def fill(record: Any, given: dict[str, Any]) -> dict[str, Any]:
        schema = record.model_json_schema()
        complete: dict[str, Any] = _filled(schema, given, schema.get("$defs", {}))
        return complete

    return fill


SMALL_RECIPE = """
name: small
seed: 5
task: {kind: addition, digits: 2, num_train: 400, num_heldout: 24, mistake_rate: 0.5}
model: {kind: tiny}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 220, batch_size: 24, optimizer: {lr: 4e-3, beta2: 0.95, schedule: cosine}, checkpoints: [100]}
  - {kind: dpo, steps: 2, batch_size: 4, max_prompts: 128, optimizer: {lr: 1e-4}}
  - {kind: rl, steps: 4, prompts_per_step: 6, samples_per_prompt: 4, optimizer: {lr: 1e-4}, checkpoints: [2]}
eval: {num_problems: 24, samples_per_problem: 2}
probe: {min_rollouts: 2, causal: {num_continuations: 4}}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""


@pytest.fixture(scope="session")
def small_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe file with every kind of stage; it trains in a few seconds."""
    path = tmp_path_factory.mktemp("recipe") / "small.yaml"
    path.write_text(SMALL_RECIPE)
    return path


@pytest.fixture(scope="session")
def small_config(small_recipe: Path):
    from swerve.recipes import load_config

    return load_config(small_recipe)


@pytest.fixture(scope="session")
def small_run(small_config, tmp_path_factory: pytest.TempPathFactory):
    """The small recipe trained without interruption and evaluated, once for all processes of pytest-xdist.

    Treat it as read-only.
    """
    from swerve.artifacts.run import RunDirectory
    from swerve.eval.heldout import evaluate_run
    from swerve.progress import SilentProgress
    from swerve.train.loop import train_run

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    run, made = RunDirectory(folder / "small_run"), folder / "small_run.made"
    # The process that comes first makes the run while the others wait.
    with (folder / "small_run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            train_run(small_config, run, resume=False, progress=SilentProgress())
            evaluate_run(small_config, run, progress=SilentProgress())
            made.touch()
    return run


@pytest.fixture
def unchecked_shapes():
    """Switch the tests' own checks of array shapes off, to reach the functions' checks."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
