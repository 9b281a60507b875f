"""The guide in the terminal."""

from __future__ import annotations

from typing import Annotated

from dfopt.cli.common import app, argument, echo, errors, option


@app.command()
def guide(
    topic: Annotated[str, argument("[TOPIC]", "a page, such as serve; without one, all pages with a line each")] = "",
    find: Annotated[str | None, option("print the lines of all pages that contain WORD", metavar="WORD")] = None,
) -> None:
    """Show a page of the manual, or list its pages."""
    with errors():
        from dfopt.guide import contents, lines_with, show

        if topic and find is None:
            show(topic)
        for line in lines_with(find) if find else [] if topic else contents():
            echo(line)
