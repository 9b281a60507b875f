"""A Matplotlib figure as inline SVG: small, with ids that no other figure on the page has, without any address."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any, Final
from xml.etree import ElementTree

from dfopt.show.plots.output import write

__all__ = ["inline_svg", "minified"]

_NUMBER: Final = re.compile(r"-?\d*\.\d+(?:e[-+]?\d+)?")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_FONT: Final = re.compile(r"font:\s*(?:(italic|oblique)\s+)?(?:(bold|[1-9]00)\s+)?([\d.]+)px[^;]*")
_COORDINATES: Final = frozenset(
    {
        "d",
        "x",
        "y",
        "x1",
        "y1",
        "x2",
        "y2",
        "width",
        "height",
        "transform",
        "viewBox",
        "style",
        "cx",
        "cy",
        "r",
        "points",
    }
)
_DROPPED: Final = frozenset({"metadata", "style", "title"})
_TEXTS: Final = frozenset({"text", "tspan"})


def inline_svg(figure: Any, prefix: str, label: str) -> str:
    """A figure as an ``<svg>`` element for an HTML page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to draw.
    prefix : str
        Put before every id, so that figures of one page do not share any.
    label : str
        What a reader who does not see it is told.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> made = inline_svg(Figure(figsize=(1, 1)), "f1", "an <empty> figure")
    >>> made[:53], "http" in made
    ('<svg role="img" aria-label="an &lt;empty&gt; figure" ', False)
    """
    target = io.BytesIO()
    write(figure, target, 0.05, format="svg", metadata={"Date": None}, transparent=True)
    return minified(target.getvalue().decode(), prefix, label)


def minified(source: str, prefix: str, label: str) -> str:
    """An SVG file as an element: see `inline_svg`.

    Examples
    --------
    >>> minified('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 72 9"><g id="a"><g/></g></svg>', "f", "x")
    '<svg role="img" aria-label="x" style="width:108px;min-width:79px;max-width:100%" viewBox="0 0 72 9"></svg>'
    """
    root = ElementTree.fromstring(source)
    used = set(_REFERENCE.findall(source))
    used |= {value[1:] for node in root.iter() for key, value in node.attrib.items() if key.endswith("href")}
    wide = float((root.get("viewBox") or "0 0 500 0").split()[2])
    # points of 1.5 pixels: letters of 8 points are as large as small print; on a narrow page 1.1, and the box scrolls
    style = f"width:{1.5 * wide:.0f}px;min-width:{min(1.1 * wide, 1000):.0f}px;max-width:100%"
    made: list[str] = [f'<svg role="img" aria-label="{escape(label, quote=True)}" style="{style}"']
    made.append(f' viewBox="{escape(_rounded(root.get("viewBox") or ""), quote=True)}">')
    for child in root:
        _write(child, prefix, used, made)
    return "".join([*made, "</svg>"])


def _write(node: ElementTree.Element, prefix: str, used: set[str], made: list[str]) -> None:
    name = node.tag.rpartition("}")[2]
    if name in _DROPPED:
        return
    if name == "pattern":
        _small_tile(node)
    attributes = _attributes(node, prefix, used)
    inner: list[str] = []
    for child in node:
        _write(child, prefix, used, inner)
    words = node.text if name in _TEXTS else None
    if name in ("g", "defs") and not inner:
        return
    if name == "g" and not attributes:
        made.extend(inner)
        return
    tag = "".join([name, *(f' {key}="{escape(value, quote=True)}"' for key, value in attributes.items())])
    if words or inner:
        made += [f"<{tag}>", escape(words or "", quote=False), *inner, f"</{name}>"]
    else:
        made.append(f"<{tag}/>")


_TILE: Final = 6.0  # points: what the densest hatches of Matplotlib repeat after


def _small_tile(pattern: ElementTree.Element) -> None:
    """Cut a hatch of many closed marks, such as dots, to one period: Matplotlib writes a square inch of them."""
    side = float(pattern.get("width") or 0.0)
    paths = [child for child in pattern if child.tag.endswith("path")]
    if len(paths) != 1 or side <= _TILE or pattern.get("height") != pattern.get("width"):
        return
    marks = [mark.strip() for mark in re.split(r"[zZ]", paths[0].get("d") or "") if mark.strip()]
    starts = [tuple(map(float, mark.split()[1:3])) for mark in marks if mark.startswith("M")]
    if len(starts) != len(marks) or len(marks) < 16 or "z" not in (paths[0].get("d") or "").lower():
        return
    places = {(round(x, 1), round(y, 1)) for x, y in starts}
    tolerance = 1e-3 * side
    for x, y in starts:
        for right, up in ((x + _TILE, y), (x, y + _TILE)):
            inside = right <= side - tolerance and up <= side - tolerance
            near = {(round(right + a, 1), round(up + b, 1)) for a in (-0.1, 0, 0.1) for b in (-0.1, 0, 0.1)}
            if inside and not near & places:
                return  # not of this period
    kept = [mark for mark, (x, y) in zip(marks, starts, strict=True) if x <= 2 * _TILE and y <= 2 * _TILE]
    paths[0].set("d", " z ".join([*kept, ""]))
    pattern.set("width", f"{_TILE:g}")
    pattern.set("height", f"{_TILE:g}")


def _attributes(node: ElementTree.Element, prefix: str, used: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in node.attrib.items():
        name = key.rpartition("}")[2]
        if name == "id":
            if value in used:
                found[name] = f"{prefix}-{value}"
        elif name == "href":
            found[name] = f"#{prefix}-{value[1:]}" if value.startswith("#") else value
        elif name == "space":
            continue  # the page's style keeps spaces
        else:
            value = _REFERENCE.sub(lambda match: f"url(#{prefix}-{match[1]})", value)
            if name == "style":
                value = _styled(value)
            found[name] = _rounded(value) if name in _COORDINATES else value
    if node.tag.endswith("}path") and "d" in found:
        found["d"] = re.sub(r"\s+", " ", re.sub(r"\s*([MLCQZz])\s*", r"\1", found["d"])).strip()
    return {key: value for key, value in found.items() if value}


def _styled(style: str) -> str:
    """A style without spaces, with the size of a font instead of its list of families."""

    def font(match: re.Match[str]) -> str:
        slant, weight, size = match.groups()
        words = [f"font-size:{size}px"]
        words += [f"font-style:{slant}"] if slant else []
        words += [f"font-weight:{weight}"] if weight else []
        return ";".join(words)

    parts = [part.strip() for part in _FONT.sub(font, style).split(";")]
    return ";".join(re.sub(r"\s*:\s*", ":", part) for part in parts if part)


def _rounded(numbers: str) -> str:
    """Numbers with two decimals, small ones with three digits."""

    def one(match: re.Match[str]) -> str:
        value = float(match[0])
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"
        return "0" if shown == "-0" else shown

    return _NUMBER.sub(one, numbers)
