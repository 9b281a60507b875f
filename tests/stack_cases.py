"""Small stacks of dies for the machines of `judge_cases`: 100 B/s of DRAM, tenths of a joule per FLOP."""

from __future__ import annotations

import os
from typing import Any

from dfopt.documents.stack import Level, Limits, LogicEnergies, Stack
from dfopt.documents.stack_dram import DramBuffers, DramEnergies, DramStack, DramTimings, RefreshStep
from dfopt.documents.stack_parts import Bond, Die, HtcPackage, Leakage, TileGrid

os.environ.setdefault("DFOPT_CACHE", "off")  # hundreds of drawn stacks are not worth a file each

T0 = 273.15
LEVELS = tuple(Level(frequency=f, voltage=0.4 + 0.6 * f) for f in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5))

TIMINGS = DramTimings(
    tCK=0.01, tBL=0.02, tRCDRD=0.05, tRCDWR=0.05, tRP=0.05, tRAS=0.15, tRTP=0.02, tWR=0.05, tCCD_S=0.02, tCCD_L=0.02,
    tRRD_S=0.02, tRRD_L=0.03, tFAW=0.1, tWTR_S=0.03, tWTR_L=0.04, CL=0.05, CWL=0.03, tRFC=1.0, tREFI=20.0,
)  # fmt: skip
ENERGIES = DramEnergies(activate=0.5, read_burst=0.1, write_burst=0.2, refresh=4.0, background=0.3, io=0.02)
HOT = (RefreshStep(above=T0 + 85, rate=2.0), RefreshStep(above=T0 + 95, rate=4.0))


def memory(channels: int = 1, **changes: Any) -> DramStack:
    """Peak of 100 B/s per channel: 2 B in 20 ms."""
    fields: dict[str, Any] = {
        "capacity": 1e9, "bank_groups": 2, "banks_per_group": 4, "row": 16.0, "burst": 2.0, "interleave": 4.0,
        "io_bits": 16, "timings": TIMINGS, "refresh": HOT, "buffers": DramBuffers(requests=32), "energies": ENERGIES,
    }  # fmt: skip
    return DramStack(channels=channels, **{**fields, **changes})


def dies(drams: int = 2, leakage: Leakage | None = None, grid: int = 2, bond: float = 4.0) -> tuple[Die, ...]:
    """A logic die with as many DRAM dies towards the sink, bonded with a layer of that conductivity."""
    joint = Bond(kind="hybrid", thickness=10e-6, conductivity=bond)
    floorplan = TileGrid(columns=grid, rows=grid)
    logic = Die(name="logic", kind="logic", thickness=1e-4, floorplan=floorplan, leakage=leakage, bond=joint)
    if not drams:
        return (logic,)
    return (logic, Die(name="dram", kind="dram", count=drams, thickness=5e-5, floorplan=floorplan, bond=joint))


def stack(**changes: Any) -> Stack:
    """A logic die under two DRAM dies on a cold plate: 10 x 10 mm, 0.1 K/W, 25 degC."""
    fields: dict[str, Any] = {
        "name": "toy-stack", "side_x": 0.01, "side_y": 0.01, "dies": dies(),
        "package": HtcPackage(mode="htc", htc_w_per_m2k=1e5), "ambient": T0 + 25, "dram": memory(),
        "logic": LogicEnergies(flop=0.1, sram=0.01, noc=0.005, network=0.02, idle=5.0), "levels": LEVELS,
        "limits": Limits(), "cells": 4,
    }  # fmt: skip
    return Stack(**{**fields, **changes})
