"""Every claim about exploring designs, run again: a row of a table for each.

    python benchmarks/explore.py [--only NAME ...] [--pairs N] [--jobs N] [--json FILE]

One chip of 814 mm2 and 700 W with eight sites for stacks, eight of which are joined by a switch: 6,400 designs (1 to 8
stacks; 8 to 320 MiB of SRAM; links of 50 to 1,000 GB/s; cores take the rest), in one technology or in sixteen. Seconds
are those of the processor, and those on the clock behind them; these count with several ``--jobs``, which solve beside
one another.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import budgets
import numpy as np

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.technology import Technology
from dfopt.errors import Infeasible
from dfopt.exploring.explore import explore, in_technologies
from dfopt.exploring.problems import workload_of
from dfopt.exploring.space import Box
from dfopt.exploring.workload import ExplorationProblem
from dfopt.heat.most_power import most_power
from dfopt.technology.stack_models import heat_of, power_of

Row = tuple[str, str, str, bool]  # what, seen, limit, met
ROUNDING = 1e-9  # a solve that is cut off at the gap proves it but for the last digits

# Areas, powers and energies of units are assumptions of the size of an H100's, and no claim about any process; so are
# the steps of area and power between nodes. Densities of SRAM are public: 31.8 Mb/mm2 (N5), 33.55 (N3), 38 (N2; all
# Tom's Hardware on TSMC at IEDM 2024); of N7 that is divided by 1.18, and 55 % of a macro are bits (assumptions).
NODES: dict[str, dict[str, float]] = {
    "n7": {"unit": 1.84, "sram": 31.8 / 1.18, "pj": 0.72, "volts": 0.75},
    "n5": {"unit": 1.0, "sram": 31.8, "pj": 0.66, "volts": 0.75},
    "n3": {"unit": 1 / 1.5, "sram": 33.55, "pj": 0.34, "volts": 0.72},
    "n2": {"unit": 1 / 1.5 / 1.15, "sram": 38.0, "pj": 0.245, "volts": 0.70},
}
# B/s and bytes of a stack by JEDEC's rates per pin and common heights; pJ/bit: assumptions, sources differ by 2x.
MEMORIES: dict[str, dict[str, float]] = {
    "hbm2e": {"rate": 460e9, "bytes": 16e9, "pj": 3.9},
    "hbm3": {"rate": 819e9, "bytes": 24e9, "pj": 3.5},
    "hbm3e": {"rate": 1180e9, "bytes": 36e9, "pj": 3.2},
    "hbm4": {"rate": 2000e9, "bytes": 48e9, "pj": 2.8},
}
UNIT_MM2, FLOP_PER_CYCLE, CLOCK = 4.0, 4096, 1.755e9  # of a unit in N5: 132 of them are 528 mm2 (assumption)


def technology(node: str = "n5", memory: str = "hbm3") -> Technology:
    """One of the sixteen."""
    at, stack = NODES[node], MEMORIES[memory]
    supply = {"nominal_v": at["volts"], "threshold_v": 0.25, "margin_v": 0.2, "max_v": at["volts"] * 1.1}
    return Technology.from_data({
        "schema": Technology.SCHEMA, "name": f"{node}-{memory}",
        "core": {
            "area_mm2": UNIT_MM2 * at["unit"], "flop_per_cycle": FLOP_PER_CYCLE, "frequency": f"{CLOCK} Hz",
            "power": f"{FLOP_PER_CYCLE * CLOCK * at['pj'] * 1e-12} W", "supply": supply, "units_per_cluster": 1,
            "utilization": 0.8,
        },
        "sram": [{
            "name": "L2", "bit_area_mm2": 1e-6 / (at["sram"] * 0.55), "energy": "0.1 pJ/bit", "static_w_per_bit": 0,
            "bank": "1 MiB",
        }],
        "dram": {
            "stack": f"{stack['bytes']} B", "stack_area_mm2": 110, "controller_area_mm2": 14.5,
            "links_per_stack": 1024, "links_per_mm": 1024 / 11, "frequency": f"{stack['rate'] / 128} Hz",
            "supply": {"nominal_v": 1.1, "threshold_v": 0.25, "margin_v": 0.2, "max_v": 1.21},
            "energy": f"{stack['pj']} pJ/bit", "static_w_per_bit": 0,
        },
        "links": {"between_packages": {
            "area_mm2": 1.6, "links_per_mm": 1 / 0.9, "frequency": "200 GHz", "energy": "6.5 pJ/bit",
            "supply": {"nominal_v": 0.75, "threshold_v": 0.25, "margin_v": 0.2, "max_v": 0.825},
        }},
    })  # fmt: skip


def design(most_stacks: int = 8, sram_step: int = 8, most_sram: int = 320, rate_step: int = 50) -> Design:
    """The chip; fewer sizes for tests by brute force."""
    dim = {"name": "node", "topology": "switch", "size": 8, "links": "between_packages", "latency": "1 us"}
    return Design.from_data({
        "schema": Design.SCHEMA, "name": "chip-of-814-mm2", "technology": technology().to_data(),
        "budgets": {"chip_area_mm2": 814, "package_area_mm2": 814 + 8 * 110, "power": "700 W"},
        "shares": {
            "area": {"core": "rest", "L2": "auto", "dram": "auto", "between_packages": "auto"},
            "power": {"core": "rest", "L2": "5 %", "dram": "auto", "between_packages": "auto"},
            "perimeter": {"dram": "auto", "between_packages": "auto"},
        },
        "choices": {
            "stacks": {"most": most_stacks},
            "capacity": {"L2": {"least": "8 MiB", "most": f"{most_sram} MiB", "step": f"{sram_step} MiB"}},
            "rate": {"between_packages": {"least": "50 GB/s", "most": "1000 GB/s", "step": f"{rate_step} GB/s"}},
        },
        "template": {"sram": "L2", "tiles": 132, "network": [dim], "collective_overhead": "9 us"},
    })  # fmt: skip


def _seconds(began: tuple[float, float], jobs: int = 1) -> tuple[float, str]:
    processor, clock = _now()[0] - began[0], _now()[1] - began[1]
    return (processor if jobs == 1 else clock), f"{processor:.1f} s, {clock:.1f} s on the clock"


def _now() -> tuple[float, float]:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system, time.perf_counter()


def one_technology(asked: argparse.Namespace) -> Iterator[Row]:
    """6,400 designs in N5 with HBM3, gap 0.1 %."""
    began = _now()
    made = explore("gpt3-175b", design(), gap=1e-3, sensitivity=False, jobs=asked.jobs)
    took, words = _seconds(began, asked.jobs)
    share = made.effort.solves / made.effort.designs
    best = ", ".join(f"{name} {size:g}" for name, size in made.best.items())
    seen = f"{made.value:.2f} s ({best}), gap {made.gap:.3%}, {made.effort.solves} solves ({share:.1%}), {words}"
    met = made.gap <= 1e-3 + ROUNDING and took < 20 and share < 0.05
    yield "6,400 designs", seen, "gap 0.1 %, 20 s, 5 % solved", met


def all_technologies(asked: argparse.Namespace) -> Iterator[Row]:
    """The same in four nodes with four memories, gap 1 %."""
    began = _now()
    many = [technology(node, memory) for node, memory in itertools.product(NODES, MEMORIES)]
    made = explore("gpt3-175b", design(), technologies=many, gap=1e-2, sensitivity=False, jobs=asked.jobs)
    took, words = _seconds(began, asked.jobs)
    best = ", ".join(f"{name} {size:g}" for name, size in made.best.items())
    name = made.designs[made.best_design].technology.name
    seen = f"{made.value:.2f} s ({name}; {best}), gap {made.gap:.3%}, {made.effort.solves} solves, {words}"
    yield f"{made.effort.designs:,} designs", seen, "gap 1 %, 60 s", made.gap <= 1e-2 + ROUNDING and took < 60


def random_graph(seed: int) -> Graph:
    """Products and elementwise kernels that read any that come before; a chip of `design` holds the largest."""
    draw = random.Random(f"graph {seed}")
    tokens = 2 ** draw.randint(8, 13)
    kernels = [Kernel(name="k0", op="gemm", m=1024 * draw.randint(1, 16), k=1024 * draw.randint(1, 16), n=tokens)]
    tensors: list[Tensor] = []
    for number in range(1, draw.randint(6, 10)):
        read = draw.choice(kernels)
        if draw.random() < 0.6:
            kernel = Kernel(name=f"k{number}", op="gemm", m=1024 * draw.randint(1, 16), k=read.m, n=tokens)
        else:
            flop = draw.choice([1, 5])
            kernel = Kernel(name=f"k{number}", op="elementwise", m=read.m, k=1, n=tokens, flop_per_element=flop)
        alike = [one for one in kernels if one.m == read.m and one is not read]
        both = [draw.choice(alike)] if kernel.op == "elementwise" and alike else []
        tensors += [Tensor(src=one.name, dst=kernel.name) for one in (read, *both)]
        kernels.append(kernel)
    repeat = draw.randint(1, 24)
    return Graph(name=f"random-{seed}", repeat=repeat, kernels=tuple(kernels), tensors=tuple(tensors))


def exhaustive(asked: argparse.Namespace) -> Iterator[Row]:
    """Few sizes, every design solved by itself."""
    yield from each_design("gpt3-175b", "llama-3.1-70b", "vit-h-14", "gpt2-small")


def exhaustive_random(asked: argparse.Namespace) -> Iterator[Row]:
    """The same for graphs drawn by chance.

    Graph 2 is left out: it is one layer, so that stages of a pipeline are chosen by one MILP for each plan, and with
    the slowest links one design takes 30 to more than 120 s.
    """
    yield from each_design(*map(random_graph, (0, 1, 3, 4, 5)))


def each_design(*graphs: str | Graph) -> Iterator[Row]:
    """What is explored with no gap, beside the best of all designs."""
    few = design(most_stacks=5, sram_step=64, most_sram=328, rate_step=225)
    for graph in graphs:
        made, workload = explore(graph, few, gap=0.0, sensitivity=False), workload_of(graph, [few])
        alone = [value for value in map(lambda box: _value(workload, box), _every(workload)) if value is not None]
        least = min(alone)
        seen = f"{made.value!r} s against {least!r} s of {len(alone)} that fit of {workload.designs}"
        yield f"every design, {workload.graph.name}", seen, "equal to 1e-9", abs(made.value - least) <= 1e-9 * least


def bounds(asked: argparse.Namespace) -> Iterator[Row]:
    """Random boxes, and a design in each: no bound of the box is above its step time."""
    draw, graphs = random.Random(1), ("gpt3-175b", "llama-3.1-70b", "vit-h-14", "gpt2-small", "bert-large")
    technologies = [technology(node, memory) for node, memory in itertools.product(NODES, MEMORIES)]
    worst, looked = 0.0, 0
    for graph in graphs:
        workload = workload_of(graph, in_technologies(design(), technologies))
        wanted = looked + asked.pairs // len(graphs)
        while looked < wanted:  # a design that holds no mapping has no step time
            which = draw.randrange(len(workload.spaces))
            sizes = workload.spaces[which].sizes.values()
            ends = [sorted(draw.randrange(len(one)) for _ in range(3)) for one in sizes]
            low, inside, high = (tuple(end[at] for end in ends) for at in range(3))
            value = _value(workload, Box(inside, inside, which))
            if value is None:
                continue
            looked += 1
            for stage in workload.stages:
                worst = max(worst, stage.of(Box(low, high, which), float("inf")) / value)
    yield "bounds of boxes", f"{looked} pairs, at most {worst:.9f} of a step time", "1", worst <= 1 + 1e-9


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Files that were kept before are not looked at."""
    before = os.environ.get("DFOPT_CACHE")
    os.environ["DFOPT_CACHE"] = "off"
    try:
        yield
    finally:
        os.environ.pop("DFOPT_CACHE") if before is None else os.environ.update(DFOPT_CACHE=before)


