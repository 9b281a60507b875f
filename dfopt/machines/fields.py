"""A system with some of its fields replaced: what sweeps over a figure of a machine do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dfopt.documents.system import System
from dfopt.machines.replace import replaced
from dfopt.machines.stacks import stack_at, with_stack


def with_fields(system: System, fields: Mapping[str, Any], name: str | None = None) -> System:
    """A system with some fields replaced, validated like a file.

    Parameters
    ----------
    system
        The system to change.
    fields
        New values by path, such as ``chip.sram.capacity``, with units as in a file. Dims and dies are given by name or
        position: ``network.x.size``, ``stack.dies.dram.count``. ``stack``, a name or any other value that a system file
        may have there, replaces the stack and, with its bandwidth and capacity, the memory; ``None`` removes the stack.
        For any other optional field ``None`` removes the field.
    name
        Name of the system in errors; by default its own name.

    Raises
    ------
    DocumentError
        For a field that does not exist or a value that does not fit.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> faster = with_fields(load_system("sn10-8-ring"), {"network.ring.link_bandwidth": "50 GB/s"})
    >>> faster.network[0].link_bandwidth
    50000000000.0
    >>> with_fields(faster, {"stack": "hbm2"}).chip.dram.bandwidth
    1024000000000.0
    """
    file = name or system.name
    rest = dict(fields)
    if "stack" in rest:
        stack = rest.pop("stack")
        bare = system.model_copy(update={"stack": None})
        system = bare if stack is None else with_stack(system, stack_at(stack, "$.stack", file))
    return System.from_data(replaced(system.to_data(), rest, file), file) if rest else system
