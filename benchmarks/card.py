"""One card: does the package run on it, how fast and in how much memory; without a card, the same on a processor.

    python -m benchmarks.card [--parts sample step ...] [--again] [--work runs/card] [--results FILE]

The chain is run with random weights of a real model's shapes: 1.5 billion parameters on a card, 0.5 billion (24 layers,
896 wide, a vocabulary of 151,936) and few tokens on a processor. On a card also the tests marked `gpu`, the demo, the
update at 0.5, 1.5 and 4 billion parameters, the memory of training against its prediction, sampling with the embedded
engine and with vLLM, and a whole step beside TRL's (`SWERVE_TRL_PYTHON`), the last two where these are installed.

Each part is a process of its own: seconds, peak of resident memory, on a card the most of the card's memory in use,
what it wrote, and the tokens that it sampled or measured. Parts that are in the file of results, and in the folder of
the work, are not run again; one that fails takes a line, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
import yaml

from benchmarks.process import print_line
from benchmarks.update import LAYOUTS, layout_config
from studies.records import made_here, read_records

RESULTS = Path(__file__).with_name("results")
_STEP_SECONDS = 1.0
"""Between looks at the card's memory."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The model of the chain and how much it does."""

    layout: str
    dtype: str
    problems: int
    samples: int
    new_tokens: int
    freeze: tuple[str, ...] = ()
    """Weights that the step does not train."""


