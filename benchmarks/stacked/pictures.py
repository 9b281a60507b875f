"""Draw the curves of figure 16: tokens/s over the number of DRAM layers, as published and here.

    python benchmarks/stacked/pictures.py [FILE]

Each curve is divided by its largest value: their energies and rates are not published, so that only shapes compare.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from asked import BATCHES, HERE
from claimed import curves_16, rank

import dfopt as df
from dfopt.show.plots.style import CYCLE, drawn


@drawn
def figure_16() -> Any:
    """A panel for each phase and batch."""
    curves = curves_16()
    figure, grid = plt.subplots(2, len(BATCHES), figsize=(9, 4), layout="constrained", sharex=True, sharey=True)
    for down, phase in enumerate(("decode", "prefill")):
        for ax, batch in zip(grid[down], BATCHES, strict=True):
            ax.grid(True, color="#E6E6E6", linewidth=0.5)
            if (phase, batch) in curves:
                layers, theirs, ours = curves[phase, batch]
                for values, label, style in ((theirs, "published", "--"), (ours, "dfopt", "-")):
                    heights, color = [value / max(values) for value in values], CYCLE[label == "dfopt"]
                    ax.plot(layers, heights, style, color=color, label=label, linewidth=1.4)
                    best = values.index(max(values))
                    ax.plot(layers[best], 1.0, "o", color=color, markersize=5, markeredgecolor="black")
                side = "right" if phase == "decode" else "left"  # where no curve is
                at = 0.96 if side == "right" else 0.04
                ax.text(at, 0.05, f"rank {rank(theirs, ours):.2f}", ha=side, transform=ax.transAxes, fontsize=8)
            ax.set_title(f"{phase} of {batch}", fontsize=9)
    for ax in grid[-1]:
        ax.set_xlabel("DRAM layers")
        ax.set_xticks(range(2, 13, 2))
    for row in grid:
        row[0].set_ylabel("tokens/s, of the most")
        row[0].set_ylim(0, 1.06)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False)
    return figure


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=HERE / "figure-16.svg")
    df.plot.save(figure_16(), parser.parse_args().file)


if __name__ == "__main__":
    main()
