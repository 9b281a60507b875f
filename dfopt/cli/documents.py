"""Commands about documents: list, show, check, schema, import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dfopt import arguments
from dfopt.cli.common import (
    DetailOpt,
    JsonFlag,
    ParamOpt,
    TimeLimitOpt,
    app,
    argument,
    detail_of,
    echo,
    emit,
    errors,
    importer,
    option,
)
from dfopt.cli.outputs import ForceFlag, check_folder, check_output
from dfopt.interrupts import seconds_left

_SHOWING = 0.75  # share of a limit in which bounds are shown again: the last one that was begun takes longer
_CASE = ("graph.yaml", "system.yaml", "assumptions.yaml", "pins.yaml")


@app.command("list")
def list_zoo(
    kind: Annotated[
        str,
        argument(
            "[KIND]", "graphs, systems, chips, memories, links, topologies, stacks, technologies, designs, assumptions"
        ),
    ] = "",
    words: Annotated[list[str] | None, argument("[WORD]...", "only lines with all these words")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the zoo: its kinds, or all of a kind with what one chooses by."""
    with errors():
        from dfopt.cli.zoo_table import names_of, zoo_table
        from dfopt.documents.zoo import KINDS
        from dfopt.errors import PlanError

        kinds = (*KINDS, "assumptions")
        if kind and kind not in kinds:
            raise PlanError(f"list: expected one of {', '.join(kinds)}, found {kind!r}")
        table = zoo_table(kind, words or []) if words or not as_json else None
        names = [str(row[0]) for row in table.rows] if table else names_of(kind) if kind else list(kinds)
        emit(as_json, lambda: names, lambda: table)


