"""Designs at both ends of what sources give for the energy of their DRAM.

The energy decides how much bandwidth a share of the power buys, and what a design with so much bandwidth leaves to
its cores: the best design may be another one, whatever is made least.
"""

from __future__ import annotations

from collections.abc import Sequence

from dfopt.documents.design import Design
from dfopt.errors import Issue, SystemSpecError
from dfopt.machines.replace import replaced


def at_both_ends(designs: Sequence[Design]) -> tuple[tuple[Design, ...], tuple[Design, ...]]:
    """Copies of designs with the least and with the greatest DRAM energy that sources report.

    Raises
    ------
    SystemSpecError
        If the technology of one has no such range.

    Examples
    --------
    >>> from dfopt.machines.designs import load_design
    >>> reticle = load_design("reticle-2026")
    >>> [f"{design.technology.dram.energy / 8e-12:.3g} pJ/bit" for (design,) in at_both_ends([reticle])]
    ['3 pJ/bit', '6 pJ/bit']
    """
    ends: tuple[list[Design], list[Design]] = ([], [])
    for design in designs:
        data = design.to_data()
        if design.technology.dram is None:
            message = f"found DRAM layers in {design.technology.name}, expected stacks with an energy_range"
            raise SystemSpecError(design.name, [Issue("$.technology.layers", message, "leave range out")])
        if design.technology.dram.energy_range is None:
            message = f"found none in {design.technology.name}, expected the least and the most that sources give"
            remedy = "add it, such as [3.5 pJ/bit, 7 pJ/bit], or leave range out"
            raise SystemSpecError(design.name, [Issue("$.technology.dram.energy_range", message, remedy)])
        for designs_at_end, energy in zip(ends, data["technology"]["dram"]["energy_range"], strict=True):
            changed = replaced(data, {"technology.dram.energy": energy}, design.name)
            designs_at_end.append(Design.from_data(changed, design.name))
    return tuple(ends[0]), tuple(ends[1])
