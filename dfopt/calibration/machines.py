"""Machines that rows ran on: a chip, what connects those of a node, and what connects nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dfopt.divisors import divisors
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.system import System
from dfopt.library import load_system
from dfopt.machines.fields import with_fields


@dataclass(frozen=True)
class Recipe:
    """Zoo systems from which a machine is assembled.

    Attributes
    ----------
    inside
        Chips, and the network within a node.
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


CHIPS: Final = load_strict(Path(__file__).with_name("chips.yaml"))
"""What tables call chips, and machines of them."""
MACHINES: Final[dict[str, Recipe]] = {chip: Recipe(**entry["machine"]) for chip, entry in CHIPS.items()}


def nodes_of(machine: Recipe, chips: int) -> tuple[int, int]:
    """Chips per node, and number of nodes, for ``chips`` chips.

    Examples
    --------
    >>> nodes_of(MACHINES["gb200"], 256), nodes_of(MACHINES["h100"], 4)
    ((64, 4), (4, 1))
    """
    size = next(size for size in divisors(chips) if size <= machine.node)
    return size, chips // size


def machine_of(
    chip: str, chips: int, base: System | None = None, memory_limit: bool = True, between: float | None = None
) -> System:
    """System with some chips of a kind, or of a base system.

    Parameters
    ----------
    chip, chips
        Name of the kind of chip, and how many there are.
    base : System, optional
        System to take node and chip from; by default the one that is known for the chip.
    memory_limit : bool
        Whether the memory of a chip limits what it holds.
    between : float, B/s, optional
        Bandwidth of a chip's link to other nodes; by default that of the machine.

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
