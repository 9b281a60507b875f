"""Machines that rows ran on: a chip, what connects those of a node, and what connects nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dfopt.documents.system import System
from dfopt.library import load_system
from dfopt.machines.fields import with_fields

__all__ = ["MACHINES", "ChipName", "Recipe", "machine_of", "nodes_of"]

ChipName = Literal["a100", "a100-40gb", "h100", "h100-hbm2e", "h200", "b200", "b300", "gb200", "gb300"]


@dataclass(frozen=True)
class Recipe:
    """Systems of the zoo that a machine is put together from.

    Attributes
    ----------
    inside
        Chips and what connects those of a node.
    node
        Chips of a node at most.
    between
        System whose last dim connects nodes; none = that of ``inside``.
    changes
        Fields of ``inside`` that are different.
    """

    inside: str
    node: int = 8
    between: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    link: str | None = None


# NVIDIA GB300 NVL72 and HGX B300 data sheets: dense rates of a chip, half of those with sparsity. ConnectX-8: 800 Gb/s
_B300: Final = {"bf16": "2250 TFLOP/s", "fp8": "4500 TFLOP/s", "fp4": "13500 TFLOP/s"}
_GB300: Final = {"bf16": "2500 TFLOP/s", "fp8": "5000 TFLOP/s", "fp4": "15000 TFLOP/s"}
MACHINES: Final[dict[ChipName, Recipe]] = {
    "a100": Recipe("a100-512"),
    # NVIDIA A100 40 GB SXM datasheet: 1555 GB/s of HBM2
    "a100-40gb": Recipe("a100-512", changes={"chip.dram.bandwidth": "1555 GB/s", "chip.dram.capacity": "40 GiB"}),
    "h100": Recipe("h100-4096"),
    # torchtitan's benchmarks: H100 of 500 W with 96 GB of HBM2e at 2.4 TB/s; its peak under that power is not stated
    "h100-hbm2e": Recipe("h100-4096", changes={"chip.dram.bandwidth": "2400 GB/s", "chip.dram.capacity": "96 GB"}),
    "h200": Recipe("h200-8", between="h100-4096"),
    "b200": Recipe("b200-8", between="h100-4096"),
    "b300": Recipe("b300-8", between="h100-4096", changes={"chip.peak": _B300}, link="100 GB/s"),
    "gb200": Recipe("gb200-nvl72", node=72, between="h100-4096"),
    "gb300": Recipe(
        "gb200-nvl72", 72, "h100-4096", {"chip.peak": _GB300, "chip.dram.capacity": "288 GB"}, link="100 GB/s"
    ),
}


def nodes_of(machine: Recipe, chips: int) -> tuple[int, int]:
    """Chips of a node, and nodes: nodes as large as they come of which there are whole ones.

    Examples
    --------
    >>> nodes_of(MACHINES["gb200"], 256), nodes_of(MACHINES["h100"], 4)
    ((64, 4), (4, 1))
    """
    size = max(size for size in range(1, min(machine.node, chips) + 1) if chips % size == 0)
    return size, chips // size


def machine_of(
    chip: ChipName, chips: int, base: System | None = None, memory_limit: bool = True, between: float | None = None
) -> System:
    """So many chips of a machine, or of a base whose first dim connects nodes and whose last dim is between them.

    ``between``: B/s of a chip's link to other nodes; none = that of the machine.

    Examples
    --------
    >>> machine_of("a100", 64).chips, [(dim.name, dim.size) for dim in machine_of("gb200", 128).network]
    (64, [('switch', 64), ('cluster', 2)])
    """
    machine = MACHINES[chip]
    size, nodes = nodes_of(machine, chips)
    data = (with_fields(load_system(machine.inside), machine.changes) if base is None else base).to_data()
    if base is not None or machine.between is None:
        outer = data["network"][-1]
    else:
        outer = load_system(machine.between).to_data()["network"][-1]
        outer |= {} if machine.link is None else {"link_bandwidth": machine.link}
    data["network"] = [{**data["network"][0], "size": size}]
    if nodes > 1:
        link = {} if between is None else {"link_bandwidth": f"{between} B/s"}
        data["network"].append({**outer, **link, "size": nodes})
    data["chip"].pop("memory_reserve", None)  # what was measured did fit
    if not memory_limit:
        data["chip"]["dram"].pop("capacity", None)
    return System.from_data(data, data["name"])
