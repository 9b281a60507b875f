"""Figures as files, and in pages: laid out once, cut to what is drawn, the same bytes each time."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any, Final

from dfopt.documents.files import replaced
from dfopt.documents.html import escape
from dfopt.errors import PlanError, visible
from dfopt.show.plots.style import Figure, drawn, figure_with, laid_out

SUFFIXES: Final = (".svg", ".png", ".pdf")
_TAG: Final = re.compile(r"<[^<>]*>")
_ID: Final = re.compile(r'( id="|url\(#|href="#)')
_WIDEST: Final = 1200  # pixels below which a figure may shrink to its window; a larger one would be too small to read


def _write(figure: Figure, target: Any, pad: float, **options: Any) -> None:
    """Write a figure with ``pad`` inches around what is drawn; ``options`` are those of Matplotlib's ``savefig``.

    Matplotlib's own ``bbox_inches="tight"`` draws everything twice and measures texts with the file's own renderer,
    which is slow for SVG. Here Agg, which keeps what it has measured, lays the figure out, and it is drawn once.
    """
    import matplotlib as mpl

    engine, dpi = figure.get_layout_engine(), figure.dpi
    pixels = options["format"] == "png"
    # letters snap to the pixels of a PNG, which makes texts wider or narrower; of other files they do not
    hinting = "force_autohint" if pixels else "none"
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "dfopt", "pdf.fonttype": 42, "text.hinting": hinting}
    with mpl.rc_context(style):
        try:
            if pixels:
                figure.set_dpi(options["dpi"])
            laid_out(figure)  # a layout starts from the last one: from the second on it is the same
            box = figure.get_tightbbox(laid_out(figure)).padded(pad)
            figure.set_layout_engine(None)
            figure.savefig(target, bbox_inches=box, **options)
        finally:
            figure.set_layout_engine(engine)
            figure.set_dpi(dpi)


@drawn
def save(ax: Any, path: str | os.PathLike[str]) -> None:
    """Save the figure of some axes, or a whole figure, to a reproducible file.

    The suffix decides: ``.svg``, in which text stays text, so it can be searched and edited; ``.png`` (160 dots per
    inch) or ``.pdf``.

    Raises
    ------
    PlanError
        If the suffix is another one.
    DocumentError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> path = Path(tempfile.mkdtemp()) / "empty.svg"
    >>> save(Figure().subplots(), path)
    >>> path.read_text()[:5]
    '<?xml'
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise PlanError(f"save: found {str(path)!r}, expected a name that ends in {', '.join(SUFFIXES)}")
    # no dates, and ids from a fixed salt: the same picture is the same file
    metadata = {
        ".svg": {"Date": None, "Creator": "dfopt"},
        ".pdf": {"CreationDate": None, "Creator": "dfopt"},
        ".png": {"Software": "dfopt"},
    }[suffix]
    drawn_as = io.BytesIO()
    _write(figure_with(ax), drawn_as, 0.08, format=suffix[1:], dpi=160, metadata=metadata)
    data = drawn_as.getvalue()
    with replaced(target) as part:
        part.write_bytes(visible(data.decode()).encode() if suffix == ".svg" else data)


def inline_svg(figure: Any, prefix: str, label: str) -> str:
    """A figure as an ``<svg>`` element for an HTML page.

    Parameters
    ----------
    figure
        A figure of Matplotlib.
    prefix : str
        Put before every id, so that ids are unique on a page.
    label : str
        Text for readers who do not see the figure.
    """
    target = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    _write(figure, target, 0.05, format="svg", metadata=nothing, transparent=True)
    source = visible(target.getvalue().decode())
    view = source[source.index("viewBox=") :].split('"')[1]
    wide = 1.5 * float(view.split()[2])  # points of 1.5 pixels: letters of 8 points are as large as small print
    least = f"min-width:{wide / 1.5:.0f}px;" if wide > _WIDEST else ""
    head = f'<svg role="img" aria-label="{escape(label, quote=True)}" style="width:{wide:.0f}px;{least}max-width:100%"'
    inner = source[source.index(">", source.index("<svg")) + 1 :].strip()
    return f'{head} viewBox="{view}">' + _TAG.sub(lambda tag: _ID.sub(rf"\1{prefix}-", tag[0]), inner)
