"""The best of many designs as tables: its sizes, its mapping in short, and what was proven with what effort."""

from __future__ import annotations

from rich.console import Group, RenderableType

from dfopt.documents.design import POWER
from dfopt.documents.design_sizes import NETWORK_ON_LOGIC
from dfopt.documents.exploration import Exploration
from dfopt.documents.exploration_request import ObjectiveName, turned
from dfopt.physics.lumped import WARNING_C
from dfopt.physics.merits import MERITS
from dfopt.show.asked import asked_facts
from dfopt.show.grid import ColumnKind, FactList, Grid
from dfopt.show.tables import dollars
from dfopt.units import Dimension, number, show_unit

SAME = 1e-9  # relative; less than that buys nothing
_BUDGETS = {
    "area": ("area of the chip", "mm2"),
    "package": ("area of the package", "mm2"),
    "power": ("power", "W"),
    "edge": ("edge of the chip", "mm"),
    "layers": ("DRAM layers", "layer"),
    "price": ("limit of the price", "USD"),
    "temperature": ("limits of temperature", "K"),
}
_KINDS: dict[str, Dimension] = {"s": "time", "J": "energy", "W": "power"}
_ENDED = {
    "optimal": "optimal: no design within the choices is better, under any mapping",
    "gap_reached": "stopped at the gap asked for: no design within the choices is better by more, under any mapping",
    "exhausted": "every design was looked at whose bound is below the best; none is better by more than the gap",
    "time_limit": "stopped by the time limit: no design within the choices is better by more than the gap",
    "interrupted": "stopped by Ctrl-C: no design within the choices is better by more than the gap",
}


def figure(value: float, objective: ObjectiveName) -> str:
    """Value of an objective as text with a suitable unit.

    Examples
    --------
    >>> figure(0.25, "time"), figure(1400.0, "energy"), figure(28e3, "cost"), figure(42.0, "time*cost")
    ('250 ms', '1.4 kJ', '28 k USD', '42 USD s')
    >>> figure(98400.0, "tokens_per_s")
    '98,400 tokens/s'
    """
    unit = MERITS[objective].unit
    if kind := _KINDS.get(unit):
        return show_unit(value, kind)
    return dollars(value) + unit.removeprefix("USD") if unit.startswith("USD") else f"{number(value)} {unit}"


def exploration_report(explored: Exploration) -> RenderableType:
    """Terminal report of an exploration: the best design, the space searched, and the gap."""
    chip, effort, best = explored.result.system.chip, explored.effort, explored.designs[explored.best_design]
    objective, fixed = explored.request.objective, ", ".join(explored.fixed)
    names = ", ".join(design.technology.name for design in explored.designs)
    value, bound = figure(explored.value, objective), figure(explored.bound, objective)
    counts = ", ".join(f"{count} by {stage}" for stage, count in effort.bounds.items())
    plans = f" x {effort.plans:,} plans: {effort.designs * effort.plans:.3g} points"
    facts = [
        *asked_facts(explored.result),
        ("design", f"{explored.designs[0].name}: {effort.designs:,} designs in {names}{plans}"),
        ("step" if objective == "time" else objective, f"{value}, bound {bound}, gap {100 * explored.gap:.2f} %"),
        *([("step", show_unit(explored.result.value, "time"))] if objective != "time" else []),
        *([("limits", explored.request.limits.words)] if explored.request.limits is not None else []),
        ("proof", f"{_ENDED[explored.status]} (fixed: {fixed or 'nothing'})"),
        ("technology", best.technology.name),
        ("plan", explored.result.plan.label),
        *_heat(explored),
        *_elsewhere(explored),
        ("effort", f"{effort.boxes} boxes; bounds: {counts}; {effort.solves} solves, {effort.seconds:.1f} s"),
    ]
    figures_of = ("best", "least", "most", "sizes")
    columns: dict[str, ColumnKind] = {"component": "word", **dict.fromkeys(figures_of, "figure")}
    rows = [[name, _size(explored, name, size), *_range(explored, name)] for name, size in explored.best.items()]
    made_of: dict[str, ColumnKind] = {"chip": "word", "of the best design": "figure"}
    figures = [
        ["peak", show_unit(chip.peak_flops, "flop_rate")],
        ["SRAM", show_unit(chip.sram.capacity, "bytes")],
        [
            "DRAM",
            f"{show_unit(chip.fastest.bandwidth, 'bandwidth')}, {show_unit(chip.fastest.capacity or 0.0, 'bytes')}",
        ],
        *([dim.name, show_unit(dim.link_bandwidth, "bandwidth")] for dim in explored.result.system.network),
        ["power", show_unit(chip.power_w or 0.0, "power")],
    ]
    tables: list[RenderableType] = [
        Grid("Sizes", columns, rows),
        "",
        Grid("Chip", made_of, figures),
        *_others(explored),
        *_at_ends(explored),
    ]
    return Group(FactList(facts), "", *tables, *_sensitivity(explored))


