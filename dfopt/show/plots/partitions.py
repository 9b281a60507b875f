"""One layer on one chip: when each partition runs, and which resource is busy."""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.result import Result
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.physics.schedule import busy_intervals, overlap_of, terms_of
from dfopt.show.plots import style
from dfopt.show.plots.style import GREY, LOOKS, Axes, about, axes, bars, drawn, gridlines, head, inches, patch, short
from dfopt.units import show_unit

_MOST = 60


@drawn
def partitions(result: Result, ax: Axes | None = None, stage: int = 0) -> Axes:
    """Plot the partitions of one layer and microbatch on one chip: when each resource is busy, one row each.

    Parameters
    ----------
    result
        The result.
    ax : Axes, optional
        Axes to draw in; by default those of a new figure.
    stage : int
        Number of the pipeline stage; of a model whose layers differ, that of the kind of layer.

    Raises
    ------
    PlanError
        If the mapping has no such stage.

    Examples
    --------
    >>> import dfopt as df
    >>> result = df.solve(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), tp=8)
    >>> df.plot.partitions(result).get_xlabel()
    'time (us)'
    """
    from matplotlib.patches import Patch

    parts = sorted((p for p in result.score.partitions if p.stage == stage), key=lambda part: part.partition)
    if not parts:
        stages = sorted({part.stage for part in result.score.partitions})
        raise PlanError(f"partitions: found stage {stage}, expected one of {', '.join(map(str, stages))}")
    lines, merged = _lines(parts)
    total_s = sum(part.time_s for part in parts)
    unit_s, unit = style.scale(total_s)
    names = [_label(line) for line in lines]
    ax = axes(ax, 7.0 + 0.065 * max(map(len, names)), 0.7 + 0.26 * max(3, len(lines)))
    overlap, named = overlap_of(result), terms_of(parts)
    high = 0.81 / len(named)
    start = 0.0
    for row, line in enumerate(lines):
        taken = sum(part.time_s for part in line)
        ax.barh([row], [taken / unit_s], left=[start / unit_s], height=0.9, color=GREY)
        for part in line:
            for term, (begin, until) in busy_intervals(part, overlap).items():
                place = row + high * (named.index(term) - (len(named) - 1) / 2)
                bars(ax, place, [(LOOKS[term], (until - begin) / unit_s)], (start + begin) / unit_s, high)
            start += part.time_s
    ax.set_yticks(range(len(lines)), names)
    ax.set(xlim=(0, total_s / unit_s * 1.01), ylim=(len(lines) - 0.4, -0.6))
    ax.set(xlabel=f"time ({unit})", ylabel="partition")
    gridlines(ax, "x")
    title = f"When a chip computes, reads and sends: {_what(result, stage)}, "
    title += f"{len(parts)} partition{'' if len(parts) == 1 else 's'}, {show_unit(total_s, 'time', 3)}\n{about(result)}"
    if merged:
        title += f"\n{merged} short partitions share a row with their neighbours"
    head(ax, title, [*(patch(LOOKS[term]) for term in named), Patch(facecolor=GREY, label="partition runs")])
    return ax


def longest(parts: Sequence[PartitionScore], most: int) -> tuple[list[PartitionScore], int, float]:
    """The ``most`` longest partitions in order, the number of others, and the seconds that those take."""
    out = {id(part) for part in sorted(parts, key=lambda part: -part.time_s)[most:]}
    rest = sum(part.time_s for part in parts if id(part) in out)
    return [part for part in parts if id(part) not in out], len(out), rest


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
    kernels = short([name for part in line for name in part.kernels], int(4.2 * inches(11.0)))
    first, last = line[0].partition, line[-1].partition
    return f"{first}  {kernels}" if first == last else f"{first}-{last}  {kernels}"