def _every(workload: ExplorationProblem) -> Iterator[Box]:
    for which, space in enumerate(workload.spaces):
        for at in itertools.product(*(range(len(sizes)) for sizes in space.sizes.values())):
            yield Box(at, at, which)


def _value(workload: ExplorationProblem, box: Box) -> float | None:
    system = workload.system(box)
    try:
        return None if system is None else df.solve(workload.graph, system).step_time_s
    except Infeasible:
        return None


def under_vaults() -> Design:
    """The chip under eight hybrid-bonded dies of DRAM, which are all its memory, with its power to choose by 10 W."""
    dim = {"name": "node", "topology": "switch", "size": 8, "links": "between_packages", "latency": "1 us"}
    of = technology().to_data()
    of["core"]["static_power"] = "0.3 W"  # assumption: 55 W of 183 units, half of what an idle chip takes
    return Design.from_data({
        "schema": Design.SCHEMA, "name": "under-vaults", "technology": of,
        "budgets": {"chip_area_mm2": 814, "package_area_mm2": 814, "power": "1000 W"},
        "shares": {
            "area": {"core": "rest", "L2": 0.08, "between_packages": 0.02},
            "power": {"core": "rest", "L2": 0.05, "between_packages": 0.02},
            "perimeter": {"between_packages": 0.1},
        },
        "choices": {"power": {"least": "500 W", "most": "1300 W", "step": "10 W"}},
        "template": {"sram": "L2", "tiles": 132, "network": [dim], "collective_overhead": "9 us"},
    })  # fmt: skip


