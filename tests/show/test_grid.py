"""Tables at any width: every figure whole, every header whole, no line too long, whatever the window."""

from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st

from dfopt.show.grid import ColumnKind, FactList, Grid, print_to


def printed(renderable: object, width: int) -> list[str]:
    said = io.StringIO()
    print_to(said, renderable, width)  # type: ignore[arg-type]
    return said.getvalue().splitlines()


WORDS = st.text("abcdefghij_-", min_size=1, max_size=30)
TEXTS = st.lists(WORDS, max_size=20).map(" ".join)
FIGURES = st.floats(0, 1e12).map("{:.4g}".format)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    kinds: list[ColumnKind] = draw(st.lists(st.sampled_from(["figure", "word", "text"]), min_size=1, max_size=9))
    cells = {"figure": FIGURES, "word": WORDS, "text": TEXTS}
    rows = draw(st.lists(st.tuples(*(cells[kind] for kind in kinds)), max_size=4))
    return Grid("a title", {f"header {place}": kind for place, kind in enumerate(kinds)}, rows)


@given(grids(), st.integers(30, 150))
def test_no_figure_is_cut_and_no_line_too_long(grid: Grid, width: int) -> None:
    lines = printed(grid, width)
    assert all(len(line) <= width for line in lines)
    whole = "\n".join(lines)
    for row in grid.rows:
        for kind, cell in zip(grid.kinds, map(str, row), strict=True):
            if kind == "figure":
                assert re.search(rf"(?<!\S){re.escape(cell)}(?![^\s,])", whole), (cell, whole)
            elif kind == "text":  # nothing is lost, though it may be broken
                assert all(piece in whole for word in cell.split() for piece in re.findall(r"[^_-]+", word)[:1])
    if "─" in whole:
        assert all(name in lines[1] for name in grid.names)


@given(st.lists(st.tuples(WORDS, TEXTS), min_size=1, max_size=4), st.integers(30, 150))
def test_facts_fit(rows: list[tuple[str, str]], width: int) -> None:
    assert all(len(line) <= width for line in printed(FactList(rows), width))
