"""Commands about documents: list, show, check, schema, import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from dfopt import arguments
from dfopt.cli.common import app, detail_of, echo, emit, errors, importer, importing
from dfopt.cli.outputs import check_folder, check_output
from dfopt.errors import DfoptError, DocumentError, Issue, PlanError
from dfopt.interrupts import seconds_left

_SHOWING = 0.75  # share of a limit in which bounds are shown again: the last one that was begun takes longer
_CASE = ("graph.yaml", "system.yaml", "assumptions.yaml", "pins.yaml")


@app.command("list")
def list_zoo(kind: str = "", words: list[str] | None = None, as_json: bool = False) -> None:
    """List the names that come with dfopt, and the figures by which one chooses among them.

    Arguments:
        kind (KIND): One of graphs, systems, chips, memories, links, topologies, stacks, technologies, designs,
            calibrations, assumptions; default: all kinds.
        words (WORD): Words that a line must have, such as h100.

    Examples:
        dfopt list systems h100
        dfopt list graphs llama
        dfopt list
    """
    with errors():
        from dfopt.cli.zoo_table import zoo_table
        from dfopt.commands import list as names_in_zoo

        names = names_in_zoo(kind)
        table = zoo_table(kind, words or []) if words or not as_json else None
        names = [str(row[0]) for row in table.rows] if table else names
        emit(as_json, lambda: names, lambda: table)


@app.command()
def show(
    target: str,
    param: list[str] | None = None,
    detail: str | None = None,
    matrices: bool = False,
    as_json: bool = False,
) -> None:
    """Show a result, a graph, a system or any other document.

    Arguments:
        target (FILE|NAME): Zoo name, or file of any kind; stacks/hbm3 names a kind and a name.

    Options:
        matrices: Print the matrices A, B, D, L and H of DFModel of a result, as --detail matrices does.

    Examples:
        dfopt show best.json --detail kernels,time
        dfopt show best.json --matrices
        dfopt show llama-3.1-8b --param phase=decode
        dfopt show h100-8 --json
    """
    with errors():
        from dfopt.documents.result import Result
        from dfopt.library import load_sized
        from dfopt.show.describe import report

        parameters = arguments.values(param, "--param")
        document, figures = load_sized(target, parameters)
        sections = (*detail_of(detail), *("matrices",) * matrices)
        brief = isinstance(document, Result) and not sections
        emit(as_json, document, lambda: report(document, sections, figures), 80 if brief else 140)


@app.command()
def check(
    files: list[str],
    time_limit: float | None = None,
    certificate: Path | None = None,
    output: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Check documents: the sizes of a graph against published ones, and every claim of a result or a store.

    Arguments:
        files (FILE|NAME): Files of any kind, stores of sweeps, or zoo names.

    Options:
        time_limit (S 0.1..): Seconds for the whole command; default: 60 for each file, or 4 times its search.
        certificate (FILE): Certificate by which a result is shown in less time.

    Output:
        output (-o FILE.json): File for the certificate of a result, such as certificate.json.

    Examples:
        dfopt check best.json
        dfopt check best.json -o certificate.json
        dfopt check best.json --certificate certificate.json
        dfopt check my-chip.yaml my-model.yaml
        dfopt check best.json --time-limit 600
    """
    with importing():
        from dfopt.commands import checked
        from dfopt.documents.store import is_store
        from dfopt.search.verify import verdict

    with errors(" before all claims were checked", time_limit):
        worst, rows = 0, []
        check_output("--output", output, (".json", ".yaml", ".yml"))
        if (certificate or output) is not None and len(files) > 1:
            raise PlanError(f"found {len(files)} files, expected one result, whose certificate it is")
        for name in files:
            try:
                share = 1.0 if is_store(name) else _SHOWING
                seconds = None if time_limit is None else share * seconds_left(time_limit)
                verified, schema = checked(name, seconds, certificate)
                words = verdict(verified, name)
                if output is not None:
                    if verified.certificate is None:
                        raise PlanError(f"--output: there is no certificate of {name}, only of results with a proof")
                    verified.certificate.dump(output)
                rows.append({"file": name, "ok": True, "schema": schema, "verdict": words})
                if not as_json:
                    echo(f"{name}: {words} ({schema})")
            except DfoptError as error:
                worst = max(worst, error.exit_code)
                rows.append({"file": name, "ok": False, "error": str(error)})
                if not as_json:
                    echo(f"dfopt: {error}", err=True)
        if as_json:
            echo(json.dumps(rows, indent=1))
    if worst:
        raise typer.Exit(worst)