def heat(asked: argparse.Namespace) -> Iterator[Row]:
    """500 to 1,300 W on hybrid-vault, throttled to 95 degC in DRAM, against every 50 W judged by itself."""
    given, began = under_vaults(), _now()
    made = explore("gpt3-175b", given, stack="hybrid-vault", heat="throttle", gap=0.05, time_limit=600)
    took = _seconds(began)[1]
    workload = workload_of([made.graph], [given], request=made.request)
    grid = []
    for at in range(0, 81, 5):
        system = workload.system(one := workload.spaces[0].root.at((at,)))
        value = None if system is None else workload.valued(one, system, df.solve("gpt3-175b", system).score)
        if value is not None:
            grid.append(value)
    other = made.without_heat
    seen = f"{made.value:.2f} s at {made.best['power']:g} W, best of the grid {min(grid):.2f} s, {took}"
    if other is not None and other.judged is not None:
        seen += (
            f"; without heat {other.best['power']:g} W, {other.predicted:.1f} s predicted, {other.judged:.1f} s judged"
        )
    yield "power under heat", seen, "no worse than the grid", made.value <= min(grid) * (1 + 1e-9)
    yield "gap under heat", f"{made.gap:.2%}", "5 %", made.gap <= 0.05


def most_power_of_stacks(asked: argparse.Namespace) -> Iterator[Row]:
    """100 random power maps within the limits of every 3D stack: none has more than its linear program says."""
    for name in budgets.stacks():
        stack = df.load_stack(name)
        heat, logic_die, began = heat_of(stack), stack.logic_die.name, _now()
        with fresh_cache():  # of two stacks of the same dies the second is known
            whole, alone = most_power(stack), most_power(stack, logic_die)
        took, words = _seconds(began)
        draw, tiles = np.random.default_rng(1), len(stack.tiles)
        sparse = draw.random((30, tiles)) * (draw.random((30, tiles)) < 0.1) + 1e-6
        every = np.concatenate([draw.random((40, tiles)), draw.pareto(0.7, (30, tiles)), sparse])
        rise = np.array([stack.most_k(die) for die in heat.dies]) - heat.ambient_k
        every /= ((heat.die_max(every) - heat.ambient_k) / rise).max(axis=1, keepdims=True)
        logic = np.array([die == logic_die for die, _ in stack.tiles])
        most = max(every.sum(axis=1).max() / whole.watts, (every @ logic).max() / alone.watts)
        even_w = float((rise / (heat.die_max(power_of(stack).logic_tiles) - heat.ambient_k)).min())
        seen = f"all dies {whole.watts:.1f} W, logic die {alone.watts:.1f} W (even {even_w:.1f} W); "
        seen += f"the most of {len(every)} maps {most:.1%} of that; both programs {words}"
        yield f"most power, {name}", seen, "no map has more, 10 s", most <= 1 and took < 10


