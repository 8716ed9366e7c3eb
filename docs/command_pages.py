"""Reference pages of the commands, from what `--help` says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from swerve.cli.app import app

_PAGES = (
    ("commands-train", "Commands: training", ("demo", "train", "study", "plan", "runs", "recipes", "config")),
    (
        "commands-models",
        "Commands: models and reports",
        ("sample", "eval", "probe", "claim", "replay", "report", "view", "export", "serve"),
    ),
    ("commands-data", "Commands: data and graders", ()),  # and whatever the others do not name
)


def pages() -> dict[str, str]:
    """Return the text of each page by its name below docs/."""
    group = typer.main.get_command(app)
    commands = dict(group.commands)  # type: ignore[attr-defined]
    made = {}
    for page, title, names in _PAGES:
        chosen = [(name, commands.pop(name)) for name in names or list(commands)]
        sections = [text for name, command in chosen for text in _sections(f"swerve {name}", command)]
        made[f"reference/{page}.md"] = "\n\n".join([f"# {title}", *sections]) + "\n"
    return made


def _sections(name: str, command: Any) -> Iterator[str]:
    """Yield the section of a command, then those of the commands below it."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = []
    for parameter in command.get_params(context):
        word, words = parameter.get_help_record(context) or ("--help", "")
        if "--help" not in word:
            rows.append(f"| `{_cell(parameter, word)}` | {_text(words)} |")
    table = ["| argument, option | meaning |\n|---|---|\n" + "\n".join(rows)] if rows else []
    prose = [_blocks(text) for text in (command.help, command.epilog) if text]
    yield "\n\n".join([f"## {name}", f"```text\n{usage}\n```", *prose[:1], *table, *prose[1:]])
    for word, child in getattr(command, "commands", {}).items():
        yield from _sections(f"{name} {word}", child)


def _cell(parameter: Any, word: str) -> str:
    """Return an option as it is typed, with what its value is called and without the type that only Python reads."""
    word = re.sub(r" <\S+>$", "", word).strip()
    return word if (parameter.metavar or "") in word else f"{word} {parameter.metavar}"


def _text(words: str) -> str:
    """Return help in one line; brackets outside code are text, not links."""
    line = " ".join(words.replace("][", "] [").split()).replace("|", "&#124;")
    return re.sub(r"`[^`]*`|\[", lambda part: r"\[" if part[0] == "[" else part[0], line)


def _blocks(text: str) -> str:
    """Return help as Markdown: lines of a shell become a block of code."""
    return re.sub(
        r"(?:^ *(?:\$ )?(?:swerve|torchrun) .*\n?)+", _shell, text.replace("\b", "").strip(), flags=re.MULTILINE
    )


def _shell(lines: re.Match[str]) -> str:
    commands = [f"$ {line.strip().removeprefix('$ ')}" for line in lines[0].splitlines()]
    return "\n".join(["", "```console", *commands, "```", ""])
