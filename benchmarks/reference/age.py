"""Chips that DeepFlow's generator (AGE) derives from its configurations, held against ours; and how long ours take.

``python benchmarks/reference/age.py JSON`` reads ``base_inputs`` (configurations by name) and ``cases`` (base,
``override`` and ``scale`` by path, ``derived`` figures), as in ``tests/golden/deepflow/``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dfopt.documents.design import Design
from dfopt.frontends.deepflow import read_design
from dfopt.technology.derive import Budgets, derive, derive_design
from dfopt.technology.rules import PROFILES

AREAS = {"L0": "registers", "L1": "L1", "L2": "L2", "intra_node": "in_package", "inter_node": "between_packages"}
WITHIN = 1e-6
DESIGNS = 100_000
Difference = tuple[str, float, float, float]


def configuration(bases: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a case: one of the bases with its overrides and scales."""
    config: dict[str, Any] = deepcopy(bases[case["base"]])
    for path, value in case["override"].items():
        holder, key = inside(config, path)
        holder[key] = value
    for path, factor in case["scale"].items():
        holder, key = inside(config, path)
        holder[key] *= factor
    return config


def inside(config: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *keys, last = path.split(".")
    for key in keys:
        config = config[key]
    return config, last


def figures(design: Design) -> dict[str, dict[str, float]]:
    """The chip in the words of the program."""
    chip, budgets, areas = derive_design(design), design.budgets, design.shares_of("area")
    core, dram = chip.core, chip.dram
    found: dict[str, dict[str, float]] = {
        "core": {
            "num_mcu": core.units, "num_bundles": core.clusters, "operating_voltage_V": core.voltage,
            "operating_freq_Hz": core.frequency, "peak_flops": core.peak, "effective_flops": core.rate,
            "nominal_power_W": core.nominal_power, "power_budget_W": core.power + core.power_left,
            "area_budget_mm2": areas["core"] * budgets.chip_area_mm2,
        },
        "L3": {
            "size_B": dram.size, "bandwidth_Bps": dram.bandwidth, "effective_bandwidth_Bps": dram.rate,
            "num_stacks": dram.stacks, "num_links": dram.links, "operating_voltage_V": dram.voltage,
            "operating_freq_Hz": dram.frequency, "power_budget_W": dram.power + dram.power_left,
            "area_budget_mm2": budgets.package_area_mm2 - budgets.chip_area_mm2,
        },
    }  # fmt: skip
    for theirs, ours in AREAS.items():
        if ours in chip.sram:
            level = chip.sram[ours]
            found[theirs] = {
                "size_B": level.size, "bandwidth_Bps": level.bandwidth, "effective_bandwidth_Bps": level.rate,
                "static_power_W": level.static_power, "num_banks": level.banks,
                "power_budget_W": level.power + level.power_left,
            }  # fmt: skip
        else:
            part = chip.links["in_package" if theirs == "intra_node" else "between_packages"]
            found[theirs] = {
                "num_links": part.links, "operating_voltage_V": part.voltage, "operating_freq_Hz": part.frequency,
                "p2p_bandwidth_Bps": part.rate, "power_budget_W": part.power + part.power_left,
            }  # fmt: skip
        found[theirs]["area_budget_mm2"] = areas[ours] * budgets.chip_area_mm2
    return found


def differences(data: dict[str, Any]) -> Iterator[Difference]:
    """Every figure of every case: its name, theirs, ours, and how far apart they are, relative to theirs.

    A link without power has clock 0; the program's root search leaves 1e-7 Hz there, which is taken for 0.
    """
    for position, case in enumerate(data["cases"]):
        mine = figures(read_design(configuration(data["base_inputs"], case), case["base"])[0])
        for part, rows in case["derived"].items():
            for name, value in rows.items():
                off = rows.get("power_budget_W") == 0 and name in ("operating_freq_Hz", "p2p_bandwidth_Bps")
                theirs, ours = 0.0 if off else float(value), float(mine[part][name])
                apart = abs(ours - theirs) / abs(theirs) if theirs else abs(ours)
                yield f"{position} {case['base']} {part}.{name}", theirs, ours, apart


def random_budgets(design: Design, count: int, seed: int = 0) -> Budgets:
    """Designs of the same technology whose shares sum to 1 at most."""
    draw = np.random.default_rng(seed)
    names = design.technology.components

    def shares() -> dict[str, Any]:
        raw = draw.exponential(size=(len(names) + 1, count))
        return dict(zip(names, raw[:-1] / raw.sum(axis=0), strict=True))

    chip = draw.uniform(20.0, 800.0, count)
    package = chip * draw.uniform(1.0, 3.0, count)
    return Budgets(chip, package, draw.uniform(5.0, 1000.0, count), shares(), shares(), shares())


def timings(design: Design) -> Iterator[tuple[str, float, float]]:
    """Seconds of the processor, by profile: of many designs at once, and of one alone (the best of ten runs)."""
    one = Budgets.of(design)
    half = {
        name: {part: share / 2 for part, share in getattr(one, name).items()}
        for name in ("area_shares", "power_shares", "edge_shares")
    }
    one = replace(one, **half)  # those of the configurations may sum to more than 1
    many = random_budgets(design, DESIGNS)
    for profile, rules in PROFILES.items():
        start = time.process_time()
        derive(design.technology, many, rules)
        together = time.process_time() - start
        best = float("inf")
        for _ in range(10):
            start = time.process_time()
            for _ in range(300):
                derive(design.technology, one, rules)
            best = min(best, (time.process_time() - start) / 300)
        yield profile, together, best


def main(argv: list[str] | None = None) -> int:
    """Print what differs, the worst of all, and the times; 1 if something differs by more than ``WITHIN``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("json", type=Path)
    data = json.loads(parser.parse_args(argv).json.read_text(encoding="utf-8"))
    rows = list(differences(data))
    wrong = [row for row in rows if not row[3] <= WITHIN]
    for name, theirs, ours, apart in wrong:
        print(f"{name}: {ours:.9g}, DeepFlow has {theirs:.9g} ({apart:.2g})")
    worst = max((row[3] for row in rows), default=0.0)
    print(f"{len(rows) - len(wrong)} of {len(rows)} figures of {len(data['cases'])} cases are equal; worst {worst:.1e}")
    first = data["cases"][0]
    design = read_design(configuration(data["base_inputs"], first), first["base"])[0]
    for profile, together, alone in timings(design):
        print(f"{profile}: {DESIGNS:,} designs in {together:.2f} s of the processor, one in {alone * 1e6:.0f} us")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