# On a processor the last four layers are trained: less than 8 GB, where all weights would take 12.
SIZES = {
    "cpu": Size(layout="0.5B", dtype="float32", problems=4, samples=4, new_tokens=64,
                freeze=("*embed*", "*.norm.*", *(f"*.layers.{number}.*" for number in range(20)))),
    "cuda": Size(layout="1.5B", dtype="bfloat16", problems=64, samples=8, new_tokens=512),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Part:
    """A command, and how its record is completed from the folder of the work."""

    name: str
    command: tuple[str, ...]
    writes: str = ""
    """What it makes below the folder of the work."""
    lacks: str = ""
    """Why it cannot be run here; empty: it can."""
    more: Callable[[str], dict[str, Any]] = lambda _: {}
    """From what it printed to figures of its own."""


def parts(device: str, work: Path, size: Size) -> list[Part]:
    """Return what is run, in its order: the chain, and on a card the benchmarks."""
    module = (sys.executable, "-m")
    model, run, base = str(work / "model"), str(work / "run"), str(work / "base.parquet")
    swerve = (*module, "swerve")
    amount = ("--limit", size.problems, "--num-samples", size.samples, "--max-new-tokens", size.new_tokens)
    asked = ("--task", "addition", *map(str, amount))
    runtime = (f"runtime.dtype={size.dtype}", f"runtime.device={device}")
    evaluated = (f"eval.num_problems={size.problems}", f"eval.samples_per_problem={size.samples}")
    read = ("--use-responses", base, "--reference", model, "--checkpoint", f"rl={run}:rl")
    chain = [
        Part(name="model", command=(*module, "benchmarks.card", "--make", model, size.layout), writes="model"),
        Part(name="sample", command=(*swerve, "sample", model, *asked, *runtime, "--out", base), writes="base.parquet"),
        Part(name="step", command=(*swerve, "train", str(work / "step.yaml"), "--out", run), writes="run"),
        Part(name="eval", command=(*swerve, "eval", run, *runtime, *evaluated), writes="run"),
        Part(name="probe", command=(*swerve, "probe", *read, *runtime, "--out", str(work / "probe")), writes="probe"),
        Part(
            name="claim",
            command=(*swerve, "claim", model, f"{run}:rl", *asked, *runtime, "--parts", "accuracy,behaviour",
                     "--out", str(work / "claim")),
            writes="claim",
        ),
    ]  # fmt: skip
    if device == "cpu":
        return chain
    vllm = "" if find_spec("vllm") else "vllm is not installed"
    trl = os.environ.get("SWERVE_TRL_PYTHON", "")
    tests = (*module, "pytest", "-q", "-m", "gpu", "tests/test_gpu.py")
    return [
        Part(name="tests", command=tests, more=lambda said: {"said": said.strip().splitlines()[-1].strip("= ")}),
        Part(name="demo", command=(*swerve, "demo", "--out", str(work / "demo")), writes="demo"),
        *chain,
        *(
            Part(name=f"update-{layout}", more=_lines, command=(*module, "benchmarks.update", "--layout", layout,
                 "--tokens", "16384", "--groups", "16", "--ways", "3", "4", "5"))
            for layout in ("0.5B", "1.5B", "4B")
        ),
        *(
            Part(name=f"memory-{tokens}", more=_lines,
                 command=(*module, "benchmarks.memory", "--device", "cuda", "--tokens", tokens))
            for tokens in ("2048", "8192")
        ),
        Part(name="engine", command=(*module, "benchmarks.card", "--engine", model), more=_lines),
        Part(name="vllm", command=(*module, "benchmarks.card", "--vllm", model), more=_lines, lacks=vllm),
        Part(
            name="step-trl",
            command=(*module, "benchmarks.step", "--profiles", "1.5B", "--repeats", "3"),
            more=_lines,
            lacks="" if trl else "SWERVE_TRL_PYTHON names no Python with TRL",
        ),
    ]  # fmt: skip


def _lines(said: str) -> dict[str, Any]:
    """Return the results that a benchmark printed, without its line of versions."""
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {"found": [line for line in found if "swerve" not in line]}


def write_recipe(work: Path, device: str, size: Size) -> None:
    """Write the recipe of one RL step whose rewards are a coin's, so that random weights get a gradient."""
    stage = {
        "kind": "rl",
        "steps": 1,
        "prompts_per_step": size.problems,
        "samples_per_prompt": size.samples,
        "reward": "random",
        "optimizer": {"lr": 1e-5},
        "freeze": list(size.freeze),
    }
    if device == "cuda":
        stage["tokens_per_batch"] = 16384
    document = {
        "task": {"kind": "addition", "num_train": 200},
        "model": {"kind": "pretrained", "path": str(work / "model")},
        "max_new_tokens": size.new_tokens,
        "stages": [stage],
        "runtime": {"device": device, "precision": size.dtype},
    }
    (work / "step.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def measured(part: Part, work: Path, log: Path) -> dict[str, Any]:
    """Run a part; return its figures.

    Raises:
        RuntimeError: it failed; the message is the last line that it printed.
    """
    before, started = _files(work / part.writes), time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with log.open("w+", encoding="utf-8") as errors, log.with_suffix(".out").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(part.command, stdout=said, stderr=errors, env=environment)
        most = 0
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            most = max(most, _device_bytes())
            time.sleep(_STEP_SECONDS)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for stream in (said, errors):
            stream.seek(0)
            texts.append(stream.read())
    if process.returncode:
        told = [line for text in texts for line in text.splitlines() if line.strip()]
        raise RuntimeError(f"exit status {process.returncode}: {told[-1] if told else 'it said nothing'} ({log})")
    made = _files(work / part.writes) if part.writes else {}
    written = [file for file, at in made.items() if before.get(file) != at]
    tokens = sum(map(_tokens, written))
    return {
        "part": part.name,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gb": round(usage.ru_maxrss * 1024 / 1e9, 2),  # no less than what this process has
        **({"device_gb": round(most / 1e9, 2)} if most else {}),
        **({"disk_gb": round(sum(path.stat().st_size for path in written) / 1e9, 3)} if written else {}),
        **({"tokens": tokens} if tokens else {}),
        **part.more(texts[0]),
    }


def _device_bytes() -> int:
    """Return the bytes of the first card's memory that are in use; 0 without one."""
    if shutil.which("nvidia-smi") is None:
        return 0
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return int(said) * 2**20 if said.isdigit() else 0


def _files(path: Path) -> dict[Path, int]:
    """Return the files that are there, of a file or folder, and when each was written, in nanoseconds."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {file: file.stat().st_mtime_ns for file in files}


def _tokens(path: Path) -> int:
    """Return the tokens of the completions of a table that were sampled, or that the probe measured; else 0."""
    if path.suffix != ".parquet" or path.name == "sequences.parquet":  # what the probe was given
        return 0
    if path.name == "tokens.parquet":
        return int(pq.read_metadata(path).num_rows)
    if "completion_ids" not in pq.read_schema(path).names:
        return 0
    column = pq.read_table(path, columns=["completion_ids"]).column(0)
    return sum(len(ids) for ids in column.to_pylist())


def predicted_gb(work: Path, part: str) -> dict[str, float]:
    """Return the memory that is predicted for the step of the chain, beside nothing for other parts."""
    if part != "step":
        return {}
    from swerve.plan.training import predicted_memory
    from swerve.recipes import load_config

    return {"predicted_gb": round(predicted_memory(load_config(work / "step.yaml")).peak / 1e9, 2)}


def make_model(folder: Path, layout: str) -> None:
    """Write a model of random weights with a tokenizer of as many words, those of the addition task first."""
    from transformers import AutoModelForCausalLM

    from swerve.models.folder_checks import quiet_transformers
    from swerve.models.tiny import build_word_tokenizer
    from swerve.problems import load_family
    from swerve.problems.addition import AdditionTask

    config, words = layout_config(LAYOUTS[layout]), list(load_family(AdditionTask()).words)
    tokenizer = build_word_tokenizer([*words, *(f"w{index}" for index in range(config.vocab_size - len(words) - 4))])
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    torch.manual_seed(0)
    untyped: Any = AutoModelForCausalLM
    with quiet_transformers():
        untyped.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def engine_speed(folder: Path, *, device: str, size: Size, prompt_tokens: int = 128) -> dict[str, Any]:
    """Return the tokens per second of the embedded engine, all completions of full length, after a warm-up."""
    from swerve.models.model_folder import load_model
    from swerve.rollout import SamplingParams, TorchEngine

    model = load_model(folder, device=device, dtype=size.dtype).model
    prompts = [[4 + number] * prompt_tokens for number in range(size.problems)]
    engine = TorchEngine(model, pad_id=0, max_rows=size.problems * size.samples)

    def sample(length: int) -> int:
        params = SamplingParams(num_samples=size.samples, max_new_tokens=length, temperature=1.0, stop_ids=())
        found = engine.generate(prompts, params, seeds=range(len(prompts)))
        return sum(len(completion.token_ids) for group in found for completion in group)

    return _timed(sample, size.new_tokens)


def vllm_speed(folder: Path, *, size: Size, prompt_tokens: int = 128) -> dict[str, Any]:
    """Return the tokens per second that vLLM samples of the same prompts, in this process."""
    from vllm import LLM, SamplingParams

    longest = prompt_tokens + size.new_tokens
    llm = LLM(model=str(folder), dtype=size.dtype, max_model_len=longest, gpu_memory_utilization=0.6)
    prompts = [{"prompt_token_ids": [4 + number] * prompt_tokens} for number in range(size.problems)]

    def sample(length: int) -> int:
        params = SamplingParams(n=size.samples, temperature=1.0, max_tokens=length, ignore_eos=True)
        found = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(one.token_ids) for output in found for one in output.outputs)

    return _timed(sample, size.new_tokens)


def _timed(sample: Callable[[int], int], length: int) -> dict[str, Any]:
    sample(min(8, length))
    started = time.perf_counter()
    tokens = sample(length)
    seconds = time.perf_counter() - started
    return {"tokens": tokens, "seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds)}


def run_all(chosen: Sequence[Part], work: Path, results: Path, header: dict[str, Any], *, again: bool) -> list[str]:
    """Run parts and keep what they say in the file of results, one line each; return the names of those that failed."""
    failed = []
    for number, part in enumerate(chosen, 1):
        kept = read_records(results)
        told = f"{number}/{len(chosen)} {part.name}"
        if part.lacks:
            print(f"{told}: left out, {part.lacks}", flush=True)
            continue
        # Later parts read what an earlier one wrote, so that has to be there too.
        is_done = any(line.get("part") == part.name for line in kept) and (work / part.writes).exists()
        if is_done and not again:
            print(f"{told}: done before", flush=True)
            continue
        print(f"{told} ...", flush=True)
        try:
            found = {**measured(part, work, work / f"{part.name}.log"), **predicted_gb(work, part.name)}
        except (RuntimeError, OSError) as error:
            failed.append(part.name)
            print(f"{told}: failed: {error}", flush=True)
            continue
        others = [line for line in kept if line.get("part") not in (None, part.name)]
        lines = [header, *others, found]
        results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{told}: {json.dumps({key: value for key, value in found.items() if key != 'found'})}", flush=True)
    return failed


def main() -> None:
    """Run the parts of the device that is there; print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", help="only these; by default all")
    parser.add_argument("--again", action="store_true", help="also parts whose results are there")
    parser.add_argument("--work", type=Path, default=Path("runs/card"), help="folder of models and runs")
    parser.add_argument("--results", type=Path, help="by default benchmarks/results/card-DEVICE.jsonl")
    for hidden in ("--engine", "--vllm"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = SIZES[device]

    # What a part of the card is, in a process of its own.
    if arguments.make:
        make_model(Path(arguments.make[0]), arguments.make[1])
        return
    if arguments.engine or arguments.vllm:
        found = engine_speed(arguments.engine, device=device, size=size) if arguments.engine else None
        print_line(found or vllm_speed(arguments.vllm, size=size))
        return

    # All parts, or those that are named.
    arguments.work.mkdir(parents=True, exist_ok=True)
    write_recipe(arguments.work, device, size)
    known = parts(device, arguments.work, size)
    if unknown := set(arguments.parts or ()) - {part.name for part in known}:
        parser.error(f"there is no part {min(unknown)!r} here; there are {', '.join(part.name for part in known)}")
    chosen = [part for part in known if arguments.parts is None or part.name in arguments.parts]
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    results = arguments.results or RESULTS / f"card-{re.sub(r'[^a-z0-9]+', '-', name.lower())}.jsonl"
    made = {"device": name, "layout": size.layout, "threads": torch.get_num_threads()}
    header = {**made_here("torch", "transformers"), **made}
    failed = run_all(chosen, arguments.work, results, header, again=arguments.again)
    print(f"{results}: python -m studies benchmarks writes the table of docs/gpu.md", flush=True)
    if failed:
        sys.exit(f"{len(failed)} of {len(chosen)} parts failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
