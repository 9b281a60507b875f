"""A Matplotlib figure as an ``<svg>`` element of a page, with ids that no other figure there has."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any, Final

from dfopt.show.plots.output import write

__all__ = ["inline_svg"]

_TAG: Final = re.compile(r"<[^<>]*>")
_ID: Final = re.compile(r'( id="|url\(#|href="#)')
_WIDEST: Final = 1200  # pixels below which a figure may shrink to its window; a larger one would be too small to read


def inline_svg(figure: Any, prefix: str, label: str) -> str:
    """A figure as an ``<svg>`` element for an HTML page.

    ``prefix`` is put before every id, so that figures of one page do not share any; ``label`` is what a reader who
    does not see it is told.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> made = inline_svg(Figure(figsize=(1, 1)), "f1", "an <empty> figure")
    >>> made[:53], "http" in made
    ('<svg role="img" aria-label="an &lt;empty&gt; figure" ', False)
    """
    target = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    write(figure, target, 0.05, format="svg", metadata=nothing, transparent=True)
    source = target.getvalue().decode()
    view = source[source.index("viewBox=") :].split('"')[1]
    wide = 1.5 * float(view.split()[2])  # points of 1.5 pixels: letters of 8 points are as large as small print
    least = f"min-width:{wide / 1.5:.0f}px;" if wide > _WIDEST else ""
    head = f'<svg role="img" aria-label="{escape(label, quote=True)}" style="width:{wide:.0f}px;{least}max-width:100%"'
    inner = source[source.index(">", source.index("<svg")) + 1 :].strip()
    return f'{head} viewBox="{view}">' + _TAG.sub(lambda tag: _ID.sub(rf"\1{prefix}-", tag[0]), inner)
