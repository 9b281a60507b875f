"""The command report: a result, answers to heat or a sweep as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfopt.cli.common import app, check_output, errors

if TYPE_CHECKING:
    from dfopt.documents.heat import HeatReport
    from dfopt.documents.result import Result
    from dfopt.documents.study import Study
    from dfopt.documents.zoo import Kind
    from dfopt.show.report import Remark


@app.command()
def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RESULT|HEAT|STUDY|STORE.jsonl",
            help="a result, or what heat -o wrote; of a sweep the study or store",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="the file to write")] = Path(
        "report.html"
    ),
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="of a study: its file of record; default: NAME.runs.jsonl")
    ] = None,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="of a sweep: what its heat map shows")] = None,
    x: Annotated[str | None, typer.Option(metavar="COLUMN", help="of a sweep: across the scatter")] = None,
    y: Annotated[str | None, typer.Option(metavar="COLUMN", help="of a sweep: up the scatter")] = None,
) -> None:
    """Write a result, answers to heat or a sweep as one HTML file that needs no network."""
    with errors():
        from dfopt.documents.files import write_text

        check_output("--output", output, (".html", ".htm"))
        options = {"--store": store, "--value": value, "--x": x, "--y": y}
        page = _page(source, options)
        write_text(output, page)
        typer.echo(f"dfopt: wrote {output}", err=True)


def _page(source: str, options: dict[str, Any]) -> str:
    from dfopt.documents.heat import HeatReport
    from dfopt.documents.result import Result
    from dfopt.documents.study import Study
    from dfopt.errors import PlanError
    from dfopt.library import load_any

    if Path(source).suffix.lower() == ".jsonl":
        if options["--store"] is not None:
            raise PlanError(f"--store: belongs to a study, found {source!r}; leave it out")
        return _store_page(source, options)
    if Path(source).suffix.lower() in (".csv", ".parquet"):
        draws = f"`dfopt plot {source} --kind pareto` draws it, and " if source.lower().endswith(".csv") else ""
        raise PlanError(
            f"report: {source}: found the frame of a sweep, expected a result, a heat report, a study or a store of"
            f" runs; {draws}`dfopt report STORE.jsonl` or `dfopt report STUDY` reports the sweep"
        )
    found = load_any(source)
    if isinstance(found, Result | HeatReport):
        what = "result" if isinstance(found, Result) else "heat report"
        for option, given in options.items():
            if given is not None:
                raise PlanError(f"{option}: belongs to a sweep, found the {what} {source!r}; leave it out")
        return _result_page(found) if isinstance(found, Result) else _heat_page(found)
    if isinstance(found, Study):
        return _study_page(source, found, options)
    raise PlanError(
        f"report: {source}: found a {found.SCHEMA.split('/')[1]}, expected a result, a heat report, a study or a"
        " store of runs; `dfopt solve -o` writes a result"
    )


def _heat_page(report: HeatReport) -> str:
    from dfopt import __version__
    from dfopt.show.report import heat_page

    return heat_page(report, __version__)


def _result_page(result: Result) -> str:
    from dfopt.show.report import remarks, result_report

    found, notes = list(remarks("graphs", result.graph.name)), []
    notes.append(_origin("graph", "graphs", result.graph.name, result.graph))
    found += remarks("systems", result.system.name)
    notes.append(_origin("system", "systems", result.system.name, result.system))
    stack = result.system.stack
    if stack is not None:
        known = {one.file for one in found}
        found += [one for one in remarks("stacks", stack.name) if one.file not in known]
        notes.append(_origin("stack", "stacks", stack.name, stack))
    return result_report(result, found, notes)


def _origin(what: str, kind: Kind, name: str, used: Any) -> str:
    """Whether an input is that of the zoo, and what can therefore be said of its numbers."""
    from dfopt.documents.zoo import zoo
    from dfopt.machines.compose import load_system
    from dfopt.machines.stacks import load_stack
    from dfopt.workloads import load_graph

    if name not in zoo(kind):
        return (
            f"The {what} {name} is not of the zoo. Remarks in its file are lost when it is read, so that this report"
            " cannot know which of its numbers are unconfirmed; its own words are under its source."
        )
    loaders: dict[str, Any] = {"graphs": load_graph, "systems": load_system, "stacks": load_stack}
    if loaders[kind](name).digest() == used.digest():
        return f"The {what} is {name} of the zoo, unchanged: its file has no other such remarks than those above."
    return (
        f"The {what} calls itself {name}, as one of the zoo does, but is not equal to it: parameters or fields were"
        " changed. Remarks above may be about numbers that it does not use, and of changed ones nothing is known."
    )


def _study_page(path: str, study: Study, options: dict[str, Any]) -> str:
    from dfopt import __version__
    from dfopt.show.report import sweep_report
    from dfopt.studies.sweep import collect

    store = options["--store"] or Path(f"{Path(path).stem}.runs.jsonl")
    runs = collect(path, store)
    listed = {
        "graph": [entry.name for entry in study.graphs],
        "profile of assumptions": [entry.name for entry in study.assumptions],
        **{name: [str(point.label) for point in points] for name, points in study.axes.items()},
        **{name: [str(value) for value in values] for name, values in study.parameters.items()},
        "limits": [entry.name for entry in study.limits],
    }
    about = [
        ("study", study.name), ("description", study.description), ("source", study.source),
        *((name, ", ".join(labels)) for name, labels in listed.items()),
        *(("left out", f"{rule.drop}{': ' * bool(rule.because)}{rule.because}") for rule in study.filters),
        ("seed", str(study.seed)), ("digest of the study", study.digest()), ("store", str(store)),
    ]  # fmt: skip
    remarks, notes = _of_study(study)
    return sweep_report(
        study.name, runs, about=[one for one in about if one[1]], claims=runs.claims(), remarks=remarks,
        notes=[*runs.notes, *notes], value=options["--value"], x=options["--x"], y=options["--y"], version=__version__,
    )  # fmt: skip


def _of_study(study: Study) -> tuple[list[Remark], list[str]]:
    """What the zoo's files say of the inputs that a study names, and what cannot be known."""
    from dfopt.documents.zoo import zoo
    from dfopt.show.report import remarks

    found: dict[tuple[str, int], Remark] = {}
    unknown = []
    for kind, name in dict.fromkeys(_names(study)):
        if name not in zoo(kind):
            unknown.append(name)
        for one in remarks(kind, name):
            found.setdefault((one.file, one.number), one)
    notes = ["Where the study replaces fields or parameters, remarks above may be about numbers that it does not use."]
    if unknown:
        notes.append(
            f"Not of the zoo, so that nothing is known of their numbers: {', '.join(unknown[:20])}"
            + (f" and {len(unknown) - 20} more." if len(unknown) > 20 else ".")
        )
    return list(found.values()), notes