def _others(explored: Exploration) -> list[RenderableType]:
    """The best designs, one a line, and what no other is below."""
    if not explored.others:
        return []
    objective, one_of = explored.request.objective, len(explored.designs) > 1
    columns: dict[str, ColumnKind] = {"": "figure", objective: "figure", "from the best": "figure"}
    columns |= {"technology": "word"} if one_of else {}
    columns |= dict.fromkeys(explored.best, "figure")
    first = (explored.best_design, explored.value, explored.best)
    rows = []
    for rank, (which, value, best) in enumerate([first, *((o.design, o.value, o.best) for o in explored.others)], 1):
        name = [explored.designs[which].technology.name] if one_of else []
        off = f"{100 * abs(value / explored.value - 1):.2f} %" if explored.value > 0 else "-"
        sizes = [_size(explored, key, size) for key, size in best.items()]
        rows.append([str(rank), figure(value, objective), off, *name, *sizes])
    least = "no other can be had" if explored.others_bound is None else figure(explored.others_bound, objective)
    return ["", Grid("Best designs", columns, rows), "", f"bound on all other designs: {least}"]


def _at_ends(explored: Exploration) -> list[RenderableType]:
    """The answer at both ends of the energy of DRAM beside that in between, and whether it is another design."""
    ends = explored.energy_range
    if ends is None:
        return []
    objective, one_of = explored.request.objective, len(explored.designs) > 1
    columns: dict[str, ColumnKind] = {"energy of DRAM": "word", "": "figure", objective: "figure", "gap": "figure"}
    columns |= {"technology": "word"} if one_of else {}
    columns |= dict.fromkeys(explored.best, "figure")
    rows = []
    for name, end in (("low", ends.low), ("middle", explored), ("high", ends.high)):
        of = end.designs[end.best_design].technology
        energy, value = f"{of.stacks.energy / 8e-12:.3g} pJ/bit", figure(end.value, objective)
        sizes = [_size(end, key, size) for key, size in end.best.items()]
        rows.append([name, energy, value, f"{100 * end.gap:.2f} %", *([of.name] if one_of else []), *sizes])
    best = explored.best_design, explored.best
    names = (("low", ends.low), ("high", ends.high))
    differs = [name for name, end in names if (end.best_design, end.best) != best]
    verdict = f"another design is best at the {' and the '.join(differs)} end" if differs else "the same design is best"
    return ["", Grid("Energy of DRAM", columns, rows), "", verdict + ("" if differs else " at both ends")]


