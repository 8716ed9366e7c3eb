"""Tables of the page on graded data, from the records of the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from studies.grading.reasons import REASONS
from studies.markdown import code, number, percent, table
from studies.study import Record

NOT_LOOKED_AT = "**not looked at yet**"
_LONGEST = 80


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown by the names of its places in the page."""
    found = {
        "agreement": _agreement(records),
        "rl-probe-printed": _printed(records),
        "rl-probe-golds": _rl_probe_golds(records),
        "rl-probe-regex": _rl_probe_regex(records),
        "rl-probe-accuracy": _rl_probe_accuracy(records),
        "knights": _knights(records),
        "score-cases": _score_cases(records),
        "golds": _golds(records),
        "solutions": _solution_counts(records),
        "behaviours": _behaviours(records),
        "format": _format(records),
        "sampling": _sampling(records),
    }
    rows = list(_disagreements(records))
    for name, columns in _TABLES.items():
        found[f"{name.replace(' ', '-')}-disagreements"] = _disagreement_table(
            [one for one in rows if one["set"] == name], _HEADS.get(name, "name"), columns, REASONS[name]
        )
    return found


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote, by name."""
    compared = {(one["kind"], one.get("text") or one.get("reading")): one for one in records if "agreement" in one}
    text, pred = compared["gsm8k", "response"], compared["gsm8k", "pred"]
    logic_rl, plain = compared["formulas", "logic_rl"], compared["formulas", "plain"]
    full = sum(one["recorded"] == _FULL_REWARD for one in plain["disagreements"])
    proved, puzzles = (sum(one[name] for one in _of(records, "knights")) for name in ("proved", "puzzles"))
    return {
        "gsm8k: pred right": percent(pred["graded_right"] / pred["num_compared"]),
        "gsm8k: fewer from the text": str(pred["graded_right"] - text["graded_right"]),
        "formulas: logic_rl": f"{logic_rl['num_same']} of {logic_rl['num_compared']}",
        "formulas: plain differs": str(plain["num_compared"] - plain["num_same"]),
        "formulas: had the full reward": str(full),
        "knights: proved": f"{proved:,} of {puzzles:,}",
    }


_FULL_REWARD = 3
"""Of the rule for knights and knaves: form and answer right."""


def stale_reasons(records: Sequence[Record]) -> list[str]:
    """Return the reasons' sets and names that stand for no disagreement."""
    known = {(one["set"], one["id"]) for one in _disagreements(records)}
    return [f"{name}: {one}" for name, reasons in REASONS.items() for one in reasons if (name, one) not in known]


_RECORDED = {"gold": "gold", "read": "extracted", "recorded": "recorded", "swerve": "verdict"}
_READ = {"gold": "gold", "read": "extracted"}
_TABLES: Mapping[str, Mapping[str, str]] = {
    "math": _RECORDED,
    "gsm8k": {"gold": "gold", "recorded `pred`": "pred", "read": "extracted", "swerve": "verdict"},
    "formulas": {"recorded": "recorded", "swerve": "verdict"},
    "rl_probe recorded_correct": _RECORDED,
    "rl_probe correct": _RECORDED,
    "solutions": _READ,
    "golds": {"gold": "gold", "text": "text", "swerve": "verdict"},
    "other golds": {},
}
"""Set of disagreements -> its columns and the fields they show."""
_HEADS: Mapping[str, str] = {"other golds": "gold and accepted answer"}


