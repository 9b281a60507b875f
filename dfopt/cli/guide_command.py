"""The guide in the terminal: its pages are Markdown files of the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dfopt.cli.common import app, argument, echo, errors, option


@app.command()
def guide(
    topic: Annotated[str, argument("[TOPIC]", "a page, such as serve; without one, all pages with a line each")] = "",
    find: Annotated[str | None, option("print the lines of all pages that contain WORD", metavar="WORD")] = None,
) -> None:
    """Show a page of the manual, or list its pages."""
    with errors():
        from dfopt.errors import PlanError, did_you_mean

        folder = Path(__file__).parents[1] / "guide"
        pages = {path.stem.lower(): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
        if find is not None:
            for name, text in pages.items():
                for line in text.splitlines():
                    if find.lower() in line.lower():
                        echo(f"{name}: {line.strip()}")
        elif not topic:
            for name, text in pages.items():
                first = " ".join(text.split("\n\n")[1].split()).partition(". ")[0]
                echo(f"{name:16}{first.removeprefix('After this page ').removesuffix('.')}")
        elif topic not in pages:
            remedy = did_you_mean(topic, pages, "`dfopt guide` lists them")
            raise PlanError(f"guide: found {topic!r}, expected the name of a page ({remedy})")
        elif sys.stdout.isatty():
            from rich.console import Console
            from rich.markdown import Markdown

            console = Console()
            with console.pager(styles=True):
                console.print(Markdown(pages[topic]))
        else:
            typer.echo(pages[topic], nl=False)
