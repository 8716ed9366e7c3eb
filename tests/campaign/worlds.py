"""Directories in which commands run: small inputs for every command that writes, and what is there after each."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from swerve.cli import main
from swerve.cli.plan import PLANS
from tests.campaign.kills import Ended, Events, forked
from tests.campaign.stand_ins import as_copies, serve_openai, serve_sglang, started_server
from tests.campaign.states import Recorder, Undisturbed

BASE = """
name: base
seed: 5
task: {kind: addition, digits: 2, num_train: 400, num_heldout: 24, mistake_rate: 0.5}
model: {kind: tiny}
max_new_tokens: 36
stages:
  - {kind: sft, steps: 220, batch_size: 24, optimizer: {lr: 4e-3, beta2: 0.95, schedule: cosine}, checkpoints: [120]}
runtime: {device: cpu, threads: 1, max_rows: 64}
"""
_EARLY, _LATE = "../base/checkpoints/step_000120", "../base/checkpoints/step_000220"
"""Models, as seen from each directory."""
_BEGINNING = """
name: run
seed: 7
task: {kind: addition, digits: 2, num_train: 60, num_heldout: 16, mistake_rate: 0.5}
model: {kind: pretrained, path: MODEL}
max_new_tokens: 36
runtime: {device: cpu, threads: 1, max_rows: 512}
stages:
"""
RECIPE = f"""{_BEGINNING}
  - {{kind: sft, steps: 2, batch_size: 4, save_every: 1, optimizer: {{lr: 1e-3}}}}
  - {{kind: dpo, steps: 2, batch_size: 1, max_prompts: 64, save_every: 1, optimizer: {{lr: 1e-3}}}}
  - kind: rl
    steps: 3
    prompts_per_step: 2
    samples_per_prompt: 2
    save_every: 1
    checkpoints: [1]
    optimizer: {{lr: 1e-3}}
    curriculum: {{kind: success_rate}}
    zero_variance: keep
    kl: {{kind: loss, coef: 0.1, target: 0.02, horizon: 20}}
eval: {{num_problems: 16, samples_per_problem: 2}}
probe:
  reference: sft
  checkpoints: rl
  populations: [training, reference_wrong]
  min_rollouts: 1
  max_other_rollouts: 2
  causal: {{num_continuations: 2, max_rollouts: 2}}
  pivots: {{max_rollouts: 1, num_continuations: 2}}
  cross_sampling: {{max_problems: 1, directions: [checkpoint_into_reference], selectors: [js], shares: [0.1]}}
  attribution: {{method: gradient, max_spikes: 2}}
"""
_REJECT = f"""{_BEGINNING}
  - kind: reject
    teacher: {_EARLY}
    num_prompts: 48
    samples_per_prompt: 2
    steps: 3
    batch_size: 4
    save_every: 1
    validation_share: 0.2
    validate_every: 1
    early_stopping: {{patience: 2}}
    optimizer: {{lr: 1e-3}}
  - {{kind: rl, steps: 2, prompts_per_step: 2, samples_per_prompt: 2, save_every: 1, optimizer: {{lr: 1e-3}}}}
"""
_PHASES = f"""{_BEGINNING}
  - kind: rl
    prompts_per_step: 2
    samples_per_prompt: 2
    save_every: 1
    zero_variance: keep
    kl: {{kind: loss, coef: 0.1}}
    optimizer: {{lr: 1e-3, schedule: linear}}
    phases:
      - {{steps: 2}}
      - {{steps: 2, samples_per_prompt: 3, temperature: 1.3, lr: 5e-4, num_minibatches: 2}}
      - {{steps: 2, keep_optimizer: false, keep_reference: false, advantages: gae, kl: {{coef: 0.2}}}}
