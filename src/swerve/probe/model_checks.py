"""All models of a probe, checked before the first of them is loaded: what they are, and room for their states."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from swerve.errors import ConfigError, ProblemsError, SwerveError
from swerve.models.sources import CheckedModel, ModelSource
from swerve.probe.engine.forward import STATISTICS
from swerve.probe.engine.jobs import check_pair, check_sequences, turn_order
from swerve.probe.engine.measured import plan_pairs
from swerve.probe.plan import ProbePlan
from swerve.progress import Progress

_STATISTIC_BYTES = 4
_DTYPE_BYTES = {"float32": 4, "float64": 8}
_NARROW_BYTES = 2


def check_models(plan: ProbePlan, *, progress: Progress) -> None:
    """Check every model of a plan, the engine for those that continue, and the room on disk; no weight is read.

    Each model must be readable and not quantised, have the reference's tokenizer, every token id of the rollouts and
    positions for the longest. What is merely noteworthy is said by `progress.note`, the room on disk always.

    Raises:
        SwerveError: something is wrong; several problems are one error with a line each.
    """
    described, errors = _describe(plan.models)
    notes: list[str] = []
    label_ref, sequences = plan.reference.label, [(row.prompt_ids, row.completion_ids) for row in plan.sequences]
    reference = described.get(label_ref)
    for label, model in described.items():
        with _collected(errors):
            check_sequences(label, model, sequences)
        if reference is not None and model is not reference:
            with _collected(errors):
                check_pair((label, label_ref), (model, reference), sequences)
            for name in ("bos_token", "eos_token"):
                own, theirs = getattr(model.tokenizer, name), getattr(reference.tokenizer, name)
                if own != theirs:
                    notes.append(f"{label} has the {name} {own!r}, {label_ref} has {theirs!r}: each uses its own")
        stored = model.stored_dtype
        if stored is not None and _bytes_of(stored) > _bytes_of(model.dtype):
            notes.append(
                f"{label} is stored in {stored} and read in {model.dtype}: its weights are rounded (runtime.dtype)"
            )

    # A server that takes no weights has those of one model.
    tests = [test for test in (plan.recipe.probe.causal, plan.recipe.probe.pivots) if test.max_rollouts]
    policies = {policy for test in tests for policy in test.policies}
    if plan.has_verifier and len(policies) > 1 and plan.recipe.rollout.engine.kind == "openai":
        errors.append(
            ConfigError(
                "rollout.engine.kind=openai continues with the one model that its server has, but the causal tests "
                "ask for the reference and the checkpoint; name the one that it has, as in "
                "probe.pivots.policies=[reference] probe.causal.policies=[reference]"
            )
        )

    # What is kept on disk must fit where the results go, or where their folder will be made.
    place = next(folder for folder in (plan.path.absolute(), *plan.path.absolute().parents) if folder.exists())
    needed, free = states_bytes(plan, described), shutil.disk_usage(place).free
    room = f"about {_size(needed)} for hidden states and statistics in {plan.path}, {_size(free)} free"
    if needed > free:
        keep = ", leave probe.keep_states out" if plan.recipe.probe.keep_states else ""
        errors.append(
            ProblemsError(
                [f"disk: {room}: free some, choose another directory{keep}, or probe fewer or shorter responses"]
            )
        )
    _raise(errors, len(plan.models))
    for note in [*notes, f"disk: {room}"]:
        progress.note(note)


def check_readable(sources: Sequence[ModelSource]) -> None:
    """Raise if a model cannot be read or is quantised, with a line for each; see `check_models`."""
    _raise(_describe(sources)[1], len(sources))


def _describe(sources: Iterable[ModelSource]) -> tuple[dict[str, CheckedModel], list[SwerveError]]:
    described: dict[str, CheckedModel] = {}
    errors: list[SwerveError] = []
    for source in sources:
        with _collected(errors):
            described[source.label] = source.check()
    return described, errors


@contextmanager
def _collected(errors: list[SwerveError]) -> Iterator[None]:
    """Put what is wrong beside what was wrong before."""
    try:
        yield
    except SwerveError as error:
        errors.append(error)


def _raise(errors: Sequence[SwerveError], num_models: int) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        heading = f"{len(errors)} problems with the {num_models} models of this probe; nothing was computed"
        raise ProblemsError([heading, *map(str, errors)])


def _bytes_of(dtype: str) -> int:
    return _DTYPE_BYTES.get(dtype, _NARROW_BYTES)


def states_bytes(plan: ProbePlan, described: Mapping[str, CheckedModel]) -> int:
    """Return about how many bytes a plan needs on disk at most, beyond those that it has there already.

    At every position a model's hidden state, for as long as a pair waits for it (for good with `keep_states`); the
    statistics of every pair and the likeliest tokens of every model, once as statistics and once as a table.
    """
    num_tokens = sum(len(sequence.sampled_positions) for sequence in plan.sequences)
    pairs = plan_pairs(plan)
    statistics = (len(pairs) + 1) * len(STATISTICS) * _STATISTIC_BYTES  # one more for the null pair
    statistics += len(plan.models) * plan.recipe.probe.top_k * 2 * _STATISTIC_BYTES
    sizes = {label: (checked.hidden_size or 0) * _bytes_of(checked.dtype) for label, checked in described.items()}
    there = sum(path.stat().st_size for path in plan.states_path.rglob("*") if path.is_file())
    return max(0, num_tokens * (2 * statistics + _widest(plan, pairs, sizes)) - there)


def _widest(plan: ProbePlan, pairs: Sequence[tuple[str, str]], sizes: Mapping[str, int]) -> int:
    """Return the most bytes of hidden states that are kept of one position at a time."""
    if plan.recipe.probe.keep_states:
        return sum(sizes.values())
    kept, seen, most = set[str](), set[str](), 0
    for label in turn_order([model.label for model in plan.models], pairs, noise_of=plan.reference.label):
        seen.add(label)
        waiting = {name for pair in pairs if not set(pair) <= seen for name in pair}
        kept = (kept | {label}) & waiting  # batch by batch one goes as the other comes
        most = max(most, sum(sizes.get(name, 0) for name in kept))
    return most


def _size(num_bytes: int) -> str:
    """Return a number of bytes for people.

    >>> _size(1_500_000), _size(3 << 30)
    ('1.4 MiB', '3.0 GiB')
    """
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.1f} MiB"
