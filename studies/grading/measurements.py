"""The graders on real outputs, puzzles and gold answers: agreement with recorded verdicts, and what differs."""

from __future__ import annotations

import dataclasses
import itertools
import random
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swerve.artifacts.responses import Response
from swerve.behaviours import summarise
from swerve.cli.grade import audit_lines
from swerve.eval.answer_files import grading_task
from swerve.eval.recorded_verdicts import VerdictComparison
from swerve.formats.records import FileRecord, read_records
from swerve.problems.deepscaler import DeepScaler, DeepScalerTask
from swerve.problems.gsm8k import Gsm8k, Gsm8kTask
from swerve.problems.knights.rows import prove_row
from swerve.problems.math import Math, MathTask
from swerve.rewards import grade_all
from swerve.statistics import share
from swerve.types import Problem, Reward

MATH = "rollouts/math_qwen2.5_math_cot_100x.jsonl.gz"
GSM8K = "rollouts/gsm8k_tora_70b.jsonl.gz"
FORMULAS = "rollouts/prop_logic_formula.jsonl.gz"
RL_PROBE = "rl_probe/responses.jsonl.gz"
SCORE_CASES = "reasoning_gym_scores/score_cases.jsonl.gz"


class GradedRecord(NamedTuple):
    """A record, the problem that it is an answer to, and what the grader says of the answer."""

    record: FileRecord
    problem: Problem
    reward: Reward


Line = dict[str, Any]
Naming = Callable[[Mapping[str, Any]], str]


def graded(
    records: Sequence[FileRecord], grader: str, name: Naming, policies: Sequence[str] = (), **fields: str
) -> list[GradedRecord]:
    """Grade records as `swerve grade` does; `name` makes the name by which a disagreement is known."""
    task = grading_task(grader, policies, fields=fields, known={})
    pairs = [task.pair(record) for record in records]
    return [
        GradedRecord(record, dataclasses.replace(problem, id=name(record.values)), reward)
        for record, (problem, _), reward in zip(records, pairs, grade_all(pairs), strict=True)
    ]


def compared(rows: Sequence[GradedRecord], field: str, *, keep: Sequence[str] = (), **facts: Any) -> Line:
    """Return the audit of a recorded field as a line; `keep`: further fields of the records to show."""
    comparison = VerdictComparison(field)
    for row in rows:
        comparison.look(row.record)
    for row in rows:
        comparison.add(*row)
    found = comparison.summary()
    printed = [line for line in audit_lines(found, limit=0) if not line.startswith("  and ")]
    values = {row.problem.id: row.record.values for row in rows}
    for one in found["disagreements"]:
        del one["place"]
        one.update({name: values[one["id"]][name] for name in keep})
    return {**facts, **found, "printed": printed}


def is_right(reward: Reward) -> bool:
    """Return whether a reward counts as right."""
    return reward.value is not None and reward.value >= 1.0


def math_rows(data: Path) -> list[GradedRecord]:
    """Return the graded responses of Qwen2.5-Math."""
    return graded(read_records(data / MATH), "math", lambda row: f"{row['unique_id']}, sample {row['sample_idx']}")


def gsm8k_lines(data: Path) -> Iterator[Line]:
    """Compare the verdicts on ToRA's responses with a plain comparison of the recorded predictions."""
    records = [
        dataclasses.replace(one, values={**one.values, "plain": str(one.values["pred"]) == one.values["gold"]})
        for one in read_records(data / GSM8K)
    ]
    for what, grader, policies, fields in (
        ("response", "gsm8k", (), {}),
        ("pred", "math", ("extraction=whole",), {"response": "pred"}),
    ):
        rows = graded(records, grader, lambda row: f"row {row['idx']}", policies, **fields)
        yield compared(rows, "plain", keep=("pred",), kind="gsm8k", text=what)


