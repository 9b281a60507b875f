"""The temperature of every tile of a stack of dies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dfopt.documents.physical_score import ChipHeat, PhysicalScore, TileHeat
from dfopt.documents.result import Result
from dfopt.documents.stack import Stack
from dfopt.errors import PlanError
from dfopt.show.plots.style import Axes, axes, colour_bar, drawn, head, inches, on
from dfopt.units import show_unit

_COLOURS: Final = "inferno"  # of even lightness, so that it reads in grey and with any colour vision
_SIDE: Final = 1.9  # inches of a die's longer side
_ACROSS: Final = 5
_TITLE: Final = 5.4  # inches that the lines of the title take


@drawn
def temperature(
    what: PhysicalScore | Result, ax: Axes | None = None, stack: Stack | None = None, stage: int | None = None
) -> Axes:
    """Plot the temperature map of every die of a chip, with the mean of each tile.

    Parameters
    ----------
    what
        Figures of the judge on a stack, or a result that has them.
    ax : Axes, optional
        Axes to draw in; by default those of a new figure.
    stack : Stack, optional
        The stack, whose floorplans say where tiles are; by default that of the result's system.
    stage : int, optional
        Number of the stage whose chip is drawn; by default the hottest.

    Raises
    ------
    PlanError
        If there are no figures on a stack, no stack, or no such stage or tile.

    Examples
    --------
    >>> from dfopt.documents.physical_score import TileHeat
    >>> from dfopt.machines.stacks import load_stack
    >>> stack = load_stack("ddr5")
    >>> tiles = [TileHeat(die=die, tile=tile.name, power_w=1.0, mean_c=60.0) for die, tile in stack.tiles]
    >>> sorted(_places(stack, tiles))[0]
    ('logic', '0,0')
    """
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    heat, stack = _inputs(what, stack, stage)
    places = _places(stack, heat.tiles)
    dies = [die for die in stack.layers if any(name == die.name for name, _ in places)]
    means = [tile.mean_c for tile in heat.tiles]
    low, high = min(means), max(means)
    shades = Normalize(low, high if high > low else low + 1.0)
    colours = mpl.colormaps[_COLOURS]
    wide, tall = 1.12 * stack.side_x, 1.2 * stack.side_y
    room = inches(12.0) - 1.3  # beside the bar of colours
    inch = min(_SIDE, room / 2.24) / max(stack.side_x, stack.side_y)
    across = max(1, min(_ACROSS, len(dies), int(room / (wide * inch) + 1e-9)))
    deep = -(-len(dies) // across)
    ax = axes(ax, max(across * wide * inch + 1.3, _TITLE), deep * tall * inch + 0.45)
    hottest = max(heat.tiles, key=lambda tile: tile.mean_c)
    corners = {die.name: ((i % across) * wide, (deep - 1 - i // across) * tall) for i, die in enumerate(dies)}
    for tile in heat.tiles:
        (left, base), (x, y, width, height) = corners[tile.die], places[tile.die, tile.tile]
        colour = colours(shades(tile.mean_c))
        ax.add_patch(Rectangle((left + x, base + y), width, height, facecolor=colour, edgecolor="white", linewidth=0.3))
        words = f"{tile.mean_c:.1f}" if width * inch > 0.33 else f"{tile.mean_c:.0f}"
        if width * inch > 0.062 * len(words) and height * inch > 0.11:
            middle = (left + x + width / 2, base + y + height / 2)
            ax.text(*middle, words, ha="center", va="center", fontsize=6, color=on(colour))
    (left, base), (x, y, *size) = corners[hottest.die], places[hottest.die, hottest.tile]
    for ink, thick, above in (("black", 3.2, 4), ("white", 1.4, 5)):
        frame = Rectangle((left + x, base + y), *size, fill=False, edgecolor=ink, linewidth=thick, zorder=above)
        ax.add_patch(frame)
    peaks = {die.die: die for die in heat.dies}
    for die in dies:
        left, base = corners[die.name]
        label = f"{die.name}  {show_unit(peaks[die.name].power_w, 'power', 3)}" if die.name in peaks else die.name
        ax.text(left, base + stack.side_y * 1.02, label, ha="left", va="bottom", fontsize=7)
    ax.set(xlim=(-0.02 * wide, across * wide), ylim=(-0.04 * tall, deep * tall))
    ax.set_aspect("equal", anchor="NW")
    ax.set_axis_off()
    colour_bar(ax, ScalarMappable(norm=shades, cmap=colours), "mean temperature of a tile (°C)")
    sides = f"{stack.side_x * 1e3:.3g} x {stack.side_y * 1e3:.3g} mm"
    title = f"{stack.name}: dies of {sides}, from the far face to the sink; chip of stage {heat.stage}"
    title += f", {show_unit(heat.power_w, 'power', 3)}"
    title += f"\nhottest tile (framed): {hottest.tile} of {hottest.die}, {hottest.mean_c:.1f} °C"
    limits = {"logic": stack.limits.logic, "DRAM": stack.limits.dram}
    limit_words = ", ".join(f"{kind} {limit - 273.15:.4g} °C" for kind, limit in limits.items() if limit is not None)
    head(ax, f"{title}\nlimits on the hottest point: {limit_words}" if limit_words else title)
    return ax


def _inputs(what: PhysicalScore | Result, stack: Stack | None, stage: int | None) -> tuple[ChipHeat, Stack]:
    physical = what.score.physical if isinstance(what, Result) else what
    if physical is None:
        raise PlanError(
            "temperature: found a result without figures on a stack, expected some;"
            " solve or score on a system that has a stack, see `dfopt list stacks`"
        )
    stack = stack or (what.system.stack if isinstance(what, Result) else None)
    if stack is None:
        raise PlanError("temperature: found no stack, expected the one that was judged; give it as stack=")
    chips = {chip.stage: chip for chip in physical.chips}
    if stage is not None and stage not in chips:
        raise PlanError(f"temperature: found stage {stage}, expected one of {', '.join(map(str, chips))}")
    return physical.hottest_chip if stage is None else chips[stage], stack


def _places(stack: Stack, tiles: Iterable[TileHeat]) -> dict[tuple[str, str], tuple[float, float, float, float]]:
    """Where each tile is: left, base, width and height in metres, by die and tile."""
    places = {(die, tile.name): (tile.x, tile.y, tile.width, tile.height) for die, tile in stack.tiles}
    missing = [(tile.die, tile.tile) for tile in tiles if (tile.die, tile.tile) not in places]
    if missing:
        raise PlanError(
            f"temperature: found tile {missing[0][1]!r} of die {missing[0][0]!r}, which stack {stack.name} does"
            " not have; give the stack that was judged"
        )
    return places
