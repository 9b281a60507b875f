"""The command compare: results side by side, in text or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dfopt.cli.common import JsonFlag, app, argument, check_output, emit, errors, option


@app.command()
def compare(
    files: Annotated[list[str], argument("RESULT RESULT...", "results of dfopt solve -o")],
    output: Annotated[Path | None, option("write a page too", "-o", "--output", metavar="FILE.html")] = None,
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