def formula_name(row: Mapping[str, Any]) -> str:
    """Return a name such as `m950nfkl 90`: the training log and the number in it."""
    return f"{row['source'].split('/files/')[0].rpartition('-')[2]} {row['idx']}"


def formula_lines(data: Path) -> Iterator[Line]:
    """Compare both readings of knights and knaves with the recorded totals."""
    records = read_records(data / FORMULAS)
    for reading in ("logic_rl", "plain"):
        rows = graded(records, "k_and_k", formula_name, ("scale=parts", f"reading={reading}"))
        yield compared(rows, "total_score", kind="formulas", reading=reading)


def rl_probe_rows(data: Path) -> list[GradedRecord]:
    """Return the graded responses of RL-Probe."""
    return graded(read_records(data / RL_PROBE), "math", rl_probe_name)


def rl_probe_name(row: Mapping[str, Any]) -> str:
    """Return a name such as `test/algebra/101.json, dpo`; of rollouts with the temperature and the sample."""
    sample = f", temperature {row['temperature']}, sample {row['sample_idx']}" if row["set"] == "rollouts" else ""
    return f"{row['problem_id']}, {row['checkpoint']}{sample}"


def rl_probe_lines(rows: Sequence[GradedRecord]) -> Iterator[Line]:
    """Compare with what was recorded and with the truth; count what cutting off golds and answers did."""
    for field in ("recorded_correct", "correct"):
        yield compared(rows, field, kind="rl_probe")
    judged = [row for row in rows if row.record.values["recorded_correct"] is not None]
    for is_cut in (True, False):
        chosen = [row.record.values for row in judged if row.record.values["recorded_gt_truncated"] == is_cut]
        verdicts = Counter((row["recorded_correct"], row["correct"]) for row in chosen)
        yield {
            "kind": "rl_probe_golds",
            "cut": is_cut,
            "num": len(chosen),
            "wrongly_right": verdicts[True, False],
            "wrongly_wrong": verdicts[False, True],
            "problems": len({row["problem_id"] for row in chosen}),
        }
    same = [
        (_dense(row.record.values["regex_extracted"]) == _dense(row.record.values["recorded_ground_truth"]))
        == row.record.values["recorded_correct"]
        for row in judged
    ]
    boxed = [row.record.values for row in rows if row.record.values["regex_extracted"] is not None]
    cut = sum(row["regex_extracted"] != row["boxed"] for row in boxed)
    yield {"kind": "rl_probe_regex", "same": sum(same), "num": len(same), "cut": cut, "boxed": len(boxed)}
    for checkpoint in ("dpo", "rlvr"):
        written = [row for row in judged if row.record.values["checkpoint"] == checkpoint]
        rates = {
            "recorded": sum(row.record.values["recorded_correct"] for row in written),
            "graded": sum(is_right(row.reward) for row in written),
            "truth": sum(row.record.values["correct"] for row in written),
        }
        shares = {name: share(right, len(written)) for name, right in rates.items()}
        yield {"kind": "rl_probe_accuracy", "checkpoint": checkpoint, "num": len(written), **shares}


def _dense(text: str | None) -> str:
    return "".join((text or "").split())


def knight_lines(data: Path) -> Iterator[Line]:
    """Prove every puzzle again; then once more with one person's stored role turned round, as a control."""
    for folder in ("kk_logic_rl", "kk_mem_kk_logic"):
        counts: dict[str, Counter[Any]] = defaultdict(Counter)
        for path in sorted([*(data / folder).glob("*.parquet"), *(data / folder).glob("*.jsonl.gz")]):
            part = path.name.split(".")[0]
            part = part.rpartition("_")[2] if part[0].isdecimal() else part
            for record in read_records(path):
                counts[part].update(_proved(record))
        for part, found in counts.items():
            people = {str(key[1]): count for key, count in sorted(found.items(), key=str) if isinstance(key, tuple)}
            names = ("puzzles", "proved", "turned round", "found")
            counted = {name: found[name] for name in names}
            yield {"kind": "knights", "folder": folder, "part": part, **counted, "proved_by_people": people}


