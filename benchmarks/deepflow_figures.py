"""Pictures of the studies ``deepflow-*``, which `benchmarks/figures.py` draws: what a technology is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from dfopt.show.plots.style import CYCLE, LOOKS, drawn

MARKERS = "osD^vPX"
LIGHT = "#E6E6E6"


def _panels(across: int, wide: float = 3.3, down: int = 1) -> tuple[Any, Sequence[Any]]:
    size = (wide * across, 0.4 + 2.8 * down)
    figure, grid = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False, sharey=True)
    for ax in grid.ravel():
        ax.grid(True, color=LIGHT, linewidth=0.5)
        ax.set_axisbelow(True)
    return figure, grid.ravel()


def line(ax: Any, number: int, labels: Sequence[Any], heights: Sequence[float], label: str, more: int = 0) -> None:
    """One line over places in their order; the first of several is the thickest, so that all stay visible."""
    ax.plot(
        range(len(labels)), heights, marker=MARKERS[number], color=CYCLE[number], label=label,
        markersize=4.0 + 0.7 * more, linewidth=1.0 + 0.4 * more, markeredgecolor="black", markeredgewidth=0.3,
    )  # fmt: skip
    ax.set_xticks(range(len(labels)), [str(label) for label in labels])


def legend(figure: Any, ax: Any, columns: int) -> None:
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=columns, frameon=False)


def _order(column: Any) -> list[Any]:
    return list(dict.fromkeys(column))


@drawn
def scaling(frame: Any) -> Any:
    """Fig. 9: time of a step over logic nodes, a line for each memory, a panel for each network."""
    nodes, memories, networks = (_order(frame[name]) for name in ("logic_nm", "dram_tb_s", "network_gb_s"))
    figure, spots = _panels(len(networks))
    for ax, network in zip(spots, networks, strict=True):
        for number, memory in enumerate(memories):
            mine = frame[(frame["network_gb_s"] == network) & (frame["dram_tb_s"] == memory)].set_index("logic_nm")
            heights = mine.loc[nodes, "step_time_s"].tolist()
            line(ax, number, nodes, heights, f"DRAM {memory} TB/s", more=len(memories) - number)
        ax.set_title(f"network {network} GB/s")
        ax.set_xlabel("logic node (nm)")
    spots[0].set_ylim(bottom=0)  # of all, once every line is there
    spots[0].set_ylabel("time of a step (s)")
    legend(figure, spots[0], len(memories))
    return figure


@drawn
def searching(frame: Any) -> Any:
    """Fig. 10: time of a step over logic nodes, with more and more chosen."""
    nodes = _order(frame["logic_nm"])
    figure, (ax,) = _panels(1, 4.8)
    usual = (frame["core_area"] == 0.3) & (frame["dram_power"] == 0.16)
    chosen = {
        "data-parallel": frame[usual & (frame["strategy"] == "data")],
        "best parallelism": frame[usual],
        "and best architecture": frame,
    }
    for number, (label, cells) in enumerate(chosen.items()):
        best = cells.groupby("logic_nm")["step_time_s"].min()
        line(ax, number, nodes, best.loc[nodes].tolist(), label)
    ax.set_xlabel("logic node (nm)")
    ax.set_ylabel("time of a step (s)")
    ax.set_ylim(bottom=0)
    legend(figure, ax, 3)
    return figure


@drawn
def packages(frame: Any) -> Any:
    """Fig. 11: how much faster the best of every package size is than that of single chips."""
    sizes = _order(frame["package"])
    figure, (ax,) = _panels(1, 4.8)
    for number, node in enumerate(nodes := _order(frame["logic_nm"])):
        best = frame[frame["logic_nm"] == node].groupby("package")["step_time_s"].min()
        line(ax, number, sizes, (best[1] / best.loc[sizes]).tolist(), f"{node} nm")
    ax.axhline(1.32, color="black", linestyle="--", linewidth=0.8, label="the paper's most, 1.32")
    ax.set_xlabel("chips in a package")
    ax.set_ylabel("times as fast as single chips")
    ax.set_ylim(bottom=0.95)
    legend(figure, ax, len(nodes) + 1)
    return figure


def _map(ax: Any, cells: Any, across: str, down: str) -> None:
    """What binds in every cell, with the time of a step in ms."""
    columns, rows = _order(cells[across]), _order(cells[down])
    for cell in cells.itertuples():
        x, y = columns.index(getattr(cell, across)), rows.index(getattr(cell, down))
        look = LOOKS[cell.bound_by]
        ax.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=look.colour, edgecolor="white"))
        ms = f"{1e3 * cell.step_time_s:.{0 if cell.step_time_s >= 0.1 else 1}f}"
        ax.text(x, y, ms, ha="center", va="center", fontsize=7, bbox={"facecolor": "white", "linewidth": 0, "pad": 1})
    ax.set_xlim(-0.5, len(columns) - 0.5)
    ax.set_ylim(-0.5, len(rows) - 0.5)
    ax.set_xticks(range(len(columns)), [str(one) for one in columns])
    ax.set_yticks(range(len(rows)), [str(one) for one in rows])
    ax.grid(False)


def _key(figure: Any, frame: Any) -> None:
    bound = _order(frame["bound_by"])
    handles = [Patch(color=LOOKS[name].colour, label=f"bound by {LOOKS[name].label}") for name in bound]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), frameon=False)


@drawn
def limiters(frame: Any) -> Any:
    """What binds for most of a step, over logic nodes and memories, a panel for each network."""
    networks = _order(frame["network_gb_s"])
    figure, spots = _panels(len(networks))
    for ax, network in zip(spots, networks, strict=True):
        _map(ax, frame[frame["network_gb_s"] == network], "logic_nm", "dram_tb_s")
        ax.set_title(f"network {network} GB/s, time of a step (ms)")
        ax.set_xlabel("logic node (nm)")
    spots[0].set_ylabel("DRAM (TB/s)")
    _key(figure, frame)
    return figure


# -- the same of a model of today, on the roadmap -----------------------------------------------------


def _apart(frame: Any) -> Any:
    """Logic and memory of a technology in columns of their own."""
    logic, dram = zip(*(label.split("-") for label in frame["technology"]), strict=True)
    return frame.assign(logic=logic, dram=dram)


@drawn
def roadmap_limiters(frame: Any) -> Any:
    """What binds for most of an evaluation, over logic and memories, a row for each phase, a panel for each network."""
    frame = _apart(frame)
    networks, graphs = _order(frame["network_gb_s"]), _order(frame["graph"])
    figure, spots = _panels(len(networks), down=len(graphs))
    for place, ax in enumerate(spots):
        graph, network = graphs[place // len(networks)], networks[place % len(networks)]
        _map(ax, frame[(frame["graph"] == graph) & (frame["network_gb_s"] == network)], "logic", "dram")
        ax.set_title(f"{graph}, network {network} GB/s (ms)")
    for ax in spots[-len(networks) :]:
        ax.set_xlabel("logic")
    for ax in spots[:: len(networks)]:
        ax.set_ylabel("DRAM")
    _key(figure, frame)
    return figure


@drawn
def roadmap_scaling(frame: Any) -> Any:
    """How much faster than the oldest logic and memory: a line for each memory, a panel for each phase."""
    frame = _apart(frame)
    nodes, memories, networks = (_order(frame[name]) for name in ("logic", "dram", "network_gb_s"))
    figure, spots = _panels(len(graphs := _order(frame["graph"])), 4.2)
    for ax, graph in zip(spots, graphs, strict=True):
        mine = frame[frame["graph"] == graph].set_index(["network_gb_s", "dram", "logic"])["step_time_s"]
        first = mine[450, memories[0], nodes[0]]
        for number, memory in enumerate(memories):
            heights = [first / mine[450, memory, node] for node in nodes]
            line(ax, number, nodes, heights, f"{memory}, 450 GB/s", more=len(memories) - number)
        heights = [first / mine[networks[-1], memories[-1], node] for node in nodes]
        line(ax, len(memories), nodes, heights, f"{memories[-1]}, {networks[-1]} GB/s")
        ax.set_title(graph)
        ax.set_xlabel("logic")
    spots[0].set_ylim(bottom=0)  # of all, once every line is there
    spots[0].set_ylabel(f"times as fast as {nodes[0]}, {memories[0]}, 450 GB/s")
    legend(figure, spots[0], len(memories) + 1)
    return figure


@drawn
def roadmap_searching(frame: Any) -> Any:
    """How much faster than the slowest of the plans, with more and more chosen, in four generations."""
    labels = _order(frame["technology"])
    figure, spots = _panels(len(graphs := _order(frame["graph"])), 4.2)
    usual = (frame["core_area"] == 0.5) & (frame["dram_power"] == 0.168)
    chosen = {"best plan": frame[usual], "and best architecture": frame}
    for ax, graph in zip(spots, graphs, strict=True):
        first = frame[usual & (frame["graph"] == graph)].groupby("technology")["step_time_s"].max()
        for number, (label, cells) in enumerate(chosen.items()):
            best = cells[cells["graph"] == graph].groupby("technology")["step_time_s"].min()
            heights = (first / best).loc[labels].tolist()
            line(ax, number, [one.replace("-", "\n") for one in labels], heights, label, more=1 - number)
        ax.set_title(graph)
    spots[0].set_ylim(bottom=0.95)  # of all, once every line is there
    spots[0].set_ylabel("times as fast as the slowest plan")
    legend(figure, spots[0], 2)
    return figure


@drawn
def roadmap_packages(frame: Any) -> Any:
    """How much faster every package size is than single chips."""
    sizes = _order(frame["package"])
    figure, (ax,) = _panels(1, 4.8)
    for number, (graph, technology) in enumerate(_order(zip(frame["graph"], frame["technology"], strict=True))):
        mine = frame[(frame["graph"] == graph) & (frame["technology"] == technology)].set_index("package")
        heights = (mine["step_time_s"][1] / mine["step_time_s"].loc[sizes]).tolist()
        line(ax, number, sizes, heights, f"{graph}, {technology}")
    ax.axhline(1.32, color="black", linestyle="--", linewidth=0.8, label="the paper's most, 1.32")
    ax.set_xlabel("chips in a package")
    ax.set_ylabel("times as fast as single chips")
    ax.set_ylim(bottom=0.95)
    legend(figure, ax, 3)
    return figure


FIGURES = {
    "deepflow-fig09": {"deepflow-fig09": scaling, "limiters": limiters},
    "deepflow-fig10": {"deepflow-fig10": searching},
    "deepflow-fig11": {"deepflow-fig11": packages},
    "deepflow-roadmap-fig09": {"scaling": roadmap_scaling, "limiters": roadmap_limiters},
    "deepflow-roadmap-fig10": {"searching": roadmap_searching},
    "deepflow-roadmap-fig11": {"packages": roadmap_packages},
}