def _names(study: Study) -> Iterator[tuple[Kind, str]]:
    """Every name of the zoo, or path, that a study mentions."""
    from dfopt.documents.study import PartsEntry

    for entry in study.graphs:
        yield "graphs", entry.graph
    for system in study.systems:
        if not isinstance(system, PartsEntry):
            yield "systems", system.system
            continue
        shelves: tuple[tuple[Kind, Any], ...] = (
            ("chips", system.chips), ("memories", system.memories), ("stacks", system.stacks), ("links", system.links),
            ("topologies", system.topologies),
        )  # fmt: skip
        for kind, choices in shelves:
            for choice in choices:
                used = choice if isinstance(choice, str) else choice.use
                for one in used if isinstance(used, tuple) else (used,):
                    name = one if isinstance(one, str) else one.get("part")
                    if isinstance(name, str):
                        yield kind, name


def _store_page(path: str, options: dict[str, Any]) -> str:
    from dfopt import __version__
    from dfopt.show.report import sweep_report
    from dfopt.studies.listing import listing

    notes = ["A store has the figures of cells only; report the study with --store for its claims, prices and inputs."]
    return sweep_report(
        Path(path).name, listing([path], None), notes=notes, value=options["--value"], x=options["--x"],
        y=options["--y"], version=__version__,
    )  # fmt: skip
