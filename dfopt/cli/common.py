"""What the commands share: the app, common options, errors as messages, output, graphs and assumptions from words."""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfopt import arguments
from dfopt.cli.help import FORMAT, RUNNING, App, Group, verbose
from dfopt.errors import visible
from dfopt.interrupts import FIRST_AFTER, LIMIT, cause, exit_code, process_start, seconds_since_start, wall_limit

if TYPE_CHECKING:
    from dfopt.documents.assumptions import Assumptions
    from dfopt.documents.base import Document
    from dfopt.documents.calibration import Calibration
    from dfopt.documents.system import System
    from dfopt.machines.calibrations import Assumed


def echo(text: str, err: bool = False) -> None:
    """Print a line, in which names can do nothing to a terminal."""
    typer.echo(visible(text), err=err)


app = App(
    cls=Group,
    name="dfopt",
    help="Find, prove and judge the fastest mapping of a workload graph onto a system of chips.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
importer = App(
    cls=Group, rich_markup_mode=None, help="Turn other tools' files into dfopt documents.", no_args_is_help=True
)
app.add_typer(importer, name="import")


def option(said: str, *names: str, **more: Any) -> Any:
    """An option: what its help says, its names if they are not that of the parameter, and what else typer takes."""
    return typer.Option(*names, help=said, **more)


def under(group: str, said: str, *names: str, **more: Any) -> Any:
    """An option under a heading of the help."""
    return option(said, *names, rich_help_panel=group, **more)


def argument(metavar: str, said: str, complete: Callable[[str], list[str]] | None = None) -> Any:
    """An argument: what it is called, what the help says, and the words with which a shell completes it."""
    return typer.Argument(metavar=metavar, help=said, autocompletion=complete)


def names_in(*kinds: str) -> Callable[[str], list[str]]:
    """Names of the zoo that a shell offers."""

    def complete(incomplete: str) -> list[str]:
        from dfopt.commands import names_of

        return [name for kind in kinds for name in names_of(kind) if name.startswith(incomplete)]

    return complete


WORKLOAD, MACHINE, PARALLEL, BY_HAND = "Workload and model", "Machine", "Parallelism", "Fixed by hand"
SEARCH, HEAT, OUTPUT = "Search", "Heat", "Output"
GraphArg = Annotated[str, argument("GRAPH", "Workload: a zoo name or a file.", names_in("graphs"))]
SystemArg = Annotated[
    str,
    argument("SYSTEM", "Machine: a zoo name, NAME:CHIPS such as h100:64, a design, or a file.", names_in("systems")),
]
JsonFlag = Annotated[bool, under(OUTPUT, "Print the answer as JSON; with -o only the file has it.", "--json")]
QuietFlag = Annotated[bool, under(OUTPUT, "Print no progress on stderr.", "-q", "--quiet")]
DetailOpt = Annotated[
    str | None,
    under(
        OUTPUT,
        "Sections of the answer to print in full, such as kernels,time; default: a summary.",
        "--detail",
        metavar="plan|kernels|time|memory|decisions|proof|sensitivity|heat|all",
    ),
]
ParamOpt = Annotated[
    list[str] | None,
    under(WORKLOAD, "Parameter of the workload, such as layers=4; may be repeated.", "--param", metavar="KEY=VALUE"),
]
AssumeOpt = Annotated[
    str | None,
    under(
        WORKLOAD,
        "Assumptions: ideal, calibrated, dfmodel or a file; default: calibrated where the chip is, for this phase.",
        "--assume",
        metavar="PROFILE|FILE",
    ),
]
SetOpt = Annotated[
    list[str] | None,
    under(
        WORKLOAD,
        "Field of the assumptions or of the system, such as network.node.size=4; may be repeated.",
        "--set",
        metavar="FIELD=VALUE",
    ),
]
PlaceOpt = Annotated[
    list[str] | None,
    under(BY_HAND, "Memory of a kind of data, such as experts=DDR; may be repeated.", metavar="ITEM=MEMORY"),
]
StackOpt = Annotated[
    str | None, under(HEAT, "Stack of dies that the chip is: zoo name or file.", "--stack", metavar="STACK")
]
TensorOverlapOpt = Annotated[str | None, under(PARALLEL, "", metavar="none|ring|pipe|any")]
GradientOverlapOpt = Annotated[str | None, under(PARALLEL, "", metavar="none|backward|any")]
ParameterOverlapOpt = Annotated[str | None, under(PARALLEL, "", metavar="none|forward|any")]
SendingOverlapOpt = Annotated[str | None, under(PARALLEL, "", metavar="none|interleaved|any")]
OffloadOpt = Annotated[str | None, under(SEARCH, "", metavar="optimizer|weights|activations|gradients[,...]|any")]
StoreOpt = Annotated[Path | None, under(OUTPUT, "File of record of a study; default: NAME.runs.jsonl.", metavar="FILE")]
TimeLimitOpt = Annotated[float, under(SEARCH, "Seconds for the whole command, such as 300; default: 60.", min=0.1)]


@contextmanager
def errors(interrupted: str = "", time_limit: float | None = None) -> Iterator[None]:
    """Turn dfopt's errors into one message on stderr and the right exit code; of an interrupt also what it cut short.

    ``time_limit``: seconds of wall time from the start of the process, after which the command is interrupted too.
    """
    from dfopt.errors import DfoptError

    try:
        with wall_limit(time_limit, process_start()):
            yield
        if verbose():
            echo(f"dfopt: {seconds_since_start():.2f} s", err=True)
    except DfoptError as error:
        sys.stdout.flush()
        if verbose():
            traceback.print_exc()
        echo(f"dfopt: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        said = f"interrupted{interrupted}"
        if cause() == LIMIT:
            enough = FIRST_AFTER * seconds_since_start()
            said = f"the time limit came{interrupted or ' before the end'}; --time-limit {enough:.0f} may suffice"
        echo(f"dfopt: {said}", err=True)
        raise typer.Exit(exit_code()) from None
    except BrokenPipeError:  # the reader of our output went away, such as `| head`
        sys.stderr.close()
        raise typer.Exit(0) from None


def detail_of(words: str | None) -> tuple[str, ...]:
    """Sections of an answer that ``--detail`` names."""
    from dfopt.errors import PlanError, did_you_mean
    from dfopt.show.details import DETAILS

    names = tuple(filter(None, (word.strip() for word in (words or "").split(","))))
    for name in names:
        if name not in DETAILS:
            raise PlanError(f"--detail: found {name!r} ({did_you_mean(name, DETAILS, ', '.join(DETAILS))})")
    return names


def emit(as_json: bool, data: Document | Callable[[], Any], report: Callable[[], Any], plain_width: int = 140) -> None:
    """Print data as JSON or CSV, or else a report; a pipe gets as many columns as said.

    JSON that a file of ``--output`` has already is not printed once more.
    """
    chosen = RUNNING.get().meta[FORMAT] if as_json else "text"
    if chosen == "csv":
        from dfopt.cli.csv_rows import write_rows

        write_rows(data() if callable(data) else data)
        return
    if chosen == "json":
        if RUNNING.get().params.get("output") is not None:
            return  # the file has it
        if callable(data):
            json.dump(data(), sys.stdout, indent=1, allow_nan=False)
            sys.stdout.write("\n")
        else:
            from dfopt.documents.records import json_text

            sys.stdout.writelines(json_text(data, ascii_only=True))
        return
    from dfopt.show.grid import print_to

    print_to(sys.stdout, report(), plain_width)


def graph_of(name: str, params: list[str] | None, batch: int | None = None, **given: Any) -> Any:
    """A graph of the zoo or a file, with workload parameters from the command line."""
    from dfopt.workloads import load_graph

    return load_graph(name, **arguments.values(params, "--param"), **arguments.given({"batch": batch, **given}))


def assumptions_of(name: str, changes: list[str] | None, own: Assumptions | None = None) -> Assumptions:
    """A profile or a file, or else the ``own`` assumptions of a result; with some fields changed."""
    from dfopt.documents.assumptions import PROFILES, Assumptions, profile
    from dfopt.documents.zoo import is_path

    of_name = profile if name in PROFILES or not is_path(name) else Assumptions.load
    chosen = own if own is not None else of_name(name)
    return chosen.changed(arguments.values(changes, "--set"), "--set")


def assumed_by(name: str | Calibration, changes: list[str] | None, system: System) -> Assumed:
    """What a profile, a file or a calibration says, with some fields changed, and the system as it is about it.

    Fields of the system, such as ``network.cluster.size``, are changed before.
    """
    from dfopt.documents.system import System
    from dfopt.machines.calibrations import assumed_on
    from dfopt.machines.replace import replaced

    said = arguments.values(changes, "--set")
    of_system = {path: value for path, value in said.items() if re.split(r"[.\[]", path)[0] in System.model_fields}
    if of_system:
        data = replaced(system.to_data(), of_system, "--set")
        told = ", ".join(f"{path}={value}" for path, value in of_system.items())
        data["description"] = f"{system.description or system.name} (changed: {told})"
        system = System.from_data(data, "--set")
    found = assumed_on(name, system)
    rest = {path: value for path, value in said.items() if path not in of_system}
    return found._replace(assumptions=found.assumptions.changed(rest, "--set"))


def store_of(study: str, store: Path | None, share: str = "") -> Path:
    """The file of record of a study, or of a share of it: in the working directory unless it is named."""
    return store or Path(f"{Path(study).stem}.runs{share and f'.{share}'}.jsonl")


def cells_of(source: str, store: Path | None) -> Any:
    """The cells of a sweep: runs of a study with its store, or the frame of a store alone."""
    if Path(source).suffix.lower() != ".jsonl":
        from dfopt.studies.sweep import collect

        return collect(source, store_of(source, store))
    from dfopt.errors import PlanError
    from dfopt.studies.listing import listing

    if store is not None:
        raise PlanError(f"--store: belongs to a study, found {source!r}; leave it out")
    return listing([source])


def what(document: Any) -> str:
    """What a document is called."""
    return str(document.SCHEMA.split("/")[1].replace("heat", "heat report"))


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, option("print the version and leave", "--version")] = False) -> None:
    """Find, prove and judge the fastest mapping of a workload graph onto a system of chips."""
    if version:
        from dfopt import __version__

        echo(f"dfopt {__version__}")
        raise typer.Exit
