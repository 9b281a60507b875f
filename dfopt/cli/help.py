"""How every command behaves: its help, settings for printing, earlier spellings, ``-`` for standard input."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from dfopt.documents.names import OPTIONS
from dfopt.errors import EXIT_CODES, visible

if TYPE_CHECKING:
    from dfopt.documents.descriptions import FieldDoc

F = TypeVar("F", bound=Callable[..., Any])
RUNNING: Final[ContextVar[Any]] = ContextVar("the context of the command that runs")
SETTINGS: Final = ("color", "detail", "format", "jobs", "out_dir", "quiet", "store", "verbose")
"""What dfopt.toml and DFOPT_NAME may set: how answers are printed, processes, and where files go."""
TASKS: Final = {
    "Ask a question": ("solve", "sweep", "explore"),
    "Read an answer": ("show", "compare", "plot", "report", "explain", "guide"),
    "Trust an answer": ("check", "score"),
    "Describe workloads and machines": ("new", "list", "import", "schema", "derive", "calibrate"),
    "Go on with an answer": ("export", "heat", "runs", "collective"),
}
GROUPS: Final = (
    "Arguments", "Workload and model", "Machine", "Parallelism", "Search", "Fixed by hand", "Heat", "Options", "Output",
    "Printing",
)  # fmt: skip
EVERYDAY: Final = {
    "solve": (
        "graph", "system", "phase", "batch", "microbatch", "isl", "osl", "context", "recompute", "assume", "set_",
        "chips", "nodes", "tp", "pp", "dp", "ep", "zero", "gap", "time_limit", "output", "detail", "as_json", "quiet",
        "help_all", "help",
    ),
    "explore": (
        "graph", "design", "phase", "batch", "isl", "context", "assume", "tp", "pp", "dp", "ep", "gap", "time_limit",
        "technologies", "objective", "step_limit", "power_limit", "cost_limit", "area_limit", "stack", "heat", "jobs",
        "output", "as_json", "quiet", "help_all", "help",
    ),
}  # fmt: skip
"""Options in the help of a command that has many; --help-all prints the others too."""
_EXAMPLES: Final = "\nExamples:\n"
_ALL, _VERBOSE, FORMAT = "dfopt.help_all", "dfopt.verbose", "dfopt.format"
_Usage: Final[Any] = typer.BadParameter.__bases__[0]


def field_of(option: str) -> tuple[str, FieldDoc] | None:
    """Document field, with its path, that an option of this name sets; None without one."""
    from dfopt.documents.assumptions import Assumptions
    from dfopt.documents.descriptions import fields_of
    from dfopt.documents.names import WORDS
    from dfopt.documents.request import Request

    places, key = {"question.options": Request, "assumptions": Assumptions}, dict(WORDS).get(option, option)
    fields = ((path, field) for path, model in places.items() for field in fields_of(model) if field.name == key)
    return next(((f"{path}.{field.name}", field) for path, field in fields), None)


def help_of(field: FieldDoc, default: object) -> str:
    """Help text of an option from its field: first sentence, default and example."""
    without = re.search(r"None: (.+?)\.$", field.text)
    usual = without[1] if without and field.default == "None" else field.default
    usual = usual if default is None else str(default).lower()
    example = field.example.strip("[]").replace(", ", ",")
    words = [field.summary.rstrip("."), f"default: {usual}", *([f"such as {example}"] if example != usual else [])]
    return "; ".join(words).replace("``", "")


def verbose() -> bool:
    """Whether the running command has the option ``--verbose``."""
    return RUNNING.get(None) is not None and _VERBOSE in RUNNING.get().meta


def _settings() -> dict[str, Any]:
    """What dfopt.toml of the working directory and the environment say of printing, processes and paths."""
    file, settings = Path("dfopt.toml"), dict[str, Any]()
    if file.is_file():
        import tomllib

        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"dfopt.toml: {error}") from None
    for name in settings:
        if name not in SETTINGS:
            expected = f"expected one of {', '.join(SETTINGS)}; a question file has what is asked (dfopt new question)"
            raise typer.BadParameter(f"dfopt.toml: found {name!r}, {expected}")
    environment = {name: os.environ.get(f"DFOPT_{name.upper()}") for name in SETTINGS}
    return settings | {name: value for name, value in environment.items() if value}


def _remember(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    if parameter.metavar and value not in (choices := parameter.metavar.split("|")):
        raise typer.BadParameter(f"found {value!r}, expected one of {', '.join(choices)}")
    if parameter.name == "color" and value != "auto":
        names = ("NO_COLOR", "FORCE_COLOR") if value == "always" else ("FORCE_COLOR", "NO_COLOR")
        os.environ.pop(names[0], None)
        os.environ[names[1]] = "1"
    elif value:
        context.meta[f"dfopt.{parameter.name}"] = value
    if parameter.name == "help_all" and value:
        typer.echo(context.get_help())
        raise typer.Exit
    return value


class Shared:
    """Options of several commands, where a command says nothing else about them.

    Arguments:
        graph (GRAPH): Workload: a zoo name or a file.
        system (SYSTEM): Machine: a zoo name, NAME:CHIPS such as h100:64, a design, or a file.

    Workload and model:
        param (KEY=VALUE): Parameter of the workload, such as layers=4; may be repeated.
        assume (PROFILE|FILE): Assumptions: ideal, calibrated, dfmodel or a file; default: calibrated where the chip is,
            for this phase.
        set_ (--set FIELD=VALUE): Field of the assumptions or of the system, such as network.node.size=4; may be
            repeated.

    Search:
        time_limit (S 0.1..): Seconds for the whole command, such as 300; default: 60.

    Heat:
        stack (STACK): Stack of dies that the chip is: zoo name or file.

    Output:
        as_json (--json): Print the answer as JSON; with -o only the file has it.
        quiet (-q --quiet): Print no progress on stderr.
        detail (plan|kernels|time|memory|decisions|proof|sensitivity|heat|all): Sections of the answer to print in full,
            such as kernels,time; default: a summary.
        force (--force): Overwrite files that dfopt did not write.
        out_dir (DIR): Folder for the files, such as out.
        csv (FILE.csv): Write a row for each cell as CSV.
        parquet (FILE.parquet): Write a row for each cell as Parquet.
        store (FILE): File of record of a study; default: NAME.runs.jsonl.

    Printing:
        format (text|json|csv): Form of the answer; default: text.
        color (auto|always|never): Colors; default: auto, on a terminal.
        verbose (-v --verbose): Say how long it took, and where an error arose.
        help_all (--help-all): Show every option and exit status.
    """


_ADDED: Final = {"format": (str, "text"), "color": (str, "auto"), "verbose": (bool, False), "help_all": (bool, False)}
_COMPLETED: Final[dict[str, tuple[str, ...]]] = {
    "GRAPH": ("graphs",), "SYSTEM": ("systems",), "DESIGN": ("designs",), "STACK": ("stacks",),
    "FILE|NAME": ("graphs", "systems", "chips", "stacks", "technologies", "designs"),
}  # fmt: skip
"""Kinds of the zoo whose names a shell offers, by the word for them in help texts."""


class HelpEntry(NamedTuple):
    """Documentation of an argument or option from a docstring: heading, names, metavar, limits and text."""

    heading: str
    names: tuple[str, ...]
    metavar: str
    least: float | None
    most: float | None
    text: str

    @property
    def kind(self) -> Any:
        """Type of an option that is not a parameter of its function."""
        if self.least is not None:
            return int | None if self.least.is_integer() else float | None
        return bool | None if not self.metavar else list[str] | None if "=" in self.metavar else str | None


def documented(doc: str) -> dict[str, HelpEntry]:
    r"""Arguments and options that a docstring documents, by parameter.

    A line is ``name (-s --long METAVAR 1..9): text``, where all but the name may be missing.

    Examples
    --------
    >>> list(documented("Do.\n\n    Search:\n        top (-k K 1..): Number\n            of answers.").items())
    [('top', HelpEntry(heading='Search', names=('-k',), metavar='K', least=1.0, most=None, text='Number of answers.'))]
    """
    entries: dict[str, HelpEntry] = {}
    for heading, lines in re.findall(r"^ *(\w[\w ]*):\n((?: {8}.*\n?)+)", doc.partition(_EXAMPLES.strip())[0], re.M):
        for name, about, text in re.findall(r"^ {8}(\w+)(?: \((.*?)\))?(?::((?:.|\n {12})*))?$", lines, re.M):
            words = [each for each in about.split() if not re.fullmatch(r"[\d.]+\.\.[\d.]*", each)]
            least, _, most = next((each for each in about.split() if each not in words), "").partition("..")
            names = tuple(word for word in words if word.startswith("-"))
            metavar = " ".join(word for word in words if word not in names)
            bounds = float(least) if least else None, float(most) if most else None
            entries[name] = HelpEntry(heading, names, metavar, *bounds, " ".join(text.split()))
    return entries


def _parameter(name: str, kind: Any, usual: Any, entry: HelpEntry) -> inspect.Parameter:
    """A parameter of a command for typer."""
    words = {entry.metavar, *entry.metavar.split("|")}
    zoo = [kind for word, kinds in _COMPLETED.items() if word in words for kind in kinds]
    shared: dict[str, Any] = {"help": entry.text, "metavar": entry.metavar or None, "autocompletion": _names_in(zoo)}
    shared["show_default"] = "default:" not in entry.text
    if entry.least is not None:
        number = float if kind in (float, float | None) else int
        shared |= {"min": number(entry.least), "max": None if entry.most is None else number(entry.most)}
    names, long = entry.names, f"--{name.strip('_').replace('_', '-')}"
    if not any(each.startswith("--") for each in names):
        names = (*names, f"{long}/--no-{long[2:]}" if kind in (bool, bool | None) else long)
    if entry.heading == "Arguments":
        about: Any = typer.Argument(**shared)
    else:
        callback = _remember if name in _ADDED else None
        about = typer.Option(
            *names, rich_help_panel=entry.heading, callback=callback, is_eager=name == "help_all", **shared
        )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=Annotated[kind, about])


def _names_in(kinds: list[str]) -> Callable[[str], list[str]] | None:
    """Names of the zoo that a shell offers."""

    def complete(incomplete: str) -> list[str]:
        from dfopt.commands import names_of

        return [name for kind in kinds for name in names_of(kind) if name.startswith(incomplete)]

    return complete if kinds else None


def _as_left_out(parameter: Any) -> None:
    """Ask for no check of an option that is left out: to make one takes 0.5 ms, and a solve has seventy options."""
    check = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if value is not None or parameter.required or parameter.callback is not None:
            return check(ctx, value)
        return () if parameter.multiple or parameter.nargs == -1 else None

    parameter.process_value = process_value


class HelpCommand(TyperCommand):
    """Typer command whose help has purpose, examples, and options grouped by use.

    A docstring has a section for each group of options, see `documented`, and ends with ``Examples:``. An option
    without a text of its own has that of a field.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for parameter in self.params:
            _as_left_out(parameter)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Fill parameters missing on the command line from the settings file."""
        return super().make_context(info_name, args, parent, **{**extra, "default_map": _settings()})

    def make_parser(self, ctx: Any) -> Any:
        """Build a parser that also accepts former spellings of options."""
        parser: Any = super().make_parser(ctx)
        for old, now in OPTIONS.get(self.name or "", {}).items():
            (parser._long_opt if old.startswith("--") else parser._short_opt)[old] = parser._long_opt[now]
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, with ``-`` for standard input and ``--format json`` for ``--json``."""
        rest: list[str] = super().parse_args(ctx, ["/dev/stdin" if word == "-" else word for word in args])
        chosen = ctx.meta.get(FORMAT, "text")
        if "as_json" in ctx.params:
            ctx.meta[FORMAT] = "json" if ctx.params["as_json"] and chosen == "text" else chosen
            ctx.params["as_json"] = ctx.meta[FORMAT] != "text"
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command and make it known to output functions."""
        RUNNING.set(ctx)
        return super().invoke(ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the purpose and the examples."""
        purpose, _, examples = (self.help or "").partition(_EXAMPLES)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(purpose)
        if examples:
            with formatter.section("Examples"):
                for line in examples.strip("\n").splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options grouped by use: common ones, or all."""
        usual = None if _ALL in ctx.meta else EVERYDAY.get(self.name or "")
        shown: list[Any] = [each for each in self.get_params(ctx) if each.get_help_record(ctx)]
        everyday = [each for each in shown if usual is None or each.name in usual]
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for parameter in everyday:
            name, text = parameter.get_help_record(ctx)
            heading = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":
                name, heading = name.partition(" <")[0], "Arguments"
            elif not parameter.help and (sets := field_of(str(parameter.name))):
                text = help_of(sets[1], parameter.default)
            groups.setdefault("Printing" if parameter.name == "help" else heading, []).append((name, text))
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records, col_max=26)
        if rare := len(shown) - len(everyday):
            formatter.write_paragraph()
            formatter.write_text(f"{rare} more options: {ctx.command_path} --help-all")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit statuses."""
        formatter.write_paragraph()
        if _ALL in ctx.meta:
            _write_codes(formatter)
        else:
            formatter.write_text("Exit status: 0, or the kind of failure (dfopt --help lists them).")


