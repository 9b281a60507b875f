"""What the commands share: the app, common options, errors as messages, output, graphs and assumptions from words."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfopt import arguments
from dfopt.cli.help import FORMAT, RUNNING, App, HelpGroup, verbose
from dfopt.documents.uncollected import uncollected
from dfopt.errors import DfoptError, PlanError, did_you_mean, visible
from dfopt.interrupts import FIRST_AFTER, LIMIT, cause, exit_code, process_start, seconds_since_start, wall_limit

if TYPE_CHECKING:
    from dfopt.documents.assumptions import Assumptions
    from dfopt.documents.base import Document
    from dfopt.documents.calibration import Calibration
    from dfopt.documents.score import Score
    from dfopt.documents.system import System
    from dfopt.machines.calibrations import Assumed


LIMIT_BROKEN = 7
"""Exit status when a stack of dies is too hot, draws too much power, or is too small."""
UNPROVEN = 8
"""Exit status of an answer whose gap is above what was asked for, where a proof is required."""


def echo(text: str, err: bool = False) -> None:
    """Print a line with control characters escaped."""
    typer.echo(visible(text), err=err)


app = App(
    cls=HelpGroup,
    name="dfopt",
    help="Find, prove and judge the fastest mapping of a workload graph onto a system of chips.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
importer = App(
    cls=HelpGroup, rich_markup_mode=None, help="Turn other tools' files into dfopt documents.", no_args_is_help=True
)
app.add_typer(importer, name="import")


@contextmanager
def importing() -> Iterator[None]:
    """Context manager that suspends the garbage collector during imports, and excludes imported modules from it.

    The collector of Python goes over all modules several times while they are made, and once more in every search:
    of a second of imports that took 0.15 s.
    """
    with uncollected():
        before = len(sys.modules)
        yield
        if len(sys.modules) > before:
            gc.freeze()


@contextmanager
def errors(interrupted: str = "", time_limit: float | None = None) -> Iterator[None]:
    """Context manager that turns dfopt's errors into a message on stderr and an exit code.

    ``time_limit``: seconds of wall time from the start of the process, after which the command is interrupted too.
    """
    try:
        with wall_limit(time_limit, process_start()):
            yield
        if verbose():
            echo(f"dfopt: {seconds_since_start():.2f} s", err=True)
    except DfoptError as error:
        sys.stdout.flush()
        if verbose():
            import traceback

            traceback.print_exc()
        echo(f"dfopt: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        message = f"interrupted{interrupted}"
        if cause() == LIMIT:
            enough = FIRST_AFTER * seconds_since_start()
            message = f"the time limit came{interrupted or ' before the end'}; --time-limit {enough:.0f} may suffice"
        echo(f"dfopt: {message}", err=True)
        raise typer.Exit(exit_code()) from None
    except BrokenPipeError:  # the reader of our output went away, such as `| head`
        sys.stderr.close()
        raise typer.Exit(0) from None


def detail_of(words: str | None) -> tuple[str, ...]:
    """Sections that ``--detail`` names."""
    from dfopt.show.details import DETAILS

    names = tuple(filter(None, (word.strip() for word in (words or "").split(","))))
    for name in names:
        if name not in DETAILS:
            raise PlanError(f"--detail: found {name!r} ({did_you_mean(name, DETAILS, ', '.join(DETAILS))})")
    return names


def end_by(scores: Sequence[Score], proven: bool = True) -> None:
    """Exit with the status for broken limits or a missing proof, after the answer is printed."""
    if any(score.physical is not None and score.physical.violations for score in scores):
        raise typer.Exit(LIMIT_BROKEN)
    if not proven:
        raise typer.Exit(UNPROVEN)


def emit(
    as_json: bool,
    data: Document | Callable[[], Any],
    report: Callable[[], Any],
    plain_width: int = 140,
    files: Iterable[tuple[Path | None, Callable[[Path], object]]] = (),
) -> None:
    """Write the files of an answer and print it, even if a file fails.

    Parameters
    ----------
    as_json : bool
        Whether it is printed as JSON or CSV. JSON that a file of ``--output`` has already is not printed once more.
    data : Document, or callable
        Document to print then, or function that makes it.
    report : callable
        Function that makes the report to print otherwise.
    plain_width : int
        Columns of a report for a pipe.
    files : iterable
        Paths that were asked for, or None, each with what writes that file.
    """
    try:
        for path, write in files:
            if path is not None:
                write(path)
    finally:
        _print(as_json, data, report, plain_width)


def _print(as_json: bool, data: Document | Callable[[], Any], report: Callable[[], Any], plain_width: int) -> None:
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


def assumptions_of(name: str, changes: list[str] | None, own: Assumptions | None = None) -> Assumptions:
    """Assumptions of a profile or file, or the given ``own`` ones, with some fields changed."""
    from dfopt.documents.assumptions import PROFILES, Assumptions, profile
    from dfopt.documents.zoo import is_path

    of_name = profile if name in PROFILES or not is_path(name) else Assumptions.load
    chosen = own if own is not None else of_name(name)
    return chosen.changed(arguments.values(changes, "--set"), "--set")


def assumed_by(name: str | Calibration, changes: list[str] | None, system: System) -> Assumed:
    """Assumptions of a profile, file or calibration with some fields changed, and the system under them.

    Fields of the system, such as ``network.cluster.size``, are changed before.
    """
    from dfopt.documents.question import Question
    from dfopt.machines.calibrations import assumed_on
    from dfopt.questions import Resolver

    changed, rest = Resolver().machine(Question(system=system, set=arguments.values(changes, "--set")))
    assumed = assumed_on(name, changed)
    return assumed._replace(assumptions=assumed.assumptions.changed(rest, "--set"))


def store_of(study: str, store: Path | None, share: str = "") -> Path:
    """Path of the store of a study or share; by default in the working directory."""
    return store or Path(f"{Path(study).stem}.runs{share and f'.{share}'}.jsonl")


def cells_of(source: str, store: Path | None) -> Any:
    """Cells of a sweep: the runs of a study with its store, or the data frame of a store alone."""
    if Path(source).suffix.lower() != ".jsonl":
        from dfopt.studies.sweep import collect

        return collect(source, store_of(source, store))
    from dfopt.studies.listing import listing

    if store is not None:
        raise PlanError(f"--store: belongs to a study, found {source!r}; leave it out")
    return listing([source])


def what(document: Any) -> str:
    """Kind of a document in words, with its article."""
    noun = str(document.SCHEMA.split("/")[1].replace("heat", "heat report"))
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    """Find, prove and judge the fastest mapping of a workload graph onto a system of chips."""
    if version:
        from dfopt import __version__

        echo(f"dfopt {__version__}")
        raise typer.Exit
