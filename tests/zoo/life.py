"""The life of one model: RL, DPO and SFT of a step each, the probe and an export, each beside plain transformers."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.parquet as pq
import torch
import transformers as hf

import swerve
from swerve.errors import SwerveError
from swerve.models.export import export_model
from swerve.models.model_card import WeightsOrigin
from tests.builders import Notes
from tests.zoo import oracles
from tests.zoo.animal import Animal
from tests.zoo.architectures import ZOO
from tests.zoo.folders import save, write_recipe

RATE, TEMPERATURE, BETA = 4e-3, 0.7, 0.1
STAGES: dict[str, dict[str, Any]] = {
    "rl": {
        "steps": 1,
        "prompts_per_step": 6,
        "samples_per_prompt": 3,
        "temperature": TEMPERATURE,
        "loss": {"kind": "clip"},
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.1},  # 0, and without a gradient, before the first update
        "zero_variance": "drop",
    },
    "dpo": {"steps": 1, "batch_size": 4, "samples_per_prompt": 4, "beta": BETA},
    "sft": {"steps": 1, "batch_size": 8},
}
LIMITS = {
    **{"rl.logprobs": 1e-4, "rl.kl": 1e-6, "rl.clipped": 0.0, "rl.gradient": 1e-3, "rl.update": 0.02},
    **{"dpo.loss": 1e-6, "dpo.reference": 1e-3, "dpo.gradient": 1e-3, "dpo.update": 0.02},
    **{"sft.loss": 1e-5, "sft.gradient": 1e-3, "sft.update": 0.02},
    **{"probe.js": 1e-5, "probe.entropy": 1e-4, "probe.logprobs": 1e-4},
    **{"export.weights": 0.0, "export.logits": 0.0},
}
"""The largest errors that are rounding: nats, shares of the norm, learning rates."""
ROWS = {"reads one text at a time": "alone", "does not read packed rows": "padded"}
"""Words of a note -> how rows are read."""
PARTS = ("rl", "dpo", "sft", "probe", "export")


class Life:
    """A model's folder, what becomes of it, and what of that is wrong."""

    def __init__(self, name: str, folder: Path) -> None:
        self._animal: Animal = ZOO[name]
        self._folder = folder
        self._row: dict[str, Any] = {"name": name, "type": self._animal.type, "about": self._animal.about}
        self._row |= dict.fromkeys((*PARTS, "rows", "refused"))
        self._wrong: list[str] = []

    def live(self) -> dict[str, Any]:
        """Go through all of it; return what was measured, and under `wrong` a line for each fault."""
        base = save(self._animal, self._folder / "model")
        tokenizer = hf.AutoTokenizer.from_pretrained(base)
        self._num_ids = min(len(tokenizer), hf.AutoConfig.from_pretrained(base).vocab_size)
        self._examples = write_examples(self._folder / "examples.jsonl", tokenizer, self._animal)
        checkpoint = None
        for start, run in self._runs(base):
            self._check_stages(run, start)
            checkpoint = checkpoint or run.checkpoints[0].path
        if checkpoint is not None:
            self._measure("export", lambda: self._export(checkpoint))
        other = checkpoint or nudged(base, self._folder / "nudged")
        self._measure("probe", lambda: self._probe(base, other))
        self._check_expected()
        return {**self._row, "wrong": self._wrong}

    def _runs(self, base: Path) -> Iterator[tuple[Path, Any]]:
        """Yield each run that is not refused, and the folder that it began with."""
        # What is learned by chance cannot be computed again, so supervised learning begins with a copy without.
        calm, self._row["chance"] = without_chance(base, self._folder / "calm")
        run = self._train(base, ("rl", "dpo", "sft") if calm == base else ("rl", "dpo"))
        if run is not None:
            yield base, run
        # Supervised learning may do without a sampler.
        if run is None or calm != base:
            run = self._train(calm, ("sft",))
            if run is not None:
                yield calm, run

    def _train(self, base: Path, stages: tuple[str, ...]) -> Any:
        """Return the run of some stages; None where it is refused, or ends in another way."""
        settings = {name: {**STAGES[name], "optimizer": {"lr": RATE}} for name in stages}
        if "sft" in settings:
            settings["sft"]["data"] = [str(self._folder / "examples.jsonl")]
        recipe = write_recipe(self._folder, base, settings, max_new_tokens=16, **self._animal.model)
        label, notes = "-".join(stages), Notes()
        try:
            run = swerve.train(recipe, out=self._folder / label, progress=notes)
        except SwerveError as error:
            self._refuse("sft" if stages == ("sft",) else "refused", label, self._told(error))
            return None
        except Exception as error:
            self._wrong.append(f"{label}: {type(error).__name__}: {str(error)[:300]}")
            return None
        said = " ".join(notes.notes)
        self._row["rows"] = next((rows for words, rows in ROWS.items() if words in said), "packed")
        return run

    def _told(self, error: SwerveError) -> str:
        return str(error).replace(str(self._folder), "FOLDER")

    def _refuse(self, key: str, label: str, line: str) -> None:
        self._row[key] = {"refused": line} if key == "sft" else line
        if (self._folder / label).exists():
            self._wrong.append(f"{label} was refused only after something was written: {line}")
        if "\n" in line:
            self._wrong.append(f"{label}: the refusal has several lines")

    def _measure(self, part: str, measure: Callable[[], dict[str, float]]) -> None:
        """Measure a part's errors, and keep those that are more than rounding."""
        try:
            self._row[part] = measure()
        except SwerveError as error:
            self._row[part] = {"refused": self._told(error)}
        except Exception as error:
            self._wrong.append(f"{part}: {type(error).__name__}: {str(error)[:300]}")
        for name, value in (self._row[part] or {}).items():
            limit = LIMITS.get(f"{part}.{name}")
            if limit is not None and not value <= limit:
                self._wrong.append(f"{part}.{name}: {value:.2g}, above {limit:g}")

    def _check_stages(self, run: Any, base: Path) -> None:
        steps = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        before = [base, *(checkpoint.path for checkpoint in run.checkpoints)]
        stages: dict[str, Callable[..., dict[str, float]]] = {"rl": self._rl, "dpo": self._dpo, "sft": self._sft}
        for number, step in enumerate(steps):
            stage, start, end = stages[step["stage"]], before[number], before[number + 1]
            self._measure(step["stage"], lambda: stage(run, step, start, end))  # noqa: B023

    def _load(self, folder: Path) -> Any:
        return oracles.load(folder, self._animal.attention, self._animal.dtype_of_oracle)

    def _step(self, model: Any, step: dict[str, Any], after: Path) -> dict[str, float]:
        """Return the errors of a step's gradient, which `model` has, and of its update."""
        norm = oracles.gradient_norm(model)
        error = abs(step["grad_norm"] - norm) / norm
        return {"gradient": error, "update": oracles.update_error(model, self._load(after), RATE), "norm": norm}

    def _rl(self, run: Any, step: dict[str, Any], before: Path, after: Path) -> dict[str, float]:
        rows, model = pq.read_table(run.path / "rollouts" / "step_000001.parquet").to_pylist(), self._load(before)
        worst = oracles.learn_rewards(model, rows, self._num_ids, TEMPERATURE)
        own = {"logprobs": worst, "kl": abs(step["kl"]), "clipped": step["clipped_share"]}
        return {**own, **self._step(model, step, after)}

    def _dpo(self, run: Any, step: dict[str, Any], before: Path, after: Path) -> dict[str, float]:
        rows, model = pq.read_table(run.path / "rollouts" / "dpo_pairs.parquet").to_pylist(), self._load(before)
        worst = oracles.learn_pairs(model, rows, self._num_ids, BETA)
        return {"loss": abs(step["loss"] - math.log(2)), "reference": worst, **self._step(model, step, after)}

    def _sft(self, _run: Any, step: dict[str, Any], before: Path, after: Path) -> dict[str, float]:
        model = self._load(before)
        loss = oracles.learn_examples(model, self._examples, self._num_ids)
        return {"loss": abs(step["loss"] - loss), **self._step(model, step, after)}

    def _probe(self, base: Path, checkpoint: Path) -> dict[str, float]:
        """Return the errors of the probe of texts of unequal lengths."""
        generator = torch.Generator().manual_seed(1)
        texts = [
            tuple(torch.randint(6, self._num_ids, (num,), generator=generator).tolist() for num in lengths)
            for lengths in ((5, 9), (3, 24), (17, 4), (2, 1))
        ]
        found = swerve.probe(base, checkpoint, texts, device="cpu", progress=False)
        models = self._load(base), self._load(checkpoint)
        with torch.no_grad():
            each = [oracles.divergences(models, *text, self._num_ids) for text in texts]
        expected = {name: torch.cat([one[name] for one in each]) for name in each[0]}
        assert expected["js"].sum() > 1e-4, "the models do not differ"
        errors = {
            name: float((torch.tensor(getattr(found, name)) - value).abs().max()) for name, value in expected.items()
        }
        return {**errors, "logprobs": max(errors.pop("logprob"), errors.pop("logprob_ref"))}

    def _export(self, checkpoint: Path) -> dict[str, float]:
        """Return how far what transformers reads back of an export is from the checkpoint."""
        out = self._folder / "exported"
        export_model(WeightsOrigin.of(checkpoint), out, dtype=None)
        model, said = hf.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
        missed = [name for key in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in said[key]]
        assert not missed, f"transformers misses or does not expect {missed[:3]}"
        stops = [hf.GenerationConfig.from_pretrained(one).eos_token_id for one in (checkpoint, out)]
        assert stops[0] == stops[1], f"end tokens {stops}"

        own = hf.AutoModelForCausalLM.from_pretrained(checkpoint)
        pairs = zip(own.state_dict().items(), model.state_dict().items(), strict=True)
        assert all(one[0] == other[0] for one, other in pairs)
        weights = [one.state_dict().values() for one in (own, model)]
        ids = torch.tensor([self._examples[0]["prompt_ids"]])
        with torch.no_grad():
            logits = [one.eval()(ids, use_cache=False).logits for one in (own, model)]
        return {
            "weights": max(float((one - other).abs().max()) for one, other in zip(*weights, strict=True)),
            "logits": float((logits[0] - logits[1]).abs().max()),
        }

    def _check_expected(self) -> None:
        """A refusal is the expected one, and what its line sends people to works; rows are packed where they were."""
        row, animal = self._row, self._animal
        line = row["refused"] or ""
        if bool(line) != bool(animal.refused) or animal.refused not in line:
            self._wrong.append(f"refused: '{line}', expected '{animal.refused}'")
        if not line and row["rows"] is not None and (row["rows"] == "packed") != animal.packs:
            self._wrong.append(f"rows are {row['rows']}")
        for word, part in (("sft stages", "sft"), ("the probe", "probe")):
            found = row[part]
            if word in line and (found is None or "refused" in found):
                self._wrong.append(f"the refusal sends people to {word}: {found}")


