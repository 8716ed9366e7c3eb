"""The scripts of docs/cluster.md as written: a shell loop, and Slurm arrays by a stand-in for sbatch with kills."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.json_lines import write_json_lines

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```bash\n(.*?)^```$",
    (ROOT / "docs" / "cluster.md").read_text().partition("## Jobs that come and go")[2].partition("\n## ")[0],
    re.MULTILINE | re.DOTALL,
)
SBATCH = """#!{python}
# Runs what it is given at once: each task of an array in any order, some of them killed first and run again.
import os, random, re, subprocess, sys

rng = random.Random(len(sys.argv[-1]))
options = [word for word in sys.argv[1:] if word.startswith("--") and word != "--wrap"]
if "--wrap" in sys.argv:
    tasks, command = [None], ["bash", "-c", sys.argv[sys.argv.index("--wrap") + 1]]
else:
    array = re.search(r"#SBATCH --array=(\\d+)-(\\d+)", open(sys.argv[-1]).read())
    tasks = [None] if array is None else list(range(int(array[1]), int(array[2]) + 1))
    command = ["bash", sys.argv[-1]]
    rng.shuffle(tasks)
for task in tasks:
    environment = dict(os.environ) if task is None else dict(os.environ, SLURM_ARRAY_TASK_ID=str(task))
    if task is not None and rng.random() < 0.3:
        job = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
        try:
            job.wait(timeout=3 + 5 * rng.random())
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, 9)
            job.wait()
    status = subprocess.run(command, env=environment, stdout=sys.stderr).returncode
    if status:
        sys.exit(status)
print("17" if "--parsable" in options else "Submitted batch job 17")
"""
MEASURED = (
    "swerve probe --use-responses answers.jsonl --reference models/base --checkpoint models/rl --out {out}"
    " --task addition probe.tokens_per_batch=32 probe.min_rollouts=1 probe.causal.num_continuations=2"
    " probe.causal.max_rollouts=12 runtime.device=cpu"
)


@pytest.fixture
def shell(tmp_path: Path, save_addition_model: Callable[..., Path]) -> Callable[[str], str]:
    """Run lines of bash in a directory with what the scripts name."""
    for seed, name in ((1, "rl"), (2, "base")):
        save_addition_model(tmp_path / "models" / name, seed=seed)
    problems = [{"id": str(n), "question": f"{n // 10} {n % 10} + 7 6 =", "answer": "0 8 1"} for n in range(60)]
    write_json_lines(tmp_path / "problems.jsonl", problems)
    answers = [
        {"id": row["id"], "question": row["question"], "gold": "0 8 1", "response": f"{row['id'][-1]} + 6 = 0 8 1"}
        for row in problems[:20]
    ]
    write_json_lines(tmp_path / "answers.jsonl", answers)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH.replace("{python}", sys.executable))
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(lines: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", lines], cwd=tmp_path, env={**os.environ, "PATH": path}, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_samples_of_a_loop_and_of_an_array_are_those_of_one_process(
    shell: Callable[[str], str], tmp_path: Path
) -> None:
    loop, array, submitted, _ = BLOCKS
    command = re.search(r"swerve sample [^\\]*", loop)
    assert command is not None
    shell(f"{command[0]} --out whole.parquet")
    expected = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "samples.sh").write_text(array)
    for script in (loop, submitted):
        shell(script)
        assert (tmp_path / "rl.parquet").read_bytes() == expected
        assert not (tmp_path / "rl.parquet.partial").exists()
        (tmp_path / "rl.parquet").unlink()


@pytest.mark.slow
def test_a_probe_in_two_rounds_is_that_of_one_process(shell: Callable[[str], str], tmp_path: Path) -> None:
    _, array, _, submitted = BLOCKS
    shell(MEASURED.format(out="whole"))
    measured = f"{MEASURED.format(out='probe-rl')} --shard $SLURM_ARRAY_TASK_ID/7\n"
    (tmp_path / "probe.sh").write_text(array.partition("swerve sample")[0] + measured)
    (tmp_path / "whole.sh").write_text(MEASURED.format(out="probe-rl"))
    shell(submitted)
    tables = [
        {path.name: path.read_bytes() for path in (tmp_path / out / "probe").iterdir() if path.is_file()}
        for out in ("whole", "probe-rl")
    ]
    assert tables[0] == tables[1]
    assert "interventions.parquet" in tables[0]
