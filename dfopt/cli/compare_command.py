"""The command compare: results side by side, in text or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dfopt.cli.common import JsonFlag, app, check_output, emit, errors


@app.command()
def compare(
    files: Annotated[list[str], typer.Argument(metavar="RESULT RESULT...", help="results of dfopt solve -o")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.html", help="write a page too")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Put results side by side: their figures, and what differs."""
    with errors():
        from dfopt import __version__
        from dfopt.documents.files import write_text
        from dfopt.documents.result import Result
        from dfopt.show.compare import compare_page, compare_report

        check_output("--output", output, (".html", ".htm"))
        results = [Result.load(file) for file in files]
        told = compare_report(files, results)
        try:
            if output is not None:
                write_text(output, compare_page(files, results, __version__))
        finally:
            rows = {file: {"step_time_s": one.step_time_s, "utilization": one.utilization, "plan": one.plan.label}
                    for file, one in zip(files, results, strict=True)}  # fmt: skip
            emit(as_json, lambda: rows, lambda: told)
