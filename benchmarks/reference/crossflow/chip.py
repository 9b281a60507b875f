"""What the program knows of a chip when it times a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dfopt.frontends.deepflow import read_design
from dfopt.technology.derive import Derived, derive_design

LAUNCH = 9e-6
"""Seconds to launch a kernel (``sw_param`` of the program's configurations)."""
PRECISION = 2
"""Bytes of an element (the same)."""
LEVELS = ("registers", "L1", "L2")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a configuration says that its generator of chips does not use.

    Attributes
    ----------
    latencies
        In seconds: of registers, L1, L2 and DRAM.
    width
        Elements along one side of an array of multipliers.
    dataflow
        Which operand stays in the arrays: ``wst``, ``ast`` or ``ost`` (weight, activation, output), or ``best``.
    """

    latencies: tuple[float, float, float, float]
    width: int
    dataflow: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        parts = config["tech_param"]
        core, registers, l1, l2 = (parts[name] for name in ("core", "SRAM-R", "SRAM-L1", "SRAM-L2"))
        latencies = (registers["latency"], l1["latency"], l2["latency"], parts["DRAM"]["latency"])
        return cls(latencies, core["FMA_width"], core["dataflow"])


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip.

    Attributes
    ----------
    rate
        Sustained FLOP/s.
    rates
        Sustained bytes/s of registers, L1, L2 and DRAM.
    room
        Elements that tiles may have: in the registers of a unit, the L1 of a cluster and the L2 of the chip.
    precision
        Bytes of an element.
    """

    rate: float
    rates: tuple[float, float, float, float]
    room: tuple[float, float, float]
    kind: Kind
    precision: int = PRECISION

    @classmethod
    def of(cls, derived: Derived, kind: Kind, precision: int = PRECISION) -> Self:
        """A chip that dfopt derived from a technology."""
        core, registers, l1, l2 = derived.core, *(derived.sram[name] for name in LEVELS)
        room = registers.size / max(core.units, 1), l1.size / max(core.clusters, 1), l2.size
        rates = registers.rate, l1.rate, l2.rate, derived.dram.rate
        return cls(core.rate, rates, (room[0] / precision, room[1] / precision, room[2] / precision), kind, precision)


def chip_of(config: Mapping[str, Any], name: str, precision: int = PRECISION) -> Chip:
    """The chip of a configuration of the program."""
    return Chip.of(derive_design(read_design(config, name)[0]), Kind.of(config), precision)