"""
_PROBE = f"""
models: {{early: {_EARLY}, late: {_LATE}}}
reference: early
task: {{kind: addition, digits: 2, num_heldout: 24}}
sample: {{limit: 20, num_samples: 4, max_new_tokens: 36}}
out: probed
probe:
  min_rollouts: 1
  tokens_per_batch: 256
  noise_models: 0
  causal: {{num_continuations: 2, max_rollouts: 2}}
  pivots: {{max_rollouts: 2, num_continuations: 2, unit: sentence}}
runtime: {{device: cpu, threads: 1, max_rows: 16}}
"""
_SERVED = f"""{_BEGINNING}
  - {{kind: rl, steps: 3, prompts_per_step: 2, samples_per_prompt: 2, save_every: 1, optimizer: {{lr: 1e-3}}}}
rollout: {{engine: {{kind: server, dialect: sglang, urls: [SGLANG], folder: SENT, patience: 20}}}}
"""
_STUDIED = f"""{_BEGINNING}
  - {{kind: rl, steps: 2, prompts_per_step: 2, samples_per_prompt: 2, save_every: 1, optimizer: {{lr: 1e-3}}}}
eval: {{num_problems: 8, samples_per_problem: 2}}
"""
_STUDY = """
name: pair
recipe: studied.yaml
seeds: 1
variants:
  none: {}
  reverse: {stages.rl.kl: {kind: reward, estimator: k1, coef: 0.1}}
