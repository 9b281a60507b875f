"""What fills the memory of a chip, by pipeline stage and state, against its capacity."""

from __future__ import annotations

from typing import Final

from dfopt.documents.result import Result
from dfopt.documents.score import StageScore
from dfopt.physics.states import LABELS
from dfopt.show.parts import held_words
from dfopt.show.plots.style import GREY, PALETTE, Axes, Look, about, axes, bars, drawn, entry, gridlines, head, patch
from dfopt.units import show_unit

_LOOKS: Final = {  # parameters and what belongs to them, then what a batch leaves
    "weights": Look("weights", PALETTE["blue"], ""),
    "weight_gradients": Look("weight gradients", PALETTE["sky"], "\\\\\\\\"),
    "gradients": Look("gradients", PALETTE["sky"], "\\\\\\\\"),
    "optimizer": Look("optimizer", PALETTE["purple"], ".."),
    "tables": Look("tables", PALETTE["blue"], "xxxx"),
    "activations": Look("activations", PALETTE["orange"], "////"),
    "checkpoints": Look("checkpoints", PALETTE["yellow"], "////"),
    "working": Look("layer at work", PALETTE["yellow"], ""),
    "activation_gradients": Look("activation gradients", PALETTE["vermillion"], "----"),
    "caches": Look("KV cache", PALETTE["green"], "||||"),
}
_MOST: Final = 24  # bars
_NEAR: Final = 0.1  # of its capacity, from which on the capacity is drawn


@drawn
def memory(result: Result, ax: Axes | None = None) -> Axes:
    """Plot the bytes that a chip of each pipeline stage stores, by state, against the memory's capacity.

    A chip of several memories has a bar for each. Stages that are alike have one bar.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.memory(result).get_xlabel()
    'bytes of a chip (MB)'
    """
    tiers, stages = result.system.chip.tiers, result.score.stages
    rows = [
        (f"{tier} " * (len(tiers) > 1) + _stages(result, position), tier, _held(result, position, tier))
        for position in range(len(stages)) for tier in tiers
    ]  # fmt: skip
    fullest_first = sorted(range(len(rows)), key=lambda row: -sum(rows[row][2].values()))
    left, rows = max(len(rows) - _MOST, 0), [rows[row] for row in sorted(fullest_first[:_MOST])]
    limits = {name: tier.capacity for name, tier in tiers.items() if tier.capacity}
    most = max(sum(parts.values()) for *_, parts in rows)
    near = most > _NEAR * max(limits.values(), default=0.0) or not most  # else a bar would be too short to see
    largest = max(most, *(limits.values() if near else ()), 1.0)
    size, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= pair[0]), (1.0, "bytes"))
    sizes, label = dict.fromkeys(tiers, size), f"bytes of a chip ({unit})"
    if len(tiers) > 1 and len(limits) == len(tiers):  # memories of one chip differ by a factor of ten and more
        near, sizes, label = True, {name: limit / 100 for name, limit in limits.items()}, "share of a memory (%)"
    ax = axes(ax, 8.0, 0.7 + 0.5 * max(len(rows), 1))
    others = dict.fromkeys(name for *_, parts in rows for name in parts if name not in _LOOKS)
    fills = _LOOKS | {name: Look(LABELS.get(name, name), GREY, "....") for name in others}
    ends = [0.0]
    for row, (_, tier, parts) in enumerate(rows):
        ends.append(bars(ax, row + 0.12, [(fill, parts.get(name, 0.0) / sizes[tier]) for name, fill in fills.items()],
                         height=0.5))  # fmt: skip
        if near and tier in limits:
            ends.append(limits[tier] / sizes[tier])
            ax.plot([ends[-1]] * 2, [row - 0.3, row + 0.46], color="black", linewidth=2.2)
        words = f" {held_words(sum(parts.values()), tiers[tier].capacity, 3)}"
        ax.text(0, row - 0.3, words, va="center", ha="left", fontsize=7)
    ax.set_yticks([row + 0.12 for row in range(len(rows))], [name for name, *_ in rows])
    ax.set(xlim=(0, 1.03 * max(ends) or 1.0), ylim=(len(rows) - 0.4, -0.6), xlabel=label)
    gridlines(ax, "x")
    seen = {name for _, tier, parts in rows for name, held in parts.items() if held / sizes[tier] > 0.002 * max(ends)}
    handles = [patch(fill) for name, fill in fills.items() if name in seen]
    handles += [entry("capacity", color="black", marker="|", markersize=9, markeredgewidth=2.2)] * near
    fullest = max(stage.dram_bytes for stage in stages)
    title = f"What fills the memory of a chip: at most {show_unit(fullest, 'bytes', 3)}\n{about(result)}"
    head(ax, title + f"\n{left} emptier bars are left out" * bool(left), handles)
    return ax


def _held(result: Result, position: int, tier: str) -> dict[str, float]:
    """Bytes by state of a stage in a memory: in full where there is one memory, which all parts are in."""
    score = result.score
    if len(result.system.chip.tiers) == 1:
        return score.memory[position].parts
    return {name: held for name, held in score.stages[position].states.get(tier, {}).items() if held}


def _stages(result: Result, position: int) -> str:
    """The stages of a pipeline that a score stands for: all between two that are listed are alike."""
    listed: tuple[StageScore, ...] = result.score.stages
    first = listed[position].stage
    after = listed[position + 1].stage if position + 1 < len(listed) else result.plan.stages
    last = max(first, min(after, result.plan.stages) - 1)
    if result.plan.stages == 1:
        return "a chip"
    return f"stage {first}" if first == last else f"stages {first} to {last}"