@app.command()
def show(
    target: Annotated[str, argument("FILE|NAME", "a zoo name, or a document of any kind")],
    param: ParamOpt = None,
    detail: DetailOpt = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a graph, system, stack, result or any other document; `stacks/hbm3` names the shelf of the zoo too."""
    with errors():
        from dfopt.documents.result import Result
        from dfopt.library import load_sized
        from dfopt.physics.ops import flop
        from dfopt.show.describe import report

        document, figures = load_sized(target, arguments.values(param, "--param"))
        work = [flop(kernel) for kernel in getattr(document, "kernels", ()) if hasattr(kernel, "op")]
        brief = isinstance(document, Result) and not detail
        emit(as_json, document, lambda: report(document, work, figures, detail_of(detail)), 80 if brief else 140)


@app.command()
def check(
    files: Annotated[list[str], argument("FILE...", "documents of any kind, stores of sweeps, or zoo names")],
    time_limit: Annotated[
        float | None,
        option("seconds for everything; default: 60 for each file, or 4 times what its search took", min=0.1),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check documents; of a graph its counts against what is published; of results, explorations, stores all claims."""
    from dfopt.errors import DfoptError

    with errors(" before all claims were checked", time_limit):
        worst, rows = 0, []
        for name in files:
            try:
                said, schema = _verdict(name, time_limit)
                rows.append({"file": name, "ok": True, "schema": schema, "verdict": said})
                if not as_json:
                    echo(f"{name}: {said} ({schema})")
            except DfoptError as error:
                worst = max(worst, error.exit_code)
                rows.append({"file": name, "ok": False, "error": str(error)})
                if not as_json:
                    echo(f"dfopt: {error}", err=True)
        if as_json:
            echo(json.dumps(rows, indent=1))
    if worst:
        raise typer.Exit(worst)


def _verdict(name: str, time_limit: float | None) -> tuple[str, str]:
    """What is said of a document that holds, and its schema."""
    from dfopt.documents.exploration import Exploration
    from dfopt.documents.published import issues
    from dfopt.documents.result import Result
    from dfopt.documents.store import SCHEMA, is_store
    from dfopt.errors import DocumentError
    from dfopt.library import load_sized

    if is_store(name):
        from dfopt.studies.checking import check_store  # takes the problems and the judge

        return check_store(name, None if time_limit is None else seconds_left(time_limit)), SCHEMA
    document, figures = load_sized(name)
    if wrong := [*issues(figures)]:
        raise DocumentError(name, wrong)
    left = None if time_limit is None else _SHOWING * seconds_left(time_limit)
    if isinstance(document, Result):
        from dfopt.search.verify import verdict

        return verdict(document, name, left), document.SCHEMA
    if isinstance(document, Exploration):
        from dfopt.exploring.checking import check_exploration

        return check_exploration(document, name, *([] if left is None else [left])), document.SCHEMA
    return "ok", document.SCHEMA


@app.command()
def schema(kind: Annotated[str, argument("KIND", "graph, system, stack, plan, mapping, result, study, ...")]) -> None:
    """Print the JSON Schema of a document kind."""
    with errors():
        from dfopt.documents.json_schema import schema_json
        from dfopt.documents.kinds import KINDS
        from dfopt.documents.technology import Technology
        from dfopt.documents.technology_part import TechnologyPart
        from dfopt.errors import PlanError

        if kind not in KINDS:
            raise PlanError(f"schema: expected one of {', '.join(KINDS)}, found {kind!r}")
        from dfopt.machines.compose import system_schema
        from dfopt.machines.designs import design_schema
        from dfopt.machines.stacks import stack_schema
        from dfopt.machines.technologies import technology_schema
        from dfopt.workloads import graph_schema

        own: dict[str, Callable[[], dict[str, Any]]] = {
            "graph": graph_schema, "system": system_schema, "stack": stack_schema, "design": design_schema,
            "technology": lambda: technology_schema(Technology),
            "technology-part": lambda: technology_schema(TechnologyPart),
        }  # fmt: skip
        whole = own[kind]() if kind in own else schema_json(KINDS[kind])
        echo(json.dumps(whole, indent=1))


@importer.command("hf")
def import_hf(
    config: Annotated[Path, argument("PATH", "config.json of a Hugging Face model, or its folder")],
    output: Annotated[Path, option("file for the graph", "-o", "--output", metavar="FILE.yaml")],
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import a language model: writes its graph, for every phase, and says what it counts."""
    with errors(time_limit=time_limit):
        from dfopt.documents.files import write_text
        from dfopt.documents.strict_yaml import dump_yaml
        from dfopt.frontends.hf import read

        check_output("--output", output, (".yaml", ".yml"))
        graph = read(config)
        write_text(output, dump_yaml(graph))
        echo(f"{graph['name']}: {graph['description']}")
        echo(f"dfopt: wrote {output}")


@importer.command("onnx")
def import_onnx(
    model: Annotated[Path, argument("MODEL.onnx", "an ONNX model; external data of weights need not be there")],
    output: Annotated[Path, option("file for the graph", "-o", "--output", metavar="FILE.yaml")],
    set_dim: Annotated[
        list[str] | None, option("size of a symbolic dim, or of INPUT[AXIS]", "--set-dim", metavar="NAME=N")
    ] = None,
    sample_dim: Annotated[str, option("dim that counts the samples of an evaluation", metavar="NAME")] = "",
    token_dim: Annotated[str, option("dim that counts the tokens of a sample", metavar="NAME")] = "",
    fold: Annotated[
        bool | None, option("draw layers that repeat once; default: if it halves the kernels", "--fold/--no-fold")
    ] = None,
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import an ONNX model: writes its graph and says what it counts."""
    with errors(time_limit=time_limit):
        from dfopt.errors import PlanError
        from dfopt.frontends.onnx import read

        check_output("--output", output, (".yaml", ".yml", ".json"))
        dims = arguments.values(set_dim, "--set-dim")
        for name, size in dims.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise PlanError(f"--set-dim: expected a whole number from 1 on for {name!r}, found {size!r}")
        graph = read(model, dims, samples=sample_dim, tokens=token_dim, folded=fold)
        graph.dump(output)
        echo(f"{graph.name}: {graph.description}")
        echo(f"dfopt: wrote {output}")


@importer.command("dfmodel")
def import_dfmodel(
    case: Annotated[Path, argument("CASE", "a DFModel setup and graph as JSON, or its user_input/setup.txt")],
    output: Annotated[Path, option("folder for the documents", "-o", "--output", metavar="DIR")],
    overrides: Annotated[
        Path | None, option("a document of what the case leaves out", "--overrides", metavar="FILE")
    ] = None,
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import a DFModel case: writes graph.yaml, system.yaml, assumptions.yaml and the command to solve it."""
    with errors(time_limit=time_limit):
        from dfopt.frontends.dfmodel import write_case

        check_folder("--output", output, _CASE)
        for line in write_case(case, output, overrides):
            echo(line)


@importer.command("calculon")
def import_calculon(
    application: Annotated[Path, argument("APP.json", "an application of Calculon: the sizes of a transformer")],
    system: Annotated[Path, argument("SYSTEM.json", "a system of Calculon")],
    output: Annotated[Path, option("folder for the documents", "-o", "--output", metavar="DIR")],
    execution: Annotated[Path | None, argument("[EXEC.json]", "an execution of Calculon")] = None,
    chips: Annotated[
        int | None, option("processors, where no execution says how many; else all", metavar="N", min=1)
    ] = None,
    overlaps: Annotated[
        bool, option("communication may be hidden, where no execution says whether it is", "--overlaps")
    ] = False,
    force: ForceFlag = False,
    time_limit: TimeLimitOpt = 60.0,
) -> None:
    """Import a Calculon case: writes graph.yaml, system.yaml, assumptions.yaml, pins.yaml and the command to solve it.

    Without an execution, the mapping is left free and there are no pins.
    """
    with errors(time_limit=time_limit):
        from dfopt.errors import DocumentError, Issue
        from dfopt.frontends.calculon import write_case

        check_folder("--output", output, _CASE)
        if chips is not None and execution is not None:
            raise DocumentError(
                str(execution), [Issue("$.num_procs", f"found an execution beside --chips {chips}", "give one of them")]
            )
        if overlaps and execution is not None:
            message = "found an execution beside --overlaps"
            raise DocumentError(str(execution), [Issue("$.tensor_par_overlap", message, "give one of them")])
        for line in write_case(application, system, execution, output, chips=chips, overlaps=overlaps):
            echo(line)
