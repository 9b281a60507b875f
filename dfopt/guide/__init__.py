"""The guide: its pages are the Markdown files of this package, which ``dfopt guide`` shows."""

from __future__ import annotations

import sys
from pathlib import Path

from dfopt.errors import PlanError, did_you_mean

__all__ = ["contents", "lines_with", "pages", "show"]


def pages() -> dict[str, str]:
    """Text of every page, by lower-case name.

    Examples
    --------
    >>> pages()["serve"].splitlines()[0]
    '# Serve a model'
    """
    folder = Path(__file__).parent
    return {path.stem.lower(): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


def contents() -> list[str]:
    """One line for each page: name and first sentence."""
    firsts = {name: " ".join(text.split("\n\n")[1].split()).partition(". ")[0] for name, text in pages().items()}
    return [f"{name:16}{first.removeprefix('After this page ').rstrip('.')}" for name, first in firsts.items()]


def lines_with(word: str) -> list[str]:
    """Lines of all pages that contain a word in any case, with page names.

    Examples
    --------
    >>> lines_with("**zero**")[0][:19]
    'glossary: **ZeRO**:'
    """
    lines = ((name, line.strip()) for name, text in pages().items() for line in text.splitlines())
    return [f"{name}: {line}" for name, line in lines if word.lower() in line.lower()]


def show(name: str) -> None:
    """Print a page: rendered in a pager on a terminal, raw in a pipe."""
    texts = pages()
    if name not in texts:
        remedy = did_you_mean(name, texts, "`dfopt guide` lists them")
        raise PlanError(f"guide: found {name!r}, expected the name of a page ({remedy})")
    if not sys.stdout.isatty():
        sys.stdout.write(texts[name])
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(texts[name]))
