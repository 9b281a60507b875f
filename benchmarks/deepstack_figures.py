"""Pictures of the studies ``deepstack-*``, which `benchmarks/figures.py` draws: what a stack of DRAM is worth."""

from __future__ import annotations

from typing import Any, Final

import matplotlib.pyplot as plt
from deepflow_figures import LIGHT, legend, line

from dfopt.show.plots.style import drawn

LEVELS: Final = {"L1": "torus", "L2": "mesh", "L3": "switch"}


def _panels(across: int, wide: float) -> tuple[Any, Any]:
    figure, grid = plt.subplots(
        1, across, figsize=(wide * across, 3.2), layout="constrained", squeeze=False, sharey=True
    )
    for ax in grid[0]:
        ax.grid(True, color=LIGHT, linewidth=0.5)
        ax.axhline(1.0, color="black", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, grid[0]


@drawn
def over_hbm(frame: Any) -> Any:
    """Tokens/s over those with HBM, over the sequences of a step, a line for each number of layers."""
    figure, (ax,) = _panels(1, 4.8)
    table = frame.pivot(index="sequences", columns="layers_on_chip", values="tokens_per_s")
    sequences = [f"{count:,}" for count in table.index]
    for number, layers in enumerate(layers for layers in table.columns if layers):
        line(ax, number, sequences, (table[layers] / table[0]).tolist(), f"{layers} layers")
    ax.set_xlabel("sequences of a decode step")
    ax.set_ylabel("tokens/s over those with HBM")
    ax.set_ylim(bottom=0)
    legend(figure, ax, 3)
    return figure


@drawn
def rates(frame: Any) -> Any:
    """Fig. 20: tokens/s over those of the start, over the rate of one level, a line for each level and die."""
    graphs = list(dict.fromkeys(frame["graph"]))
    figure, spots = _panels(2 * len(graphs), 2.3)
    for at, (graph, die) in enumerate((graph, die) for graph in graphs for die in ("logic", "dram")):
        mine = frame[(frame["graph"] == graph) & (frame["network_die"] == die)].set_index("rate")["tokens_per_s"]
        for number, (level, name) in enumerate(LEVELS.items()):
            steps = [f"{level} x0.5", "start", f"{level} x1.5", f"{level} x4"]
            heights = (mine.loc[steps] / mine.loc["start"]).tolist()
            line(spots[at], number, ("0.5", "1", "1.5", "4"), heights, f"{level} ({name})")
        spots[at].set_title(f"{graph}, {'logic' if die == 'logic' else 'DRAM'} die", fontsize=9)
        spots[at].set_xlabel("times the rate")
    spots[0].set_ylabel("tokens/s over those of the start")
    legend(figure, spots[0], 3)
    return figure


FIGURES: Final = {"deepstack-fig20": {"deepstack-fig20": rates}, "deepstack-hbm": {"deepstack-hbm": over_hbm}}
