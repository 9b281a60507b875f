"""The command line: parse, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from dfopt import arguments

app = typer.Typer(
    name="dfopt",
    help="Find, prove and judge the fastest mapping of a workload graph onto a system of chips.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
importer = typer.Typer(help="Turn other tools' files into dfopt documents.", no_args_is_help=True)
app.add_typer(importer, name="import")

GraphArg = Annotated[str, typer.Argument(metavar="GRAPH", help="zoo name or file")]
SystemArg = Annotated[str, typer.Argument(metavar="SYSTEM", help="zoo name or file")]
JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON to stdout, nothing else")]
ParamOpt = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=VALUE", help="workload parameter, such as mode=training"),
]
AssumeOpt = Annotated[str, typer.Option("--assume", metavar="PROFILE|FILE", help="assumptions: a profile or a file")]
SetOpt = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="change one assumption")]


@contextmanager
def _errors() -> Iterator[None]:
    """Turn dfopt's errors into one message on stderr and the right exit code."""
    from dfopt.errors import DfoptError

    try:
        yield
    except DfoptError as error:
        sys.stdout.flush()
        typer.echo(f"dfopt: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("dfopt: interrupted before the first mapping was found", err=True)
        raise typer.Exit(5) from None
    except BrokenPipeError:  # the reader of our output went away, such as `| head`
        sys.stderr.close()
        raise typer.Exit(0) from None


def _emit(as_json: bool, data: Callable[[], Any], report: Callable[[], Any]) -> None:
    if as_json:
        json.dump(data(), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return
    from dfopt.show.tables import print_to

    print_to(sys.stdout, report())


def _graph(name: str, params: list[str] | None, batch: int | None = None) -> Any:
    from dfopt.workloads import load_graph

    overrides = arguments.values(params, "--param")
    if batch is not None:
        overrides["batch"] = batch
    return load_graph(name, **overrides)


def _assumptions(name: str, changes: list[str] | None, own: Any = None) -> Any:
    """A profile or a file, or else the ``own`` assumptions of a result; with some fields changed."""
    from dfopt.documents.assumptions import Assumptions, profile
    from dfopt.documents.zoo import is_path

    chosen = own if own is not None else Assumptions.load(name) if is_path(name) else profile(name)
    if changes:
        data = {**chosen.to_data(), **arguments.values(changes, "--set"), "profile": f"{chosen.profile} (changed)"}
        chosen = Assumptions.from_data(data, path="--set")
    return chosen


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="print the version and leave")] = False,
) -> None:
    """Find, prove and judge the fastest mapping of a workload graph onto a system of chips."""
    if version:
        from dfopt import __version__

        typer.echo(f"dfopt {__version__}")
        raise typer.Exit


@app.command("list")
def list_zoo(
    kind: Annotated[str, typer.Argument(metavar="graphs|systems|assumptions")],
    as_json: JsonFlag = False,
) -> None:
    """List the zoo: graphs, systems, or assumption profiles."""
    with _errors():
        from dfopt.documents.assumptions import PROFILES
        from dfopt.documents.zoo import zoo
        from dfopt.errors import PlanError

        if kind not in ("graphs", "systems", "assumptions"):
            raise PlanError(f"list: expected graphs, systems or assumptions, found {kind!r}")
        names = sorted(PROFILES) if kind == "assumptions" else zoo(kind)  # type: ignore[arg-type]
        if as_json:
            typer.echo(json.dumps(names))
        else:
            typer.echo("\n".join(names))


