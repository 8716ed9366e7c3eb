"""Arguments and options that several commands have, and options that are the keys of settings."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args

import typer
from typer.core import TyperCommand

from swerve.artifacts.output_names import check_output
from swerve.cli.completion import completed
from swerve.cli.console import print_json, print_text
from swerve.errors import ConfigError, MissingShardsError, SwerveError, nearest

if TYPE_CHECKING:
    from swerve.artifacts.shards import Shard
    from swerve.recipes.layers import Override

Command = TypeVar("Command", bound=Callable[..., Any])
Recipe = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="A YAML file, or the name of a shipped recipe.", **completed("recipes")),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Changes to the recipe, such as seed=1 or stages.rl.steps=40.",
        **completed("keys"),
    ),
]


def out_option(text: str, *endings: str, folder: bool = False, of_run: bool = False) -> Any:
    """Return the option `--out` of a command, whose value `check_output` checks; see there.

    Args:
        text: what is written; the help.
        endings: of files that the command writes, which the help names.
        folder: whether it writes folders.
        of_run: whether it may be that of a run.
    """

    def check(value: Path | None) -> Path | None:
        if value is not None:
            check_output(Path(value), *endings, folder=folder, of_run=of_run)
        return value

    metavar = "|".join(["FILE"] * bool(endings) + ["DIR"] * folder)
    return typer.Option("--out", metavar=metavar, help=text, callback=check)


Out = Annotated[Path | None, out_option("Run directory.  [default: runs/NAME]", folder=True, of_run=True)]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=FIELD",
        help="Field of FILE that holds NAME, such as response=completion; group=FIELD: problems of one template.",
    ),
]
EmbeddingModel = Annotated[
    str | None,
    typer.Option("--embedding-model", metavar="MODEL", help="Model of sentence-transformers, for diversity by cosine."),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="What the others are compared with.  [default: the first]"),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Do the I-th of N shares of the work, beside other jobs; without it the command then finishes the work.",
    ),
]
PartsFrom = Annotated[
    list[Path] | None,
    typer.Option(
        "--parts-from",
        metavar="FOLDER",
        help="Take what shards left in FOLDER, a copy of --out from another machine; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
_GIVEN, _SHARD = "swerve.arguments", "swerve.shard"
"""Keys of a command's context: its arguments as they were given, and the shard of which it does the share."""
_RESUMING = ("--resume-or-start", "--resume")
"""Options that ask a command to go on where it was interrupted, the one that always works first."""
_KEEPING = {*_RESUMING, "--parts-from", "--gather"}
"""Options of commands that keep what is done of their work."""
_KEEPING_WHERE_GIVEN = {"--without", "--flip", "--flip-share", "--set", "--taught"}
"""Options with which `swerve replay` keeps what is done, as it does not without."""
ROW_ENDINGS = (".jsonl", ".parquet")
"""Of files of rows; see `swerve.formats.row_files`."""
TABLE_FORMATS = ("table", "md", "csv", "latex", "json")
"""Forms of a table of results."""


def options_of(*parameters: inspect.Parameter) -> list[Any]:
    """Return what typer makes of a function with such parameters."""

    def command() -> None: ...

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def check_choice(option: str, value: str | None, choices: Iterable[str]) -> None:
    """Raise ConfigError unless an option's value is one of its choices, or is not given."""
    allowed = list(choices)
    if value is not None and value not in allowed:
        raise ConfigError(f"{option} {value!r} is not one of {', '.join(allowed)}{nearest(value, allowed)}")


class Result(NamedTuple):
    """What a command returns, for `ResultCommand` to print."""

    value: Any
    """With --json."""
    text: str | Callable[[], str]
    """For people; a function where making it takes time."""
    error: SwerveError | None = None
    """Raised after it is printed."""


