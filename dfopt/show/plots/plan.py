"""The machine with what lies where: chips of every pipeline stage, their layers and memory, and the copies of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Final

from dfopt.documents.result import Result
from dfopt.documents.score import StageScore
from dfopt.physics.schedule import score_of_stage
from dfopt.show.answer import plan_in_words
from dfopt.show.plots.style import GREY, PALETTE, Axes, about, axes, drawn, head, inches
from dfopt.units import show_unit

_CHIPS: Final = 64  # squares of a stage
_STAGE: Final = 1.2  # inches of a stage
_COPIES: Final = 3  # drawn behind each other
_ARROW: Final = {"arrowstyle": "-|>", "color": PALETTE["vermillion"], "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}


@drawn
def plan(result: Result, ax: Axes | None = None) -> Axes:
    """Plot one replica of the model on the machine: pipeline stages with chips, layers, memory and time.

    A square is a chip, a frame is a stage, an arrow sends activations; frames behind are the other copies of the batch.
    Below stands which network dims carry each axis.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=2, pp=4)
    >>> [text.get_text() for text in df.plot.plan(result).texts if text.get_text().startswith("stage")]
    ['stage 0', 'stage 1', 'stage 2', 'stage 3']
    """
    from matplotlib.patches import Rectangle

    stages, copies = result.plan.stages, result.plan.copies
    chips = result.system.chips // (stages * copies)
    room = max(int((inches(11.5) - 0.2) / _STAGE), 2)
    shown: Sequence[int | None] = range(stages)
    if stages > room:
        shown = [*range(room - 2), None, stages - 1] if room > 2 else [0, stages - 1]
    across = math.ceil(math.sqrt(min(chips, _CHIPS)))
    side = 0.8 / max(across, 3)
    tall = 0.62 + side * math.ceil(min(chips, _CHIPS) / across) + 0.62
    behind = 0.07 * (min(copies, _COPIES) - 1)
    lines = [line for axis in _axes(result) for line in textwrap.wrap(axis, int(inches(11.5) * 15))]
    below = 0.17 * len(lines) + 0.1
    width = _STAGE * len(shown) + behind + 0.1
    ax = axes(ax, max(width, min(inches(11.5), 6.5)) + 0.1, tall + behind + below + 0.1)
    for position, stage in enumerate(shown):
        left = _STAGE * position
        if position:
            ax.annotate("", (left, tall / 2), (left - 0.17, tall / 2), arrowprops=_ARROW, zorder=4)
        if stage is None:
            ax.text(left + _STAGE / 2 - 0.1, tall / 2, f"... {stages - len(shown) + 1} more", ha="center", fontsize=7.5)
            continue
        for copy in reversed(range(min(copies, _COPIES))):
            corner = (left + 0.07 * copy, 0.07 * copy)
            size = (_STAGE - 0.18, tall)
            ax.add_patch(Rectangle(corner, *size, facecolor="white" if copy == 0 else GREY, edgecolor="black", lw=0.8))
        score = score_of_stage(result, stage)
        centre = left + (_STAGE - 0.18) / 2
        words = f"stage {stage}" if stages > 1 else "all layers"
        ax.text(centre, tall - 0.07, words, ha="center", va="top", fontsize=8, weight="bold")
        ax.text(centre, tall - 0.25, "\n".join(_layers(result, score)), ha="center", va="top", fontsize=7)
        start = centre - side * across / 2
        for chip in range(min(chips, _CHIPS)):
            at = (start + side * (chip % across), tall - 0.62 - side * (1 + chip // across))
            ax.add_patch(Rectangle(at, 0.86 * side, 0.86 * side, facecolor=PALETTE["sky"], edgecolor="black", lw=0.5))
        held = f"{show_unit(score.dram_bytes, 'bytes', 3)} a chip"
        words = f"{chips:,} chip{'s' * (chips > 1)}\n{held}\n{show_unit(score.time_s, 'time', 3)} busy"
        ax.text(centre, 0.05, words, ha="center", va="bottom", fontsize=7)
    for row, line in enumerate(lines):
        ax.text(0, -0.12 - 0.17 * row, line, ha="left", va="top", fontsize=7.5)
    ax.set(xlim=(-0.05, width), ylim=(-below - 0.05, tall + behind + 0.05))
    ax.set_aspect("equal", anchor="NW")
    ax.set_axis_off()
    head(ax, f"What lies where on the machine\n{about(result)}\n{plan_in_words(result)}")
    return ax


def _layers(result: Result, score: StageScore) -> list[str]:
    """The layers of a stage, and what runs there once."""
    layers = result.graph.layers
    names = layers.kinds if result.score.has_kinds and result.graph.folded else ()
    once = [names[kind] for kind in score.runs if names and kind >= layers.counted]
    return [f"{score.layers} layer{'s' * (score.layers != 1)}", " + ".join(once)]


def _axes(result: Result) -> list[str]:
    """Every axis with its degree, what it splits, and the network dims that carry it."""
    words = {
        "tp": "splits every kernel over chips of a stage", "mp": "splits modules over chips of a stage",
        "pp": "puts layers into stages, an arrow sends activations",
        "dp": "copies of this drawing, each with its part of the batch",
    }  # fmt: skip
    return [
        f"{axis.name.upper()} {degree} over {' x '.join(dims)}: {words.get(axis.name, axis.title)}"
        for axis, degree, dims in result.plan.axes if degree > 1
    ] + ["Busy: a chip of the stage, with one microbatch."]  # fmt: skip
