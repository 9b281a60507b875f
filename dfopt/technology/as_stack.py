"""A derived chip as a stack of dies: its floorplan, its energies, and how its clock falls with its voltage.

What a design does not say is that of another stack: the package and its cooling, the dies beside the logic die with
their bonds, the timings and commands of the DRAM, limits. Energies are those at the operating voltage of each
component, so a chip that does all that it can at its nominal level draws what it was derived to draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dfopt.documents.design import Design
from dfopt.documents.stack import Level, LogicEnergies, Stack
from dfopt.documents.stack_dram import DramStack
from dfopt.documents.stack_parts import Die, Leakage
from dfopt.documents.technology import CoreUnit, LinkRole
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.components import ChipDram, Core
from dfopt.technology.derive import Derived
from dfopt.technology.dram_like import like_rate
from dfopt.technology.floorplan import Interface, floorplan
from dfopt.technology.layered import AreaLaw, Point
from dfopt.technology.layered_stack import layered_dies, layered_dram
from dfopt.technology.voltage import overdrive_at

_MM2, _MM = 1e-6, 1e-3
_SAME_AREA = 0.01  # relative: sides of dies in files are rounded
_COLUMNS = 8  # of compute tiles, at most: heat flows far in silicon, and each tile costs a solve


def derived_stack(design: Design, chip: Derived, on: Stack) -> Stack:
    """Die stack of a derived chip, with the package of another stack.

    If ``on`` has DRAM dies, these are the memory of the chip, and the design has no memory of its own. Otherwise the
    memory is next to the chip, with channels like those of ``on``, as many as the links of the design provide, at their
    rate. The energy of its commands then follows from the technology's energy of a byte read in order, and its static
    power from the technology's leakage.

    Parameters
    ----------
    design, chip
        The design, and the chip that is derived from it.
    on
        The stack whose package and DRAM are used.

    Raises
    ------
    SystemSpecError
        If there are no cores, no memory or two, or dies of ``on`` that have another area.

    Examples
    --------
    See `dfopt.derive`.
    """
    if issues := list(_issues(design, chip, on)):
        raise SystemSpecError(design.name, issues)
    area = design.budgets.chip_area_mm2 * _MM2
    side_x = math.sqrt(area * on.side_x / on.side_y)
    side_y = area / side_x
    dies, dram = on.dies, on.dram if on.dram_dies else _off_chip_dram(design, chip.dram, on.dram)
    if (part := design.technology.layers) is not None and design.sizes is not None:
        dies = layered_dies(on.dies, design.sizes.dram_layers, part.pitch)
        dram = layered_dram(design, part, chip, on.dram)
    dies = tuple(_logic(design, chip, die, side_x, side_y) if die.kind == "logic" else die for die in dies)
    changes = {
        "name": design.name,
        "description": f"{design.technology.name}, {design.budgets.chip_area_mm2:.6g} mm2, derived",
        "source": f"derived from design {design.name}; what that does not say is of stack {on.name}",
        "side_x": side_x,
        "side_y": side_y,
        "dies": dies,
        "dram": dram,
        "logic": _energies(design, chip),
        "levels": levels_of(design.technology.core, chip.core, [level.frequency for level in on.levels]),
    }
    # built anew, not copied: what does not fit together is told
    return Stack(**{**{key: getattr(on, key) for key in Stack.model_fields}, **changes})


def levels_of(unit: CoreUnit, core: Core, frequencies: list[float]) -> tuple[Level, ...]:
    """Operating points of derived cores: the voltage, relative to nominal, for each share of the clock.

    The clock goes with ``(V - V_t)^2 / V``; below its lowest voltage a circuit stays there.

    Parameters
    ----------
    unit
        Compute unit of the technology.
    core
        Derived core at its operating point.
    frequencies
        Shares of its clock, from fast to slow.

    Examples
    --------
    >>> from dfopt.documents.technology import Supply
    >>> supply = Supply(nominal_v=0.75, threshold_v=0.25, margin_v=0.2)
    >>> unit = CoreUnit(area_mm2=1.0, flop_per_cycle=1.0, power=1.0, frequency=1e9, supply=supply, units_per_cluster=1)
    >>> core = Core(**{**dict.fromkeys(Core._fields, 1.0), "voltage": 0.75, "frequency": 1e9})
    >>> [round(level.voltage, 4) for level in levels_of(unit, core, [1.0, 0.72, 0.5, 0.25])]
    [1.0, 0.857, 0.7384, 0.6]
    """
    supply, clock = unit.supply, float(core.frequency) / unit.frequency

    def volts(share: float) -> float:
        needed = supply.threshold_v + overdrive_at(share * clock, supply.nominal_v, supply.threshold_v)
        return max(float(needed), supply.floor)

    own = volts(1.0)  # that of the cores but for the last digit: the nominal level has exactly all of it
    return tuple(Level(frequency=share, voltage=volts(share) / own) for share in frequencies)


def _issues(design: Design, chip: Derived, on: Stack) -> Iterator[Issue]:
    if not chip.core.peak > 0:
        yield Issue("$.shares", "found a chip without cores, expected some", "give core more area and power")
    has = chip.dram.bandwidth > 0
    if design.sizes is not None:
        if not on.dram_dies:
            message = f"found DRAM layers on the chip, expected a stack with DRAM dies: {on.name} has none"
            yield Issue("$.sizes.dram_layers", message, "name a stack whose DRAM lies on the logic die")
    elif on.dram_dies:
        have, need = design.budgets.chip_area_mm2, on.side_x * on.side_y / _MM2
        if has:
            message = f"found DRAM beside the chip, expected none: stack {on.name} has DRAM dies"
            another = "" if design.technology.stacks.on_die else ", or name a stack without DRAM dies"
            yield Issue("$.shares", message, f"take dram out of the shares{another}")
        if abs(have - need) > _SAME_AREA * need:
            message = f"found {have:.6g} mm2, expected the {need:.6g} mm2 of the dies of stack {on.name}"
            yield Issue("$.budgets.chip_area_mm2", message, "dies of a stack have one size: set it to theirs")
    elif not has:
        message = f"found a chip without DRAM, expected some: stack {on.name} has no DRAM dies"
        yield Issue("$.shares", message, "give dram more area, power and perimeter, or name a stack that has")
    elif design.technology.stacks.on_die:
        message = f"found {design.technology.name}, whose DRAM is dies on the logic die: stack {on.name} has none"
        remedy = "name a technology with DRAM beside the chip, or a stack with DRAM dies and no dram in the shares"
        yield Issue("$.technology", message, remedy)


def _logic(design: Design, chip: Derived, die: Die, side_x: float, side_y: float) -> Die:
    """The logic die: as that of the other stack, with a floorplan and leakage of its own."""
    technology, core = design.technology, chip.core
    compute, shared = float(core.units) * technology.core.area_mm2, 0.0
    for level in technology.sram:
        memory = chip.sram[level.name]
        links = float(core.clusters) * level.link_area_mm2 if level.shared else 0.0
        area = float(memory.banks) * (level.bank * 8 * level.bit_area_mm2 / (1 - level.overhead) + links)
        compute, shared = (compute, shared + area) if level.shared else (compute + area, shared)
    grid = min(max(math.isqrt(int(core.clusters)), 2), _COLUMNS)
    outward = tuple(
        Interface(role, float(wires.links) * part.area_mm2 * _MM2, float(wires.links) / part.links_per_mm * _MM)
        for role, part in technology.links.items()
        if role != "between_dies" and (wires := chip.links[role]).rate > 0
    )
    if design.sizes is not None and design.sizes.network_die == "dram":
        outward = ()
    try:
        tiles = floorplan(side_x, side_y, compute, shared, grid, _interface(design, chip), outward)
    except ValueError as error:
        issue = Issue("$.shares.area", f"{error} on the die for cores, expected some", "give dram and links less")
        raise SystemSpecError(design.name, [issue]) from error
    watts = leaking_w(chip, technology.core)
    at, beta = (die.leakage.at, die.leakage.beta_per_k) if die.leakage is not None else (358.15, 0.0)
    leakage = Leakage(power=watts, at=at, beta_per_k=beta) if watts > 0 else None
    return die.model_copy(update={"floorplan": tiles, "leakage": leakage})


def _interface(design: Design, chip: Derived) -> Interface:
    """What the DRAM takes of the logic die: controllers of stacks beside it, or vias of the layers on it."""
    if design.sizes is not None:
        law = AreaLaw.of(design.technology, design.budgets.chip_area_mm2)
        return Interface("dram", float(law.vias_mm2(Point.of(design.sizes, design.technology))) * _MM2, 0.0)
    part, stacks = design.technology.stacks, chip.dram
    return Interface(
        "dram", float(stacks.stacks) * part.controller_area_mm2 * _MM2, float(stacks.links) / part.links_per_mm * _MM
    )


def leaking_w(chip: Derived, unit: CoreUnit) -> float:
    """Leakage power of cores and SRAM, W."""
    return float(chip.core.units) * (unit.static_power or 0.0) + math.fsum(
        float(memory.static_power) for memory in chip.sram.values() if memory.size > 0
    )


def _energies(design: Design, chip: Derived) -> LogicEnergies:
    """Energies at the operating voltages.

    What mappings call SRAM is paid by the byte; other levels are taken to be as busy as the cores, and are paid with
    every FLOP (an assumption). The clock is in the energy of a FLOP.
    """
    technology = design.technology
    own = design.template.sram if design.template is not None else technology.sram[-1].name if technology.sram else None
    others = math.fsum(
        float(memory.bandwidth) * float(memory.energy)
        for name, memory in chip.sram.items()
        if name != own and memory.size > 0
    )
    used = [dim.links for dim in design.template.network if dim.links] if design.template is not None else []
    roles: list[LinkRole] = used or [role for role in technology.links if role != "between_dies"]
    return LogicEnergies(
        flop=float(chip.core.energy) + others / float(chip.core.peak),
        sram=float(chip.sram[own].energy) if own is not None else 0.0,
        # of several kinds of links the one that takes most
        network=max((float(chip.links[role].energy) for role in roles if chip.links[role].rate > 0), default=0.0),
    )


def _off_chip_dram(design: Design, memory: ChipDram, like: DramStack) -> DramStack:
    """DRAM beside the chip: channels like those of another stack, at the rate and with the energies of the design."""
    part, channels = design.technology.stacks, max(round(float(memory.links) / like.io_bits), 1)
    flowing = part.static_w_per_bit * 8 * float(memory.size) / channels
    dram = like_rate(like, channels, float(memory.rate) / part.utilization, float(memory.energy), flowing)
    return dram.model_copy(update={"capacity": float(memory.size)})
