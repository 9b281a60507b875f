"""Commands below the chip: derive, and the import of DeepFlow's configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dfopt.cli.common import JsonFlag, app, argument, check_output, emit, errors, importer, option


@app.command()
def derive(
    design: Annotated[Path, argument("DESIGN.yaml", "budgets and their shares, with a technology")],
    system: Annotated[
        Path | None, option("write the system of such chips that the template describes", metavar="FILE.yaml")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Derive a chip from a technology and budgets: its components, what binds each, and what is left over."""
    with errors():
        from dfopt.api import derive as derived
        from dfopt.show.technology import chip_report
        from dfopt.technology.told import told

        check_output("--system", system, (".yaml", ".yml", ".json"))
        made = derived(design)
        parts = told(made.components)
        if system is not None:
            made.system.dump(system)
        emit(as_json, lambda: parts, lambda: chip_report(made.design, parts))
        if system is not None:
            typer.echo(f"dfopt: wrote {system}; `dfopt solve GRAPH {system}` maps onto it", err=True)


@importer.command("deepflow")
def import_deepflow(
    config: Annotated[Path, argument("CONFIG.yaml", "a hardware configuration of DeepFlow")],
    output: Annotated[Path, option("file for the design", "-o", "--output", metavar="FILE.yaml")],
) -> None:
    """Import a hardware configuration of DeepFlow: writes a design, and names what it leaves out."""
    with errors():
        from dfopt.documents.strict_yaml import load_strict
        from dfopt.errors import refuse
        from dfopt.frontends.deepflow import read_design

        check_output("--output", output, (".yaml", ".yml"))
        if not config.is_file():
            refuse(str(config), "no such file", "give a hardware configuration of DeepFlow, a YAML file")
        made, unused = read_design(load_strict(config), config.stem, str(config))
        made.dump(output)
        typer.echo(f"{made.name}: {', '.join(made.technology.components)}")
        if unused:
            typer.echo(f"not used: {', '.join(unused)}")
        typer.echo(f"dfopt: wrote {output}; `dfopt derive {output}` shows its chip")
