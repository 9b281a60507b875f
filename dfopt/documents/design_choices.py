"""Which sizes components of a design may have, where that is to be searched."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.design_sizes import NETWORK_ON_LOGIC, NetworkDie
from dfopt.documents.technology import LinkRole
from dfopt.units import Bandwidth, Bytes, Watts

MOST_STEPS = 10_000
MOST_STACKS = 1000
LISTED = ("dram_layers", "connected_layers", "buffer", "buffer_port")
CountChoices = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1, max_length=64)]
SizeChoices = Annotated[tuple[Annotated[Bytes, Field(gt=0)], ...], Field(min_length=1, max_length=1000)]


class _Steps(Part):
    """``least``, and every ``step`` above it, up to ``most``.

    Attributes
    ----------
    least : unit of the size, e.g. 1
        Smallest size that the search tries.
    most : unit of the size, e.g. 5
        Largest size that the search may try.
    step : unit of the size, e.g. 1
        Difference between one size and the next one that the search tries.
    """

    least: float
    most: float
    step: float

    @property
    def values(self) -> tuple[float, ...]:
        """All sizes, the smallest first."""
        count = int((self.most - self.least) / self.step * (1 + 1e-12) + 1e-9) + 1
        return tuple(self.least + position * self.step for position in range(count))

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least:
            raise problem(f"found {self.most:g}, expected least ({self.least:g}) or more", "raise it", "$.most")
        if (self.most - self.least) / self.step > MOST_STEPS:
            message = f"found {(self.most - self.least) / self.step:.3g} steps, expected at most {MOST_STEPS}"
            raise problem(message, "raise it", "$.step")
        return self


class StackSteps(_Steps):
    """Candidate numbers of DRAM stacks.

    Attributes
    ----------
    least : stacks, e.g. 1
        Smallest number of DRAM stacks that the search tries.
    most : stacks, e.g. 6
        Largest number of DRAM stacks that the search may try.
    step : stacks, e.g. 1
        Difference between one number of DRAM stacks and the next one that the search tries.
    """

    least: Annotated[int, Field(ge=1, le=MOST_STACKS)] = 1
    most: Annotated[int, Field(ge=1, le=MOST_STACKS)]
    step: Annotated[int, Field(ge=1, le=MOST_STACKS)] = 1


class CapacitySteps(_Steps):
    """Candidate capacities, each rounded up to whole banks.

    Attributes
    ----------
    least : e.g. 10 MB
        Smallest capacity of an SRAM level that the search tries.
    most : e.g. 100 MB
        Largest capacity of an SRAM level that the search may try.
    step : e.g. 10 MB
        Difference between one capacity of an SRAM level and the next one that the search tries.
    """

    least: Annotated[Bytes, Field(gt=0)]
    most: Annotated[Bytes, Field(gt=0)]
    step: Annotated[Bytes, Field(gt=0)]


class RateSteps(_Steps):
    """Candidate rates of all links of a role together, in each direction, rounded up to whole links.

    Attributes
    ----------
    least : e.g. 100 GB/s
        Smallest rate of all links of a role in one direction that the search tries.
    most : e.g. 900 GB/s
        Largest rate of all links of a role in one direction that the search may try.
    step : e.g. 100 GB/s
        Difference between one rate of all links of a role in one direction and the next one that the search tries.
    """

    least: Annotated[Bandwidth, Field(gt=0)]
    most: Annotated[Bandwidth, Field(gt=0)]
    step: Annotated[Bandwidth, Field(gt=0)]


class PowerSteps(_Steps):
    """Candidate power budgets, which replace that of the design.

    Attributes
    ----------
    least : e.g. 300 W
        Smallest power budget that the search tries.
    most : e.g. 700 W
        Largest power budget that the search may try.
    step : e.g. 100 W
        Difference between one power budget and the next one that the search tries.
    """

    least: Annotated[Watts, Field(gt=0)]
    most: Annotated[Watts, Field(gt=0)]
    step: Annotated[Watts, Field(gt=0)]


class DesignChoices(Part):
    """Candidate sizes of components; an unnamed component takes as many as fit, in even steps.

    Attributes
    ----------
    stacks : e.g. {most: 6}
        Numbers of DRAM stacks that the search tries. None: as many as fit.
    capacity : e.g. {L2: {least: 10 MB, most: 100 MB, step: 10 MB}}
        Capacities of SRAM levels that the search tries, by the name of the level.
    rate : e.g. {between_packages: {least: 100 GB/s, most: 900 GB/s, step: 100 GB/s}}
        Rates of links that the search tries, by their role: ``in_package``, ``between_packages``, ``between_nodes`` and
        ``between_dies``.
    power : e.g. {least: 300 W, most: 700 W, step: 100 W}
        Power budgets that the search tries. None: only the budget of the design.
    dram_layers : layers, e.g. [2, 4, 6, 8]
        Numbers of DRAM dies on the logic die that the search tries, rising. None: that of ``sizes``.
    connected_layers : layers, e.g. [2, 4, 6, 8]
        Numbers of connected DRAM dies that the search tries, rising; of more than there are dies there is no design.
        None: that of ``sizes``, or all dies where it has none.
    buffer : e.g. [128 KiB, 256 KiB, 512 KiB]
        Capacities of the buffer of a unit that the search tries, rising. None: that of ``sizes``.
    buffer_port : e.g. [128 B, 256 B]
        Data that the buffer of a unit moves in a cycle, each value that the search tries, rising. None: that of
        ``sizes``.
    network_die : e.g. [logic, dram]
        Dies for the circuits of the network that the search tries. ``logic``: the logic die. ``dram``: a DRAM die.
        None: that of ``sizes``. Answers say ``network_on_logic``: 1, or 0 for a DRAM die.

    Examples
    --------
    >>> StackSteps(most=5, step=2).values, RateSteps(least=1e11, most=3e11, step=1e11).values
    ((1, 3, 5), (100000000000.0, 200000000000.0, 300000000000.0))
    """

    stacks: StackSteps | None = None
    capacity: dict[str, CapacitySteps] = Field(default_factory=dict)
    rate: dict[LinkRole, RateSteps] = Field(default_factory=dict)

    power: PowerSteps | None = None
    dram_layers: CountChoices | None = None
    connected_layers: CountChoices | None = None
    buffer: SizeChoices | None = None
    buffer_port: SizeChoices | None = None
    network_die: Annotated[tuple[NetworkDie, ...], Field(min_length=1)] | None = None

    @property
    def listed(self) -> dict[str, tuple[float, ...]]:
        """Candidate sizes of a stacked chip by component, in the order of the search."""
        by_name = {name: getattr(self, name) for name in LISTED}
        if self.network_die is not None:
            by_name[NETWORK_ON_LOGIC] = sorted(die == "logic" for die in self.network_die)
        return {name: tuple(map(float, values)) for name, values in by_name.items() if values is not None}

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if self.network_die is not None and len(set(self.network_die)) < len(self.network_die):
            raise problem(f"found {list(self.network_die)}, expected each die once", "list it once", "$.network_die")
        for name, values in self.listed.items():
            if any(more <= less for less, more in pairwise(values)):
                raise problem(f"found {list(values)}, expected rising values", "list each once", f"$.{name}")
        return self

    @property
    def components(self) -> tuple[str, ...]:
        """Components with candidates."""
        return (*(("dram",) if self.stacks else ()), *self.capacity, *self.rate)

    def of(self, component: str) -> _Steps | None:
        """Candidates of one component, or None."""
        if component == "dram":
            return self.stacks
        return self.capacity.get(component) or {str(role): steps for role, steps in self.rate.items()}.get(component)