verdict: {measure: sampled_accuracy}
"""
_MODELS = (f"early={_EARLY}", f"late={_LATE}")
_BOTH = " ".join(_MODELS)
_SAMPLED = "--task addition digits=2 num_heldout=24 --num-samples 4 --max-new-tokens 36 --batch 16"
NUM_ANSWERS = 600
"""More than two batches of `swerve grade`."""
COMMANDS: Mapping[str, Sequence[str]] = {
    name: shlex.split(line)
    for name, line in {
        "train": "train recipe.yaml --out run --resume-or-start --verify",
        "reject": "train reject.yaml --out run --resume-or-start --verify",
        "phases": "train phases.yaml --out run --resume-or-start --verify",
        "train-sglang": "train served.yaml --out run --resume-or-start --verify",
        "view": "train recipe.yaml --out run --resume-or-start --verify",
        "demo": f"demo task=addition 'model={{kind: pretrained, path: {_LATE}}}' task.digits=2 task.num_train=60 "
        "task.num_heldout=8 task.mistake_rate=0.5 max_new_tokens=36 stages.sft.steps=1 stages.sft.batch_size=4 "
        "stages.dpo.steps=1 stages.dpo.batch_size=1 stages.rl.steps=1 stages.rl.prompts_per_step=2 "
        "stages.rl.samples_per_prompt=2 "
        "stages.rl.checkpoints=[1] eval.num_problems=8 probe.causal.max_rollouts=1 probe.causal.num_continuations=2 "
        "probe.cross_sampling.max_problems=0 probe.pivots.max_rollouts=0 probe.noise_models=0 probe.min_rollouts=1 "
        "runtime.max_rows=512 runtime.device=cpu --out run",
        "eval": "eval run",
        "probe": "probe run",
        "report": "report run",
        "replay": "replay run --from 1 --flip 0.0 --flip 1.1",
        "bench": f"bench estimators --rollouts run/rollouts/step_000006.parquet --checkpoint {_LATE} "
        f"--reference {_EARLY} --out estimators",
        "study": "study study.yaml --out study",
        "grade": "grade --task math answers.jsonl --out verdicts.jsonl --audit recorded",
        "sample": f"sample {_BOTH} {_SAMPLED} --out samples",
        "sample-openai": "sample one --task addition digits=2 num_heldout=8 --num-samples 2 --max-new-tokens 36 "
        "--batch 8 --out served.parquet rollout.engine.kind=openai rollout.engine.url=OPENAI "
        "rollout.engine.patience=20",
        "select": "data select samples/late.parquet --correct --per-problem 1 --out sft.parquet",
        "data-export": "data export samples/late.parquet --out late.csv --overwrite",
        "data-export-folder": "data export samples/late.parquet --format verifiers --out late --overwrite",
        "behaviours": "data behaviours samples --out behaviours.jsonl",
        "import": "data import responses.jsonl --out imported.parquet",
        "data-write": "data write addition digits=2 num_heldout=24 --split heldout --out problems.jsonl",
        "probe-select": "probe --select reference_wrong_final_right --reference-samples samples/early.parquet "
        f"--final-samples samples/late.parquet --reference {_MODELS[0]} --checkpoint {_MODELS[1]} --out probed "
        "probe.min_rollouts=1 probe.tokens_per_batch=256 probe.noise_models=0 runtime.device=cpu "
        "probe.causal.max_rollouts=2 probe.causal.num_continuations=2",
        "probe-file": "probe probe.yaml",
        "eval-models": f"eval --model {_MODELS[0]} --model {_MODELS[1]} {_SAMPLED} --out evaluated",
        "eval-rows": "eval --rows late=responses.jsonl --data responses.jsonl --out evaluated",
        "claim-files": "claim samples/early.parquet samples/late.parquet --out card",
        "claim": f"claim {_BOTH} --task addition digits=2 num_heldout=6 --num-samples 2 --max-new-tokens 36 --batch 16 "
        "--parts accuracy,gained,forgetting,behaviour,weights --text text.txt --ranks 1 "
        "--directions 1 --out card",
        "export": f"export {_LATE} --out exported",
    }.items()
}
"""Each runs again as it is, as a queue starts a job again; `view` is training that somebody looks at."""
WRITES_NOTHING: Mapping[str, str] = {
    "serve": "starts a server of vLLM, which writes no file of swerve's",
    "runs": "prints a list",
    "recipes show": "prints a recipe",
    "config show": "prints a configuration",
    "config check": "prints what a configuration needs",
    **{f"plan {name}": f"prints what {name} would take" for name in PLANS},
    "config schema": "prints the schema",
    "data list": "prints the tasks",
    "data show": "prints problems",
}
"""Commands that have nothing to lose, and why."""
_AFTER = {"eval": "train", "probe": "eval", "report": "probe", "replay": "train", "bench": "train"} | dict.fromkeys(
    ("select", "data-export", "data-export-folder", "behaviours", "probe-select", "claim-files"), "sample"
)
"""Commands that begin with what another one wrote."""
_AGAIN: Mapping[str, Sequence[str]] = {"demo": ("--resume",)}
"""What is added to a command that is run again, once it has begun its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that may go wrong."""

    name: str
    """Says all about it, but for places that are chosen by the seed and this name."""
    check: Callable[[], tuple[list[str], int]]
    """Tries it; returns what is wrong, in lines, and how many commands were killed."""


class Worlds:
    """What is there before each command and after it; made when it is asked for."""

    def __init__(self, path: Path, *, base: Path | None = None, changes: Sequence[tuple[str, str]] = ()) -> None:
        """Make a directory.

        Args:
            path: of it.
            base: the model that training begins with; trained here by default.
            changes: texts of the recipe to replace, for another run.
        """
        path.mkdir()
        self.path, self.log = path, path / "printed"
        self._given_base, self._changes = base, changes
        self._made, self._servers = dict[str, Undisturbed](), dict[str, tuple[int, str]]()

    def close(self) -> None:
        """End the servers."""
        for process, _ in self._servers.values():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)

    @cached_property
    def _base(self) -> Path:
        if self._given_base is not None:
            return self._given_base
        (self.path / "base.yaml").write_text(BASE)
        ended = self._forked(["train", "base.yaml", "--out", "base"], self.path)
        assert ended.status == 0, ended.err
        return self.path / "base" / "checkpoints" / "step_000220"

    @cached_property
    def _begun(self) -> Path:
        """The directory that commands begin in, with all that is given to them."""
        world = self.path / "begun"
        world.mkdir()
        recipe = RECIPE.replace("MODEL", str(self._base))
        for old, new in self._changes:
            recipe = recipe.replace(old, new)
        texts = {"recipe": recipe, "reject": _REJECT, "phases": _PHASES, "probe": _PROBE, "served": _SERVED}
        for name, text in {**texts, "studied": _STUDIED, "study": _STUDY}.items():
            served = text.replace("SGLANG", self._url("sglang")) if "SGLANG" in text and not self._changes else text
            text = served.replace("SENT", str(self.path / "sent")).replace("MODEL", _LATE)
            (world / f"{name}.yaml").write_text(text)
        rows = [{"id": n, "gold": str(n), "answer": str(n + n % 3 // 2), "recorded": n % 2} for n in range(NUM_ANSWERS)]
        said = [
            {"id": n, "question": f"{n} + 1?", "response": f"#### {n + k}", "correct": k == 1, "answer": str(n + 1)}
            for n in range(30)
            for k in range(2)
        ]
        for name, lines in (("answers", rows), ("responses", said)):
            (world / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (world / "text.txt").write_text("add subtract 1 2 3\n" * 20)
        return world

    def _url(self, kind: str) -> str:
        if kind not in self._servers:
            serve = serve_openai if kind == "openai" else partial(serve_sglang, self._base)
            (self.path / "sent").mkdir(exist_ok=True)  # beside the worlds: the next sender removes what is left there
            self._servers[kind] = started_server(serve, self.path / kind)
        return self._servers[kind][1]

    def undisturbed(self, name: str) -> Undisturbed:
        """Return a command that nothing happens to; those before it are run, too."""
        if name not in self._made:
            before = self.undisturbed(_AFTER[name]).after if name in _AFTER else self._begun
            world, (events, states) = self.copy(before), (self.path / f"{name}.{one}" for one in ("events", "states"))

            def watch() -> None:
                Recorder(world, states)
                Events(world, log=events)

            started = time.monotonic()
            ended = self.run(name, world, before=watch)
            assert ended.status == 0, f"what the campaign begins with cannot be made: {name}: {ended.err}"
            self._made[name] = Undisturbed(
                name=name,
                before=before,
                after=world.rename(self.path / name),
                events=events.read_text().splitlines(),
                seconds=time.monotonic() - started,
                recorded=states,
            )
        return self._made[name]

    def copy(self, world: Path) -> Path:
        """Return a copy of a directory to break, at a path that is always the same."""
        target = self.path / "broken"
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(world, target, symlinks=True)
        return target

    def run(self, name: str, world: Path, *more: str, before: Callable[[], object] | None = None,
            kill_after: float | None = None) -> Ended:  # fmt: skip
        """Run a command in a directory, in a copy of this process; see `forked`.

        Args:
            name: of the command.
            world: the directory.
            *more: arguments beside its own.
            before: called there first; `finish` of what it returns is called last, whatever the command does.
            kill_after: seconds.
        """
        words = list(COMMANDS[name])
        if (world / "run" / "run.json").is_file():
            words += _AGAIN.get(name, ())
        words = [word.replace("OPENAI", self._url("openai")) if "OPENAI" in word else word for word in words]
        ended = self._forked([*words, *more], world, before=before, kill_after=kill_after)
        # An export that refuses to replace a folder has done its work.
        is_done = name == "export" and "exported exists; give the name of a new folder" in ended.err
        return replace(ended, status=0) if is_done else ended

    def _forked(self, words: Sequence[str], world: Path, *, before: Callable[[], object] | None = None,
                kill_after: float | None = None) -> Ended:  # fmt: skip
        def command() -> None:
            os.chdir(world)
            as_copies()
            watch = before() if before is not None else None
            try:
                main(words)
            finally:
                if hasattr(watch, "finish"):
                    watch.finish()

        return forked(command, log=self.log, kill_after=kill_after)
