"""A page in one file: head, style, script, sections, and figures as inline SVG within a limit of bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment

from dfopt.documents.html import escape
from dfopt.errors import PlanError, visible
from dfopt.show.html import Html, facts, join, paragraph
from dfopt.show.plots.output import inline_svg
from dfopt.show.plots.style import matplotlib_for, width

LIMIT: Final = 1_000_000  # bytes of a page
_WIDE, _NARROW = 1100, 380  # pixels of a figure, on a desk and on a phone of 420


@dataclass(frozen=True)
class PageFigure:
    """A figure of a page as SVG, or the reason why there is none.

    ``narrow`` is the same for a phone. ``paper``: its colours mean an order, as in a map of temperatures, so that it
    stays on white in the dark.
    """

    name: str
    caption: str
    svg: str = ""
    narrow: str = ""
    why: str = ""
    paper: bool = False

    @property
    def html(self) -> Html:
        """HTML of the figure with its caption, or of the reason in its place."""
        if not self.svg:
            return paragraph(f"{self.caption} Not shown: {self.why}.", kind="note")
        kind = "paper" if self.paper else "plain"
        label = f'role="region" tabindex="0" aria-label="{escape(self.caption, quote=True)}"'
        widths = {"box on-wide": self.svg, "box on-narrow": self.narrow} if self.narrow else {"box": self.svg}
        boxes = "".join(f'<div class="{box}" {label}>{svg}</div>' for box, svg in widths.items())
        return Html(f'<figure class="{kind}">{boxes}<figcaption>{escape(self.caption)}</figcaption></figure>')


def needs_matplotlib() -> None:
    """Raise early if Matplotlib is missing, and select its file backend."""
    matplotlib_for("report", "figures").use("Agg")


def draw(
    name: str, caption: str, plot: Callable[..., Any], *what: Any, paper: bool = False, **options: Any
) -> PageFigure:
    """Draw a figure of a page; if the plot raises a `PlanError`, its text takes the place.

    Parameters
    ----------
    name : str
        Prefix of the ids of the figure.
    caption : str
        Caption of the figure, in one or two sentences.
    plot : callable
        One of `dfopt.plot`.
    *what, **options
        Arguments of the plot.
    paper : bool
        Whether the figure stays on white paper in a dark page.
    """
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    try:
        drawings = {}
        for kind, pixels, prefix in (("svg", _WIDE, name), ("narrow", _NARROW, f"{name}-narrow")):
            with width(pixels, alone=False):
                drawings[kind] = inline_svg(plot(*what, **options).get_figure(root=True), prefix, caption)
        return PageFigure(name, caption, paper=paper, **drawings)
    except PlanError as error:
        return PageFigure(name, caption, why=str(error).rstrip("."))
    finally:
        for number in set(plt.get_fignums()) - before:  # those of the caller stay open
            plt.close(number)


@dataclass(frozen=True)
class PagePart:
    """A section of a page: anchor, title and contents."""

    name: str
    title: str
    parts: Sequence[Html | PageFigure | None]

    def inner(self, figures: Mapping[str, PageFigure]) -> str:
        """HTML of the section below its heading, with the given figures."""
        return join(*(figures[part.name].html if isinstance(part, PageFigure) else part for part in self.parts)).code


def heading(what: str, title: str, boxes: Iterable[tuple[str, object]], *parts: Html | None) -> Html:
    """HTML of the top of a page.

    Parameters
    ----------
    what : str
        Subject of the report.
    title : str
        Its heading.
    boxes : iterable of (str, object)
        The figures that one looks for first, by their names.
    *parts : Html, optional
        Markup below the title.
    """
    first = Html(f"<p class=note>dfopt report of {escape(what)}</p>"), Html(f"<h1>{escape(title)}</h1>")
    return join(*first, facts(boxes, "head"), *parts)


def assemble(title: str, head: Html, sections: Iterable[PagePart | None], version: str, limit: int = LIMIT) -> str:
    """Self-contained HTML page from its sections.

    Figures that do not fit are left out, the largest first, and the page says so.

    Parameters
    ----------
    title : str
        Title of the page.
    head : Html
        The top of the page, see `heading`.
    sections : iterable of PagePart, optional
        Sections of the page; None is left out.
    version : str
        Version of dfopt, for the foot of the page; may be empty.
    limit : int
        Bytes that the file stays below.

    Raises
    ------
    PlanError
        If it is too large without any figure.
    """
    shown = [section for section in sections if section is not None]
    figures = {part.name: part for section in shown for part in section.parts if isinstance(part, PageFigure)}
    while True:
        document = _written(title, head, shown, figures, version)
        size = len(document.encode())
        if size < limit:
            return document
        if narrow := max((figure for figure in figures.values() if figure.narrow), key=_size, default=None):
            figures[narrow.name] = replace(narrow, narrow="")  # a phone shows the other one
            continue
        largest = max(figures.values(), key=_size, default=None)
        if largest is None or not largest.svg:
            raise PlanError(f"report: found {size} bytes of tables, expected less than {limit}; report fewer cells")
        bytes_of = len(largest.svg.encode())
        why = f"its {bytes_of / 1e3:.0f} kB would make this file larger than {limit / 1e6:g} MB; `dfopt plot` draws it"
        figures[largest.name] = replace(largest, svg="", why=why)


def _size(figure: PageFigure) -> int:
    return len(figure.svg) + len(figure.narrow)


def _written(
    title: str, head: Html, sections: Sequence[PagePart], figures: Mapping[str, PageFigure], version: str
) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # the browser itself refuses every request, and every script but this one: names in a graph may be anything
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    foot = f"Written{' by dfopt ' * bool(version)}{version}. This file asks for nothing from any network."
    page = Environment(autoescape=True, keep_trailing_newline=True).from_string(_asset("report.html"))
    return page.render(
        policy=policy, title=visible(title), style=style, head=head.code, sections=sections, figures=figures,
        script=script, foot=visible(foot),
    )  # fmt: skip


def _asset(name: str) -> str:
    return (files("dfopt.show.report") / name).read_text(encoding="utf-8")
