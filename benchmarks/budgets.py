"""The best budget of power of a chip under dies of DRAM that may be at 95 degC: four nodes of logic on every 3D stack.

    python benchmarks/explore.py --only budgets

Eight chips of the dies of the stack, which are all their memory, with a switch; one step of an LLM.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration import WithoutHeat
from dfopt.documents.stack import Stack
from dfopt.documents.zoo import zoo
from dfopt.exploring.explore import explore
from dfopt.machines.designs import load_design
from dfopt.machines.technologies import technology_in

NODES = ("n7", "n5", "n3", "n2")
WORKLOAD = "llama-3.1-70b"
LIMIT_C = 95.0


class Budget(NamedTuple):
    """What is best of a node on a stack under heat, and what is best without it."""

    node: str
    stack: str
    watts: float
    seconds: float
    bound: float
    gap: float
    clock: float
    dram_c: float
    plain: WithoutHeat | None  # none where time was up before it was found
    took: float


def stacks() -> list[str]:
    """The stacks of the zoo that have DRAM on the logic die; `hybrid-8` is `hybrid-vault` by another name."""
    return [name for name in sorted(zoo("stacks")) if df.load_stack(name).dram_dies and name != "hybrid-8"]


def on_95(name: str) -> Stack:
    """A stack whose DRAM may be at 95 degC, whatever it allows itself."""
    return df.load_stack(name, {"limits.dram": f"{LIMIT_C} degC"})


def design(node: str, on: Stack) -> Design:
    """A chip of the size of the dies of a stack, with 300 to 1,500 W by 100 W to choose from."""
    area = on.side_x * on.side_y * 1e6
    dim = {"name": "node", "topology": "switch", "size": 8, "links": "between_packages", "latency": "1 us"}
    return Design.from_data({
        "schema": Design.SCHEMA, "name": f"{node}-{on.name}",
        "technology": technology_in(load_design("reticle-2026").technology, node).to_data(),
        "budgets": {"chip_area_mm2": area, "package_area_mm2": area, "power": "1000 W"},
        # assumptions, as reticle-2026 but without memory beside the chip
        "shares": {
            "area": {"core": "rest", "registers": 0.02, "L1": 0.02, "L2": 0.1, "between_packages": 0.05},
            "power": {"core": "rest", "registers": 0.03, "L1": 0.02, "L2": 0.02, "between_packages": 0.05},
            "perimeter": {"between_packages": 0.3},
        },
        "choices": {"power": {"least": "300 W", "most": "1500 W", "step": "100 W"}},
        "template": {"sram": "L2", "tiles": 132, "network": [dim]},
    })  # fmt: skip


def budgets(nodes: tuple[str, ...] = NODES, names: list[str] | None = None) -> Iterator[Budget]:
    """The best budget of each node on each stack, within 5 %."""
    for name in names or stacks():
        on = on_95(name)
        for node in nodes:
            began = time.perf_counter()
            made = explore(WORKLOAD, design(node, on), stack=on, heat="throttle", gap=0.05, time_limit=300)
            heat = made.result.score.physical
            assert heat is not None and heat.dram_max_c is not None
            yield Budget(
                node=node, stack=name, watts=made.best["power"], seconds=made.value, bound=made.bound, gap=made.gap,
                clock=heat.frequency, dram_c=heat.dram_max_c, plain=made.without_heat,
                took=time.perf_counter() - began,
            )  # fmt: skip
