"""One layer on one chip: when each partition runs, and which resource is busy."""

from __future__ import annotations

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.physics.schedule import busy_intervals, overlap_of, terms_of
from dfopt.show.plots.style import GREY, LOOKS, Axes, axes, drawn, gridlines, head, on_stack, patch, scale, short
from dfopt.units import format as show_unit

__all__ = ["timeline"]

_MOST = 60


@drawn
def timeline(result: Result, ax: Axes | None = None, stage: int = 0) -> Axes:
    """Draw the partitions of one layer and microbatch on one chip: a row each, with what it keeps busy, and when.

    ``stage`` is one of the mapping, of a model whose layers differ a kind of layer; `PlanError` if there is none such.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.timeline(result).get_xlabel()
    'time (us)'
    """
    from matplotlib.patches import Patch

    parts = sorted((p for p in result.score.partitions if p.stage == stage), key=lambda part: part.partition)
    if not parts:
        known = sorted({part.stage for part in result.score.partitions})
        raise PlanError(f"timeline: found stage {stage}, expected one of {', '.join(map(str, known))}")
    lines, merged = _lines(parts)
    whole = sum(part.time_s for part in parts)
    unit_s, unit = scale(whole)
    names = [_label(line) for line in lines]
    ax = axes(ax, 6.0 + 0.065 * max(map(len, names)), 0.7 + 0.26 * max(3, len(lines)))
    overlap, named = overlap_of(result), terms_of(parts)
    high = 0.81 / len(named)
    start = 0.0
    for row, line in enumerate(lines):
        taken = sum(part.time_s for part in line)
        ax.barh([row], [taken / unit_s], left=[start / unit_s], height=0.9, color=GREY)
        for part in line:
            for term, (begin, until) in busy_intervals(part, overlap).items():
                look, slot = LOOKS[term], named.index(term)
                ax.barh(
                    [row + high * (slot - (len(named) - 1) / 2)], [(until - begin) / unit_s],
                    left=[(start + begin) / unit_s], height=high,
                    color=look.colour, hatch=look.hatch, edgecolor="black", linewidth=0.3,
                )  # fmt: skip
            start += part.time_s
    ax.set_yticks(range(len(lines)), names)
    ax.set(xlim=(0, whole / unit_s * 1.01), ylim=(len(lines) - 0.4, -0.6))
    ax.set(xlabel=f"time ({unit})", ylabel="partition")
    gridlines(ax, "x")
    title = f"{result.mapping.graph} on a chip of {result.mapping.system}: {_what(result, stage)}, "
    title += f"{len(parts)} partition{'' if len(parts) == 1 else 's'}, {show_unit(whole, 'time', 3)}"
    if merged:
        title += f"\n{merged} short partitions share a row with their neighbours"
    runs = Patch(facecolor=GREY, label="partition runs")
    head(ax, title + on_stack(result), [*(patch(LOOKS[term]) for term in named), runs])
    return ax


def _what(result: Result, stage: int) -> str:
    """What of a step is drawn; of a model whose layers differ which kind, and the stages of the others."""
    if not result.score.has_kinds:
        return "one layer and microbatch"
    kinds = result.graph.layers.kinds
    others = ", ".join(f"{number} {name}" for number, name in enumerate(kinds) if number != stage)
    return f"one microbatch through {kinds[stage]} (stage {stage}; {others})"


def _lines(parts: list[PartitionScore]) -> tuple[list[list[PartitionScore]], int]:
    """Rows of partitions in order: one each, or, of very many, a row for short ones that follow each other."""
    long = {id(part) for part in sorted(parts, key=lambda part: -part.time_s)[: _MOST // 2]}
    lines: list[list[PartitionScore]] = []
    for part in parts:
        if len(parts) > _MOST and lines and id(part) not in long and id(lines[-1][-1]) not in long:
            lines[-1].append(part)
        else:
            lines.append([part])
    return lines, sum(len(line) for line in lines if len(line) > 1)


def _label(line: list[PartitionScore]) -> str:
    kernels = short([name for part in line for name in part.kernels], 52)
    first, last = line[0].partition, line[-1].partition
    return f"{first}  {kernels}" if first == last else f"{first}-{last}  {kernels}"