@app.command()
def show(
    target: Annotated[str, typer.Argument(metavar="FILE|NAME", help="a zoo name, or a document of any kind")],
    param: ParamOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a graph, system, result or any other document."""
    with _errors():
        from dfopt.library import load_any
        from dfopt.physics.ops import flop
        from dfopt.show.describe import report

        document = load_any(target, arguments.values(param, "--param"))
        work = [flop(kernel) for kernel in getattr(document, "kernels", ()) if hasattr(kernel, "op")]
        _emit(as_json, document.to_data, lambda: report(document, work))


def _verdict(document: Any, name: str) -> str:
    """Of a result what could be verified, which takes the problems and the judge; of others just `ok`."""
    if not document.SCHEMA.startswith("dfopt/result/"):
        return "ok"
    from dfopt.optimizer.verify import verdict

    return verdict(document, name)


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="documents of any kind, or zoo names")],
    as_json: JsonFlag = False,
) -> None:
    """Check documents; of a result, verify its claims."""
    from dfopt.errors import DfoptError
    from dfopt.library import load_any

    with _errors():
        worst, rows = 0, []
        for name in files:
            try:
                document = load_any(name)
                said = _verdict(document, name)
                rows.append({"file": name, "ok": True, "schema": document.SCHEMA, "verdict": said})
                if not as_json:
                    typer.echo(f"{name}: {said} ({document.SCHEMA})")
            except DfoptError as error:
                worst = max(worst, error.exit_code)
                rows.append({"file": name, "ok": False, "error": str(error)})
                if not as_json:
                    typer.echo(f"dfopt: {error}", err=True)
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
    if worst:
        raise typer.Exit(worst)


@app.command()
def solve(
    graph: GraphArg,
    system: SystemArg,
    tp: Annotated[int | None, typer.Option(help="tensor parallelism", min=1)] = None,
    pp: Annotated[int | None, typer.Option(help="pipeline parallelism", min=1)] = None,
    dp: Annotated[int | None, typer.Option(help="data parallelism", min=1)] = None,
    batch: Annotated[int | None, typer.Option(help="samples per step", min=1)] = None,
    param: ParamOpt = None,
    assume: AssumeOpt = "default",
    set_: SetOpt = None,
    p_max: Annotated[int | None, typer.Option("--p-max", help="on-chip partitions at most", min=1)] = None,
    formulation: Annotated[
        str, typer.Option(metavar="auto|assignment|columns", help="form of the intra-chip problem")
    ] = "auto",
    kernel_by_kernel: Annotated[
        bool, typer.Option("--kernel-by-kernel", help="no fusion: a partition per kernel")
    ] = False,
    pin: Annotated[
        list[str] | None, typer.Option("--pin", metavar="KERNEL=PARTITION", help="fix a kernel's partition")
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option("--shard", metavar="KERNEL=SCHEME", help="fix a kernel's sharding")
    ] = None,
    pins: Annotated[
        Path | None, typer.Option("--pins", metavar="FILE", help="a document of all that is fixed by hand")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="seconds for everything", min=0.1)] = 60.0,
    gap: Annotated[float, typer.Option(help="relative gap at which to stop; 0 proves", min=0.0, max=1.0)] = 0.0,
    seed: Annotated[int, typer.Option(help="seed of the solver", min=0)] = 0,
    solver: Annotated[str, typer.Option(metavar="highs|pulp:NAME", help="of the MILPs, such as pulp:CBC")] = "highs",
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="FILE.mps|FILE.lp", help="write the MILPs of the best plan")
    ] = None,
    sensitivity: Annotated[bool, typer.Option(help="what 10 % more of each resource brings")] = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="write the result document")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="no progress on stderr")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find the fastest mapping of GRAPH onto SYSTEM, prove it, judge it."""
    with _errors():
        from dfopt.documents.pins import Pins
        from dfopt.documents.system import load_system
        from dfopt.errors import PlanError
        from dfopt.optimizer import dump_models, optimize
        from dfopt.show.progress import ProgressLine
        from dfopt.show.tables import result_report

        _check_output("--output", output, (".json", ".yaml", ".yml"))  # before the work, not after it
        _check_output("--dump", dump, (".mps", ".lp"))
        workload, machine = _graph(graph, param, batch), load_system(system)
        assumptions = _assumptions(assume, set_)
        if kernel_by_kernel:
            if pin or p_max is not None:
                given = "--pin" if pin else "--p-max"
                raise PlanError(
                    f"{given}: with --kernel-by-kernel every kernel has a partition of its own; leave one out"
                )
            assumptions = assumptions.with_(execution="kernel_by_kernel")
        fixed = Pins.load(pins) if pins is not None else Pins()
        line = ProgressLine(quiet=quiet)
        try:
            result = optimize(
                workload,
                machine,
                assumptions=assumptions,
                tp=tp,
                pp=pp,
                dp=dp,
                tp_dims=fixed.tp_dims,
                pp_dims=fixed.pp_dims,
                dp_dims=fixed.dp_dims,
                p_max=p_max if p_max is not None else fixed.p_max,
                formulation=arguments.choice("--formulation", formulation, ("auto", "assignment", "columns")),
                gap=gap,
                time_limit=time_limit,
                pin_partition={**fixed.partition, **arguments.partitions(pin)},
                pin_sharding={**fixed.sharding, **arguments.schemes(shard)},
                sensitivity=sensitivity,
                progress=line,
                seed=seed,
                solver=solver,
            )
        finally:
            line.close()
        if output is not None:
            result.dump(output)
        if dump is not None:
            for written in dump_models(result, dump):
                typer.echo(f"dfopt: wrote {written}", err=True)
        _emit(as_json, result.to_data, lambda: result_report(result))


def _check_output(option: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    from dfopt.errors import PlanError

    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        listed = ", ".join(suffixes[:-1]) + f" or {suffixes[-1]}"
        raise PlanError(f"{option}: found {str(path)!r}, expected a name that ends in {listed}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise PlanError(f"{option}: {str(path)!r} {wrong}; name a file in an existing folder")


@app.command()
def score(
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="a mapping or result document")],
    graph: GraphArg,
    system: SystemArg,
    batch: Annotated[int | None, typer.Option(help="samples per step", min=1)] = None,
    param: ParamOpt = None,
    assume: Annotated[
        str | None,
        typer.Option("--assume", metavar="PROFILE|FILE", help="default: the result's own, else 'default'"),
    ] = None,
    set_: SetOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a mapping: recompute every figure of it."""
    with _errors():
        from dfopt.documents.system import load_system
        from dfopt.judge import evaluate
        from dfopt.library import load_mapping
        from dfopt.show.tables import score_report

        chosen, result = load_mapping(mapping)
        own = result.assumptions if result is not None and assume is None else None
        assumptions = _assumptions(assume or "default", set_, own)
        workload, machine = _graph(graph, param, batch), load_system(system)
        judged = evaluate(chosen, workload, machine, assumptions)
        if result is not None:
            for what, now, then in (
                ("graph", workload, result.provenance.graph_digest),
                ("system", machine, result.provenance.system_digest),
            ):
                if now.digest() != then:
                    typer.echo(f"dfopt: note: {now.name} is not the {what} that the result was found for", err=True)
        _emit(as_json, judged.to_data, lambda: score_report(judged))


@app.command()
def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="graph, system, assumptions, plan, mapping, score, result")
    ],
) -> None:
    """Print the JSON Schema of a document kind."""
    with _errors():
        from dfopt.documents.base import schema_json
        from dfopt.documents.kinds import KINDS
        from dfopt.errors import PlanError

        if kind not in KINDS:
            raise PlanError(f"schema: expected one of {', '.join(KINDS)}, found {kind!r}")
        from dfopt.workloads import graph_schema

        typer.echo(json.dumps(graph_schema() if kind == "graph" else schema_json(KINDS[kind]), indent=1))


@importer.command("dfmodel")
def import_dfmodel(
    case: Annotated[Path, typer.Argument(metavar="CASE.json", help="a DFModel setup and graph as JSON")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="folder for the documents")],
) -> None:
    """Import a DFModel case: writes graph.yaml, system.yaml, assumptions.yaml and the command to solve it."""
    with _errors():
        from dfopt.frontends.dfmodel import write_case

        for line in write_case(case, output):
            typer.echo(line)


def run() -> None:
    """Entry point of the ``dfopt`` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal gets escapes, not a traceback
    try:
        app()
    finally:
        _leave(sys.exc_info()[1])


def _leave(end: BaseException | None) -> None:
    """Leave at once when a solver that hears no interrupt still runs: it would abort a dying interpreter."""
    engine = sys.modules.get("dfopt.milp.engine")
    if engine is None or not engine.still_running() or not isinstance(end, SystemExit):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
