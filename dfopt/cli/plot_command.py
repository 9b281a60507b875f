"""The command plot: pictures of results and sweeps, and traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dfopt import arguments
from dfopt.cli.common import app, check_output, errors

KINDS: Final = (
    "roofline", "breakdown", "timeline", "schedule", "progress", "dataflow", "temperature", "heat-map", "pareto",
    "trace",
)  # fmt: skip
_SWEEPS: Final = ("heat-map", "pareto")
_OPTIONS: Final = {  # which kinds take an option
    "--x": _SWEEPS,
    "--y": _SWEEPS,
    "--value": ("heat-map",),
    "--by": _SWEEPS,
    "--store": _SWEEPS,
    "--stage": ("timeline", "temperature"),
    "--microbatches": ("schedule", "trace"),
}


@app.command()
def plot(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT|STUDY|FRAME.csv|STORE.jsonl...",
            help="a result (for a breakdown several, for dataflow also a graph); of a sweep the study, frame or store",
        ),
    ],
    kind: Annotated[str, typer.Option(metavar="|".join(KINDS), help="what to draw")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help=".svg, .png or .pdf, of a trace .json; default: KIND.svg")
    ] = None,
    x: Annotated[str | None, typer.Option(help="of a sweep: the column that runs across")] = None,
    y: Annotated[str | None, typer.Option(metavar="COLUMN[,COLUMN...]", help="of a sweep: what runs down")] = None,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="of a heat map: the figure")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="of a sweep: a map for each label, or what colours tell apart")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="of a study: its file of record; default: NAME.runs.jsonl")
    ] = None,
    stage: Annotated[int | None, typer.Option(help="pipeline stage of a timeline or of temperatures", min=0)] = None,
    microbatches: Annotated[int | None, typer.Option(help="of a schedule or trace, at most", min=1)] = None,
) -> None:
    """Draw a result or a sweep as SVG, PNG or PDF, or write a trace for Perfetto."""
    with errors():
        from dfopt.errors import PlanError

        arguments.choice("--kind", kind, KINDS)
        given = {"--x": x, "--y": y, "--value": value, "--by": by, "--store": store, "--stage": stage,
                 "--microbatches": microbatches}  # fmt: skip
        for option, of in _OPTIONS.items():
            if given[option] is not None and kind not in of:
                raise PlanError(f"{option}: belongs to --kind {' or '.join(of)}, found --kind {kind}; leave it out")
        if len(sources) > 1 and kind != "breakdown":
            raise PlanError(
                f"plot: found {len(sources)} sources, expected one for --kind {kind}; only breakdown compares"
            )
        target = output or Path("trace.json" if kind == "trace" else f"{kind}.svg")
        check_output("--output", target, (".json",) if kind == "trace" else (".svg", ".png", ".pdf"))
        if kind == "trace":
            from dfopt.show.trace import save_trace

            save_trace(_result(sources[0], kind), target, microbatches)
        else:
            from dfopt.show.plots import save

            save(_drawing(kind, sources, x, y, value, by, store, stage, microbatches)(), target)
        typer.echo(f"dfopt: wrote {target}", err=True)


def _drawing(
    kind: str,
    sources: list[str],
    x: str | None,
    y: str | None,
    value: str | None,
    by: str | None,
    store: Path | None,
    stage: int | None,
    microbatches: int | None,
) -> Callable[[], Any]:
    """What draws the picture."""
    from dfopt.show import plots

    _no_windows()
    if kind in _SWEEPS:
        runs = _runs(sources[0], store)
        if kind == "pareto":
            from dfopt.show.plots.cells import named, rows_of, scatter_columns

            rows = rows_of(runs)
            across, up = scatter_columns(rows)
            for option, column in (("--x", x), ("--y", y)):
                if column is not None:
                    named(rows, column, option, figures=True)
            return lambda: plots.pareto(rows, x or across, y or up, by)
        down = y.split(",") if y else None
        if by is not None:
            return lambda: plots.heat_maps(runs, by, value or "utilization", x, down)
        return lambda: plots.heat_map(runs, value or "utilization", x, down)
    if kind == "dataflow":
        return lambda: plots.dataflow(_graph_or_result(sources[0]))
    results = [_result(source, kind) for source in sources]
    one = results[0]
    return {
        "roofline": lambda: plots.roofline(one),
        "breakdown": lambda: plots.latency_breakdown(*results),
        "timeline": lambda: plots.timeline(one, stage=stage or 0),
        "schedule": lambda: plots.schedule(one, microbatches=microbatches),
        "progress": lambda: plots.progress(one),
        "temperature": lambda: plots.stack_temperature(one, stage=stage),
    }[kind]


def _no_windows() -> None:
    """Draw into files, also where there is a display. Where Matplotlib is missing, the picture says so."""
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")


def _result(source: str, kind: str) -> Any:
    from dfopt.documents.result import Result
    from dfopt.errors import PlanError

    found = _graph_or_result(source)
    if not isinstance(found, Result):
        raise PlanError(
            f"plot: {source}: found a graph, expected a result for --kind {kind}; `dfopt solve -o` writes one"
        )
    return found


def _graph_or_result(source: str) -> Any:
    from dfopt.documents.graph import Graph
    from dfopt.documents.result import Result
    from dfopt.errors import PlanError
    from dfopt.library import load_any

    found = load_any(source)
    if not isinstance(found, Graph | Result):
        raise PlanError(f"plot: {source}: found a {_what(found)}, expected a result; `dfopt solve -o` writes one")
    return found


def _what(document: Any) -> str:
    """What a document is called."""
    return str(document.SCHEMA.split("/")[1].replace("heat", "heat report"))


def _runs(source: str, store: Path | None) -> Any:
    """The cells of a sweep, from a study with its store, from a store alone, or from a frame as CSV."""
    from dfopt.errors import PlanError

    suffix = Path(source).suffix.lower()
    if suffix in (".csv", ".jsonl") and store is not None:
        raise PlanError(f"--store: belongs to a study, found {source!r}; leave it out")
    if suffix == ".csv":
        return _rows(source)
    if suffix == ".jsonl":
        from dfopt.studies.listing import listing

        return listing([source], None)
    from dfopt.documents.study import Study
    from dfopt.library import load_any
    from dfopt.studies.sweep import collect

    found = load_any(source)
    if not isinstance(found, Study):
        raise PlanError(
            f"plot: {source}: found a {_what(found)}, expected a sweep: a STUDY with its store, a STORE.jsonl or a"
            " FRAME.csv; `dfopt sweep STUDY --csv FRAME.csv` writes both"
        )
    path = store or Path(f"{Path(source).stem}.runs.jsonl")
    return collect(source, path)


def _rows(path: str) -> list[dict[str, str]]:
    import csv

    from dfopt.errors import DocumentError, Issue

    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        said = getattr(error, "strerror", None) or str(error)
        remedy = "name a frame that `dfopt sweep --csv` wrote"
        raise DocumentError(path, [Issue("$", f"cannot be read: {said}", remedy)]) from None
    if not rows or any(None in row or None in row.values() for row in rows):
        message = "found no rows" if not rows else "found rows of different lengths"
        raise DocumentError(path, [Issue("$", f"{message}, expected a frame", "write it with `dfopt sweep --csv`")])
    return rows
