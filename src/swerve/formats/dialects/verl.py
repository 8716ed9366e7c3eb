"""verl: dumps of `trainer.rollout_data_dir`, and its Parquet data with the responses of `main_generation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.dialects.layout import Dialect, Values, expanded, is_scalar, others
from swerve.formats.records import Record

__all__ = ["VERL", "verl_problem"]

_IDS = ("uid", "id", "problem_id")


def _convert_verl(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    if "output" not in values:
        yield from _verl_data(record)
        return
    gold = _verl_gold(values.get("gts", values.get("ground_truth")))
    truth = _truth(values.get("acc"))
    kept = [name for name, value in (("gts", gold), ("acc", truth)) if value is not None]
    yield {
        "id": next((values[name] for name in _IDS if is_scalar(values.get(name))), None),
        "prompt": values.get("input"),
        "response": values.get("output"),
        "gold": gold,
        "reward": values.get("score"),
        "step": values.get("step"),
        "correct": truth,
        "extracted": values.get("pred") if is_scalar(values.get("pred")) else None,
        "extra": others(values, *_IDS, "input", "output", "score", "step", *kept),
    }


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _verl_gold(recorded: Any) -> str | None:
    """Return the gold answer where it is one text or number; what else a reward function takes stays in `extra`."""
    if isinstance(recorded, list) and len(recorded) == 1:
        recorded = recorded[0]
    return str(recorded) if is_scalar(recorded) and recorded != "" else None


def verl_problem(values: Values) -> dict[str, Any]:
    """Return what a row of verl's data layout says of its problem, under the known names."""
    info = values.get("extra_info")
    info = info if isinstance(info, dict) else {}
    said = values.get("reward_model")
    source, split, index = values.get("data_source"), info.get("split"), info.get("index")
    made = "/".join(str(one) for one in (source, split, index) if one is not None) if index is not None else None
    return {
        "id": values.get("uid", values.get("id", made)),
        "prompt": values.get("prompt"),
        "problem": next((info[name] for name in ("question", "problem") if isinstance(info.get(name), str)), None),
        "gold": _verl_gold(said.get("ground_truth") if isinstance(said, dict) else None),
        "kind": info.get("level") if is_scalar(info.get("level")) else None,
        "metadata": others(values, "prompt", "responses", "scores", "id", "uid"),
    }


def _verl_data(record: Record) -> Iterator[Values]:
    values = record.values
    problem = verl_problem(values)
    extra = problem.pop("metadata")
    if "responses" not in values:
        raise ArtifactError(
            f"{record.place} has no responses: it is a data set of problems; give it with --problems, beside the file "
            "of the responses"
        )
    for values_of_one in expanded(record, "responses"):
        yield {
            **problem,
            "response": values_of_one["response"],
            "reward": values_of_one.get("reward"),
            "sample": values_of_one["sample"],
            "extra": extra,
        }


VERL = Dialect(
    name="verl",
    marks=(
        frozenset({"input", "output", "score"}),
        frozenset({"input", "output", "step"}),
        frozenset({"data_source", "prompt", "reward_model"}),
    ),
    convert=_convert_verl,
)
