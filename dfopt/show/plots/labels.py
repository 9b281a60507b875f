"""Labels beside points, where none covers another or a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dfopt.show.plots.style import figure_with, laid_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRIED: Final = 60  # labels that are tried at most: more are no help to anyone
_NEAR: Final = 8  # of the places beside a point
_PLACES: Final = (  # across and up from a point, in radii
    (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 2.6), (0, -2.6), (2, 2), (2, -2),
    (-2, 2), (-2, -2), (4, 5), (4, -5), (-4, 5), (-4, -5), (0, 9), (0, -9), (4, 13), (4, -13), (-6, 13), (-6, -13),
)  # fmt: skip


def free_labels(
    ax: Axes,
    points: Sequence[tuple[float, float, str]],
    size: float = 7.0,
    radius: float = 4.0,
    most: int = 3,
    others: Sequence[tuple[float, float]] = (),
    far: bool = True,
) -> None:
    """Place labels next to points such that none overlaps another label or a point; the first have priority.

    Points that lie on each other share one label, of at most ``most`` texts. The limits of the axes must be set.

    Parameters
    ----------
    points, others : sequence of (float, float, str) and of (float, float)
        Place in data coordinates and text, the most important first; more places that are to stay free.
    size, radius : float
        Points of the letters, and of the marks that are to stay free.
    far : bool
        Whether a label may stand away from its point, with a line to it.
    """
    from matplotlib.text import Text

    renderer = laid_out(figure_with(ax))
    frame = ax.get_window_extent(renderer)
    pixel = figure_with(ax).dpi / 72
    spots: list[tuple[float, float, float, float, list[str]]] = []
    for x, y, words in points:
        left, low = ax.transData.transform((x, y))
        same = next((s for s in spots if abs(s[0] - left) + abs(s[1] - low) < 1.2 * radius * pixel), None)
        if same is None:
            spots.append((left, low, x, y, [words]))
        elif words not in same[4]:
            same[4].append(words)
    half = radius * pixel * 0.8
    gap = 0.4 * size * pixel  # between labels side by side: "1" and "0, 2" would read as "10, 2"
    middles = [(s[0], s[1]) for s in spots] + [tuple(ax.transData.transform(other)) for other in others]
    written = [text.get_window_extent(renderer).extents for text in ax.texts if text.get_text()]
    taken = np.array(written + [(a - half, b - half, a + half, b + half) for a, b in middles]).reshape(-1, 4)
    for *_, x, y, texts in spots[:_TRIED]:
        more = len(texts) - most
        text = ", ".join(texts[:most]) + (f" +{more}" if more > 0 else "")
        for across, down in _PLACES if far else _PLACES[:_NEAR]:
            shift = (across * (radius + 2), down * (radius + 2))
            side = "left" if across > 0 else "right" if across < 0 else "center"
            base = "bottom" if down > 0 else "top" if down < 0 else "center"
            away = abs(across) + abs(down) > 2
            note = ax.annotate(
                text, (x, y), xytext=shift, textcoords="offset points", ha=side, va=base, fontsize=size, zorder=5,
                annotation_clip=False, arrowprops={"arrowstyle": "-", "linewidth": 0.4} if away else None,
                bbox={"boxstyle": "square,pad=0.05", "fc": "white", "ec": "none", "alpha": 0.7},
            )  # fmt: skip
            note.update_positions(renderer)
            # without the line to the point, which may pass over anything
            box = Text.get_window_extent(note, renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            x0, y0, x1, y1 = box.extents
            clear = (taken[:, 0] > x1 + gap) | (taken[:, 2] < x0 - gap) | (taken[:, 1] > y1) | (taken[:, 3] < y0)
            if inside and clear.all():
                taken = np.vstack([taken, box.extents])
                break
            note.remove()
