"""The stack of dies of a chip with DRAM layers: what was derived, on the package of another stack.

The judge stacks the DRAM that the optimiser counted on. Its layers, capacity and area are those of the design, and all
its channels together move at most what the chip can use. Of the other stack are the package with its cooling, the dies'
material, thickness and bonds, and what happens inside a bank.
"""

from __future__ import annotations

import math

from dfopt.documents.design import Design
from dfopt.documents.dram_layers import DramLayers
from dfopt.documents.stack_dram import DramBuffers, DramStack
from dfopt.documents.stack_parts import Die
from dfopt.technology.derive import Derived
from dfopt.technology.dram import knee, refresh_share
from dfopt.technology.dram_like import like_rate


def layered_dies(dies: tuple[Die, ...], layers: int, pitch: float) -> tuple[Die, ...]:
    """Dies of a stack with another number of DRAM dies and another bond pitch.

    The DRAM die next to the sink is kept; all others are copies of the first of the others.

    Parameters
    ----------
    dies
        Dies of the stack, in its order: the last one is next to the sink.
    layers : int
        Number of DRAM dies, at least one.
    pitch : float, m
        Pitch of all bonds that have one.

    Examples
    --------
    >>> from dfopt.machines.stacks import load_stack
    >>> [(die.name, die.count) for die in layered_dies(load_stack("hybrid-vault").dies, 3, 1e-5)]
    [('logic', 1), ('dram', 2), ('top', 1)]
    """
    drams = [die for die in dies if die.kind == "dram"]
    counts = {drams[-1].name: 1, drams[0].name: layers - 1} if len(drams) > 1 else {drams[0].name: layers}
    kept = [
        die if die.kind != "dram" else die.model_copy(update={"count": counts[die.name]})
        for die in dies
        if die.kind != "dram" or counts.get(die.name)
    ]
    return tuple(
        die.model_copy(update={"bond": die.bond.model_copy(update={"pitch": pitch})})
        if die.bond is not None and die.bond.pitch is not None
        else die
        for die in kept
    )


def layered_dram(design: Design, part: DramLayers, chip: Derived, like: DramStack) -> DramStack:
    """DRAM of a chip with layers, with one channel for each port of a connected layer.

    Banks of layers that are not connected share the ports of those that are.

    Parameters
    ----------
    design, part, chip : Design, DramLayers, Derived
        The design, the technology of its layers, and the derived chip.
    like : DramStack
        DRAM whose timings and energies it has.
    """
    sizes, memory = design.sizes, chip.dram
    assert sizes is not None
    channels = part.ports * sizes.connected
    flowing = part.static_power * sizes.dram_layers / channels
    dram = like_rate(like, channels, float(memory.rate), part.energy, flowing)
    timings = dram.timings
    in_flight = float(chip.sram["buffer"].size) / part.buffering / channels
    return dram.model_copy(
        update={
            "capacity": float(memory.size),
            "bank_groups": 1,
            "banks_per_group": part.banks * sizes.dram_layers // sizes.connected,
            "io_bits": part.port_bits,
            "buffers": DramBuffers(
                requests=max(math.floor(in_flight / dram.burst), 1),
                round_trip=max(part.round_trip - (timings.tRCDRD + timings.CL + timings.tBL), 0.0),
            ),
        }
    )


def most_delivered(part: DramLayers, chip: Derived, like: DramStack) -> float:
    """Upper bound on the DRAM bandwidth of any stream, B/s, for this chip and for slower ones with smaller buffers.

    Refreshes take their share of the rate, and no request is served before its round trip but for the activate; the
    judge takes both limits together in the same way (`dfopt.technology.dram`).

    Parameters
    ----------
    part, chip : DramLayers, Derived
        The technology of the layers, and the derived chip.
    like : DramStack
        DRAM whose timings it has.
    """
    timings, channels = like.timings, float(chip.dram.links) / part.port_bits
    in_flight = max(float(chip.sram["buffer"].size) / part.buffering, channels * like.burst)
    trip = max(part.round_trip - timings.tRCDRD, timings.CL)
    return float(knee(float(chip.dram.rate) * refresh_share(timings), in_flight / trip))