@app.command()
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of document, for editors.

    Arguments:
        kind (KIND): Kind of document, such as graph, system, stack, plan, mapping, result, study.

    Examples:
        dfopt schema system > system.schema.json
        dfopt schema study
        dfopt schema question
    """
    with errors():
        from dfopt.documents.json_schema import schema_json
        from dfopt.documents.kinds import KINDS
        from dfopt.documents.technology import Technology, TechnologyPart

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
        json_schema = own[kind]() if kind in own else schema_json(KINDS[kind])
        echo(json.dumps(json_schema, indent=1))


@importer.command("hf")
def import_hf(config: Path, output: Path, force: bool = False, time_limit: float = 60.0) -> None:
    """Import a language model: write its graph, for every phase.

    Arguments:
        config (PATH): config.json of a Hugging Face model, or its folder.

    Output:
        output (-o FILE.yaml): File for the graph, such as model.yaml.

    Examples:
        dfopt import hf path/to/config.json -o model.yaml
    """
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
    model: Path, output: Path, set_dim: list[str] | None = None, sample_dim: str = "", token_dim: str = "",
    fold: bool | None = None, force: bool = False, time_limit: float = 60.0,
) -> None:  # fmt: skip
    """Import an ONNX model: write its graph.

    Arguments:
        model (MODEL.onnx): ONNX model; external data of weights may be missing.

    Options:
        set_dim (NAME=N): Size of a symbolic dim or of INPUT[AXIS], such as batch=8; may be repeated.
        sample_dim (NAME): Dim that counts samples, such as batch.
        token_dim (NAME): Dim that counts the tokens of a sample, such as seq.
        fold: Represent equal layers by one of them; default: if that halves the kernels.

    Output:
        output (-o FILE.yaml): File for the graph, such as model.yaml.

    Examples:
        dfopt import onnx model.onnx -o model.yaml --set-dim batch=8
    """
    with errors(time_limit=time_limit):
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
    case: Path, out_dir: Path, overrides: Path | None = None, force: bool = False, time_limit: float = 60.0
) -> None:
    """Import a DFModel case: write graph.yaml, system.yaml, assumptions.yaml and the command to solve it.

    Arguments:
        case (CASE): Setup and graph of DFModel as JSON, or its user_input/setup.txt.

    Options:
        overrides (FILE): File with fields that the case leaves out.

    Examples:
        dfopt import dfmodel setup.json --out-dir case
    """
    with errors(time_limit=time_limit):
        from dfopt.frontends.dfmodel import write_case

        check_folder("--out-dir", out_dir, _CASE)
        for line in write_case(case, out_dir, overrides):
            echo(line)


@importer.command("calculon")
def import_calculon(
    application: Path, system: Path, out_dir: Path, execution: Path | None = None, chips: int | None = None,
    overlaps: bool = False, force: bool = False, time_limit: float = 60.0,
) -> None:  # fmt: skip
    """Import a Calculon case: write graph.yaml, system.yaml, assumptions.yaml, pins.yaml and the command to solve it.

    Arguments:
        application (APP.json): Application of Calculon: the sizes of a transformer.
        system (SYSTEM.json): System of Calculon.
        execution (EXEC.json): Execution of Calculon; without one, the mapping stays free.

    Options:
        chips (N 1..): Number of chips, without an execution; default: all.
        overlaps (--overlaps): Allow overlapped communication, without an execution.

    Examples:
        dfopt import calculon app.json system.json exec.json --out-dir case
    """
    with errors(time_limit=time_limit):
        from dfopt.frontends.calculon import write_case

        check_folder("--out-dir", out_dir, _CASE)
        if chips is not None and execution is not None:
            raise DocumentError(
                str(execution), [Issue("$.num_procs", f"found an execution beside --chips {chips}", "give one of them")]
            )
        if overlaps and execution is not None:
            message = "found an execution beside --overlaps"
            raise DocumentError(str(execution), [Issue("$.tensor_par_overlap", message, "give one of them")])
        for line in write_case(application, system, execution, out_dir, chips=chips, overlaps=overlaps):
            echo(line)
