"""Pictures of the studies ``deepflow-*``, which `benchmarks/figures.py` draws: what a technology is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt

from dfopt.show.plots.style import CYCLE, drawn

MARKERS = "osD^vPX"
LIGHT = "#E6E6E6"


def _panels(across: int, wide: float = 3.3) -> tuple[Any, Sequence[Any]]:
    figure, grid = plt.subplots(
        1, across, figsize=(wide * across, 3.2), layout="constrained", squeeze=False, sharey=True
    )
    for ax in grid[0]:
        ax.grid(True, color=LIGHT, linewidth=0.5)
        ax.set_axisbelow(True)
    return figure, grid[0]


def _line(ax: Any, number: int, labels: Sequence[Any], heights: Sequence[float], label: str, more: int = 0) -> None:
    """One line over places in their order; the first of several is the thickest, so that all stay visible."""
    ax.plot(
        range(len(labels)), heights, marker=MARKERS[number], color=CYCLE[number], label=label,
        markersize=4.0 + 0.7 * more, linewidth=1.0 + 0.4 * more, markeredgecolor="black", markeredgewidth=0.3,
    )  # fmt: skip
    ax.set_xticks(range(len(labels)), [str(label) for label in labels])


def _legend(figure: Any, ax: Any, columns: int) -> None:
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
            _line(ax, number, nodes, mine.loc[nodes, "step_time_s"].tolist(), f"DRAM {memory} TB/s")
        ax.set_title(f"network {network} GB/s")
        ax.set_xlabel("logic node (nm)")
        ax.set_ylim(bottom=0)
    spots[0].set_ylabel("time of a step (s)")
    _legend(figure, spots[0], len(memories))
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
        _line(ax, number, nodes, best.loc[nodes].tolist(), label)
    ax.set_xlabel("logic node (nm)")
    ax.set_ylabel("time of a step (s)")
    ax.set_ylim(bottom=0)
    _legend(figure, ax, 3)
    return figure


@drawn
def packages(frame: Any) -> Any:
    """Fig. 11: how much faster the best of every package size is than that of single chips."""
    sizes = _order(frame["package"])
    figure, (ax,) = _panels(1, 4.8)
    for number, node in enumerate(nodes := _order(frame["logic_nm"])):
        best = frame[frame["logic_nm"] == node].groupby("package")["step_time_s"].min()
        _line(ax, number, sizes, (best[1] / best.loc[sizes]).tolist(), f"{node} nm")
    ax.axhline(1.32, color="black", linestyle="--", linewidth=0.8, label="the paper's most, 1.32")
    ax.set_xlabel("chips in a package")
    ax.set_ylabel("times as fast as single chips")
    ax.set_ylim(bottom=0.95)
    _legend(figure, ax, len(nodes) + 1)
    return figure


FIGURES = {
    "deepflow-fig09": {"deepflow-fig09": scaling},
    "deepflow-fig10": {"deepflow-fig10": searching},
    "deepflow-fig11": {"deepflow-fig11": packages},
}