def _proved(record: FileRecord) -> list[Any]:
    row = prove_row(record)
    seen: list[Any] = ["puzzles"]
    if row.solution is not None and not row.differences:
        seen += ["proved", ("people", len(row.solution))]
    stored = record.values.get("solution")
    if stored:
        turned = {**record.values, "solution": [not stored[0], *stored[1:]]}
        differences = prove_row(dataclasses.replace(record, values=turned)).differences
        seen += ["turned round", *["found"] * ("solution" in differences)]
    return seen


def score_case_lines(data: Path) -> Iterator[Line]:
    """Grade the cases of reasoning-gym's own tests."""
    counts: Counter[tuple[str, float, str]] = Counter()
    examples: dict[tuple[str, float, str], str] = {}
    for record in read_records(data / SCORE_CASES):
        row = record.values
        is_palindrome = row["task"] == "palindrome_generation"
        problem = Problem(
            id=record.place,
            family="palindrome" if is_palindrome else "k_and_k",
            question=row["question"],
            answer="".join(row["letters"]) if is_palindrome else row["gold"].replace(", and ", ", ").rstrip("."),
            grading={} if is_palindrome else {"tags": "optional"},
        )
        [reward] = grade_all([(problem, row["answer"] or "")])
        verdict = reward.status if reward.value is None else f"{reward.value:g}"
        key = (problem.family, row["expected_score"], verdict)
        counts[key] += 1
        examples.setdefault(key, row["answer"] or "")
    for (family, expected, verdict), count in sorted(counts.items(), key=lambda one: (one[0][0], -one[0][1])):
        found = {"family": family, "expected": expected, "verdict": verdict, "num": count}
        yield {"kind": "score_cases", **found, "example": examples[family, expected, verdict]}


def gold_lines(data: Path) -> Iterator[Line]:
    """Grade every gold answer, controls that should be wrong, and the reference solutions of MATH."""
    families: dict[str, Any] = {
        "gsm8k": Gsm8k(Gsm8kTask()),
        "math": Math(MathTask()),
        "deepscaler": DeepScaler(DeepScalerTask()),
    }
    for folder, family in families.items():
        for path in sorted((data / folder).glob("*.jsonl.gz")):
            read = [family.problem(record) for record in read_records(path)]
            problems = [problem for problem in read if problem is not None]
            name = f"{folder}/{path.name.split('.')[0]}"
            yield {"kind": "golds", "file": name, "rows": len(read), **_golds(problems)}
            if folder == "math":
                yield {"kind": "solutions", "file": name, **_solutions(problems)}


def _golds(problems: Sequence[Problem]) -> Line:
    own = [(problem, rf"\boxed{{{gold}}}") for problem in problems for gold in (problem.answer, *problem.alternatives)]
    others = [(problem, other.answer) for problem, other in itertools.pairwise(problems)]
    rewards = grade_all(own)
    changed = [(problem, text) for problem in problems if (text := _one_digit_changed(problem.answer)) is not None]
    accepted, changed_accepted = _accepted(others), _accepted(changed)
    rewritten = [(problem, _rewritten(problem.answer)) for problem in problems]
    rewritten_rewards = grade_all(rewritten)
    return {
        "problems": len(problems),
        "golds": len(own),
        "accepted": sum(map(is_right, rewards)),
        "rewritten_accepted": sum(map(is_right, rewritten_rewards)),
        "exceptions": [
            {"id": problem.id, "gold": problem.answer, "text": text, "value": reward.value, "status": reward.status}
            for (problem, text), reward in zip([*own, *rewritten], [*rewards, *rewritten_rewards], strict=True)
            if not is_right(reward)
        ],
        "others": len(others),
        "others_same_text": sum(given == problem.answer for problem, given in accepted),
        "others_accepted": [
            {"id": f"{problem.answer} and {given}"} for problem, given in accepted if given != problem.answer
        ],
        "changed": len(changed),
        "changed_accepted": [{"id": f"{problem.answer} and {given}"} for problem, given in changed_accepted],
    }


