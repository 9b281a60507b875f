"""A page in one file: head, style, script, sections, and figures as inline SVG within a limit of bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template
from typing import Any, Final

from dfopt.documents.html import escape
from dfopt.errors import PlanError
from dfopt.show.html import Html, facts, join, paragraph
from dfopt.show.plots.output import inline_svg
from dfopt.show.plots.style import matplotlib_for

__all__ = ["LIMIT", "Figure", "Section", "assemble", "draw", "heading", "needs_matplotlib"]

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
    """Say once, and before the work, what a report needs; and draw into files, also where there is a display."""
    matplotlib_for("report", "figures").use("Agg")


def draw(name: str, caption: str, plot: Callable[..., Any], *what: Any, paper: bool = False, **options: Any) -> Figure:
    """Draw ``plot(*what, **options)``; what the plot refuses to draw is said in its place.

    ``name`` starts the ids of the figure, and ``caption`` is what it shows, in one sentence or two.
    """
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    try:
        made = plot(*what, **options).get_figure(root=True)
        return Figure(name, caption, inline_svg(made, name, caption), paper=paper)
    except PlanError as error:
        return Figure(name, caption, why=str(error).rstrip("."))
    finally:
        for number in set(plt.get_fignums()) - before:  # those of the caller stay open
            plt.close(number)


@dataclass(frozen=True)
class Section:
    """A part of a page: the name and the title that links to it have, and what stands in it."""

    name: str
    title: str
    parts: Sequence[Html | Figure | None]

    def html(self, figures: Mapping[str, Figure]) -> str:
        """The section with its heading, and ``figures`` as they are drawn by now."""
        inner = join(*(figures[one.name].html if isinstance(one, Figure) else one for one in self.parts)).code
        heading = f'<h2 id="{self.name}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">\n{heading}\n{inner}\n</section>'


def heading(what: str, title: str, boxes: Iterable[tuple[str, object]], *parts: Html | None) -> Html:
    """The top of a page: what it is, its title, the figures that one looks for first, and what else stands there."""
    first = Html(f"<p class=note>dfopt report of {escape(what)}</p>"), Html(f"<h1>{escape(title)}</h1>")
    return join(*first, facts(boxes, "head"), *parts)


def assemble(title: str, head: Html, sections: Iterable[Section | None], version: str, limit: int = LIMIT) -> str:
    """The page as one HTML file below ``limit`` bytes that asks for nothing else, neither from the network nor a disk.

    Figures that do not fit are left out, the largest first, and the page says so.

    Raises
    ------
    PlanError
        If it is too large without any figure.
    """
    shown = [one for one in sections if one is not None]
    figures = {part.name: part for one in shown for part in one.parts if isinstance(part, Figure)}
    while True:
        whole = _written(title, head, shown, figures, version)
        size = len(whole.encode())
        if size < limit:
            return whole
        largest = max(figures.values(), key=lambda one: len(one.svg), default=None)
        if largest is None or not largest.svg:
            raise PlanError(f"report: found {size} bytes of tables, expected less than {limit}; report fewer cells")
        bytes_of = len(largest.svg.encode())
        why = f"its {bytes_of / 1e3:.0f} kB would make this file larger than {limit / 1e6:g} MB; `dfopt plot` draws it"
        figures[largest.name] = replace(largest, svg="", why=why)


def _written(title: str, head: Html, sections: Sequence[Section], figures: Mapping[str, Figure], version: str) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # the browser itself refuses every request, and every script but this one: names in a graph may be anything
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    links = "".join(f'<li><a href="#{one.name}">{escape(one.title)}</a></li>' for one in sections)
    body = "\n".join(one.html(figures) for one in sections)
    return Template(_asset("report.html")).substitute(
        policy=policy, title=escape(title), style=style, head=head.code, links=links, body=body, script=script,
        foot=f"Written{' by dfopt ' * bool(version)}{escape(version)}. This file asks for nothing from any network.",
    )  # fmt: skip


def _asset(name: str) -> str:
    return (files("dfopt.show.report") / name).read_text(encoding="utf-8")
