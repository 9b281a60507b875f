"""Figures of papers from their studies: ``python benchmarks/figures.py [STUDY ...]``.

Runs each study and writes into ``benchmarks/figures/STUDY/`` the pictures (SVG), the frame (CSV) and the table of its
claims (Markdown). With ``--store DIR`` cells that a sweep has solved before are taken from ``DIR/STUDY.jsonl``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import dfopt as df
from dfopt.show.plots.style import CYCLE, LOOKS, PALETTE, Look, drawn
from dfopt.studies.runs import Runs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # for a test, which loads this file by its path
from deepflow_figures import FIGURES as OF_DEEPFLOW  # noqa: E402
from deepstack_figures import FIGURES as OF_DEEPSTACK  # noqa: E402

TERMS = ("compute", "memory", "network")
MARKERS = "osD^vPX"
LIGHT = "#E6E6E6"
TERM_LOOKS = {
    **LOOKS,
    "point_to_point": Look("point to point", PALETTE["purple"], "\\\\\\\\"),
    "fill": Look("pipeline fill", PALETTE["sky"], "xxxx"),
    "gradient": Look("gradient reduction", PALETTE["vermillion"], "++++"),
}
Picture = Callable[[Any], Any]  # frame -> figure


def _figure(wide: float, high: float, across: int = 1, down: int = 1, **options: Any) -> tuple[Any, Any]:
    return plt.subplots(down, across, figsize=(wide, high), layout="constrained", squeeze=False, **options)


def _bars(ax: Any, rows: Sequence[float], parts: dict[str, Sequence[float]], width: float = 0.8) -> None:
    """Stacked bars that stand: one colour and hatch per kind of time."""
    bottom = [0.0] * len(rows)
    for name, heights in parts.items():
        look = TERM_LOOKS[name]
        ax.bar(
            rows, heights, width, bottom, color=look.colour, hatch=look.hatch, edgecolor="black", linewidth=0.3,
            label=look.label,
        )  # fmt: skip
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]


def _legend(figure: Any, ax: Any, columns: int) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)


# -- the design space: Figs. 10 to 17 -------------------------------------------------------------


@drawn
def design_space(frame: Any) -> Any:
    """Utilization, performance per watt and per dollar of 80 machines, as Figs. 10, 12, 14 and 16 have them."""
    table = frame.assign(
        percent=100 * frame["utilization"],
        per_watt=frame["perf_per_watt"] / 1e9,
        per_dollar=frame["perf_per_dollar"] / 1e6,
    )
    shown = {"percent": "utilization (%)", "per_watt": "GFLOP/s per W", "per_dollar": "MFLOP/s per USD"}
    figure, grid = _figure(11.2, 5.2, across=3)
    for ax, (column, words) in zip(grid[0], shown.items(), strict=True):
        df.plot.heat_map(table, column, x="topology", y=["chip", "memory", "link"], ax=ax, title=words)
        bar = figure.axes[-1]
        bar.set_ylabel("")
        if ax is not grid[0][0]:
            ax.set_yticklabels([])
            ax.set_ylabel("")
    return figure


def _in_order(column: Any) -> Any:
    """Labels as numbers, in the order in which they appear."""
    return column.map({label: place for place, label in enumerate(dict.fromkeys(column))})


@drawn
def shares(frame: Any) -> Any:
    """Shares of compute, DRAM and network in their sum for a layer, as Figs. 11, 13, 15 and 17 have them."""
    times = frame[[f"layer_{term}_s" for term in TERMS]]
    parts = times.div(times.sum(axis=1), axis=0)
    chips = list(dict.fromkeys(frame["chip"]))
    figure, grid = _figure(10.0, 5.6, across=2, down=-(-len(chips) // 2), sharey=True)
    spots = grid.ravel()
    for ax, chip in zip(spots, chips, strict=False):
        mine = frame[frame["chip"] == chip].sort_values(["memory", "link"], key=_in_order, kind="stable")
        kinds = (mine["memory"] + " " + mine["link"]).tolist()
        starts = [i for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]
        places = [i + 0.7 * sum(i >= start for start in starts) for i in range(len(kinds))]
        mine_parts = {term: parts.loc[mine.index, f"layer_{term}_s"].tolist() for term in TERMS}
        _bars(ax, places, mine_parts, 0.82)
        ax.set_xticks(places, mine["topology"].tolist(), rotation=90, fontsize=6.5)
        for i, start in enumerate(starts):
            end = starts[i + 1] - 1 if i + 1 < len(starts) else len(kinds) - 1
            ax.text((places[start] + places[end]) / 2, 1.02, kinds[start], ha="center", va="bottom", fontsize=7.5)
        ax.set_title(chip, pad=14)
        ax.set_ylim(0, 1)
        ax.margins(x=0.01)
    for line in grid:
        line[0].set_ylabel("share of the sum")
    for ax in spots[len(chips) :]:
        ax.set_axis_off()
    _legend(figure, spots[0], 3)
    return figure


# -- the other figures ------------------------------------------------------------------------------


@drawn
def rail_only(frame: Any) -> Any:
    """Fig. 7: seconds per step over the size of the NVLink domain."""
    figure, grid = _figure(4.8, 3.0)
    ax = grid[0][0]
    ax.plot(frame["domain"], frame["step_time_s"], marker="o", color=PALETTE["blue"], label="dfopt")
    ax.scatter([8], [4.9615], marker="D", color=PALETTE["vermillion"], zorder=3, label="log of the authors' program")
    ax.set_xscale("log", base=2)
    ax.set_xticks(frame["domain"].tolist(), [str(size) for size in frame["domain"]])
    ax.set_ylim(0, 1.1 * frame["step_time_s"].max())
    ax.set_xlabel("chips in an NVLink domain")
    ax.set_ylabel("time of a step (s)")
    ax.grid(True, color=LIGHT, linewidth=0.5)
    ax.set_axisbelow(True)
    _legend(figure, ax, 2)
    return figure


def step_terms(frame: Any) -> Any:
    """What takes the time of a step where times are added: columns whose sum is ``step_time_s``.

    Raises
    ------
    ValueError
        If they do not add up, as where compute, memory and network overlap.
    """
    times = frame["microbatches"] * frame["layers_per_stage"]
    found = frame[[]].assign(
        **{term: times * frame[f"layer_{term}_s"] for term in TERMS},
        fill=frame["pipeline_fill_s"],
        gradient=frame["gradient_reduction_s"],
    )
    # the rest of a step is hops between stages, those within the rhythm of the pipeline and those counted per step
    found["point_to_point"] = frame["step_time_s"] - found.sum(axis=1)
    if (found["point_to_point"] < -1e-9 * frame["step_time_s"]).any():
        raise ValueError("the terms of a step are longer than the step: times overlap, so they cannot be stacked")
    return found.assign(point_to_point=found["point_to_point"].clip(lower=0.0))


@drawn
def degrees(frame: Any) -> Any:
    """Fig. 8: what takes the time of a step under each TP-PP-DP."""
    parts = step_terms(frame)
    figure, grid = _figure(8.0, 3.6)
    ax = grid[0][0]
    rows = list(range(len(frame)))
    _bars(ax, rows, {name: parts[name].tolist() for name in parts if (parts[name] > 0).any()})
    ax.set_xticks(rows, frame["plan_of_figure"].tolist(), rotation=45, ha="right", rotation_mode="anchor")
    ax.set_xlabel("TP-PP-DP")
    ax.set_ylabel("time of a step (s)")
    ax.margins(x=0.01)
    _legend(figure, ax, 6)
    return figure


@drawn
def memory_system(frame: Any) -> Any:
    """Fig. 19: utilization of fused and kernel-by-kernel mappings over nine memory systems."""
    figure, grid = _figure(7.0, 3.2)
    ax = grid[0][0]
    labels = list(dict.fromkeys(zip(frame["sram_mb"], frame["dram_gb_per_s"], strict=True)))
    kinds = {"dataflow": (PALETTE["blue"], ""), "kernel by kernel": (PALETTE["orange"], "////")}
    for number, (kind, (colour, hatch)) in enumerate(kinds.items()):
        mine = frame[frame["assumptions"] == kind].set_index(["sram_mb", "dram_gb_per_s"])["utilization"]
        heights = [100 * float(mine[label]) for label in labels]
        places = [i + 0.4 * (number - 0.5) for i in range(len(labels))]
        ax.bar(places, heights, 0.38, color=colour, hatch=hatch, edgecolor="black", linewidth=0.3, label=kind)
        for place, height in zip(places, heights, strict=True):
            ax.text(place, height + 1, f"{height:.0f}", ha="center", va="bottom", fontsize=6.5)
    ax.set_xticks(range(len(labels)), [f"{sram} MiB\n{rate} GB/s" for sram, rate in labels])
    ax.set_ylim(0, 108)
    ax.set_ylabel("utilization (% of peak)")
    ax.set_xlabel("SRAM and DRAM bandwidth of a chip")
    _legend(figure, ax, 2)
    return figure


@drawn
def serving(frame: Any) -> Any:
    """Fig. 20, prefill: time to the first token of one prompt, and throughput of a stream, over TP x PP = 16."""
    figure, grid = _figure(7.6, 3.2, across=2)
    for ax, graph, column, factor, words in (
        (grid[0][0], "one prompt", "step_time_s", 1e3, "time to the first token (ms)"),
        (grid[0][1], "stream", "tokens_per_s", 1e-3, "prompt tokens per second (thousands)"),
    ):
        for number, (machine, link) in enumerate(dict.fromkeys(zip(frame["assumptions"], frame["link"], strict=True))):
            mine = frame[(frame["graph"] == graph) & (frame["assumptions"] == machine)]
            ax.plot(
                mine["tensor"].astype(int), factor * mine[column], marker=MARKERS[number],
                color=(PALETTE["blue"], PALETTE["vermillion"])[number], label=f"{machine}: links of {link}",
            )  # fmt: skip
        sizes = sorted({int(size) for size in frame["tensor"]})
        ax.set_xscale("log", base=2)
        ax.set_xticks(sizes, [f"TP{size}\nPP{16 // size}" for size in sizes])
        ax.set_ylim(bottom=0)
        ax.set_title(words)
        ax.grid(True, color=LIGHT, linewidth=0.5)
        ax.set_axisbelow(True)
    _legend(figure, grid[0][0], 2)
    return figure


def _rates(ax: Any, frame: Any, by: str, column: str, title: str) -> None:
    labels = list(dict.fromkeys(frame[by]))
    for number, label in enumerate(labels):
        mine = frame[frame[by] == label]
        left = len(labels) - number  # lines that lie on each other stay visible: the first ones are thicker
        ax.plot(
            mine["compute_percent"].astype(int), mine[column] / 1e15, marker=MARKERS[number],
            markersize=4.0 + 0.7 * left, linewidth=1.0 + 0.4 * left, color=CYCLE[number], markeredgecolor="black",
            markeredgewidth=0.3, label=str(label),
        )  # fmt: skip
    ax.set_xticks(sorted({int(share) for share in frame["compute_percent"]}))
    ax.set_xlabel("share of the chip that computes (%)")
    ax.set_title(title)
    ax.grid(True, color=LIGHT, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.set_ylim(bottom=0)


@drawn
def compute_or_memory(frame: Any) -> Any:
    """Fig. 22: rate over the share that computes, under three memories, of the text's machine and of the setups'."""
    figure, grid = _figure(8.2, 3.2, across=2)
    for ax, row, does in zip(grid[0], ("text", "setups"), ("training, 1024 chips", "forward, 8 chips"), strict=True):
        _rates(ax, frame[frame["graph"] == row], "memory", "flop_per_s", f"{row}: {does}")
        ax.set_ylabel("rate of all chips (PFLOP/s)")
    _legend(figure, grid[0][0], 3)
    return figure


@drawn
def compute_or_memory_with_heat(frame: Any) -> Any:
    """Fig. 22 on stacks of dies: what the plain model promises, what the stack delivers, and its clock."""
    figure, grid = _figure(9.6, 3.4, across=3)
    _rates(grid[0][0], frame, "stack", "flop_per_s", "without heat (PFLOP/s)")
    _rates(grid[0][1], frame, "stack", "physical_flop_per_s", "with heat and banks (PFLOP/s)")
    top = max(ax.get_ylim()[1] for ax in grid[0][:2])
    for ax in grid[0][:2]:
        ax.set_ylim(0, top)
    clocks = frame.assign(clock=frame["frequency_share"] * 1e17)  # _rates divides by 1e15: percent
    _rates(grid[0][2], clocks, "stack", "clock", "clock that keeps the limits (%)")
    grid[0][2].set_ylim(70, 102)
    _legend(figure, grid[0][0], 4)
    return figure


@drawn
def mappings(frame: Any) -> Any:
    """Table VI: a layer under five mappings, and how much faster than kernel by kernel it is."""
    figure, grid = _figure(6.4, 2.3)
    ax = grid[0][0]
    rows = list(range(len(frame)))
    seconds = frame["step_time_s"].tolist()
    ax.barh(rows, [100 * share for share in frame["utilization"]], color=PALETTE["blue"], height=0.7)
    for row, time, share in zip(rows, seconds, frame["utilization"], strict=True):
        ax.text(100 * share + 1, row, f"{100 * share:.1f} %, {seconds[0] / time:.2f} x", va="center", fontsize=7.5)
    ax.set_yticks(rows, frame["mapping"].tolist())
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 115)
    ax.set_xlabel("utilization (% of peak); times as fast as kernel by kernel")
    return figure


FIGURES: dict[str, dict[str, Picture]] = {
    "table6": {"table6": mappings},
    "fig07": {"fig07": rail_only},
    "fig08": {"fig08": degrees},
    "fig10": {"fig10": design_space, "fig11": shares},
    "fig12": {"fig12": design_space, "fig13": shares},
    "fig14": {"fig14": design_space, "fig15": shares},
    "fig16": {"fig16": design_space, "fig17": shares},
    "fig19": {"fig19": memory_system},
    "fig20": {"fig20": serving},
    "fig22": {"fig22": compute_or_memory},
    "fig22-heat": {"fig22-heat": compute_or_memory_with_heat},
    **OF_DEEPFLOW,
    **OF_DEEPSTACK,
}


# -- what is written ----------------------------------------------------------------------------------


def claims_table(runs: Runs) -> str:
    """The claims of a study as Markdown.

    Parameters
    ----------
    runs : Runs
        What the sweep returned.
    """
    words = {True: "yes", False: "no", None: "open"}
    lines = [
        "| claim | source | paper | ours | holds if | holds | why |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for one in runs.claims():
        figures = ["" if value is None else f"{value:.4g}" for value in (one.claim.paper, one.ours)]
        cells = [one.claim.name, one.claim.figure, *figures, one.expected, words[one.holds], one.why]
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def make(study: str, target: Path, *, jobs: int = 2, store: Path | None = None, png: Path | None = None) -> Runs:
    """Run a study and write its figures, frame and claims.

    Parameters
    ----------
    study : str
        One of ``FIGURES``.
    target : Path
        Folder; made if need be.
    jobs : int
        Processes at once.
    store : Path, optional
        Folder of the stores.
    png : Path, optional
        A folder that gets the pictures as PNG too.

    Returns
    -------
    Runs
    """
    kept = None if store is None else store / f"{study}.jsonl"
    runs = df.sweep(HERE / "studies" / f"{study}.yaml", jobs=jobs, store=kept)
    frame = runs.frame()
    if not frame["step_time_s"].notna().all():
        lost = frame.loc[frame["step_time_s"].isna(), ["system", "status", "note"]]
        raise SystemExit(f"{study}: {len(lost)} cells have no mapping\n{lost.to_string()}")
    target.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES[study].items():
        figure = draw(frame)
        df.plot.save(figure, target / f"{name}.svg")
        if png is not None:
            df.plot.save(figure, png / f"{name}.png")
        plt.close(figure)
    # times of the solves are the only figures that another run changes
    frame.drop(columns=["solve_s", "cell"]).to_csv(target / "frame.csv", index=False, float_format="%.9g")
    (target / "claims.md").write_text(claims_table(runs), encoding="utf-8")
    return runs


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(FIGURES)}; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--store", type=Path, help="folder of the sweeps' files of record")
    parser.add_argument("--output", type=Path, default=HERE / "figures", help="folder for what is written")
    parser.add_argument("--png", type=Path, help="folder for the pictures as PNG too")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.studies if name not in FIGURES]
    if unknown:
        parser.error(f"found {', '.join(unknown)}, expected some of {', '.join(FIGURES)}")
    for name in asked.studies or FIGURES:
        runs = make(name, asked.output / name, jobs=asked.jobs, store=asked.store, png=asked.png)
        held = [one.holds for one in runs.claims()]
        print(f"{runs}; {sum(one is True for one in held)} of {len(held)} claims hold: {asked.output / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
