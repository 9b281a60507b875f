"""The command plot: pictures of results and sweeps, and traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from dfopt import arguments
from dfopt.cli.common import app, cells_of, echo, errors, what
from dfopt.cli.outputs import check_output
from dfopt.errors import PlanError, refuse

_CELLS: Final = ("--x", "--y", "--by", "--store")
KINDS: Final[dict[str, tuple[str, ...]]] = {  # with the options that each takes
    "plan": (),
    "breakdown": (),
    "step": (),
    "memory": (),
    "partitions": ("--stage",),
    "matrices": ("--stage",),
    "roofline": (),
    "timeline": ("--microbatches",),
    "schedule": ("--microbatches",),
    "progress": (),
    "dataflow": (),
    "temperature": ("--stage",),
    "heat-map": (*_CELLS, "--value"),
    "pareto": _CELLS,
    "trace": ("--microbatches",),
}
_SEVERAL: Final = ("breakdown", "step", "roofline")  # which take several results


@app.command()
def plot(
    sources: list[str], kind: str, output: Path | None = None, x: str | None = None, y: str | None = None,
    value: str | None = None, by: str | None = None, store: Path | None = None, stage: int | None = None,
    microbatches: int | None = None, wide: int = 1280, force: bool = False,
) -> None:  # fmt: skip
    """Draw a result or a sweep as SVG, PNG or PDF, or write a trace for Perfetto.

    Arguments:
        sources (RESULT|STUDY|FRAME.csv|STORE.jsonl): A result or an exploration (several for breakdown, step
            or roofline; a graph for dataflow), or a study, frame or store of a sweep.

    Options:
        kind (KIND): Picture to draw: plan, breakdown, step, memory, partitions, matrices, roofline, timeline, progress,
            dataflow, temperature, heat-map, pareto or trace.
        x (COLUMN): Column across a picture of a sweep, such as system.
        y (COLUMN[,COLUMN...]): Columns down a picture of a sweep, such as batch,tp.
        value (COLUMN): Figure that a heat map shows; default: utilization.
        by (COLUMN): Column with a map, or a colour, for each of its labels, such as graph.
        stage (N 0..): Pipeline stage of partitions, matrices or temperatures; default: 0.
        microbatches (N 1..): Largest number of microbatches in a timeline or trace, such as 8.
        wide (--width PX 300..): Width of the picture on a page in pixels, such as 420 for a phone; default: 1280.

    Output:
        output (-o): File for the picture: .svg, .png or .pdf, or .json for a trace; default: KIND.svg.

    Examples:
        dfopt plot best.json --kind roofline -o roofline.svg
        dfopt plot tp4.json tp8.json --kind breakdown
        dfopt plot study.yaml --kind pareto --by system
    """
    with errors():
        takes = KINDS[arguments.choice("--kind", kind, tuple(KINDS))]
        given = {"--x": x, "--y": y, "--value": value, "--by": by, "--store": store, "--stage": stage,
                 "--microbatches": microbatches}  # fmt: skip
        for name, word in given.items():
            if word is not None and name not in takes:
                of = " or ".join(each for each, options in KINDS.items() if name in options)
                raise PlanError(f"{name}: belongs to --kind {of}, found --kind {kind}; leave it out")
        if len(sources) > 1 and kind not in _SEVERAL:
            raise PlanError(
                f"plot: found {len(sources)} sources, expected one for --kind {kind}; only {' and '.join(_SEVERAL)}"
                " compare"
            )
        target = output or Path("trace.json" if kind == "trace" else f"{kind}.svg")
        check_output("--output", target, (".json",) if kind == "trace" else (".svg", ".png", ".pdf"))
        if kind == "trace":
            from dfopt.show.trace import save_trace

            save_trace(_loaded(sources[0], kind), target, microbatches)
        else:
            from dfopt.show.plots import save, width

            os.environ["MPLBACKEND"] = "Agg"  # into files, also where there is a display
            with width(wide):
                if "--store" in takes:
                    drawn = _of_cells(kind, _cells(sources[0], store), x, y, value, by)
                else:
                    drawn = _of_results(kind, [_loaded(source, kind) for source in sources], stage, microbatches)
            save(drawn, target)
        echo(f"dfopt: wrote {target}", err=True)


def _of_cells(kind: str, runs: Any, x: str | None, y: str | None, value: str | None, by: str | None) -> Any:
    from dfopt.show import plots

    if kind == "pareto":
        from dfopt.show.plots.cells import named, rows_of, scatter_columns

        rows = rows_of(runs)
        across, up = scatter_columns(rows)
        for name, column in (("--x", x), ("--y", y)):
            if column is not None:
                named(rows, column, name, figures=True)
        return plots.pareto(rows, x or across, y or up, by)
    down = y.split(",") if y else None
    if by is not None:
        return plots.heat_maps(runs, by, value or "utilization", x, down)
    return plots.heat_map(runs, value or "utilization", x, down)


def _of_results(kind: str, results: list[Any], stage: int | None, microbatches: int | None) -> Any:
    from dfopt.show import plots

    given = {"stage": stage, "microbatches": microbatches}
    return getattr(plots, kind)(*results, **{name: value for name, value in given.items() if value is not None})


def _loaded(source: str, kind: str) -> Any:
    """A result, or that of the best design of an exploration; of a dataflow also a graph."""
    from dfopt.documents.exploration import Exploration
    from dfopt.documents.graph import Graph
    from dfopt.documents.result import Result
    from dfopt.library import load_any

    document = load_any(source)
    document = document.result if isinstance(document, Exploration) else document
    if not isinstance(document, Result) and not (isinstance(document, Graph) and kind == "dataflow"):
        raise PlanError(
            f"plot: {source}: found {what(document)}, expected a result for --kind {kind}; `dfopt solve -o` writes one"
        )
    return document


def _cells(source: str, store: Path | None) -> Any:
    """The cells of a sweep, from a study with its store, from a store alone, or from a frame as CSV."""
    from dfopt.documents.study import Study
    from dfopt.library import load_any

    suffix = Path(source).suffix.lower()
    if suffix == ".csv":
        if store is not None:
            raise PlanError(f"--store: belongs to a study, found {source!r}; leave it out")
        return _rows(source)
    if suffix != ".jsonl" and not isinstance(document := load_any(source), Study):
        raise PlanError(
            f"plot: {source}: found {what(document)}, expected a sweep: a STUDY with its store, a STORE.jsonl or a"
            " FRAME.csv; `dfopt sweep STUDY --csv FRAME.csv` writes both"
        )
    return cells_of(source, store)


def _rows(path: str) -> list[dict[str, str]]:
    from dfopt.documents.table import read_table

    _, rows = read_table(path, most=500_000_000)
    if not rows:
        refuse(path, "found no rows, expected a frame", "write it with `dfopt sweep --csv`")
    return list(rows)
