"""The command report: a result, answers to heat, an exploration or a sweep as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfopt import __version__
from dfopt.cli.common import app, cells_of, echo, errors, store_of, what
from dfopt.cli.outputs import check_output
from dfopt.errors import PlanError

if TYPE_CHECKING:
    from dfopt.documents.result import Result
    from dfopt.documents.study import Study
    from dfopt.documents.zoo import ZooKind
    from dfopt.show.report import Remark
    from dfopt.show.report.page import PagePart
    from dfopt.studies.runs import Runs


@app.command()
def report(
    source: str, output: Path = Path("report.html"), store: Path | None = None, value: str | None = None,
    x: str | None = None, y: str | None = None, by: str | None = None, force: bool = False,
) -> None:  # fmt: skip
    """Write a result, answers to heat, an exploration or a sweep as one page, which needs no network.

    Arguments:
        source (RESULT|HEAT|EXPLORATION|STUDY|STORE.jsonl): Result of solve, heat or explore, or the study or store of
            a sweep.

    Options:
        value (COLUMN): Figure in the heat map of a sweep; default: utilization.
        x (COLUMN): Column across the scatter plot of a sweep, such as price_usd.
        y (COLUMN): Column up the scatter plot of a sweep, such as tokens_per_s.
        by (COLUMN): Column with a front for each of its labels, such as graph.

    Output:
        output (-o FILE.html): File for the page; default: report.html.

    Examples:
        dfopt report best.json
        dfopt report best.json -o best.html --force
        dfopt report study.yaml --value utilization
    """
    with errors():
        from dfopt.documents.files import write_text

        check_output("--output", output, (".html", ".htm"))
        write_text(output, _page(source, store, {"value": value, "x": x, "y": y, "by": by}))
        echo(f"dfopt: wrote {output}", err=True)


def _page(source: str, store: Path | None, columns: dict[str, Any]) -> str:
    from dfopt.documents.exploration import Exploration
    from dfopt.documents.heat import HeatReport
    from dfopt.documents.result import Result
    from dfopt.documents.study import Study
    from dfopt.library import load_any
    from dfopt.show.report import designs_section, heat_page, sweep_report

    suffix = Path(source).suffix.lower()
    if suffix == ".jsonl":
        notes = [
            "A store has the figures of cells only; report the study with --store for its claims, prices and inputs."
        ]
        cells = cells_of(source, store)
        return sweep_report(Path(source).name, cells, notes=notes, version=__version__, **columns)
    if suffix in (".csv", ".parquet"):
        draws = f"`dfopt plot {source} --kind pareto` draws it, and " if suffix == ".csv" else ""
        raise PlanError(
            f"report: {source}: found the frame of a sweep, expected a result, a heat report, an exploration, a study"
            f" or a store of runs; {draws}`dfopt report STORE.jsonl` or `dfopt report STUDY` reports the sweep"
        )
    document = load_any(source)
    if isinstance(document, Study):
        return _study_page(document, cells_of(source, store), store_of(source, store), columns)
    if not isinstance(document, Result | HeatReport | Exploration):
        raise PlanError(
            f"report: {source}: found {what(document)}, expected a result, a heat report, an exploration, a study or a"
            " store of runs; `dfopt solve -o` writes a result"
        )
    for name, given in {"store": store, **columns}.items():
        if given is not None:
            raise PlanError(f"--{name}: belongs to a sweep, found {what(document)}, {source!r}; leave it out")
    if isinstance(document, Exploration):
        return _result_page(document.result, [designs_section(document)])
    return _result_page(document) if isinstance(document, Result) else heat_page(document, __version__)


def _result_page(result: Result, before: Sequence[PagePart] = ()) -> str:
    from dfopt.documents.zoo import zoo
    from dfopt.show.report import remarks, result_report

    name = result.system.name
    designed = name in zoo("designs") and name not in zoo("systems")  # the system of a design has its name
    used: list[tuple[ZooKind, Any]] = [("graphs", result.graph), ("designs" if designed else "systems", result.system)]
    used += [("stacks", result.system.stack)] if result.system.stack is not None else []
    listed = dict.fromkeys(remark for kind, document in used for remark in remarks(kind, document.name))
    return result_report(result, list(listed), [_origin(kind, document) for kind, document in used], before=before)


def _origin(kind: ZooKind, used: Any) -> str:
    """Whether an input is that of the zoo, and what can therefore be said of its numbers."""
    from dfopt.documents.zoo import singular, zoo
    from dfopt.library import load_any, load_system
    from dfopt.machines.designs import load_design

    it, name = singular(kind), used.name
    if name not in zoo(kind):
        return (
            f"The {it} {name} is not of the zoo. Remarks in its file are lost when it is read, so that this report"
            " cannot know which of its numbers are unconfirmed; its own words are under its source."
        )
    if kind == "designs" and load_design(name).chosen:  # many systems, of which an exploration chose one
        return (
            f"The {it} calls itself {name}, as one of the zoo does whose sizes are to be chosen. Remarks above may be"
            " about numbers that it does not use, and of others nothing is known."
        )
    own = load_system(f"{kind}/{name}") if kind == "designs" else load_any(f"{kind}/{name}")
    if own.digest() == used.digest():
        return f"The {it} is {name} of the zoo, unchanged: its file has no other such remarks than those above."
    return (
        f"The {it} calls itself {name}, as one of the zoo does, but is not equal to it: parameters or fields were"
        " changed. Remarks above may be about numbers that it does not use, and of changed ones nothing is known."
    )


def _study_page(study: Study, runs: Runs, store: Path, columns: dict[str, Any]) -> str:
    from dfopt.show.report import sweep_report

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
        study.name, runs, about=[fact for fact in about if fact[1]], claims=runs.claims(), remarks=remarks,
        notes=[*runs.notes, *notes], version=__version__, **columns,
    )  # fmt: skip


def _of_study(study: Study) -> tuple[list[Remark], list[str]]:
    """What the zoo's files say of the inputs that a study names, and what cannot be known."""
    from dfopt.documents.zoo import zoo
    from dfopt.show.report import remarks

    names = dict.fromkeys(_names(study))
    listed = dict.fromkeys(remark for kind, name in names for remark in remarks(kind, name))
    unknown = [name for kind, name in names if name not in zoo(kind)]
    notes = ["Where the study replaces fields or parameters, remarks above may be about numbers that it does not use."]
    if unknown:
        notes.append(
            f"Not of the zoo, so that nothing is known of their numbers: {', '.join(unknown[:20])}"
            + (f" and {len(unknown) - 20} more." if len(unknown) > 20 else ".")
        )
    return list(listed), notes


def _names(study: Study) -> Iterator[tuple[ZooKind, str]]:
    """Every name of the zoo, or path, that a study mentions."""
    from dfopt.documents.study_entries import SystemEntry

    shelves: tuple[ZooKind, ...] = ("chips", "memories", "stacks", "links", "topologies")
    for entry in study.graphs:
        yield "graphs", entry.graph
    for system in study.systems:
        if isinstance(system, SystemEntry):
            shelf, _, name = system.system.rpartition("/")  # designs/NAME is of another shelf
            yield ("designs", name) if shelf == "designs" else ("systems", system.system)
            continue
        for kind in shelves:
            for choice in getattr(system, kind):
                used = choice if isinstance(choice, str) else choice.use
                for part in used if isinstance(used, tuple) else (used,):
                    name = part if isinstance(part, str) else part.get("part")
                    if isinstance(name, str):
                        yield kind, name
