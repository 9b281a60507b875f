"""A page in one file: head, style, script, sections, and figures as inline SVG within a limit of bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from typing import Any, Final

from dfopt.errors import PlanError
from dfopt.show.html import Html, join, paragraph, text
from dfopt.show.report.svg import inline_svg

__all__ = ["LIMIT", "Figure", "Page", "assemble", "draw", "needs_matplotlib"]

LIMIT: Final = 1_000_000  # bytes of a page


@dataclass(frozen=True)
class Figure:
    """A drawn figure, or why there is none.

    ``paper``: its colours mean an order, as in a map of temperatures, so that it stays on white in the dark.
    """

    name: str
    caption: str
    svg: str = ""
    why: str = ""
    paper: bool = False

    @property
    def html(self) -> Html:
        """The figure with its caption, or the reason in its place."""
        if not self.svg:
            return paragraph(f"{self.caption} Not shown: {self.why}.", kind="note")
        kind = "paper" if self.paper else "plain"
        return Html(
            f'<figure class="{kind}"><div class="box" role="region" tabindex="0" aria-label="'
            f'{escape(self.caption, quote=True)}">{self.svg}</div>'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )


def needs_matplotlib() -> None:
    """Say once, and before the work, what a report needs; and draw into files, also where there is a display.

    Raises
    ------
    PlanError
        If Matplotlib is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise PlanError("report: found no matplotlib, which figures need; python -m pip install matplotlib") from None
    mpl.use("Agg")


def draw(name: str, caption: str, make: Callable[[], Any], paper: bool = False) -> Figure:
    """Draw a figure; what the plot refuses to draw is said in its place.

    Parameters
    ----------
    name : str
        Word that its ids start with.
    caption : str
        What it shows, in one sentence or two.
    make : callable
        Gives the axes, or the figure.
    paper : bool
        See `Figure`.
    """
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    try:
        made = make()
        figure = made.get_figure(root=True) if hasattr(made, "transData") else made
        return Figure(name, caption, inline_svg(figure, name, caption), paper=paper)
    except PlanError as error:
        return Figure(name, caption, why=str(error).rstrip("."))
    finally:
        for number in set(plt.get_fignums()) - before:  # those of the caller stay open
            plt.close(number)


@dataclass(frozen=True)
class Page:
    """What a page says. Sections are (name, title of the link, markup), where figures have places of their own."""

    title: str
    head: Html
    sections: Sequence[tuple[str, str, Callable[[dict[str, Html]], Html]]]
    figures: Sequence[Figure]
    foot: str


def assemble(page: Page, limit: int = LIMIT) -> str:
    """The page as one HTML file below ``limit`` bytes that asks for nothing else, neither from the network nor a disk.

    Figures that do not fit are left out, the largest first, and the page says so.

    Raises
    ------
    PlanError
        If it is too large without any figure.
    """
    figures = list(page.figures)
    while True:
        whole = _written(page, figures)
        size = len(whole.encode())
        if size < limit:
            return whole
        largest = max(range(len(figures)), key=lambda i: len(figures[i].svg), default=-1)
        if largest < 0 or not figures[largest].svg:
            raise PlanError(f"report: found {size} bytes of tables, expected less than {limit}; report fewer cells")
        bytes_of = len(figures[largest].svg.encode())
        why = f"its {bytes_of / 1e3:.0f} kB would make this file larger than {limit / 1e6:g} MB; `dfopt plot` draws it"
        figures[largest] = replace(figures[largest], svg="", why=why)


def _written(page: Page, figures: Iterable[Figure]) -> str:
    drawn = {figure.name: figure.html for figure in figures}
    style, script = _asset("report.css"), _asset("report.js")
    # the browser itself refuses every request, and every script but this one: names in a graph may be anything
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_sha256(script)}'"
    links = "".join(
        f'<li><a href="#{escape(name, quote=True)}">{escape(title)}</a></li>' for name, title, _ in page.sections
    )
    body = join(*(make(drawn) for _, _, make in page.sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(page.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#content">Skip to the content</a>\n<header>\n{page.head.code}\n</header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="content">\n{body.code}\n</main>\n'
        f"<footer><p>{text(page.foot)}</p></footer>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (files("dfopt.show.report") / name).read_text(encoding="utf-8")


def _sha256(words: str) -> str:
    return base64.b64encode(hashlib.sha256(words.encode()).digest()).decode()
