"""Tables of the page on graded data, from the records of the study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from studies.grading.reasons import REASONS
from studies.pages import Column, Record, code, fenced, percent, table_of

NOT_LOOKED_AT = "**not looked at yet**"
_LONGEST = 48


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown by the names of its places in the page."""
    texts = {
        "agreement": _agreement(records),
        **_rl_probe(records),
        "knights": _knights(records),
        "score-cases": _score_cases(records),
        "golds": _golds(records),
        "solutions": table_of(
            _of(records, "solutions"),
            ("file", "file:code"),
            ("solutions", "num:thousands"),
            ("accepted", "accepted:thousands"),
            ("not accepted", lambda row: str(len(row["disagreements"]))),
        ),
        "behaviours": _behaviours(records),
    }
    rows = list(_disagreements(records))
    for name, columns in _TABLES.items():
        own = [row for row in rows if row["set"] == name]
        head = _HEADS.get(name, "name")
        texts[f"{name.replace(' ', '-')}-disagreements"] = _disagreement_table(own, head, columns, REASONS[name])
    return texts


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote, by name."""
    compared = {}
    for record in records:
        if "agreement" in record:
            compared[record["kind"], record.get("text") or record.get("reading")] = record
    text, pred = compared["gsm8k", "response"], compared["gsm8k", "pred"]
    logic_rl, plain = compared["formulas", "logic_rl"], compared["formulas", "plain"]
    full = sum(disagreement["recorded"] == _FULL_REWARD for disagreement in plain["disagreements"])
    proved, puzzles = (sum(record[name] for record in _of(records, "knights")) for name in ("proved", "puzzles"))
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
    known = {(row["set"], row["id"]) for row in _disagreements(records)}
    return [f"{name}: {case}" for name, reasons in REASONS.items() for case in reasons if (name, case) not in known]


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
        sets = {"disagreements": name, "exceptions": name} | dict.fromkeys(
            ("others_accepted", "changed_accepted"), "other golds"
        )
        for key, group in sets.items():
            for row in record.get(key, ()):
                if (group, row["id"]) in seen:
                    continue
                seen.add((group, row["id"]))
                verdict = row.get("status", "") if row.get("value") is None else f"{row['value']:g}"
                yield {**row, "set": group, "verdict": verdict, "recorded": _recorded(row.get("recorded"))}


def _recorded(value: Any) -> str:
    return {True: "right", False: "wrong"}[value] if isinstance(value, bool) else "" if value is None else f"{value:g}"


def _disagreement_table(
    rows: Sequence[Mapping[str, Any]], head: str, columns: Mapping[str, str], reasons: Mapping[str, str]
) -> str:
    """Return the first row of each reason, with the number of others that have it."""

    def field(name: str) -> str | Callable[[Record], str]:
        return name if name in ("recorded", "verdict") else lambda row: _code(row[name])

    by_reason: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        why = reasons.get(row["id"])
        # Those without a reason are named one by one.
        by_reason.setdefault((why, row["recorded"], row["verdict"]) if why else (row["id"],), []).append(row)
    shown = [{**group[0], "others": len(group) - 1} for group in by_reason.values()]
    return (
        table_of(
            shown,
            (head, lambda row: code(row["id"]) + (f" and {row['others']} more" if row["others"] else "")),
            *((title, field(name)) for title, name in columns.items()),
            ("why", lambda row: reasons.get(row["id"], NOT_LOOKED_AT)),
        )
        or "No verdict differs."
    )


def _code(value: Any) -> str:
    return code(str(value), longest=_LONGEST) if value not in (None, "") else "nothing"


def _agreement(records: Sequence[Record]) -> str:
    def name(record: Record) -> tuple[str, str]:
        return _NAMES[record["kind"], record.get("text") or record.get("reading") or record["field"]]

    def count(way: str) -> Callable[[Record], str]:
        return lambda record: str(record[way]) if record["compared"] == "verdicts" else "-"

    return table_of(
        [record for record in records if "agreement" in record],
        ("responses", lambda record: name(record)[0]),
        ("compared with", lambda record: name(record)[1]),
        ("number", "num_compared:thousands"),
        ("agreement", "agreement:percent"),
        ("both right", count("both_right")),
        ("only there", count("only_recorded_right")),
        ("only swerve", count("only_graded_right")),
        ("both wrong", count("both_wrong")),
    )


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


def _rl_probe(records: Sequence[Record]) -> dict[str, str]:
    [regex] = _of(records, "rl_probe_regex")
    return {
        "rl-probe-printed": fenced(line for record in _of(records, "rl_probe") for line in record["printed"]),
        "rl-probe-golds": table_of(
            _of(records, "rl_probe_golds"),
            ("recorded gold", lambda row: "cut off" if row["cut"] else "whole"),
            ("problems", "problems"),
            ("verdicts", "num"),
            ("wrong answers taken as right", "wrongly_right"),
            ("right ones as wrong", "wrongly_wrong"),
            ("errors", lambda row: percent((row["wrongly_right"] + row["wrongly_wrong"]) / row["num"])),
        ),
        "rl-probe-regex": (
            f"It cuts {regex['cut']} of {regex['boxed']} boxed answers. Comparing what is left, white space aside, "
            f"gives {regex['same']} of the {regex['num']} recorded verdicts."
        ),
        "rl-probe-accuracy": table_of(
            _of(records, "rl_probe_accuracy"),
            ("checkpoint", "checkpoint"),
            ("responses", "num"),
            ("as recorded", "recorded:percent"),
            ("swerve", "graded:percent"),
            ("corrected", "truth:percent"),
        ),
    }


def _knights(records: Sequence[Record]) -> str:
    counts = ("puzzles", "proved", "turned round", "found")
    rows, totals = [], Counter[str]()
    for record in _of(records, "knights"):
        rows.append({**record, "name": f"`{record['folder']}`, {record['part'].replace('_', ' ')}"})
        totals.update({name: record[name] for name in counts})
        totals.update(record["proved_by_people"])
    rows.append({"name": "all", "proved_by_people": totals, **totals})

    def by_people(size: str) -> Callable[[Record], str]:
        return lambda row: f"{row['proved_by_people'][size]:,}" if size in row["proved_by_people"] else "-"

    return table_of(
        rows,
        ("proved puzzles, by people", "name"),
        *((size, by_people(size)) for size in map(str, range(2, 9))),
        ("all", lambda row: f"{row['proved']:,} of {row['puzzles']:,}"),
        ("wrong solutions found", lambda row: f"{row['found']:,} of {row['turned round']:,}"),
    )


_SAME = "the same"
_POLICIES: Mapping[tuple[str, float, str], str] = {
    ("palindrome", 1.0, "1"): _SAME,
    ("palindrome", 0.05, "0"): (
        "a palindrome of other letters is wrong; the parts `palindrome` 1 and `letters` 0 say so"
    ),
    ("palindrome", 0.02, "0"): "no palindrome is wrong; reasoning-gym gives every answer something",
    ("palindrome", 0.0, "unparsed"): "no answer is `unparsed`: not right, and counted apart from wrong ones",
    ("k_and_k", 1.0, "1"): _SAME,
    ("k_and_k", 0.65, "0"): "one of two roles right is a wrong assignment; there is no partial credit",
    ("k_and_k", 0.0, "0"): "the same: read (`Zoey sage` needs no `is a`), and wrong",
}


def _score_cases(records: Sequence[Record]) -> str:
    def policy(row: Record) -> str:
        return _POLICIES.get((row["family"], row["expected"], row["verdict"]), NOT_LOOKED_AT)

    return table_of(
        _of(records, "score_cases"),
        ("task", lambda row: {"palindrome": "palindrome", "k_and_k": "knights and knaves"}[row["family"]]),
        ("such as", lambda row: _code(row["example"])),
        ("cases", "num"),
        ("reasoning-gym", lambda row: f"{row['expected']:g}"),
        ("swerve", "verdict"),
        ("why", policy),
    )


def _golds(records: Sequence[Record]) -> str:
    return table_of(
        _of(records, "golds"),
        ("file", "file:code"),
        ("rows", "rows:thousands"),
        ("without gold", lambda row: str(row["rows"] - row["problems"])),
        ("accepted", lambda row: f"{row['accepted']:,} of {row['golds']:,}"),
        ("rewritten", lambda row: f"{row['rewritten_accepted']:,} of {row['problems']:,}"),
        ("next gold tried", "others:thousands"),
        ("same text", "others_same_text"),
        ("other text", lambda row: str(len(row["others_accepted"]))),
        ("digit changed", "changed:thousands"),
        ("accepted", lambda row: str(len(row["changed_accepted"]))),
    )


def _behaviours(records: Sequence[Record]) -> str:
    sets = ("Qwen2.5-Math", "RL-Probe", "formulas")

    def signs(row: Record) -> str:
        return ", ".join(f"{name} {len(sign['rows'])}" for name, sign in row["signs"].items() if sign["rows"]) or "none"

    columns: list[Column] = [
        ("responses", "set"),
        ("verdict", "label"),
        ("number", "num_responses"),
        ("words", "length.words:number0"),
        ("unfinished", "unfinished:percent"),
        ("loop at the end", "repetition.loop_at_end:percent"),
    ]
    for name in ("verification", "backtracking", "contrast"):
        columns.append((name, f"reflection.{name}.per_1000_words:number2"))
    rows = sorted(_of(records, "behaviours"), key=lambda row: (sets.index(row["set"]), row["label"]))
    return table_of(rows, *columns, ("signs of hacking", signs))
