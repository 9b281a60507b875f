"""The guide in the terminal."""

from __future__ import annotations

from dfopt.cli.common import app, echo, errors


@app.command()
def guide(topic: str = "", find: str | None = None) -> None:
    """Show a page of the manual, or list its pages.

    Arguments:
        topic (TOPIC): Page, such as serve; default: all pages with a line each.

    Options:
        find (WORD): Word whose lines in all pages to print, such as ZeRO.

    Examples:
        dfopt guide
        dfopt guide serve
        dfopt guide --find ZeRO
    """
    with errors():
        from dfopt.guide import contents, lines_with, show

        if topic and find is None:
            show(topic)
        for line in lines_with(find) if find else [] if topic else contents():
            echo(line)