class PlainCommand(TyperCommand):
    """A command whose help names arguments as they are declared, and ends in the docstring's examples."""

    def __init__(self, name: str | None, *, help: str | None = None, **rest: Any) -> None:
        """Part the examples from the rest of the docstring."""
        said, _, examples = (help or "").partition("\n\nExamples:\n")
        super().__init__(name, help=said, **{**rest, "epilog": f"\b\nExamples:\n{examples}" if examples else None})

    place: str = ""
    """`module:Class` of settings whose keys are options or KEY=VALUE; of others it is a recipe."""
    options: Mapping[str, str] = {}
    """Options that are keys of these settings; see `with_settings`."""

    @property
    def more(self) -> list[Any]:
        """Options beside those of the function's parameters."""
        return []

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options, `--help` last."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":  # its name says it
                param.display_type_rich = lambda ctx: ""  # of newer versions of typer
            param._get_number_range_help_str = lambda: ""  # the error says the range
        return params

    def continued(self, given: Sequence[str]) -> str:
        """Return what is kept of the command where it is interrupted, and how it is continued.

        Args:
            given: its words, without `swerve`.
        """
        options = {option for param in self.params for option in param.opts}
        asking = next((option for option in _RESUMING if option in options), None)
        words = list(given)
        if asking is not None and not {*_RESUMING} & {*words}:
            place = words.index("--") if "--" in words else len(words)
            words.insert(place, asking)
        keeps = options & _KEEPING or _KEEPING_WHERE_GIVEN & {word.partition("=")[0] for word in words}
        kept = "what was written so far is kept" if keeps else "it begins anew, and leaves nothing half done"
        return f"{kept}; continue with: {shlex.join(['swerve', *words])}"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command in the line of its usage."""
        arguments = (str(param.metavar) for param in self.params if param.param_type_name == "argument")
        return ["[OPTIONS]", *arguments]


class ResultCommand(PlainCommand):
    """A command that prints what it returns: as text, or as JSON with `--json`; under torchrun the first process."""

    @cached_property
    def more(self) -> list[Any]:
        """The options of settings, and `--json`."""
        parameters = [_parameter(self.place, key, text) for key, text in self.options.items()]
        as_json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
        return options_of(*parameters, as_json)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own arguments and options, those of settings, `--json` and `--help`."""
        *own, help_option = super().get_params(ctx)
        return [*own, *self.more, help_option]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as they were given."""
        ctx.meta[_GIVEN] = [*ctx.command_path.split()[1:], *args]
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> None:
        """Hand the options that were given to the command as keys of the settings, and print its result."""
        from swerve.artifacts.torchrun import is_main_process

        ctx.obj = {}
        *settings, as_json = (ctx.params.pop(param.name) for param in self.more)
        for key, param, given in zip(self.options, self.more, settings, strict=False):
            if given:
                ctx.obj[key] = _override(self.place, key, param.opts[0], given)
        left = None
        try:
            result = super().invoke(ctx)
        except MissingShardsError as error:
            if _SHARD not in ctx.meta:
                raise
            result, left = None, str(error)
        if _SHARD in ctx.meta and (result is None or result.value is None):
            whole = shlex.join(["swerve", *_without_shard(ctx.meta[_GIVEN])])
            result = _shard_result(ctx.meta[_SHARD], whole, left)
        if result is None or not is_main_process():
            return
        if as_json:
            print_json(result.value)
        elif text := result.text if isinstance(result.text, str) else result.text():
            print_text(text)
        if result.error is not None:
            raise result.error


def with_settings(place: str, options: Mapping[str, str]) -> Callable[[Command], Command]:
    """Give a command keys of settings as further options; `given_settings` returns them.

    The settings are imported when the command is called, so that `swerve --help` needs none.

    Args:
        place: `module:Class` of the settings, a pydantic model.
        options: dotted key -> the option, what it takes, and its default where the command has one of its own, such as
            `--samples FILE`. Help, choices and other defaults are those of the field.
    """

    def decorate(command: Command) -> Command:
        command.__dict__["command_class"] = type("WithSettings", (ResultCommand,), {"place": place, "options": options})
        return command

    return decorate


def given_settings(context: typer.Context) -> dict[str, Override]:
    """Return the options of settings that were given, by key."""
    return dict(context.obj)


def wants_json(context: typer.Context) -> bool:
    """Whether the result of a command is to be printed as JSON."""
    return "--json" in context.meta[_GIVEN]


def given_shard(context: typer.Context, text: str | None, folders: Sequence[Path] | None) -> Shard:
    """Return the shard that `--shard` names, or the whole work, with the parts of `--parts-from`.

    Raises:
        ConfigError: it is not I/N, or a folder has no parts.
    """
    from swerve.artifacts.parts import CopiedParts
    from swerve.artifacts.shards import Shard

    copied = CopiedParts(folders or ())
    shard = Shard(copied=copied) if text is None else Shard.parse(text, copied)
    if shard.is_share:
        context.meta[_SHARD] = shard
    return shard


def _without_shard(command: Sequence[str]) -> list[str]:
    """Return arguments without the option that divides the work.

    >>> _without_shard(["sample", "--shard", "1/2", "model", "--shard=1/2"])
    ['sample', 'model']
    """
    rest = [word for word in command if not word.startswith("--shard=")]
    while "--shard" in rest:
        place = rest.index("--shard")
        del rest[place : place + 2]
    return rest


def _shard_result(shard: Shard, whole: str, left: str | None) -> Result:
    """Return what a command says at the end of a shard, which may wait for others (`left`)."""
    next_one = f"When all are: {whole}" if left is None else f"{left}: run this again when the other shards are done"
    return Result({"shard": str(shard), "left": left}, f"Shard {shard} is done. {next_one}")


def _field(place: str, key: str) -> tuple[str, Any, Mapping[str, Any]]:
    """Return of a dotted key its description, its default (None: nothing to show), and its JSON schema."""
    from pydantic import TypeAdapter

    module, _, name = place.partition(":")
    model: Any = getattr(import_module(module), name)
    outer, _, last = key.rpartition(".")
    default = None
    if outer:
        section = model.model_fields[outer]
        default = getattr(section.default, last, None)
        kinds = (*get_args(section.annotation), section.annotation)
        model = next(kind for kind in kinds if hasattr(kind, "model_fields"))
    field = model.model_fields[last]
    schema = TypeAdapter(field.annotation).json_schema()
    default = None if field.is_required() else default or field.get_default(call_default_factory=True) or None
    return field.description or "", default, schema.get("anyOf", [schema])[0]


def _parameter(place: str, key: str, text: str) -> inspect.Parameter:
    """Return the option as a parameter of a command."""
    description, default, schema = _field(place, key)
    option, _, rest = text.partition(" ")
    metavar, _, own = rest.partition(" ")
    default = own or default
    choices = schema.get("enum", ())
    shown = "" if default is None else f"  [default: {default}]"
    if metavar and choices:
        shown = f" One of {', '.join(choices)}.{shown}"
    text = " ".join(description.replace("`", "").split()) + shown
    said = typer.Option(option, metavar=metavar or "|".join(choices), help=text)
    if option == "--out":
        said = out_option(text, folder=True, of_run=True)
    kinds = {"array": list[str] | None, "object": list[str] | None, "boolean": bool | None}
    kind: Any = kinds.get(schema["type"], str | None)
    name = f"setting_{key.replace('.', '_')}"
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, said])


def _override(place: str, key: str, option: str, given: Any) -> Override:
    """Return an option as the key that it stands for: texts and lists of them as they are, all else read as YAML."""
    from swerve.recipes.layers import Override, parse_override

    kind = _field(place, key)[2]["type"]
    if kind == "object":
        given = {".".join(pair.keys): pair.value for pair in map(parse_override, given)}
    elif kind not in ("string", "array", "boolean"):
        given = parse_override(f"value={given}").value
    return Override(text=option, keys=tuple(key.split(".")), value=list(given) if kind == "array" else given)
