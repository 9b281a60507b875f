"""Commands about studies: sweep solves all cells of one and checks its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dfopt.cli.common import JsonFlag, app, errors


@app.command()
def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="a study document")],
    jobs: Annotated[int | None, typer.Option(help="processes at once; the cores of this machine", min=1)] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="scheduler of a Dask cluster, such as tcp://10.0.0.1:8786")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="only the I-th of N shares, such as of a Slurm array")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file of record; what it has is not solved again")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder for the result document of every cell")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="write the frame")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE.parquet", help="write the frame")] = None,
    heat_map: Annotated[
        list[str] | None, typer.Option("--heat-map", metavar="FIGURE[:AXIS]", help="print a figure as a heat map")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="solve failed cells again")] = False,
    no_solve: Annotated[bool, typer.Option("--no-solve", help="report only what the store has")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the cells and their status, solve none")] = False,
    check: Annotated[bool, typer.Option("--check", help="exit with 1 unless every claim holds")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="no progress on stderr")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Solve every cell of a STUDY, resumably, and compare its claims with what was found."""
    with errors("; the same command goes on with the cells that are not solved yet"):
        from dfopt.cli.sweep_command import run_sweep

        code = run_sweep(
            study,
            jobs=jobs,
            cluster=cluster,
            shard=shard,
            store=None if store is None else str(store),
            results=None if results is None else str(results),
            csv=None if csv is None else str(csv),
            parquet=None if parquet is None else str(parquet),
            heat_maps=heat_map or (),
            retry=retry,
            no_solve=no_solve,
            dry_run=dry_run,
            check=check,
            as_json=as_json,
            quiet=quiet,
        )
        if code:
            raise typer.Exit(code)