def _sensitivity(explored: Exploration) -> list[RenderableType]:
    """What more of each budget would buy, and which budgets were not looked at."""
    columns: dict[str, ColumnKind] = {
        "budget": "word",
        "more": "figure",
        "best found": "figure",
        "better by at least": "figure",
        "with": "text",  # of a terminal of 80 columns it takes what is left
    }
    objective, rows = explored.request.objective, []
    for change in explored.sensitivity:
        value = turned(objective, explored.value)
        gain = 1 - turned(objective, change.value) / value if value > 0 else 0.0
        other = {name: size for name, size in change.best.items() if size != explored.best[name]}
        sizes = ", ".join(f"{name} {_size(explored, name, size)}" for name, size in other.items()) or "the same sizes"
        least = f"{100 * gain:.2f} %"  # a layer is one more, whether that is better or not
        pays = gain > SAME or change.budget == "layers"
        bought = [figure(change.value, objective), least] if pays else ["nothing", "-"]
        rows.append([_BUDGETS[change.budget][0], f"{change.more:.4g} {_BUDGETS[change.budget][1]}", *bought, sizes])
    every = explored.request.budgets_of(explored.designs[explored.best_design])
    late = [_BUDGETS[name][0] for name in every if name not in {change.budget for change in explored.sensitivity}]
    lines: list[RenderableType] = ["", Grid("More of each budget", columns, rows)] if rows else []
    if late and explored.request.sensitivity:
        lines += ["", f"no design was found in time with more of {', '.join(late)}"]
    return lines


def _heat(explored: Exploration) -> list[tuple[str, str]]:
    """How it is with heat, and what the design that is best without heat comes to."""
    on_stack = explored.result.score.physical
    if (lumped := explored.lumped) is not None:
        warned = ", a warning" if lumped.temperature_c > WARNING_C else ""
        hot = f"lumped: {lumped.temperature_c:.1f} degC at the nominal clock{warned}; clock at {lumped.frequency:.0%}"
        facts = [("heat", hot)]
    elif explored.request.heat is None or on_stack is None or explored.request.stack is None:
        return []
    else:
        hot = f"{explored.request.heat} on stack {explored.request.stack.name}: clock at {on_stack.frequency:.0%}"
        dram = "" if on_stack.dram_max_c is None else f", DRAM at {on_stack.dram_max_c:.1f} degC"
        facts = [("heat", f"{hot}, logic at {on_stack.logic_max_c:.1f} degC{dram}, {on_stack.power_w:.1f} W")]
        facts += [("note", note) for note in on_stack.notes or ()]
    return facts


def _elsewhere(explored: Exploration) -> list[tuple[str, str]]:
    """What other questions find, and what it comes to in this one."""
    others = [] if explored.without_heat is None else [("without heat", explored.without_heat)]
    facts, objective = [], explored.request.objective
    others += [(f"under {comparison.question}", comparison) for comparison in explored.comparisons]
    for name, other in others:
        sizes = ", ".join(f"{name} {_size(explored, name, size)}" for name, size in other.best.items())
        judged = "nothing: too hot at every level"
        if other.judged is not None:
            lost = turned(objective, other.judged) / turned(objective, explored.value) - 1
            judged = figure(other.judged, objective) + (f", {100 * lost:.2f} % worse" if lost > SAME else "")
        at = f", clock at {other.frequency:.0%}" if other.frequency < 1 else ""
        facts.append((name, f"{sizes}: predicted {figure(other.predicted, objective)}, here {judged}{at}"))
    return facts


def _size(explored: Exploration, name: str, size: float) -> str:
    if name == "dram":
        return f"{size:.0f} stack{'' if size == 1 else 's'}"
    if name == POWER:
        return show_unit(size, "power")
    if name in ("batch", "dram_layers", "connected_layers"):
        return f"{size:.0f}"
    if name == NETWORK_ON_LOGIC:
        return "yes" if size else "no"
    if name == "buffer_port":
        return f"{size:.4g} B/cycle"
    return show_unit(size, "bandwidth" if name in explored.designs[0].technology.links else "bytes")


def _range(explored: Exploration, name: str) -> list[str]:
    boxes = [box for box in explored.boxes if box.design == explored.best_design]
    least, most = min(box.low[name] for box in boxes), max(box.high[name] for box in boxes)
    return [_size(explored, name, least), _size(explored, name, most), f"{explored.effort.sizes[name]:,}"]