def _disagreements(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Return the disagreements with their sets; of one that shows in two ways, the first."""
    seen = set()
    for record in records:
        name = f"{record['kind']} {record['field']}" if record["kind"] == "rl_probe" else record["kind"]
        listed = [(name, one) for one in (*record.get("disagreements", ()), *record.get("exceptions", ()))]
        listed += [
            ("other golds", one) for key in ("others_accepted", "changed_accepted") for one in record.get(key, ())
        ]
        for group, one in listed:
            if (group, one["id"]) in seen:
                continue
            seen.add((group, one["id"]))
            verdict = one.get("status", "") if one.get("value") is None else f"{one['value']:g}"
            yield {**one, "set": group, "verdict": verdict, "recorded": _recorded(one.get("recorded"))}


def _recorded(value: Any) -> str:
    return {True: "right", False: "wrong"}[value] if isinstance(value, bool) else "" if value is None else f"{value:g}"


def _disagreement_table(
    rows: Sequence[Mapping[str, Any]], head: str, columns: Mapping[str, str], reasons: Mapping[str, str]
) -> str:
    if not rows:
        return "No verdict differs."
    body = [
        [
            f"`{one['id']}`",
            *(_cell(field, one[field]) for field in columns.values()),
            reasons.get(one["id"], NOT_LOOKED_AT),
        ]
        for one in rows
    ]
    return table([head, *columns, "why"], body)


def _cell(field: str, value: Any) -> str:
    if field in ("recorded", "verdict"):
        return str(value)
    return _code(value)


def _code(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    return code(str(value), longest=_LONGEST)


def _agreement(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        if "agreement" not in record:
            continue
        name = _NAMES[record["kind"], record.get("text") or record.get("reading") or record["field"]]
        if record["compared"] == "verdicts":
            ways = ("both_right", "only_recorded_right", "only_graded_right", "both_wrong")
            counts = [str(record[way]) for way in ways]
        else:
            counts = ["-"] * 4
        rows.append([*name, f"{record['num_compared']:,}", percent(record["agreement"]), *counts])
    head = [
        "responses",
        "compared with",
        "number",
        "agreement",
        "both right",
        "only there",
        "only swerve",
        "both wrong",
    ]
    return table(head, rows)


_NAMES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("math", "score"): ("MATH, Qwen2.5-Math", "recorded `score`"),
    ("gsm8k", "response"): ("GSM8K, ToRA 70B", "`pred` is the gold's text"),
    ("gsm8k", "pred"): ("GSM8K, ToRA 70B, `pred` alone", "`pred` is the gold's text"),
    ("formulas", "logic_rl"): ("formulas, `reading: logic_rl`", "recorded `total_score`"),
    ("formulas", "plain"): ("formulas, `reading: plain`", "recorded `total_score`"),
    ("rl_probe", "recorded_correct"): ("MATH, RL-Probe", "`recorded_correct`"),
    ("rl_probe", "correct"): ("MATH, RL-Probe", "corrected `correct`"),
}


def _of(records: Sequence[Record], kind: str) -> list[Record]:
    return [record for record in records if record["kind"] == kind]


def _printed(records: Sequence[Record]) -> str:
    lines = [line for record in _of(records, "rl_probe") for line in record["printed"]]
    return "\n".join(["```text", *lines, "```"])


def _rl_probe_golds(records: Sequence[Record]) -> str:
    rows = [
        [
            "cut off" if one["cut"] else "whole",
            *(str(one[name]) for name in ("problems", "num", "wrongly_right", "wrongly_wrong")),
            percent((one["wrongly_right"] + one["wrongly_wrong"]) / one["num"]),
        ]
        for one in _of(records, "rl_probe_golds")
    ]
    head = ["recorded gold", "problems", "verdicts", "wrong answers taken as right", "right ones as wrong", "errors"]
    return table(head, rows)


def _rl_probe_regex(records: Sequence[Record]) -> str:
    [one] = _of(records, "rl_probe_regex")
    return (
        f"It cuts {one['cut']} of {one['boxed']} boxed answers. Comparing what is left, white space aside, gives "
        f"{one['same']} of the {one['num']} recorded verdicts."
    )


def _rl_probe_accuracy(records: Sequence[Record]) -> str:
    rows = [
        [one["checkpoint"], str(one["num"]), *(percent(one[name]) for name in ("recorded", "graded", "truth"))]
        for one in _of(records, "rl_probe_accuracy")
    ]
    return table(["checkpoint", "responses", "as recorded", "swerve", "corrected"], rows)


def _knights(records: Sequence[Record]) -> str:
    sizes = [str(size) for size in range(2, 9)]
    rows = [
        [
            f"`{one['folder']}`, {one['part'].replace('_', ' ')}",
            *(f"{one['proved_by_people'][size]:,}" if size in one["proved_by_people"] else "-" for size in sizes),
            f"{one['proved']:,} of {one['puzzles']:,}",
            f"{one['found']:,} of {one['turned round']:,}",
        ]
        for one in _of(records, "knights")
    ]
    totals = Counter[str]()
    for one in _of(records, "knights"):
        totals.update({name: one[name] for name in ("puzzles", "proved", "turned round", "found")})
        totals.update(one["proved_by_people"])
    rows.append(
        [
            "all",
            *(f"{totals[size]:,}" for size in sizes),
            f"{totals['proved']:,} of {totals['puzzles']:,}",
            f"{totals['found']:,} of {totals['turned round']:,}",
        ]
    )
    return table(["proved puzzles, by people", *sizes, "all", "wrong solutions found"], rows)


def _score_cases(records: Sequence[Record]) -> str:
    rows = [
        [
            {"palindrome": "palindrome", "k_and_k": "knights and knaves"}[one["family"]],
            _code(one["example"]),
            str(one["num"]),
            f"{one['expected']:g}",
            one["verdict"],
            _POLICIES.get((one["family"], one["expected"], one["verdict"]), NOT_LOOKED_AT),
        ]
        for one in _of(records, "score_cases")
    ]
    return table(["task", "such as", "cases", "reasoning-gym", "swerve", "why"], rows)


_SAME = "the same"
_POLICIES: Mapping[tuple[str, float, str], str] = {
    ("palindrome", 1.0, "1"): _SAME,
    (
        "palindrome",
        0.05,
        "0",
    ): "a palindrome of other letters is wrong; the parts `palindrome` 1 and `letters` 0 say so",
    ("palindrome", 0.02, "0"): "no palindrome is wrong; reasoning-gym gives every answer something",
    ("palindrome", 0.0, "unparsed"): "no answer is `unparsed`: not right, and counted apart from wrong ones",
    ("k_and_k", 1.0, "1"): _SAME,
    ("k_and_k", 0.65, "0"): "one of two roles right is a wrong assignment; there is no partial credit",
    ("k_and_k", 0.0, "0"): "the same: read (`Zoey sage` needs no `is a`), and wrong",
}


def _golds(records: Sequence[Record]) -> str:
    rows = [
        [
            f"`{one['file']}`",
            f"{one['rows']:,}",
            str(one["rows"] - one["problems"]),
            f"{one['accepted']:,} of {one['golds']:,}",
            f"{one['rewritten_accepted']:,} of {one['problems']:,}",
            f"{one['others']:,}",
            str(one["others_same_text"]),
            str(len(one["others_accepted"])),
            f"{one['changed']:,}",
            str(len(one["changed_accepted"])),
        ]
        for one in _of(records, "golds")
    ]
    head = ["file", "rows", "without gold", "accepted", "rewritten", "next gold tried", "same text", "other text"]
    return table([*head, "digit changed", "accepted"], rows)


def _solution_counts(records: Sequence[Record]) -> str:
    rows = [
        [f"`{one['file']}`", f"{one['num']:,}", f"{one['accepted']:,}", str(len(one["disagreements"]))]
        for one in _of(records, "solutions")
    ]
    return table(["file", "solutions", "accepted", "not accepted"], rows)


def _behaviours(records: Sequence[Record]) -> str:
    shown = ("verification", "backtracking", "contrast")
    rows = [
        [
            one["set"],
            one["label"],
            str(one["num_responses"]),
            number(one["length"]["words"], 0),
            percent(one["unfinished"]),
            percent(one["repetition"]["loop_at_end"]),
            *(number(one["reflection"][name]["per_1000_words"], 2) for name in shown),
            ", ".join(f"{name} {len(sign['rows'])}" for name, sign in one["signs"].items() if sign["rows"]) or "none",
        ]
        for one in sorted(_of(records, "behaviours"), key=lambda one: (_SETS.index(one["set"]), one["label"]))
    ]
    head = ["responses", "verdict", "number", "words", "unfinished", "loop at the end", *shown, "signs of hacking"]
    return table(head, rows)


_SETS = ("Qwen2.5-Math", "RL-Probe", "formulas")


def _format(records: Sequence[Record]) -> str:
    [one] = _of(records, "format")
    return (
        f"The form `<think> <answer>` is in {one['right']} of the {one['num']} texts on formulas "
        f"({percent(one['right'] / one['num'])}); the recorded `format_ok` says the same of {one['same']}."
    )


def _sampling(records: Sequence[Record]) -> str:
    rows = [
        [str(one["k"]), *(percent(one[name]) for name in ("pass_at_k", "pass_hat_k", "majority_at_k"))]
        for one in _of(records, "sampling")
    ]
    return table(["k", "pass@k", "pass^k", "maj@k"], rows)
