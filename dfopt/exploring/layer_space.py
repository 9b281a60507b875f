"""Designs whose sizes are lists: DRAM layers, how many are connected, buffers with their ports, rates, and power.

Whatever is larger takes area or power from the units of compute and is never worse itself; so does a network on the
logic die, against one on a DRAM die, and leaves the DRAM its capacity. So the best corner of a box has the largest size
of each component and the units that the smallest sizes leave; what it can use of its DRAM follows from both. Its clock
is that of its units under the largest budget of power, where nothing leaks but what all leak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from dfopt.documents.design import POWER, Design
from dfopt.documents.design_sizes import NETWORK_ON_LOGIC
from dfopt.errors import SystemSpecError
from dfopt.exploring.decisions import Decisions
from dfopt.exploring.space import Box, DesignSpace, Sizes
from dfopt.technology.derive import Derived
from dfopt.technology.layered import layered_chip, least_drawn


class LayerSpace(DesignSpace):
    """Design space of a document with ``sizes`` and lists of candidates.

    Examples
    --------
    >>> from dfopt.machines.designs import load_design
    >>> data = load_design("stacked-256").to_data()
    >>> space = LayerSpace(Design.from_data({**data, "choices": {"dram_layers": [2, 4, 8], "buffer": ["1 MiB"]}}))
    >>> corner, most_layers = space.chip(space.root), space.chip(space.root.at((2, 0)))
    >>> space.count, round(corner.core.units, 2), round(most_layers.core.units, 2)
    (3, 7.07, 5.22)
    """

    @cached_property
    def sizes(self) -> Mapping[str, tuple[float, ...]]:
        """All candidate sizes of every free component, in ascending order."""
        choices = self.design.choices
        if choices is None:
            return {}
        rates = {str(role): steps.values for role, steps in choices.rate.items()}
        return {**choices.listed, **rates, **({POWER: choices.power.values} if choices.power else {})}

    def one_design(self, positions: Sizes) -> Design:
        """The document of one design, with its sizes."""
        sizes, of, budgets = self.named(positions), self.design.sizes, self.design.budgets
        assert of is not None  # what makes it a space of layers
        rates = {role: sizes.get(role, rate) for role, rate in of.rate.items()}
        rates |= {role: sizes[role] for role in self.design.technology.links if role in sizes}
        counts = {str(name): int(sizes[name]) for name in ("dram_layers", "connected_layers") if name in sizes}
        lengths = {str(name): sizes[name] for name in ("buffer", "buffer_port") if name in sizes}
        die = {"network_die": "logic" if sizes[NETWORK_ON_LOGIC] else "dram"} if NETWORK_ON_LOGIC in sizes else {}
        return self.design.model_copy(
            update={
                "sizes": of.model_copy(update={**counts, **lengths, **die, "rate": rates}),
                "budgets": budgets.model_copy(update={"power": sizes.get(POWER, budgets.power)}),
                "choices": None,
            }
        )

    def chip(self, box: Box) -> Derived | None:
        """Chip of one design, or the best corner of several; None if nothing in the box fits the budgets."""
        low, high = self.one_design(box.low), self.one_design(box.high)
        assert low.sizes is not None and high.sizes is not None
        if low.sizes.connected > high.sizes.dram_layers:
            return None
        try:
            core, buffer, dram, links = layered_chip(low, None if box.single else high)
        except SystemSpecError:
            return None
        return Derived(core, {"buffer": buffer}, dram, links)

    def least(self, box: Box, corner: Derived) -> Derived:
        """The best corner with lower bounds over the box: least power, fewest layers, slowest links."""
        if box.single:
            return corner
        low, high = self.one_design(box.low), self.one_design(box.high)
        assert low.sizes is not None
        cores, layers, links = least_drawn(low, high)
        dram = corner.dram._replace(power=layers, stacks=low.sizes.dram_layers)
        return replace(corner, core=corner.core._replace(power=cores), dram=dram, links=links)


def space_of(design: Design) -> DesignSpace:
    """Design space of a document, by its sizes or by shares of its budgets."""
    return LayerSpace(design) if design.sizes is not None else Decisions(design)
