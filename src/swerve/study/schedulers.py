"""The runs of a study for other schedulers: a shell line for each, and a script for Slurm."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.study.job import StudyJob
from swerve.study.plan import Plan


def job_lines(jobs: Sequence[StudyJob], arguments: Sequence[str]) -> list[str]:
    """Return a shell line for each run: the command that does this run of the study, and those that it waits for.

    Args:
        jobs: the runs.
        arguments: the study and its overrides, as given to `swerve study`.
    """
    base = [sys.executable, "-m", "swerve", "study", *arguments]
    return [f"cd {shlex.quote(os.getcwd())} && exec {shlex.join([*base, '--only', job.name])}" for job in jobs]


def write_job_list(path: Path, jobs: Sequence[StudyJob], arguments: Sequence[str]) -> None:
    """Write a line for each run, which any scheduler or `xargs` can do in any order."""
    write_text(path, "".join(f"{line}\n" for line in job_lines(jobs, arguments)))


def write_slurm_script(path: Path, plan: Plan, jobs: Sequence[StudyJob], arguments: Sequence[str]) -> str:
    """Write a script with a task for each run; return the command that submits it, but for what a task may take.

    A task is asked to save five minutes before its time is over, and is put into the queue again. Where runs wait for
    others, the script submits an array for each variant, whose tasks wait for those of their seed.
    """
    arrays, waits = _arrays(jobs), any(set(job.after) & {one.name for one in jobs} for job in jobs)
    logs = plan.path.absolute() / "logs" / "slurm"
    head = f"#SBATCH --array=0-{len(jobs) - 1}\n" if not waits else ""
    body = _submitting(arrays, arguments) if waits else _one_array(jobs, arguments)
    write_text(
        path,
        f"""#!/bin/bash
#SBATCH --job-name={shlex.quote(plan.study.name)}
{head}#SBATCH --output={shlex.quote(f"{str(logs).replace('%', '%%')}/%A_%a.log")}
#SBATCH --signal=USR1@300
#SBATCH --requeue
{body}status=$?
# It saved because its time is nearly over: once more.
[ $status -eq 138 ] && exec scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
exit $status
""",
    )
    logs.mkdir(parents=True, exist_ok=True)  # Slurm opens the log before the script begins
    return f"{'bash' if waits else 'sbatch'} {shlex.quote(str(path))}"


def _one_array(jobs: Sequence[StudyJob], arguments: Sequence[str]) -> str:
    lines = "\n".join(f"  {shlex.quote(line)}" for line in job_lines(jobs, arguments))
    return f"""runs=(
{lines}
)
srun bash -c "${{runs[$SLURM_ARRAY_TASK_ID]}}"
"""


@dataclass(frozen=True, slots=True)
class _Array:
    """Runs of a variant that wait for the same others; a task's number is its run's seed."""

    label: str
    jobs: list[StudyJob]
    before: tuple[_Array, ...]

    @property
    def tasks(self) -> set[int]:
        return {job.seed for job in self.jobs}


def _arrays(jobs: Sequence[StudyJob]) -> list[_Array]:
    """Return the arrays of runs, each behind those that it waits for."""
    found, by_key = dict[str, _Array](), dict[object, _Array]()
    for job in jobs:
        before = tuple(dict.fromkeys(found[name].label for name in job.after if name in found))
        key = (job.name.partition("/seed-")[0], before)
        if key not in by_key:
            label = f"{key[0].replace('/', '-')}-{len(by_key) + 1}"
            waited = tuple({found[name].label: found[name] for name in job.after if name in found}.values())
            by_key[key] = _Array(label, [], waited)
        by_key[key].jobs.append(job)
        found[job.name] = by_key[key]
    return list(by_key.values())


def _submitting(arrays: Sequence[_Array], arguments: Sequence[str]) -> str:
    runs = [
        f"  [{shlex.quote(f'{array.label} {job.seed}')}]={shlex.quote(line)}"
        for array in arrays
        for job, line in zip(array.jobs, job_lines(array.jobs, arguments), strict=True)
    ]
    numbers = {array.label: number for number, array in enumerate(arrays, 1)}
    newline = "\n"
    return f"""declare -A runs=(
{newline.join(runs)}
)
# Outside an array it submits one for each variant; its arguments are options of sbatch, such as --gpus=1.
if [ -z "$SLURM_ARRAY_TASK_ID" ]; then
  set -e
{newline.join(f"  {line}" for array in arrays for line in _submission(array, numbers))}
  exit
fi
srun bash -c "${{runs[$1 $SLURM_ARRAY_TASK_ID]}}"
"""


def _submission(array: _Array, numbers: dict[str, int]) -> Iterator[str]:
    """Yield the lines that submit an array and say so."""
    # A task waits for that of its seed; for a run that all seeds begin with, for the whole.
    waits = [
        f"{'aftercorr' if one.tasks >= array.tasks else 'afterok'}:$job_{numbers[one.label]}" for one in array.before
    ]
    options = [f"--array={','.join(map(str, sorted(array.tasks)))}"]
    if waits:
        options += [f"--dependency={','.join(waits)}", "--kill-on-invalid-dep=yes"]
    number = numbers[array.label]
    yield f'job_{number}=$(sbatch --parsable {" ".join(options)} "$@" "$0" {array.label})'
    yield f'echo "{array.label}: job $job_{number}"'
