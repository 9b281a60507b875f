"""Results to draw, solved once, and what tests ask of a picture."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import dfopt as df
from dfopt.documents.heat import HeatAnswer, HeatProof, HeatReport, ShadowPrice, SlowedPartition
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result

ALONE = df.Assumptions(execution="kernel_by_kernel", sharding_objective="seconds")
# name -> graph, its parameters, system, options of the solve
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "fused": ("gpt3-175b", {}, "sn10-8-ring", {"tp": 8}),
    "pipeline": ("gpt2-small", {"mode": "training", "batch": 32}, "sn10-8-ring", {"tp": 2, "pp": 4, "interleave": 1}),
    "chunks": ("gpt2-small", {"mode": "training", "batch": 32}, "sn10-8-ring", {"tp": 2, "pp": 4, "interleave": 3}),
    "ends": ("llama-3.1-8b", {"ends": True}, "h100-8", {"tp": 2, "pp": 4}),
    "many": ("dlrm-v2-mlperf", {}, "h100-8", {"pp": 1}),
    "one-by-one": ("llama-3.2-1b", {"mode": "training"}, "h100-8", {"tp": 8, "assumptions": ALONE}),
}


@cache
def result(name: str) -> Result:
    """A solved case."""
    graph, parameters, system, options = CASES[name]
    return df.optimize(df.load_graph(graph, **parameters), df.load_system(system), time_limit=30, **options)


def heat_answer(mapping: Mapping, name: str, step: float, keeps: bool = True) -> HeatAnswer:
    """One answer of a heat report, whose figures are made up."""
    return HeatAnswer(
        name=name, mapping=mapping, step_time_s=step, interval_s=step, pause_s=0.0, lowest_frequency=0.93, partitions=3,
        logic_max_c=104.25, refresh_rate=2.0, power_w=250.0, energy_per_step_j=1.5e6, keeps_limits=keeps,
        violations=() if keeps else ("the die is <too> hot",),
    )  # fmt: skip


def heat_report(mapping: Mapping, aware: float) -> HeatReport:
    """A report with every kind of part, whose heat-aware answer takes so long."""
    answers = [("ignore", 1.0, False), ("throttle", 2.0, True), ("aware", aware, True)]
    proof = {"status": "optimal_per_level", "bound_s": 1.0, "interval_s": 1.0, "gap": 0.0, "seconds": 1.0}
    return HeatReport(
        graph="a<b>", system="s", stack="k", plan="TP8", limit_logic_c=105.0,
        answers=tuple(heat_answer(mapping, *words) for words in answers),
        proof=HeatProof(**proof, blocks=9, levels=8, columns=3, rounds=2),
        price=ShadowPrice(lp_logic_s_per_k=0.25, lp_dram_s_per_k=0.0, binding=("cell 1,1 of die dram0",)),
        slowed=(SlowedPartition(stage=0, partition=1, frequency=0.86, kernels=("Q", "K")),),
    )  # fmt: skip


def closed_figures() -> Iterator[None]:
    """A fixture of tests that draw: without a screen, and nothing stays open."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield
    plt.close("all")


def with_plan(one: Result, **changes: Any) -> Result:
    """A result as if its plan were another one; its score stays."""
    return one.model_copy(update={"plan": Plan(**{**one.plan.model_dump(exclude={"schema_"}), **changes})})


def with_partitions(one: Result, count: int) -> Result:
    """A result as if it had so many partitions, all of one stage: the last one takes the kernels of those left out."""
    ordered = sorted(one.score.partitions, key=lambda part: (part.stage, part.partition))
    ranks = {(part.stage, part.partition): min(rank, count - 1) for rank, part in enumerate(ordered)}
    kernels = tuple(
        kernel.model_copy(update={"stage": 0, "partition": ranks[kernel.stage, kernel.partition]})
        for kernel in one.mapping.kernels
    )
    parts = [
        part.model_copy(update={"stage": 0, "partition": rank, "kernels": names})
        for rank, part in enumerate(ordered[:count])
        if (names := tuple(kernel.name for kernel in kernels if kernel.partition == rank))
    ]
    score = one.score.model_copy(update={"partitions": tuple(parts)})
    return one.model_copy(update={"mapping": one.mapping.model_copy(update={"kernels": kernels}), "score": score})


def texts(ax: Any) -> list[tuple[str, Any]]:
    """Every written text of a figure with its box in pixels, as Agg draws it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = ax.get_figure(root=True) if hasattr(ax, "get_figure") and ax.get_figure() is not None else ax
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # to draw hatches takes three times as long
    renderer = canvas.get_renderer()
    found = []
    for text in figure.findobj(Text):
        if (text.get_visible() and text.get_text().strip() and text.axes is not None) or text in figure.texts:
            found.append(text)
    for legend in [*figure.legends, *(one.get_legend() for one in figure.axes if one.get_legend())]:
        found += [text for text in legend.get_texts() if text not in found]
    shown = [text for text in found if not _out_of_view(text)]
    # of an annotation the words alone, without the line to its point
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for text in shown]


def _out_of_view(text: Any) -> bool:
    """Ticks beyond the limits are not drawn; nor is anything of axes that are off, but their texts."""
    ax = text.axes
    if ax is None:
        return False
    for axis, limits, place in ((ax.xaxis, ax.get_xlim(), 0), (ax.yaxis, ax.get_ylim(), 1)):
        labels = [
            label for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) for label in (tick.label1, tick.label2)
        ]
        if text in labels or text in (axis.label, axis.get_offset_text()):
            low, high = sorted(limits)
            if not ax.axison or not text.get_visible():
                return True
            spot = text.get_position()[place]
            return text in labels and not low - 1e-12 * abs(low) <= spot <= high + 1e-12 * abs(high)
    return False


def overlapping(ax: Any, slack: float = 1.0) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes share more than ``slack`` pixels both ways."""
    found = []
    for (one, a), (other, b) in combinations(texts(ax), 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > slack and along > slack:
            found.append((one, other))
    return found


def colours(ax: Any) -> set[str]:
    """The face colours of patches and collections and the colours of lines, without white and greys."""
    from matplotlib.collections import Collection
    from matplotlib.colors import to_hex, to_rgb
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = ax.get_figure(root=True)
    found: set[str] = set()
    for patch in figure.findobj(Patch):
        if patch is not figure.patch and patch.get_facecolor()[3] > 0.5:
            found.add(to_hex(patch.get_facecolor()))
    for one in figure.findobj(Collection):
        found |= {to_hex(colour) for colour in one.get_facecolor()}
    for line in figure.findobj(Line2D):
        found.add(to_hex(line.get_color()))
    return {one for one in found if len(set(to_rgb(one))) > 1}
