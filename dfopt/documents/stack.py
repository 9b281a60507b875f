"""A chip as a stack of dies: what the judge needs to say how fast the memory really is and how hot it gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Named, Part
from dfopt.documents.stack_dram import DramStack
from dfopt.documents.stack_parts import Bond, Die, Package, SinkPackage, Tile
from dfopt.errors import Issue, SystemSpecError, repeated
from dfopt.units import Joules, JoulesPerByte, Kelvin, Metres, Ratio, Watts


class LogicEnergies(Part):
    """Energies of the logic die at nominal voltage; dynamic energy scales with the square of the voltage.

    Attributes
    ----------
    flop : e.g. 0.5 pJ
        Energy of one FLOP on the logic die at nominal voltage, with operands from the nearest registers.
    sram : e.g. 0.1 pJ/bit
        Energy of one byte that is read from or written to SRAM, at nominal voltage.
    noc : e.g. 0.05 pJ/bit
        Energy of one byte that crosses the on-chip network, at nominal voltage.
    network : e.g. 1 pJ/bit
        Energy of one byte that is sent to another chip, at nominal voltage.
    idle : e.g. 20 W
        Power of the logic die that flows all the time at the nominal frequency, such as that of the clock.
    """

    flop: Joules = Field(ge=0)
    sram: JoulesPerByte = Field(ge=0)
    noc: JoulesPerByte = Field(default=0.0, ge=0)
    network: JoulesPerByte = Field(default=0.0, ge=0)
    idle: Watts = Field(default=0.0, ge=0)


class Level(Part):
    """An operating point: frequency and voltage relative to nominal.

    Attributes
    ----------
    frequency : e.g. 0.8
        Frequency of this operating point as a share of the nominal one.
    voltage : e.g. 0.9
        Voltage of this operating point as a share of the nominal one.
    """

    frequency: Ratio = Field(gt=0, le=1)
    voltage: Ratio = Field(gt=0, le=1)


class Limits(Part):
    """Thermal and power limits of a stack.

    Attributes
    ----------
    logic : e.g. 105 degC
        Highest temperature that the logic die may reach. None: no limit.
    dram : e.g. 95 degC
        Highest temperature that the DRAM dies may reach. None: no limit.
    power : e.g. 300 W
        Highest power that the whole stack may dissipate. None: no limit.
    """

    logic: Kelvin | None = Field(default=None, gt=0)
    dram: Kelvin | None = Field(default=None, gt=0)
    power: Watts | None = Field(default=None, gt=0)


class Stack(Named):
    """A chip as a stack of dies on a package, with its DRAM.

    Attributes
    ----------
    side_x : e.g. 12 mm
        Length of the stack along the x axis.
    side_y : e.g. 10 mm
        Length of the stack along the y axis.
    dies : e.g. [{name: logic, kind: logic, thickness: 100 um}]
        Dies of the stack, from the face far from the heat sink to the heat sink.
    package : e.g. {mode: htc, htc_w_per_m2k: 20000}
        Package that removes the heat of the stack.
    ambient : e.g. 35 degC
        Temperature of the air or the coolant.
    far_htc_w_per_m2k : W/(m2 K), e.g. 50
        Heat transfer coefficient of the face far from the sink, through bumps and board.
    dram
        DRAM of the chip: channels, timings, refresh, buffers and energies.
    logic : e.g. {flop: 0.5 pJ, sram: 0.1 pJ/bit}
        Energies of the logic die.
    levels : e.g. [{frequency: 1, voltage: 1}, {frequency: 0.8, voltage: 0.9}]
        Operating points of the logic die, the nominal one first, in falling order of frequency.
    limits : e.g. {logic: 105 degC, dram: 95 degC}
        Temperatures and power that the stack may not exceed.
    placement : e.g. contiguous
        Position of the tiles of one kernel on the floorplan. ``contiguous``: next to each other along a snake.
        ``interleaved``: spread evenly.
    cells : cells, e.g. 16
        Number of cells of the thermal grid along each side.
    """

    SCHEMA: ClassVar[str] = "dfopt/stack/1"

    side_x: Metres = Field(gt=0, le=1)
    side_y: Metres = Field(gt=0, le=1)
    dies: tuple[Die, ...] = Field(min_length=1, max_length=64)
    package: Package
    ambient: Kelvin = Field(gt=0)
    far_htc_w_per_m2k: float = Field(default=0.0, ge=0, le=1e6)
    dram: DramStack
    logic: LogicEnergies
    levels: tuple[Level, ...] = Field(default=(Level(frequency=1.0, voltage=1.0),), min_length=1, max_length=32)
    limits: Limits = Limits()
    placement: Literal["contiguous", "interleaved"] = "contiguous"
    cells: int = Field(default=16, ge=4, le=256)

    @cached_property
    def layers(self) -> tuple[Die, ...]:
        """The dies individually, from the far face to the sink."""
        return tuple(layer for die in self.dies for layer in die.layers())

    @property
    def logic_die(self) -> Die:
        """The die with the compute tiles."""
        return next(die for die in self.layers if die.kind == "logic")

    @property
    def dram_dies(self) -> tuple[Die, ...]:
        """DRAM dies of the stack; empty if the memory is beside it."""
        return tuple(die for die in self.layers if die.kind == "dram")

    @cached_property
    def tiles(self) -> tuple[tuple[str, Tile], ...]:
        """All floorplan tiles with their die names, in the order of power maps."""
        return tuple((die.name, tile) for die in self.layers for tile in die.tiles(self.side_x, self.side_y))

    @property
    def connections_needed(self) -> int:
        """Number of data connections between logic and DRAM dies, one a bit of each channel; 0 without DRAM dies."""
        return self.dram.channels * self.dram.io_bits if self.dram_dies else 0

    @property
    def connections_available(self) -> float | None:
        """Number of data connections that fit next to the logic die: ``side_x * side_y * signal_share / pitch^2``.

        Of the bond towards the DRAM dies, or of both bonds if there are some on either side. None if there are no DRAM
        dies, or if a bond says no pitch: then nothing is known.
        """
        bonds = self._logic_bonds()
        if not bonds or any(bond is None or bond.pitch is None for _, bond in bonds):
            return None
        area = self.side_x * self.side_y
        return sum(area * bond.signal_share / bond.pitch**2 for _, bond in bonds if bond is not None and bond.pitch)

    def _logic_bonds(self) -> list[tuple[int, Bond | None]]:
        """Index and bond of the entries next to the logic die, on the sides that have DRAM dies."""
        at = next(i for i, die in enumerate(self.dies) if die.kind == "logic")
        sides = ((at - 1, self.dies[:at]), (at, self.dies[at + 1 :]))
        return [(i, self.dies[i].bond) for i, beyond in sides if any(die.kind == "dram" for die in beyond)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        issues = [*self._layer_issues()]
        if not any(issue.where == "$.dies" for issue in issues):
            issues += self._connection_issues()
        issues += [*self._floorplan_issues(), *self._limit_issues()]
        if issues:
            raise SystemSpecError(self.name, issues)
        return self

    def _layer_issues(self) -> Iterator[Issue]:
        logic = [i for i, die in enumerate(self.dies) if die.kind == "logic" for _ in range(die.count)]
        if len(logic) != 1:
            remedy = "add the die with the compute tiles" if not logic else "of one chip only one can compute"
            yield Issue("$.dies", f"found {len(logic)} dies of kind logic, expected one", remedy)
        entries = [(i, layer.name) for i, die in enumerate(self.dies) for layer in die.layers()]
        reported = -1
        for at, name, first in repeated(name for _, name in entries):
            if (i := entries[at][0]) != reported:  # not each of an entry's dies
                message = f"die {name!r} is named twice, first by $.dies[{entries[first][0]}]"
                yield Issue(f"$.dies[{i}].name", message, "each needs a name of its own")
            reported = i
        if isinstance(self.package, SinkPackage):
            widest = max(self.side_x, self.side_y)
            if self.package.spreader.side < widest * (1 - 1e-9):
                mm = f"{self.package.spreader.side * 1e3:.6g} mm, expected {widest * 1e3:.6g} mm or more"
                yield Issue("$.package.spreader.side", f"found {mm}", "the spreader covers the die: make it larger")

    def _connection_issues(self) -> Iterator[Issue]:
        have, need = self.connections_available, self.connections_needed
        if have is not None and need > have * (1 + 1e-9):
            i, bond = self._logic_bonds()[0]
            pitch = bond.pitch if bond is not None and bond.pitch is not None else 0.0
            room = f"found a pitch of {pitch * 1e6:.6g} um, which has room for {have:,.0f} data connections"
            wanted = f"expected {need:,} ({self.dram.channels} channels of {self.dram.io_bits} bits)"
            remedy = "a finer pitch, a larger signal_share, or fewer or narrower channels"
            yield Issue(f"$.dies[{i}].bond.pitch", f"{room}, {wanted}", remedy)

    def _floorplan_issues(self) -> Iterator[Issue]:
        slack = 1e-9 * max(self.side_x, self.side_y)
        for i, die in enumerate(self.dies):
            where = f"$.dies[{i}].floorplan"
            if die.kind == "passive" or not isinstance(die.floorplan, tuple):
                continue
            for j, name, _ in repeated(tile.name for tile in die.floorplan):
                yield Issue(f"{where}[{j}].name", f"tile {name!r} is named twice", "give each its own name")
            wanted = "compute" if die.kind == "logic" else "dram"
            if not any(tile.kind == wanted for tile in die.floorplan):
                yield Issue(where, f"no tile of kind {wanted} for the power of this {die.kind} die", "add one")
            for j, tile in enumerate(die.floorplan):
                if (die.kind == "dram") != (tile.kind == "dram"):
                    fitting = "dram" if die.kind == "dram" else "compute, sram, noc or io"
                    message = f"found {tile.kind!r} on a {die.kind} die, expected {fitting}"
                    yield Issue(f"{where}[{j}].kind", message, "move it to a die of its kind, or rename its kind")
                if tile.x + tile.width > self.side_x + slack or tile.y + tile.height > self.side_y + slack:
                    corner = f"{(tile.x + tile.width) * 1e3:.6g} x {(tile.y + tile.height) * 1e3:.6g} mm"
                    die_size = f"{self.side_x * 1e3:.6g} x {self.side_y * 1e3:.6g} mm"
                    message = f"tile {tile.name!r} reaches to {corner}, outside the die of {die_size}"
                    yield Issue(f"{where}[{j}]", message, "power can only be where the die is")
            yield from _overlaps(die.floorplan, where, slack)

    def most_k(self, die: str) -> float:
        """Temperature limit of a die, K; infinite without one."""
        most = self.limits.logic if die == self.logic_die.name else self.limits.dram
        return math.inf if most is None else most

    def _limit_issues(self) -> Iterator[Issue]:
        first = self.levels[0]
        if first.frequency != 1 or first.voltage != 1:
            message = f"found frequency {first.frequency:.6g} and voltage {first.voltage:.6g}, expected 1 and 1"
            yield Issue("$.levels[0]", message, "levels are shares of the nominal one, which comes first")
        for i, (fast, slow) in enumerate(pairwise(self.levels), start=1):
            if slow.frequency >= fast.frequency or slow.voltage > fast.voltage:
                actual = f"found frequency {slow.frequency:.6g} at voltage {slow.voltage:.6g}"
                most = f"less than {fast.frequency:.6g} at {fast.voltage:.6g} or less, as of the level before it"
                yield Issue(f"$.levels[{i}]", f"{actual}, expected {most}", "list levels from fast to slow")
        for key, limit in (("logic", self.limits.logic), ("dram", self.limits.dram)):
            if limit is not None and limit <= self.ambient:
                ambient = f"{self.ambient - 273.15:.6g} degC"
                message = f"found {limit - 273.15:.6g} degC, expected more than the ambient of {ambient}"
                yield Issue(f"$.limits.{key}", message, "raise the limit or cool the ambient; nothing could ever run")


def _overlaps(tiles: tuple[Tile, ...], where: str, slack: float) -> Iterator[Issue]:
    for j, tile in enumerate(tiles):
        for other in tiles[:j]:
            across = min(tile.x + tile.width, other.x + other.width) - max(tile.x, other.x)
            along = min(tile.y + tile.height, other.y + other.height) - max(tile.y, other.y)
            if across > slack and along > slack:
                yield Issue(f"{where}[{j}]", f"tile {tile.name!r} overlaps tile {other.name!r}", "move or shrink one")
                return