def _write_codes(formatter: Any) -> None:
    with formatter.section("Exit status"):
        formatter.write_dl([(str(code), text) for code, text in EXIT_CODES.items()])


class HelpGroup(TyperGroup):
    """Typer group whose help lists commands by task, each with an example."""

    def invoke(self, ctx: Any) -> Any:
        """Run the group; error messages escape control characters of the command line."""
        try:
            return super().invoke(ctx)
        except _Usage as error:
            error.message = visible(error.message)
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by task."""
        rest = [name for name in self.list_commands(ctx) if name not in sum(TASKS.values(), ())]
        for title, names in {**TASKS, "Commands" if ctx.parent else "More": tuple(rest)}.items():
            commands = {name: self.commands[name] for name in names if name in self.commands}
            with formatter.section(title) if commands else formatter.indentation():
                for name, command in commands.items():
                    purpose, _, examples = (command.help or "").partition(_EXAMPLES)
                    formatter.write_dl([(f"{name:10}", purpose.strip().split("\n\n")[0].partition(". ")[0])])
                    example = examples.strip("\n").partition("\n")[0].strip()
                    formatter.write(f"{'':{formatter.current_indent + 2}}$ {example}\n" * bool(example))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit statuses of the program."""
        if ctx.parent is None:
            formatter.write_paragraph()
            _write_codes(formatter)


