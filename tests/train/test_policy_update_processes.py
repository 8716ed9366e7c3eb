"""Two processes with half of the groups each make the update that one process with all of them makes, in float64."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

CASES = Path(__file__).with_name("test_policy_update.py")
UNEVEN = "dr_grpo with one group for two processes"


def _cases() -> Any:
    spec = importlib.util.spec_from_file_location("update_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _updates(world: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, Any]]:
    """Return gradient, figures and recorded signals of every variant's update, made by the processes of `world`."""
    cases = _cases()
    models = cases.two_models()
    gradients, figures, signals = {}, {}, {}
    for name in [*cases.VARIANTS, UNEVEN]:
        found = cases.rollouts()
        numbers = [1] if name == UNEVEN else list(range(len(found.groups)))
        mine = numbers[world.rank :: world.size]
        share = cases.StepRollouts(
            groups=[found.groups[index] for index in mine],
            numbers=mine,
            rewards=[found.rewards[index] for index in mine],
        )
        stage = cases.stage_of(name.split(" with ")[0], tokens_per_batch=24)
        update = cases.Update(models, stage, share, world=world)
        gradients[name], figures[name] = update.gradient, dict(update.figures)
        parts = world.gather([[group, rows] for group, rows in update.signals.by_group().items()])
        signals[name] = {str(group): rows for part in parts for group, rows in part}
    return gradients, figures, signals


@pytest.mark.dist
def test_two_processes_make_the_update_of_one(on_two_processes, tmp_path):
    from swerve.world import World

    on_two_processes(__file__, tmp_path)
    together, measured = (
        load_file(tmp_path / "gradients.safetensors"),
        json.loads((tmp_path / "figures.json").read_text()),
    )
    gradients, figures, signals = _updates(World())
    assert together.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert gradient.norm() > 1e-6
        assert float((together[name] - gradient).norm() / gradient.norm()) < 1e-6, name
        for key, value in figures[name].items():
            expected = pytest.approx(value, rel=1e-6, abs=1e-12) if isinstance(value, float) else value
            assert measured[name][key] == expected, (name, key)
    recorded = json.loads((tmp_path / "signals.json").read_text())
    assert recorded.keys() == signals.keys()
    for name, groups in signals.items():
        assert recorded[name].keys() == groups.keys()
        for group, rows in groups.items():
            for one, two in zip(rows, recorded[name][group], strict=True):
                for column, values in one.items():
                    expected = None if values is None else pytest.approx(values, rel=1e-5, abs=1e-7)
                    assert two[column] == expected, (name, group, column)


def _main(folder: Path) -> None:
    from swerve.world import joined_world

    torch.set_num_threads(1)
    with joined_world("cpu") as world:
        gradients, figures, signals = _updates(world)
        if world.is_main:
            save_file(gradients, folder / "gradients.safetensors")
            (folder / "figures.json").write_text(json.dumps(figures))
            (folder / "signals.json").write_text(json.dumps(signals))
        world.barrier()  # a process that leaves while the other still writes can be torn down with it


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