def budgets_under_heat(asked: argparse.Namespace) -> Iterator[Row]:
    """The best budget of power for each node of logic under each 3D stack, DRAM at 95 degC or less."""
    for one in budgets.budgets():
        seen = f"{one.watts:g} W: {one.seconds:.3f} s at {one.clock:.0%} of its clock, DRAM {one.dram_c:.1f} degC, "
        seen += f"bound {one.bound:.3f} s, gap {one.gap:.1%}; without heat "
        if one.plain is None:
            seen += "not found in time"
        else:
            judged = "no clock keeps the limits" if one.plain.judged is None else f"{one.plain.judged:.3f} s judged"
            seen += f"{one.plain.best['power']:g} W, {one.plain.predicted:.3f} s predicted, {judged}"
        seen += f"; {one.took:.0f} s on the clock"
        yield f"{one.node} under {one.stack}", seen, "gap 10 %", one.gap <= 0.10


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "one-technology": one_technology,
    "all-technologies": all_technologies,
    "exhaustive": exhaustive,
    "exhaustive-random": exhaustive_random,
    "bounds": bounds,
    "heat": heat,
    "most-power": most_power_of_stacks,
    "budgets": budgets_under_heat,
}


def main(words: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 where a claim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--pairs", type=int, default=500, help="of a box and a design in it")
    parser.add_argument("--jobs", type=int, default=1, help="processes that solve, in one and all technologies")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row")
    asked = parser.parse_args(words)
    print("| claim | seen | limit | met |\n| --- | --- | --- | --- |", flush=True)
    rows: list[dict[str, Any]] = []
    for name in asked.only:
        for claim, seen, limit, met in SECTIONS[name](asked):
            print(f"| {claim} | {seen} | {limit} | {'yes' if met else '**no**'} |", flush=True)
            rows.append({"section": name, "claim": claim, "seen": seen, "limit": limit, "met": met})
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