class App(typer.Typer):
    """Typer app whose commands all have the class `Command`."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        """Decorator that registers a function as a command, with the common options."""
        register = super().command(name, **{"cls": HelpCommand, **more})

        def decorate(function: F) -> F:
            signature = inspect.signature(function, eval_str=True)
            own = documented(doc := function.__doc__ or "")
            entries = documented(Shared.__doc__ or "") | own
            parameters = {
                each.name: (each.annotation, each.default)
                for each in signature.parameters.values()
                if each.kind is not inspect.Parameter.VAR_KEYWORD
            }
            listed = {name: (entry.kind, None) for name, entry in own.items() if name not in parameters}
            added = {name: of for name, of in _ADDED.items() if name != "format" or "as_json" in parameters}

            @wraps(function)
            def run(**given: Any) -> Any:
                return function(**{key: value for key, value in given.items() if key not in added})

            run.__signature__ = signature.replace(parameters=[  # type: ignore[attr-defined]
                _parameter(name, kind, usual, entries[name])
                for name, (kind, usual) in sorted(
                    {**parameters, **listed, **added}.items(), key=lambda each: [*own, each[0]].index(each[0])
                )
            ])  # fmt: skip
            purpose, _, examples = inspect.cleandoc(doc).partition(_EXAMPLES)
            run.__doc__ = re.sub(r"\n\w[\w ]*:\n(?: .*\n?)+", "", f"{purpose}\n").strip() + (
                _EXAMPLES + examples if examples else ""
            )
            register(run)
            return function

        return decorate