def write_examples(path: Path, tokenizer: Any, animal: Animal) -> list[dict[str, list[int]]]:
    """Write eight chats of unequal lengths; return their tokens, which end as the template ends a turn."""
    template, lines, examples = jinja2.Template(animal.template), [], []
    for number in range(8):
        question = {"role": "user", "content": "say " * (number % 4) + str(number)}
        answer = {"role": "assistant", "content": "abc" * (number * 5 % 8 + 1)}
        prompt = template.render(messages=[question], enable_thinking=True, strftime_now=lambda _: "17")
        ids = [
            tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, answer["content"] + "<|end|>")
        ]
        examples.append({"prompt_ids": ids[0], "completion_ids": ids[1]})
        lines.append(json.dumps({"messages": [question, answer]}) + "\n")
    path.write_text("".join(lines))
    return examples


def without_chance(base: Path, folder: Path) -> tuple[Path, list[str]]:
    """Return a copy of a folder without dropout and jitter, and which it had; without any, the folder itself."""
    config = json.loads((base / "config.json").read_text())
    kinds = {"drop": "dropout", "jitter": "jitter"}
    found = {
        name: kinds[word]
        for name, value in config.items()
        for word in kinds
        if word in name and isinstance(value, float) and value
    }
    if not found:
        return base, []
    shutil.copytree(base, folder)
    (folder / "config.json").write_text(json.dumps({**config, **dict.fromkeys(found, 0.0)}))
    return folder, sorted(set(found.values()))


def nudged(base: Path, folder: Path) -> Path:
    """Write a copy of a model whose weights are a little different; return its folder."""
    model = hf.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01 * torch.randn_like(weight))
    model.save_pretrained(folder)
    hf.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder
