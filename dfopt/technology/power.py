"""Where the energy of a die stack goes: joules and watts by component, on every tile of its floorplans.

Suffixes of arrays: b evaluation (a partition, or a block of kernels), k kernel, f compute tile, i any tile of the
stack in the order of ``Stack.tiles``.

Dynamic energy of the logic die goes with the square of the voltage, its clock power with frequency x voltage squared,
its leakage with the voltage (Rabaey, Chandrakasan, Nikolic, "Digital Integrated Circuits", 2nd ed., chapter 5:
E = C V^2, P_clock = C V^2 f, P_leak = V I_leak). DRAM and the links to other chips run at voltages of their own. Energy
of DRAM commands: Micron TN-46-03 and DRAMPower, as `dfopt.documents.stack_dram.DramEnergies` takes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.stack import Stack
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.placement import placement_shares, snake

DYNAMIC = ("compute", "sram", "noc", "network", "dram_activate", "dram_read", "dram_write", "io")
CONSTANT = ("dram_refresh", "dram_background", "leakage", "idle")
COMPONENTS = (*DYNAMIC, *CONSTANT)
"""What a joule is spent on; the first eight per evaluation, the others as time goes by."""

# exp() of more than this is an absurd leakage whatever its factor; it keeps a runaway finite until it is noticed.
HOTTEST_EXPONENT = 60.0


@dataclass(frozen=True, eq=False)
class Activity:
    """Operations of some evaluations of kernels on one chip, with their placement on compute tiles.

    Parameters
    ----------
    flop, sram_traffic_bytes, noc_bytes : array (B, F)
        FLOP, bytes to and from SRAM, and bytes across the on-chip network, by compute tile.
    network_bytes : array (B,)
        Bytes sent to other chips.
    activates, read_bursts, write_bursts : array (B,)
        DRAM commands, over all channels.
    """

    flop: Floats
    sram_traffic_bytes: Floats
    noc_bytes: Floats
    network_bytes: Floats
    activates: Floats
    read_bursts: Floats
    write_bursts: Floats


@dataclass(frozen=True)
class KernelBlock:
    """Kernels that run together on one chip in one evaluation; tuples have one entry a kernel.

    ``chip_tiles`` is how many compute tiles the chip has in the count of ``tiles``; 0 where the kernels share the whole
    chip in proportion to their tiles.
    """

    tiles: tuple[float, ...]
    flop: tuple[float, ...]
    sram_traffic_bytes: tuple[float, ...]
    noc_bytes: tuple[float, ...]
    chip_tiles: float = 0.0
    network_bytes: float = 0.0
    activates: float = 0.0
    read_bursts: float = 0.0
    write_bursts: float = 0.0


def _padded(rows: Sequence[Sequence[float]]) -> Floats:
    """Rows as an array, shorter ones with zeros at the end."""
    padded = np.zeros((len(rows), max(map(len, rows), default=0)))
    for position, row in enumerate(rows):
        padded[position, : len(row)] = row
    return padded


@dataclass(frozen=True, eq=False)
class PowerModel:
    """Floorplans and energies of a stack as arrays over its tiles; made by `from_stack`.

    Parameters
    ----------
    stack : Stack
        Stack with the energies.
    areas : array (I,)
        Square metres of all tiles.
    compute : array (F,)
        Positions of the compute tiles among them.
    order : tuple of int
        The compute tiles along the snake.

    Examples
    --------
    >>> from dfopt.documents.zoo import find
    >>> stack = Stack.load(find("stacks", "hybrid-vault"))
    >>> model = PowerModel.from_stack(stack)
    >>> one = KernelBlock(tiles=(1.0,), flop=(1e9,), sram_traffic_bytes=(0.0,), noc_bytes=(0.0,))
    >>> joules = model.logic_dynamic(model.activity([one]))
    >>> joules.shape == (1, len(stack.tiles)), round(float(joules.sum()) / (1e9 * stack.logic.flop), 12)
    (True, 1.0)
    """

    stack: Stack
    areas: Floats
    compute: Ints
    order: tuple[int, ...]
    sram_tiles: Floats | None
    noc_tiles: Floats | None
    io_tiles: Floats
    logic_tiles: Floats
    dram_tiles: Floats
    leakage_w: Floats
    leakage_at_k: Floats
    leakage_beta: Floats

    @classmethod
    def from_stack(cls, stack: Stack) -> Self:
        """Build the model of a stack.

        Raises
        ------
        SystemSpecError
            If a die without a floorplan leaks: its power would be nowhere.
        """
        tiles = stack.tiles
        kinds = np.array([tile.kind for _, tile in tiles])
        dies = np.array([die for die, _ in tiles])
        areas = np.array([tile.width * tile.height for _, tile in tiles])
        compute = np.flatnonzero(kinds == "compute")
        on_logic = dies == stack.logic_die.name

        def over(chosen: Bools) -> Floats:
            """Shares by area among the chosen tiles."""
            held = np.where(chosen, areas, 0.0)
            return np.asarray(held / held.sum())

        leak, at, beta = np.zeros(len(areas)), np.full(len(areas), stack.ambient), np.zeros(len(areas))
        for i, die in enumerate(stack.dies):
            if die.leakage is None:
                continue
            if die.kind == "passive":
                message = f"found leakage on the passive die {die.name!r}, which has no tiles to put its power on"
                raise SystemSpecError(stack.name, [Issue(f"$.dies[{i}].leakage", message, "leave it out")])
            for layer in die.layers():
                on_layer = dies == layer.name
                leak += die.leakage.power * over(on_layer)
                at[on_layer], beta[on_layer] = die.leakage.at, die.leakage.beta_per_k
        io = kinds == "io"
        return cls(
            stack=stack,
            areas=areas,
            compute=compute,
            order=tuple(snake([tiles[i][1] for i in compute])),
            sram_tiles=over(kinds == "sram") if (kinds == "sram").any() else None,
            noc_tiles=over(kinds == "noc") if (kinds == "noc").any() else None,
            io_tiles=over(io) if io.any() else over(on_logic),
            logic_tiles=over(on_logic),
            dram_tiles=over(kinds == "dram") if stack.dram_dies else np.zeros(len(areas)),
            leakage_w=leak,
            leakage_at_k=at,
            leakage_beta=beta,
        )

    @property
    def count(self) -> int:
        """Number of tiles of the stack, I."""
        return len(self.areas)

    @cached_property
    def on_logic(self) -> Bools:
        """Mask of the tiles on the logic die, shape (I,)."""
        return self.logic_tiles > 0

    @cached_property
    def leaky(self) -> Ints:
        """Positions of the tiles with leakage."""
        return np.flatnonzero(self.leakage_w)

    @cached_property
    def io_heat(self) -> Floats:
        """Share of each tile in the energy of DRAM transfers, (I,): half on the logic die, half on DRAM dies."""
        return 0.5 * self.io_tiles + 0.5 * self.dram_tiles

    @staticmethod
    def vector(values: Iterable[float]) -> Floats:
        """Numbers as a float array, for callers without NumPy."""
        return np.array(list(values), dtype=np.float64)

    def activity(self, blocks: Sequence[KernelBlock]) -> Activity:
        """Activity of blocks of kernels, placed on the floorplan."""
        placed, areas = np.zeros((3, len(blocks), len(self.compute))), self.areas[self.compute]
        # Blocks of about one size together: padded to the largest of all, one large block would cost as much for each.
        sizes: dict[int, list[int]] = defaultdict(list)
        for position, block in enumerate(blocks):
            sizes[len(block.tiles).bit_length()].append(position)
        for positions in sizes.values():
            some = [blocks[position] for position in positions]
            tiles = _padded([block.tiles for block in some])
            of = np.array([block.chip_tiles for block in some])
            shares = placement_shares(tiles, of, areas, self.stack.placement, self.order)
            done = [
                _padded([getattr(block, name) for block in some])
                for name in ("flop", "sram_traffic_bytes", "noc_bytes")
            ]
            placed[:, positions] = np.einsum("abk,bkf->abf", np.array(done), shares)
        totals = ("network_bytes", "activates", "read_bursts", "write_bursts")
        return Activity(*placed, *(self.vector(getattr(block, name) for block in blocks) for name in totals))

    def logic_dynamic(self, activity: Activity) -> Floats:
        """Energy of the logic at nominal voltage by block and tile, J, shape (B, I).

        SRAM energy is on SRAM tiles if there are any, else where the kernel is; that of the on-chip network likewise.
        """
        energies = self.stack.logic
        local = energies.flop * activity.flop
        spread = np.zeros((len(local), self.count))
        for joules, bytes_bf, tiles in (
            (energies.sram, activity.sram_traffic_bytes, self.sram_tiles),
            (energies.noc, activity.noc_bytes, self.noc_tiles),
        ):
            if tiles is None:
                local = local + joules * bytes_bf
            else:
                spread = spread + joules * bytes_bf.sum(axis=1)[:, None] * tiles
        spread[:, self.compute] += local
        return spread

    def outward_dynamic(self, activity: Activity) -> Floats:
        """Energy that does not scale with the logic's voltage by block and tile, J, shape (B, I).

        It is the energy of DRAM commands, of the path to the logic die, and of messages to other chips: on IO tiles, or
        spread over the logic die.
        """
        split = self.dynamic_split(activity)
        commands = split["dram_activate"] + split["dram_read"] + split["dram_write"]
        way, sent = split["io"], split["network"]
        return commands[:, None] * self.dram_tiles + way[:, None] * self.io_heat + sent[:, None] * self.io_tiles

    def dynamic_split(self, activity: Activity, voltage: ArrayLike = 1.0) -> dict[str, Floats]:
        """Energy of each evaluation by component, J, shape (B,) each; with memory beside the stack."""
        square = np.square(np.asarray(voltage, dtype=np.float64))
        logic, dram = self.stack.logic, self.stack.dram.energies
        bursts = activity.read_bursts + activity.write_bursts
        return {
            "compute": logic.flop * activity.flop.sum(axis=1) * square,
            "sram": logic.sram * activity.sram_traffic_bytes.sum(axis=1) * square,
            "noc": logic.noc * activity.noc_bytes.sum(axis=1) * square,
            "network": logic.network * activity.network_bytes,
            "dram_activate": dram.activate * activity.activates,
            "dram_read": dram.read_burst * activity.read_bursts,
            "dram_write": dram.write_burst * activity.write_bursts,
            "io": dram.io * self.stack.dram.burst * bursts,
        }

    def refresh_w(self, refresh_rate: float) -> float:
        """Power of refreshing all channels at ``refresh_rate`` times the normal rate, W."""
        dram = self.stack.dram
        return dram.channels * dram.energies.refresh * refresh_rate / dram.timings.tREFI

    @property
    def background_w(self) -> float:
        """Background power of all DRAM channels, W."""
        return self.stack.dram.channels * self.stack.dram.energies.background

    def leakage(self, temperature_k: ArrayLike, voltage: float = 1.0) -> Floats:
        """Leakage power of each tile, W, (I,), at given temperatures (K) and logic voltage relative to nominal."""
        over = np.asarray(temperature_k, dtype=np.float64) - self.leakage_at_k
        watts = self.leakage_w * np.exp(np.minimum(self.leakage_beta * over, HOTTEST_EXPONENT))
        return np.where(self.on_logic, voltage, 1.0) * watts

    def leakage_slope(self, temperature_k: ArrayLike, voltage: float = 1.0) -> Floats:
        """Derivative of `leakage` by temperature, W/K, shape (I,)."""
        return self.leakage_beta * self.leakage(temperature_k, voltage)

    def steady_power(self, refresh_rate: float, idle_share: float = 1.0) -> Floats:
        """Power of refresh, DRAM background and clock by tile, W, (I,); ``idle_share`` is frequency x voltage^2."""
        dram = (self.refresh_w(refresh_rate) + self.background_w) * self.dram_tiles
        return np.asarray(dram + self.stack.logic.idle * idle_share * self.logic_tiles)

    def constant_split(
        self, temperature_k: ArrayLike, refresh_rate: float, idle_share: float = 1.0, voltage: float = 1.0
    ) -> dict[str, float]:
        """Constant power by component, W, including memory beside the stack.

        Parameters
        ----------
        temperature_k : float array (I,), K
            Temperature of each tile.
        refresh_rate : float
            Relative to the normal rate.
        idle_share : float
            Mean of frequency x voltage^2, relative to nominal.
        voltage : float
            Logic voltage relative to nominal.
        """
        return {
            "dram_refresh": self.refresh_w(refresh_rate),
            "dram_background": self.background_w,
            "leakage": float(self.leakage(temperature_k, voltage).sum()),
            "idle": self.stack.logic.idle * idle_share,
        }