def _accepted(answers: Sequence[tuple[Problem, str]]) -> list[tuple[Problem, str]]:
    """Return the answers that are taken as right when they are boxed."""
    rewards = grade_all([(problem, rf"\boxed{{{answer}}}") for problem, answer in answers])
    return [pair for pair, reward in zip(answers, rewards, strict=True) if is_right(reward)]


def _one_digit_changed(gold: str) -> str | None:
    """Return a gold answer with another digit in one place, which depends on its text only; None: it has no digit."""
    rng = random.Random(gold)
    places = [place for place, character in enumerate(gold) if character in string.digits]
    if not places:
        return None
    place = rng.choice(places)
    return f"{gold[:place]}{(int(gold[place]) + rng.randint(1, 9)) % 10}{gold[place + 1 :]}"


def _rewritten(gold: str) -> str:
    r"""Return a gold answer in a box as a model may write it: in a group, with dollar signs and `\dfrac`."""
    grouped = gold.rstrip(".").replace(r"\frac", r"\dfrac")
    return rf"\boxed{{${{ {grouped} }}$}}"


def _solutions(problems: Sequence[Problem]) -> Line:
    pairs = [(problem, problem.solution) for problem in problems if problem.solution]
    rewards = grade_all(pairs)
    return {
        "num": len(pairs),
        "accepted": sum(is_right(reward) for reward in rewards),
        "disagreements": [
            {"id": problem.id, "gold": problem.answer, "extracted": reward.extracted, "status": reward.status}
            for (problem, _), reward in zip(pairs, rewards, strict=True)
            if not is_right(reward)
        ],
    }


def behaviour_lines(data: Path, maths: Sequence[GradedRecord], probe: Sequence[GradedRecord]) -> Iterator[Line]:
    """Measure what responses look like, right ones beside wrong ones."""
    formulas = read_records(data / FORMULAS)
    ways: Mapping[str, list[Response]] = {
        "Qwen2.5-Math": [_behaviour(row, "unique_id", "question", row.record.values["score"]) for row in maths],
        "RL-Probe": [_behaviour(row, "problem_id", "problem", row.record.values["correct"]) for row in probe],
        "formulas": [
            _response(
                formula_name(one.values),
                one.values["response"],
                "",
                formula_name(one.values),
                one.values["total_score"] == 3,
            )
            for one in formulas
        ],
    }
    for name, records in ways.items():
        labelled = [dataclasses.replace(one, label="right" if one.correct else "wrong") for one in records]
        for label in summarise(labelled):
            yield {"kind": "behaviours", "set": name, **{key: label[key] for key in _SHOWN}}


_SHOWN = ("label", "num_responses", "length", "unfinished", "format", "repetition", "reflection", "signs")


def _behaviour(row: GradedRecord, problem: str, question: str, correct: bool) -> Response:
    values = row.record.values
    return _response(values[problem], values["response"], values[question], row.problem.id, correct)


def _response(problem: str, text: str, question: str, place: str, correct: bool) -> Response:
    asked = Problem(id=problem, family="math", question=question, answer="", begun="")
    return Response(problem=asked, text=text, place=place, correct=correct)


def lines(data: Path) -> Iterator[Line]:
    """Measure everything; yield a line for each result."""
    maths, probe = math_rows(data), rl_probe_rows(data)
    yield compared(maths, "score", kind="math")
    yield from gsm8k_lines(data)
    yield from formula_lines(data)
    yield from rl_probe_lines(probe)
    yield from score_case_lines(data)
    yield from gold_lines(data)
    yield from behaviour_lines(data, maths, probe)
    yield from knight_lines(data)
