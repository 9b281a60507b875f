"""A system of derived chips: what a template makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from dfopt.documents.design import Design
from dfopt.documents.design_template import Template, TemplateDim
from dfopt.documents.dtypes import Peaks
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.documents.technology import LinkRole
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.arithmetic import Numbers
from dfopt.technology.chip_price import price_of
from dfopt.technology.components import DEGREE
from dfopt.technology.derive import Derived, derive_design
from dfopt.technology.operating import limit_names


def derived_system(design: Design, chip: Derived | None = None, memory: Dram | None = None) -> System:
    """System of a design: its derived chips, connected as the template says.

    Parameters
    ----------
    design
        The design, with a template.
    chip : Derived, optional
        The chip of the design, if it is derived already.
    memory : Dram, optional
        Memory of chips without external DRAM.

    Raises
    ------
    SystemSpecError
        If the design has no template, or shares that are ``auto``, or if a component that the system needs is off.
    """
    if design.template is None:
        message = "found none, expected how the chips make a system"
        remedy = "add template: {sram: LEVEL, network: [{name: node, topology: switch, size: 8, links: ROLE}]}"
        raise SystemSpecError(design.name, [Issue("$.template", message, remedy)])
    chip = derive_design(design) if chip is None else chip
    price = price_of(design, chip)
    usd = None if price is None else price.usd
    return system_of(design.name, chip, design.template, design.technology.core.utilization, usd, memory)


def system_of(
    name: str,
    chip: Derived,
    template: Template,
    utilization: float,
    price_usd: float | None = None,
    memory: Dram | None = None,
) -> System:
    """System of a template and one derived chip.

    Links of a role are distributed evenly over the ports of all dims that use them. DRAM and links have their sustained
    rates; cores have their peak rate, and the share of it that kernels sustain. The chip's power includes memory and
    links.

    Raises `SystemSpecError` where a component that the system needs is off.

    Parameters
    ----------
    name, chip, template : str, Derived, Template
        Name of the system, its chip, and how chips are connected.
    utilization : float
        Share of the chip's peak that kernels sustain.
    price_usd : float, optional
        Price of the chip with its memory.
    memory : Dram, optional
        Memory of a chip with DRAM dies on it and no external DRAM.

    Examples
    --------
    >>> from dfopt.technology.components import ChipDram, ChipSram, Core, Links
    >>> of = lambda kind, **figures: kind(**{**dict.fromkeys(kind._fields, 0.0), **figures})
    >>> chip = Derived(
    ...     of(Core, units=128.0, clusters=32.0, peak=1e15, peaks={}), {"L2": of(ChipSram, size=32e6, rate=1e13)},
    ...     of(ChipDram, size=80e9, rate=2e12), {"between_packages": of(Links, rate=450e9)},
    ... )
    >>> dims = (TemplateDim(name="x", topology="ring", size=4, links="between_packages"),)
    >>> made = system_of("ours", chip, Template(sram="L2", network=dims), 0.8)
    >>> made.chip.tiles, made.chip.compute_utilization, made.dim("x").link_bandwidth
    (32, 0.8, 225000000000.0)
    """
    own = memory if not chip.dram.rate > 0 else None
    if off := list(_off(chip, template, own)):
        raise SystemSpecError(name, off)
    peaks = chip.core.peaks
    return System(
        name=name,
        chip=Chip(
            name=name,
            execution=template.execution,
            tiles=template.tiles or int(chip.core.clusters),
            peak=Peaks(**{str(kind): float(rate) for kind, rate in peaks.items()}) if peaks else float(chip.core.peak),
            compute_utilization=utilization,
            sram=Sram(capacity=float(chip.sram[template.sram].size), bandwidth=float(chip.sram[template.sram].rate)),
            dram=Dram(
                bandwidth=float(chip.dram.rate) if own is None else own.bandwidth,
                capacity=float(chip.dram.size) if own is None else own.capacity,
                usd_per_gb_s=None if price_usd is None else 0.0,
                w_per_gb_s=0.0,
            ),
            price_usd=price_usd,
            power_w=float(chip.power),
        ),
        network=tuple(map(partial(_dim, chip), template.network, _rates(chip, template))),
        collective_overhead=template.collective_overhead,
    )


def _dim(chip: Derived, dim: TemplateDim, rate: float) -> NetworkDim:
    """A dim as its template has it, with the bandwidth of a link; its links, if it has any, say the rest."""
    fields = dim.model_dump(exclude={"links"}) | {"link_bandwidth": rate}
    if dim.latency is None:
        fields["latency"] = chip.links[dim.links].latency if dim.links else 0.0
    if dim.links and dim.link_w_per_gb_s is None:
        fields["link_w_per_gb_s"] = 0.0
    return NetworkDim(**fields)


def _rates(chip: Derived, template: Template) -> list[float]:
    """Bandwidth of a link of every dim."""
    ports = Counter[LinkRole]()
    for dim in template.network:
        if dim.links is not None:
            ports[dim.links] += dim.ports
    each = {role: float(chip.links[role].rate) * DEGREE[role] / count for role, count in ports.items()}
    return [dim.link_bandwidth or (each[dim.links] if dim.links else 0.0) for dim in template.network]


def _off(chip: Derived, template: Template, memory: Dram | None) -> Iterator[Issue]:
    """What of the chip is needed and is not there."""
    needs: dict[str, tuple[Numbers, str, Numbers]] = {
        "core": (chip.core.peak, "cores", chip.core.bound),
        template.sram: (chip.sram[template.sram].size, "an on-chip memory", chip.sram[template.sram].bound),
    }
    if memory is None:
        needs["dram"] = chip.dram.rate, "an off-chip memory", chip.dram.bound
    if chip.dies > 1:
        links = chip.links["between_dies"]
        needs["between_dies"] = links.rate, f"links between its {chip.dies} dies", links.bound
    for dim in template.network:
        if dim.links is not None:
            links = chip.links[dim.links]
            needs[dim.links] = links.rate, f"links for its dim {dim.name}", links.bound
    for component, (rate, what, bound) in needs.items():
        if not rate > 0:
            message = f"found a chip without {component} ({limit_names(int(bound))} ends it), expected {what}"
            yield Issue("$.shares", message, f"give {component} more area, power and perimeter")
